"""A job: a gang of devices for a while, or elastic training between its least and its most devices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from hippo.errors import InputError, UnknownNameError

KINDS = ("train", "preprocess", "predict", "deploy")
"""What a job does; a column of a workload holds the index."""

ELASTIC = ("batch", "seq", "tokens", "least", "most")
"""What an elastic job has, all of it above 0, and a gang has not."""

MOST_DEVICES = 10_000_000

MOST_TOKENS = 1e16
MOST_GB = 1e9
"""An exabyte: more data than any job reads."""


class TrainingKind(NamedTuple):
    """What an elastic job trains; jobs of one kind can run in the same ways, and are as quick."""

    model: str  # of the catalogue, or a path
    batch: int  # sequences a step
    seq: int  # tokens a sequence


@dataclass(frozen=True)
class Job:
    """A gang: all of its devices at once, for the whole run; or an elastic job.

    An elastic job (``least`` above 0) trains ``model`` on ``tokens`` tokens, on any number of devices that the planner
    offers from ``least`` to ``most``. Its duration is tokens / the tokens a second of the reference: the largest way to
    train so inside one domain (``JobWorkload.timed`` sets it; nan until then).

    Raises
    ------
    InputError
        A time that is negative or no number, a gang of nothing, a deadline before the arrival, an unknown kind; tokens
        without a model, a batch or sizes, sizes without tokens, more devices at least than at most; clients without a
        bound on their latency, or of a job that serves nobody.
    """

    name: str
    arrival_s: float  # >= 0, since the first arrival of the trace
    duration_s: float = math.nan  # > 0, inside one domain at speed 1; only clairvoyant policies look at it
    devices: int = 1  # of an elastic job: its most
    kind: str = "train"  # of ``KINDS``
    user: str = ""  # who fairness counts: the trace's user, else its virtual cluster
    runs_on: tuple[str, ...] = ()  # kinds of device that can run it; empty: any
    memory_gb: float = 0.0  # per device
    priority: int = 0  # higher goes first
    deadline_s: float | None = None  # on the clock of ``arrival_s``
    estimate_s: float | None = None  # what the submitter says; may be wrong
    data_gb: float = 0.0  # moves to where the job runs
    data_at: str = ""  # domain that holds it; "" = everywhere
    clients_at: str = ""  # of a job of kind deploy: domain from which it is asked; "" = anywhere
    latency_bound_s: float | None = None  # one way between it and its clients, at most; None: any
    model: str = ""  # catalogue model; "" = chosen by the number of devices
    batch: int = 0  # sequences a step, of an elastic job; so are the next four
    seq: int = 0  # tokens a sequence
    tokens: float = 0.0  # to train on, in all
    least: int = 0  # devices; 0: a gang
    most: int = 0
    ends_after: float = 0.0  # tokens, after which it failed or was cancelled; 0: it did all. Nobody is told

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("kind of job", str(self.kind), KINDS, source=self._source, key="kind")
        if isinstance(self.devices, bool) or not isinstance(self.devices, int) or not 1 <= self.devices <= MOST_DEVICES:
            self._refuse("devices", self.devices, "a job takes a whole number of devices", "write 1 or more")
        self._check_elastic()
        untimed = self.least > 0 and isinstance(self.duration_s, float) and math.isnan(self.duration_s)
        if not untimed and (not _is_number(self.duration_s) or self.duration_s <= 0):
            self._refuse("duration_s", self.duration_s, "a job lasts some time", "write seconds above 0")
        for key in ("arrival_s", "memory_gb", "data_gb"):
            value = getattr(self, key)
            if not _is_number(value) or value < 0:
                self._refuse(key, value, "not a number of 0 or more", "write a finite number that is not negative")
        self._check_optional()

    def _check_elastic(self) -> None:
        for key in ELASTIC:
            value = getattr(self, key)
            if not _is_number(value) or value < 0 or not (key == "tokens" or isinstance(value, int)):
                self._refuse(key, value, "not a number of 0 or more", "write a whole number, or leave it out")
        if not _is_number(self.ends_after) or not 0 <= self.ends_after <= self.tokens:
            remedy = "write a part of its tokens, or leave it out"
            self._refuse("ends_after", self.ends_after, "not within the job's tokens", remedy)
        given = [key for key in ELASTIC if getattr(self, key) > 0]
        if not given:
            return
        missing = [key for key in (*ELASTIC, "model") if not getattr(self, key)]
        if missing:
            remedy = f"write {', '.join(missing)} too, or leave out {', '.join(given)}"
            self._refuse(given[0], getattr(self, given[0]), f"an elastic job has no {missing[0]}", remedy)
        if self.kind != "train":
            self._refuse("kind", self.kind, "only training has tokens", "write train, or leave out tokens and sizes")
        if self.least > self.most:
            self._refuse("least", self.least, f"more than its most, {self.most}", "write a number up to most")
        if self.devices != self.most:
            self._refuse("devices", self.devices, f"not its most, {self.most}", "write the same number, or one of them")

    def _check_optional(self) -> None:
        if self.deadline_s is not None and (not _is_number(self.deadline_s) or self.deadline_s < self.arrival_s):
            remedy = f"write a time from its arrival ({self.arrival_s:g} s) on, or leave it out"
            self._refuse("deadline_s", self.deadline_s, "the deadline lies before the arrival", remedy)
        if self.estimate_s is not None and (not _is_number(self.estimate_s) or self.estimate_s <= 0):
            self._refuse(
                "estimate_s", self.estimate_s, "an estimate is a time", "write seconds above 0, or leave it out"
            )
        self._check_clients()
        if isinstance(self.priority, bool) or not isinstance(self.priority, int) or abs(self.priority) > 10**6:
            self._refuse("priority", self.priority, "not a whole number", "write a whole number, higher goes first")

    def _check_clients(self) -> None:
        bound_s = self.latency_bound_s
        if bound_s is not None and (not _is_number(bound_s) or bound_s <= 0):
            self._refuse("latency_bound_s", bound_s, "a bound is a time", "write seconds above 0, or leave it out")
        if (bound_s is None) != (not self.clients_at):
            here, missing = ("latency_bound_s", "clients_at") if bound_s else ("clients_at", "latency_bound_s")
            self._refuse(here, getattr(self, here), f"a job with it has no {missing}", f"write {missing}, or neither")
        if self.clients_at and self.kind != "deploy":
            self._refuse("kind", self.kind, "only serving has clients", "write deploy, or leave out clients_at")

    @property
    def _source(self) -> str:
        return f"job {self.name!r:.60}"

    def _refuse(self, key: str, value: object, problem: str, remedy: str) -> None:
        raise InputError(problem, source=self._source, key=key, value=value, remedy=remedy)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
