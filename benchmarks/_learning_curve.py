"""Draws a learning curve: share of hindsight on the validation worlds, regret, entropy, over epochs of worlds.

python benchmarks/_learning_curve.py docs/curves/hi_ppo.jsonl docs/img/learning-curve.svg
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hippo.agents.tracking import read_curve
from hippo.files import write_whole

WIDTH, HEIGHT, LEFT, TOP, GAP = 860, 150, 70, 28, 46
INK, BLUE, GREY = "#1f2933", "#2563a8", "#8a94a0"
PANELS = (
    ("validation/of_hindsight", "share of perfect hindsight, worlds not learned from"),
    ("reward", "minus regret, epochs of usual work per epoch"),
    ("ppo/entropy", "entropy of the choice, nats"),
)
RIVALS = ("validation/worth", "validation/keeping")


def panel(rows: Sequence[dict[str, float]], name: str, title: str, top: float) -> str:
    """One curve with its axis."""
    points = [(row["epochs"], row[name]) for row in rows if name in row]
    lines = {rival: rows_of[-1] for rival in RIVALS if (rows_of := [row[rival] for row in rows if rival in row])}
    shown = lines if name == PANELS[0][0] else {}
    values = [value for _, value in points] + list(shown.values())
    low, high, last = min(values), max(values), max(row["epochs"] for row in rows)
    room = (high - low) or 1.0
    low, high = low - 0.05 * room, high + 0.05 * room

    def at(epoch: float, value: float) -> tuple[float, float]:
        return LEFT + (WIDTH - LEFT - 130) * epoch / last, top + HEIGHT * (high - value) / (high - low)

    drawn = [f'<text x="{LEFT}" y="{top - 8:.0f}" class="t">{title}</text>']
    for value in (low, (low + high) / 2, high):
        y = at(0, value)[1]
        drawn.append(f'<line x1="{LEFT}" x2="{WIDTH - 130}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e7eb"/>')
        drawn.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.3f}</text>')
    for rival, value in shown.items():
        y = at(0, value)[1]
        drawn.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 130}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GREY}" stroke-dasharray="4 4"/>'
        )
        drawn.append(f'<text x="{WIDTH - 124}" y="{y + 4:.1f}">{rival.split("/")[1]} {value:.3f}</text>')
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in points))
    drawn.append(f'<polyline points="{path}" fill="none" stroke="{BLUE}" stroke-width="2"/>')
    return "\n".join(drawn)


def picture(rows: Sequence[dict[str, float]]) -> str:
    """All panels."""
    height = TOP + len(PANELS) * (HEIGHT + GAP)
    panels = [panel(rows, name, title, TOP + index * (HEIGHT + GAP)) for index, (name, title) in enumerate(PANELS)]
    last = max(row["epochs"] for row in rows)
    style = f"text{{font:12px sans-serif;fill:{INK}}} .t{{font-weight:600}}"
    bottom = height - 14
    foot = (
        f'<text x="{LEFT}" y="{bottom}">0</text>'
        f'<text x="{WIDTH - 130}" y="{bottom}" text-anchor="end">{last:,.0f} epochs of worlds</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"><style>{style}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n' + "\n".join(panels) + f"\n{foot}\n</svg>\n"
    )


if __name__ == "__main__":
    write_whole(sys.argv[2], picture(read_curve(Path(sys.argv[1]))))
