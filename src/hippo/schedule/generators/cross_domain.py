"""For pipelines with slow links: list scheduling that knows each link, by some forty rules, the best by replay.

Letters: p ranks, m micro-batches. Every candidate plays the pipeline in time on the true latency and bandwidth of each
link and direction (``search.policy``): a rank that is free compares when its next F, B and W could start, where a
message on its way counts as known, and takes the one with the smallest start + patience. From CrossPipe (Chen et al.
2025, ATC'25, arXiv 2507.00217) this takes

* the links as the model: latency and transfer time apart, and a directed link sends one message after the other;
* *forward run-ahead*: how many forwards a rank runs before its first gradient follows from the round trip of its
  micro-batches over the time that the slowest rank takes for one (``TRIP``), up to what memory holds (``MOST``);
* the three phases: forwards until the first gradient, then F and B in turn, then B before W until the end;
* *W as filler*: W runs while a rank waits for a message, where it fits in front of it, and when memory keeps a forward
  that is there from starting;
* *the reduction of gradients beside it*: it follows the last operation of a rank, on the network, while others compute
  (``ScheduleProblem.reduction``); rules are compared by when the last rank has agreed, and those that play backwards in
  time let a rank start only when that is over, so the W of a rank that reduces for long are not put off.

It leaves out CrossPipe's sub-blocks, its exact solver (``optimal`` is ours), and several chunks per rank. Beyond
CrossPipe, ranks before and behind the slowest link follow different rules, and one rule in six plays backwards in time.

The delay-aware "greedy" that the rules were measured against is the last of them: B when ready, else F if memory lets
it, else W where it fits before the next arrival or memory is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.events import Pipe, board
from hippo.errors import InfeasibleError
from hippo.schedule.problem import Floats, ScheduleProblem
from hippo.schedule.replay import makespan
from hippo.schedule.schedule import Schedule, Shape
from hippo.schedule.search.policy import most_fit, pipe, play_policy, rows_of

# How many forwards a rank may run ahead of its backwards; ``TRIP + n`` are n more than a round trip.
MOST, FALLING, DOUBLE, SLANTED, LONG, TRIP = range(6)
MANY = 10**6  # no backlog of W is too long
MANY_WAVES, FEW_WAVES, LIKELY = 40, 6, 4  # beyond MANY_WAVES p micro-batches: the LIKELY best rules of FEW_WAVES p


class Side(NamedTuple):
    """What the ranks on one side of the slowest link follow; times are shares of the rank's own F or W."""

    patience_down: float  # F runs where it could start so long before B; below 0: also so long after it
    patience_extra: float  # W runs where it could start so long before F and B: 1 where it fits in front of them
    patience_urgent: float  # the same when memory is full or the backlog too long
    ahead: int  # forwards in front of the backwards, see ``_ahead``
    backlog: int  # W that wait before they are urgent


Numbers = tuple[float, float, float, int, int]
"""A ``Side``, unnamed."""

Rule = tuple[bool, Numbers, Numbers | None]
"""Whether it plays backwards in time, the side before the slowest link, and the one behind it."""

Policies = tuple[NDArray[np.bool_], Floats]
"""Whether each rule plays backwards in time, (n,), and the numbers of every rank, (n, 5, p)."""

SAME = None  # behind the slowest link as before it

