"""The accuracy page: published steps against predictions, what was fitted and held out, whole in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hippo.cost.calibration import BY_HAND
from hippo.decide.wording import percent, seconds
from hippo.problem.runtimes import RUNTIMES
from hippo.report.frame import frame, template
from hippo.report.terminal import unread

WORST = 3
"""Rows with the largest errors that the page lists of each group."""


def validation_html(document: Mapping[str, Any]) -> str:
    """The page of the ``validate --json`` document."""
    beside = [(f"shown {name}", document[name]) for name in ("apart", "together") if name in document]
    families = [*document["families"].items(), *beside, ("overall", document["overall"])]
    assumed = {f"{one} ({name})": None for name, rules in RUNTIMES.items() for one in rules.assumed}
    ends = {
        f"{name}: {rules.ends[1].told}; {rules.ends[0].told}": None for name, rules in RUNTIMES.items() if rules.ends
    }
    return template("validation.html.j2", share=_share, signed=_signed, time=_time, figure=_figure).render(
        **frame(),
        groups=[*document["groups"].items()],
        families=families,
        intervals=document["intervals"].values(),
        fitted=document["fitted"],
        by_hand=BY_HAND,
        memory=document["memory"],
        assumed=[*assumed, *ends],
        worst=_worst(document["rows"]),
        unread=unread(document),
    )


def _worst(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], float]]:
    """Of each group the rows with the largest errors, largest first, and these errors."""
    groups: dict[str, list[tuple[Mapping[str, Any], float]]] = {}
    for row in rows:
        if row["measured_s"] is not None and row["predicted_s"] is not None:
            groups.setdefault(row["group"], []).append((row, row["predicted_s"] / row["measured_s"] - 1))
    return [each for group in groups.values() for each in sorted(group, key=lambda one: -abs(one[1]))[:WORST]]


def _share(value: float | None) -> str | None:
    return None if value is None else percent(value)


def _signed(value: float | None) -> str | None:
    return None if value is None else f"{'+' if value >= 0 else '-'}{percent(abs(value))}"


def _time(value: float | None) -> str | None:
    return None if value is None else seconds(value)


def _figure(value: float) -> str:
    return f"{value:.3g}"
