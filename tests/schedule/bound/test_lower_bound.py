"""Bounds on the makespan: by hand, against the published figures, and never above what looking at everything finds."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from tests.schedule.judges import random_problem, shortest, with_reduction

from hippo.errors import InfeasibleError
from hippo.schedule.bound.heads import heads_and_tails
from hippo.schedule.bound.lower_bound import bounds, lower_bound
from hippo.schedule.bound.precedence import rules
from hippo.schedule.problem import PLACEMENTS, MicroBatchMemory, RankLink, ScheduleProblem

REAL = (1.0, 1.05, 0.75)


def published(problem: dict[str, object]) -> ScheduleProblem:
    """A problem of schedules_open.json."""
    p = int(problem["p"])
    times = [tuple(each) if isinstance(each, list) else (float(each),) * p for each in map(problem.get, "fbw")]
    links = tuple(RankLink(delay) for delay in problem["comm"])
    limit = inf if problem["K"] is None else float(problem["K"])
    return ScheduleProblem(problem["m"], *times, links, links, (limit,) * p)


def test_each_bound_by_hand() -> None:
    # p 2, m 3, F B W = 1 2 1, delay 3, two live: down 1 + 3, F 1, B 2, up 3, B 2, W 1.
    found = bounds(ScheduleProblem.uniform(2, 3, (1, 2, 1), comm=3, live_limit=2))
    assert found["chain"] == 1 + 3 + 1 + 2 + 3 + 2 + 1
    assert found["work"] == 4 + 3 * 4  # rank 1, from the arrival of the first F
    assert found["drain"] == 4 + 3 * (1 + 2) + 3 + 2 + 1  # rank 1, then the last B travels home
    assert found["window"] == 13 + 13  # rank 0: F 2 waits for W 0, a whole way later
    assert found["jackson"] == lower_bound(ScheduleProblem.uniform(2, 3, (1, 2, 1), comm=3, live_limit=2)) == 26


@pytest.mark.parametrize(
    ("p", "m", "times", "comm", "live", "optimum"),
    [
        (2, 4, (1, 1, 1), 0, 2, 13),
        (3, 5, REAL, 1, 3, 24.6),
        (3, 5, REAL, 1, None, 19.1),
        (3, 6, (1, 1, 1), [0.05, 2], 3, 28.2),
        (3, 6, (1, 1, 1), [0.05, 2], None, 22.05),
        (8, 16, REAL, 5, 8, 193.9),  # the hand check of the memory window: L 87.15, window 181.3
    ],
)
def test_small_optima(p: int, m: int, times: tuple[float, ...], comm: float, live: int | None, optimum: float) -> None:
    problem = ScheduleProblem.uniform(p, m, times, comm=comm, live_limit=live)
    assert lower_bound(problem) == pytest.approx(optimum, abs=1e-9)
    if comm == 5:
        assert bounds(problem)["window"] == pytest.approx(181.3)


def test_the_open_problems(data: Path) -> None:
    """At least the published bound, and never above the best schedule known."""
    problems = json.loads((data / "schedules_open.json").read_text())["problems"]
    assert len(problems) == 60
    for each in problems:
        found = lower_bound(published(each))
        assert each["jps_bound"] - 0.002 <= found <= each["best_of_all"] + 0.002, each["id"]


def test_each_bound_by_hand_with_reductions() -> None:
    """As above; rank 0 agrees its gradients in 5, rank 1 in 7."""
    problem = replace(ScheduleProblem.uniform(2, 3, (1, 2, 1), comm=3, live_limit=2), reduction=(5.0, 7.0))
    found = bounds(problem)
    assert found["chain"] == 13 + 5
    assert found["work"] == 16 + 7
    assert found["drain"] == 19 + 5
    assert found["window"] == 26 + 5
    assert found["jackson"] == lower_bound(problem) == 26 + 5
    late = replace(problem, reduction=(0.0, 20.0))
    assert lower_bound(late) == 13 + 1 + 3 + 1 + 2 + 1 + 20  # F2 after W0 of rank 0, there F2 B2 W2, then agreed


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 30), marks=pytest.mark.slow)], ids=["few", "more"])
@pytest.mark.parametrize("reduces", [False, True])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_never_above_what_looking_at_everything_finds(placement: str, reduces: bool, seeds: range) -> None:
    met = 0
    for seed in seeds:
        problem = random_problem(seed, placement)
        problem = with_reduction(problem, seed) if reduces else problem
        best, found = shortest(problem), bounds(problem)
        assert best < inf
        for name, value in found.items():
            assert value <= best * (1 + 1e-9), (seed, name)
        met += lower_bound(problem) > best * (1 - 1e-9)
    assert met >= len(seeds) // 2  # most are met: a bound of 0 would be valid too


@pytest.mark.parametrize(
    ("memory", "limit", "gap"), [(MicroBatchMemory(2, 0), 5.0, 2), (MicroBatchMemory(2, 1.5), 5.0, 2)]
)
def test_places_that_memory_leaves(memory: MicroBatchMemory, limit: float, gap: int) -> None:
    """Two whole micro-batches fit into 5: F 2 comes after W 0 when all is given back there, else after B 0 only."""
    problem = replace(
        ScheduleProblem.uniform(1, 4, (1, 1, 1)), memory=(memory,), limit=(limit,), forward=(1.0,), weight=(9.0,)
    )
    head, _ = heads_and_tails(rules(problem))
    after = 1 + 1 + (9 if memory.at_backward == 0 else 0)
    assert head[0, gap] >= after
    assert head[0, gap] == pytest.approx(1 + after)  # F 1 too is before it, on the same rank


def test_heads_and_tails_by_hand() -> None:
    """p 2, m 2, all times 1, delay 2, one live: the second micro-batch starts when the first is over on that rank."""
    problem = ScheduleProblem.uniform(2, 2, comm=2, live_limit=1)
    head, tail = heads_and_tails(rules(problem))
    assert head[:6].tolist() == [[0, 9], [3, 12], [7, 16], [4, 13], [8, 17], [5, 14]]
    assert tail[:6].tolist() == [[17, 8], [14, 5], [10, 1], [13, 4], [9, 0], [6, 0]]  # W of rank 1, then F B, 2, B W


def test_operations_are_not_interrupted(data: Path) -> None:
    """O035 of the open problems: no schedule takes less than 109 (CP-SAT); Jackson's bound interrupts, and says 108."""
    problems = json.loads((data / "schedules_open.json").read_text())["problems"]
    found = bounds(published(next(each for each in problems if each["id"] == "O035")))
    assert found["jackson"] == pytest.approx(108)
    assert 109 <= found["windows"] <= 109.8


