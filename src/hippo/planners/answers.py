"""What a planner answers: the best over all degrees of context and expert parallelism.

Degrees hold for all stages of a plan, so each pair is a search of its own: the planner is asked about the problem with
``context_parallel``, ``expert_parallel`` and ``expert_tensor_parallel`` set, and every planner gets the same pairs.
Sequences are split over groups of GPUs in one domain, experts over the ranks of a stage: cut by tp as everything is, or
whole, and then over the ranks of a tensor-parallel group, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import gcd, inf, log2
from time import process_time

from hippo.errors import InfeasibleError
from hippo.plan.plan import Plan
from hippo.planners.base import SLOWER, DegreesTried, Planner, Progress, Proposal, Status, Stop
from hippo.planners.recipe import every_width, powers_of_two
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, judge
from hippo.score.score import objective_value

CLOSED = 1e-5
"""A gap below the precision of the bounds."""
LEAST_TOKENS = 4096
"""Of a sequence that a rank has at least where degrees of context parallelism are tried: with fewer, no published
layout of a long run splits sequences, and answers for short ones need no further search."""

MANY_TOKENS, FEW_EXPERTS = 32_768, 8
"""Tokens that a rank has of a sequence, and degree of expert parallelism, where planners are asked first."""
SHARES = 6
"""Of the time limit that is left, for pairs that are yet to come: most of them end soon."""

Pair = tuple[int, int, int | None]
"""Degrees of context and of expert parallelism, and ranks that an expert is cut over (None: tp)."""


def pairs(problem: Problem) -> tuple[Pair, ...]:
    """Degrees that plans may have; where the runtime or a profile has no other, those of the problem alone."""
    return tuple(
        (cp, ep, etp)
        for cp in context_degrees(problem)
        for etp, degrees in ((None, expert_degrees(problem, cp)), (1, whole_degrees(problem, cp)))
        for ep in degrees
    )


def context_degrees(problem: Problem) -> tuple[int, ...]:
    """Degrees of context parallelism: powers of two that leave each rank ``LEAST_TOKENS`` of a sequence, in one domain.

    Two pieces a rank must divide the sequence (``plan.check``).
    """
    if problem.profile is not None or not problem.rules.context_parallel or problem.model.has_linear_attention:
        return (problem.context_parallel,)
    seq, largest = problem.workload.seq, _largest(problem)
    most = min(largest, seq // LEAST_TOKENS)
    return tuple(cp for cp in powers_of_two(most) if cp == 1 or seq % (2 * cp) == 0) or (1,)


def expert_degrees(problem: Problem, cp: int = 1) -> tuple[int, ...]:
    """Degrees of expert parallelism beside one of context parallelism, experts cut by tp; 1 alone without experts."""
    if not (count := _experts(problem)):
        return (problem.expert_parallel,)
    return tuple(ep for ep in range(1, count + 1) if count % ep == 0 and _has_room(problem, ep, cp))


def whole_degrees(problem: Problem, cp: int = 1) -> tuple[int, ...]:
    """The same of experts that are whole on a rank beside tensor parallelism, which divides the rest; none where the
    runtime cuts experts as it cuts everything. With 1 every rank has all of them, and exchanges nothing for them."""
    if not (count := _experts(problem)) or not problem.rules.whole_experts:
        return ()
    split = replace(problem, context_parallel=cp)
    widths = {tp for domain in problem.cluster.domains for tp in every_width(split, domain)}
    wide = [cp * tp for tp in widths if tp > 1]
    some = (ep for ep in range(1, count + 1) if count % ep == 0)
    return tuple(ep for ep in some if any(_has_room(problem, ep, ranks) for ranks in wide))


def _experts(problem: Problem) -> int:
    """How many experts degrees must divide; 0: there are none, or no such degrees."""
    feeds = (layer.feed_forward for layer in problem.model.distinct_layers)
    able = problem.profile is None and problem.rules.expert_parallel
    return gcd(*(feed.experts.count for feed in feeds if feed is not None and feed.experts is not None)) if able else 0


def _has_room(problem: Problem, ep: int, ranks: int) -> bool:
    """Whether a domain has room for as many lanes of so many ranks as share out experts, and the batch divides."""
    lanes = ep // gcd(ep, ranks)
    return problem.workload.global_batch % lanes == 0 and ranks * lanes <= _largest(problem)


def _largest(problem: Problem) -> int:
    return max(domain.gpus for domain in problem.cluster.domains)


def at_degree(problem: Problem, plan: Plan) -> Problem:
    """The problem with the plan's degrees of context and expert parallelism, with which it is planned anew."""
    return with_degrees(problem, (plan.context_parallel, plan.expert_parallel, plan.expert_tensor_parallel))


