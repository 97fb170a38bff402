"""What happened in a world, drawn over time: who held which devices of each domain, what went over each link, and what
single jobs went through. SVG inside the page, coloured by the style sheet; the axes are those of ``jobs_charts``.

A block is one job on devices of one node for a while: its place says which node. Parts of one job in several domains
have a frame and are joined where they begin; ``jobs.js`` lights up all that belongs to the job under the pointer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.site import JobSite
from hippo.report.charts import BOLD
from hippo.report.jobs_charts import LEFT, RIGHT, WIDTH, time_marks

Floats = NDArray[np.float64]

ROOM, GAP, FOOT = 420, 14, 40
LEAST_HEIGHT, LEAST_WIDTH = 56, 0.4
LETTER = 6.4
LANE, NAME = 17, 150
LINK_WIDTH, LINK_HEIGHT = 320, 92


@dataclass(frozen=True)
class TimeAxis:
    """A stretch of the time axis, s; what lies outside is not drawn."""

    begin_s: float
    end_s: float
    left: float = LEFT
    right: float = WIDTH - RIGHT

    @property
    def wide(self) -> float:
        """Its width."""
        return self.right - self.left

    def x(self, time_s: float) -> float:
        """Where a time stands, held inside."""
        share = (time_s - self.begin_s) / (self.end_s - self.begin_s)
        return self.left + min(1.0, max(0.0, share)) * (self.right - self.left)

    def axis(self, top: float, bottom: float, label: str = "") -> list[str]:
        """Lines and words of the time axis."""
        drawn = []
        for time_s, words in time_marks(self.begin_s, self.end_s, 12 if self.wide > 500 else 4):
            x = self.x(time_s)
            drawn.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>')
            anchor = "end" if x > self.right - 14 else "start" if x < 14 else "middle"
            drawn.append(f'<text class="small" x="{x:.1f}" y="{bottom + 14:.1f}" text-anchor="{anchor}">{words}</text>')
        if label:
            drawn.append(f'<text class="small" x="{self.left}" y="{bottom + 32:.1f}">{escape(label)}</text>')
        return drawn


@dataclass(frozen=True)
class DeviceBlock:
    """A run on devices of nodes, or what keeps them from jobs."""

    begin_s: float
    computes_s: float  # before, it restarts or waits; ``end_s``: it never does
    end_s: float
    nodes: tuple[tuple[int, int], ...]  # node (counted through all pools), devices
    colour: str  # CSS; empty: hatched, for what is no job
    name: str
    tip: str
    job: int = -1


def device_map(site: JobSite, blocks: Sequence[DeviceBlock], span: TimeAxis, domains: Sequence[int]) -> str:
    """Blocks upon the devices of these domains, node upon node."""
    nodes = [(pool.domain, pool.per_node) for pool in site.pools for _ in range(pool.nodes)]
    span = replace(span, left=max(span.left, min(NAME, 14 + BOLD * max(len(site.domains[at]) for at in domains))))
    held = {at: [node for node, (name, _) in enumerate(nodes) if name == site.domains[at]] for at in domains}
    most = max(sum(nodes[node][1] for node in each) for each in held.values())
    scale = max(ROOM / len(domains), LEAST_HEIGHT) / most
    top, lines, place = 8.0, [], dict[int, float]()
    for at in domains:
        size = sum(nodes[node][1] for node in held[at])
        base = top + size * scale
        lines.append(
            f'<rect class="free" x="{span.left}" y="{top:.1f}" width="{span.wide}" height="{size * scale:.1f}"/>'
        )
        words = f'x="{span.left - 8}" text-anchor="end"'
        lines.append(
            f'<text {words} y="{top + 13:.1f}" class="bold">{escape(_short(site.domains[at], span.left, BOLD))}</text>'
        )
        lines.append(f'<text {words} y="{top + 28:.1f}" class="small">{size:,}</text>')
        for node in held[at]:
            base -= nodes[node][1] * scale
            place[node] = base
        top += size * scale + GAP
    bottom = top - GAP
    height = bottom + FOOT
    drawn = [f'<svg class="chart" id="map" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="Jobs on devices">']
    drawn.append(
        '<defs><pattern id="hatching" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect width="5" height="5" style="fill:var(--idle);stroke:none" opacity=".55"/>'
        '<path d="M0 0V5" style="stroke:var(--k4)" stroke-width="1.6"/></pattern></defs>'
    )
    drawn += [*lines, *span.axis(8.0, bottom, "time since the first arrival")]
    lanes = _lanes(blocks, nodes)
    joined, names = [], []
    for block, rects in zip(blocks, lanes, strict=True):
        left, right = span.x(block.begin_s), span.x(block.end_s)
        shown = [(place[node] + first * scale, devices * scale) for node, first, devices in rects if node in place]
        if not shown or right - left < LEAST_WIDTH:
            continue
        merged = _merged(shown)
        ends = {nodes[node][0] for node, _ in block.nodes}
        cut = ' class="cut"' if len(ends) > 1 else ""
        style = f' style="fill:{block.colour}"' if block.colour else ' class="away"'
        body = []
        for y, tall in merged:
            there = f'x="{left:.1f}" y="{y:.1f}" height="{tall:.1f}"'
            body.append(f'<rect{cut} {there} width="{right - left:.1f}"{style}/>')
            waits = span.x(block.computes_s) - left
            if waits > LEAST_WIDTH:
                body.append(f'<rect class="idle" {there} width="{waits:.1f}"/>')
            if tall >= 12 and right - left > LETTER * len(block.name) + 6 and block.job >= 0:
                middle = f'x="{(left + right) / 2:.1f}" y="{y + tall / 2 + 4:.1f}" text-anchor="middle"'
                names.append(f'<text class="in" {middle}>{escape(block.name)}</text>')
        tag = f' data-job="{block.job}"' if block.job >= 0 else ""
        drawn.append(f'<g{tag} data-tip="{escape(block.tip)}">{"".join(body)}</g>')
        if cut:
            tops = [y + tall / 2 for y, tall in merged]
            dots = "".join(f'<circle cx="{left:.1f}" cy="{y:.1f}" r="2.4"/>' for y in tops)
            line = f'<path d="M{left:.1f} {min(tops):.1f}V{max(tops):.1f}"/>'
            joined.append(f'<g class="joins" data-job="{block.job}">{line}{dots}</g>')
    return "".join([*drawn, *joined, *names, "</svg>"])


def _lanes(blocks: Sequence[DeviceBlock], nodes: Sequence[tuple[str, int]]) -> list[list[tuple[int, int, int]]]:
    """For each block the devices that it is drawn on: node, first of some in a row, how many. The lowest free ones."""
    free = [list(range(size)) for _, size in nodes]
    found: list[list[tuple[int, int, int]]] = [[] for _ in blocks]
    taken: dict[int, list[tuple[int, list[int]]]] = {}
    ends = [(block.end_s, False, at) for at, block in enumerate(blocks)]
    starts = [(block.begin_s, True, at) for at, block in enumerate(blocks)]
    for _, begins, at in sorted([*ends, *starts]):
        if not begins:
            for node, slots in taken.pop(at, ()):
                free[node] = sorted(free[node] + slots)
            continue
        taken[at] = []
        for node, devices in blocks[at].nodes:
            slots, free[node] = free[node][:devices], free[node][devices:]
            taken[at].append((node, slots))
            for row in np.split(np.array(slots), np.flatnonzero(np.diff(slots) > 1) + 1) if slots else ():
                found[at].append((node, int(row[0]), len(row)))
    return found


def _merged(rects: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Tops and heights of stacked rectangles, those that touch joined."""
    found: list[tuple[float, float]] = []
    for top, tall in sorted(rects):
        if found and abs(found[-1][0] + found[-1][1] - top) < 1e-6:
            found[-1] = found[-1][0], found[-1][1] + tall
        else:
            found.append((top, tall))
    return found


