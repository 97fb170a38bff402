"""Runs of real processes: what they tell, and how they end when one dies, hangs, or saves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty
from typing import Any

import pytest

from hippo.emulate.emulation import DomainPlace as Domicile
from hippo.emulate.emulation import Emulation
from hippo.errors import InputError
from hippo.plan.plan import Compression, Plan, Relay, ScheduleChoice, Sync
from hippo.problem.load import load_model
from hippo.problem.model import Experts, gpt_model
from hippo.run import checkpoint, fits
from hippo.run import run as launcher
from hippo.run.change import PlanChange, Planned
from hippo.run.control import Desk
from hippo.run.fits import check_job, refuse_model
from hippo.run.job import RunJob, RunOptions
from hippo.run.journal import Journal, read_journal
from hippo.run.lost import RunError
from hippo.run.model.reference import losses
from hippo.run.model.stage import settings_of
from hippo.run.network import RunNetwork
from hippo.run.predict import predicted_s
from hippo.run.run import Crew, Emulated, Here, RunStep, run
from hippo.run.saving import Saving

from ..conftest import ROOT
from ..processes import started
from .worlds import GPT2, PLANS, SEQ, TWINS, pipelines, problem

ALONE = Plan(pipelines((4, [("b", 0, 6, 1, 1)])), 2)
"""One process has all layers."""


def workers() -> list[int]:
    """Processes of workers that this process started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status, words = (entry / "stat").read_text(), (entry / "cmdline").read_bytes()
        except OSError:
            continue
        parent = int(status.rpartition(")")[2].split()[1])
        if parent == os.getpid() and b"hippo.run.process" in words:
            found.append(int(entry.name))
    return sorted(found)


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    yield
    assert workers() == []


def job(**options: object) -> RunJob:
    model, plan = PLANS["stages"]
    given = {"steps": 3, "stand_in": True, "timeout_s": 20.0, **options}
    return RunJob(problem(model), plan, RunOptions(**given))  # type: ignore[arg-type]


def test_a_loss_that_is_no_number_ends_the_run():
    asked = job(steps=4, stand_in=False, learning_rate=1e3)
    with pytest.raises(RunError, match=r"the loss of step [2-4] is (nan|inf)\. To fix: a lower --learning-rate"):
        run(replace(asked, plan=ALONE))


@pytest.mark.slow  # a quick test of hippo.run looks at every operation of the last step
def test_a_stand_in_run_tells_every_operation_of_every_step():
    asked = job(steps=2)
    result = run(asked)
    assert [step.number for step in result.steps] == [1, 2]
    for rows in result.steps[-1].operations:
        assert [row[0] for row in rows].count(0) == 4
        assert all(start <= end for *_, start, end in rows)
        assert [row[0] for row in rows][-2:] == [3, 4]
    assert predicted_s(asked, RunNetwork(emulated=False), result=result.stretches[0]) <= result.steps[-1].seconds


@pytest.mark.parametrize("all_reduce", ["two-level", pytest.param("ring", marks=pytest.mark.slow)])
def test_lanes_that_stand_in_are_processes_of_their_own(all_reduce: str):
    model, plan = PLANS["two lanes a domain"]
    asked = RunJob(problem(model), replace(plan, sync=Sync(all_reduce=all_reduce)), replace(job().options, lanes=True))
    result = run(asked)
    assert [(one.domain, one.lane) for one in result.workers] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    for rows in result.steps[-1].operations:
        assert [row[0] for row in rows].count(0) == 2


@pytest.mark.parametrize(
    ("sent", "told", "timeout_s", "within_s"),
    [
        pytest.param(signal.SIGKILL, "ended by signal 9", 60.0, 40.0, marks=pytest.mark.slow),
        (signal.SIGSTOP, "nothing moved for 3 s", 3.0, 43.0),
    ],
)
def test_a_process_that_dies_or_hangs_ends_the_run(sent: int, told: str, timeout_s: float, within_s: float):
    asked, began = job(steps=1000, timeout_s=timeout_s), []

    def strike(step: RunStep) -> None:
        if step.number == 1:
            os.kill(workers()[1], sent)
            began.append(time.monotonic())

    with pytest.raises(RunError, match=told) as error:
        run(asked, watch=strike)
    assert time.monotonic() - began[0] < within_s
    assert "rank 1 (stage 1, b)" in str(error.value)


