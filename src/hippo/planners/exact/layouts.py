"""The layouts of the exact search, and what one domain can do with each, as arrays that bounds are computed from.

A layout is a (tp, dp, micro-batch, recompute, sharding) worth trying in a domain; dropped are only those that another
one beats in every number the cost model gives: seconds, bytes, once per step. Letters: N layers. A prefix ``x`` has
shape (N + 1,) and layers [start, stop) cost ``x[stop] - x[start]``. Everything here is read off ``cost.cost_model``;
``tests/planners/exact/test_search.py`` holds the tables against it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hippo.cost.collectives import Fabric
from hippo.cost.cost_model import CostModel
from hippo.cost.stage import Layout, StageCost
from hippo.planners.memory import MemoryEstimate, memory_estimate
from hippo.planners.placement import room_for_lanes
from hippo.planners.recipe import FITTED, Recipe, divisors, every_width, fits_blocks, overlapping, recompute_choices
from hippo.problem.cluster import Domain
from hippo.problem.model import Layer
from hippo.problem.problem import Problem
from hippo.problem.runtimes import ACROSS
from hippo.simulate.agree import summed_share
from hippo.simulate.costs import cost_model

Floats = NDArray[np.float64]
Each = TypeVar("Each")


@dataclass(frozen=True)
class Mode:
    """What all stages of a plan share."""

    micro_batch: int  # sequences per rank and micro-batch at the pipeline's first stage
    recompute: str  # ``FITTED``: each plan has a number of its own
    sharding: str
    groups: int = 1  # pipelines over which ``optimizer-across`` shards, and ``full`` where they are several

    def computing_again(self, recompute: str) -> Mode:
        """The mode with this in place of ``FITTED``."""
        return replace(self, recompute=recompute) if self.recompute == FITTED else self


@dataclass(frozen=True, eq=False)
class LayerTable:
    """Prefix sums of one layout; ``live`` micro-batches of layers [a, b) fit when
    ``kept + live * activation + max(workspace[a], workspace[b - 1]) <= usable``.

    Of a ``FITTED`` mode seconds are those without recomputation, and activations those with all of it: each block is
    computed again for ``again_s``, or leaves ``spare_bytes`` more."""

    forward_s: Floats  # (N + 1,) per wave
    total_s: Floats  # (N + 1,) forward, backward and weight gradient per wave
    trip_s: Floats  # (N + 1,) what a wave's round trip takes: without the weight gradient where that may come later
    kept_bytes: Floats  # (N + 1,)
    activation_bytes: Floats  # (N + 1,) of one micro-batch
    workspace_bytes: Floats  # (N,) with the reserved bytes
    once_s: Floats  # (N + 1,) synchronisation inside the domain and optimizer, per step
    once_fixed_s: float  # the part that does not grow with the layers
    hop_s: float  # least delay of one message between two stages of the domain
    share: Floats  # (N + 1,) of the model's gradient bytes
    spare_bytes: Floats  # (N + 1,) of one micro-batch, that blocks leave which are not computed again; 0: none may be
    again_s: Floats  # (N + 1,) per wave, of blocks that are
    again_bytes: float  # least workspace, with the reserved bytes, of a stage with such a block

    @property
    def _least_workspace(self) -> Floats:
        """(N,) no more than any stage with the layer needs, and never less for a longer stage: that of the least of the
        blocks from here on, where they differ none above that of the last layer."""
        needed, inner = self.workspace_bytes.copy(), self.workspace_bytes[1:-1]
        if len(inner):
            needed[1:-1] = np.minimum.accumulate(inner[::-1])[::-1]
            needed[1:-1] = np.minimum(needed[1:-1], max(inner.min(), needed[-1]))
        needed[0] = needed[:-1].min(initial=np.inf)
        return np.asarray(np.minimum(needed, self.workspace_bytes.max()))

    @cached_property
    def fused(self) -> Floats:
        """``packed`` where the backward is one operation: all of it lies on the round trip."""
        table = self.packed.copy()
        table[8] = table[1]
        return table

    @cached_property
    def likely(self) -> Floats:
        """``packed`` with what each layer needs beside, as of a stage that ends with it: no bound, but nearer."""
        table = self.packed.copy()
        table[4, :-1] = self.workspace_bytes
        return table

    @cached_property
    def packed(self) -> Floats:
        """(12, N + 1) as the kernels of ``bounds`` take it: seconds, bytes, once per step, shares, the round trip, and
        what blocks that are computed again do."""
        size = len(self.total_s)
        fixed = np.full(size, self.once_fixed_s)
        rows = (self.forward_s, self.total_s, self.kept_bytes, self.activation_bytes)
        once = self.once_s, fixed, self.share, self.trip_s, self.spare_bytes, self.again_s
        again = np.full(size, self.again_bytes)
        return np.stack([*rows, np.append(self._least_workspace, 0.0), *once, again])


@dataclass(frozen=True, eq=False)
class LayerTables:
    """All layouts of one problem, each built when asked for."""

    problem: Problem
    model: CostModel
    split: bool = True  # weight gradients may come later than their input gradients
    overlapped: bool = False  # exchanges of experts run beside other micro-batches, as much as any plan lets them
    gathering: bool = False  # layouts are those whose weights are sharded over several groups, and no others
    _cache: dict[object, object] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, problem: Problem, *, split: bool = False) -> LayerTables:
        """Tables of the problem's cost model; ``split``: see the field."""
        return cls(problem, cost_model(problem), split)

    def shared(self, key: Hashable, make: Callable[[], Each]) -> Each:
        """What ``make`` says of the problem's domains and layers, not of its links: asked for once."""
        mine = self.gathering, key
        if mine not in self._cache:
            self._cache[mine] = make()
        return self._cache[mine]  # type: ignore[return-value]

    @cached_property
    def _memory(self) -> MemoryEstimate:
        return memory_estimate(self.model)

    @property
    def usable_bytes(self) -> float:
        """Bytes of one GPU that a plan may use."""
        return self.model.usable_memory_bytes()

    @cached_property
    def wave_bytes_per_sequence(self) -> float:
        """Bytes one sequence sends over a cut, each way (the least, where a profile says that cuts differ)."""
        name = self.problem.cluster.domains[0].name
        layout = self._layout(1, 1, Mode(1, "none", "none"))
        return min(self._per_layer(lambda i: self.model.stage(name, i, i + 1, layout).output_bytes))

    @cached_property
    def gradient_bytes(self) -> float:
        """Gradients of one replica of the whole model."""
        name = self.problem.cluster.domains[0].name
        layers = self.problem.model.num_layers
        return self.model.stage(name, 0, layers, self._layout(1, 1, Mode(1, "none", "none"))).gradient_bytes

    @cached_property
    def share(self) -> Floats:
        """(N + 1,) prefix sums of every layer's share of the gradient bytes, without a matrix that two stages may sum
        apart from their layers."""
        model = self.problem.model
        parameters = np.array([layer.parameters for layer in model.layers], dtype=np.float64)
        apart = model.vocab * model.hidden if model.tied and not self.problem.rules.copies_tied else 0
        return _prefix((parameters - apart * (np.arange(len(parameters)) == 0)) / parameters.sum())

    @cached_property
    def heaviest(self) -> NDArray[np.bool_]:
        """(N,) the blocks, all alike, that hold most of the gradients: bounds on what agrees while others work take the
        bytes of a layer to grow with its seconds."""
        blocks = self.problem.model.layers[1:-1]
        held = Counter[Layer]()
        for each in blocks:
            held[each] += each.parameters
        most = held.most_common(1)[0][0] if held else None
        return np.array([False, *(each == most for each in blocks), False])

    @cached_property
    def blocks_share(self) -> float:
        """Share of the gradient bytes that lies in the heaviest blocks."""
        return float(np.diff(self.share)[self.heaviest].sum())

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """Domains of equal size and fabric share a number."""
        known: dict[object, int] = {}
        return tuple(known.setdefault(_kind(domain), len(known)) for domain in self.problem.cluster.domains)

    @cached_property
    def examples(self) -> tuple[Domain, ...]:
        """One domain of each kind."""
        first = {kind: index for index, kind in reversed(list(enumerate(self.kinds)))}
        return tuple(self.problem.cluster.domains[first[kind]] for kind in range(len(first)))

    def _layout(self, tp: int, dp: int, mode: Mode) -> Layout:
        recipe = Recipe(mode.micro_batch, mode.recompute, mode.sharding)
        layout = recipe.layout(self.problem, tp=tp, dp=dp, replicas=dp * mode.groups)
        return replace(layout, in_open=self._in_open(mode.micro_batch * dp)) if self.overlapped else layout

    def _in_open(self, wave: int) -> float:
        """Least share of the exchanges of such waves that run beside nothing, in plans that overlap them: that of one
        stage and all waves in one pipeline (``simulate.costs.in_open``)."""
        return min(1.0, wave / self.problem.workload.global_batch)

    def times(self, kind: int, tp: int, dp: int, mode: Mode) -> tuple[Floats, Floats, Floats]:
        """Prefix sums (N + 1,) of seconds per wave: forward, everything, and what a round trip takes."""
        mode = mode.computing_again("none")
        gathered = mode.sharding in ("full", "hybrid") and dp * self.problem.context_parallel > 1
        alike = 1 if not (gathered or self.overlapped) else dp
        key = ("times", kind, tp, alike, mode.micro_batch, mode.recompute, gathered)
        if key not in self._cache:
            plain = mode if gathered else Mode(mode.micro_batch, mode.recompute, "none")
            seconds = self.model.layer_seconds(self.examples[kind].name, self._layout(tp, alike, plain))
            total = _prefix(seconds.sum(axis=1))
            trip = _prefix(seconds[:, :2].sum(axis=1)) if self.split else total
            self._cache[key] = (_prefix(seconds[:, 0]), total, trip)
        return self._cache[key]  # type: ignore[return-value]

    def table(self, kind: int, tp: int, dp: int, mode: Mode) -> LayerTable:
        """Everything about one layout; see ``LayerTable``."""
        key = ("table", kind, tp, dp, mode)
        if key not in self._cache:
            forward, total, trip = self.times(kind, tp, dp, mode)
            left, spare, again = self.activation(tp, mode), np.zeros(len(total)), np.zeros(len(total))
            passing = 0.0
            if mode.recompute == FITTED:
                passing = self.workspace(tp, dp, replace(mode, recompute="full"))[1:-1].min(initial=np.inf)
                spare = self.activation(tp, replace(mode, recompute="none")) - left
                again = self.times(kind, tp, dp, replace(mode, recompute="full"))[1] - total
            once, fixed = self.once(kind, tp, dp, mode.sharding, mode.groups)
            lane_bytes = mode.micro_batch * self.wave_bytes_per_sequence
            name, size = self.examples[kind].name, lane_bytes / (tp * self.problem.context_parallel)
            hop = min(self.model.p2p_seconds(name, size, same_node=near) for near in (True, False))
            self._cache[key] = LayerTable(
                forward,
                total,
                trip,
                self.kept(tp, dp, mode.sharding, groups=mode.groups),
                left,
                self.workspace(tp, dp, mode),
                once,
                fixed,
                hop,
                self.share,
                spare,
                again,
                passing,
            )
        return self._cache[key]  # type: ignore[return-value]

    def kept(self, tp: int, dp: int, sharding: str, *, piped: bool | None = None, groups: int = 1) -> Floats:
        """Prefix sums (N + 1,) of weights, gradients and optimizer state of one rank; ``piped``, ``groups`` as in
        ``memory``."""
        key = "kept", tp, dp, sharding, piped, groups
        return self.shared(key, lambda: np.array(self._memory.kept(tp, dp, sharding, piped=piped, groups=groups)))

    def activation(self, tp: int, mode: Mode) -> Floats:
        """Prefix sums (N + 1,) of what one micro-batch leaves on a rank."""
        recipe = Recipe(mode.micro_batch, mode.computing_again("full").recompute)
        return self.shared(("activation", tp, recipe), lambda: np.array(self._memory.left(tp, recipe)))

    def workspace(self, tp: int, dp: int, mode: Mode) -> Floats:
        """Workspace and reserved bytes (N,) of a stage of one layer."""
        recipe = Recipe(mode.micro_batch, mode.computing_again("none").recompute, mode.sharding)
        piped = self.kept(tp, dp, mode.sharding, piped=False, groups=mode.groups)[-1] > self.usable_bytes
        return np.array(self._memory.temporary(tp, recipe, dp=dp * mode.groups, piped=bool(piped)))

    def once(self, kind: int, tp: int, dp: int, sharding: str, groups: int = 1) -> tuple[Floats, float]:
        """Seconds once per step as prefix plus a constant: the cost model's are affine in the layers."""
        key = ("once", kind, tp, dp, sharding, groups)
        if key not in self._cache:
            name, layout = self.examples[kind].name, self._layout(tp, dp, Mode(1, "none", sharding, groups))
            count = self.problem.model.num_layers
            single = self._per_layer(lambda i: _once(self.model.stage(name, i, i + 1, layout)))
            fixed = (sum(single) - _once(self.model.stage(name, 0, count, layout))) / max(1, count - 1)
            self._cache[key] = (_prefix(np.array(single) - fixed), fixed)
        return self._cache[key]  # type: ignore[return-value]

    def profiled_recompute(self, tp: int, micro_batch: int) -> tuple[str, ...]:
        """Degrees of recomputation that the problem's profile has rows for."""
        profile = self.problem.profile
        assert profile is not None
        rows = (row for row in profile.rows if (row.tp, row.micro_batch) == (tp, micro_batch))
        return tuple(dict.fromkeys(row.recompute for row in rows))

    def _per_layer(self, value: Callable[[int], Each]) -> list[Each]:
        """``value(i)`` for every layer, computed once per distinct layer."""
        known: dict[int, Each] = {}
        out = []
        for position, which in enumerate(self.model.distinct[1].tolist()):
            if which not in known:
                known[which] = value(position)
            out.append(known[which])
        return out


