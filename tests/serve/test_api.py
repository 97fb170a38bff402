"""The addresses, asked as a client would: what is told, what is refused, and how."""

from __future__ import annotations

import gzip
import json
import re
import resource
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from threading import Event, Thread, current_thread
from time import sleep
from typing import Any
from unittest.mock import ANY

import httpx
import pytest
import sqlalchemy as sql
import uvicorn
from jsonschema import Draft202012Validator
from rich.console import Console
from starlette.testclient import TestClient

from hippo.cli.main import run
from hippo.errors import InputError
from hippo.front_door.service import Client
from hippo.jobs.job import TrainingKind
from hippo.jobs.placement.offers import OfferTable
from hippo.problem.load import load_cluster
from hippo.report.service_terminal import service_view
from hippo.serve import access, ahead, answers, api
from hippo.serve import tables as t
from hippo.serve.access import AGENT, OPERATOR, PROXY, VIEWER, Access, made, taken_back
from hippo.serve.api import application
from hippo.serve.backups import backup, restore
from hippo.serve.demo import run_demo
from hippo.serve.jobs import AnotherBodyError, take_in
from hippo.serve.server import Service, ServiceTerms, port_of
from hippo.serve.store import Store, StoreError, last_event, note, written_beside

from .actuators.sites import in_memory
from .servers import until
from .worlds import JOB, KIND, Clock, Served, offers, url


@dataclass
class Asked:
    served: Served
    http: TestClient
    tokens: dict[str, str]


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    clock = Clock()
    served = Served.of(url(tmp_path), clock)
    tokens = {role: served.store.write(made(role, role, clock())).result() for role in ("viewer", "agent", "operator")}
    app = application(served.store, served.loop, Access(served.store))
    with TestClient(app, headers={"Authorization": f"Bearer {tokens['operator']}"}) as http:
        http.event_hooks = {"response": [partial(has_its_form, app.openapi())]}
        yield Asked(served, http, tokens)
    served.close()


def has_its_form(document: dict[str, Any], answer: Any) -> None:
    """Every answer of these tests is one that the OpenAPI document tells."""
    request = answer.request
    if answer.headers.get("content-type") not in ("application/json", "application/problem+json"):
        return
    found = [
        told[request.method.lower()]
        for path, told in document["paths"].items()
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", path), request.url.path) and request.method.lower() in told
    ]
    if not found:
        return
    if str(answer.status_code) not in found[0]["responses"]:
        assert answer.status_code in (404, 500)  # of any address
        return
    schema = found[0]["responses"][str(answer.status_code)]["content"][answer.headers["content-type"]]["schema"]
    answer.read()
    Draft202012Validator({**schema, "components": document["components"]}).validate(answer.json())


def submit(asked: Asked, key: str = "one", **spec: object):
    return asked.http.post("/v1/jobs", json={**JOB, **spec}, headers={"Idempotency-Key": key})


def test_a_job_from_submission_to_its_end(asked: Asked):
    answer = submit(asked)
    assert answer.status_code == 201
    assert answer.headers["Location"] == "/v1/jobs/j1"
    assert answer.json()["state"] == "queued"
    asked.served.turn()
    assert asked.http.get("/v1/jobs/j1").json()["state"] == "running"
    (decision,) = asked.http.get("/v1/decisions").json()["decisions"]
    assert decision["why"]["cause"]
    assert asked.http.get("/v1/decisions", params={"job": "j2"}).json()["decisions"] == []
    asked.served.turn(20000.0)
    assert asked.http.get("/v1/jobs", params={"state": "done"}).json()["jobs"][0]["id"] == "j1"


def test_a_submission_that_is_sent_again_is_one_job(asked: Asked):
    first, again = submit(asked), submit(asked)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    other = submit(asked, tokens=2e9)
    assert other.status_code == 409
    assert other.headers["content-type"] == "application/problem+json"
    assert other.json()["remedy"]
    assert len(asked.http.get("/v1/jobs").json()["jobs"]) == 1


def test_a_job_without_batch_and_length_keeps_those_that_are_usual(asked: Asked):
    spec = {"model": "llama-3-8b", "tokens": 1e10, "least": 8, "most": 32}
    first, again = (
        asked.http.post("/v1/jobs", json=spec, headers={"Idempotency-Key": "k"}).json()["job"] for _ in range(2)
    )
    assert first == again == {**spec, "batch": 384, "seq": 4096, "actuator": "paper"}


def test_a_submission_that_is_sent_again_after_the_site_has_shrunk(asked: Asked, monkeypatch: pytest.MonkeyPatch):
    first = submit(asked)
    monkeypatch.setattr(type(asked.served.loop.site), "devices", 4)
    again, other = submit(asked), submit(asked, key="two")
    assert (again.status_code, again.json()) == (200, first.json())
    assert (other.status_code, "of the site's 4" in other.text) == (400, True)


def test_pages_of_jobs(asked: Asked):
    for number in range(7):
        submit(asked, key=str(number))
    page = asked.http.get("/v1/jobs", params={"limit": 3}).json()
    assert [each["id"] for each in page["jobs"]] == ["j1", "j2", "j3"]
    page = asked.http.get("/v1/jobs", params={"limit": 5, "after": page["next"]}).json()
    assert [each["id"] for each in page["jobs"]] == ["j4", "j5", "j6", "j7"]
    assert page["next"] is None


@pytest.mark.parametrize(
    ("spec", "status", "said"),
    [
        ({"tokens": "many"}, 422, "tokens"),
        ({"colour": "red"}, 422, "colour"),
        ({"least": 32, "most": 8}, 400, "more than its most"),
        ({"actuator": "pigeon"}, 400, "name paper"),
        ({"kind": "deploy"}, 400, "only training has tokens"),
        ({"least": 4096, "most": 8192}, 400, "wants 4096 GPUs of the site's"),
    ],
)
def test_a_job_that_is_none_is_refused_with_the_remedy(asked: Asked, spec: dict, status: int, said: str):
    answer = submit(asked, **spec)
    assert answer.status_code == status
    found = answer.json()
    assert said in json.dumps(found)
    assert found["remedy"]
    assert asked.http.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize(
    "path", ["/v1/jobs?state=runing", "/v1/jobs?after=d7", "/v1/decisions?state=open", "/v1/decisions?since=7"]
)
def test_a_filter_that_means_nothing_is_no_empty_page(asked: Asked, path: str):
    answer = asked.http.get(path)
    assert answer.status_code == 422
    assert answer.json()["remedy"]


def test_the_key_of_another_owner_is_not_ones_own(asked: Asked):
    spec = {"devices": 8, "duration_s": 60.0}
    write = asked.served.store.write
    assert write(take_in(spec, "k", "one", 0.0)).result()[1]
    assert not write(take_in(spec, "k", "one", 0.0)).result()[1]
    with pytest.raises(AnotherBodyError):
        write(take_in(spec, "k", "two", 0.0)).result()


