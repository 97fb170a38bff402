"""Slurm: what its commands say, and what a node that dies or is drained means; served end to end."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from tests.serve.servers import SlurmSite, until
from tests.serve.worlds import Clock, Served

from hippo.errors import InputError
from hippo.problem.load import load_cluster
from hippo.registry import JOB_SCHEDULERS, load
from hippo.serve import tables as t
from hippo.serve.actuators import batch
from hippo.serve.actuators.batch import PENDING
from hippo.serve.actuators.slurm import PARTITIONS, SCRIPT, gpus_of, jobs_of, slurm
from hippo.serve.domains import DomainNow
from hippo.serve.loop import LoopTerms, ServeLoop
from hippo.serve.records import BEGIN, DONE, FAILED, RESIZE, RUNNING
from hippo.serve.site import ServedSite
from hippo.serve.store import Store

from .sites import ServedBy, by_slurm, cluster_file, in_memory

# A recorded answer of squeue 22.05: two components of one job, one that waits, one that has ended, one whose node died.
SAID = """\
2+1|o-2-j2-18d3|RUNNING|None|lyon1
2+0|o-2-j2-18d3|RUNNING|None|oslo1
5|o-9-j4-18d3|PENDING|Resources|
1|o-1-j1-18d3|COMPLETED|None|oslo1
4|o-3-j3-18d3|NODE_FAIL|None|oslo[1-2]
7+0|o-8-j9-18d3|CANCELLED|JobHeldUser|
7+1|o-8-j9-18d3|PENDING|None|
"""


def test_what_squeue_says():
    found = {each.id: each for each in jobs_of(SAID)}
    states = {name: each.state for name, each in found.items()}
    assert states == {"1": DONE, "2": RUNNING, "4": FAILED, "5": PENDING, "7": FAILED}
    assert found["4"].told == "node fail (None) on oslo[1-2]"
    assert found["5"].told == "pending (Resources)"
    assert found["2"].key == "o-2-j2-18d3"


# sinfo 22.05, and states that nobody brought about here.
NODES = """\
oslo|up|idle|gpu:2|gpu:0|
oslo|up|draining|gpu:2|gpu:1(IDX:1)|
lyon|up|down*|gpu:2|gpu:0|
wide|up|mixed|gpu:h100:8(S:0-1),shard:h100:64(S:0-1)|gpu:h100:3(IDX:0,2-3),shard:h100:0|
wide|up|idle~|gpu:h100:8(S:0-1)|gpu:h100:0(IDX:N/A)|
wide|up|idle*|gpu:h100:8(S:0-1)|gpu:h100:0(IDX:N/A)|
wide|up|allocated@|gpu:h100:8(S:0-1)|gpu:h100:8(IDX:0-7)|
none|up|idle|(null)|gpu:0|
shut|down|idle|gpu:2|gpu:1|
"""


def test_gpus_of_nodes_that_sinfo_lists():
    assert gpus_of(NODES) == {"oslo": 3, "lyon": 0, "wide": 24, "none": 0, "shut": 1}


def test_without_slurm_or_with_a_wrong_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(InputError, match="not installed"):
        slurm(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setenv(PARTITIONS, "oslo:gpu")
    with pytest.raises(InputError, match="DOMAIN=PARTITION"):
        slurm(tmp_path, cluster_file(tmp_path))


def test_what_is_not_to_be_run(tmp_path: Path):
    with in_memory(tmp_path) as site:
        for wrong in ({}, {"command": "sleep 5"}, {"command": []}, {"command": ["a"], "environment": {"A B": "c"}}):
            order = site.order(BEGIN, 1, "oslo")
            answer = site.actuator.carry_out(replace(order, spec={**order.spec, "run": wrong}))
            assert not answer.ok
            assert "To fix:" in answer.told
    assert site.begun() == 0


def test_a_script_that_was_handed_in_twice_runs_once_and_one_that_is_requeued_again(tmp_path: Path):
    """As where ``sbatch`` timed out, had been heard, and was told again; ``srun`` is one that only runs its words."""
    (tmp_path / "hippo.sh").write_text(SCRIPT)
    (tmp_path / "srun").write_text('#!/bin/bash\nwhile [[ "$1" == --* ]]; do shift; done\nSLURM_PROCID=0 exec "$@"\n')
    (tmp_path / "srun").chmod(0o755)

    def ran(number: int, code: int = 0) -> int:
        told = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HIPPO_HOME": str(tmp_path), "HIPPO_KEY": "o-1-j1-18d3"}
        told |= {"SLURM_JOB_ID": str(number), "HIPPO_TASKS": "1", "OUT": str(tmp_path / "out")}
        words = ["bash", str(tmp_path / "hippo.sh"), "sh", "-c", f'echo ran >> "$OUT"; exit {code}']
        return subprocess.run(words, env=told, check=False).returncode

    def runs() -> int:
        return len((tmp_path / "out").read_text().splitlines())

    assert (ran(7), runs()) == (0, 1)
    assert (ran(8), runs()) == (0, 1)  # the second of one order
    assert (ran(7, 3), runs()) == (3, 2)  # the first, begun again by Slurm
    assert (tmp_path / "exit-o-1-j1-18d3").read_text() == "3\n"


def test_who_is_killed_while_it_waits_for_its_engine_waits_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batch, "BEGINS_WITHIN_S", 0.0)
    with in_memory(tmp_path) as site:
        engine, first = site.actuator.engine, site.order(BEGIN, 1, "oslo")  # type: ignore[attr-defined]
        begin, end = engine.begin, engine.end

        def waits(launch: Any) -> None:
            begin(launch)
            engine.known[launch.key] = replace(engine.known[launch.key], state=PENDING, told="no room")

        engine.begin = waits
        engine.end = lambda job: pytest.fail("killed before")
        with pytest.raises(pytest.fail.Exception):
            site.actuator.carry_out(first)
        site.again()
        engine.end = end
        answer = site.actuator.carry_out(first)
        assert not answer.ok
        assert "has not begun it within 0 s: no room" in answer.told
        assert engine.begins == 1
        engine.known[first.key] = replace(engine.known[first.key], state=PENDING)
        runs = engine.jobs

        def begun() -> Any:
            engine.known[first.key] = replace(engine.known[first.key], state=RUNNING)
            return runs()

        monkeypatch.setattr(batch, "until", lambda what, *_: bool(begun() and what()))
        answer = site.actuator.carry_out(first)  # its engine has begun it meanwhile
        assert answer.ok, answer.told
        assert engine.begins == 1


def test_a_move_that_the_engine_refuses_says_that_the_job_has_ended(tmp_path: Path):
    with in_memory(tmp_path) as site:
        engine = site.actuator.engine  # type: ignore[attr-defined]
        assert site.actuator.carry_out(site.order(BEGIN, 1, "oslo")).ok

        def refuses(launch: Any) -> None:
            raise batch.LaunchRefusedError("invalid partition")

        engine.begin = refuses
        answer = site.actuator.carry_out(site.order(RESIZE, 2, "lyon"))
        assert (answer.ok, answer.ended) == (False, True)
        unfit = replace(site.order(RESIZE, 3, "lyon"), spec={})
        answer = site.actuator.carry_out(unfit)
        assert (answer.ok, answer.ended) == (False, False)


def test_who_left_no_checkpoint_is_told_the_plan_of_who_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Begun under 1, 2, 3 and 4; the first and the third leave something."""
    plans = iter(range(1, 9))
    monkeypatch.setattr(batch, "plan_at", lambda *_, **__: {"plan": next(plans)})
    with in_memory(tmp_path) as site:

        def told(number: int) -> Any:
            order = site.order(RESIZE, number, "oslo")
            spec = {**order.spec, "tokens": 1e9}
            assert site.actuator.carry_out(replace(order, spec=spec)).ok
            before = site.folder / "j1" / "before.json"
            return json.loads(before.read_text())["plan"] if before.exists() else None

        saved = site.folder / "j1" / "checkpoint"
        assert told(1) is None
        (saved / "step-5").mkdir(parents=True)
        (saved / "step-5" / "weights").write_text("5")
        assert told(2) == 1
        assert told(3) == 1  # the second left nothing
        (saved / "step-9").mkdir()
        (saved / "step-9" / "weights").write_text("9")
        assert told(4) == 3


