"""Learned dispatch of one problem: the order that ranks run, and what a decision costs.

A free rank with a choice asks the network which of F, B and W to start, or whether to wait for a message that is
announced (``features`` says what it sees, ``base`` what an untrained network does).
"""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.dispatch.base import UNKNOWN, Base, base_of
from hippo.dispatch.guard import POLICY, settled, why_base
from hippo.dispatch.network import DispatchWeights, follower, shipped
from hippo.dispatch.play import act, best_choice, following, play_all, room
from hippo.dispatch.state import begin, new_state
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.schedule import Schedule, Shape

Draws = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]
"""Factors of one play: of operations (3 p m,), of messages (2 p m,), of ranks (p,); see ``fluctuation.Factors``."""


@dataclass(frozen=True, eq=False)
class Made:
    """An order, and who made it."""

    schedule: Schedule
    followed: str  # ``guard.POLICY``, or the name of the base
    why: str  # the base was followed, as a sentence without its end; empty where the policy was


def made_by_policy(
    problem: ScheduleProblem, weights: DispatchWeights | None = None, *, level: float = UNKNOWN, name: str = "learned"
) -> Made:
    """The order in which ranks run under a policy (the shipped one), when all takes as long as the problem says.

    Where the base hint is shorter, or the policy is not trusted, its order: what moves nothing holds no surprise for
    it. ``level``: as of ``base_of``, of the steps for which the order is made.

    Raises
    ------
    InputError
        The placement is not plain.
    InfeasibleError
        One micro-batch does not fit into the memory of a rank.
    """
    p, m = problem.ranks, problem.micro_batches
    weights = shipped() if weights is None else weights
    chosen = settled(problem, weights, level)
    tried, base = (chosen.weights, follower()), chosen.base
    starts = np.empty((len(tried), 3, p, m))
    draws = nothing_moves(problem)
    ends = [one_play(problem, base, each, draws, start) for each, start in zip(tried, starts, strict=True)]
    best = int(np.argmin(ends))
    schedule = _in_order(starts[best], Shape(p, m), name)
    if chosen.followed != POLICY:
        return Made(schedule, chosen.followed, why_base(chosen.followed))
    if best == 0:
        return Made(schedule, POLICY, "")
    who = chosen.name
    return Made(schedule, who, f"where times do not move the policy's base, {who}, is shorter: it is followed")


def one_play(
    problem: ScheduleProblem, base: Base, weights: DispatchWeights, draws: Draws, start: NDArray[np.float64]
) -> float:
    """The makespan of one play; writes the starts (3, p, m) where there is room for them."""
    found = np.empty(1)
    play_all(new_state(problem, start), base, weights, *(each[None] for each in draws), found)
    return float(found[0])


def nothing_moves(problem: ScheduleProblem) -> Draws:
    """Every factor is 1."""
    count = problem.ranks * problem.micro_batches
    return np.ones(3 * count, np.float32), np.ones(2 * count, np.float32), np.ones(problem.ranks, np.float32)


def decision_seconds(problem: ScheduleProblem, weights: DispatchWeights | None = None, *, repeats: int = 200) -> float:
    """Mean CPU time of one decision: to look, to ask the network, to take the best.

    The decisions of a play of the problem without fluctuation, each repeated, first untimed once to compile.
    """
    weights, base = shipped() if weights is None else weights, base_of(problem)
    state = new_state(problem)
    play_all(state, base, weights, *(each[None] for each in nothing_moves(problem)), np.empty(1))
    _repeat(state, base, weights, 0)
    began = process_time()
    _repeat(state, base, weights, 0)
    middle = process_time()
    decisions = int(_repeat(state, base, weights, repeats))
    return (process_time() - middle - (middle - began)) / max(1, decisions * repeats)


@kernel
def _repeat(state, base, weights, repeats):  # type: ignore[no-untyped-def]
    """One play that takes each decision anew so many times; how many there were."""
    asked, decisions = room(len(weights.first_bias)), 0
    begin(state)
    while True:
        rank = following(state, base, asked)
        if rank < 0:
            return decisions
        for _ in range(repeats):
            following(state, base, asked)  # the same rank again: nothing has happened
            best_choice(weights, asked)
        act(state, base, rank, asked.until[0], best_choice(weights, asked), asked.until[1])
        decisions += 1


def _in_order(start: NDArray[np.float64], shape: Shape, name: str) -> Schedule:
    """The schedule whose ranks run their operations in the order of their start (3, p, m)."""
    p, m = shape.stages, shape.micro_batches
    rows = []
    for rank in range(p):
        order = np.lexsort((np.repeat(np.arange(3), m), start[:, rank].ravel()))
        rows.append(np.stack([order // m, np.zeros_like(order), order % m], axis=1))
    found, starts = np.concatenate(rows), 3 * m * np.arange(p + 1)
    for array in (found, starts):
        array.setflags(write=False)
    return Schedule(name, shape, False, found, starts)
