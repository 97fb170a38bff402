"""Where the published figures and traces lie: ``data/`` of the checkout. What each is: ``data/README.md``."""

from __future__ import annotations

import sys
from pathlib import Path

from hippo.score import throughput
from hippo.score.cases import PublishedRun, load_cases
from hippo.score.interval import has_experts

FOLDER = Path(__file__).resolve().parents[1] / "data"


def data(name: str) -> Path:
    """A file of ``data/``; ends the program with what to do where it is missing."""
    path = FOLDER / name
    if not path.is_file():
        sys.exit(f"{path}: the file is missing. To fix: get it back with 'git checkout -- data'.")
    return path


def fitted_rows() -> tuple[PublishedRun, ...]:
    """What the constants are fitted to: ``training_open.json``, and the mixtures of experts with ep > 1 of
    ``training_throughput.csv``; its dense rows are left to judge."""
    more = throughput.cases(data("published/training_throughput.csv"))
    experts = [case for case in more if case.model is not None and has_experts(case.model) and (case.ep or 1) > 1]
    return (*load_cases(data("training_open.json")), *experts)
