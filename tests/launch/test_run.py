"""Runs of real processes: what they tell, and how they end when one dies, hangs, or saves."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hippo.errors import InputError
from hippo.launch import checkpoint, fits
from hippo.launch.executor.settings import settings_of
from hippo.launch.fits import check_job
from hippo.launch.job import Job, Options
from hippo.launch.model.reference import losses
from hippo.launch.predict import Network, predicted_s
from hippo.launch.run import RunError, Saving, Step, run
from hippo.plan.plan import Compression, Plan, Relay
from hippo.problem.model import Experts, gpt_model

from .worlds import PLANS, SEQ, pipelines, problem


def seats() -> list[int]:
    """Processes of seats that this process started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status, words = (entry / "stat").read_text(), (entry / "cmdline").read_bytes()
        except OSError:
            continue
        parent = int(status.rpartition(")")[2].split()[1])
        if parent == os.getpid() and b"launch.executor.seat" in words:
            found.append(int(entry.name))
    return sorted(found)


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    yield
    assert seats() == []


def job(**options: object) -> Job:
    model, plan = PLANS["stages"]
    given = {"steps": 3, "stand_in": True, "timeout_s": 20.0, **options}
    return Job(problem(model), plan, Options(**given))  # type: ignore[arg-type]


def test_a_stand_in_run_tells_every_operation_of_every_step():
    asked = job(steps=2)
    result = run(asked)
    assert [step.number for step in result.steps] == [1, 2]
    for rows in result.steps[-1].operations:
        assert [row[0] for row in rows].count(0) == 4
        assert all(start <= end for *_, start, end in rows)
        assert [row[0] for row in rows][-2:] == [3, 4]
    assert predicted_s(asked, Network(emulated=False), result=result) <= result.steps[-1].seconds


@pytest.mark.parametrize(
    ("sent", "told"), [(signal.SIGKILL, "ended by signal 9"), (signal.SIGSTOP, "nothing moved for")]
)
def test_a_process_that_dies_or_hangs_ends_the_run(sent: int, told: str):
    asked, began = job(steps=1000, timeout_s=2.0), []

    def strike(step: Step) -> None:
        if step.number == 1:
            os.kill(seats()[1], sent)
            began.append(time.monotonic())

    with pytest.raises(RunError, match=told) as error:
        run(asked, watch=strike)
    assert time.monotonic() - began[0] < 2.0 + 8.0
    assert "rank 1 (stage 1, b)" in str(error.value)


def test_a_checkpoint_is_whole_after_a_kill_and_another_cut_goes_on_from_it(tmp_path: Path):
    model, plan = PLANS["stages"]
    options = Options(steps=2, precision="fp64", timeout_s=20.0)
    asked = Job(problem(model), plan, options)

    def strike(step: Step) -> None:
        if step.number == 2:
            (tmp_path / ".step-00000002.part").mkdir()  # what a kill amid saving leaves
            os.kill(seats()[0], signal.SIGKILL)

    with pytest.raises(RunError):
        run(asked, watch=strike, saving=Saving(tmp_path, every=1))
    found = checkpoint.last(tmp_path, model)
    assert found.step == 1
    alone = Plan(pipelines((4, [("b", 0, 6, 1, 1)])), 2)
    again = replace(options, steps=1, first_step=2, resume_from=str(found.folder))
    on = run(replace(asked, plan=alone, options=again), saving=Saving(tmp_path, every=1, losses=found.losses))
    one_process = list(losses(asked.problem, settings_of(asked), steps=2))
    assert [*found.losses, on.steps[0].loss] == pytest.approx(one_process, abs=1e-9)
    assert checkpoint.last(tmp_path, model).losses == (*found.losses, on.steps[0].loss)
    assert not list(tmp_path.glob(".step-*"))


def test_what_cannot_be_run_is_refused_before_anything_starts():
    asked = replace(job(), options=Options())
    mixed = gpt_model("moe", layers=4, hidden=32, heads=4, vocab=61, seq=SEQ, experts=Experts(4, 2, 16))
    plan = asked.plan
    for broken, key in (
        (replace(asked, problem=problem(mixed)), "problem.model"),
        (replace(asked, plan=replace(plan, relays=(Relay("a", "b", "c"),))), "relays"),
        (replace(asked, plan=replace(plan, compression=(Compression("a", "b", "fp4"),))), "compression"),
        (replace(asked, plan=replace(plan, context_parallel=2)), "context_parallel"),
    ):
        with pytest.raises(InputError, match=key):
            check_job(broken, source="plan.json")
    check_job(asked, source="plan.json")
    for options in (Options(order="no"), Options(precision="no"), Options(backward="no")):
        with pytest.raises(InputError, match="unknown"):
            check_job(replace(asked, options=options), source="plan.json")


def test_a_model_that_this_machine_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fits, "available_bytes", lambda: 1e8)
    with pytest.raises(InputError, match="needs .* GB on this machine"):
        check_job(replace(job(), options=Options()), source="plan.json")
    check_job(job(), source="plan.json")  # stand-ins need next to nothing


def test_checkpoints_of_another_model_and_missing_ones_are_refused(tmp_path: Path):
    model, _ = PLANS["stages"]
    with pytest.raises(InputError, match="no whole checkpoint"):
        checkpoint.last(tmp_path, model)
    hidden = checkpoint.begin(tmp_path, 7)
    checkpoint.commit(hidden, model, 7, [1.0])
    assert checkpoint.last(tmp_path, model).losses == (1.0,)
    with pytest.raises(InputError, match="another model"):
        checkpoint.last(tmp_path, PLANS["everything"][0])
    (tmp_path / "step-00000007" / "meta.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        checkpoint.last(tmp_path, model)


def test_only_the_newest_checkpoints_stay(tmp_path: Path):
    model, _ = PLANS["stages"]
    for step in (1, 2, 3):
        checkpoint.commit(checkpoint.begin(tmp_path, step), model, step, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]
