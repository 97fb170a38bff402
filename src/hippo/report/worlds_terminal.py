"""Worlds of many jobs in the terminal: schedulers side by side, and the best beside each of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from hippo.decide.wording import count
from hippo.report.fitted import FittedTable, Trimmed, column
from hippo.report.worlds_page import by_cost, figures_table, leader, ratio_rows, spread


def worlds_view(document: Mapping[str, Any]) -> RenderableType:
    """The document of ``hippo evaluate --world --json``, the cheapest scheduler first."""
    names, ours = by_cost(document), leader(document)
    head, rows = figures_table(document, names)
    parts: list[RenderableType] = [
        Text(f"{count(document['worlds'], 'world')} of many jobs", style="bold"),
        FittedTable(
            tuple(
                column(header, (row[at] for row in rows), rank=max(0, at - 1), right=at > 0)
                for at, header in enumerate(head)
            )
        ),
    ]
    if len(names) > 1:
        head, rows = ratio_rows(document, ours, names)
        columns = (
            column(header, (row[at] for row in rows), rank=max(0, at - 1), right=at > 0)
            for at, header in enumerate(head)
        )
        parts += [Text(), Text(f"{ours} beside the others, world by world"), FittedTable(tuple(columns))]
    gap = document["best_over_bound"]
    if gap is not None:
        parts += [Text(), Text(f"the best found with hindsight costs {spread(gap)} times what nobody can undercut")]
    parts.append(Text("means over worlds ± half of their 95 % interval", style="dim"))
    return Trimmed(Group(*parts))
