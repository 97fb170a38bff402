"""Compiling before any clock runs: once per planner, without a word where nothing can be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hippo import compiling, first_use
from hippo.registry import planner


@pytest.fixture
def planned(monkeypatch, tmp_path) -> list[str]:
    """Names of the planners that had to plan something; marks go to a folder of the test's own."""
    names: list[str] = []
    monkeypatch.setattr(first_use, "_plan_something", lambda asked: names.append(asked.name))
    monkeypatch.setattr(compiling, "folder", lambda: tmp_path)
    return names


def test_once_per_planner(planned, tmp_path):
    said: list[tuple[str, float]] = []
    for _ in range(2):
        first_use.prepare([planner("even"), planner("zero")], progress=lambda *words: said.append(words))
    assert planned == ["even", "zero"]
    assert said == [("even: compiling, once", 0.0), ("zero: compiling, once", 0.0)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["prepared-even", "prepared-zero"]


def test_the_judge_of_small_problems_is_not_asked(planned):
    first_use.prepare([planner("brute")])
    assert planned == []


@pytest.mark.parametrize("folder", [None, Path("/proc/nowhere")])
def test_where_nothing_can_be_written(planned, monkeypatch, folder):
    monkeypatch.setattr(compiling, "folder", lambda: folder)
    first_use.prepare([planner("even")])
    assert planned == ["even"]


COUNTER = """
import numba.core.event as event

class Counter(event.Listener):
    compiled = []
    def on_start(self, begun): self.compiled.append(begun.data["dispatcher"].__name__)
    def on_end(self, ended): pass

event.register("numba:compile", Counter())
"""

COUNT = """
import hippo, hippo.first_use as first_use, hippo.registry as registry

first_use.prepare([registry.planner("exact")])
cold = len(Counter.compiled)
hippo.plan(hippo.problem(model="llama-3-70b", cluster="four-hubs"), planner="exact")
print(cold > 0, Counter.compiled[cold:])
"""


@pytest.mark.slow
def test_nothing_is_left_to_compile_once_the_clock_runs(tmp_path):
    environment = {**os.environ, "HIPPO_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COUNTER + COUNT], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True []\n"


def test_schedules_once(monkeypatch, tmp_path):
    made: list[bool] = []
    monkeypatch.setattr(first_use, "_schedule_something", lambda: made.append(True))
    monkeypatch.setattr(compiling, "folder", lambda: tmp_path)
    said: list[str] = []
    for _ in range(2):
        first_use.prepare_schedules(progress=lambda phase, share: said.append(phase))
    assert made == [True]
    assert said == ["schedules: compiling, once"]


def test_moving_networks_once_and_the_planner_that_fills_books_first(planned, monkeypatch):
    monkeypatch.setattr(first_use, "_move_something", lambda: planned.append("moving"))
    said: list[str] = []
    for _ in range(2):
        first_use.prepare_moving(progress=lambda phase, share: said.append(phase))
    assert planned == ["exact", "moving"]
    assert said == ["exact: compiling, once", "moving networks: compiling, once"]


MOVED = """
import hippo.first_use as first_use
from hippo.network.worlds import judge
from hippo.network.worlds.generator import make_world
from hippo.network.worlds.play import play
from hippo.registry import METHODS, load

first_use.prepare_moving()
cold = len(Counter.compiled)
setting = judge.scenario_of(make_world("transient", 1))
runs = [play(setting.world, setting.cache, load(METHODS, "method", name)(), setting.terms) for name in METHODS]
judge.judge(setting, runs)
print(cold > 0, Counter.compiled[cold:])
"""


@pytest.mark.slow
def test_nothing_is_left_to_compile_while_the_network_moves(tmp_path):
    environment = {**os.environ, "HIPPO_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COUNTER + MOVED], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True []\n"


def test_the_queue_once(monkeypatch, tmp_path):
    made: list[bool] = []
    monkeypatch.setattr(first_use, "_replay_something", lambda: made.append(True))
    monkeypatch.setattr(compiling, "folder", lambda: tmp_path)
    said: list[str] = []
    for _ in range(2):
        first_use.prepare_jobs(progress=lambda phase, share: said.append(phase))
    assert made == [True]
    assert said == ["the queue: compiling, once"]
