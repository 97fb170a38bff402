"""GPUs of domains that can be used: told by whoever knows, heeded by the queue, kept through a restart, shown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from fastapi.testclient import TestClient
from tests.measure.probe.worlds import matrix, prometheus

from hippo.errors import InputError
from hippo.serve import tables as t
from hippo.serve.access import Access, made
from hippo.serve.actuators.paper import Paper
from hippo.serve.ahead import expected_wait
from hippo.serve.api import application
from hippo.serve.domains import DomainNow, domains_written, holding, kept_words
from hippo.serve.pull import Puller, PullTerms
from hippo.serve.site import JobChange, job_of

from .test_loop import GANG
from .worlds import JOB, Clock, Served, until, url

NAMES = ("zhangjiakou", "wuhu", "guian", "zhongwei")  # eight nodes of eight GPUs each


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served.of(url(tmp_path), Clock())
    yield found
    found.close()


def tell(served: Served, gpus: Mapping[str, int], by: str = "me", ago_s: float = 0.0) -> None:
    now_s, site = served.clock(), served.loop.site.live.site
    told = [DomainNow(now_s - ago_s, name, count, by) for name, count in gpus.items()]
    served.store.write(domains_written(site, told, now_s)).result()
    served.loop.tell_domains(told)


def held(served: Served) -> dict[str, int]:
    found = dict.fromkeys(NAMES, 0)
    for place in served.loop.site.places().values():
        for name, gpus in zip(place["domains"], place["gpus"], strict=True):
            found[name] += gpus
    return found


def events(served: Served) -> list[tuple[str, str]]:
    rows = served.store.read(lambda at: at.execute(sql.select(t.EVENTS).where(t.EVENTS.c.kind == "domain")).all())
    return [(row.subject, json.loads(row.told)["told"]) for row in rows]


def test_a_domain_whose_nodes_are_down_is_not_begun_in_until_they_are_up(served: Served):
    tell(served, dict.fromkeys(NAMES[:3], 0) | {NAMES[3]: 20})
    names = [served.submit(least=16) for _ in range(3)]
    served.turn()
    assert held(served) == dict.fromkeys(NAMES[:3], 0) | {NAMES[3]: 16}
    assert [served.jobs()[name].state for name in names] == ["running", "waiting", "waiting"]
    tell(served, {NAMES[0]: 64})
    served.turn(1.0)
    assert held(served) == {NAMES[0]: 32, NAMES[1]: 0, NAMES[2]: 0, NAMES[3]: 16}
    told = events(served)
    assert (len(told), dict(told)[NAMES[3]]) == (5, "20 of 64 GPUs can be used")


def test_who_holds_more_than_is_up_stops_and_waits_or_begins_elsewhere(served: Served):
    tell(served, dict.fromkeys(NAMES[1:], 0))
    names = [served.submit(least=16) for _ in range(4)]
    served.turn()
    assert held(served)[NAMES[0]] == 64
    until(served, lambda: not served.loop._open)
    tell(served, {NAMES[0]: 44, NAMES[2]: 16})
    served.turn(1.0)
    assert held(served) == {NAMES[0]: 32, NAMES[1]: 0, NAMES[2]: 16, NAMES[3]: 0}
    last = served.decisions()[4:]
    assert sorted(each.act for each in last) == ["resize", "stop"]
    assert {each.why["cause"] for each in last} == {f"44 of 64 GPUs of {NAMES[0]} can be used"}
    states = sorted(served.jobs()[name].state for name in names)
    assert states == ["running", "running", "running", "waiting"]


def test_what_was_told_holds_through_a_restart_with_a_queue_and_without_one(tmp_path: Path):
    clock = Clock()
    for begun in (False, True):
        first = Served.of(url(tmp_path), clock)
        if begun:
            first.submit(least=16)
        tell(first, dict.fromkeys(NAMES[1:], 0) | {NAMES[0]: 16})
        first.turn()
        first.close()
        again = Served.of(url(tmp_path), clock)
        again.submit(least=16)
        again.turn(1.0)
        assert held(again) == dict.fromkeys(NAMES[1:], 0) | {NAMES[0]: 16}
        assert again.loop.site.usable == dict.fromkeys(NAMES[1:], 0) | {NAMES[0]: 16}
        again.close()


def test_the_youngest_word_holds(served: Served):
    tell(served, {NAMES[0]: 8}, by="one")
    tell(served, {NAMES[0]: 16}, by="another", ago_s=5.0)
    served.turn(1.0)
    assert served.loop.site.usable == {NAMES[0]: 8}
    assert holding(served.store.read(kept_words))[NAMES[0]].by == "one"
    tell(served, {NAMES[0]: 16}, by="another")
    served.turn()
    assert served.loop.site.usable == {NAMES[0]: 16}


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_where_nobody_may_be_stopped_only_what_is_free_is_taken(tmp_path: Path, mode: str):
    clock = Clock()
    first = Served.of(url(tmp_path), clock)
    tell(first, dict.fromkeys(NAMES[1:], 0))
    for _ in range(4):
        first.submit(least=16)
    first.turn()
    until(first, lambda: not first.loop._open)
    first.close()
    again = Served.of(url(tmp_path), clock, mode=mode)
    tell(again, {NAMES[0]: 24})
    again.turn(1.0)
    assert held(again)[NAMES[0]] == 64
    assert [each.act for each in again.decisions()] == ["begin"] * 4
    again.loop.cancel("j1")
    again.turn(1.0)
    again.turn(1.0)
    assert held(again)[NAMES[0]] == 48
    assert again.loop.site.live.moment is not None
    assert again.loop.site.live.moment.free_gpus == 0  # and what came free is not to be had
    again.close()


class Other(Paper):
    """An actuator beside the other."""

    name = "other"


def test_nobody_begins_on_what_comes_free_of_a_domain_that_has_less_than_is_held(tmp_path: Path):
    clock = Clock()
    first = Served.of(url(tmp_path), clock, Paper(), Other())
    tell(first, dict.fromkeys(NAMES[1:], 0))
    first.submit(devices=8, duration_s=1e6, actuator="other", **GANG)
    for _ in range(7):
        first.submit(devices=8, duration_s=600.0, **GANG)
    first.turn()
    until(first, lambda: not first.loop._open)
    first.close()
    again = Served.of(url(tmp_path), clock)  # nobody is stopped while a job's actuator is not served
    for _ in range(3):
        again.submit(devices=8, duration_s=600.0, **GANG)
    tell(again, {NAMES[0]: 8})
    again.turn(1.0)
    assert held(again)[NAMES[0]] == 64
    for _ in range(14):
        again.turn(60.0)
    assert held(again) == dict.fromkeys(NAMES[1:], 0) | {NAMES[0]: 8}
    assert [each.act for each in again.decisions()] == ["begin"] * 8
    again.close()


def test_what_somebody_stops_comes_to_nobody_where_less_is_up_than_is_held(served: Served):
    tell(served, dict.fromkeys(NAMES[1:], 0))
    for _ in range(5):
        served.submit(devices=16, duration_s=1e6, **GANG)
    served.turn()
    served.loop.site.usable[NAMES[0]] = 24
    served.loop.site.heed(served.clock(), stops=False)
    places = served.loop.site.places()
    assert served.loop.site.carry_out(JobChange("j1", "stop", places["j1"], None))
    assert not served.loop.site.carry_out(JobChange("j5", "begin", None, places["j1"]))
    assert held(served)[NAMES[0]] == 48


class Counting(Paper):
    """An actuator that knows nodes."""

    name = "counting"

    def __init__(self) -> None:
        self.says: Any = {}

    def usable(self) -> Mapping[str, int]:
        if isinstance(self.says, Exception):
            raise self.says
        return dict(self.says)


def test_an_actuator_tells_when_its_count_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hippo.serve.worker.NODES_EVERY_S", 0.0)
    actuator = Counting()
    actuator.says = {NAMES[0]: 56, "mars": 3, NAMES[1]: 10_000}
    served = Served.of(url(tmp_path), Clock(), actuator)
    worker = served.loop.workers["counting"]
    until(served, lambda: served.loop.site.usable == {NAMES[0]: 56, NAMES[1]: 64})
    tell(served, {NAMES[0]: 40})
    served.turn()
    assert served.loop.site.usable[NAMES[0]] == 40
    actuator.says = RuntimeError("gone")
    until(served, lambda: "gone" in worker.trouble)
    assert (worker.fault, served.loop.site.usable[NAMES[0]]) == ("", 40)
    actuator.says = {NAMES[0]: 48}
    until(served, lambda: served.loop.site.usable[NAMES[0]] == 48)
    assert worker.trouble == ""
    assert served.loop.domains[NAMES[0]].by == "counting"
    assert served.loop.site.usable[NAMES[1]] == 0  # which it names no more
    tell(served, {NAMES[0]: 8})
    served.turn(1.0)
    served.close()
    served = Served.of(url(tmp_path), served.clock, actuator)  # who says the same as before says nothing new
    worker = served.loop.workers["counting"]
    until(served, lambda: worker.usable == {NAMES[0]: 48})
    served.turn()
    assert served.loop.site.usable == {NAMES[0]: 8, NAMES[1]: 0}
    actuator.says = {NAMES[0]: 40}
    until(served, lambda: served.loop.site.usable[NAMES[0]] == 40)
    served.close()


def test_a_prometheus_is_asked_for_gpus(served: Served):
    rows = [[served.clock() - 20.0, "64"], [served.clock() - 5.0, "48"]]
    answer = [({"domain": NAMES[0]}, rows), ({"domain": "mars"}, rows)]
    with prometheus(lambda asked: matrix(*answer) if asked["query"] == "gpus" else matrix()) as (at, _):
        puller = Puller(served.loop, PullTerms(at, "rate", "trip", gpus="gpus"), now_s=served.clock)
        assert puller.count() == 1
        served.turn()
        assert puller.count() == 0
        assert served.loop.site.usable == {NAMES[0]: 48}
        rows.append([served.clock(), "65"])
        answer[1] = {"domain": NAMES[1]}, [[served.clock(), "8"]]
        with pytest.raises(InputError, match="has 64"):
            puller.count()
        served.turn()
        assert served.loop.site.usable == {NAMES[0]: 48, NAMES[1]: 8}  # who can be right is heard
        tell(served, {NAMES[1]: 64}, ago_s=-1.0)  # younger than the sample
        served.clock.now_s += 15.0
        rows[:] = [[served.clock() - 20.0, "48"]]
        answer[1] = {"domain": NAMES[1]}, [[served.clock() - 20.0, "0"]]
        assert puller.count() == 1
        served.turn()
        assert served.loop.site.usable == {NAMES[0]: 48, NAMES[1]: 0}
        answer.append(({"domain": NAMES[0], "gpu": "1"}, rows))
        with pytest.raises(InputError, match="several series"):
            puller.count()
        answer[:] = []
        with pytest.raises(InputError, match="counts no GPUs"):
            puller.count()
        assert Puller(served.loop, PullTerms(at, "rate", "trip"), now_s=served.clock).count() == 0
        assert Puller(served.loop, PullTerms(at, "none", "trip", gpus="gpus"), now_s=served.clock).look() == 0


def test_a_push_is_checked_kept_and_shown(served: Served):
    token = served.store.write(made("me", "operator", served.clock())).result()
    app = application(served.store, served.loop, Access(served.store))
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as http:
        right = {"domain": NAMES[0], "gpus": 48, "device": "A100-SXM-80GB"}
        wrong = (
            ({"domain": "mars"}, "no such domain"),
            ({"gpus": 65}, "has 64"),
            ({"device": "H100"}, "none of these"),
            ({"time_s": 1e10}, "lies"),
        )
        for values, said in wrong:
            answer = http.post("/v1/telemetry", json={"domains": [right, {**right, **values}]})
            assert answer.status_code == 400
            assert said in answer.json()["detail"]
            assert answer.json()["remedy"]
        for value in (-1, 1.5, None):
            assert http.post("/v1/telemetry", json={"domains": [{**right, "gpus": value}]}).status_code == 422
        assert served.store.read(kept_words) == []
        assert http.post("/v1/telemetry?dry_run=true", json={"domains": [right]}).json() == {"taken": 0}
        assert http.post("/v1/telemetry", json={"domains": [right]}).json() == {"taken": 1}
        served.turn()
        first, second = http.get("/v1/state").json()["domains"][:2]
        assert first == {
            "name": NAMES[0],
            **{"gpus": 64, "up": 48, "used": 0},
            **{"told_by": "me", "told_s": served.clock()},
        }
        assert (second["up"], second["told_by"]) == (64, None)
        text = http.get("/metrics").text
        assert f'hippo_domain_gpus{{domain="{NAMES[0]}"}} 64.0' in text
        assert f'hippo_domain_gpus_up{{domain="{NAMES[0]}"}} 48.0' in text
        ahead = {**right, "gpus": 64, "time_s": served.clock() + 59.0}  # by a clock that is before
        assert http.post("/v1/telemetry", json={"domains": [ahead]}).json() == {"taken": 1}
        served.turn(1.0)
        tell(served, {NAMES[0]: 0}, by="another")
        served.turn()
        assert served.loop.site.usable == {NAMES[0]: 0}


def test_who_asks_how_long_a_job_would_wait_is_told_of_what_is_up(served: Served):
    job = job_of({**JOB, "least": 16}, "whatif", "me", 0.0)
    assert expected_wait(served.loop, job, served.loop.site.offers)["expected_wait_s"] == 0.0
    tell(served, dict.fromkeys(NAMES[:3], 0) | {NAMES[3]: 8})
    served.turn()
    assert expected_wait(served.loop, job, served.loop.site.offers)["expected_wait_s"] > 1e5
