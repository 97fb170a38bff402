"""Sailor (Strati et al., SOSP'25, arXiv 2504.17096): heuristics H1-H6 and a dynamic programme over stages and regions.

The planner's estimate is the paper's (section 4.2.2): with N_b micro-batches and t_i a stage's compute and transfer,

    T = max t_i * N_b + max sync_i + sum t_i

In the paper every replica pair has the link to itself and sends do not overlap with compute, as in the runtime it
plans for. Here lanes are told their share of a link, and where the problem's runtime sends beside computing, only half
of a round trip counts in ``max t_i``: 1F1B has one micro-batch in flight over a border, so a border's pace is
``(2 t + r) / 2``. The best plan of each number of regions and tensor width is played by the judge, which stands for the
paper's simulator, with an order made for its links where the runtime plays any, as every answer has one: what leaves
room for micro-batches ahead gains more by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hippo.cost.cost_model import CostModel
from hippo.cost.measured import ENDLESS_S
from hippo.errors import InfeasibleError
from hippo.plan.plan import Plan
from hippo.planners.base import Progress, Proposal, Stop
from hippo.planners.baselines.crosspipe import try_ordered
from hippo.planners.baselines.sailor_kernel import (
    NARROW,
    NO_ROOM,
    WIDE,
    ChainNumbers,
    StageNumbers,
    nearest_chain,
    widths_of,
)
from hippo.planners.cuts import Cuts, even_cuts
from hippo.planners.effort import CHECK_S, Effort
from hippo.planners.inside_domain import Reject
from hippo.planners.memory import MemoryEstimate, memory_estimate
from hippo.planners.placement import PipelineSketch, StageSketch, place
from hippo.planners.recipe import Recipe, compute_seconds, micro_batches, recomputations, shardings, tensor_widths
from hippo.planners.shortlist import ShortList
from hippo.problem.cluster import Cluster
from hippo.problem.problem import Problem
from hippo.simulate.costs import cost_model
from hippo.simulate.routes import border_share
from hippo.units import SECONDS_PER_HOUR, gb_from_bytes

SCALES = 1.5  # a doubling of the tensor width must speed a stage up by this much to be taken
NEAR = 1.2
"""Estimates up to so many times the best are kept: what the judge says of them differs by as much."""
SETTING_S, CHAIN_S, VISIT_S = 1.2e-4, 7e-5, 1e-7  # of work for a setting, a chain and a visit of it (planners.effort)
SHARDINGS = ("none", "optimizer", "gradients")
NOTES = (
    "One tensor width per stage and one data width for all, even cuts, data parallelism inside a region (H5), regions "
    "in a chain; the judge picks among the best of each number of regions and tensor width by the paper's estimate, "
    "with lanes told their share of a link and sends beside computing where the runtime has that, and gives each an "
    "order of its own. Beyond the paper (H2) the widest tensor width is tried where a narrower one fits.",
    "Left out: zones (a domain is a region, H6), budgets (section 4.2.3), data widths that do not divide the batch. "
    "Beyond the paper: recomputation and sharded optimizer state are swept as settings of the user's job.",
)


@dataclass(frozen=True)
class Sailor:
    """The plan with the best estimate among all (stages, micro-batch, data width, chain of regions)."""

    name: str = "sailor"

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """Of each number of regions and tensor width the first plan in the order of the estimates that fits; see
        ``planners.base``."""
        shortlist = ShortList.of(problem, stop)
        search = SailorSearch(cost_model(problem), shortlist.reject_memory, shortlist.effort)
        found = sorted(search.candidates(), key=lambda candidate: candidate.value)
        for kind in dict.fromkeys(candidate.kind for candidate in found):
            alike = [candidate for candidate in found if candidate.kind == kind]
            try_ordered(shortlist, shortlist.try_all(placed(problem, alike, shortlist), most=1))
        nothing = f"No even split of {problem.model.name} with data parallelism inside regions fits."
        return shortlist.proposal(self.name, notes=NOTES, nothing=nothing)


@dataclass(frozen=True)
class SailorCandidate:
    """One configuration and what Sailor thinks of it."""

    value: float  # seconds per step, or USD where cost is the objective
    cuts: Cuts
    regions: tuple[str, ...]  # of every stage
    tps: tuple[int, ...]  # of every stage
    dp: int
    waves: int
    recipe: Recipe

    @property
    def kind(self) -> tuple[int, int]:
        """Number of regions, and the widest tensor parallelism."""
        return len(set(self.regions)), max(self.tps)

    def plan(self, problem: Problem) -> Plan:
        """The configuration on named devices."""
        stages = tuple(
            StageSketch(region, (self.cuts[stage], self.cuts[stage + 1]), self.tps[stage], self.dp)
            for stage, region in enumerate(self.regions)
        )
        return self.recipe.plan(
            problem, place(problem.cluster, [PipelineSketch(stages, self.waves)], cp=problem.context_parallel)
        )


def placed(problem: Problem, found: Iterable[SailorCandidate], shortlist: ShortList) -> Iterator[Plan]:
    """The candidates on named devices; those for whose groups the nodes of a domain have no room are rejected."""
    for candidate in found:
        try:
            plan = candidate.plan(problem)
        except InfeasibleError:
            shortlist.effort.spend(CHECK_S)
            shortlist.rejected["devices"] += 1
            continue
        yield plan


@dataclass(frozen=True)
class StageSplit:
    """An even split; stages that hold the same sorts of layers are of one kind."""

    cuts: Cuts
    starts: NDArray[np.int64]  # (K,) layers [start, stop) of the first stage of each kind
    stops: NDArray[np.int64]
    kind: NDArray[np.int64]  # (p,)

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.cuts) - 1


@dataclass(frozen=True)
class SailorSetting:
    """What is fixed while data widths are tried. W tensor widths, K kinds of stages."""

    split: StageSplit
    recipe: Recipe
    seconds: NDArray[np.float64]  # (W, K) forward, backward and weight gradient of one micro-batch
    raised: NDArray[np.int64]  # (W, K) to which width the scaling heuristic takes a stage of a width
    left_bytes: NDArray[np.float64]  # (W, K) of each micro-batch in flight
    room_bytes: NDArray[np.float64]  # (W, K) that temporary results leave for all else
    least_seconds: tuple[float, ...]  # (W,) of the quickest kind at this width or a narrower one


@dataclass(frozen=True)
class SailorSearch:
    """Section 4.2: iterate stages and micro-batches, find tensor widths, then data widths and regions."""

    costs: CostModel
    reject: Reject
    effort: Effort
    _states: dict[tuple[int, str, int], NDArray[np.float64]] = field(default_factory=dict)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """H1: tensor parallelism inside a node."""
        return tensor_widths(self.costs, min(self.costs.problem.cluster.domains, key=lambda one: one.gpus_per_node))

    def candidates(self) -> Iterator[SailorCandidate]:
        """The best candidate of every setting; settings whose compute alone is slower than the best are skipped."""
        best, cost = float("inf"), self.costs.problem.objective.name == "cost"

        def hopeless(split: StageSplit, size: int, least: Sequence[float]) -> bool:
            return not cost and self._floor(split, size, least) >= NEAR * best

        for bound, recipe, sums in sorted(self._recipes(), key=lambda entry: entry[0]):
            for setting in self._settings(recipe, sums, hopeless) if bound < NEAR * best else ():
                if self.effort.over():
                    return
                self.effort.spend(SETTING_S)
                for least in dict.fromkeys((0, len(self.widths) - 1)):
                    candidate = self._best_width(setting, NEAR * best, least)
                    if candidate is not None:
                        best = min(best, candidate.value)
                        yield candidate

    def _recipes(self) -> Iterator[tuple[float, Recipe, NDArray[np.float64]]]:
        """Recipes with running sums of seconds (W, N + 1) and a lower bound: all GPUs share the work."""
        sizes = sorted({size for tp in self.widths for size in micro_batches(self.costs, tp, most=self._batch)})
        by_time = self.costs.problem.objective.name != "cost"
        for micro_batch in (size for size in sizes if self._batch % size == 0):
            for recompute in recomputations(self.costs):
                recipe = Recipe(micro_batch, recompute)
                sums = self._sums(recipe)
                work = float((sums[:, -1] * np.array(self.widths)).min()) * self._batch / micro_batch / self._gpus
                yield work + float(sums[:, -1].min()) if by_time else 0.0, recipe, sums

    def _settings(
        self, recipe: Recipe, sums: NDArray[np.float64], hopeless: Callable[[StageSplit, int, Sequence[float]], bool]
    ) -> Iterator[SailorSetting]:
        """Every number of stages that is not ``hopeless``, and every sharding."""
        left_sums = np.array([self._memory.left(tp, recipe) for tp in self.widths])
        usable = self.costs.usable_memory_bytes()
        room = usable - np.array([self._memory.temporary(tp, recipe) for tp in self.widths])
        for split in self._splits:
            seconds = sums[:, split.stops] - sums[:, split.starts]
            quickest = tuple(np.minimum.accumulate(seconds.min(axis=1)).tolist())
            if hopeless(split, recipe.micro_batch, quickest):
                continue
            ranges = zip(split.starts.tolist(), split.stops.tolist(), strict=True)
            least = np.stack([room[:, start:stop].min(axis=1) for start, stop in ranges], axis=1)
            each = np.maximum(left_sums[:, split.stops] - left_sums[:, split.starts], 1.0)
            raised = self._raised(seconds)
            for sharding in shardings(self.costs.problem, SHARDINGS, pipeline=split.stages > 1):
                yield SailorSetting(split, replace(recipe, sharding=sharding), seconds, raised, each, least, quickest)

    @cached_property
    def _splits(self) -> tuple[StageSplit, ...]:
        most = min(max(self.costs.problem.model.num_blocks, 1), self._gpus // self.widths[0]) if self.widths else 0
        return tuple(self._split(pp) for pp in range(1, most + 1))

    @cached_property
    def _gpus(self) -> int:
        """GPUs of all regions, in context-parallel ranks."""
        return sum(self._room)

    @cached_property
    def _room(self) -> tuple[int, ...]:
        cp = self.costs.problem.context_parallel
        return tuple(domain.gpus // cp for domain in self.costs.problem.cluster.domains)

    def _split(self, pp: int) -> StageSplit:
        cuts, sorts = even_cuts(self.costs.problem.model.num_layers, pp), self.costs.distinct[1]
        ranges = list(zip(cuts[:-1], cuts[1:], strict=True))
        kinds: dict[bytes, int] = {}
        kind = [kinds.setdefault(sorts[start:stop].tobytes(), len(kinds)) for start, stop in ranges]
        starts, stops = zip(*(ranges[kind.index(one)] for one in range(len(kinds))), strict=True)
        return StageSplit(cuts, np.array(starts), np.array(stops), np.array(kind))

    def _sums(self, recipe: Recipe) -> NDArray[np.float64]:
        """(W, N + 1): running sums of the layers' seconds at every tensor width; endless where a profile has none."""
        domain, rows = self.costs.problem.cluster.domains[0].name, []
        for tp in self.widths:
            if recipe.micro_batch in micro_batches(self.costs, tp, most=self._batch):
                rows.append(compute_seconds(self.costs, domain, recipe, tp=tp, dp=1))
            else:
                rows.append(np.full(self.costs.problem.model.num_layers, ENDLESS_S))
        sums = np.cumsum(np.array(rows), axis=1)
        return np.concatenate([np.zeros((len(rows), 1)), sums], axis=1)

    def _raised(self, seconds: NDArray[np.float64]) -> NDArray[np.int64]:
        """Scaling heuristic: wider while a doubling pays."""
        raised = np.repeat(np.arange(len(seconds))[:, None], seconds.shape[1], axis=1)
        for width in range(len(seconds) - 2, -1, -1):
            pays = seconds[width] >= SCALES * seconds[width + 1]
            raised[width] = np.where(pays, raised[width + 1], width)
        return raised

    @property
    def _batch(self) -> int:
        return self.costs.problem.workload.global_batch

    def _best_width(self, setting: SailorSetting, best: float, least: int) -> SailorCandidate | None:
        """H3: data widths from the widest down until throughput stops growing. H4, for cost: from the narrowest up.

        ``least``: index of the narrowest tensor width that is tried; beyond H2, which takes the narrowest that fits.
        """
        cost = self.costs.problem.objective.name == "cost"
        lots = self._batch // setting.recipe.micro_batch
        most = min(lots, self._gpus // (setting.split.stages * self.widths[least]))
        widths = [dp for dp in range(1, most + 1) if lots % dp == 0]
        found: SailorCandidate | None = None
        for dp in widths if cost else reversed(widths):
            candidate = self._solve(setting, dp, best if not cost else float("inf"), least)
            if candidate is None:
                continue
            if found is not None and candidate.value >= found.value:
                break
            found = candidate
        return found

    def _solve(self, setting: SailorSetting, dp: int, best: float, least: int) -> SailorCandidate | None:
        """The best candidate below ``best`` of one data width: narrowest tensor widths (H2), and those raised."""
        waves = self._batch // (setting.recipe.micro_batch * dp)
        if self._at_least(setting, dp, waves) >= best:
            return None
        split = setting.split
        chosen, kept = np.zeros((2, split.stages), np.int64), self._kept(split, setting.recipe.sharding, dp)
        may, missing = widths_of(self._numbers(setting, least), kept, dp, waves, best, chosen)
        if may == NO_ROOM:
            self.reject(max(float(missing), 1.0))
            return None
        found: SailorCandidate | None = None
        for choice, own in ((NARROW, chosen[0]), (WIDE, chosen[1])):
            candidate = self._chained(setting, own, dp, best) if may & choice else None
            if candidate is not None and (found is None or candidate.value < found.value):
                found = candidate
        return found

    def _numbers(self, setting: SailorSetting, least: int) -> StageNumbers:
        return StageNumbers(
            setting.seconds,
            setting.raised,
            setting.left_bytes,
            setting.room_bytes,
            setting.split.kind,
            self._widths,
            gpus=self._gpus,
            least=least,
            uniform=self.costs.problem.rules.uniform_tp_dp,
        )

    @cached_property
    def _widths(self) -> NDArray[np.int64]:
        return np.array(self.widths, np.int64)

    def _chained(
        self, setting: SailorSetting, chosen: NDArray[np.int64], dp: int, best: float
    ) -> SailorCandidate | None:
        """The chain of regions with the least estimate (section 4.2.2); ``chosen`` (p,) indexes the tensor widths."""
        recipe, split = setting.recipe, setting.split
        waves = self._batch // (recipe.micro_batch * dp)
        tps = tuple(self.widths[width] for width in chosen.tolist())
        compute = setting.seconds[chosen, split.kind]
        sent = self._lane_bytes * recipe.micro_batch
        cp = self.costs.problem.context_parallel
        gpus = tuple(dp * tp * cp for tp in tps)
        chain = RegionChain(self._links, gpus, tuple(compute.tolist()), waves, sent * dp, self._open_share)
        regions = best_chain(chain, limit=best, effort=self.effort)
        if regions is None:
            return None
        seconds = chain.seconds(regions) + self._sync_seconds(setting, tps, dp, regions)
        value = seconds
        if self.costs.problem.objective.name == "cost":
            value = self._usd(seconds, sum(gpus), sent * dp * waves, regions)
        return SailorCandidate(value, split.cuts, regions, tps, dp, waves, recipe)

    @cached_property
    def _links(self) -> RegionLinks:
        return RegionLinks(self.costs.problem.cluster)

    @cached_property
    def _lane_bytes(self) -> float:
        """What one lane sends to a stage in the next region per sequence."""
        problem = self.costs.problem
        layout = Recipe(1).layout(problem, tp=1, dp=1)
        sent = self.costs.stage(problem.cluster.domains[0].name, 0, 1, layout).output_bytes
        return sent * border_share(problem)

    def _floor(self, split: StageSplit, size: int, least: Sequence[float]) -> float:
        """``_at_least`` of the best data width: waves are the fewer the more lanes the GPUs allow."""
        lots, border = self._batch // size, least[-1] + self._border_seconds(size)
        slowest = [float("inf")]
        for tp, seconds in zip(self.widths, least, strict=True):
            for gpus, paid in ((self._largest, seconds), (self._gpus, max(seconds, border))):
                lanes = min(gpus // (split.stages * tp), lots)
                slowest += [lots / lanes * paid] if lanes else []
        return min(slowest)

    def _border_seconds(self, size: int, dp: int = 1) -> float:
        """Least seconds by which a border of two regions slows its stage; endless where there is but one region."""
        if not self._chains:
            return float("inf")
        latency_s, s_per_byte = self._fastest_link
        return self._open_share * (latency_s + s_per_byte * self._lane_bytes * size * dp)

    @cached_property
    def _open_share(self) -> float:
        """Share of a round trip that a stage waits for: all, or half where messages go beside computing."""
        return 0.5 if self.costs.problem.rules.messages.calls == "free" else 1.0

    def _at_least(self, setting: SailorSetting, dp: int, waves: int) -> float:
        """Lower bound on the estimate: some stage has at most its fair share of the GPUs, and all wait for it.

        The GPUs are those of one region, or of all and then some stage pays the fastest link as well.
        """
        groups, least = dp * setting.split.stages, setting.least_seconds
        inside = sum(tp * groups <= self._largest for tp in self.widths)
        across = sum(tp * groups <= self._gpus for tp in self.widths)
        slowest = least[inside - 1] if inside else float("inf")
        if across:
            border = least[-1] + self._border_seconds(setting.recipe.micro_batch, dp)
            slowest = min(slowest, max(least[across - 1], border))
        return waves * slowest

    @cached_property
    def _chains(self) -> bool:
        """Whether there are regions to chain."""
        return len(self.costs.problem.cluster.domains) > 1

    @cached_property
    def _largest(self) -> int:
        return max(self._room)

    @cached_property
    def _fastest_link(self) -> tuple[float, float]:
        """Least latency, and least seconds per byte, there and back, of any two regions."""
        cluster = self.costs.problem.cluster
        both = [(link, cluster.link(link.destination, link.source)) for link in cluster.links]
        pairs = [(there, back) for there, back in both if back is not None]
        if not pairs:
            return float("inf"), 0.0
        most = max(domain.nodes for domain in cluster.domains)
        rates = [sum(1 / max(link.rate_bytes_per_s(most), 1e-9) for link in pair) for pair in pairs]
        return min(there.delay_s + back.delay_s for there, back in pairs), min(rates)

    def _kept(self, split: StageSplit, sharding: str, dp: int) -> NDArray[np.float64]:
        """Bytes (W, K) of weights, gradients and optimizer state."""
        key = split.stages, sharding, dp if sharding != "none" else 1
        if key not in self._states:
            sums = np.array([self._memory.kept(tp, dp, sharding, piped=split.stages > 1) for tp in self.widths])
            self._states[key] = sums[:, split.stops] - sums[:, split.starts]
        return self._states[key]

    @cached_property
    def _memory(self) -> MemoryEstimate:
        return memory_estimate(self.costs)

    def _sync_seconds(self, setting: SailorSetting, tps: tuple[int, ...], dp: int, regions: tuple[str, ...]) -> float:
        """Slowest synchronisation and update of a stage, inside its region; equal stages are asked for once."""
        slowest, split = 0.0, setting.split
        alike = {
            (kind, tp, self.costs.fabrics[region]): region
            for kind, tp, region in zip(split.kind.tolist(), tps, regions, strict=True)
        }
        for (kind, tp, _), region in alike.items():
            layout = setting.recipe.layout(self.costs.problem, tp=tp, dp=dp, stages=split.stages)
            cost = self.costs.stage(region, int(split.starts[kind]), int(split.stops[kind]), layout)
            slowest = max(slowest, cost.sync_s + cost.optimizer_s + cost.fixed_s)
        return slowest

    def _usd(self, seconds: float, gpus: int, sent_bytes: float, regions: tuple[str, ...]) -> float:
        """Rent of the GPUs in use and egress per step (section 4.2.3, C_comp and C_comm)."""
        cluster = self.costs.problem.cluster
        rent = seconds * gpus * cluster.gpu.price_usd_per_hour / SECONDS_PER_HOUR
        borders = [pair for pair in zip(regions, regions[1:], strict=False) if pair[0] != pair[1]]
        links = [cluster.link(*pair) for a, b in borders for pair in ((a, b), (b, a))]
        return rent + gb_from_bytes(sent_bytes) * sum(link.price_usd_per_gb for link in links if link is not None)


MOST_VISITS = 4_000  # partial chains looked at per question; beyond that the best so far is taken


@dataclass(frozen=True, eq=False)
class RegionLinks:
    """Links between the regions of a cluster; what does not depend on what is sent is worked out once. n regions."""

    cluster: Cluster
    _known: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = field(default_factory=dict)

    @cached_property
    def room(self) -> NDArray[np.int64]:
        """(n,) GPUs."""
        return np.array([domain.gpus for domain in self.cluster.domains], np.int64)

    def pair_s(self, gpus: int, wave_bytes: float) -> NDArray[np.float64]:
        """(n, n) activations there and gradients back, for stages of so many GPUs; infinite without links."""
        if gpus not in self._known:
            self._known[gpus] = self._pairs(gpus)
        delays_s, rates = self._known[gpus]
        there, back = delays_s + wave_bytes / rates
        return np.asarray(there + back)

    def _pairs(self, gpus: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(2, n, n) delays and bytes/s, there and back, of the nodes that such a stage takes in the first region."""
        domains, size = self.cluster.domains, len(self.cluster.domains)
        delays_s, rates = np.full((2, size, size), np.inf), np.ones((2, size, size))
        for a, domain in enumerate(domains):
            nodes = -(-gpus // domain.gpus_per_node)
            for b, other in enumerate(domains):
                pair = self.cluster.link(domain.name, other.name), self.cluster.link(other.name, domain.name)
                for way, link in enumerate(pair if a != b else ()):
                    if link is not None:
                        delays_s[way, a, b] = link.delay_s
                        rates[way, a, b] = max(link.rate_bytes_per_s(nodes), 1e-9)
        return delays_s, rates


@dataclass(frozen=True)
class RegionChain:
    """p stages in order, to be dealt to regions."""

    links: RegionLinks
    gpus: tuple[int, ...]  # (p,) that each stage needs
    compute_s: tuple[float, ...]  # (p,) per micro-batch
    waves: int
    wave_bytes: float  # that all lanes together send to the next stage per micro-batch: they share the link
    open_share: float = 1.0  # of a border's round trip that its stage waits for

    @cached_property
    def pair_s(self) -> NDArray[np.float64]:
        """(n, n) of a round trip between two regions."""
        return self.links.pair_s(min(self.gpus), self.wave_bytes)

    def seconds(self, regions: tuple[str, ...]) -> float:
        """The estimate for stages in these regions."""
        at = [self.links.cluster.domain_index[name] for name in regions]
        crossing = [float(self.pair_s[a, b]) if a != b else 0.0 for a, b in zip(at, at[1:], strict=False)]
        times = [
            compute + self.open_share * sent for compute, sent in zip(self.compute_s, (*crossing, 0.0), strict=True)
        ]
        return max(times) * self.waves + sum(self.compute_s) + sum(crossing)


def best_chain(chain: RegionChain, *, limit: float, effort: Effort) -> tuple[str, ...] | None:
    """Regions of the stages with the least estimate below ``limit``; None: there is none."""
    regions, pair_s = np.zeros(len(chain.gpus), np.int64), chain.pair_s
    numbers = ChainNumbers(
        pair_s,
        np.argsort(pair_s, axis=1, kind="stable"),
        chain.links.room,
        np.array(chain.gpus, np.int64),
        np.array(chain.compute_s),
        chain.waves,
        chain.open_share,
    )
    most = int(min(MOST_VISITS, effort.left_s / VISIT_S))
    least, visits = nearest_chain(numbers, limit, most, regions)
    effort.spend(CHAIN_S + VISIT_S * visits)
    domains = chain.links.cluster.domains
    return tuple(domains[at].name for at in regions.tolist()) if least < limit else None
