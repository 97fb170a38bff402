"""A program played under a transport, step by step of what it may meet.

What a program itself can say goes to the quick engine; the rest to ``world``, a few milliseconds a step.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from hippo.problem.links import Trace
from hippo.problem.transport import Transport
from hippo.simulate import batch, fast
from hippo.simulate.program import Program
from hippo.simulate.timeline import Timeline
from hippo.simulate.transport.carried import carried, carried_trace, from_instant
from hippo.simulate.transport.world import CarriedWorld, Circumstances

USUAL = Circumstances()


def play(program: Program, transport: Transport, circumstances: Circumstances = USUAL) -> Timeline:
    """The timeline of one step; inf seconds where a link that it needs stays down.

    ``circumstances.trace`` is what the links carry of payload, as the program's own state is.
    """
    said = carried(program, transport)
    if is_quick(transport, circumstances):
        return fast.play(said)
    return _world(said, transport, circumstances).run()


def step_time(program: Program, transport: Transport, circumstances: Circumstances = USUAL) -> float:
    """Seconds of the step alone."""
    if is_quick(transport, circumstances):
        return fast.step_time(carried(program, transport))
    return play(program, transport, circumstances).step_time_s


def step_times(program: Program, transport: Transport, each: Iterable[Circumstances]) -> NDArray[np.float64]:
    """Seconds of a step under each of n circumstances, (n,): traces drawn, or where in one the step begins."""
    return np.array([step_time(program, transport, circumstances) for circumstances in each])


def along(program: Program, transport: Transport, trace: Trace) -> NDArray[np.float64]:
    """Seconds of a step that begins at each of the T instants of a trace and meets what moves while it runs, (T,)."""
    starts = (Circumstances(from_instant(trace, start)) for start in trace.time_s.tolist())
    if not is_quick(transport):
        return step_times(program, transport, starts)
    moved = carried_trace(trace, transport)
    found = batch.step_times(
        carried(program, transport), bandwidth_bytes_per_s=moved.bandwidth_bytes_per_s, latency_s=moved.latency_s
    )
    outlasts = trace.time_s[:-1] + found[:-1] > trace.time_s[1:]
    for instant, (late, circumstances) in enumerate(zip(outlasts, starts, strict=False)):
        if late:
            found[instant] = step_time(program, transport, circumstances)
    return found


def is_quick(transport: Transport, circumstances: Circumstances = USUAL) -> bool:
    """Whether ``fast`` can play it: nothing depends on what a flow has seen, on silence or on the clock."""
    moves = circumstances.trace is not None or circumstances.cold or len(circumstances.live_limit) > 0
    control = transport.congestion
    return not (moves or np.isfinite(control.timeout_s) or np.isfinite(control.gain))


def _world(said: Program, transport: Transport, circumstances: Circumstances) -> CarriedWorld:
    trace = circumstances.trace
    if trace is not None:
        circumstances = Circumstances(carried_trace(trace, transport), circumstances.cold, circumstances.live_limit)
    if not np.isfinite(transport.congestion.gain) or circumstances.cold:
        return CarriedWorld(said, transport, circumstances)
    before = CarriedWorld(said, transport, circumstances)  # a step like this one, from which senders know rates
    before.run()
    return CarriedWorld(said, transport, circumstances, before.flights)
