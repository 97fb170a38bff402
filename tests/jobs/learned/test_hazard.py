"""Ranks against a plain enumeration of the distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.jobs.learned.past import BINS, EDGES_S, LONGEST_S, rank

TOPS = np.append(EDGES_S, LONGEST_S)
BOTTOMS = np.insert(EDGES_S, 0, 0.0)
hazards = st.lists(st.floats(0.001, 0.9), min_size=BINS, max_size=BINS).map(np.array)
places = st.tuples(st.integers(0, BINS - 1), st.floats(0.0, 0.95))


def masses(hazard: np.ndarray, own: int, attained_s: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each bin from ``own`` on: chance to end in it, seconds until its begin, and its width."""
    begins = np.maximum(BOTTOMS[own:], attained_s) - attained_s
    widths = TOPS[own:] - attained_s - begins
    chances = hazard[own:].copy()
    chances[0] = 1 - (1 - chances[0]) ** (widths[0] / (TOPS[own] - BOTTOMS[own]))
    alive = np.concatenate([[1.0], np.cumprod(1 - chances)[:-1]])
    return alive * chances, begins, widths


def attained(own: int, share: float) -> float:
    return float(BOTTOMS[own] + share * (TOPS[own] - BOTTOMS[own]))


@given(hazards, places)
def test_the_rank_is_the_best_horizon(hazard: np.ndarray, place: tuple[int, float]):
    own, at = place[0], attained(*place)
    mass, begins, widths = masses(hazard, own, at)
    middles = begins + widths / 2
    best = np.inf
    for horizon in range(1, len(mass) + 1):
        done = mass[:horizon].sum()
        spent = (mass[:horizon] * middles[:horizon]).sum() + (1 - done) * (begins + widths)[horizon - 1]
        best = min(best, spent / done if done > 1e-9 else np.inf)
    assert rank(hazard, own, at) == pytest.approx(max(best, 1.0), rel=1e-6)


def test_jobs_of_equal_hazard_rank_by_how_soon_they_may_end():
    """A job that likely ends in this bin goes before one that lasts for days."""
    soon, late = np.full(BINS, 0.01), np.full(BINS, 0.01)
    soon[3], late[30] = 0.9, 0.9
    assert rank(soon, 3, EDGES_S[2]) < rank(late, 3, EDGES_S[2]) / 100
