"""The page worlds.md: what schedulers came to in drawn worlds of many jobs, made from the evidence and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hippo.decide.wording import count
from hippo.report.evaluation_page import table
from hippo.report.text import NOTHING

Document = Mapping[str, Any]


def page(document: Document) -> str:
    """The whole page."""
    names, ours = by_cost(document), leader(document)
    parts = [
        _head(document),
        "## All schedulers\n\n" + table(*figures_table(document, names)),
        f"## `{ours}` beside the others\n\n" + _ratios(document, ours, names),
        "## Family by family\n\n" + _families(document, names),
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def by_cost(document: Document) -> list[str]:
    """Methods, the cheapest first."""
    methods = document["methods"]
    return sorted(methods, key=lambda name: mean(methods[name]["priced_s"]))


def leader(document: Document) -> str:
    """Who is set beside the others: what was learned, else the cheapest."""
    names = by_cost(document)
    return "hi_ppo" if "hi_ppo" in names else names[0]


def mean(found: Document | None) -> float:
    """Of a figure; nan: there is none."""
    return float("nan") if found is None else float(found["mean"])


def spread(found: Document | None, *, digits: int = 3, scale: float = 1.0) -> str:
    """Mean and half of its 95 % interval."""
    if found is None:
        return NOTHING
    half = 0.5 * scale * (found["high"] - found["low"])
    told = f"{scale * found['mean']:.{digits}f}"
    return told if found["worlds"] < 2 else f"{told} ± {half:.{digits}f}"


WHERE = {"yes": "where jobs may be stopped", "no": "where not"}

FIGURES = (
    ("priced time, h", "priced_s", 1 / 3600, 2),
    ("of bound", "of_bound", 1.0, 3),
    ("of best found", "of_best", 1.0, 3),
    ("goodput", "goodput", 1.0, 3),
    ("completion, h", "mean_completion_s", 1 / 3600, 2),
    ("p95, h", "p95_completion_s", 1 / 3600, 1),
    ("deadlines missed, %", "deadlines_missed", 100.0, 1),
    ("fairness", "fairness", 1.0, 3),
    ("egress, USD", "egress_usd", 1.0, 0),
    ("interruption, s", "interruption_s", 1.0, 0),
    ("fragmentation", "fragmentation", 1.0, 3),
    ("of no use to who waits", "unwanted", 1.0, 3),
    ("stops a job", "stops", 1.0, 2),
    ("CPU s a play", "cpu_s", 1.0, 2),
)
"""(header, key, unit, digits) of the table, the most wanted first."""


def figures_table(document: Document, names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: each figure's mean with its interval; figures that nobody has are left out."""
    methods = document["methods"]
    there = [each for each in FIGURES if any(methods[name][each[1]] is not None for name in names)]
    rows = [
        [name, *(spread(methods[name][key], digits=digits, scale=scale) for _, key, scale, digits in there)]
        for name in names
    ]
    return ["scheduler", *(header for header, _, _, _ in there)], rows


def _head(document: Document) -> str:
    suite = document["suite"]
    loads = ", ".join(f"{each:g}" for each in suite["loads"])
    bounds = (
        " *Bound*: of a relaxation with hindsight, which no scheduler can undercut; *best found*: by a search with "
        "hindsight, which knows when jobs come and end, nodes fail and links move; shares are of these over what a "
        "scheduler costs."
        if suite["bounds"]
        else ""
    )
    like = f"jobs come as in {suite['like']}; " if suite["like"] else ""
    gap = document["best_over_bound"]
    bounds += "" if gap is None else f" What the search found is {spread(gap)} times the bound."
    return (
        "# Worlds of many jobs\n\n"
        f"Made by `hippo evaluate --world`; nothing on this page is written by hand. "
        f"{count(document['worlds'], 'world')}: families {', '.join(document['families'])}; loads {loads}; networks "
        f"{', '.join(suite['networks'])}; {', '.join(map(str, suite['domains']))} domains ({suite['cluster']}, "
        f"repeated); elastic jobs train {', '.join(suite['models'])}; {like}first seed {suite['seed']}. *Priced "
        "time*: mean time of a job in the system, by prices of mean 1 that go with its priority over the time "
        "that it takes at best; a job that never ends counts twice the last one's end. Means over worlds ± half of "
        "their 95 % interval (Student's t; with several policies, over worlds and policies). Other figures "
        f"are those of `hippo jobs replay`.{bounds}"
    )


def ratio_rows(document: Document, ours: str, names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: what ours has over each rival in the same worlds."""
    head = ["rival", "priced time, ours / rival's", "completion", "goodput"]
    ratios = document["ratios"][ours]
    keys = ("priced_s", "mean_completion_s", "goodput")
    return head, [[name, *(spread(ratios[name][key]) for key in keys)] for name in names if name != ours]


def _ratios(document: Document, ours: str, names: Sequence[str]) -> str:
    if len(names) < 2:
        return "Nobody else played."
    return "World by world; below 1 costs less, goodput above 1 is more.\n\n" + table(
        *ratio_rows(document, ours, names)
    )


def _families(document: Document, names: Sequence[str]) -> str:
    families, ours = dict(document["families"]), leader(document)
    if len(document["stopping"]) > 1:  # the same worlds, twice
        families |= {WHERE[each]: found for each, found in document["stopping"].items()}
    parts = []
    if len(names) > 1:
        rows = [
            [name, *(spread(families[each]["ratios"][ours][name]["priced_s"]) for each in families)]
            for name in names
            if name != ours
        ]
        parts.append(table([f"priced time of `{ours}` over", *families], rows))
    for key, words in (("of_bound", "share of the bound"), ("of_best", "share of the best found")):
        if any(document["methods"][name][key] is not None for name in names):
            rows = [[name, *(spread(families[each]["methods"][name][key]) for each in families)] for name in names]
            parts.append(table([words, *families], rows))
    return "\n\n".join(parts)
