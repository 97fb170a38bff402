"""The same training in one process: started, and its losses read, as a process of its own (no torch here)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

from hippo.files import scratch
from hippo.run.job import RunJob
from hippo.run.lost import RunError
from hippo.run.run import last_line

MODULE = "hippo.run.model.reference"


def reference_losses(job: RunJob, watch: Callable[[str, float], None]) -> list[float]:
    """The loss of every step of the run, those before a resumed one left out; ``RunError`` when the process fails."""
    found: list[float] = []
    before = job.options.first_step - 1
    job = replace(job, options=replace(job.options, first_step=1, steps=before + job.options.steps, resume_from=None))
    with scratch("hippo-reference-") as folder:
        job.write(folder)
        with open(folder / "log", "w") as log:
            argv = [sys.executable, "-m", MODULE, str(folder)]
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        with process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    found.append(json.loads(line))
                    watch(f"step {len(found)}: loss {found[-1]:.4f}", len(found) / job.options.steps)
            finally:
                process.kill()
        if len(found) < job.options.steps:
            raise RunError(f"the training in one process ended early: {last_line(folder / 'log')}")
    return found[before:]
