"""Another policy for a world that is being played: levels and keys of the jobs in it are worked out anew."""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.flows import next_due
from hippo.jobs.engine.heaps import rekey, set_due
from hippo.jobs.engine.keys import key
from hippo.jobs.engine.learned_keys import learn
from hippo.jobs.engine.opening import key_rules
from hippo.jobs.engine.world import QueueWorld
from hippo.jobs.learned.state import KeyMemory, writable
from hippo.jobs.policies.policy import QueuePolicy


def handed_over(world: QueueWorld, policy: QueuePolicy, memory: KeyMemory | None = None) -> QueueWorld:
    """The same world, in the same state, under another policy from now on.

    ``memory``: what the learned policy goes on with, made for the same workload; None: what the world holds. The world
    must have been opened under a learned policy (others carry no memory) and without nodes that fail.
    """
    assert world.remembers, "open the world under a learned policy"
    assert not world.fails
    key = policy.key
    assert (key.known, key.factor, key.by_user) == (None, None, False), "such a key needs a world of its own"
    if not key.by_share:
        world.job[:, c.KNOWN_KEY] = 0.0  # what jobs were entitled to when they came
    if memory is not None:
        _carry_over(world.learned, memory)
    found = world._replace(
        **key_rules(policy),
        learned=world.learned if memory is None else writable(memory),
    )
    take_over(found)
    return found


def _carry_over(old: KeyMemory, new: KeyMemory) -> None:
    """Who waits or runs, and how far each has got; keys are asked for anew."""
    for name in ("wanting", "active", "active_at"):
        getattr(new, name)[:] = getattr(old, name)
    new.history.level[:] = old.history.level


@kernel(lean=True)
def take_over(w):  # type: ignore[no-untyped-def]
    """New levels, times and keys of all jobs that wait or run."""
    now = w.clock[c.NOW]
    for job in range(w.tally[c.ARRIVED]):
        row, mark = w.job[job], w.mark[job]
        if mark[c.STATUS] != c.WAITING and mark[c.STATUS] != c.RUNNING:
            continue
        runs = mark[c.STATUS] == c.RUNNING
        per_s = float(mark[c.DEVICES]) if w.per_device else 1.0
        held, level = row[c.HELD] + (max(0.0, now - row[c.READY]) if runs else 0.0), 0
        while level < len(w.levels) and held * per_s >= w.levels[level]:
            level += 1
        mark[c.LEVEL] = level
        learn(w, job, now)
        due = np.inf
        if runs:
            due = next_due(w, job)
        elif w.promotes_after < np.inf and level > 0:
            due = now + w.promotes_after * row[c.HELD]
        set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], job, due)
        if not runs:
            rekey(w, job, key(w, job, now))
