"""What launchers read: files, the command that starts them, and what a reader must know.

A target is one file of this folder with one function of the form ``Exporter``; ``registry.EXPORTERS`` names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from hippo.plan.plan import Plan
from hippo.problem.problem import Problem


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
    """Files by relative path, the command to type where they lie, and notes."""

    files: Mapping[str, str | bytes]
    command: str
    notes: tuple[str, ...] = ()


class Exporter(Protocol):
    """One function per target."""

    def __call__(self, problem: Problem, plan: Plan, wishes: Wishes) -> Export:
        """The files that run ``plan``, which ``plan.check`` has passed for any runtime.

        Raises ``InfeasibleError`` naming what the target cannot express, with the nearest plan that it can.
        """
        ...