STAGES_OF_TWO = Plan(pipelines((2, [("a", 0, 3, 1, 2), ("b", 3, 6, 1, 2)])), 2)
"""One pipeline, two lanes in each stage."""


@pytest.mark.parametrize(
    ("name", "rank", "workers_", "waves"),
    [
        pytest.param("two lanes a domain", 0, [4, 3], [2, 3], marks=pytest.mark.slow),  # the other lane stays
        pytest.param("two lanes a domain", 2, [4, 3], [3, 2], marks=pytest.mark.slow),
        ("two lanes in stages", 1, [4, 2], [4]),
        (
            "unlike shares",
            1,
            [4, 1],
            [8],
        ),  # who is left keeps its layers, cut otherwise without tp
    ],
)
def test_where_a_replica_is_lost_the_other_goes_on_with_the_whole_batch(
    name: str, rank: int, workers_: list[int], waves: list[int]
):
    model, plan = (PLANS | {"two lanes in stages": (GPT2, STAGES_OF_TWO)})[name]
    asked = RunJob(problem(model), plan, RunOptions(steps=5, precision="fp64", timeout_s=20.0))

    def strike(step: RunStep) -> None:
        if step.number == 2:
            os.kill(workers()[rank], signal.SIGKILL)

    found = run(asked, watch=strike)
    expected = list(losses(asked.problem, settings_of(asked), steps=5, micro_batch=1))
    assert [step.loss for step in found.steps] == pytest.approx(expected, rel=1e-9)
    assert [len(each.workers) for each in found.stretches] == workers_
    lost = found.stretches[1].change
    assert lost is not None
    assert (lost.after_step, "ended by signal 9" in lost.lost) == (2, True)
    assert [line.num_micro_batches for line in found.stretches[1].job.plan.pipelines] == waves


def test_who_dies_while_weights_change_is_lost_after_that_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """All had agreed, so the others change theirs: the step is made, told of as it was, and is not made again."""
    asked = RunJob(problem(GPT2), TWINS, RunOptions(steps=4, precision="fp64", timeout_s=20.0))
    say = Crew.say

    def killing(crew: Crew, whom: Iterable[int], **told: Any) -> None:
        if told.get("update") == 2:
            crew.processes[1].kill()
            crew.processes[1].wait()
        say(crew, whom, **told)

    monkeypatch.setattr(Crew, "say", killing)
    desk = Desk(asked, Journal(tmp_path / "journal"))
    found = run(asked, watch=desk.made, changes=desk, saving=Saving(tmp_path / "saved", every=2))
    desk.close()
    written = [line["kind"] for line in read_journal(tmp_path / "journal")]
    assert written == ["begun", "step", "step", "lost", "step", "step"]
    assert checkpoint.last(tmp_path / "saved", GPT2).step == 4
    assert len(list((tmp_path / "saved").iterdir())) == 2
    expected = list(losses(asked.problem, settings_of(asked), steps=4, micro_batch=2))
    assert [step.loss for step in found.steps] == pytest.approx(expected, rel=1e-9)
    assert [[step.number for step in each.steps] for each in found.stretches] == [[1, 2], [3, 4]]
    assert [len(rows) > 0 for rows in found.steps[1].operations] == [True, False]


