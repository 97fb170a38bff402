"""What the API answers: the form of each document, as the OpenAPI document tells it, and how it is made.

Documents are made as plain dictionaries, because a page of five hundred is one answer of many a second; that they have
these forms is held by the tests and by ``benchmarks/fuzz.py``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

import hippo
from hippo.serve.domains import gpus_of
from hippo.serve.loop import ServeLoop
from hippo.serve.pull import Puller
from hippo.serve.records import DECISION_STATES, JOB_STATES, StoredDecision, StoredJob
from hippo.serve.store import last_event
from hippo.units import gbps_from_bytes_per_s

JobState = Annotated[str, Field(json_schema_extra={"enum": list(JOB_STATES)})]
DecisionState = Annotated[str, Field(json_schema_extra={"enum": list(DECISION_STATES)})]
Place = dict[str, Any]
"""``offer``, ``domains``, ``gpus`` of each, ``step_s``, and where there is one its ``plan``, ``way``, ``lever``."""


class AnswerForm(BaseModel):
    """Has these keys and no others."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class JobAnswer(AnswerForm):
    """A job. Times since 1970; ``step_s``: what its steps take; ``why``: it waits, failed or was refused."""

    id: str
    state: JobState
    owner: str
    submitted_s: float
    began_s: float | None
    ended_s: float | None
    share_done: float
    step_s: float | None
    predicted_step_s: float | None
    place: Place | None
    why: str
    trace_id: str
    job: dict[str, Any]


class TriedJob(AnswerForm):
    """A submission that was tried: ``job`` as it would be taken in, and whose it is already."""

    dry_run: Literal[True]
    job: dict[str, Any]
    known_as: str | None


class CancelAnswer(JobAnswer):
    """A job that is to go, or would be."""

    dry_run: bool


class JobsAnswer(AnswerForm):
    """A page of jobs; ``next``: what to say as ``after`` for the following one."""

    jobs: list[JobAnswer]
    next: str | None


class DecisionAnswer(AnswerForm):
    """A decision. ``bound_step_s``: no plan on these devices takes less, links as they were."""

    id: str
    time_s: float
    job: str
    act: str
    state: DecisionState
    mode: str
    policy: str
    by: str
    before: Place | None
    after: Place | None
    why: dict[str, Any]
    predicted_step_s: float | None
    bound_step_s: float | None
    ordered_s: float | None
    measured_before_s: float | None
    measured_after_s: float | None
    told: str


class VerdictAnswer(DecisionAnswer):
    """A proposal that was answered, or would be."""

    dry_run: bool


class DecisionsAnswer(AnswerForm):
    """A page of decisions; ``next``: what to say as ``since`` for the following one."""

    decisions: list[DecisionAnswer]
    next: str | None


class StepLook(AnswerForm):
    """How a job stood."""

    time_s: float
    share_done: float | None
    step_s: float | None
    loss: float | None


class HistoryAnswer(AnswerForm):
    """How a job went on."""

    id: str
    steps: list[StepLook]
    decisions: list[DecisionAnswer]


class LinkAnswer(AnswerForm):
    """A directed link: what it carries, is bought as and is expected to carry; ``measured_s``: since 1970."""

    source: str = Field(alias="from")
    destination: str = Field(alias="to")
    gbps: float
    latency_ms: float
    bought_gbps: float
    forecast_gbps: float | None
    forecast_interval_gbps: tuple[float, float] | None
    measured_s: float | None
    silent_s: float | None


class LinksAnswer(AnswerForm):
    """All links; ``holds``: why the service decides nothing, empty where it does."""

    links: list[LinkAnswer]
    holds: str


class LinkMinute(AnswerForm):
    """What a link carried in a minute: in the mean, at least, at most."""

    time_s: float
    gbps: float
    least_gbps: float
    most_gbps: float


class LinkHistoryAnswer(AnswerForm):
    """Minutes of a link."""

    source: str = Field(alias="from")
    destination: str = Field(alias="to")
    minutes: list[LinkMinute]


class TakenAnswer(AnswerForm):
    """So many were taken in."""

    taken: int


class WaitAnswer(AnswerForm):
    """Seconds that a job would wait: the median of ``draws``, and where ``interval_covers`` of them lie."""

    expected_wait_s: float
    interval_s: tuple[float, float]
    interval_covers: float
    draws: int
    ahead: str


class AskAgain(AnswerForm):
    """What it can run under is being found out."""

    state: str
    detail: str


class DomainAnswer(AnswerForm):
    """GPUs of a domain, those that can be used, those that jobs have; who said so last, and when."""

    name: str
    gpus: int
    up: int
    used: int
    told_by: str | None
    told_s: float | None


class ActuatorAnswer(AnswerForm):
    """Whether it says how its jobs go, and what is wrong with it."""

    name: str
    tells: bool
    fault: str


