"""The page of a replay: links through time as a heat map, the plan and its cut points above it, the decisions on it,
the work against keeping and hindsight below, and every decision with its reasons. One file, offline.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hippo.decide.wording import capital, count, duration, listed, number, percent, printed_text, seconds
from hippo.network.why.explain import changes as changes_between
from hippo.network.why.explain import link_words, placement
from hippo.network.why.reasons import PROPOSERS
from hippo.network.why.story import KEPT, LEVER, Story, StoryEntry, Track
from hippo.plan.plan import Plan
from hippo.report.frame import frame, inline_json, template
from hippo.report.story import DOMAIN_COLOURS
from hippo.report.text import question_line, settings, unbroken, usd
from hippo.report.watch_terminal import WORDS, clock, compression_line, verdict
from hippo.units import gbps_from_bytes_per_s

MOST_SHARE = 2.5  # of its base that a link is drawn with; more is drawn like it
MOST_ROWS = 300
"""Decisions of one sort that the tables hold; the file of ``--json`` holds all."""
MOST_LETTERS = 6
"""Plans that are named below the band; all stand in the table of plans."""
HEAT = ((0.0, "outage"), (0.2, "20 %"), (0.5, "50 %"), (0.8, "80 %"), (1.0, "base"), (1.3, "130 %"))
"""Shares of the base that the legend names."""


@dataclass(frozen=True)
class Entry:
    """A row of the table of decisions."""

    index: int
    clock: str
    kind: str
    words: str
    plan: str
    sentences: tuple[str, ...]
    decision: str
    same: tuple[Entry, ...] = ()  # later ones that go to and fro between the same two plans


@dataclass(frozen=True)
class WorkRow:
    """A row of the table of work."""

    name: str
    says: str
    share: float  # of hindsight
    work: str
    of_hindsight: str
    against: str
    egress: str
    moves: str
    moved: str
    standing: str
    utilization: str
    chosen: bool


@dataclass(frozen=True)
class PlanRow:
    """A plan that ran."""

    name: str
    place: str
    origin: str
    lever: str
    ran: str
    step: str
    settings: tuple[tuple[str, str], ...]


def watch_html(story: Story) -> str:
    """The page of one replay: a whole document, about a byte per link and epoch beyond its frame."""
    page = template("watch.html.j2")
    changes = [told for told in story.decisions if told.changes]
    kept = [told for told in story.decisions if not told.changes]
    names = plan_names(story)
    return page.render(
        **frame("watch.js"),
        model=story.problem.model.name,
        cluster=story.problem.cluster.name,
        question=_question(story),
        figures=_figures(story),
        verdict=unbroken(verdict(story)),
        map_lead=unbroken(_map_lead(story)),
        map_json=inline_json(packed(story, names)),
        domains=_domains(story),
        letters=_letter_rows(story, names)[:MOST_LETTERS],
        more_letters=max(0, len(names) - MOST_LETTERS),
        heat=[{"share": share, "words": words} for share, words in HEAT],
        stale=not bool(story.told.all()),
        work=[*_without_compression(story), *(_work(story, track) for track in story.tracks)],
        work_lead=_work_lead(story),
        changes=_folded(changes[:MOST_ROWS], story, names),
        kept=[_entry(told, story, names) for told in kept[:MOST_ROWS]],
        left_out=max(0, len(changes) - MOST_ROWS) + max(0, len(kept) - MOST_ROWS),
        decisions_lead=_decisions_lead(story, changes, kept),
        plans=_plans(story, names),
    )


def plan_names(story: Story) -> dict[int, str]:
    """A short name for every configuration that ran: a letter a location, in the order they ran, and a number for its
    levers: ``A``, ``A2``, ``B``."""
    names: dict[int, str] = {}
    places: dict[int, list[int]] = {}
    for index in story.used:
        place = story.cache.location(index)
        levers = places.setdefault(place, [])
        levers.append(index)
        letter = _letters(list(places).index(place))
        names[index] = letter if len(levers) == 1 else f"{letter}{len(levers)}"
    return names


def _letters(number: int) -> str:
    """0 is A, 25 is Z, 26 is AA."""
    head, tail = divmod(number, 26)
    return (_letters(head - 1) if head else "") + chr(ord("A") + tail)


# ----------------------------------------------------------------------------------------------------------- headline
def _question(story: Story) -> str:
    """What was replayed, in a line."""
    epochs = f"{count(story.epochs, 'epoch')} of {duration(story.epoch_s)}"
    compressed = compression_line(story.problem)
    return (
        f"{question_line(story.problem)}. {duration(story.seconds)} of {Path(story.source).name}, {epochs}, "
        f"decided by {story.method}.{' ' if compressed else ''}{compressed}"
    )


def _figures(story: Story) -> tuple[tuple[str, str, str], ...]:
    """(name, value, remark) of the figures that head the page."""
    mine, kept = story.mine, story.keeping
    gain = mine.work / kept.work - 1.0 if kept.work > 0 else 0.0
    levers = sum(told.kind == "lever" for told in story.decisions)
    asked = story.decision_s[1:] if story.epochs > 1 else story.decision_s
    captured = "–" if story.captured is None else percent(story.captured)
    return (
        ("work of hindsight", percent(story.of_hindsight), "egress priced in"),
        ("against keeping", f"{'+' if gain >= 0 else '−'}{percent(abs(gain))}", "what it began with"),
        ("gain captured", captured, "of hindsight's" if story.captured is not None else "nothing to gain"),
        ("moves", str(mine.moves), f"{count(levers, 'lever')} pulled"),
        ("standing still", percent(float(mine.downtime_s.sum()) / story.seconds), "of the time, for moves"),
        ("egress", usd(float(mine.egress_usd.sum())), f"keeping: {usd(float(kept.egress_usd.sum()))}"),
        ("decision p99", seconds(float(np.percentile(asked, 99)), 2), "CPU, one thread"),
    )


# --------------------------------------------------------------------------------------------------------- the picture
def packed(story: Story, names: dict[int, str]) -> dict[str, object]:
    """What the script draws. ``heat``: a byte per epoch of a link, row by row, per cent of the base."""
    order = _order(story)
    shares = np.clip(story.bandwidth_bytes_per_s[:, order] / story.base_bytes_per_s[order], 0.0, MOST_SHARE)
    levels = np.where(shares > 0, np.maximum(1, np.round(100 * shares)), 0).astype(np.uint8)
    used, edges = {index: at for at, index in enumerate(story.used)}, story.problem.cluster.links
    return {
        "begin_s": story.begin_s,
        "epoch_s": story.epoch_s,
        "epochs": story.epochs,
        "layers": story.problem.model.num_layers,
        "links": [
            {
                "name": name,
                "gbps": round(gbps_from_bytes_per_s(float(story.base_bytes_per_s[link]) / edges[link].goodput), 4),
            }
            for link, name in ((link, link_words(story.problem)[link]) for link in order)
        ],
        "heat": b64encode(np.ascontiguousarray(levels.T).tobytes()).decode(),
        "stale": _runs(~story.told[:, order]),
        "plans": [_drawn(story, index, names[index], order) for index in used],
        "running": _stretches([used[int(index)] for index in story.mine.running]),
        "halts": _spans(story.mine.downtime_s > 0),
        "streams": _spans((story.mine.moved_bytes > 0) & (story.mine.downtime_s <= 0)),
        "ahead": {track.name: _ahead(story, track) for track in (story.mine, story.hindsight)},
        "total": story.keeping.work,
        "decisions": [
            {"epoch": told.epoch, "kind": told.kind, "row": at, "words": _tip(told)}
            for at, told in enumerate(story.decisions)
        ],
    }


def _order(story: Story) -> list[int]:
    """Links, those that carried most of the run's training first, the two directions of a pair together."""
    carried = np.zeros(len(story.base_bytes_per_s))
    for index in story.mine.running:
        carried += story.cache.bytes_per_step(int(index))
    links = story.problem.cluster.links
    pairs: dict[frozenset[str], list[int]] = {}
    for link in np.argsort(-carried, kind="stable"):
        pairs.setdefault(frozenset((links[link].source, links[link].destination)), []).append(int(link))
    return [link for pair in pairs.values() for link in pair]


