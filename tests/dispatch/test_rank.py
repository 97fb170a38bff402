"""Ranks that know their own rows alone, under a clock of the test, against the simulator that knows all."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hippo.dispatch.base import Base, base_from
from hippo.dispatch.dispatch import Draws, nothing_moves, one_play
from hippo.dispatch.network import DispatchWeights, follower
from hippo.dispatch.rank import ChoosingRank, Counts, OrderedRank, RankDispatch
from hippo.engine.program import FORWARD, WEIGHT
from hippo.schedule.methods import generate
from hippo.schedule.problem import Floats, ScheduleProblem
from hippo.schedule.replay import replay
from hippo.schedule.schedule import split

from ..schedule.drawn import schedule_problems
from .drawn_draws import lazy_weights, random_draws, random_weights

SEEDS = st.integers(0, 2**20)


class Heard(NamedTuple):
    """What a rank is told, see ``RankDispatch``; without ``announced`` an input is there."""

    rank: int
    kind: int
    index: int
    at: float
    announced: tuple[float, Counts] | None = None

    def tell(self, rank: RankDispatch) -> None:
        if self.announced is None:
            rank.arrives(self.kind, self.index, self.at)
        else:
            rank.announced(self.kind, self.index, self.at, *self.announced)


class Ranks:
    """A pipeline of ranks; every message and announcement is handed over at the instant at which it is there."""

    def __init__(self, problem: ScheduleProblem, ranks: list[RankDispatch], draws: Draws) -> None:
        self.problem, self.ranks, self.draws = problem, ranks, draws
        p, m = problem.ranks, problem.micro_batches
        self.start = np.zeros((3, p, m))
        self.end = np.zeros((3, p, m))
        self.most = np.zeros(p)
        self._begun = np.zeros((p, 3), np.int64)
        self._live, self._free = np.zeros(p), np.zeros(p)
        self._link_free: dict[tuple[int, int], float] = {}
        self._coming: list[tuple[float, int, Heard]] = []
        self._number = count()

    def run(self) -> Floats:
        """The starts (3, p, m); fails where nobody can go on."""
        left = self.start.size
        while left:
            wakes = [max(each.wake, free) for each, free in zip(self.ranks, self._free, strict=True)]
            rank = int(np.argmin(wakes))
            if self._coming and self._coming[0][0] <= wakes[rank]:
                _, _, heard = heappop(self._coming)
                heard.tell(self.ranks[heard.rank])
                continue
            assert wakes[rank] < np.inf, "ranks wait for each other"
            kind = self.ranks[rank].next(wakes[rank])
            if kind is not None:
                self._do(rank, kind, wakes[rank])
                left -= 1
        return self.start

    def _do(self, rank: int, kind: int, now: float) -> None:
        problem, tables, m = self.problem, self.problem.tables, self.problem.micro_batches
        index, p = int(self._begun[rank, kind]), problem.ranks
        at = (kind * p + rank) * m + index
        operations, messages, ranks = self.draws
        end = now + tables.duration[kind, rank] * float(ranks[rank]) * float(operations[at])
        self.start[kind, rank, index], self.end[kind, rank, index] = now, end
        told = self.ranks[rank].begins(kind)
        self._begun[rank, kind] += 1
        assert told == tuple(self._begun[rank])
        taken, freed = tables.taken[rank], tables.freed[rank]
        self._live[rank] += (taken, -freed, freed - taken)[kind]
        self.most[rank] = max(self.most[rank], self._live[rank])
        self._free[rank] = end
        self.ranks[rank].ended(kind, now, end)
        if self._begun[rank, WEIGHT] == m:
            self._free[rank] = np.inf
        receiver = rank + 1 if kind == FORWARD else rank - 1
        if kind == WEIGHT or not 0 <= receiver < p:
            return
        delay, sending, late = tables.delay[kind, rank], tables.transfer[kind, rank], float(messages[at])
        expected = now + ((tables.duration[kind, rank] + sending) + delay)
        self._later(Heard(receiver, kind, index, now + delay, (expected, told)))
        there = end
        if sending > 0:
            there = self._link_free[rank, kind] = max(end, self._link_free.get((rank, kind), 0.0)) + sending * late
        self._later(Heard(receiver, kind, index, there + delay * late))

    def _later(self, heard: Heard) -> None:
        heappush(self._coming, (heard.at, next(self._number), heard))


def choosing(problem: ScheduleProblem, base: Base, weights: DispatchWeights) -> list[RankDispatch]:
    return [ChoosingRank(problem, rank, base, weights) for rank in range(problem.ranks)]


def simulated(problem: ScheduleProblem, base: Base, weights: DispatchWeights, draws: Draws) -> Floats:
    start = np.empty((3, problem.ranks, problem.micro_batches))
    one_play(problem, base, weights, draws, start)
    return start


@given(schedule_problems(most_micro_batches=8), SEEDS, st.sampled_from((0.0, 0.5, 1.0)))
def test_ranks_by_a_hint_do_what_the_simulator_says(problem: ScheduleProblem, seed: int, patience: float) -> None:
    base, draws = base_from(problem, split(generate("cross-domain", problem)), patience), random_draws(problem, seed)
    found = Ranks(problem, choosing(problem, base, follower()), draws).run()
    np.testing.assert_allclose(found, simulated(problem, base, follower(), draws), rtol=1e-9)


@given(schedule_problems(most_micro_batches=8), SEEDS, st.sampled_from((0.0, 0.5)))
def test_ranks_by_a_policy_do_what_the_simulator_says(problem: ScheduleProblem, seed: int, patience: float) -> None:
    """A network of random weights, which waits, runs W early and forgets B: nobody gets stuck, memory is kept."""
    base, draws = base_from(problem, split(generate("cross-domain", problem)), patience), random_draws(problem, seed)
    ranks = Ranks(problem, choosing(problem, base, random_weights(seed)), draws)
    np.testing.assert_allclose(ranks.run(), simulated(problem, base, random_weights(seed), draws), rtol=1e-9)
    assert (ranks.most <= problem.tables.limit * (1 + 1e-9)).all()


@given(schedule_problems(most_micro_batches=8), SEEDS)
def test_whoever_waits_whenever_it_may_comes_to_an_end(problem: ScheduleProblem, seed: int) -> None:
    base = base_from(problem, split(generate("cross-domain", problem)), 0.0)
    ranks = Ranks(problem, choosing(problem, base, lazy_weights()), random_draws(problem, seed))
    ranks.run()
    assert (ranks.most <= problem.tables.limit * (1 + 1e-9)).all()


@given(schedule_problems(most_micro_batches=8))
def test_ranks_in_order_play_the_schedule(problem: ScheduleProblem) -> None:
    schedule, p, m = split(generate("cross-domain", problem)), problem.ranks, problem.micro_batches
    orders = [[(kind, index) for kind, _, index in schedule.rank(rank).tolist()] for rank in range(p)]
    ranks: list[RankDispatch] = [OrderedRank(order, fed=(rank > 0, rank < p - 1)) for rank, order in enumerate(orders)]
    found = Ranks(problem, ranks, nothing_moves(problem)).run()
    played, at = replay(problem, schedule).start, np.repeat(np.arange(p), 3 * m)
    np.testing.assert_allclose(found[schedule.order[:, 0], at, schedule.order[:, 2]], played, rtol=1e-9)


def test_a_second_step_is_as_the_first() -> None:
    problem = ScheduleProblem.uniform(4, 8, (1.0, 1.05, 0.75), comm=[0.1, 2.0, 0.1], live_limit=4)
    base, draws = base_from(problem, split(generate("zb-h1", problem)), 0.5), random_draws(problem, 3)
    ranks = choosing(problem, base, random_weights(1))
    first = Ranks(problem, ranks, draws).run()
    for each in ranks:
        each.begin()
    np.testing.assert_array_equal(Ranks(problem, ranks, draws).run(), first)
