"""The supervised part: the prior, and the network that corrects what the classes of the past say, by likelihood.

Replays of the learned policy itself write down what is seen of a job's bins at some keys. Of each, the job was at risk
in the bins from its own to the one in which it ended, and it ended in the last of them: binary cross-entropy over
these is the likelihood of its duration (discrete-time survival analysis, Singer and Willett 1993). Durations are
those of the trace; the network never sees them, only what had ended by then.

Letters: R rows (a bin of a job at a moment), V what is seen of a bin, B bins, h units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hippo.jobs.learned.past import BINS, EDGES_S, SEEN, SOURCES
from hippo.jobs.learned.state import trial
from hippo.jobs.learned.weights import KeyWeights
from hippo.jobs.train.settings import Hazards
from hippo.jobs.train.windows import Window

KEYS_PER_JOB = 20  # about, in a replay
AT_RISK = 10  # bins of a key, about; measured: 8.4

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HazardRows:
    """Bins at risk, and which of them the job ended in."""

    seen: Tensor  # (R, V)
    ended: Tensor  # (R,)
    jobs: int  # moments of a job, of which these are the bins


class HazardNetwork(nn.Module):
    """The correction, as the kernel computes it."""

    def __init__(self, weights: KeyWeights) -> None:
        super().__init__()
        units = weights.hazard_first.shape[1]
        self.first, self.last = nn.Linear(len(SEEN), units), nn.Linear(units, 1)
        with torch.no_grad():
            if np.any(weights.hazard_last):
                self.first.weight.copy_(torch.from_numpy(weights.hazard_first.T.copy()))
                self.first.bias.copy_(torch.from_numpy(weights.hazard_first_bias))
            self.last.weight.copy_(torch.from_numpy(weights.hazard_last[None]))
            self.last.bias.copy_(torch.from_numpy(weights.hazard_last_bias))

    def forward(self, seen: Tensor) -> Tensor:
        """Logits (R,) of the hazards."""
        found: Tensor = self.last(torch.relu(self.first(seen)))
        return found[:, 0] + seen[:, len(SOURCES)]

    def into(self, weights: KeyWeights) -> KeyWeights:
        """The weights with this network's numbers in them."""
        first, last = self.first.weight.detach().numpy(), self.last.weight.detach().numpy()
        return weights._replace(
            hazard_first=np.ascontiguousarray(first.T),
            hazard_first_bias=self.first.bias.detach().numpy().copy(),
            hazard_last=last[0].copy(),
            hazard_last_bias=self.last.bias.detach().numpy().copy(),
        )


def fit(
    weights: KeyWeights,
    windows: Sequence[Window],
    validation: Sequence[Window],
    settings: Hazards,
    seed: int,
    track: Callable[[int, dict[str, float]], None] = lambda number, figures: None,
) -> KeyWeights:
    """The weights with the network that says most of durations in the windows that are looked at.

    Every round replays the windows with what the last one learned.
    """
    torch.manual_seed(seed)
    best, least, number = weights, np.inf, 0
    for _ in range(settings.rounds):
        learn = [collected(window, best, settings.keys) for window in windows]
        held = joined([collected(window, best, settings.keys // 4) for window in validation] or learn)
        rows, network = joined(learn), HazardNetwork(best)
        least = surprise(network, held)
        track(number, {"surprise": least})
        for loss in _passes(network, rows, settings):
            number += 1
            found = surprise(network, held)
            track(number, {"surprise": found, "loss": loss})
            if found < least:
                best, least = network.into(best), found
    return best


def need(settings: Hazards, windows: int) -> float:
    """Bytes of what so many windows see at their keys, once apart and once joined, and of room for one of them."""
    seen = 4 * len(SEEN)
    return settings.keys * (BINS * seen + 2 * windows * AT_RISK * (seen + 4))


def collected(window: Window, weights: KeyWeights, keys: int) -> HazardRows:
    """What a replay saw of bins at about so many keys."""
    every = max(1, KEYS_PER_JOB * len(window.workload) // keys)
    written = trial(np.zeros((0, 0)), bins=keys, every=every)
    window.play(weights, written)
    used = int(written.used[1])
    job, own = written.bins_job[:used], written.bins_own[:used]
    end = np.searchsorted(EDGES_S, window.workload.duration_s[job], side="right")
    bins = np.arange(BINS)
    at_risk = (bins >= own[:, None]) & (bins <= end[:, None])
    ended = (bins == end[:, None])[at_risk]
    seen = torch.from_numpy(written.bins[:used][at_risk])
    return HazardRows(seen, torch.from_numpy(ended.astype(np.float32)), used)


def joined(parts: Sequence[HazardRows]) -> HazardRows:
    """Rows of several replays."""
    seen, ended = (torch.cat([getattr(each, name) for each in parts]) for name in ("seen", "ended"))
    return HazardRows(seen, ended, sum(each.jobs for each in parts))


def surprise(network: HazardNetwork, rows: HazardRows) -> float:
    """Minus the mean log likelihood of a duration, in nats."""
    with torch.no_grad():
        lost = nn.functional.binary_cross_entropy_with_logits(network(rows.seen), rows.ended, reduction="sum")
    return float(lost) / max(rows.jobs, 1)


def _passes(network: HazardNetwork, rows: HazardRows, settings: Hazards) -> Iterator[float]:
    """Descends, pass after pass over the rows; the mean loss of each."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    for number in range(settings.passes):
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * (1.0 - number / settings.passes)
        order, total = torch.randperm(len(rows.ended)), 0.0
        for chosen in torch.split(order, settings.minibatch):
            loss = nn.functional.binary_cross_entropy_with_logits(network(rows.seen[chosen]), rows.ended[chosen])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.detach().item() * len(chosen)
        yield total / max(len(order), 1)
