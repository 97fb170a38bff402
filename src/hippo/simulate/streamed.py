"""Local SGD whose averages may be late: what of them a step waits for (Streaming DiLoCo, arXiv 2501.18512).

An average of one fragment begins when a step ends and is used ``delay`` steps later; what it takes longer than these is
waited for. The step that is played is the mean one: of ``every`` steps ``fragments`` begin an average.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from hippo.plan.plan import Sync
from hippo.simulate.fast import step_time
from hippo.simulate.program import Program, SyncGroup


def waited_s(pieces: Iterable[tuple[float, float]], due_s: float) -> float:
    """Seconds beyond ``due_s`` at which the last piece has left a link that serves them in this order; of each the
    seconds at which it is ready and those that it takes."""
    free_s = 0.0
    for ready_s, seconds in pieces:
        free_s = max(free_s, ready_s) + seconds
    return max(0.0, free_s - due_s)


def streamed(program: Program, sync: Sync) -> Program:
    """The program with groups that send in each step what is waited for; what goes beside it counts as bytes alone.

    Whether a step waits is decided by the links as they are in ``program``; what late averages take from activations on
    the same links is not counted.
    """
    groups = [(group, len({int(program.rank_pipeline[rank]) for rank in group.ranks}) > 1) for group in program.groups]
    alone_s = step_time(replace(program, groups=tuple(group for group, outer in groups if not outer)))
    steps = sync.every / sync.fragments  # between two averages
    whole = tuple(_times(group, steps) if outer else group for group, outer in groups)
    takes_s = step_time(replace(program, groups=whole)) - alone_s
    share = waited_s([(alone_s, takes_s)], (1 + sync.delay) * alone_s) / takes_s if takes_s > 0 else 0.0
    extra = program.extra_link_bytes.copy()
    for group, outer in groups:
        if outer and group.links:
            np.add.at(extra, list(group.links), [size * (1 - share) for size in group.link_bytes])
    kept = tuple(_times(group, share) if outer else group for group, outer in groups)
    return replace(program, groups=kept, extra_link_bytes=extra)


def _times(group: SyncGroup, factor: float) -> SyncGroup:
    """The group with so many times its bytes, latencies and seconds."""
    sizes = tuple(size * factor for size in group.link_bytes)
    return replace(group, link_bytes=sizes, hops=group.hops * factor, local_s=group.local_s * factor)
