"""Thousands of worlds at once: the upper agent decides where a trigger fires, and between decisions the runs go on.

Everything lies in tables (``dataset``), so an epoch is a few look-ups. Every run has its own world, preferences and
clock; when one ends, another world is drawn and the observation is of its first decision.

Letters: W runs, M options, E links, G costs, K domains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.learn.randomness import numbers, words
from hippo.network.env.dataset import FIELDS, Dataset, tables
from hippo.network.env.reward import COSTS, fill_regrets, reward_of, until_done
from hippo.network.env.tables import rollout_in, scene_in, truth_in
from hippo.network.observation.features import MOST_OPTIONS, OPTIONS, Observation
from hippo.network.observation.observe import empty_observation, fill
from hippo.network.observation.options import CANCEL, KEEP, STOP, SWITCH, OptionTable, RunState, find_options
from hippo.network.observation.scene import EPOCHS
from hippo.network.rules.move import (
    CONFIGURATION,
    DOWNTIME_S,
    PHASE,
    STILL,
    STOPPED,
    STREAMING,
    TARGET,
    advance,
    begin_move,
)
from hippo.network.rules.trigger import Thresholds

STANDSTILL = 0.01
"""Share of an epoch at a standstill that is not yet a cost."""


@dataclass(frozen=True)
class DecisionRules:
    """When a decision is due (as ``hippo.network.rules.trigger`` says in use), and what rewards are."""

    link_share: float = Thresholds.link_share  # a used link's bandwidth moved by more since the last decision
    pace_share: float = Thresholds.pace_share  # what runs fell behind the best known by more
    every: int = Thresholds.every  # epochs after which a decision is due whatever happens
    gamma: float = 0.99  # per epoch
    shaped: bool = True  # with the value of hindsight as potential: rewards are minus regrets

    def __post_init__(self) -> None:
        assert self.every >= 1
        assert 0.0 < self.gamma <= 1.0
        assert min(self.link_share, self.pace_share) >= 0.0


class TimeStep(NamedTuple):
    """What came of the answers: the next observation, and what lay between."""

    observation: Observation
    reward: NDArray[np.float32]  # (W,) of the epochs until the next decision, discounted
    done: NDArray[np.bool_]  # (W,) the run ended; the observation is of a new one
    costs: NDArray[np.float32]  # (W, G) discounted in the same way
    epochs: NDArray[np.int64]  # (W,) that passed
    work: NDArray[np.float32]  # (W,) reward without shaping or discount, in epochs of usual work


class _Runs(NamedTuple):
    """State of every run."""

    world: NDArray[np.int64]  # (W,)
    preference: NDArray[np.int64]  # (W,)
    epoch: NDArray[np.int64]  # (W,) that begins now
    state: NDArray[np.int64]  # (W, 3) network.rules.move
    remaining: NDArray[np.float64]  # (W, E + 1)
    promised: NDArray[np.float64]  # (W,) potential of the state
    quiet: NDArray[np.int64]  # (W,) epochs since the last decision that changed something
    decided: NDArray[np.int64]  # (W,) epoch of the last decision
    bandwidth: NDArray[np.float64]  # (W, E) at the last decision
    pace: NDArray[np.float64]  # (W,) what ran over the best, at the last decision
    how: NDArray[np.int64]  # (W, M) options
    target: NDArray[np.int64]  # (W, M)
    mask: NDArray[np.bool_]  # (W, M)


class Env:
    """Runs side by side over the worlds of a dataset; ``seed`` gives worlds and preferences."""

    def __init__(self, dataset: Dataset, size: int, *, seed: int = 0, rules: DecisionRules | None = None) -> None:
        assert size >= 1
        self.dataset, self.size, self.rules = dataset, size, rules or DecisionRules()
        self.rng = np.random.default_rng(seed)
        self._tables = tables(dataset)
        self._preferences = dataset.shape[:, _WEIGHTS_FIELD, 0]
        links = dataset.links
        self._runs = _Runs(
            world=np.zeros(size, np.int64),
            preference=np.zeros(size, np.int64),
            epoch=np.zeros(size, np.int64),
            state=np.full((size, 3), -1, np.int64),
            remaining=np.zeros((size, links + 1)),
            promised=np.zeros(size),
            quiet=np.zeros(size, np.int64),
            decided=np.zeros(size, np.int64),
            bandwidth=np.zeros((size, links)),
            pace=np.ones(size),
            how=np.zeros((size, MOST_OPTIONS), np.int64),
            target=np.zeros((size, MOST_OPTIONS), np.int64),
            mask=np.zeros((size, MOST_OPTIONS), np.bool_),
        )

    def reset(self, *, seed: int | None = None) -> Observation:
        """First observation of new runs; ``seed`` starts the random numbers anew."""
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        return self.reset_in(*self._drawn())

    def reset_in(self, worlds: NDArray[np.int64], preferences: NDArray[np.int64]) -> Observation:
        """New runs in these worlds with these preferences, (W,) each: to see all of a dataset once."""
        seen = empty_observation(self.size, self.dataset.domains)
        _begin_all(self._tables, self._runs, worlds, preferences)
        _see_all(self._tables, self._runs, seen)
        return seen

    def step(self, actions: NDArray[np.int64]) -> TimeStep:
        """One decision in each run, and the epochs up to the next; an option that is masked counts as keeping (at the
        start: as the first that may be chosen)."""
        worlds, preferences = self._drawn()
        size = self.size
        came = TimeStep(
            empty_observation(size, self.dataset.domains),
            np.zeros(size, np.float32),
            np.zeros(size, np.bool_),
            np.zeros((size, len(COSTS)), np.float32),
            np.zeros(size, np.int64),
            np.zeros(size, np.float32),
        )
        rules = self.rules
        given = rules.link_share, rules.pace_share, rules.every, rules.gamma, 1.0 if rules.shaped else 0.0
        _act_all(self._tables, self._runs, np.asarray(actions, np.int64), given, worlds, preferences, came)
        _see_all(self._tables, self._runs, came.observation)
        return came

    def regrets(self) -> NDArray[np.float32]:
        """What each option of the decisions that are due gives less than the best of them, both followed by perfect
        hindsight, (W, M), in epochs of usual work; 0 where an option is masked."""
        found = np.zeros((self.size, MOST_OPTIONS), np.float32)
        fill_regrets(self._tables, self._runs, found)
        return found

    @property
    def worlds(self) -> NDArray[np.int64]:
        """Worlds of the dataset that the runs are in, (W,)."""
        return self._runs.world.copy()

    @property
    def running(self) -> NDArray[np.int64]:
        """Configurations that run, (W,); -1: none yet."""
        return self._runs.state[:, CONFIGURATION].copy()

    def state(self) -> dict[str, Any]:
        """Everything that what comes depends on, as arrays and words."""
        arrays = {name: np.copy(array) for name, array in self._runs._asdict().items()}
        return {"runs": arrays, "rng": words(self.rng.bit_generator.state)}

    def restore(self, state: dict[str, Any]) -> Observation:
        """Goes on from such a state; what is seen there."""
        for name, array in state["runs"].items():
            getattr(self._runs, name)[...] = array
        self.rng.bit_generator.state = numbers(state["rng"])
        seen = empty_observation(self.size, self.dataset.domains)
        _see_all(self._tables, self._runs, seen)
        return seen

    def _drawn(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Worlds for runs that begin, and their preferences: work alone in every second run."""
        worlds = self.rng.integers(self.dataset.worlds, size=self.size)
        some = (self.rng.random(self.size) * self._preferences[worlds]).astype(np.int64)
        return worlds, np.where(self.rng.random(self.size) < 0.5, 0, some)


