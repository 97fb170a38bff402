"""Upper and lower agents as RLlib's multi-agent environment, on two clocks.

``upper`` joins one domain after the other to a chain (or stops), then chooses a recipe; only then ``lower_<domain>`` of
every domain of the chain appears, once, and they choose their layouts all at the same time. The plan is built and
played: the reward of everybody is the log of a reference step time over the plan's, the lower agents' own terms come on
top. Whoever is not asked is absent from the observations, as RLlib wants it. Masked answers count as the first that is
allowed, because RLlib's check of environments answers at random.

RLlib is imported only when an environment is made; it is no dependency.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hippo.envs.cross_domain.construct import CLAIMS, NOTHING_BUILT, Draft, Site, build, lower_rewards, played, site
from hippo.envs.cross_domain.drafting import (
    CANDIDATES,
    DRAFTS,
    LAYOUTS,
    MOST_ROWS,
    NODES,
    PAIRS,
    PLACES,
    RECIPES,
    Drafting,
    observe_domains,
    observe_layouts,
    observe_recipes,
)
from hippo.envs.cross_domain.world import World
from hippo.errors import InputError

UPPER, LOWER = "upper", "lower"
Seen = dict[str, dict[str, NDArray[Any]]]


class Construction:
    """What RLlib's environment does, without RLlib: worlds at a random epoch, one plan per episode."""

    def __init__(self, worlds: Sequence[World], *, domains: int | None = None) -> None:
        assert worlds
        self.worlds = tuple(worlds)
        self.size = domains or max(len(world.problem.cluster.domains) for world in worlds)
        self.names = (UPPER, *(f"{LOWER}_{domain}" for domain in range(self.size)))
        self.rng = np.random.default_rng(0)

    def begin(self, seed: int | None = None) -> Seen:
        """A world, an epoch, an empty chain."""
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        world = self.worlds[int(self.rng.integers(len(self.worlds)))]
        epoch = int(self.rng.integers(world.epochs))
        self.site: Site = site(
            world.problem, world.bandwidth_bytes_per_s[epoch], world.latency_s[epoch], world.compute[epoch]
        )
        self.draft, self.stopped, self.over = Drafting(self.site), False, False
        return self._upper()

    def act(self, answers: dict[str, int]) -> tuple[Seen, dict[str, float], bool]:
        """Answers of those who were asked; what is seen next, rewards, whether the episode is over."""
        if self.draft.recipe >= 0:
            return self._layouts(answers)
        answer = self._allowed(int(answers[UPPER]))
        if self.stopped:
            self.draft.choose_recipe(answer)
            return self._lower(), {UPPER: 0.0}, False
        if answer == 2 * self.size * len(CLAIMS):
            self.stopped = True
        else:
            self.draft.add(answer)
        if self.stopped and not np.isfinite(self.draft.step_s):
            self.over = True
            return {}, {UPPER: -NOTHING_BUILT}, True
        return self._upper(), {UPPER: 0.0}, False

    def _allowed(self, answer: int) -> int:
        """The answer, or the first that is allowed."""
        return answer if answer < len(self._mask) and self._mask[answer] else int(np.argmax(self._mask))

    def _upper(self) -> Seen:
        chains = observe_domains([self.draft], size=self.size)
        recipes = observe_recipes([self.draft]) if self.stopped else None
        seen = {f"chain_{name}": array[0] for name, array in chains._asdict().items()}
        allowed = chains.mask[0] if recipes is None else recipes.mask[0]
        mask = np.zeros(self._answers, dtype=bool)
        mask[: len(allowed)] = allowed
        seen["recipes"] = np.zeros((MOST_ROWS, RECIPES), np.float32) if recipes is None else recipes.rows[0]
        self._mask = mask
        seen.pop("chain_mask")
        return {UPPER: _plain(seen | {"mask": mask, "recipe": np.array([float(self.stopped)], np.float32)})}

    def _lower(self) -> Seen:
        rows, self._told = observe_layouts(self.draft)
        self._layout_mask = rows.mask
        return {
            f"{LOWER}_{domain}": _plain(
                {"rows": rows.rows[place], "context": rows.context[place], "mask": rows.mask[place]}
            )
            for place, domain in enumerate(self.draft.chain)
        }

    def _layouts(self, answers: dict[str, int]) -> tuple[Seen, dict[str, float], bool]:
        """The plan is built and played."""
        rows = self.draft.rows.copy()
        for place, domain in enumerate(self.draft.chain):
            answer, mask = int(answers[f"{LOWER}_{domain}"]), self._layout_mask[place]
            chosen = answer if answer < len(mask) and mask[answer] else int(np.argmax(mask))
            rows[place] = self._told[place, chosen]
        draft = Draft(self.draft.chain, self.draft.claims, self.draft.recipe, rows)
        built = played(self.site, build(self.site, draft))
        self.over = True
        shared = -NOTHING_BUILT if built is None else float(np.log(self.site.ground.ideal_s / built.step_time_s))
        own = np.zeros(len(rows)) if built is None else lower_rewards(self.site, draft, built.step_time_s)
        lower = {f"{LOWER}_{each}": shared + float(own[at]) for at, each in enumerate(self.draft.chain)}
        return {}, {UPPER: shared} | lower, True

    @property
    def observation_spaces(self) -> dict[str, spaces.Space[Any]]:
        """Of every agent by its name."""
        upper = {
            "chain_nodes": (self.size, NODES),
            "chain_edges": (self.size, self.size, PAIRS),
            "chain_context": (DRAFTS,),
            "chain_candidates": (2 * self.size + 1, CANDIDATES),
            "recipes": (MOST_ROWS, RECIPES),
            "recipe": (1,),
        }
        masks = {"chain_node_mask": self.size, "mask": self._answers}
        lower = {"rows": (MOST_ROWS, LAYOUTS), "context": (PLACES,)}
        each = _space(lower, {"mask": MOST_ROWS})
        return {UPPER: _space(upper, masks)} | dict.fromkeys(self.names[1:], each)

    @property
    def action_spaces(self) -> dict[str, spaces.Space[Any]]:
        """Of every agent by its name."""
        upper: spaces.Space[Any] = spaces.Discrete(self._answers)
        return {UPPER: upper} | dict.fromkeys(self.names[1:], spaces.Discrete(MOST_ROWS))

    @property
    def _answers(self) -> int:
        return max(2 * self.size * len(CLAIMS) + 1, MOST_ROWS)


