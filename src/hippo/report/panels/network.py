"""The domains and their links as a map: domains on a circle, links as lines, those in use drawn by what they carry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import cos, hypot, pi, sin

from hippo.decide.wording import number
from hippo.report.panels.traffic import Flow, Traffic
from hippo.report.story import Story

MARGIN = 62.0  # above and below the box of the dots, for names
LEAST_DOT, MOST_DOT = 8.0, 20.0
MANY_DOMAINS = 7
"""From here on the map is larger, its dots smaller, and lines without traffic are left to the table of links."""
MOST_LABELLED_DOMAINS = 4
"""Up to here bandwidth and latency are written on every line; beyond, only on those in use."""
MOST_LABELLED_ARROWS = 8
LONGEST_NAME = 22


@dataclass(frozen=True)
class Node:
    """A domain on the map. ``anchor`` says on which side of the dot its name stands."""

    name: str
    index: int
    gpus: int
    used_gpus: int
    x: float
    y: float
    radius: float
    label_x: float
    label_y: float
    anchor: str

    @property
    def label(self) -> str:
        """The name, cut where it is too long for the map."""
        return self.name if len(self.name) <= LONGEST_NAME else self.name[: LONGEST_NAME - 1] + "…"


@dataclass(frozen=True)
class Edge:
    """One direction in use (an arrow) or a pair without traffic (a plain line). ``path`` is an SVG path."""

    flow: Flow
    used: bool
    both: bool  # a plain line that stands for both directions
    path: str
    width: float
    label: str
    label_x: float
    label_y: float
    anchor: str = "middle"


@dataclass(frozen=True)
class Map:
    """What the template draws."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]  # plain lines first, so that arrows lie on top
    width: float
    height: float


@dataclass(frozen=True)
class _Paper:
    """The box that the dots fill, and how large they may be."""

    width: float
    half_width: float
    half_height: float
    most_dot: float


FEW, MANY = _Paper(560.0, 150.0, 120.0, MOST_DOT), _Paper(600.0, 150.0, 230.0, 13.0)


def network(story: Story, traffic: Traffic) -> Map:
    """Places domains and links; nothing is drawn for a pair without a link."""
    paper = MANY if len(traffic.domains) >= MANY_DOMAINS else FEW
    nodes = _nodes(story, paper)
    places = {node.name: node for node in nodes}
    arrows = _arrows([flow for flow in traffic.flows if flow.gb > 0], places)
    lines = _lines(traffic, places) if paper is FEW else []
    return Map(nodes, (*lines, *arrows), paper.width, max(node.y for node in nodes) + MARGIN)


def _arrows(flows: list[Flow], places: dict[str, Node]) -> list[Edge]:
    heaviest = max((flow.gb for flow in flows), default=0.0)
    labelled = len(flows) <= MOST_LABELLED_ARROWS
    drawn = [_arrow(flow, places[flow.source], places[flow.destination], heaviest) for flow in flows]
    return drawn if labelled else [replace(edge, label="") for edge in drawn]


def _lines(traffic: Traffic, places: dict[str, Node]) -> list[Edge]:
    """A plain line per pair that nothing crosses in one direction or both."""
    used = {frozenset((flow.source, flow.destination)) for flow in traffic.flows if flow.gb > 0}
    lines: dict[frozenset[str], Edge] = {}
    for flow in traffic.flows:
        pair = frozenset((flow.source, flow.destination))
        labelled = len(places) <= MOST_LABELLED_DOMAINS and pair not in used
        if flow.gb == 0:
            ends = places[flow.source], places[flow.destination]
            lines[pair] = _line(flow, *ends, count=len(places), labelled=labelled, both=pair in lines)
    return list(lines.values())


