"""One epoch of a run is asked about: what it is shown, what its method answers, what is told of that.

Whoever plays a trace and whoever serves a run ask alike; they differ in who carries an answer out, and in who says how
far a move is: the rules of ``network.rules.move``, or the run itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time

from hippo.decide.reasons import Reason
from hippo.dynamics.forecast import Forecast, Telemetry
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import STILL
from hippo.network.rules.trigger import Seen, Thresholds, due, seen
from hippo.network.rules.view import Action, How, Method, Replanning, View
from hippo.network.why.explain import explain
from hippo.network.why.story import KEPT, StoryEntry, kind_of

Weights = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class Terms:
    """What a run is judged by and told, the same for every method. ``usd_per_token``: what a token is worth; 0 (GPUs
    without a rent): egress does not count."""

    usd_per_token: float
    weights: Weights = (1.0, 0.0, 0.0)  # preferences: time, utilisation, egress cost


@dataclass(frozen=True)
class RunStands:
    """How a run stands when an epoch begins."""

    epochs_left: int  # this one included
    running: int = -1  # configuration; -1: nothing runs yet
    target: int = -1  # of the move under way
    phase: int = STILL
    arrived: float = 0.0  # share of the move's bytes


@dataclass(frozen=True, eq=False)
class EpochAnswer:
    """What a method answered to a view."""

    view: View
    action: Action
    decision_s: float  # CPU seconds until the answer was there, re-planning that it waited for included
    replanning_s: float  # CPU seconds of thinking about this view


def view_of(
    cache: PlanCache, terms: Terms, epoch_s: float, told: Telemetry, forecast: Forecast, stands: RunStands
) -> View:
    """What a method sees when an epoch begins: the last one that is told."""
    return View(
        cache=cache,
        epoch=len(told.fresh) - 1,
        epoch_s=epoch_s,
        epochs_left=stands.epochs_left,
        telemetry=told,
        forecast=forecast,
        running=stands.running,
        target=stands.target,
        phase=stands.phase,
        arrived=stands.arrived,
        restart_s=cache.problem.rules.prices.stop_s,
        usd_per_token=terms.usd_per_token,
        weights=terms.weights,
    )


def answered(method: Method, view: View) -> EpochAnswer:
    """The answer that counts: one that is given again has waited for the replanned. Where nothing runs yet the method
    says where it begins (``Method.begin``)."""
    first, began_s = view.running < 0, process_time()
    action = Action(How.SWITCH, method.begin(view)) if first else method.decide(view)
    decided_s = process_time()
    again = isinstance(method, Replanning) and method.replan(view)
    thought_s = process_time()
    if not again or first:
        return EpochAnswer(view, action, decided_s - began_s, thought_s - decided_s)
    action = method.decide(view)
    return EpochAnswer(view, action, process_time() - began_s, thought_s - decided_s)


class AnswerTold:
    """What is told of a method's answers, one after another."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self._last: Seen | None = None  # what the next is compared with

    def of(self, answer: EpochAnswer) -> StoryEntry | None:
        """The decision of an epoch, if there is one to tell."""
        view, action, last = answer.view, answer.action, self._last
        happened = due(view, last, Thresholds())
        kind = kind_of(view, action)
        if not happened and kind == KEPT:
            return None
        only_long = kind == KEPT and not any(
            (happened.links, happened.loads, happened.lost, happened.back, happened.arrived, happened.behind)
        )
        own = getattr(self._method, "reasons", None)
        spoken: tuple[Reason, ...] = () if own is None else own(view)
        self._last = seen(view)
        if only_long and not spoken:
            return None
        reasons = explain(view, action, last=last, told=spoken)
        if kind == KEPT and not reasons:  # a move that has arrived was told when it began
            return None
        after = action.target if action.target >= 0 else view.running
        time_s = view.epoch * view.epoch_s
        return StoryEntry(view.epoch, time_s, kind, view.running, after, reasons, answer.decision_s)
