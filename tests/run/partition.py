"""Inside an emulated WAN: a run one of whose links dies for good, between two replicas, or to a domain that only hands
messages on. ``python partition.py replicas|porter OUT``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.run.test_change import TWICE
from tests.run.worlds import GPT2, PLANS, problem, relaying

from hippo.emulate.emulation import emulation
from hippo.run import run as launcher
from hippo.run.job import RunJob, RunOptions
from hippo.run.model.reference import losses
from hippo.run.model.stage import settings_of
from hippo.run.run import Emulated, RunStep

CASES = {"replicas": (TWICE, "ab", "ab"), "porter": (relaying(PLANS["stages"][1], "abc", "bac"), "abc", "ac")}
"""Plan, domains, and the ends of the link."""


def main() -> None:
    """Writes what became of the run, and the losses of one process."""
    plan, names, (one, two) = CASES[sys.argv[1]]
    around = emulation()
    assert around is not None

    def watch(step: RunStep) -> None:
        if step.number == 2:
            launcher.START_S = 4.0  # no process has to start any more
            for ends in ((one, two), (two, one)):
                around.set_link(*ends, gbps=0.0, latency_ms=1.0)

    job = RunJob(problem(GPT2, names=names), plan, RunOptions(steps=5, precision="fp64", timeout_s=4.0))
    found = launcher.run(job, place=Emulated(around), watch=watch)
    told = {
        "losses": [step.loss for step in found.steps],
        "one": list(losses(job.problem, settings_of(job), steps=5, micro_batch=2)),
        "domains": [sorted({worker.domain for worker in each.workers}) for each in found.stretches],
        "relays": [len(each.job.plan.relays) for each in found.stretches],
        "lost": [each.change.lost for each in found.stretches if each.change is not None],
    }
    Path(sys.argv[2]).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