def _drawn(story: Story, index: int, name: str, order: Sequence[int]) -> dict[str, object]:
    """A plan as the picture needs it: the layers of every group of domains, and the links it sends over."""
    plan = story.cache.configurations[index].plan
    at = story.problem.cluster.domain_index
    lines = dict.fromkeys(
        tuple((at[stage.domain], *stage.layers) for stage in pipeline.stages) for pipeline in plan.pipelines
    )
    sent = story.cache.bytes_per_step(index)[list(order)]
    return {
        "name": name,
        "words": placement(plan),
        "lines": [[list(stage) for stage in line] for line in lines],
        "uses": [int(link) for link in np.flatnonzero(sent > 0)],
    }


def _ahead(story: Story, track: Track) -> list[float]:
    """Work up to the end of each epoch less that of keeping, millions of tokens."""
    return [round(float(value), 4) for value in np.cumsum(track.net_tokens - story.keeping.net_tokens) / 1e6]


def _stretches(values: Sequence[int]) -> list[list[int]]:
    """``[[first, stop, value], ...]`` of equal neighbours."""
    found: list[list[int]] = []
    for place, value in enumerate(values):
        if found and found[-1][2] == value:
            found[-1][1] = place + 1
        else:
            found.append([place, place + 1, value])
    return found


