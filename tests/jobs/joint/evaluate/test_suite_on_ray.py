"""Worlds to be judged on, played by workers of a Ray cluster of two nodes.

Ray is an extra of its own (``pip install -e '.[learn,ray]'``); without it these are skipped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hippo.errors import InputError
from hippo.jobs.joint.evaluate.suite import WorldSuite, play_worlds
from hippo.machine import shared_out

from ....ray_nodes import NEEDS_RAY, two_nodes
from .test_suite import DRAW, GROUND, METHODS

pytestmark = NEEDS_RAY


@pytest.fixture(scope="module")
def nodes() -> Iterator[None]:
    with two_nodes():
        yield


def test_workers_change_nothing(nodes: None) -> None:
    suite, draws = WorldSuite(GROUND, METHODS), [replace(DRAW, seed=seed) for seed in (6, 7, 8)]
    alone, shared = play_worlds(suite, draws), play_worlds(suite, draws, processes=2, ray=True)
    for one, two in zip(alone[0], shared[0], strict=True):
        assert {**one, "cpu_s": 0} == {**two, "cpu_s": 0}
    assert alone[1] == shared[1]


def once_killed(task: tuple[Path, int]) -> int:
    """Ends its own process the first time."""
    folder, number = task
    if number == 2 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def odd(number: int) -> int:
    if number == 3:
        raise InputError("is odd", source="tasks", value=number, remedy="give another")
    return number


def test_the_task_of_a_worker_that_is_lost_is_done_anew(nodes: None, tmp_path: Path) -> None:
    tasks = [(tmp_path, number) for number in range(6)]
    assert dict(shared_out(once_killed, tasks, 3, ray=True)) == {number: 2 * number for number in range(6)}
    assert (tmp_path / "killed").exists()


def test_an_error_of_a_task_is_what_it_was(nodes: None) -> None:
    with pytest.raises(InputError, match="is odd"):
        list(shared_out(odd, range(7), 2, ray=True))
