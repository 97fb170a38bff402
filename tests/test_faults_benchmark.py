"""``benchmarks/faults.py``: what it calls done twice, named, and how it counts."""

from __future__ import annotations

from typing import Any

from benchmarks.faults import KINDS, PHASES, STEPS, job_of, named, table, twice


def line(kind: str, **told: Any) -> dict[str, Any]:
    return {"kind": kind, **told}


def test_an_order_of_the_last_run_is_numbered_and_done_once():
    begun, ordered, done = line("begun"), line("order", order=1, key="a"), line("done", order=1)
    assert twice([begun, ordered, done]) == []
    assert twice([begun, ordered, done, begun, ordered, done]) == [], "the run after it tells them anew"
    assert twice([begun, ordered, line("order", order=2, key="a")]) == ["order a"]
    assert twice([begun, ordered, done, done]) == ["done 1"]


def test_who_is_to_blame_is_named():
    assert named({"ended": "rank 1 (stage 1, b) was ended by signal 9"})
    assert named({"ended": "nothing moved for 8 s while waiting for all: rank 0 (stage 0, a) said nothing"})
    assert not named({"ended": "something went wrong"})
    assert not named({})


def test_a_run_counts_as_resumed_where_it_was_named_and_came_to_its_end():
    row = {"kind": "killed, alone", "left": [], "wrong": False, "hung": False, "error": "", "on_s": None, "lost": []}
    rows = [
        {**row, "phase": phase, "ended": ended, "steps": steps}
        for phase, ended, steps in zip(
            PHASES, ["rank 1 died", "rank 1 died", "it died"], [STEPS, 7, STEPS], strict=False
        )
    ]
    cells = [each.strip() for each in table(rows).splitlines()[-1].strip("|").split("|")]
    assert cells[:3] == ["killed, alone", "3", "0"]
    assert cells[8] == "1"


def test_who_is_alone_has_no_replica():
    for kind in KINDS:
        job, moved = job_of(kind)
        replicas = 1 if kind.endswith("alone") else 2
        assert {len(job.plan.pipelines), len(moved.pipelines)} == {replicas}
        assert job.plan.global_batch == job.problem.workload.global_batch == moved.global_batch
