"""The policy's network: two hidden layers over what a rank sees, one score for each of F, B, W and WAIT.

The scores are added to those of the base (what the patient hint would do scores ``trust``, the rest 0): a network
that says nothing follows the hint. 32 units and single precision: a decision takes a few microseconds.

Letters: n features, h units.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.dispatch.features import CHOICES, FEATURES, MOVING
from hippo.dispatch.fixed import FIXED
from hippo.errors import InputError

Floats32 = NDArray[np.float32]
HIDDEN = 32
FORMAT = "hippo dispatch policy 1"


class Weights(NamedTuple):
    """Of the network, single precision."""

    first: Floats32  # (n, h)
    first_bias: Floats32  # (h,)
    second: Floats32  # (h, h)
    second_bias: Floats32  # (h,)
    last: Floats32  # (h, 4)
    last_bias: Floats32  # (4,)
    trust: Floats32  # (1,) score of what the base would do


def follower(trust: float = 2.0, hidden: int = HIDDEN) -> Weights:
    """A network that follows the base hint with its patience."""
    nothing = Weights(*(np.zeros(shape, np.float32) for shape in shapes(hidden)))
    return nothing._replace(trust=np.array([trust], np.float32))


def shapes(hidden: int) -> list[tuple[int, ...]]:
    """Of the arrays of a network with so many units in each hidden layer."""
    return [(FEATURES, hidden), (hidden,), (hidden, hidden), (hidden,), (hidden, CHOICES), (CHOICES,), (1,)]


@kernel
def scores(weights, seen, says, one, two, found):  # type: ignore[no-untyped-def]
    """Writes the scores (4,) of what a rank sees (n,); ``one`` and ``two`` (h,) are room."""
    hidden = len(one)
    one[:] = weights.first_bias
    for i in range(len(seen)):
        value = seen[i]
        if value != 0:
            for j in range(hidden):
                one[j] += value * weights.first[i, j]
    two[:] = weights.second_bias
    for i in range(hidden):
        if one[i] > 0:
            for j in range(hidden):
                two[j] += one[i] * weights.second[i, j]
    found[:] = weights.last_bias
    for i in range(hidden):
        if two[i] > 0:
            for j in range(CHOICES):
                found[j] += two[i] * weights.last[i, j]
    found[says] += weights.trust[0]


def packed(weights: Weights) -> bytes:
    """The weights as the bytes of an .npz file."""
    stream = BytesIO()
    names = np.array([FORMAT, *FIXED, *MOVING])
    np.savez_compressed(stream, features=names, **weights._asdict())
    return stream.getvalue()


def _is_sound(array: NDArray[Any]) -> bool:
    return array.dtype == np.float32 and bool(np.isfinite(array).all())


def unpacked(content: bytes, source: str) -> Weights:
    """Weights from the bytes of a file.

    Raises ``InputError`` when it is something else, is damaged, or was made for other features.
    """
    remedy = "give a policy that 'hippo train --config configs/algo/dispatch.yaml' wrote"
    try:
        with np.load(BytesIO(content), allow_pickle=False) as stored:
            names = stored["features"].tolist()
            found = Weights(*(np.ascontiguousarray(stored[name]) for name in Weights._fields))
    except Exception:  # what is no such file may break the reader anywhere
        raise InputError("is no dispatch policy, or a broken one", source=source, remedy=remedy) from None
    shaped = [each.shape for each in found] == shapes(len(np.ravel(found.first_bias)))
    if names != [FORMAT, *FIXED, *MOVING] or not shaped or not all(map(_is_sound, found)):
        raise InputError("is no dispatch policy of this version", source=source, remedy=remedy)
    return found
