"""The exact search: the best plan over sets and orders of domains, cuts, layouts and ways to join, with a proven gap.

Candidates come from bounds, best bound first (``uniform``); every one is played before it counts, so the step
time is that of the simulator. Then the least bound of everything that could still win is computed on *ideal* ways to
join, of which no real one is better: that is the lower bound, and the gap is what lies between.

What the proof covers, and why a gap may stay open: ``docs/theory.md``. Words: a *way* joins G groups of n domains each,
every group a pipeline.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from hippo.cost.money import rent_usd_per_s
from hippo.plan.plan import Sync
from hippo.planners.base import Progress, Proposal, Status, Stop
from hippo.planners.baselines.crosspipe import CrossPipe
from hippo.planners.baselines.diloco import NOTES as LOCAL_SGD_NOTES
from hippo.planners.baselines.dtfm import Dtfm
from hippo.planners.baselines.sailor import Sailor
from hippo.planners.effort import PAIR_S, PREPARE_S, Effort
from hippo.planners.exact.candidates import Candidate, Tried, joining
from hippo.planners.exact.chains import search_chains
from hippo.planners.exact.interleaved import least_interleaved, search_interleaved
from hippo.planners.exact.layouts import shards_weights_across
from hippo.planners.exact.mixed import least_along, search_mixed
from hippo.planners.exact.polish import play_ordered, polish
from hippo.planners.exact.replicas import search_replicas
from hippo.planners.exact.space import EVERY, MOST_DOMAINS, WAYS_PATIENCE, Field, LayoutRows, remember
from hippo.planners.exact.uniform import best_first, bubbled, candidate, first_guess, least_bound, play, shapes
from hippo.planners.exact.ways import DomainWay, slowest_borders
from hippo.planners.recipe import overlapping, recompute_choices
from hippo.problem.problem import Problem
from hippo.score.judge import judge

MOST_MOVES = 60  # plays of small changes to the best plan
MOST_ORDERED = 40_000  # operations of all plays together that get an order of their own there
FIRST_WAYS = 12  # ways to join that are played at least once, if only to be told as alternatives
LIKE, UNLIKE = "stages that all lie alike", "replicas in domains that differ"
CHUNKED = "stages of several chunks that all lie alike"
MIXED = "pipelines whose domains lie differently"
BUSY = "GPU time that never waits"
TOLD = 0.01  # a gap above it gets a word on why it is open
GAP_OPEN = "The gap stays open"
OPEN = (
    GAP_OPEN + " for {cause}: their bound grants every border and every ring the quickest links there are, and "
    "takes waiting for links, for memory and for replicas apart, so plans that good need not exist."
)
GAVE_UP = (
    "Plans that may be better were left untried: the search leaves a way to join domains once a few plans in a row "
    "have brought nothing better."
)
SETTLED = 0.0025  # a proven gap below which more search cannot be worth its time
CLOSED = 1e-5  # a gap below the precision of the bounds counts as none
MOST_RUNNERS_UP = 8
OTHERS = Sailor(), CrossPipe(), Dtfm()
"""Whose plans the search goes on from where its bound leaves a gap."""
BETTER_RUNNERS_UP = 2  # of them are searched, not only guessed
NEAR = 1.1  # times the worth of a plan that is known elsewhere, up to which one's own is worked on
RESERVE = 0.6  # share of the limit after which no new plays begin: the bound needs the rest


Bounds = dict[str, float]
"""By what plans they are of, in the unit of the objective (0: nothing is proven)."""


class Exact:
    """Optimum with a proven gap; see the module's docstring."""

    name = "exact"

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """The best plan found, the gap to the least bound, and the best plan of every other way to join domains.

        Deterministic; ``seed`` is not used. Infeasible: no plan of any kind fits.
        """
        tried = Tried(problem, Effort.of(stop), RESERVE, stop.below)
        tried.effort.spend(PREPARE_S + PAIR_S * len(problem.cluster.domains) ** 2)
        fields = _fields(problem, tried)
        remember(fields[0])
        for done, field in enumerate(fields):
            _say(progress, "playing candidates", done / len(fields))
            before = tried.plays
            search_ways(field, others=stop.below == inf)
            search_replicas(field)
            if tried.plays > before:
                play_ordered(field)
        tried.share = 1.0
        _say(progress, "proving the bound", 0.9)
        bounds = _bounds(problem, tried, _granted(tried, fields))
        asked: tuple[Proposal, ...] = ()
        near = tried.least <= NEAR * tried.value  # else another pair of degrees is far better
        if near:
            bounds, asked = _worked_on(tried, fields, bounds, stop, seed, progress)
        plain = tried.least
        if near:
            _in_chunks(tried, fields)
        if len(problem.cluster.domains) <= MOST_DOMAINS:  # of more the work alone is counted, whatever the chunks
            bounds[CHUNKED] = min(map(least_interleaved, fields))
        if bounds.get(MIXED, inf) < tried.value * (1.0 - max(stop.gap, TOLD)):
            others = (bound for cause, bound in bounds.items() if cause != MIXED)
            bounds[MIXED] = least_along(fields[0], bounds[MIXED], min(tried.value, *others))
        found = _proposal(problem, tried, bounds)
        if tried.winner is not None and tried.winner.chunks > 1:
            found = replace(found, notes=(_with_chunks(problem, tried, plain), *found.notes))
        theirs_s = sum(answer.planning_s for answer in asked)
        return replace(found, planning_s=found.planning_s - theirs_s, asked=asked)