def _nodes(story: Story, paper: _Paper) -> tuple[Node, ...]:
    """Domains around the circle: those in use in the order the plan visits them, then the idle ones."""
    cluster = story.problem.cluster
    used = {domain.name: 0 for domain in cluster.domains}
    for stage in story.stages:
        used[stage.domain] += len(stage.devices)
    visited = [*story.plan.domains, *(name for name, gpus in used.items() if gpus == 0)]
    most = max(domain.gpus for domain in cluster.domains)
    nodes = []
    for index, (name, place) in enumerate(zip(visited, _places(len(visited)), strict=True)):
        domain = cluster.domain(name)
        x = paper.width / 2 + paper.half_width * place[0]
        y = MARGIN + paper.half_height * (place[1] + 1)
        radius = max(LEAST_DOT, paper.most_dot * (domain.gpus / most) ** 0.5)
        label = _label_place(x, y, radius, place)
        nodes.append(Node(name, index, domain.gpus, used[name], x, y, radius, *label))
    return tuple(nodes)


def _label_place(x: float, y: float, radius: float, place: tuple[float, float]) -> tuple[float, float, str]:
    """Where a name stands and how it is anchored: outwards of its dot."""
    if abs(place[0]) < 0.15:
        return x, y + (radius + 18 if place[1] > 0 else -radius - 22), "middle"
    side = 1 if place[0] > 0 else -1
    return x + side * (radius + 8), y - 2, "start" if side > 0 else "end"


def _places(count: int) -> list[tuple[float, float]]:
    """Clockwise on a circle from the top left (two: side by side), stretched so that they fill [-1, 1] either way."""
    turn = -pi / 2 - pi / count
    circle = [(cos(turn + 2 * pi * index / count), sin(turn + 2 * pi * index / count)) for index in range(count)]
    wide, high = (max(abs(place[axis]) for place in circle) for axis in (0, 1))
    return [(x / wide if wide > 1e-9 else 0.0, y / high if high > 1e-9 else -1.0) for x, y in circle]


def _line(flow: Flow, a: Node, b: Node, *, count: int, labelled: bool, both: bool) -> Edge:
    path = f"M{a.x:.1f} {a.y:.1f}L{b.x:.1f} {b.y:.1f}"
    label = _label(flow) if labelled else ""
    # Lines across the circle cross in its middle: their labels stand nearer to one end, by turns.
    first, last = sorted((a, b), key=lambda node: node.index)
    neighbours = last.index - first.index in (1, count - 1)
    along = 0.5 if neighbours else (0.27 if first.index % 2 == 0 else 0.73)
    x, y = first.x + (last.x - first.x) * along, first.y + (last.y - first.y) * along
    return Edge(flow, False, both, path, 1.0, label, x, y - 4)


def _arrow(flow: Flow, a: Node, b: Node, heaviest: float) -> Edge:
    """A curve bent to the right of its direction, so that the two directions lie side by side."""
    dx, dy = b.x - a.x, b.y - a.y
    length = hypot(dx, dy) or 1.0
    ux, uy = dx / length, dy / length
    bend = min(34.0, 0.12 * length)
    mid_x, mid_y = (a.x + b.x) / 2 - uy * bend, (a.y + b.y) / 2 + ux * bend
    start_x, start_y = a.x + ux * (a.radius + 3), a.y + uy * (a.radius + 3)
    end_x, end_y = b.x - ux * (b.radius + 9), b.y - uy * (b.radius + 9)
    path = f"M{start_x:.1f} {start_y:.1f}Q{mid_x:.1f} {mid_y:.1f} {end_x:.1f} {end_y:.1f}"
    width = 1.5 + 4.0 * (flow.gb / heaviest) ** 0.5
    # The label stands outside the bulge, on the side the curve bends to.
    out_x, out_y = -uy, ux
    label_x, label_y = (a.x + b.x) / 2 + out_x * (bend / 2 + 10), (a.y + b.y) / 2 + out_y * (bend / 2 + 12) + 4
    anchor = "middle" if abs(out_x) < 0.5 else ("start" if out_x > 0 else "end")
    return Edge(flow, True, False, path, width, _label(flow), label_x, label_y, anchor)


def _label(flow: Flow) -> str:
    return f"{number(flow.gbps)} Gbit/s, {number(flow.latency_ms)} ms"
