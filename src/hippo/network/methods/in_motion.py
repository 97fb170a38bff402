"""Planners of the literature in motion: they plan anew with their own planner as the network moves, and move where it
pays.

Sailor re-plans and MAST re-schedules in their papers; CrossPipe and DiLoCo are given the same. All have what the
others have: telemetry, forecast, triggers (``rules.trigger``), levers (``plans.levers``), the prices of the rule book,
and plans made anew as far apart as theirs (``rules.renewal``), at once where what runs cannot. Which plans there are is
theirs alone; whether to go to one is weighed at every trigger under the forecast, with a margin. How far the network
must have moved, and for which one plans are made, is searched on the training networks (``settings.json``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from hippo.network.methods.receding_horizon import Horizon, given_up, usual_work
from hippo.network.methods.static import start
from hippo.network.plans.levers import Bench, better_again, either
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.plans.replan import Net, Replanner, reachable
from hippo.network.rules.move import STILL
from hippo.network.rules.rates import net_now
from hippo.network.rules.renewal import APART, FAR
from hippo.network.rules.trigger import Seen, Thresholds, due, moved, seen
from hippo.network.rules.view import Action, How, View
from hippo.network.rules.worth import STOP, SWITCH, Now, ahead, worth
from hippo.plan.plan import Plan
from hippo.planners.answers import answer_of
from hippo.planners.base import Planner, Stop
from hippo.problem.problem import Problem

PLANNING = Stop(time_limit_s=1.0)  # of work (``planners.effort``): what a decision between domains may take
HOWS = (How.SWITCH, How.STOP, How.BACKGROUND)
SOON = 2  # epochs at least between two times that plans are made while what runs cannot
LOADED = 1.3
"""Times as long as alone that operations take in a domain which a planner is asked to do without, too: planners know no
load, and all domains hold one type of GPU."""


@dataclass(frozen=True)
class Motion:
    """When a planner in motion asks again, for which network, and what a change must be worth."""

    epochs: float = 64.0  # ahead that count; at most the rest of the run
    margin: float = 0.1  # by which a change must be better, in epochs of the usual work of what runs
    link_share: float = 0.4  # of the bandwidth of a link: it moved so far since plans were made, and they are made anew
    expected: bool = False  # plans are made for the links as they are forecast in the mean, too

    @property
    def horizon(self) -> Horizon:
        """The same, as a move under way is weighed."""
        return Horizon(self.epochs, self.margin)


class InMotion:
    """See the module's docstring; ``make`` makes the planner, whose name the method has.

    Where the planner finds nothing for the network at the start, the run begins as that of ``static`` does.
    """

    def __init__(self, make: Callable[[], Any], motion: Motion | None = None) -> None:
        self.planner: Planner = make()
        self.name = self.planner.name
        self.motion = motion or Motion()
        self._own: dict[int, None] = {}  # configurations of its own plans, and of their levers
        self._last: Seen | None = None
        self._planned: Seen | None = None

    def begin(self, view: View) -> int:
        """The best of its plans for the network at the start, with its levers."""
        self._own.clear()
        first = start(view)
        self._plan(view)
        self._last = seen(view)
        rates = net_now(view)
        return max(self._own, key=lambda index: float(rates[index])) if self._own else first

    def decide(self, view: View) -> Action:
        """Where a trigger fired: plans for the network as it is, and the change of most worth, where there is one."""
        if view.phase != STILL:
            return given_up(view, self.motion.horizon)
        happened = due(view, self._last, Thresholds())
        if not happened:
            return Action()
        if self._outdated(view, stands=happened.stands):
            self._plan(view)
        self._last = seen(view)
        others = [index for index in self._own if index != view.running]
        if not others:
            return Action()
        look = ahead(view, [view.running, *others])
        look = look._replace(epochs_left=min(look.epochs_left, self.motion.epochs))
        gains = worth(look, Now(0, -1, STILL, 0.0)).net_tokens[1:, :, -1]
        gains[:, STOP:] -= self.motion.margin * usual_work(view)  # live levers can be taken back
        best, kind = np.unravel_index(int(np.argmax(gains)), gains.shape)
        assert SWITCH == 0
        return Action(HOWS[kind], others[int(best)]) if gains[best, kind] > 0.0 else Action()

    def _outdated(self, view: View, *, stands: bool) -> bool:
        """Whether the network is far from the one for which plans were made last, and that was long enough ago."""
        assert self._planned is not None
        if view.epoch - self._planned.epoch < (SOON if stands else APART):
            return False
        far = moved(view, self._planned, replace(FAR, link_share=self.motion.link_share))
        return stands or bool(far or far.latencies or far.loads)

    def _plan(self, view: View) -> None:
        """Adds the planner's plans for the network of the moment, and what levers make of them."""
        self._planned = seen(view)
        for problem in self._asked(view):
            found = self._proposed(view.cache.problem, problem)
            self._own |= dict.fromkeys(() if found is None else pulled(view, found, self.name))

    def _asked(self, view: View) -> Iterator[Problem]:
        """The network as it is, without domains that are much slower than alone, and as it is expected."""
        now, problem = view.forecast, view.cache.problem
        state, compute = Net(now.bandwidth_bytes_per_s[0], now.latency_s[0]), now.compute[0]
        yield reachable(problem, state, compute)
        loaded = np.where(compute > LOADED, inf, compute)
        if (np.isfinite(loaded) < np.isfinite(compute)).any() and np.isfinite(loaded).any():
            yield reachable(problem, state, loaded)
        if self.motion.expected:
            ends = np.minimum(now.horizons, min(view.epochs_left, self.motion.epochs)).astype(float)
            mean = np.trapezoid(now.bandwidth_bytes_per_s, ends, axis=0) / max(ends[-1], 1.0)
            yield reachable(problem, state._replace(bandwidth_bytes_per_s=mean), compute)

    def _proposed(self, base: Problem, problem: Problem) -> Plan | None:
        """The planner's answer; while plans made anew are remembered, so are those of planners."""
        replanner = Replanner.of(base)
        key = "proposed", self.name, tuple(domain.name for domain in problem.cluster.domains), problem.cluster.links
        if not replanner.remembers:
            return answer_of(self.planner, problem, PLANNING).plan
        if key not in replanner.known:
            replanner.known[key] = answer_of(self.planner, problem, PLANNING).plan
        found: Plan | None = replanner.known[key]
        return found


def pulled(view: View, plan: Plan, name: str) -> list[int]:
    """Adds a plan to the cache, compressed too where that is allowed, and what levers make of each now."""
    now, cache = view.forecast, view.cache
    state = Net(now.bandwidth_bytes_per_s[0], now.latency_s[0])
    bench = Bench(PlanCache(cache.problem), state, now.compute[0], view.usd_per_token)
    variants = [each for one in either(cache.problem, plan) for each in (one, *better_again(bench, one)[-1:])]
    added = [cache.add(each, origin=name, lever=bench.levers.get(each, "")) for each in variants]
    return [index for index in added if index is not None]
