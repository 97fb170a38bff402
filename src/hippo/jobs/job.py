"""A job: a gang of devices for a while."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hippo.errors import InputError, UnknownNameError

KINDS = ("train", "preprocess", "predict", "deploy")
"""What a job does; a column of a workload holds the index."""

MOST_DEVICES = 10_000_000
MOST_GB = 1e9
"""An exabyte: more data than any job reads."""


@dataclass(frozen=True)
class Job:
    """A gang: all of its devices at once, for the whole run.

    Raises
    ------
    InputError
        A time that is negative or no number, a gang of nothing, a deadline before the arrival, an unknown kind.
    """

    name: str
    arrival_s: float  # >= 0, since the first arrival of the trace
    duration_s: float  # > 0, inside one domain on devices of speed 1; only clairvoyant policies look at it
    devices: int = 1
    kind: str = "train"  # of ``KINDS``
    user: str = ""  # who fairness counts: the trace's user, else its virtual cluster
    runs_on: tuple[str, ...] = ()  # kinds of device that can run it; empty: any
    memory_gb: float = 0.0  # per device
    priority: int = 0  # higher goes first
    deadline_s: float | None = None  # on the clock of ``arrival_s``
    estimate_s: float | None = None  # what the submitter says; may be wrong
    data_gb: float = 0.0  # moves to where the job runs
    data_at: str = ""  # domain that holds it; "" = everywhere
    model: str = ""  # catalogue model; "" = chosen by the number of devices

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("kind of job", str(self.kind), KINDS, source=self._source, key="kind")
        if isinstance(self.devices, bool) or not isinstance(self.devices, int) or not 1 <= self.devices <= MOST_DEVICES:
            self._refuse("devices", self.devices, "a job takes a whole number of devices", "write 1 or more")
        if not _is_number(self.duration_s) or self.duration_s <= 0:
            self._refuse("duration_s", self.duration_s, "a job lasts some time", "write seconds above 0")
        for key in ("arrival_s", "memory_gb", "data_gb"):
            value = getattr(self, key)
            if not _is_number(value) or value < 0:
                self._refuse(key, value, "not a number of 0 or more", "write a finite number that is not negative")
        self._check_optional()

    def _check_optional(self) -> None:
        if self.deadline_s is not None and (not _is_number(self.deadline_s) or self.deadline_s < self.arrival_s):
            remedy = f"write a time from its arrival ({self.arrival_s:g} s) on, or leave it out"
            self._refuse("deadline_s", self.deadline_s, "the deadline lies before the arrival", remedy)
        if self.estimate_s is not None and (not _is_number(self.estimate_s) or self.estimate_s <= 0):
            self._refuse(
                "estimate_s", self.estimate_s, "an estimate is a time", "write seconds above 0, or leave it out"
            )
        if isinstance(self.priority, bool) or not isinstance(self.priority, int) or abs(self.priority) > 10**6:
            self._refuse("priority", self.priority, "not a whole number", "write a whole number, higher goes first")

    @property
    def _source(self) -> str:
        return f"job {self.name!r:.60}"

    def _refuse(self, key: str, value: object, problem: str, remedy: str) -> None:
        raise InputError(problem, source=self._source, key=key, value=value, remedy=remedy)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
