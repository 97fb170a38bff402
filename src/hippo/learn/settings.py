"""Learning configurations: nested dataclasses, read from mappings, with a range for each number.

Each learner has its own beside it; ``Ppo`` is what all of them share. No torch here: the command line reads a
configuration before anything heavy is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, get_args, get_type_hints

from hippo.errors import InputError, UnknownNameError


def within(default: Any, low: float, high: float) -> Any:
    """A number (or several) with its range, both ends allowed."""
    return field(default=default, metadata={"low": low, "high": high})


def one_of(default: str, *names: str) -> Any:
    """A word from a short list."""
    return field(default=default, metadata={"names": names})


class Checked:
    """Checks its fields when made: ``InputError`` names the field, its value and its range."""

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]
            _check(each.name, getattr(self, each.name), each.metadata)


@dataclass(frozen=True)
class Ppo(Checked):
    """One update: how many decisions, how often each is looked at, how far the policy may move."""

    learning_rate: float = within(2e-3, 1e-7, 1.0)
    learning_rate_end: float = within(1e-4, 0.0, 1.0)  # reached linearly at the end of the run
    gamma: float = within(0.98, 0.0, 1.0)  # per epoch of the world
    gae_lambda: float = within(0.95, 0.0, 1.0)  # per decision
    clip: float = within(0.2, 0.0, 1.0)
    entropy: float = within(0.002, 0.0, 1.0)
    entropy_end: float = within(0.0, 0.0, 1.0)
    value: float = within(0.03, 0.0, 100.0)
    max_grad_norm: float = within(1.0, 1e-6, 1e6)
    target_kl: float = within(0.02, 0.0, 10.0)  # 0: never stop early
    steps_per_update: int = within(8192, 1, 10_000_000)  # decisions
    passes: int = within(3, 1, 1000)  # PPO's "epochs"; an epoch is a decision period here
    minibatch: int = within(1024, 1, 10_000_000)


def parse_as(kind: type[Any], document: Any, source: str | None = None) -> Any:
    """A configuration of any kind (nested dataclasses, each ``Checked``); raises ``InputError`` for an unknown key
    (with those that are close), a value of the wrong kind or out of range."""
    return _parse(kind, document, source, "")


def _parse(kind: Any, document: Any, source: str | None, key: str) -> Any:
    """One dataclass from one mapping."""
    if not isinstance(document, Mapping):
        remedy = "write keys and values, as the files in configs/algo do"
        raise InputError("must be a mapping", source=source, key=key or None, value=document, remedy=remedy)
    hints, given = get_type_hints(kind), {}
    metadata = {each.name: each.metadata for each in fields(kind)}
    for name, value in document.items():
        path = f"{key}.{name}" if key else str(name)
        if name not in hints:
            raise UnknownNameError("key", str(name), hints, source=source, key=path)
        if is_dataclass(hints[name]):
            given[name] = _parse(hints[name], value, source, path)
        else:
            many = get_args(hints[name])[-1:] == (...,)
            given[name] = _typed(getattr(kind, name, ()), value, source, path, many=many)
            _check(path, given[name], metadata[name], source)
    try:
        return kind(**given)
    except InputError as error:  # keys that are wrong together: their dataclass knows neither file nor section
        path = ".".join(part for part in (key, error.key) if part)
        raise InputError(error.problem, source=source, key=path, value=error.value, remedy=error.remedy) from None


def _typed(default: Any, value: Any, source: str | None, key: str, *, many: bool = False) -> Any:
    """A value as the kind of its default; YAML reads 3e-4 as a word, which is a number here. ``many``: a list of one or
    more, however many the default has."""
    if isinstance(default, tuple):
        if isinstance(value, list | tuple) and (not default or len(value) == len(default) or (many and value)):
            return tuple(
                _typed(default[0] if default else "", each, source, f"{key}[{i}]") for i, each in enumerate(value)
            )
        words = not default or isinstance(default[0], str)
        what = "a list of words" if words else f"a list of {'' if many else f'{len(default)} '}numbers"
        raise InputError(f"must be {what}", source=source, key=key, value=value, remedy=f"give {what}")
    if isinstance(default, float) and isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, float) and number:
        return float(value)
    if isinstance(default, bool) != isinstance(value, bool) or not isinstance(value, type(default)):
        what = {bool: "true or false", int: "a whole number", float: "a number"}.get(type(default), "a word")
        raise InputError(f"must be {what}", source=source, key=key, value=value, remedy=f"give {what}")
    return value


def _check(name: str, value: Any, metadata: Mapping[str, Any], source: str | None = None) -> None:
    """``InputError`` for a number out of its range (a NaN lies in none), or a word that is not in its list."""
    if "names" in metadata and value not in metadata["names"]:
        raise UnknownNameError("value", str(value), metadata["names"], source=source, key=name)
    if "low" in metadata:
        low, high = metadata["low"], metadata["high"]
        if not all(low <= each <= high for each in (value if isinstance(value, tuple) else (value,))):
            remedy = f"give a number from {low:g} to {high:g}"
            raise InputError(f"must be from {low:g} to {high:g}", source=source, key=name, value=value, remedy=remedy)