def test_without_a_key_a_body_or_a_token(asked: Asked):
    assert asked.http.post("/v1/jobs", json=JOB).status_code == 422
    wrong = asked.http.get("/v1/jobs", headers={"Authorization": "Bearer nobody"})
    assert (wrong.status_code, wrong.json()["title"]) == (401, "no such token")
    large = asked.http.post("/v1/telemetry", content=b" " * 4_000_001)
    assert large.status_code == 413
    assert asked.http.get("/v1/pigeons").status_code == 404
    assert asked.http.put("/v1/jobs").status_code == 405
    for path in ("/v1/jobs/j99", "/v1/jobs/pigeon", "/v1/plans/none"):
        found = asked.http.get(path)
        assert (found.status_code, found.headers["content-type"]) == (404, "application/problem+json")


@pytest.mark.parametrize(
    "path", ["/v1/events?since=99999999999999999999", "/v1/plans/a%00b", "/v1/jobs?state=%00", "/v1/jobs?after=j9%00"]
)
def test_addresses_that_no_store_can_look_up(asked: Asked, path: str):
    answer = asked.http.get(path)
    assert answer.status_code in (400, 422)
    assert answer.json()["remedy"]


def test_a_proxy_speaks_for_who_signed_on_with_it(asked: Asked):
    token = asked.served.store.write(made("front", PROXY, asked.served.clock())).result()
    asked.http.headers["Authorization"] = f"Bearer {token}"
    anna = {"X-Forwarded-Email": "anna@example.org", "X-Forwarded-User": "1234"}

    def submit(key: str, **headers: str) -> Any:
        return asked.http.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": key, **headers})

    for headers, said in (
        ({}, "names no user"),
        ({"X-Forwarded-Groups": "hippo-operator"}, "names no user"),
        (anna, "anna@example.org is in none of the groups"),
        ({**anna, "X-Forwarded-Groups": "admins, hippo-viewers"}, "is in none of the groups"),
        ({**anna, "X-Forwarded-Groups": "hippo-viewer"}, "the role viewer may not submit"),
    ):
        answer = submit("one", **headers)
        assert (answer.status_code, said in answer.json()["detail"]) == (403, True), headers
    twice = [("X-Forwarded-Email", "a"), ("X-Forwarded-Email", "b"), ("X-Forwarded-Groups", "hippo-operator")]
    assert "twice" in asked.http.get("/v1/state", headers=twice).json()["detail"]
    both = {**anna, "X-Forwarded-Groups": "hippo-viewer,hippo-operator"}
    assert submit("one", **both).json()["owner"] == "anna@example.org"
    for browser in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ):
        answer = submit("two", **both, **browser)
        assert (answer.status_code, "another site" in answer.json()["detail"]) == (403, True), browser
        assert asked.http.get("/v1/jobs", headers={**both, **browser}).status_code == 200
    for browser in ({"Sec-Fetch-Site": "same-origin"}, {"Origin": str(asked.http.base_url).rstrip("/")}):
        assert submit("one", **both, **browser).json()["owner"] == "anna@example.org"
    one, two = asked.served.loop.site.live.site.domains[:2]
    push = {"links": [{"from": one, "to": two, "gbps": 1.0}]}
    agent = {"X-Forwarded-User": "probe", "X-Forwarded-Groups": "hippo-agent"}
    assert asked.http.post("/v1/telemetry", json=push, headers=agent).status_code == 202
    asked.http.headers["Authorization"] = f"Bearer {asked.tokens['viewer']}"  # nobody else's headers count
    assert submit("two", **both).status_code == 403


@pytest.mark.parametrize("role", [VIEWER, AGENT])
def test_roles(asked: Asked, role: str):
    asked.http.headers["Authorization"] = f"Bearer {asked.tokens[role]}"
    assert asked.http.get("/v1/jobs").status_code == 200
    assert submit(asked).status_code == 403
    assert asked.http.post("/v1/telemetry", json={"links": []}).status_code == (202 if role == AGENT else 403)


def test_nonsense_of_links_is_refused_whole(asked: Asked):
    one, two = asked.served.loop.site.live.site.domains[:2]
    right = {"from": one, "to": two, "gbps": 1.0, "latency_ms": 20.0}
    wrong = (
        ({"from": "mars"}, "no such domain"),
        ({"gbps": 1e5}, "times what is bought"),
        ({"to": one}, "no such link"),
        ({"time_s": 1e10}, "lies"),
    )
    for values, said in wrong:
        answer = asked.http.post("/v1/telemetry", json={"links": [right, {**right, **values}]})
        assert answer.status_code == 400
        assert said in answer.json()["detail"]
    for value in (-1.0, "NaN", None):
        assert asked.http.post("/v1/telemetry", json={"links": [{**right, "gbps": value}]}).status_code == 422
    assert asked.http.get("/v1/links").json()["links"][0]["measured_s"] is None
    assert "hippo_link_measured_age_seconds{" not in asked.http.get("/metrics").text
    assert asked.http.post("/v1/telemetry", json={"links": [right]}).json() == {"taken": 1}
    asked.served.turn()
    (found,) = [
        each for each in asked.http.get("/v1/links").json()["links"] if (each["from"], each["to"]) == (one, two)
    ]
    assert (found["gbps"], found["latency_ms"], found["silent_s"]) == (1.0, pytest.approx(20.0), 0.0)


def test_a_link_that_is_silent_while_others_are_told(asked: Asked):
    one, two = asked.served.loop.site.live.site.domains[:2]
    there, back = ({"from": a, "to": b, "gbps": 1.0} for a, b in ((one, two), (two, one)))
    asked.http.post("/v1/telemetry", json={"links": [there, back]})
    asked.served.turn(400.0)
    asked.http.post("/v1/telemetry", json={"links": [back]})
    asked.served.turn()
    links = {(each["from"], each["to"]): each for each in asked.http.get("/v1/links").json()["links"]}
    assert (links[one, two]["silent_s"], links[two, one]["silent_s"]) == (400.0, 0.0)
    age = f'hippo_link_measured_age_seconds{{destination="{two}",source="{one}"}} 400.0'
    assert age in asked.http.get("/metrics").text
    assert asked.http.get("/readyz").status_code == 200


def test_what_a_job_would_wait(asked: Asked):
    empty = asked.http.post("/v1/whatif", json=JOB).json()
    assert empty["expected_wait_s"] == 0.0
    for number in range(12):
        submit(asked, key=str(number), least=16, tokens=1e10)
    asked.served.turn()
    found = asked.http.post("/v1/whatif", json={**JOB, "least": 16}).json()
    low, high = found["interval_s"]
    assert low <= found["expected_wait_s"] <= high
    assert len(asked.http.get("/v1/jobs").json()["jobs"]) == 12  # nothing was taken in
    assert asked.http.post("/v1/whatif", json={**JOB, "least": 4096, "most": 4096}).status_code == 400
    assert asked.http.post("/v1/whatif", json={**JOB, "actuator": "nobody"}).json()["title"] == "no such actuator"


