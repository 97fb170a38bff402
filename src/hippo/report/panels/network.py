"""The domains and their links as a map: domains on a circle, links as lines, those in use drawn by what they carry."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, hypot, pi, sin

from hippo.decide.wording import number
from hippo.problem.cluster import Domain
from hippo.report.panels.traffic import Flow, Traffic
from hippo.report.story import Story

WIDTH = 560.0
HALF_WIDTH, HALF_HEIGHT = 150.0, 120.0  # of the box that the dots fill
MARGIN = 62.0  # above and below it, for names
LEAST_DOT, MOST_DOT = 9.0, 20.0
MOST_LABELLED_DOMAINS = 4
"""Up to here every link's bandwidth and latency are written; beyond, only those of links in use."""


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
    height: float
    width: float = WIDTH


def network(story: Story, traffic: Traffic) -> Map:
    """Places domains and links; nothing is drawn for a pair without a link."""
    nodes = _nodes(story)
    places = {node.name: node for node in nodes}
    heaviest = max((flow.gb for flow in traffic.flows), default=0.0)
    label_all = len(nodes) <= MOST_LABELLED_DOMAINS
    used = {frozenset((flow.source, flow.destination)) for flow in traffic.flows if flow.gb > 0}
    plain: dict[frozenset[str], Edge] = {}
    arrows = []
    for flow in traffic.flows:
        pair = frozenset((flow.source, flow.destination))
        ends = places[flow.source], places[flow.destination]
        if flow.gb > 0:
            arrows.append(_arrow(flow, *ends, heaviest))
        elif pair in plain:
            plain[pair] = _line(flow, *ends, count=len(nodes), labelled=label_all and pair not in used, both=True)
        else:
            plain[pair] = _line(flow, *ends, count=len(nodes), labelled=label_all and pair not in used, both=False)
    return Map(nodes, (*plain.values(), *arrows), max(node.y for node in nodes) + MARGIN)


def _nodes(story: Story) -> tuple[Node, ...]:
    domains = story.problem.cluster.domains
    used = {domain.name: 0 for domain in domains}
    for stage in story.stages:
        used[stage.domain] += len(stage.devices)
    most = max(domain.gpus for domain in domains)
    return tuple(
        _node(index, domain, used[domain.name], place, most)
        for index, (domain, place) in enumerate(zip(domains, _places(len(domains)), strict=True))
    )


def _places(count: int) -> list[tuple[float, float]]:
    """Clockwise on a circle from the top left (two: side by side), stretched so that they fill [-1, 1] either way."""
    turn = -pi / 2 - pi / count
    circle = [(cos(turn + 2 * pi * index / count), sin(turn + 2 * pi * index / count)) for index in range(count)]
    wide, high = (max(abs(place[axis]) for place in circle) for axis in (0, 1))
    return [(x / wide if wide > 1e-9 else 0.0, y / high if high > 1e-9 else -1.0) for x, y in circle]


def _node(index: int, domain: Domain, used: int, place: tuple[float, float], most: int) -> Node:
    x, y = WIDTH / 2 + HALF_WIDTH * place[0], MARGIN + HALF_HEIGHT * (place[1] + 1)
    radius = max(LEAST_DOT, MOST_DOT * (domain.gpus / most) ** 0.5)
    side = 0 if abs(place[0]) < 0.3 else (1 if place[0] > 0 else -1)
    label_x = x + side * (radius + 8)
    label_y = y - 2 if side else y + (radius + 18 if place[1] > 0 else -radius - 22)
    anchor = {0: "middle", 1: "start", -1: "end"}[side]
    return Node(domain.name, index, domain.gpus, used, x, y, radius, label_x, label_y, anchor)


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
