"""What crosses between domains in one step, as a matrix and as a map.

On the map domains lie on a circle, links are lines, those in use drawn by what they carry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import cos, hypot, pi, sin

from hippo.decide.wording import number
from hippo.problem.cluster import Link
from hippo.report.charts import BOLD, SMALL, Box, Labels, Place, Point, around, text_box
from hippo.report.story import PlanStory
from hippo.units import gbps_from_bytes_per_s, ms_from_s


# ----------------------------------------------------------------------------------------------------------- traffic
@dataclass(frozen=True)
class Flow:
    """One directed link in one step."""

    source: str
    destination: str
    gb: float
    share: float  # of what the link carries in a step time
    gbps: float  # what the link carries, nodes of the source sending together
    latency_ms: float
    usd: float  # egress of this step


@dataclass(frozen=True)
class Traffic:
    """All links, and the same as a square: ``rows[i][j]`` is the flow from domain i to j, None without a link."""

    domains: tuple[str, ...]
    rows: tuple[tuple[Flow | None, ...], ...]
    flows: tuple[Flow, ...]  # in the order of the cluster's links

    @property
    def total_gb(self) -> float:
        """Everything sent between domains in a step."""
        return sum(flow.gb for flow in self.flows)

    @property
    def busiest(self) -> Flow | None:
        """The link nearest to its capacity; None when nothing crosses."""
        used = [flow for flow in self.flows if flow.gb > 0]
        return max(used, key=lambda flow: flow.share, default=None)


def traffic(story: PlanStory) -> Traffic:
    """Bytes of the played step per directed link."""
    cluster = story.problem.cluster
    flows = tuple(_flow(story, link, float(story.timeline.link_bytes[e])) for e, link in enumerate(cluster.links))
    by_pair = {(flow.source, flow.destination): flow for flow in flows}
    names = tuple(domain.name for domain in cluster.domains)
    rows = tuple(tuple(by_pair.get((source, destination)) for destination in names) for source in names)
    return Traffic(names, rows, flows)


def _flow(story: PlanStory, link: Link, num_bytes: float) -> Flow:
    rate = link.rate_bytes_per_s(story.problem.cluster.domain(link.source).nodes)
    capacity = rate * story.timeline.step_time_s
    return Flow(
        link.source,
        link.destination,
        num_bytes / 1e9,
        num_bytes / capacity if capacity > 0 else 0.0,
        gbps_from_bytes_per_s(rate / link.goodput),
        ms_from_s(link.latency_s),
        num_bytes / 1e9 * link.price_usd_per_gb,
    )


# --------------------------------------------------------------------------------------------------------------- map
MARGIN = 14.0
LEAST_DOT, MOST_DOT = 8.0, 20.0
MANY_DOMAINS = 7
"""From here on the map is larger, its dots smaller, and lines without traffic are left to the table of links."""
MOST_LABELLED_DOMAINS = 4
"""Up to here bandwidth and latency are written on every line; beyond, only on those in use."""
MOST_LABELLED_PAIRS = 6
LONGEST_NAME = 22
AROUND_THE_MIDDLE = 30.0
ALONG = (0.5, 0.42, 0.58, 0.34, 0.66, 0.27, 0.73, 0.2, 0.8)
"""Where on a line its label may stand, as a share of its length, best first."""


@dataclass(frozen=True)
class Node:
    """A domain on the map. ``anchor`` says on which side of the dot its name stands."""

    name: str
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

    @property
    def remark(self) -> str:
        """How many of its GPUs the plan uses."""
        return f"{self.used_gpus} of {self.gpus} GPUs"

    @property
    def boxes(self) -> tuple[Box, Box, Box]:
        """What the dot and its two lines of text cover."""
        dot = Box(self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius)
        name = text_box(self.label, self.label_x, self.label_y, letter=BOLD, anchor=self.anchor)
        return dot, name, text_box(self.remark, self.label_x, self.label_y + 15, letter=SMALL, anchor=self.anchor)


@dataclass(frozen=True)
class Edge:
    """One direction in use (an arrow) or a pair without traffic (a plain line). ``path`` is an SVG path."""

    flow: Flow
    used: bool
    path: str
    width: float
    points: tuple[Point, ...] = ()  # along the curve


@dataclass(frozen=True)
class EdgeLabel:
    """Bandwidth and latency of a pair of domains."""

    text: str
    x: float
    y: float
    anchor: str
    used: bool


@dataclass(frozen=True)
class Map:
    """What the template draws; ``frame`` holds all of it."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]  # plain lines first, so that arrows lie on top
    labels: tuple[EdgeLabel, ...]
    frame: Box

    @property
    def view_box(self) -> str:
        """For the SVG: left, top, width, height."""
        frame = self.frame
        sides = (frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top)
        return " ".join(f"{side:.0f}" for side in sides)


