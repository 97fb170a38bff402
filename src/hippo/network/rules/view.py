"""What a method sees at a decision, and what it may answer. One decision per epoch; nobody sees the future.

Letters: H horizons of the forecast, E links, K domains, L epochs seen so far (the last is the one that begins now).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hippo.dynamics.forecast import Forecast, Telemetry
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import STILL

Floats = NDArray[np.float64]


class How(str, Enum):
    """What to do now."""

    KEEP = "keep"  # go on as it is, a move under way included
    SWITCH = "switch"  # pull live levers: another configuration of the same place, at once
    STOP = "stop"  # stop training, copy weights and optimizer state if they move, go on with the target
    BACKGROUND = "background"  # copy over idle capacity while training goes on, then change over
    CANCEL = "cancel"  # give up the move under way


@dataclass(frozen=True)
class Action:
    """``target``: index of a configuration in the cache; -1 where ``how`` needs none."""

    how: How = How.KEEP
    target: int = -1


def levers_alone(cache: PlanCache, running: int, action: Action) -> bool:
    """Whether an answer to a run of ``running`` changes levers and moves no weights, live or by a stop."""
    if action.how in (How.STOP, How.BACKGROUND):
        return running >= 0 and cache.location(running) == cache.location(action.target)
    return action.how is How.SWITCH


@dataclass(frozen=True, eq=False)
class View:
    """Everything a method may look at."""

    cache: PlanCache
    epoch: int
    epoch_s: float
    epochs_left: int  # this one included
    telemetry: Telemetry
    forecast: Forecast
    running: int = -1  # configuration; -1: nothing runs yet, the answer's target is where the run begins
    target: int = -1  # of the move under way
    phase: int = STILL  # hippo.network.rules.move
    arrived: float = 0.0  # share of the move's bytes that has arrived
    restart_s: float = 30.0
    usd_per_token: float = 0.0  # what a token is worth: egress in USD over it counts as tokens lost
    weights: tuple[float, float, float] = (1.0, 0.0, 0.0)  # preferences: time, utilisation, egress cost


class Method(Protocol):
    """A way to keep the plan right. ``begin`` is asked once, before the first epoch; it may add plans to the cache."""

    name: str

    def begin(self, view: View) -> int:
        """The configuration the run begins with, for free."""
        ...

    def decide(self, view: View) -> Action:
        """What to do in this epoch."""
        ...


@runtime_checkable
class Replanning(Protocol):
    """A method that uses the time that an epoch has: plans made anew, levers, tables for the next decision."""

    def replan(self, view: View) -> bool:
        """Asked once this view has been answered; may add to the cache. True: what was found may change the answer, so
        it is asked for again; the first one is forgotten."""
        ...
