"""What was learned, as arrays, and as a file that is checked when it is read.

Letters: S classes of the past, B bins, V what the hazard network sees of a bin, g its units.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.learned.past import BINS, EDGES_S, SEEN, SOURCES
from hippo.learn.weights import Form

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

SHIPPED = "jobs.npz"
HAZARD_UNITS = 16
FORM = Form(
    "jobs policy",
    {"sources": list(SOURCES), "hazard": list(SEEN)},
    "give a policy that 'hippo train --config jobs' wrote",
)
PUSH = "key_"
"""Arrays of files up to November 2026: a second network, which pushed keys and is left out (results/queue.md)."""


class KeyWeights(NamedTuple):
    """Of the estimate (double precision) and of its network (single)."""

    prior: Floats  # (B,) hazards of a job of which nothing is known
    keep: Floats  # (S,) what is left of a class's past when one more of its jobs ends
    pseudo: Floats  # (S,) jobs for which the word of the wider class counts
    power: Floats  # (1,) the key grows with devices to this power
    hazard_first: Floats32  # (V, g)
    hazard_first_bias: Floats32  # (g,)
    hazard_last: Floats32  # (g,)
    hazard_last_bias: Floats32  # (1,)


def untrained(hazard_units: int = HAZARD_UNITS) -> KeyWeights:
    """A network that says nothing: the chained estimate alone, with a prior that halves the jobs every third bin."""
    return KeyWeights(
        np.full(BINS, 0.15),
        np.array([0.9998, 0.9995, 0.998, 0.99, 0.8, 1.0]),
        np.array([50.0, 20.0, 10.0, 10.0, 2.0, 1.0]),
        np.ones(1),
        np.zeros((len(SEEN), hazard_units), np.float32),
        np.zeros(hazard_units, np.float32),
        np.zeros(hazard_units, np.float32),
        np.zeros(1, np.float32),
    )


def prior(duration_s: Floats) -> Floats:
    """Hazards (B,) of jobs of which nothing is known, from durations that are; a tenth of a death in each bin more."""
    ends = np.bincount(np.searchsorted(EDGES_S, duration_s, side="right"), minlength=BINS).astype(np.float64)
    entered = ends[::-1].cumsum()[::-1]
    return (ends + 0.1) / (entered + 1.0)


def packed(weights: KeyWeights) -> bytes:
    """The weights as the bytes of a file."""
    return FORM.packed(weights._asdict())


def unpacked(content: bytes, source: str) -> KeyWeights:
    """Weights from the bytes of a file.

    Raises ``InputError`` when it is something else, is damaged, or was made for other features.
    """
    return _sound(FORM.unpacked(content, source)[0], source)


def read(path: str | Path) -> KeyWeights:
    """Weights from a file; ``InputError`` when there is none, or it is something else."""
    return _sound(FORM.read(path)[0], str(path))


@lru_cache(maxsize=1)
def shipped() -> KeyWeights:
    """The weights that come with the package."""
    return unpacked((files("hippo.jobs.learned") / SHIPPED).read_bytes(), SHIPPED)


def _sound(arrays: Mapping[str, NDArray[Any]], source: str) -> KeyWeights:
    like = untrained()
    arrays = {name: each for name, each in arrays.items() if not name.startswith(PUSH)}
    if set(arrays) != set(like._fields) or any(each.dtype.kind != "f" for each in arrays.values()):
        raise FORM.wrong(source)
    found = KeyWeights(*(np.array(arrays[name], getattr(like, name).dtype, order="C") for name in like._fields))
    if not _whole(found):
        raise FORM.wrong(source)
    return found


def _whole(found: KeyWeights) -> bool:
    """Shapes that fit together, finite numbers, hazards between 0 and 1, no negative past."""
    if found.hazard_first.ndim != 2:
        return False
    like = untrained(found.hazard_first.shape[1])
    if [each.shape for each in found] != [each.shape for each in like]:
        return False
    if not all(np.isfinite(each).all() for each in found):
        return False
    hazards = (found.prior > 0).all() and (found.prior < 1).all()
    return bool(hazards and (found.keep >= 0).all() and (found.keep <= 1).all() and (found.pseudo > 0).all())
