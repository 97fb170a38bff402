"""The policy's network: two hidden layers over what a rank sees, one score for each of F, B, W and WAIT.

The scores are added to those of the base (what the patient hint would do scores ``trust``, the rest 0): a network
that says nothing follows the hint. 32 units and single precision: a decision takes a few microseconds.

Letters: n features, h units.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.dispatch.features import CHOICES, FEATURES, FIXED, MOVING
from hippo.learn.weights import Form

Floats32 = NDArray[np.float32]
HIDDEN = 32
FORM = Form(
    "dispatch policy",
    {"fixed": list(FIXED), "moving": list(MOVING)},
    "give a policy that 'hippo train --config dispatch' wrote",
)


class DispatchWeights(NamedTuple):
    """Of the network, single precision."""

    first: Floats32  # (n, h)
    first_bias: Floats32  # (h,)
    second: Floats32  # (h, h)
    second_bias: Floats32  # (h,)
    last: Floats32  # (h, 4)
    last_bias: Floats32  # (4,)
    trust: Floats32  # (1,) score of what the base would do


def follower(trust: float = 2.0, hidden: int = HIDDEN) -> DispatchWeights:
    """A network that follows the base hint with its patience."""
    nothing = DispatchWeights(*(np.zeros(shape, np.float32) for shape in shapes(hidden)))
    return nothing._replace(trust=np.array([trust], np.float32))


def shapes(hidden: int) -> list[tuple[int, ...]]:
    """Of the arrays of a network with so many units in each hidden layer."""
    return [(FEATURES, hidden), (hidden,), (hidden, hidden), (hidden,), (hidden, CHOICES), (CHOICES,), (1,)]


@kernel(lean=True)
def scores(weights, seen, says, one, two, found):  # type: ignore[no-untyped-def]
    """Writes the scores (4,) of what a rank sees (n,); ``one`` and ``two`` (h,) are room."""
    hidden = len(one)
    for j in range(hidden):
        one[j], two[j] = weights.first_bias[j], weights.second_bias[j]
    for i in range(len(seen)):
        value = seen[i]
        if value != 0:
            for j in range(hidden):
                one[j] += value * weights.first[i, j]
    for i in range(hidden):
        if one[i] > 0:
            for j in range(hidden):
                two[j] += one[i] * weights.second[i, j]
    for j in range(CHOICES):
        found[j] = weights.last_bias[j]
    for i in range(hidden):
        if two[i] > 0:
            for j in range(CHOICES):
                found[j] += two[i] * weights.last[i, j]
    found[says] += weights.trust[0]


def packed(weights: DispatchWeights) -> bytes:
    """The weights as the bytes of a file."""
    return FORM.packed(weights._asdict())


def unpacked(content: bytes, source: str) -> DispatchWeights:
    """Weights from the bytes of a file.

    Raises ``InputError`` when it is something else, is damaged, or was made for other features.
    """
    arrays, _ = FORM.unpacked(content, source)
    return sound(arrays, source)


def sound(arrays: Mapping[str, NDArray[Any]], source: str) -> DispatchWeights:
    """The arrays of a file as weights; ``InputError`` where they are not what a network of these layers has."""
    if set(arrays) != set(DispatchWeights._fields):
        raise FORM.wrong(source)
    found = DispatchWeights(*(np.ascontiguousarray(arrays[name]) for name in DispatchWeights._fields))
    shaped = [each.shape for each in found] == shapes(len(np.ravel(found.first_bias)))
    if not shaped or not all(each.dtype == np.float32 and np.isfinite(each).all() for each in found):
        raise FORM.wrong(source)
    return found


# --------------------------------------------------------------------------------------- the policy that ships, others

SHIPPED, LEARNED = "dispatch.npz", "learned"


@lru_cache(maxsize=1)
def shipped() -> DispatchWeights:
    """The weights that come with the package."""
    return unpacked((files("hippo.dispatch") / SHIPPED).read_bytes(), SHIPPED)


def policy_of(dispatcher: str) -> DispatchWeights:
    """The weights of a dispatcher that is a policy: ``learned``, the one that ships, or a file's (``read``)."""
    return shipped() if dispatcher == LEARNED else read(dispatcher)


def read(path: str | Path) -> DispatchWeights:
    """Weights from a file; ``InputError`` when there is none, or it is something else."""
    return sound(FORM.read(path)[0], str(path))
