"""A trained policy of Hi-PPO: the networks of its agents, from a file, without torch.

The file (``hippo.learn.weights``) holds the arrays of every network under its name: ``global/option.weight``. A policy
has an upper agent (``global``) at least; ``construct``, ``recipe`` and ``arrange`` draft plans.

Letters: W worlds of a batch, K domains (padded), M options (padded).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.dynamics.forecast import HORIZONS
from hippo.errors import InputError, UnknownNameError
from hippo.learn.serving import chooser, constructor, upper
from hippo.learn.weights import Form
from hippo.network.construction import observe as construction
from hippo.network.hi_ppo.constructor import ARRANGE, CONSTRUCT, DOMAIN_INPUTS, RECIPE, ROW_INPUTS
from hippo.network.observation.features import (
    CONTEXT,
    CONTEXT_FEATURES,
    EDGE_FEATURES,
    EDGES,
    NODE_FEATURES,
    NODES,
    OPTION_FEATURES,
    OPTIONS,
    Observation,
)

Floats = NDArray[np.float32]

GLOBAL = "global"
NETWORKS: Mapping[str, Callable[[Any, Mapping[str, NDArray[Any]]], tuple[Floats, ...]]] = {
    GLOBAL: upper,
    CONSTRUCT: constructor,
    RECIPE: chooser,
    ARRANGE: chooser,
}
SHIPPED = Path(__file__).with_name("hi_ppo.policy")
FORM = Form(
    kind="Hi-PPO policy",
    features={
        "nodes": list(NODE_FEATURES),
        "edges": list(EDGE_FEATURES),
        "context": list(CONTEXT_FEATURES),
        "options": list(OPTION_FEATURES),
        "horizons": list(HORIZONS),
    },
    remedy="give a file that `hippo train` has written, or leave it out for the one that ships",
)


class PolicyOutput(NamedTuple):
    """What the upper agent thinks of a batch."""

    log_probs: Floats  # (W, M) of the options; -1e8 where masked
    value: Floats  # (W,) reward to come
    attention: Floats  # (W, K, K) how much row hears column


@dataclass(frozen=True, eq=False)
class Policy:
    """A policy in memory. ``made``: how it was trained."""

    made: Mapping[str, Any] = field(repr=False)
    source: str
    networks: Mapping[str, Mapping[str, Floats]] = field(repr=False)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """The policy in a file.

        Raises
        ------
        InputError
            No such file; not a policy, or damaged; of another version or with other features than this program's.
        """
        arrays, made = FORM.read(path)
        networks: dict[str, dict[str, Floats]] = {}
        for name, each in arrays.items():
            network, _, inside = name.partition("/")
            networks.setdefault(network, {})[inside] = each
        if GLOBAL not in networks:
            raise InputError("is a policy without an upper agent", source=str(path), key=GLOBAL, remedy=FORM.remedy)
        policy = cls(made, str(path), dict(sorted(networks.items())))
        for name in policy.networks:
            policy._try(name)
        return policy

    def act(self, observation: Observation) -> PolicyOutput:
        """What to do in each world of a batch."""
        return PolicyOutput(*self.run(GLOBAL, observation._asdict()))

    def run(self, name: str, inputs: Mapping[str, NDArray[Any]]) -> tuple[Floats, ...]:
        """What one network answers (``hippo.learn.serving``).

        Raises
        ------
        InputError
            The file holds no such network.
        """
        if name not in self.networks:
            raise UnknownNameError("network", name, self.networks, source=self.source)
        return NETWORKS[name](self.networks[name], inputs)

    def _try(self, name: str) -> None:
        """``InputError`` where a network cannot answer what this program asks."""
        try:
            found = NETWORKS[name](self.networks[name], example(name))
        except (KeyError, ValueError, IndexError):
            found = ()
        if not found or not all(np.isfinite(each).all() and each.dtype == np.float32 for each in found):
            raise InputError("network cannot be used", source=self.source, key=name, remedy=FORM.remedy)


def shipped() -> Policy:
    """The policy that comes with the package."""
    return Policy.load(SHIPPED)


def example(name: str, worlds: int = 1, domains: int = 2, rows: int = 3) -> dict[str, NDArray[Any]]:
    """What a network may be asked, nothing but zeros; all domains and rows (options, recipes, layouts) are there."""
    w, k, m = worlds, domains, rows

    def zeros(*shape: int) -> Floats:
        return np.zeros((w, *shape), np.float32)

    there = np.ones((w, k), dtype=bool)
    if name == GLOBAL:
        seen = (zeros(k, NODES), zeros(k, k, EDGES), there, zeros(CONTEXT))
        options = (zeros(m, OPTIONS), zeros(m, k), zeros(m, k, k), np.ones((w, m), dtype=bool))
        return Observation(*seen, *options)._asdict()
    if name == CONSTRUCT:
        drafts = (zeros(k, construction.NODES), zeros(k, k, construction.PAIRS), there, zeros(construction.DRAFTS))
        candidates = (zeros(k, 2, construction.CANDIDATES), zeros(1, construction.CANDIDATES))
        return dict(zip(DOMAIN_INPUTS, (*drafts, *candidates), strict=True))
    rows, context = construction.LAYOUTS, construction.PLACES
    if name == RECIPE:
        rows, context = construction.RECIPES, construction.DRAFTS
    return dict(zip(ROW_INPUTS, (zeros(m, rows), zeros(context)), strict=True))
