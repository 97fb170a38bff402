"""The learning configuration: what ``configs/algo/hi_ppo.yaml`` may say, with a range for each number.

The defaults are what trained the shipped policy; the file repeats them, with the start they were tuned from. No torch
here: the command line reads a configuration before anything heavy is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from hippo.errors import InputError, UnknownNameError
from hippo.files import read_text
from hippo.problem.document import parse_yaml


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


@dataclass(frozen=True)
class Network(Checked):
    """The graph network of the upper agent."""

    encoder: str = one_of("sage", "sage", "gatv2", "none")
    layers: int = within(2, 1, 8)
    hidden: int = within(32, 4, 1024)
    heads: int = within(2, 1, 16)  # of gatv2
    worth_scale: float = within(8.0, 0.0, 100.0)  # logits start as this times the expected worth


@dataclass(frozen=True)
class Multipliers(Checked):
    """Dual ascent on the constraints: bandwidth floor, balance, latency (stability)."""

    enabled: bool = True
    start: float = within(0.0, 0.0, 1e6)
    rate: float = within(0.05, 0.0, 1e3)
    most: float = within(5.0, 0.0, 1e6)
    limits: tuple[float, float, float] = within((0.05, 0.25, 0.01), 0.0, 1e6)


@dataclass(frozen=True)
class Worlds(Checked):
    """The bank of prepared worlds: made first, then kept in a file."""

    families: tuple[str, ...] = ()  # empty: all that the generator knows
    train: int = within(220, 1, 1_000_000)  # problems
    movements: int = within(3, 1, 1000)  # of the network of each training problem
    validation: int = within(99, 0, 1_000_000)  # other seeds of the train split: for looking, never for learning
    first_seed: int = within(0, 0, 2**31)
    processes: int = within(2, 1, 1024)
    engine: str = one_of("fast", "fast", "reference", "astra")
    """What plays the truth; reference: some hundred times slower; astra: the user's binary, thousands of times."""
    traces: tuple[str, ...] = ()  # offline: "MODEL,CLUSTER,NET.csv" each, met beside the generated ones


@dataclass(frozen=True)
class Run(Checked):
    """How long, how wide, how often it looks up."""

    seed: int = within(0, 0, 2**31)
    minutes: float = within(45.0, 0.0, 1e6)  # of wall clock; 0: no limit
    construction_minutes: float = within(10.0, 0.0, 1e6)  # afterwards, for the agents that construct; 0: none
    updates: int = within(120, 1, 10_000_000)
    parallel: int = within(256, 1, 1_000_000)  # worlds that run at once, of all shares together
    shares: int = within(2, 1, 1024)  # independent halves of them: 2 processes then learn what 1 does
    checkpoint_every: int = within(10, 1, 1_000_000)
    validate_every: int = within(10, 1, 1_000_000)


@dataclass(frozen=True)
class Ablation(Checked):
    """What is left out, to see what it was worth."""

    no_gnn: bool = False  # options are scored by their own features alone
    no_forecast: bool = False  # every horizon is told as now
    flat: bool = False  # no construction, no lower agents
    no_multipliers: bool = False
    no_masks: bool = False  # whatever is chosen and cannot run counts as keeping


@dataclass(frozen=True)
class Settings:
    """The whole configuration."""

    ppo: Ppo = field(default_factory=Ppo)
    network: Network = field(default_factory=Network)
    multipliers: Multipliers = field(default_factory=Multipliers)
    worlds: Worlds = field(default_factory=Worlds)
    run: Run = field(default_factory=Run)
    ablation: Ablation = field(default_factory=Ablation)


def load_settings(path: str | Path) -> Settings:
    """The configuration in a YAML file; what it does not say has its default.

    Raises
    ------
    InputError
        No such file, no YAML, a key that stands twice or is unknown (with those that are close), a value of the wrong
        kind or out of range.
    """
    document = parse_yaml(read_text(path, what="learning configuration"), str(path))
    return parse_settings({} if document is None else document, source=str(path))


def parse_settings(document: Any, *, source: str | None = None) -> Settings:
    """A configuration from nested mappings; ``InputError`` as of ``load_settings``."""
    found: Settings = parse_as(Settings, document, source)
    return found


def parse_as(kind: type[Any], document: Any, source: str | None = None) -> Any:
    """A configuration of any kind (nested dataclasses, each ``Checked``); ``InputError`` as of ``load_settings``."""
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
            given[name] = _typed(getattr(kind, name, ()), value, source, path)
            _check(path, given[name], metadata[name], source)
    try:
        return kind(**given)
    except InputError as error:  # keys that are wrong together: their dataclass knows neither file nor section
        path = ".".join(part for part in (key, error.key) if part)
        raise InputError(error.problem, source=source, key=path, value=error.value, remedy=error.remedy) from None


def _typed(default: Any, value: Any, source: str | None, key: str) -> Any:
    """A value as the kind of its default; YAML reads 3e-4 as a word, which is a number here."""
    if isinstance(default, tuple):
        if isinstance(value, list | tuple) and (not default or len(value) == len(default)):
            return tuple(
                _typed(default[0] if default else "", each, source, f"{key}[{i}]") for i, each in enumerate(value)
            )
        what = f"a list of {len(default)} numbers" if default else "a list of words"
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
