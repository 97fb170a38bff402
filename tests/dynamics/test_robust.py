"""How a plan does when things move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.dynamics.robust import Spread, along, under_noise
from hippo.plan.plan import Plan
from hippo.problem.cluster import Dynamics
from hippo.problem.links import Trace
from hippo.problem.problem import Problem
from hippo.simulate import fast
from hippo.simulate.lower import lower


def test_percentiles_of_samples() -> None:
    spread = Spread(np.array([4.0, 1.0, 3.0, 2.0]))
    assert (spread.p50_s, spread.percentile(75), spread.p95_s, spread.mean_s) == (2, 3, 4, 2.5)
    assert spread.share.tolist() == [0.25] * 4
    assert spread.stopped_share == 0.0


def test_along_time_the_mean_is_elapsed_time_over_steps() -> None:
    """Half of the time steps of 1 s, half of 3 s: (1/2 / 1 + 1/2 / 3) steps per second, 1.5 s each."""
    spread = Spread(np.array([1.0, 3.0]), np.array([0.5, 0.5]))
    assert spread.mean_s == pytest.approx(1.5)
    assert Spread(np.array([1.0, 3.0]), np.array([0.9, 0.1])).p95_s == 3.0
    assert Spread(np.array([1.0, 3.0]), np.array([0.9, 0.1])).percentile(90) == 1.0


def test_an_outage_makes_no_steps() -> None:
    spread = Spread(np.array([2.0, np.inf]), np.array([0.75, 0.25]))
    assert spread.mean_s == pytest.approx(2.0 / 0.75)
    assert spread.stopped_share == 0.25
    assert Spread(np.array([np.inf]), np.array([1.0])).mean_s == np.inf


def test_a_network_that_does_not_move_gives_the_step_again(small: Problem, across: Plan) -> None:
    still = replace(small, cluster=replace(small.cluster, dynamics=Dynamics(swing=0.0, sigma=0.0)))
    spread = under_noise(still, across, noise=0.0, samples=5, seed=0)
    assert spread.step_time_s == pytest.approx(fast.step_time(lower(small, across)))


def test_moving_links_and_noise_spread_the_step(small: Problem, across: Plan) -> None:
    base = fast.step_time(lower(small, across))
    links = under_noise(small, across, noise=0.0, samples=400, seed=0)
    both = under_noise(small, across, noise=0.3, samples=400, seed=0)
    assert links.step_time_s.std() > 0.01 * base
    assert both.step_time_s.std() > 0.01 * base
    assert links.p50_s < links.p95_s < 2 * base
    assert under_noise(small, across, noise=0.3, samples=400, seed=0).mean_s == both.mean_s
    assert under_noise(small, across, noise=0.3, samples=400, seed=1).mean_s != both.mean_s


def test_along_a_trace_each_state_counts_as_long_as_it_holds(small: Problem, across: Plan) -> None:
    """Full bandwidth for 30 s, half of it for 10 s, then an outage that is taken to last as long."""
    program = lower(small, across)
    base, latency = program.link_bandwidth_bytes_per_s, program.link_latency_s
    trace = Trace(np.array([0.0, 30.0, 40.0]), np.stack([base, base / 2, base * 0]), np.stack([latency] * 3))
    spread = along(small, across, trace)
    half = fast.step_time(program, bandwidth_bytes_per_s=base / 2)
    assert spread.step_time_s.tolist() == [fast.step_time(program), half, np.inf]
    assert spread.share == pytest.approx([0.6, 0.2, 0.2])
    assert spread.stopped_share == pytest.approx(0.2)
    assert spread.mean_s == pytest.approx(1 / (0.6 / fast.step_time(program) + 0.2 / half))
