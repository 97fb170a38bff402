"""The agents' networks. The upper one: a graph network over domains, attention over jobs, and two masked choices, one
after the other: a job (or nobody), then a place for it. The lower one, whose weights all domains share: in which shape,
on which devices.

The value is a sum over jobs, as what is to be paid is: each job in the light of all, and what the site says.

Letters: N decisions, K domains, J jobs, P places, V shapes, M parts, H units, O of them of a domain.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from hippo.jobs.engine.observe import (
    ADVISED_JOB,
    ADVISED_NOBODY,
    ADVISED_PLACE,
    DOMAIN_NUMBERS,
    JOB_NUMBERS,
    LINK_NUMBERS,
    PLACE_NUMBERS,
    SHAPE_NUMBERS,
    SITE_NUMBERS,
    THERE,
)
from hippo.jobs.joint.hi_ppo.settings import START
from hippo.learn.ppo import Evaluated, choice


class MomentsSeen(NamedTuple):
    """N moments; rows of nobody are zero. What is seen of places comes when a job has been chosen."""

    site: Tensor  # (N, SITE_NUMBERS)
    domains: Tensor  # (N, K, DOMAIN_NUMBERS)
    links: Tensor  # (N, K, K, LINK_NUMBERS) from, to
    jobs: Tensor  # (N, J, JOB_NUMBERS)
    may: Tensor  # (N, J + 1) bool: who may be chosen; the last: nobody
    places: Tensor  # (N, P, PLACE_NUMBERS) of the job that was chosen
    where: Tensor  # (N, P, M) domains of its parts, -1: no such part
    may_place: Tensor  # (N, P) bool; none: nobody was chosen
    shapes: Tensor  # (N, V, SHAPE_NUMBERS) of the place that was chosen
    may_shape: Tensor  # (N, V) bool; none: nothing is handed down
    beside: Tensor  # (N, BESIDE) for the value alone


class Thought(NamedTuple):
    """What the network makes of a moment before it chooses."""

    domains: Tensor  # (N, K + 1, O), the last zero
    jobs: Tensor  # (N, J, H), zero for nobody
    around: Tensor  # (N, O + H) of the whole moment
    advised: Tensor  # (N, J + 1) 1: whom the rule would choose


SEEN = {
    "site": SITE_NUMBERS,
    "domains": DOMAIN_NUMBERS,
    "links": LINK_NUMBERS,
    "jobs": JOB_NUMBERS,
    "places": PLACE_NUMBERS,
}


class UpperNetwork(nn.Module):
    """Scores jobs, then places of the chosen one; values the moment."""

    def __init__(
        self,
        hidden: int = 32,
        layers: int = 2,
        heads: int = 2,
        *,
        out: int = 0,
        graph: bool = True,
        beside: int = 0,
        follows: float = 0.0,
    ) -> None:
        super().__init__()
        layers = layers if graph else 0
        made = out or hidden if layers else hidden  # units of a domain
        self.sees_domains: Tensor
        self.sees_links: Tensor
        self.sees_jobs: Tensor
        self.sees_site: Tensor
        self.sees_places: Tensor
        for name, count in SEEN.items():
            self.register_buffer(f"sees_{name}", torch.ones(count))  # 0: left out
        self.follows = nn.Parameter(torch.full((3,), follows))  # a rule: whom, nobody, where
        self.domain_in = nn.Linear(DOMAIN_NUMBERS, hidden)
        self.message_node = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))
        self.message_edge = nn.ModuleList(nn.Linear(2 * LINK_NUMBERS, hidden) for _ in range(layers))
        self.update = nn.ModuleList(
            nn.Linear(2 * hidden, made if layer == layers - 1 else hidden) for layer in range(layers)
        )
        self.job_in = _two(JOB_NUMBERS + SITE_NUMBERS, hidden, hidden)
        self.attention = nn.MultiheadAttention(hidden, heads, batch_first=True)
        self.job_next = _two(hidden, hidden, hidden)
        self.job_own, self.job_around = nn.Linear(hidden, hidden), nn.Linear(made + hidden, hidden)
        self.job_out = nn.Linear(hidden, 1)
        self.none_out = _two(made + hidden, hidden, 1)
        self.place_own, self.place_job = nn.Linear(PLACE_NUMBERS, hidden), nn.Linear(made + 2 * hidden, hidden)
        self.place_parts = nn.Linear(made, hidden)
        self.place_out = _two(hidden, hidden, 1)
        self.value_job = _two(made + 2 * hidden, hidden, 1)
        self.value_site = _two(made + hidden + SITE_NUMBERS + beside, hidden, 1)
        for last in (self.job_out, self.none_out[-1], self.place_out[-1]):
            nn.init.zeros_(last.weight)  # type: ignore[arg-type]
            nn.init.zeros_(last.bias)  # type: ignore[arg-type]

    def think(self, seen: MomentsSeen) -> Thought:
        """Embed moments."""
        nodes = torch.relu(self.domain_in(seen.domains * self.sees_domains))
        links, here = seen.links * self.sees_links, seen.domains[..., THERE]
        edges, share = torch.cat([links, links.transpose(1, 2)], dim=-1), here / here.sum(1, keepdim=True)
        for of_node, of_edge, update in zip(self.message_node, self.message_edge, self.update, strict=True):
            sent = torch.relu(of_node(nodes)[:, None] + of_edge(edges)).mul(share[:, None, :, None]).sum(2)
            nodes = torch.relu(update(torch.cat([nodes, sent], dim=-1)))
        there = seen.jobs[..., -1] > 0
        site, jobs = seen.site * self.sees_site, seen.jobs * self.sees_jobs
        advised = torch.cat([jobs[..., ADVISED_JOB], site[:, ADVISED_NOBODY, None]], dim=-1)
        rows = _each_beside(self.job_in, jobs, site)
        hidden = ~there & there.any(1, keepdim=True)
        rows = rows + self.attention(rows, rows, rows, key_padding_mask=hidden, need_weights=False)[0]
        rows = (rows + self.job_next(rows)) * there[..., None]
        many = there.sum(1, keepdim=True).clamp_min(1)
        around = torch.cat([(nodes * share[..., None]).sum(1), rows.sum(1) / many], dim=-1)
        return Thought(torch.cat([nodes, torch.zeros_like(nodes[:, :1])], dim=1), rows, around, advised)

    def whom(self, thought: Thought) -> Tensor:
        """Logits (N, J + 1) of jobs, the last: nobody."""
        jobs = torch.relu(self.job_own(thought.jobs) + self.job_around(thought.around)[:, None])
        said = torch.cat([self.job_out(jobs)[..., 0], self.none_out(thought.around)], dim=-1)
        follows = torch.cat([self.follows[:1].expand(jobs.shape[1]), self.follows[1:2]])
        return said + follows * thought.advised

    def whither(self, thought: Thought, slot: Tensor, seen: MomentsSeen) -> Tensor:
        """Logits (N, P) of the places of the chosen jobs (N,), 0 of those that are none: most rows have few."""
        job = thought.jobs[torch.arange(len(slot)), slot.clamp_max(thought.jobs.shape[1] - 1)]
        around = self.place_job(torch.cat([job, thought.around], dim=-1))
        rows, at = torch.nonzero(seen.may_place, as_tuple=True)
        parts = self.place_parts(thought.domains)[rows[:, None], seen.where[rows, at]].sum(1)
        places = seen.places[rows, at] * self.sees_places
        scores: Tensor = self.place_out(torch.relu(self.place_own(places) + around[rows] + parts))[:, 0]
        scores = scores + self.follows[2] * places[:, ADVISED_PLACE]
        return scores.new_zeros(seen.may_place.shape).index_put((rows, at), scores)

    def value(self, thought: Thought, seen: MomentsSeen) -> Tensor:
        """(N, 1) what is to be earned from here."""
        each = _each_beside(self.value_job, thought.jobs, thought.around)[..., 0] * (seen.jobs[..., -1] > 0)
        found: Tensor = each.sum(1, keepdim=True) + self.value_site(
            torch.cat([thought.around, seen.site, seen.beside], dim=-1)
        )
        return found

    def evaluate(self, seen: MomentsSeen, action: Tensor) -> Evaluated:
        """How likely answers (N, 3) are now: a slot (J: nobody) and a place; the third is the lower agent's."""
        thought = self.think(seen)
        whom, chaos = choice(self.whom(thought), seen.may)
        slot, place = action[:, 0], action[:, 1]
        log_prob = whom.gather(1, slot[:, None])[:, 0]
        chosen = seen.may_place.any(1)
        whither, places_chaos = choice(self.whither(thought, slot, seen), seen.may_place)
        log_prob = log_prob + torch.where(chosen, whither.gather(1, place[:, None])[:, 0], 0.0)
        return Evaluated(log_prob, chaos + torch.where(chosen, places_chaos, 0.0), self.value(thought, seen))


