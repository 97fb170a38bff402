"""The table that plans are built on: what every layout of every domain costs and keeps, as arrays of one problem.

Worked out once per problem and kept; a state of the links needs nothing but ``links_under``. Letters: K domains, N
layers, R recipes (what all stages share), L layouts in all, X timings, Y holdings.

A *layout* lies in a domain of one kind under one recipe: (tp, dp, q), q stages of ``tp x dp`` GPUs, each holding its
part of the domain's layers. Its place in the arrays is its row.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.cost.stage import Layout
from hippo.planners.exact.layouts import LayerTables, Mode
from hippo.planners.placement import room_for_lanes
from hippo.planners.recipe import divisors, every_width, recomputations
from hippo.problem.problem import Problem
from hippo.problem.runtimes import RECOMPUTE
from hippo.simulate.routes import border_share

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_WAVE_SHARE = 4  # a batch is at least so many waves
MOST_MICRO_BATCH = 16  # sequences of a rank
SHARDINGS = (("optimizer", "none"), ("hybrid",))
"""Of each group the first that the runtime has; the second gathers weights for every pass where memory is short."""


class Arrays(NamedTuple):
    """Everything a kernel reads. Prefix sums over layers are (.., N + 1)."""

    usable_bytes: float
    batch: int
    border_bytes: float  # of a sequence over a cut, each way
    tied_bytes: float  # of gradients that both ends of a chain exchange where the head shares the embedding's matrix
    kind: Ints  # (K,)
    gpus: Floats  # (K,) in context-parallel ranks
    work: Floats  # (N + 1,) share of the model's seconds before each layer
    wave: Ints  # (R,) sequences of a wave
    first: Ints  # (kinds, R) first row
    last: Ints  # (kinds, R) after the last row
    tp: Ints  # (L,)
    dp: Ints  # (L,)
    stages: Ints  # (L,) q
    timing: Ints  # (L,) row of X
    holding: Ints  # (L,) row of Y
    hop_s: Floats  # (L,) one message between two stages of the domain
    stranded: Floats  # (L,) Frag_k, see ``stranded_share``
    inside_s: Floats  # (L,) exposed communication inside the domain per wave, were it to hold the whole model
    agree_s: Floats  # (L,) gradient synchronisation inside the domain, were it to hold the whole model, per step
    seconds: Floats  # (X, N + 1) of a wave: forward, backward, weight gradient
    forward_s: Floats  # (X, N + 1)
    leaves: Floats  # (X, N + 1) bytes of a micro-batch in flight
    passing: Floats  # (X, N) workspace and reserved bytes
    kept: Floats  # (Y, N + 1) weights, gradients, optimizer state
    once_s: Floats  # (Y, N + 1) agreement inside the domain and optimizer, per step
    once_fixed_s: Floats  # (Y,)


@dataclass(frozen=True)
class Choice:
    """What all stages of a plan share: sequences of a wave, recomputation, sharding, where the runtime has one mesh its
    (tp, dp)."""

    wave: int
    recompute: str
    sharding: str
    lanes: tuple[int, int] | None = None


@dataclass(frozen=True, eq=False)
class LayoutTable:
    """One problem, prepared."""

    problem: Problem
    tables: LayerTables
    choices: tuple[Choice, ...]  # (R,)
    arrays: Arrays

    @cached_property
    def ideal_s(self) -> float:
        """Step time were all GPUs one domain, in the layout of the least GPU-seconds: what seconds are measured by."""
        arrays, least = self.arrays, np.inf
        for recipe, wave in enumerate(arrays.wave):
            for first, last in zip(arrays.first[:, recipe], arrays.last[:, recipe], strict=True):
                gpus = arrays.tp[first:last] * arrays.dp[first:last]
                spent = arrays.seconds[arrays.timing[first:last], -1] * gpus / wave
                least = min(least, float(spent.min(initial=np.inf)))
        return least * arrays.batch / float(arrays.gpus.sum())

    @property
    def domains(self) -> int:
        """K."""
        return len(self.problem.cluster.domains)


class LinkPaces(NamedTuple):
    """A state of the links between domains. All (K, K), from row to column."""

    pace: Floats  # seconds per byte; inf: no link
    latency_s: Floats
    via: Ints  # the third domain of a quicker way; -1: there is none, or the runtime relays nothing


RELAYED = 0.9  # a relay must be so much quicker than the link itself: it loads two links
_REMEMBERED = 64
_GROUNDS: OrderedDict[int, LayoutTable] = OrderedDict()


def layout_table(problem: Problem) -> LayoutTable:
    """The table of a problem; the same object for the same problem. About a tenth of a second the first time."""
    found = _GROUNDS.get(id(problem))
    if found is None or found.problem is not problem:
        found = _GROUNDS[id(problem)] = prepare(problem)
        while len(_GROUNDS) > _REMEMBERED:
            _GROUNDS.popitem(last=False)
    return found


def prepare(problem: Problem) -> LayoutTable:
    """The table of a problem, made anew."""
    tables = LayerTables.of(problem)
    choices = tuple(_choices(tables))
    rows = _Rows(tables, choices)
    return LayoutTable(problem, tables, choices, rows.arrays())


def links_under(table: LayoutTable, bandwidth_bytes_per_s: Floats, latency_s: Floats) -> LinkPaces:
    """What joins domains in a state (E,), (E,) of the links; a link of bandwidth 0 joins nothing, nor does one below
    the objective's floor (a barred link)."""
    problem, size = table.problem, table.domains
    floor = problem.objective.bandwidth_floor_bytes_per_s or 0.0
    pace, latency = np.full((size, size), np.inf), np.full((size, size), np.inf)
    at = problem.cluster.domain_index
    for link, rate, delay in zip(problem.cluster.links, bandwidth_bytes_per_s, latency_s, strict=True):
        if rate > 0 and rate >= floor:
            pair = at[link.source], at[link.destination]
            pace[pair], latency[pair] = 1.0 / rate, delay
    through = np.maximum(pace[:, :, None], pace[None, :, :])  # from, via, to
    through[np.arange(size), :, np.arange(size)] = np.inf
    via = through.argmin(axis=1)
    relayed = np.take_along_axis(through, via[:, None, :], axis=1)[:, 0, :]
    quicker = problem.rules.relays & (relayed < RELAYED * pace)
    return LinkPaces(pace, latency, np.where(quicker, via, -1).astype(np.int64))


