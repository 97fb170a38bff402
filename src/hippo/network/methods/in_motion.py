"""Planners of the literature in motion: at every trigger they plan anew with their own planner, and move where it pays.

Sailor re-plans and MAST re-schedules in their papers; CrossPipe and DiLoCo are given the same. All have what the
others have: telemetry, forecast, triggers (``rules.trigger``), levers (``plans.levers``) and the prices of the rule
book. Which plans there are is theirs alone; whether to go to one is weighed as ``receding_horizon`` weighs a move, with
its margin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hippo.network.methods.receding_horizon import Horizon, given_up, usual_work
from hippo.network.methods.static import start
from hippo.network.plans.levers import Bench, better_again, either
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.plans.replan import Net, under
from hippo.network.rules.move import STILL
from hippo.network.rules.rates import net_now
from hippo.network.rules.trigger import Due, Seen, Thresholds, due, seen
from hippo.network.rules.view import Action, How, View
from hippo.network.rules.worth import STOP, SWITCH, Now, ahead, worth
from hippo.planners.base import Planner, Stop
from hippo.planners.baselines.crosspipe import CrossPipe
from hippo.planners.baselines.diloco import Diloco
from hippo.planners.baselines.mast import Mast
from hippo.planners.baselines.sailor import Sailor
from hippo.problem.problem import Problem

PLANNING = Stop(time_limit_s=1.0)  # of work (``planners.effort``): what a decision between domains may take
HOWS = (How.SWITCH, How.STOP, How.BACKGROUND)


class InMotion:
    """See the module's docstring; ``make`` makes the planner, whose name the method has.

    Where the planner finds nothing for the network at the start, the run begins as that of ``static`` does.
    """

    def __init__(self, make: Callable[[], Any], horizon: Horizon | None = None) -> None:
        self.planner: Planner = make()
        self.horizon = horizon or Horizon()
        self.name = self.planner.name
        self._own: dict[int, None] = {}  # configurations of its own plans, and of their levers
        self._last: Seen | None = None

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
            return given_up(view, self.horizon)
        happened = due(view, self._last, Thresholds())
        if not happened:
            return Action()
        if moved(happened):
            self._plan(view)
        self._last = seen(view)
        others = [index for index in self._own if index != view.running]
        if not others:
            return Action()
        look = ahead(view, [view.running, *others])
        look = look._replace(epochs_left=min(look.epochs_left, self.horizon.epochs))
        gains = worth(look, Now(0, -1, STILL, 0.0)).net_tokens[1:, :, -1]
        gains[:, STOP:] -= self.horizon.margin * usual_work(view)  # live levers can be taken back
        best, kind = np.unravel_index(int(np.argmax(gains)), gains.shape)
        assert SWITCH == 0
        return Action(HOWS[kind], others[int(best)]) if gains[best, kind] > 0.0 else Action()

    def _plan(self, view: View) -> None:
        """Adds the planner's plan for the network of the moment, and what levers make of it."""
        now, cache = view.forecast, view.cache
        state, compute = Net(now.bandwidth_bytes_per_s[0], now.latency_s[0]), now.compute[0]
        found = self.planner.propose(reachable(cache.problem, state, compute), PLANNING).plan
        bench = Bench(PlanCache(cache.problem), state, compute, view.usd_per_token)
        for plan in () if found is None else either(cache.problem, found):
            for each in (plan, *better_again(bench, plan)[-1:]):
                index = cache.add(each, origin=self.name, lever=bench.levers.get(each, ""))
                if index is not None:
                    self._own[index] = None


def moved(happened: Due) -> bool:
    """Whether the network has: what a planner for the network of the moment would say is another question else."""
    return bool(happened.links or happened.latencies or happened.loads or happened.lost or happened.back)


def reachable(problem: Problem, state: Net, compute: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Problem:
    """The problem with its links in that state, without the domains that do not answer, (K,) ``compute``."""
    changed = under(problem, state)
    cluster = changed.cluster
    kept = tuple(domain for domain, slower in zip(cluster.domains, compute, strict=True) if np.isfinite(slower))
    if not kept or len(kept) == len(cluster.domains):
        return changed
    names = {domain.name for domain in kept}
    links = tuple(link for link in cluster.links if {link.source, link.destination} <= names)
    return replace(changed, cluster=replace(cluster, domains=kept, links=links))


MAST, SAILOR = partial(InMotion, Mast), partial(InMotion, Sailor)
CROSSPIPE, DILOCO = partial(InMotion, CrossPipe), partial(InMotion, Diloco)
