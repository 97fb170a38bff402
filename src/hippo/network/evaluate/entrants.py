"""Who competes in an evaluation: names with what makes them, so that any process can make its own.

torch is not imported: policies are served by numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any

from hippo.decide.best_order import LIMIT_S, with_best_order
from hippo.decide.choose import judged
from hippo.network.methods.in_motion import pulled
from hippo.network.methods.receding_horizon import RecedingHorizon
from hippo.network.plans.candidates import best_under
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.plans.replan import Replanner
from hippo.network.rules.view import Action, Method, View
from hippo.network.worlds.judge import Comparison, Scenario, judge
from hippo.network.worlds.play import MethodRun, foresee, play, steps
from hippo.plan.plan import Plan
from hippo.planners.answers import answer_of
from hippo.planners.base import Planner, Progress, Stop
from hippo.problem.problem import Problem

WARMED = 3
"""Epochs that a method plays beforehand, so that no decision pays for loading compiled code."""


@dataclass(frozen=True)
class Entrant:
    """A method by its name; ``make`` gives a fresh one and can be sent to another process."""

    name: str
    make: Callable[[], Method]
    forecast: str | None = None  # told this one, whatever the others are told


class Held:
    """A plan that is given, kept to the end: what a planner's answer is worth while the network moves. It begins as
    everyone may: with the levers that help it at the start, compressed where that is allowed and better."""

    def __init__(self, name: str, plan: Plan) -> None:
        self.name, self.plan = name, plan

    def begin(self, view: View) -> int:
        """The plan."""
        able = pulled(view, self.plan, self.name)
        assert able, f"the plan of {self.name} cannot run"
        now = view.forecast
        state = now.bandwidth_bytes_per_s[0], now.latency_s[0], now.compute[0]
        best = best_under(view.cache, *state, among=able)
        return best if best >= 0 else able[0]

    def decide(self, view: View) -> Action:
        """Keep."""
        return Action()


class StaticLevers:
    """The best start under the forecast with its levers pulled, as ``receding_horizon`` begins; kept to the end. What
    hindsight does more than this is what there is to gain by adapting."""

    name = "static_levers"

    def begin(self, view: View) -> int:
        """Where ``receding_horizon`` begins."""
        return RecedingHorizon().begin(view)

    def decide(self, view: View) -> Action:
        """Keep."""
        return Action()


def hi_ppo(policy: str | None = None, **settings: Any) -> Method:
    """The coordinator with the policy of a file (None: the one that ships); its deadlines count CPU seconds, so that
    a busy machine changes no result. ``settings``: fields of ``coordinator.CoordinatorSettings``."""
    from hippo.network.hi_ppo.coordinator import CoordinatorSettings, HiPpo

    chosen = None if policy is None else _policy(policy)
    return HiPpo(chosen, settings=CoordinatorSettings(**settings), clock=process_time)


def named(name: str, policy: str | None = None, **settings: Any) -> Method:
    """The same under another name: a variant of it."""
    found = hi_ppo(policy, **settings)
    found.name = name
    return found


@cache
def _policy(file: str) -> Any:
    from hippo.network.hi_ppo.serving import Policy

    return Policy.load(Path(file))


def held(problem: Problem, planners: Iterable[Planner], stop: Stop, *, seed: int = 0) -> list[Entrant]:
    """Planners that find a plan for the network as it is at rest, each to be kept to the end, ordered as the answer of
    ``hippo plan`` is; those without a plan, or whose plan breaks the problem's rules (local SGD where it is not
    allowed), are left out."""
    asked = [judged(problem, answer_of(each, problem, stop, seed=seed)) for each in planners]
    found = [(each.planner, with_best_order(each, LIMIT_S, seed).plan) for each in asked]
    cache = PlanCache(problem)
    able = [(name, plan) for name, plan in found if plan is not None and cache.add(plan, origin=name) is not None]
    return [Entrant(name, partial(Held, name, plan)) for name, plan in able]


def compete(
    setting: Scenario, entrants: Iterable[Entrant], *, timed: bool = True, watch: Progress | None = None
) -> Comparison:
    """Everyone plays the world; hindsight judges. ``timed`` False: what one plays is remembered for the others, which
    is quicker but says nothing about the time of decisions."""
    chosen, runs = list(entrants), []
    with nullcontext() if timed else Replanner.of(setting.cache.problem).remembering():
        for done, entrant in enumerate(chosen):
            if watch is not None:
                watch(f"{entrant.name} on {setting.world.name}", done / len(chosen))
            runs.append(run_of(setting, entrant, timed=timed))
        return judge(setting, runs)


def run_of(setting: Scenario, entrant: Entrant, *, timed: bool = True) -> MethodRun:
    """One method's run; ``timed``: warmed up, and on its own."""
    world, terms, forecasts = setting.world, setting.terms, setting.forecasts
    if entrant.forecast is not None:
        forecasts = foresee(world, entrant.forecast)
    if not timed:
        told = forecasts.bandwidth_bytes_per_s, forecasts.latency_s, forecasts.compute
        setting.cache.expect(*told)
    else:
        for _ in islice(steps(world, setting.cache.copy(), entrant.make(), terms, forecasts=forecasts), WARMED):
            pass
    run = play(world, setting.cache, entrant.make(), terms, forecasts=forecasts, share=not timed)
    assert run.method == entrant.name
    return run
