"""What must come before what in every schedule of a problem, whatever the order of the ranks: rules between groups.

A *group* is all operations of one kind on one slot, or all messages that one slot sends over a link that they occupy
(transfer > 0). Letters: G groups, S slots, m micro-batches, R rules. Group ``kind * S + slot`` for F, B, W = 0, 1, 2;
the messages of F and B are kinds 3 and 4. A *machine* runs one operation at a time: rank, or directed link.

Operation k of a group is its k-th to run. Micro-batches that take the same chain of slots are identical, so in any
schedule the k-th operation of a group may be given the name of micro-batch k: among the first k forwards that start on
a slot, k have arrived, so the k-th arrival is not later; the same holds for B after F, W after B, for the FIFO of a
link, and memory only counts. All makespans can therefore be had with every group in order, and every rule has the form

    start of (into, k)  >=  end of (out_of, k - shift) + lag          for every k >= shift.

Rules of memory. Let a slot take ``a`` at F, give back ``b`` at B and ``a - b`` at W. When F k starts, k + 1 were taken;
let nB, nW be the B and W that have ended, nW <= nB <= k. The slots of the same rank that the micro-batches visit
*before* this one still hold whatever has not come back here: ``A`` each (W, B there follow B here). Then

    (k + 1) a - b nB - (a - b) nW + A (k + 1 - nB)  <=  limit.

With nW <= nB: ``(a + A) (k + 1 - nB) <= limit``, thus F k comes after B of ``k - floor(limit / (a + A))``.
With nB <= k: ``(a - b) (k + 1 - nW) + b + A <= limit``, thus F k comes after W of
``k - floor((limit - b - A) / (a - b))``. Where all is given back at W and the rank has one slot, the second is the
whole truth: F k after W of ``k - floor(limit / a)``.
"""

from __future__ import annotations

from math import floor, inf
from typing import NamedTuple

import numpy as np

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.schedule.problem import Floats, Ints, ScheduleProblem, chains

SENT = 3  # kind of the messages of F; 4: of B

_ROUNDING = 1 + 2e-9  # the checker lets the limit be passed by 1e-9


class Rules(NamedTuple):
    """Groups and rules as flat arrays for kernels; the rules sorted by ``into``."""

    passes: Ints  # (G,) operations of the group; 0: there is no such group
    duration: Floats  # (G,)
    machine: Ints  # (G,) ranks 0..p-1, then links
    turn: Ints  # (G,) groups so that rules of shift 0 point forward
    first: Ints  # (G + 1,) slice of the rules into each group
    out_of: Ints  # (R,)
    shift: Ints  # (R,) >= 0
    lag: Floats  # (R,) >= 0
    rest: Floats  # (G,) least time from the end of an operation to the very end: the reduction of its rank


def rules(problem: ScheduleProblem) -> Rules:
    """All rules of a problem that micro-batches fit into; see ``smallest_limit``."""
    tables = problem.tables
    slots, found = len(tables.offset), []
    passes, duration, machine = _groups(problem)
    for group in np.flatnonzero(passes):
        found.append((int(group), int(group), 1, 0.0))
    for chain in chains(problem):
        for slot in chain:
            found.extend(_inputs(problem, slot))
            found.append((BACKWARD * slots + slot, WEIGHT * slots + slot, 0, 0.0))
            found.extend(_memory(problem, slot))
    found = sorted((each for each in found if passes[each[1]]), key=lambda each: each[1])
    out_of, into, shift = (np.array([each[column] for each in found], np.int64) for column in range(3))
    lag = np.array([each[3] for each in found])
    first = np.searchsorted(into, np.arange(5 * slots + 1))
    rest = np.concatenate([np.tile(np.repeat(problem.tables.reduction, problem.chunks), 3), np.zeros(2 * slots)])
    return Rules(passes, duration, machine, _turn(problem), first, out_of, shift, lag, rest)


def reverse(given: Rules) -> Rules:
    """The same with time running backwards: operation k is then the k-th from the end, ``rest`` before its start."""
    into = np.repeat(np.arange(len(given.passes)), np.diff(given.first))
    order = np.argsort(given.out_of, kind="stable")
    first = np.searchsorted(given.out_of[order], np.arange(len(given.passes) + 1))
    return Rules(
        given.passes,
        given.duration,
        given.machine,
        given.turn[::-1].copy(),
        first,
        into[order],
        given.shift[order],
        given.lag[order],
        given.rest,
    )


def smallest_limit(problem: ScheduleProblem) -> tuple[float, ...]:
    """What one micro-batch needs on each rank, (p,): its F on every slot before the first B gives anything back."""
    tables = problem.tables
    taken = tables.taken.reshape(tables.ranks, tables.chunks)
    one = taken.max(axis=1) if problem.placement == "bidirectional" else taken.sum(axis=1)
    return tuple(one.tolist())


def _groups(problem: ScheduleProblem) -> tuple[Ints, Floats, Ints]:
    tables = problem.tables
    p, slots = tables.ranks, len(tables.offset)
    sent = (tables.port >= 0) * tables.passes
    passes = np.concatenate([np.tile(tables.passes, 3), sent.ravel()])
    duration = np.concatenate([tables.duration.ravel(), tables.transfer.ravel()])
    machine = np.concatenate([np.tile(np.arange(slots) // tables.chunks, 3), p + np.maximum(tables.port, 0).ravel()])
    return passes, duration, machine


def _turn(problem: ScheduleProblem) -> Ints:
    """Down each chain with F and its messages, up with B and its messages, then W."""
    slots = len(problem.tables.offset)
    found: list[int] = []
    for chain in chains(problem):
        for kind, way in ((FORWARD, chain), (BACKWARD, chain[::-1])):
            for slot in way:
                found += [kind * slots + slot, (SENT + kind) * slots + slot]
        found += [WEIGHT * slots + slot for slot in chain]
    return np.array(found, np.int64)


def _inputs(problem: ScheduleProblem, slot: int) -> list[tuple[int, int, int, float]]:
    """From F and B of a slot to whatever waits for them, over the link where they occupy it."""
    tables = problem.tables
    slots, found = len(tables.offset), []
    for kind in (FORWARD, BACKWARD):
        done, message, receiver = kind * slots + slot, (SENT + kind) * slots + slot, int(tables.onward[kind, slot])
        if receiver < 0:
            if kind == FORWARD:
                found.append((done, BACKWARD * slots + slot, 0, 0.0))
            continue
        if tables.port[kind, slot] >= 0:
            found.append((done, message, 0, 0.0))
            done = message
        found.append((done, kind * slots + receiver, 0, float(tables.delay[kind, slot])))
    return found


def _memory(problem: ScheduleProblem, slot: int) -> list[tuple[int, int, int, float]]:
    tables = problem.tables
    slots, rank = len(tables.offset), slot // tables.chunks
    limit = float(tables.limit[rank]) * _ROUNDING
    if limit == inf:
        return []
    chain = next(chain for chain in chains(problem) if slot in chain)
    before = sum(float(tables.taken[each]) for each in chain[: chain.index(slot)] if each // tables.chunks == rank)
    taken, freed = float(tables.taken[slot]), float(tables.freed[slot])
    found = [(BACKWARD * slots + slot, slot, floor(limit / (taken + before) + 1e-9), 0.0)]
    if taken > freed:
        live = floor((limit - freed - before) / (taken - freed) * _ROUNDING + 1e-9)
        found.append((WEIGHT * slots + slot, slot, live, 0.0))
    return [each for each in found if 1 <= each[2] < tables.passes[slot]]
