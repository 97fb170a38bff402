"""What an actuator must do. Orders of one job come one after another, those of several side by side, looks from another
thread; all may take long, and may break: the service then asks again with the same key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from hippo.errors import HippoError
from hippo.serve.records import JobOrder, Receipt, SeenJob


class ActuatorError(HippoError):
    """An order may or may not have been carried out: tell it again."""


class Actuator(Protocol):
    """Carries orders out, each once. One with ``steers = True`` carries out those about the plan of a running job, too
    (``records.STEERED``). One that knows nodes has ``usable() -> Mapping[str, int]``: how many GPUs of domains jobs can
    use now, those that they have among them. One that need not say for ever who has ended has ``forget(SeenJob)``: the
    service has heard that this one is over; it is said again once an order of its job comes, or its engine has it."""

    name: str
    tells: bool
    """Whether it can say how far jobs are; else the queue's own clock says when they end."""

    def lacks(self, spec: Mapping[str, Any]) -> str:
        """What a submission lacks to be carried out by it, in a sentence; empty: nothing."""
        ...

    def carry_out(self, order: JobOrder) -> Receipt:
        """Do it, once for each key; the same answer however often it is told. Raises ``ActuatorError``, or anything."""
        ...

    def seen(self) -> Sequence[SeenJob]:
        """All jobs that it has, those that ended since it last forgot them among them."""
        ...

    def close(self) -> None:
        """The service ends; jobs go on."""
        ...
