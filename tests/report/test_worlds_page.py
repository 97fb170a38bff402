"""The page and the view of worlds of many jobs: who was learned first, intervals beside means, nothing made up."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from rich.console import Console

from hippo.front_door.worlds import WorldsChoice
from hippo.jobs.joint.evaluate.evidence import evidence
from hippo.report.worlds_page import leader, page
from hippo.report.worlds_terminal import worlds_view

COSTS = {"hi_ppo": 3600.0, "srpt": 4000.0, "mast": 8000.0}


def document(names: tuple[str, ...] = tuple(COSTS), **more: float) -> dict[str, Any]:
    worlds = [("mixed 1", "mixed", 1.0), ("mixed 2", "mixed", 1.1), ("large 1", "large", 1.2)]
    rows = [
        {"world": world, "family": family, "method": name, "policy": "", "priced_s": COSTS[name] * times, **more}
        for (world, family, times), name in product(worlds, names)
    ]
    about = {**vars(WorldsChoice()), "bounds": list(more), "like": None}
    return {"suite": about, **evidence(rows)}


def test_what_was_learned_stands_beside_each_of_the_others():
    told = page(document())
    assert leader(document()) == "hi_ppo"
    assert "| mast | 0.450 ± 0.000 |" in told
    assert "## `hi_ppo` beside the others" in told
    assert "| hi_ppo | 1.10 ± 0.25 |" in told
    assert "of bound" not in told


def test_without_it_the_cheapest_does():
    assert leader(document(("mast", "srpt"))) == "srpt"
    assert "Nobody else played." in page(document(("mast",)))


def test_bounds_are_told_where_there_are_some():
    found = document(bound_priced_s=3000.0, best_priced_s=3300.0, of_bound=0.9, of_best=0.95)
    assert found["best_over_bound"]["mean"] == pytest.approx(1.1)
    assert "What the search found is 1.100 ± 0.000 times the bound." in page(found)
    assert "| share of the best found | mixed | large |" in page(found)
    console = Console(width=120)
    with console.capture() as shown:
        console.print(worlds_view(found))
    assert "of best found" in shown.get()
    assert "the best found with hindsight costs 1.100" in shown.get()
