"""One play with its times: the makespans of the kernels, and pauses by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schedule.drawn import schedule_problems

from hippo.dispatch.network import shipped
from hippo.dispatch.noise.fluctuation import Fluctuation, drawn, play
from hippo.dispatch.noise.learned_play import play_learned
from hippo.dispatch.noise.timed_play import Pause, order_run, pauses, timed_hint, timed_learned
from hippo.errors import InfeasibleError
from hippo.schedule.check import violations
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.text import parse_schedule

NOISE = Fluctuation(0.3, rank_level=0.2, abnormal_share=0.1)


@given(schedule_problems(), st.sampled_from([0.0, 0.5]))
def test_a_timed_play_is_the_play_of_the_kernels(problem: ScheduleProblem, patience: float) -> None:
    try:
        schedule = generate("zb-auto", problem)
    except InfeasibleError:
        return
    factors = next(drawn(problem, NOISE, samples=3, rng=np.random.default_rng(2)))
    hints = [timed_hint(problem, schedule, factors, index, patience=patience) for index in range(3)]
    kernels = play(problem, schedule, factors, by_hint=True, patience=patience)
    assert [each.makespan for each in hints] == pytest.approx(kernels)
    learned = [timed_learned(problem, shipped(), factors, index) for index in range(3)]
    assert [each.makespan for each in learned] == pytest.approx(play_learned(problem, shipped(), factors))
    for index, each in enumerate((*hints, *learned)):
        kept = order_run(each, "run")
        assert not violations(problem, kept)  # in that order nothing starts later than it did
        assert play(problem, kept, factors)[index % 3] <= each.makespan * (1 + 1e-6)
        assert (each.start >= each.arrived * (1 - 1e-8)).all()  # nothing runs before its input is there


@given(schedule_problems())
def test_work_and_pauses_fill_the_time_of_a_rank(problem: ScheduleProblem) -> None:
    factors = next(drawn(problem, NOISE, samples=1, rng=np.random.default_rng(2)))
    try:
        each = timed_learned(problem, shipped(), factors, 0)
    except InfeasibleError:
        return
    idle = np.zeros(problem.ranks)
    for pause in pauses(problem, each):
        idle[pause.rank] += pause.end - pause.begin
    busy = (each.end - each.start).sum(axis=(0, 2))
    np.testing.assert_allclose(idle + busy, each.end.max(axis=(0, 2)), rtol=1e-6)


def test_plain_hints_never_wait_by_choice() -> None:
    problem = ScheduleProblem.uniform(4, 8, (1.0, 1.05, 0.75), comm=[0.05, 5.0, 0.05], live_limit=4)
    factors = next(drawn(problem, NOISE, samples=1, rng=np.random.default_rng(2)))
    found = list(pauses(problem, timed_hint(problem, generate("cross-domain", problem), factors, 0)))
    assert found
    assert not any(each.by_choice for each in found)


@pytest.mark.parametrize(
    ("patience", "start", "chosen"),
    [
        # F1 comes to rank 1 at 3.5; at 3 it runs B0. Rank 0 gets B0 at 5 and runs W0 until B1 comes at 7.
        (0.0, [[[0, 1], [2, 4]], [[5, 7], [3, 5]], [[6, 8], [6, 7]]], []),
        # At 3 it waits half a unit for F1, which the order wants first.
        (1.0, [[[0, 1], [2, 3.5]], [[6.5, 7.5], [4.5, 5.5]], [[8.5, 9.5], [6.5, 7.5]]], [Pause(1, 3.0, 3.5, True)]),
    ],
)
def test_pauses_by_hand(patience: float, start: list[list[list[float]]], chosen: list[Pause]) -> None:
    """Two ranks, F = B = W = 1, delay 1, and 1.5 for F1; both ranks are to run F0 F1 B0 B1 W0 W1."""
    problem = ScheduleProblem.uniform(2, 2, comm=1.0)
    factors = next(drawn(problem, Fluctuation(0.0), samples=1, rng=np.random.default_rng(0)))
    factors = factors._replace(messages=np.array([[1, 1.5, 1, 1, 1, 1, 1, 1]], np.float32))
    text = "mine stages=2 micro_batches=2\nF0 F1 B0 B1 W0 W1\nF0 F1 B0 B1 W0 W1\n"
    found = timed_hint(problem, parse_schedule(text, source="mine"), factors, 0, patience=patience)
    assert found.start.tolist() == start
    starved = [Pause(0, 2.0, start[1][0][0], False), Pause(1, 0.0, 2.0, False)]
    assert list(pauses(problem, found)) == [*starved, *chosen]
