"""Names that machines take: domains as lower-case ASCII words, each its own."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from types import MappingProxyType

MOST = 20  # a pod is called job-domain-hosts-0-0-xxxxx, of 63 letters at most


def slug(text: str) -> str:
    """Letters, digits and dashes, beginning with a letter (RFC 1123 and Python's own names both take it so)."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", ascii_text).strip("-")[:MOST].strip("-")
    return words if words[:1].isalpha() else f"d-{words}".rstrip("-")


def slugs(names: Iterable[str]) -> Mapping[str, str]:
    """A slug for each name, no two alike."""
    found: dict[str, str] = {}
    for name in names:
        word, again = slug(name), 2
        while word in found.values():
            word, again = f"{slug(name)}-{again}", again + 1
        found[name] = word
    return MappingProxyType(found)


def job_name(model: str) -> str:
    """What a job that trains the model is called."""
    return f"hippo-{slug(model)}"
