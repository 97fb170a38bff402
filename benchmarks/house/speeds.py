"""What a tree costs: whole processes in CPU seconds, and the tables of its own benchmarks as they print them.

Whole processes are run in turns with those of another tree where one is given, and their medians and spread are kept,
as the speed of a shared machine drifts. Tables are compared number by number: a row is known by its words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.house.tree import Tree

PROCESSES = {
    "hippo --help": ("--help",),
    "second hippo plan on four-hubs": ("plan", "--model", "llama-3-70b", "--cluster", "four-hubs"),
}
TABLES = ("simulators", "schedules", "planning", "jobs", "environment")
RUNS = 7
NUMBER = re.compile(r"(?<![\w.])-?\d*[\d,]*\.?\d+(?:e-?\d+)?(?!\w|\.\d)")


def processes(*trees: Tree) -> list[dict[str, Any]]:
    """CPU and clock seconds of each command: median, least and most, a mapping for each tree, run in turns."""
    found: list[dict[str, Any]] = [{} for _ in trees]
    with TemporaryDirectory() as folder:
        for name, words in PROCESSES.items():
            for tree in trees:
                tree.hippo(words, where=Path(folder))  # fills caches
            turns = [[tree.hippo(words, where=Path(folder)) for tree in trees] for _ in range(RUNS)]
            for index, mine in enumerate(zip(*turns, strict=True)):
                cpu_s = [ran.cpu_s for ran in mine]
                found[index][name] = {
                    "cpu_s": round(median(cpu_s), 3),
                    "least_s": round(min(cpu_s), 3),
                    "most_s": round(max(cpu_s), 3),
                    "clock_s": round(median(ran.clock_s for ran in mine), 3),
                }
    return found


def tables(tree: Tree) -> dict[str, Any]:
    """The lines that its benchmarks print, and what they cost."""
    found = {}
    for name in TABLES:
        ran = tree.hippo(("bench", name), where=tree.folder, timeout_s=3600.0)
        if ran.code:
            raise RuntimeError(f"hippo bench {name}: exit code {ran.code}: {ran.stderr.strip()[-500:]}")
        found[name] = {"cpu_s": round(ran.cpu_s, 1), "lines": ran.stdout.splitlines()}
    return found


def rows(lines: list[str]) -> Mapping[str, list[float]]:
    """The numbers of a printed table, by the words of their rows; words that come again are counted."""
    found: dict[str, list[float]] = {}
    for line in lines:
        numbers = [float(text.replace(",", "")) for text in NUMBER.findall(line)]
        words = " ".join(NUMBER.sub("", line).split())
        if numbers and words:
            again = sum(key.partition(" #")[0] == words for key in found)
            found[f"{words} #{again + 1}" if again else words] = numbers
    return found
