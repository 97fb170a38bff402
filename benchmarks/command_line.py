"""What a whole process costs: `hippo --help`, and the second `hippo plan` of Llama-3 70B over four hubs of 64 GPUs.

CPU seconds of the child process (user + system), so that a busy machine does not change the figure, and the seconds on
the clock beside them; the least of a few runs each. The first run compiles kernels and fills their cache on disk, so
the second is what a user feels from then on. The rows below say where that time goes before any planning starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HIPPO = str(Path(sys.executable).parent / "hippo")
PLAN = ("plan", "--model", "llama-3-70b", "--cluster", "four-hubs")
SMALL = "import hippo; hippo.estimate(model='gpt2', gpu='A100-SXM-80GB', global_batch=8)"


@dataclass(frozen=True)
class Case:
    """A command and the seconds that are asked of it (None: a part, shown to explain the whole)."""

    name: str
    command: tuple[str, ...]
    asked_s: float | None = None
    runs: int = 3


CASES = (
    Case("hippo --help", (HIPPO, "--help"), 0.3, runs=5),
    Case("hippo plan, Llama-3 70B, 4 domains x 64 GPUs, second run", (HIPPO, *PLAN), 2.0),
    Case("  the same with --json", (HIPPO, *PLAN, "--json"), 2.0),
    Case("  of it: Python and numpy", (sys.executable, "-c", "import numpy")),
    Case("  of it: Python, numpy, numba", (sys.executable, "-c", "import numba")),
    Case("  of it: all of hippo loaded", (sys.executable, "-c", "import hippo.front_door.planning")),
    Case("  of it: and one small layout played", (sys.executable, "-c", SMALL)),
)


def seconds(command: tuple[str, ...]) -> tuple[float, float]:
    """CPU seconds (user + system) and seconds on the clock of one process."""
    before, begin = os.times(), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    wall_s, after = time.perf_counter() - begin, os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system, wall_s


def main() -> None:
    """Prints the table."""
    print(f"{'whole process':58s} {'asked':>8s} {'CPU':>8s} {'clock':>8s}")
    for case in CASES:
        seconds(case.command)  # fills caches
        cpu_s, wall_s = (min(values) for values in zip(*(seconds(case.command) for _ in range(case.runs)), strict=True))
        asked = "" if case.asked_s is None else f"<= {case.asked_s:g} s"
        print(f"{case.name:58s} {asked:>8s} {cpu_s:6.2f} s {wall_s:6.2f} s")


if __name__ == "__main__":
    main()
