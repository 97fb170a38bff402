"""The pages: links lead somewhere, files and commands that they name exist, the site builds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hippo.cli.main import COMMANDS

from .conftest import ROOT

TRACKED = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
PAGES = [path for name in TRACKED.split("\0") if name and (path := ROOT / name).is_file()]
GUIDE = sorted((ROOT / "docs").glob("*.md"))
READ = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *GUIDE, *sorted((ROOT / "results").glob("*.md"))]
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """A page without its blocks of code and of terminal output."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return "\n".join(line for line in text.splitlines() if not line.startswith("    "))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_of_the_pages_lead_somewhere() -> None:
    lost = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text(encoding="utf-8")):
            if ":" in target:
                continue
            place = (page.parent / target).resolve() if target else page
            if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
                lost.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert lost == []


def test_the_guide_has_thirteen_pages_and_its_start_leads_to_each() -> None:
    start = ROOT / "docs" / "index.md"
    assert len(GUIDE) == 13
    reached = {(start.parent / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)", start.read_text())}
    assert [page.name for page in GUIDE if page not in reached | {start}] == []


def test_the_site_lists_every_page() -> None:
    listed = (ROOT / "mkdocs.yml").read_text()
    pages = [page.name for page in GUIDE] + [f"results/{page.name}" for page in READ if page.parent.name == "results"]
    assert [name for name in pages if f": {name}\n" not in listed and not name.endswith("house.md")] == []


def test_files_that_the_pages_name_exist() -> None:
    named = {
        (page.name, path)
        for page in READ
        for path in re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|sh|md|yaml|yml|json|csv))`", prose(page))
        if not path.startswith(("out/", "runs/", "curves/", "net/", "path/", "build/", "DIR/"))
    }
    roots = (ROOT, ROOT / "src" / "hippo")
    assert sorted(pair for pair in named if not any((root / pair[1]).exists() for root in roots)) == []


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_decimals_have_their_zero(page: Path) -> None:
    assert re.findall(r"(?<![\w.\d)\]/*])\.\d\S*", prose(page)) == []


@pytest.mark.parametrize("page", [ROOT / "README.md", *GUIDE], ids=lambda page: page.name)
def test_commands_that_a_page_shows_exist(page: Path) -> None:
    known = set(COMMANDS)
    typed = re.findall(r"^    (?:\$ )?(?:\.venv/bin/)?hippo ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name in typed if name not in known] == []


def test_every_table_of_figures_has_its_script() -> None:
    page = (ROOT / "results" / "figures.md").read_text()
    named = set(re.findall(r"hippo bench (\w+)", page))
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py")}
    assert named == scripts


def test_the_site_builds_with_search_and_asks_for_nothing_from_outside(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (extra docs)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "search" / "search_index.json").stat().st_size > 100_000
    loaded = r"<(?:script|img)[^>]+src=\"(?:https?:)?//|<link[^>]+href=\"https?://|url\([\"']?(?:https?:)?//"
    pages = [path for kind in ("html", "css") for path in (tmp_path / "site").rglob(f"*.{kind}")]
    assert [path.name for path in pages if re.search(loaded, path.read_text(encoding="utf-8"))] == []