# ------------------------------------------------------------------------------------------------------- as it is
@pytest.fixture
def site(tmp_path: Path) -> Iterator[ServedBy]:
    with by_slurm(tmp_path) as made:
        yield made


@pytest.mark.slow
def test_a_node_that_dies_is_told_and_the_job_begins_elsewhere(site: ServedBy):
    slurm_site: SlurmSite = site.site  # type: ignore[attr-defined]
    assert site.actuator.carry_out(site.order(BEGIN, 1, "lyon")).ok
    slurm_site.lose("lyon1")
    until(lambda: site.actuator.seen()[0].state == FAILED)
    assert "lyon1" in site.actuator.seen()[0].told
    answer = site.actuator.carry_out(site.order(BEGIN, 2, "oslo"))
    assert answer.ok, answer.told
    assert site.actuator.seen()[0].state == RUNNING


@pytest.mark.slow
def test_where_all_nodes_are_drained_nothing_begins_and_what_runs_runs_on(
    site: ServedBy, monkeypatch: pytest.MonkeyPatch
):
    slurm_site: SlurmSite = site.site  # type: ignore[attr-defined]
    monkeypatch.setattr(batch, "BEGINS_WITHIN_S", 4.0)
    assert site.actuator.carry_out(site.order(BEGIN, 1, "lyon")).ok
    slurm_site.ask("scontrol", "update", "nodename=lyon1", "state=drain", "reason=repair")
    time.sleep(1.0)
    assert site.actuator.seen()[0].state == RUNNING
    other = site.order(BEGIN, 2, "lyon")
    answer = site.actuator.carry_out(replace(other, key=other.key.replace("j1", "j2"), job="j2"))
    assert not answer.ok
    assert "not begun it within" in answer.told
    assert not [line for line in slurm_site.ask("squeue", "-h", "-o", "%j").split() if "-j2-" in line]