def stranded_share(nodes: int, gpus_per_node: int, *, tp: int, groups: int) -> float:
    """Frag_k of ``groups`` tensor-parallel groups of ``tp`` GPUs, packed node by node as ``planners.placement`` does.

    Frag_k = (sum over nodes n with 0 < free_n < g of free_n) / (GPUs of the domain), g = GPUs of a node: the share of
    the domain's GPUs that idle in nodes which are neither full nor free. A free node is no fragment: another job can
    have it whole. In [0, 1).
    """
    if tp >= gpus_per_node:
        return 0.0
    per_node = gpus_per_node // tp
    full, rest = divmod(groups, per_node)
    idle = full * (gpus_per_node - per_node * tp) + (gpus_per_node - rest * tp if rest else 0)
    return idle / (nodes * gpus_per_node)


def _choices(tables: LayerTables) -> Iterator[Choice]:
    """Waves that divide the batch, each with every recomputation and sharding worth it."""
    problem, batch = tables.problem, tables.problem.workload.global_batch
    known = problem.rules.shardings
    shardings = [next((name for name in group if name in known), None) for group in SHARDINGS]
    widths = sorted({tp for domain in tables.examples for tp in every_width(problem, domain)})
    for wave in divisors(batch):
        if wave * MOST_WAVE_SHARE > batch and wave > 1:
            break
        meshes = [(tp, dp) for tp in widths for dp in divisors(wave)] if problem.rules.uniform_tp_dp else [None]
        for recompute in filter(RECOMPUTE.__contains__, recomputations(tables.model)):  # features know degrees alone
            for sharding in shardings:
                if sharding is not None:
                    yield from (Choice(wave, recompute, sharding, lanes) for lanes in meshes)


def _tied_bytes(problem: Problem) -> float:
    model = problem.model
    return float(model.vocab * model.hidden * problem.workload.gradient_bytes_per_parameter) if model.tied else 0.0


