"""The command line, run inside the test's own process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hippo.cli.main import run


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
        assert answer.err.count("hippo: ") == 1, answer.err
        assert "To fix: " in answer.err
        return answer.err

    return command
