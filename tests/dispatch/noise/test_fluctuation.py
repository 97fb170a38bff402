"""Schedules under fluctuation: by hand, against the plain replay, and against the published means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schedule.drawn import schedule_problems

from hippo.dispatch.noise.fluctuation import Factors, Fluctuation, MakespanSpread, drawn, makespans, play, spread
from hippo.engine.fixed_order import LEAST_FACTOR
from hippo.errors import InfeasibleError, InputError
from hippo.schedule.by_hint import dispatch
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import makespan

STILL = Fluctuation(0.0)
MID = [0.05, 0.05, 0.05, 5.0, 0.05, 0.05, 0.05]


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def factors_of(problem: ScheduleProblem, samples: int, fluctuation: Fluctuation, seed: int = 0) -> Factors:
    found = list(drawn(problem, fluctuation, samples=samples, rng=seeded(seed)))
    return Factors(*(np.concatenate(each) for each in zip(*found, strict=True)))


# ------------------------------------------------------------------------------------------------- against the replay
@given(schedule_problems(), st.sampled_from(["gpipe", "1f1b", "zb-h1", "zb-h2"]))
def test_without_fluctuation_every_play_is_the_replay(problem: ScheduleProblem, method: str) -> None:
    try:
        schedule = generate(method, problem)
    except InfeasibleError:
        return
    fixed = makespans(problem, schedule, STILL, samples=3, rng=seeded())
    assert fixed == pytest.approx([makespan(problem, schedule)] * 3, rel=1e-12)
    hint = makespans(problem, schedule, STILL, samples=2, rng=seeded(), by_hint=True)
    assert hint == pytest.approx([makespan(problem, dispatch(problem, schedule))] * 2, rel=1e-9)


@pytest.mark.parametrize("method", ["gpipe", "1f1b", "zb-h1", "zb-h2"])
def test_one_play_is_the_replay_of_the_stretched_problem(method: str) -> None:
    """Where all operations of a rank and kind share one factor, the problem itself can be stretched."""
    problem = ScheduleProblem.uniform(3, 4, (1.0, 1.5, 0.75), comm=[0.5, 2.0])
    slow = np.array([1.5, 1.0, 0.5])
    factors = Factors(np.ones((1, 36), np.float32), 2 * np.ones((1, 24), np.float32), slow[None, :].astype(np.float32))
    stretched = ScheduleProblem(
        4, *(tuple(time * slow) for time in (1.0, 1.5, 0.75)), *(2 * [_links(1.0, 4.0)]), problem.limit
    )
    schedule = generate(method, problem)
    assert play(problem, schedule, factors)[0] == pytest.approx(makespan(stretched, schedule))


def _links(*delays: float):  # type: ignore[no-untyped-def]
    return ScheduleProblem.uniform(3, 1, comm=delays).down


def test_chunks_have_draws_of_their_own() -> None:
    """One micro-batch on one rank with two chunks: the sum of its six operations, each with its own factor."""
    problem = ScheduleProblem.uniform(1, 1, (2.0, 4.0, 6.0)).placed("looped")
    factors = Factors(
        np.array([[1, 2, 3, 4, 5, 6]], np.float32), np.ones((1, 4), np.float32), np.ones((1, 1), np.float32)
    )
    schedule = generate("interleaved", problem)
    expected = 1 * (1 + 2) + 2 * (3 + 4) + 3 * (5 + 6)
    assert play(problem, schedule, factors).tolist() == [expected]
    assert play(problem, schedule, factors, by_hint=True).tolist() == [expected]


# ------------------------------------------------------------------------------------------------------------ by hand
def test_an_abnormal_delay_by_hand() -> None:
    """Two ranks, two micro-batches, F = B = W = 1, delay 1, GPipe; in the second play F 0 is on its way for 4.

    Rank 1: F0 2-3, F1 3-4, fused B0 4-6 and B1 6-8; rank 0 then B0 7-9 and B1 9-11. With F0 there at 5 instead of 2,
    all that follows is 3 later.
    """
    problem = ScheduleProblem.uniform(2, 2, (1.0, 1.0, 1.0), comm=1.0)
    messages = np.ones((2, 8), np.float32)
    messages[1, 0] = 4.0
    factors = Factors(np.ones((2, 12), np.float32), messages, np.ones((2, 2), np.float32))
    assert play(problem, generate("gpipe", problem), factors).tolist() == [11.0, 14.0]


def test_a_hint_runs_what_is_there_and_a_fixed_order_waits() -> None:
    """Two ranks, three micro-batches, F = B = 1, W = 3, delay 1, ZB-H2; F 2 is on its way for 6 and there at 9.

    Fixed, rank 1: F0 2-3 B0 3-4 F1 4-5 B1 5-6, idle, F2 9-10 B2 10-11, three W until 20.
    Hint, rank 1: F0 B0 F1 B1 until 6, W0 6-9, F2 B2 until 11, W1 W2 until 17; rank 0: B0 5-6 W0 6-9 B1 9-10 W1 10-13
    B2 13-14 W2 14-17.
    """
    problem = ScheduleProblem.uniform(2, 3, (1.0, 1.0, 3.0), comm=1.0)
    messages = np.ones((1, 12), np.float32)
    messages[0, 2] = 6.0
    factors = Factors(np.ones((1, 18), np.float32), messages, np.ones((1, 2), np.float32))
    schedule = generate("zb-h2", problem)
    assert play(problem, schedule, factors).tolist() == [20.0]
    assert play(problem, schedule, factors, by_hint=True).tolist() == [17.0]


def test_patience_waits_for_what_is_announced() -> None:
    """Without fluctuation a patient hint keeps to an order that an impatient one leaves, and takes as long."""
    problem = ScheduleProblem.uniform(8, 32, (1.0, 1.05, 0.75), comm=0.1, live_limit=8)
    schedule = generate("zb-h1", problem)
    impatient, patient = (
        spread(problem, schedule, STILL, samples=1, by_hint=True, patience=patience).mean for patience in (0.0, 1.0)
    )
    assert patient == pytest.approx(makespan(problem, schedule))
    assert impatient > patient + 3


# -------------------------------------------------------------------------------------------------------------- draws
def test_equal_seeds_mean_equal_draws_and_others_others() -> None:
    problem = ScheduleProblem.uniform(3, 4, comm=0.5)
    schedule, moves = generate("zb-h1", problem), Fluctuation(0.3, "normal", 0.1, 0.01)
    one, same, other = (makespans(problem, schedule, moves, samples=130, rng=seeded(each)) for each in (4, 4, 5))
    assert one.tolist() == same.tolist()
    assert not (one == other).any()
    rng = seeded(4)
    makespans(problem, schedule, moves, samples=130, rng=rng)
    assert makespans(problem, schedule, moves, samples=130, rng=rng)[0] not in one  # a generator moves on


def test_draws_belong_to_operations_not_to_places_in_an_order() -> None:
    """The last rank works without a pause in GPipe and in 1F1B, on the same plays for the same time."""
    problem = ScheduleProblem.uniform(1, 8, (1.0, 2.0, 1.0))
    moves = Fluctuation(0.3)
    plays = [
        makespans(problem, generate(method, problem), moves, samples=20, rng=seeded(), by_hint=by_hint)
        for method in ("gpipe", "1f1b", "zb-h1", "zb-h2")
        for by_hint in (False, True)
    ]
    for each in plays[1:]:
        assert each == pytest.approx(plays[0], rel=1e-6)


def test_more_plays_begin_with_the_same_and_abnormal_delays_leave_the_rest_alone() -> None:
    problem, moves = ScheduleProblem.uniform(2, 3, comm=1.0), Fluctuation(0.2, rank_level=0.1)
    few, many = factors_of(problem, 10, moves), factors_of(problem, 200, moves)
    assert (many.operations[:10] == few.operations).all()
    late = factors_of(problem, 200, Fluctuation(0.2, rank_level=0.1, abnormal_share=0.1, abnormal_factor=50))
    assert (late.operations == many.operations).all()
    assert (late.ranks == many.ranks).all()
    changed = late.messages != many.messages
    assert late.messages[changed] == pytest.approx(50 * many.messages[changed])
    assert 0.07 < changed.mean() < 0.13


def test_normal_factors_have_mean_one_and_the_level_as_deviation() -> None:
    problem = ScheduleProblem.uniform(4, 16)
    found = factors_of(problem, 500, Fluctuation(0.2, rank_level=0.05))
    for factors, level, error in (
        (found.operations, 0.2, 0.003),
        (found.messages, 0.2, 0.003),
        (found.ranks, 0.05, 0.004),
    ):
        assert float(factors.mean()) == pytest.approx(1, abs=error)
        assert float(factors.std()) == pytest.approx(level, rel=0.06)
    within = np.abs(found.operations - 1) < 0.2
    assert float(within.mean()) == pytest.approx(0.6827, abs=0.005)


def test_uniform_factors_fill_the_range_evenly() -> None:
    found = factors_of(ScheduleProblem.uniform(4, 16), 500, Fluctuation(0.3, "uniform", 0.15))
    assert 0.7 <= found.operations.min() < 0.701
    assert 1.299 < found.operations.max() <= 1.3001
    assert np.histogram(found.operations, 10)[0] / found.operations.size == pytest.approx([0.1] * 10, abs=0.005)
    assert 0.85 <= found.ranks.min() < 0.86
    assert 1.14 < found.ranks.max() <= 1.15


@pytest.mark.parametrize("kind", ["normal", "uniform"])
@pytest.mark.parametrize("rank_level", [0.0, 0.2])
def test_the_deviation_is_that_of_what_operations_take(kind: str, rank_level: float) -> None:
    problem, noise = ScheduleProblem.uniform(4, 16, (1.0, 1.0, 1.0)), Fluctuation(0.2, kind, rank_level=rank_level)
    seen = [
        each.operations.reshape(-1, 3, 4, 16) * each.ranks[:, None, :, None]
        for each in drawn(problem, noise, samples=600, rng=np.random.default_rng(3))
    ]
    assert np.concatenate(seen).std() == pytest.approx(noise.deviation, rel=0.03)


def test_no_factor_is_negative_even_when_fluctuation_is_absurd() -> None:
    found = factors_of(ScheduleProblem.uniform(4, 16), 50, Fluctuation(1.0, rank_level=1.0))
    for factors in found:
        assert factors.min() == np.float32(LEAST_FACTOR)


def test_slow_ranks_slow_everything() -> None:
    problem = ScheduleProblem.uniform(4, 16, comm=0.1)
    schedule = generate("zb-h1", problem)
    plays = spread(problem, schedule, Fluctuation(0.0, rank_level=0.1), samples=400)
    ranks = factors_of(problem, 400, Fluctuation(0.0, rank_level=0.1)).ranks
    assert (plays.makespans >= 48 * ranks.max(axis=1)).all()


# ------------------------------------------------------------------------------------------------------------ figures
@pytest.mark.parametrize(
    ("comm", "live", "method", "by_hint", "published"),
    [
        (0.1, 8, "zb-h1", False, (104.7, 108.2, 112.3)),
        (0.1, 16, "zb-h2", False, (98.8, 102.6, 105.3)),
        (1.0, 8, "zb-h1", False, (152.1, 154.1, 156.6)),
        (1.0, 16, "zb-h2", False, (110.4, 113.6, 117.0)),
        (MID, 8, "zb-h1", False, (240.9, 242.0, 243.8)),
        (MID, 16, "zb-h2", False, (161.5, 164.7, 166.7)),
        (0.1, 8, "zb-h1", True, (106.5, 109.0, 111.7)),
        (0.1, 16, "zb-h2", True, (98.7, 102.4, 105.1)),
        (1.0, 16, "zb-h2", True, (111.5, 113.1, 115.1)),
        (MID, 8, "zb-h1", True, (142.3, 144.5, 146.6)),
        (MID, 16, "zb-h2", True, (107.3, 110.4, 113.4)),
    ],
)
def test_the_published_means(
    comm: float | list[float], live: int, method: str, by_hint: bool, published: tuple[float, ...]
) -> None:
    """Facts on pipelines, section 8: p 8, m 32, uniform noise of 10, 20, 30 %, means of 60 plays, one decimal."""
    problem = ScheduleProblem.uniform(8, 32, (1.0, 1.05, 0.75), comm=comm, live_limit=live)
    schedule = generate(method, problem)
    for level, mean in zip((0.1, 0.2, 0.3), published, strict=True):
        found = spread(problem, schedule, Fluctuation(level, "uniform", level / 2), samples=600, by_hint=by_hint)
        of_sixty = found.makespans.std() / np.sqrt(60)
        assert found.mean == pytest.approx(mean, abs=0.05 + 3 * of_sixty)


# ---------------------------------------------------------------------------------------------- from step to step
def lag(values: np.ndarray) -> float:
    return float(np.corrcoef(values[:-1], values[1:])[0, 1])


def test_ranks_remember_the_step_before_and_nothing_else_changes() -> None:
    problem = ScheduleProblem.uniform(4, 4)
    found = factors_of(problem, 6000, Fluctuation(0.1, rank_level=0.05, rank_memory=0.7))
    assert [lag(rank) for rank in found.ranks.T] == pytest.approx([0.7] * 4, abs=0.04)
    assert found.ranks.std(axis=0) == pytest.approx(np.full(4, 0.05), rel=0.06)
    assert abs(np.corrcoef(found.ranks[:, 0], found.ranks[:, 1])[0, 1]) < 0.05
    assert np.array_equal(found.operations, factors_of(problem, 6000, Fluctuation(0.1)).operations)


def test_stalls_are_as_rare_and_as_long_as_asked_and_come_together_where_ranks_remember() -> None:
    """An exponential of mean 2 is added in 2 % of the steps: it is above 2 in 1 / e of them."""
    problem = ScheduleProblem.uniform(8, 2)
    apart, together = (
        factors_of(problem, 6000, Fluctuation(0.0, rank_memory=memory, stall_share=0.02, stall_level=2.0)).ranks
        for memory in (0.0, 0.95)
    )
    for found in (apart, together):
        assert (found > 1.0).mean() == pytest.approx(0.02, rel=0.25)
    assert apart[apart > 1.0].mean() == pytest.approx(3.0, rel=0.1)
    assert (apart[apart > 1.0] > 3.0).mean() == pytest.approx(np.exp(-1), abs=0.06)
    assert abs(lag(apart[:, 0])) < 0.05 < 0.4 < lag(together[:, 0])


# ------------------------------------------------------------------------------------------------------------- spread
def test_a_spread_by_hand() -> None:
    found = MakespanSpread(np.array([1.0, 2.0, 3.0, 4.0, 10.0]))
    assert (found.mean, found.p50, found.p95) == (4.0, 3.0, pytest.approx(8.8))
    assert found.error == pytest.approx(1.96 * np.sqrt(12.5 / 5))
    assert found.interval == pytest.approx((4 - found.error, 4 + found.error))
    assert found.minus(found).error == 0
    assert MakespanSpread(np.array([7.0])).error == 0


def test_the_interval_holds_the_expected_value_nineteen_times_in_twenty() -> None:
    problem = ScheduleProblem.uniform(2, 4, comm=0.5)
    schedule, moves = generate("zb-h1", problem), Fluctuation(0.3)
    truth = spread(problem, schedule, moves, samples=20000, seed=12345).mean
    held = 0
    for seed in range(200):
        low, high = spread(problem, schedule, moves, samples=100, seed=seed).interval
        held += low <= truth <= high
    assert 180 <= held <= 199


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("level", {"level": -0.1}),
        ("level", {"level": float("nan")}),
        ("rank_level", {"rank_level": 2.0}),
        ("abnormal_share", {"abnormal_share": 1.5}),
        ("abnormal_factor", {"abnormal_factor": 0.5}),
        ("kind", {"kind": "cauchy"}),
        ("rank_memory", {"rank_memory": 1.0}),
        ("stall_share", {"stall_share": -0.1}),
        ("stall_level", {"stall_level": float("inf")}),
        ("kind", {"kind": "uniform", "rank_memory": 0.5}),
    ],
)
def test_bad_fluctuation_is_refused(key: str, given: dict[str, object]) -> None:
    with pytest.raises(InputError, match=key):
        Fluctuation(**given)  # type: ignore[arg-type]


def test_no_plays_are_refused() -> None:
    with pytest.raises(InputError, match="samples"):
        drawn(ScheduleProblem.uniform(2, 2), STILL, samples=0, rng=seeded())
