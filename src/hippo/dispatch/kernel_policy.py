"""The dispatch policy that ships, and policies from files."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from hippo.dispatch.network import FORM, Weights, sound, unpacked

SHIPPED = "dispatch.npz"


@lru_cache(maxsize=1)
def shipped() -> Weights:
    """The weights that come with the package."""
    return unpacked((files("hippo.dispatch") / SHIPPED).read_bytes(), SHIPPED)


def read(path: str | Path) -> Weights:
    """Weights from a file; ``InputError`` when there is none, or it is something else."""
    return sound(FORM.read(path)[0], str(path))
