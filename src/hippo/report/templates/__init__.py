"""Markup, style and script of what is written as HTML; read as package data."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template


@cache
def template_text(name: str) -> str:
    """A file of this folder; ``name`` may have folders in it, parted by ``/``."""
    return files("hippo.report.templates").joinpath(*name.split("/")).read_text(encoding="utf-8")


def template(name: str, **filters: Callable[..., object]) -> Template:
    """A template of this folder, with its filters: escapes what users wrote, strict about what it is given."""
    environment = Environment(
        loader=FunctionLoader(template_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment.get_template(name)
