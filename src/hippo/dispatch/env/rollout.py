"""Plays for learning, whole and compiled: choices are drawn from the policy, and every decision is written down.

Every draw is played once by the policy's best choices (the reference) and several times with some choices drawn, so
that what these were worth is told apart from luck with the draws.

Letters: n draws, R plays of each, N decisions of all plays, p ranks, m micro-batches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.dispatch.base import Base
from hippo.dispatch.env.reward import LAGS, lags
from hippo.dispatch.features import CHOICES, FEATURES
from hippo.dispatch.network import DispatchWeights, scores
from hippo.dispatch.noise.fluctuation import Factors
from hippo.dispatch.play import act, best_choice, following, play, room
from hippo.dispatch.state import begin, new_state
from hippo.engine.events import makespan, vary
from hippo.schedule.problem import ScheduleProblem

DECISIONS = 4
"""For which there is room at first, in a play of p ranks and m micro-batches over p m: WAIT is rare."""


class DispatchDecisions(NamedTuple):
    """Those that were drawn from the policy, of all plays, in the order of time within each."""

    seen: NDArray[np.float32]  # (N, FEATURES)
    lags: NDArray[np.float32]  # (N, LAGS) what is lost by then, see ``reward.lags``
    mask: NDArray[np.bool_]  # (N, 4)
    says: NDArray[np.int64]  # (N,) what the base would have done
    choice: NDArray[np.int64]  # (N,)
    log_prob: NDArray[np.float32]  # (N,)


class DispatchRollout(NamedTuple):
    """Plays of one problem."""

    decisions: DispatchDecisions
    ends: NDArray[np.int64]  # (n R,) where the decisions of each play end
    makespans: NDArray[np.float64]  # (n, R)
    reference: NDArray[np.float64]  # (n,) of the policy's best choices


def roll_out(
    problem: ScheduleProblem,
    base: Base,
    weights: DispatchWeights,
    factors: Factors,
    *,
    plays: int,
    share: float,
    rng: np.random.Generator,
) -> DispatchRollout:
    """``plays`` plays of each draw; generators in the same state give the same choices.

    ``share``: of the decisions that are drawn from the policy; in all others the best choice is taken.
    """
    count = len(factors.ranks) * plays
    most = DECISIONS * problem.ranks * problem.micro_batches
    while True:
        rows = rows_of(count * most)
        ends, makespans = np.empty(count, np.int64), np.empty((len(factors.ranks), plays))
        reference = np.empty(len(factors.ranks))
        state = new_state(problem, np.empty((3, problem.ranks, problem.micro_batches)))
        total = _roll_out(state, base, weights, *factors, plays, share, rng, rows, ends, makespans, reference)
        if total >= 0:
            part = (each[:total] for each in rows)
            return DispatchRollout(DispatchDecisions(*part), ends, makespans, reference)  # type: ignore[arg-type]
        most *= 2


def rows_of(count: int) -> DispatchDecisions:
    """Room for so many decisions."""
    return DispatchDecisions(
        np.empty((count, FEATURES), np.float32),
        np.empty((count, LAGS), np.float32),
        np.empty((count, CHOICES), np.bool_),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.float32),
    )


@kernel
def _roll_out(state, base, weights, operations, messages, ranks, plays, share, rng, rows, ends, makespans, reference):  # type: ignore[no-untyped-def]
    """Writes plays and decisions; the count of decisions, -1 where there is too little room for them."""
    asked, at = room(len(weights.first_bias)), 0
    for number in range(len(reference)):
        vary(state.pipe, operations[number], messages[number], ranks[number])
        reference[number] = play(state, base, weights, asked)
        usual = state.written.starts.copy()
        for again in range(plays):
            begin(state)
            while True:
                rank = following(state, base, asked)
                if rank < 0:
                    break
                now, until = asked.until[0], asked.until[1]
                if rng.random() >= share:
                    act(state, base, rank, now, best_choice(weights, asked), until)
                    continue
                if at == len(rows.choice):
                    return -1
                lags(state, usual, reference[number], now, rows.lags[at])
                choice, rows.log_prob[at] = drawn_choice(weights, asked, rng)
                rows.seen[at], rows.mask[at], rows.says[at] = asked.seen, asked.mask, asked.says[0]
                rows.choice[at], at = choice, at + 1
                act(state, base, rank, now, choice, until)
            makespans[number, again], ends[number * plays + again] = makespan(state.pipe, state.board), at
    return at


@kernel(lean=True)
def drawn_choice(weights, asked, rng):  # type: ignore[no-untyped-def]
    """An allowed choice, drawn by the softmax of the scores, and its log probability."""
    scores(weights, asked.seen, asked.says[0], asked.one, asked.two, asked.scores)
    most = -np.inf
    for choice in range(CHOICES):
        if asked.mask[choice]:
            most = max(most, asked.scores[choice])
    total = 0.0
    for choice in range(CHOICES):
        if asked.mask[choice]:
            total += np.exp(asked.scores[choice] - most)
    left, found = rng.random() * total, -1
    for choice in range(CHOICES):
        if asked.mask[choice] and (left > 0 or found < 0):
            left -= np.exp(asked.scores[choice] - most)
            found = choice
    return found, asked.scores[found] - most - np.log(total)