def binned(time_s: Sequence[float], value: Sequence[float], edges: Floats) -> Floats:
    """(b,) means between the edges (b + 1,) of what has each value from its time to the next; 0 before the first."""
    at = np.concatenate(([-np.inf], np.asarray(time_s, np.float64)))
    values = np.concatenate(([0.0], np.asarray(value, np.float64)))
    points = np.unique(np.concatenate((edges, at[(at > edges[0]) & (at < edges[-1])])))
    held = values[np.searchsorted(at, points[:-1], side="right") - 1] * np.diff(points)
    total: Floats = np.add.reduceat(held, np.searchsorted(points, edges[:-1]))
    return total / np.diff(edges)


def link_chart(title: str, edges: Floats, parts: Sequence[tuple[str, Floats]], capacity: Floats, top: float) -> str:
    """What a link carries: areas (colour, bytes/s between the edges) upon each other below its capacity."""
    span = TimeAxis(float(edges[0]), float(edges[-1]), 4, LINK_WIDTH - 4)
    bottom = LINK_HEIGHT - 18

    def up(value: float) -> float:
        return bottom - min(1.0, value / top) * (bottom - 6)

    def stairs(values: Floats) -> list[str]:
        found = []
        for at, value in enumerate(values.tolist()):
            y = up(value)
            found += [f"{span.x(edges[at]):.1f},{y:.1f}", f"{span.x(edges[at + 1]):.1f},{y:.1f}"]
        return found

    drawn = [f'<svg viewBox="0 0 {LINK_WIDTH} {LINK_HEIGHT}" role="img" aria-label="{escape(title)}">']
    drawn += span.axis(6, bottom)
    base = np.zeros(len(edges) - 1)
    for colour, values in parts:
        if values.any():
            around = " ".join([*stairs(base + values), *reversed(stairs(base))])
            drawn.append(f'<polygon points="{around}" style="fill:{colour}"/>')
        base = base + values
    drawn.append(f'<polyline class="capacity" points="{" ".join(stairs(capacity))}"/>')
    return "".join([*drawn, "</svg>"])


