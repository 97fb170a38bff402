"""One page of a run, whole in one file: step times, loss curve, the last step process by process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from hippo.decide.wording import seconds
from hippo.report.charts import Axis, Curve, TimeBar, bar_chart, line_chart
from hippo.report.frame import frame, template
from hippo.report.run_terminal import sentence

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
    )


def _difference(document: Mapping[str, Any]) -> str | None:
    """How far the loss is from that of one process."""
    if not document["loss"] or not document["reference_loss"]:
        return None
    most = max(abs(a - b) for a, b in zip(document["loss"], document["reference_loss"], strict=True))
    return f"The same training in one process has the same loss: it differs by at most {most:.1e}."


def _times(document: Mapping[str, Any]) -> Markup:
    """Seconds of every step but the first, which has cold connections, and the prediction as a line."""
    points = _by_step(document, document["measured_step_s"])
    shown = points[1:] or points
    predicted = [(step, document["predicted_step_s"]) for step in (shown[0][0], shown[-1][0])]
    lines = (Curve("predicted", predicted, "var(--d1)", dashed=True), Curve("measured", shown, "var(--accent)"))
    return line_chart(
        "Step times, measured and predicted", lines, Axis("step", whole=True), Axis("step time", _time, zero=True)
    )


def _loss(document: Mapping[str, Any]) -> Markup:
    lines = (
        Curve("in one process", _by_step(document, document["reference_loss"] or []), "var(--d1)", dashed=True),
        Curve("loss", _by_step(document, document["loss"]), "var(--accent)"),
    )
    return line_chart("Loss by step", lines, Axis("step", whole=True), Axis("loss"))


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
