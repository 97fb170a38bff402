"""Two independent engines must agree: the clear one (SimPy) and the quick one (numba)."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulate.worlds import random_program

from hippo.simulate import fast, reference


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_agrees_with_fast_on_random_worlds(seed: int) -> None:
    program = random_program(seed)
    clear, quick = reference.play(program), fast.play(program)
    for field in fields(clear):
        one, two = getattr(clear, field.name), getattr(quick, field.name)
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9, err_msg=field.name)
    assert fast.step_time(program) == pytest.approx(clear.step_time_s, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_agrees_with_fast_under_another_state_of_the_links(seed: int) -> None:
    program, rng = random_program(seed), np.random.default_rng(seed)
    links = len(program.link_latency_s)
    state = {"bandwidth_bytes_per_s": rng.uniform(0.3, 4, links), "latency_s": rng.uniform(0.01, 1, links)}
    assert fast.step_time(program, **state) == pytest.approx(reference.play(program, **state).step_time_s, rel=1e-9)