class LowerNetwork(nn.Module):
    """Scores the shapes of a place. What a shape costs its domain is known at once (``LowerTerms.reward``), so it has
    no value of its own to learn; what the upper agent's advantage says of the whole answer comes on top."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.out = nn.Sequential(
            nn.Linear(SHAPE_NUMBERS, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )
        nn.init.zeros_(self.out[-1].weight)  # type: ignore[arg-type]
        nn.init.zeros_(self.out[-1].bias)  # type: ignore[arg-type]

    def scores(self, shapes: Tensor) -> Tensor:
        """Logits (N, V): at first the quickest shape, in the fullest nodes."""
        found: Tensor = self.out(shapes)[..., 0] + START * (shapes[..., 0] - 1.0) * 20.0 - START * shapes[..., 6] * 0.5
        return found

    def evaluate(self, seen: MomentsSeen, action: Tensor) -> Evaluated:
        """How likely shapes (N,) are now."""
        log_probs, chaos = choice(self.scores(seen.shapes), seen.may_shape)
        return Evaluated(log_probs.gather(1, action[:, None])[:, 0], chaos, torch.zeros(len(action), 1))


def _each_beside(two: nn.Sequential, each: Tensor, around: Tensor) -> Tensor:
    """Two layers over each row (N, J, A) with what is around all of them (N, B) behind it, which is looked at once."""
    first, rest = two[0], two[1:]
    assert isinstance(first, nn.Linear)
    count = each.shape[-1]
    shared = functional.linear(around, first.weight[:, count:], first.bias)
    found: Tensor = rest(functional.linear(each, first.weight[:, :count]) + shared[:, None])
    return found


def _two(given: int, hidden: int, made: int) -> nn.Sequential:
    """Two layers."""
    return nn.Sequential(nn.Linear(given, hidden), nn.ReLU(), nn.Linear(hidden, made))
