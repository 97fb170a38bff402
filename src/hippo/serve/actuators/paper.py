"""Carries nothing out and says so: for a queue that is only tried out, and for a recorded day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hippo.serve.records import JobOrder, Receipt, SeenJob


class Paper:
    """Every order is done at once, and jobs end when the queue's clock says so."""

    name = "paper"
    tells = False

    def lacks(self, spec: Mapping[str, Any]) -> str:
        """Nothing: it does nothing."""
        return ""

    def carry_out(self, order: JobOrder) -> Receipt:
        """Nothing happens."""
        return Receipt(True, "on paper only")

    def seen(self) -> Sequence[SeenJob]:
        """It has no jobs."""
        return ()

    def close(self) -> None:
        """Nothing to do."""