@pytest.mark.parametrize("word", [pytest.param("prepared", marks=pytest.mark.slow), "handed"])
def test_who_dies_before_the_first_step_of_those_that_are_left_is_lost_too(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that is cut by tensor parallelism dies, and another one once the others have made ready, and hold their
    layers cut otherwise."""
    lines = pipelines((2, [("a", 0, 6, 2, 1)]), (1, [("b", 0, 6, 1, 1)]), (1, [("b", 0, 6, 1, 1)]))
    asked = RunJob(problem(GPT2), Plan(lines, 2), RunOptions(steps=5, precision="fp64", timeout_s=20.0))
    gather, killed = Crew.gather, list[int]()

    def killing(crew: Crew, key: str, whom: Sequence[int], **terms: Any) -> list[dict[str, Any]]:
        told = gather(crew, key, whom, **terms)
        if key == word and terms["number"] == 1 and not killed:
            killed.append(2)
            crew.processes[2].kill()
        return told

    def strike(step: RunStep) -> None:
        if step.number == 2:
            os.kill(workers()[0], signal.SIGKILL)

    monkeypatch.setattr(Crew, "gather", killing)
    found = run(asked, watch=strike)
    expected = list(losses(asked.problem, settings_of(asked), steps=5, micro_batch=2))
    assert [step.loss for step in found.steps] == pytest.approx(expected, rel=1e-9)
    assert [len(each.workers) for each in found.stretches][-1] == 1
    assert killed


def test_who_agreed_on_a_step_that_is_given_up_agrees_anew(tmp_path: Path):
    """What it said of the first try is not taken for the second's: its loss was that of fewer sequences."""
    crew = Crew(tmp_path, Here(), 20.0)
    with started(["sleep", "1000"]) as one:
        crew.processes, crew._workers = {0: one}, dict(enumerate(job().work.workers))
        crew.say = lambda whom, **told: None  # type: ignore[method-assign]
        for told in ({"agreed": 3, "loss": 1.0}, {"aborted": 3}):
            crew._heard.put((0, told))
        assert crew.abort(3, [0]) == set()
        assert not crew.said("agreed", [0], number=3)


def test_a_launcher_that_is_killed_leaves_nothing(tmp_path: Path):
    """Processes end when its pipe does, and take the run's folder with them."""
    words = "from tests.run.test_run import *; run(job(steps=1000), watch=lambda step: print(step.number, flush=True))"
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    with started([sys.executable, "-c", words], stdout=subprocess.PIPE, env=environment) as launcher:
        assert launcher.stdout is not None
        with launcher.stdout as lines:
            assert lines.readline() == b"1\n"
        assert len(list(tmp_path.iterdir())) == 1
        launcher.kill()
        launcher.wait()
        until_s = time.monotonic() + 120.0
        while list(tmp_path.iterdir()) and time.monotonic() < until_s:
            time.sleep(0.05)
        assert not list(tmp_path.iterdir())


def test_who_was_killed_is_named_though_a_neighbour_tells_of_it_first(tmp_path: Path):
    crew = Crew(tmp_path, Here(), 20.0)
    (tmp_path / "log-1").write_text("")
    with started(["sleep", "1000"]) as one, started(["sleep", "1000"]) as two:
        crew.processes = {0: one, 1: two}
        crew._workers = dict(enumerate(job().work.workers))
        crew._heard.put((0, {"failed": "RuntimeError: Connection closed by peer"}))
        two.kill()
        two.wait()
        with pytest.raises(RunError, match=r"rank 1 \(stage 1, b\) was ended by signal 9"):
            crew.gather("done", (0, 1))
        del crew.processes[1]
        crew._heard.put((0, {"failed": "ValueError: of its own"}))
        with pytest.raises(RunError, match=r"rank 0 \(stage 0, a\) failed: ValueError: of its own"):
            crew.gather("done", (0,))


def test_a_checkpoint_is_whole_after_a_kill_and_another_cut_goes_on_from_it(tmp_path: Path):
    """Checkpoints are written beside the next step: that of the one before the kill may be lost, none before it is."""
    model, plan = PLANS["stages"]
    options = RunOptions(steps=3, precision="fp64", timeout_s=20.0)
    asked = RunJob(problem(model), plan, options)

    def strike(step: RunStep) -> None:
        if step.number == 3:
            (tmp_path / ".step-00000003.part").mkdir()  # what a kill amid saving leaves
            os.kill(workers()[0], signal.SIGKILL)

    with pytest.raises(RunError, match=r"rank 0 \(stage 0, a\) was ended by signal 9"):
        run(asked, watch=strike, saving=Saving(tmp_path, every=1))
    found = checkpoint.last(tmp_path, model)
    assert found.step in (1, 2)
    again = replace(options, steps=1, first_step=found.step + 1, resume_from=str(found.folder))
    on = run(replace(asked, plan=ALONE, options=again), saving=Saving(tmp_path, every=1, losses=found.losses))
    one_process = list(losses(asked.problem, settings_of(asked), steps=found.step + 1))
    assert [*found.losses, on.steps[0].loss] == pytest.approx(one_process, abs=1e-9)
    assert checkpoint.last(tmp_path, model).losses == (*found.losses, on.steps[0].loss)
    assert not list(tmp_path.glob(".step-*"))


def test_what_cannot_be_run_is_refused_before_anything_starts():
    asked = replace(job(), options=RunOptions())
    mixed = gpt_model("moe", layers=4, hidden=32, heads=4, vocab=61, seq=SEQ, experts=Experts(4, 2, 16))
    plan = asked.plan
    spread = replace(plan, relays=(Relay("a", "b", "c"),))
    for broken, key in (
        (replace(asked, problem=problem(mixed)), "problem.model"),
        (replace(asked, plan=spread), r"relays\[0\].via: unknown domain 'c'"),
        (replace(asked, plan=replace(plan, compression=(Compression("a", "b", "fp4"),))), "compression"),
        (replace(asked, plan=replace(plan, context_parallel=2)), "context_parallel"),
    ):
        with pytest.raises(InputError, match=key):
            check_job(broken, source="plan.json")
    check_job(asked, source="plan.json")
    for options in (RunOptions(order="no"), RunOptions(precision="no"), RunOptions(backward="no")):
        with pytest.raises(InputError, match="unknown"):
            check_job(replace(asked, options=options), source="plan.json")


def test_parts_of_blocks_that_cannot_be_run_are_named():
    sizes = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 64, "num_key_value_heads": 4, "head_dim": 8, "sliding_window": SEQ}
    words = {"gemma2": "norms behind attention", "olmo2": "norms over all heads", "gpt_oss": "mixtures of experts"}
    for kind, part in words.items():
        with pytest.raises(InputError, match=f"{part}.* are planned and simulated, not run"):
            refuse_model(load_model({"model_type": kind, "num_local_experts": 4, **sizes}), seq=SEQ)
    mistral = load_model({"model_type": "mistral", **sizes})
    refuse_model(mistral, seq=SEQ)
    with pytest.raises(InputError, match=f"windows of attention below the {SEQ + 1} tokens of a sequence"):
        refuse_model(mistral, seq=SEQ + 1)


