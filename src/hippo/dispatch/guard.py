"""On which base a policy runs, and whether to trust it at all: trial plays, before the step.

A policy learned on many pipelines is not the best for each of them. Where a hint is within a hair of what knowing the
future could reach, every other choice can only lose. So the policy is played on every order with every patience, a few
times, then on the best of these pairs many times, and so is every order as a hint of its own with the patience that
suits it (``base.pairs_of``); all on the same draws, with the standard deviation of the steps before (``base.LEVELS``).
What was quickest is followed, the policy where it is as quick as the best hint.

A policy that does not ship has learned further on the base of the one that does, so it is tried on that in any case,
and four times as often: its bases lie closer together than chance. It is tried against the one that ships, too, which
is followed where that was quickest.

Letters: n plays, p ranks, m micro-batches.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.dispatch.base import PATIENCES, UNKNOWN, Base, base_from, nearest_level, pair_name, pairs_of
from hippo.dispatch.network import DispatchWeights, follower, shapes, shipped
from hippo.dispatch.play import play_all
from hippo.dispatch.state import new_state
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.schedule import Schedule

POLICY, SHIPPED = "policy", "the policy that ships"
"""What is followed where trial plays did not find the policy slower; where they found another one slower than it."""

_PLAYS, _LEAST_PLAYS, _OPERATIONS = 64, 8, 50_000  # so many operations of each are played at most
_TRIED = 4  # pairs that are played often

Pair = tuple[Schedule, float]
"""An order, and its patience as a hint."""


class Settled(NamedTuple):
    """What runs a problem."""

    base: Base
    name: str  # of the base
    weights: DispatchWeights  # the policy's, or those of a network that follows the base
    followed: str  # ``POLICY``, ``SHIPPED`` or the name of the base
    pair: Pair  # that makes the base


def settled(problem: ScheduleProblem, weights: DispatchWeights, level: float = UNKNOWN) -> Settled:
    """What was quickest in trial plays; remembered. ``level`` and errors as of ``base.base_of``."""
    return _settled(problem, _content(weights), nearest_level(level))


@lru_cache(maxsize=256)
def _settled(problem: ScheduleProblem, content: tuple[bytes, ...], level: float) -> Settled:
    ours = _content(shipped())
    given = None if content == ours else _settled(problem, ours, level)
    weights, pairs = _weights(content), pairs_of(problem, level)
    factors = _draws(problem, level, times=1 if given is None else 4)
    usual = [_trial(problem, pair, follower(), factors) for pair in pairs]
    all_pairs = [(hint, patience) for hint, _ in pairs for patience in PATIENCES]
    few = factors[: max(_LEAST_PLAYS // 2, len(_draws(problem, level)) // 8)]
    rough = np.argsort([_trial(problem, pair, weights, few) for pair in all_pairs], kind="stable")
    best = [all_pairs[index] for index in rough[:_TRIED]]
    best += [] if given is None or given.pair in best else [given.pair]
    found = [_trial(problem, pair, weights, factors) for pair in best]
    if given is not None and given.followed == POLICY:
        theirs = _trial(problem, given.pair, given.weights, factors)
        if theirs < min(*found, *usual):
            return given._replace(followed=SHIPPED)
    trusts = min(found) <= min(usual)
    pair = best[int(np.argmin(found))] if trusts else pairs[int(np.argmin(usual))]
    base, name = base_from(problem, *pair), pair_name(*pair)
    return Settled(base, name, weights if trusts else follower(), POLICY if trusts else name, pair)


def followed(problem: ScheduleProblem, weights: DispatchWeights | None = None, level: float = UNKNOWN) -> str:
    """``POLICY``, or what is followed where the policy (the shipped one) was slower in trial plays: ``SHIPPED``, or the
    name of the base."""
    return settled(problem, shipped() if weights is None else weights, level).followed


def why_base(name: str) -> str:
    """Why a base of that name, or ``SHIPPED``, is followed and not the policy, as a sentence without its end."""
    if name == SHIPPED:
        return f"the policy was slower in trial plays than {SHIPPED}, which is followed"
    return f"the policy was slower in trial plays: its base, {name}, is followed"


def _content(weights: DispatchWeights) -> tuple[bytes, ...]:
    return tuple(each.tobytes() for each in weights)


def _weights(content: tuple[bytes, ...]) -> DispatchWeights:
    flat = [np.frombuffer(each, np.float32).copy() for each in content]
    return DispatchWeights(*(each.reshape(shape) for each, shape in zip(flat, shapes(len(flat[1])), strict=True)))


def _draws(problem: ScheduleProblem, level: float, *, times: int = 1) -> NDArray[np.float32]:
    """(n, 2, 3 p m) of operations, and of what they send; they depend on the size of the problem alone."""
    count = 3 * problem.ranks * problem.micro_batches
    plays = times * int(np.clip(_OPERATIONS // count, _LEAST_PLAYS, _PLAYS)) if level else 1
    rng = np.random.default_rng(1)
    return np.maximum(1 + level * rng.standard_normal((plays, 2, count)), 0.05).astype(np.float32)


def _trial(problem: ScheduleProblem, pair: Pair, weights: DispatchWeights, factors: NDArray[np.float32]) -> float:
    """Mean makespan on a base."""
    base, found = base_from(problem, *pair), np.empty(len(factors))
    draws = factors[:, 0], factors[:, 1], np.ones((len(factors), problem.ranks), np.float32)
    play_all(new_state(problem), base, weights, *(np.ascontiguousarray(each) for each in draws), found)
    return float(found.mean())
