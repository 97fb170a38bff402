"""The best sequence of moves if the network went as forecast: dynamic programming over cells of time ahead and places.

``worth`` judges one change that is kept to the end. Here a change may be followed by others, so that an excursion that
is forecast to end counts with the way back, and waiting is an answer. Live levers are free, so states are places, each
with what its best configuration does at the time. Cells and rules are those of ``worth``; a move begins with a cell.

The work is in the moves: pairs of places times cells times two kinds. So each is followed over the links that it needs
alone, what depends on the cell and the place only is worked out once (``Prospect``), and a move is not followed at all
where a bound says that it cannot be better than what is known.

Letters: I instants, H horizons, P places, G cells, E links, R pairs of places, N links of all pairs, one after the
other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.network.rules.move import STILL
from hippo.network.rules.worth import EDGES, Ahead, Now, between, grid, relevered

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LATEST = 64.0
"""Epochs ahead until which later moves are considered: beyond the last horizon nothing is forecast to change."""


class Ways(NamedTuple):
    """What moves between places carry: of every pair the links that it needs."""

    first: Ints  # (R + 1,) where a pair begins in ``link``; pair P source + destination
    link: Ints  # (N,)
    needed: Floats  # (N,) bytes
    usd: Floats  # (R,) egress of the bytes; inf: there is no way


class Prospect(NamedTuple):
    """Places over the cells of time ahead."""

    epoch_s: float
    restart: float  # epochs
    shadow_share: float
    price: float  # tokens that a USD of egress counts
    edges: Floats  # (G + 1,) epochs
    net: Floats  # (G + 1, P) net tokens up to each edge
    steps: Floats  # (G + 1, P) optimizer steps up to each edge
    rate: Floats  # (G, P) optimizer steps per second
    useful: Floats  # (G, P) seconds of a cell that count for a stream: shadows take ever more of it
    bandwidth: Floats  # (G, E) bytes/s
    carried: Floats  # (G + 1, E) bytes up to each edge
    sent: Floats  # (P, E) bytes per step


class Looks(NamedTuple):
    """What places do at some instants, as in ``Ahead``, with one column per place."""

    epoch_s: float
    restart_s: float
    shadow_share: float
    tokens_per_step: float
    usd_per_token: float  # 0: egress does not count
    horizons: Ints  # (H,)
    epochs_left: Floats  # (I,)
    tokens_per_s: Floats  # (I, H, P)
    egress_usd_per_s: Floats  # (I, H, P)
    bandwidth_bytes_per_s: Floats  # (I, H, E)
    bytes_per_step: Floats  # (I, P, E)


def first_moves(look: Ahead, now: Now, leads: Ints) -> Floats:
    """Net tokens of each first move, less those of keeping now, both followed by the best sequence, (P, 2) by stop and
    in the background; -inf: impossible. ``leads`` (P,): the configuration of each place whose traffic counts."""
    assert now.phase == STILL
    here = int(look.place[now.running])
    gains: Floats = _of_places(look, leads, here)[here].reshape(-1, 2)
    gains[here] = -np.inf
    return gains


def best_start(look: Ahead, leads: Ints) -> Floats:
    """Net tokens of beginning in each place, followed by the best sequence, (P,)."""
    return np.diagonal(_of_places(look, leads, -1)[:, ::2]).copy()


def _of_places(look: Ahead, leads: Ints, here: int) -> Floats:
    """``best_sequences`` of one instant, for one place to stand in: (P, 2 P)."""
    levered = relevered(look)
    found: Floats = np.zeros((1, len(leads), 2 * len(leads)))
    looks = Looks(
        look.epoch_s,
        look.restart_s,
        look.shadow_share,
        look.tokens_per_step,
        look.usd_per_token,
        look.horizons,
        np.array([look.epochs_left]),
        np.ascontiguousarray(levered.tokens_per_s[None, :, leads]),
        np.ascontiguousarray(levered.egress_usd_per_s[None, :, leads]),
        look.bandwidth_bytes_per_s[None],
        np.ascontiguousarray(look.bytes_per_step[None, leads]),
    )
    best_sequences(ways_between(look.move_bytes, look.usd_per_byte), looks, np.arange(len(leads)) == here, found)
    one: Floats = found[0]
    return one


def best_sequences(ways: Ways, looks: Looks, wanted: NDArray[np.bool_], found: Floats) -> None:
    """Fills ``found`` (I, P, 2 P): what every first move gives less what keeping gives, both followed by the best
    sequence. Row: the place that the run stands in, where ``wanted`` (P,); column ``2 p + mode``: to p by stopping (0)
    or in the background (1); -inf: impossible. On the diagonal, mode 0, of all rows: what standing there gives."""
    cells, places, links = len(EDGES), len(wanted), looks.bandwidth_bytes_per_s.shape[2]
    most = Prospect(
        looks.epoch_s,
        looks.restart_s / looks.epoch_s,
        looks.shadow_share,
        1.0 / looks.usd_per_token if looks.usd_per_token > 0.0 else 0.0,
        np.zeros(cells + 1),
        np.zeros((cells + 1, places)),
        np.zeros((cells + 1, places)),
        np.zeros((cells, places)),
        np.zeros((cells, places)),
        np.zeros((cells, links)),
        np.zeros((cells + 1, links)),
        np.zeros((places, links)),
    )
    value, free, own = np.zeros((cells + 1, places)), np.zeros((places, places)), np.zeros((3, places))
    _fill(ways, looks, most, (value, free, own), wanted, found)


def ways_between(move_bytes: NDArray[np.floating], usd_per_byte: NDArray[np.floating]) -> Ways:
    """The ``Ways`` between places, from (P, P, E) bytes."""
    flat = move_bytes.reshape(-1, move_bytes.shape[2])
    pair, link = np.nonzero(flat > 0.0)
    needed = flat[pair, link]
    usd = np.full(len(needed), np.inf)
    np.multiply(needed, usd_per_byte[link], out=usd, where=needed < np.inf, dtype=needed.dtype)
    return Ways(
        np.searchsorted(pair, np.arange(len(flat) + 1)),
        link,
        needed.astype(np.float64),
        np.asarray(np.bincount(pair, weights=usd, minlength=len(flat)), dtype=np.float64),
    )


@kernel(lean=True)
def _fill(ways, looks, most, values, wanted, found):  # type: ignore[no-untyped-def]
    """``best_sequences``; ``most`` and ``values`` have room for as many cells as there can be."""
    value, free, own = values
    stay, least, bound = own[0], own[1], own[2]
    for instant in range(len(found)):
        look = Looks(
            looks.epoch_s,
            looks.restart_s,
            looks.shadow_share,
            looks.tokens_per_step,
            looks.usd_per_token,
            looks.horizons,
            looks.epochs_left[instant],
            looks.tokens_per_s[instant],
            looks.egress_usd_per_s[instant],
            looks.bandwidth_bytes_per_s[instant],
            looks.bytes_per_step[instant],
        )
        cells = grid(look, most.edges, most.net, most.carried)
        prospect = Prospect(
            most.epoch_s,
            most.restart,
            most.shadow_share,
            most.price,
            most.edges[: cells + 1],
            most.net[: cells + 1],
            most.steps[: cells + 1],
            most.rate[:cells],
            most.useful[:cells],
            most.bandwidth[:cells],
            most.carried[: cells + 1],
            look.bytes_per_step,
        )
        _over_cells(look, prospect)
        value[cells], free[:], least[:] = 0.0, 0.0, np.inf
        _backwards(ways, prospect, value[: cells + 1], stay, least, free, bound)
        for here in range(len(wanted)):
            for there in range(len(wanted)):
                if there != here and wanted[here]:
                    gains = found[instant, here, 2 * there : 2 * there + 2]
                    _first_gains(ways, prospect, value, here, there, gains)
            found[instant, here, 2 * here] = value[0, here]


@kernel(lean=True)
def _over_cells(look, prospect):  # type: ignore[no-untyped-def]
    """Fills what of the prospect is not in the ``grid``, from what every place does, a column of ``look`` each."""
    prospect.steps[0] = 0.0
    for cell in range(len(prospect.rate)):
        low, high, share = between(look.horizons, prospect.edges[cell], prospect.edges[cell + 1])
        seconds = (prospect.edges[cell + 1] - prospect.edges[cell]) * look.epoch_s
        for link in range(prospect.bandwidth.shape[1]):
            early, late = look.bandwidth_bytes_per_s[low, link], look.bandwidth_bytes_per_s[high, link]
            prospect.bandwidth[cell, link] = (1.0 - share) * early + share * late
        for place in range(prospect.rate.shape[1]):
            tokens = (1.0 - share) * look.tokens_per_s[low, place] + share * look.tokens_per_s[high, place]
            rate = prospect.rate[cell, place] = tokens / look.tokens_per_step
            prospect.steps[cell + 1, place] = prospect.steps[cell, place] + rate * seconds
            pull = look.shadow_share * rate
            prospect.useful[cell, place] = -np.expm1(-pull * seconds) / pull if pull > 0.0 else seconds


@kernel(lean=True)
def _backwards(ways, prospect, value, stay, least, most, bound):  # type: ignore[no-untyped-def]
    """Fills ``value`` (G + 1, P), cell by cell: most net tokens from the start of each cell to the end, being in each
    place with no move under way; in room for what is said of places: see ``_at_most``; ``stay`` (P,): net tokens of
    standing in a place throughout the cell.

    Places are moved to where being there at once and for free would be better than anything known, in their order."""
    edges, net = prospect.edges, prospect.net
    for cell in range(len(edges) - 2, -1, -1):
        for here in range(len(stay)):
            gain = net[cell + 1, here] - net[cell, here]
            stay[here] = value[cell, here] = gain + value[cell + 1, here]
            least[here] = min(least[here], gain / (edges[cell + 1] - edges[cell]))
        for here in range(len(stay)):
            _at_most(ways, prospect, value, cell, here, stay, least, most, bound)
            if edges[cell] < LATEST:
                _best_move(ways, prospect, value, cell, here, stay, bound)


@kernel(lean=True)
def _at_most(ways, prospect, value, cell, here, stay, least, most, bound):  # type: ignore[no-untyped-def]
    """Fills ``bound`` (P,): no move from here to each place that begins with this cell gives more.

    Whoever moves stands still for a restart at least, and is paid for what runs here until then at most. ``most``
    (P, P): the best of changing over at once at any time from this cell on, for free; ``least`` (P,): net tokens of an
    epoch that a place gives at least from this cell on, so much is lost by standing still."""
    gain = max(0.0, prospect.net[cell + 1, here] - prospect.net[cell, here])
    for there in range(len(stay)):
        usd = ways.usd[here * len(stay) + there]
        most[here, there] = max(stay[there], gain + max(value[cell + 1, there], most[here, there]))
        bound[there] = -np.inf
        if usd < np.inf and stay[there] > stay[here]:
            bound[there] = most[here, there] - prospect.restart * least[there] - prospect.price * usd


@kernel(lean=True)
def _best_move(ways, prospect, value, cell, here, stay, bound):  # type: ignore[no-untyped-def]
    """Raises the value of a place to what the best move from it gives that begins with a cell.

    The most promising place is tried first, so that bounds rule most of the others out. The order matters only where a
    move gives more than being there for free, as what runs here does more for a while; then all goes by it."""
    first = 0
    for there in range(1, len(stay)):
        if bound[there] > bound[first]:
            first = there
    if not bound[first] > value[cell, here]:
        return
    best, most = first, _either(ways, prospect, value, cell, here, first)
    for there in range(len(stay)):
        if there != first and bound[there] > max(most, stay[here]):
            found = _either(ways, prospect, value, cell, here, there)
            if found > most:
                best, most = there, found
    before = -np.inf
    for there in range(best):
        before = max(before, bound[there])
    if most <= stay[best] or before < stay[best]:
        value[cell, here] = max(stay[here], most)
        return
    for there in range(len(stay)):
        if min(stay[there], bound[there]) > value[cell, here]:
            value[cell, here] = max(value[cell, here], _either(ways, prospect, value, cell, here, there))


@kernel(lean=True)
def _either(ways, prospect, value, cell, here, there):  # type: ignore[no-untyped-def]
    """Net tokens from a cell on if the better kind of move begins with it; -inf: neither arrives within the run."""
    pair = here * value.shape[1] + there
    end, at = _stopped(ways, prospect, cell, pair)
    if end == np.inf:  # a stream has less of the links
        return -np.inf
    by_stop = _arrived(prospect, value, end, at, there) - prospect.price * ways.usd[pair]
    return max(by_stop, _streamed(ways, prospect, value, cell, here, there))


@kernel(lean=True)
def _first_gains(ways, prospect, value, here, there, gains):  # type: ignore[no-untyped-def]
    """Net tokens of both kinds of move from a place now, less those of keeping, (2,); -inf: impossible."""
    pair, keep = here * value.shape[1] + there, prospect.net[1, here] + value[1, here]
    end, at = _stopped(ways, prospect, 0, pair)
    gains[0] = gains[1] = -np.inf
    if end < np.inf:
        gains[0] = _arrived(prospect, value, end, at, there) - prospect.price * ways.usd[pair] - keep
        gains[1] = _streamed(ways, prospect, value, 0, here, there) - keep


@kernel(lean=True)
def _arrived(prospect, value, end, at, there):  # type: ignore[no-untyped-def]
    """Net tokens from ``end`` on, which lies in cell ``at``, for whoever arrives in a place then."""
    share = (end - prospect.edges[at]) / (prospect.edges[at + 1] - prospect.edges[at])
    return (1.0 - share) * (prospect.net[at + 1, there] - prospect.net[at, there]) + value[at + 1, there]


@kernel(lean=True)
def _cell_of(prospect, cell, until):  # type: ignore[no-untyped-def]
    """The cell, ``cell`` or later, that ``until`` lies in; as many as there are: beyond the end."""
    while cell < len(prospect.edges) - 1 and prospect.edges[cell + 1] < until:
        cell += 1
    return cell


@kernel(lean=True)
def _stopped(ways, prospect, cell, pair):  # type: ignore[no-untyped-def]
    """When a stop ends that begins with a cell, and the cell of that; inf: not within the run, or there is no way."""
    carried, edges = prospect.carried, prospect.edges
    if ways.usd[pair] == np.inf:
        return np.inf, cell
    end = edges[cell] + prospect.restart
    at = _cell_of(prospect, cell, end)
    for each in range(ways.first[pair], ways.first[pair + 1]):
        link = ways.link[each]
        wanted = carried[cell, link] + ways.needed[each]
        while at < len(edges) - 1 and carried[at + 1, link] < wanted:
            at += 1
        if at == len(edges) - 1:
            return np.inf, at
        if carried[at, link] < wanted:
            share = (wanted - carried[at, link]) / (carried[at + 1, link] - carried[at, link])
            end = max(end, edges[at] + share * (edges[at + 1] - edges[at]))
    return (np.inf if at == len(edges) - 1 else end), at


@kernel(lean=True)
def _streamed(ways, prospect, value, cell, here, there):  # type: ignore[no-untyped-def]
    """Net tokens from a cell on if a stream begins with it; -inf: it does not arrive within the run."""
    pair = here * value.shape[1] + there
    halts, at = _brought(ways, prospect, cell, here, pair)
    edges, net, steps = prospect.edges, prospect.net, prospect.steps
    if not halts < edges[-1]:
        return -np.inf
    share = (halts - edges[at]) / (edges[at + 1] - edges[at])
    end, last = _caught_up(ways, prospect, at, share, halts, pair)
    if end == np.inf:
        return -np.inf
    trained = net[at, here] - net[cell, here] + share * (net[at + 1, here] - net[at, here])
    made = steps[at, here] - steps[cell, here] + share * (steps[at + 1, here] - steps[at, here])
    usd = ways.usd[pair] * (1.0 + prospect.shadow_share * (1.0 + 0.5 * made))  # half of it has arrived, in the mean
    return trained + _arrived(prospect, value, end, last, there) - prospect.price * usd


@kernel(lean=True)
def _brought(ways, prospect, cell, here, pair):  # type: ignore[no-untyped-def]
    """When all links have streamed their bytes from a cell on, over what training and shadows leave of them, and the
    cell of that; inf: never."""
    edges, bandwidth = prospect.edges, prospect.bandwidth
    halts, at = edges[cell], cell
    for each in range(ways.first[pair], ways.first[pair + 1]):
        link, needed = ways.link[each], ways.needed[each]
        left, sent, now = needed, prospect.sent[here, link], cell
        while now < len(edges) - 1:
            rate = prospect.rate[now, here]
            pull = prospect.shadow_share * rate
            idle = bandwidth[now, link] - sent * rate - pull * (needed - left)
            if idle > 0.0:
                brings = idle * prospect.useful[now, here]
                if brings >= left:
                    if now >= at:  # d left / dt = -(idle - pull (what has been sent since)): less and less
                        takes = -np.log1p(-left * pull / idle) / pull if pull > 0.0 else left / idle
                        halts, at = max(halts, edges[now] + takes / prospect.epoch_s), now
                    break
                left -= brings
            now += 1
        if now == len(edges) - 1:
            return np.inf, at
    return halts, at


@kernel(lean=True)
def _caught_up(ways, prospect, at, share, halts, pair):  # type: ignore[no-untyped-def]
    """When all links have sent the last gradients too, from ``halts``, a share of cell ``at``, on, and the processes
    have started anew, and the cell of that; inf: not within the run."""
    edges, carried = prospect.edges, prospect.carried
    end = halts + prospect.restart
    last = _cell_of(prospect, at, end)
    for each in range(ways.first[pair], ways.first[pair + 1]):
        link = ways.link[each]
        wanted = carried[at, link] + share * (carried[at + 1, link] - carried[at, link])
        wanted += prospect.shadow_share * ways.needed[each]
        while last < len(edges) - 1 and carried[last + 1, link] < wanted:
            last += 1
        if last == len(edges) - 1:
            return np.inf, last
        if carried[last, link] < wanted:
            part = (wanted - carried[last, link]) / (carried[last + 1, link] - carried[last, link])
            end = max(end, edges[last] + part * (edges[last + 1] - edges[last]))
    return (np.inf if last == len(edges) - 1 else end), last
