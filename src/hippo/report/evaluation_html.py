"""The page of an evaluation, of the suite or of one network: one file that opens offline, looks as ``html.py``.

The suite's page says what results/evaluation.md says: its text is made by ``evaluation_page`` and set here, its
pictures take the colours of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from markupsafe import Markup, escape

from hippo.decide.wording import between, capital, count, percent, seconds
from hippo.report.evaluation_page import measured, ordered, page
from hippo.report.evaluation_pictures import COLOURS, many_domains, over_time, pictures
from hippo.report.evaluation_terminal import compression_words, under_words
from hippo.report.frame import frame, template
from hippo.report.text import NOTHING, usd
from hippo.score.interval import LEVEL

Document = Mapping[str, Any]

METHODS: Mapping[str, str] = MappingProxyType(
    {
        "hi_ppo": "The trained policy: an upper agent chooses what to keep, pull or move, a lower one arranges each "
        "domain; every answer is verified by simulation under the forecast.",
        "receding_horizon": "Forecast, plans of the exact planner and the price of moving: the first step of the best "
        "sequence of moves, computed anew at every epoch. Nothing is learned.",
        "flat_ppo": "MaskablePPO of Stable-Baselines3 on the same environment, without graph network and hierarchy.",
        "hysteresis": "Moves only to what has been clearly better for several epochs in a row.",
        "greedy": "Moves at every epoch to what does most now, whatever it costs to get there.",
        "robust_static": "The plan that is best in expectation over the network to come, kept to the end.",
        "static_levers": "The best start under the forecast with its levers pulled, kept to the end.",
        "static": "The best plan at the start, kept to the end.",
        "mast": "MAST in motion: at every trigger the best region for the whole job, moved to where that pays.",
        "sailor": "Sailor in motion: plans anew at every trigger, and moves where that pays.",
        "crosspipe": "CrossPipe in motion: plans anew at every trigger, and moves where that pays.",
        "diloco": "DiLoCo in motion: plans anew at every trigger, and moves where that pays.",
        "hindsight": "Knows the whole trace, with the plans of the start and plans made for the states that come.",
    }
)
"""What each method is, in a sentence; others stand there as planners whose plan is kept."""
KEPT = "A planner's plan for the network at rest, or a variant of Hi-PPO: see the documentation."
WORK = "Work is tokens trained less egress, priced at what a token costs in rent."
SHORT = MappingProxyType(
    {
        "What was asked, and what was measured": "Asked",
        "All methods": "Overall",
        "Family by family": "Families",
        "Against the others, world by world": "Pairs",
        "Against plans that are kept": "Kept plans",
        "Movement and load": "Movement",
        "Many domains": "Domains",
        "Pareto front": "Front",
        "What each part is worth": "Ablations",
        "Time of a decision": "Time",
        "How to repeat it": "Repeat",
    }
)
"""Titles as the bar at the top has them."""


@dataclass(frozen=True)
class Block:
    """A paragraph, a table, a picture or a command."""

    kind: str  # "text", "table", "chart", "code"
    text: Markup | str = ""
    head: tuple[Markup, ...] = ()
    rows: tuple[TableRow, ...] = ()
    words: tuple[bool, ...] = ()  # columns that hold words
    svg: Markup = Markup("")


@dataclass(frozen=True)
class TableRow:
    """A row of a table; ``mine``: that of the method in question."""

    cells: tuple[Markup, ...]
    mine: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    id: str
    title: str
    short: str
    blocks: tuple[Block, ...]


def evaluation_page(document: Document) -> str:
    """The page of a suite: every table and picture of results/evaluation.md."""
    drawn, suite = pictures(document), document["suite"]
    text = page(document, document["figures"], suite, pictures=drawn)
    head, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    names = [*document["methods"], *document["held"], *document["ablations"]]
    if document["large"]:
        drawn["domains"] = many_domains(document)
        parts = [part.replace("\n", "\n\n![](img/domains)", 1) if part.startswith("Many") else part for part in parts]
    sections = [_section(part, drawn, names, suite["ours"]) for part in parts]
    asked = [row for row in document["figures"] if row["met"] is not None]
    about = head.split("\n\n", 2)[2]
    return _page(
        title=f"Evaluation of {suite['ours']}",
        eyebrow="The standard suite",
        heading=f"How near to perfect hindsight: {suite['ours']}",
        question=_inline(about, names),
        figures=[(row["what"], _short(row["measured"]), f"asked {row['asked']}") for row in asked],
        verdict=(
            f"{sum(row['met'] for row in asked)} of {len(asked)} figures that were asked for are met, "
            f"{sum(row['met'] and row['firm'] for row in asked)} of them by the whole interval."
        ),
        sections=sections,
        methods=[(name, METHODS.get(name, KEPT)) for name in (*ordered(document["methods"]), *document["ablations"])],
    )


def world_page(document: Document) -> str:
    """The page of one network: the methods side by side, and what their runs gave through time."""
    world, methods = document["world"], document["methods"]
    names = sorted(methods, key=lambda name: -methods[name]["work"])
    best = names[0] if names[0] != "hindsight" or len(names) == 1 else names[1]
    mine = "hi_ppo" if "hi_ppo" in methods else best
    told, doubt = methods[mine], document["uncalibrated"]
    gain = (
        "nothing was kept to compare with" if world["gain"] is None else f"{percent(world['gain'])} more than keeping"
    )
    figures = [
        ("share of hindsight", _share(told["of_hindsight"]), mine),
        ("gain captured", _share(told["captured"]), "of hindsight's over keeping"),
        ("hindsight does", NOTHING if world["gain"] is None else percent(world["gain"]), "more than the plan kept"),
        ("moves", str(told["moves"]), mine),
        ("egress", usd(told["egress_usd"]), mine),
        ("decision p99", seconds(told["decision_ms_p99"] / 1e3, 2), "CPU, one thread"),
    ]
    plain, sections = document.get("without_compression"), []
    if plain is not None:
        same = sorted(plain["methods"], key=lambda name: -plain["methods"][name]["work"])
        table = _compared(plain["methods"], same, mine)
        sections = [Section("plain", "Without compression", "Without compression", (table,))]
        doubt = " ".join(filter(None, (compression_words(document).rstrip("."), doubt)))
    sections += [
        Section("compared", "Methods side by side", "Compared", (_compared(methods, names, mine),)),
        Section("time", "Through time", "Time", tuple(_through_time(document))),
    ]
    return _page(
        title=f"Evaluation: {world['name']}",
        eyebrow="One network",
        heading=world["name"],
        question=f"{world['model']} on {world['cluster']}. {under_words(document)} "
        f"{count(world['epochs'], 'epoch')} of {seconds(world['epoch_s'])}; "
        f"{count(len(document['plans']), 'plan')} ran. {WORK}{f' {capital(doubt)}.' if doubt else ''}",
        figures=figures,
        verdict=f"Most work: {best}, of the methods that do not know the future. Hindsight: {gain}.",
        sections=sections,
        methods=[(name, METHODS.get(name, KEPT)) for name in ordered(methods)],
    )


def _page(**content: Any) -> str:
    return template("evaluation.html.j2").render(**frame(), **content)


# ---------------------------------------------------------------------------------------------- from the text's form
def _section(text: str, drawn: Mapping[str, str], names: Sequence[str], mine: str) -> Section:
    title, _, body = text.partition("\n")
    blocks = tuple(block for part in re.split(r"\n\n+", body.strip("\n")) for block in _block(part, drawn, names, mine))
    return Section(re.sub(r"\W+", "-", title.lower()).strip("-"), title, SHORT.get(title, title), blocks)


def _block(text: str, drawn: Mapping[str, str], names: Sequence[str], mine: str) -> Iterator[Block]:
    picture = re.match(r"!\[[^]]*\]\(img/([^)]*)\)", text)
    if picture:
        yield Block("chart", svg=_coloured(drawn[picture[1]]))
        text = text[picture.end() :].strip()
    if text.startswith("|"):
        yield _table(text, names, mine)
    elif text.startswith("    "):
        yield Block("code", text.strip())
    elif text:
        yield Block("text", _inline(text, names))


def _table(text: str, names: Sequence[str], mine: str) -> Block:
    head, _, *rows = ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines())
    rows = [row + [""] * (len(head) - len(row)) for row in rows]
    words = tuple(any(row[at] != NOTHING for row in rows) and not _counts(rows, at) for at in range(len(head)))
    return Block(
        "table",
        head=tuple(_inline(cell, names) for cell in head),
        rows=tuple(TableRow(tuple(_inline(cell, names) for cell in row), row[0] == f"`{mine}`") for row in rows),
        words=words,
    )


def _counts(rows: Sequence[Sequence[str]], at: int) -> bool:
    """Whether a column holds numbers."""
    return any(re.search(r"\d", row[at]) for row in rows)


def _inline(text: str, names: Iterable[str]) -> Markup:
    """Marks of the text as markup: code, strong, emphasis; names of methods lead to what they are."""
    found = str(escape(text))
    found = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", found)
    found = re.sub(r"`([^`]*)`", lambda match: _code(match[1], names), found)
    found = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", found)
    return Markup(re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*", r"<em>\1</em>", found))


def _code(text: str, names: Iterable[str]) -> str:
    known = text in names and (text in METHODS or text.startswith("no_"))
    return f'<code><a href="#method-{text}">{text}</a></code>' if known else f"<code>{text}</code>"


def _coloured(svg: str) -> Markup:
    """A picture in the colours of the page, light or dark."""
    found = svg.replace('<rect width="100%" height="100%" fill="white"/>', "").replace("#ccc", "var(--rule)")
    for place, colour in enumerate(COLOURS):
        found = found.replace(colour, f"var(--d{place})")
    return Markup(re.sub(r'<svg ([^>]*?) width="\d+"[^>]*>', r'<svg \1 class="chart" role="img">', found, count=1))


def _short(value: Any) -> str:
    return f"{100 * value['mean']:.1f} %" if isinstance(value, Mapping) else measured(value)


# ------------------------------------------------------------------------------------------------------- one network
def _compared(methods: Document, names: Sequence[str], mine: str) -> Block:
    head = (
        "method",
        "work, share of hindsight",
        "",
        "captured",
        "step time",
        "busy",
        "egress",
        "moves",
        "decision p99",
    )
    rows = []
    for name in names:
        told = methods[name]
        step = NOTHING if told["step_time_s"] is None else seconds(told["step_time_s"])
        if told.get("step_time_interval_s"):
            step += f" ({percent(LEVEL)}: {between(*told['step_time_interval_s'])})"
        cells = (
            _inline(f"`{name}`", names),
            _bar(told["of_hindsight"]),
            *map(escape, (_share(told["of_hindsight"]), _share(told["captured"]), step, percent(told["utilization"]))),
            *map(escape, (usd(told["egress_usd"]), str(told["moves"]), seconds(told["decision_ms_p99"] / 1e3, 2))),
        )
        rows.append(TableRow(cells, name == mine))
    return Block("table", head=tuple(map(escape, head)), rows=tuple(rows), words=(True, True, *(False,) * 7))


def _bar(share: float | None) -> Markup:
    width = 0.0 if share is None else 100 * min(1.0, max(0.0, share))
    return Markup(f'<div class="of" aria-hidden="true"><i style="width:{width:.2f}%"></i></div>')


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.2f} %"


def _through_time(document: Document) -> Iterator[Block]:
    price, methods = document["world"]["usd_per_token"], document["methods"]
    names = ordered(methods)
    work = {name: _so_far(methods[name]["epochs"], price) for name in names}
    best, title = work.get("hindsight"), "Work done so far"
    if best is not None:
        work = {name: [a - b for a, b in zip(told, best, strict=True)] for name, told in work.items()}
        title += ", less that of hindsight"
    times = [epoch["time_s"] / 3600 for epoch in methods[names[0]]["epochs"]]
    per_hour = 3600 / document["world"]["epoch_s"]
    pace = {name: [per_hour * epoch["tokens"] / 1e6 for epoch in methods[name]["epochs"]] for name in names}
    if best is not None:
        yield Block("text", "Work: a line that falls loses to who knows the trace.")
    millions = {name: [value / 1e6 for value in told] for name, told in work.items()}
    yield Block("chart", svg=_coloured(over_time(f"{title}, millions of tokens, by hours", times, millions)))
    yield Block("text", "The pace of training, egress left out: where it falls to zero, training stands still.")
    yield Block("chart", svg=_coloured(over_time("Tokens trained, millions an hour, by hours", times, pace)))


def _so_far(epochs: Any, price: float) -> list[float]:
    total, found = 0.0, []
    for epoch in epochs:
        total += epoch["tokens"] - (epoch["egress_usd"] / price if price > 0 else 0.0)
        found.append(total)
    return found
