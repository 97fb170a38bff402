"""Settings of methods without learning, found on the training networks: ``settings.json``, which
``python -m benchmarks.heuristics`` writes. As many plays for each; the test split is never used for this."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Any, TypeVar

from hippo.network.methods.hysteresis import Dwell, Hysteresis
from hippo.network.methods.in_motion import InMotion, Motion
from hippo.network.methods.receding_horizon import Horizon, RecedingHorizon
from hippo.planners.baselines.crosspipe import CrossPipe
from hippo.planners.baselines.diloco import Diloco
from hippo.planners.baselines.mast import Mast
from hippo.planners.baselines.sailor import Sailor

Setting = TypeVar("Setting")


@cache
def searched() -> Mapping[str, Any]:
    """The document: ``budget``, and of each method ``setting`` and its mean share of hindsight's work there."""
    text = files("hippo.network.methods").joinpath("settings.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def chosen(name: str, kind: type[Setting]) -> Setting:
    """The best setting of a method; its defaults for one that was not searched."""
    return kind(**searched()["methods"].get(name, {}).get("setting", {}))


def receding_horizon() -> RecedingHorizon:
    """The method with its setting."""
    return RecedingHorizon(chosen(RecedingHorizon.name, Horizon))


def hysteresis() -> Hysteresis:
    """The same."""
    return Hysteresis(chosen(Hysteresis.name, Dwell))


def in_motion(make: Callable[[], Any]) -> InMotion:
    """A planner in motion with its setting."""
    return InMotion(make, chosen(make().name, Motion))


MAST, SAILOR = partial(in_motion, Mast), partial(in_motion, Sailor)
CROSSPIPE, DILOCO = partial(in_motion, CrossPipe), partial(in_motion, Diloco)
