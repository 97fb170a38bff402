"""Upper and lower agents as RLlib's multi-agent environment, on two clocks.

An episode is a moving world, played epoch by epoch as ``play`` does. ``upper`` is asked where a trigger fires
(``hippo.network.rules.trigger``: minutes apart): it keeps, pulls a lever, moves, gives a move up, or has a plan
*constructed* for the network of the moment. Then no time passes: it joins one domain after the other to a chain, or
stops, and settles the recipe; only now ``lower_<domain>`` of every domain of that chain appears, once, all at the same
time, and they choose their layouts. The plan that comes of it joins the cache, and ``upper`` is asked again: the plan
stands among its options where it promises as much as the others do, what the lower agents made of it in its
features.

Rewards: of ``upper`` the rewards of the epochs up to its next answer (``reward``; neither shaped nor discounted), 0 for
choices that take no time; of a lower agent what ``construct`` pays: the log of the reference step time over the plan's,
less what fragmentation, communication and compute of its own domain cost. Who is asked, and how it is told, is as
``learn.turns`` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hippo.dynamics.forecast import Telemetry
from hippo.errors import InfeasibleError, InputError
from hippo.learn.turns import ALLOWED, OBSERVED, Seen, allowed, rllib_env
from hippo.network.construction.draft import CLAIMS, NOTHING_BUILT, build, lower_rewards, played, site
from hippo.network.construction.observe import (
    CANDIDATES,
    DRAFTS,
    LAYOUTS,
    MOST_ROWS,
    PAIRS,
    PLACES,
    RECIPES,
    ConstructionState,
    observe_domains,
    observe_layouts,
    observe_recipes,
)
from hippo.network.construction.observe import NODES as DRAFT_NODES
from hippo.network.env.gym_vector import observation_space
from hippo.network.env.reward import draw_weights, taste_of
from hippo.network.observation.features import MOST_OPTIONS
from hippo.network.observation.observe import observe
from hippo.network.observation.scene import CONSTRUCTED, figures
from hippo.network.rules.move import BUSY_S, CONFIGURATION, EGRESS_USD, STILL, TOKENS, Rollout, advance
from hippo.network.rules.trigger import Thresholds, due, seen
from hippo.network.rules.view import Action, How, View
from hippo.network.worlds.asking import Weights, view_of
from hippo.network.worlds.judge import Scenario, scenario_of
from hippo.network.worlds.play import carry_out, share_arrived, stands_of, telemetry_of, until
from hippo.network.worlds.world import World, rollout

UPPER, LOWER = "upper", "lower"
CONSTRUCT = MOST_OPTIONS
"""The answer of ``upper`` that begins a construction; answers below it are options."""
OPTION, DOMAIN, RECIPE, LAYOUT = range(4)
"""What is asked: one of the options, a domain for the chain, a recipe; layouts, of the lower agents."""
Arrays = dict[str, NDArray[Any]]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Ready:
    """What is the same in every episode of a world."""

    setting: Scenario
    rollout: Rollout
    told: Telemetry
    usual: float  # net tokens/s that rewards are measured in


def ready(world: World) -> Ready | None:
    """A world with its plans and forecasts, 1 to 3 s; None: no plan can run."""
    try:
        setting = scenario_of(world)
    except InfeasibleError:
        return None
    usual = figures(setting.cache, setting.terms.usd_per_token).usual
    return Ready(setting, rollout(world, setting.cache), telemetry_of(world), usual)


class Going:
    """A run as it goes: what is seen now, and what an epoch gives."""

    def __init__(self, where: Ready, weights: Weights) -> None:
        self.where, self.world, self.rollout = where, where.setting.world, where.rollout
        self.cache, self.terms = where.setting.cache.copy(), replace(where.setting.terms, weights=weights)
        self.epoch, self.state = 0, np.array([-1, -1, STILL])
        self.remaining = np.zeros(len(self.world.problem.cluster.links) + 1)
        price = self.terms.usd_per_token
        self.taste = taste_of(np.array(weights), epoch_s=self.world.epoch_s, usual=where.usual, usd_per_token=price)

    def view(self) -> View:
        """What is known when the epoch begins."""
        told, forecast = until(self.where.told, self.epoch), self.where.setting.forecasts.at(self.epoch)
        arrived = share_arrived(self.rollout, self.state, self.remaining)
        stands = stands_of(self.state, arrived, self.world.epochs - self.epoch)
        return view_of(self.cache, self.terms, self.world.epoch_s, told, forecast, stands)

    def carry_out(self, action: Action) -> None:
        """Applies an answer."""
        self.rollout = rollout(self.world, self.cache, known=self.rollout)
        carry_out(self.rollout, self.state, self.remaining, action, first=self.state[CONFIGURATION] < 0)

    def go_on(self) -> float:
        """One epoch; its reward, in epochs of usual work."""
        gave, taste = np.zeros(5), self.taste
        advance(self.rollout, self.epoch, self.state, self.remaining, gave)
        self.epoch += 1
        return float(taste.token * gave[TOKENS] + taste.usd * gave[EGRESS_USD] + taste.busy_s * gave[BUSY_S])

    @property
    def over(self) -> bool:
        """Whether the world has ended."""
        return self.epoch == self.world.epochs


class TwoClocks:
    """A moving world in turns (``learn.turns.Turns``).

    Parameters
    ----------
    worlds
        Drawn from at the start of every episode; a world is made ready (1 to 3 s) when it is drawn first.
    domains
        Most domains of a world; what is seen is padded to so many.
    thresholds
        What makes a decision of the upper agent due.
    constructions
        Plans that an episode may construct at most; one per decision.
    weights
        Preferences; None: drawn, in every second episode work alone.
    seed
        Of worlds and preferences until ``reset`` is given one; another one for every process.

    Raises
    ------
    InputError
        No worlds, or one with more domains than ``domains``.
    """

    def __init__(
        self,
        worlds: Sequence[World],
        *,
        domains: int | None = None,
        thresholds: Thresholds | None = None,
        constructions: int = 12,
        weights: Weights | None = None,
        seed: int = 0,
    ) -> None:
        most = max((len(world.problem.cluster.domains) for world in worlds), default=0)
        self.worlds, self.size = tuple(worlds), most if domains is None else domains
        if not worlds or self.size < most:
            raise InputError(
                f"{len(worlds)} worlds of at most {most} domains",
                source="worlds",
                key="domains",
                value=domains,
                remedy="give a world at least, and room for its domains",
            )
        self.names = (UPPER, *(f"{LOWER}_{domain}" for domain in range(self.size)))
        self.thresholds, self.constructions, self.weights = thresholds or Thresholds(), constructions, weights
        self.answers = max(CONSTRUCT + 1, 2 * self.size * len(CLAIMS) + 1, MOST_ROWS)  # of the upper agent
        answers = {name: self.answers if name == UPPER else MOST_ROWS for name in self.names}
        self.action_spaces = {name: spaces.Discrete(each) for name, each in answers.items()}
        self._shapes = _shapes(self.names)
        self.observation_spaces = {name: _space(self._shapes[name], each) for name, each in answers.items()}
        self.figures: dict[str, float] = {}
        self.rng = np.random.default_rng(seed)
        self._ready: dict[int, Ready | None] = {}

    def reset(self, seed: int | None = None) -> Seen:
        """A world in which nothing runs yet.

        Raises
        ------
        InputError
            No world has a plan.
        """
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        where = self._drawn()
        self.run = Going(where, self._drawn_weights() if self.weights is None else self.weights)
        self.built, self._tried, self._changed = 0, False, 0
        return self._ask()

    def step(self, answers: dict[str, int]) -> tuple[Seen, dict[str, float], bool]:
        """Answers of those who were asked; what is seen next, rewards, whether the episode is over."""
        if self.asked == LAYOUT:
            rewards = self._arranged(answers)
            return self._ask(), rewards, False
        answer = allowed(self._mask, int(answers[UPPER]))
        if self.asked == OPTION and answer != CONSTRUCT:
            return self._decided(self._actions[answer])
        if self.asked == OPTION:
            return self._begin_draft(), {UPPER: 0.0}, False
        if self.asked == RECIPE:
            self.draft.choose_recipe(answer)
            return self._ask_lower(), {UPPER: 0.0}, False
        if answer < 2 * self.size * len(CLAIMS):
            self.draft.add(answer)
            return self._ask_domain(), {UPPER: 0.0}, False
        if np.isfinite(self.draft.step_s):
            return self._ask_recipe(), {UPPER: 0.0}, False
        return self._ask(), {UPPER: 0.0}, False

    # ------------------------------------------------------------------------------------------------- the slow clock
    def _drawn(self) -> Ready:
        for place in self.rng.permutation(len(self.worlds)):
            if place not in self._ready:
                self._ready[place] = ready(self.worlds[place])
            found = self._ready[place]
            if found is not None:
                return found
        raise InputError("no world has a plan", source="worlds", remedy="choose other families or seeds")

    def _drawn_weights(self) -> Weights:
        w_eff, w_util, w_cost = draw_weights(2, self.rng)[int(self.rng.random() < 0.5)]
        return float(w_eff), float(w_util), float(w_cost)

    def _decided(self, action: Action) -> tuple[Seen, dict[str, float], bool]:
        """The answer is carried out; epochs go by until the next decision is due or the world ends."""
        run, reward = self.run, 0.0
        if action.how is not How.KEEP:
            self._changed = run.epoch
        run.carry_out(action)
        last = seen(run.view())
        while run.epoch == last.epoch or not due(run.view(), last, self.thresholds):
            reward += run.go_on()
            if run.over:
                return {}, {UPPER: reward}, True
        self._tried = False
        return self._ask(), {UPPER: reward}, False

    def _ask(self) -> Seen:
        """The options of the moment."""
        view = self.run.view()
        found, self._actions = observe(view, quiet=float(self.run.epoch - self._changed))
        seen_now = {name: array[0] for name, array in found._asdict().items()}
        may = view.phase == STILL and not self._tried and self.built < self.constructions
        self.asked, self._options = OPTION, seen_now
        return self._upper(np.append(seen_now.pop("option_mask"), may), {})

    def _upper(self, allowed: NDArray[np.bool_], parts: Arrays) -> Seen:
        self._mask = np.zeros(self.answers, dtype=bool)
        self._mask[: len(allowed)] = allowed
        asked = np.eye(LAYOUT, dtype=np.float32)[self.asked]
        return {UPPER: self._as_seen(UPPER, self._options | parts | {"asked": asked}, self._mask)}

    # -------------------------------------------------------------------------------------------- while no time passes
    def _begin_draft(self) -> Seen:
        view = self.run.view()
        now = view.forecast
        state = now.bandwidth_bytes_per_s[0], now.latency_s[0], now.compute[0]
        self.draft = ConstructionState(site(view.cache.problem, *state))
        self.built, self._tried = self.built + 1, True
        return self._ask_domain()

    def _ask_domain(self) -> Seen:
        self.asked, found = DOMAIN, observe_domains([self.draft], size=self.size)
        self._chain = {f"chain_{name}": array[0] for name, array in found._asdict().items()}
        return self._upper(self._chain.pop("chain_mask"), self._chain)

    def _ask_recipe(self) -> Seen:
        self.asked, found = RECIPE, observe_recipes([self.draft])
        return self._upper(found.mask[0], self._chain | {"recipes": found.rows[0]})

    def _ask_lower(self) -> Seen:
        self.asked = LAYOUT
        self._rows, self._told = observe_layouts(self.draft)
        return {
            name: self._as_seen(name, {"rows": rows, "context": context}, mask)
            for name, rows, context, mask in zip(self._lower_names, *self._rows, strict=True)
        }

    def _arranged(self, answers: dict[str, int]) -> dict[str, float]:
        """The plan is built, played under the network of the moment and noted in the cache; rewards."""
        chosen = [allowed(m, int(answers[n])) for n, m in zip(self._lower_names, self._rows.mask, strict=True)]
        self.draft.rows = self._told[np.arange(len(chosen)), chosen]
        where, draft = self.draft.site, self.draft.draft
        made = played(where, build(where, draft))
        if made is None:
            return dict.fromkeys(self._lower_names, -NOTHING_BUILT)
        self.run.cache.add(made.plan, origin=CONSTRUCTED)
        shared = np.log(where.table.ideal_s / made.step_time_s)
        each = shared + lower_rewards(where, draft, made.step_time_s)
        return {name: float(reward) for name, reward in zip(self._lower_names, each, strict=True)}

    @property
    def _lower_names(self) -> list[str]:
        return [f"{LOWER}_{domain}" for domain in self.draft.chain]

    def _as_seen(self, name: str, parts: Arrays, mask: NDArray[np.bool_]) -> dict[str, Any]:
        """Parts padded to the shapes of the agent's space; parts that are not there are zero."""
        found = {part: np.zeros(shape, np.float32) for part, shape in self._shapes[name].items()}
        for part, array in parts.items():
            found[part][tuple(slice(length) for length in array.shape)] = array
        return {OBSERVED: found, ALLOWED: mask.astype(np.float32)}


