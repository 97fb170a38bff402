"""Places texts on a drawing so that they cover neither each other nor what is drawn; what finds no room stays away.

Greedy: texts in order of importance, each takes the first of its candidate places that is free. Lengths are SVG user
units; widths of letters are those of the report's fonts at their widest, so a box may be too large, never too small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

Point = tuple[float, float]
Place = tuple[float, float, str]
"""x, baseline, and which part of the text stands at x: ``start``, ``middle``, ``end``."""

BOLD, SMALL = 8.3, 6.9
"""Width of a letter: names (13 px bold), remarks (11.5 px)."""


@dataclass(frozen=True)
class Box:
    """A rectangle; ``right`` and ``bottom`` lie outside."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        """Whether the two have a point in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def holds(self, point: Point) -> bool:
        """Whether the point lies inside."""
        return self.left <= point[0] < self.right and self.top <= point[1] < self.bottom


def text_box(text: str, x: float, baseline: float, *, letter: float, anchor: str = "middle") -> Box:
    """The box of one line of text whose letters are ``letter`` wide (Chinese ones twice that) and 14 high."""
    width = cell_len(text) * letter
    left = x - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * width
    return Box(left, baseline - 11, left + width, baseline + 3)


def around(boxes: Sequence[Box], margin: float) -> Box:
    """The least box that holds all of ``boxes``, and ``margin`` about it."""
    return Box(
        min(box.left for box in boxes) - margin,
        min(box.top for box in boxes) - margin,
        max(box.right for box in boxes) + margin,
        max(box.bottom for box in boxes) + margin,
    )


class Labels:
    """What is taken already. ``points`` (lines, sampled) may not be covered either."""

    def __init__(self, taken: Iterable[Box], points: Iterable[Point] = ()) -> None:
        self.boxes = list(taken)
        self._points = tuple(points)

    def place(self, text: str, candidates: Iterable[Place]) -> Place | None:
        """The first candidate where the text has room, taken from now on; None: nowhere."""
        for x, baseline, anchor in candidates:
            box = text_box(text, x, baseline, letter=SMALL, anchor=anchor)
            if self._free(box):
                self.boxes.append(box)
                return x, baseline, anchor
        return None

    def _free(self, box: Box) -> bool:
        return not any(box.overlaps(other) for other in self.boxes) and not any(map(box.holds, self._points))
