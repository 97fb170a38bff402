"""The best schedule: worlds by hand, never worse than any named method, always legal and within memory."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schedule.drawn import schedule_problems

from hippo.errors import InfeasibleError, InputError
from hippo.schedule import best as best_module
from hippo.schedule.best import SLACK, best
from hippo.schedule.bound.lower_bound import lower_bound
from hippo.schedule.by_hint import dispatch
from hippo.schedule.check import violations
from hippo.schedule.methods import METHODS, generate
from hippo.schedule.problem import PLACEMENTS, MicroBatchMemory, RankLink, ScheduleProblem
from hippo.schedule.replay import makespan
from hippo.schedule.search import policy as search_policy
from hippo.schedule.search.clock import Clock

SPLIT = (1.0, 1.05, 0.75)

HARD = ScheduleProblem.uniform(4, 16, (1.0, 0.991, 0.671), comm=(0.05, 1.0, 0.05), live_limit=4)
"""Optimum 53.317 (CP-SAT), 2.4 % above its bound, so that no search stops early."""


@pytest.mark.parametrize(
    ("ranks", "micro_batches", "times", "comm", "limit", "optimum"),
    [
        (2, 4, (1.0, 1.0, 1.0), 0.0, 2, 13.0),
        (3, 5, SPLIT, 1.0, 3, 24.6),
        (3, 5, SPLIT, 1.0, None, 19.1),
        (3, 6, (1.0, 1.0, 1.0), (0.05, 2.0), 3, 28.2),
        (3, 6, (1.0, 1.0, 1.0), (0.05, 2.0), None, 22.05),
    ],
)
def test_optimum_of_small_worlds(
    ranks: int,
    micro_batches: int,
    times: tuple[float, float, float],
    comm: float | tuple[float, ...],
    limit: int | None,
    optimum: float,
) -> None:
    """The optima that CP-SAT proved, from the header of the published problems."""
    problem = ScheduleProblem.uniform(ranks, micro_batches, times, comm=comm, live_limit=limit)
    assert best(problem).makespan == pytest.approx(optimum)


def test_one_rank_has_no_bubble() -> None:
    problem = ScheduleProblem.uniform(1, 3, (1.0, 2.0, 0.5), live_limit=1)
    found = best(problem)
    assert found.makespan == pytest.approx(3 * 3.5) == found.lower_bound


def test_proved_optima_of_the_published_problems(data: Path) -> None:
    """Small ones, within the tolerance that is asked for."""
    for row in json.loads((data / "schedules_open.json").read_text())["problems"]:
        if row["cpsat_optimum"] is None or row["p"] * row["m"] > 64:
            continue
        times = (float(row[key]) for key in "fbw")
        problem = ScheduleProblem.uniform(row["p"], row["m"], tuple(times), comm=row["comm"], live_limit=row["K"])  # type: ignore[arg-type]
        found = best(problem)
        assert row["cpsat_optimum"] * (1 - 1e-9) <= found.makespan <= 1.01 * row["cpsat_optimum"], row["id"]
        assert found.lower_bound <= row["cpsat_optimum"] * (1 + 1e-9), row["id"]


def test_room_for_one_micro_batch_where_all_named_methods_need_more() -> None:
    """One micro-batch live per rank and three ranks: only what knows the limit fits; a limit below one is refused."""
    problem = ScheduleProblem.uniform(3, 4, (1.0, 1.0, 1.0), comm=0.5, live_limit=1)
    found = best(problem, time_limit_s=0.2)
    refused = {name for name, result in found.tried if isinstance(result, str)}
    assert {"gpipe", "1f1b", "zb-h1", "zb-h2"} <= refused
    assert not violations(problem, found.schedule)
    with pytest.raises(InfeasibleError, match="1"):
        best(replace(problem, limit=(0.5, 0.5, 0.5)))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_says_who_won_and_what_was_tried(placement: str) -> None:
    problem = ScheduleProblem.uniform(4, 8, SPLIT, comm=0.1).placed(placement)
    found = best(problem, time_limit_s=0.2)
    named = {name for name, method in METHODS.items() if method.placement == placement}
    assert named <= {name for name, _ in found.tried}
    assert found.method == found.schedule.name
    assert found.method in found.why
    spans = [span for _, span in found.tried if isinstance(span, float)]
    assert found.makespan == pytest.approx(min(spans)) == makespan(problem, found.schedule)
    assert found.lower_bound <= found.makespan * (1 + 1e-9)


def test_reason_names_the_bound_it_meets() -> None:
    found = best(ScheduleProblem.uniform(4, 16, (1.0, 1.0, 1.0)))
    assert found.makespan == found.lower_bound == 4 * 0.75 + 48
    assert "nothing is shorter" in found.why


def test_slow_links_that_transfer_and_memory_freed_at_backward() -> None:
    """Links that differ by direction and occupy their port; memory given back in part at B; limits not whole."""
    down, up = (RankLink(1.0, 0.4), RankLink(0.0, 0.9)), (RankLink(0.2, 0.0), RankLink(3.0, 0.1))
    memory = (MicroBatchMemory(1.0, 0.6), MicroBatchMemory(2.0, 0.0), MicroBatchMemory(1.0, 1.0))
    problem = ScheduleProblem(7, (1.0, 0.5, 1.0), (1.0, 1.2, 1.0), (0.5, 0.7, 1.0), down, up, (2.5, 5.1, 1.0), memory)
    found = best(problem, time_limit_s=0.3)
    assert not violations(problem, found.schedule)
    assert found.makespan >= lower_bound(problem) * (1 - 1e-9)


def test_equal_seeds_give_equal_answers_on_a_busy_machine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries end the search: the clock stands still the first time, and is past its limit all the second time."""
    monkeypatch.setattr(search_policy, "OPERATIONS_PER_S", 3000)
    monkeypatch.setattr(best_module, "ROUNDS_PER_S", 100)
    monkeypatch.setattr(best_module, "SMALL", 0)
    monkeypatch.setattr(Clock, "spent_s", 0.0)
    first = best(HARD, time_limit_s=20.0, seed=7)
    monkeypatch.setattr(Clock, "spent_s", property(lambda clock: 1.1 * clock.limit_s))
    again = best(HARD, time_limit_s=20.0, seed=7)
    assert first.makespan > first.lower_bound
    assert (first.schedule.order == again.schedule.order).all()
    assert first.tried == again.tried
    assert first.why == again.why
    assert not again.cut_short


