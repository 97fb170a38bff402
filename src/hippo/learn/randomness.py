"""Random generators as data, for checkpoints."""

from __future__ import annotations

from typing import Any


def words(state: Any) -> Any:
    """A generator's state with its 128-bit numbers as words, as a checkpoint holds them."""
    if isinstance(state, dict):
        return {name: words(each) for name, each in state.items()}
    return str(state) if isinstance(state, int) and not isinstance(state, bool) else state


def numbers(state: Any) -> Any:
    """The way back from ``words``."""
    if isinstance(state, dict):
        return {name: numbers(each) for name, each in state.items()}
    return int(state) if isinstance(state, str) and state.isdigit() else state
