"""What the service knows of jobs, decisions and orders: values that the store holds and the API shows.

Times are seconds since 1970 on the service's clock, which never goes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

QUEUED, PLANNING, WAITING, RUNNING, DONE, CANCELLED, FAILED, REFUSED = (
    *("queued", "planning", "waiting", "running", "done", "cancelled", "failed", "refused"),
)
"""States of a job: taken in; what it can run under is being planned; in the queue; on devices; and how it ended."""
OVER = (DONE, CANCELLED, FAILED, REFUSED)
JOB_STATES = (QUEUED, PLANNING, WAITING, RUNNING, *OVER)

BEGIN, RESIZE, STOP = "begin", "resize", "stop"
"""What is decided about a job, and ordered."""
LEVER, MOVE, CANCEL = "lever", "move", "cancel"
STEERED = (LEVER, MOVE, CANCEL)
"""What is decided about the plan of a job that runs: other levers, layers that move, a move that is given up."""

PROPOSED, APPROVED, DENIED, SUPERSEDED, ORDERED, CARRIED_OUT, GIVEN_UP = (
    *("proposed", "approved", "denied", "superseded", "ordered", "carried out", "given up"),
)
"""States of a decision."""
DECISION_STATES = (PROPOSED, APPROVED, DENIED, SUPERSEDED, ORDERED, CARRIED_OUT, GIVEN_UP)

OBSERVE, ADVISE, ACT = "observe", "advise", "act"
MODES = (OBSERVE, ADVISE, ACT)
"""Says what it would do; waits for a yes; does it."""


@dataclass(frozen=True)
class StoredJob:
    """A job as the store has it."""

    number: int  # in the order in which jobs were taken in; its id is ``j`` and this
    key: str  # idempotency key of its submission
    spec: Mapping[str, Any]  # as it was submitted: fields of ``jobs.job.Job`` but its times, ``actuator``, ``trace``
    owner: str
    state: str
    submitted_s: float
    began_s: float | None = None
    ended_s: float | None = None
    why: str = ""  # what its state is due to, in a sentence
    place: Mapping[str, Any] | None = None  # where it runs, or ran last
    share_done: float = 0.0  # of its work
    step_s: float | None = None  # as measured last
    predicted_step_s: float | None = None
    cancels: bool = False  # somebody wants it gone

    @property
    def name(self) -> str:
        """Its id."""
        return f"j{self.number}"

    @property
    def trace(self) -> str:
        """Of its submission."""
        return str(self.spec.get("trace", ""))


@dataclass(frozen=True)
class StoredDecision:
    """A decision about one job, with what it was made of and what came of it."""

    number: int  # its id is ``d`` and this
    time_s: float
    job: str
    act: str  # BEGIN, RESIZE, STOP or of ``STEERED``
    before: Mapping[str, Any] | None  # place
    after: Mapping[str, Any] | None  # place
    why: Mapping[str, Any]  # cause, alternatives with what each would cost, hippo's version, hash of what it saw
    policy: str
    mode: str
    state: str
    by: str = ""  # who approved or denied it
    predicted_step_s: float | None = None
    ordered_s: float | None = None  # when it became an order, at once or by a yes
    bound_step_s: float | None = None  # no plan on these devices is quicker, links as they were; None: not found (yet)
    measured_before_s: float | None = None  # step
    measured_after_s: float | None = None
    told: str = ""  # what the actuator said

    @property
    def name(self) -> str:
        """Its id."""
        return f"d{self.number}"


@dataclass(frozen=True)
class JobOrder:
    """What an actuator is to do for a job. Two of one key are one order."""

    key: str
    act: str
    job: str
    spec: Mapping[str, Any]
    place: Mapping[str, Any] | None = None  # None: it stops
    plan: Mapping[str, Any] | None = None  # of ``STEERED``: the document of the plan that is to run
    way: str = ""  # in which layers move to it: stop or background

    @property
    def environment(self) -> dict[str, str]:
        """What the processes of the order are told of the trace that it goes back to (W3C Trace Context)."""
        trace = self.spec.get("trace")
        return {"TRACEPARENT": f"00-{trace}-{sha256(self.key.encode()).hexdigest()[:16]}-01"} if trace else {}


@dataclass(frozen=True)
class Receipt:
    """What became of an order; not ``ok``: it was not carried out and will not be."""

    ok: bool
    told: str = ""
    plan: Mapping[str, Any] | None = (
        None  # a plan file's document, of what it runs under now, also where a move is refused
    )
    ended: bool = False  # of a move that is not ``ok``: what ran of the job has ended, so that it runs nowhere


@dataclass(frozen=True)
class LinkPoint:
    """What a directed link was measured to carry."""

    time_s: float
    source: str
    destination: str
    bytes_per_s: float
    latency_s: float | None = None  # None: not measured
    by: str = ""


@dataclass(frozen=True)
class SeenJob:
    """What an actuator says of a job that it has."""

    job: str
    key: str  # of the last order that it carried out for it
    state: str  # RUNNING, DONE, FAILED
    share_done: float | None = None  # None: it cannot tell
    step_s: float | None = None
    loss: float | None = None
    told: str = ""
    left_s: float | None = None  # until it ends, at the pace of its steps
    arrived: float | None = None  # share of a move of its layers that is under way; None: there is none
    stands: bool = False  # training stands still for it
    links: tuple[LinkPoint, ...] = ()  # what its messages got: a link carried that at least