_WEIGHTS_FIELD = FIELDS.index("true_weights")


@kernel
def _begin_all(dataset, runs, worlds, preferences):  # type: ignore[no-untyped-def]
    for run in range(len(worlds)):
        _begin(dataset, runs, run, worlds[run], preferences[run])


@kernel
def _begin(dataset, runs, run, world, preference):  # type: ignore[no-untyped-def]
    """A new run, in which nothing runs yet."""
    runs.world[run], runs.preference[run] = world, preference
    runs.epoch[run] = runs.quiet[run] = runs.decided[run] = 0
    runs.state[run, CONFIGURATION] = runs.state[run, TARGET] = -1
    runs.state[run, PHASE] = STILL
    runs.promised[run] = truth_in(dataset, world).value[preference, 0].max()


@kernel
def _see_all(dataset, runs, seen):  # type: ignore[no-untyped-def]
    for run in range(len(runs.world)):
        _see(runs, run, scene_in(dataset, runs.world[run]), truth_in(dataset, runs.world[run]), seen)


@kernel
def _see(runs, run, scene, truth, seen):  # type: ignore[no-untyped-def]
    """Observation of one run, and the options that it may answer with."""
    epoch = runs.epoch[run]
    now = RunState(
        epoch,
        float(scene.scalars[EPOCHS] - epoch),
        runs.state[run, CONFIGURATION],
        runs.state[run, TARGET],
        runs.state[run, PHASE],
        _arrived(scene, runs.state[run], runs.remaining[run]),
        float(runs.quiet[run]),
        runs.preference[run] * len(scene.tokens) + epoch,
    )
    weights = truth.weights[runs.preference[run]].astype(np.float64)
    found = OptionTable(runs.how[run], runs.target[run], runs.mask[run], np.zeros((MOST_OPTIONS, OPTIONS), np.float32))
    count = find_options(scene, now, weights, found)
    fill(scene, now, weights, found, count, run, seen)
    runs.decided[run] = epoch
    for link in range(len(scene.base)):
        runs.bandwidth[run, link] = scene.bandwidth[epoch, 0, link]
    runs.pace[run] = _pace(scene, truth, epoch, now.running)


