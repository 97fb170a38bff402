"""Texts of files that are code of their own: jinja2 templates, strict about what they are given."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def rendered(template: str, **values: object) -> str:
    """The text of a template of this folder."""
    loader = PackageLoader("hippo.export", "templates")
    environment = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    return environment.get_template(template).render(values)
