"""Names to objects: each table maps a name to ``"module:attribute"``, loaded when asked for.

A table that fails lists its names. Nothing is imported until then, so a new planner costs those who do not use it nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from hippo.errors import InputError, UnknownNameError

PLANNERS: Mapping[str, str] = {
    "exact": "hippo.planners.exact:Exact",
    "brute": "hippo.planners.brute:Brute",
    "single_domain": "hippo.planners.single_domain:SingleDomain",
    "even": "hippo.planners.even:Even",
    "zero": "hippo.planners.zero:Zero",
    "alpa": "hippo.planners.alpa:Alpa",
    "mast": "hippo.planners.mast:Mast",
    "sailor": "hippo.planners.sailor:Sailor",
    "crosspipe": "hippo.planners.crosspipe:CrossPipe",
    "diloco": "hippo.planners.diloco:Diloco",
    "dtfm": "hippo.planners.dtfm:Dtfm",
    "ray": "hippo.planners.ray:Ray",
}
"""Who proposes a plan: objects with the one method of ``planners.base.Planner``."""

ENGINES: Mapping[str, str] = {
    "fast": "hippo.simulate.fast:play",
    "reference": "hippo.simulate.reference:play",
    "analytic": "hippo.simulate.analytic:step_time",
}
"""What plays a plan. ``analytic`` answers with a step time alone, the others with a timeline."""

LATER: Mapping[str, str] = {"astra": "simulation engine"}
"""Names that are reserved but not in this version."""


def load(table: Mapping[str, str], kind: str, name: str, *, source: str | None = None) -> Any:
    """The object of that name; ``UnknownNameError`` (with ``kind`` and ``source`` in its words) lists the table."""
    if name not in table:
        if LATER.get(name) == kind:
            raise InputError(
                f"the {kind} '{name}' is not in this version", source=source, remedy=f"use one of {', '.join(table)}"
            )
        raise UnknownNameError(kind, name, table, source=source)
    module, attribute = table[name].split(":")
    return getattr(import_module(module), attribute)


def planner(name: str) -> Any:
    """A planner by name (``planners.base.Planner``); ``UnknownNameError`` lists them."""
    return load(PLANNERS, "planner", name, source="--planner")()


def engine(name: str) -> Any:
    """The function that plays a plan, by name; ``UnknownNameError`` lists them."""
    return load(ENGINES, "simulation engine", name, source="--engine")
