"""Pipelines over several domains, found by local search: which domains in which order, and how each of them lies.

Nothing here is a bound; it finds what bounds do not lead to. Those of ``uniform`` and ``mixed`` grant every stage
memory and messages that a runtime may not have, so the plans that they name can be far from the best. A *chain* has no
cuts: those of the least pace are found at once, with the micro-batches that its runtime keeps under way, and with the
seconds in which its ranks wait for messages (``bounds.paced_step``). So thousands of chains can be told apart
without a play. Letters: n domains, p stages, m waves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import cached_property
from itertools import combinations, pairwise, permutations
from math import inf
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from hippo.planners.effort import CHAIN_S
from hippo.planners.exact.bounds import PacedLine, paced_step
from hippo.planners.exact.candidates import Candidate
from hippo.planners.exact.layouts import DomainLayout, in_chains
from hippo.planners.exact.polish import REACH, play_with_order
from hippo.planners.exact.space import Field
from hippo.planners.exact.ways import TYPICAL_BYTES, DomainWay, lines, real_way, sent_pace
from hippo.planners.placement import PipelineSketch, StageSketch
from hippo.planners.run_ahead import ChainTimes, warm_ups
from hippo.problem.runtimes import recomputed_blocks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Family = tuple[int, str, str]
"""Sequences of a wave, recomputation and sharding: what all domains of a chain share."""

WAITS: Mapping[str, tuple[float, ...]] = MappingProxyType({"coupled": (0.5,), "apart": (1.0,), "late": (0.0, 1.0)})
"""Share of a border's round trip in which both its ranks wait, every wave, by ``Messages.calls``: a call that sends and
receives at once, or one for each. Where receives are posted late that depends on the order of operations, so chains are
looked for at both ends. Elsewhere ranks work on meanwhile."""
MOST_PERMUTED = 5  # domains of which every set is looked at, in its quickest order
MOST_SEEDS = 2000  # chains whose pace is worked out to find where to begin
BEGUN, DESCENDED, IMPROVED = 12, 3, 3  # of them are played; then gone on from by estimates, and by plays
NEAR = 1.03  # times the estimate of a chain up to which its neighbours are played
MOST_PLAYED = 8  # neighbours of one chain


@dataclass(frozen=True)
class Chain:
    """Domains (indices) in the order of the pipeline, and how each lies; ``stages`` are those in use."""

    path: tuple[int, ...]
    layouts: tuple[DomainLayout, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Asked for again and again."""
        return hash((self.path, self.layouts))

    @property
    def family(self) -> Family:
        """What its domains share."""
        return _family(self.layouts[0])


@dataclass(frozen=True, eq=False)
class Paced:
    """A chain with its cuts of the least pace."""

    chain: Chain
    way: DomainWay
    cuts: tuple[int, ...]
    times: ChainTimes
    step_s: float  # estimated


def search_chains(field: Field, starts: Sequence[Candidate], *, seeded: bool = True) -> None:
    """Plays chains that may be better than the best plan: from ``starts``, and (``seeded``) from the best estimates."""
    if len(field.tables.kinds) > 1 and (field.only is None or len(field.only.domains) > 1):
        for waits in WAITS.get(field.rules.messages.calls, (0.0,)):
            search = ChainSearch(field, waits)
            known = [chain for chain in map(search.chain_of, starts) if chain is not None]
            search.run([*known, *(search.seeds() if seeded else ())])


def search_without(field: Field, start: Candidate, left: int) -> None:
    """Plays the chain of ``start`` without one of its domains: where the rest of its layout, or the same with other
    widths or settings, leads by the estimate."""
    for waits in WAITS.get(field.rules.messages.calls, (0.0,)):
        search = ChainSearch(field, waits)
        whole = search.chain_of(start)
        if whole is None or left not in whole.path:
            return
        kept = [at for at, domain in enumerate(whole.path) if domain != left]
        rest = Chain(tuple(whole.path[at] for at in kept), tuple(whole.layouts[at] for at in kept))
        found = [each for each in map(search.paced, (rest, *search.laid_otherwise(rest))) if each is not None]
        if found:
            search.play(search.descended(min(found, key=lambda each: each.step_s)))


