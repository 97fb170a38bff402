"""``hippo train``: what it refuses before anything heavy is loaded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.conftest import ROOT

from hippo.cli.main import run
from hippo.cli.train import Choice, _settings


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["train", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "To fix:" in said.err
    return said.err


def test_wrong_configurations_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "mine.yaml"
    file.write_text("ppo: {gama: 0.9}")
    out = ("--out", str(tmp_path / "out"))
    assert "gamma" in refused(capsys, "--config", str(file), *out)
    assert "does not exist" in refused(capsys, "--config", str(tmp_path / "none.yaml"), *out)
    assert "--minutes" in refused(capsys, "--minutes", "-1", *out)
    (tmp_path / "file").write_text("")
    assert "not a folder" in refused(capsys, "--out", str(tmp_path / "file"))
    assert not (tmp_path / "out").exists()


def test_ray_is_for_the_agents_of_a_site_and_named_where_it_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    assert "--workers: only with --ray" in refused(capsys, "--config", "world", "--workers", "2")
    assert "--ray: only of world" in refused(capsys, "--ray")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "--ray: needs Ray, which is not installed" in refused(capsys, "--config", "world", "--ray")


def test_a_configuration_that_ships_is_named_without_its_file(capsys: pytest.CaptureFixture[str]):
    text = (ROOT / "configs" / "algo" / "jobs.yaml").read_text()
    assert run(["train", "--config", "jobs", "--print-config"]) == 0
    assert capsys.readouterr().out == text
    assert run(["train", "--print-config"]) == 0
    assert capsys.readouterr().out == (ROOT / "configs" / "algo" / "hi_ppo.yaml").read_text()
    learner, settings = _settings(Choice(config=Path("jobs")))
    assert (learner, settings.windows.trace) == ("jobs", "data/traces/philly_open.csv.gz")
    assert (ROOT / settings.windows.trace).is_file()


def test_the_command_line_overrules_the_configuration(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("run: {seed: 3, minutes: 5, updates: 7}")
    found = _settings(Choice(config=file, seed=4))[1].run
    assert (found.seed, found.minutes, found.updates) == (4, 5.0, 7)
    assert _settings(Choice(config=file, minutes=9.0))[1].run.minutes == 9.0


def test_the_file_of_the_documents_is_of_the_agents_of_a_site(tmp_path: Path):
    file = tmp_path / "documents.yaml"
    file.write_text("ppo: {lr: 3.0e-4, clip_range: 0.2, num_steps: 2048}\ngnn: {type: GraphSAGE, hidden_dim: 128}\n")
    learner, settings = _settings(Choice(config=file))
    assert (learner, settings.ppo.learning_rate, settings.network.hidden) == ("world", 3.0e-4, 128)
    file.write_text("learner: hi_ppo\nrun: {updates: 7}\n")
    assert _settings(Choice(config=file))[0] == "hi_ppo"
