"""What each choice is worth: plays by best choices, and at some decisions of each what every other choice led to.

A branch is the play as it stands, one other choice, and best choices to the end, on the same draws: the difference is
what that choice alone cost under those draws, with no luck in it. Over draws its mean is the advantage of the choice.

Letters: n draws, N decisions of all plays, p ranks, m micro-batches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.dispatch.base import Base
from hippo.dispatch.features import CHOICES, FEATURES
from hippo.dispatch.network import DispatchWeights
from hippo.dispatch.noise.fluctuation import Factors
from hippo.dispatch.play import act, best_choice, following, room
from hippo.dispatch.state import begin, new_state
from hippo.engine.events import makespan, vary
from hippo.schedule.problem import ScheduleProblem


class Branches(NamedTuple):
    """Decisions that were looked into, of all plays, in the order of time within each."""

    seen: NDArray[np.float32]  # (N, FEATURES)
    mask: NDArray[np.bool_]  # (N, 4)
    says: NDArray[np.int64]  # (N,) what the base would have done
    scores: NDArray[np.float32]  # (N, 4) of the policy; what is not allowed: anything
    makespans: NDArray[np.float64]  # (N, 4) that each choice led to; inf: not allowed
    reference: NDArray[np.float64]  # (N,) of the play, by best choices


def branch_out(
    problem: ScheduleProblem,
    base: Base,
    weights: DispatchWeights,
    factors: Factors,
    *,
    decisions: int,
    rng: np.random.Generator,
) -> Branches:
    """One play of each draw, of which about ``decisions`` are looked into; generators in the same state look into the
    same ones."""
    rows = room_for(len(factors.ranks) * 2 * decisions)
    state = new_state(problem)
    branch = new_state(problem)._replace(pipe=state.pipe)
    total = _branch_out(state, branch, base, weights, *factors, decisions, rng, rows)
    return Branches(*(each[:total] for each in rows))  # type: ignore[arg-type]


def room_for(count: int) -> Branches:
    """Room for so many decisions."""
    return Branches(
        np.empty((count, FEATURES), np.float32),
        np.empty((count, CHOICES), np.bool_),
        np.empty(count, np.int64),
        np.empty((count, CHOICES), np.float32),
        np.full((count, CHOICES), np.inf),
        np.empty(count),
    )


@kernel
def _branch_out(state, branch, base, weights, operations, messages, ranks, decisions, rng, rows):  # type: ignore[no-untyped-def]
    """Writes the decisions; their count. A play is played twice, as how many it has is not known before."""
    asked, again, at = room(len(weights.first_bias)), room(len(weights.first_bias)), 0
    for number in range(len(ranks)):
        vary(state.pipe, operations[number], messages[number], ranks[number])
        begin(state)
        usual, count = _to_the_end(state, base, weights, asked)
        begin(state)
        end = min(at + 2 * decisions, len(rows.says))
        while True:
            rank = following(state, base, asked)
            if rank < 0:
                break
            now, until = asked.until[0], asked.until[1]
            best = best_choice(weights, asked)
            if at < end and rng.random() * count < decisions:
                rows.seen[at], rows.mask[at], rows.scores[at] = asked.seen, asked.mask, asked.scores
                rows.says[at], rows.reference[at], rows.makespans[at, best] = asked.says[0], usual, usual
                for choice in range(CHOICES):
                    if asked.mask[choice] and choice != best:
                        _stand_where(branch, state)
                        act(branch, base, rank, now, choice, until)
                        rows.makespans[at, choice], _ = _to_the_end(branch, base, weights, again)
                at += 1
            act(state, base, rank, now, best, until)
    return at


@kernel(lean=True)
def _to_the_end(state, base, weights, asked):  # type: ignore[no-untyped-def]
    """The makespan by best choices from where a play stands, and how many there were."""
    count = 0
    while True:
        rank = following(state, base, asked)
        if rank < 0:
            return makespan(state.pipe, state.board), count
        act(state, base, rank, asked.until[0], best_choice(weights, asked), asked.until[1])
        count += 1


@kernel
def _stand_where(branch, state):  # type: ignore[no-untyped-def]
    """A branch begins where a play of the same pipe stands."""
    to, of = branch.board, state.board
    to.free[:], to.link_free[:], to.arrived[:] = of.free, of.link_free, of.arrived
    to.begun[:], to.wake[:], to.live[:], to.left[:] = of.begun, of.wake, of.live, of.left
    to.heard[:], to.expected[:] = of.heard, of.expected
    branch.told[:], branch.seen[:], branch.history[:] = state.told, state.seen, state.history
    branch.waiting[:], branch.left[:] = state.waiting, state.left
