"""``hippo prepare``: what is asked for is made ready, once each, in the order of the words."""

from __future__ import annotations

import json

import pytest

from hippo import first_use
from hippo.cli.main import run


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    names: list[str] = []

    def purposes() -> dict[str, object]:
        return {name: lambda progress, name=name: names.append(name) for name in ("plan", "schedule", "jobs")}

    monkeypatch.setattr(first_use, "purposes", purposes)
    return names


@pytest.mark.parametrize(("words", "made"), [([], ["plan", "schedule", "jobs"]), (["jobs", "plan"], ["jobs", "plan"])])
def test_what_is_asked_for_is_ready(asked, capsys, words, made):
    assert run(["prepare", *words]) == 0
    assert asked == made
    assert capsys.readouterr().out.splitlines() == [f"{name}: ready" for name in made]


def test_an_unknown_word_is_refused_before_anything_is_compiled(asked, capsys):
    assert run(["prepare", "plan", "jbos"]) == 2
    assert asked == []
    assert "did you mean 'jobs'?" in capsys.readouterr().err


def test_as_json(asked, capsys):
    assert run(["prepare", "jobs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ready": ["jobs"]}
