"""The example of three tasks on three agents: its figures by hand, and the learned scheduler at the optimum."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
from tests.scripts import script

from hippo.errors import InfeasibleError, InputError


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return script("examples/tasks_on_agents.py")


@pytest.fixture(scope="module")
def durations(example: ModuleType) -> np.ndarray:
    found: np.ndarray = example.Figures().durations(example.TASKS, example.AGENTS)
    return found


def test_durations_are_flops_over_speed_and_data_over_bandwidth(durations: np.ndarray) -> None:
    """500 / 100 + 10 / 1.25 = 13 s on one GPU, and so on; 20 GB do not fit into 16 GB."""
    assert durations.tolist() == [[13.0, 10.5, 9.25], [6.0, 5.0, 4.5], [np.inf, 20.0, 18.0]]


def test_the_optimum_gives_every_task_an_agent_of_its_own(example: ModuleType, durations: np.ndarray) -> None:
    """Task 3 takes 18 s where it is quickest, so nothing ends sooner; 6 + 10.5 + 18 = 34.5 s."""
    for goal in example.GOALS:
        best = example.optimum(durations, goal)
        assert (best.makespan, best.mean, best.ends) == (18.0, 11.5, (10.5, 6.0, 18.0))


def test_all_assignments_in_all_orders_are_looked_at(example: ModuleType, durations: np.ndarray) -> None:
    assert len(set(example.every_order(durations))) == 3 * 3 * 2 * 6  # agents of task 1, of task 2, of task 3; orders


@pytest.mark.parametrize(
    ("name", "makespan", "mean"),
    [
        ("fifo, fastest free agent", 25.0, 39.25 / 3),  # 1 on 3: 9.25, 2 on 2: 5, 3 after it: 25
        ("fifo, earliest finish", 25.0, 39.25 / 3),
        ("shortest first", 22.5, 37.5 / 3),  # 2 on 3: 4.5, 1 on 2: 10.5, 3 on 3: 22.5
        ("longest first", 18.0, 34.5 / 3),
    ],
)
def test_heuristics_by_hand(
    example: ModuleType, durations: np.ndarray, name: str, makespan: float, mean: float
) -> None:
    found = example.heuristic(name, durations)
    assert (found.makespan, found.mean) == pytest.approx((makespan, mean))


def test_nobody_beats_the_enumeration(example: ModuleType) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        some = example.drawn(rng, example.Figures(), tasks=3, agents=2)
        for goal in example.GOALS:
            best = example.optimum(some, goal).value(goal)
            assert all(example.heuristic(name, some).value(goal) >= best - 1e-9 for name in example.HEURISTICS)


@pytest.mark.parametrize("seed", range(4))
def test_the_engine_of_the_queue_gives_the_same_times(example: ModuleType, seed: int) -> None:
    """Any order on any agents that fit: two independent ways to play it."""
    rng, figures = np.random.default_rng(seed), example.Figures()
    tasks = [example.Task(float(rng.uniform(50, 1000)), float(rng.uniform(1, 16))) for _ in range(6)]
    durations = figures.durations(tasks, example.AGENTS)
    order = [(int(task), int(rng.integers(3))) for task in rng.permutation(6)]
    plain, engine = example.played("", order, durations), example.replayed(order, tasks, example.AGENTS, figures)
    np.testing.assert_allclose(engine.starts, plain.starts)
    np.testing.assert_allclose(engine.ends, plain.ends)


def test_the_command_learns_the_optimum_and_says_so(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    found = {each.name: each for each in example.main(["--updates", "8", "--draws", "0"])}
    said = capsys.readouterr().out
    for goal in example.GOALS:
        best, learned = found[f"optimum: {goal}"], found[f"learned on: {goal}"]
        assert learned.value(goal) == best.value(goal)
        assert learned.name in said
    assert "agent 3 |--------------------------------3333|" in said
    assert "replayed as jobs by the queue's engine: the same times" in " ".join(said.split())
    for each in found.values():  # an agent runs one task at a time, and each task once
        assert sorted(task for task, _ in each.order) == [0, 1, 2]
        for agent in range(3):
            mine = sorted((each.starts[task], each.ends[task]) for task, where in each.order if where == agent)
            assert all(end <= start for (_, end), (start, _) in pairwise(mine))


@pytest.mark.parametrize("words", [("--gflops", "0"), ("--gbit", "nan"), ("--updates", "-1"), ("--seed", "-1")])
def test_numbers_that_cannot_be_are_refused(example: ModuleType, words: tuple[str, str]) -> None:
    with pytest.raises(InputError, match=f"^{words[0]}: must be"):
        example.main(words)


def test_a_task_that_fits_nowhere_is_told(example: ModuleType) -> None:
    durations = example.Figures().durations([example.Task(1, 100)], example.AGENTS)
    with pytest.raises(InfeasibleError, match="task 1 fits into no agent"):
        example.optimum(durations, example.GOALS[0])
