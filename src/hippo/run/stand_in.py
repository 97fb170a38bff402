"""Seconds and bytes of every stage as the cost model sees them: what ``--stand-in`` waits and sends. No torch."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Seconds and bytes per wave of one worker: a stage, all lanes together, or a lane; one entry per chunk."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]  # input gradient
    weight_s: tuple[float, ...]
    down_bytes: tuple[int, ...]  # of the largest message
    up_bytes: tuple[int, ...]
    received_bytes: tuple[int, int]  # of the largest message of activations from above, of gradients from below
    message_bytes: Mapping[Transfer, int]
    sync_s: float  # agreement inside the domain
    finish_s: float  # optimizer and fixed time


def times(problem: Problem, work: Work) -> tuple[StageTimes, ...]:
    """Of every worker of a plan whose tensor-parallel ranks are one process."""
    assert work.whole_stages, "tensor-parallel ranks of a stand-in are one process"
    program = lower(problem, work.plan)
    sizes = _sizes(problem, work)
    found = []
    for rank, worker in enumerate(work.workers):
        row = _row(work, worker)
        mine = [one for one in work.transfers if one.source == rank]
        sent: list[list[int]] = [[0] * work.plan.interleave, [0] * work.plan.interleave]
        for one in mine:
            side = sent[0 if one.kind == FORWARD else 1]
            side[one.source_chunk] = max(side[one.source_chunk], sizes[one])
        got = [
            max((sizes[t] for t in work.transfers if (t.destination, t.kind) == (rank, k)), default=0) for k in (0, 1)
        ]
        found.append(
            StageTimes(
                tuple(program.forward_s[row].tolist()),
                tuple(program.backward_s[row].tolist()),
                tuple(program.weight_s[row].tolist()),
                tuple(sent[0]),
                tuple(sent[1]),
                (got[0], got[1]),
                sizes,
                float(program.sync_s[row]) + sum(group.local_s for group in program.groups if row in group.ranks),
                float(program.finish_s[row]),
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
        sender = work.workers[one.source]
        upper = work.workers[one.source if one.kind == FORWARD else one.destination]
        part = one.count / work.wave(work.plan.pipelines[sender.pipeline])
        size = float(table[_row(work, sender), one.source_chunk])
        found[one] = round(size * part) if work.crosses_wan(one) else min(LOCAL_BYTES, round(lanes[upper] * part))
    return found


def _row(work: Work, worker: Worker) -> int:
    """The worker's stage among those of all pipelines, as the simulator numbers them."""
    return sum(len(pipeline.stages) for pipeline in work.plan.pipelines[: worker.pipeline]) + worker.stage


def _lane_bytes(problem: Problem, work: Work) -> dict[Worker, float]:
    """What each stage hands on per wave, all lanes together."""
    known = costs(problem)
    found = {}
    for worker in work.workers:
        pipeline = work.plan.pipelines[worker.pipeline]
        stage = pipeline.stages[worker.stage]
        found[worker] = known.stages(work.plan, pipeline)[worker.stage].output_bytes * stage.dp
    return found