def test_a_clock_that_ends_the_search_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_module, "SMALL", 0)
    monkeypatch.setattr(Clock, "spent_s", property(lambda clock: 2 * SLACK * clock.limit_s))
    found = best(HARD, time_limit_s=20.0)
    assert found.cut_short
    assert found.why.endswith("The clock ended the search early: asked again, it may find less.")


def test_time_limit_must_be_positive() -> None:
    with pytest.raises(InputError, match="above 0"):
        best(ScheduleProblem.uniform(2, 2), time_limit_s=0.0)


def test_watcher_sees_the_share_of_the_time() -> None:
    seen: list[tuple[str, float]] = []
    best(HARD, time_limit_s=0.2, watch=lambda what, share: seen.append((what, share)))
    assert {"policies", "improvement"} <= {what for what, _ in seen}
    assert all(0 <= share <= 1 for _, share in seen)


@given(schedule_problems(most_ranks=5, most_micro_batches=8), st.sampled_from(PLACEMENTS))
def test_never_worse_than_any_named_method_and_always_legal(drawn: ScheduleProblem, placement: str) -> None:
    problem = drawn.placed(placement)
    try:
        found = best(problem, time_limit_s=0.05)
    except InfeasibleError:
        assert any(each < inf for each in problem.limit)
        assert placement != "plain"
        return
    assert not violations(problem, found.schedule)
    assert found.makespan >= lower_bound(problem) * (1 - 1e-9)
    for name, method in METHODS.items():
        if method.placement == placement:
            try:
                named = generate(name, problem)
            except (InfeasibleError, InputError):
                continue
            assert found.makespan <= makespan(problem, named) * (1 + 1e-12), name


def test_a_small_problem_with_a_gap_reaches_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def solver(problem: ScheduleProblem, *, time_limit_s: float, hint: object) -> None:
        asked.append(time_limit_s)
        raise InputError("not installed")

    monkeypatch.setattr(Clock, "spent_s", 0.5)  # of 1.7 s, whatever the machine does
    monkeypatch.setattr(sys.modules["hippo.schedule.best"], "optimal", solver)
    found = best(HARD)
    assert asked
    assert asked[0] > 0
    assert found.tried[-1][0] == "optimal"


@pytest.mark.parametrize("placement", ["looped", "bidirectional", "v"])
@pytest.mark.parametrize("limit", [2, 4])
def test_never_worse_than_a_method_as_a_hint(placement: str, limit: int) -> None:
    """Under limits that no named method keeps to by itself."""
    problem = ScheduleProblem.uniform(4, 8, comm=0.5, live_limit=limit).placed(placement)
    found = best(problem, time_limit_s=0.2)
    for name, method in METHODS.items():
        if method.placement == placement:
            hint = generate(name, replace(problem, limit=(inf,) * 4))
            try:
                assert found.makespan <= makespan(problem, dispatch(problem, hint)) * (1 + 1e-9)
            except InfeasibleError:
                continue
