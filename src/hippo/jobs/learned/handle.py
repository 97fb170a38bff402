"""A learned policy's state behind one small table of addresses.

The state is some seventy arrays. Were they fields of the engine's world, each of its kernels would be handed all of
them, and compiling would take four times as long. So the world carries ``held(state)``, where each array lies and how
long its axes are, and the few kernels of the learned policy make the state of it again with ``opened``, at no cost
beyond reading those numbers. A state lives as long as its table.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import typeof, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array
from numpy.typing import NDArray

from hippo.jobs.learned.memory import Memory, nothing

Ints = NDArray[np.int64]

WIDTH = 4
"""Numbers per leaf: the address and up to three axes of an array, or the value of a whole number."""


_STATES: dict[int, Memory] = {}
"""By the identity of their tables, as long as these live."""


def held(state: Memory | None) -> Ints:
    """Where the arrays of a state lie, (leaves, WIDTH), leaf by leaf; (0, WIDTH) for none."""
    if state is None:
        return np.zeros((0, WIDTH), np.int64)
    table = np.array([_row(leaf, kind) for leaf, kind in zip(_leaves(state), LEAVES, strict=True)], np.int64)
    _STATES[id(table)] = state
    weakref.finalize(table, _STATES.pop, id(table)).atexit = False
    return table


def state_of(table: Ints) -> Memory:
    """The state that a table of ``held`` stands for; ``KeyError`` where there is none."""
    return _STATES[id(table)]


def _leaves(value: Any) -> list[Any]:
    return [leaf for each in value for leaf in _leaves(each)] if isinstance(value, tuple) else [value]


def _row(leaf: Any, kind: types.Type) -> list[int]:
    if not isinstance(kind, types.Array):
        return [int(leaf), 0, 0, 0]
    # What kernels write must land in the state itself: no copy is made here.
    assert leaf.flags.c_contiguous
    assert leaf.dtype.name == str(kind.dtype)
    assert leaf.ndim == kind.ndim < WIDTH
    return [leaf.ctypes.data, *leaf.shape, *(0,) * (WIDTH - 1 - leaf.ndim)]


def _plain(kind: types.Type) -> types.Type:
    """The type of a state's field; arrays that nobody may write from Python are arrays like the others here."""
    if isinstance(kind, types.BaseNamedTuple):
        return types.NamedTuple([_plain(each) for each in kind], kind.instance_class)
    return types.Array(kind.dtype, kind.ndim, "C") if isinstance(kind, types.Array) else kind


def _flat(kind: types.Type) -> list[types.Type]:
    return [leaf for each in kind for leaf in _flat(each)] if isinstance(kind, types.BaseTuple) else [kind]


STATE = _plain(typeof(nothing()))
LEAVES = _flat(STATE)


@intrinsic
def opened(context, table):  # type: ignore[no-untyped-def]
    """The state that a table stands for, as a ``Memory``; its arrays may be written into."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = make_array(table)(context, builder, arguments[0]).data
        return _tuple(context, builder, data, STATE, [0])

    return STATE(table), code


def _tuple(context: Any, builder: Any, data: Any, kind: types.Type, at: list[int]) -> Any:
    """A tuple of fields read from the table's row ``at[0]`` on."""
    if isinstance(kind, types.BaseTuple):
        return context.make_tuple(builder, kind, [_tuple(context, builder, data, each, at) for each in kind])
    row, at[0] = at[0], at[0] + 1

    def number(column: int) -> Any:
        word = context.get_constant(types.intp, row * WIDTH + column)
        return builder.load(builder.gep(data, [word]))

    return _array(context, builder, kind, number) if isinstance(kind, types.Array) else number(0)


def _array(context: Any, builder: Any, kind: types.Array, number: Callable[[int], Any]) -> Any:
    """An array that lies where its row of the table says; nobody counts who holds it."""
    array = make_array(kind)(context, builder)
    size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    shape, strides = [number(1 + axis) for axis in range(kind.ndim)], [size]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    pointer = builder.inttoptr(number(0), context.get_data_type(kind.dtype).as_pointer())
    axes = {"shape": cgutils.pack_array(builder, shape), "strides": cgutils.pack_array(builder, strides)}
    populate_array(array, data=pointer, itemsize=size, meminfo=None, **axes)
    return array._getvalue()
