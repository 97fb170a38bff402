"""The upper agent's network: a graph network over domains, attention over jobs, and two masked choices.

Letters: N decisions, K domains, J jobs, P places, M parts, H units.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from hippo.jobs.engine.observe import DOMAIN_NUMBERS, JOB_NUMBERS, LINK_NUMBERS, PLACE_NUMBERS
from hippo.learn.ppo import Evaluated, choice


class Seen(NamedTuple):
    """Of N moments; the rows of nobody are zero."""

    domains: Tensor  # (N, K, DOMAIN_NUMBERS)
    links: Tensor  # (N, K, K, LINK_NUMBERS) from, to
    jobs: Tensor  # (N, J, JOB_NUMBERS)
    may: Tensor  # (N, J + 1) bool: who may be chosen, the last: nobody
    places: Tensor  # (N, P, PLACE_NUMBERS) of the job that was chosen
    where: Tensor  # (N, P, M) domains of its parts, K: no such part
    may_place: Tensor  # (N, P) bool; all False: nobody was chosen


class Thought(NamedTuple):
    """What the network makes of a moment before it has chosen."""

    domains: Tensor  # (N, K + 1, H), the last zero
    jobs: Tensor  # (N, J, H)
    all: Tensor  # (N, 2 H) of the whole moment


class UpperNetwork(nn.Module):
    """Scores jobs, then places of the chosen one; values the moment."""

    def __init__(self, hidden: int = 48, layers: int = 2, heads: int = 2) -> None:
        super().__init__()
        self.domain_in = nn.Linear(DOMAIN_NUMBERS, hidden)
        self.messages = nn.ModuleList(nn.Linear(hidden + 2 * LINK_NUMBERS, hidden) for _ in range(layers))
        self.updates = nn.ModuleList(nn.Linear(2 * hidden, hidden) for _ in range(layers))
        self.job_in = nn.Sequential(nn.Linear(JOB_NUMBERS, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.attention = nn.MultiheadAttention(hidden, heads, batch_first=True)
        self.job_out = nn.Sequential(nn.Linear(3 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.none_out = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.place_out = nn.Sequential(
            nn.Linear(PLACE_NUMBERS + 2 * hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )
        self.value_out = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def think(self, domains: Tensor, links: Tensor, jobs: Tensor) -> Thought:
        """Embed a moment."""
        nodes = torch.relu(self.domain_in(domains))
        count = nodes.shape[1]
        edges = torch.cat([links, links.transpose(1, 2)], dim=-1)
        for message, update in zip(self.messages, self.updates, strict=True):
            sent = torch.relu(message(torch.cat([nodes[:, None].expand(-1, count, -1, -1), edges], dim=-1)))
            nodes = torch.relu(update(torch.cat([nodes, sent.mean(2)], dim=-1)))
        rows = self.job_in(jobs)
        nobody = jobs[..., -1] == 0
        safe = nobody & ~nobody.all(1, keepdim=True)
        rows = rows + self.attention(rows, rows, rows, key_padding_mask=safe, need_weights=False)[0]
        rows = torch.where(nobody[..., None], 0.0, rows)
        many = (~nobody).sum(1, keepdim=True).clamp_min(1)
        everything = torch.cat([nodes.mean(1), rows.sum(1) / many], dim=-1)
        return Thought(torch.cat([nodes, torch.zeros_like(nodes[:, :1])], dim=1), rows, everything)

    def whom(self, thought: Thought) -> Tensor:
        """Logits (N, J + 1) of jobs, the last: nobody."""
        around = thought.all[:, None].expand(-1, thought.jobs.shape[1], -1)
        jobs = self.job_out(torch.cat([thought.jobs, around], dim=-1))[..., 0]
        return torch.cat([jobs, self.none_out(thought.all)], dim=-1)

    def whither(self, thought: Thought, slot: Tensor, places: Tensor, where: Tensor) -> Tensor:
        """Logits (N, P) of the places of the chosen jobs (N,)."""
        rows = torch.arange(len(slot))
        job = thought.jobs[rows, slot.clamp_max(thought.jobs.shape[1] - 1)]
        parts = thought.domains[rows[:, None, None], where].sum(2)
        around = job[:, None].expand(-1, places.shape[1], -1)
        found: Tensor = self.place_out(torch.cat([places, around, parts], dim=-1))[..., 0]
        return found

    def value(self, thought: Thought) -> Tensor:
        """(N, 1) what is to be earned from here."""
        found: Tensor = self.value_out(thought.all)
        return found

    def evaluate(self, seen: Seen, action: Tensor) -> Evaluated:
        """How likely answers (N, 2) are now: a slot (J: nobody) and a place."""
        thought = self.think(seen.domains, seen.links, seen.jobs)
        whom, chaos = choice(self.whom(thought), seen.may)
        slot, place = action[:, 0], action[:, 1]
        log_prob = whom.gather(1, slot[:, None])[:, 0]
        chosen = slot < seen.jobs.shape[1]
        may = seen.may_place | ~chosen[:, None]
        whither, places_chaos = choice(self.whither(thought, slot, seen.places, seen.where), may)
        log_prob = log_prob + torch.where(chosen, whither.gather(1, place[:, None])[:, 0], 0.0)
        return Evaluated(log_prob, chaos + torch.where(chosen, places_chaos, 0.0), self.value(thought))
