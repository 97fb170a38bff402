"""Reading objects by the openAPI schemas of JobSet and Kueue: unknown and missing fields, types, enumerations.

``crds.json``: the schemas of JobSet v1alpha2 (Aug 2026) and Kueue v1beta2 (Aug 2026) as their repositories publish them
(kubernetes-sigs/jobset, kubernetes-sigs/kueue; Apache License 2.0), without descriptions, defaults and CEL rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMAS: dict[str, Any] = json.loads(Path(__file__).with_name("crds.json").read_text())
TYPES: dict[str, type | tuple[type, ...]] = {"object": dict, "array": list, "string": str, "integer": int}
TYPES |= {"boolean": bool, "number": (int, float)}


def faults(document: dict[str, Any], schema: dict[str, Any] | None = None) -> list[str]:
    """What is wrong with an object, by the schema of its kind, or another."""
    version = document["apiVersion"].rpartition("/")[2]
    return list(_faults(document, schema or SCHEMAS[f"{document['kind']}/{version}"], document["kind"]))


def _faults(value: Any, schema: dict[str, Any], place: str) -> Iterator[str]:
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str):
            yield f"{place}: neither number nor text"
        return
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        yield f"{place}: not of type {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str):
        pattern = schema.get("pattern", "")
        if not re.search(pattern.replace("(?i)", ""), value, re.IGNORECASE if "(?i)" in pattern else 0):
            yield f"{place}: {value!r} does not match {pattern}"
        if len(value) > schema.get("maxLength", len(value)):
            yield f"{place}: too long"
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _faults(item, schema.get("items", {}), f"{place}[{at}]")
    elif isinstance(value, dict):
        yield from _fields(value, schema, place)


def _fields(value: dict[str, Any], schema: dict[str, Any], place: str) -> Iterator[str]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    yield from (f"{place}.{name}: missing" for name in schema.get("required", ()) if name not in value)
    free = schema.get("x-kubernetes-preserve-unknown-fields") or (not known and more is None)
    for name, item in value.items():
        if name in known:
            yield from _faults(item, known[name], f"{place}.{name}")
        elif isinstance(more, dict):
            yield from _faults(item, more, f"{place}.{name}")
        elif not free:
            yield f"{place}.{name}: unknown field"
