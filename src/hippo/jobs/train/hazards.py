"""The supervised part: the prior, and the network that corrects what the classes of the past say, by likelihood.

Replays of the learned policy itself write down what is seen of a job's bins at some keys. Of each, the job was at risk
in the bins from its own to the one in which it ended, and it ended in the last of them: binary cross-entropy over
these is the likelihood of its duration (discrete-time survival analysis, Singer and Willett 1993). Durations are
those of the trace; the network never sees them, only what had ended by then.

Letters: R rows (a bin of a job at a moment), V what is seen of a bin, B bins, h units.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hippo.jobs.learned.past import BINS, EDGES_S, SEEN, SOURCES
from hippo.jobs.learned.state import bin_notes
from hippo.jobs.learned.weights import KeyWeights
from hippo.jobs.train.settings import Hazards, KeyTraining
from hippo.jobs.train.windows import Window
from hippo.learn.distributed import Place
from hippo.learn.session import Learned

KEYS_PER_JOB = 20  # about, in a replay
AT_RISK = 10  # bins of a key, about; measured: 8.4


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


class HazardLearner:
    """Each update is one pass over what replays saw; they are made anew every ``hazards.passes``.

    Every update draws from a generator of its own number, and replays draw nothing, so a resumed run is the same run.
    One process. ``base``: the weights that replays are made by.
    """

    place = Place()

    def __init__(self, base: KeyWeights, windows: Sequence[Window], settings: KeyTraining) -> None:
        torch.manual_seed(settings.run.seed)
        self.policy, self.base, self.windows, self.settings = HazardNetwork(base), base, windows, settings
        hazards = settings.hazards
        self.optimizer = torch.optim.AdamW(
            self.policy.parameters(), lr=hazards.learning_rate, weight_decay=hazards.weight_decay
        )
        self.rows: HazardRows | None = None

    def learn(self, done: float) -> Learned:
        """One update; ``done``: share of the run that lies behind."""
        began, hazards, number = time.process_time(), self.settings.hazards, round(done * self.settings.run.updates)
        if number % hazards.passes == 0:
            self.base, self.rows = self.policy.into(self.base), None
        if self.rows is None:
            self.rows = joined([collected(each, self.base, hazards.keys) for each in self.windows])
        for group in self.optimizer.param_groups:
            group["lr"] = hazards.learning_rate * (1.0 - number % hazards.passes / hazards.passes)
        loss = self._descend(self.rows, torch.Generator().manual_seed(self.settings.run.seed + number))
        return Learned({"loss": loss}, self.rows.jobs, time.process_time() - began)

    def _descend(self, rows: HazardRows, generator: torch.Generator) -> float:
        """One pass in minibatches; the mean loss."""
        total = 0.0
        order = torch.randperm(len(rows.ended), generator=generator)
        for chosen in torch.split(order, self.settings.hazards.minibatch):
            loss = nn.functional.binary_cross_entropy_with_logits(self.policy(rows.seen[chosen]), rows.ended[chosen])
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            total += loss.detach().item() * len(chosen)
        return total / max(len(order), 1)

    def state(self) -> tuple[Sequence[float], list[Any]]:
        """The weights that replays are made by; what these saw is seen again."""
        return (), [self.base._asdict()]

    def restore(self, multipliers: Sequence[float], shares: Sequence[Any]) -> None:
        """The way back."""
        self.base, self.rows = KeyWeights(**shares[0]), None


def need(settings: Hazards, windows: int) -> float:
    """Bytes of what so many windows see at their keys, once apart and once joined, and of room for one of them."""
    seen = 4 * len(SEEN)
    return settings.keys * (BINS * seen + 2 * windows * AT_RISK * (seen + 4))


def collected(window: Window, weights: KeyWeights, keys: int) -> HazardRows:
    """What a replay saw of bins at about so many keys."""
    every = max(1, KEYS_PER_JOB * len(window.workload) // keys)
    notes = bin_notes(keys, every=every)
    window.play(weights, notes)
    used = int(notes.used[0])
    job, own = notes.job[:used], notes.own[:used]
    end = np.searchsorted(EDGES_S, window.workload.duration_s[job], side="right")
    bins = np.arange(BINS)
    at_risk = (bins >= own[:, None]) & (bins <= end[:, None])
    ended = (bins == end[:, None])[at_risk]
    seen = torch.from_numpy(notes.seen[:used][at_risk])
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
