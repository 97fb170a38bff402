"""The flat rival: MaskablePPO of Stable-Baselines3 on the same environment, without graph network and hierarchy.

It sees the same numbers laid end to end (at most ``MOST_DOMAINS`` domains; what lies beyond is not seen) and chooses
among the same options, which are made anew as for Hi-PPO when the network has moved far, where its environment would
have asked it (``hippo.network.rules.trigger``), with no lower agent and no verification. Trained by
``benchmarks/_train_flat_ppo.py``, served by numpy: no torch here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.learn.serving import Network, perceptron
from hippo.learn.weights import Form
from hippo.network.methods.static import start
from hippo.network.observation.features import CONTEXT, EDGES, MOST_OPTIONS, NODES, OPTIONS, Observation
from hippo.network.rules.renewal import Refresher
from hippo.network.rules.trigger import Seen, Thresholds, due, seen, standing
from hippo.network.rules.view import Action, How, View

Floats = NDArray[np.float32]
See = Callable[..., tuple[Observation, tuple[Action, ...]]]
"""``see(view, quiet=epochs since the last change)``."""

MOST_DOMAINS = 8
WIDTH = CONTEXT + MOST_OPTIONS * OPTIONS + MOST_DOMAINS * NODES + MOST_DOMAINS**2 * EDGES
FILE = Path(__file__).parent / "policies" / "flat_ppo.policy"
FORM = Form("flat PPO policy", {"width": [WIDTH, MOST_OPTIONS]}, "make one with benchmarks/_train_flat_ppo.py")


def flat(observation: Observation) -> Floats:
    """An observation laid end to end, (W, WIDTH): context, options, domains, links; what is not there is 0."""
    worlds = len(observation.context)
    options = _fitted(observation.options, (MOST_OPTIONS,))
    nodes = _fitted(observation.nodes, (MOST_DOMAINS,))
    edges = _fitted(observation.edges, (MOST_DOMAINS, MOST_DOMAINS))
    parts = (observation.context, *(each.reshape(worlds, -1) for each in (options, nodes, edges)))
    return np.concatenate(parts, axis=1, dtype=np.float32)


def flat_mask(observation: Observation) -> NDArray[np.bool_]:
    """Which of ``MOST_OPTIONS`` options may be chosen, (W, MOST_OPTIONS)."""
    found: NDArray[np.bool_] = _fitted(observation.option_mask, (MOST_OPTIONS,))
    return found


def _fitted(array: Any, sizes: tuple[int, ...]) -> Any:
    """The axes after the first cut or filled up with zeros to these sizes."""
    kept = array[(slice(None), *(slice(size) for size in sizes))]
    missing = [(0, 0), *((0, size - have) for size, have in zip(sizes, kept.shape[1:], strict=False))]
    return np.pad(kept, missing + [(0, 0)] * (kept.ndim - len(missing)))


class FlatPpo:
    """The most probable option whenever a decision is due. ``file``: another policy of ``train_flat_ppo``."""

    name = "flat_ppo"

    def __init__(self, file: Path | None = None, *, see: See | None = None) -> None:
        self._network = _shipped() if file is None else _network(file)
        self._see = _observe() if see is None else see
        self._refresher, self._answer = Refresher(), Action(How.KEEP)
        self._changed = self._before = 0  # epochs of the last answer that changed something, and of the one before
        self._last: Seen | None = None

    def begin(self, view: View) -> int:
        """Where the run begins: the most probable option of a first decision; without any, as ``static`` does."""
        found = start(view)
        self._refresher.begin(view)
        self._changed = self._before = view.epoch
        self._last = seen(view)
        action = self._act(view)
        self._answer = Action(How.SWITCH, action.target if action.target >= 0 else found)
        return self._answer.target

    def decide(self, view: View) -> Action:
        """The most probable option, where a decision is due."""
        if self._changed == view.epoch:  # asked again: the first answer is forgotten
            self._changed = self._before
        stands, self._answer = standing(view), Action(How.KEEP)
        if not due(view, self._last, Thresholds(), now=stands):
            return self._answer
        self._last, self._answer = seen(view, stands), self._act(view)
        if self._answer.how is not How.KEEP:
            self._before, self._changed = self._changed, view.epoch
        return self._answer

    def replan(self, view: View) -> bool:
        """Plans and levers where the network has moved far; whether any were found."""
        known = len(view.cache)
        self._refresher.replan(view, self._answer.target if self._answer.target >= 0 else view.running)
        return len(view.cache) > known

    def _act(self, view: View) -> Action:
        observation, actions = self._see(view, quiet=float(view.epoch - self._changed))
        logits = perceptron(self._network, flat(observation))
        best = int(np.where(flat_mask(observation), logits, -np.inf)[0].argmax())
        return actions[best] if best < len(actions) else Action(How.KEEP)


@cache
def _shipped() -> Network:
    return _network(FILE)


def _network(file: Path) -> Network:
    """The policy's layers; ``InputError`` where the file is missing or something else."""
    arrays, _ = FORM.read(file)
    try:
        fits = perceptron(arrays, np.zeros((1, WIDTH), np.float32)).shape == (1, MOST_OPTIONS)
    except (KeyError, ValueError, IndexError):
        fits = False
    if not fits:
        raise FORM.wrong(str(file))
    return arrays


def _observe() -> See:
    from hippo.network.observation.observe import observe

    found: See = observe
    return found
