"""Evaluations in the terminal: methods on one network side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from hippo.decide.wording import between, count, number, percent, seconds
from hippo.report.evaluation_page import measured, met_word, ordered, signed, spread
from hippo.report.fitted import Column, FittedTable, Trimmed, column
from hippo.report.text import NOTHING, usd
from hippo.score.interval import LEVEL


def world_view(document: Mapping[str, Any]) -> RenderableType:
    """The methods of one network, most work first: the ``evaluate --json`` document; where something may be compressed,
    without that first."""
    world, plain = document["world"], document.get("without_compression")
    parts: list[RenderableType] = []
    parts += [Text(f"{world['model']} on {world['cluster']}", style="bold"), Text(under_words(document)), Text()]
    if plain is not None:
        parts += [Text("Without compression", style="bold"), *_world_parts(plain), Text()]
    if "compression_worth" in document:
        parts.append(Text(compression_words(document), style="bold"))
    return Trimmed(Group(*parts, *_world_parts(document)))


def under_words(document: Mapping[str, Any]) -> str:
    """Under which runtime all steps are, and what is assumed of it."""
    under = "Ideal" if document["runtime"] == "ideal" else "Under"
    assumed = [f"Assumed: {each.rstrip('.')}." for each in document["assumed"]]
    return " ".join([f"{under}{':' if under == 'Ideal' else ''} {document['runtime_is']}.", *assumed])


def _world_parts(document: Mapping[str, Any]) -> list[RenderableType]:
    """The table of methods, and what stands below it."""
    methods, world = document["methods"], document["world"]
    names = sorted(methods, key=lambda name: -methods[name]["work"])

    def cells(key: str, tell: Callable[[float], str]) -> list[str]:
        values = (methods[name][key] for name in names)
        return [NOTHING if value is None else tell(value) for value in values]

    table = FittedTable(
        (
            column("method", names, right=False),
            column("of hindsight", cells("of_hindsight", share)),
            column("captured", cells("captured", share), rank=1),
            column("step time", cells("step_time_s", seconds), rank=2),
            *_intervals(methods, names),
            column("busy", cells("utilization", percent), rank=3),
            column("egress", cells("egress_usd", usd), rank=4),
            column("moves", cells("moves", lambda value: f"{value:d}"), rank=1),
            column("levers", cells("levers", lambda value: f"{value:d}"), rank=5),
            column("reward", cells("reward", number), rank=6),
            column("decision p99", cells("decision_ms_p99", lambda value: seconds(value / 1e3, 2)), rank=5),
        )
    )
    lines = [
        _world_line(world, len(document["plans"])),
        *_assumed_lines(document["plans"], methods[names[0]]["epochs"]),
    ]
    return [table, *(Text(line, style="dim") for line in lines)]


def _assumed_lines(plans: Sequence[Mapping[str, Any]], epochs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The step at both ends of what is assumed, of the plan that the best method ran longest."""
    longest, _ = Counter(epoch["plan"] for epoch in epochs).most_common(1)[0]
    told = plans[longest]
    if told["assumed_span_s"] is None:
        return []
    return [
        f"as assumed, a step of the plan that ran longest takes {between(*told['assumed_span_s'])}, links as the "
        f"cluster says; {' to '.join(told['assumed_span_of'])}"
    ]


def _intervals(methods: Mapping[str, Any], names: Sequence[str]) -> list[Column]:
    """Between what nine of ten measured mean steps are expected; no column where no step has an interval."""
    found = [methods[name].get("step_time_interval_s") for name in names]
    told = [NOTHING if each is None else between(*each) for each in found]
    return [column(percent(LEVEL), told, rank=2)] if any(found) else []


def compression_words(document: Mapping[str, Any]) -> str:
    """What everybody might compress, of a document that says a worth."""
    worth = document["compression_worth"]
    return f"With compression between domains, for everybody; a token trained so counts {worth:g}."


def _world_line(world: Mapping[str, Any], plans: int) -> str:
    length = f"{world['epochs']} epochs of {seconds(world['epoch_s'])}"
    gain = world["gain"]
    told = NOTHING if gain is None else percent(gain)
    return f"{world['name']}: {length}; hindsight does {told} more than the plan of the start, kept; {plans} plans ran"


def share(value: float) -> str:
    """A share close to 1, with the digits that matter there."""
    return f"{100 * value:.2f} %"


def suite_view(document: Mapping[str, Any]) -> RenderableType:
    """The standard suite: all methods, then what was asked for."""
    names = ordered(document["methods"])
    told = [document["overall"][name] for name in names]
    sizes = sorted(document["large"].items(), key=lambda item: int(item[0]))
    methods = FittedTable(
        (
            column("method", names, right=False),
            column("of hindsight", (spread(each["of_hindsight"]) for each in told)),
            column("captured", (spread(each["captured"], digits=1) for each in told)),
            column("of adapting", (spread(each["of_adapting"], digits=1) for each in told), rank=2),
            column("worst elsewhere", (_signed(each["worst_elsewhere"]) for each in told), rank=1),
            *(
                column(
                    f"{k} domains",
                    [spread(each["methods"].get(name, {}).get("of_hindsight"), short=True) for name in names],
                    rank=3,
                )
                for k, each in sizes
            ),
        )
    )
    rows = document["figures"]
    figures = FittedTable(
        (
            column("figure", (row["what"] for row in rows), right=False),
            column("asked", (row["asked"] for row in rows), right=False),
            column("measured", (measured(row["measured"]) for row in rows)),
            column("met", (met_word(row) for row in rows), right=False),
        )
    )
    about = document["suite"]
    return Trimmed(Group(methods, figures, Text(_taken(about), style="dim")))


def _taken(about: Mapping[str, Any]) -> str:
    return (
        f"{count(about['tasks'], 'world')}: {seconds(about['cpu_s'])} of CPU, {seconds(about['wall_s'])} by the clock"
    )


def _signed(value: float | None) -> str:
    return NOTHING if value is None else signed(value)
