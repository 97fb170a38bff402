"""A plan made playable: durations per rank, routes of messages, orders of operations, groups that agree. Not timed.

Letters: G ranks (a rank = one stage of one pipeline; its dp lanes move in lockstep), C chunks per rank (interleave),
E links of the cluster, R routes. A rank's operations are played strictly in the order given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.problem.runtimes import Messages

__all__ = ["BACKWARD", "FORWARD", "WEIGHT", "Gather", "Program", "SyncGroup"]


@dataclass(frozen=True)
class SyncGroup:
    """Replicas that agree on the gradients (or, local SGD, on the parameters) of some layers.

    The group starts when every member rank has done its own work and in-domain ``sync_s``; ``local_s`` later it sends
    ``link_bytes`` on each link of ``links``, FIFO with all other traffic; it ends when the last byte has left plus
    ``hops`` times the latency of the slowest route.
    """

    ranks: tuple[int, ...]
    links: tuple[int, ...]  # index into cluster.links, the directed links of the ring (relayed pairs: both hops)
    link_bytes: tuple[float, ...]  # per step (already divided by H for local SGD)
    hops: float  # latencies in a row: 2 (n - 1) for a ring of n (divided by H for local SGD)
    local_s: float = 0.0  # agreement among members of one domain, before the links are used
    routes: tuple[tuple[int, ...], ...] = ()  # links of each pair of the ring; empty: each link is a pair
    nic_bytes_per_s: tuple[float, ...] = ()  # cap of the sending nodes on each link; empty: none
    flows: int = 1  # that each link carries side by side: rings of one sum on two levels
    longer: tuple[float, ...] = ()  # how many times as long as their bytes each link is taken; empty: once

    @property
    def taken_bytes(self) -> tuple[float, ...]:
        """What each link could carry while the group takes it, which flows that share it do not fill."""
        if not self.longer:
            return self.link_bytes
        return tuple(times * size for times, size in zip(self.longer, self.link_bytes, strict=True))


@dataclass(frozen=True, eq=False)
class Gather:
    """Parameters sharded over several domains: every pass gathers them over the WAN, and lasts at least that long.

    A pass of a chunk lasts ``max(compute, bytes / slowest link + rounds * longest latency)``; G ranks, C chunks.
    """

    links: tuple[int, ...]  # the directed links of the ring
    forward_bytes: NDArray[np.float64]  # (G, C) on each of the links per forward
    backward_bytes: NDArray[np.float64]  # (G, C) on each of the links per backward, gradients included
    rounds: float  # latencies in a row per pass


@dataclass(frozen=True, eq=False)
class Program:
    """One optimizer step, ready to be played by any engine under any state of the links."""

    num_waves: NDArray[np.int64]  # (pipelines,) micro-batches per pipeline
    rank_pipeline: NDArray[np.int64]  # (G,) pipeline of the rank
    rank_stage: NDArray[np.int64]  # (G,) position in its pipeline
    rank_domain: NDArray[np.int64]  # (G,) index into cluster.domains
    forward_s: NDArray[np.float64]  # (G, C)
    backward_s: NDArray[np.float64]  # (G, C) input gradient; fused schedules add weight_s to it
    weight_s: NDArray[np.float64]  # (G, C)
    fused: bool  # True: B and W are one operation of length backward_s + weight_s
    sync_s: NDArray[np.float64]  # (G,) in-domain synchronisation after the last operation
    finish_s: NDArray[np.float64]  # (G,) optimizer and fixed time, after the group has agreed
    # messages leaving virtual stage c * p + s downwards (activations) and upwards (gradients), per wave
    down_bytes: NDArray[np.float64]  # (G, C) bytes of all dp lanes together; 0: nothing to send
    up_bytes: NDArray[np.float64]  # (G, C)
    down_route: NDArray[np.int64]  # (G, C, 2) links crossed in order, -1 = none (inside a domain: both -1)
    up_route: NDArray[np.int64]  # (G, C, 2)
    down_delay_s: NDArray[np.float64]  # (G, C) pure delay inside a domain: bytes over the fabric + latency
    up_delay_s: NDArray[np.float64]  # (G, C)
    down_nic_bytes_per_s: NDArray[np.float64]  # (G, C) cap of the sending nodes together (inf: none)
    up_nic_bytes_per_s: NDArray[np.float64]  # (G, C)
    order: NDArray[np.int64]  # (total operations, 3): kind, chunk, micro-batch; ranks one after the other
    order_start: NDArray[np.int64]  # (G + 1,) slice of ``order`` of each rank
    groups: tuple[SyncGroup, ...]
    link_bandwidth_bytes_per_s: NDArray[np.float64]  # (E,) base state; engines take another state as an argument
    link_latency_s: NDArray[np.float64]  # (E,)
    extra_link_bytes: NDArray[np.float64]  # (E,) bytes per step not played as messages (ZeRO-3 over the WAN)
    link_per_node: NDArray[np.bool_] | None = None  # (E,) only a cap per node, which another state scales; None: none
    gather: Gather | None = None
    messages: Messages = Messages()  # how they and operations wait for each other
    rank_nodes: NDArray[np.int64] | None = None  # (G,) same number: nodes in common, whose caps they share; None: none