@dataclass(frozen=True)
class _Paper:
    """The box that the dots fill, and how large they may be."""

    half_width: float
    half_height: float
    most_dot: float


FEW, MANY = _Paper(150.0, 120.0, MOST_DOT), _Paper(150.0, 230.0, 13.0)


def network(story: PlanStory, traffic: Traffic) -> Map:
    """Places domains and links; nothing is drawn for a pair without a link."""
    paper = MANY if len(traffic.domains) >= MANY_DOMAINS else FEW
    nodes = _nodes(story, paper)
    places = {node.name: node for node in nodes}
    arrows = _arrows([flow for flow in traffic.flows if flow.gb > 0], places)
    lines = _lines(traffic, places) if paper is FEW else []
    boxes = [box for node in nodes for box in node.boxes]
    taken = Labels(boxes, (point for edge in arrows for point in edge.points))
    labels = _labels(arrows, lines, places, taken)
    return Map(nodes, (*lines, *arrows), labels, around(taken.boxes, MARGIN))


# ----------------------------------------------------------------------------------------------------------- domains
def _nodes(story: PlanStory, paper: _Paper) -> tuple[Node, ...]:
    """Domains around the circle: those in use in the order the plan visits them, then the idle ones."""
    cluster = story.problem.cluster
    used = {domain.name: 0 for domain in cluster.domains}
    for stage in story.stages:
        used[stage.domain] += len(stage.devices)
    visited = story.domain_order
    most = max(domain.gpus for domain in cluster.domains)
    nodes = []
    for name, place in zip(visited, _places(len(visited)), strict=True):
        domain = cluster.domain(name)
        x, y = paper.half_width * place[0], paper.half_height * place[1]
        radius = max(LEAST_DOT, paper.most_dot * (domain.gpus / most) ** 0.5)
        nodes.append(Node(name, domain.gpus, used[name], x, y, radius, *_label_place(x, y, radius, place)))
    return tuple(nodes)


def _label_place(x: float, y: float, radius: float, place: Point) -> tuple[float, float, str]:
    """Where a name stands and how it is anchored: outwards of its dot."""
    if abs(place[0]) < 0.15:
        return x, y + (radius + 18 if place[1] > 0 else -radius - 22), "middle"
    side = 1 if place[0] > 0 else -1
    return x + side * (radius + 8), y - 2, "start" if side > 0 else "end"


def _places(count: int) -> list[Point]:
    """Clockwise on a circle from the top left (two: side by side), stretched so that they fill [-1, 1] either way."""
    turn = -pi / 2 - pi / count
    circle = [(cos(turn + 2 * pi * index / count), sin(turn + 2 * pi * index / count)) for index in range(count)]
    wide, high = (max(abs(place[axis]) for place in circle) for axis in (0, 1))
    return [(x / wide if wide > 1e-9 else 0.0, y / high if high > 1e-9 else -1.0) for x, y in circle]


# ------------------------------------------------------------------------------------------------------------- links
def _lines(traffic: Traffic, places: dict[str, Node]) -> list[Edge]:
    """A plain line per pair that nothing crosses in either direction."""
    used = {frozenset((flow.source, flow.destination)) for flow in traffic.flows if flow.gb > 0}
    lines: dict[frozenset[str], Edge] = {}
    for flow in traffic.flows:
        pair = frozenset((flow.source, flow.destination))
        if pair not in used and pair not in lines:
            a, b = places[flow.source], places[flow.destination]
            lines[pair] = Edge(flow, False, f"M{a.x:.1f} {a.y:.1f}L{b.x:.1f} {b.y:.1f}", 1.0)
    return list(lines.values())


def _arrows(flows: list[Flow], places: dict[str, Node]) -> list[Edge]:
    heaviest = max((flow.gb for flow in flows), default=0.0)
    return [_arrow(flow, places[flow.source], places[flow.destination], heaviest) for flow in flows]