def _spans(marks: NDArray[np.bool_]) -> list[list[int]]:
    """``[[first, stop], ...]`` of what is true."""
    return [[first, stop] for first, stop, value in _stretches([int(mark) for mark in marks]) if value]


def _runs(marks: NDArray[np.bool_]) -> list[list[int]]:
    """``[[row, first, stop], ...]`` of what is true in (T, E), a row a link."""
    return [[row, *span] for row in range(marks.shape[1]) for span in _spans(marks[:, row])]


def _tip(told: StoryEntry) -> str:
    """The hover text of a decision: what it is, and its first reasons."""
    return "\n".join((f"{clock(told.time_s)}, {WORDS[told.kind]}", *told.sentences()[:3]))


def _domains(story: Story) -> list[dict[str, str]]:
    """Name and colour of every domain that held layers."""
    held = {name for index in story.used for name in story.cache.configurations[index].plan.domains}
    names = [domain.name for domain in story.problem.cluster.domains]
    return [{"name": name, "colour": f"--d{at % DOMAIN_COLOURS}"} for at, name in enumerate(names) if name in held]


def _map_lead(story: Story) -> str:
    shares = story.bandwidth_bytes_per_s / story.base_bytes_per_s
    low = float((shares < 0.7).mean())
    worst = int(np.argmin(shares.mean(axis=0)))
    down = int((story.bandwidth_bytes_per_s <= 0).any(axis=0).sum())
    outages = f" {count(down, 'link')} {'was' if down == 1 else 'were'} down for a while." if down else ""
    name = link_words(story.problem)[worst]
    return (
        f"Links spent {percent(low)} of the time below 70 % of their base bandwidth; {name} fared worst, at "
        f"{percent(float(shares[:, worst].mean()))} on average.{outages} Marks stand where something was decided."
    )


# ------------------------------------------------------------------------------------------------------------- tables
def _work(story: Story, track: Track) -> WorkRow:
    best, kept = story.hindsight.work, story.keeping.work
    share = track.work / best if best > 0 else 1.0
    says = {"keeping": "the plan of the start, to the end", "hindsight": "the whole trace known beforehand"}
    against = track.work / kept - 1.0 if kept > 0 else 0.0
    return WorkRow(
        name=track.name,
        says=says.get(track.name, "as replayed here"),
        share=max(0.0, share),
        work=f"{number(track.work / 1e6, 4)} M",
        of_hindsight=percent(share),
        against="–" if track is story.keeping else f"{'+' if against >= 0 else '−'}{percent(abs(against))}",
        egress=usd(float(track.egress_usd.sum())),
        moves=str(track.moves),
        moved=f"{number(float(track.moved_bytes.sum()) / 1e9)} GB" if track.moved_bytes.any() else "–",
        standing=duration(float(track.downtime_s.sum())) if track.downtime_s.any() else "–",
        utilization=percent(float(track.utilization.mean())),
        chosen=track is story.mine,
    )


