"""Every answer about a GPU that nobody measured says so: in its document, on the screen, on its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Hippo
from .test_bad_input import CLUSTER, MODEL, written

DOUBT = "uncalibrated: nobody measured MI300X-192GB"
COMMANDS = ("plan", "compare", "pareto", "explain", "simulate", "estimate", "evaluate", "watch", "export")
LONG = ("explain", "evaluate", "watch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model, its cluster of A100 and of MI300X, and an hour of their network at a steady rate."""
    found = tmp_path_factory.mktemp("asked")
    written(found, "config.json", MODEL)
    for gpu in ("A100", "MI300X"):
        written(found, f"{gpu}.yaml", {**CLUSTER, "gpu": gpu})
    rows = [f"{600 * at},{pair},{5 if at < 3 else 1},10" for at in range(6) for pair in ("a,b", "b,a")]
    written(found, "net.csv", "\n".join(["time_s,src,dst,bandwidth_gbps,latency_ms", *rows, ""]))
    return found


def words(hippo: Hippo, folder: Path, command: str, gpu: str) -> list[object]:
    """The command line; of a command that takes a plan, after that plan was made."""
    given = ["--model", folder / "config.json", "--cluster", folder / f"{gpu}.yaml", "--global-batch", 32]
    if command in ("plan", "compare", "pareto"):
        return [command, *given, "--planner", "sailor", "--time-limit", 100]
    if command == "estimate":
        return [command, *given[:2], "--gpu", gpu, "--global-batch", 32]
    if command == "evaluate":
        return [command, *given, "--trace", folder / "net.csv", "--methods", "static,hindsight", "--out", folder / gpu]
    if command == "watch":
        return [command, *given, "--trace", folder / "net.csv", "--method", "hysteresis", "--out", folder / gpu]
    if not (folder / gpu / "plan.json").exists():
        assert hippo("plan", *given, "--planner", "sailor", "--time-limit", 100, "--out", folder / gpu).code == 0
    more = ["--to", "torchrun", "--program", "own", "--out", folder / f"{gpu}-files"] if command == "export" else []
    return [command, folder / gpu / "plan.json", *more]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_gpu_that_nobody_measured_is_said_to_be_so(hippo: Hippo, folder: Path, command: str) -> None:
    asked = words(hippo, folder, command, "MI300X")
    told = hippo(*asked)
    assert told.code == 0, told.err
    assert " ".join((told.out + told.err).split()).count(DOUBT) == 1
    assert hippo(*asked, "--json").document["uncalibrated"].startswith(DOUBT)
    if command in ("evaluate", "watch"):
        page = {"evaluate": "evaluation.html", "watch": "watch.html"}[command]
        assert "ncalibrated: nobody measured" in (folder / "MI300X" / page).read_text()


@pytest.mark.parametrize(
    "command", [pytest.param(each, marks=[pytest.mark.slow] * (each in LONG)) for each in COMMANDS]
)
def test_of_a_gpu_that_was_measured_nothing_is_said(hippo: Hippo, folder: Path, command: str) -> None:
    asked = words(hippo, folder, command, "A100")
    told = hippo(*asked)
    assert told.code == 0, told.err
    assert "uncalibrated:" not in told.out + told.err
    assert hippo(*asked, "--json").document["uncalibrated"] is None
