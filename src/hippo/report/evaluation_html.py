"""The charts of an evaluation as one HTML file that opens offline (plotly, its script inside)."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from hippo.report.evaluation_page import ordered

Document = Mapping[str, Any]


def evaluation_page(document: Document) -> str:
    """All charts of a suite, one under the other."""
    charts = [_families(document, "of_hindsight", "Share of the work of perfect hindsight")]
    charts.append(_families(document, "captured", "Share of the gain captured, where hindsight gains 3 % or more"))
    if document["movement"]:
        charts.append(_movement(document))
    if document["large"]:
        charts.append(_large(document))
    charts += [_front(each) for each in document["front"].get("problems", ())]
    if document["decisions"]:
        charts.append(_decisions(document))
    return _page(charts, f"Evaluation: {document['suite']['ours']}")


def world_page(document: Document) -> str:
    """Charts of one network: what each method's run gave, epoch by epoch."""
    price = document["world"]["usd_per_token"]
    found = _figure("Work done so far, less that of hindsight", "s", "tokens, egress priced in")
    pace = _figure("Tokens trained in each epoch", "s", "tokens")
    methods = document["methods"]
    work = {name: _so_far(told["epochs"], price) for name, told in methods.items()}
    best = work.get("hindsight")
    for name in ordered(methods):
        epochs = methods[name]["epochs"]
        times = [epoch["time_s"] for epoch in epochs]
        told = work[name] if best is None else [one - other for one, other in zip(work[name], best, strict=True)]
        found.add_scatter(x=times, y=told, mode="lines", name=name)
        plans = [f"plan {epoch['plan']}" for epoch in epochs]
        pace.add_scatter(x=times, y=[epoch["tokens"] for epoch in epochs], text=plans, mode="lines", name=name)
    if best is None:
        found.update_layout(title="Work done so far")
    return _page([found, pace], f"Evaluation: {document['world']['name']}")


def _so_far(epochs: Any, price: float) -> list[float]:
    total, found = 0.0, []
    for epoch in epochs:
        total += epoch["tokens"] - (epoch["egress_usd"] / price if price > 0 else 0.0)
        found.append(total)
    return found


def _page(charts: list[Any], heading: str) -> str:
    """One file with its script inside."""
    parts = [
        chart.to_html(full_html=False, include_plotlyjs=index == 0, default_height="460px")
        for index, chart in enumerate(charts)
    ]
    title = escape(heading)
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
    body = f'<body style="font-family:sans-serif;max-width:1100px;margin:auto"><h1>{title}</h1>'
    return "".join([head, body, *parts, "</body></html>\n"])


def _figure(title: str, horizontal: str, vertical: str) -> Any:
    from plotly.graph_objects import Figure

    return Figure(layout={"title": title, "xaxis": {"title": horizontal}, "yaxis": {"title": vertical}})


def _points(found: Any, name: str, x: list[Any], told: list[Any], *, lines: bool = False) -> None:
    """A trace of means with their intervals; what was not measured is left out."""
    kept = [(at, each) for at, each in zip(x, told, strict=True) if each is not None]
    means = [each["mean"] for _, each in kept]
    error = {
        "type": "data",
        "symmetric": False,
        "array": [each["high"] - each["mean"] for _, each in kept],
        "arrayminus": [each["mean"] - each["low"] for _, each in kept],
    }
    mode = "lines+markers" if lines else "markers"
    found.add_scatter(x=[at for at, _ in kept], y=means, error_y=error, mode=mode, name=name)


def _families(document: Document, key: str, title: str) -> Any:
    found = _figure(title, "family", "share")
    families = list(document["families"])
    for name in ordered(document["methods"]):
        told = [document["families"][family]["methods"].get(name, {}).get(key) for family in families]
        _points(found, name, families, told)
    found.update_layout(scattermode="group", yaxis={"tickformat": ".0%"})
    return found


def _movement(document: Document) -> Any:
    found = _figure("Loss of work against the network at rest", "swing of the links", "loss")
    swings = list(document["movement"])
    for name in ordered(dict.fromkeys(name for told in document["movement"].values() for name in told)):
        told = [document["movement"][swing].get(name) for swing in swings]
        _points(found, name, [float(swing) for swing in swings], told, lines=True)
    found.update_layout(xaxis={"tickformat": ".0%"}, yaxis={"tickformat": ".0%"})
    return found


def _large(document: Document) -> Any:
    found = _figure("Share of the work of perfect hindsight by number of domains", "domains", "share")
    counts = sorted(document["large"], key=int)
    for name in ordered(document["methods"]):
        told = [document["large"][count]["methods"].get(name, {}).get("of_hindsight") for count in counts]
        _points(found, name, [int(count) for count in counts], told, lines=True)
    found.update_layout(yaxis={"tickformat": ".0%"})
    return found


def _front(problem: Document) -> Any:
    found = _figure(f"Front and plans begun: {problem['world']}", "step time, s", "egress a step, USD")
    for name, key in (("exact front", "front"), ("begun by preference", "plans")):
        rows = problem[key]
        busy = [f"busy {100 * row[2]:.0f} %" for row in rows]
        found.add_scatter(x=[row[0] for row in rows], y=[row[1] for row in rows], text=busy, mode="markers", name=name)
    return found


def _decisions(document: Document) -> Any:
    found = _figure("CPU time of a decision", "method", "ms")
    names = list(document["decisions"])
    for key in ("p50", "p99"):
        found.add_bar(x=names, y=[document["decisions"][name][key] for name in names], name=key)
    found.update_layout(yaxis={"type": "log"})
    return found
