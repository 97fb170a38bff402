"""A checkpoint that would lose something is refused."""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hippo.errors import InputError
from hippo.front_door.running import Checkpoints, job_of, trained
from hippo.plan.plan import Sync
from hippo.run import checkpoint, saving
from hippo.run.job import RunJob, RunOptions, check_saving
from hippo.run.model.reference import losses
from hippo.run.model.stage import Part, StageSettings, settings_of
from hippo.run.model.store import Snapshot, load
from hippo.run.run import Crew, Here, run
from hippo.run.saving import Saver, Saving
from hippo.run.version import Version

from ..judges.local_sgd_replicas import local_losses
from .worlds import GPT2, PLANS, TWINS, problem


def test_a_sum_under_way_between_replicas_is_not_saved():
    model, plan = PLANS["unlike shares"]
    late = RunOptions(outer_late=1)
    alone = replace(plan, sync=Sync("local_sgd", 2))
    check_saving(RunJob(problem(model), alone), source="plan.json")
    for one in (alone, replace(alone, pipelines=alone.pipelines[:1])):  # which another may be told to join
        with pytest.raises(InputError, match="--outer-late: an outer sum may be under way"):
            check_saving(RunJob(problem(model), one, late), source="plan.json")


@pytest.mark.parametrize(
    "name",
    ["unlike shares", *[pytest.param(each, marks=pytest.mark.slow) for each in ("two lanes a domain", "everything")]],
)
def test_replicas_that_train_alone_go_on_from_their_checkpoint_as_if_they_had_never_ended(name: str, tmp_path: Path):
    """Saved between two outer steps, where all have weights of their own; and of other replicas nobody goes on."""
    model, plan = PLANS[name]
    alone = replace(plan, sync=Sync("local_sgd", 3))
    given = replace(problem(model), allow_local_sgd=True)
    job = RunJob(given, alone, RunOptions(steps=7, precision="fp64", timeout_s=20.0))
    whole = list(local_losses(job, settings_of(job)))
    first = run(replace(job, options=replace(job.options, steps=4)), saving=Saving(tmp_path, 4))
    saved = checkpoint.last(tmp_path, model)
    assert (saved.step, saved.replicas) == (4, len(plan.pipelines))
    resumed = replace(job.options, steps=3, first_step=5, resume_from=str(saved.folder))
    then = run(replace(job, options=resumed))
    assert [step.loss for step in (*first.steps, *then.steps)] == pytest.approx(whole, rel=1e-9)
    given_up = job_of(given, plan, job.options, checkpoints=Checkpoints(tmp_path, resume=True))
    with pytest.raises(InputError, match=r"replicas: is of 2 replicas that train alone \(got 'one set of weights'\)"):
        trained(given_up, place=Here(), checkpoints=Checkpoints(tmp_path, resume=True))