def _kind(domain: Domain) -> object:
    return domain.nodes, Fabric.of(domain)


def _once(cost: StageCost) -> float:
    return cost.sync_s + cost.optimizer_s + cost.fixed_s


def _prefix(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


SHARDING = ("none", "optimizer", "gradients", "hybrid", "full")
"""``full`` in one domain is ``hybrid``: it is looked at where the runtime has no such."""
COUNTED = 8
"""Groups up to which a sharding over all of them is told apart by their number; more are granted what all domains, as
a group each, would save."""


@dataclass(frozen=True)
class DomainLayout:
    """One way to lie in a domain of one kind, with room for ``stages`` stages."""

    kind: int
    tp: int
    dp: int
    stages: int
    mode: Mode
    cp: int = 1

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Asked for again and again."""
        return hash((self.kind, self.tp, self.dp, self.stages, self.mode, self.cp))

    @property
    def gpus(self) -> int:
        """GPUs of a stage."""
        return self.tp * self.cp * self.dp

    @property
    def ranks(self) -> int:
        """Ranks of a stage that hold the same weights."""
        return self.cp * self.dp

    def nodes(self, gpus_per_node: int) -> int:
        """Most nodes that a stage lies on."""
        gpus = self.gpus
        aligned = gpus % gpus_per_node == 0 or gpus_per_node % gpus == 0
        return -(-gpus // gpus_per_node) + (0 if aligned else 1)

    @property
    def wave(self) -> int:
        """Sequences of one wave."""
        return self.mode.micro_batch * self.dp

    def summed(self, problem: Problem) -> float:
        """What sums of its groups send over what sums of gradients do; nothing is left to sum where every pass gathers
        weights of all groups, and scatters their gradients."""
        return (
            0.0 if self.mode.sharding == "full" and self.mode.groups > 1 else summed_share(problem, self.mode.sharding)
        )

    def between(self, problem: Problem) -> tuple[int, int]:
        """Fewest and most groups of a plan in which it may stand: sharded over all of them it is for their number
        alone, and where that can be had other plans of several groups need nothing that sums as slowly and keeps
        more."""
        least = self.mode.groups
        if least > 1:
            return (least, least) if least < COUNTED else (COUNTED, EVERYONE)
        slower = self.mode.sharding == "none" and self.ranks == 1
        slower |= self.mode.sharding == "optimizer" and problem.all_reduce_with("optimizer") == "ring"
        return 1, 1 if slower and shards_across(problem) and summed_share(problem, ACROSS) <= 1.0 else EVERYONE


EVERYONE = 1 << 30
"""More groups than there are."""


def shards_across(problem: Problem) -> bool:
    """Whether replicas of several domains may share out the optimizer's state."""
    return (
        len(problem.cluster.domains) > 1
        and ACROSS in problem.rules.shardings
        and problem.all_reduce_with(ACROSS) == "ring"
    )


def shards_weights_across(problem: Problem) -> bool:
    """Whether they may share out everything, weights, too."""
    return len(problem.cluster.domains) > 1 and "full" in problem.rules.shardings


def shardings(problem: Problem, dp: int) -> tuple[str, ...]:
    """What ``dp`` lanes may shard; a single one on one tensor-parallel group has nothing to."""
    several = dp * problem.context_parallel > 1
    known = problem.rules.shardings
    some = SHARDING[:-1] if "hybrid" in known else SHARDING  # over all groups: ``_over_groups``
    return tuple(name for name in some if name in known) if several else ("none",)


def lone(problem: Problem, sharding: str, groups: int = 1) -> int:
    """1: only for pipelines of one stage, 2: and for one of them alone, 0: for all; of a sharding over so many groups.

    Beside a pipeline sharded gradients save nothing over a sharded optimizer: they are looked at where the runtime has
    no such.
    """
    piped = problem.rules.shardings_with_pipeline
    if sharding == "gradients":
        return int("optimizer" in piped or sharding not in piped)
    if sharding == "full":
        return int(sharding not in piped) if groups > 1 else 2
    return 0


def in_chains(problem: Problem, layout: DomainLayout) -> Iterator[DomainLayout]:
    """The layout as it may stand in one pipeline beside unlike ones: a single lane under every sharding of the
    others."""
    if layout.mode.groups > 1:
        return
    if not lone(problem, layout.mode.sharding):
        yield layout
    if layout.ranks == 1 and not problem.rules.uniform_tp_dp:
        for name in shardings(problem, 2):
            if name != "none" and not lone(problem, name):
                yield replace(layout, mode=replace(layout.mode, sharding=name))


def layouts(tables: LayerTables, kind: int) -> list[DomainLayout]:
    """Layouts of a domain of this kind that nothing beats and of which at least one layer fits."""
    return [each for each in all_layouts(tables, kind) if not _beaten(tables, each)]


def all_layouts(tables: LayerTables, kind: int) -> Iterator[DomainLayout]:
    """Every layout of which one layer fits a GPU."""
    problem, domain = tables.problem, tables.examples[kind]
    batch, layers = problem.workload.global_batch, problem.model.num_layers
    allowed = tables.model.allowed_layouts()
    over = ["full"] if tables.gathering else [ACROSS] if shards_across(problem) else []
    for tp in every_width(problem, domain):
        if tp == 1 and problem.expert_tensor_parallel and problem.rules.uniform_tp_dp:
            continue  # they are whole there anyway
        room = room_for_lanes(domain, tp, problem.context_parallel, wide=True)
        for micro_batch in divisors(batch):
            if allowed is not None and (tp, micro_batch) not in allowed:
                continue
            modes = [Mode(micro_batch, recompute, "none") for recompute in _recompute(tables, kind, tp, micro_batch)]
            for dp in divisors(batch // micro_batch):
                if dp > room:
                    break
                if not problem.spreads_experts(tp, dp):
                    continue
                inside = [] if tables.gathering else [(name, 1) for name in shardings(problem, dp)]
                across = [(name, groups) for name in over for groups in _groups(problem, batch // (micro_batch * dp))]
                for mode, (sharding, groups) in product(modes, [*inside, *across]):
                    stages = 1 if lone(problem, sharding, groups) else min(room // dp, layers)
                    shared = Mode(micro_batch, mode.recompute, sharding, groups)
                    yield DomainLayout(kind, tp, dp, stages, shared, problem.context_parallel)


def _groups(problem: Problem, lots: int) -> list[int]:
    """Numbers of pipelines over which something may be sharded; the last stands for all that are more."""
    domains = len(problem.cluster.domains)
    few = [groups for groups in range(2, min(domains, COUNTED - 1) + 1) if groups <= lots]
    even = [groups for groups in few if not problem.rules.equal_shares or lots % groups == 0]
    return [*even, *([domains] if min(domains, lots) >= COUNTED else [])]


def _recompute(tables: LayerTables, kind: int, tp: int, micro_batch: int) -> list[str]:
    """Recomputations that fit one micro-batch of one layer and that no other beats in every layer."""
    kept: list[tuple[str, Floats, Floats]] = []
    problem = tables.problem
    degrees = recompute_choices(problem) if problem.profile is None else tables.profiled_recompute(tp, micro_batch)
    able = [degree for degree in degrees if problem.rules.recomputes(degree)]
    for recompute in able if not tables.overlapped else overlapping(problem, able):
        mode = Mode(micro_batch, recompute, "none")
        seconds, held = np.diff(tables.times(kind, tp, 1, mode)[1]), np.diff(tables.activation(tp, mode))
        if held.min() > tables.usable_bytes:
            continue
        if not any((seconds >= s * (1 - 1e-12)).all() and (held >= b * (1 - 1e-12)).all() for _, s, b in kept):
            kept = [(n, s, b) for n, s, b in kept if not ((seconds <= s).all() and (held <= b).all())]
            kept.append((recompute, seconds, held))
    found = [name for name, _, _ in kept]
    some = any(name != "none" for name in found) and not tables.overlapped
    if some and fits_blocks(problem):  # of all blocks some, none or all
        found = [*(name for name in found if name not in ("none", "full")), FITTED]
    return found


def _beaten(tables: LayerTables, layout: DomainLayout) -> bool:
    """Whether a sharded optimizer, or what stands for one, is better in everything than a replicated one here."""
    problem, where = tables.problem, (layout.kind, layout.tp, layout.dp)
    known = shardings(problem, layout.dp)
    able = [name for name in ("optimizer", "gradients") if name in known and not lone(problem, name)]
    if layout.mode.sharding != "none" or not able:
        return False
    mine, its = tables.once(*where, "none"), tables.once(*where, able[0])
    once = np.diff(its[0]) <= np.diff(mine[0]) + 1e-15
    kept = np.diff(tables.kept(*where[1:], able[0])) <= np.diff(tables.kept(*where[1:], "none")) + 1e-6
    return bool(once.all() and kept.all() and its[1] <= mine[1] + 1e-12)
