"""Logs: a line of JSON for what changes or fails, and what a request led to by its trace."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from starlette.testclient import TestClient

from hippo.errors import InputError
from hippo.serve import tables as t
from hippo.serve.access import OPERATOR, Access, made
from hippo.serve.api import application
from hippo.serve.logs import LOG, OTHERS, EventLog, log_to, trace_of
from hippo.serve.records import JobOrder

from .worlds import JOB, Clock, Served, url

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "log.jsonl"
    for name in (LOG.name, *OTHERS):
        logger = logging.getLogger(name)
        for each in logger.handlers:
            each.close()
        logger.handlers, logger.propagate = [], True
        logger.setLevel(logging.NOTSET)


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in log.read_text().splitlines()]


def test_a_job_by_its_trace_from_the_request_to_the_order(tmp_path: Path, log: Path):
    served = Served.of(url(tmp_path), Clock())
    token = served.store.write(made("me", OPERATOR, served.clock())).result()
    log_to(str(log))
    events = EventLog(served.store)
    headers = {"Authorization": f"Bearer {token}"}
    with TestClient(application(served.store, served.loop, Access(served.store)), headers=headers) as http:
        answer = http.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "one", "traceparent": PARENT})
        assert (answer.headers["x-trace-id"], answer.json()["trace_id"]) == (TRACE, TRACE)
        assert "trace" not in answer.json()["job"]
        served.turn()
        served.turn()
        other = http.post("/v1/jobs", json={}, headers={"Idempotency-Key": "two"})
        assert other.status_code == 400
        http.get("/v1/jobs")
        http.get("/v1/jobs/j9")
    rows = served.store.read(lambda at: at.execute(sql.select(t.ORDERS.c.body)).scalars().all())
    served.close()
    events.close()
    requests = [each for each in lines(log) if each["event"] == "request"]
    assert [(each["method"], each["status"], each["who"]) for each in requests] == [
        ("POST", 201, "me"),
        ("POST", 400, "me"),
        ("GET", 404, "me"),
    ]  # who only looks and finds is not logged
    assert requests[0]["trace_id"] == TRACE
    assert requests[1]["trace_id"] == other.headers["x-trace-id"] != TRACE
    mine = [each for each in lines(log) if each["trace_id"] == TRACE and "told" in each]
    of_job = [(each["event"], each["told"].get("event", "")) for each in mine]
    assert of_job[:3] == [("job", "job taken in"), ("job", "job waits"), ("decision", "")]
    assert {"time", "level", "number", "subject"} <= lines(log)[-1].keys()
    (order,) = (JobOrder(**json.loads(each)) for each in rows)
    assert trace_of(order.environment["TRACEPARENT"]) == TRACE


def test_what_is_no_trace_gets_one():
    assert trace_of(PARENT) == TRACE
    for wrong in ("", "00", PARENT.upper(), PARENT.replace(TRACE, "0" * 32), "ff" + PARENT[2:], PARENT + "x"):
        found = trace_of(wrong)
        assert len(found) == 32
        assert found != TRACE
    assert JobOrder("k", "begin", "j1", {}).environment == {}


def test_events_come_once_and_in_order_however_many(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hippo.serve.logs.AT_ONCE", 7)
    served = Served.of(url(tmp_path), Clock())
    served.loop.tell("before")
    served.turn()
    log_to(str(log))
    events = EventLog(served.store)
    for number in range(40):
        served.loop.tell(f"sentence {number}")
    served.turn()
    served.close()
    events.close()
    assert [each["told"]["told"] for each in lines(log)] == [f"sentence {number}" for number in range(40)]


def test_a_log_that_cannot_be_written(tmp_path: Path):
    with pytest.raises(InputError, match=r"--log: cannot be written: .* To fix: name a file, or - for stderr"):
        log_to(str(tmp_path / "nowhere" / "log"))
