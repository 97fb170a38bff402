"""What the engine holds for a learned policy while a replay runs, and whose it is; empty for the other policies."""

from __future__ import annotations

from dataclasses import dataclass

from hippo.jobs.learned.due import DueTrial, DueWeights, due
from hippo.jobs.learned.memory import Memory as Learned
from hippo.jobs.learned.memory import Trial, memory, nothing
from hippo.jobs.learned.weights import Weights, shipped
from hippo.jobs.workload import Workload

__all__ = ["Learned", "Learner", "nothing"]


@dataclass(frozen=True, eq=False)
class Learner:
    """Who plays under the learned policy: its weights, and the past that it has seen."""

    weights: Weights | None = None  # None: those that ship
    past: Workload | None = None  # jobs that came before, on a clock that ends where the workload's begins
    trial: Trial | None = None  # noise, and what is written down in training
    deadlines: DueWeights | None = None  # of the key where jobs have deadlines; None: those that ship
    deadline_trial: DueTrial | None = None
    clairvoyant: bool = False  # the key for deadlines looks at what is left of a job: a limit for those who do not

    def begin(self, workload: Workload, devices: int) -> Learned:
        """The state before the first job, on a site of so many devices."""
        weights = shipped() if self.weights is None else self.weights
        ends = due(workload, self.deadlines, devices=devices, clairvoyant=self.clairvoyant, trial=self.deadline_trial)
        return memory(workload, weights, devices=devices, past=self.past, trial=self.trial, deadlines=ends)
