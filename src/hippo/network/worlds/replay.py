"""A trace replayed with one method, told decision by decision, and set against keeping and perfect hindsight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hippo.decide.reasons import Reason
from hippo.dynamics.forecast import Forecasts
from hippo.errors import InfeasibleError
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import BUSY_S, DOWNTIME_S, EGRESS_USD, MOVED_BYTES, TOKENS
from hippo.network.rules.view import Action, Method, Replanning, View
from hippo.network.why.story import BACKGROUND, STOPPED, Story, StoryEntry, Track, kind_of
from hippo.network.worlds.asking import AnswerTold, Terms
from hippo.network.worlds.hindsight import hindsight
from hippo.network.worlds.judge import for_hindsight
from hippo.network.worlds.play import Epoch, foresee, steps
from hippo.network.worlds.world import World, rollout
from hippo.problem.links import base_bandwidth

Floats = NDArray[np.float64]
KEEPING, HINDSIGHT = "keeping", "hindsight"


class Saying(Protocol):
    """A method that has more to say of its last answer."""

    def reasons(self, view: View) -> tuple[Reason, ...]:
        """Reasons of its own."""
        ...


@dataclass(frozen=True)
class Source:
    """Where a trace comes from, and the time of its first instant."""

    name: str
    begin_s: float = 0.0


@dataclass(frozen=True, eq=False)
class WatchedEpoch:
    """One epoch as the watcher is shown it, while the run goes on."""

    epoch: Epoch
    told: StoryEntry | None
    net_tokens: float  # so far
    keeping_net_tokens: float  # so far


Watcher = Callable[[WatchedEpoch], None]


def replay(
    world: World,
    cache: PlanCache,
    method: Method,
    terms: Terms,
    source: Source,
    *,
    watcher: Watcher | None = None,
) -> Story:
    """The story of a run; ``cache`` holds plans to begin with and is not changed.

    Raises
    ------
    InfeasibleError
        Nothing can run at the start.
    """
    forecasts, own = foresee(world), cache.copy()
    epochs, decisions, keeping = _decided(world, own, method, terms, (forecasts, watcher))
    mine = _track(method.name, epochs, terms)
    known = for_hindsight(world, cache)
    best = hindsight(rollout(world, known), terms.usd_per_token)
    here = [own.adopt(known, index) for index in range(len(known))]
    path = [replace(each, target=here[each.target] if each.target >= 0 else -1) for each in best.path]
    follow = steps(world, own, _Follow(path), terms, forecasts=forecasts)
    return Story(
        problem=world.problem,
        cache=own,
        source=source.name,
        method=method.name,
        begin_s=source.begin_s,
        epoch_s=world.epoch_s,
        bandwidth_bytes_per_s=world.bandwidth_bytes_per_s,
        base_bytes_per_s=base_bandwidth(world.problem.cluster),
        told=world.told,
        mine=mine,
        keeping=keeping,
        hindsight=_track(HINDSIGHT, follow, terms),
        decisions=tuple(decisions),
        decision_s=np.array([each.decision_s for each in epochs]),
        usd_per_token=terms.usd_per_token,
        weights=terms.weights,
    )


def _decided(
    world: World,
    cache: PlanCache,
    method: Method,
    terms: Terms,
    told: tuple[Forecasts, Watcher | None],
) -> tuple[list[Epoch], list[StoryEntry], Track]:
    """The epochs of the method's run, what is told of them, and what keeping gives: what the run began with, never
    touched again."""
    forecasts, watcher = told
    keeping: Track | None = None
    epochs: list[Epoch] = []
    decisions: list[StoryEntry] = []
    told_of = AnswerTold(method)
    net = kept = 0.0
    for each in steps(world, cache, _Able(method), terms, forecasts=forecasts):
        if keeping is None:
            kept_from = _Follow([each.action] + [Action()] * (world.epochs - 1))
            keeping = _track(KEEPING, steps(world, cache.copy(), kept_from, terms, forecasts=forecasts), terms)
        decided = told_of.of(each)
        if decided is not None:
            decisions.append(decided)
        epochs.append(each)
        net += _net(each.gave, terms)
        kept += float(keeping.net_tokens[each.view.epoch])
        if watcher is not None:
            watcher(WatchedEpoch(each, decided, net, kept))
    assert keeping is not None
    return epochs, decisions, keeping


def _track(name: str, epochs: Iterable[Epoch], terms: Terms) -> Track:
    """What the epochs gave."""
    rows = list(epochs)
    gave = np.stack([each.gave for each in rows])
    return Track(
        name=name,
        net_tokens=np.array([_net(each.gave, terms) for each in rows]),
        tokens=gave[:, TOKENS],
        egress_usd=gave[:, EGRESS_USD],
        downtime_s=gave[:, DOWNTIME_S],
        moved_bytes=gave[:, MOVED_BYTES],
        utilization=gave[:, BUSY_S] / rows[0].view.epoch_s,
        running=np.array([each.running for each in rows], dtype=np.int64),
        moves=sum(kind_of(each.view, each.action) in (STOPPED, BACKGROUND) for each in rows),
    )


def _net(gave: Floats, terms: Terms) -> float:
    """Tokens less egress in tokens."""
    return float(gave[TOKENS] - (gave[EGRESS_USD] / terms.usd_per_token if terms.usd_per_token > 0 else 0.0))


class _Able:
    """A method whose run begins with something, or not at all."""

    def __init__(self, method: Method) -> None:
        self.method, self.name = method, method.name

    def begin(self, view: View) -> int:
        """Where the method's run begins; ``InfeasibleError``: it cannot."""
        found = self.method.begin(view)
        if found < 0:
            raise InfeasibleError(["No plan can run: each of them needs a link or a domain that is down."])
        return found

    def decide(self, view: View) -> Action:
        """The method's answer."""
        return self.method.decide(view)

    def replan(self, view: View) -> bool:
        """What the method thinks, if it does; whether it wants to answer again."""
        return isinstance(self.method, Replanning) and self.method.replan(view)


class _Follow:
    """Answers that are known beforehand."""

    def __init__(self, path: Sequence[Action]) -> None:
        self.path, self.name = path, HINDSIGHT

    def begin(self, view: View) -> int:
        """The first answer's target."""
        return self.path[0].target

    def decide(self, view: View) -> Action:
        """The answer of this epoch."""
        return self.path[view.epoch]
