"""Markup, style and script of what is written as HTML; read as package data."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def template_text(name: str) -> str:
    """A file of this folder; ``name`` may have folders in it, parted by ``/``."""
    return files("hippo.report.templates").joinpath(*name.split("/")).read_text(encoding="utf-8")