RULES: tuple[Rule, ...] = (
    (False, (-0.25, 0.5, -0.1, LONG, MANY), (0, 0.5, -0.1, LONG, MANY)),
    (False, (-0.25, 0, -0.1, MOST, MANY), (-0.25, 0.5, -0.1, DOUBLE, MANY)),
    (False, (0.01, 0.75, 0.5, DOUBLE, MANY), (0, 0.75, 0.5, DOUBLE, MANY)),
    (False, (-0.25, 0.5, -5, TRIP, MANY), (-0.25, 1, -5, TRIP, MANY)),
    (False, (0, 0.25, -0.1, MOST, MANY), (0, 0.75, -0.1, SLANTED, MANY)),
    (False, (-0.25, -0.5, 0.5, MOST, 1), (-0.25, -0.5, 0.5, FALLING, 1)),
    (False, (0.25, 0.5, 0, TRIP, 4), SAME),
    (False, (-0.25, 0.5, -0.1, DOUBLE, MANY), (-0.25, 0.5, 0, DOUBLE, MANY)),
    (True, (-1, 1.5, -0.1, MOST, MANY), (0.01, 1.5, -0.1, MOST, MANY)),
    (False, (0.01, 0.5, 0.5, FALLING, 6), SAME),
    (False, (-0.5, 0, -5, TRIP + 2, MANY), (-0.5, 1, -5, DOUBLE, MANY)),
    (False, (-0.5, 0.5, -5, MOST, MANY), (0, 0.5, -5, MOST, MANY)),
    (False, (-0.5, 0.5, 0.25, MOST, 6), (-0.5, 0.5, 1, TRIP, 6)),
    (False, (-0.25, 0, -0.1, LONG, MANY), (0, 1, -0.1, LONG, MANY)),
    (False, (0, 0.75, 0, FALLING, MANY), (-0.5, 0.75, 0, FALLING, MANY)),
    (False, (-1, 0.5, -0.5, TRIP + 1, MANY), (-1, 0.5, -0.5, DOUBLE, MANY)),
    (False, (0.25, 0.75, 0.5, DOUBLE, 2), SAME),
    (True, (-0.5, 0.25, -0.5, MOST, MANY), SAME),
    (False, (-0.25, 0.25, -0.1, DOUBLE, MANY), (-0.25, 0.25, 0.5, DOUBLE, MANY)),
    (False, (0, 0.25, 0, MOST, 4), SAME),
    (False, (-0.5, -0.5, 0.5, SLANTED, 4), (-0.5, -0.5, 0.5, DOUBLE, 1)),
    (True, (-0.25, 0.75, 0, DOUBLE, MANY), SAME),
    (True, (-0.25, 0.01, -0.5, MOST, MANY), (-0.25, 0.75, -0.5, MOST, MANY)),
    (False, (0, 0.75, 0.25, TRIP + 1, MANY), (0, 0.75, 1, TRIP + 1, MANY)),
    (False, (0, 0.75, 0.25, TRIP + 2, MANY), (0, 0.5, -0.1, TRIP, MANY)),
    (False, (-1, 0, -0.1, DOUBLE, MANY), (0, 1, -0.1, DOUBLE, MANY)),
    (False, (-0.25, 0.5, 0, FALLING, 6), SAME),
    (False, (-0.25, 1.5, -5, TRIP + 1, 2), (0.25, 1.5, 1, TRIP + 1, 2)),
    (False, (-0.25, 0.5, -0.5, MOST, 6), (-0.25, 0.5, -5, TRIP, 6)),
    (True, (-0.5, 0.01, -0.5, MOST, MANY), (0.5, 0.75, -0.5, MOST, MANY)),
    (False, (-0.25, -0.5, -0.1, MOST, MANY), (-0.25, 0.5, -0.1, DOUBLE, MANY)),
    (False, (0, 0.75, 0.25, MOST, MANY), SAME),
    (True, (0.25, 0.5, 0, LONG, MANY), (0.25, 0.5, 0, TRIP + 2, MANY)),
    (False, (-0.25, 0, -0.1, SLANTED, MANY), (-0.25, 0.5, 0, SLANTED, MANY)),
    (False, (-0.5, 0.75, 0.25, LONG, MANY), (-0.5, 0.75, -0.5, DOUBLE, MANY)),
    (False, (0.25, 3, 0, TRIP, 4), (-0.5, 1, 0, TRIP, 4)),
    (False, (-0.25, 0, -0.1, MOST, MANY), (0, 1, -0.1, MOST, MANY)),
    (False, (-0.25, 0.5, 0, TRIP, 6), (-0.25, 0.5, 0, TRIP, MANY)),
    (False, (-0.5, 0.75, -5, TRIP, MANY), SAME),
    (True, (0, 0.5, 0, MOST, MANY), (0.5, 0.5, 0, MOST, MANY)),
    (False, (0, 1, 0, MOST, MANY), SAME),
)
"""Those that together leave the smallest mean gap to the lower bound over 330 random problems (p 2 to 16, m 2 to 8 p,
links alike, one slow, or all different, limits from p / 2 to none, some with memory given back at B or with transfer
times), taken one by one out of 1400 drawn at random; none of the published problems was among them. Drawn anew by
benchmarks/_cross_domain_rules.py."""


