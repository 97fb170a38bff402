"""A source tree that is asked from outside: by its command line, in processes of their own, never by its modules."""

from __future__ import annotations

import os
import subprocess
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

OF_TERMINALS = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "HIPPO_TRACE")


@dataclass(frozen=True)
class Ran:
    """What a process said, and what it cost."""

    code: int
    stdout: str
    stderr: str
    cpu_s: float  # user and system, of it and of what it started
    clock_s: float


@dataclass(frozen=True)
class Tree:
    """A checkout and the Python that has its libraries; ``changes`` to the environment, such as a cache of its own."""

    folder: Path
    python: Path
    changes: Mapping[str, str] = field(default_factory=dict)

    def hippo(self, arguments: Sequence[str], *, where: Path, timeout_s: float = 900.0) -> Ran:
        """Runs ``hippo ARGUMENTS`` of this tree in the folder ``where``."""
        return self.run([*self.start(), *arguments], where=where, timeout_s=timeout_s)

    def start(self) -> list[str]:
        """The words that start its command, as its pyproject.toml names it."""
        scripts = tomllib.loads((self.folder / "pyproject.toml").read_text())["project"]["scripts"]
        module, _, function = scripts.get("hippo", next(iter(scripts.values()))).partition(":")
        code = f"import sys; from {module} import {function} as main; sys.argv[0] = 'hippo'; sys.exit(main())"
        return [str(self.python), "-c", code]

    def run(self, command: Sequence[str], *, where: Path, timeout_s: float = 900.0) -> Ran:
        """Runs any command with this tree's package first on the path, on one thread."""
        usual = {name: value for name, value in os.environ.items() if name not in OF_TERMINALS}
        package = {"PYTHONPATH": str(self.folder / "src"), "OMP_NUM_THREADS": "1"}
        before, begin = os.times(), time.perf_counter()
        done = subprocess.run(
            command,
            cwd=where,
            env={**usual, **package, **self.changes},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        clock_s, after = time.perf_counter() - begin, os.times()
        cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
        return Ran(done.returncode, done.stdout, done.stderr, cpu_s, clock_s)

    def commit(self) -> str:
        """The commit that is checked out, with a plus where files differ from it, those of records aside."""
        git = ("git", "-C", str(self.folder))
        asked = (*git, "describe", "--always", "--abbrev=12", "--exclude=*")
        found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        status = (*git, "status", "--porcelain", "--", ".", ":!results/house")
        return found + "+" * bool(subprocess.run(status, capture_output=True, text=True, check=True).stdout)