def answer_of(
    planner: Planner, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None
) -> Proposal:
    """What the planner proposes; where it finds the problem infeasible by an error, that is its answer.

    Of many pairs of degrees it is asked for one that usually fits, then for all that share a degree with the best so
    far, the nearest first. Who proves something is asked for the others, too, but only for plans that are better still:
    so the bound holds for every pair.
    """
    tried = pairs(problem)
    if tried == (degrees_of(problem),):  # this very problem: what its search leaves is asked for by it
        return _answer(planner, problem, stop, seed, progress)
    found: dict[Pair, Proposal] = {}
    bounds: dict[Pair, float] = {}  # of the pairs of which something is proven

    def ask(pair: Pair, below: float) -> None:
        spent_s = sum(each.work_s for each in found.values())
        left_s = max(0.0, stop.time_limit_s - spent_s) / min(len(tried) - len(found), SHARES)
        share_s = max(left_s, stop.time_limit_s / len(tried))
        share = replace(stop, time_limit_s=share_s, below=min(stop.below, below))
        answer = _answer(planner, with_degrees(problem, pair), share, seed, _told(progress, pair, problem))
        found[pair] = replace(answer, best=None if answer.best is None else _judged(problem, answer.best))
        if answer.gap is not None:
            bounds[pair] = _values(problem, found).get(pair, share.below) * (1.0 - answer.gap)

    likely = problem.workload.seq // MANY_TOKENS, FEW_EXPERTS, None
    for pair in sorted(_in_order(tried), key=lambda pair: _distance(pair, likely)):
        if not _values(problem, found):
            ask(pair, inf)
    while values := _values(problem, found):
        best = _least(values)
        along = [pair for pair in tried if pair not in found and (pair[0] == best[0] or pair[1:] == best[1:])]
        if not along:
            break
        ask(min(_in_order(along), key=lambda pair: _distance(pair, best)), SLOWER * values[best])
    for pair in tried if all(pair in bounds for pair in values) else ():
        if pair not in found:
            ask(pair, min(_values(problem, found).values()))
    return _best(problem, found, bounds)


def _least(values: Mapping[Pair, float]) -> Pair:
    return min(_in_order(values), key=lambda pair: values[pair])


def _distance(pair: Pair, other: Pair) -> float:
    """Doublings between two pairs; experts cut or whole are one apart."""
    apart = sum(abs(log2(max(one, 1) / max(two, 1))) for one, two in zip(pair[:2], other[:2], strict=True))
    return apart + (pair[2] != other[2])


def _judged(problem: Problem, best: Plan | Judged) -> Judged:
    return (best if isinstance(best, Judged) else judge(problem, best)).under(problem)


def _values(problem: Problem, found: Mapping[Pair, Proposal]) -> dict[Pair, float]:
    """What plans are worth. A reward is against a baseline, which nobody has told yet: what is weighed is compared by
    its time."""
    scores = {pair: each.score for pair, each in found.items() if each.score is not None}
    if problem.objective.name == "weighted":
        return {pair: score.step_time_s for pair, score in scores.items()}
    return {pair: objective_value(problem.objective, score) for pair, score in scores.items()}


def degrees_of(problem: Problem) -> Pair:
    """Those of the plans that are looked for."""
    return problem.context_parallel, problem.expert_parallel, problem.expert_tensor_parallel