def generate(problem: ScheduleProblem, *, rules: Sequence[Rule] = RULES) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Operations of every rank (3 m p, 3), and where each rank starts, (p + 1,). The first of equals is kept.

    ``rules``: those to try; the first few of ``RULES`` are the best of their number. Raises ``InfeasibleError`` when a
    rank's limit holds no micro-batch.
    """
    chosen = list(rules) if problem.micro_batches <= MANY_WAVES * problem.ranks else _likely(problem, rules)
    player, shape = Player(problem), Shape(problem.ranks, problem.micro_batches)
    best, span, at = None, np.inf, 0
    numbers = player.numbers(chosen)
    while (at := player.next_below(numbers, at, span * (1 - 1e-9))[0]) < len(chosen):
        order, start = player.rows(mirrored=chosen[at][0])
        found = makespan(problem, Schedule("", shape, False, order, start))
        if found < span * (1 - 1e-9):
            best, span = (order, start), found
        at += 1
    assert best is not None, "no rule came to its end"
    return best


def _likely(problem: ScheduleProblem, rules: Sequence[Rule]) -> list[Rule]:
    """The rules that do best with fewer micro-batches: what fills and drains is the same, the rest repeats itself."""
    spans = Player(replace(problem, micro_batches=FEW_WAVES * problem.ranks)).spans(rules, LIKELY)
    return [rules[at] for at in np.argsort(spans, kind="stable")[:LIKELY]]  # equals in their own order


def policies(problem: ScheduleProblem, count: int) -> tuple[tuple[bool, Floats], ...]:
    """Where a search may start: the ``count`` rules with the shortest plays, as (backwards in time, policy (5, p)).

    Raises as ``generate`` does.
    """
    player = Player(problem)
    ranked = np.argsort(player.spans(RULES, len(RULES)), kind="stable")[:count]  # equals in the order of ``RULES``
    found = player.numbers([RULES[at] for at in ranked])
    return tuple((bool(mirrored), policy) for mirrored, policy in zip(*found, strict=True))


class Player:
    """Plays rules on one problem, forwards and backwards in time."""

    def __init__(self, problem: ScheduleProblem) -> None:
        p, m = problem.ranks, problem.micro_batches
        self._pipes = pipe(problem, mirrored=False), pipe(problem, mirrored=True)
        _check_room(problem, self._pipes[0])
        self._ahead = [_ahead(each) for each in self._pipes]  # (n, p) each
        self._behind = [_behind_slowest(each) for each in self._pipes]  # (p,) each: behind the slowest link
        self._board, self._kinds = board(self._pipes[0]), np.zeros((p, 3 * m), np.int8)

    def numbers(self, rules: Sequence[Rule]) -> Policies:
        """Whether each rule plays backwards in time, (n,), and the numbers of every rank, (n, 5, p)."""
        mirrored, numbers = _numbers(tuple(rules))
        way = mirrored.astype(np.int64)
        found = np.where(np.stack(self._behind)[way][:, None], numbers[:, 1], numbers[:, 0])
        duration = np.stack([each.duration[[0, 2, 2]] for each in self._pipes])
        most = np.stack([most_fit(each) for each in self._pipes])
        found[:, :3] *= duration[way]
        ahead = found[:, 3].astype(np.int64)
        found[:, 3] = np.stack(self._ahead)[way[:, None], ahead, np.arange(ahead.shape[1])]
        found[:, 4] = np.minimum(most[way], found[:, 4])
        return mirrored, found

    def next_below(self, numbers: Policies, first: int, give_up: float) -> tuple[int, float]:
        """Of rules from the ``first`` on, the first whose makespan is not above ``give_up``, and that; n, inf: none."""
        at, span = next_below(self._pipes, self._board, *numbers, first, self._kinds, give_up)
        return int(at), float(span)

    def spans(self, rules: Sequence[Rule], wanted: int) -> Floats:
        """The makespans as planned, (n,); inf where it is not among the ``wanted`` shortest of those up to it."""
        numbers, spans, at = self.numbers(rules), np.full(len(rules), np.inf), 0
        wanted = min(wanted, len(rules))
        while at < len(rules):
            longest = np.partition(spans, wanted - 1)[wanted - 1]
            at, span = self.next_below(numbers, at, longest * (1 + 1e-9))
            spans[at : at + 1] = span
            at += 1
        return spans

    def rows(self, *, mirrored: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The orders of the last play that came to its end."""
        order, start = rows_of(self._pipes[mirrored], self._kinds)
        order.setflags(write=False)
        return order, start


