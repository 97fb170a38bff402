"""A hook of mkdocs: pages that lie beside docs/ join the site, and links between the two keep leading there."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
BESIDE = ("CONTRIBUTING.md", "README.md", "results/**/*", "configs/algo/*.yaml")
"""What pages link to outside of docs/."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The site's files, with those beside docs/ under the paths that they have in the repository."""
    for pattern in BESIDE:
        for path in sorted(each for each in ROOT.glob(pattern) if each.is_file()):
            name = "start.md" if path.name == "README.md" and path.parent == ROOT else str(path.relative_to(ROOT))
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page's text with links turned from their place in the repository to that in the site, and bars in the code of
    tables as they are: GitHub wants them escaped, mkdocs would show the escape."""
    inside = (ROOT / "docs" / page.file.src_uri).is_file()
    here = posixpath.dirname(posixpath.join("docs", page.file.src_uri) if inside else page.file.src_uri)

    def turned(link: re.Match[str]) -> str:
        target, anchor = link[2], link[3] or ""
        if ":" in target:
            return link[0]
        place = posixpath.normpath(posixpath.join(here, target))  # in the repository
        place = "start.md" if place == "README.md" else place.removeprefix("docs/")
        return f"{link[1]}{posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"

    rows = re.sub(
        r"^\|.*$",
        lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace(r"\|", "|"), row[0]),
        markdown,
        flags=re.M,
    )
    return re.sub(r"(\]\()([^)#\s]+)(#[^)\s]*)?\)", turned, rows)
