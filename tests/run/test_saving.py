"""A checkpoint that would lose something is refused."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import pytest

from hippo.errors import InputError
from hippo.plan.plan import Sync
from hippo.run import checkpoint
from hippo.run.job import RunJob, RunOptions, check_saving
from hippo.run.run import Saving, run

from .worlds import PLANS, problem


def test_replicas_that_train_alone_are_not_saved():
    model, plan = PLANS["unlike shares"]
    check_saving(RunJob(problem(model), plan), source="plan.json")
    alone = replace(plan, sync=Sync("local_sgd", 2))
    with pytest.raises(InputError, match="cannot be saved yet"):
        check_saving(RunJob(problem(model), alone), source="plan.json")
    check_saving(RunJob(problem(model), replace(alone, pipelines=alone.pipelines[:1])), source="plan.json")


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="this system limits no file's size")
def test_a_disk_that_is_full_ends_no_training(tmp_path: Path):
    """Files of processes that start while the limit holds may have 20 kB, a layer has more: the system refuses to write
    on, as on a full disk. The checkpoint before stays, what was half written goes, and losses are those of any run."""
    model, plan = PLANS["stages"]
    job = RunJob(problem(model), plan, RunOptions(steps=4, timeout_s=20.0))
    run(replace(job, options=replace(job.options, steps=1)), saving=Saving(tmp_path))
    missed: list[tuple[int, str]] = []
    saving = Saving(tmp_path, 2, missed=lambda step, why: missed.append((step, why)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        found = run(job, saving=saving)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert missed == [(2, "File too large"), (4, "File too large")]
    assert checkpoint.last(tmp_path, model).step == 1
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert [step.loss for step in found.steps] == [step.loss for step in run(job).steps]
