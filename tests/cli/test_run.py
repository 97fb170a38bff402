"""``hippo run``: what it refuses before a process starts, and one run from plan file to page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "two-domains.json"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--steps", "0"), "--steps: must be from 1"),
        (("--timeout", "0"), "--timeout: must be from 1"),
        (("--order", "random"), "unknown order 'random'"),
        (("--backward", "late"), "unknown backward 'late'"),
        (("--precision", "fp4"), "unknown precision 'fp4'"),
        (("--resume",), "--resume: there is nothing to go on from"),
        (("--resume", "--checkpoint", "nowhere"), "holds no whole checkpoint"),
        (("--out", str(EXAMPLE)), "is a file, not a folder"),
    ],
)
def test_what_is_refused(hippo, words: tuple[str, ...], told: str):
    answer = hippo("run", EXAMPLE, *words)
    assert answer.code == 2
    assert told in answer.err
    assert "To fix:" in answer.err


def test_a_plan_that_is_none(hippo, tmp_path: Path):
    document = json.loads(EXAMPLE.read_text())
    document["pipelines"][0]["stages"][1]["layers"] = [3, 5]
    broken = tmp_path / "plan.json"
    broken.write_text(json.dumps(document))
    answer = hippo("run", broken)
    assert answer.code == 2
    assert "the model has 6 layers" in answer.err


def test_a_run_from_the_plan_to_the_page(hippo, tmp_path: Path):
    words = ("--stand-in", "--steps", "2", "--json", "--out", tmp_path)
    document = hippo("run", EXAMPLE, *words).document
    assert len(document["measured_step_s"]) == 2
    assert document["loss"] is None
    assert document["predicted_step_s"] > 0
    assert [each["rank"] for each in document["timeline"]] == [0, 1]
    assert json.loads((tmp_path / "run.json").read_text()) == document
    assert "<h2>Step times</h2>" in (tmp_path / "run.html").read_text()
