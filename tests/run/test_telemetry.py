"""What a run tells of itself: bytes are those that the plan says, every message is told once, rates by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hippo.run.control import Desk
from hippo.run.job import RunJob, RunOptions
from hippo.run.journal import Journal
from hippo.run.messages import MessageJoin, RunMessage
from hippo.run.model.reference import losses
from hippo.run.model.stage import settings_of
from hippo.run.network import trained_bytes
from hippo.run.run import RunStep, run
from hippo.run.telemetry import links_used, step_record

from .test_run import _none_left  # noqa: F401
from .worlds import GPT2, PLANS, SPREAD, problem, relaying

RELAYED = {
    "relays": (GPT2, relaying(SPREAD, "acb", "cab", "bac")),
    "a porter": (GPT2, relaying(PLANS["stages"][1], "abc", "bac")),
}
STAGES = RunJob(problem(GPT2), PLANS["stages"][1], RunOptions(steps=2, timeout_s=20.0))


FURTHER = [pytest.param(name, "fp32", marks=pytest.mark.slow) for name in ("two lanes a domain", "everything")]
QUICK = [(name, "fp32") for name in ("stages", "unlike shares", *RELAYED)]


@pytest.mark.parametrize(("name", "precision"), [*QUICK, ("unlike shares", "bf16"), *FURTHER])
def test_what_was_sent_is_what_the_plan_says(name: str, precision: str):
    """Two ways: messages as processes sent them, and the simulator's bytes of each link. Sums of one pair of processes
    cut their vectors into whole elements, so those may differ by some bytes."""
    model, plan = (PLANS | RELAYED)[name]
    options = RunOptions(steps=2, precision=precision, timeout_s=20.0)
    job = RunJob(problem(model, names="abc" if name in RELAYED else "ab"), plan, options)
    steps = run(job).steps
    second = steps[1]
    expected = list(losses(job.problem, settings_of(job), steps=2, micro_batch=1))
    assert [step.loss for step in steps] == pytest.approx(expected, rel=1e-5 if precision == "fp32" else 1e-3)
    told = {pair: used["bytes"] for pair, used in links_used(second.messages, job.work.workers).items()}
    assert told == pytest.approx(trained_bytes(job), rel=1e-3)
    record = step_record(second, job)
    assert all(0.0 <= one["sent_s"] <= one["came_s"] <= second.seconds for one in record["messages"])
    waves = [(one.kind, one.source, one.destination, wave) for one, wave in _arrivals(job)]
    kinds = {"activations": 0, "gradients": 1}
    found = [
        (kinds[one.what], one.source, one.destination, one.tag // plan.interleave)
        for one in second.messages
        if one.what in kinds
    ]
    assert sorted(found) == sorted(waves)
    for one in record["ranks"]:
        assert one["computed_s"] + one["agreed_s"] + one["waited_s"] == pytest.approx(second.seconds, rel=0.2)
        assert one["memory_bytes"] > 1e7


def test_what_a_tensor_parallel_group_sums_by_hand():
    """Two blocks and the embedding, four micro-batches of 2 x 16 tokens of 32 numbers: a block sums twice each way, the
    embedding once; the leader says which of eight operations is next (three numbers), and tells the tied matrix."""
    job = RunJob(problem(GPT2), PLANS["tensor parallel"][1], RunOptions(steps=2, timeout_s=20.0))
    step = run(job).steps[1]
    one, other, alone = (Counter(size for size, _, _ in rows) for rows in step.teams)
    assert one == other == {2 * 16 * 32 * 4: 4 * (2 * 4 + 1), 3 * 8: 8, GPT2.vocab * 32 * 4: 1}
    assert not alone
    record = step_record(step, job)
    assert len(record["teams"]) == 2 * 45
    assert all(0.0 <= each["start_s"] <= each["end_s"] <= step.seconds for each in record["teams"])
    assert 0.0 < record["ranks"][0]["team_s"] < step.seconds


def _arrivals(job: RunJob) -> list[Any]:
    return [each for worker in job.work.workers for each in job.work.arrivals(worker)]


def test_a_rate_counts_the_time_in_which_anything_was_under_way():
    """Two messages that overlap, one a second later: 3 s in all, not 4; those inside a domain do not count."""
    job, (a, b) = STAGES, (0, 1)
    assert job.work.workers[a].domain != job.work.workers[b].domain
    spans = [(0.0, 2.0), (1.0, 2.0), (3.0, 4.0)]
    messages = [RunMessage("sum", a, b, tag, 300, *span) for tag, span in enumerate(spans)]
    pair = job.work.workers[a].domain, job.work.workers[b].domain
    found = links_used([*messages, RunMessage("sum", a, a, 9, 300, 0.0, 9.0)], job.work.workers)
    assert found == {pair: {"bytes": 900, "under_way_s": 3.0, "bytes_per_s": 300.0}}


def test_a_message_whose_other_side_is_told_later_is_told_then():
    join = MessageJoin()
    first = [{"sent": [["agree-1-7-4", 0, 64, 0.5]], "came": []}, {"sent": [], "came": []}]
    second = [{"sent": [], "came": []}, {"sent": [], "came": [["agree-1-7-4", 0, 0.75], ["pair-0-7-4", 3, 0.1]]}]
    assert join(first, (7, 4), {}) == ()
    assert join(second, (7, 4), {}) == (RunMessage("sum", 0, 1, 0, 64, 0.5, 0.75),)


def test_prometheus_reads_what_a_run_tells(tmp_path: Path):
    """The library's own parser; counters add up over steps, gauges are the last step's."""
    desk = Desk(STAGES, Journal(tmp_path / "journal"))
    assert "hippo_run_steps_total" in desk.answer({"ask": "metrics"})["metrics"], "before the first step, too"
    message = RunMessage("activations", 0, 1, 0, 1000, 0.0, 0.5)
    rows = (((0, 0, 0, 0.0, 0.25), (3, 0, -1, 0.25, 0.5)),) * len(STAGES.work.workers)
    memory = (5_000_000,) * len(STAGES.work.workers)
    step = RunStep(1, 1.0, 4.0, rows, messages=(message,), memory_bytes=memory)
    desk.made(step)
    desk.made(replace(step, number=2, loss=3.0))
    desk.answer({"order": "schedule", "key": "a", "name": "gpipe"})
    text = desk.answer({"ask": "metrics"})["metrics"]
    found = {one.name: one for family in text_string_to_metric_families(text) for one in family.samples}
    assert found["hippo_run_steps_total"].value == 2.0
    assert found["hippo_run_sent_bytes_total"].value == 2000.0
    assert found["hippo_run_link_bytes_per_second"].value == 2000.0
    assert found["hippo_run_loss"].value == 3.0
    assert found["hippo_run_orders"].labels["state"] == "accepted"
    last = str(len(STAGES.work.workers) - 1)
    assert (found["hippo_run_computed_seconds"].value, found["hippo_run_computed_seconds"].labels["rank"]) == (
        0.25,
        last,
    )
    assert (found["hippo_run_agreed_seconds"].value, found["hippo_run_waited_seconds"].value) == (0.25, 0.5)
    desk.close()
