"""Draws a learning curve: share of hindsight on the validation worlds, all and by size, regret, entropy, over epochs.

python benchmarks/_learning_curve.py results/curves/hi_ppo.jsonl results/img/learning-curve.svg
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hippo.files import write_whole
from hippo.learn.tracking import read_curve

WIDTH, HEIGHT, LEFT, TOP, GAP = 860, 150, 70, 28, 46
INK, GREY = "#1f2933", "#8a94a0"
COLOURS = ("#2563a8", "#b45309", "#047857")
SIZES = {"2-4": "2 to 4 domains", "5-8": "5 to 8", "9-16": "9 to 16"}
PANELS = (
    (("validation/of_hindsight",), "share of perfect hindsight, worlds not learned from"),
    (tuple(f"validation/domains/{size}" for size in SIZES), "the same by the number of domains"),
    (("reward",), "minus regret, epochs of usual work per epoch"),
    (("ppo/entropy",), "entropy of the choice, nats"),
)
RIVALS = ("validation/worth", "validation/keeping")


def panel(rows: Sequence[dict[str, float]], names: Sequence[str], title: str, top: float) -> str:
    """Curves with their axis."""
    curves = {name: [(row["epochs"], row[name]) for row in rows if name in row] for name in names}
    curves = {name: points for name, points in curves.items() if points}
    lines = {rival: found[-1] for rival in RIVALS if (found := [row[rival] for row in rows if rival in row])}
    shown = lines if names == PANELS[0][0] else {}
    values = [value for points in curves.values() for _, value in points] + list(shown.values())
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
    for colour, (name, points) in zip(COLOURS, curves.items(), strict=False):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in points))
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(curves) > 1:
            words = SIZES[name.split("/")[-1]]
            y = at(*points[-1])[1] + 4
            drawn.append(f'<text x="{WIDTH - 124}" y="{y:.1f}" style="fill:{colour}">{words}</text>')
    return "\n".join(drawn)


def picture(rows: Sequence[dict[str, float]]) -> str:
    """All panels."""
    height = TOP + len(PANELS) * (HEIGHT + GAP)
    panels = [panel(rows, names, title, TOP + index * (HEIGHT + GAP)) for index, (names, title) in enumerate(PANELS)]
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
