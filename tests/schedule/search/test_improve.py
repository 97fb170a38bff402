"""Searches around a schedule: what they start from, what they keep, and that their kernels agree with replay."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schedule.drawn import schedule_problems

from hippo.engine.events import NOTHING, Rule, board, play
from hippo.errors import InfeasibleError
from hippo.schedule.bound.lower_bound import must_fit
from hippo.schedule.check import violations
from hippo.schedule.methods import checked, generate
from hippo.schedule.optimal import one_by_one
from hippo.schedule.problem import PLACEMENTS, ScheduleProblem
from hippo.schedule.replay import makespan, replay
from hippo.schedule.search.clock import Clock
from hippo.schedule.search.graph import HEAD, TAIL, TIME, graph, refresh, rows_of
from hippo.schedule.search.hint import Shifts, due_times, turned
from hippo.schedule.search.improve import improve
from hippo.schedule.search.policy import first_policy, pipe, play_policy
from hippo.schedule.search.policy import rows_of as policy_rows
from hippo.schedule.search.tabu import Tabu

NEVER = Clock(inf)


def test_one_f_one_b_becomes_the_optimum_by_hand() -> None:
    """p 2, m 4, K 2, all times 1: 1F1B takes 15, the optimum is 13 (header of the published problems)."""
    problem = ScheduleProblem.uniform(2, 4, (1.0, 1.0, 1.0), live_limit=2)
    start = generate("1f1b", problem)
    assert makespan(problem, start) == 15
    found = improve(problem, [start], clock=NEVER, goal=13.0, rounds=50)
    assert makespan(problem, found) == 13
    assert not violations(problem, found)


def test_the_two_searches_alone() -> None:
    """From one micro-batch after the other, both shorten a pipeline of three ranks by a third at least."""
    problem = ScheduleProblem.uniform(3, 6, (1.0, 1.0, 1.0), comm=(0.05, 2.0), live_limit=3)
    start = checked("one by one", problem, one_by_one(problem))
    for search in (Tabu(problem, start, [0]), Shifts(problem, start, [0])):
        before = search.span
        search.go(3000, 0.0)
        assert search.span < 0.67 * before
        found = checked("found", problem, search.rows)
        assert makespan(problem, found) == pytest.approx(search.span)


def test_shortest_of_several_starts() -> None:
    problem = ScheduleProblem.uniform(4, 8, (1.0, 1.05, 0.75), comm=0.1)
    starts = [generate(name, problem) for name in ("gpipe", "1f1b", "zb-h2")]
    found = improve(problem, starts, clock=NEVER, rounds=4)
    assert makespan(problem, found) <= min(makespan(problem, each) for each in starts)


def test_equal_seeds_give_equal_answers() -> None:
    problem = ScheduleProblem.uniform(4, 12, (1.0, 1.05, 0.75), comm=(0.05, 1.0, 0.05), live_limit=4)
    start = generate("1f1b", problem)
    first, again = (improve(problem, [start], clock=NEVER, seed=3, rounds=2) for _ in range(2))
    assert (first.order == again.order).all()


@given(schedule_problems(most_ranks=5, most_micro_batches=6), st.sampled_from(PLACEMENTS))
def test_never_longer_and_always_legal(drawn: ScheduleProblem, placement: str) -> None:
    problem = drawn.placed(placement)
    try:
        must_fit(problem)
    except InfeasibleError:
        return
    start = checked("one by one", problem, one_by_one(problem))
    tabu = Tabu(problem, start, [1])
    tabu.go(200, 0.0)
    found = checked("tabu", problem, tabu.rows)
    assert makespan(problem, found) == pytest.approx(tabu.span)
    assert tabu.span <= makespan(problem, start)


@given(schedule_problems(most_ranks=5, most_micro_batches=6), st.sampled_from(PLACEMENTS))
def test_heads_and_tails_agree_with_replay(drawn: ScheduleProblem, placement: str) -> None:
    """The longest way through each operation is at most the makespan, through some it is; heads are the starts."""
    problem = drawn.placed(placement)
    try:
        must_fit(problem)
    except InfeasibleError:
        return
    start = checked("one by one", problem, one_by_one(problem))
    made, ends = graph(problem, start), np.zeros(problem.ranks)
    refresh(made.facts, made.times, made.order, np.empty(problem.ranks**2 + 1), ends)
    played = replay(problem, start)
    assert made.times[:, HEAD] == pytest.approx(played.start)
    through = made.times[:, HEAD] + made.times[:, TIME] + made.times[:, TAIL]
    assert through.max() == pytest.approx(played.makespan) == ends.max()
    rows, starts = rows_of(problem, made.facts, made.order)
    assert (rows == start.order).all()
    assert (starts == start.order_start).all()


@given(schedule_problems(most_ranks=5, most_micro_batches=6), st.booleans(), st.integers(0, 3))
def test_policies_are_legal_and_as_long_as_they_say(problem: ScheduleProblem, mirrored: bool, which: int) -> None:
    """Every policy plays to its end within memory; mirrored ones too. Replay is never longer than the play."""
    made = pipe(problem, mirrored=mirrored)
    kinds = np.zeros((problem.ranks, 3 * problem.micro_batches), np.int8)
    span = play_policy(made, board(made), first_policy(made, which), kinds, 1e300)
    found = checked("policy", problem, policy_rows(made, kinds))
    assert makespan(problem, found) <= span * (1 + 1e-9)


@given(schedule_problems(most_ranks=5, most_micro_batches=6), st.integers(0, 3))
def test_due_times_give_the_schedule_again(problem: ScheduleProblem, which: int) -> None:
    """Nothing shifted: as short as the incumbent; backwards in time too, unless B gives memory back."""
    forwards, mirror = pipe(problem, mirrored=False), pipe(problem, mirrored=True)
    place = board(forwards)
    kinds = np.zeros((problem.ranks, 3 * problem.micro_batches), np.int8)
    play_policy(forwards, place, first_policy(forwards, which), kinds, 1e300)
    start = checked("policy", problem, policy_rows(forwards, kinds))
    due = due_times(problem, start)
    back, span = np.empty_like(due), makespan(problem, start)
    assert play(forwards, place, Rule(None, due, None, 0.0), NOTHING, 1e300) <= span * (1 + 1e-9)
    turned(forwards, due, span, back)
    if any(each.at_backward for each in problem.memory):
        return
    assert play(mirror, place, Rule(None, back, None, 0.0), NOTHING, 1e300) <= span * (1 + 1e-9)
