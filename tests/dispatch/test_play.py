"""Learned dispatch against hint dispatch, against a slow second version, and by its promises."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.dispatch.base import UNKNOWN, Base, base_from, base_of
from hippo.dispatch.dispatch import (
    Draws,
    _repeat,
    decision_seconds,
    made_by_policy,
    nothing_moves,
    one_play,
)
from hippo.dispatch.features import FEATURES, FIXED, MOVING, observe
from hippo.dispatch.guard import settled
from hippo.dispatch.network import DispatchWeights, follower
from hippo.dispatch.noise.fluctuation import Factors
from hippo.dispatch.noise.fluctuation import play as play_order
from hippo.dispatch.noise.hindsight import floors_of
from hippo.dispatch.noise.timed_play import order_run, timed
from hippo.dispatch.play import act, best_choice, following, room
from hippo.dispatch.state import DispatchState, begin, new_state
from hippo.engine.events import makespan as makespan_of
from hippo.engine.events import vary
from hippo.errors import InputError
from hippo.schedule.by_hint import makespans, queues
from hippo.schedule.check import violations
from hippo.schedule.methods import generate
from hippo.schedule.problem import Floats, RankLink, ScheduleProblem
from hippo.schedule.replay import makespan, replay
from hippo.schedule.schedule import split

from ..schedule.drawn import schedule_problems
from .drawn_draws import random_draws, random_weights
from .plain_play import PlainPlay

NOWHERE = np.empty((0, 0, 0))
SEEDS = st.integers(0, 2**20)
FAR = ScheduleProblem.uniform(2, 2, comm=2)


@given(schedule_problems(most_micro_batches=8), SEEDS, st.sampled_from((0.0, 0.25, 1.0)))
def test_a_network_that_says_nothing_is_the_hint(problem: ScheduleProblem, seed: int, patience: float) -> None:
    plays_as_the_hint(problem, seed, patience)


@pytest.mark.parametrize("seed", [2251, *range(20)])
def test_who_waits_with_patience_looks_again_when_another_message_comes(seed: int) -> None:
    """It was on its way already when the wait began; what could run meanwhile, and for how long to wait, changes."""
    links = [(0.0, 0.0), (2.0, 0.0), (0.0, 0.0), (0.0, 5.0), (20.0, 0.0)]
    back = (RankLink(0.0),) * 4 + (RankLink(3.0),)
    forward, backward, weight = (
        (6.0, 0.25, 0.25, 0.25, 0.75, 0.25),
        (0.25,) * 4 + (2.0, 0.25),
        (0.25,) * 4 + (5.0, 0.25),
    )
    down = tuple(RankLink(*each) for each in links)
    plays_as_the_hint(ScheduleProblem(8, forward, backward, weight, down, back, (np.inf,) * 6), seed, 1.0)


def plays_as_the_hint(problem: ScheduleProblem, seed: int, patience: float) -> None:
    hint = split(generate("cross-domain", problem))
    operations, messages, ranks = random_draws(problem, seed)
    factors = operations[None].astype(float), messages[None].astype(float), ranks[None].astype(float)
    judge = makespans(problem, queues(problem, hint, patience=patience), factors)[0]
    found = one_play(problem, base_from(problem, hint, patience), follower(), (operations, messages, ranks), NOWHERE)
    assert found == judge


@given(schedule_problems(most_ranks=4, most_micro_batches=6), SEEDS)
def test_the_kernel_plays_as_the_plain_version(problem: ScheduleProblem, seed: int) -> None:
    """Choices drawn from a hash of who decides when: both are asked the same in the same order."""
    base, draws = base_from(problem, generate("cross-domain", problem), 0.5), random_draws(problem, seed)
    asked_plainly: list[tuple[Any, ...]] = []

    def choose(rank: int, now: float, may: list[int], says: int) -> int:
        asked_plainly.append((rank, now, sorted(may), says))
        return sorted(may)[hash((rank, len(asked_plainly), seed)) % len(may)]

    plain = PlainPlay(problem, base, draws, choose).run()
    state, asked = begun(problem, draws), room(32)
    seen: list[tuple[Any, ...]] = []
    while (rank := following(state, base, asked)) >= 0:
        may = np.flatnonzero(asked.mask).tolist()
        seen.append((rank, float(asked.until[0]), may, int(asked.says[0])))
        choice = may[hash((rank, len(seen), seed)) % len(may)]
        act(state, base, rank, asked.until[0], choice, asked.until[1])
    assert seen == asked_plainly
    assert makespan_of(state.pipe, state.board) == plain


@given(schedule_problems(), SEEDS)
def test_whatever_the_network_says_a_play_keeps_to_data_and_memory(problem: ScheduleProblem, seed: int) -> None:
    """Nobody guards this network, and times move."""
    draws, start = random_draws(problem, seed), np.empty((3, problem.ranks, problem.micro_batches))
    found = one_play(problem, base_of(problem), random_weights(seed), draws, start)
    keeps_to_data_and_memory(problem, draws, start, found)


@given(schedule_problems(), SEEDS)
def test_whatever_is_chosen_a_play_keeps_to_data_and_memory(problem: ScheduleProblem, seed: int) -> None:
    """Any of the choices that are allowed, waiting too."""
    base, draws, rng = base_of(problem), random_draws(problem, seed), np.random.default_rng(seed)
    start = np.empty((3, problem.ranks, problem.micro_batches))
    state, asked = begun(problem, draws, start), room(32)
    while (rank := following(state, base, asked)) >= 0:
        choice = int(rng.choice(np.flatnonzero(asked.mask)))
        act(state, base, rank, asked.until[0], choice, asked.until[1])
    keeps_to_data_and_memory(problem, draws, start, makespan_of(state.pipe, state.board))


def keeps_to_data_and_memory(problem: ScheduleProblem, draws: Draws, start: Floats, makespan: float) -> None:
    """What ran is judged by the checker, by its own times, and by the floor of the play."""
    factors = Factors(*(each[None] for each in draws))
    each = timed(problem, factors, 0, start)
    kept = order_run(each, "run")
    assert violations(problem, kept) == ()
    assert (each.start >= each.arrived * (1 - 1e-8)).all()
    assert each.makespan == pytest.approx(makespan)
    assert play_order(problem, kept, factors)[0] <= makespan * (1 + 1e-6)  # in that order nothing starts later
    assert floors_of(problem, factors)[0] <= makespan * (1 + 1e-6)


@given(schedule_problems(), SEEDS)
def test_the_order_of_a_policy_is_legal_and_no_longer_than_its_base(problem: ScheduleProblem, seed: int) -> None:
    weights, still = random_weights(seed), nothing_moves(problem)
    for level, base in ((UNKNOWN, settled(problem, weights).base), (0.0, base_of(problem, 0.0))):
        found = made_by_policy(problem, weights, level=level).schedule
        assert violations(problem, found) == ()
        assert makespan(problem, found) <= one_play(problem, base, follower(), still, NOWHERE) * (1 + 1e-6)


def begun(problem: ScheduleProblem, draws: Draws, start: Floats | None = None) -> DispatchState:
    """A play under these draws at its beginning."""
    state = new_state(problem, start)
    vary(state.pipe, *draws)
    begin(state)
    return state


def first_asked(base: Base, weights: DispatchWeights) -> tuple[int, list[str], list[int]]:
    """Who is asked first on FAR, what it may do, and what the network takes."""
    state, asked = begun(FAR, nothing_moves(FAR)), room(32)
    rank = following(state, base, asked)
    names = [name for name, allowed in zip(("F", "B", "W", "WAIT"), asked.mask, strict=True) if allowed]
    return rank, names, [int(best_choice(weights, asked))]


def test_the_first_choice_by_hand() -> None:
    """Rank 1 ends F0 at 4. F1 began at 1, its announcement arrives at 3 and F1 itself at 4: F or B."""
    weights = follower()
    assert first_asked(base_of(FAR), weights)[:2] == (1, ["F", "B"])
    weights.last_bias[0], weights.trust[0] = 1.0, 0.0
    assert first_asked(base_of(FAR), weights)[2] == [0]
    weights.last_bias[1] = 2.0
    assert first_asked(base_of(FAR), weights)[2] == [1]


def test_what_a_rank_sees_has_names_and_does_not_know_the_future() -> None:
    """When a message under way arrives, and what others do meanwhile, is hidden until it is there or announced."""
    assert FEATURES == len(FIXED) + len(MOVING) == len({*FIXED, *MOVING})
    problem = ScheduleProblem.uniform(4, 8, (1.0, 1.05, 0.75), comm=[0.5, 3.0, 0.5], live_limit=4)
    base, draws, looked = base_of(problem), random_draws(problem, 3), 0
    state, asked, again = begun(problem, draws), room(32), room(32)
    while (rank := following(state, base, asked)) >= 0:
        now = asked.until[0]
        told, seen, history = state.told.copy(), state.seen.copy(), state.history.copy()
        other = state._replace(board=deepcopy(state.board), told=told, seen=seen, history=history)
        arrived, heard = state.board.arrived, state.board.heard[:8]
        hidden, unannounced = np.isfinite(arrived) & (arrived > now), np.isfinite(heard) & (heard > now)
        other.board.arrived[hidden] += 0.1
        other.board.heard[:8][unannounced] = other.board.expected[:8][unannounced] = np.inf
        others = np.arange(4) != rank
        other.board.begun[others], other.board.live[others], other.history[others] = 0, 0.0, 0.0
        other.told[hidden[:, :8].reshape(2, 4, 8)] = 0
        observe(base, other, rank, now, again.seen, again.mask)
        mine = hidden[[rank, 4 + rank]]
        if not mine.any() or (heard[[rank, 4 + rank]] <= now)[mine].all():
            assert np.array_equal(asked.seen, again.seen), rank
            looked += 1
        choice = best_choice(follower(), asked)
        act(state, base, rank, now, choice, asked.until[1])
    assert looked > 20


@given(schedule_problems(most_ranks=4, most_micro_batches=6), SEEDS, st.floats(0.05, 0.95))
def test_nobody_acts_on_what_has_not_happened(problem: ScheduleProblem, seed: int, share: float) -> None:
    """What ends or arrives after a moment takes longer: until then everybody sees and does the same."""
    draws, weights = random_draws(problem, seed), random_weights(seed)
    start = np.empty((3, problem.ranks, problem.micro_batches))
    before = decisions(problem, weights, draws, start)
    moment = share * one_play(problem, base_of(problem), weights, draws, start)
    each = timed(problem, Factors(*(factor[None] for factor in draws)), 0, start)
    operations, messages = (factor.copy() for factor in draws[:2])
    operations[each.end.ravel() > moment * (1 - 1e-6)] *= 2
    there = np.full((2, *each.start.shape[1:]), -np.inf)  # of what F and B of a rank send
    there[0, :-1], there[1, 1:] = each.arrived[0, 1:], each.arrived[1, :-1]
    messages[there.ravel() > moment * (1 - 1e-6)] *= 2
    after = decisions(problem, weights, (operations, messages, draws[2]), start)
    known = sum(now < moment * (1 - 1e-6) for now, *_ in before)
    assert len(after) >= known
    assert after[:known] == before[:known]


def decisions(problem: ScheduleProblem, weights: DispatchWeights, draws: Draws, start: Floats) -> list[tuple[Any, ...]]:
    """When, by whom, on what, and what was chosen: of a whole play, in the order of time."""
    base, found = base_of(problem), []
    state, asked = begun(problem, draws, start), room(32)
    while (rank := following(state, base, asked)) >= 0:
        choice = best_choice(weights, asked)
        found.append((float(asked.until[0]), rank, asked.seen.tobytes(), asked.mask.tobytes(), choice))
        act(state, base, rank, asked.until[0], choice, asked.until[1])
    return found


def test_only_one_chunk_per_rank() -> None:
    with pytest.raises(InputError, match="placement"):
        made_by_policy(FAR.placed("v"))


def test_the_base_knows_starts_and_tails() -> None:
    """Tail of an operation: from its start to the end, over data and its rank's order."""
    hint = generate("zb-h1", FAR)
    base = base_from(FAR, hint, 0.5)
    played = replay(FAR, hint)
    assert base.makespan == played.makespan
    assert np.sort(base.start.ravel()).tolist() == np.sort(played.start).tolist()
    assert (base.start + base.tail).max() == base.makespan
    assert base.tail[0, 0, 0] == base.makespan
    assert base.patience == 0.5
    assert base.beat == 3.0


def test_a_decision_that_is_taken_again_and_again_is_the_same_decision() -> None:
    """What is timed are the decisions of one play, however often each is repeated."""
    problem = ScheduleProblem.uniform(4, 8, (1.0, 1.05, 0.75), comm=[0.5, 3.0, 0.5], live_limit=4)
    base, weights, draws = base_of(problem), random_weights(1), nothing_moves(problem)
    count = len(decisions(problem, weights, draws, NOWHERE))
    assert [_repeat(begun(problem, draws), base, weights, repeats) for repeats in (0, 1, 5)] == [count] * 3
    assert decision_seconds(problem, weights, repeats=1) < np.inf