@pytest.mark.slow
def test_a_service_hands_gangs_to_slurm_and_learns_how_they_end(site: ServedBy, tmp_path: Path):
    """Submitted, begun, ended; one is killed in Slurm behind the service's back, and begins again; one says how far."""
    slurm_site: SlurmSite = site.site  # type: ignore[attr-defined]
    clock = Clock(time.time())
    rule = load(JOB_SCHEDULERS, "policy", "srpt")
    cluster = load_cluster(cluster_file(tmp_path))
    store = Store(f"sqlite:///{tmp_path / 'slurm.db'}")
    here = ServedSite.of(cluster, load(JOB_SCHEDULERS, "policy", "srpt"), clock())
    loop = ServeLoop(store, here, [site.actuator], LoopTerms(mode="act", actuator="slurm"), rule=rule, clock=time.time)
    served = Served(store, loop, clock)

    def submitted(seconds: float, **run: Any) -> str:
        words = f'echo \'{{"share_done": 0.5, "loss": 2.0}}\' > "$HIPPO_HOME/progress.json"; sleep {seconds}'
        spec = {"devices": 2, "duration_s": 900.0, "run": {"command": ["sh", "-c", words], **run}}
        gang = {"model": "", "batch": 0, "seq": 0, "tokens": 0.0, "least": 0, "most": 0}
        return served.submit(**gang, **spec)

    def state(name: str) -> str:
        loop.turn()
        return served.jobs()[name].state

    try:
        short, long = submitted(2.0), submitted(600.0)
        until(lambda: state(long) == "running" and bool(slurm_site.ask("squeue", "-h", "-t", "R")))
        until(lambda: served.jobs()[long].share_done == 0.5 or state(long) != "running")
        until(lambda: state(short) == "done")
        first = {each.key for each in site.actuator.seen() if each.job == long}
        slurm_site.ask("scancel", f"--jobname={next(iter(first))}")
        until(lambda: bool({each.key for each in site.actuator.seen() if each.job == long} - first) or not state(long))
        until(lambda: state(long) == "running")
        assert [each.act for each in served.decisions() if each.job == long] == ["begin", "begin"]
        assert json.loads((site.folder / long / "place.json").read_text())["gpus"] == [2]
    finally:
        served.close()


