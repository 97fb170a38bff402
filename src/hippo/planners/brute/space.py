"""Every plan of a small problem: the definition of what ``exact`` searches, written to be read.

A plan is a set of pipelines; a pipeline is a row of stages; a stage takes any layers that follow, in any domain with
GPUs left, with any tensor and data width that the model and the wave divide by. From that alone come every subset and
order of domains, every cut, and every way to join domains: a pipeline across, replicas across, groups of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, combinations_with_replacement, groupby, permutations, product
from math import inf

from hippo.cost.stage import Layout
from hippo.plan.plan import Relay, ScheduleChoice, Sync
from hippo.planners.placement import PipelineSketch, StageSketch
from hippo.planners.recipe import FITTED, fits_blocks, overlapping, recompute_choices
from hippo.problem.links import base_bandwidth, base_latency
from hippo.problem.problem import Problem
from hippo.problem.runtimes import ACROSS, SHARDING, recomputed_blocks, tp_refusal
from hippo.simulate.agree import summed_share
from hippo.simulate.costs import cost_model

Free = tuple[int, ...]  # GPUs left in each domain of the cluster
CutOff = Callable[[float, int], bool]
"""Whether plans that take at least so many seconds on at least so many GPUs may be left out."""
Set = tuple[PipelineSketch, ...]
WarmUp = tuple[int, ...]  # waves that each stage runs forward before its first backward


@dataclass(frozen=True)
class Space:
    """What is tried where the problem's runtime can express it; the default is everything but other numerics.

    Left out: compression and local SGD with other periods (they change what is trained). Chunks are tried on stages
    that all lie alike (``_lies_alike``) and sum every step. Context and expert parallelism have the problem's degrees
    (``planners.answers``).
    """

    recompute: tuple[str, ...] | None = None  # None: ``recompute_choices``, and every number of blocks
    sharding: tuple[str, ...] = SHARDING
    run_ahead: bool = True  # every warm-up of every stage; False, or where the runtime has no other: 1F1B
    relays: bool = True
    tp_across_nodes: bool = True
    most_chunks: int = 8  # of layers per rank, interleaved
    overlap: bool = True  # of the exchange of experts, too


@dataclass(frozen=True)
class Common:
    """What all stages of a plan share."""

    micro_batch: int
    recompute: str
    sharding: str
    chunks: int = 1
    overlap: bool = False  # whether the exchange of experts runs beside another micro-batch


def commons(problem: Problem, space: Space) -> tuple[Common, ...]:
    """Every combination that the runtime can express; micro-batches are the divisors of the batch."""
    rules, batch = problem.rules, problem.workload.global_batch
    sizes = [size for size in range(1, batch + 1) if batch % size == 0]
    wanted = recompute_choices(problem) if space.recompute is None else space.recompute
    recompute = [mode for mode in wanted if rules.recomputes(mode)]
    if space.recompute is None and fits_blocks(problem):  # all blocks are one number of them
        recompute = [FITTED if mode == "full" else mode for mode in recompute]
    sharding = [kind for kind in space.sharding if kind in (*rules.shardings, *rules.shardings_with_pipeline)]
    chunks = range(1, (min(space.most_chunks, problem.model.num_layers // 2) if rules.interleave else 1) + 1)
    found = [Common(*choice) for choice in product(sizes, recompute, sharding, chunks)]
    beside = overlapping(problem, recompute) if space.overlap else []
    return (*found, *(replace(each, overlap=True) for each in found if each.recompute in beside))


@dataclass(frozen=True)
class _Seconds:
    """What a stage does in a wave, and once per step."""

    forward_s: float
    backward_s: float  # input gradient
    wave_s: float  # both and the weight gradient
    once_s: float


@dataclass(frozen=True)
class Sketches:
    """Every set of pipelines for given common choices, devices not yet chosen."""

    problem: Problem
    common: Common
    tp_across_nodes: bool = True
    cut_off: CutOff = lambda seconds, gpus: False
    _known: dict[object, _Seconds] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Set]:
        free = tuple(domain.gpus for domain in self.problem.cluster.domains)
        sets = self._sets((), free, self.problem.workload.global_batch // self.common.micro_batch)
        sharded = (found for found in sets if self.common.sharding == "none" or self._shards(found))
        if self.common.chunks == 1 and self.common.overlap:
            return (found for found in sharded if all(len(sketch.stages) == 1 for sketch in found))
        return (found for found in sharded if self.common.chunks == 1 or self._lies_alike(found))

    def _lies_alike(self, sketches: Set) -> bool:
        """Whether pipelines of several stages have one width, and as many stages in each of as many domains, which are
        of one kind and each in one pipeline only."""
        stages = [stage for sketch in sketches for stage in sketch.stages]
        runs = [[len([*run]) for _, run in groupby(stage.domain for stage in sketch.stages)] for sketch in sketches]
        domains = [self.problem.cluster.domain(name) for name in dict.fromkeys(stage.domain for stage in stages)]
        return (
            len(sketches[0].stages) > 1
            and len({(stage.tp, stage.dp) for stage in stages}) == 1
            and all(len({*run}) == 1 and run == runs[0] for run in runs)
            and sum(map(len, runs)) == len(domains)
            and len({replace(domain, name="") for domain in domains}) == 1
        )

    def _shards(self, sketches: Set) -> bool:
        """Whether anything is shared by several ranks, in several domains for what is sharded across; where nothing is,
        all shardings are one."""
        if self.common.sharding == ACROSS:
            starts = {stage.layers[0] for sketch in sketches for stage in sketch.stages}
            return any(len(_holders(sketches, range(layer, layer + 1))) > 1 for layer in starts)
        lanes = any(self.problem.context_parallel * stage.dp > 1 for sketch in sketches for stage in sketch.stages)
        return lanes or (self.common.sharding == "full" and len(sketches) > 1)

    def _sets(self, done: Set, free: Free, lanes: int) -> Iterator[Set]:
        """``done`` and further pipelines that work through ``lanes`` micro-batches; every set once."""
        if lanes == 0:
            yield done
        for waves in range(1, lanes + 1):
            for stages, left in self._chains((), free, waves, lanes // waves):
                if not done or _key(done[-1].stages, done[-1].num_micro_batches) <= _key(stages, waves):
                    sketch = PipelineSketch(stages, waves)
                    yield from self._sets((*done, sketch), left, lanes - waves * stages[0].dp)

    def _chains(
        self, stages: tuple[StageSketch, ...], free: Free, waves: int, most_dp: int
    ) -> Iterator[tuple[tuple[StageSketch, ...], Free]]:
        """``stages`` and further ones up to the last layer, with the GPUs then left."""
        layers = self.problem.model.num_layers
        start = stages[-1].layers[1] if stages else 0
        if start == layers:
            yield stages, free
            return
        cp = self.problem.context_parallel
        for at, tp, dp in self.stage_widths(free, stages[0].dp if stages else None, most_dp):
            if self.common.chunks > 1 and stages and (tp, dp) != (stages[0].tp, stages[0].dp):
                continue  # they would not lie alike
            left = free[:at] + (free[at] - tp * cp * dp,) + free[at + 1 :]
            for stop in range(start + self.common.chunks, layers + 1):
                longer = (*stages, StageSketch(self.problem.cluster.domains[at].name, (start, stop), tp, dp))
                if self.cut_off(self.bound_s(longer, waves), self.gpus(longer)):
                    break  # more layers take longer still
                yield from self._chains(longer, left, waves, most_dp)

    def gpus(self, stages: tuple[StageSketch, ...]) -> int:
        """GPUs of these stages."""
        return self.problem.context_parallel * sum(stage.tp * stage.dp for stage in stages)

    def bound_s(self, stages: tuple[StageSketch, ...], waves: int) -> float:
        """Seconds that a step lasts at least by the last of these first stages of a pipeline, and by its last hop.

        Each works through all waves one after the other. The first wave must pass the stages and hops before on its way
        down, and the last one on its way up, while the rank sums gradients and updates.
        """
        first_dp = stages[0].dp
        if self.common.chunks > 1:
            return waves * self._cheapest_s(stages[-1], first_dp)
        hops = [self._hop(*pair, first_dp) for pair in zip(stages[:-1], stages[1:], strict=True)]
        if not all(rate for _, rate, _ in hops):
            return inf  # nothing joins two stages
        hop_s = sum(size / rate + latency for size, rate, latency in hops)
        down_s = hop_s + sum(self._seconds_of(stage, first_dp).forward_s for stage in stages[:-1])
        up_s = hop_s + sum(self._seconds_of(stage, first_dp).backward_s for stage in stages[:-1])
        last = self._seconds_of(stages[-1], first_dp)
        bound = down_s + waves * last.wave_s + max(up_s, last.once_s)
        if not hops:
            return bound
        size, rate, _ = hops[-1]
        return max(bound, down_s + (waves - 1) * size / rate + last.forward_s + last.backward_s + up_s)

    def _cheapest_s(self, stage: StageSketch, first_dp: int) -> float:
        """Seconds of a wave on as many layers as the stage has, whichever of them it is dealt."""
        layers = self.problem.model.num_layers
        every = [replace(stage, layers=(layer, layer + 1)) for layer in range(layers)]
        seconds = sorted(self._seconds_of(each, first_dp).wave_s for each in every)
        return sum(seconds[: stage.layers[1] - stage.layers[0]])

    def _hop(self, sender: StageSketch, receiver: StageSketch, first_dp: int) -> tuple[float, float, float]:
        """Bytes of a wave, and the best rate and latency of any way to go; inside a domain the hop is taken as free."""
        if sender.domain == receiver.domain:
            return 0.0, 1.0, 0.0
        stage = cost_model(self.problem).stage(sender.domain, *sender.layers, self._layout(sender, first_dp))
        return stage.output_bytes * sender.dp, *self._best_ways[sender.domain, receiver.domain]

    @cached_property
    def _best_ways(self) -> Mapping[tuple[str, str], tuple[float, float]]:
        """Largest rate and least latency from one domain to another, straight or through a third; 0: no way."""
        cluster = self.problem.cluster
        rates, delays, names = base_bandwidth(cluster), base_latency(cluster), list(cluster.domain_index)
        found = {}
        for a, b in permutations(names, 2):
            ways = [((a, b),), *(((a, via), (via, b)) for via in names)]
            indices = [[cluster.link_index.get(pair, -1) for pair in way] for way in ways]
            joined = [way for way in indices if -1 not in way]
            best_rate = max((float(rates[way].min()) for way in joined), default=0.0)
            found[a, b] = best_rate, min((float(delays[way].sum()) for way in joined), default=0.0)
        return found

    def agreement_s(self, sketches: Set) -> float:
        """Seconds that a step lasts at least by what replicas in several domains send each other."""
        if (
            self.common.chunks > 1
            or self.problem.allow_local_sgd
            or len({stage.domain for sketch in sketches for stage in sketch.stages}) < 2
        ):
            return 0.0
        fastest = max(rate for rate, _ in self._best_ways.values()) or 1e-300
        nearest = min(latency for _, latency in self._best_ways.values())
        if self.common.sharding == "full":
            # Parameters are gathered for F and B, gradients scattered after B: half of them at least, every wave.
            whole = [(p, s) for p in sketches for s in p.stages if len(_holders(sketches, range(*s.layers))) > 1]
            return max((1.5 * p.num_micro_batches * self._bytes(*s.layers) for p, s in whole), default=0.0) / fastest
        shared: dict[frozenset[str], float] = {}  # gradients that each set of two and more domains agrees on
        for layer in range(self.problem.model.num_layers):
            if len(holders := _holders(sketches, range(layer, layer + 1))) > 1:
                shared[holders] = shared.get(holders, 0.0) + self._bytes(layer, layer + 1)
        if not shared:
            return 0.0
        summed = min(1.0, summed_share(self.problem, self.common.sharding)) * max(shared.values())
        return max(map(self._shortest_s, sketches)) + summed / fastest + 2 * nearest

    def _bytes(self, start: int, stop: int) -> float:
        """Bytes of the gradients of some layers."""
        parameters = sum(layer.parameters for layer in self.problem.model.layers[start:stop])
        return parameters * self.problem.workload.gradient_bytes_per_parameter

    def _shortest_s(self, sketch: PipelineSketch) -> float:
        """Seconds that the stage with the least to do works."""
        waves, first_dp = sketch.num_micro_batches, sketch.stages[0].dp
        return min(waves * self._seconds_of(stage, first_dp).wave_s for stage in sketch.stages)

    def stage_widths(self, free: Free, first_dp: int | None, most_dp: int) -> Iterator[tuple[int, int, int]]:
        """Domain, tp and dp of a stage; its lanes share the wave of the pipeline's first stage evenly."""
        cp = self.problem.context_parallel
        for at, gpus in enumerate(free):
            widest = gpus if self.tp_across_nodes else min(gpus, self.problem.cluster.domains[at].gpus_per_node)
            for tp in (width for width in self.widths if width <= widest):
                for dp in range(1, gpus // (tp * cp) + 1):
                    if not self.problem.spreads_experts(tp, dp):
                        continue
                    fits_wave = dp <= most_dp if first_dp is None else self.common.micro_batch * first_dp % dp == 0
                    if fits_wave and self._measured(tp, self.common.micro_batch * (first_dp or dp) // dp):
                        yield at, tp, dp

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Tensor widths that split the model."""
        rules, most = self.problem.rules, max(domain.gpus for domain in self.problem.cluster.domains)
        return tuple(tp for tp in range(1, most + 1) if tp_refusal(self.problem.model, tp, rules) is None)

    def _measured(self, tp: int, size: int) -> bool:
        allowed = cost_model(self.problem).allowed_layouts()
        return allowed is None or (tp, size) in allowed

    def _seconds_of(self, stage: StageSketch, first_dp: int) -> _Seconds:
        key = stage, first_dp
        if key not in self._known:
            cost = cost_model(self.problem).stage(stage.domain, *stage.layers, self._layout(stage, first_dp))
            wave_s = cost.forward_s + cost.backward_s + cost.weight_gradient_s
            once_s = cost.sync_s + cost.optimizer_s + cost.fixed_s
            self._known[key] = _Seconds(cost.forward_s, cost.backward_s, wave_s, once_s)
        return self._known[key]

    @property
    def _recompute(self) -> str:
        """What stages compute again at least: nothing where some blocks are."""
        some = self.common.recompute == FITTED or recomputed_blocks(self.common.recompute) is not None
        return "none" if some else self.common.recompute

    def _layout(self, stage: StageSketch, first_dp: int) -> Layout:
        """The stage's layout with the most replicas there can be, over which state may be sharded."""
        size = self.common.micro_batch
        return Layout(
            tp=stage.tp,
            dp=stage.dp,
            micro_batch=size * first_dp // stage.dp,
            recompute=self._recompute,
            sharding=self.common.sharding,
            sequence_parallel=self.problem.rules.sequence_parallel,
            precision=self.problem.workload.precision,
            replicas=self.problem.workload.global_batch // size,
            cp=self.problem.context_parallel,
            ep=self.problem.expert_parallel,
            etp=self.problem.expert_tensor_parallel,
            in_open=0.0 if self.common.overlap else None,
        )


def _holders(sketches: Set, layers: range) -> frozenset[str]:
    """Domains that hold any of the layers."""
    stages = (stage for sketch in sketches for stage in sketch.stages)
    return frozenset(s.domain for s in stages if s.layers[0] < layers.stop and layers.start < s.layers[1])


def _key(stages: tuple[StageSketch, ...], waves: int) -> tuple[list[tuple[str, tuple[int, int], int, int]], int]:
    return [(stage.domain, stage.layers, stage.tp, stage.dp) for stage in stages], waves


# ------------------------------------------------------------------------------------------- choices beside the sketch
def schedules(
    problem: Problem, space: Space, common: Common, sketches: Set
) -> Iterator[tuple[ScheduleChoice, tuple[WarmUp, ...]]]:
    """Every schedule: a warm-up of each stage of each pipeline, no longer than that of the stage before.

    All warm-ups hold 1F1B, GPipe and every limit of live micro-batches. On a stage alone they are all one.
    """
    rules = problem.rules
    if common.chunks > 1:
        yield ScheduleChoice("interleaved"), ((),) * len(sketches)
        return
    if not (space.run_ahead and rules.live_limit and rules.schedules is None):
        yield ScheduleChoice("1f1b"), ((),) * len(sketches)
        return
    waves = [range(sketch.num_micro_batches if len(sketch.stages) > 1 else 1, 0, -1) for sketch in sketches]
    ways = (
        combinations_with_replacement(count, len(sketch.stages)) for count, sketch in zip(waves, sketches, strict=True)
    )
    for warm_ups in product(*ways):
        yield ScheduleChoice("cross-domain"), warm_ups


def relays(problem: Problem, space: Space, common: Common, sketches: Set) -> Iterator[tuple[Relay, ...]]:
    """Every pair of domains that exchanges something, straight or through any third domain that both reach."""
    cluster = problem.cluster
    ways: list[list[Relay | None]] = []
    for source, destination in _pairs(sketches, closed=problem.model.tied or common.chunks > 1) if space.relays else ():
        through = [via.name for via in cluster.domains if via.name not in (source, destination)]
        joined = [via for via in through if cluster.link(source, via) and cluster.link(via, destination)]
        ways.append([None, *(Relay(source, destination, via) for via in joined)])
    for chosen in product(*ways):
        yield tuple(relay for relay in chosen if relay is not None)


def _pairs(sketches: Set, *, closed: bool) -> list[tuple[str, str]]:
    """Ordered pairs of domains that may send to each other; ``closed``: the last stage to the first one too."""
    pairs: dict[tuple[str, str], None] = {}
    for sketch in sketches:
        names = [stage.domain for stage in sketch.stages]
        hops = list(zip(names[:-1], names[1:], strict=True)) + ([(names[0], names[-1])] if closed else [])
        pairs.update({pair: None for a, b in hops for pair in ((a, b), (b, a)) if a != b})
    if len(sketches) > 1:
        used = dict.fromkeys(stage.domain for sketch in sketches for stage in sketch.stages)
        pairs.update({pair: None for a, b in combinations(used, 2) for pair in ((a, b), (b, a))})
    return list(pairs)


def syncs(problem: Problem, common: Common, sketches: Set) -> tuple[Sync, ...]:
    """How the replicas may agree; with chunks every step."""
    local = problem.allow_local_sgd and problem.rules.local_sgd and len(sketches) > 1 and common.chunks == 1
    return (Sync(), Sync.outer(problem.outer_step)) if local else (Sync(),)


def arrangements(sketches: Set) -> Iterator[Set]:
    """Orders in which pipelines may take their devices: ``placement.place`` serves the first ones first."""
    seen = set()
    for ordered in permutations(sketches):
        if ordered not in seen:
            seen.add(ordered)
            yield ordered


# ------------------------------------------------------------------------------------------------------------ how many
MOST_COUNTED = 100_000  # choices of a stage; beyond them not even the counting is worth while


def count_sets(problem: Problem) -> float:
    """Rows of pipelines over all micro-batch sizes, the size of the search; inf: too many to be counted."""
    batch = problem.workload.global_batch
    sizes = [size for size in range(1, batch + 1) if batch % size == 0]
    try:
        return sum(_Count(Sketches(problem, Common(size, "none", "none"))).all() for size in sizes)
    except OverflowError:
        return inf


@dataclass
class _Count:
    """Counts what ``Sketches`` goes through without going through it: equal remainders are counted once."""

    sketches: Sketches
    known: dict[tuple[object, ...], int] = field(default_factory=dict)
    choices: int = 0

    def all(self) -> int:
        """How many sketches there are."""
        problem = self.sketches.problem
        free = tuple(domain.gpus for domain in problem.cluster.domains)
        return self._sets(free, problem.workload.global_batch // self.sketches.common.micro_batch)

    def _sets(self, free: Free, lanes: int) -> int:
        """Ways to work through ``lanes`` micro-batches."""
        key = free, lanes
        if key not in self.known:
            each = (self._chains(0, free, lanes, waves, None) for waves in range(1, lanes + 1))
            self.known[key] = sum(each) if lanes else 1
        return self.known[key]

    def _chains(self, start: int, free: Free, lanes: int, waves: int, first_dp: int | None) -> int:
        """Ways to go on with a pipeline at layer ``start``, and with further pipelines after it."""
        layers = self.sketches.problem.model.num_layers
        if start == layers:
            return self._sets(free, lanes)
        key = start, free, lanes, waves, first_dp
        if key not in self.known:
            total = 0
            cp = self.sketches.problem.context_parallel
            for at, tp, dp in self.sketches.stage_widths(free, first_dp, lanes // waves):
                self.choices += layers - start
                if self.choices > MOST_COUNTED:
                    raise OverflowError
                left = free[:at] + (free[at] - tp * cp * dp,) + free[at + 1 :]
                after = lanes if first_dp else lanes - waves * dp
                ends = range(start + 1, layers + 1)
                total += sum(self._chains(stop, left, after, waves, first_dp or dp) for stop in ends)
            self.known[key] = total
        return self.known[key]
