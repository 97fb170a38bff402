"""Seconds and bytes of every stage as the cost model sees them: what ``--stand-in`` waits and sends. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from hippo.engine.program import FORWARD
from hippo.problem.problem import Problem
from hippo.run.work import Transfer, Work, Worker
from hippo.simulate.costs import costs
from hippo.simulate.lower import lower

LOCAL_BYTES = 65_536
"""Most bytes of a message inside a domain: its seconds are a wait, as in the simulator, and the machine is spared."""


@dataclass(frozen=True)
class StageTimes:
    """Seconds and bytes per wave of one worker, all lanes together; one entry per chunk."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]  # input gradient
    weight_s: tuple[float, ...]
    down_bytes: tuple[int, ...]
    up_bytes: tuple[int, ...]
    received_bytes: tuple[int, int]  # of one message of activations from above, of gradients from below
    sync_s: float  # agreement inside the domain
    finish_s: float  # optimizer and fixed time


def times(problem: Problem, work: Work) -> tuple[StageTimes, ...]:
    """Of every worker of a plan whose stages are one process each."""
    assert work.whole_stages, "a stand-in process is a whole stage"
    program = lower(problem, work.plan)
    sizes = _sizes(problem, work)
    found = []
    for rank, worker in enumerate(work.workers):
        mine = [one for one in work.transfers if one.source == rank]
        sent: list[list[int]] = [[0] * work.plan.interleave, [0] * work.plan.interleave]
        for one in mine:
            sent[0 if one.kind == FORWARD else 1][one.source_chunk] = sizes[one]
        got = [
            max((sizes[t] for t in work.transfers if (t.destination, t.kind) == (rank, k)), default=0) for k in (0, 1)
        ]
        found.append(
            StageTimes(
                tuple(program.forward_s[rank].tolist()),
                tuple(program.backward_s[rank].tolist()),
                tuple(program.weight_s[rank].tolist()),
                tuple(sent[0]),
                tuple(sent[1]),
                (got[0], got[1]),
                float(program.sync_s[rank]) if len(work.plan.pipelines[worker.pipeline].stages) else 0.0,
                float(program.finish_s[rank]),
            )
        )
    return tuple(found)


def _sizes(problem: Problem, work: Work) -> dict[Transfer, int]:
    """Bytes of every message: what crosses the WAN whole, what stays in a domain cut short."""
    program = lower(problem, work.plan)
    lanes = _lane_bytes(problem, work)
    found = {}
    for one in work.transfers:
        table = program.down_bytes if one.kind == FORWARD else program.up_bytes
        size = float(table[one.source, one.source_chunk])
        upper = one.source if one.kind == FORWARD else one.destination
        found[one] = round(size) if work.crosses_wan(one) else min(LOCAL_BYTES, round(lanes[work.workers[upper]]))
    return found


def _lane_bytes(problem: Problem, work: Work) -> dict[Worker, float]:
    """What each stage hands on per wave, all lanes together."""
    known = costs(problem)
    found = {}
    for worker in work.workers:
        pipeline = work.plan.pipelines[worker.pipeline]
        stage = pipeline.stages[worker.stage]
        found[worker] = known.stages(work.plan, pipeline)[worker.stage].output_bytes * stage.dp
    return found