@pytest.mark.slow
def test_a_service_begins_nothing_on_nodes_that_are_down_or_drained_until_they_are_resumed(
    site: ServedBy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """lyon has a node of two GPUs, oslo has two; who runs on a node that is drained runs on."""
    slurm_site: SlurmSite = site.site  # type: ignore[attr-defined]
    monkeypatch.setattr("hippo.serve.worker.NODES_EVERY_S", 0.2)
    clock = Clock(time.time())
    rule = load(JOB_SCHEDULERS, "policy", "srpt")
    store = Store(f"sqlite:///{tmp_path / 'slurm.db'}")
    here = ServedSite.of(load_cluster(cluster_file(tmp_path)), rule, clock())
    loop = ServeLoop(store, here, [site.actuator], LoopTerms(mode="act", actuator="slurm"), rule=rule, clock=time.time)
    served = Served(store, loop, clock)

    def submitted() -> str:
        spec = {"devices": 2, "duration_s": 900.0, "run": {"command": ["sleep", "600"]}}
        return served.submit(**{"model": "", "batch": 0, "seq": 0, "tokens": 0.0, "least": 0, "most": 0}, **spec)

    def told(node: str, state: str) -> None:
        slurm_site.ask("scontrol", "update", f"nodename={node}", f"state={state}", "reason=repair")

    def usable() -> dict[str, int]:
        loop.turn()
        return dict(here.usable)

    def states() -> list[str]:
        loop.turn()
        return [each.state for each in served.jobs().values()]

    try:
        until(lambda: usable() == {"oslo": 4, "lyon": 2})
        slurm_site.ask("scontrol", "update", "partitionname=lyon", "state=down")
        until(lambda: usable() == {"oslo": 4, "lyon": 0})
        slurm_site.ask("scontrol", "update", "partitionname=lyon", "state=up")
        until(lambda: usable() == {"oslo": 4, "lyon": 2})
        told("lyon1", "down")
        told("oslo2", "drain")
        until(lambda: usable() == {"oslo": 2, "lyon": 0})
        for _ in range(3):
            submitted()
        until(lambda: states() == ["running", "waiting", "waiting"])
        until(lambda: bool(slurm_site.ask("squeue", "-h", "-t", "R")))
        assert slurm_site.ask("squeue", "-h", "-t", "R", "-o", "%N").split() == ["oslo1"]
        assert not slurm_site.ask("squeue", "-h", "-t", "PD")  # nothing is handed to Slurm that could not begin
        told("oslo1", "drain")  # with a job: it may end
        until(lambda: slurm_site.state("oslo1") == "draining")
        end_s = time.monotonic() + 3.0
        while time.monotonic() < end_s:
            assert (usable()["oslo"], states()) == (2, ["running", "waiting", "waiting"])
        told("lyon1", "resume")
        until(lambda: states() == ["running", "running", "waiting"])
        told("oslo2", "resume")
        until(lambda: states() == ["running"] * 3)
        until(lambda: len(slurm_site.ask("squeue", "-h", "-t", "R").splitlines()) == 3)
        slurm_site.lose("lyon1")  # with a job: Slurm ends it, it waits again, and nobody else is stopped for it
        until(lambda: usable()["lyon"] == 0)
        until(lambda: states() == ["running", "waiting", "running"])
        assert [(each.job, each.act) for each in served.decisions()] == [(f"j{at}", "begin") for at in (1, 2, 3)]
        events = store.read(
            lambda at: at.execute(sql.select(t.EVENTS.c.told).where(t.EVENTS.c.subject == "oslo")).all()
        )
        assert ["2 of 4" in row.told for row in events] == [True, False]
        loop.tell_domains([DomainNow(clock() + 3600.0, "oslo", 2, "me")])  # others take them: one of the two stops
        until(lambda: sorted(states()) == ["running", "waiting", "waiting"])
        until(lambda: len(slurm_site.ask("squeue", "-h").splitlines()) == 1)
        assert [each.act for each in served.decisions()][3:] == ["stop"]
    finally:
        served.close()
