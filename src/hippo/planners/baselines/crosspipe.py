"""CrossPipe (Chen et al., ATC'25, arXiv 2507.00217): a pipeline across data centres, scheduled around slow links.

Every domain holds consecutive stages, data parallelism stays inside (figure 3, cross-DC PP). A link has a latency and a
bandwidth and carries one message at a time (sections 2.2 and 4.2.3). Forwards run ahead as far as memory allows, which
hides the delays (section 4.2.2; section 6.2: rich memory buys more in-flight F blocks). Plans are ranked by a closed
form of that model and played by the judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import islice, permutations
from math import ceil

import numpy as np
from numpy.typing import NDArray

from hippo.cost.cost_model import CostModel
from hippo.plan.plan import Plan, ScheduleChoice
from hippo.planners.base import Progress, Proposal, Stop
from hippo.planners.cuts import Cuts, bottleneck_cuts, even_cuts, mixed_bottleneck_cuts
from hippo.planners.inside_domain import Reject
from hippo.planners.memory import memory_estimate
from hippo.planners.orders import ordered
from hippo.planners.placement import PipelineSketch, StageSketch, place, room_for_lanes
from hippo.planners.recipe import Recipe, compute_seconds, micro_batches, recomputations, shardings, tensor_widths
from hippo.planners.shortlist import ShortList
from hippo.problem.cluster import Domain
from hippo.problem.problem import Problem
from hippo.score.judge import Judged
from hippo.simulate.costs import cost_model
from hippo.simulate.routes import border_share

TRIED = 16  # plans that the judge plays
PATHS = 3  # chains of domains of each length that are searched, by the bandwidth of their slowest link
SHARDINGS = ("none", "optimizer", "gradients")
NOTES = (
    "Pipeline across domains, data parallelism inside; domains in the order whose slowest link is fastest; schedules: "
    "GPipe, 1F1B, 1F1B with as many forwards ahead at every hop as hide its delays and fit; for the best of these an "
    "order of its own with weight gradients as filler (method cross-domain).",
    "Left out: waves and the solver's free order of sub-blocks (section 4). Beyond the paper: layouts and cuts are "
    "searched (it takes them as given).",
)


@dataclass(frozen=True)
class CrossPipe:
    """The best pipeline over two or more domains with forwards that run ahead."""

    name: str = "crosspipe"

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """The best played plan of the closed form's favourites; see ``planners.base``."""
        shortlist = ShortList.of(problem, stop)
        search = CrossPipeSearch(cost_model(problem), shortlist.reject_memory)
        favourites = islice(search.candidates(), TRIED)
        shortlist.try_all(plan for candidate in favourites for plan in _plans(problem, candidate))
        try_ordered(shortlist, shortlist.best)
        nothing = f"No pipeline of {problem.model.name} over two or more linked domains fits."
        return shortlist.proposal(self.name, notes=NOTES, nothing=nothing)


def try_ordered(shortlist: ShortList, found: Judged | None) -> None:
    """Tries a plan with orders of its own, where there is one, the runtime plays any and work is left."""
    if found is not None and shortlist.problem.rules.schedules is None and not shortlist.effort.over():
        own = ordered(shortlist.problem, found.plan)
        shortlist.try_all([] if own is None else [own])


@dataclass(frozen=True)
class AcrossDomains:
    """One pipeline over a chain of domains."""

    domains: tuple[str, ...]  # of every stage
    tp: int
    dp: int
    recipe: Recipe
    waves: int
    seconds: float  # lower bound; closed form once the cuts are chosen
    cuts: Cuts = ()

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.domains)

    def plan(self, problem: Problem) -> Plan:
        """The candidate on named devices."""
        stages = tuple(
            StageSketch(domain, (self.cuts[stage], self.cuts[stage + 1]), self.tp, self.dp)
            for stage, domain in enumerate(self.domains)
        )
        return self.recipe.plan(
            problem, place(problem.cluster, [PipelineSketch(stages, self.waves)], cp=problem.context_parallel)
        )


