"""Typed access to the keys of a document, with messages that name file, key, value and remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn

from hippo.errors import InputError, UnknownNameError

SHORT = 5  # letters of a key
_REQUIRED: Any = object()


@dataclass(frozen=True)
class Table:
    """One mapping of a document and its place, read key by key; every complaint names source, key, value, remedy.

    Methods without a ``default`` require the key; with one, an absent or ``null`` key yields it.
    """

    values: Mapping[str, object]
    source: str
    place: str = ""  # for instance "links[2]"; empty at the top

    def key(self, name: str) -> str:
        """The full path of a key, for messages."""
        return f"{self.place}.{name}" if self.place else name

    def refuse(self, name: str, problem: str, remedy: str, *, value: object = None) -> NoReturn:
        """Raise the ``InputError`` of this key."""
        shown = self.values.get(name) if value is None else value
        raise InputError(problem, source=self.source, key=self.key(name), value=shown, remedy=remedy)

    def has(self, name: str) -> bool:
        """Whether the key is there and not null."""
        return self.values.get(name) is not None

    def number(
        self,
        name: str,
        *,
        default: Any = _REQUIRED,
        above: float | None = None,
        least: float | None = None,
        most: float = 1e30,
    ) -> Any:
        """A finite number in (``above``, ``most``] or [``least``, ``most``], as float."""
        if not self._given(name, default):
            return default
        value = self.values[name]
        bounds = _bounds(above, least, most)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.refuse(name, f"must be a number{_text_hint(value)}", f"write {bounds}")
        if isinstance(value, float) and not math.isfinite(value):
            self.refuse(name, "must be a finite number", f"write {bounds}")
        low_enough = value <= most
        high_enough = (above is None or value > above) and (least is None or value >= least)
        if not (low_enough and high_enough):
            self.refuse(name, "is out of range", f"write {bounds}")
        return float(value)

    def integer(self, name: str, *, default: Any = _REQUIRED, least: int = 1, most: int = 2**31) -> Any:
        """A whole number in [``least``, ``most``]; 4.0 is accepted as 4."""
        if not self._given(name, default):
            return default
        value = self.values[name]
        bounds = f"a whole number from {least} to {most}"
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(name, f"must be a whole number{_text_hint(value)}", f"write {bounds}")
        if not least <= value <= most:
            self.refuse(name, "is out of range", f"write {bounds}")
        return value

    def text(self, name: str, *, default: Any = _REQUIRED, longest: int = 2000) -> Any:
        """A non-empty printable text of at most ``longest`` characters."""
        if not self._given(name, default):
            return default
        value = self.values[name]
        if not isinstance(value, str):
            self.refuse(name, "must be text", "write it in quotes")
        if len(value) > longest or not value.isprintable():
            self.refuse(
                name, "is too long or holds unprintable characters", f"use at most {longest} printable characters"
            )
        if not value and default is _REQUIRED:
            self.refuse(name, "is empty", "write a name", value=value)
        return value

    def flag(self, name: str, *, default: Any = _REQUIRED) -> Any:
        """True or false."""
        if not self._given(name, default):
            return default
        value = self.values[name]
        if not isinstance(value, bool):
            self.refuse(name, "must be true or false", "write true or false, without quotes")
        return value

    def choice(self, name: str, allowed: Sequence[str], *, default: Any = _REQUIRED) -> Any:
        """One of the words in ``allowed``."""
        value = self.text(name, default=default)
        if value is not default and value not in allowed:
            raise UnknownNameError(name, value[:60], allowed, source=self.source, key=self.key(name))
        return value

    def items(self, name: str, *, default: Any = _REQUIRED, most: int = 1_000_000) -> Sequence[object]:
        """A list of at most ``most`` items."""
        if not self._given(name, default):
            return default  # type: ignore[no-any-return]
        value = self.values[name]
        if not isinstance(value, list):
            self.refuse(name, "must be a list", "write a list")
        if len(value) > most:
            self.refuse(name, f"holds {len(value)} items", f"write at most {most} items", value=f"{len(value)} items")
        return value

    def table(self, name: str, *, known: Sequence[str] | None, hints: Mapping[str, str] | None = None) -> Table:
        """The mapping under a required key."""
        self._given(name, _REQUIRED)
        return open_table(self.values[name], source=self.source, place=self.key(name), known=known, hints=hints)

    def tables(
        self, name: str, *, known: Sequence[str], hints: Mapping[str, str] | None = None, **limits: Any
    ) -> list[Table]:
        """The mappings of the list under a key (``default`` and ``most`` as in ``items``)."""
        return [
            open_table(item, source=self.source, place=f"{self.key(name)}[{index}]", known=known, hints=hints)
            for index, item in enumerate(self.items(name, **limits))
        ]

    def refuse_misspelt(self, known: Sequence[str]) -> None:
        """Raise where an unknown key all but spells a known one that is absent; other unknown keys may stay."""
        absent = [key for key in known if key not in self.values]
        for key in self.values:
            cutoff = 0.9 if len(key) > SHORT else 0.85  # one letter is a large share of a short key
            near = [] if key in known or len(key) > 60 else get_close_matches(key, absent, n=1, cutoff=cutoff)
            if near:
                self.refuse(key, f"unknown key, close to '{near[0]}'", f"rename it to '{near[0]}', or remove it")

    def _given(self, name: str, default: object) -> bool:
        if self.values.get(name) is not None:
            return True
        if default is not _REQUIRED:
            return False
        state = "is null" if name in self.values else "is missing"
        near = get_close_matches(name, [key for key in self.values if isinstance(key, str)], n=1)
        misspelt = bool(near) and name not in self.values
        hint = f" (there is '{near[0]}')" if misspelt else ""
        remedy = f"write a value for '{name}'" if name in self.values else f"add the key '{name}'"
        remedy = f"rename '{near[0]}' to '{name}'" if misspelt else remedy
        raise InputError(f"{state}{hint}", source=self.source, key=self.key(name), remedy=remedy)


def open_table(
    value: object,
    *,
    source: str,
    place: str = "",
    known: Sequence[str] | None = None,
    hints: Mapping[str, str] | None = None,
) -> Table:
    """A ``Table`` over a mapping whose keys are all in ``known`` (None: any key).

    ``hints`` maps wrong spellings to the remedy that the message gives, for instance another unit's key.
    """
    if not isinstance(value, dict):
        problem = "is empty" if value is None else "must be a mapping (key: value)"
        remedy = f"write its keys: {', '.join(known[:8])}" if known else "write a mapping (key: value)"
        raise InputError(problem, source=source, key=place or None, value=value, remedy=remedy)
    table = Table(value, source, place)
    for key in value if known is not None else ():
        if key in known:  # type: ignore[operator]
            continue
        if hints and key in hints:
            table.refuse(key, "unknown key", hints[key])
        if not isinstance(key, str):
            remedy = "write the name of a key"
            raise InputError("a key must be a string", source=source, key=place or None, value=key, remedy=remedy)
        raise UnknownNameError("key", key[:60], known or (), source=source, key=table.key(key[:60]), value=value[key])
    return table


def _bounds(above: float | None, least: float | None, most: float) -> str:
    """The range in words."""
    high = f"{_figure(most)}" if most < 1e30 else ""
    if above is not None:
        return f"a number above {_figure(above)}" + (f", at most {high}" if high else "")
    low = f" from {_figure(least)}" if least is not None else ""
    return f"a number{low}" + (f" to {high}" if high else "")


def _figure(value: float | None) -> str:
    assert value is not None
    return str(int(value)) if float(value).is_integer() and value < 1e7 else f"{value:g}"


def _text_hint(value: object) -> str:
    """What to leave out of a text that begins like a number."""
    if not (isinstance(value, str) and value[:1].isdigit()):
        return ""
    try:
        float(value)
    except ValueError:
        return " alone (the unit stands in the key's name)"
    return ", without quotes"
