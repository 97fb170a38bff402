"""The best sequence of moves if the network went as forecast: dynamic programming over cells of time ahead and places.

``worth`` judges one change that is kept to the end. Here a change may be followed by others, so that an excursion that
is forecast to end counts with the way back, and waiting is an answer. Levers are free, so the states are places, each
with what its best configuration does at the time. Cells and rules are those of ``worth``; a move begins with a cell.

Letters: C configurations, P places, G cells, E links.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hippo.decide.online.worth import Ahead, Now, grid, relevered, stop, stream, total
from hippo.simulate.compiling import ENTRY, INNER
from hippo.simulate.moving import STILL

Floats = NDArray[np.float64]
LATEST = 64.0
"""Epochs ahead until which later moves are considered: beyond the last horizon nothing is forecast to change."""


def first_moves(look: Ahead, now: Now, leads: NDArray[np.int64]) -> Floats:
    """Net tokens of each first move, less those of keeping now, both followed by the best sequence, (P, 2) by stop and
    in the background; -inf: impossible. ``leads`` (P,): the configuration of each place whose traffic counts."""
    assert now.phase == STILL
    gains = np.full((len(leads), 2), -np.inf)
    _first(relevered(look), leads, int(look.place[now.running]), gains)
    return gains


def best_start(look: Ahead, leads: NDArray[np.int64]) -> Floats:
    """Net tokens of beginning in each place, followed by the best sequence, (P,)."""
    relaxed = relevered(look)
    edges, net, carried = grid(relaxed)
    found: Floats = place_values(relaxed, leads, edges, net, carried)[0]
    return found


@njit(**ENTRY)
def _first(look, leads, here, gains):  # type: ignore[no-untyped-def]
    edges, net, carried = grid(look)
    value = place_values(look, leads, edges, net, carried)
    keep = net[1, leads[here]] + value[1, here]
    for there in range(len(leads)):
        for mode in range(2):
            if there != here:
                gains[there, mode] = move_value(look, leads, edges, net, carried, value, 0, here, there, mode) - keep


@njit(**ENTRY)
def place_values(look, leads, edges, net, carried):  # type: ignore[no-untyped-def]
    """(G + 1, P) most net tokens from the start of each cell to the end, being in each place with no move under way."""
    cells, places = len(edges) - 1, len(leads)
    value = np.zeros((cells + 1, places))
    for cell in range(cells - 1, -1, -1):
        for here in range(places):
            each = leads[here]
            value[cell, here] = net[cell + 1, each] - net[cell, each] + value[cell + 1, here]
        if edges[cell] >= LATEST:
            continue
        for here in range(places):
            for there in range(places):
                if there != here and _promises(edges, net, leads, value, cell, here, there):
                    for mode in range(2):
                        found = move_value(look, leads, edges, net, carried, value, cell, here, there, mode)
                        value[cell, here] = max(value[cell, here], found)
    return value


@njit(**INNER)
def _promises(edges, net, leads, value, cell, here, there):  # type: ignore[no-untyped-def]
    """Whether being there at once and for free would be better than staying."""
    each = leads[there]
    return net[cell + 1, each] - net[cell, each] + value[cell + 1, there] > value[cell, here]


@njit(**INNER)
def move_value(look, leads, edges, net, carried, value, cell, here, there, mode):  # type: ignore[no-untyped-def]
    """Net tokens from a cell on if a move begins with it; -inf: it does not arrive within the run."""
    now, target, begin, way = leads[here], leads[there], edges[cell], np.zeros(3)
    if mode == 0:
        stop(look, edges, carried, look.move_bytes[look.place[now], look.place[target]], begin, way)
    else:
        stream(look, edges, carried, now, target, np.zeros(len(look.usd_per_byte)), way, begin)
    if way[1] == np.inf:
        return -np.inf
    end = begin + way[1] / look.epoch_s
    halted = begin + (way[1] - way[0]) / look.epoch_s
    found = total(edges, net[:, now], halted) - net[cell, now]
    if look.usd_per_token > 0.0:
        found -= way[2] / look.usd_per_token
    after = cell
    while after < len(edges) - 2 and edges[after + 1] < end:
        after += 1
    return found + net[after + 1, target] - total(edges, net[:, target], end) + value[after + 1, there]