def test_quick_leaves_out_the_slow_one() -> None:
    problem = ScheduleProblem.uniform(4, 16, REAL, comm=[0.05, 1, 0.05], live_limit=4)
    assert set(bounds(problem)) - set(bounds(problem, quick=True)) == {"windows"}
    assert lower_bound(problem, quick=True) < lower_bound(problem)


def test_more_never_takes_less() -> None:
    small = ScheduleProblem.uniform(4, 8, REAL, comm=[0.05, 1, 0.05], live_limit=4)
    for larger in (
        replace(small, micro_batches=9),
        replace(small, limit=(3.0,) * 4),
        replace(small, weight=(0.8,) * 4),
        replace(small, down=(RankLink(0.05), RankLink(1.5), RankLink(0.05))),
        replace(small, up=(RankLink(0.05), RankLink(1, 1.5), RankLink(0.05))),
    ):
        assert lower_bound(larger) >= lower_bound(small)
    assert (
        lower_bound(replace(small, up=(RankLink(0, 30.0),) * 3)) >= 8 * 30
    )  # messages one after the other on the link


@pytest.mark.parametrize(("placement", "need"), [("plain", "1"), ("looped", "1"), ("v", "1"), ("bidirectional", "1")])
def test_too_little_memory_names_what_would_do(placement: str, need: str) -> None:
    problem = replace(ScheduleProblem.uniform(2, 4).placed(placement), limit=(2.0, 0.9))
    with pytest.raises(InfeasibleError, match=f"needs {need} on rank 1, the limit is 0.9.*--memory {need}"):
        lower_bound(problem)
    assert lower_bound(replace(problem, limit=(1.0, 1.0))) > 0