def test_what_training_that_nobody_submitted_would_wait(asked: Asked, monkeypatch: pytest.MonkeyPatch):
    """It is planned for the question, which leaves what the queue goes by as it was, and answered as if it had been
    submitted before."""
    site, goes_on = asked.served.loop.site, Event()
    unknown = {**JOB, "batch": KIND.batch // 2, "least": 16, "tokens": 1e11}  # the shortest go first
    table = replace(offers(), kinds=(KIND._replace(batch=KIND.batch // 2),))

    def planned(self: Any, kind: TrainingKind) -> OfferTable:
        assert goes_on.wait(60.0)
        if kind.batch == 1:
            raise InputError("no plan trains it here", source="job", remedy="ask for more")
        return table

    monkeypatch.setattr(type(site), "planned", planned)
    monkeypatch.setattr(ahead, "PATIENCE_S", 0.01)
    for number in range(site.devices // 16 + 3):
        submit(asked, key=str(number), least=16, tokens=1e10)
    asked.served.turn()
    answer = asked.http.post("/v1/whatif", json=unknown)
    assert (answer.status_code, answer.json()["state"], answer.headers["Retry-After"]) == (202, "planning", "1")
    for batch in (1, 2, 3):
        assert asked.http.post("/v1/whatif", json={**JOB, "batch": batch}).status_code == 202
    assert "too many kinds" in asked.http.post("/v1/whatif", json={**JOB, "batch": 4}).json()["detail"]
    goes_on.set()
    monkeypatch.setattr(ahead, "PATIENCE_S", 60.0)
    found = asked.http.post("/v1/whatif", json=unknown).json()
    assert found["expected_wait_s"] > 0.0
    assert "no plan trains it here" in asked.http.post("/v1/whatif", json={**JOB, "batch": 1}).json()["detail"]
    assert site.offers.kinds == (KIND,)
    with asked.served.loop.lock:
        site.learn(table)
    assert asked.http.post("/v1/whatif", json=unknown).json() == found


def test_questions_at_once_that_have_no_answer_and_too_many(asked: Asked, monkeypatch: pytest.MonkeyPatch):
    def planned(self: Any, kind: TrainingKind) -> OfferTable:
        sleep(0.2)
        raise InputError("no plan trains it here", source="job", remedy="ask for more")

    def ask(number: int) -> Any:
        return asked.http.post("/v1/whatif", json={**JOB, "batch": 1})

    monkeypatch.setattr(type(asked.served.loop.site), "planned", planned)
    with ThreadPoolExecutor(8) as several:
        answers = list(several.map(ask, range(8)))
    assert {each.status_code for each in answers} == {400}
    monkeypatch.setattr(ahead, "MOST_ASKED", 0)
    assert ask(0).status_code == 429
    assert ask(0).json()["remedy"] == "ask again later"


def test_what_was_taken_in_is_answered_though_it_could_not_be_any_more(asked: Asked, tmp_path: Path):
    (tmp_path / "config.json").write_text(
        json.dumps(
            {"model_type": "gpt2", "n_embd": 96, "n_layer": 4, "n_head": 4, "vocab_size": 256, "n_positions": 64}
        )
    )
    spec = {**JOB, "model": str(tmp_path / "config.json")}
    first = asked.http.post("/v1/jobs", json=spec, headers={"Idempotency-Key": "one"})
    assert first.status_code == 201
    (tmp_path / "config.json").unlink()
    again = asked.http.post("/v1/jobs", json=spec, headers={"Idempotency-Key": "one"})
    assert (again.status_code, again.json()["id"]) == (200, "j1")
    assert asked.http.post("/v1/jobs", json=spec, headers={"Idempotency-Key": "two"}).status_code == 400


def test_a_gang_may_call_its_model_as_it_likes(asked: Asked):
    gang = {"model": "my-net", "devices": 8, "duration_s": 1e6}
    assert asked.http.post("/v1/jobs", json=gang, headers={"Idempotency-Key": "one"}).status_code == 201
    asked.served.turn()
    assert asked.served.jobs()["j1"].state == "running"


def test_who_only_looks_names_no_file(asked: Asked, tmp_path: Path):
    (tmp_path / "config.json").write_text("secret")
    spec, viewer = (
        {**JOB, "model": str(tmp_path / "config.json")},
        {"Authorization": f"Bearer {asked.tokens['viewer']}"},
    )
    found = asked.http.post("/v1/whatif", json=spec, headers=viewer)
    assert (found.status_code, "unknown model" in found.json()["detail"]) == (400, True)
    assert "not valid JSON" in asked.http.post("/v1/whatif", json=spec).json()["detail"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "says neither what it trains nor how long it lasts"),
        ({"devices": 8}, "says neither"),
        ({**JOB, "model": "llama-3-8"}, "job: model: unknown model 'llama-3-8'. To fix: did you mean 'llama-3-8b'"),
        ({"devices": 8, "duration_s": 60.0, "runs_on": ["TPU v5p"]}, "the site has A100-SXM-80GB"),
        ({"devices": 8, "duration_s": 60.0, "data_gb": 1.0, "data_at": "atlantis"}, "data"),
    ],
)
def test_a_job_that_can_never_run_is_refused_at_once(asked: Asked, spec: dict, said: str):
    answer = asked.http.post("/v1/jobs", json=spec, headers={"Idempotency-Key": "one"})
    assert answer.status_code == 400
    assert said in answer.json()["detail"]
    assert "--model" not in answer.text
    assert asked.http.get("/v1/jobs").json()["jobs"] == []


def test_dry_runs_say_what_would_be_and_leave_nothing(asked: Asked):
    def dry(path: str, **how: Any) -> Any:
        return asked.http.post(path, params={"dry_run": True}, **how)

    key = {"Idempotency-Key": "one"}
    assert dry("/v1/jobs", json=JOB, headers=key).json()["known_as"] is None
    submit(asked)
    assert dry("/v1/jobs", json=JOB, headers=key).json()["known_as"] == "j1"
    assert dry("/v1/jobs", json={**JOB, "tokens": 2e9}, headers=key).status_code == 409
    (link, *_) = asked.http.get("/v1/links").json()["links"]
    push = {"links": [{"from": link["from"], "to": link["to"], "gbps": 0.5}]}
    assert dry("/v1/telemetry", json=push).json() == {"taken": 0}
    labels = {"src": link["from"], "dst": link["to"]}
    points = [{"asDouble": 5e8, "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in labels.items()]}]
    metrics = [{"name": "hippo_link_bits_per_second", "gauge": {"dataPoints": points}}]
    told = {"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}
    assert dry("/otlp/v1/metrics", json=told).status_code == 200
    alert = {"version": "4", "alerts": [{"status": "firing", "labels": {"alertname": "Silent"}}]}
    assert dry("/v1/alerts", json=alert).json() == {"taken": 0}
    asked.served.turn()
    assert asked.http.get("/v1/links").json()["links"][0]["gbps"] == link["gbps"]
    kinds = asked.served.store.read(lambda at: at.execute(sql.select(t.EVENTS.c.kind)).scalars().all())
    assert "alert" not in kinds
    assert asked.http.post("/otlp/v1/metrics", json=told).status_code == 200  # the same without is taken
    asked.served.turn()
    assert asked.http.get("/v1/links").json()["links"][0]["gbps"] == 0.5


def test_authorities_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "ca.pem").write_text("no certificate")
    for name in ("ca.pem", "nowhere.pem"):
        monkeypatch.setenv("HIPPO_CA", str(tmp_path / name))
        with pytest.raises(InputError, match="HIPPO_CA: holds no authorities: .* To fix: name a PEM file"):
            Client("https://127.0.0.1:1")


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda it: it.submit({"tokens": float("inf")}), r"job: tokens: must be a finite number \(got inf\)"),
        (lambda it: it.submit({"run": {"a": [1.0, float("nan")]}}), r"job: run\.a\.1: must be a finite number"),
        (lambda it: it.submit({"model": "\ud800"}), "job: model: is no text"),
        (lambda it: it.submit({"model": Path("x")}), "job: is no JSON"),
        (lambda it: it.submit({}, key="schlüssel"), "submission: key: must be printable ASCII"),
        (lambda it: it.submit({}, key=" a"), "submission: key: must be printable ASCII"),
        (lambda it: it.whatif({"tokens": float("nan")}), "job: tokens: must be a finite number"),
        (
            lambda it: it.push([{"from": "a", "to": "b", "gbps": float("nan")}]),
            r"push: links\.0\.gbps: must be a finite",
        ),
        (lambda it: next(it.jobs(state="\ud800")), "question: holds what is no text"),
        (lambda it: it.job("j" * 70_000), "id: is no id"),
        (lambda it: it.state(), "service: no service answers"),
        (lambda it: next(it.events()), "service: no service answers"),
    ],
)
def test_what_cannot_be_sent_is_told_in_one_sentence(ask: Callable[[Client], object], said: str):
    with Client("http://127.0.0.1:1", " a-token\n") as service, pytest.raises(InputError, match=said) as error:
        ask(service)
    assert error.value.source
    assert error.value.remedy


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda it: it.job("j012"), "id: is no id of a job .* To fix: .* see 'hippo jobs status'"),
        (lambda it: it.cancel("d7"), "id: is no id of a job"),
        (lambda it: it.why("j1/"), "id: is no id of a job"),
        (lambda it: it.history("7"), "id: is no id of a job"),
        (lambda it: it.approve("j7"), "id: is no id of a decision .* To fix: .* see 'hippo decisions'"),
        (lambda it: it.deny("d07"), "id: is no id of a decision"),
        (lambda it: it.decisions(since="x"), "id: is no id of a decision"),
        (lambda it: it.decisions(limit=501), "limit: must be 1 to 500"),
        (lambda it: it.decisions(since="d1", limit=0), "limit: must be 1 to 500"),
    ],
)
def test_ids_that_are_none_are_told_before_anybody_is_asked(ask: Callable[[Client], object], said: str):
    with Client("http://127.0.0.1:1", "x") as service, pytest.raises(InputError, match=said):
        ask(service)


