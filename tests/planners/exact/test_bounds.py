"""What a stage needs, against plays; memory by hand; the greedy cuts against all cuts."""

from __future__ import annotations

from functools import cache
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.planners.exact.bounds import UniformLine, cuts_within, held, room_for, stage_need
from hippo.schedule.schedule import order
from hippo.simulate import fast
from hippo.simulate.abstract import abstract_program

SECONDS = st.floats(0.1, 3.0)


@given(SECONDS, SECONDS, st.floats(0.0, 12.0), st.integers(1, 12), st.integers(1, 12))
def test_no_warm_up_beats_what_a_stage_needs(f: float, b: float, rest: float, waves: int, live: int) -> None:
    """One stage, and behind it a round trip of ``rest`` seconds that takes any number of waves at once."""
    back, need = stage_need(f + b, f, 0.0, rest, waves, live)
    assert back == need
    plays = [played_s(f, b, rest, waves, ahead) for ahead in range(1, min(live, waves) + 1)]
    assert need <= min(plays) * (1 + 1e-9)


@given(SECONDS, SECONDS, SECONDS, st.floats(0.0, 12.0), st.integers(1, 4), st.integers(1, 4))
def test_no_order_with_split_backwards_beats_what_a_stage_needs(
    f: float, b: float, w: float, rest: float, waves: int, live: int
) -> None:
    """Every order of F, B and W on one stage, behind it a round trip of ``rest`` seconds."""
    back, whole = stage_need(f + b + w, f, w, rest, waves, live)
    for order_of_stage in every_order(waves, min(live, waves)):
        last_back, end = timed(order_of_stage, (f, b, w), rest)
        assert back <= last_back * (1 + 1e-9)
        assert whole <= end * (1 + 1e-9)


@cache
def every_order(waves: int, live: int) -> list[str]:
    """All texts in which B follows its F, W its B, and no more than ``live`` waves are held until their W."""
    found, unfinished = [], [("", 0, 0, 0)]
    while unfinished:
        text, f, b, w = unfinished.pop()
        if w == waves:
            found.append(text)
        unfinished += [(text + "F", f + 1, b, w)] * (f < waves and f - w < live)
        unfinished += [(text + "B", f, b + 1, w)] * (b < f)
        unfinished += [(text + "W", f, b, w + 1)] * (w < b)
    return found


def timed(order_of_stage: str, seconds: tuple[float, float, float], rest: float) -> tuple[float, float]:
    """When the last B and the last operation end."""
    now, last_back, done = 0.0, 0.0, 0
    sent: list[float] = []
    for letter in order_of_stage:
        if letter == "B":
            now, done = max(now, sent[done] + rest), done + 1
        now += seconds["FBW".index(letter)]
        if letter == "F":
            sent.append(now)
        last_back = now if letter == "B" else last_back
    return last_back, now


def played_s(f: float, b: float, rest: float, waves: int, ahead: int) -> float:
    schedule = order("cross-domain", stages=2, micro_batches=waves, warm_up=(ahead, 1))
    program = abstract_program(schedule, forward_s=[f, 0.0], backward_s=[b, 0.0], delay_s=[rest / 2])
    return fast.step_time(program)


def test_what_a_stage_needs_by_hand() -> None:
    assert stage_need(3.0, 1.0, 0.0, 0.0, 4, 1) == (12.0, 12.0)  # the last stage is never idle
    assert stage_need(3.0, 1.0, 0.0, 6.0, 4, 1) == (36.0, 36.0)  # one slot: every wave waits for its round trip
    assert stage_need(3.0, 1.0, 0.0, 6.0, 4, 4) == (15.0, 15.0)  # fills 3 s before its first backward; drains 0 s
    assert stage_need(3.0, 1.0, 0.0, 6.0, 4, 100) == (15.0, 15.0)  # no more ahead than there are waves
    # W of 1 s of the 3 comes later: the first B comes after 7 s, of which 4 are forwards; 4 B, then 4 W
    assert stage_need(3.0, 1.0, 1.0, 6.0, 4, 4) == (11.0, 15.0)
    # two slots: F0 F1 to 2 s, B0 W0 F2 from 7, B1 W1 F3 to 13; F3 is back at 19 and ends as B3 at 20, W3 at 21
    assert stage_need(3.0, 1.0, 1.0, 6.0, 4, 2) == (20.0, 21.0)


def table_of(
    forward: np.ndarray, total: np.ndarray, kept: np.ndarray, each: np.ndarray, once: float, *, weight: float = 0.0
) -> np.ndarray:
    """Rows as in ``LayerTable.packed``; gradients grow with the seconds, nothing but a constant is due once.

    ``weight``: the share of the backwards that may come later.
    """
    n, prefix = len(forward), [np.concatenate([[0.0], np.cumsum(row)]) for row in (forward, total, kept, each)]
    zero = np.zeros(n + 1)
    trip = prefix[1] - weight * (prefix[1] - prefix[0])
    return np.stack([*prefix, zero, zero, np.full(n + 1, once), prefix[1] / prefix[1][-1], trip, zero, zero, zero])


