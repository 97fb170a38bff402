"""A second simulator of a synchronous training step, written from the rules of NCCL's flat ring; where NCCL has them:

- A ring visits node after node, in the order of their first ranks, and enters and leaves each once; all channels keep
  that order (src/init.cc, src/graph/connect.cc), so they divide the bytes and add nothing to what a node may send.
- 2 (n - 1) / n of the bytes go over each hop, n the ranks; reduce-scatter and all-gather move half of that each
  (nccl-tests, doc/PERFORMANCE.md), in 2 (n - 1) steps in all (src/device/all_reduce.h). A rank waits in each for its
  neighbour: the slowest hop sets the pace, and each step pays its latency.
- A send occupies the sender until its bytes are through; the receiver waits until they are there.
- Here p stages, d replicas, m micro-batches; a unit is one (stage, replica): `tp` GPUs of one node.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

NVLINK_S, NETWORK_S = 3.4e-6, 14e-6  # NCCL's latency of one step of a ring (Simple): inside a node, between nodes
OPTIMIZER_BYTES = 12  # of a parameter: main copy and two moments in fp32, which a sharded optimizer divides
Node = tuple[int, int]  # region, number inside it
Resource = tuple[str, Any, int]
Pair = tuple[float, float]
Ring = tuple[float, Counter[Resource], float]  # bytes over a hop; bytes through what is shared per such byte; latency


class Region(NamedTuple):
    name: str
    nodes: int
    gpus_per_node: int
    intra_gb_per_s: float  # one GPU inside its node, one direction
    nic_gbps: float  # one node, each direction
    gpu_memory_gb: float  # that training may fill


class Link(NamedTuple):
    per_node_gbps: float  # what every node of the one region may send to the other
    latency_ms: float  # one way
    total_gbps: float = float("inf")  # of all nodes together


class Cluster(NamedTuple):
    regions: tuple[Region, ...]
    links: Mapping[tuple[int, int], Link]  # (from, to)


class Model(NamedTuple):
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    sequence: int
    layer_flops: float  # forward, one layer, one sequence
    gradient_bytes: float = 4  # of one parameter, as it is agreed
    state_bytes: float = 18  # of one parameter: weight, gradient, optimizer
    kept_bytes: float = 34  # that a layer keeps for its backward pass, per token and hidden unit

    def parameters(self, layers: int, *, first: bool, last: bool) -> float:
        rows = (self.vocabulary + self.sequence) * first + self.vocabulary * last
        return (layers * (12 * self.hidden + 13) + rows) * self.hidden


class Times(NamedTuple):
    forward_s: float  # one layer, one micro-batch, tensor parallelism included
    backward_s: float
    head_forward_s: float = 0  # the output layer, on the last stage
    head_backward_s: float = 0


class Layout(NamedTuple):
    tp: int
    micro_batch: int  # sequences
    layers: tuple[int, ...]  # (p,)
    micro_batches: tuple[int, ...]  # (d,)
    units: tuple[tuple[Node, ...], ...]  # (p, d) where each is; ranks count through a row
    sharded: bool = False  # the optimizer's state, over the replicas


class Step(NamedTuple):
    step_s: float
    ready_s: tuple[float, ...]  # (p,) when the gradients of a stage are there; the largest ends the pipelines
    agreed_s: tuple[float, ...]  # (p,)
    ring_bytes: Mapping[tuple[int, int], float]  # by regions (from, to)
    activation_bytes: Mapping[tuple[int, int], float]
    memory_bytes: tuple[float, ...]  # (p,) of one GPU
    fits: bool  # in that memory, and on the GPUs that are there


def way(cluster: Cluster, a: Node, b: Node) -> tuple[float, dict[Resource, float]]:
    """Latency of a hop, and the bytes per second of all that it shares with others."""
    here, there, wan = cluster.regions[a[0]], cluster.regions[b[0]], cluster.links.get((a[0], b[0]))
    if a == b:
        return NVLINK_S, {}
    gbps: dict[Resource, float] = {("out", a, 0): here.nic_gbps, ("in", b, 0): there.nic_gbps}
    if a[0] != b[0]:
        if wan is None:
            raise ValueError(f"no link from {here.name} to {there.name}")
        gbps |= {("wan", a, b[0]): wan.per_node_gbps, ("link", a[0], b[0]): wan.total_gbps}
    return (wan.latency_ms / 1e3 if wan else NETWORK_S), {r: rate * 1e9 / 8 for r, rate in gbps.items()}


def rings(cluster: Cluster, model: Model, layout: Layout) -> tuple[list[Ring], dict[Resource, float]]:
    """One bundle of `tp` rings a stage, and what the resources that they pass carry per second."""
    found, rates, n, p = list[Ring](), dict[Resource, float](), len(layout.micro_batches), len(layout.layers)
    for s, row in enumerate(layout.units):
        order = sorted(row, key=row.index)  # node after node, by first rank
        loads, latencies = Counter[Resource](), [0.0]
        for a, b in zip(order, order[1:] + order[:1], strict=True):
            latency, passed = way(cluster, a, b)  # inside a node each ring has GPUs of its own
            passed = passed or {("gpu", s, a[0]): cluster.regions[a[0]].intra_gb_per_s * 1e9 * layout.tp}
            latencies.append(latency)
            rates |= passed
            for r in passed:
                loads[r] = layout.tp if r[0] == "gpu" else loads[r] + layout.tp
        hop = model.parameters(layout.layers[s], first=s == 0, last=s == p - 1) / layout.tp * model.gradient_bytes
        found.append((2 * (n - 1) / n * hop, loads, 2 * (n - 1) * max(latencies)))
    return found, rates


def agree(running: Sequence[Ring], rates: Mapping[Resource, float], ready: Sequence[float]) -> list[float]:
    """When each ring is done; those that run at once share what they pass max-min fairly."""
    left, loads = {i: ring[0] for i, ring in enumerate(running) if ring[0]}, [ring[1] for ring in running]
    done, until = list(ready), 0.0
    while left:
        now = max(until, min(ready[i] for i in left))
        waiting, pace = {i for i in left if ready[i] <= now}, dict[int, float]()
        free = {r: rates[r] for i in waiting for r in loads[i]}
        while waiting:  # the resource that allows least fixes the pace of all that pass it
            shares = {r: free[r] / w for r in free if (w := sum(loads[i][r] for i in waiting))}
            tight = min(shares, key=shares.__getitem__)
            for i in [i for i in waiting if loads[i][tight]]:
                pace[i] = shares[tight]
                waiting.remove(i)
                free |= {r: max(0.0, free[r] - w * pace[i]) for r, w in loads[i].items()}
        ends = {i: now + left[i] / pace[i] for i in pace}
        until = min([*ends.values(), *(ready[i] for i in left if ready[i] > now)])
        for i, end in ends.items():
            left[i] -= pace[i] * (until - now)
            if end <= until * (1 + 1e-12):
                done[i] = until + running[i][2]
                del left[i]
    return done


def play(seconds: Sequence[Pair], sends: Sequence[tuple[Pair, Pair]], m: int) -> list[float]:
    """When each stage of one pipeline ends its 1F1B; `sends[s]`: (occupies, latency) from s down and back up to it."""
    p, free = len(seconds), [0.0] * len(seconds)
    orders = [[0] * w + [0, 1] * (m - w) + [1] * w for w in (min(p - 1 - s, m) for s in range(p))]  # 1: backward
    inbox: list[tuple[list[float], list[float]]] = [([0.0] * m * (s == 0), [0.0] * m * (s == p - 1)) for s in range(p)]
    made, todo = [[0, 0] for _ in range(p)], 2 * m * p
    while todo:
        for s in range(p):
            while (at := sum(made[s])) < 2 * m and made[s][kind := orders[s][at]] < len(inbox[s][kind]):
                free[s] = max(free[s], inbox[s][kind][made[s][kind]]) + seconds[s][kind]
                made[s][kind] += 1
                todo -= 1
                if 0 <= (to := s - 1 if kind else s + 1) < p:
                    occupies, latency = sends[min(s, to)][kind]
                    free[s] += occupies
                    inbox[to][kind].append(free[s] + latency)
    return free


def memory(model: Model, layout: Layout, s: int) -> float:
    """Bytes on one GPU of stage `s`: states, activations in flight, logits (in 16 bit, and twice in fp32)."""
    p, d, tokens = len(layout.layers), len(layout.micro_batches), layout.micro_batch * model.sequence
    states = model.state_bytes - OPTIMIZER_BYTES * (1 - 1 / d) * layout.sharded
    kept = min(p - s, max(layout.micro_batches)) * layout.layers[s] * model.kept_bytes * tokens * model.hidden
    parameters = model.parameters(layout.layers[s], first=s == 0, last=s == p - 1)
    return (parameters * states + kept + 10 * tokens * model.vocabulary * (s == p - 1)) / layout.tp


def simulate(cluster: Cluster, model: Model, times: Times, layout: Layout) -> Step:
    p, units, waves = len(layout.layers), layout.units, layout.micro_batches
    message_bytes = 2 * layout.micro_batch * model.sequence * model.hidden  # the `tp` GPUs of a unit together
    borders = [(s, t, i) for s in range(p) for t in (s - 1, s + 1) if 0 <= t < p for i in range(len(waves))]
    ways = {(s, t, i): way(cluster, units[s][i], units[t][i]) for s, t, i in borders}
    users = {(r, t if r[0] == "in" else s, i) for (s, t, i), (_, shared) in ways.items() for r in shared}
    sharers = Counter(r for r, _, _ in users)  # units, each with one message at a time

    def send(s: int, t: int, i: int) -> Pair:
        latency, shared = ways[s, t, i]
        inside = cluster.regions[units[s][i][0]].intra_gb_per_s * 1e9 * layout.tp
        return message_bytes / min([rate / sharers[r] for r, rate in shared.items()] or [inside]), latency

    seconds = [(n * times.forward_s, n * times.backward_s) for n in layout.layers]
    seconds[-1] = (seconds[-1][0] + times.head_forward_s, seconds[-1][1] + times.head_backward_s)
    kinds = {(m, tuple((send(s, s + 1, i), send(s + 1, s, i)) for s in range(p - 1))) for i, m in enumerate(waves)}
    ready = [max(ends) for ends in zip(*(play(seconds, sends, m) for m, sends in kinds), strict=True)]
    running, rates = rings(cluster, model, layout)
    agreed = agree(running, rates, ready)

    by_ring, by_message = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for hop_bytes, loads, _ in running:
        by_ring.update({(a, b): w * hop_bytes for (kind, a, b), w in loads.items() if kind == "link"})
    for (_, _, i), (_, shared) in ways.items():
        by_message.update({(a, b): message_bytes * waves[i] for kind, a, b in shared if kind == "link"})
    held = [memory(model, layout, s) for s in range(p)]
    fits = all(b <= 1e9 * cluster.regions[r].gpu_memory_gb for b, row in zip(held, units, strict=True) for r, _ in row)
    for (r, node), n in Counter(chain(*units)).items():
        fits &= node < cluster.regions[r].nodes and n * layout.tp <= cluster.regions[r].gpus_per_node
    return Step(max(agreed), tuple(ready), tuple(agreed), by_ring, by_message, tuple(held), fits)
