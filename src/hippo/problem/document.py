"""Documents (JSON, YAML) as plain values.

Both readers refuse duplicate keys, numbers that are not finite, and nesting deeper than ``MAX_DEPTH``. YAML follows the
1.2 core schema (``no`` is a word, ``1e3`` a number) without anchors, aliases and tags, so a small file stays small.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from hippo.errors import InputError

MAX_DEPTH = 64
_NO_KEY: Any = object()


def parse_json(text: str, source: str) -> object:
    """The value of a strict JSON text; ``InputError`` names line and column where it breaks."""

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(items)
        if len(found) < len(items):
            keys = [key for key, _ in items]
            twice = next(key for key in keys if keys.count(key) > 1)
            _refuse_duplicate(twice, source)
        return found

    try:
        value: object = json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        truncated = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        remedy = "give the whole file; it ends too early" if truncated else "correct the JSON there"
        raise InputError(f"not valid JSON: {error.msg}", source=source, key=where, remedy=remedy) from None
    except RecursionError:
        raise _too_deep(source) from None
    except InputError:
        raise
    except ValueError:  # an integer of more digits than Python converts
        raise InputError("a number has thousands of digits", source=source, remedy="write it as 1e9") from None
    _check_values(value, source)
    return value


def parse_yaml(text: str, source: str) -> object:
    """The value of a YAML text (one document, 1.2 core schema, no anchors, no tags)."""
    import yaml  # late: 20 ms that planning from the catalogue does not need

    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        value = _compose(yaml.parse(text, Loader=loader), source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else None
        raise InputError(
            f"not valid YAML: {error.problem or error.context}",
            source=source,
            key=where,
            remedy="correct the YAML there",
        ) from None
    except yaml.YAMLError as error:  # a control character
        problem = f"not valid YAML: {str(error).splitlines()[0]}"
        raise InputError(problem, source=source, remedy="save it as plain UTF-8 text") from None
    except UnicodeError:
        raise InputError("not valid YAML: half a character", source=source, remedy="save it as UTF-8") from None
    _check_values(value, source)
    return value


def _compose(events: Iterator[Any], source: str) -> object:
    """Build the value from parser events with a stack of our own, so that depth never becomes recursion."""
    root: list[object] = []
    stack: list[Any] = [root]  # containers under construction
    keys: list[object] = [_NO_KEY]  # the key that waits for its value, per open container
    for event in events:
        kind, line = type(event).__name__, event.start_mark.line + 1
        if kind == "AliasEvent" or getattr(event, "anchor", None):
            _refuse_yaml("anchors and aliases are not supported", source, line, "write the value out")
        if getattr(event, "tag", None):
            _refuse_yaml(f"tag {event.tag} is not supported", source, line, "write the bare value")
        if kind == "DocumentStartEvent" and root:
            _refuse_yaml("a second document starts here", source, line, "keep one document in the file")
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            stack.pop()
            keys.pop()
        elif kind in ("ScalarEvent", "MappingStartEvent", "SequenceStartEvent"):
            value: Any = [] if kind == "SequenceStartEvent" else {}
            if kind == "ScalarEvent":
                value = _scalar(event.value) if event.implicit[0] else event.value
            _attach(stack[-1], keys, value, source=source, line=line)
            if kind != "ScalarEvent":
                if len(stack) > MAX_DEPTH:
                    raise _too_deep(source)
                stack.append(value)
                keys.append(_NO_KEY)
    return root[0] if root else None


def _attach(parent: Any, keys: list[object], value: object, *, source: str, line: int) -> None:
    """Put a finished key or value where it belongs in the innermost open container."""
    if isinstance(parent, list):
        parent.append(value)
    elif keys[-1] is not _NO_KEY:
        parent[keys[-1]] = value
        keys[-1] = _NO_KEY
    elif not isinstance(value, str):
        _refuse_yaml(f"a key must be a word, not {value!r:.40}", source, line, "write a key of the format, or quote it")
    elif value in parent:
        _refuse_duplicate(value, f"{source}: line {line}")
    else:
        keys[-1] = value


_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_ENDLESS = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def _scalar(text: str) -> object:
    """A plain scalar under the YAML 1.2 core schema."""
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text) and len(text) < 400:
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _ENDLESS.fullmatch(text):
        return float(text.replace(".", "", 1))  # refused with its key when the whole value is there
    return text


def _refuse_yaml(problem: str, source: str, line: int, remedy: str) -> NoReturn:
    raise InputError(problem, source=source, key=f"line {line}", remedy=remedy)


def _refuse_duplicate(key: str, source: str) -> NoReturn:
    raise InputError(f"key '{key[:60]}' is given twice", source=source, remedy="keep one of them")


def _too_deep(source: str) -> InputError:
    return InputError(
        f"nested deeper than {MAX_DEPTH} levels", source=source, remedy="give a file of the documented form"
    )


def _check_values(value: object, source: str) -> None:
    """No nesting beyond ``MAX_DEPTH``, no number that is not finite; the walk keeps its own stack."""
    waiting: list[tuple[object, tuple[object, ...]]] = [(value, ())]
    while waiting:
        item, path = waiting.pop()
        if isinstance(item, float) and not math.isfinite(item):
            key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
            name = "NaN" if math.isnan(item) else "Infinity" if item > 0 else "-Infinity"
            raise InputError(f"{name} is not a finite number", source=source, key=key, remedy="write a finite number")
        if isinstance(item, (dict, list)):
            if len(path) >= MAX_DEPTH:
                raise _too_deep(source)
            inner = item.items() if isinstance(item, dict) else enumerate(item)
            waiting.extend((child, (*path, key)) for key, child in inner)