def test_room_by_hand() -> None:
    ones = np.ones(4)
    table = table_of(ones, ones, 2 * ones, 3 * ones, 0.0)
    table[4] = [1.0, 0.0, 0.0, 5.0, 0.0]  # workspace of the first layer and of the last
    assert room_for(table, 20.0, 1, 3) == 2  # 20 - 4 = 16 bytes for waves of 6
    assert room_for(table, 20.0, 0, 2) == 2  # 15
    assert room_for(table, 20.0, 2, 4) == 1  # 11
    assert room_for(table, 14.9, 2, 4) == 0
    assert held(table, 4, 10.0)
    assert not held(table, 4, 9.9)  # the last layer: 2 + 3 + 5
    assert not held(table, 1, 24.9)
    assert held(table, 1, 25.0)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(("ahead", "weight"), [(True, 0.0), (True, 0.4), (False, 0.0)])
def test_greedy_cuts_are_found_where_any_cuts_are(seed: int, ahead: bool, weight: float) -> None:
    """One pipeline without agreement: the least limit for which the greedy finds cuts is that of the best cuts."""
    rng = np.random.default_rng(seed)
    n, p, waves = 7, int(rng.integers(2, 5)), int(rng.integers(1, 9))
    forward = rng.uniform(0.1, 1.0, n)
    table = table_of(
        forward, forward * rng.uniform(2.0, 4.0, n), rng.uniform(0.5, 2.0, n), np.full(n, 0.5), 0.1, weight=weight
    )
    before = np.concatenate([[0.0], np.cumsum(rng.uniform(0.0, 4.0, p - 1))])
    usable = float(rng.uniform(6.0, 14.0))
    limits = [_limit(table, before, waves, ahead, usable, (0, *c, n)) for c in combinations(range(1, n), p - 1)]
    least = min(limits)
    for limit in (least * (1 - 1e-6), least * (1 + 1e-6)) if np.isfinite(least) else (1e6,):
        found = _found(table, before, waves, ahead, usable, limit)
        assert (found is not None) == (limit > least)
        assert found is None or _limit(table, before, waves, ahead, usable, found) <= limit


def _found(
    table: np.ndarray, before: np.ndarray, waves: int, ahead: bool, usable: float, limit: float
) -> tuple[int, ...] | None:
    p = len(before)
    cuts, after = np.zeros(p + 1, np.int64), before[-1] - before
    line = UniformLine(table, before, after, before / 2, np.zeros(p), 1, waves, ahead, 0.0, 0.0, usable)
    return tuple(cuts.tolist()) if cuts_within(line, limit, cuts) else None


def _limit(
    table: np.ndarray, before: np.ndarray, waves: int, ahead: bool, usable: float, cuts: tuple[int, ...]
) -> float:
    """The bound of these cuts, written down a second time; inf: a stage has no room for one wave."""
    p, once, bound = len(before), table[6, 0], 0.0
    late = table[1, cuts[1]] - table[8, cuts[1]]
    for i, (a, b) in enumerate(pairwise(cuts)):
        f, t, trip = (table[row, b] - table[row, a] for row in (0, 1, 8))
        live = min(waves if ahead else p - i, room_for(table, usable, a, b))
        if live < 1:
            return float("inf")
        back, whole = stage_need(t, f, t - trip, table[8, -1] - table[8, b] + before[-1] - before[i], waves, live)
        bound = max(bound, table[8, a] + before[i] + back + late + once, table[0, a] + before[i] / 2 + whole + once)
        if i > 0 and not ahead:
            turns = max(0, waves + 1 - (p - i + 1)) // 2
            bound = max(bound, turns * (t + before[i] - before[i - 1]) + t)
    return bound


@pytest.mark.parametrize("seed", range(12))
def test_neighbours_in_1f1b_wait_for_each_other(seed: int) -> None:
    """Bound 7: two waves per round trip over a slow border."""
    rng = np.random.default_rng(seed)
    p, waves = int(rng.integers(2, 5)), int(rng.integers(1, 12))
    f, b, delay = rng.uniform(0.1, 1.0, p), rng.uniform(0.1, 2.0, p), rng.uniform(0.0, 4.0, p - 1)
    program = abstract_program(
        order("1f1b", stages=p, micro_batches=waves),
        forward_s=f.tolist(),
        backward_s=b.tolist(),
        delay_s=delay.tolist(),
    )
    played = fast.step_time(program)
    for i in range(1, p):
        turns = max(0, waves + 1 - (p - i + 1)) // 2
        assert turns * (f[i] + b[i] + 2 * delay[i - 1]) + f[i] + b[i] <= played * (1 + 1e-9)


@pytest.mark.parametrize(
    ("cuts", "warm_up", "seconds"),
    [((0, 2, 4), (4, 1), 36.0), ((0, 2, 4), (2, 1), 42.0), ((0, 3, 4), (4, 1), 36.0), ((0, 1, 4), (4, 1), 45.0)],
)
def test_the_example_of_the_docs(cuts: tuple[int, ...], warm_up: tuple[int, int], seconds: float) -> None:
    """docs/theory.md, "By hand": four layers of 1 + 2 s, four waves, 3 s each way; played, and by the bounds."""
    layers = [b - a for a, b in pairwise(cuts)]
    schedule = order("cross-domain", stages=2, micro_batches=4, warm_up=warm_up)
    program = abstract_program(
        schedule, forward_s=[1.0 * n for n in layers], backward_s=[2.0 * n for n in layers], delay_s=3.0
    )
    assert fast.step_time(program) == seconds
    need = [
        stage_need(3.0 * n, 1.0 * n, 0.0, rest, 4, warm_up[0])[1]
        for n, rest in zip(layers, (3.0 * layers[1] + 6, 0.0), strict=True)
    ]
    assert max(need[0], 3.0 * layers[0] + 6 + need[1]) == seconds
