"""A job whose command trains under torchtitan's or Megatron-LM's checkpoints is moved through Slurm and Ray: it ends,
its new plan's launch is made from what it left, and its losses are those of a run that never stopped."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.serve.servers import until

from hippo.serve.actuators import batch
from hippo.serve.actuators.base import Actuator
from hippo.serve.actuators.batch import BatchActuator, _note_begun
from hippo.serve.records import BEGIN, DONE, RESIZE, RUNNING, JobOrder

from .sites import MARK, MemoryEngine, ServedBy, by_ray, by_slurm, cluster_file
from .trainer import EVERY, train

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # of one process, as it is meant
STEPS = 60
MODEL = {
    "model_type": "llama",
    **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "vocab_size": 61},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": False},
}


RUNTIMES = {"torchtitan": "torch", "megatron": "megatron"}


def order(
    folder: Path, act: str, number: int, place: dict[str, Any], pause_s: float = 0.0, to: str = "torchtitan"
) -> JobOrder:
    model = folder / "model.json"
    model.write_text(json.dumps(MODEL))
    command = [sys.executable, str(Path(__file__).with_name("trainer.py")), str(STEPS), str(pause_s), to]
    environment = {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    run = {"command": command, "environment": environment, "runtime": RUNTIMES[to]}
    spec = {"model": str(model), "batch": 8, "seq": 16, "tokens": 8.0 * 16 * STEPS, "run": run}
    return JobOrder(f"o-{number}-j1-{MARK}", act, "j1", spec, place)


ONE, TWO = {"domains": ["lyon"], "gpus": [1]}, {"domains": ["oslo"], "gpus": [2]}


def test_a_job_that_ran_is_told_the_plan_that_it_ran_under(tmp_path: Path):
    engine, runs = MemoryEngine(), tmp_path / "runs"
    actuator = BatchActuator(engine, runs, cluster_file(tmp_path))
    last: Any = None
    for number, place in enumerate((ONE, TWO, ONE)):
        given = order(tmp_path, BEGIN, number, place)
        launch = actuator._launch(given, runs / "j1", document := actuator._planned(given))
        before = launch.environment.get("HIPPO_PLAN_BEFORE")
        assert (None if before is None else json.loads(Path(before).read_text())) == last
        _note_begun(runs / "j1", f"o-{number}-j1-{MARK}")
        last = json.loads(json.dumps(document))
    given = order(tmp_path, BEGIN, 8, TWO)
    actuator._launch(given, runs / "j1", actuator._planned(given))  # which its engine refused: nothing ran under it
    given = order(tmp_path, BEGIN, 9, TWO)
    launch = actuator._launch(given, runs / "j1", actuator._planned(given))
    assert json.loads(Path(launch.environment["HIPPO_PLAN_BEFORE"]).read_text()) == last
    for wrong in ("jax", ["jax"]):
        refused = replace(order(tmp_path, BEGIN, 9, ONE), spec={"run": {"command": ["a"], "runtime": wrong}})
        answer = actuator.carry_out(refused)
        assert not answer.ok
        assert "run.runtime" in answer.told


def test_a_plan_that_was_never_begun_is_none_that_a_job_ran_under(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its engine had no room for it in time, the first time of all and later."""
    engine, runs = MemoryEngine(), tmp_path / "runs"
    actuator = BatchActuator(engine, runs, cluster_file(tmp_path))
    ran = runs / "j1" / "ran.json"
    for number, place, begins in ((1, ONE, False), (2, TWO, True), (3, ONE, False)):
        with monkeypatch.context() as patched:
            if not begins:
                patched.setattr(batch, "BEGINS_WITHIN_S", 0.0)
                patched.setattr(engine, "jobs", lambda: ())
            asked = order(tmp_path, BEGIN, number, place)
            run = {"command": ["sleep", "100", "0"], "runtime": "torch"}
            assert actuator.carry_out(replace(asked, spec={**asked.spec, "run": run})).ok is begins
        assert ran.exists() is (number > 1)
    assert json.loads(ran.read_text())["pipelines"] != json.loads((runs / "j1" / "plan.json").read_text())["pipelines"]


def test_who_cannot_run_there_runs_on_where_it_is(tmp_path: Path):
    engine = MemoryEngine()
    actuator = BatchActuator(engine, tmp_path / "runs", cluster_file(tmp_path))
    spec = {"devices": 2, "duration_s": 1e4, "run": {"command": ["run", "600.0", "0"]}}
    first = replace(order(tmp_path, BEGIN, 1, ONE), spec=spec)
    assert actuator.carry_out(first).ok
    moved = replace(order(tmp_path, RESIZE, 2, TWO), spec=spec | {"run": {"command": []}})
    assert not actuator.carry_out(moved).ok
    (seen,) = actuator.seen()
    assert (seen.key, seen.state) == (first.key, RUNNING)


@pytest.mark.slow
@pytest.mark.parametrize("to", RUNTIMES)
@pytest.mark.parametrize("engine", [by_slurm, by_ray])
def test_a_relaunch_goes_on_from_its_checkpoint_under_another_plan(
    engine: Callable[[Path], AbstractContextManager[ServedBy]], to: str, tmp_path: Path
):
    with engine(tmp_path) as site:
        actuator: Actuator = site.actuator
        home = site.folder / "j1"

        def losses() -> list[dict[str, float]]:
            path = home / "losses.jsonl"
            return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

        answer = actuator.carry_out(order(tmp_path, BEGIN, 1, ONE, 0.3, to))
        assert answer.ok, answer.told
        until(lambda: len(losses()) > 12, 120.0)
        answer = actuator.carry_out(order(tmp_path, RESIZE, 2, TWO, to=to))
        assert answer.ok, answer.told
        until(lambda: actuator.seen()[0].state == DONE, 180.0)
        found = losses()
        before, after = (json.loads((home / f"{name}.json").read_text()) for name in ("before", "plan"))
        assert before["pipelines"] != after["pipelines"]
        actuator.close()
    alone = tmp_path / "alone"
    alone.mkdir()
    train(STEPS, alone, to=to)
    expected = [json.loads(line)["loss"] for line in (alone / "losses.jsonl").read_text().splitlines()]
    begun, again = sorted({each["first"] for each in found})
    left = max(each["step"] for each in found if each["first"] == begun)
    assert (begun, again % EVERY) == (0, 0)
    assert again <= left + 1 <= again + EVERY, "it goes on from the last checkpoint"
    assert {each["step"] for each in found} == set(range(STEPS))
    assert [each["loss"] for each in found] == pytest.approx([expected[int(each["step"])] for each in found], abs=1e-6)
