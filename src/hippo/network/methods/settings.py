"""Settings of methods without learning, found on the training networks: ``settings.json``, which
``python -m benchmarks.heuristics`` writes. As many plays for each; the test split is never used for this."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

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
