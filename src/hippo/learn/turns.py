"""Agents that are asked in turns, on clocks of their own, as RLlib's and as PettingZoo's environment.

Whoever is not asked is absent from what is seen. An agent sees ``{"observations": {name: array}, "action_mask": ..}``,
as RLlib's masking modules name it, and answers with a number; a masked answer counts as the first that is allowed,
because the checks of both libraries answer at random.

RLlib and PettingZoo are imported only when an environment is made; they are no dependencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hippo.errors import MissingExtraError

OBSERVED, ALLOWED = "observations", "action_mask"
"""Keys of what an agent sees."""
Seen = dict[str, dict[str, Any]]
"""By the name of the agent that is asked."""


class Turns(Protocol):
    """An episode in turns."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of all agents."""
        ...

    @property
    def observation_spaces(self) -> Mapping[str, spaces.Dict]:
        """Of each agent: ``observations``, one array or a dictionary of arrays, and ``action_mask``."""
        ...

    @property
    def action_spaces(self) -> Mapping[str, spaces.Discrete]:
        """Of each agent."""
        ...

    @property
    def figures(self) -> Mapping[str, float]:
        """Of an episode that is over."""
        ...

    def reset(self, seed: int | None = None) -> Seen:
        """A new episode: who is asked first."""
        ...

    def step(self, answers: dict[str, int]) -> tuple[Seen, dict[str, float], bool]:
        """Answers of those who were asked; who is asked next, rewards, whether the episode is over."""
        ...


def allowed(mask: NDArray[Any], answer: int) -> int:
    """The answer, or the first that is allowed."""
    return answer if answer < len(mask) and mask[answer] else int(np.argmax(mask))


def rllib_env(turns: Turns, *, flat: bool = True) -> Any:
    """A ``ray.rllib.env.MultiAgentEnv``; ``env.turns`` is what it plays.

    ``flat``: ``observations`` is one array, as RLlib's own networks take it; else a dictionary of arrays, for a network
    that looks at the graph. ``InputError``: RLlib is not installed.
    """
    try:
        from ray.rllib.env.multi_agent_env import MultiAgentEnv
    except ImportError:
        raise MissingExtraError("RLlib", "learn,ray") from None

    class RllibTurns(MultiAgentEnv):  # type: ignore[misc,unused-ignore]
        """RLlib's view of ``Turns``."""

        def __init__(self) -> None:
            super().__init__()
            self.turns, self.parts = turns, turns.observation_spaces
            self.agents = self.possible_agents = list(turns.names)
            self.observation_spaces = {name: _flat_space(each) if flat else each for name, each in self.parts.items()}
            self.action_spaces = dict(turns.action_spaces)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Seen, dict[str, Any]]:
            return self._seen(turns.reset(seed)), {}

        def step(self, action_dict: dict[str, int]) -> tuple[Any, ...]:
            seen, rewards, over = turns.step(action_dict)
            told = {"__common__": dict(turns.figures)} if over and turns.figures else {}
            return self._seen(seen), rewards, {"__all__": over}, {"__all__": False}, told

        def _seen(self, found: Seen) -> Seen:
            return {name: _flattened(self.parts[name], each) for name, each in found.items()} if flat else found

    return RllibTurns()


def pettingzoo_env(turns: Turns) -> Any:
    """A ``pettingzoo.AECEnv``: who is asked at the same time answers one after another, and the last of them lets the
    episode go on. What an agent sees, when it is asked or not, is what it saw last; its ``observations`` are one array.

    ``InputError``: PettingZoo is not installed.
    """
    try:
        from pettingzoo import AECEnv
    except ImportError:
        raise MissingExtraError("PettingZoo", "learn,pettingzoo") from None

    class PettingZooTurns(AECEnv):  # type: ignore[misc,unused-ignore]
        """PettingZoo's view of ``Turns``."""

        metadata = {"name": "hippo", "render_modes": [], "is_parallelizable": False}
        agent_selection: str

        def __init__(self) -> None:
            super().__init__()
            self.turns, self.parts = turns, turns.observation_spaces
            self.possible_agents = list(turns.names)
            self.spaces = {name: _with_bits(_flat_space(each)) for name, each in self.parts.items()}
            self.actions = dict(turns.action_spaces)

        def observation_space(self, agent: str) -> spaces.Dict:
            return self.spaces[agent]

        def action_space(self, agent: str) -> spaces.Discrete:
            return self.actions[agent]

        def observe(self, agent: str) -> Any:
            return self.last_seen[agent]

        def reset(self, seed: int | None = None, options: Any = None) -> None:
            self.agents = list(self.possible_agents)
            self.rewards = dict.fromkeys(self.agents, 0.0)
            self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
            self.terminations = dict.fromkeys(self.agents, False)
            self.truncations = dict.fromkeys(self.agents, False)
            self.infos: dict[str, dict[str, Any]] = {name: {} for name in self.agents}
            self.last_seen = {name: _nothing(space) for name, space in self.spaces.items()}
            self._ask(turns.reset(seed))

        def step(self, action: int | None) -> None:
            agent = self.agent_selection
            if self.terminations[agent]:
                self._was_dead_step(action)
                return
            assert action is not None
            self._cumulative_rewards[agent] = 0.0
            self._clear_rewards()
            self.answers[agent] = int(action)
            if self.asked:
                self.agent_selection = self.asked.pop(0)
                return
            seen, rewards, over = turns.step(self.answers)
            self.rewards |= rewards
            self._accumulate_rewards()
            if over:
                self.terminations = dict.fromkeys(self.agents, True)
                self.infos = {name: dict(turns.figures) for name in self.agents}
                self.agent_selection = self.agents[0]
            else:
                self._ask(seen)

        def _ask(self, seen: Seen) -> None:
            for name, each in seen.items():
                found = _flattened(self.parts[name], each)
                self.last_seen[name] = found | {ALLOWED: found[ALLOWED].astype(np.int8)}
            self.answers: dict[str, int] = {}
            self.asked = list(seen)
            self.agent_selection = self.asked.pop(0)

    return PettingZooTurns()


def _flat_space(space: spaces.Dict) -> spaces.Dict:
    return spaces.Dict({OBSERVED: spaces.flatten_space(space[OBSERVED]), ALLOWED: space[ALLOWED]})


def _flattened(space: spaces.Dict, seen: dict[str, Any]) -> dict[str, NDArray[Any]]:
    return {OBSERVED: spaces.flatten(space[OBSERVED], seen[OBSERVED]), ALLOWED: seen[ALLOWED]}


def _with_bits(space: spaces.Dict) -> spaces.Dict:
    """The mask as whole numbers, as PettingZoo draws by it."""
    length = space[ALLOWED].shape or (0,)
    return spaces.Dict({OBSERVED: space[OBSERVED], ALLOWED: spaces.Box(0, 1, length, np.int8)})


def _nothing(space: spaces.Dict) -> dict[str, NDArray[Any]]:
    """Seen by who was not asked yet."""
    found = {name: np.zeros(each.shape or (), each.dtype) for name, each in space.items()}
    found[ALLOWED][0] = 1
    return found