@dataclass(frozen=True)
class CrossPipeSearch:
    """Chains of domains x layouts x recipes, best first by the closed form."""

    costs: CostModel
    reject: Reject
    _tables: dict[tuple[str, int, int, str], tuple[Cuts, ...]] = field(default_factory=dict)

    def candidates(self) -> Iterator[AcrossDomains]:
        """Candidates that fit, fastest first; ties: the order in which they were made up."""
        heap = [(one.seconds, index, False, one) for index, one in enumerate(self._sketched())]
        heapify(heap)
        while heap:
            _, index, finished, candidate = heappop(heap)
            if finished:
                yield candidate
                continue
            worked_out = self._worked_out(candidate)
            if worked_out is not None:
                heappush(heap, (worked_out.seconds, index, True, worked_out))

    def _sketched(self) -> Iterator[AcrossDomains]:
        for chain in self._chains():
            widths = set.intersection(*(set(tensor_widths(self.costs, domain)) for domain in chain))
            for tp in sorted(widths):
                groups = [room_for_lanes(domain, tp, self.costs.problem.context_parallel) for domain in chain]
                for micro_batch in micro_batches(self.costs, tp, most=self.costs.problem.workload.global_batch):
                    for recompute in recomputations(self.costs):
                        yield from self._layouts(chain, tp, groups, Recipe(micro_batch, recompute))

    def _chains(self) -> list[tuple[Domain, ...]]:
        """Chains by the seconds there and back of a wave of one sequence per node."""
        cluster = self.costs.problem.cluster
        names, sent = [domain.name for domain in cluster.domains], self._border_bytes * cluster.domains[0].nodes
        seconds = np.zeros((len(names), len(names)))
        for (i, a), (j, b) in permutations(enumerate(names), 2):
            seconds[i, j] = self._there_and_back(a, b, sent)
        return [tuple(cluster.domains[index] for index in chain) for chain in best_chains(seconds, keep=PATHS)]

    def _layouts(
        self, chain: tuple[Domain, ...], tp: int, groups: list[int], recipe: Recipe
    ) -> Iterator[AcrossDomains]:
        """Every data width that deals the batch; each domain holds as many stages as it has room for."""
        lots, rest = divmod(self.costs.problem.workload.global_batch, recipe.micro_batch)
        if rest:
            return
        total = float(compute_seconds(self.costs, chain[0].name, recipe, tp=tp, dp=1).sum())
        kinds = shardings(self.costs.problem, SHARDINGS, pipeline=True)
        recipes = {sharding: replace(recipe, sharding=sharding) for sharding in kinds}
        for dp in (width for width in range(1, min(groups) + 1) if lots % width == 0):
            depths = [count // dp for count in groups]
            if sum(depths) > self.costs.problem.model.num_blocks:
                continue
            domains = tuple(domain.name for domain, depth in zip(chain, depths, strict=True) for _ in range(depth))
            slowest = max(self._busy_seconds(a, b.name, tp, dp, recipe) for a, b in zip(chain, chain[1:], strict=False))
            bound = (lots // dp - 1) * max(total / len(domains), slowest) + total
            for sharding in kinds:
                if dp * self.costs.problem.context_parallel > 1 or sharding == "none":
                    yield AcrossDomains(domains, tp, dp, recipes[sharding], lots // dp, bound)

    def _busy_seconds(self, a: Domain, b: str, tp: int, dp: int, recipe: Recipe) -> float:
        """Seconds that one wave occupies the busier of the two links between two domains."""
        sent, nodes = self._border_bytes * recipe.micro_batch * dp, self._sending_nodes(a, tp, dp)
        links = (self.costs.problem.cluster.link(a.name, b), self.costs.problem.cluster.link(b, a.name))
        return max(sent / max(link.rate_bytes_per_s(nodes), 1e-9) for link in links if link is not None)

    @cached_property
    def _lane_bytes(self) -> float:
        """What one lane sends to the next stage per sequence."""
        problem = self.costs.problem
        layout = Recipe(1).layout(problem, tp=1, dp=1)
        return self.costs.stage(problem.cluster.domains[0].name, 0, 1, layout).output_bytes

    @cached_property
    def _border_bytes(self) -> float:
        """The same where the next stage lies in another domain."""
        return self._lane_bytes * border_share(self.costs.problem)

    def _there_and_back(self, a: str, b: str, num_bytes: float, nodes: int = 1) -> float:
        there, back = self.costs.problem.cluster.link(a, b), self.costs.problem.cluster.link(b, a)
        if there is None or back is None:
            return float("inf")
        links = (there, back)
        return sum(link.delay_s + num_bytes / max(link.rate_bytes_per_s(nodes), 1e-9) for link in links)

    def _link_seconds(
        self, domains: tuple[str, ...], tp: int, dp: int, recipe: Recipe
    ) -> tuple[list[float], list[float]]:
        """Per border of two stages: seconds there and back, and seconds that one wave occupies the busier link."""
        sent = self._border_bytes * recipe.micro_batch * dp
        returns, busy = [], []
        for a, b in zip(domains, domains[1:], strict=False):
            if a == b:
                returns.append(2 * self.costs.p2p_seconds(a, self._lane_bytes * recipe.micro_batch, same_node=False))
                busy.append(0.0)
                continue
            domain = self.costs.problem.cluster.domain(a)
            returns.append(self._there_and_back(a, b, sent, self._sending_nodes(domain, tp, dp)))
            busy.append(self._busy_seconds(domain, b, tp, dp, recipe))
        return returns, busy

    def _worked_out(self, candidate: AcrossDomains) -> AcrossDomains | None:
        """Cuts, the forwards that run ahead, and the closed form; None: it does not fit."""
        cut = replace(candidate, cuts=self._cuts(candidate))
        spans = self._spans(cut)
        kept, activations = self._memory(cut)
        usable = self.costs.usable_memory_bytes()
        depth = np.arange(cut.stages, 0, -1)
        missing = float((kept + activations * np.minimum(depth, cut.waves)).max() - usable)
        if missing > 0:
            self.reject(missing)
            return None
        room = np.floor((usable - kept) / np.maximum(activations, 1.0))
        schedule = self._schedule(cut, spans, np.where(room >= cut.waves, np.inf, room))
        cut = replace(cut, recipe=replace(cut.recipe, schedule=schedule))
        return replace(cut, seconds=self._seconds(cut, spans))

    def _cuts(self, candidate: AcrossDomains) -> Cuts:
        """Balanced by the seconds of each stage's own domain (the paper balances by treating both ends as layers)."""
        costs, recipe = self.costs, candidate.recipe
        if costs.problem.uniform_cuts:
            return even_cuts(costs.problem.model.num_layers, candidate.stages)
        fabrics = {costs.fabrics[domain] for domain in candidate.domains}
        if len(fabrics) > 1:
            rows = {
                domain: compute_seconds(costs, domain, recipe, tp=candidate.tp, dp=1) for domain in candidate.domains
            }
            return mixed_bottleneck_cuts([rows[domain] for domain in candidate.domains])[0]
        key = candidate.domains[0], candidate.tp, recipe.micro_batch, recipe.recompute
        if key not in self._tables:
            seconds = compute_seconds(costs, candidate.domains[0], recipe, tp=candidate.tp, dp=1)
            most = sum(domain.gpus for domain in costs.problem.cluster.domains) // candidate.tp
            self._tables[key] = bottleneck_cuts(seconds, min(costs.problem.model.num_blocks, most))
        return self._tables[key][candidate.stages - 1]

    def _spans(self, candidate: AcrossDomains) -> NDArray[np.float64]:
        """Seconds (p,) of one micro-batch on each stage."""
        sums = {
            domain: np.concatenate(
                [[0.0], np.cumsum(compute_seconds(self.costs, domain, candidate.recipe, tp=candidate.tp, dp=1))]
            )
            for domain in dict.fromkeys(candidate.domains)
        }
        spans = zip(candidate.domains, candidate.cuts[:-1], candidate.cuts[1:], strict=True)
        return np.array([sums[domain][stop] - sums[domain][start] for domain, start, stop in spans])

    def _memory(self, candidate: AcrossDomains) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bytes (p,) that each stage keeps, and those of each micro-batch in flight."""
        room, cuts = memory_estimate(self.costs), candidate.cuts
        spans = zip(cuts[:-1], cuts[1:], strict=True)
        parts = [room.parts(candidate.recipe, candidate.tp, candidate.dp, span) for span in spans]
        return np.array([kept for kept, _ in parts]), np.array([each for _, each in parts])

    def _schedule(
        self, candidate: AcrossDomains, spans: NDArray[np.float64], room: NDArray[np.float64]
    ) -> ScheduleChoice:
        """As many forwards ahead per hop as hide the slowest round trip, ``1 + r / t``, or as fit; 1F1B if none.

        ``room`` (p,) is how many micro-batches each stage can keep; stage i keeps ``ceil(live_limit (p - i) / p)``.
        """
        stages = candidate.stages
        if not self.costs.problem.rules.live_limit:
            return ScheduleChoice("1f1b")
        returns, busy = self._link_seconds(candidate.domains, candidate.tp, candidate.dp, candidate.recipe)
        pace = max(float(spans.max()), *busy)
        wanted = ceil(stages * (1 + max(returns) / pace))
        allowed = (room * stages / np.arange(stages, 0, -1)).min()
        limit = int(min(wanted, allowed, candidate.waves * stages))
        return ScheduleChoice("cross-domain", limit) if limit > stages else ScheduleChoice("1f1b")

    def _seconds(self, candidate: AcrossDomains, spans: NDArray[np.float64]) -> float:
        """(m - 1) * pace + the first wave there and back + the slowest stage's work once per step.

        The pace is set by the slowest stage, the busiest link, or a hop whose round trip r the k forwards in flight
        there leave open: ``(2 t + r) / (k + 1)``.
        """
        returns, busy = self._link_seconds(candidate.domains, candidate.tp, candidate.dp, candidate.recipe)
        slowest = float(spans.max())
        ahead = max(1.0, (candidate.recipe.schedule.live_limit or 0) / candidate.stages)
        pace = max(slowest, *busy, (2 * slowest + max(returns)) / (ahead + 1))
        layout = candidate.recipe.layout(self.costs.problem, tp=candidate.tp, dp=candidate.dp, stages=candidate.stages)
        unlike = {
            (self.costs.fabrics[domain], self.costs.distinct[1][start:stop].tobytes()): (domain, start, stop)
            for domain, start, stop in zip(candidate.domains, candidate.cuts[:-1], candidate.cuts[1:], strict=True)
        }
        stages = [self.costs.stage(*where, layout) for where in unlike.values()]
        once = max(stage.sync_s + stage.optimizer_s + stage.fixed_s for stage in stages)
        return float((candidate.waves - 1) * pace + spans.sum() + sum(returns) + once)

    def _sending_nodes(self, domain: Domain, tp: int, dp: int) -> int:
        """Nodes of one stage."""
        return min(domain.nodes, ceil(tp * self.costs.problem.context_parallel * dp / domain.gpus_per_node))


def _plans(problem: Problem, candidate: AcrossDomains) -> Iterator[Plan]:
    """The candidate with forwards ahead, and as GPipe (all forwards first) where the runtime has it."""
    yield candidate.plan(problem)
    schedules = problem.rules.schedules
    if schedules is None or "gpipe" in schedules:
        yield replace(candidate, recipe=replace(candidate.recipe, schedule=ScheduleChoice("gpipe"))).plan(problem)


NORM = 8.0
MOST_DOMAINS = 12  # of more domains only so many are looked at, those with the fastest links on average


def best_chains(seconds: NDArray[np.float64], *, keep: int) -> tuple[tuple[int, ...], ...]:
    """For every length 2..K the ``keep`` sets of domains with the fastest chains, each in its best order.

    ``seconds`` (K, K) is the time of one message and its answer between two domains, infinite without links.
    Held and Karp's programme over (visited, last).
    """
    chosen = _best_linked(seconds)
    count = len(chosen)
    cost = np.where(np.isfinite(seconds), (seconds / _scale(seconds)) ** NORM, np.inf)[np.ix_(chosen, chosen)]
    np.fill_diagonal(cost, np.inf)
    total = np.full((1 << count, count), np.inf)
    before = np.full((1 << count, count), -1, dtype=np.int64)
    for first in range(count):
        total[1 << first, first] = 0.0
    for visited in range(1, 1 << count):
        onward = total[visited][:, None] + cost
        last = onward.argmin(axis=0)
        for following in range(count):
            if not visited >> following & 1:
                joined = visited | 1 << following
                total[joined, following] = onward[last[following], following]
                before[joined, following] = last[following]
    return tuple(tuple(chosen[index] for index in chain) for chain in _shortest(total, before, keep))


def _shortest(total: NDArray[np.float64], before: NDArray[np.int64], keep: int) -> list[tuple[int, ...]]:
    """Per number of visited domains the ``keep`` cheapest finite entries, walked back."""
    cheapest = total.min(axis=1)
    sizes = np.array([int(visited).bit_count() for visited in range(len(total))])
    chains: list[tuple[int, ...]] = []
    for size in range(2, total.shape[1] + 1):
        sets = np.flatnonzero((sizes == size) & np.isfinite(cheapest))
        for visited in sets[np.argsort(cheapest[sets], kind="stable")[:keep]]:
            chains.append(_walk_back(int(visited), int(total[visited].argmin()), before))
    return chains


def _walk_back(visited: int, last: int, before: NDArray[np.int64]) -> tuple[int, ...]:
    chain = [last]
    while visited.bit_count() > 1:
        earlier = int(before[visited, last])
        visited, last = visited ^ (1 << last), earlier
        chain.append(last)
    return tuple(reversed(chain))


def _best_linked(seconds: NDArray[np.float64]) -> list[int]:
    """Domains with the fastest links on average, in their own order."""
    count = len(seconds)
    if count <= MOST_DOMAINS:
        return list(range(count))
    worth = np.where(np.isfinite(seconds), 1.0 / np.maximum(seconds, 1e-12), 0.0)
    np.fill_diagonal(worth, 0.0)
    return sorted(int(index) for index in np.argsort(-worth.sum(axis=1), kind="stable")[:MOST_DOMAINS])


def _scale(seconds: NDArray[np.float64]) -> float:
    finite = seconds[np.isfinite(seconds) & (seconds > 0)]
    return float(finite.max()) if len(finite) else 1.0