def _worked_on(
    tried: Tried,
    fields: list[Field],
    bounds: Bounds,
    stop: Stop,
    seed: int,
    progress: Progress | None,
) -> tuple[Bounds, tuple[Proposal, ...]]:
    """Goes on from the best plan by small moves, along chains of domains and by what others answer; the bounds, which
    are made again where replicas got their orders only now, and what others answered."""
    granted = _granted(tried, fields)
    if tried.value * (1.0 - max(stop.gap, CLOSED)) > min(bounds.values()):
        polish_best(tried.problem, tried, granted)
        if granted is fields and _granted(tried, fields) is not fields:
            bounds = _bounds(tried.problem, tried, _granted(tried, fields))
    asked: tuple[Proposal, ...] = ()
    if tried.value * (1.0 - max(stop.gap, TOLD)) > min(bounds.values()):
        _say(progress, "searching chains of domains", 0.95)
        timed = tried.problem.objective.name != "cost"
        if timed:
            search_chains(fields[0], [each for _, each in tried.best.values()])
        before = tried.value
        asked = _ask_others(tried, seed)
        if timed and tried.value < before and tried.winner is not None:
            search_chains(fields[0], [tried.winner], seeded=False)
        polish_best(tried.problem, tried, granted)
    return bounds, asked


def _in_chunks(tried: Tried, fields: list[Field]) -> None:
    """Plays interleaved chunks; small moves from what is better."""
    plain = tried.value
    for field in fields:
        search_interleaved(field)
    if tried.value < plain:
        polish_best(tried.problem, tried, _granted(tried, fields))


def _ask_others(tried: Tried, seed: int) -> tuple[Proposal, ...]:
    """What planners answer that lay pipelines over several domains by rules of their own; their plans are played."""
    found: list[Proposal] = []
    for planner in OTHERS:
        if tried.must_stop:
            break
        answer = planner.propose(tried.problem, Stop(tried.effort.left_s), seed=seed)
        tried.effort.spend(answer.work_s)
        found.append(answer)
        candidate = None if answer.plan is None else Candidate.of(tried.problem, answer.plan)
        if candidate is not None:
            tried.play(candidate)
    return tuple(found)


def _granted(tried: Tried, fields: list[Field]) -> list[Field]:
    """The fields with bounds that hold for the best plan: where replicas have orders of their own, for such, too."""
    winner = tried.winner
    if winner is None or len(winner.pipelines) == 1 or not winner.pipelines[0].order:
        return fields
    return [replace(field, ordered=EVERY) for field in fields]