@kernel
def next_below(pipes, board, mirrored, policies, first, kinds, give_up):  # type: ignore[no-untyped-def]
    """See ``Player``; ``kinds`` (p, 3 m) is written."""
    for at in range(first, len(policies)):
        pipe = pipes[1 if mirrored[at] else 0]
        span = play_policy(pipe, board, policies[at], kinds, give_up)
        if span < np.inf:
            return at, span
    return len(policies), np.inf


def _check_room(problem: ScheduleProblem, forwards: Pipe) -> None:
    for rank in np.flatnonzero(most_fit(forwards) < 1)[:1]:
        need = problem.tables.taken
        raise InfeasibleError(
            [
                f"one micro-batch keeps {need[rank]:g} on rank {rank}, the limit is {problem.limit[rank]:g}. "
                f"Nearest way out: --memory {need.max():g}."
            ]
        )


def _ahead(pipe_: Pipe) -> Floats:
    """Forwards in front of the backwards for each choice, (n, p)."""
    most, behind = most_fit(pipe_), len(pipe_.length) - np.arange(len(pipe_.length))
    down, up = _ways(pipe_)
    hop = pipe_.duration[0, 1:] + pipe_.duration[1, 1:] + down[:-1] + up[1:]  # there, F and B, and back again
    trip = pipe_.duration[0] + pipe_.duration[1] + np.append(np.cumsum(hop[::-1])[::-1], 0.0)
    periods = trip / pipe_.duration.sum(axis=0).max()  # that pass while a micro-batch is away
    trips = np.ceil(periods) + np.arange(3)[:, None]
    slanted = most - np.minimum(behind.max() - behind, most - 1)
    found = np.vstack([most, behind, 2 * behind - 1, slanted, np.ceil(1.5 * periods) + 1, trips])
    return np.asarray(np.maximum(1.0, np.minimum(most, found)))


def _ways(pipe_: Pipe) -> Floats:
    """Time of each message down and up, (2, p)."""
    return np.asarray(pipe_.delay + pipe_.sending)


def _behind_slowest(pipe_: Pipe) -> NDArray[np.bool_]:
    """Ranks behind the slowest link, (p,); of equally slow ones the one nearest the middle."""
    down, up = _ways(pipe_)
    there_and_back = down[:-1] + up[1:]
    ranks = np.arange(len(pipe_.length))
    slowest = np.flatnonzero(there_and_back >= there_and_back.max(initial=0.0) * (1 - 1e-9))
    if len(slowest) == 0:
        return ranks > 0
    return np.asarray(ranks > slowest[np.argmin(np.abs(slowest - (len(ranks) // 2 - 1)))])


@lru_cache(maxsize=64)
def _numbers(rules: tuple[Rule, ...]) -> tuple[NDArray[np.bool_], Floats]:
    """Whether each plays backwards in time, (n,), and its numbers before and behind the slowest link, (n, 2, 5, 1)."""
    numbers = [[before, behind or before] for _, before, behind in rules]
    return np.array([each[0] for each in rules]), np.array(numbers, dtype=np.float64)[..., None]
