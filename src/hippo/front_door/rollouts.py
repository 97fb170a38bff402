"""Reinforcement learning over regions: a question and a file of rollouts in; trainer, pools and pushes out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hippo.errors import InputError
from hippo.planners import rollouts as planner
from hippo.planners.base import Progress, Stop
from hippo.planners.rollouts import RolloutAnswer
from hippo.problem.problem import Problem
from hippo.problem.rollouts import Rollouts, rollouts_from

DEFAULT_STOP = Stop()


def plan_rollouts(
    problem: Problem,
    rollouts: str | Path | Mapping[str, Any] | Rollouts,
    stop: Stop = DEFAULT_STOP,
    *,
    progress: Progress | None = None,
) -> RolloutAnswer:
    """Where to train and where to generate, and how often to push weights, for the least step time (or price).

    ``rollouts``: a file as ``--rollouts`` takes it, a mapping of its form, or the value. ``problem.workload`` says how
    many samples a step takes (``global_batch``) and how long they are (``seq``). Raises ``InputError`` for what is
    wrong in the file, ``InfeasibleError`` where no domain holds the trainer or no replica has room.
    """
    asked = problem.objective
    if asked.name == "weighted":
        remedy = "ask for time or cost"
        raise InputError("weights of the reward say nothing of rollouts", source="--objective", remedy=remedy)
    return planner.plan_rollouts(problem, rollouts_from(rollouts, problem), stop, progress=progress)