@contextmanager
def answering(said: bytes) -> Iterator[Client]:
    """A client of who says this once, whatever is asked, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:

        def once() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(said)

        pool.submit(once)
        with Client(f"http://127.0.0.1:{listening.getsockname()[1]}", "x") as client:
            yield client


def test_a_refusal_of_events_is_no_silence():
    problem = b'{"title": "no such token", "detail": "TOKEN is wrong", "remedy": "ask for one"}'
    head = b"HTTP/1.1 401 no\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n" % len(problem)
    with answering(head + problem) as client, pytest.raises(InputError, match=r"TOKEN is wrong\. To fix: ask for one"):
        next(client.events())
    page = b"HTTP/1.1 200 ok\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi"
    with answering(page) as client, pytest.raises(InputError, match="service: answers 200, and not as hippo does"):
        next(client.events())


def test_events_that_break_off_say_so():
    head = b"HTTP/1.1 200 ok\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    one = b'id: 7\nevent: job\ndata: {"subject": "j1"}\n\n'
    whole = head + b"%x\r\n%b\r\n" % (len(one), one)
    with answering(whole) as client:
        stream = client.events()
        assert next(stream) == {"kind": "job", "subject": "j1"}
        with pytest.raises(InputError, match=r"service: events broke off: .* To fix: ask for those since 7"):
            next(stream)
    with answering(whole + b"0\r\n\r\n") as client:  # as the service ends
        assert len(list(client.events())) == 1


@contextmanager
def listened(asked: Asked) -> Iterator[tuple[str, Thread]]:
    """The address at which the application is served, as streams need it, and the thread of its requests."""
    app: Any = asked.http.app
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
    app.state.ends = lambda: server.should_exit
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", thread
        finally:
            server.should_exit = True
            thread.join()


def test_as_many_follow_the_events_as_there_are_seats(asked: Asked, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(api, "MOST_STREAMS_EACH", 2)
    monkeypatch.setattr(api, "MOST_STREAMS", 3)
    submit(asked)
    with listened(asked) as (address, _), ExitStack() as stack:
        clients = {role: stack.enter_context(Client(address, token)) for role, token in asked.tokens.items()}

        def follow(role: str) -> Any:
            stream = clients[role].events(since=0)
            next(stream)
            return stream

        streams = [follow("operator"), follow("operator")]
        refused = httpx.get(f"{address}/v1/events?token={asked.tokens['operator']}", trust_env=False)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "5")
        assert refused.headers["Content-Type"] == "application/problem+json"
        with pytest.raises(InputError, match="operator follows the events 2 times. To fix: close one"):
            follow("operator")
        streams.append(follow("viewer"))
        with pytest.raises(InputError, match="the events are followed 3 times. To fix: ask again later"):
            follow("agent")
        streams.pop(0).close()
        until(lambda: _sits(follow, "operator", streams), 20.0)
        for each in streams:
            each.close()


def _sits(follow: Callable[[str], Any], role: str, streams: list[Any]) -> bool:
    with suppress(InputError):
        streams.append(follow(role))
        return True
    return False


def test_streams_share_what_they_read_and_read_nothing_where_nothing_is_new(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
):
    store, read = asked.served.store, list[tuple[Any, Thread]]()
    plain = store.read
    monkeypatch.setattr(store, "read", lambda function: read.append((function, current_thread())) or plain(function))
    with listened(asked) as (address, thread), ThreadPoolExecutor(12) as pool, ExitStack() as stack:
        clients = [stack.enter_context(Client(address, asked.tokens["viewer"])) for _ in range(12)]
        submit(asked)
        streams = [each.events(since=plain(last_event) - 1) for each in clients]
        assert [next(each)["subject"] for each in streams] == ["j1"] * 12
        sleep(0.5)
        read.clear()
        sleep(1.0)
        quiet = list(read)
        assert 2 <= sum(function is last_event for function, _ in quiet) <= 10  # they were 48
        assert sum(function is not last_event for function, _ in quiet) <= 3  # tokens, every second
        read.clear()
        waiting = [pool.submit(next, each) for each in streams]
        store.write(lambda at: note(at, 0.0, "service", "", told="news")).result()
        assert [each.result()["told"] for each in waiting] == ["news"] * 12
        assert sum(function is not last_event for function, _ in read) <= 6
        assert thread not in [each for _, each in (*quiet, *read)]
        for stream in streams:
            stream.close()  # type: ignore[attr-defined]


def test_words_that_an_address_does_not_know_stop_it(asked: Asked):
    submit(asked)
    asked.served.turn()
    answer = asked.http.delete("/v1/jobs/j1", params={"dry-run": True})
    assert (answer.status_code, answer.json()["remedy"]) == (422, "write dry_run")
    assert asked.http.get("/v1/jobs/j1").json()["state"] == "running"
    assert asked.http.get("/v1/state", params={"pretty": 1}).status_code == 422
    assert asked.http.get("/v1/jobs", params={"limit": 1, "state": "running"}).status_code == 200


def test_dry_runs_of_answers_and_cancels_say_no_where_they_would(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock(), mode="advise")
    token = served.store.write(made("me", OPERATOR, served.clock())).result()
    app = application(served.store, served.loop, Access(served.store))
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as http:
        http.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "one"})
        served.turn()
        dry = {"dry_run": True}
        assert http.post("/v1/decisions/d1/approve", params=dry).json()["state"] == "proposed"
        assert http.post("/v1/decisions/d9/approve", params=dry).status_code == 404
        assert http.post("/v1/decisions/d1/deny").json()["state"] == "denied"
        assert http.post("/v1/decisions/d1/approve", params=dry).status_code == 409
        assert http.delete("/v1/jobs/j1", params=dry).status_code == 202
        assert not served.jobs()["j1"].cancels
        http.delete("/v1/jobs/j1")
        served.turn(1.0)
        assert http.delete("/v1/jobs/j1", params=dry).status_code == 409
    served.close()


def decided(served: Served, count: int) -> None:
    """The first decision again, so that there are so many."""
    (row,) = served.store.read(lambda at: at.execute(sql.select(t.DECISIONS)).mappings().all())
    rows = [{**row, "number": number} for number in range(2, count + 1)]
    served.store.write(lambda at: at.execute(sql.insert(t.DECISIONS), rows)).result()


def test_all_decisions_are_told_however_many_there_are(asked: Asked, monkeypatch: pytest.MonkeyPatch, capsys):
    submit(asked)
    asked.served.turn()
    decided(asked.served, 601)
    names = [f"d{number}" for number in range(1, 602)]
    with listened(asked) as (address, _), Client(address, asked.tokens["viewer"]) as service:

        def ids(*words: str, **how: Any) -> list[str]:
            return [each["id"] for each in getattr(service, *words[:1])(*words[1:], **how)]

        assert ids("why", "j1") == names[::-1]
        assert ids("decisions", since="d1") == names[1:]
        assert ids("decisions", since="d0", state="denied") == []
        assert ids("decisions", since="d1", limit=3) == names[1:4]
        assert ids("decisions") == names[::-1][:50]
        assert ids("decisions", limit=500) == names[::-1][:500]
        monkeypatch.setenv("HIPPO_URL", address)
        monkeypatch.setenv("HIPPO_TOKEN", asked.tokens["viewer"])

        def told(*words: str) -> str:
            capsys.readouterr()
            assert run(["decisions", *words]) == 0
            return capsys.readouterr().out

        assert len(json.loads(told("--json", "--limit", "60"))["decisions"]) == 60
        assert "there are older ones: --limit N; all: --since d0" in " ".join(told().split())
        assert "there are later ones: --since d5" in told("--since", "d1", "--limit", "4")
        assert "there are" not in told("--since", "d590")
        assert "there are" not in told("--since", "d591", "--limit", "10")


def test_who_tells_all_there_is_says_so(asked: Asked, monkeypatch: pytest.MonkeyPatch, capsys):
    submit(asked)
    asked.served.turn()
    decided(asked.served, 50)
    with listened(asked) as (address, _):
        monkeypatch.setenv("HIPPO_TOKEN", asked.tokens["viewer"])
        assert run(["decisions", "--url", address]) == 0
        assert "there are" not in capsys.readouterr().out


def test_dry_runs_by_hand_say_that_they_were_only_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    served = Served.of(url(tmp_path), Clock(), mode="advise")
    token = served.store.write(made("me", OPERATOR, served.clock())).result()
    app = application(served.store, served.loop, Access(served.store))
    monkeypatch.setenv("HIPPO_TOKEN", token)
    with TestClient(app) as http, listened(Asked(served, http, {})) as (address, _):
        monkeypatch.setenv("HIPPO_URL", address)

        def hippo(*words: str) -> str:
            capsys.readouterr()
            assert run([*words]) == 0
            out, err = capsys.readouterr()
            return out + err

        gang = ("jobs", "submit", "--devices", "8", "--duration", "60", "--key", "one")
        assert hippo(*gang, "--dry-run") == "hippo: only tried: it would be taken in\n"
        assert served.jobs() == {}
        assert hippo(*gang) == "j1\n"
        assert served.jobs()["j1"].spec == {"devices": 8, "duration_s": 60.0, "actuator": "paper", "trace": ANY}
        assert hippo(*gang, "--dry-run") == "hippo: only tried: it is j1 already\n"
        served.turn()
        assert hippo("decisions", "--approve", "d1", "--dry-run") == "hippo: only tried: d1 would be approved\n"
        assert hippo("decisions", "--deny", "d1", "--dry-run") == "hippo: only tried: d1 would be denied\n"
        assert json.loads(hippo("decisions", "--deny", "d1", "--dry-run", "--json"))["decisions"][0]["dry_run"]
        assert hippo("jobs", "cancel", "j1", "--dry-run") == "hippo: only tried: j1 would end\n"
        assert [each.state for each in served.decisions()] == ["proposed"]
        assert not served.jobs()["j1"].cancels
        with Client() as service:
            (link, *_) = service.links()
            push = [{"from": link["from"], "to": link["to"], "gbps": 0.5}]
            assert service.push(push, dry_run=True) == 0
            with pytest.raises(InputError, match="no such domain"):
                service.push([{**push[0], "to": "mars"}], dry_run=True)
            assert service.links()[0]["measured_s"] is None
    served.close()


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("jobs", "status", "j9999"), "see 'hippo jobs status'"),
        (("jobs", "cancel", "j9999"), "see 'hippo jobs status'"),
        (("jobs", "cancel", "j9999", "--dry-run"), "see 'hippo jobs status'"),
        (("jobs", "why", "j9999"), "see 'hippo jobs status'"),
        (("decisions", "--approve", "d9999"), "see 'hippo decisions'"),
    ],
)
def test_what_is_not_there_is_told_in_words_of_commands(
    asked: Asked, words: tuple[str, ...], remedy: str, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setenv("HIPPO_TOKEN", asked.tokens["operator"])
    with listened(asked) as (address, _):
        assert run([*words, "--url", address]) == 2
    told = capsys.readouterr().err
    assert "9999" in told
    assert told.endswith(f"To fix: {remedy}.\n")
    assert "/v1" not in told


def test_who_may_not_submit_has_nothing_planned(asked: Asked):
    viewer = {"Authorization": f"Bearer {asked.tokens['viewer']}"}
    assert asked.http.post("/v1/whatif", json=JOB, headers=viewer).status_code == 200
    answer = asked.http.post("/v1/whatif", json={**JOB, "batch": 7}, headers=viewer)
    assert (answer.status_code, answer.json()["remedy"]) == (403, "let an operator ask")


def test_the_first_token_is_an_operators_whoever_was_there_before(tmp_path: Path):
    store = Store(url(tmp_path))
    store.write(made("first", AGENT, 0.0)).result()
    told = access.first_token(store, tmp_path / "token", 0.0)
    assert told is not None
    caller = Access(store).caller(told.read_text().strip())
    assert caller is not None
    assert (caller.name, caller.role) == ("first-2", OPERATOR)
    store.close()


def test_cancelled(asked: Asked):
    submit(asked)
    asked.served.turn()
    assert asked.http.delete("/v1/jobs/j1", params={"dry_run": True}).json()["dry_run"]
    asked.served.turn(1.0)
    assert asked.http.get("/v1/jobs/j1").json()["state"] == "running"
    assert asked.http.delete("/v1/jobs/j1").status_code == 202
    asked.served.turn(1.0)
    assert asked.http.get("/v1/jobs/j1").json()["state"] == "cancelled"
    assert asked.http.delete("/v1/jobs/j1").status_code == 409


def test_a_token_that_is_made_beside_the_service_is_known_at_once(asked: Asked):
    store = asked.served.store
    token = written_beside(store.url, made("late", "viewer", asked.served.clock()))
    asked.http.headers["Authorization"] = f"Bearer {token}"
    assert asked.http.get("/v1/jobs").status_code == 200
    assert asked.http.delete("/v1/jobs/j1").status_code == 403
    with pytest.raises(InputError, match="has a token already"):
        written_beside(store.url, made("late", "viewer", asked.served.clock()))


def test_a_token_that_is_taken_back_beside_the_service_is_good_for_nothing(asked: Asked, monkeypatch):
    monkeypatch.setattr(access, "AGAIN_S", 0.0)
    store, now_s = asked.served.store, asked.served.clock()
    mine = asked.http.headers["Authorization"]
    asked.http.headers["Authorization"] = f"Bearer {written_beside(store.url, made('late', 'viewer', now_s))}"
    assert asked.http.get("/v1/jobs").status_code == 200
    written_beside(store.url, taken_back("late", now_s))
    for _ in range(200):  # who is known waits for no store, so one more answer may go out
        if (answer := asked.http.get("/v1/jobs")).status_code == 401:
            break
        sleep(0.01)
    assert answer.status_code == 401
    asked.http.headers["Authorization"] = mine
    assert asked.http.get("/v1/jobs").status_code == 200
    with pytest.raises(InputError, match="late"):
        written_beside(store.url, taken_back("late", now_s))
    with pytest.raises(InputError, match="the only operator's"):
        written_beside(store.url, taken_back("operator", now_s))


def test_where_the_store_is_full_it_says_what_to_do(asked: Asked):
    def full(function: Any) -> Any:
        found: Future[None] = Future()
        found.set_exception(StoreError("the store cannot write: database or disk is full"))
        return found

    asked.served.store.write = full  # type: ignore[method-assign]
    answer = asked.http.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 507
    assert answer.json()["remedy"] == "nothing was taken: ask again once there is room"


def test_what_watches_it(asked: Asked):
    asked.served.turn()
    assert asked.http.get("/healthz").text == "ok\n"
    assert asked.http.get("/readyz").text == "ready\n"
    asked.served.loop._held.broken = True
    found = asked.http.get("/readyz")
    assert (found.status_code, found.text) == (200, "ready; srpt broke; srpt decides\n")
    assert asked.http.get("/v1/state").json()["notice"] == "srpt broke; srpt decides"
    asked.served.clock.now_s += 60.0
    assert asked.http.get("/readyz").status_code == 503
    text = asked.http.get("/metrics").text
    assert "hippo_turns_total 1.0" in text
    assert 'hippo_actuator_up{actuator="paper"} 1.0' in text
    document = asked.http.get("/openapi.json").json()
    wanted = {
        "/v1/jobs": {"get", "post"},
        "/v1/jobs/{name}": {"get", "delete"},
        "/v1/plans/{name}": {"get"},
        "/v1/decisions": {"get"},
        "/v1/decisions/{name}/{verdict}": {"post"},
        "/v1/links": {"get"},
        "/v1/telemetry": {"post"},
        "/otlp/v1/metrics": {"post"},
        "/v1/whatif": {"post"},
        "/v1/events": {"get"},
    }
    assert {path: set(document["paths"][path]) for path in wanted} == wanted
    assert {"security" in told for path in wanted for told in document["paths"][path].values()} == {True}
    assert "security" not in document["paths"]["/healthz"]["get"]
    assert set(document["paths"]["/v1/events"]["get"]["responses"]["200"]["content"]) == {"text/event-stream"}
    page = asked.http.get("/")
    assert "Content-Security-Policy" in page.headers
    assert "<title>hippo" in page.text


def test_the_contract_names_every_key_of_every_answer():
    text = (Path(__file__).parents[2] / "docs" / "contracts.md").read_text()
    rows = text[text.index("**Answers of `hippo serve`**") :].split("\n\n")[1].splitlines()
    told = {word for row in rows for words in re.findall(r"`([^`]*)`", row) for word in words.split()}
    forms = [each for each in vars(answers).values() if isinstance(each, type) and issubclass(each, answers.AnswerForm)]
    keys = {told.alias or name for each in forms for name, told in each.model_fields.items()}
    assert len(forms) > 15
    assert not keys - told


def test_a_backup_is_restored_whole(asked: Asked, tmp_path: Path):
    submit(asked)
    asked.served.turn()
    counts = backup(asked.served.store.url, tmp_path / "backup.gz")
    assert counts["jobs"] == counts["decisions"] == counts["orders"] == 1
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert restore(other, tmp_path / "backup.gz") == counts
    # numbers that may have been given away are taken
    more = {**counts, "jobs": 2, "kept": counts["kept"] + 1, "events": counts["events"] + 1}
    assert backup(other, tmp_path / "again.gz") == more
    first, second = (gzip.decompress((tmp_path / name).read_bytes()) for name in ("backup.gz", "again.gz"))
    rows, again = (each.splitlines()[1:] for each in (first, second))
    assert [row for row in again if row in rows] == rows
    assert sorted(json.loads(row)[0] for row in again if row not in rows) == ["events", "jobs", "kept"]
    with pytest.raises(InputError, match="holds something already"):
        restore(other, tmp_path / "backup.gz")
    lines = first.splitlines(keepends=True)
    (tmp_path / "torn.gz").write_bytes(gzip.compress(b"".join(lines[:-1])))
    with pytest.raises(InputError, match="is not whole"):
        restore(f"sqlite:///{tmp_path / 'third.db'}", tmp_path / "torn.gz")
    head = json.loads(lines[0])
    less = b"".join(line.replace(b'"key": "one", ', b"") for line in lines)
    assert len(less) < len(first)
    (tmp_path / "less.gz").write_bytes(gzip.compress(less))
    with pytest.raises(InputError, match="holds rows that no store holds"):
        restore(f"sqlite:///{tmp_path / 'third.db'}", tmp_path / "less.gz")
    headless = json.dumps({key: value for key, value in head.items() if key != "form"}).encode() + b"\n"
    (tmp_path / "headless.gz").write_bytes(gzip.compress(headless))
    with pytest.raises(InputError, match="is no backup"):
        restore(f"sqlite:///{tmp_path / 'third.db'}", tmp_path / "headless.gz")
    packed = (tmp_path / "backup.gz").read_bytes()
    foreign = gzip.compress(first + b'["strangers", {"name": "x"}]\n')
    coded = gzip.compress(first.replace(b'"base64": "', b'"base64": "?'))
    for wrong in (packed[:60] + bytes(140) + packed[200:], foreign, coded):
        (tmp_path / "wrong.gz").write_bytes(wrong)
        with pytest.raises(InputError, match="is no backup"):
            restore(f"sqlite:///{tmp_path / 'third.db'}", tmp_path / "wrong.gz")
    with pytest.raises(InputError, match="holds no store of hippo"):
        backup(f"sqlite:///{tmp_path / 'nobody.db'}", tmp_path / "nothing.gz")
    assert not (tmp_path / "nobody.db").exists()


def test_who_did_what_is_read_from_a_backup(asked: Asked, tmp_path: Path):
    """As docs/service.md says."""
    submit(asked)
    asked.served.turn()
    asked.http.delete("/v1/jobs/j1")
    backup(asked.served.store.url, tmp_path / "b.gz")
    lines = gzip.decompress((tmp_path / "b.gz").read_bytes()).decode().splitlines()
    rows = [json.loads(line)[1] for line in lines if line.startswith('["events"')]
    done = [(row["who"], row["subject"], json.loads(row["told"])["event"]) for row in rows if row["who"]]
    assert done == [("operator", "j1", "job taken in"), ("operator", "j1", "cancel asked for")]


def test_what_was_given_away_after_a_backup_is_not_given_again(asked: Asked, tmp_path: Path):
    """Actuators know keys of orders and folders of jobs that the restored store has never heard of."""
    served = asked.served
    served.submit()
    served.turn()
    submit(asked, key="restored-2")  # which once was the key of what a restored store is marked by
    backup(served.store.url, tmp_path / "backup.gz")
    lost = served.submit()
    served.turn()

    def keys(of: Served) -> set[str]:
        return set(of.store.read(lambda at: at.execute(sql.select(t.ORDERS.c.key)).scalars().all()))

    other = f"sqlite:///{tmp_path / 'other.db'}"
    restore(other, tmp_path / "backup.gz")
    again = Served.of(other, served.clock)
    known = keys(again)
    assert again.store.read(last_event) > served.store.read(last_event)  # of which a page asks for what comes behind
    served.clock.now_s += 1.0  # of which the helper makes its idempotency keys
    name = again.submit(tokens=2e9)
    again.turn(1.0)
    assert name != lost
    assert known < keys(served)
    assert len(keys(again)) == len(known) + 2  # the second job of the backup was not begun there
    assert not (keys(again) - known) & keys(served)
    again.close()


def test_what_no_answer_can_hold_is_not_taken_in(asked: Asked):
    """A lone surrogate made every page of jobs fail, for everybody."""
    for text in (r'"\ud800"', "NaN", "Infinity"):
        body = f'{{"devices": 8, "duration_s": 60, "run": {{"x": {text}}}}}'
        headers = {"Idempotency-Key": text, "Content-Type": "application/json"}
        answer = asked.http.post("/v1/jobs", content=body, headers=headers)
        assert answer.status_code in (400, 422), text
        assert answer.json()["remedy"]
    asked.served.submit(model="", batch=0, seq=0, tokens=0.0, least=0, most=0, devices=8, duration_s=60.0, data_at="")
    row = sql.update(t.JOBS).values(spec=r'{"devices": 8, "run": {"x": "\ud800"}}')
    asked.served.store.write(lambda at: at.execute(row)).result()  # as an older version took it in
    assert asked.http.get("/v1/jobs").json()["jobs"][0]["job"]["run"] == {"x": "\ud800"}


def test_nothing_is_approved_where_nothing_is_carried_out(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock(), mode="observe")
    name = served.submit()
    served.turn()
    token = served.store.write(made("me", OPERATOR, served.clock())).result()
    app = application(served.store, served.loop, Access(served.store))
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as http:
        (decision,) = http.get("/v1/decisions").json()["decisions"]
        answer = http.post(f"/v1/decisions/{decision['id']}/approve")
        assert answer.status_code == 409
        assert "--mode advise" in answer.json()["remedy"]
    served.turn(1.0)
    assert served.jobs()[name].state == "waiting"
    served.close()


def test_stores_that_cannot_be_served(tmp_path: Path):
    first = Store(url(tmp_path))
    with pytest.raises(InputError, match="another service owns it"):
        Store(url(tmp_path))
    import sqlalchemy as sql

    first.write(lambda at: at.execute(sql.text("UPDATE alembic_version SET version_num = 'ninth'"))).result()
    first.close()
    with pytest.raises(InputError, match=r"of a later version \(ninth\)"):
        Store(url(tmp_path))
    for wrong in ("mysql://somewhere/db", "store.db", "sqlite://", "sqlite:////no/such/folder/x.db"):
        with pytest.raises(InputError, match="To fix"):
            Store(wrong)


def test_it_may_open_as_many_files_as_the_machine_lets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen, before, switch_s = (
        list[tuple[int, int]](),
        resource.getrlimit(resource.RLIMIT_NOFILE),
        sys.getswitchinterval(),
    )
    monkeypatch.setattr(
        uvicorn.Server, "run", lambda self, sockets: seen.append(resource.getrlimit(resource.RLIMIT_NOFILE))
    )
    terms = ServiceTerms(store=f"sqlite:///{tmp_path / 's.db'}", policy="srpt", steering="none", port=0)
    service = Service.of(load_cluster("toy"), terms)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        with ThreadPoolExecutor(1) as pool:  # signals are left alone
            pool.submit(service.run).result()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        sys.setswitchinterval(switch_s)
    assert seen == [(before[1], before[1])]


def test_a_port_that_is_taken_and_an_address_of_nobody(tmp_path: Path):
    with port_of(ServiceTerms(port=0)) as taken:
        port = taken.getsockname()[1]
        for begin in (lambda: port_of(ServiceTerms(port=port)), lambda: run_demo(tmp_path, port, print)):
            with pytest.raises(InputError, match=f"--port: is taken .*{port}"):
                begin()
    with pytest.raises(InputError, match="--host: cannot be listened at"):
        port_of(ServiceTerms(host="300.1.1.1", port=0))


def test_an_alertmanager_tells_the_service(asked: Asked):
    """A recorded webhook of Alertmanager 0.25."""
    told = {
        "receiver": "hippo",
        "status": "firing",
        "alerts": [
            {
                "status": "firing",
                "labels": {"alertname": "HippoLinkCollapsed", "severity": "ticket", "source": "a", "destination": "b"},
                "annotations": {"summary": "a to b carries less than a fifth of what is bought."},
                "startsAt": "2026-11-27T15:00:00Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "http://prometheus:9090/graph",
                "fingerprint": "c0f3",
            }
        ],
        "groupLabels": {"alertname": "HippoLinkCollapsed"},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager:9093",
        "version": "4",
        "groupKey": "{}:{}",
        "truncatedAlerts": 0,
    }
    assert asked.http.post("/v1/alerts", json=told).json() == {"taken": 1}
    assert asked.http.post("/v1/alerts", json={"version": "3", "alerts": []}).status_code == 422
    rows = asked.served.store.read(lambda at: at.execute(sql.select(t.EVENTS).where(t.EVENTS.c.kind == "alert")).all())
    assert [(row.subject, json.loads(row.told)["event"]) for row in rows] == [("HippoLinkCollapsed", "firing")]


def test_the_past_of_a_link(asked: Asked):
    (first, *_) = asked.http.get("/v1/links").json()["links"]
    ends = {"from": first["from"], "to": first["to"]}
    for gbps in (1.0, 3.0):
        push = {"links": [{**ends, "gbps": gbps, "time_s": asked.served.clock() - 30.0}]}
        assert asked.http.post("/v1/telemetry", json=push).status_code == 202
    (minute,) = asked.http.get("/v1/links/history", params=ends).json()["minutes"]
    assert (minute["gbps"], minute["least_gbps"], minute["most_gbps"]) == (2.0, 1.0, 3.0)
    for wrong, status in (({"from": "nowhere"}, 404), ({"to": first["from"]}, 404), ({"hours": 0}, 422)):
        assert asked.http.get("/v1/links/history", params={**ends, **wrong}).status_code == status


def test_it_is_seen_in_a_terminal(asked: Asked):
    submit(asked)
    submit(asked, key="two", least=16)
    asked.served.turn()
    ask = asked.http.get
    told = {"service": ask("/v1/state").json(), "jobs": ask("/v1/jobs").json()["jobs"]}
    told |= {"links": ask("/v1/links").json()["links"], "decisions": ask("/v1/decisions").json()["decisions"]}
    console = Console(width=120, file=StringIO(), record=True)
    console.print(service_view(told))
    text = console.export_text()
    assert "four_hubs: mode act, srpt decides" in text.replace("-", "_")
    for word in ("j1", "j2", "running", "begin in", "wuhu -> guian"):
        assert word in text


def test_a_job_that_its_actuator_can_make_nothing_of_is_not_taken_in(tmp_path: Path):
    with in_memory(tmp_path) as site:
        served = Served.of(url(tmp_path), Clock(), site.actuator, actuator="memory")
        token = served.store.write(made("me", OPERATOR, served.clock())).result()
        app = application(served.store, served.loop, Access(served.store))
        with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as http:
            gang = {"devices": 8, "duration_s": 60.0}
            answer = http.post("/v1/jobs", json=gang, headers={"Idempotency-Key": "one"})
            assert answer.status_code == 400
            assert "run.command" in answer.json()["detail"]
            assert answer.json()["remedy"]
            right = {**gang, "run": {"command": ["train", "5", "0"]}}
            assert http.post("/v1/jobs", json=right, headers={"Idempotency-Key": "one"}).status_code == 201
        served.close()


@pytest.mark.parametrize("levels", [20, 21, 700])
def test_what_an_actuator_is_to_start_is_nested_so_deep_at_most(asked: Asked, levels: int):
    """Deeper than some hundred every turn of the loop broke, for all jobs."""
    run: Any = {"a": 1}
    for _ in range(levels - 1):
        run = {"a": run}
    spec = {"devices": 8, "duration_s": 60.0, "run": run}
    answer = asked.http.post("/v1/jobs", json=spec, headers={"Idempotency-Key": "deep"})
    if levels == 20:
        assert answer.status_code == 201
    else:
        assert (answer.status_code, "run: is nested deeper than 20 levels" in answer.json()["detail"]) == (400, True)


def test_a_thing_has_one_name(asked: Asked):
    submit(asked)
    asked.served.turn()
    for path in ("/v1/jobs/j01", "/v1/jobs/j\u0661", "/v1/jobs/d1", "/v1/jobs/j01/history"):
        assert asked.http.get(path).status_code == 404, path
    assert asked.http.delete("/v1/jobs/j01").status_code == 404
    assert asked.http.post("/v1/decisions/d01/approve").status_code == 404
    for words in ({"after": "j01"}, {"after": "j\u0661"}):
        assert asked.http.get("/v1/jobs", params=words).status_code == 422, words
    assert asked.http.get("/v1/decisions", params={"since": "d01"}).status_code == 422
    asked.served.turn(1.0)
    assert asked.http.get("/v1/jobs/j1").json()["state"] == "running"
    spec = {"devices": 8, "duration_s": 60.0, "actuator": ""}
    assert asked.http.post("/v1/jobs", json=spec, headers={"Idempotency-Key": "of nobody"}).status_code == 422


def test_how_long_requests_take_is_told(asked: Asked):
    submit(asked)
    asked.http.get("/v1/jobs/j1")
    asked.http.get("/v1/jobs/j9")
    asked.http.get("/no/such/address")
    told = asked.http.get("/metrics").text
    count = 'hippo_request_seconds_count{method="GET",path="/v1/jobs/{name}",status="%s"} 1.0'
    assert count % "2xx" in told
    assert count % "4xx" in told
    assert "no/such" not in told
    assert "hippo_orders_open 0.0" in told


def test_no_address_of_a_store_is_told_with_its_password(tmp_path: Path):
    for wrong in (
        "postgresql://me:SECRET@SECRET@host:bad/db",
        "postgresql://127.0.0.1:1/db?password=SECRET",
        "postgresql://host:bad/db?password=SECRET",
        "mysql://me:SECRET@host/db",
    ):
        with pytest.raises(InputError) as error:
            Store(wrong)
        assert "SECRET" not in str(error.value), wrong
    (tmp_path / "token").write_bytes(b"\xff\xfe\x00")
    for file in (tmp_path / "token", "no\0file"):
        with pytest.raises(InputError, match="token file: cannot be read: it is no text"):
            Client(token_file=file)


def test_why_a_job_waits_is_told(asked: Asked):
    """By what is free; in other words where nothing is decided."""
    gang = {"duration_s": 1e6}
    for at, devices in enumerate((64, 64, 64, 48, 32, 32)):
        asked.http.post("/v1/jobs", json={**gang, "devices": devices}, headers={"Idempotency-Key": f"g{at}"})
    asked.served.turn()
    rows = {each["id"]: each for each in asked.http.get("/v1/jobs").json()["jobs"]}
    waiting = [each for each in rows.values() if each["state"] == "waiting"]
    used = sum(each["job"]["devices"] for each in rows.values() if each["state"] == "running")
    free = asked.served.loop.site.devices - used
    assert waiting
    for each in waiting:
        assert each["why"].startswith(f"needs {each['job']['devices']} GPUs, and {free} ") == (
            free < each["job"]["devices"]
        ), each
        assert asked.http.get(f"/v1/jobs/{each['id']}").json()["why"] == each["why"]
    assert not any(each["why"] for each in rows.values() if each["state"] == "running")
    asked.served.loop.state.holds = "no telemetry"
    told = asked.http.get(f"/v1/jobs/{waiting[0]['id']}").json()["why"]
    assert told == "nothing is decided: no telemetry"
