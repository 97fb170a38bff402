"""Runtimes whose senders and receivers have to meet, against a player of messages that shares no code with them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.judges.message_rules import Border, Pipeline, one_f_one_b
from tests.judges.messages import play as judged

from hippo.problem.runtimes import RUNTIMES, Messages
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem
from hippo.simulate import fast
from hippo.simulate.abstract import PlannedLine, abstract_program, on_links
from hippo.simulate.program import Program


def drawn(seed: int) -> Pipeline:
    """A pipeline in 1F1B: 2 to 6 ranks, 1 to 14 micro-batches, near links and far ones, quick ones and slow ones."""
    rng = random.Random(seed)
    ranks, waves = rng.randint(2, 6), rng.randint(1, 14)
    seconds = []
    for _ in range(ranks):
        forward = rng.uniform(0.5, 1.5)
        seconds.append({"F": forward, "B": forward * rng.uniform(1.0, 2.2), "W": 0.0})
    borders = []
    for _ in range(ranks - 1):
        delay, transfer = rng.choice([0.0, 0.05, 0.5, 2.0]) * rng.random(), rng.choice([0.05, 0.3, 1.2])
        borders.append(Border((delay, delay), (transfer, transfer)))
    return Pipeline(one_f_one_b(ranks, waves), tuple(seconds), tuple(borders))


def program_of(pipeline: Pipeline, runtime: str, name: str = "1f1b") -> Program:
    """The same for the engine: a link of its own for each way of each border, a byte a message."""
    ranks, waves = len(pipeline.orders), 1 + max(micro for _, micro in pipeline.orders[0])
    schedule = generate(name, ScheduleProblem.uniform(ranks, waves))
    forward, backward, weight = ([each[kind] for each in pipeline.seconds] for kind in "FBW")
    lines = [PlannedLine(1.0 / b.transfer_s[way], b.delay_s[way]) for b in pipeline.borders for way in (0, 1)]
    down = [[2 * rank] if rank + 1 < ranks else [] for rank in range(ranks)]
    up = [[2 * rank - 1] if rank else [] for rank in range(ranks)]
    program = abstract_program(schedule, forward_s=forward, backward_s=backward, weight_s=weight)
    return replace(on_links(program, lines, down=down, up=up, num_bytes=1.0), messages=RUNTIMES[runtime].messages)


@pytest.mark.parametrize("runtime", ["ideal", "megatron", "deepspeed", "torch"])
def test_operations_start_when_the_judge_says(runtime: str) -> None:
    for seed in range(25):
        pipeline = drawn(seed)
        if runtime == "torch" and len(pipeline.orders[-1]) < 2 * len(pipeline.orders):
            continue  # Schedule1F1B refuses fewer micro-batches than stages
        played = fast.play(program_of(pipeline, runtime))
        told = sorted(start for start, _ in judged(pipeline, runtime).operations.values())
        assert sorted(played.op_start_s[: len(told)].tolist()) == pytest.approx(told), seed


@pytest.mark.parametrize("name", ["zb-h1", "zb-h2"])
@pytest.mark.parametrize(
    ("runtime", "messages"), [("torch", RUNTIMES["torch"].messages), ("megatron-zb", Messages("stream"))]
)
def test_orders_with_a_weight_gradient_of_its_own(name: str, runtime: str, messages: Messages) -> None:
    """Torch has no class for them and posts receives by its rule; zero bubble's all run on one stream of a rank."""
    letters = {0: "F", 1: "B", 2: "W"}
    for seed in range(15):
        plain = drawn(seed)
        ranks, waves = len(plain.orders), 1 + max(micro for _, micro in plain.orders[0])
        schedule = generate(name, ScheduleProblem.uniform(ranks, waves))
        orders = tuple(
            tuple((letters[kind], wave) for kind, _, wave in schedule.rank(rank).tolist()) for rank in range(ranks)
        )
        seconds = tuple({"F": one["F"], "B": 0.5 * one["B"], "W": 0.4 * one["B"]} for one in plain.seconds)
        pipeline = replace(plain, orders=orders, seconds=seconds)
        told = sorted(start for start, _ in judged(pipeline, runtime).operations.values())
        played = fast.play(replace(program_of(pipeline, "torch", name), messages=messages))
        assert sorted(played.op_start_s[: len(told)].tolist()) == pytest.approx(told), seed


def test_a_far_link_costs_more_where_calls_are_coupled() -> None:
    # Two ranks, two micro-batches, F = B = 1, 3 one way. Free: F1 leaves rank 0 at 2 and is there at 5; B0 and B1 end
    # on rank 1 at 6 and 8, on rank 0 at 10 and 12. Coupled: rank 0 waits until F0 is taken at 4, F1 ends at 5; rank 1
    # asks for it after B0, at 6: there at 9, when B0's gradient is, too; B1 ends on rank 1 at 11, on rank 0 at 15.
    seconds, borders = ({"F": 1.0, "B": 1.0, "W": 0.0},) * 2, (Border((3.0, 3.0), (1e-9, 1e-9)),)
    pipeline = Pipeline(one_f_one_b(2, 2), seconds, borders)
    assert fast.step_time(program_of(pipeline, "ideal")) == pytest.approx(12.0)
    assert fast.step_time(program_of(pipeline, "megatron")) == pytest.approx(15.0)
