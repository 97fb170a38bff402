"""The addresses: JSON under ``/v1``, what watches the service, and the page.

Every error is a problem document (RFC 9457) with the remedy. Lists come in pages, newest or first come first, with
``next`` as the cursor. A submission needs an ``Idempotency-Key``: sent again it is answered as before.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from math import inf
from time import monotonic
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

import sqlalchemy as sql
from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import hippo
from hippo.errors import HippoError, InputError, UnknownNameError
from hippo.jobs.job import Job, TrainingKind
from hippo.problem.catalogue.models import ALIASES, MODELS
from hippo.serve import answers as a
from hippo.serve import tables as t
from hippo.serve.access import PROXY, Access, Caller, from_elsewhere, spoken_for
from hippo.serve.ahead import TooManyError, WhatIfs
from hippo.serve.domains import DomainNow, checked_domain, domains_written
from hippo.serve.jobs import AlreadyOverError, AnotherBodyError, NotThereError, answer, let_go, take_in, taken_before
from hippo.serve.logs import log_request, trace_of
from hippo.serve.loop import ServeLoop
from hippo.serve.otlp import answer as otlp_answer
from hippo.serve.otlp import told_links
from hippo.serve.pull import Puller
from hippo.serve.records import DECISION_STATES, JOB_STATES, OBSERVE, PLANNING, WAITING, LinkPoint, StoredJob
from hippo.serve.site import check_model, job_of
from hippo.serve.store import NUMBER, TRACE, Store, StoreError, decision_of_row, job_of_row, last_event, note, number_of
from hippo.serve.telemetry import checked, history
from hippo.serve.telemetry import written as store_points
from hippo.serve.watching import RequestTimes, metrics_text
from hippo.serve.why import waits
from hippo.units import bytes_per_s_from_gbps, gbps_from_bytes_per_s

MOST_BODY = 4_000_000
"""Bytes of a body."""
PAGE = 50
MOST_PAGE = 500
MOST_POINTS = 20_000
"""Of one push."""
READS = ("GET", "HEAD")
OTLP_FORMS: dict[str, Any] = {"application/x-protobuf": {}, "application/json": {}}
EVENTS_EVERY_S, EVENTS = 0.25, "/v1/events"
MOST_STREAMS_EACH, MOST_STREAMS = 20, 200
"""Streams of events of one caller, and of all."""
PAGES = 8
"""Of events, that are kept for other streams that want the same."""

Number = Annotated[float, Field(allow_inf_nan=False)]
Whole = Annotated[int, Field(strict=True, ge=0, le=2**53)]
NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"
Word = Annotated[str, Field(max_length=200, pattern=NO_CONTROL)]
JobName = Annotated[str, Query(pattern=f"^j{NUMBER}$")]
JobState = Annotated[str, Query(pattern=f"^({'|'.join(JOB_STATES)})$")]
DecisionState = Annotated[str, Query(pattern=f"^({'|'.join(DECISION_STATES)})$")]

ELASTIC: Any = {"model": "llama-3-8b", "tokens": 1e10, "least": 8, "most": 32, "priority": 1}
GANG: Any = {"devices": 8, "duration_s": 3600.0, "deadline_s": 7200.0}


class Submission(BaseModel):
    """A job: elastic training (model, tokens, sizes), or a gang (devices, duration_s)."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [ELASTIC, GANG]})

    model: Word = ""
    batch: Whole = 0
    seq: Whole = 0
    tokens: Number = 0.0
    least: Whole = 0
    most: Whole = 0
    devices: Whole | None = None
    duration_s: Annotated[Number, Field(le=1e9)] | None = None
    estimate_s: Number | None = None
    kind: Literal["train", "preprocess", "predict", "deploy"] = "train"
    priority: Annotated[int, Field(strict=True, ge=-(10**6), le=10**6)] = 0
    deadline_s: Annotated[Number, Field(ge=0)] | None = Field(default=None, description="Seconds from its submission.")
    memory_gb: Number = 0.0
    data_gb: Number = 0.0
    data_at: Word = ""
    runs_on: Annotated[list[Word], Field(max_length=20)] = []
    clients_at: Word = ""
    latency_bound_s: Number | None = None
    actuator: Annotated[Word, Field(min_length=1)] | None = None
    run: Annotated[dict[str, Any], Field(max_length=20)] | None = Field(
        default=None, description="What its actuator starts: see docs/service.md."
    )

    def told(self) -> dict[str, Any]:
        """What was said, without what was not."""
        return self.model_dump(exclude_unset=True, exclude_none=True)


