"""One page of a run, whole in one file: step times, loss curve, the last step process by process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from hippo.decide.wording import seconds
from hippo.report.charts import Axis, Curve, Mark, TimeBar, bar_chart, line_chart
from hippo.report.frame import frame, template
from hippo.report.run_terminal import expected_s, happened, sentence

KINDS = (
    ("k0", "forward"),
    ("k1", "input gradient"),
    ("k2", "weight gradient"),
    ("k3", "waits for sums"),
    ("k4", "optimizer"),
)
"""Class of the style sheet and name of each kind of operation."""

MOST_DRAWN = 60_000


def run_html(document: Mapping[str, Any]) -> str:
    """The page of the document of ``hippo run --json``."""
    return template("run.html.j2").render(
        **frame(),
        title=f"{document['model']} on {document['cluster']}",
        sentence=sentence(document),
        times=_times(document),
        loss=_loss(document) if document["loss"] else None,
        difference=_difference(document),
        last=_last_step(document["timeline"]),
        kinds=KINDS,
        happened=happened(document),
    )


def _difference(document: Mapping[str, Any]) -> str | None:
    """How far the loss is from that of one process."""
    if not document["loss"] or not document["reference_loss"]:
        return None
    most = max(abs(a - b) for a, b in zip(document["loss"], document["reference_loss"], strict=True))
    packed = ", which packs nothing that crosses," if document.get("packed") else ""
    return f"The loss of the same training in one process{packed} differs by at most {most:.1e}."


def _times(document: Mapping[str, Any]) -> Markup:
    """Seconds of every step but the first, which has cold connections, and what was predicted; numbers stand where
    something changed."""
    points = _by_step(document, document["measured_step_s"])
    shown = points[1:] or points
    predicted = [(step, expected_s(document, int(step))) for step, _ in shown]
    lines = (Curve("predicted", predicted, "var(--d1)", dashed=True), Curve("measured", shown, "var(--accent)"))
    return line_chart(
        "Step times, measured and predicted",
        lines,
        Axis("step", whole=True),
        Axis("step time", _time, zero=True),
        marks=_marks(document),
    )


def _marks(document: Mapping[str, Any]) -> list[Mark]:
    """Where something changed, between the last step before and the next; numbered as in the table."""
    by_step: dict[int, list[tuple[int, str]]] = {}
    for index, each in enumerate(happened(document), start=1):
        by_step.setdefault(each.after_step, []).append((index, each.what))
    return [
        Mark(
            step + 0.5,
            str(told[0][0]) if len(told) == 1 else f"{told[0][0]}-{told[-1][0]}",
            "; ".join(what for _, what in told),
        )
        for step, told in sorted(by_step.items())
    ]


def _loss(document: Mapping[str, Any]) -> Markup:
    lines = (
        Curve("in one process", _by_step(document, document["reference_loss"] or []), "var(--d1)", dashed=True),
        Curve("loss", _by_step(document, document["loss"]), "var(--accent)"),
    )
    return line_chart("Loss by step", lines, Axis("step", whole=True), Axis("loss"), marks=_marks(document))


def _time(value: float) -> str:
    return seconds(value) if value else "0"


def _by_step(document: Mapping[str, Any], values: Sequence[float]) -> list[tuple[float, float]]:
    return [(document["first_step"] + index, value) for index, value in enumerate(values)]


def _last_step(timeline: Sequence[Mapping[str, Any]]) -> Markup:
    """Operations of one step, a row a process."""
    bars = []
    for row, each in enumerate(timeline):
        for kind, chunk, wave, start, end in each["operations"][: max(1, MOST_DRAWN // len(timeline))]:
            look, told = KINDS[kind]
            told += (f" of wave {wave}" if wave >= 0 else "") + (f", chunk {chunk}" if chunk else "")
            bars.append(TimeBar(row, start, end, look, f"{told}: {1e3 * start:.0f} to {1e3 * end:.0f} ms"))
    rows = [f"rank {each['rank']}, {each['domain']}" for each in timeline]
    end = max(bar.end for bar in bars)
    return bar_chart("Operations of the last step", rows, bars, Axis("time in the step", _time), end=end)
