"""A run as data: what the launcher hands to every process, as one file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hippo.arguments import check_fields
from hippo.errors import InputError
from hippo.files import json_text, write_whole
from hippo.plan.codec import plan_from_document, plan_to_document
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.run.work import Work, in_parts

FILE = "job.json"
MOST_STEPS = 1_000_000
LIMITS = {
    "steps": (1, MOST_STEPS),
    "outer_late": (0, MOST_STEPS),
    "timeout_s": (1.0, 86_400.0),
    "learning_rate": (0.0, 1e3),
    "patience": (0.0, 100.0),
}
"""Least and largest values of options of a run."""


FOLLOW = "follow"
BATCH_RULES = ("keep", FOLLOW)
"""What replicas that join or leave do with the batch: share out the same, or bring and take their own."""
RATE_RULES: Mapping[str, float] = MappingProxyType({"keep": 0.0, "linear": 1.0, "sqrt": 0.5})
"""To which power of the batch the learning rate grows."""


@dataclass(frozen=True)
class RunOptions:
    """How a plan is run. Seconds where it says so."""

    steps: int = 10
    stand_in: bool = False  # waits in place of layers; messages are real
    lanes: bool = False  # of a stand-in: a process per data-parallel lane, not per stage
    precision: str = "fp32"  # of the real layers: fp32, fp64, bf16
    device: str = "cpu"  # cpu; cuda: a GPU a process, messages by NCCL; shared: one GPU for all, messages by gloo
    seed: int = 0
    learning_rate: float = 1e-3
    timeout_s: float = 60.0  # without any progress, or of one message
    order: str = "fixed"  # the plan's, as it was printed; ready: what is ready; auto: that on stages at a WAN alone
    dispatch: str = (
        "fixed"  # who says what a free rank runs: the order; the order as a hint; learned, or its file: a policy
    )
    patience: float = 0.5  # of a hint: share of an operation's time that a rank waits for what is announced
    batch_rule: str = "keep"  # where replicas join or leave; of ``BATCH_RULES``
    rate_rule: str = "keep"  # of the learning rate, where the batch changes; of ``RATE_RULES``
    noise: str = ""  # that stretches operations and messages (``presets.fluctuation_of``); empty: none
    play_links: bool = False  # messages take what the plan says, on loopback
    backward: str = "split"  # split: a gradient leaves before the weight gradients of its wave are made; whole: after
    runtime: str = "hippo"  # hippo: its own executor; torch: torch.distributed.pipelining
    outer_late: int = 0  # steps that replicas train on while their outer sum goes round (local SGD)
    first_step: int = 1  # of this run, where it goes on from a checkpoint
    resume_from: str | None = None  # folder of that checkpoint

    def __post_init__(self) -> None:
        check_fields(self)
        for name, (low, high) in LIMITS.items():
            check_range(name, getattr(self, name), low, high)

    @property
    def computes_on(self) -> str:
        """Where layers lie, as torch names it: cpu, cuda."""
        return "cpu" if self.device == "cpu" else "cuda"

    @property
    def talks_on(self) -> str:
        """Where messages lie: cpu (gloo), cuda (NCCL, which takes no two processes on one GPU)."""
        return "cuda" if self.device == "cuda" else "cpu"


@dataclass(frozen=True)
class RunJob:
    """One run: the plan, its problem, and how."""

    problem: Problem
    plan: Plan
    options: RunOptions = field(default_factory=RunOptions)

    @cached_property
    def work(self) -> Work:
        """The plan as processes."""
        plan = self.plan if self.options.dispatch == "fixed" else in_parts(self.plan)
        return Work(self.problem.model, plan, self.options.stand_in, self.options.lanes)

    @property
    def asks(self) -> bool:
        """Whether ranks ask what is next, message by message, in place of going through a list."""
        return self.options.dispatch != "fixed" or bool(self.options.noise) or self.options.play_links

    @property
    def announces(self) -> bool:
        """Whether neighbours are told of what is coming."""
        return self.options.dispatch != "fixed"

    @property
    def notes(self) -> bool:
        """Whether notes go beside the messages."""
        return self.announces or self.options.play_links

    def write(self, folder: Path) -> None:
        """Leaves the job where its processes find it."""
        document = {"plan": plan_to_document(self.problem, self.plan), "options": asdict(self.options)}
        write_whole(folder / FILE, json_text(document))

    @classmethod
    def read(cls, folder: Path) -> RunJob:
        """The job of a folder."""
        document: dict[str, Any] = json.loads((folder / FILE).read_text())
        problem, plan = plan_from_document(document["plan"], source=FILE)
        known = {each.name for each in fields(RunOptions)}
        return cls(problem, plan, RunOptions(**{k: v for k, v in document["options"].items() if k in known}))


def check_range(source: str, value: float, low: float, high: float) -> None:
    """``InputError`` for a number out of range, by the name of its argument or option."""
    if not low <= value <= high:
        raise InputError(f"must be from {low:g} to {high:g}", source=source, value=value, remedy="give such a number")


# -------------------------------------------------------------------------------------------------------------- saving
# Which runs can be saved, such that going on equals a run that was never ended. No torch.


def replicas_alone(plan: Plan) -> int:
    """How many replicas train alone and have weights of their own; 1: all agree on every step."""
    return len(plan.pipelines) if plan.sync.method == "local_sgd" else 1


def check_saving(job: RunJob, *, source: str) -> None:
    """``InputError`` where a checkpoint would lose something: a sum that goes round between replicas."""
    if job.options.outer_late > 0:  # of one replica, too: others may be told to join it
        remedy = "leave out one of them"
        told = "an outer sum may be under way when a checkpoint is due, and would be lost"
        raise InputError(told, source="--outer-late", value=job.options.outer_late, remedy=remedy)
