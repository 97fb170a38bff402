"""A fresh machine: an environment of its own with nothing compiled, what installing and the first answers cost.

The checkout is cloned, ``make run`` makes its environment there, and the commands after it compile what they need. Home
and every cache are new and empty, so nothing of earlier runs is found; wheels come from where the machine's pip finds
them. CPU seconds hold all processes that were started.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.house.tree import Ran, Tree

COMMANDS = {
    "watch": "watch --model gpt3-175b --cluster four-hubs --trace examples/four-hubs-moving.csv --global-batch 256",
    "schedule": "schedule --stages 8 --micro-batches 32 --times 1,1.05,0.75 --links 5 --memory 16",
    "jobs": "jobs replay examples/queue.csv --cluster examples/four-by-eighty.yaml --load 1.2 --compare",
}
GIVEN = {  # of the tree of the record, as they were handed down: measured then, at load 10, not by this command
    "make run": {"clock_s": 332, "cpu_s": 507},
    "installed_mb": 1800,
    "watch": {"first_cpu_s": 216},
    "schedule": {"first_cpu_s": 110},
    "jobs": {"first_cpu_s": 124},
    "given": True,
}


def first_use(tree: Tree) -> dict[str, Any]:
    """Clock and CPU seconds of ``make run``, MB installed by it, CPU seconds of each command's first and second run."""
    with TemporaryDirectory() as folder:
        clone, home = Path(folder) / "hippo", Path(folder) / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "-q", str(tree.folder), str(clone)], check=True)
        fresh = Tree(
            clone,
            clone / ".venv" / "bin" / "python",
            {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), "PYTHONPATH": "", "MAKEFLAGS": ""},
        )
        made = _done(fresh.run(("make", "run"), where=clone, timeout_s=3600.0), "make run")
        found: dict[str, Any] = {
            "make run": {"clock_s": round(made.clock_s, 1), "cpu_s": round(made.cpu_s, 1)},
            "installed_mb": round(_bytes(clone / ".venv") / 1e6),
        }
        for name, words in COMMANDS.items():
            both = [_done(fresh.hippo(words.split(), where=clone), name).cpu_s for _ in range(2)]
            found[name] = {"first_cpu_s": round(both[0], 1), "second_cpu_s": round(both[1], 1)}
        return found


def _done(ran: Ran, what: str) -> Ran:
    if ran.code:
        raise RuntimeError(f"{what}: exit code {ran.code}: {ran.stderr.strip()[-500:]}")
    return ran


def _bytes(folder: Path) -> int:
    return sum(os.lstat(path).st_blocks * 512 for path in folder.rglob("*") if not path.is_symlink())
