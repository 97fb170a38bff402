"""Logs: a line of JSON for what changes or fails, and what a request led to by its trace."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sql
from starlette.testclient import TestClient
from tests.processes import started

from hippo.errors import InputError
from hippo.serve import tables as t
from hippo.serve.access import OPERATOR, Access, made
from hippo.serve.api import application
from hippo.serve.logs import LOG, OTHERS, EventLog, log_to, trace_of
from hippo.serve.records import JobOrder
from hippo.serve.store import Store

from .worlds import JOB, Clock, Served, url

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    LOG.disabled = False  # as the import linter leaves all that it finds
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
    assert {"time", "level", "number", "subject"} <= mine[-1].keys()
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


SERVED = """
import sys
from hippo.problem.load import load_cluster
from hippo.serve.server import Service, ServiceTerms
store, log = sys.argv[1:]
terms = ServiceTerms(store=store, policy="srpt", steering="none", port=0, log=log)
service = Service.of(load_cluster("toy"), terms)
service.run(lambda: print(service.address, service.token_file.read_text().strip(), flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_at_its_end_all_is_written_and_logged(tmp_path: Path, log: Path, number: int):
    words = [sys.executable, "-c", SERVED, f"sqlite:///{tmp_path / 's.db'}", str(log)]
    with started(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        address, token = process.stdout.readline().split()
        alert = {"version": "4", "alerts": [{"status": "firing", "labels": {"alertname": "Late"}}]}
        headers = {"Authorization": f"Bearer {token}"}
        httpx.post(f"{address}/v1/alerts", json=alert, headers=headers, trust_env=False).raise_for_status()
        process.send_signal(number)  # before the log has looked
        code = process.wait(60.0)
        process.stdout.close()
    assert code == 0 if number == signal.SIGTERM else code != 0  # Ctrl-C is told as such
    assert [each["subject"] for each in lines(log) if each["event"] == "alert"] == ["Late"]
    assert not (tmp_path / "s.db-wal").exists()  # given back
    Store(f"sqlite:///{tmp_path / 's.db'}").close()


def test_a_log_whose_folder_goes_and_comes_back(tmp_path: Path, log: Path):
    folder = tmp_path / "logs"
    folder.mkdir()
    log_to(str(folder / "log.jsonl"))
    for name in ("one", "two", "three"):
        if name == "two":
            folder.rename(tmp_path / "old")
        if name == "three":
            folder.mkdir()
        LOG.info(name)
    assert [each["event"] for each in lines(tmp_path / "old" / "log.jsonl")] == ["one"]
    assert [each["event"] for each in lines(folder / "log.jsonl")] == ["three"]
