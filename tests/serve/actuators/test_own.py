"""hippo's own executor as an actuator: real runs on this machine, each order once, whatever is killed in between."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serve.servers import until

from hippo.errors import InputError
from hippo.files import write_files
from hippo.serve import demo
from hippo.serve.actuators.own import _PROCESSES, Own
from hippo.serve.records import JobOrder

pytestmark = pytest.mark.slow


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Own]:
    write_files(tmp_path, demo.files())
    found = Own(tmp_path / "runs", tmp_path / "demo.yaml")
    yield found
    for state in (tmp_path / "runs").glob("*/state.json"):
        pid = int(json.loads(state.read_text())["pid"])
        if pid in _PROCESSES and _PROCESSES[pid].poll() is None:
            os.killpg(pid, signal.SIGKILL)


def order(own: Own, act: str, key: str, *domains: str, steps: int = 4000) -> JobOrder:
    model = str(own.folder.parent / "small.json")
    spec = {"model": model, "batch": 32, "seq": 64, "tokens": 32.0 * 64 * steps}
    place = {"domains": list(domains), "gpus": [2] * len(domains)} if domains else None
    return JobOrder(key, act, "j1", spec, place)


def step_of(own: Own) -> float | None:
    (seen,) = own.seen()
    return seen.share_done


def test_a_run_begins_moves_and_ends_and_each_order_is_done_once(own: Own):
    first = order(own, "begin", "o-1-j1", "oslo", "lyon")
    assert own.carry_out(first).ok
    pid = json.loads((own.folder / "j1" / "state.json").read_text())["pid"]
    assert own.carry_out(first).told == "was carried out before"
    until(lambda: bool(step_of(own)))
    moved = own.carry_out(order(own, "resize", "o-2-j1", "oslo", "turin"))
    assert moved.ok, moved.told
    (seen,) = own.seen()
    assert (seen.key, seen.state) == ("o-2-j1", "running")
    plan = json.loads((own.folder / "j1" / "plan.json").read_text())
    domains = {stage["domain"] for line in plan["pipelines"] for stage in line["stages"]}
    assert domains == {"oslo", "turin"}
    assert own.carry_out(order(own, "stop", "o-3-j1")).ok
    (seen,) = own.seen()
    assert seen.state == "failed"  # it has not done its work
    assert not Path(f"/proc/{pid}").exists() or _PROCESSES[pid].poll() is not None


def test_a_service_that_was_killed_between_the_act_and_its_note_begins_nothing_twice(own: Own):
    first = order(own, "begin", "o-1-j1", "oslo", "lyon")
    assert own.carry_out(first).ok
    state = own.folder / "j1" / "state.json"
    pid = json.loads(state.read_text())["pid"]
    state.unlink()  # as if it had never been written
    again = Own(own.folder, own.folder.parent / "demo.yaml")
    assert again.carry_out(first).told == "had begun before"
    assert json.loads(state.read_text())["pid"] == pid


def test_a_run_that_ends_is_seen_as_done(own: Own):
    assert own.carry_out(order(own, "begin", "o-1-j1", "oslo", steps=3)).ok
    until(lambda: own.seen()[0].state == "done")
    assert own.seen()[0].share_done == 1.0


def test_a_place_that_cannot_train_it_is_refused(own: Own):
    wrong = order(own, "begin", "o-1-j1", "oslo")
    found = own.carry_out(
        JobOrder(wrong.key, wrong.act, wrong.job, {**wrong.spec, "model": "/no/such.json"}, wrong.place)
    )
    assert not found.ok
    assert "no" in found.told


def test_without_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("HIPPO_RUNS_CLUSTER", raising=False)
    with pytest.raises(InputError, match="HIPPO_RUNS_CLUSTER"):
        Own(tmp_path / "runs")
