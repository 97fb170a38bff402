"""What a run has between its domains, and what it sends over it. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hippo.emulate.emulation import LinkChange, emulation
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
from hippo.units import bytes_per_s_from_gbps, s_from_ms

Pair = tuple[str, str]
BYTES = {"fp64": 8.0, "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}


@dataclass(frozen=True)
class RunNetwork:
    """What a run has between its domains."""

    emulated: bool = True  # False: one machine's loopback, which costs next to nothing
    congestion: str = "cubic"  # TCP's control, cubic or bbr; every other one is played as cubic
    trace: Trace | None = None  # payload of links that move, in seconds of the clock
    met: Trace | None = None  # the same as it was so far, with what was moved by hand; None: links were still
    started_s: float = 0.0  # time.monotonic() at the first instant of both

    @classmethod
    def around(cls, cluster: Cluster) -> RunNetwork:
        """The emulated WAN around this process, whose links are the cluster's; none: the loopback."""
        inside = emulation()
        if inside is None:
            return cls(emulated=False)
        cluster, trace = replace(cluster, congestion="").under(HIPPO), None
        if inside.trace is not None:
            trace = load_trace(Path(inside.trace), cluster)
            trace = replace(trace, time_s=(trace.time_s - trace.time_s[0]) / inside.speed)
        changes = inside.changes()
        met = links_met(cluster, trace, changes, inside.started_s) if changes else trace
        return cls(True, inside.congestion, trace, met, inside.started_s)

    @property
    def transport(self) -> Transport:
        """What carries layers between domains."""
        return replace(HIPPO, congestion=CONGESTIONS.get(self.congestion, HIPPO.congestion))

    def mean(self, cluster: Cluster) -> Cluster:
        """The cluster whose links, where they move, have the mean rate of the trace, or that to which they were moved
        by hand."""
        if self.trace is not None:
            rates = self.trace.bandwidth_bytes_per_s.mean(axis=0) / HIPPO.goodput
        elif self.met is not None:
            rates = self.met.bandwidth_bytes_per_s[-1] / HIPPO.goodput
        else:
            return cluster
        links = (
            replace(link, bandwidth_bytes_per_s=float(rate), per_node_bytes_per_s=None)
            for link, rate in zip(cluster.links, rates, strict=True)
        )
        return replace(cluster, links=tuple(links))


def links_met(cluster: Cluster, trace: Trace | None, changes: Sequence[LinkChange], started_s: float) -> Trace:
    """Links as they were: those of the trace (none: of the cluster, which is under the transport that carries the
    layers) and what was moved by hand, which holds until the trace moves that link again."""
    nodes = [cluster.domain(link.source).nodes for link in cluster.links]
    rates = [link.rate_bytes_per_s(count) for link, count in zip(cluster.links, nodes, strict=True)]
    still = Trace(np.zeros(1), np.array([rates]), np.array([[link.delay_s for link in cluster.links]]))
    base = trace or still
    at = {(link.source, link.destination): index for index, link in enumerate(cluster.links)}
    moves: list[tuple[float, int, float, float]] = []  # when, which, payload, delay
    for row, time_s in enumerate(base.time_s.tolist()):
        now = np.stack([base.bandwidth_bytes_per_s[row], base.latency_s[row]])
        before = np.stack([base.bandwidth_bytes_per_s[row - 1], base.latency_s[row - 1]]) if row else now + 1.0
        moves += [(time_s, link, *now[:, link].tolist()) for link in np.flatnonzero((now != before).any(axis=0))]
    for each in changes:
        index = at[each.source, each.destination]
        link = cluster.links[index]
        payload = bytes_per_s_from_gbps(each.gbps) * link.goodput
        moves.append((each.at_s - started_s, index, payload, s_from_ms(each.latency_ms) + link.overhead_s))
    moves.sort(key=lambda move: move[0])
    times = sorted({move[0] for move in moves})
    rate, delay = (np.zeros((len(times), len(at))) for _ in range(2))
    for time_s, index, payload, wait_s in moves:
        row = times.index(time_s)
        rate[row:, index], delay[row:, index] = payload, wait_s
    return Trace(np.array(times), rate, delay, source=base.source)


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
