"""Megatron-LM's interleaved schedule in the engine, against a judge written from its source."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from tests.judges.interleaved import Interleaved
from tests.judges.interleaved import play as judged

from hippo.problem.runtimes import RUNTIMES
from hippo.schedule.schedule import order
from hippo.simulate import fast
from hippo.simulate.abstract import PlannedLine, abstract_program, on_links
from hippo.simulate.program import Program


def drawn(seed: int) -> Interleaved:
    """2 to 5 ranks of 2 to 4 unlike chunks, 1 to 4 rounds of micro-batches; near links and far ones."""
    rng = random.Random(seed)
    ranks, chunks = rng.randint(2, 5), rng.randint(2, 4)
    forward = [[rng.uniform(0.2, 1.0) for _ in range(chunks)] for _ in range(ranks)]
    backward = [[rng.uniform(1.0, 2.5) * each for each in row] for row in forward]
    pairs = {(a, b % ranks) for a in range(ranks) for b in (a - 1, a + 1)}
    delay = {pair: rng.choice([0.0, 0.05, 0.5, 2.0]) * rng.random() for pair in sorted(pairs)}
    transfer = {pair: rng.choice([0.01, 0.1, 0.6]) * rng.uniform(0.5, 1.0) for pair in sorted(pairs)}
    return Interleaved(forward, backward, delay, transfer, ranks * rng.randint(1, 4))


def program_of(asked: Interleaved) -> Program:
    """The same for the engine: a link for each pair of neighbours and way, a byte a message."""
    ranks, chunks = len(asked.forward_s), len(asked.forward_s[0])
    schedule = order("interleaved", stages=ranks, micro_batches=asked.micro_batches, chunks=chunks)
    pairs = sorted(asked.delay_s)
    lines = [PlannedLine(1.0 / asked.transfer_s[pair], asked.delay_s[pair]) for pair in pairs]
    down, up = ([[pairs.index((at, (at + by) % ranks))] for at in range(ranks)] for by in (1, -1))
    program = on_links(abstract_program(schedule, forward_s=1.0, backward_s=1.0), lines, down=down, up=up, num_bytes=1)
    forward, backward = np.array(asked.forward_s), np.array(asked.backward_s)
    return replace(program, forward_s=forward, backward_s=backward, messages=RUNTIMES["megatron"].messages)


def test_operations_start_when_the_judge_says() -> None:
    for seed in range(60):
        asked = drawn(seed)
        program, told = program_of(asked), judged(asked)
        played = fast.play(program)
        columns = (played.op_rank, played.op_kind, played.op_chunk, played.op_micro_batch, played.op_start_s)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        starts = {(rank, "FB"[kind], chunk, wave): at for rank, kind, chunk, wave, at in rows if kind < 2}
        assert {key: starts[key] for key in told} == pytest.approx(told), seed
