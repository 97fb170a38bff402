"""Compiling before any clock runs: once per planner, without a word where nothing can be written."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
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


@pytest.fixture
def parts(monkeypatch, tmp_path) -> list[str]:
    """Names of what was compiled for; nothing is."""
    names: list[str] = []
    monkeypatch.setattr(first_use, "_parts", lambda name: (lambda: names.append(name),))
    monkeypatch.setattr(compiling, "folder", lambda: tmp_path)
    return names


def test_once_per_planner(planned, tmp_path):
    said: list[tuple[str, float]] = []
    for _ in range(2):
        first_use.prepare([planner("even"), planner("zero")], progress=lambda *words: said.append(words))
    assert planned == ["even", "zero"]
    assert said == [("compiling for even, once, about 5 s", 0.0), ("compiling for zero, once, about 5 s", 0.0)]
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


SERVED = """
import pathlib, sys
import hippo.first_use as first_use

first_use.prepare_serving()
cold = len(Counter.compiled)
from tests.serve.worlds import Clock, Served, url
from hippo.serve.records import LinkPoint

clock = Clock()
served = Served.of(url(pathlib.Path(sys.argv[1])), clock)
first = served.submit()
served.turn()
for rate in (1e9, 1e8):
    served.loop.points([LinkPoint(clock(), "wuhu", "guian", rate, 0.03)])
    served.turn(30.0)
second = served.submit(least=16)
served.turn(60.0)
served.close()
print(cold > 0, Counter.compiled[cold:], served.jobs is not None)
"""


@pytest.mark.slow
def test_nothing_is_left_to_compile_once_jobs_are_served(tmp_path):
    environment = {**os.environ, "HIPPO_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", COUNTER + SERVED, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "True [] True\n", done.stderr


@pytest.mark.parametrize(
    ("purpose", "made"),
    [
        ("schedule", ["schedules", "schedules-looped", "schedules-v", "schedules-bidirectional", "dispatch"]),
        ("jobs", ["jobs"]),
        ("watch", ["exact", "moving"]),  # the planner fills its cache of plans first
        ("train", ["exact", "moving", "training"]),
        ("serve", ["serving", "exact", "moving-hi_ppo"]),
    ],
)
def test_a_command_once(parts, purpose, made):
    words: list[str] = []
    for _ in range(2):
        first_use.purposes()[purpose](progress=lambda phase, share: words.append(phase))
    assert parts == made
    assert len(words) == len(made)
    about = first_use.WORDS[made[-1].partition("-")[0]][0]
    assert words[-1].startswith(f"compiling for {about}, once, about ")


def test_where_nothing_is_kept_no_second_process_is_started(monkeypatch):
    begun: list[str] = []
    monkeypatch.setattr(first_use, "_parts", lambda name: (lambda: begun.append("one"), lambda: begun.append("two")))
    monkeypatch.setattr(compiling, "folder", lambda: None)
    monkeypatch.setattr(first_use.subprocess, "Popen", lambda *command, **options: begun.append("process"))
    first_use.prepare_schedules()
    assert begun == ["one", "two"]


def test_a_second_process_begins_with_the_last_part(monkeypatch, tmp_path):
    """It is told so in a line of Python, which must run."""
    commands: list[list[str]] = []

    class Started:
        def __init__(self, command: list[str], **options: object) -> None:
            commands.append(command)

        def terminate(self) -> None:
            commands.append(["terminate"])

        def wait(self) -> None:
            commands.append(["wait"])

    did: list[str] = []
    monkeypatch.setattr(first_use, "_parts", lambda name: tuple(partial(did.append, each) for each in "abc"))
    monkeypatch.setattr(compiling, "folder", lambda: tmp_path)
    monkeypatch.setattr(first_use.subprocess, "Popen", Started)
    monkeypatch.setattr(first_use.os, "cpu_count", lambda: 2)
    first_use.prepare_schedules()
    assert did == ["a", "b", "c"]
    assert commands[1:] == [["terminate"], ["wait"]]
    exec(commands[0][2])
    assert did == ["a", "b", "c", "c", "b"]


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


def test_a_method_is_compiled_for_by_itself_unless_all_were(parts):
    first_use.prepare_moving("hi_ppo")
    assert parts == ["exact", "moving-hi_ppo"]
    first_use.prepare_moving()
    assert parts == ["exact", "moving-hi_ppo", "moving"]
    first_use.prepare_moving("greedy")
    first_use.prepare_moving("a method of one's own")
    assert parts == ["exact", "moving-hi_ppo", "moving"]