def polish_best(problem: Problem, tried: Tried, fields: list[Field]) -> None:
    """Small moves from the best plan. Its order is made anew by all rules; one is made for what the moves lead to."""
    winner = tried.winner
    if winner is not None and winner.pipelines[0].order:
        anew = tried.in_order(winner)
        winner = winner if anew is None or tried.play(anew) >= tried.play(winner) else anew
    ordered = winner.operations if winner is not None and winner.pipelines[0].order else 1
    most = min(MOST_MOVES, MOST_ORDERED // ordered)
    polish(tried, most_plays=most)
    if tried.winner is not None and not tried.winner.pipelines[0].order:
        for field in fields:
            play_ordered(field, operations=1)


def _bounds(problem: Problem, tried: Tried, fields: list[Field]) -> Bounds:
    """Least worth of any plan of the space: no less than the least of these, or the best plan's."""
    if len(problem.cluster.domains) > MOST_DOMAINS:
        if problem.objective.name == "cost":
            return {BUSY: _least_rent_usd(fields[0])}
        gpus = sum(domain.gpus for domain in problem.cluster.domains)
        return {BUSY: _least_gpu_s(fields[0]) / gpus}
    bounds = {LIKE: min(map(_least, fields))}
    if problem.objective.name != "cost":
        bounds[UNLIKE] = min(map(_least_of_unlike, fields))
        lower = min(tried.value, *bounds.values())
        mixed = search_mixed(fields[0], lower)
        if mixed < lower:
            bounds[MIXED] = mixed
    elif len(problem.cluster.domains) > 1:
        bounds[BUSY] = _least_rent_usd(fields[0])
    return bounds


def _least_rent_usd(field: Field) -> float:
    """What the GPU-seconds of a step cost at least."""
    return _least_gpu_s(field) * rent_usd_per_s(field.problem.cluster.gpu, 1)


def _least_gpu_s(field: Field) -> float:
    """GPU-seconds of a step at least: every layer in its thriftiest layout, nobody ever waiting."""
    layers = np.full(field.problem.model.num_layers, np.inf)
    for layouts in field.layouts:
        for each in layouts:
            seconds = np.diff(field.tables.times(each.kind, each.tp, each.dp, each.mode)[1])
            layers = np.minimum(layers, seconds * each.gpus / each.wave)
    return float(layers.sum()) * field.problem.workload.global_batch


def _fields(problem: Problem, tried: Tried) -> list[Field]:
    """The problem with replicas that agree every step; with exchanges of experts beside other work where the runtime
    has that, with local SGD where the user allows it, and with weights sharded over domains."""
    field = Field.of(problem, tried)
    found = [field]
    if overlapping(problem, recompute_choices(problem)) and problem.profile is None:
        found.append(replace(field, tables=replace(field.tables, overlapped=True, _cache={}), _cache={}))
    if problem.allow_local_sgd and field.rules.local_sgd:
        found.append(replace(field, sync=Sync.outer(problem.outer_step), _cache={}))
    if shards_weights_across(problem):
        found.append(replace(field, tables=replace(field.tables, gathering=True)))
    return found


def _kinds(field: Field) -> list[tuple[int, list[DomainWay]]]:
    """Ideal ways over the domains of every kind; only those with several groups for local SGD, and for weights sharded
    over groups."""
    least = 1 if field.sync.method == "allreduce" and not field.tables.gathering else 2
    found = []
    for kind, layouts in enumerate(field.layouts):
        ways = field.ideal_ways(kind) if layouts else []
        found.append((kind, [way for way in ways if way.groups >= least]))
    return found


def search_ways(field: Field, *, others: bool = True) -> None:
    """The most promising ways to join once each; then each as long as it keeps finding better plans.

    ``others``: also the next best ways, as long as they find better plans of their own.
    """
    tried, found = field.tried, []
    told = 0 if field.tables.gathering else FIRST_WAYS
    for order, (bound, kind, way) in enumerate(promising(field)):
        if bound >= tried.ceiling or (order >= told and (bound >= tried.value or tried.must_stop)):
            continue
        real = field.real_ways(kind, way)
        guess = first_guess(field, kind, real) if real else None
        if guess is not None:
            if order < told or guess[0] < tried.value:
                play(field, guess[1], guess[2], guess[0])
            found.append((guess, kind, real))
    if found:
        play_ordered(field, operations=1)  # early: what cannot beat it need not be played
    failures = 0
    for _, kind, real in sorted(found, key=lambda each: each[0][0]):
        before = tried.value
        _exhaust(field, kind, real)
        failures = 0 if tried.value < before else failures + 1
        if failures >= WAYS_PATIENCE:
            tried.gave_up = True
            break
    for (_, shape, cuts), kind, real in found[: FIRST_WAYS if others else 0]:
        joined = joining(candidate(field, shape, cuts.tolist(), ()))
        if joined in runners_up(tried):
            _exhaust(field, kind, real, joined)


def promising(field: Field) -> list[tuple[float, int, DomainWay]]:
    """Ideal ways with the kind of their domains, the least rough bound first."""
    rough = [(shapes(field, kind, [way])[0], kind, way) for kind, ways in _kinds(field) for way in ways]
    ordered = [(float(bounds[0]), kind, way) for bounds, kind, way in rough if len(bounds)]
    return sorted(ordered, key=lambda item: item[0])


def runners_up(tried: Tried) -> list[str]:
    """The ways to join that are told as alternatives: the next best ones."""
    ordered = sorted(tried.best, key=tried.best_of)
    return ordered[1 : 1 + BETTER_RUNNERS_UP]


def _exhaust(field: Field, kind: int, ways: list[DomainWay], joined: str | None = None) -> None:
    """Plays shapes of one way to join until none can win (against its own best where ``joined`` is given), or several
    in a row have not."""
    tried, failures = field.tried, 0
    patience = field.patience(ordered=bool(ways) and field.orders(ways[0]))
    for bound, shape, cuts in best_first(field, kind, ways, joined):
        if tried.must_stop:
            return
        before = tried.value if joined is None else tried.best_of(joined)
        failures = 0 if play(field, shape, cuts, bound) < before else failures + 1
        if failures >= patience:
            tried.gave_up |= joined is None
            return


def _least(field: Field) -> float:
    """Least bound of anything that could beat the best plan (inf: nothing can)."""
    least = field.tried.value
    for kind, ways in _kinds(field):
        for way in ways:
            if float(shapes(field, kind, [way])[0].min(initial=np.inf)) < least:
                least = min(least, least_bound(field, kind, field.ways_apart(kind, way)))
    return least


def _proposal(problem: Problem, tried: Tried, bounds: Bounds) -> Proposal:
    winner, effort = tried.winner, tried.effort
    cause = min(bounds, key=bounds.__getitem__)
    bound = min(bounds[cause], tried.value)
    gap = 1.0 - bound / tried.value if tried.value < inf else None
    if winner is None or tried.least >= tried.ceiling:
        spent = {"planning_s": effort.cpu_s, "rejected": dict(tried.rejected), "work_s": effort.spent_s}
        return Proposal("exact", Status.INFEASIBLE, gap=gap, cut_short=effort.cut, **spent)  # type: ignore[arg-type]
    assert gap is not None, "the winner has a value"
    best = judge(problem, winner.plan(problem))
    closed = gap <= CLOSED
    others = sorted((item for item in tried.best.values() if item[1] != winner), key=lambda item: item[0])
    next_best = [each.plan(problem) for _, each in others[:MOST_RUNNERS_UP]]
    return Proposal(
        "exact",
        Status.OPTIMAL if closed else Status.FEASIBLE,
        best,
        gap=None if bound == 0 else 0.0 if closed else gap,
        lower_bound_s=None if problem.objective.name == "cost" or bound == 0 else tried.value if closed else bound,
        planning_s=effort.cpu_s,
        rejected=dict(tried.rejected),
        runners_up=tuple(judge(problem, each) for each in next_best),
        notes=(() if gap <= TOLD else (OPEN.format(cause=cause),))
        + ((GAVE_UP,) if tried.gave_up and gap > SETTLED and not effort.cut else ())
        + (LOCAL_SGD_NOTES if best.plan.sync.method == "local_sgd" else ()),
        work_s=effort.spent_s,
        cut_short="" if closed else effort.cut,
    )


def _with_chunks(problem: Problem, tried: Tried, plain: float) -> str:
    """How much more the best plan without chunks, worth ``plain``, takes."""
    assert tried.winner is not None
    told = f"Each stage holds {tried.winner.chunks} chunks of layers, interleaved"
    if plain == np.inf:
        return f"{told}: nothing without chunks was found."
    unit = "USD" if problem.objective.name == "cost" else "s"
    return f"{told}: the best plan without takes {plain:.4g} {unit}, {100 * (plain / tried.value - 1):.2g} % more."


def _least_of_unlike(field: Field) -> float:
    """Least step time of replicas over domains of different kinds (inf: all that take a stage are of one kind).

    G groups of n domains agree on n sets of layers, each over a ring of its own; a domain does its share of the layers
    no quicker than the best layout would (docs/theory.md, bound 8). Where passes gather weights, nothing is summed.
    """
    batch = field.problem.workload.global_batch
    rows = {kind: field.layout_rows(kind) for kind, layouts in enumerate(field.layouts) if layouts}
    if len(rows) < 2:
        return np.inf
    best = {kind: (row.blocks / (row.wave * row.stages)).min() for kind, row in rows.items()}
    seconds = np.array([best[kind] for kind in field.tables.kinds if kind in best])
    speed = np.cumsum(np.sort(1.0 / seconds)[::-1])
    pace, least = field.routes(None).seconds_per_byte, np.inf
    either, whole = np.minimum(pace, pace.T), field.tables.gradient_bytes * field.tables.blocks_share * field.awaited
    whole *= field.least_summed
    slowest = slowest_borders(either)
    for groups in range(2, len(seconds) + 1):
        at_once = 0.0  # of all gradients, what the rings can carry in a second
        for n in range(1, len(seconds) // groups + 1):
            compute = batch / speed[groups * n - 1]
            if field.tables.gathering:
                least = min(least, max(compute, _least_gathered(field, list(rows.values()), groups, n)))
                continue
            ring = 2 * (groups - 1) / groups * slowest[groups, n] * whole
            at_once += 1.0 / ring if ring > 0 else np.inf
            if 0 < at_once < np.inf:
                least = min(least, 1.0 / (at_once * -np.expm1(-1.0 / (at_once * compute))))
            else:
                least = min(least, compute if at_once else np.inf)
    return least


def _least_gathered(field: Field, rows: list[LayoutRows], groups: int, n: int) -> float:
    """Least step time of so many groups of n domains by the waves of the one that works through the most, whose passes
    gather weights: bound 4 of the quickest layout, and of the most stages, with waves of each size; inf: there is
    none."""
    joined = [
        np.concatenate([getattr(row, name) for row in rows]) for name in ("wave", "trip", "stages", "least", "most")
    ]
    wave, trip, stages, fewest, most = (each[(joined[3] <= groups) & (groups <= joined[4])] for each in joined)
    if not len(wave):
        return np.inf
    sizes, at = np.unique(wave, return_inverse=True)
    quickest, longest = np.full(len(sizes), np.inf), np.zeros(len(sizes), np.int64)
    np.minimum.at(quickest, at, trip)
    np.maximum.at(longest, at, stages)
    passes = 3 * field.gathers_of(groups, groups * n)[0] * field.tables.share[-1]
    waves = -(-field.problem.workload.global_batch // (groups * sizes))
    return float(bubbled(np.maximum(quickest, passes), 1.0 / waves, n * longest).min())


def _say(progress: Progress | None, phase: str, share: float) -> None:
    if progress is not None:
        progress(phase, share)
