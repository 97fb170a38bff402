"""Whether what a training run will hold fits this machine: said before any of it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from hippo.errors import InputError
from hippo.machine import available_bytes


@dataclass(frozen=True)
class Need:
    """Memory of a part of the training, and the keys (``section.key``) that it grows with."""

    held_bytes: float
    keys: tuple[str, ...]


def refuse_too_large(settings: Any, needs: Sequence[Need]) -> None:
    """``InputError`` where the needs are more than this machine has free; names the key that is furthest above its
    default among those of the largest need. Says nothing where the machine does not tell."""
    there, total = available_bytes(), sum(need.held_bytes for need in needs)
    if there is None or total <= there:
        return
    keys = max(needs, key=lambda need: need.held_bytes).keys
    usual = type(settings)()
    key = max(keys, key=lambda each: attrgetter(each)(settings) / max(attrgetter(each)(usual), 1e-9))
    others = " x ".join(each for each in keys if each != key)
    problem = f"makes training need some {total / 1e9:.3g} GB, and this machine has {there / 1e9:.3g} GB free"
    remedy = f"give less, or less of {others}" if others else "give less"
    raise InputError(problem, key=key, value=attrgetter(key)(settings), remedy=remedy)
