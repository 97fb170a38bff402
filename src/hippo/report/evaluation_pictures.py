"""Pictures of the page on evaluation: small SVG files that need nothing else, drawn from the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from hippo.report.charts import ticks
from hippo.report.evaluation_page import ordered

Document = Mapping[str, Any]
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#7f7f7f", "#bcbd22")
WIDTH, LEFT, TOP, LINE = 860, 130, 46, 15
SHOWN = ("hi_ppo", "receding_horizon", "flat_ppo", "static_levers", "static", "greedy")


def pictures(found: Document) -> dict[str, str]:
    """File name to SVG; a part that was not played has no picture."""
    drawn = {}
    if found["families"]:
        drawn["evaluation-families.svg"] = families(found)
    if found["movement"]:
        drawn["evaluation-movement.svg"] = movement(found)
    if found["front"]:
        drawn["evaluation-front.svg"] = front(found)
    return drawn


def families(found: Document) -> str:
    """Share of hindsight by family and method, with intervals."""
    names = [name for name in ordered(found["methods"]) if name in SHOWN]
    rows, at = [], TOP
    for family, told in found["families"].items():
        rows.append((at, family, {name: told["methods"][name]["of_hindsight"] for name in names}))
        at += (len(names) + 1) * LINE
    least = min((each["mean"] for _, _, shares in rows for each in shares.values() if each), default=0.0)
    low = max(0.0, int(10 * least) / 10)
    x = _scale(low, 1.0, LEFT, WIDTH - 20)
    marks = [_gridline(x(tick), TOP - 8, at - LINE, f"{100 * tick:.0f} %") for tick in ticks(low, 1.0)]
    for top, family, shares in rows:
        marks.append(_text(LEFT - 10, top + len(names) * LINE / 2, family, anchor="end"))
        for line, (name, told) in enumerate(shares.items()):
            if told is not None:
                marks.append(
                    _whisker(
                        x,
                        max(told["low"], low),
                        told["mean"],
                        told["high"],
                        top + (line + 0.5) * LINE,
                        names.index(name),
                    )
                )
    return _drawing(marks, names, at, "Share of the work of perfect hindsight, 95 % intervals")


def movement(found: Document) -> str:
    """Loss against the network at rest by the swing of the links."""
    swings = [float(swing) for swing in found["movement"]]
    names = ordered(dict.fromkeys(name for told in found["movement"].values() for name in told))
    highest = max(told["high"] for each in found["movement"].values() for told in each.values())
    bottom = TOP + 260
    x, y = _scale(0.0, max(swings), LEFT, WIDTH - 40), _scale(0.0, max(highest, 0.05), bottom, TOP)
    marks = [_text(x(swing), bottom + 18, f"±{100 * swing:.0f} %", anchor="middle") for swing in swings]
    for tick in ticks(0.0, max(highest, 0.05)):
        marks.append(f'<line x1="{LEFT}" x2="{WIDTH - 40}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ccc"/>')
        marks.append(_text(LEFT - 8, y(tick) + 4, f"{100 * tick:.0f} %", anchor="end"))
    for index, name in enumerate(names):
        told = [found["movement"][f"{swing:g}"][name] for swing in swings]
        points = " ".join(f"{x(swing):.1f},{y(each['mean']):.1f}" for swing, each in zip(swings, told, strict=True))
        marks.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[index]}" stroke-width="2"/>')
        for swing, each in zip(swings, told, strict=True):
            at = x(swing) + 3 * (index - 1)
            marks.append(
                f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y(max(0.0, each["low"])):.1f}" y2="{y(each["high"]):.1f}" '
                f'stroke="{COLOURS[index]}"/>'
            )
    return _drawing(marks, names, bottom + 30, "Loss of work against the network at rest, by the swing of its links")


def front(found: Document) -> str:
    """The exact front of the first problem and the plans begun with: step time and egress."""
    told = found["front"]["problems"][0]
    points, plans = told["front"], told["plans"]
    every = [*points, *plans]
    bottom = TOP + 260
    x = _scale(0.0, 1.05 * max(each[0] for each in every), LEFT, WIDTH - 40)
    y = _scale(0.0, 1.05 * max(max(each[1] for each in every), 1e-9), bottom, TOP)
    marks = [
        f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="7" fill="none" stroke="{COLOURS[0]}" stroke-width="2"/>'
        for a, b, _ in points
    ]
    marks += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{COLOURS[1]}"/>' for a, b, _ in plans]
    for tick in ticks(0.0, max(each[0] for each in every)):
        marks.append(_gridline(x(tick), TOP, bottom, f"{tick:g} s", below=True))
    top = max(each[1] for each in every)
    marks.append(_text(LEFT - 8, y(top) + 4, f"{top:.3g} USD", anchor="end"))
    title = f"Step time and egress a step: {told['world']}"
    return _drawing(marks, ["exact front", "begun by preference"], bottom + 30, title)


def many_domains(found: Document) -> str:
    """Share of hindsight by the number of domains, with intervals."""
    counts = sorted(found["large"], key=int)
    names = [name for name in ordered(found["methods"]) if name in SHOWN]
    told = {name: [found["large"][k]["methods"].get(name, {}).get("of_hindsight") for k in counts] for name in names}
    least = min((each["mean"] for row in told.values() for each in row if each), default=0.0)
    low, bottom = max(0.0, int(10 * least) / 10), TOP + 240
    y = _scale(low, 1.0, bottom, TOP)
    marks = _levels(y, low, 1.0, percents=True)
    for place, k in enumerate(counts):
        middle = LEFT + (place + 0.5) * (WIDTH - 40 - LEFT) / len(counts)
        marks.append(_text(middle, bottom + 18, f"{k} domains", anchor="middle"))
        for index, name in enumerate(names):
            if told[name][place]:
                at = middle + 16 * (index - (len(names) - 1) / 2)
                ends = (y(max(low, told[name][place]["low"])), y(min(1.0, told[name][place]["high"])))
                marks.append(_upright(at, *ends, y(told[name][place]["mean"]), index))
    return _drawing(marks, names, bottom + 30, "Share of the work of perfect hindsight, 95 % intervals")


def over_time(title: str, hours: Sequence[float], values: Mapping[str, Sequence[float]]) -> str:
    """A line for each method."""
    every = [value for row in values.values() for value in row]
    low, high, bottom = min(0.0, *every), max(0.0, *every), TOP + 260
    x, y = _scale(min(hours), max(hours), LEFT, WIDTH - 20), _scale(low, high, bottom, TOP)
    marks = _levels(y, low, high)
    marks += [_text(x(tick), bottom + 18, f"{tick:g} h", anchor="middle") for tick in ticks(min(hours), max(hours))]
    for index, row in enumerate(values.values()):
        points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in zip(hours, row, strict=True))
        look = f'stroke="{COLOURS[index % len(COLOURS)]}" stroke-width="1.6"'
        look += ' stroke-dasharray="6 3"' if index >= len(COLOURS) else ""  # colours come round: told apart by dashes
        marks.append(f'<polyline points="{points}" fill="none" {look}/>')
    return _drawing(marks, list(values), bottom + 30, title)


# ------------------------------------------------------------------------------------------------------------- parts
def _scale(low: float, high: float, first: float, last: float) -> Any:
    return lambda value: first + (value - low) / ((high - low) or 1.0) * (last - first)


def _text(x: float, y: float, words: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _gridline(x: float, top: float, bottom: float, words: str, *, below: bool = False) -> str:
    line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" stroke="#ccc"/>'
    return line + _text(x, bottom + 18 if below else top - 4, words, anchor="middle")


def _levels(y: Any, low: float, high: float, *, percents: bool = False) -> list[str]:
    """Lines across with their values at the left."""
    found = []
    for tick in ticks(low, high):
        found.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ccc"/>')
        words = f"{100 * tick:.0f} %" if percents else f"{tick:,.6g}"
        found.append(_text(LEFT - 8, y(tick) + 4, words, anchor="end"))
    return found


def _upright(x: float, low: float, high: float, mean: float, colour: int) -> str:
    stroke = f'stroke="{COLOURS[colour]}" stroke-width="2"'
    line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" {stroke}/>'
    return line + f'<circle cx="{x:.1f}" cy="{mean:.1f}" r="4" fill="{COLOURS[colour]}"/>'


def _whisker(x: Any, low: float, mean: float, high: float, y: float, colour: int) -> str:
    stroke = f'stroke="{COLOURS[colour]}" stroke-width="2"'
    line = f'<line x1="{x(low):.1f}" x2="{x(min(high, 1.0)):.1f}" y1="{y:.1f}" y2="{y:.1f}" {stroke}/>'
    return line + f'<circle cx="{x(mean):.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[colour]}"/>'


def _drawing(marks: Sequence[str], names: Sequence[str], bottom: float, title: str) -> str:
    """The whole file: title, marks, and a legend below."""
    legend, at = [], float(LEFT)
    for index, name in enumerate(names):
        if at + 34 + 7.2 * len(name) > WIDTH:
            at, bottom = float(LEFT), bottom + 20
        for left, wide in ((0, 12),) if index < len(COLOURS) else ((0, 5), (7, 5)):
            legend.append(
                f'<rect x="{at + left:.0f}" y="{bottom + 6:.0f}" width="{wide}" height="12" '
                f'fill="{COLOURS[index % len(COLOURS)]}"/>'
            )
        legend.append(_text(at + 17, bottom + 16, name))
        at += 34 + 7.2 * len(name)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 30:.0f}" width="{WIDTH}" '
        'font-family="sans-serif" font-size="12">'
    )
    ground = '<rect width="100%" height="100%" fill="white"/>'
    heading = f'<text x="{LEFT}" y="18" font-size="14" font-weight="bold">{escape(title)}</text>'
    return "\n".join([head, ground, heading, *marks, *legend, "</svg>"]) + "\n"
