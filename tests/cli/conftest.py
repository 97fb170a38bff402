"""The command line, run inside the test's own process."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.dispatch.drawn_draws import lazy_weights

from hippo.cli.main import run
from hippo.dispatch.network import packed, shipped

TOY = "plan --model llama-3-8b --cluster toy --planner crosspipe --time-limit 100"
"""A question of a moment, with a planner that is quick; its limit is for machines that are not."""

SCORE = {
    *("step_time_s", "utilization", "cross_domain_gb_per_step", "egress_usd_per_step", "usd_per_step"),
    *("tokens_per_s", "mfu", "peak_memory_gb", "reward"),
}
"""Keys of a score that others rely on."""

FILES = {"plan.json", "report.html", "trace.json"}
"""What --out writes."""

PROGRESS = " ..."
"""How a line that only says what is going on ends."""


@dataclass(frozen=True)
class Answer:
    """What a command line said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output, which must be one JSON document and nothing else."""
        return json.loads(self.out)


Hippo = Callable[..., Answer]


@pytest.fixture
def hippo(capsys: pytest.CaptureFixture[str]) -> Hippo:
    """``hippo("plan", "--model", ..)`` runs one command line; no traceback may ever be seen."""

    def command(*arguments: object) -> Answer:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Answer(code, out, err)

    return command


@pytest.fixture
def refused(hippo: Hippo) -> Callable[..., str]:
    """Runs a command line that must be refused: exit 2, one message with a remedy on stderr, nothing on stdout."""

    def command(*arguments: object) -> str:
        answer = hippo(*arguments)
        assert answer.code == 2, answer
        assert answer.out == ""
        messages = [line for line in answer.err.splitlines() if not line.endswith(PROGRESS)]
        assert len(messages) == 1, answer.err
        assert messages[0].startswith("hippo: ")
        assert "To fix: " in messages[0]
        return messages[0]

    return command


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``hippo plan --out`` writes for Llama-3 8B on the two-domain toy."""
    folder = tmp_path_factory.mktemp("toy") / "new" / "out"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert run([*TOY.split(), "--json", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def toy_plan(toy_folder: Path) -> Path:
    """A plan file."""
    return toy_folder / "plan.json"


@pytest.fixture
def slow_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In place of the policy that ships one that trial plays advise against."""
    (tmp_path / "slow.npz").write_bytes(packed(lazy_weights()))
    monkeypatch.setattr("hippo.dispatch.network.SHIPPED", str(tmp_path / "slow.npz"))
    shipped.cache_clear()
    yield
    shipped.cache_clear()