def with_degrees(problem: Problem, pair: Pair) -> Problem:
    """The problem for plans of these degrees; the same object where it is that already."""
    if degrees_of(problem) == pair:
        return problem
    cp, ep, etp = pair
    return replace(problem, context_parallel=cp, expert_parallel=ep, expert_tensor_parallel=etp)


def _answer(planner: Planner, problem: Problem, stop: Stop, seed: int, progress: Progress | None) -> Proposal:
    began = process_time()
    try:
        return planner.propose(problem, stop, seed=seed, progress=progress)
    except InfeasibleError as error:
        return Proposal(planner.name, Status.INFEASIBLE, planning_s=process_time() - began, notes=error.reasons)


def _told(progress: Progress | None, pair: Pair, problem: Problem) -> Progress | None:
    if progress is None:
        return progress
    return lambda phase, share: progress(f"{phase}, {named(pair, problem)}", share)


def named(pair: Pair, problem: Problem) -> str:
    """``context parallel 4, expert parallel 8``: of the kinds those that the model has."""
    told = [f"context parallel {pair[0]}"] if len(context_degrees(problem)) > 1 else []
    told += [f"expert parallel {pair[1]}"] if len(expert_degrees(problem)) > 1 else []
    return ", ".join(told + ([f"experts cut over {pair[2]}"] if pair[2] is not None else []))


def _best(problem: Problem, found: Mapping[Pair, Proposal], bounds: Mapping[Pair, float]) -> Proposal:
    """The best of them, with the bound that holds for all pairs: the least."""
    together = Counter[str]()
    for each in found.values():
        together.update(each.rejected)
    spent = {
        "planning_s": sum(each.planning_s for each in found.values()),
        "work_s": sum(each.work_s for each in found.values()),
        "rejected": dict(together),
    }
    values = _values(problem, found)
    if not values:
        return replace(next(iter(found.values())), **spent)  # type: ignore[arg-type]
    pair = _least(values)
    winner, value = found[pair], values[pair]
    bound = min(bounds.values()) if all(each in bounds for each in values) else 0.0
    gap = max(0.0, 1.0 - bound / value) if bound > 0.0 else None
    closed = gap is not None and gap <= CLOSED
    return replace(
        winner,
        status=Status.OPTIMAL if closed else Status.FEASIBLE,
        gap=0.0 if closed else gap,
        lower_bound_s=None if winner.lower_bound_s is None or gap is None else bound,
        runners_up=tuple(each.under(problem) for each in winner.runners_up),
        cheaper=None if winner.cheaper is None else winner.cheaper.under(problem),
        cut_short=next((each.cut_short for each in found.values() if each.cut_short), ""),
        degrees=_degrees(problem, pair, found),
        asked=(),  # they were asked about some of the pairs alone
        **spent,  # type: ignore[arg-type]
    )


def _degrees(problem: Problem, pair: Pair, found: Mapping[Pair, Proposal]) -> tuple[DegreesTried, ...]:
    """Of each kind the degrees that were asked for beside the best of the other kind."""
    values, told = _values(problem, found), []
    best = found[pair].plan
    assert best is not None, "it has a value"
    width = best.pipelines[0].stages[0].tp  # what experts that are cut as everything are cut over
    for at, kind in enumerate(("context", "expert", "expert tensor")):
        along = [each for each in _in_order(found) if each[:at] + each[at + 1 :] == pair[:at] + pair[at + 1 :]]
        worse = [(each, values[each] / values[pair] - 1.0 if each in values else None) for each in along]
        slower = tuple((each[at] or width, share) for each, share in worse if each != pair)
        told += [DegreesTried(kind, pair[at] or width, slower)] if slower and (at < 2 or width > 1) else []
    return tuple(told)


def _in_order(pairs: Iterable[Pair]) -> list[Pair]:
    return sorted(pairs, key=lambda pair: (*pair[:2], pair[2] or 0))
