"""Takes the pictures of the pages from a report or from the page of a schedule, with a headless Chromium.

    .venv/bin/hippo compare --model llama-3-70b --cluster four-hubs --out out     (what `make run` does)
    .venv/bin/python docs/img/take.py out/report.html
    .venv/bin/hippo schedule .. --out out     (the command of the front page)
    .venv/bin/python docs/img/take.py out/schedule.html
    .venv/bin/hippo watch .. --out out     (the command of docs/watch.md)
    .venv/bin/python docs/img/take.py out/watch.html

Each picture is the report itself with some sections hidden, 1280 wide and as high as what is left.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

WIDTH = 1280
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--virtual-time-budget=4000",
)
SECTIONS = ("why", "step", "layers", "network", "memory", "planners", "front", "inputs")
OF_SCHEDULE = ("timeline", "binds", "ranks", "methods", "problem")
OF_WATCH = ("work", "decisions", "plans")

PICTURES: Mapping[str, tuple[str, ...]] = {
    "report": ("hero", "why", "step", "network"),
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
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"none of {', '.join(BROWSERS)} is on the PATH")
    page = report.read_text(encoding="utf-8")
    others = {"schedule.html": {"schedule": ("hero", "timeline")}, "watch.html": {"watch": ("hero", "network", "work")}}
    pictures = others.get(report.name, PICTURES)
    with tempfile.TemporaryDirectory() as folder:
        for name, shown in pictures.items():
            target = Path(__file__).with_name(f"{name}.png")
            take(browser, Path(folder), reduced(page, shown), target)
            sys.stderr.write(f"{target.name}: {target.stat().st_size / 1000:.0f} kB\n")


def reduced(page: str, shown: tuple[str, ...]) -> str:
    """The page with only some of its sections, which tells its height on the root element."""
    hidden = [f"#{name}" for name in (*SECTIONS, *OF_SCHEDULE, *OF_WATCH) if name not in shown]
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


def take(browser: str, folder: Path, text: str, target: Path) -> None:
    """One picture: the page is opened once for its height, once to be taken."""
    page = folder / "page.html"
    page.write_text(text, encoding="utf-8")
    command = [browser, *QUIET, f"--user-data-dir={folder / 'profile'}"]
    dom = run([*command, "--dump-dom", f"--window-size={WIDTH},800", page.as_uri()])
    height = re.search(r'data-height="(\d+)"', dom)
    if height is None:
        sys.exit("the page did not tell its height")
    run([*command, f"--screenshot={target}", f"--window-size={WIDTH},{height[1]}", page.as_uri()])


def run(command: list[str]) -> str:
    """What the browser prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/report.html"))