class Point(BaseModel):
    """What a directed link was measured to carry."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    source: Word = Field(alias="from")
    destination: Word = Field(alias="to")
    gbps: Annotated[Number, Field(ge=0, le=1e6)]
    latency_ms: Annotated[Number, Field(ge=0, le=1e5)] | None = None
    time_s: Annotated[Number, Field(ge=0, le=1e11)] | None = Field(default=None, description="Since 1970; none: now.")

    def measured(self, loop: ServeLoop, by: str) -> LinkPoint:
        """As the service keeps it."""
        late = None if self.latency_ms is None else self.latency_ms / 1e3
        time_s = loop.now_s() if self.time_s is None else loop.of_wall_s(self.time_s)
        return LinkPoint(time_s, self.source, self.destination, bytes_per_s_from_gbps(self.gbps), late, by)


class DomainState(BaseModel):
    """How many GPUs of a domain jobs can use: those of nodes that are down, or that others have, are not among them."""

    model_config = ConfigDict(extra="forbid")

    domain: Word
    gpus: Whole
    device: Word = Field(default="", description="Their kind, as the cluster file names it; none: the domain's.")
    time_s: Annotated[Number, Field(ge=0, le=1e11)] | None = Field(default=None, description="Since 1970; none: now.")

    def told(self, loop: ServeLoop, by: str, key: str, now_s: float) -> DomainNow:
        """As the service keeps it; ``InputError``: it cannot be."""
        time_s = now_s if self.time_s is None else loop.of_wall_s(self.time_s)
        told = DomainNow(time_s, self.domain, self.gpus, by)
        return checked_domain(loop.site.live.site, told, key, now_s, self.device)


class Push(BaseModel):
    """Measurements of links, and GPUs of domains."""

    model_config = ConfigDict(extra="forbid")

    links: Annotated[list[Point], Field(max_length=MOST_POINTS)] = []
    domains: Annotated[list[DomainState], Field(max_length=MOST_POINTS)] = []


class Alert(BaseModel):
    """One alert of an Alertmanager."""

    model_config = ConfigDict(extra="ignore")

    status: Literal["firing", "resolved"]
    labels: Annotated[dict[str, Annotated[str, Field(max_length=1000, pattern=NO_CONTROL)]], Field(max_length=64)]
    annotations: Annotated[dict[str, Annotated[str, Field(max_length=5000)]], Field(max_length=64)] = {}


class Alerts(BaseModel):
    """What an Alertmanager posts to a webhook (version 4 of that form)."""

    model_config = ConfigDict(extra="ignore")

    version: Literal["4"]
    alerts: Annotated[list[Alert], Field(max_length=1000)]


class AsciiAnswer(JSONResponse):
    """JSON in ASCII: what cannot be encoded otherwise is told, too."""

    def render(self, content: Any) -> bytes:
        """As bytes."""
        return json.dumps(content, separators=(",", ":")).encode("ascii")


class Undone(Exception):
    """Takes back what a dry run has written."""


class Refusal(Exception):
    """Ends a request."""

    def __init__(self, status: int, title: str, detail: str = "", **more: Any) -> None:
        self.status, self.document = status, {"type": "about:blank", "title": title, "status": status, **more}
        if detail:
            self.document["detail"] = detail


def _may(act: str) -> Any:
    async def check(request: Request) -> Caller:  # of no thread of its own
        caller: Caller = request.scope["caller"]
        if not caller.may(act):
            remedy = "use a token of another role: hippo serve --new-token NAME --role ROLE"
            raise Refusal(403, "not allowed", f"the role {caller.role} may not {act}", remedy=remedy)
        return caller

    return Depends(check)


def _words_of(dependant: Any) -> set[str]:
    """Names of what may stand behind the question mark."""
    below = (_words_of(each) for each in dependant.dependencies)
    return {each.alias for each in dependant.query_params}.union(*below)


async def _known_words(request: Request) -> None:
    """Words of an address that it does not know are no wish that may be passed over: ``dry-run`` for ``dry_run``."""
    if request.scope["query_string"] and request.url.path not in OPEN_PATHS:  # who watches may say what it likes
        known = _words_of(request.scope["route"].dependant) | ({"token"} if request.url.path == EVENTS else set())
        if unknown := sorted(request.query_params.keys() - known):
            told = f"the address knows no {unknown[0][:60]!r}"
            remedy = f"write {', '.join(sorted(known))}" if known else "leave out what stands behind the question mark"
            raise Refusal(422, "not understood", told, remedy=remedy)


Reader = Annotated[Caller, _may("read")]
Teller = Annotated[Caller, _may("tell")]
Submitter = Annotated[Caller, _may("submit")]
Decider = Annotated[Caller, _may("decide")]


def problem_response(status: int, document: Mapping[str, Any]) -> AsciiAnswer:
    """A problem document."""
    return AsciiAnswer(dict(document), status, media_type="application/problem+json")


def application(store: Store, loop: ServeLoop, access: Access, puller: Puller | None = None) -> FastAPI:
    """The application of a service that has been made."""
    whatifs, streams, times = WhatIfs(loop), Streams(store), RequestTimes()

    @asynccontextmanager
    async def lasting(_: FastAPI) -> AsyncIterator[None]:
        yield
        whatifs.close()

    named: dict[str, Any] = {"title": "hippo", "version": hippo.__version__, "openapi_url": "/openapi.json"}
    app = FastAPI(**named, docs_url=None, redoc_url=None, lifespan=lasting, dependencies=[Depends(_known_words)])
    _problems(app)
    app.add_middleware(Admission, access=access, times=times)

    async def written(function: Callable[[Any], Any], then: Callable[[Any], None] = lambda _: loop.wake()) -> Any:
        """Its answer, once it is on the disk; ``then`` is told of it even if who asked has gone."""
        asked_by = copy_context()  # the writer's thread has none of its own
        future = store.write(lambda at: asked_by.run(function, at))
        future.add_done_callback(lambda done: None if done.exception() else then(done.result()))
        return await asyncio.wrap_future(future)

    async def tried(function: Callable[[Any], Any]) -> None:
        """Raises what it would, and leaves nothing."""

        def undone(at: Any) -> None:
            function(at)
            raise Undone

        with suppress(Undone):
            await asyncio.wrap_future(store.write(undone))

    # ---------------------------------------------------------------------------------------------------------- jobs
    @app.post(
        "/v1/jobs",
        status_code=201,
        response_model=a.JobAnswer,
        responses=_told(400, 401, 403, 409) | {200: {"model": a.JobAnswer | a.TriedJob, "description": "As it was"}},
    )
    async def submit(
        job: Submission,
        caller: Submitter,
        idempotency_key: Annotated[str, Header(min_length=1, max_length=200)],
        dry_run: bool = False,
    ) -> Response:
        """Take a job in; it is on the disk when this is answered."""
        spec, now_s = job.told(), loop.now_s()
        try:
            json.dumps(spec, allow_nan=False, ensure_ascii=False).encode()
        except ValueError:
            detail, remedy = "job: run: holds what is no text, or no number", "leave out lone surrogates and NaN"
            raise Refusal(400, "wrong", detail, remedy=remedy) from None
        refused: Exception | None = None
        try:
            check_model(spec)
            asked = job_of(spec, "job", caller.name, 0.0)
            refused = await asyncio.to_thread(_unfit, asked, spec)
        except InputError as error:
            refused = error
        if refused is not None or dry_run:
            known = store.read(taken_before(spec, idempotency_key, caller.name))
            if refused is not None and known is None:
                raise refused
            if dry_run:
                return AsciiAnswer({"dry_run": True, "job": spec, "known_as": None if known is None else known.name})
            assert known is not None  # it was taken in when it fitted, and is answered as before
            return AsciiAnswer(a.job_document(known), headers={"Location": f"/v1/jobs/{known.name}"})
        rest: dict[str, Any] = {"actuator": loop.terms.actuator, "trace": TRACE.get()}
        rest |= {"batch": asked.batch, "seq": asked.seq} if asked.least else {}
        write = take_in(spec, idempotency_key, caller.name, now_s, rest)
        taken, new = await written(write, lambda told: loop.come(*told))
        found = a.job_document(taken)
        return AsciiAnswer(found, 201 if new else 200, headers={"Location": f"/v1/jobs/{found['id']}"})

    def _unplanned(job: Job) -> bool:
        return job.least > 0 and loop.site.lacks(TrainingKind(job.model, job.batch, job.seq))

    def _unfit(job: Job, spec: Mapping[str, Any]) -> Refusal | None:
        """Why the service cannot take in a job that is well formed."""
        least = job.least or job.devices
        if spec.get("actuator") and spec["actuator"] not in loop.workers:
            known = ", ".join(loop.workers)
            return Refusal(400, "no such actuator", f"job: actuator (got {spec['actuator']!r})", remedy=f"name {known}")
        if least > loop.site.devices:
            detail, remedy = f"job: wants {least} GPUs of the site's {loop.site.devices}", "ask for fewer"
            return Refusal(400, "larger than the site", detail, remedy=remedy)
        if not _unplanned(job) and (why := loop.site.why_never(job)):
            return Refusal(400, "fits nowhere", f"job: {why}", remedy="ask for what the site has")
        if why := loop.lacks(spec):
            detail, _, remedy = why.partition(". To fix: ")
            return Refusal(400, "not for its actuator", detail, remedy=remedy)
        return None

    @app.get("/v1/jobs", response_model=a.JobsAnswer, responses=_told(400, 401, 403))
    async def jobs(
        caller: Reader,
        after: JobName | None = None,
        limit: Annotated[int, Query(ge=1, le=MOST_PAGE)] = PAGE,
        state: JobState | None = None,
    ) -> Response:
        """A page of jobs, in order of submission."""
        asked = sql.select(t.JOBS).order_by(t.JOBS.c.number).limit(limit)
        if after is not None:
            asked = asked.where(t.JOBS.c.number > number_of(after))
        if state is not None:
            asked = asked.where(t.JOBS.c.state == state)
        rows = [_shown(job_of_row(each)) for each in store.read(lambda at: at.execute(asked).all())]
        return AsciiAnswer({"jobs": rows, "next": rows[-1]["id"] if len(rows) == limit else None})

    @app.get("/v1/jobs/{name}", response_model=a.JobAnswer, responses=_told(400, 401, 403, 404))
    async def job(name: str, caller: Reader) -> Response:
        """One job."""
        return AsciiAnswer(_shown(_job(name)))

    @app.get("/v1/jobs/{name}/history", response_model=a.HistoryAnswer, responses=_told(400, 401, 403, 404))
    async def job_history(name: str, caller: Reader) -> Response:
        """How a job went on: steps and losses, and the decisions about it, in order."""
        _job(name)
        looks = sql.select(t.PROGRESS).where(t.PROGRESS.c.job == name).order_by(t.PROGRESS.c.time_s)
        asked = sql.select(t.DECISIONS).where(t.DECISIONS.c.job == name).order_by(t.DECISIONS.c.number).limit(MOST_PAGE)
        found, rows = store.read(lambda at: (at.execute(looks).all(), at.execute(asked).all()))
        steps = [{key: value for key, value in row._mapping.items() if key != "job"} for row in found]
        told = [a.decision_document(decision_of_row(each)) for each in rows]
        return AsciiAnswer({"id": name, "steps": steps, "decisions": told})

    def _shown(job: StoredJob) -> dict[str, Any]:
        """As it stands; where it waits for no reason of its own, why."""
        if job.why or job.state != WAITING:
            return a.job_document(job)
        holds = loop.state.holds
        return {**a.job_document(job), "why": f"nothing is decided: {holds}" if holds else waits(loop.site, job)}

    def _job(name: str) -> StoredJob:
        asked = sql.select(t.JOBS).where(t.JOBS.c.number == number_of(name))
        row = store.read(lambda at: at.execute(asked).first())
        if row is None or not name.startswith("j"):
            raise Refusal(404, "no such job", f"jobs: no job (got {name[:40]!r})", remedy="see GET /v1/jobs")
        return job_of_row(row)

    @app.delete(
        "/v1/jobs/{name}",
        status_code=202,
        response_model=a.CancelAnswer,
        responses=_told(400, 401, 403, 404, 409),
    )
    async def cancel(name: str, caller: Submitter, dry_run: bool = False) -> Response:
        """Cancel a job."""
        _job(name)
        if dry_run:
            await tried(let_go(name, caller.name, loop.now_s()))
        else:
            await written(let_go(name, caller.name, loop.now_s()), lambda _: loop.cancel(name))
        found = _job(name)
        return AsciiAnswer({**a.job_document(found), "dry_run": dry_run}, 202)

    # ----------------------------------------------------------------------------------------------------- decisions
    @app.get("/v1/decisions", response_model=a.DecisionsAnswer, responses=_told(400, 401, 403))
    async def decisions(
        caller: Reader,
        since: Annotated[str, Query(pattern=f"^d{NUMBER}$")] | None = None,
        job: JobName | None = None,
        state: DecisionState | None = None,
        limit: Annotated[int, Query(ge=1, le=MOST_PAGE)] = PAGE,
    ) -> Response:
        """A page of decisions: those after ``since`` in order, without it the newest first."""
        asked = sql.select(t.DECISIONS).limit(limit)
        if since is None:
            asked = asked.order_by(t.DECISIONS.c.number.desc())
        else:
            asked = asked.where(t.DECISIONS.c.number > number_of(since)).order_by(t.DECISIONS.c.number)
        for column, value in ((t.DECISIONS.c.job, job), (t.DECISIONS.c.state, state)):
            asked = asked if value is None else asked.where(column == value)
        rows = [a.decision_document(decision_of_row(each)) for each in store.read(lambda at: at.execute(asked).all())]
        cursor = rows[-1]["id"] if since is not None and len(rows) == limit else None
        return AsciiAnswer({"decisions": rows, "next": cursor})

    @app.post(
        "/v1/decisions/{name}/{verdict}",
        response_model=a.VerdictAnswer,
        responses=_told(400, 401, 403, 404, 409),
    )
    async def decide(
        name: str, verdict: Literal["approve", "deny"], caller: Decider, dry_run: bool = False
    ) -> Response:
        """Say yes or no to a proposal."""
        if verdict == "approve" and loop.mode == OBSERVE:
            remedy = "serve it with --mode advise"
            raise Refusal(409, "not now", "in the mode observe nothing is carried out", remedy=remedy)
        said = answer(name, caller.name, loop.now_s(), yes=verdict == "approve")
        await (tried(said) if dry_run else written(said))
        asked = sql.select(t.DECISIONS).where(t.DECISIONS.c.number == number_of(name))
        row = store.read(lambda at: at.execute(asked).first())
        if row is None or not name.startswith("d"):
            raise Refusal(404, "no such decision", remedy="see GET /v1/decisions")
        return AsciiAnswer({**a.decision_document(decision_of_row(row)), "dry_run": dry_run})

    @app.get("/v1/plans/{name}", response_model=dict[str, Any], responses=_told(304, 400, 401, 403, 404))
    async def plan(name: str, caller: Reader, if_none_match: Annotated[str | None, Header()] = None) -> Response:
        """The plan under which a job ran: a plan file."""
        asked = sql.select(t.PLANS.c.document).where(t.PLANS.c.id == name)
        document = store.read(lambda at: at.execute(asked).scalar())
        if document is None:
            raise Refusal(404, "no such plan", remedy="a job's place names its plan, where it has one")
        tag = f'"{hashlib.sha256(document.encode()).hexdigest()[:32]}"'
        if if_none_match == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(document, media_type="application/json", headers={"ETag": tag})

    # --------------------------------------------------------------------------------------------------------- links
    @app.get("/v1/links", response_model=a.LinksAnswer, responses=_told(400, 401, 403))
    async def links(caller: Reader) -> Response:
        """What every link carries now, of what it is bought as, and what is expected of it in a quarter of an hour."""
        found = await asyncio.to_thread(a.links_document, loop)
        return AsciiAnswer({"links": found, "holds": loop.state.holds})

    @app.get("/v1/links/history", response_model=a.LinkHistoryAnswer, responses=_told(400, 401, 403, 404))
    async def link_history(
        caller: Reader,
        source: Annotated[str, Query(alias="from", max_length=200)],
        destination: Annotated[str, Query(alias="to", max_length=200)],
        hours: Annotated[float, Query(gt=0, le=720)] = 6.0,
    ) -> Response:
        """Minutes of a link: what it carried in the mean, at least and at most."""
        if source == destination or not {source, destination} <= set(loop.site.live.site.domains):
            raise Refusal(404, "no such link", remedy="see GET /v1/links")
        since_s = loop.now_s() - 3600.0 * hours
        rows = store.read(lambda at: history(at, source, destination, since_s))
        names = ("time_s", "gbps", "least_gbps", "most_gbps")
        found = [dict(zip(names, (each[0], *map(gbps_from_bytes_per_s, each[1:])), strict=True)) for each in rows]
        return AsciiAnswer({"from": source, "to": destination, "minutes": found})

    @app.post("/v1/telemetry", status_code=202, response_model=a.TakenAnswer, responses=_told(400, 401, 403))
    async def telemetry(push: Push, caller: Teller, dry_run: bool = False) -> Response:
        """Measurements of links, and how many GPUs of domains can be used; nonsense is refused, and nothing of the push
        is taken."""
        now_s = loop.now_s()
        domains = [each.told(loop, caller.name, f"domains.{at}", now_s) for at, each in enumerate(push.domains)]
        points = [
            checked(loop.site.live.site, each.measured(loop, caller.name), f"links.{at}", now_s)
            for at, each in enumerate(push.links)
        ]
        writes = [store_points(points)] if points else []
        writes += [domains_written(loop.site.live.site, domains, now_s)] if domains else []

        def write(at: Any) -> None:  # all of it or nothing
            for each in writes:
                each(at)

        def take(_: Any) -> None:
            loop.points(points)
            if domains:
                loop.tell_domains(domains)

        if writes and not dry_run:
            await written(write, take)
        return AsciiAnswer({"taken": 0 if dry_run else len(points) + len(domains)}, 202)

    @app.post(
        "/otlp/v1/metrics",
        responses=_told(400, 401, 403) | {200: {"content": OTLP_FORMS, "description": "What was taken"}},
        openapi_extra={"requestBody": {"content": OTLP_FORMS, "required": True}},
    )
    async def otlp(request: Request, caller: Teller, dry_run: bool = False) -> Response:
        """Measurements of links by OTLP/HTTP; nonsense is told as a partial success, and the rest is taken in."""
        told, body, now_s = request.headers, await request.body(), loop.now_s()
        kind = told.get("content-type", "").partition(";")[0].strip().lower()
        encoding = told.get("content-encoding", "").lower()

        def read() -> tuple[list[LinkPoint], list[str]]:  # 4 MB are 90,000 points: others are answered meanwhile
            points, refused = [], []
            for at, each in enumerate(told_links(body, kind, encoding, MOST_BODY)):
                try:
                    link = Point.model_validate(asdict(each)).measured(loop, caller.name)
                    points.append(checked(loop.site.live.site, link, f"links.{at}", now_s))
                except ValidationError as error:
                    refused.append(f"links.{at}: {error.errors()[0]['msg']}")
                except InputError as error:
                    refused.append(str(error))
            return points, refused

        points, refused = await asyncio.to_thread(read)
        if points and not dry_run:
            await written(store_points(points), lambda _: loop.points(points))
        return Response(otlp_answer(kind, len(refused), refused[0] if refused else ""), media_type=kind)

    @app.post("/v1/alerts", status_code=202, response_model=a.TakenAnswer, responses=_told(400, 401, 403))
    async def alerts(push: Alerts, caller: Teller, dry_run: bool = False) -> Response:
        """An Alertmanager's webhook: alerts stand among the events, and on the page."""
        now_s = loop.now_s()

        def write(at: Any) -> None:
            for each in push.alerts:
                subject = each.labels.get("alertname", "alert")[:200]
                told = each.annotations.get("summary") or each.annotations.get("description", "")
                note(at, now_s, "alert", subject, who=caller.name, event=each.status, labels=each.labels, told=told)

        if push.alerts and not dry_run:
            await written(write)
        return AsciiAnswer({"taken": 0 if dry_run else len(push.alerts)}, 202)

    @app.post(
        "/v1/whatif",
        response_model=a.WaitAnswer,
        responses=_told(400, 401, 403, 409) | {202: {"model": a.AskAgain, "description": "Ask again"}},
    )
    async def whatif(job: Submission, caller: Reader) -> Response:
        """How long a job would wait if it came now, with an interval; nothing is taken in. 202: what such training can
        run under is being found out, ask again."""
        spec = job.told()
        if job.model and not caller.may("submit") and job.model.lower() not in MODELS.keys() | ALIASES.keys():
            raise UnknownNameError("model", job.model[:60], MODELS, source="job", key="model")
        check_model(spec)
        asked = job_of(spec, "whatif", caller.name, 0.0)
        if (refused := await asyncio.to_thread(_unfit, asked, spec)) is not None:
            raise refused
        if _unplanned(asked) and not caller.may("submit"):
            detail = f"nobody has planned such training here yet, and the role {caller.role} may not have it planned"
            raise Refusal(403, "not allowed", detail, remedy="let an operator ask")
        found = await whatifs.wait(asked)
        if found is None:
            told = {"state": PLANNING, "detail": f"finding out what {asked.model} can run under here: ask again"}
            return AsciiAnswer(told, 202, headers={"Retry-After": "1"})
        return AsciiAnswer(found)

    # ------------------------------------------------------------------------------------------------------- watching
    @app.get(
        EVENTS,
        response_class=StreamingResponse,
        responses=_told(400, 401, 403) | {200: {"content": {"text/event-stream": {}}, "description": "Events"}},
    )
    async def events(
        request: Request,
        caller: Reader,
        since: Annotated[int | None, Query(ge=0, le=2**53)] = None,
        last_event_id: Annotated[str | None, Header(max_length=15)] = None,
    ) -> Response:
        """Server-sent events: what comes about, from now on or since a number. 429: too many streams are open."""
        begin = int(last_event_id) if last_event_id and last_event_id.isdecimal() else since
        if begin is None:
            begin = await asyncio.to_thread(store.read, last_event)
        known = partial(access.caller, request.scope["token"])
        return SeatedStream(streams, caller.name, _stream(streams, request, begin, known))

    @app.get("/v1/state", response_model=a.StateAnswer, responses=_told(400, 401, 403))
    async def state(caller: Reader) -> Response:
        """What the page shows beside jobs, decisions and links."""
        return AsciiAnswer(a.state_document(loop, puller))

    @app.get("/healthz", response_class=PlainTextResponse)
    async def healthz() -> Response:
        """The process answers."""
        return PlainTextResponse("ok\n")

    @app.get("/readyz", response_class=PlainTextResponse, responses=_told(503))
    async def readyz() -> Response:
        """The store answers, what was decided is written, and the loop goes round; whether a rule decides, and why."""
        late_s = loop.age_s()
        why = loop.state.unwritten or ("" if late_s < 30.0 else f"the loop has not gone round for {late_s:.0f} s")
        if not why:
            try:
                store.read(lambda at: at.execute(sql.select(sql.literal(1))).scalar())
            except StoreError as error:
                why = str(error)
        if why:
            raise Refusal(503, "not ready", why, remedy="see the runbook in docs/service.md")
        return PlainTextResponse(f"ready; {loop.degraded}\n" if loop.degraded else "ready\n")

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Prometheus' text."""
        return PlainTextResponse(metrics_text(store, loop, puller, times), media_type="text/plain; version=0.0.4")

    page = files("hippo.serve").joinpath("page.html").read_text(encoding="utf-8")

    @app.get("/", include_in_schema=False)
    async def front() -> Response:
        """The page."""
        inline = "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
        policy = f"default-src 'self'; {inline}; frame-ancestors 'none'"
        return HTMLResponse(page, headers={"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"})

    _tells_of_tokens(app)
    return app


