"""What every page has: its templates, one style sheet, its scripts and the policy that lets only these run.

Templates hold all markup and escape what users wrote. Scripts are allowed by their hash only (Content-Security-Policy),
so that even an escaping mistake would run nothing. ``templates/frame.html.j2`` is the page around every page.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from hippo.report.text import NOTHING


def template_text(name: str) -> str:
    """A file of ``templates``; ``name`` may have folders in it, parted by ``/``."""
    return files("hippo.report.templates").joinpath(*name.split("/")).read_text(encoding="utf-8")


def template(name: str, **filters: Callable[..., object]) -> Template:
    """A template with its filters: escapes what users wrote, strict about what it is given."""
    environment = Environment(
        loader=FunctionLoader(template_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment.get_template(name)


def frame(*scripts: str) -> dict[str, object]:
    """Style, scripts and the policy that allows just these: ``page.js``, and those by name that draw."""
    texts = [template_text(name) for name in ("page.js", *scripts)]
    hashes = " ".join(f"'sha256-{b64encode(sha256(each.encode()).digest()).decode()}'" for each in texts)
    return {
        "css": Markup(template_text("report.css")),
        "scripts": [Markup(each) for each in texts],
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; img-src data:",
        "version": _version(),
        "nothing": NOTHING,
    }


def inline_json(document: object) -> Markup:
    """JSON that may stand inside ``<script type="application/json">`` whatever strings it holds."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _version() -> str:
    try:
        return version("hippo-planner")
    except PackageNotFoundError:
        return "(not installed)"