def test_more_tokens_than_learned_positions_are_refused():
    asked = replace(job(), options=RunOptions())
    longer = replace(asked.problem, workload=replace(asked.problem.workload, seq=SEQ + 1))
    with pytest.raises(InputError, match=f"problem.workload.seq: exceeds the {SEQ} learned positions"):
        check_job(replace(asked, problem=longer), source="plan.json")
    check_job(replace(job(), problem=longer), source="plan.json")  # stand-ins look nothing up
    model, plan = PLANS["split backwards"]
    rotary = replace(longer, model=model)
    check_job(RunJob(rotary, plan, RunOptions()), source="plan.json")


def test_what_this_machine_lacks_is_refused(monkeypatch: pytest.MonkeyPatch):
    asked = replace(job(), options=RunOptions(device="cuda"))
    for there, enough in ((1, False), (2, True)):
        monkeypatch.setattr(fits, "_gpus", lambda there=there: there)
        if enough:
            fits.check_machine(asked)
        else:
            with pytest.raises(InputError, match="a GPU per process: 2, and this machine has 1"):
                fits.check_machine(asked)
    shared = replace(asked, options=replace(asked.options, device="shared"))
    monkeypatch.setattr(fits, "_gpu_bytes", lambda: 80e9)
    fits.check_machine(shared)
    monkeypatch.setattr(fits, "_gpu_bytes", lambda: 0.4e9)
    with pytest.raises(InputError, match="--device: needs 0.501 GB on one GPU, which has 0.4 GB"):
        fits.check_machine(shared)
    monkeypatch.setattr(fits, "_gpus", lambda: 0)
    with pytest.raises(InputError, match="--device: needs a GPU, and this machine has 0"):
        fits.check_machine(shared)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"needs torch.*\[run\]'"):
        fits.check_machine(job())