class SourceAnswer(AnswerForm):
    """Where telemetry is pulled from, and what is wrong with it."""

    source: str = Field(alias="from")
    fault: str


class StateAnswer(AnswerForm):
    """The service itself: ``holds``: why it decides nothing, ``unwritten``: what keeps it from writing."""

    version: str
    mode: str
    policy: str
    holds: str
    unwritten: str
    notice: str
    now_s: float
    cluster: str
    domains: list[DomainAnswer]
    actuators: list[ActuatorAnswer]
    telemetry: SourceAnswer | None
    decisions: int
    last_event: int


class ProblemAnswer(BaseModel):
    """Why a request was refused (RFC 9457), and what to do."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str = ""
    remedy: str = ""


def job_document(job: StoredJob) -> dict[str, Any]:
    """A job as the API tells it."""
    return {
        "id": job.name,
        "state": job.state,
        "owner": job.owner,
        "submitted_s": job.submitted_s,
        "began_s": job.began_s,
        "ended_s": job.ended_s,
        "share_done": job.share_done,
        "step_s": job.step_s,
        "predicted_step_s": job.predicted_step_s,
        "place": None if job.place is None else dict(job.place),
        "why": job.why,
        "trace_id": job.trace,
        "job": {key: value for key, value in job.spec.items() if key != "trace"},
    }


def decision_document(decision: StoredDecision) -> dict[str, Any]:
    """A decision as the API tells it."""
    return {
        "id": decision.name,
        "time_s": decision.time_s,
        "job": decision.job,
        "act": decision.act,
        "state": decision.state,
        "mode": decision.mode,
        "policy": decision.policy,
        "by": decision.by,
        "before": decision.before,
        "after": decision.after,
        "why": dict(decision.why),
        "predicted_step_s": decision.predicted_step_s,
        "bound_step_s": decision.bound_step_s,
        "ordered_s": decision.ordered_s,
        "measured_before_s": decision.measured_before_s,
        "measured_after_s": decision.measured_after_s,
        "told": decision.told,
    }


def links_document(loop: ServeLoop) -> list[dict[str, Any]]:
    """Directed links that there are."""
    site, (rate, late) = loop.site.live.site, loop.carried()
    now_s, last_s = loop.now_s(), dict(loop.measured.last_s)
    expected, found = loop.measured.expected(now_s), []
    for a, source in enumerate(site.domains):
        for b, destination in enumerate(site.domains):
            bought = site.bandwidth_bytes_per_s[a][b]
            if a != b and bought > 0:
                told = expected.get((source, destination))
                found.append(
                    {
                        "from": source,
                        "to": destination,
                        "gbps": gbps_from_bytes_per_s(float(rate[a, b])),
                        "latency_ms": 1e3 * float(late[a, b]),
                        "bought_gbps": gbps_from_bytes_per_s(bought),
                        "forecast_gbps": None if told is None else gbps_from_bytes_per_s(told.expected),
                        "forecast_interval_gbps": None
                        if told is None
                        else [gbps_from_bytes_per_s(told.least), gbps_from_bytes_per_s(told.most)],
                        "measured_s": (at_s := last_s.get((source, destination))),
                        "silent_s": None if at_s is None else max(0.0, now_s - at_s),
                    }
                )
    return found


def state_document(loop: ServeLoop, puller: Puller | None = None) -> dict[str, Any]:
    """The service itself."""
    site = loop.site.live.site
    held = dict.fromkeys(site.domains, 0)
    for place in list(loop.site.places().values()):
        for domain, gpus in zip((place or {}).get("domains", ()), (place or {}).get("gpus", ()), strict=True):
            held[domain] += gpus
    told, size = loop.domains, gpus_of(site)
    domains = [
        {
            "name": name,
            "gpus": size[name],
            "up": loop.site.usable.get(name, size[name]),
            "used": held[name],
            "told_by": told[name].by if name in told else None,
            "told_s": told[name].time_s if name in told else None,
        }
        for name in site.domains
    ]
    actuators = [
        {"name": each.actuator.name, "tells": each.actuator.tells, "fault": each.trouble}
        for each in loop.workers.values()
    ]
    return {
        "version": hippo.__version__,
        "mode": loop.mode,
        "policy": loop.policy,
        "holds": loop.state.holds,
        "unwritten": loop.state.unwritten,
        "notice": "; ".join(filter(None, (loop.state.notice, loop.degraded))),
        "now_s": loop.now_s(),
        "cluster": site.name,
        "domains": domains,
        "actuators": actuators,
        "telemetry": None if puller is None else {"from": puller.terms.url, "fault": puller.fault},
        "decisions": loop.state.decisions,
        "last_event": loop.store.read(last_event),
    }