def multi_agent_env(worlds: Sequence[World], *, flat: bool = True, **choices: Any) -> Any:
    """A ``ray.rllib.env.MultiAgentEnv`` over these worlds.

    Parameters
    ----------
    worlds
        As ``TwoClocks`` takes them, and so are ``choices``.
    flat
        ``observations`` is one array, as RLlib's own networks take it; else a dictionary of arrays, for a network that
        looks at the graph.

    Raises
    ------
    InputError
        RLlib is not installed.
    """
    return rllib_env(TwoClocks(worlds, **choices), flat=flat)


def _shapes(names: Sequence[str]) -> dict[str, Shapes]:
    """Of the parts that every agent sees, by its name, with room for so many domains."""
    size = len(names) - 1
    upper = {name: each.shape or () for name, each in observation_space(size).items()}
    del upper["option_mask"]
    upper |= {
        "asked": (LAYOUT,),
        "chain_nodes": (size, DRAFT_NODES),
        "chain_edges": (size, size, PAIRS),
        "chain_node_mask": (size,),
        "chain_context": (DRAFTS,),
        "chain_candidates": (2 * size + 1, CANDIDATES),
        "recipes": (MOST_ROWS, RECIPES),
    }
    lower: Shapes = {"rows": (MOST_ROWS, LAYOUTS), "context": (PLACES,)}
    return {name: upper if name == UPPER else lower for name in names}


def _space(shapes: Shapes, answers: int) -> spaces.Dict:
    parts: dict[str, spaces.Space[Any]] = {
        name: spaces.Box(-np.inf, np.inf, shape, np.float32) for name, shape in shapes.items()
    }
    return spaces.Dict({OBSERVED: spaces.Dict(parts), ALLOWED: spaces.Box(0.0, 1.0, (answers,), np.float32)})
