"""What the transport models are compared in: four stages on domains 0, 0, 1, 2; 8 micro-batches; messages of 2 MiB."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hippo.problem.runtimes import runtime_of
from hippo.schedule.schedule import order
from hippo.simulate.abstract import PlannedLine, abstract_program, on_links
from hippo.simulate.program import Program

LINKS = {
    "A": ((1000, 20), (1000, 20)),
    "B": ((300, 100), (300, 100)),
    "C": ((100, 40), (100, 40)),
    "D": ((100, 40), (50, 100)),
}
"""Mbit/s on the wire and round trip in ms of both hops that cross domains."""

MESSAGE_BYTES = 2 * 2**20
MEMORY_BYTES_PER_S = 2e9  # between processes of one machine; explains the last digit of the facts' model columns


def measured_world(setting: str, schedule: str, *, runtime: str = "hippo") -> Program:
    """One of the settings as a runtime meets it; forward 60 ms, backward 120 ms."""
    rules = runtime_of(runtime)
    late = rules.transport.overhead_s
    program = abstract_program(order(schedule, stages=4, micro_batches=8), forward_s=0.06, backward_s=0.12)
    inside = MESSAGE_BYTES / MEMORY_BYTES_PER_S
    down, up = np.zeros((4, 1)), np.zeros((4, 1))
    down[0] = up[1] = inside + late
    lines = [
        PlannedLine(rate * 1e6 / 8 * rules.transport.goodput, rtt / 2e3 + late)
        for rate, rtt in LINKS[setting]
        for _ in range(2)
    ]
    program = replace(program, down_delay_s=down, up_delay_s=up, messages=rules.messages)
    return on_links(program, lines, down=[[], [0], [2], []], up=[[], [], [1], [3]], num_bytes=MESSAGE_BYTES)