def test_a_domain_that_the_emulation_lacks_is_refused():
    domains = {name: Domicile(name, "10.77.0.1") for name in "ac"}
    around = Emulated(Emulation("three.yaml", "socket", domains, 0.0))
    with pytest.raises(InputError, match=r"stages\[1\].domain: is no domain .*'b'.* a, c;"):
        around.check(PLANS["stages"][1], source="plan.json")
    with pytest.raises(InputError, match="unknown domain 'b'"):
        around.interface("b")
    assert around.interface("a") == "wan0"


def test_a_model_that_this_machine_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fits, "available_bytes", lambda: 1e8)
    with pytest.raises(InputError, match="needs .* GB on this machine"):
        check_job(replace(job(), options=RunOptions()), source="plan.json")
    check_job(job(), source="plan.json")  # stand-ins need next to nothing


def saved(place: Path, step: int, *, seed: int = 0) -> Path:
    """A checkpoint of the plan "stages" with small files."""
    return checkpoint.commit(begun(place, step), PLANS["stages"][0], step, [1.0], seed=seed)


def begun(place: Path, step: int) -> Path:
    """A folder of a step of the plan "stages" with a file a layer."""
    hidden = checkpoint.begin(place, step)
    for layer in range(PLANS["stages"][0].num_layers):
        (hidden / f"layer-{layer}.part-0-of-1.pt").write_bytes(b"weights")
    return hidden


def test_checkpoints_of_another_model_and_missing_ones_are_refused(tmp_path: Path):
    model, _ = PLANS["stages"]
    with pytest.raises(InputError, match="no whole checkpoint"):
        checkpoint.last(tmp_path, model)
    saved(tmp_path, 7)
    assert checkpoint.last(tmp_path, model).losses == (1.0,)
    with pytest.raises(InputError, match="another model"):
        checkpoint.last(tmp_path, PLANS["everything"][0])


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (None, "{", "cannot be read"),
        (None, "[]", "no JSON object"),
        (None, "[" * 100_000, "cannot be read"),
        ("model", [], "'model' is"),
        ("losses", 3.0, "'losses' is"),
        ("losses", ["low"], "something else than numbers"),
        ("files", {"layer-0.part-0-of-1.pt": "big"}, "something else than sizes"),
        ("files", {"layer-9.part-0-of-1.pt": 7}, "is missing"),
        ("files", {"layer-0.part-0-of-1.pt": 7}, "lacks layer 1"),
        ("files", {"layer-0.part-0-of-1.pt": 8}, "has 7 bytes, not the 8"),
        ("step", 8, "its step is 8, its folder's 7"),
        ("seed", "one", "'seed' is"),
        ("sha256", [], "something else than digests"),
        ("sha256", {"layer-0.part-0-of-1.pt": 7}, "something else than digests"),
        ("sha256", {"layer-9.part-0-of-1.pt": "0"}, "not among its files"),
        ("sha256", {"layer-0.part-0-of-1.pt": "0"}, "its digest differs"),
    ],
)
def test_a_broken_checkpoint_is_refused(tmp_path: Path, key: str | None, value: object, told: str):
    meta = saved(tmp_path, 7) / "meta.json"
    meta.write_text(str(value) if key is None else json.dumps(json.loads(meta.read_text()) | {key: value}))
    with pytest.raises(InputError, match=told) as error:
        checkpoint.last(tmp_path, PLANS["stages"][0])
    assert "remove that folder" in str(error.value)