def _without_compression(story: Story) -> list[WorkRow]:
    """The same ways where nothing was compressed; none: nothing was allowed to be."""
    plain = story.plain
    rows = [] if plain is None else [_work(plain, track) for track in plain.tracks]
    return [replace(row, name=f"{row.name}, no compression", chosen=False) for row in rows]


def _work_lead(story: Story) -> str:
    return (
        "Work is tokens trained less egress in tokens; a token is worth "
        f"{number(1e6 * story.usd_per_token)} USD a million, the rent of all GPUs over what the plan of the start "
        "trains. No answer can beat hindsight: it knows the trace and may use every plan named here."
    )


def _entry(told: StoryEntry, story: Story, names: dict[int, str]) -> Entry:
    sentences = told.sentences()
    if told.kind == KEPT or told.before < 0 or told.before == told.after:
        plan = names.get(told.after, "")
    else:
        plan = f"{names.get(told.before, '')} → {names.get(told.after, '')}"
    index = story.decisions.index(told)
    return Entry(index, clock(told.time_s), told.kind, WORDS[told.kind], plan, sentences, seconds(told.decision_s, 2))


def _folded(changes: Sequence[StoryEntry], story: Story, names: dict[int, str]) -> list[Entry]:
    """A row a decision; levers pulled to and fro between the same two plans, one after the other, share a row."""
    rows: list[Entry] = []
    between: frozenset[int] | None = None
    for told in changes:
        pair = frozenset((told.before, told.after)) if told.kind == LEVER else None
        entry = _entry(told, story, names)
        if pair is not None and pair == between:
            rows[-1] = replace(rows[-1], same=(*rows[-1].same, entry))
        else:
            rows.append(entry)
        between = pair
    return rows


def _letter_rows(story: Story, names: dict[int, str]) -> list[dict[str, str]]:
    """What the letters on the band mean: a placement, or the plan whose levers are others."""
    plans, rows = story.cache.configurations, []
    first: dict[int, int] = {}
    for index in story.used:
        known = plans[index]
        base = first.setdefault(known.place, index)
        if base == index:
            words = placement(known.plan)
        else:
            changed = changes_between(plans[base].plan, known.plan)
            words = f"as {names[base]}, with {listed(changed) or 'other levers'}"
        rows.append({"name": names[index], "words": words})
    return rows


def _decisions_lead(story: Story, changes: Sequence[StoryEntry], kept: Sequence[StoryEntry]) -> str:
    asked = f"{count(len(changes), 'decision')} changed something"
    stayed = f"; {len(kept)} times something moved and everything stayed" if kept else ""
    return f"{capital(asked)}{stayed}. What keeping would have cost is as forecast at that moment, not as it came."


def _plans(story: Story, names: dict[int, str]) -> list[PlanRow]:
    ran = np.bincount(story.mine.running, minlength=len(story.cache)) / story.epochs
    rows = []
    for index in story.used:
        known = story.cache.configurations[index]
        rows.append(
            PlanRow(
                names[index],
                placement(known.plan),
                PROPOSERS.get(known.origin, known.origin),
                known.lever,
                percent(float(ran[index])) if ran[index] > 0 else "–",
                printed_text(story.printed(index)),
                _settings(known.plan),
            )
        )
    return rows


def _settings(plan: Plan) -> tuple[tuple[str, str], ...]:
    stages = sum(len(pipeline.stages) for pipeline in plan.pipelines)
    waves = "/".join(str(pipeline.num_micro_batches) for pipeline in plan.pipelines)
    return (("stages", str(stages)), ("GPUs", str(plan.gpus)), ("micro-batches", waves), *settings(plan))
