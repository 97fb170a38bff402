"""A checkpoint that would lose something is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.errors import InputError
from hippo.plan.plan import Sync
from hippo.run.job import RunJob, check_saving

from .worlds import PLANS, problem


def test_replicas_that_train_alone_are_not_saved():
    model, plan = PLANS["unlike shares"]
    check_saving(RunJob(problem(model), plan), source="plan.json")
    alone = replace(plan, sync=Sync("local_sgd", 2))
    with pytest.raises(InputError, match="cannot be saved yet"):
        check_saving(RunJob(problem(model), alone), source="plan.json")
    check_saving(RunJob(problem(model), replace(alone, pipelines=alone.pipelines[:1])), source="plan.json")
