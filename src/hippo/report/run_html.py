"""One page of a run, whole in one file: step times, loss curve, the last step process by process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from markupsafe import Markup

from hippo.decide.wording import number
from hippo.report.frame import frame, template
from hippo.report.run_terminal import sentence

WIDTH, HEIGHT, LEFT, ROW = 920, 220, 70, 22
CLASSES = ("k0", "k1", "k2", "k3", "k4")  # F, B, W, agreement, optimizer
NAMES = ("forward", "input gradient", "weight gradient", "waits for replicas", "optimizer")
MOST_DRAWN = 60_000

Points = Sequence[tuple[float, float]]


def run_html(document: Mapping[str, Any]) -> str:
    """The page of the document of ``hippo run --json``."""
    return template("run.html.j2").render(
        **frame(),
        title=f"{document['model']} on {document['cluster']}",
        sentence=sentence(document),
        times=Markup(_times(document)),
        loss=Markup(_loss(document)) if document["loss"] else None,
        difference=_difference(document),
        gantt=Markup(_gantt(document["timeline"])),
        kinds=list(zip(CLASSES, NAMES, strict=True)),
    )


def _difference(document: Mapping[str, Any]) -> str | None:
    """How far the loss is from that of one process."""
    if not document["loss"] or not document["reference_loss"]:
        return None
    most = max(abs(a - b) for a, b in zip(document["loss"], document["reference_loss"], strict=True))
    return f"The same training in one process has the same loss: it differs by at most {most:.1e}."


def _times(document: Mapping[str, Any]) -> str:
    """Seconds of every step, and the prediction as a line."""
    steps, first = document["measured_step_s"], document["first_step"]
    points = [(first + index, seconds) for index, seconds in enumerate(steps)]
    predicted = document["predicted_step_s"]
    shown = points[1:] or points  # the first step is slower: cold connections
    line = [(points[0][0], predicted), (points[-1][0], predicted)]
    return _chart(shown, line, "s", ("measured", "predicted"))


def _loss(document: Mapping[str, Any]) -> str:
    first = document["first_step"]
    mine = [(first + index, loss) for index, loss in enumerate(document["loss"])]
    reference = [(first + index, loss) for index, loss in enumerate(document["reference_loss"] or [])]
    return _chart(mine, reference, "", ("loss", "in one process"))


def _chart(points: Points, line: Points, unit: str, names: tuple[str, str]) -> str:
    """Dots joined by a line, and a dashed one."""
    every = [*points, *line]
    x0, x1 = min(x for x, _ in every), max(x for x, _ in every)
    low, high = min(y for _, y in every), max(y for _, y in every)
    pad = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = low - pad, high + pad

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - x0) / ((x1 - x0) or 1.0)
        return LEFT + across * (WIDTH - LEFT - 20), 10 + (high - y) / (high - low) * (HEIGHT - 50)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(" and ".join(names))} by step">']
    for tick in range(5):
        y = low + (high - low) * tick / 4
        _, place = at(x0, y)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 20}" y1="{place:.1f}" y2="{place:.1f}"/>')
        told = escape(f"{number(y, 4)} {unit}".strip())
        parts.append(f'<text x="{LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">{told}</text>')
    for x in sorted({x0, round((x0 + x1) / 2), x1}):
        parts.append(f'<text x="{at(x, low)[0]:.1f}" y="{HEIGHT - 18}" text-anchor="middle">{x:g}</text>')
    for kind, given in (("dashed", line), ("solid", points)):
        if given:
            parts.append(f'<polyline class="{kind}" points="{_joined(at, given)}"/>')
    legend = f"{names[0]}: solid" + (f"; {names[1]}: dashed" if line else "")
    parts.append(f'<text x="{WIDTH - 20}" y="{HEIGHT - 3}" text-anchor="end">step; {escape(legend)}</text></svg>')
    return "".join(parts)


def _joined(at: Callable[[float, float], tuple[float, float]], points: Points) -> str:
    return " ".join("{:.1f},{:.1f}".format(*at(*point)) for point in points)


def _gantt(timeline: Sequence[Mapping[str, Any]]) -> str:
    """Operations of one step, a row a process."""
    end = max(row[-1] for each in timeline for row in each["operations"]) or 1.0
    height = ROW * len(timeline) + 24
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="operations of the last step">']
    drawn, scale = 0, (WIDTH - 150) / end
    for place, each in enumerate(timeline):
        y = ROW * place
        name = f"rank {each['rank']}, {each['domain']}"[:22]
        parts.append(f'<text x="0" y="{y + 15}">{escape(name)}</text>')
        for kind, chunk, wave, start, stop in each["operations"]:
            drawn += 1
            if drawn > MOST_DRAWN:
                break
            told = NAMES[kind] + (f" of wave {wave}" if wave >= 0 else "") + (f", chunk {chunk}" if chunk else "")
            parts.append(
                f'<rect class="{CLASSES[kind]}" x="{140 + start * scale:.2f}" y="{y + 2}" '
                f'width="{max(0.3, (stop - start) * scale):.2f}" height="{ROW - 4}">'
                f"<title>{escape(told)}: {1e3 * start:.0f} to {1e3 * stop:.0f} ms</title></rect>"
            )
    parts += [
        f'<text x="140" y="{height - 4}">0</text>',
        f'<text x="{WIDTH - 10}" y="{height - 4}" text-anchor="end">{number(end, 3)} s</text></svg>',
    ]
    return "".join(parts)
