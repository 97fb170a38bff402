"""The accuracy page: published steps against predictions, whole in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hippo.decide.wording import percent, seconds
from hippo.report.frame import frame, template
from hippo.report.terminal import unread

WORST = 12
"""Rows with the largest errors that the page lists, of each group."""


def validation_html(document: Mapping[str, Any]) -> str:
    """The page of the ``validate --json`` document."""
    beside = [(f"shown {name}", document[name]) for name in ("apart", "together") if name in document]
    groups = [*document["families"].items(), *beside, ("overall", document["overall"])]
    return template("validation.html.j2", share=_share, signed=_signed, time=_time).render(
        **frame(),
        groups=groups,
        worst=_worst(document["rows"]),
        most=WORST,
        unread=unread(document),
    )


def _worst(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], float]]:
    """Rows with the largest errors and these errors, largest first."""
    timed = [
        (row, row["predicted_s"] / row["measured_s"] - 1)
        for row in rows
        if row["measured_s"] is not None and row["predicted_s"] is not None
    ]
    return sorted(timed, key=lambda each: -abs(each[1]))[:WORST]


def _share(value: float | None) -> str | None:
    return None if value is None else percent(value)


def _signed(value: float | None) -> str | None:
    return None if value is None else f"{'+' if value >= 0 else '-'}{percent(abs(value))}"


def _time(value: float | None) -> str | None:
    return None if value is None else seconds(value)