def _arrow(flow: Flow, a: Node, b: Node, heaviest: float) -> Edge:
    """A curve bent to the right of its direction, so that the two directions lie side by side."""
    ux, uy, length = _direction(a, b)
    bend = _bend(length)
    middle = (a.x + b.x) / 2 - uy * bend, (a.y + b.y) / 2 + ux * bend
    start = a.x + ux * (a.radius + 3), a.y + uy * (a.radius + 3)
    end = b.x - ux * (b.radius + 9), b.y - uy * (b.radius + 9)
    path = f"M{start[0]:.1f} {start[1]:.1f}Q{middle[0]:.1f} {middle[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
    points = tuple(_on_curve(start, middle, end, step / 24) for step in range(25))
    return Edge(flow, True, path, 1.5 + 4.0 * (flow.gb / heaviest) ** 0.5, points)


def _direction(a: Node, b: Node) -> tuple[float, float, float]:
    """Unit vector from one dot to another, and how far apart they are."""
    length = hypot(b.x - a.x, b.y - a.y) or 1.0
    return (b.x - a.x) / length, (b.y - a.y) / length, length


def _bend(length: float) -> float:
    return min(34.0, 0.12 * length)


def _on_curve(start: Point, middle: Point, end: Point, t: float) -> Point:
    weights = ((1 - t) ** 2, 2 * t * (1 - t), t**2)
    x, y = (sum(w * point[axis] for w, point in zip(weights, (start, middle, end), strict=True)) for axis in (0, 1))
    return x, y


# ------------------------------------------------------------------------------------------------------------ labels
def _labels(arrows: list[Edge], lines: list[Edge], places: dict[str, Node], taken: Labels) -> tuple[EdgeLabel, ...]:
    """One label a pair, those in use first, the heaviest of them first; what finds no room is left to the table."""
    pairs: dict[frozenset[str], list[Edge]] = {}
    for edge in sorted(arrows, key=lambda edge: -edge.flow.gb):
        pairs.setdefault(frozenset((edge.flow.source, edge.flow.destination)), []).append(edge)
    if len(pairs) > MOST_LABELLED_PAIRS:
        return ()
    groups = [*pairs.values(), *([edge] for edge in lines if len(places) <= MOST_LABELLED_DOMAINS)]
    labels = []
    for edges in groups:
        first = edges[0]
        text, ends = _text(edges), (places[first.flow.source], places[first.flow.destination])
        place = taken.place(text, _beside(*ends, text) if first.used else _upon(*ends))
        if place is not None:
            labels.append(EdgeLabel(text, *place, first.used))
    return tuple(labels)


def _text(edges: list[Edge]) -> str:
    """``4.00 Gbit/s, 19.1 ms``; where the two directions differ, both rates and the longer latency."""
    rates = dict.fromkeys(number(edge.flow.gbps) for edge in edges)
    latency = max(edge.flow.latency_ms for edge in edges)
    return f"{' and '.join(rates)} Gbit/s, {number(latency)} ms"


def _upon(a: Node, b: Node) -> Iterator[Place]:
    """On the line; lines across the middle of the map meet there, so their labels begin nearer to an end."""
    across = hypot(a.x + b.x, a.y + b.y) / 2 < AROUND_THE_MIDDLE
    for along in ALONG[5:] + ALONG[:5] if across else ALONG:
        yield a.x + (b.x - a.x) * along, a.y + (b.y - a.y) * along + 4, "middle"


def _beside(a: Node, b: Node, text: str) -> Iterator[Place]:
    """Outside the bulge of the arrows: on the side away from the middle of the map first."""
    ux, uy, length = _direction(a, b)
    outwards = 1.0 if -uy * (a.x + b.x) + ux * (a.y + b.y) >= 0 else -1.0
    upright = abs(uy) > 0.9
    reach = 4.0 if upright else abs(uy) * len(text) * SMALL / 2 + abs(ux) * 7
    for side, further, along in product((outwards, -outwards), (0.0, 10.0), ALONG):
        off = side * (2 * along * (1 - along) * _bend(length) + reach + 7 + further)
        anchor = "middle" if not upright else ("start" if -uy * off > 0 else "end")
        yield a.x + (b.x - a.x) * along - uy * off, a.y + (b.y - a.y) * along + ux * off + 4, anchor
