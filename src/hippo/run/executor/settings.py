"""What a job says, as settings of the layers."""

from __future__ import annotations

import torch

from hippo.run.job import Job
from hippo.run.model.adamw import Rates
from hippo.run.model.stage import Settings

TYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}


def settings_of(job: Job) -> Settings:
    """How the layers of a job are trained."""
    options = job.options
    return Settings(
        job.problem.workload.tokens_per_step,
        options.seed,
        TYPES[options.precision],
        job.plan.recompute == "full",
        Rates(options.learning_rate),
        options.device,
    )