def test_a_checkpoint_says_its_seed(tmp_path: Path):
    saved(tmp_path, 7, seed=3)
    assert checkpoint.last(tmp_path, PLANS["stages"][0], seed=3).step == 7
    with pytest.raises(InputError, match="--seed: .* To fix: give --seed 3"):
        checkpoint.last(tmp_path, PLANS["stages"][0], seed=0)


def test_older_checkpoints_are_seen(tmp_path: Path):
    checkpoint.refuse_older(tmp_path / "new")
    (tmp_path / "step-00000001").mkdir()  # nothing in it
    checkpoint.refuse_older(tmp_path)
    saved(tmp_path, 7)
    with pytest.raises(InputError, match="holds checkpoints already"):
        checkpoint.refuse_older(tmp_path)


def test_while_a_step_is_written_anew_one_of_them_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model, _ = PLANS["stages"]
    found: list[int] = []

    def looking(one: Path, two: Path) -> None:
        rename(one, two)
        found.append(checkpoint.last(tmp_path, model).step)

    rename = os.replace
    saved(tmp_path, 7)
    (tmp_path / "step-00000006").mkdir()
    saved(tmp_path, 6)
    hidden = begun(tmp_path, 7)
    monkeypatch.setattr(checkpoint.os, "replace", looking)
    checkpoint.commit(hidden, model, 7, [2.0])
    assert found[-2:] == [7, 7]
    assert checkpoint.last(tmp_path, model).losses == (2.0,)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000006", "step-00000007"]


def test_only_the_newest_checkpoints_stay(tmp_path: Path):
    model, _ = PLANS["stages"]
    for step in (1, 2, 3):
        checkpoint.commit(checkpoint.begin(tmp_path, step), model, step, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]


def test_a_launcher_that_was_stopped_looks_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It wakes up late, before those who read what processes say do: nobody is silent for that."""
    crew = Crew(tmp_path, Here(), 5.0)
    heard: Iterator[Any] = iter([None, (1, {"done": 7})])
    clock = [100.0]

    class Stopped:
        def get(self, timeout: float) -> Any:
            if (found := next(heard)) is None:
                clock[0] += timeout + 60.0
                raise Empty
            return found

    monkeypatch.setattr(launcher.time, "monotonic", lambda: clock[0])
    crew._heard, crew.processes = Stopped(), {1: None}  # type: ignore[assignment, dict-item]
    assert crew.gather("done", [1], number=7) == [{"done": 7}]
    crew.processes = {}


@pytest.mark.parametrize("tp", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_message_that_never_comes_costs_a_step_and_nobody(tp: int, monkeypatch: pytest.MonkeyPatch):
    """All wait, those of a tensor-parallel group for its first rank; the step is made again over new connections. An
    order that is made ready meanwhile is done when it is due."""
    monkeypatch.setattr(launcher, "PROGRAM", "tests.run.broken_connection")
    monkeypatch.setenv("LOSES", json.dumps({"1": 6}))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    plan = Plan(pipelines((4, [("a", 0, 3, 1, 1), ("b", 3, 6, tp, 1)])), 2)
    asked = RunJob(problem(GPT2), plan, RunOptions(steps=5, precision="fp64", timeout_s=5.0))
    changes = Planned(PlanChange(replace(plan, schedule=ScheduleChoice("gpipe")), 4, order=1))
    found = run(asked, changes=changes)
    expected = list(losses(asked.problem, settings_of(asked), steps=5, micro_batch=2))
    assert [each.loss for each in found.steps] == pytest.approx(expected, rel=1e-9)
    broken, ordered = (each.change for each in found.stretches if each.change is not None)
    assert "waits for activations of wave" in broken.lost
    assert (ordered.order, ordered.after_step) == (1, 4)
    assert len(found.workers) == 1 + tp