@kernel
def _arrived(scene, state, remaining):  # type: ignore[no-untyped-def]
    """Share of a move's bytes that has arrived."""
    if state[PHASE] == STILL:
        return 0.0
    total, left = 0.0, 0.0
    source, destination = scene.place[state[CONFIGURATION]], scene.place[state[TARGET]]
    for link in range(len(scene.base)):
        total += scene.move_bytes[source, destination, link]
        left += remaining[link]
    return 1.0 - min(1.0, left / total) if total > 0.0 else 1.0


@kernel
def _pace(scene, truth, epoch, each):  # type: ignore[no-untyped-def]
    """Tokens/s of a configuration over those of the best, as believed."""
    best = scene.tokens[epoch, 0, truth.best[epoch]]
    return scene.tokens[epoch, 0, each] / best if each >= 0 and best > 0.0 else 1.0


@kernel
def _act_all(dataset, runs, actions, rules, worlds, preferences, came):  # type: ignore[no-untyped-def]
    for run in range(len(actions)):
        scene, truth = scene_in(dataset, runs.world[run]), truth_in(dataset, runs.world[run])
        begins = _answer(runs, run, scene, truth, actions[run])
        _go_on(runs, run, scene, truth, rules, came, begins)
        if came.done[run]:
            _begin(dataset, runs, run, worlds[run], preferences[run])


@kernel
def _answer(runs, run, scene, truth, action):  # type: ignore[no-untyped-def]
    """Carries the answer out; returns whether a move begins."""
    state, remaining = runs.state[run], runs.remaining[run, : len(scene.base) + 1]
    chosen = action if 0 <= action < MOST_OPTIONS and runs.mask[run, action] else 0
    if state[CONFIGURATION] < 0 and not runs.mask[run, chosen]:
        chosen = 1
    how, target = runs.how[run, chosen], runs.target[run, chosen]
    if how == KEEP:
        return False
    runs.quiet[run] = 0
    if how == CANCEL:
        state[TARGET], state[PHASE] = -1, STILL
    elif how == SWITCH:
        state[CONFIGURATION] = target
    else:
        begin_move(rollout_in(scene, truth), state, remaining, target, STOPPED if how == STOP else STREAMING)
        return True
    return False


@kernel
def _go_on(runs, run, scene, truth, rules, came, begins):  # type: ignore[no-untyped-def]
    """Epochs until the next decision is due or the run ends."""
    rollout, weights = rollout_in(scene, truth), truth.weights[runs.preference[run]]
    state, remaining = runs.state[run], runs.remaining[run, : len(scene.base) + 1]
    gave, factor, epochs = np.zeros(5), 1.0, len(truth.tokens)
    promise = _promise(runs, run, scene, truth, rollout, weights) if begins else runs.promised[run]
    while True:
        epoch, moved = runs.epoch[run], state[PHASE] != STILL
        now = state[CONFIGURATION]
        advance(rollout, epoch, state, remaining, gave)
        gained = reward_of(scene.scalars, weights, gave)
        if state[PHASE] == STILL:
            after = truth.value[runs.preference[run], epoch + 1, state[CONFIGURATION]]
        else:
            after = promise - gained
        shaping = after - runs.promised[run] if rules[4] > 0.0 else 0.0
        came.reward[run] += factor * (gained + shaping)
        came.work[run] += gained
        came.costs[run, 0] += factor * truth.weak[epoch, now]
        came.costs[run, 1] += factor * truth.uneven[epoch, now]
        came.costs[run, 2] += factor * max(0.0, gave[DOWNTIME_S] / rollout.epoch_s - STANDSTILL)
        promise = after
        runs.promised[run] = after
        runs.epoch[run] += 1
        runs.quiet[run] += 1
        came.epochs[run] += 1
        factor *= rules[3]
        if runs.epoch[run] == epochs:
            came.done[run] = True
            return
        if (moved and state[PHASE] == STILL) or _due(runs, run, scene, truth, rules):
            return


@kernel
def _promise(runs, run, scene, truth, rollout, weights):  # type: ignore[no-untyped-def]
    """What the move that begins gives until it is done, and the most after it."""
    state, remaining = runs.state[run].copy(), runs.remaining[run, : len(scene.base) + 1].copy()
    return until_done(runs, run, scene, truth, rollout, weights, state, remaining)


@kernel
def _due(runs, run, scene, truth, rules):  # type: ignore[no-untyped-def]
    """Whether a decision is due: long since the last one, what runs cannot, fell behind, or a link that it or the best
    configuration now uses has moved."""
    epoch, state = runs.epoch[run], runs.state[run]
    now, best = state[CONFIGURATION], truth.best[epoch]
    if epoch - runs.decided[run] >= rules[2]:
        return True
    behind = _pace(scene, truth, epoch, now) < runs.pace[run] * (1.0 - rules[1])
    if state[PHASE] == STILL and (behind or scene.tokens[epoch, 0, now] <= 0.0):
        return True
    for link in range(len(scene.base)):
        used = scene.sent[now, link] > 0.0 or scene.sent[best, link] > 0.0
        if used:
            before = runs.bandwidth[run, link]
            if abs(scene.bandwidth[epoch, 0, link] - before) > rules[0] * before:
                return True
    return False