def _stage_counts(room: int, layers: int) -> list[int]:
    """How many stages a domain may have: all that there is room for, one less, and ever fewer."""
    most = min(room, layers)
    return sorted({most, max(1, most - 1), max(1, 3 * most // 4), max(1, most // 2), max(1, most // 4)})


class _Rows:
    """Rows of the arrays as they are found."""

    def __init__(self, tables: LayerTables, choices: tuple[Choice, ...]) -> None:
        self.tables, self.choices = tables, choices
        self.timings: dict[Hashable, int] = {}
        self.holdings: dict[Hashable, int] = {}
        self.rows: list[tuple[float, ...]] = []
        self.x: list[tuple[Floats, Floats, Floats, Floats]] = []
        self.y: list[tuple[Floats, float]] = []
        self.y_kept: list[Floats] = []
        kinds, count = len(tables.examples), len(choices)
        self.first, self.last = np.zeros((kinds, count), np.int64), np.zeros((kinds, count), np.int64)
        for kind in range(kinds):
            for at, choice in enumerate(choices):
                self.first[kind, at] = len(self.rows)
                for row in self._layouts(kind, choice):
                    self.rows.append(row)
                self.last[kind, at] = len(self.rows)

    def arrays(self) -> Arrays:
        """All of it as arrays."""
        problem = self.tables.problem
        laid = np.array(self.rows, dtype=np.float64).reshape(len(self.rows), 9).T
        tp, dp, stages, timing, holding = (np.ascontiguousarray(laid[at].astype(np.int64)) for at in range(5))
        hop, stranded, inside, agree = (np.ascontiguousarray(row) for row in laid[5:])
        work = self.tables.times(0, 1, 1, Mode(1, "none", "none"))[1]
        seconds, forward, leaves, passing = (
            np.ascontiguousarray(np.stack([row[part] for row in self.x])) for part in range(4)
        )
        return Arrays(
            usable_bytes=float(self.tables.usable_bytes),
            batch=problem.workload.global_batch,
            border_bytes=float(self.tables.wave_bytes_per_sequence) * border_share(problem),
            tied_bytes=_tied_bytes(problem),
            kind=np.array(self.tables.kinds, dtype=np.int64),
            gpus=np.array([domain.gpus / problem.context_parallel for domain in problem.cluster.domains]),
            work=work / work[-1],
            wave=np.array([choice.wave for choice in self.choices], dtype=np.int64),
            first=self.first,
            last=self.last,
            tp=tp,
            dp=dp,
            stages=stages,
            timing=timing,
            holding=holding,
            hop_s=hop,
            stranded=stranded,
            inside_s=inside,
            agree_s=agree,
            seconds=seconds,
            forward_s=forward,
            leaves=leaves,
            passing=passing,
            kept=np.ascontiguousarray(np.stack(self.y_kept)),
            once_s=np.ascontiguousarray(np.stack([once for once, _ in self.y])),
            once_fixed_s=np.array([fixed for _, fixed in self.y]),
        )

    def _layouts(self, kind: int, choice: Choice) -> Iterator[tuple[float, ...]]:
        """Layouts of a domain of this kind under a choice."""
        problem, domain = self.tables.problem, self.tables.examples[kind]
        allowed = self.tables.model.allowed_layouts()
        for tp in every_width(problem, domain):
            room = room_for_lanes(domain, tp, problem.context_parallel, wide=True)
            for dp in divisors(choice.wave):
                size = choice.wave // dp
                if not problem.spreads_experts(tp, dp):
                    continue
                if (
                    choice.lanes not in (None, (tp, dp))
                    or dp > room
                    or size > MOST_MICRO_BATCH
                    or (allowed is not None and (tp, size) not in allowed)
                ):
                    continue
                if choice.sharding == "hybrid" and dp * problem.context_parallel == 1:
                    continue
                if problem.profile is not None and choice.recompute not in self.tables.profiled_recompute(tp, size):
                    continue
                yield from self._of(kind, choice, tp, dp)

    def _of(self, kind: int, choice: Choice, tp: int, dp: int) -> Iterator[tuple[float, ...]]:
        """Those of one width, for every number of stages."""
        domain, layers = self.tables.examples[kind], self.tables.problem.model.num_layers
        mode = Mode(
            choice.wave // dp,
            choice.recompute,
            choice.sharding if dp * self.tables.problem.context_parallel > 1 else "none",
        )
        timing, holding = self._timing(kind, tp, dp, mode), self._holding(kind, tp, dp, mode.sharding)
        inside_s, agree_s = self._inside(kind, tp, dp, mode)
        cp = self.tables.problem.context_parallel
        lane_bytes = mode.micro_batch * self.tables.wave_bytes_per_sequence / (tp * cp)
        near = 2 * tp * cp * dp <= domain.gpus_per_node
        hop = self.tables.model.p2p_seconds(domain.name, lane_bytes, same_node=near)
        for stages in _stage_counts(room_for_lanes(domain, tp, cp, wide=True) // dp, layers):
            frag = stranded_share(domain.nodes, domain.gpus_per_node, tp=tp, groups=cp * dp * stages)
            yield tp, dp, stages, timing, holding, hop, frag, inside_s, agree_s

    def _timing(self, kind: int, tp: int, dp: int, mode: Mode) -> int:
        gathered = mode.sharding == "hybrid"
        key = kind, tp, mode.micro_batch, mode.recompute, dp if gathered else 0
        if key not in self.timings:
            self.timings[key] = len(self.x)
            forward, seconds, _ = self.tables.times(kind, tp, dp, mode)
            leaves = self.tables.activation(tp, mode)
            passing = self.tables.workspace(tp, dp, mode)
            self.x.append((seconds, forward, leaves, passing))
        return self.timings[key]

    def _holding(self, kind: int, tp: int, dp: int, sharding: str) -> int:
        key = kind, tp, dp, sharding
        if key not in self.holdings:
            self.holdings[key] = len(self.y)
            self.y.append(self.tables.once(kind, tp, dp, sharding))
            self.y_kept.append(self.tables.kept(tp, dp, sharding, piped=True))
        return self.holdings[key]

    def _inside(self, kind: int, tp: int, dp: int, mode: Mode) -> tuple[float, float]:
        """Exposed communication of a wave, and agreement of a step, with the whole model in the domain."""
        domain, problem = self.tables.examples[kind], self.tables.problem
        layout = Layout(
            tp,
            dp,
            mode.micro_batch,
            cp=problem.context_parallel,
            ep=problem.expert_parallel,
            etp=problem.expert_tensor_parallel,
            recompute=mode.recompute,
            sharding=mode.sharding,
            sequence_parallel=problem.rules.sequence_parallel,
            precision=problem.workload.precision,
        )
        cost = self.tables.model.stage(domain.name, 0, problem.model.num_layers, layout)
        return cost.tp_s, cost.sync_s
