"""Options of ``hippo serve`` from a file and from the environment, and how they are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hippo.cli.main import run
from hippo.errors import InputError
from hippo.serve.backups import backup
from hippo.serve.server import Service, ServiceTerms
from hippo.serve.store import Store


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServiceTerms]:
    """What services would be made of."""
    found: list[ServiceTerms] = []

    def of(cluster: Any, terms: ServiceTerms, **rest: Any) -> Service:
        found.append(terms)
        raise InputError("is not served here")

    monkeypatch.setattr(Service, "of", of)
    return found


def test_the_command_line_goes_before_the_environment_and_that_before_the_file(
    served: list[ServiceTerms], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "hippo.yaml"
    file.write_text("mode: advise\nport: 9000\npolicy: srpt\nactuator: [paper]\nkeep-running: true\nstale: 30\n")
    monkeypatch.setenv("HIPPO_SERVE_PORT", "9001")
    monkeypatch.setenv("HIPPO_SERVE_POLICY", "shortest")
    run(["serve", "--config", str(file), "--policy", "mast"])
    (terms,) = served
    assert (terms.policy, terms.port, terms.mode) == ("mast", 9001, "advise")
    assert (terms.actuators, terms.keeps_running, terms.stale_s) == (("paper",), True, 30.0)
    assert terms.epoch_s == 300.0  # what nobody says is as it is without a file
    monkeypatch.setenv("HIPPO_SERVE_CONFIG", str(file))
    run(["serve"])
    assert served[1].mode == "advise"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot: 1", "unknown option 'prot'. To fix: did you mean 'port'?"),
        ("port: many", "port: Input should be a valid integer"),
        ("port: null", "port: is no value of this option"),
        ("port: {a: 1}", "port: is no value of this option"),
        ("- port", "is no table of options. To fix: write one option a line"),
        ("keep-running: perhaps", "keep-running: Input should be a valid boolean"),
        ("config: other.yaml", "unknown option 'config'"),
        ("port: 1\nport: 2", "port"),
        ("port: true", "port: is no value of this option (got True)"),
        ("log: [a]", "log: is no value of this option"),
        ("demo: ''", "demo: is no value of this option"),
    ],
)
def test_a_file_that_is_wrong(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "hippo.yaml"
    file.write_text(text)
    assert run(["serve", "--config", str(file)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"hippo: {file}: ")
    assert said in told
    assert "To fix: " in told


def test_what_goes_with_nothing(
    served: list[ServiceTerms], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    file = tmp_path / "hippo.yaml"
    file.write_text("# nothing yet\n")
    run(["serve", "--config", str(file)])
    assert served[0].mode == "observe"
    assert run(["serve", "--demo", str(tmp_path), "--mode", "act"]) == 2
    assert "--mode: does not go with --demo" in capsys.readouterr().err
    assert run(["serve", "--gpus-query", "up"]) == 2
    assert "--gpus-query: asks nobody. To fix: name a Prometheus" in capsys.readouterr().err
    monkeypatch.setenv("HIPPO_SERVE_MODES", "act")
    assert run(["serve"]) == 2
    assert (
        "environment: unknown variable 'HIPPO_SERVE_MODES'. To fix: did you mean 'HIPPO_SERVE_MODE'"
        in capsys.readouterr().err
    )


def test_tokens_that_name_nobody_and_roles_of_none(tmp_path: Path, refused):
    store = ("--store", f"sqlite:///{tmp_path / 's.db'}")
    assert "--new-token: names nobody (got '')" in refused("serve", *store, "--new-token", "")
    assert "--role: is of a new token (got 'agent')" in refused("serve", *store, "--role", "agent")
    assert "--every: is out of range (got 0.0)" in refused("serve", *store, "--cluster", "toy", "--every", "0")


def test_tokens_of_a_store_that_no_service_has_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused, hippo):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for words in (("--new-token", "me"), ("--drop-token", "me")):
        said = refused("serve", "--store", "sqlite:///s.db", *words)
        assert "--store: holds no store of hippo (got 'sqlite:///s.db')" in said
        assert "which makes it as it first starts" in said
    assert list(Path.cwd().iterdir()) == []
    Store("sqlite:///s.db").close()
    assert hippo("serve", "--store", "sqlite:///s.db", "--new-token", "me").out.startswith("hippo_")


@pytest.mark.parametrize("option", ["--stale", "--epoch"])
@pytest.mark.parametrize("value", ["nan", "-1", "0", "inf"])
def test_seconds_that_are_none(option: str, value: str, capsys: pytest.CaptureFixture[str]):
    assert run(["serve", option, value]) == 2
    assert f"{option}: must be above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("sqlite:///:memory:", "--store: is gone with its process (got 'sqlite:///:memory:')"),
        ("sqlite:///", "--store: is no kind of store"),
        ("sqlite:///..", "--store: is a folder"),
        ("sqlite://host/m.db", "--store: is no address of a store (got 'sqlite://host/m.db')"),
        ("sqlite:///m.db?mode=ro", "--store: takes nothing behind a question mark (got 'sqlite:///m.db?mode=ro')"),
        (
            "postgresql://u:secret@127.0.0.1:port/x",
            "--store: is no address of a store (got 'postgresql://u:***@127.0.0.1:port/x')",
        ),
    ],
)
def test_addresses_that_are_no_store(store: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    first = Store(f"sqlite:///{tmp_path / 's.db'}")
    first.close()
    backup(first.url, tmp_path / "s.gz")
    words = ["--cluster", "toy", "--policy", "srpt", "--port", "0"]
    assert said in refused("serve", *words, "--store", store)
    assert said in refused("serve", "--store", store, "--new-token", "me")
    assert said in refused("store", "backup", "b.gz", "--store", store)
    assert said in refused("store", "restore", tmp_path / "s.gz", "--store", store)
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "gpt2", "--tokens", "nan", "--most", "8"], "job: tokens: must be a finite number (got nan)"),
        (["--model", "gpt2", "--tokens", "1", "--whatif", "--deadline", "inf"], "job: deadline_s: must be a finite"),
        (["--model", "gpt2", "--key", "ü"], "submission: key: must be printable ASCII"),
        (["--model", "gpt2", "--key", "a\nb"], "submission: key: must be printable ASCII"),
        (["--devices", "8", "--duration", "60", "--model", "gpt2"], "--devices: does not go with --model (got 8)"),
        (["--devices", "8", "--duration", "60", "--tokens", "1e9"], "--devices: does not go with --tokens"),
        (["--duration", "60", "--most", "8"], "--duration: does not go with --most"),
        (["--devices", "8"], "--duration: is missing. To fix: a gang says both"),
        (["--duration", "60"], "--devices: is missing. To fix: a gang says both"),
        (["--devices", "8", "--duration", "nan"], "job: duration_s: must be a finite number"),
        (["job.json", "--devices", "8"], "--devices: does not go with a JOB.json (got 8)"),
        (["job.json", "--key", "a"], "job.json: "),
        (["--model", "gpt2", "--whatif", "--dry-run"], "--dry-run: does not go with --whatif"),
    ],
)
def test_submissions_that_cannot_be_sent(words: list[str], said: str, refused):
    assert said in refused("jobs", "submit", *words, "--url", "http://127.0.0.1:1")


def test_a_dry_run_of_no_answer(refused):
    assert "--dry-run: is of an answer. To fix: give one" in refused("decisions", "--dry-run")
