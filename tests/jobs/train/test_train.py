"""A whole training run on a small trace: what it writes, how it goes on, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from hippo.errors import InputError
from hippo.jobs.learned.weights import read
from hippo.jobs.train.settings import (
    Hazards,
    KeyTraining,
    QueueRun,
    Windows,
    parse_settings,
)
from hippo.jobs.train.train import train
from hippo.learn.tracking import read_curve


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """300 jobs of two clusters in the form of adaptdl's Philly file, ten minutes apart."""
    rng, lines = np.random.default_rng(0), ["timestamp,duration,num_gpus,gpu_time,cluster"]
    for job in range(300):
        day, minute = divmod(job * 10, 1440)
        seconds = float(rng.integers(60, 4000))
        lines.append(f"2017-10-{day + 1:02d} {minute // 60:02d}:{minute % 60:02d}:00,{seconds},1,{seconds},c{job % 2}")
    file = tmp_path / "small.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def settings(trace: Path, updates: int) -> KeyTraining:
    return KeyTraining(
        windows=Windows(trace=str(trace), jobs=40, drawn=0, loads=(0.9,), domains=1, nodes=1, per_node=2),
        hazards=Hazards(keys=200, passes=3),
        run=QueueRun(minutes=0.0, updates=updates),
    )


def test_a_run_that_was_cut_off_goes_on_as_if_it_had_not_been(trace: Path, tmp_path: Path):
    """In the middle of the passes over what replays saw, which are made again."""
    whole = train(settings(trace, 4), out=tmp_path / "whole")
    train(settings(trace, 2), out=tmp_path / "cut")
    again = train(settings(trace, 4), out=tmp_path / "cut", resume=True)
    assert again["updates"] == whole["updates"] == 4
    one, other = (read_curve(tmp_path / name / "curve.jsonl") for name in ("whole", "cut"))
    assert [line.get("loss") for line in one] == [line.get("loss") for line in other]
    assert again["of_limit"] == whole["of_limit"]
    assert (tmp_path / "whole" / "jobs.npz").read_bytes() == (tmp_path / "cut" / "jobs.npz").read_bytes()


def test_durations_surprise_less_once_learned(trace: Path, tmp_path: Path):
    train(settings(trace, 6), out=tmp_path / "run")
    curve = read_curve(tmp_path / "run" / "curve.jsonl")
    assert min(line["surprise"] for line in curve) < curve[0]["surprise"]


def test_what_it_writes_is_a_policy_and_kept(trace: Path, tmp_path: Path):
    begun = settings(trace, 1)
    found = train(begun, out=tmp_path / "run")
    assert 0.5 < found["of_limit"] < 3.0
    assert np.any(read(found["policy"]).hazard_last)
    with pytest.raises(InputError, match="holds a run already"):
        train(begun, out=tmp_path / "run")
    with pytest.raises(InputError, match="other settings"):
        train(replace(begun, hazards=replace(begun.hazards, passes=2)), out=tmp_path / "run", resume=True)


def test_refused_are_no_trace_and_one_that_is_too_short(trace: Path, tmp_path: Path):
    with pytest.raises(InputError, match="names no trace"):
        train(KeyTraining(), out=tmp_path / "a")
    large = settings(trace, 1)
    with pytest.raises(InputError, match="fewer than one window"):
        train(replace(large, windows=replace(large.windows, jobs=5000)), out=tmp_path / "b")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"gradient": {"algorithm": "ppo"}}, "gradient"),
        ({"hazards": {"keyz": 100}}, "keyz"),
        ({"windows": {"last": 7}}, "from 0.05 to 1"),
        ({"run": 3}, "mapping"),
    ],
)
def test_a_configuration_that_says_something_else(document: object, words: str):
    with pytest.raises(InputError, match=words):
        parse_settings(document, source="jobs.yaml")


def test_the_file_says_the_defaults_and_names_a_trace():
    file = Path(__file__).resolve().parents[3] / "configs" / "algo" / "jobs.yaml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert document.pop("learner") == "jobs"
    found = parse_settings(document, source=str(file))
    assert found.windows.trace.endswith("philly_open.csv.gz")
    assert replace(found, windows=replace(found.windows, trace="")) == KeyTraining()
