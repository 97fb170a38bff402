"""A method plays a world: every epoch it sees what was measured and what is forecast, and its answer is carried out.

The rules are those of ``network.rules.move``; an answer that they do not allow is a fault of the method and stops the
program. Letters: T epochs, E links, K domains, C configurations of a cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.dynamics.forecast import HORIZONS, Forecasts, Telemetry, forecast_all
from hippo.errors import InfeasibleError
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import (
    BUSY_S,
    CONFIGURATION,
    DOWNTIME_S,
    EGRESS_USD,
    MOVED_BYTES,
    PHASE,
    STILL,
    STOPPED,
    STREAMING,
    TARGET,
    TOKENS,
    Rollout,
    advance,
    begin_move,
)
from hippo.network.rules.view import Action, How, Method, levers_alone
from hippo.network.worlds.asking import EpochAnswer, RunStands, Terms, answered, view_of
from hippo.network.worlds.world import World, rollout
from hippo.problem.links import base_bandwidth, base_latency

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
DEFAULT_FORECAST = "kalman"


@dataclass(frozen=True, eq=False)
class Epoch(EpochAnswer):
    """One epoch as it went. ``running`` and ``phase`` are those at its start, after the answer was carried out."""

    running: int
    target: int
    phase: int
    gave: Floats  # (5,), places named in network.rules.move


@dataclass(frozen=True, eq=False)
class MethodRun:
    """What a method made of a world. Indices are those of ``cache``, its own."""

    method: str
    world: World
    cache: PlanCache
    terms: Terms
    actions: tuple[Action, ...]  # (T,), the first is where it begins, as a switch
    running: Ints  # (T,) at the start of each epoch
    phase: Ints  # (T,)
    gave: Floats  # (T, 5)
    decision_s: Floats  # (T,) CPU seconds, as in ``EpochAnswer``
    replanning_s: Floats  # (T,)

    @property
    def work(self) -> float:
        """Tokens trained less egress in tokens (design: ``tokens - egress_usd / usd_per_token``)."""
        price = self.terms.usd_per_token
        return float(self.gave[:, TOKENS].sum()) - (self.egress_usd / price if price > 0 else 0.0)

    @property
    def egress_usd(self) -> float:
        """Egress of training and moves."""
        return float(self.gave[:, EGRESS_USD].sum())

    @property
    def seconds(self) -> float:
        """Length of the run."""
        return self.world.epochs * self.world.epoch_s

    @property
    def step_time_s(self) -> float:
        """Seconds of the run per optimizer step that it made; inf: it made none."""
        tokens = float(self.gave[:, TOKENS].sum())
        return self.seconds * self.cache.tokens_per_step / tokens if tokens > 0 else np.inf

    @property
    def utilization(self) -> float:
        """Mean over the run of the utilisation of the domains in use; 0 while training stands still."""
        return float(self.gave[:, BUSY_S].sum()) / self.seconds

    @property
    def utilization_all(self) -> float:
        """The same over all domains of the cluster: those that are not used count as idle."""
        used = [self.cache.domains_used(int(index)).mean() for index in self.running]
        return float(self.gave[:, BUSY_S] @ np.array(used)) / self.seconds

    @property
    def coordination_s(self) -> Floats:
        """Of every change carried out, seconds from the trigger (the epoch's begin) until what was chosen runs:
        the decision, then the stop; of a move in the background up to the end of the epoch in which it arrived."""
        found = []
        for epoch, action in enumerate(self.actions):
            if epoch == 0 or action.how in (How.KEEP, How.CANCEL):
                continue
            done = epoch
            while action.how is not How.SWITCH and done + 1 < len(self.running) and self.running[done] != action.target:
                done += 1
                if self.phase[done] == STILL:
                    break
            if self.running[done] != action.target:
                continue  # given up, or not there before the end
            stop_s = float(self.gave[epoch:done, DOWNTIME_S].sum())
            moved_s = stop_s if action.how is How.STOP else (done - epoch) * self.world.epoch_s
            found.append(float(self.decision_s[epoch]) + (0.0 if action.how is How.SWITCH else moved_s))
        return np.array(found)

    @property
    def downtime_share(self) -> float:
        """Share of the run during which training stood still for a move or on a link that was down."""
        halted = np.where(self.gave[:, TOKENS] > 0, self.gave[:, DOWNTIME_S], self.world.epoch_s)
        return float(halted.sum()) / self.seconds

    @property
    def moves(self) -> int:
        """Moves of weights that were begun."""
        return sum(each.how in (How.STOP, How.BACKGROUND) for each in self.actions) - self._stops_for_levers

    @property
    def levers(self) -> int:
        """Times that levers were pulled, live or by a stop."""
        return sum(each.how is How.SWITCH for each in self.actions[1:]) + self._stops_for_levers

    @property
    def _stops_for_levers(self) -> int:
        stops = (
            (run, each)
            for run, each in zip(self.running, self.actions, strict=True)
            if each.how in (How.STOP, How.BACKGROUND)
        )
        return sum(levers_alone(self.cache, int(run), each) for run, each in stops)

    @property
    def moved_bytes(self) -> float:
        """Bytes that moves sent."""
        return float(self.gave[:, MOVED_BYTES].sum())


def usd_per_token(world: World, cache: PlanCache) -> float:
    """What a token is worth: rent of all GPUs per second over the tokens per second of the plan that is quickest when
    the run begins, of those without a lever in ``cache``."""
    plain = [index for index, each in enumerate(cache.configurations) if not each.lever]
    state = world.bandwidth_bytes_per_s[:1], world.latency_s[:1], world.compute[:1]
    seconds = min((float(cache.step_time_s(index, *state)[0]) for index in plain), default=np.inf)
    if not np.isfinite(seconds):  # nothing can run at the start: as the network usually is
        seconds = min(cache.score(index).step_time_s for index in plain)
    return cache.rent_usd_per_s * seconds / cache.tokens_per_step


def telemetry_of(world: World) -> Telemetry:
    """All that will ever be measured; what did not arrive is the last known value (before the first: the base)."""
    cluster = world.problem.cluster
    epochs = np.where(world.told, np.arange(world.epochs)[:, None], -1)
    last = np.maximum.accumulate(epochs, axis=0)  # (T, E) epoch of the latest value that arrived
    links = np.arange(last.shape[1])
    bandwidth = np.where(last >= 0, world.bandwidth_bytes_per_s[last, links], base_bandwidth(cluster))
    latency = np.where(last >= 0, world.latency_s[last, links], base_latency(cluster))
    return Telemetry(bandwidth, latency, world.compute, world.told)


def until(telemetry: Telemetry, epoch: int) -> Telemetry:
    """What has been measured when an epoch begins, its own state included."""
    end = epoch + 1
    return Telemetry(
        *(getattr(telemetry, name)[:end] for name in ("bandwidth_bytes_per_s", "latency_s", "compute", "fresh"))
    )


def foresee(world: World, method: str = DEFAULT_FORECAST) -> Forecasts:
    """The forecast at the start of each epoch; made once and shown to every method."""
    told = telemetry_of(world)
    return forecast_all(told, world.problem.cluster, world.epoch_s, method=method, horizons=HORIZONS)


def play(
    world: World,
    cache: PlanCache,
    method: Method,
    terms: Terms,
    *,
    forecasts: Forecasts | None = None,
    share: bool = False,
) -> MethodRun:
    """The run of a method; it plays with a copy of ``cache``, so that nobody profits from another's proposals.

    ``share``: step times are remembered for the next run with this cache; decisions then say nothing about time.
    """
    own = cache.copy(share=share)
    epochs = list(steps(world, own, method, terms, forecasts=forecasts))
    return MethodRun(
        method=method.name,
        world=world,
        cache=own,
        terms=terms,
        actions=tuple(each.action for each in epochs),
        running=np.array([each.running for each in epochs], dtype=np.int64),
        phase=np.array([each.phase for each in epochs], dtype=np.int64),
        gave=np.stack([each.gave for each in epochs]),
        decision_s=np.array([each.decision_s for each in epochs]),
        replanning_s=np.array([each.replanning_s for each in epochs]),
    )


def steps(
    world: World, cache: PlanCache, method: Method, terms: Terms, *, forecasts: Forecasts | None = None
) -> Iterator[Epoch]:
    """Epoch after epoch of a run, as it goes; the method may add to ``cache``.

    The answer of the first epoch is where the run begins (``Method.begin``); from the second on ``decide`` is asked.
    After an answer a method may think (``view.Replanning``), which takes a fraction of a second of an epoch of minutes;
    where it finds something, it is asked again.

    Raises
    ------
    InfeasibleError
        The method knows nothing that can run at the start.
    """
    foreseen = foresee(world) if forecasts is None else forecasts
    told, state, remaining = (
        telemetry_of(world),
        np.array([-1, -1, STILL]),
        np.zeros(len(world.problem.cluster.links) + 1),
    )
    known: Rollout | None = None
    for epoch in range(world.epochs):
        stands = stands_of(state, share_arrived(known, state, remaining), world.epochs - epoch)
        view = view_of(cache, terms, world.epoch_s, until(told, epoch), foreseen.at(epoch), stands)
        answer = answered(method, view)
        action = answer.action
        if epoch == 0 and action.target < 0:
            raise InfeasibleError(["Nothing can run when the run begins: every plan needs a link that is down."])
        known = rollout(world, cache, known=known)
        carry_out(known, state, remaining, action, first=epoch == 0)
        running, target, phase = (int(value) for value in state)
        gave = np.zeros(5)
        advance(known, epoch, state, remaining, gave)
        yield Epoch(view, action, answer.decision_s, answer.replanning_s, running, target, phase, gave)


def stands_of(state: Ints, arrived: float, epochs_left: int) -> RunStands:
    """How a run that is played stands."""
    running, target, phase = int(state[CONFIGURATION]), int(state[TARGET]), int(state[PHASE])
    return RunStands(epochs_left, running, target, phase, arrived)


def share_arrived(known: Rollout | None, state: Ints, remaining: Floats) -> float:
    """Share of the bytes of the move under way that has arrived; 1 where only the last part is left, or nothing."""
    if known is None or state[PHASE] == STILL:
        return 0.0
    total = float(known.move_bytes[known.place[state[CONFIGURATION]], known.place[state[TARGET]]].sum())
    return 1.0 - min(1.0, float(remaining[:-1].sum()) / total) if total > 0 else 1.0


def carry_out(known: Rollout, state: Ints, remaining: Floats, action: Action, *, first: bool) -> None:
    """Applies an answer to the state of the run. An answer that the rules do not allow is a fault of the method."""
    how, target, now = action.how, action.target, state[CONFIGURATION]
    if how is How.KEEP:
        return
    if how is How.CANCEL:
        assert state[PHASE] != STILL, "no move to cancel"
        state[TARGET], state[PHASE] = -1, STILL
        return
    assert 0 <= target < len(known.place), f"there is no configuration {target}"
    assert state[PHASE] == STILL, f"{how.value} while a move is under way"
    if how is How.SWITCH:
        assert first or known.place[now] == known.place[target], "a switch to another place"
        state[CONFIGURATION] = target
        return
    assert known.place[now] != known.place[target], "a move to the place where it runs"
    assert np.isfinite(known.move_bytes[known.place[now], known.place[target]]).all(), "there is no way"
    begin_move(known, state, remaining, target, STOPPED if how is How.STOP else STREAMING)
