"""A schedule as a hint: ranks run what is ready, the hint only says what goes first. For delays that nobody knows.

Letters: p ranks, S slots, m micro-batches (``engine.program.Packed``); N operations of a hint, a fused backward split.

Every rank has three queues, one per kind, each in the hint's order over all chunks. A rank without work looks at the
heads that are *ready* (the input is there; a forward also needs memory) and runs the one that comes first; when none
is ready it waits for the next message. The rules differ in what comes first: with ``hint`` what comes first in the
hint (RRFP, arXiv 2605.18750, calls this a non-binding hint), with ``online`` a B, else an F, else a W.

It never gets stuck. Let L be one order of all operations that agrees with the hint on each rank and with the data
(L exists: a legal hint can be replayed). Of the operations not done, x is the first in L, on rank r. Everything before
x in L is done, so x's input is on its way or there, and x is the head of its queue. If x is a forward: exactly the
forwards before it in the hint are done on r, and at least the B and W before it; r keeps at most what it keeps in the
hint before x, so x fits wherever the hint fits. Hence some operation can run, whatever the rule picks meanwhile. Where
a hint needs more than the limit this proof is void, except with one chunk per rank and micro-batches in order: there
the oldest unfinished micro-batch always fits, because nothing newer than it is ahead of it in any queue.

With *patience* a rank knows more than what is there: the producer of a message announces it when it starts; the
announcement takes the unstretched latency, and the receiver expects the message after the unstretched duration and
transfer. A rank leaves alone what it could start now while what comes first is expected within ``patience`` times its
duration from now, and gives up when it is overdue by as much. A little of it helps where memory is short: p 8, m 32,
F B W = 1 1.05 .75, all +-20 % (uniform, ranks +-10 %; mean of 300 plays), the cross-domain schedule as a hint. One link
of 5 F in the middle: 144.3 without and 141.1 with patience .5 at 8 live, 109.1 and 108.8 at 16. All links 1 F: 154.3
and 152.2 at 8, 112.7 and 111.9 at 16. All links .1 F: 109.5 and 107.7 at 8, but 102.4 and 103.0 at 16. The rule
``online`` gains nothing from it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.events import NEVER, Rule, Written, board, by_hint, play, vary, varying
from hippo.errors import InfeasibleError, UnknownNameError
from hippo.schedule.problem import Floats, ScheduleProblem
from hippo.schedule.replay import choosing, peak_memory
from hippo.schedule.schedule import Schedule, split

RULES = ("hint", "online")


def dispatch(
    problem: ScheduleProblem, hint: Schedule, *, rule: str = "hint", patience: float = 0.0, name: str = ""
) -> Schedule:
    """The order in which ranks run the operations of a legal hint, when everything takes as long as the problem says.

    The limits are those of the problem. ``patience`` is the share of an operation's time for which a rank waits for
    something that comes first and is announced, before it starts that operation (see the top of the file).

    Raises
    ------
    UnknownNameError
        No rule has that name.
    InfeasibleError
        The hint needs more than the limit, and ranks got stuck for it; the message names a limit that does.
    """
    whole = split(hint)
    start = np.empty((3, problem.ranks * problem.chunks, problem.micro_batches))
    ones = np.ones((1, start.size)), np.ones((1, start.size)), np.ones((1, problem.ranks))
    found = makespans(problem, queues(problem, whole, rule, patience=patience), ones, starts=start)
    if np.isinf(found[0]):
        need = peak_memory(problem, whole)
        rank = int(np.argmax(need / problem.limit))
        raise InfeasibleError(
            [
                f"{hint.name} as a hint keeps {need[rank]:g} on rank {rank}, the limit is {problem.limit[rank]:g}, and "
                f"the ranks get stuck. Nearest way out: --memory {need.max():g}, or --method best."
            ]
        )
    return ordered(whole, start[at_of(whole)], name or f"{hint.name} as a hint")


def queues(problem: ScheduleProblem, hint: Schedule, rule: str = "hint", *, patience: float = 0.0) -> Rule:
    """The queues of all ranks, for the event loop; a fused backward becomes B and W."""
    if rule not in RULES:
        raise UnknownNameError("dispatch rule", rule, RULES, source="rule")
    whole = split(hint)
    kind, slot, micro_batch = at_of(whole)
    queue, count = 3 * (slot // problem.chunks) + kind, len(kind)
    by = np.argsort(queue, kind="stable")
    lengths = np.bincount(queue, minlength=3 * problem.ranks)
    nth = np.arange(count) - (np.cumsum(lengths) - lengths)[queue[by]]
    ahead = np.array([count, 0, 2 * count] if rule == "online" else [0, 0, 0])  # B before F before W
    found = np.zeros((3 * problem.ranks, lengths.max() + 1, 3), np.int32)
    found[:, :, 0], found[:, :, 2] = NEVER, problem.micro_batches
    found[:, :, 1] = problem.chunks * (np.arange(3 * problem.ranks)[:, None] // 3)
    found[queue[by], nth] = np.stack([by + ahead[kind[by]], slot[by], micro_batch[by]], axis=1)
    return by_hint(found, patience)


def makespans(
    problem: ScheduleProblem, rule: Rule, factors: tuple[Floats, Floats, Floats], *, starts: Floats | None = None
) -> Floats:
    """Of n plays under factors: of operations (n, 3 S m), of what F and B send (n, 2 S m or more), of ranks (n, p).

    A factor stands at ``(kind * S + slot) * m + micro-batch``; those of messages stretch latency and transfer. inf
    where the ranks get stuck. Writes the starts (3, S, m) of the last play where there is room for them.
    """
    found, pipe = np.empty(len(factors[0])), varying(choosing(problem))
    written = Written(None, np.empty((0, 0, 0)) if starts is None else starts)
    _makespans(pipe, board(pipe, announces=rule.patience > 0), rule, factors, written, found)
    return found


def at_of(schedule: Schedule) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Kind, slot and micro-batch of each operation, (N,) each."""
    starts, order = schedule.order_start, schedule.order
    rank = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return order[:, 0], rank * schedule.shape.chunks + order[:, 1], order[:, 2]


def ordered(schedule: Schedule, start: Floats, name: str) -> Schedule:
    """The operations of each rank of a schedule put in the order of their ``start`` (N,)."""
    ranks = np.repeat(np.arange(len(schedule.order_start) - 1), np.diff(schedule.order_start))
    order = schedule.order[np.lexsort((start, ranks))]
    order.setflags(write=False)
    return Schedule(name, schedule.shape, False, order, schedule.order_start)


@kernel
def _makespans(pipe, board, rule, factors, written, found):  # type: ignore[no-untyped-def]
    operations, messages, ranks = factors
    for number in range(len(found)):
        vary(pipe, operations[number], messages[number], ranks[number])
        found[number] = play(pipe, board, rule, written, np.inf)
