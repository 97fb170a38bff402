"""The plain grid: every tp x pp x dp x micro-batch, 1F1B, equal cuts, every set of regions, judged by `flat_ring`.

`cases()` draws the problems: GPT 350M to 70B on one to five measured cloud regions, one rate a node.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple

from tests.judges.flat_ring import Cluster, Layout, Link, Model, Node, Region, Step, Times, memory, rings, simulate

SEED = 20261123
GPTS = {  # layers, hidden, heads
    "350M": (24, 1024, 16), "1.3B": (24, 2048, 16), "2.7B": (32, 2560, 32), "7B": (32, 4096, 32),
    "13B": (40, 5120, 40), "30B": (48, 7168, 56), "70B": (80, 8192, 64),
}  # fmt: skip
GPUS = {"A100-SXM-40GB": (312, 40, 300, 400), "H100-SXM-80GB": (989, 80, 450, 3200)}  # TFLOP/s, GB, GB/s, Gbit/s a node
BUSY = 0.5  # of a GPU's peak, that a layer reaches
HELD, CONTEXT_GB = 0.08, 1  # of a GPU's memory: buffers and blocks that nobody can use; CUDA's own
WIDTHS, MICRO_BATCHES = (1, 2, 4, 8), (1, 2, 4, 8, 16)
BYTES = {"gradient_bytes": 2, "state_bytes": 16, "kept_bytes": 1.2 * 34}  # sums in bf16; an allocator loses a fifth


class Case(NamedTuple):
    name: str
    gpu: str
    cluster: Cluster
    model: Model
    batch: int  # sequences a step

    def times(self, tp: int, micro_batch: int) -> Times:
        """Flops at that share of the peak, and two ring all-reduces inside the node in each pass of a layer."""
        model, cells = self.model, micro_batch * self.model.sequence * self.model.hidden
        flops_per_s = tp * GPUS[self.gpu][0] * 1e12 * BUSY
        reduce_s = 2 * 2 * (tp - 1) / tp * 2 * cells / (self.cluster.regions[0].intra_gb_per_s * 1e9)
        layer_s, head_s = micro_batch * model.layer_flops / flops_per_s, 2 * cells * model.vocabulary / flops_per_s
        return Times(layer_s + reduce_s, 2 * layer_s + reduce_s, head_s, 2 * head_s)


def cases(seed: int = SEED, count: int = 20) -> list[Case]:
    """Sizes and numbers of regions in turn, all else by chance; what fits nowhere is drawn again."""
    measured = json.loads((Path(__file__).parents[2] / "data/wan_regions.json").read_text())
    names, gbps, rtt_ms = measured["regions"], measured["bandwidth_gbps"], measured["rtt_ms"]
    draw, found, seq = random.Random(seed), list[Case](), 2048
    while len(found) < count:
        size = list(GPTS)[len(found) % len(GPTS)]
        layers, h, heads = GPTS[size]
        model = Model(layers, h, heads, 51200, seq, 24 * seq * h**2 + 4 * seq**2 * h, **BYTES)
        gpu, places = draw.choice(list(GPUS)), draw.sample(range(len(names)), len(found) % 5 + 1)
        _, memory_gb, intra, nic = GPUS[gpu]
        regions = tuple(
            Region(names[i], draw.randint(2, 8), 8, intra, nic, (1 - HELD) * memory_gb - CONTEXT_GB) for i in places
        )
        pairs = [(a, b, i, j) for a, i in enumerate(places) for b, j in enumerate(places) if a != b]
        links = {(a, b): Link(gbps[i][j], rtt_ms[i][j] / 2) for a, b, i, j in pairs}
        name, batch = f"{len(found)}: GPT {size}", draw.choice((256, 512, 768, 1024))
        case = Case(name, gpu, Cluster(regions, links), model, batch)
        if any(layouts(case)):
            found.append(case)
    return found


def pack(cluster: Cluster, tp: int, regions: list[list[int]]) -> tuple[tuple[Node, ...], ...]:
    """Units in order, stage by stage, on the nodes of the regions that are named (p, d)."""
    used, rows = Counter[int](), list[tuple[Node, ...]]()
    for row in regions:
        rows.append(())
        for r in row:
            rows[-1] += ((r, used[r] * tp // cluster.regions[r].gpus_per_node),)
            used[r] += 1
    return tuple(rows)


def layouts(case: Case) -> Iterator[tuple[Layout, list[list[int]]]]:
    """All that fit, with the regions (p, d) of their units: whole replicas, or whole stages, fill regions in turn."""
    cluster, model = case.cluster, case.model
    sets = [s for n in range(1, len(cluster.regions) + 1) for s in combinations(range(len(cluster.regions)), n)]
    for tp in (t for t in WIDTHS if model.heads % t == 0):
        room = [r.nodes * (r.gpus_per_node // tp) for r in cluster.regions]
        cuts = [p for p in range(1, model.layers + 1) if model.layers % p == 0]
        for p, micro_batch in product(cuts, MICRO_BATCHES):
            for d in (n for n in range(1, sum(room) // p + 1) if case.batch % (n * micro_batch) == 0):
                plain = Layout(tp, micro_batch, (model.layers // p,) * p, (case.batch // micro_batch // d,) * d, ())
                if max(memory(model, plain, s) for s in range(p)) > cluster.regions[0].gpu_memory_gb * 1e9:
                    continue
                for chosen in sets:
                    replicas = [r for r in chosen for _ in range(room[r] // p)][:d]
                    if len(replicas) == d and replicas[-1] == chosen[-1]:
                        yield plain, [replicas] * p
                    stages = [r for r in chosen for _ in range(room[r] // d)][:p]
                    if len(chosen) > 1 and len(stages) == p and stages[-1] == chosen[-1]:
                        yield plain, [[r] * d for r in stages]


def best(case: Case, times: Callable[[int, int], Times] | None = None) -> tuple[Step, Layout]:
    """The quickest of all; what compute alone, or compute and then one ring alone, keeps from that is not played."""
    found: tuple[Step, Layout] | None = None
    seconds, bounded = dict[tuple[int, int], Times](), list[tuple[float, int, float, Layout, list[list[int]]]]()
    for plain, regions in layouts(case):
        if (key := (plain.tp, plain.micro_batch)) not in seconds:
            seconds[key] = (times or case.times)(*key)
        t = seconds[key]
        stage_s, head_s = plain.layers[0] * (t.forward_s + t.backward_s), t.head_forward_s + t.head_backward_s
        m, p = plain.micro_batches[0], len(plain.layers)
        bounded.append((m * (stage_s + head_s) + (p - 1) * stage_s, len(bounded), m * stage_s, plain, regions))
    for least_s, _, early_s, plain, regions in sorted(bounded):
        if found and least_s >= found[0].step_s:
            break
        layout = plain._replace(units=pack(case.cluster, plain.tp, regions))
        running, rates = rings(case.cluster, case.model, layout)
        alone = [b * max(w / rates[r] for r, w in loads.items()) + latency_s for b, loads, latency_s in running]
        if found and early_s + max(alone) >= found[0].step_s:
            continue
        step = simulate(case.cluster, case.model, seconds[plain.tp, plain.micro_batch], layout)
        if step.fits and (found is None or step.step_s < found[0].step_s):
            found = step, layout
    assert found is not None, f"{case.name} fits nowhere"
    return found
