"""DualPipe by hand, against the formula of its authors, and on drawn problems."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from tests.schedule.drawn import schedule_problems

from hippo.errors import InfeasibleError
from hippo.schedule.check import violations
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import live, replay
from hippo.schedule.text import schedule_text


def test_the_order_of_four_ranks() -> None:
    """Two micro-batches per step of the steady phase, one each way; read against the eight steps of the authors."""
    problem = ScheduleProblem.uniform(4, 8).placed("bidirectional")
    schedule = generate("dualpipe", problem)
    assert schedule_text(schedule) == (
        "dualpipe stages=4 micro_batches=8 chunks=2\n"
        "F0a F1a F2a F4b B4b W4b F5b F3a B5b W5b F6b B0a W0a B6b W6b F7b B1a W1a B7b W7b B2a W2a B3a W3a\n"
        "F0a F4b F1a F5b F2a B4b W4b F6b B0a W0a F3a B5b W5b F7b B1a W1a B6b W6b B2a W2a B7b B3a W7b W3a\n"
        "F4b F0a F5b F1a F6b B0a W0a F2a B4b W4b F7b B1a W1a F3a B5b W5b B2a W2a B6b W6b B3a B7b W3a W7b\n"
        "F4b F5b F6b F0a B0a W0a F1a F7b B1a W1a F2a B4b W4b B2a W2a F3a B5b W5b B3a W3a B6b W6b B7b W7b\n"
    )
    assert replay(problem, schedule).makespan == 25


def test_two_ranks_are_always_busy() -> None:
    """Each has a micro-batch of its own to begin with: 4 * 3 and not a slot more."""
    problem = ScheduleProblem.uniform(2, 4).placed("bidirectional")
    assert replay(problem, generate("dualpipe", problem)).makespan == 12


@pytest.mark.parametrize("p", [4, 8, 16])
@pytest.mark.parametrize(("f", "b", "w"), [(1.0, 1.0, 1.0), (1.0, 1.05, 0.75), (1.0, 2.0, 1.0), (2.0, 1.0, 1.0)])
def test_bubble_and_memory_of_the_authors(p: int, f: float, b: float, w: float) -> None:
    """At most (p/2 - 1)(F&B + B' - 3 W), with p + 1 micro-batches; F&B = F + B', B' = B + W as nothing overlaps."""
    problem = ScheduleProblem.uniform(p, 3 * p, (f, b, w)).placed("bidirectional")
    schedule = generate("dualpipe", problem)
    bubble = replay(problem, schedule).makespan - 3 * p * (f + b + w)
    assert (p / 2 - 1) * f - 1e-9 <= bubble <= (p / 2 - 1) * (f + 2 * (b + w) - 3 * w) + 1e-9
    assert live(problem, schedule).tolist() == [p + 1] * p
    if f == b == w:
        assert bubble == pytest.approx((p / 2 - 1) * f)


def test_an_odd_pipeline_is_the_even_one_without_a_rank_in_the_middle() -> None:
    problem = ScheduleProblem.uniform(3, 8).placed("bidirectional")
    odd = generate("dualpipe", problem)
    even = generate("dualpipe", ScheduleProblem.uniform(4, 8).placed("bidirectional"))
    assert [odd.rank(rank).tolist() for rank in range(3)] == [even.rank(rank).tolist() for rank in (0, 1, 3)]


def test_few_micro_batches() -> None:
    """One goes down the ranks alone: 3 F, 3 B, and the last W."""
    problem = ScheduleProblem.uniform(3, 1).placed("bidirectional")
    assert replay(problem, generate("dualpipe", problem)).makespan == 7


def test_the_smallest_limit_is_named() -> None:
    problem = ScheduleProblem.uniform(4, 8, live_limit=4).placed("bidirectional")
    with pytest.raises(InfeasibleError, match=r"dualpipe keeps 5 on rank 0, the limit is 4.*--memory 5,"):
        generate("dualpipe", problem)
    assert generate("dualpipe", replace(problem, limit=(5.0,) * 4))


@given(problem=schedule_problems(limited=False, most_ranks=9, most_micro_batches=24))
def test_sound_for_any_problem(problem: ScheduleProblem) -> None:
    problem = problem.placed("bidirectional")
    schedule = generate("dualpipe", problem)
    assert not violations(problem, schedule)
    assert live(problem, schedule).max() <= problem.ranks + 1 + problem.ranks % 2