@dataclass(frozen=True)
class Stretch:
    """A piece of a job's lane."""

    begin_s: float
    end_s: float
    colour: str  # CSS
    tip: str
    strength: float = 1.0


@dataclass(frozen=True)
class Lane:
    """A job from its arrival to its end."""

    job: int
    name: str
    stretches: tuple[Stretch, ...]
    deadline_s: float = np.inf
    late: bool = False


def job_lanes(lanes: Sequence[Lane], span: TimeAxis) -> str:
    """A row per job."""
    wide = TimeAxis(span.begin_s, span.end_s, NAME, span.right)
    bottom = 8 + LANE * len(lanes)
    drawn = [f'<svg class="chart" viewBox="0 0 {WIDTH} {bottom + FOOT}" role="img" aria-label="Job by job">']
    drawn += wide.axis(8, bottom, "time since the first arrival")
    for at, lane in enumerate(lanes):
        y = 8 + LANE * at
        words = escape(_short(lane.name, NAME, LETTER))
        drawn.append(f'<text class="small" x="{NAME - 8}" y="{y + 12}" text-anchor="end">{words}</text>')
        drawn_to = 0.0
        for each in lane.stretches:
            left, right = wide.x(each.begin_s), wide.x(each.end_s)
            if right - left < LEAST_WIDTH and drawn_to <= left < wide.right:  # of many short ones some
                right = drawn_to = left + 2 * LEAST_WIDTH
            if right - left >= LEAST_WIDTH:
                where = f'x="{left:.1f}" y="{y + 2}" width="{right - left:.1f}" height="{LANE - 4}"'
                told = f'data-job="{lane.job}" data-tip="{escape(each.tip)}"'
                drawn.append(f'<rect {told} {where} style="fill:{each.colour}" fill-opacity="{each.strength:.2f}"/>')
        if wide.begin_s <= lane.deadline_s <= wide.end_s:
            x, colour = wide.x(lane.deadline_s), "var(--bad)" if lane.late else "var(--good)"
            drawn.append(f'<path d="M{x:.1f} {y}V{y + LANE}" style="stroke:{colour}" stroke-width="2.5"/>')
    return "".join([*drawn, "</svg>"])


def _short(name: str, room: float, letter: float) -> str:
    most = int((room - 10) / letter)
    return name if len(name) <= most else f"{name[: most - 1]}…"


def palette(names: Sequence[str]) -> Mapping[str, str]:
    """A colour of the style sheet for each, grey beyond as many as there are."""
    return {name: f"var(--d{at})" if at < 9 else "var(--m5)" for at, name in enumerate(names)}
