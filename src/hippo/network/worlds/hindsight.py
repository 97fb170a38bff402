"""Perfect hindsight: the most that anybody who knows the whole trace could make of it with the configurations known.

Dynamic programming over (epoch, configuration), backwards, with one answer per epoch as for every method: keep, another
configuration of the same place, a move of either kind, giving a move up. ``network.rules.move.advance`` itself plays
the moves, so what is optimal here is what would have happened. Exact up to rounding: a bound ends the play of a move
only where nothing that follows could be better than what is known.

A move is played towards a *blank* that trains nothing, once for all configurations of the destination (the stop for all
of the source as well): what they would train in the rest of the epoch of arrival is added afterwards. Only links that
carry bytes of the move are played. Places between which nothing has to be carried (levers that need a stop) are one
*site*: moves are played from site to site, and inside of one as a stop alone.

Letters: T epochs, C configurations, P places, S sites, R pairs of sites with a way, E links, N links that a move uses
(padded).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.network.rules.move import (
    BUSY_S,
    CONFIGURATION,
    DOWNTIME_S,
    EGRESS_USD,
    PHASE,
    STILL,
    STOPPED,
    STREAMING,
    TOKENS,
    Rollout,
    advance,
    begin_move,
)
from hippo.network.rules.view import Action, How

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
KEPT, SWITCHED, COPIED, STREAMED = range(4)
"""Answers in the table of decisions."""
ROUNDING = 1e-12
"""Relative: a bound this close to what is known is not worth a play."""


class Hindsight(NamedTuple):
    """The best that could have been done. ``value`` in the unit of the taste, tokens of net work unless said."""

    work: float
    value: Floats  # (T + 1, C) the most from the start of an epoch on, with that configuration running and no move
    path: tuple[Action, ...]  # (T,) answers that give ``work``; the first is where the run begins


class Taste(NamedTuple):
    """What is worth how much: the sum over a run is what counts."""

    token: float = 1.0
    usd: float = 0.0  # egress, at most 0
    busy_s: float = 0.0  # second of full utilisation


class _Legs(NamedTuple):
    """Moves between sites, each with the links that it uses alone."""

    rollout: Rollout  # of all configurations and the blank; links and bytes are those below
    utilization: Floats  # (T, C)
    bandwidth: Floats  # (R, T, N)
    sent: Floats  # (R, C + 1, N)
    usd_per_byte: Floats  # (R, N)
    moved: Floats  # (R, 2, 2, N)
    source: Ints  # (R,) site; that of the destination: levers alone
    destination: Ints  # (R,)
    member: Ints  # (C,) configurations, site after site, and in it place after place
    first: Ints  # (S + 1,) where a site begins in ``member``
    lever: Ints  # (P + 1,) where a place begins in ``member``
    place: Ints  # (C,)


def net_work(usd_per_token: float) -> Taste:
    """Tokens less egress in tokens."""
    return Taste(1.0, -1.0 / usd_per_token if usd_per_token > 0 else 0.0, 0.0)


def hindsight(
    rollout: Rollout, usd_per_token: float, *, begin: int | None = None, taste: Taste | None = None
) -> Hindsight:
    """The most net work (or, with ``taste``, the most of what it counts) of any sequence of allowed answers.

    The first configuration is free to choose unless ``begin`` says it. ``usd_per_token`` 0: egress is not priced.
    """
    counts = net_work(usd_per_token) if taste is None else taste
    legs = _legs(rollout)
    epochs, configurations = rollout.tokens_per_s.shape
    value = np.zeros((epochs + 1, configurations))
    stay = np.zeros((epochs, configurations))
    answers = np.zeros((epochs, configurations, 4), dtype=np.int64)  # answer, target, epochs it takes, given up
    rate = gain_per_s(rollout, counts)
    _search(legs, rate, np.array(counts), value, stay, answers)
    start = int(np.argmax(stay[0])) if begin is None else begin
    return Hindsight(float(stay[0, start]), value, _path(answers, start))


def gain_per_s(rollout: Rollout, taste: Taste) -> Floats:
    """What each configuration gives per second, (T, C), in the unit of the taste."""
    gain: Floats = (
        taste.token * rollout.tokens_per_s + taste.usd * rollout.egress_usd_per_s + taste.busy_s * rollout.utilization
    )
    return gain


def _path(answers: Ints, start: int) -> tuple[Action, ...]:
    """The answers read forwards."""
    how = {SWITCHED: How.SWITCH, COPIED: How.STOP, STREAMED: How.BACKGROUND}
    path, running = [Action(How.SWITCH, start)], start
    while len(path) < len(answers):
        answer, target, takes, given_up = (int(each) for each in answers[len(path), running])
        if answer == KEPT:
            path.append(Action())
            continue
        path.append(Action(how[answer], target))
        path += [Action()] * (takes - 1)
        if given_up:
            path.append(Action(How.CANCEL))
        else:
            running = target
    return tuple(path[: len(answers)])


def _legs(rollout: Rollout) -> _Legs:
    """Pairs of places between which there is a way, with a rollout of their own links."""
    epochs, configurations = rollout.tokens_per_s.shape
    places = len(rollout.move_bytes)
    bytes_of = rollout.move_bytes
    alike = [(bytes_of[each].tobytes(), bytes_of[:, each].tobytes()) for each in range(places)]
    sites = list(dict.fromkeys(alike))
    site, lead = np.array([sites.index(each) for each in alike]), [alike.index(each) for each in sites]
    between = bytes_of[np.ix_(lead, lead)]
    pairs = [
        (one, other)
        for one in range(len(sites))
        for other in range(len(sites))
        if (alike.count(sites[one]) > 1 if one == other else np.isfinite(between[one, other]).all())
    ]
    used = [np.flatnonzero(between[pair] > 0) for pair in pairs]
    most = max((len(links) for links in used), default=0)
    bandwidth, usd = np.ones((len(pairs), epochs, most)), np.zeros((len(pairs), most))
    sent, moved = np.zeros((len(pairs), configurations + 1, most)), np.zeros((len(pairs), 2, 2, most))
    for leg, (pair, links) in enumerate(zip(pairs, used, strict=True)):
        bandwidth[leg, :, : len(links)] = rollout.bandwidth_bytes_per_s[:, links]
        usd[leg, : len(links)] = rollout.usd_per_byte[links]
        sent[leg, :-1, : len(links)] = rollout.bytes_per_step[:, links]
        moved[leg, 0, 1, : len(links)] = between[pair][links]
    trains = np.ones((epochs, configurations + 1))
    trains[:, -1] = 0.0
    blank = np.zeros(configurations + 1, dtype=np.int64)
    blank[-1] = 1
    alone = rollout._replace(
        tokens_per_s=np.ascontiguousarray(np.pad(rollout.tokens_per_s, ((0, 0), (0, 1)))),
        egress_usd_per_s=np.ascontiguousarray(np.pad(rollout.egress_usd_per_s, ((0, 0), (0, 1)))),
        utilization=trains,  # so that BUSY_S are the seconds that the old configuration trained
        place=blank,
    )
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    turn = np.argsort(np.argsort(site, kind="stable"))[rollout.place]  # of each configuration's place, site after site
    member = np.argsort(turn, kind="stable")
    first = np.searchsorted(site[rollout.place[member]], np.arange(len(sites) + 1))
    lever = np.searchsorted(turn[member], np.arange(places + 1))
    source, destination = np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1])
    split = member, first, lever, rollout.place
    return _Legs(alone, rollout.utilization, bandwidth, sent, usd, moved, source, destination, *split)


@kernel
def _search(legs, rate, taste, value, stay, answers):  # type: ignore[no-untyped-def]
    """Fills ``value``, ``stay`` (the same with the present configuration kept through that epoch) and ``answers``."""
    epochs, configurations = rate.shape
    sites = len(legs.first) - 1
    arrived = np.full((epochs + 1, sites), -np.inf)  # bounds: most by arriving in that epoch, or in a later one
    given_up = np.zeros((epochs + 1, configurations))  # most by giving a stop up then or later
    streaming = np.full((epochs + 1, configurations, sites), -np.inf)  # most while streaming there
    streaming[epochs] = 0.0
    given_up[epochs] = 0.0
    arrived[epochs] = 0.0
    run = np.zeros(3, np.int64), np.zeros(legs.moved.shape[3] + 1), np.zeros(5)
    for epoch in range(epochs - 1, -1, -1):
        _levers(legs, epoch, rate, value, stay, answers)
        _bounds(legs, epoch, rate, value, stay, arrived, given_up, streaming)
        for leg in range(len(legs.source)):
            _move(legs, leg, epoch, rate, taste, value, stay, answers, arrived, given_up, streaming, run)


@kernel(lean=True)
def _levers(legs, epoch, rate, value, stay, answers):  # type: ignore[no-untyped-def]
    """Answers that stop nothing: keep, or the best configuration of the same place."""
    for place in range(len(legs.lever) - 1):
        best = -1
        for at in range(legs.lever[place], legs.lever[place + 1]):
            each = legs.member[at]
            stay[epoch, each] = rate[epoch, each] * legs.rollout.epoch_s + value[epoch + 1, each]
            if best < 0 or stay[epoch, each] > stay[epoch, best]:
                best = each
        for at in range(legs.lever[place], legs.lever[place + 1]):
            each = legs.member[at]
            value[epoch, each] = stay[epoch, best]
            if stay[epoch, each] < stay[epoch, best]:
                answers[epoch, each, 0], answers[epoch, each, 1], answers[epoch, each, 2] = SWITCHED, best, 1


@kernel(lean=True)
def _bounds(legs, epoch, rate, value, stay, arrived, given_up, streaming):  # type: ignore[no-untyped-def]
    """What a move under way at the start of this epoch can still give at most."""
    whole = legs.rollout.epoch_s
    for place in range(len(legs.first) - 1):
        here, training = -np.inf, 0.0
        for at in range(legs.first[place], legs.first[place + 1]):
            each = legs.member[at]
            here = max(here, max(0.0, rate[epoch, each]) * whole + value[epoch + 1, each])
            training = max(training, rate[epoch, each])
        arrived[epoch, place] = max(here, arrived[epoch + 1, place])
        after = -np.inf
        for at in range(legs.first[place], legs.first[place + 1]):
            after = max(after, value[epoch + 1, legs.member[at]])
        for each in range(rate.shape[1]):
            own = max(0.0, rate[epoch, each]) * whole
            streaming[epoch, each, place] = max(
                own + max(streaming[epoch + 1, each, place], value[epoch + 1, each]),
                max(own, training * whole) + after,
            )
    for each in range(rate.shape[1]):
        given_up[epoch, each] = max(stay[epoch, each], given_up[epoch + 1, each])


@kernel(lean=True)
def _move(legs, leg, epoch, rate, taste, value, stay, answers, arrived, given_up, streaming, run):  # type: ignore[no-untyped-def]
    """Both kinds of move from one site to another, begun in this epoch; inside of one only the stop."""
    whole, place = legs.rollout, legs.source[leg]
    rollout = Rollout(
        whole.epoch_s,
        whole.restart_s,
        whole.shadow_share,
        whole.tokens_per_step,
        whole.tokens_per_s,
        whole.egress_usd_per_s,
        whole.utilization,
        legs.bandwidth[leg],
        legs.sent[leg],
        legs.usd_per_byte[leg],
        whole.place,
        legs.moved[leg],
    )
    members = legs.member[legs.first[place] : legs.first[place + 1]]
    args = legs, rollout, legs.destination[leg], epoch, rate, taste, value, stay, answers
    streamed = 0 if legs.destination[leg] == place else len(members)
    for at in range(-1, streamed):  # one call, so that it is compiled once
        phase, sources = (STOPPED, members) if at < 0 else (STREAMING, members[at : at + 1])
        _play(args, sources, phase, arrived, given_up, streaming, run)


@kernel(lean=True)
def _play(args, sources, phase, arrived, given_up, streaming, run):  # type: ignore[no-untyped-def]
    """A move from any of ``sources`` (one, unless training stands still), epoch by epoch until it is done; ``run``:
    room for what a run consists of."""
    legs, rollout, destination, begun, rate, taste, value, stay, answers = args
    epochs, blank = rate.shape
    state, remaining, gave = run
    state[CONFIGURATION] = sources[0]
    begin_move(rollout, state, remaining, blank, phase)
    gained, answer = 0.0, COPIED if phase == STOPPED else STREAMED
    for epoch in range(begun, epochs):
        hopeless = True
        for each in sources:
            if phase == STREAMING:
                most = gained + streaming[epoch, each, destination]
            else:
                most = gained + max(arrived[epoch, destination], given_up[epoch, each])
            hopeless &= most <= value[begun, each] + ROUNDING * abs(value[begun, each])
            if epoch > begun and gained + stay[epoch, each] > value[begun, each]:  # give it up
                value[begun, each] = gained + stay[epoch, each]
                _note(answers, begun, each, answer, _another(legs, destination, each), epoch - begun, 1)
        if hopeless:
            return
        advance(rollout, epoch, state, remaining, gave)
        gained += taste[0] * gave[TOKENS] + taste[1] * gave[EGRESS_USD]
        if phase == STREAMING:
            gained += taste[2] * gave[BUSY_S] * legs.utilization[epoch, sources[0]]
        if state[PHASE] == STILL:
            rest = max(0.0, rollout.epoch_s - gave[BUSY_S] - gave[DOWNTIME_S])
            for at in range(legs.first[destination], legs.first[destination + 1]):
                target = legs.member[at]
                found = gained + rate[epoch, target] * rest + value[epoch + 1, target]
                for each in sources:
                    if found > value[begun, each] and legs.place[each] != legs.place[target]:
                        value[begun, each] = found
                        _note(answers, begun, each, answer, target, epoch - begun + 1, 0)
            return
    for each in sources:  # the run ends before the move does
        if gained > value[begun, each]:
            value[begun, each] = gained
            _note(answers, begun, each, answer, _another(legs, destination, each), epochs - begun, 0)


@kernel(lean=True)
def _another(legs, site, each):  # type: ignore[no-untyped-def]
    """Some configuration of a site in another place than one."""
    for at in range(legs.first[site], legs.first[site + 1]):
        if legs.place[legs.member[at]] != legs.place[each]:
            return legs.member[at]
    return -1


@kernel(lean=True)
def _note(answers, epoch, configuration, answer, target, takes, given_up):  # type: ignore[no-untyped-def]
    answers[epoch, configuration, 0], answers[epoch, configuration, 1] = answer, target
    answers[epoch, configuration, 2], answers[epoch, configuration, 3] = takes, given_up