def test_replicas_that_train_alone_begin_from_one_set_of_weights(tmp_path: Path):
    """Trained together for two steps, then apart: as replicas of which each had made these."""
    model, plan = PLANS["unlike shares"]
    given = replace(problem(model), allow_local_sgd=True)
    together = RunJob(given, plan, RunOptions(steps=2, precision="fp64", timeout_s=20.0))
    run(together, saving=Saving(tmp_path, 2))
    apart = replace(plan, sync=Sync("local_sgd", 3))
    options = replace(together.options, steps=4)
    job = job_of(given, apart, options, checkpoints=Checkpoints(tmp_path, resume=True))
    found = [step.loss for step in run(job).steps]
    settings = settings_of(together)
    expected = list(local_losses(replace(job, options=replace(job.options, steps=6)), settings, together=2))
    assert found == pytest.approx(expected[2:], rel=1e-9)


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="this system limits no file's size")
def test_a_disk_that_is_full_ends_no_training(tmp_path: Path):
    """Files of processes that start while the limit holds may have 20 kB, a layer has more: the system refuses to write
    on, as on a full disk. The checkpoint before stays, what was half written goes, and losses are those of any run."""
    model, plan = PLANS["stages"]
    job = RunJob(problem(model), plan, RunOptions(steps=4, precision="fp64", timeout_s=20.0))
    run(replace(job, options=replace(job.options, steps=1)), saving=Saving(tmp_path))
    missed: list[tuple[int, str]] = []
    often = Saving(tmp_path, 2, missed=lambda step, why: missed.append((step, why)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        found = run(job, saving=often)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert missed == [(2, "File too large"), (4, "File too large")]
    assert checkpoint.last(tmp_path, model).step == 1
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    expected = list(losses(job.problem, settings_of(job), steps=4, micro_batch=2))
    assert [step.loss for step in found.steps] == pytest.approx(expected, rel=1e-9)


class FakeCrew:
    """Processes that have copied their layers, and say that they are written when the test lets them."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.told: dict[int, dict[str, Any]] = {}

    def say(self, whom: Iterable[int], **told: Any) -> None:
        self.asked += [{"whom": tuple(whom), **told}]

    def said(self, key: str, whom: Sequence[int], *, number: int | None = None) -> bool:
        assert key == "saved"
        return all(each in self.told and self.told[each]["saved"] == number for each in whom)

    def gather(self, key: str, whom: Sequence[int], *, number: int | None = None) -> list[dict[str, Any]]:
        if not self.said(key, whom, number=number):
            raise LookupError("nobody waits for ever")
        return [self.told.pop(each) for each in whom]

    def writes(self, process: int, *, why: str = "") -> None:
        """The process has written its half of the layers for what it was asked last."""
        asked = self.asked[-1]
        names = [f"layer-{layer}.part-0-of-1.pt" for layer in range(3 * process, 3 * process + 3)]
        for name in names:
            Path(asked["save"], name).write_bytes(b"weights")
        digest = hashlib.sha256(b"weights").hexdigest()
        self.told[process] = {"saved": asked["number"], "why": why, "files": dict.fromkeys(names, digest)}


@pytest.fixture
def crew() -> FakeCrew:
    return FakeCrew()


VERSION = Version.first(RunJob(problem(PLANS["stages"][0]), PLANS["stages"][1]))


def saver_of(crew: FakeCrew, folder: Path, missed: list[tuple[int, str]]) -> Saver:
    return Saver(crew, Saving(folder, 2, (5.0,), lambda step, why: missed.append((step, why))))


def test_a_checkpoint_gets_its_name_when_all_have_written(crew: FakeCrew, tmp_path: Path):
    missed: list[tuple[int, str]] = []
    saver, model = saver_of(crew, tmp_path, missed), PLANS["stages"][0]
    assert [saver.is_due(step, last=step == 5) for step in (1, 2, 3, 4, 5)] == [False, True, False, True, True]
    saver.begin(VERSION, 2, [4.0, 3.0])
    crew.writes(0)
    saver.poll()
    assert saver.under_way is not None
    assert [path.name for path in tmp_path.iterdir()] == [".step-00000002.part"]
    crew.writes(1)
    saver.poll()
    assert saver.under_way is None
    found = checkpoint.last(tmp_path, model)
    assert (found.step, found.losses) == (2, (5.0, 4.0, 3.0))
    saver.begin(VERSION, 4, [4.0, 3.0])
    crew.writes(0)
    crew.told[1] = {"saved": 2, "why": "", "files": {}}
    saver.poll()
    assert missed == [(4, "nobody wrote layer 3")], "it is not whole, and the one before stays the newest"
    assert checkpoint.last(tmp_path, model) == found
    (found.folder / "layer-1.part-0-of-1.pt").write_bytes(b"weighty")  # as long, and something else
    with pytest.raises(InputError, match="is not what was written: its digest differs"):
        checkpoint.last(tmp_path, model)


def test_what_a_lost_process_was_writing_is_given_up_and_what_others_write_is_not(crew: FakeCrew, tmp_path: Path):
    missed: list[tuple[int, str]] = []
    saver = saver_of(crew, tmp_path, missed)
    saver.begin(VERSION, 2, [4.0])
    saver.leaves([7])
    assert saver.under_way is not None
    saver.leaves([1])
    assert (saver.under_way, missed, list(tmp_path.iterdir())) == (None, [(2, "a process was lost that wrote it")], [])


def test_when_a_run_fails_what_is_under_way_is_finished_if_it_can_be(
    crew: FakeCrew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(saving, "SALVAGE_S", 0.1)
    missed: list[tuple[int, str]] = []
    saver = saver_of(crew, tmp_path, missed)
    saver.begin(VERSION, 2, [4.0])
    crew.writes(0)
    crew.writes(1)
    saver.salvage([])
    assert checkpoint.last(tmp_path, PLANS["stages"][0]).step == 2
    saver.begin(VERSION, 4, [4.0])
    crew.writes(0)
    saver.salvage([1])
    assert missed == [(4, "the run failed while it was written")]
    saver.begin(VERSION, 6, [4.0])
    saver.salvage([])  # nobody says anything any more
    assert missed[1:] == [(6, "the run failed while it was written")]
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


def test_layers_that_are_written_are_those_of_the_border(tmp_path: Path):
    """A copy does not follow what training makes of the weights; its digest is that of its file."""
    part = Part.new(PLANS["stages"][0], [(0, 2)], StageSettings(1))
    snapshot, before = Snapshot(part), part.weights[1]["down"].value.detach().clone()
    snapshot.settle()
    with torch.no_grad():
        part.weights[1]["down"].value.add_(1.0)
    digests = snapshot.write(tmp_path)
    assert digests == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    other = Part.new(PLANS["stages"][0], [(0, 2)], StageSettings(1))
    load(other, tmp_path)
    assert torch.equal(other.weights[1]["down"].value, before)


class _LosesTheFirst(Crew):
    """Its first process dies in the second step: when all have agreed, or as they are told to write a checkpoint."""

    dies_at: tuple[str, int]

    def say(self, whom: Iterable[int], **told: Any) -> None:
        """As usual."""
        key, step = self.dies_at
        if told.get(key) == step and 0 in self.processes:
            self.processes[0].kill()
            self.processes[0].wait()
        super().say(whom, **told)


@pytest.mark.parametrize(
    ("steps", "dies_at"),
    [(3, ("update", 2)), pytest.param(2, ("update", 2), marks=pytest.mark.slow), (2, ("number", 2))],
)
def test_a_checkpoint_that_is_due_as_a_replica_is_lost_is_written_by_the_other(
    steps: int, dies_at: tuple[str, int], tmp_path: Path
):
    job = RunJob(problem(GPT2), TWINS, RunOptions(steps=steps, precision="fp64", timeout_s=20.0))
    missed: list[int] = []
    found = run(
        job,
        saving=Saving(tmp_path, 1, missed=lambda step, why: missed.append(step)),
        crew_of=type("", (_LosesTheFirst,), {"dies_at": dies_at}),
    )
    assert len(found.workers) == 1
    layers = {f"layer-{layer}.part-0-of-1.pt" for layer in range(GPT2.num_layers)}
    for folder in tmp_path.iterdir():
        assert layers <= {path.name for path in folder.iterdir()}, folder.name
    assert checkpoint.last(tmp_path, GPT2).step == steps
    assert 2 not in missed


def test_a_disk_that_is_full_as_the_last_file_is_written_ends_no_training(
    crew: FakeCrew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    missed: list[tuple[int, str]] = []
    saver = Saver(crew, Saving(tmp_path, 1, missed=lambda step, why: missed.append((step, why))))
    saver.begin(VERSION, 3, [3.0, 2.5, 2.0])
    for process in (0, 1):
        crew.writes(process)

    def full(path: Path, text: str) -> None:
        raise InputError("cannot write: No space left on device", source=str(path), remedy="make room on that disk")

    monkeypatch.setattr(checkpoint, "write_whole", full)
    saver.poll()
    assert [step for step, _ in missed] == [3]
    assert "No space left" in missed[0][1]
    assert list(tmp_path.iterdir()) == []


def test_what_is_under_way_as_a_run_ends_leaves_nothing(crew: FakeCrew, tmp_path: Path):
    saver = Saver(crew, Saving(tmp_path, 1))
    saver.begin(VERSION, 3, [3.0])
    assert list(tmp_path.iterdir()) != []
    saver.end()
    assert list(tmp_path.iterdir()) == []


def test_one_run_at_a_time_saves_in_a_folder(tmp_path: Path):
    with (
        checkpoint.held(tmp_path),
        pytest.raises(InputError, match="another run saves there"),
        checkpoint.held(tmp_path),
    ):
        pass
    with checkpoint.held(tmp_path):
        pass
