"""Many plays at once: each row is what the quick engine says about it alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulate.worlds import random_program

from hippo.engine.fixed_order import LEAST_FACTOR
from hippo.schedule.schedule import order
from hippo.simulate import batch, fast, reference
from hippo.simulate.abstract import PlannedLine, abstract_program, on_links
from hippo.simulate.packed import pack
from hippo.simulate.program import SyncGroup


@given(st.integers(0, 10**6))
def test_each_state_of_the_links_is_played_as_if_alone(seed: int) -> None:
    program, rng = random_program(seed), np.random.default_rng(seed)
    links = len(program.link_latency_s)
    bandwidth, latency = rng.uniform(0.3, 4, (11, links)), rng.uniform(0.01, 1, (11, links))
    steps = [batch.step_times(program, bandwidth_bytes_per_s=bandwidth, latency_s=latency).tolist() for _ in range(2)]
    alone = [
        fast.step_time(replace(program), bandwidth_bytes_per_s=one, latency_s=two)
        for one, two in zip(bandwidth, latency, strict=True)
    ]
    assert steps == [alone, alone]
    slower = np.ones((11, int(program.rank_domain.max()) + 1))
    assert (
        batch.step_times(program, bandwidth_bytes_per_s=bandwidth, latency_s=latency, compute=slower).tolist() == alone
    )


@pytest.mark.parametrize("relayed", [False, True])
@pytest.mark.parametrize("agree", [False, True])
@pytest.mark.parametrize("nic", [np.inf, 0.7])
def test_states_side_by_side_agree_with_the_engine_written_to_be_read(relayed: bool, agree: bool, nic: float) -> None:
    """Each rank has links of its own, so all states play one sequence; who agrees is the first stage and the last."""
    shape, rng = (
        abstract_program(order("zb-h1", stages=3, micro_batches=7), forward_s=1.0, backward_s=1.3),
        np.random.default_rng(9),
    )
    lines = [PlannedLine(rng.uniform(0.5, 2), 0.3) for _ in range(8)]
    down, up = ([[0, 4], [1], []], [[], [2], [3, 5]]) if relayed else ([[0], [1], []], [[], [2], [3]])
    program = on_links(shape, lines, down=down, up=up, num_bytes=1.0, nic_bytes_per_s=nic)
    if agree:
        program = replace(program, groups=(SyncGroup((0, 2), (0, 2), (3.0, 4.0), 2.0),))
    bandwidth, compute = rng.uniform(0.3, 4, (9, 8)), rng.uniform(1.0, 2.0, (9, 3))
    assert not pack(program).queued
    steps = batch.step_times(program, bandwidth_bytes_per_s=bandwidth, compute=compute)
    names = ("forward_s", "backward_s", "weight_s")
    for row, step in enumerate(steps):
        loaded = replace(program, **{name: getattr(program, name) * compute[row][:, None] for name in names})
        assert reference.play(loaded, bandwidth_bytes_per_s=bandwidth[row]).step_time_s == pytest.approx(
            step, rel=1e-12
        )


def test_without_states_every_sample_is_the_base_state() -> None:
    program = random_program(3)
    assert batch.step_times(program, samples=3).tolist() == [fast.step_time(program)] * 3
    assert batch.step_times(program).shape == (1,)


def test_only_bandwidth_or_only_latency_may_move() -> None:
    program = random_program(7)
    twice = np.stack([program.link_bandwidth_bytes_per_s] * 2)
    assert batch.step_times(program, bandwidth_bytes_per_s=twice).tolist() == [fast.step_time(program)] * 2
    late = program.link_latency_s + 1.0
    assert batch.step_times(program, latency_s=late[None]).tolist() == [fast.step_time(program, latency_s=late)]


def test_noise_of_one_operation_is_normal_with_that_deviation() -> None:
    """A single stage with one micro-batch: F + B = 1 + 3, each with its own factor of standard deviation 0.1."""
    program = abstract_program(order("1f1b", stages=1, micro_batches=1), forward_s=1.0, backward_s=3.0)
    steps = batch.step_times(program, noise=0.1, samples=20_000, rng=np.random.default_rng(0))
    assert steps.mean() == pytest.approx(4.0, abs=0.01)
    assert steps.std() == pytest.approx(0.1 * np.hypot(1.0, 3.0), rel=0.03)


def test_noise_reaches_messages_too() -> None:
    program = abstract_program(order("1f1b", stages=2, micro_batches=1), forward_s=1e-9, backward_s=1e-9, delay_s=5.0)
    steps = batch.step_times(program, noise=0.1, samples=5_000, rng=np.random.default_rng(1))
    assert steps.std() == pytest.approx(0.1 * np.hypot(5.0, 5.0), rel=0.05)


def test_factors_stay_positive_however_loud_the_noise() -> None:
    program = abstract_program(order("1f1b", stages=1, micro_batches=1), forward_s=1.0, backward_s=1.0)
    steps = batch.step_times(program, noise=5.0, samples=2_000, rng=np.random.default_rng(2))
    assert steps.min() == pytest.approx(2.0 * LEAST_FACTOR)


def test_the_seed_decides() -> None:
    program = random_program(11)
    one, two = (batch.step_times(program, noise=0.2, samples=9, rng=np.random.default_rng(5)) for _ in range(2))
    assert one.tolist() == two.tolist()
    assert len(set(one.tolist())) == 9


def test_noise_without_a_source_is_refused() -> None:
    with pytest.raises(AssertionError, match="source"):
        batch.step_times(random_program(1), noise=0.1)


def test_waiting_makes_noise_cost_more_than_it_gives() -> None:
    """Stages wait for the slower of two: the mean under noise is above the step without it."""
    program = abstract_program(order("1f1b", stages=4, micro_batches=16), forward_s=1.0, backward_s=2.0)
    steps = batch.step_times(program, noise=0.3, samples=500, rng=np.random.default_rng(3))
    assert steps.mean() > 1.02 * fast.step_time(program)
