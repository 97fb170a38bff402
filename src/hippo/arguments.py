"""Arguments checked by their annotations: one place for every function and every class of options.

An annotation that is known to type checkers alone is not checked here: who takes such a value refuses what it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from functools import cache
from inspect import Parameter, signature
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from hippo.errors import InputError

LEAST = {"seed": 0, "seeds": 1, "processes": 1, "balance_delta": 0, "bandwidth_floor_gbps": 0}
"""The least values of arguments that mean the same wherever they stand; these are finite, too."""

REMEDIES = {
    "Problem": "make one with hippo.problem(model=.., cluster=..)",
    "Plan": "take decision.plan, or write problem, plan = hippo.load_plan(..)",
    "Stop": "write hippo.Stop(time_limit_s=10)",
    "Path": "write pathlib.Path(..)",
}
"""What to do about a value that should be of this class."""

WORDS: Mapping[Any, str] = {
    str: "a string",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    Path: "a path",
    Mapping: "a mapping with strings as keys",
    Iterable: "a list of strings",
    tuple: "a tuple of strings",
    Callable: "a function",
}
"""How messages name what is no class of hippo's."""


def check_call(function: Callable[..., object], arguments: tuple[object, ...], named: Mapping[str, object]) -> None:
    """``InputError`` for an argument that is not what its annotation says; Python itself counts the arguments."""
    expected, asked = _hints(function), signature(function)
    try:
        given = asked.bind(*arguments, **named).arguments
    except TypeError:
        return  # the call says so
    for name, value in given.items():
        if asked.parameters[name].kind is not Parameter.VAR_KEYWORD:
            several = asked.parameters[name].kind is Parameter.VAR_POSITIONAL
            for each in value if several else (value,):
                _check(name, each, expected[name])
            continue
        (options,) = get_args(expected[name])  # Unpack of a TypedDict
        for key, each in _hints(options).items():
            if key in value:
                _check(key, value[key], each)


def check_fields(options: Any) -> None:
    """The same for the fields of a dataclass, when one is made."""
    owner: Any = type(options)
    expected = _hints(owner)
    for each in fields(options):
        _check(each.name, getattr(options, each.name), expected[each.name])


@cache
def _hints(owner: Any) -> dict[str, Any]:
    unknown: dict[str, Any] = {}
    while True:
        try:
            return get_type_hints(owner, localns=unknown)
        except NameError as missing:
            unknown[str(missing.name)] = Any


def _check(name: str, value: object, expected: Any) -> None:
    kinds = [each for each in (get_args(expected) if _is_union(expected) else (expected,)) if each is not NoneType]
    if value is None and NoneType in get_args(expected):
        return
    if not any(_is(value, kind) for kind in kinds):
        *others, last = [WORDS.get(get_origin(kind) or kind) or f"a {kind.__name__}" for kind in kinds]
        told = f"{', '.join(others)} or {last}" if others else last
        remedy = REMEDIES.get(getattr(kinds[0], "__name__", ""), "give one")
        raise InputError(f"must be {told}", key=name, value=value, remedy=remedy)
    least = LEAST.get(name)
    if least is not None and isinstance(value, Real) and not least <= float(value) < math.inf:
        what = "a whole number" if int in kinds else "a finite number"
        raise InputError(f"must be {what} of at least {least}", key=name, value=value, remedy="give such a number")


def _is_union(expected: Any) -> bool:
    return get_origin(expected) in (Union, UnionType)


def _is(value: Any, kind: Any) -> bool:
    """Whether a value may stand where an annotation says so. A text is no list of texts, ``True`` is no number."""
    plain, inside = get_origin(kind) or kind, get_args(kind)
    if plain is Any:
        return True
    if plain in (int, float):
        number = isinstance(value, Integral if plain is int else Real) and not isinstance(value, bool)
        return number and not math.isnan(value)
    if plain is Path:
        return isinstance(value, PathLike)
    if plain is Mapping:
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    if plain in (Iterable, tuple) and inside[:1] == (str,):
        told = isinstance(value, Iterable) and not isinstance(value, str | bytes)
        return told and (not isinstance(value, Collection) or all(isinstance(each, str) for each in value))
    if getattr(plain, "_is_protocol", False) and plain is not Callable:
        return all(hasattr(value, name) for name in vars(plain) if not name.startswith("_"))
    return isinstance(value, plain)
