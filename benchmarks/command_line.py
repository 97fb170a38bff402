"""What a whole process costs: `hippo --help`, and the second `hippo plan` of Llama-3 70B over four hubs of 64 GPUs.

CPU seconds of the child process (user + system), so that a busy machine does not change the figure; the least of a few.
The first run compiles kernels and fills their cache on disk, so the second is what a user feels from then on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HIPPO = Path(sys.executable).parent / "hippo"
PLAN = ("plan", "--model", "llama-3-70b", "--cluster", "four-hubs", "--json")


@dataclass(frozen=True)
class Case:
    """A command line and the CPU seconds that are asked of it."""

    name: str
    arguments: tuple[str, ...]
    asked_s: float
    runs: int = 3


CASES = (
    Case("hippo --help", ("--help",), 0.3, runs=5),
    Case("hippo plan, Llama-3 70B, four-hubs (4 x 64 GPUs), second run", PLAN, 2.0),
)


def cpu_seconds(arguments: tuple[str, ...]) -> float:
    """CPU seconds (user + system) of one process of ``hippo``."""
    before = os.times()
    subprocess.run([HIPPO, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Prints the table."""
    print(f"{'whole process':62s} {'asked':>8s} {'measured':>9s}")
    for case in CASES:
        cpu_seconds(case.arguments)  # fills caches
        least = min(cpu_seconds(case.arguments) for _ in range(case.runs))
        print(f"{case.name:62s} {'<= ' + format(case.asked_s, 'g') + ' s':>8s} {least:7.2f} s")


if __name__ == "__main__":
    main()