def _tells_of_tokens(app: FastAPI) -> None:
    """Its OpenAPI document, which is made when it is first asked for, says where a token is wanted."""
    plain = app.openapi

    def document() -> dict[str, Any]:
        found = plain()
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path in found["paths"].keys() - OPEN_PATHS:
            for told in found["paths"][path].values():
                told["security"] = [{"token": []}]
        return found

    app.openapi = document  # type: ignore[method-assign]


def _told(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What an address may answer beside what it is asked for, for the OpenAPI document."""
    words = {304: "Not modified", 400: "Wrong", 401: "Who are you?", 403: "Not allowed", 404: "Not there"}
    words |= {409: "Not now", 413: "Too large", 422: "Not understood", 429: "Too many", 503: "Not ready"}
    words |= {507: "The store is full"}
    any_may = {413, 422, 429, 503, 507} if 401 in statuses else {422}  # of those that want a token
    found: dict[int | str, dict[str, Any]] = {each: {"description": words[each]} for each in {*statuses, *any_may}}
    schema = {"content": {"application/problem+json": {"schema": a.ProblemAnswer.model_json_schema()}}}
    return {each: told | (schema if each != 304 else {}) for each, told in found.items()}


OPEN_PATHS = frozenset({"/", "/healthz", "/readyz", "/metrics", "/openapi.json"})


class Admission:
    """Who asks, how much, how often, by which trace: before anything else looks at a request."""

    def __init__(self, app: ASGIApp, access: Access, times: RequestTimes) -> None:
        self.app, self.access, self.times = app, access, times

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it; log it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began_s, status = monotonic(), 500
        parent = next((each for name, each in scope["headers"] if name == b"traceparent"), b"")
        TRACE.set(trace := trace_of(parent.decode("latin-1")))

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, message["headers"] = message["status"], [*message["headers"], (b"x-trace-id", trace.encode())]
            await send(message)

        try:
            await (self._refused(scope) or self.app)(scope, receive, named)
        finally:
            who = scope["caller"].name if "caller" in scope else ""
            took_s = monotonic() - began_s
            log_request(scope["method"], scope["path"], status, took_s, who)
            if (path := getattr(scope.get("route"), "path", "")) and path != EVENTS:
                self.times.took(scope["method"], path, status, took_s)

    def _refused(self, scope: Scope) -> Response | None:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > MOST_BODY or b"transfer-encoding" in headers:
            remedy = f"send at most {MOST_BODY // 1_000_000} MB, with its length"
            document = {"type": "about:blank", "title": "too large", "status": 413, "remedy": remedy}
            return problem_response(413, document)
        if "\x00" in scope["path"] or b"%00" in scope["query_string"]:
            document = {
                "type": "about:blank",
                "title": "wrong",
                "status": 400,
                "remedy": "leave zeros out of addresses",
            }
            return problem_response(400, document)
        if scope["path"] in OPEN_PATHS:
            return None
        kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if kind.lower() != "bearer" and scope["path"] == EVENTS:  # browsers cannot say more of a stream
            token = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token", "")
        elif kind.lower() != "bearer":
            token = ""
        caller = self.access.caller(token.strip())
        if caller is None:
            told = {"title": "no such token", "detail": "Authorization: Bearer TOKEN is missing or wrong"}
            remedy = "use the token that 'hippo serve' wrote beside its store, or ask for one"
            found = problem_response(401, {"type": "about:blank", **told, "status": 401, "remedy": remedy})
            found.headers["WWW-Authenticate"] = "Bearer"
            return found
        if caller.role == PROXY:
            behind = spoken_for(scope["headers"])
            if isinstance(behind, str):
                remedy = "let the proxy name its user, in one of these groups"
                told = {"title": "not allowed", "detail": behind, "remedy": remedy}
                return problem_response(403, {"type": "about:blank", **told, "status": 403})
            caller = behind
            if scope["method"] not in READS and (told_of := from_elsewhere(scope["headers"])):
                remedy = "use the page of the service itself"
                told = {"title": "not allowed", "detail": told_of, "remedy": remedy}
                return problem_response(403, {"type": "about:blank", **told, "status": 403})
        if not self.access.allows(caller):
            told = {"title": "too many requests", "remedy": "ask less often"}
            found = problem_response(429, {"type": "about:blank", **told, "status": 429})
            found.headers["Retry-After"] = "1"
            return found
        scope["caller"], scope["token"] = caller, token.strip()
        return None


def _problems(app: FastAPI) -> None:
    """Errors as problem documents."""

    @app.exception_handler(Refusal)
    async def of_problem(request: Request, error: Refusal) -> Response:
        found = problem_response(error.status, error.document)
        found.headers.update({"Retry-After": "5"} if error.status == 429 else {})
        return found

    @app.exception_handler(HippoError)
    async def of_ours(request: Request, error: HippoError) -> Response:
        status, title = 400, "wrong"
        if isinstance(error, NotThereError):
            status, title = 404, "not there"
        elif isinstance(error, AnotherBodyError | AlreadyOverError):
            status, title = 409, "not now"
        elif isinstance(error, TooManyError):
            status, title = 429, "too many requests"
        elif isinstance(error, StoreError):
            status, title = (507, "the store is full") if "full" in str(error) else (503, "the store does not answer")
        document: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "detail": str(error)}
        if isinstance(error, InputError):
            document |= {"source": error.source, "key": error.key, "remedy": error.remedy}
        elif isinstance(error, StoreError):
            document["remedy"] = "nothing was taken: ask again once there is room" if status == 507 else "ask again"
        found = problem_response(status, document)
        found.headers.update({"Retry-After": "5"} if status == 429 else {})
        return found

    @app.exception_handler(Exception)
    async def of_its_own(request: Request, error: Exception) -> Response:
        told = {"title": "a fault of its own", "status": 500, "remedy": "report it, with the log of this trace"}
        return problem_response(500, {"type": "about:blank", **told, "trace_id": TRACE.get()})

    @app.exception_handler(RequestValidationError)
    async def of_body(request: Request, error: RequestValidationError) -> Response:
        found = error.errors()[:5]
        told = [{"key": ".".join(map(str, each["loc"])), "problem": each["msg"]} for each in found]
        detail = "; ".join(f"{each['key']}: {each['problem']}" for each in told)
        document = {"type": "about:blank", "title": "not understood", "status": 422, "detail": detail, "errors": told}
        return problem_response(422, {**document, "remedy": "see /openapi.json"})

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> Response:
        document = {"type": "about:blank", "title": str(error.detail), "status": error.status_code}
        found = problem_response(error.status_code, {**document, "remedy": "see /openapi.json"})
        found.headers.update(error.headers or {})
        return found


class Streams:
    """Those who follow the events: how many seats are taken, and one look at the store for all of them, from which
    rows are read only where there are more than somebody has."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seats = Counter[str]()
        self._look: asyncio.Task[int] | None = None
        self._looked_s = -inf
        self._pages = dict[int, asyncio.Task[list[tuple[int, str]]]]()
        self._as_of = 0

    def sit(self, name: str) -> None:
        """Take a seat; ``Refusal``: too many are taken."""
        if self._seats[name] >= MOST_STREAMS_EACH:
            detail = f"{name} follows the events {MOST_STREAMS_EACH} times"
            raise Refusal(429, "too many streams", detail, remedy="close one, or let several share one")
        if self._seats.total() >= MOST_STREAMS:
            detail = f"the events are followed {MOST_STREAMS} times"
            raise Refusal(429, "too many streams", detail, remedy="ask again later, or for GET /v1/decisions?since=")
        self._seats[name] += 1

    def leave(self, name: str) -> None:
        """Give it back."""
        self._seats[name] -= 1
        if not self._seats[name]:
            del self._seats[name]

    async def after(self, last: int) -> Sequence[tuple[int, str]]:
        """Numbers and texts of the next events after a number, not all at once."""
        newest = await self._newest()
        if newest <= last:
            return ()
        if newest != self._as_of or len(self._pages) >= PAGES:
            self._pages, self._as_of = {}, newest
        if last not in self._pages:
            self._pages[last] = asyncio.create_task(asyncio.to_thread(self._page, last))
        pages = self._pages
        try:
            return await asyncio.shield(pages[last])
        except StoreError:
            pages.pop(last, None)
            raise

    async def _newest(self) -> int:
        """As of less than half a turn of a stream ago."""
        if self._look is None or (self._look.done() and monotonic() > self._looked_s + 0.5 * EVENTS_EVERY_S):
            self._looked_s = monotonic()
            self._look = asyncio.create_task(asyncio.to_thread(self._store.read, last_event))
        return await asyncio.shield(self._look)

    def _page(self, last: int) -> list[tuple[int, str]]:
        asked = sql.select(t.EVENTS).where(t.EVENTS.c.number > last).order_by(t.EVENTS.c.number).limit(200)
        found = []
        for row in self._store.read(lambda at: at.execute(asked).all()):
            data = {"time_s": row.time_s, "subject": row.subject, "who": row.who, **json.loads(row.told)}
            found.append((int(row.number), f"id: {row.number}\nevent: {row.kind}\ndata: {json.dumps(data)}\n\n"))
        return found


class SeatedStream(StreamingResponse):
    """A stream of events with its seat, which is given back however it ends."""

    def __init__(self, streams: Streams, name: str, content: AsyncIterator[str]) -> None:
        super().__init__(content, media_type="text/event-stream")
        self._streams, self._name = streams, name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        self._streams.sit(self._name)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.leave(self._name)


async def _stream(streams: Streams, request: Request, begin: int, known: Callable[[], object]) -> AsyncIterator[str]:
    """Events after a number, as they come, while the token is known; a word now and then, so that who has gone is
    noticed."""
    last, quiet = begin, 0.0
    yield ": begun\n\n"
    ends = getattr(request.app.state, "ends", lambda: False)
    while known() and not ends() and not await request.is_disconnected():
        for number, text in await streams.after(last):
            last, quiet = number, 0.0
            yield text
        await asyncio.sleep(EVENTS_EVERY_S)
        quiet += EVENTS_EVERY_S
        if quiet > 10.0:
            quiet = 0.0
            yield ": still here\n\n"
