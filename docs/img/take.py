"""Takes the pictures of the pages from a report or from the page of a schedule, with the Chromium of the tests.

    .venv/bin/hippo compare --model llama-3-70b --cluster four-hubs --out out/compare     (what `make compare` does)
    .venv/bin/python -m docs.img.take out/compare/report.html
    .venv/bin/hippo schedule .. --out out     (the command of the front page)
    .venv/bin/python -m docs.img.take out/schedule.html
    .venv/bin/hippo watch .. --out out     (the command of docs/watch.md)
    .venv/bin/python -m docs.img.take out/watch.html
    .venv/bin/hippo jobs replay .. --out out     (the command of docs/jobs.md)
    .venv/bin/python -m docs.img.take out/jobs.html
    .venv/bin/python examples/dispatch_under_fluctuation.py
    .venv/bin/python -m docs.img.take out/dispatch.html

Each picture is the report itself with some sections hidden, 1280 wide and as high as what is left.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.chromium import CHROMIUM, NAMES, opened

WIDTH = 1280
MOST_BYTES = 300_000  # of a picture in all its colours
SECTIONS = ("why", "step", "layers", "network", "memory", "planners", "front", "inputs")
OF_SCHEDULE = ("timeline", "binds", "ranks", "methods", "problem")
OF_WATCH = ("work", "decisions", "plans")
OF_JOBS = ("policies", "time", "completion", "groups", "waited", "refused")
OF_DISPATCH = ("makespan", "gaps", "play", "habits", "figures")

PICTURES: Mapping[str, tuple[str, ...]] = {
    "report": ("hero", "why", "step"),
    "report-step": ("step",),
    "report-network": ("network",),
    "report-planners": ("planners",),
    "report-front": ("front",),
}
"""Name of the picture to the sections that it shows; of the step only its start."""

SHORT = "#why dl.why, .hint { display: none !important; }"
"""The overview leaves out what is to be read, not seen."""


def main(report: Path) -> None:
    """Writes every picture beside this file."""
    if CHROMIUM is None:
        sys.exit(f"none of {', '.join(NAMES)} is on the PATH")
    page = report.read_text(encoding="utf-8")
    others = {
        "schedule.html": {"schedule": ("hero", "timeline")},
        "watch.html": {"watch": ("hero", "network", "work")},
        "jobs.html": {"jobs": ("hero", "policies", "time", "completion")},
        "dispatch.html": {"dispatch": ("makespan", "play")},
    }
    pictures = others.get(report.name, PICTURES)
    with tempfile.TemporaryDirectory() as folder:
        for name, shown in pictures.items():
            target = Path(__file__).with_name(f"{name}.png")
            take(Path(folder), reduced(page, shown), target)
            if target.stat().st_size > MOST_BYTES:
                fewer_colours(target)
            sys.stderr.write(f"{target.name}: {target.stat().st_size / 1000:.0f} kB\n")


def reduced(page: str, shown: tuple[str, ...]) -> str:
    """The page with only some of its sections, which tells its height on the root element."""
    hidden = [f"#{name}" for name in (*SECTIONS, *OF_SCHEDULE, *OF_WATCH, *OF_JOBS, *OF_DISPATCH) if name not in shown]
    hidden += [] if "hero" in shown else [".hero"]
    rules = [
        f"{', '.join([*hidden, '.top', 'footer', 'details'])} {{ display: none !important; }}",
        "#main { padding-bottom: 28px; }",
        SHORT if len(shown) > 1 else "section.panel { padding-top: 14px !important; }",
    ]
    tell = "document.documentElement.dataset.height = document.body.scrollHeight"
    tell = f"document.querySelector('[data-do=start]').click(); {tell}" if "step" in shown else tell
    script = f"<script>document.addEventListener('DOMContentLoaded', () => {{ {tell} }})</script>"
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    return page.replace("</head>", f"<style>{chr(10).join(rules)}</style>{script}</head>")


def take(folder: Path, text: str, target: Path) -> None:
    """One picture: the page is opened once for its height, once to be taken."""
    page = folder / "page.html"
    page.write_text(text, encoding="utf-8")
    dom = opened(page, "--dump-dom", f"--window-size={WIDTH},800")
    height = re.search(r'data-height="(\d+)"', dom)
    if height is None:
        sys.exit("the page did not tell its height")
    opened(page, f"--screenshot={target}", f"--window-size={WIDTH},{height[1]}")


def fewer_colours(target: Path) -> None:
    """The picture in 128 colours, a third as large; as it is where Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(target) as picture:
        few = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    few.save(target, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/report.html"))