@dataclass(frozen=True, eq=False)
class ChainSearch:
    """Chains of one problem; each is worked out once."""

    field: Field
    waits: float  # share of a border's round trip: see ``WAITS``
    _known: dict[Chain, Paced | None] = dataclass_field(default_factory=dict)
    _ways: dict[tuple[int, ...], DomainWay | None] = dataclass_field(default_factory=dict)
    _sent: dict[tuple[tuple[int, ...], int], Floats] = dataclass_field(default_factory=dict)
    _wave_s: dict[DomainLayout, float] = dataclass_field(default_factory=dict)

    def run(self, starts: Iterable[Chain]) -> None:
        """Plays every start and where the best of them lead by the estimate, and goes on by plays from the best."""
        tried = self.field.tried
        begun = sorted((each for each in map(self.paced, starts) if each is not None), key=lambda each: each.step_s)
        ends = [self.descended(each) for each in begun[:DESCENDED]]
        values: list[tuple[float, int, Paced]] = []
        for at, each in enumerate(dict.fromkeys([*ends, *begun])):
            if tried.must_stop:
                return
            values.append((self.play(each), at, each))
        for value, _, each in sorted(values, key=lambda item: item[:2])[:IMPROVED]:
            if tried.must_stop or value > REACH * tried.value:
                break
            self.improve(each, value)

    def descended(self, best: Paced) -> Paced:
        """Where going to the best neighbour ends, by the estimate."""
        while not self.field.tried.must_stop:
            found = [each for each in map(self.paced, self.neighbours(best.chain)) if each is not None]
            better = min(found, key=lambda each: each.step_s, default=best)
            if better.step_s >= best.step_s * (1 - 1e-9):
                break
            best = better
        return best

    def improve(self, paced: Paced, value: float) -> None:
        """Goes to neighbours as long as one of those with good estimates plays better."""
        improved = True
        while improved:
            improved = False
            found = [each for each in map(self.paced, self.neighbours(paced.chain)) if each is not None]
            near = sorted((each for each in found if each.step_s <= NEAR * paced.step_s), key=lambda each: each.step_s)
            for each in near[:MOST_PLAYED]:
                if self.field.tried.must_stop:
                    return
                played = self.play(each)
                if played < value:
                    paced, value, improved = each, played, True
                    break

    def play(self, paced: Paced) -> float:
        """Value of the chain with the best way to run ahead, and with an order of its own where that may win."""
        tried, best, likely = self.field.tried, inf, None
        for candidate in self.candidates(paced):
            value = tried.play(candidate)
            best, likely = (value, candidate) if value < best else (best, likely)
        if likely is not None and min(best, paced.step_s) <= REACH * tried.value:
            before = tried.value
            play_with_order(self.field, likely)
            best = min(best, tried.value) if tried.value < before else best
        return best

    def candidates(self, paced: Paced) -> list[Candidate]:
        """The chain with every warm-up worth trying."""
        field, chain = self.field, paced.chain
        names = [domain.name for domain in field.problem.cluster.domains]
        pairs = zip(paced.cuts[:-1], paced.cuts[1:], strict=True)
        stages = tuple(
            StageSketch(names[chain.path[j]], pair, chain.layouts[j].tp, chain.layouts[j].dp)
            for j, pair in zip(_parts(chain).tolist(), pairs, strict=True)
        )
        first = chain.layouts[0]
        return [
            field.tried.fitted(
                Candidate(
                    (PipelineSketch(stages, paced.times.waves, warm_up),),
                    first.mode.micro_batch,
                    first.mode.recompute,
                    first.mode.sharding,
                    paced.way.relays,
                )
            )
            for warm_up in (warm_ups(paced.times) if field.rules.live_limit else [()])
        ]

    def paced(self, chain: Chain) -> Paced | None:
        """The chain with its quickest cuts and an estimate of its step; None: it does not fit, or is not joined."""
        if chain not in self._known:
            self.field.tried.effort.spend(CHAIN_S)
            self._known[chain] = self._paced(chain)
        return self._known[chain]

    def _paced(self, chain: Chain) -> Paced | None:
        field, way, part = self.field, self._way(chain.path), _parts(chain)
        if way is None or len(part) > field.problem.model.num_layers:
            return None
        wave = chain.layouts[0].wave
        found = [field.table(layout) for layout in chain.layouts]
        trips = way.before_s + way.before_pace * wave * field.wave_bytes
        trips[1:] -= trips[:-1].copy()
        late, slowest = self._sends(chain, way)
        trips += wave * field.wave_bytes * late
        line = PacedLine(
            np.stack([table.likely for table in found]),
            part,
            np.array([table.hop_s for table in found]),
            trips,
            self.waits,
            waves=field.problem.workload.global_batch // wave,
            ahead=field.rules.live_limit,
            usable=field.tables.usable_bytes,
            slowest=slowest * wave * field.wave_bytes,
            split=field.tables.split,
        )
        cuts, numbers = np.zeros(len(part) + 1, np.int64), np.zeros((4, len(part)))
        step_s = paced_step(line, cuts, numbers)
        if step_s == inf:
            return None
        forward, seconds, delays, room = numbers
        times = ChainTimes(forward, seconds, delays, room, line.waves, line.slowest)
        return Paced(chain, way, tuple(cuts.tolist()), times, step_s + field.tail_s(way))

    def _way(self, path: tuple[int, ...]) -> DomainWay | None:
        """The borders of a path with all nodes sending; None: it is not joined."""
        if path not in self._ways:
            way = real_way(self.field.routes(0), (path,), inf, tied=bool(self.field.tied_bytes))
            self._ways[path] = way if way is not None and np.isfinite(way.slowest) else None
        return self._ways[path]

    def _sends(self, chain: Chain, way: DomainWay) -> tuple[Floats | float, float]:
        """Seconds per byte of a round trip over the border before each domain, (n,), that come on top where links cap
        each node, as the nodes of a stage alone send; and of the slowest border, one way."""
        field = self.field
        if not field.capped:
            return 0.0, way.slowest
        own = [0]
        for layout in chain.layouts:
            own.append(layout.nodes(field.tables.examples[layout.kind].gpus_per_node))
        for nodes in own:
            if (chain.path, nodes) not in self._sent:
                self._sent[chain.path, nodes] = sent_pace(field.routes(nodes), way)
        found = np.array([self._sent[chain.path, nodes][:, j] for j, nodes in enumerate(own[1:])]).T
        back, on = found - self._sent[chain.path, 0]
        return back + np.concatenate(([0.0], on[:-1])), float(found.max())

    @cached_property
    def _layouts(self) -> list[dict[Family, dict[tuple[int, int], DomainLayout]]]:
        """Layouts of every kind by family and (tp, dp), with all the stages there is room for."""

        def make() -> list[dict[Family, dict[tuple[int, int], DomainLayout]]]:
            found: list[dict[Family, dict[tuple[int, int], DomainLayout]]] = []
            for layouts in self.field.layouts:
                found.append({})
                for layout in layouts:
                    for each in in_chains(self.field.problem, layout):
                        for again in ("none", "full"):  # a number of blocks is for when its stages are known
                            mode = each.mode.computing_again(again)
                            one = replace(each, mode=mode)
                            found[-1].setdefault(_family(one), {})[one.tp, one.dp] = one
            return found

        return self.field.tables.shared("layouts by family", make)

    def _of(self, domain: int, family: Family) -> dict[tuple[int, int], DomainLayout]:
        return self._layouts[self.field.tables.kinds[domain]].get(family, {})

    def chain_of(self, candidate: Candidate) -> Chain | None:
        """The chain of a candidate without its cuts; None: it has several pipelines, or a domain lies in two ways."""
        if len(candidate.pipelines) > 1:
            return None
        at, stages = self.field.problem.cluster.domain_index, candidate.pipelines[0].stages
        path = tuple(dict.fromkeys(at[stage.domain] for stage in stages))
        wave, layouts = candidate.micro_batch * stages[0].dp, []
        for domain in path:
            mine = [stage for stage in stages if at[stage.domain] == domain]
            again = "full" if recomputed_blocks(candidate.recompute) is not None else candidate.recompute
            layout = self._of(domain, (wave, again, candidate.sharding)).get((mine[0].tp, mine[0].dp))
            if layout is None or len({(stage.tp, stage.dp) for stage in mine}) > 1 or layout.stages < len(mine):
                return None
            layouts.append(replace(layout, stages=len(mine)))
        return Chain(path, tuple(layouts)) if len(path) > 1 else None

    def seeds(self) -> Iterator[Chain]:
        """Chains with the best estimates of those that lie alike in all domains, or everywhere as it is quickest; each
        family and width once."""
        paths, (picks, per_wave, speeds) = self._paths(), self._picks
        kinds, best = np.array(self.field.tables.kinds), dict[object, Paced]()
        bounds = np.array([per_wave / speeds[kinds[list(path)]].sum(axis=0) for path in paths])
        for at in np.argsort(bounds, axis=None, kind="stable")[:MOST_SEEDS].tolist():
            path, pick = paths[at // len(picks)], picks[at % len(picks)]
            ranked = sorted(each.step_s for each in best.values())
            limit = min(REACH * self.field.tried.value, ranked[BEGUN - 1] if len(ranked) >= BEGUN else inf)
            if not bounds.flat[at] < limit or self.field.tried.must_stop:
                break
            chain = Chain(path, tuple(pick[kind] for kind in kinds[list(path)].tolist()))
            key, paced = (chain.family, chain.layouts[0].tp), self.paced(chain)
            if paced is not None and (key not in best or paced.step_s < best[key].step_s):
                best[key] = paced
        for paced in sorted(best.values(), key=lambda each: each.step_s)[:BEGUN]:
            yield paced.chain

    @cached_property
    def _picks(self) -> tuple[list[dict[int, DomainLayout]], Floats, Floats]:
        """How a domain of each kind may lie in a chain that begins the search, P ways; waves of a step, (P,); and those
        that a domain works through in a second if its stages are always busy, (kinds, P), nan: it cannot lie so."""

        def make() -> tuple[list[dict[int, DomainLayout]], Floats, Floats]:
            found: list[dict[int, DomainLayout]] = []
            for family in dict.fromkeys(family for layouts in self._layouts for family in layouts):
                own = {kind: each[family] for kind, each in enumerate(self._layouts) if family in each}
                for width in dict.fromkeys(width for layouts in own.values() for width in layouts):
                    found.append({kind: layouts[width] for kind, layouts in own.items() if width in layouts})
                if not self.field.rules.uniform_tp_dp:
                    found.append({kind: min(each.values(), key=self._seconds) for kind, each in own.items()})
            waves = [next(iter(pick.values())).wave for pick in found]
            speeds = np.full((len(self._layouts), len(found)), np.nan)
            for at, pick in enumerate(found):
                for kind, layout in pick.items():
                    speeds[kind, at] = 1.0 / self._seconds(layout)
            return found, self.field.problem.workload.global_batch / np.array(waves, np.float64), speeds

        return self.field.tables.shared("picks", make)

    def _seconds(self, layout: DomainLayout) -> float:
        """Seconds of a wave of the whole model on a domain alone, its stages always busy."""
        if layout not in self._wave_s:
            times = self.field.tables.times(layout.kind, layout.tp, layout.dp, layout.mode)
            self._wave_s[layout] = float(times[1][-1]) / layout.stages
        return self._wave_s[layout]

    def _paths(self) -> list[tuple[int, ...]]:
        """Orders of sets of domains: of few domains every set in its quickest order, and those of ``ways.lines``."""
        field = self.field
        among = tuple(range(len(field.tables.kinds))) if field.only is None else tuple(sorted(field.only.domains))
        routes = field.routes(0)
        found = {path: None for paths in lines(routes, among, tied_bytes=field.tied_bytes)[1:] for path, _ in paths}
        if len(among) <= MOST_PERMUTED:
            trip = routes.round_trip_s(TYPICAL_BYTES, inf)
            for n in range(2, len(among) + 1):
                for members in combinations(among, n):
                    orders = [order for order in permutations(members) if order[0] < order[-1]]
                    found[min(orders, key=lambda order: sum(trip[pair] for pair in pairwise(order)))] = None
        wanted = [path for path in found if field.only is None or field.only.holds([path])]
        return [each for path in wanted for each in (path, path[::-1])]

    def neighbours(self, chain: Chain) -> Iterator[Chain]:
        """Chains one step away: a stage more or less, a domain left out, added or moved, other widths or family."""
        path, layouts, only = chain.path, chain.layouts, self.field.only
        for j, layout in enumerate(layouts):
            full = self._of(path[j], chain.family)
            for stages in (layout.stages - 1, layout.stages + 1):
                if 1 <= stages <= full[layout.tp, layout.dp].stages:
                    yield _with(chain, j, replace(layout, stages=stages))
            for other in full.values() if not self.field.rules.uniform_tp_dp else ():
                if (other.tp, other.dp) != (layout.tp, layout.dp):
                    yield _with(chain, j, other)
            if len(path) > 2 and only is None:
                yield Chain(path[:j] + path[j + 1 :], layouts[:j] + layouts[j + 1 :])
            for k in range(len(path)):
                if k != j:
                    moved = [each for each in range(len(path)) if each != j]
                    moved.insert(k, j)
                    yield Chain(tuple(path[each] for each in moved), tuple(layouts[each] for each in moved))
        yield from self._with_another(chain)
        yield from self.laid_otherwise(chain)

    def _with_another(self, chain: Chain) -> Iterator[Chain]:
        """One domain more, at any place, laid like the first where it can."""
        path, layouts = chain.path, chain.layouts
        width = layouts[0].tp, layouts[0].dp
        for domain in range(len(self.field.tables.kinds)) if self.field.only is None else ():
            found = self._of(domain, chain.family)
            if domain in path or not found or (self.field.rules.uniform_tp_dp and width not in found):
                continue
            layout = found.get(width) or min(found.values(), key=self._seconds)
            for k in range(len(path) + 1):
                yield Chain((*path[:k], domain, *path[k:]), (*layouts[:k], layout, *layouts[k:]))

    def laid_otherwise(self, chain: Chain) -> Iterator[Chain]:
        """All domains in another family, or with other widths, with all the stages there is room for."""
        for family in dict.fromkeys(family for layouts in self._layouts for family in layouts):
            if sum(a != b for a, b in zip(family, chain.family, strict=True)) > 1:
                continue
            found = [self._of(domain, family) for domain in chain.path]
            if not all(found):
                continue
            same = [own.get((one.tp, one.dp)) for one, own in zip(chain.layouts, found, strict=True)]
            room = [0 if layout is None else layout.stages for layout in same]
            if family != chain.family and all(
                one.stages <= most for one, most in zip(chain.layouts, room, strict=True)
            ):
                kept = zip(same, chain.layouts, strict=True)
                yield Chain(chain.path, tuple(replace(own, stages=one.stages) for own, one in kept if own is not None))
            for width in found[0]:
                if all(width in own for own in found):
                    yield Chain(chain.path, tuple(own[width] for own in found))


def _with(chain: Chain, j: int, layout: DomainLayout) -> Chain:
    return replace(chain, layouts=(*chain.layouts[:j], layout, *chain.layouts[j + 1 :]))


def _parts(chain: Chain) -> Ints:
    """(p,) the domain of the chain that each stage lies in."""
    return np.repeat(np.arange(len(chain.path)), [layout.stages for layout in chain.layouts])


def _family(layout: DomainLayout) -> Family:
    return layout.wave, layout.mode.recompute, layout.mode.sharding