def multi_agent_env(worlds: Sequence[World], *, domains: int | None = None) -> Any:
    """An ``ray.rllib.env.MultiAgentEnv`` over these worlds.

    Raises
    ------
    InputError
        RLlib is not installed.
    """
    try:
        from ray.rllib.env.multi_agent_env import MultiAgentEnv
    except ImportError:
        raise InputError("RLlib is not installed", source="ray", remedy="pip install 'ray[rllib]'") from None

    class TwoClocks(MultiAgentEnv):  # type: ignore[misc,unused-ignore]
        """RLlib's view of ``Construction``."""

        def __init__(self) -> None:
            super().__init__()
            self.construction = Construction(worlds, domains=domains)
            self.possible_agents = list(self.construction.names)
            self.agents = list(self.possible_agents)
            self.observation_spaces = self.construction.observation_spaces
            self.action_spaces = self.construction.action_spaces

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Seen, dict[str, Any]]:
            return self.construction.begin(seed), {}

        def step(self, action_dict: dict[str, int]) -> tuple[Any, ...]:
            seen, rewards, over = self.construction.act(action_dict)
            return seen, rewards, {"__all__": over}, {"__all__": False}, {}

    return TwoClocks()


def _space(numbers: dict[str, tuple[int, ...]], masks: dict[str, int]) -> spaces.Dict:
    found: dict[str, spaces.Space[Any]] = {
        name: spaces.Box(-np.inf, np.inf, shape, np.float32) for name, shape in numbers.items()
    }
    return spaces.Dict(found | {name: spaces.MultiBinary(count) for name, count in masks.items()})


def _plain(seen: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: array.astype(np.int8 if array.dtype == np.bool_ else np.float32) for name, array in seen.items()}
