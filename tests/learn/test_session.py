"""A run that is cut off and goes on is the same run; what it writes; what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hippo.errors import InputError
from hippo.learn.checkpoint import load
from hippo.learn.distributed import Place
from hippo.learn.session import Outcome, Session
from hippo.learn.settings import Ppo
from hippo.learn.tracking import read_curve
from hippo.network.train.learner import UpperLearner
from hippo.network.train.rollout import Share
from hippo.network.train.settings import HiPpoSettings, TrainingRun
from hippo.network.train.train import words

from ..network.toy import ToyEnvs, toy_policy

torch.set_num_threads(1)
LOOKED_AT = Session.best_by
SETTINGS = HiPpoSettings(
    ppo=Ppo(steps_per_update=64, passes=2, minibatch=32, learning_rate=0.01),
    run=TrainingRun(updates=6, minutes=0.0, checkpoint_every=1, validate_every=2),
)


def session(folder: Path, settings: HiPpoSettings = SETTINGS, *, seed: int = 0) -> Session:
    shares = [Share(ToyEnvs(8, seed + number), np.random.default_rng(seed + number)) for number in range(2)]
    learner = UpperLearner(toy_policy(seed), shares, settings, Place())
    return Session(learner, settings, folder, words, look=lambda policy: {LOOKED_AT: seen(policy)})


def seen(policy: torch.nn.Module) -> float:
    return float(policy.state_dict()["value.weight"].sum())


def weights(outcome: Outcome) -> list[torch.Tensor]:
    return list(outcome.policy.state_dict().values())


def test_a_resumed_run_ends_with_the_same_numbers(tmp_path: Path):
    whole = session(tmp_path / "whole").run()
    short = replace(SETTINGS, run=replace(SETTINGS.run, updates=6))
    first = session(tmp_path / "cut", short)
    original, calls = first.learner.learn, []

    def interrupted(done: float):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(done)
        return original(done)

    first.learner.learn = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        first.run()
    again = session(tmp_path / "cut", seed=5)  # other weights and worlds: all of it must come from the file
    resumed = again.run(load(tmp_path / "cut"))
    assert all(torch.equal(one, other) for one, other in zip(weights(whole), weights(resumed), strict=True))
    assert (resumed.count, resumed.best, resumed.best_update) == (whole.count, whole.best, whole.best_update)
    one, other = (read_curve(tmp_path / name / "curve.jsonl") for name in ("whole", "cut"))
    timed = {"seconds", "epochs_per_cpu_s"}
    assert [{k: v for k, v in line.items() if k not in timed} for line in one] == [
        {k: v for k, v in line.items() if k not in timed} for line in other
    ]


def test_the_best_policy_seen_is_kept(tmp_path: Path):
    found = session(tmp_path).run()
    curve = {line["update"]: line[LOOKED_AT] for line in read_curve(tmp_path / "curve.jsonl") if LOOKED_AT in line}
    assert sorted(curve) == [0, 2, 4, 6]
    assert found.best == pytest.approx(max(curve.values()), abs=1e-6)
    assert seen(found.policy) == found.best


def test_where_less_is_better_the_least_is_kept_and_every_checkpoint_writes_it(tmp_path: Path):
    written: list[float] = []
    found = replace(session(tmp_path), least=True, write=lambda best: written.append(seen(best))).run()
    curve = [line[LOOKED_AT] for line in read_curve(tmp_path / "curve.jsonl") if LOOKED_AT in line]
    assert found.best == pytest.approx(min(curve), abs=1e-6)
    assert found.first == pytest.approx(curve[0], abs=1e-6)
    assert len(written) == SETTINGS.run.updates
    assert written[-1] == seen(found.policy) == found.best


def test_minutes_end_a_run_and_it_can_go_on(tmp_path: Path):
    brief = replace(SETTINGS, run=replace(SETTINGS.run, minutes=1e-9))
    assert session(tmp_path, brief).run().updates == 1
    assert session(tmp_path).run(load(tmp_path)).updates == 6


def test_other_settings_are_refused(tmp_path: Path):
    session(tmp_path, replace(SETTINGS, run=replace(SETTINGS.run, updates=1))).run()
    other = replace(SETTINGS, ppo=replace(SETTINGS.ppo, gamma=0.5))
    with pytest.raises(InputError, match="ppo.gamma"):
        session(tmp_path, other).run(load(tmp_path))


def test_what_is_no_checkpoint_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="there is no checkpoint"):
        load(tmp_path)
    for nonsense in (b"", b"nonsense", b"junk", b"PK\x03\x04", b"\x80\x02}q"):
        (tmp_path / "checkpoint.pt").write_bytes(nonsense)
        with pytest.raises(InputError, match="no training run"):
            load(tmp_path)
    torch.save({"weights": 1}, tmp_path / "checkpoint.pt")
    with pytest.raises(InputError, match="no training run of this version"):
        load(tmp_path)


def test_tensorboard_holds_the_curve(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    session(tmp_path).run()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("reward")] == [1, 2, 3, 4, 5, 6]
