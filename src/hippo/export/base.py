"""What launchers read: files, the command that starts them, and what a reader must know.

A target is one file of this folder with one function of the form ``Exporter``; ``registry.EXPORTERS`` names them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import yaml

from hippo.plan.plan import Plan
from hippo.problem.problem import Problem

if TYPE_CHECKING:
    from hippo.export.expected import ExportTimes


@dataclass(frozen=True)
class Wishes:
    """What the user may choose besides the plan and the target."""

    program: str = "auto"  # what every rank runs, where the target only launches (export.program)
    places: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Domain to its name in the launcher's words: a partition, a region, ``gcp/us-central1``; absent: the domain's."""

    def place(self, domain: str) -> str:
        """What the launcher calls the domain."""
        return self.places.get(domain, domain)


@dataclass(frozen=True)
class Export:
    """Files by relative path, the command to type where they lie, notes, and the time that a run of them takes."""

    files: Mapping[str, str | bytes]
    command: str
    notes: tuple[str, ...] = ()
    expected: ExportTimes | None = None  # what a run of them takes; None: they run nothing


class Exporter(Protocol):
    """One function per target."""

    def __call__(self, problem: Problem, plan: Plan, wishes: Wishes) -> Export:
        """The files that run ``plan``, which ``plan.check`` has passed for any runtime.

        Raises ``InexpressibleError`` naming what the target cannot express, with the nearest plan that it can.
        """
        ...


# --------------------------------------------------------------------------------------------------------------- slugs
# Names that machines take: domains as lower-case ASCII words, each its own.

MOST = 20  # a pod is called job-domain-hosts-0-0-xxxxx, of 63 letters at most


def slug(text: str) -> str:
    """Letters, digits and dashes, beginning with a letter (RFC 1123 and Python's own names both take it so)."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", ascii_text).strip("-")[:MOST].strip("-")
    return words if words[:1].isalpha() else f"d-{words}".rstrip("-")


def slugs(names: Iterable[str]) -> Mapping[str, str]:
    """A slug for each name, no two alike."""
    found: dict[str, str] = {}
    for name in names:
        word, again = slug(name), 2
        while word in found.values():
            word, again = f"{slug(name)}-{again}", again + 1
        found[name] = word
    return MappingProxyType(found)


def job_name(model: str) -> str:
    """What a job that trains the model is called."""
    return f"hippo-{slug(model)}"


# ----------------------------------------------------------------------------------------------------------- yaml text
# YAML as people write it: keys in the order given, texts of several lines as blocks.


class _Blocks(yaml.SafeDumper):
    """Several lines are a block; nothing is an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always: equal parts are written out."""
        return True


def _text(dumper: _Blocks, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Blocks.add_representer(str, _text)


def yaml_text(documents: Sequence[dict[str, Any]]) -> str:
    """The documents as one file."""
    return str(yaml.dump_all(documents, Dumper=_Blocks, sort_keys=False, width=110, allow_unicode=True))
