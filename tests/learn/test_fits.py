"""Training that would not fit this machine is refused before anything is made; what fits is not."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hippo.cli.main import run
from hippo.dispatch.env.generator import DispatchWorld
from hippo.dispatch.network import follower
from hippo.dispatch.noise.fluctuation import Fluctuation
from hippo.dispatch.train import learner
from hippo.dispatch.train import train as dispatch
from hippo.dispatch.train.policy import DispatchPolicy
from hippo.dispatch.train.settings import Settings, Worlds
from hippo.errors import InputError
from hippo.jobs.train import settings as jobs_settings
from hippo.jobs.train import train as jobs
from hippo.learn import fits as room
from hippo.learn.fits import Need, refuse_too_large
from hippo.schedule.problem import ScheduleProblem

GB = 1e9


@pytest.fixture(autouse=True)
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "available_bytes", lambda: 8 * GB)


def test_the_defaults_fit() -> None:
    needs = (
        [learner.need(Settings())],
        jobs.needs(jobs_settings.KeyTraining()),
    )
    assert all(sum(need.held_bytes for need in each) < 2 * GB for each in needs)


@pytest.mark.parametrize(
    ("train", "settings", "key"),
    [
        (dispatch.train, Settings(worlds=Worlds(draws=10_000, plays=1_000)), "worlds.draws"),
        (dispatch.train, Settings(worlds=Worlds(draws=1_000, plays=10_000)), "worlds.plays"),
        (dispatch.train, Settings(worlds=Worlds(each_update=10_000)), "worlds.each_update"),
        (dispatch.train, Settings(worlds=Worlds(most_ranks=256)), "worlds.most_ranks"),
        (jobs.train, jobs_settings.KeyTraining(hazards=jobs_settings.Hazards(keys=10_000_000)), "hazards.keys"),
        (
            jobs.train,
            jobs_settings.KeyTraining(windows=jobs_settings.Windows(drawn=1000, jobs=100_000)),
            "windows.drawn",
        ),
    ],
)
def test_too_much_is_refused_with_the_key_that_is_furthest_above_its_default(
    train: Callable[..., Any], settings: Any, key: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="this machine has 8 GB free") as refused:
        train(settings, out=tmp_path / "run")
    section, name = key.split(".")
    assert (refused.value.key, refused.value.value) == (key, getattr(getattr(settings, section), name))
    assert str(refused.value.remedy).startswith("give less")
    assert not (tmp_path / "run").exists()


def test_the_command_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("learner: dispatch\nworlds: {draws: 10000, plays: 10000}\n")
    assert run(["train", "--config", str(file), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert all(each in said for each in (f"{file}: worlds.draws: makes training need", "(got 10000)", "worlds.plays"))


def test_a_machine_that_does_not_tell_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = [Need(1e15, ("worlds.draws",))]
    monkeypatch.setattr(room, "available_bytes", lambda: 1e9)
    with pytest.raises(InputError, match="GB free"):
        refuse_too_large(Settings(), needs)
    monkeypatch.setattr(room, "available_bytes", lambda: None)
    refuse_too_large(Settings(), needs)


def test_an_update_holds_no_more_than_was_said() -> None:
    """Counted where numpy asks for memory (torch holds about as much again)."""
    settings = Settings(worlds=Worlds(each_update=2, draws=8, plays=8))
    problem = ScheduleProblem.uniform(8, 32, (1.0, 1.05, 0.75), comm=[0.05] * 3 + [5.0] + [0.05] * 3, live_limit=16)
    world, policy = DispatchWorld(problem, Fluctuation(0.3)), DispatchPolicy(follower())
    optimizer = torch.optim.Adam(policy.parameters())
    learner.learn(policy, optimizer, [world], replace(settings, worlds=Worlds(draws=1)), np.random.default_rng(0))
    tracemalloc.start()
    learner.learn(policy, optimizer, [world] * 2, settings, np.random.default_rng(0))
    held_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    said_bytes = learner.need(settings).held_bytes
    assert 0.2 * said_bytes < held_bytes < said_bytes
