"""Workers that ask what is next: the same loss, memory kept, decisions as the simulator's for what they have heard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hippo.dispatch.rank import ChoosingRank
from hippo.engine.program import FORWARD, WEIGHT
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.run import dispatching, seat
from hippo.run.job import RunJob, RunOptions
from hippo.run.model.reference import losses
from hippo.run.model.stage import settings_of
from hippo.run.work import Worker
from hippo.schedule.problem import ScheduleProblem
from hippo.simulate.ordering import ordering

from ..worlds import PLANS, problem
from .test_training import STEPS, trained

NOISY = "0.3,abnormal_share=0.1,rank_level=0.2"
CASES = [
    ("split backwards", {"dispatch": "hint", "noise": NOISY, "play_links": True}),
    ("unlike shares", {"dispatch": "learned", "noise": NOISY}),
    ("tensor parallel", {"dispatch": "hint", "patience": 0.0}),
    ("stages", {"noise": "restless", "play_links": True}),
    pytest.param("unlike dp", {"dispatch": "learned", "noise": NOISY, "play_links": True}, marks=pytest.mark.slow),
    pytest.param("everything", {"dispatch": "hint", "noise": NOISY, "play_links": True}, marks=pytest.mark.slow),
    pytest.param("stages", {"dispatch": "learned", "play_links": True}, marks=pytest.mark.slow),
]


def asking(name: str, **options: Any) -> RunJob:
    model, plan = PLANS[name]
    given = {"steps": STEPS, "precision": "fp64", "timeout_s": 20.0, **options}
    return RunJob(problem(model, latency_s=0.005), plan, RunOptions(**given))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_loss_is_that_of_one_process_whoever_decides(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    job = asking(name, **options)
    expected = list(losses(job.problem, settings_of(job), steps=STEPS, micro_batch=2))
    assert trained(job, tmp_path) == pytest.approx(expected, abs=1e-9)
    assert expected[-1] < expected[0]


class Recorder(ChoosingRank):
    """Keeps what it was told and what it answered: name, arguments, answer."""

    calls: list[tuple[str, tuple[Any, ...], Any]]


def _recorded(rank: ChoosingRank) -> ChoosingRank:
    calls: list[tuple[str, tuple[Any, ...], Any]] = []

    def keeping(name: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def done(*arguments: Any) -> Any:
            calls.append((name, arguments, answer := do(*arguments)))
            return answer

        return done

    for name in ("begin", "announced", "arrives", "next", "begins", "ended"):
        setattr(rank, name, keeping(name, getattr(rank, name)))
    rank.calls = calls  # type: ignore[attr-defined]
    return rank


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[int, ChoosingRank]:
    """The ranks of a run, by number; memory for two micro-batches each."""

    def small(problem: Problem, plan: Plan, index: int = 0) -> ScheduleProblem:
        found = ordering(problem, plan, index)
        return replace(found, limit=(2.0,) * found.ranks)

    ranks: dict[int, ChoosingRank] = {}

    def rank_of(job: RunJob, worker: Worker) -> ChoosingRank:
        made = dispatching.rank_of(job, worker)
        assert isinstance(made, ChoosingRank)
        ranks[worker.rank] = _recorded(made)
        return made

    monkeypatch.setattr(dispatching, "ordering", small)
    monkeypatch.setattr(seat, "rank_of", rank_of)
    return ranks


@pytest.mark.parametrize("dispatch", ["hint", "learned"])
def test_ranks_decide_as_the_simulator_for_what_they_have_heard(
    dispatch: str, recorded: dict[int, ChoosingRank], tmp_path: Path
) -> None:
    """All that all ranks heard goes, in the order of time, into the one state that a simulator has."""
    job = asking("split backwards", dispatch=dispatch, noise=NOISY, play_links=True, steps=1)
    trained(job, tmp_path)
    problem, asked = dispatching.problem_of(job, 0), 0
    one = {rank: dispatching.rank_of(job, job.work.workers[rank]) for rank in recorded}
    shared = one[0]._state  # type: ignore[attr-defined]
    for each in one.values():
        assert isinstance(each, ChoosingRank)
        each._state, each._known[0] = shared, each._known[0]._replace(state=shared)
    one[0].begin()
    queues = {rank: [call for call in each.calls if call[0] != "begin"] for rank, each in recorded.items()}  # type: ignore[attr-defined]
    for rank, calls in queues.items():
        live = 0
        for name, arguments, answer in calls:
            found = getattr(one[rank], name)(*arguments)
            if name in ("next", "begins"):
                assert found == answer
                asked += name == "next"
            if name == "begins":
                live += {FORWARD: 1, WEIGHT: -1}.get(arguments[0], 0)
                assert live <= 2
    assert asked >= 3 * problem.ranks * problem.micro_batches
    assert np.all(shared.board.begun == problem.micro_batches)
