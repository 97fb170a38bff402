"""A replay in the terminal: decisions as they are taken, how the links are, and the sum at the end.

Nothing a user wrote is read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hippo.decide.wording import listed, number, percent, printed_text
from hippo.network.why.explain import placement
from hippo.network.why.story import BACKGROUND, BEGUN, CANCELLED, KEPT, LEVER, STOPPED, Story, StoryEntry, Track
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.report.text import LEAST_TOLD

Floats = NDArray[np.float64]
WORDS = {
    BEGUN: "begins",
    LEVER: "lever",
    STOPPED: "moves, stopping",
    BACKGROUND: "moves in the background",
    CANCELLED: "gives a move up",
    KEPT: "keeps",
}
COLOURS = {BEGUN: "bold", LEVER: "cyan", STOPPED: "yellow", BACKGROUND: "green", CANCELLED: "magenta", KEPT: "dim"}
HEAT = ((0.02, "on grey11"), (0.35, "on dark_red"), (0.6, "on red3"), (0.8, "on dark_orange"), (0.95, "on gold3"))
"""Background of a link that carries up to such a share of its base; above, green."""
CALM = "on dark_green"
INDENT = 34
"""Columns before a decision's reasons."""
MOST_LINKS = 14
"""Links whose heat is drawn while the run goes on, those that training leans on first."""


def clock(time_s: float) -> str:
    """``3:20`` hours and minutes, with days before them where there are any."""
    minutes = int(time_s // 60)
    days, hours = minutes // 1440, minutes // 60
    return f"{days} d {hours % 24}:{minutes % 60:02d}" if days else f"{hours}:{minutes % 60:02d}"


def decision_view(told: StoryEntry) -> RenderableType:
    """A decision: when, what, why; of one that changes nothing the first reason alone."""
    said = told.sentences()
    if told.kind == KEPT:
        return _line(told, Text(said[0] if said else "", style="dim"))
    return Group(
        _line(told, Text(said[0] if said else "")), *(Padding(Text(each), (0, 0, 0, INDENT)) for each in said[1:])
    )


def _line(told: StoryEntry, text: Text) -> RenderableType:
    """Time, kind and a sentence, each in its column."""
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=7, justify="right", no_wrap=True)
    row.add_column(width=INDENT - 11, no_wrap=True)
    row.add_column()
    row.add_row(Text(clock(told.time_s), style="bold"), Text(WORDS[told.kind], style=COLOURS[told.kind]), text)
    return row


def status_view(
    names: Sequence[str], shares: Floats, *, plan: Plan, time_s: float, work_share: float, width: int
) -> RenderableType:
    """Heat of the links up to now, (L, E) bandwidth over base, the last epochs that fit; what runs; how it does."""
    wide = max(map(len, names))
    room = max(8, width - wide - 10)
    rows = [_strip(name, shares[-room:, link], wide) for link, name in enumerate(names[:MOST_LINKS])]
    more = [Text(f"and {len(names) - MOST_LINKS} more links", style="dim")] if len(names) > MOST_LINKS else []
    against = f"{percent(abs(work_share - 1.0))} {'more' if work_share >= 1 else 'less'} work than keeping"
    head = Text.assemble((clock(time_s), "bold"), "  ", placement(plan), ("  " + against, "dim"))
    return Group(Text(), head, *rows, *more)


def _strip(name: str, shares: Floats, wide: int) -> Text:
    """The heat of one link through time, and what it carries now."""
    text = Text(f"{name:<{wide}} ")
    for share in shares:
        text.append(" ", style=_heat(float(share)))
    now = float(shares[-1])
    text.append(" down" if now <= 0 else f" {percent(now)}", style="red" if now < 0.5 else "dim")
    return text


def _heat(share: float) -> str:
    return next((colour for limit, colour in HEAT if share <= limit), CALM)


def story_view(story: Story) -> RenderableType:
    """The sum at the end: work of the method, of keeping and of perfect hindsight."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("", "work, M tokens", "of hindsight", "egress, USD", "moves", "moved, GB", "standing still"):
        table.add_column(title, justify="left" if not title else "right")
    if story.plain is not None:
        for track in story.plain.tracks:
            table.add_row(f"{track.name}, no compression", *_row(track, story.plain)[1:])
    for track in story.tracks:
        table.add_row(*_row(track, story), style="bold" if track is story.mine else None)
    return Group(Text(), table, Text(), Text(step_line(story), style="dim"), Text(verdict(story)))


def step_line(story: Story) -> str:
    """The step of the plan of the start, and how far measured ones may lie from it; empty: nothing ran."""
    begun = int(story.keeping.running[0])
    if begun < 0:
        return ""
    return f"A step of the plan of the start, links as the cluster says: {printed_text(story.printed(begun))}."


def _row(track: Track, story: Story) -> list[str]:
    best = story.hindsight.work
    return [
        track.name,
        number(track.work / 1e6, 4),
        percent(track.work / best) if best > 0 else "–",
        number(float(track.egress_usd.sum())),
        str(track.moves),
        number(float(track.moved_bytes.sum()) / 1e9),
        percent(float(track.downtime_s.sum()) / story.seconds),
    ]


def compressed_as(plan: Plan) -> str:
    """As what a plan sends over compressed links; empty: as it is."""
    return listed(list(dict.fromkeys(pair.kind for pair in plan.compression)))


def compression_line(problem: Problem) -> str:
    """That what crosses domains may be compressed; empty: it may not."""
    if not problem.compresses:
        return ""
    return (
        "What crosses domains may be compressed to eight bits, by everybody: that changes what is trained, and a token "
        f"trained so counts {problem.compression_worth:g}."
    )


def prices_line(problem: Problem) -> str:
    """What a change of plan costs beside its bytes, and where that is from."""
    prices = problem.rules.prices
    live = sorted(problem.rules.live_levers)
    levers = f"; {listed(live)} while it trains" if live else ""
    return f"A change of plan stops training for {prices.stop_s:g} s at least ({prices.told}){levers}."


def compression_words(story: Story) -> str:
    """For how much of the run links carried something compressed; empty: for none."""
    shares, kinds = [], []
    for track in (story.mine, story.keeping):
        plans = [story.cache.configurations[int(index)].plan for index in track.running]
        shares.append(percent(sum(bool(plan.compression) for plan in plans) / len(plans)))
        kinds += [compressed_as(plan) for plan in plans if plan.compression]
    if not kinds:
        return ""
    return f"Links carried {listed(list(dict.fromkeys(kinds)))} for {shares[0]} of the run, of keeping for {shares[1]}."


def verdict(story: Story) -> str:
    """What came of it, in some sentences: without compression first, then with it, where it is allowed."""
    own = " ".join(filter(None, (_outcome(story), compression_words(story))))
    return own if story.plain is None else f"Without compression {_outcome(story.plain)} With it {own}"


def _outcome(story: Story) -> str:
    mine, kept, best = (track.work for track in story.tracks)
    share = mine / kept - 1.0 if kept > 0 else 0.0
    against = f"{percent(abs(share))} {'more' if share >= 0 else 'less'} work than keeping what it began with"
    if abs(share) < LEAST_TOLD:
        against = "as much work as keeping what it began with"
    gain = best / kept - 1.0 if kept > 0 else 0.0
    head = f"{story.method} did {against}, and {percent(story.of_hindsight)} of what perfect hindsight does."
    if story.captured is None:
        return f"{head} There was nothing to gain: to keep is right."
    return f"{head} Hindsight gains {percent(gain)} over keeping; {percent(story.captured)} of that was captured."
