"""From torch to a policy file that needs no torch: the arrays of every network by name (``hi_ppo.serving`` reads it).

The file is the same, byte for byte, for the same networks and the same account of how they were made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from hippo.files import write_whole
from hippo.network.hi_ppo.constructor import ARRANGE, CONSTRUCT, RECIPE
from hippo.network.hi_ppo.serving import FORM, GLOBAL
from hippo.network.train.construction_networks import Builders
from hippo.network.train.upper_network import GlobalAgent

LOG = "log_greed"  # learned as a logarithm, served as it is

Arrays = dict[str, NDArray[Any]]


def arrays(name: str, network: nn.Module) -> Arrays:
    """The arrays of a network under its name."""
    found = {key: each.detach().cpu().numpy() for key, each in network.state_dict().items()}
    if LOG in found:
        found["greed"] = np.exp(found.pop(LOG))
    return {f"{name}/{key}": each for key, each in found.items()}


def builders_arrays(builders: Builders) -> Arrays:
    """Of the constructing agents: ``construct`` and ``recipe`` are the upper one's, ``arrange`` is the lower one's."""
    parts = {CONSTRUCT: builders.constructor, RECIPE: builders.recipe, ARRANGE: builders.arrange}
    return {key: each for name, part in parts.items() for key, each in arrays(name, part).items()}


def save(path: str | Path, agent: GlobalAgent, *, others: Arrays | None = None, **made: Any) -> None:
    """A policy file of an upper agent, and of whatever other networks belong to it (``builders_arrays``).

    ``made``: whatever is worth keeping of how it was trained (JSON).
    """
    write_whole(path, FORM.packed({**arrays(GLOBAL, agent), **(others or {})}, **made))
