"""What a run has between its domains, and what it sends over it. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hippo.emulate.emulation import emulation
from hippo.engine.program import BACKWARD, FORWARD
from hippo.problem.cluster import Cluster
from hippo.problem.links import Trace
from hippo.problem.load import load_trace
from hippo.problem.transport import CONGESTIONS, HIPPO, Transport
from hippo.run.job import RunJob
from hippo.run.work import Work
from hippo.simulate.lower import lower
from hippo.simulate.program import Program
from hippo.simulate.timeline import link_bytes

Pair = tuple[str, str]
BYTES = {"fp64": 8.0, "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}


@dataclass(frozen=True)
class RunNetwork:
    """What a run has between its domains."""

    emulated: bool = True  # False: one machine's loopback, which costs next to nothing
    congestion: str = "cubic"  # TCP's control, cubic or bbr; every other one is played as cubic
    trace: Trace | None = None  # payload of links that move, in seconds of the clock

    @classmethod
    def around(cls, cluster: Cluster) -> RunNetwork:
        """The emulated WAN around this process, whose links are the cluster's; none: the loopback."""
        inside = emulation()
        if inside is None:
            return cls(emulated=False)
        if inside.trace is None:
            return cls(congestion=inside.congestion)
        trace = load_trace(Path(inside.trace), replace(cluster, congestion="").under(HIPPO))
        return cls(True, inside.congestion, replace(trace, time_s=trace.time_s / inside.speed))

    @property
    def transport(self) -> Transport:
        """What carries layers between domains."""
        return replace(HIPPO, congestion=CONGESTIONS.get(self.congestion, HIPPO.congestion))

    def mean(self, cluster: Cluster) -> Cluster:
        """The cluster whose links, where they move, have the mean rate of the trace."""
        if self.trace is None:
            return cluster
        rates = self.trace.bandwidth_bytes_per_s.mean(axis=0) / HIPPO.goodput
        links = (
            replace(link, bandwidth_bytes_per_s=float(rate), per_node_bytes_per_s=None)
            for link, rate in zip(cluster.links, rates, strict=True)
        )
        return replace(cluster, links=tuple(links))


def trained_bytes(job: RunJob) -> Mapping[Pair, float]:
    """Payload of a step on each link that a plan uses."""
    program = lower(job.problem, job.plan)
    sent = link_bytes(program if job.options.stand_in else as_sent(job, program))
    links = zip(job.problem.cluster.links, sent.tolist(), strict=True)
    return {(link.source, link.destination): size for link, size in links if size > 0}


def as_sent(job: RunJob, program: Program) -> Program:
    """Real layers send numbers of the run's precision, where the plan's bytes are of the plan's."""
    wide, (ranks, chunks) = BYTES[job.options.precision], program.forward_s.shape
    activations = wide / BYTES[job.plan.precision]
    gradients = wide / job.problem.workload.gradient_bytes_per_parameter
    groups = (
        replace(group, local_s=0.0, link_bytes=tuple(gradients * size for size in group.link_bytes))
        for group in program.groups
    )
    return replace(
        program,
        down_bytes=program.down_bytes * _wider(job, FORWARD, (ranks, chunks), activations),
        up_bytes=program.up_bytes * _wider(job, BACKWARD, (ranks, chunks), activations),
        groups=tuple(groups),
    )


def _wider(job: RunJob, kind: int, shape: tuple[int, ...], factor: float) -> NDArray[np.float64]:
    """By how much messages are larger than the plan's precision says, (ranks, chunks); packed ones are as they are."""
    found, work = np.full(shape, factor), Work(job.problem.model, job.plan, whole_stages=True)
    packed = {(one.source, one.destination) for one in job.plan.compression if one.kind != "none"}
    for one in work.transfers:
        if one.kind == kind and (work.workers[one.source].domain, work.workers[one.destination].domain) in packed:
            found[one.source, one.source_chunk] = 1.0
    return found
