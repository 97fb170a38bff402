"""`fast` against ASTRA-sim under the same rules of links: pipelines of the facts, then plans on catalogue clusters.

Needs the user's ASTRA-sim: HIPPO_ASTRA or the PATH names AstraSim_Analytical_Congestion_Aware (docs/export.md). Step
times in seconds; "apart" is ASTRA-sim less fast, of the step and of the operation or message that is farthest off.
Then the trap: what SEND and RECV of the true sizes would give, without ranks for links.

``--worlds 30``: a second opinion instead. In drawn states of the links, plans of all planners are timed by ``fast``
and by ASTRA-sim's own network (``simulate/astra/network.py``). Do both rank the planners alike? ``--rows``: every step.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np
from scipy.stats import kendalltau, spearmanr

from hippo.errors import InputError
from hippo.files import json_text
from hippo.intervals import interval
from hippo.planners.base import Stop
from hippo.problem.catalogue.clusters import CLUSTERS
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem
from hippo.registry import planner
from hippo.schedule.schedule import order
from hippo.simulate import fast
from hippo.simulate.abstract import PlannedLine, abstract_program, on_links, side_by_side
from hippo.simulate.astra.binary import NAMES, digest, find_binary, run
from hippo.simulate.astra.chakra import COMP, RECV, SEND, ChakraNode, trace
from hippo.simulate.astra.compare import compare
from hippo.simulate.astra.configuration import MEMORY, NETWORK, PREFIX, SYSTEM
from hippo.simulate.astra.network import step_time_s
from hippo.simulate.astra.play import Played, played, state_of
from hippo.simulate.lower import lower
from hippo.simulate.program import FORWARD, Program, SyncGroup

MIB16, GBIT = 16 * 2**20, 1e9 / 8
LAN_S = MIB16 / (400 * GBIT) + 1e-6
WAN = PlannedLine(5 * GBIT, 0.04)
F_US, B_US = 10_000, 20_000
PLANS = (
    ("four-hubs", "gpt3-175b", ("exact", "even", "dtfm", "zero")),
    ("three-aws-regions", "llama-3-70b", ("exact", "sailor", "dtfm", "zero")),
)


def line_of(domains: list[int], m: int, lines: list[PlannedLine], *, num_bytes: float = MIB16) -> Program:
    """1F1B over stages in these domains; links (next, back) of each border in turn, LAN inside a domain."""
    p = len(domains)
    schedule = order("1f1b", stages=p, micro_batches=m)
    program = abstract_program(schedule, forward_s=F_US / 1e6, backward_s=B_US / 1e6, delay_s=LAN_S)
    down: list[list[int]] = [[] for _ in domains]
    up: list[list[int]] = [[] for _ in domains]
    link = iter(range(len(lines)))
    for stage in range(p - 1):
        if domains[stage] != domains[stage + 1]:
            down[stage], up[stage + 1] = [next(link)], [next(link)]
    return on_links(program, lines, down=down, up=up, num_bytes=num_bytes)


def pipelines() -> Iterator[tuple[str, Program]]:
    """The worlds of the facts, and more traffic on their links."""
    for m in (1, 8, 32):
        yield f"2 domains x 2 stages, 1F1B, m {m}", line_of([0, 0, 1, 1], m, [WAN, WAN])
    four = [
        PlannedLine(5 * GBIT, 0.04),
        PlannedLine(3 * GBIT, 0.045),
        PlannedLine(2 * GBIT, 0.02),
        PlannedLine(4 * GBIT, 0.03),
    ]
    for m in (8, 32):
        yield f"3 domains x 2 stages, 4 unequal links, m {m}", line_of([0, 0, 1, 1, 2, 2], m, four)
    slow = [PlannedLine(line.bandwidth_bytes_per_s / 2.5, line.latency_s) for line in four]
    for m in (8, 32):
        yield f"the same at 0.4 of the rate: queues, m {m}", line_of([0, 0, 1, 1, 2, 2], m, slow)
    pair = [line_of([0, 1], 8, [WAN, WAN]), line_of([0, 1], 7, [WAN, WAN])]
    yield "two pipelines on the same two links", side_by_side(pair)
    ring = SyncGroup((0, 2), (0, 1), (5e8, 5e8), 2.0, local_s=0.01)
    yield "the same, which agree on 0.5 GB over a ring", side_by_side(pair, (ring,))
    there, back = [[], [0, 1], [], []], [[], [], [2, 3], []]
    relayed = line_of([0, 0, 1, 1], 8, [WAN, WAN])
    yield (
        "a relay each way, nodes capped at 3 Gbit/s",
        on_links(relayed, four, down=there, up=back, num_bytes=MIB16, nic_bytes_per_s=3 * GBIT),
    )


def plans() -> Iterator[tuple[str, Program]]:
    """What planners propose: pipelines, replicas that agree, parameters sharded over the WAN."""
    for cluster, model, names in PLANS:
        problem = load_problem(model=model, cluster=cluster, global_batch=256)
        for name in names:
            plan = planner(name).propose(problem, Stop(20.0)).plan
            if plan is not None:
                yield f"{model} on {cluster}: {name}", lower(problem, plan)


def main() -> None:
    """Prints what the module says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, help="a second opinion on so many drawn worlds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", action="store_true")
    given = parser.parse_args()
    binary = find_binary()
    if given.worlds is not None:
        second_opinion(binary, given.worlds, given.seed, rows=given.rows)
        return
    print(f"{binary.name}, SHA-256 {digest(binary)}")
    heads = f"{'fast s':>12s} {'ASTRA-sim s':>12s} {'apart':>10s} {'farthest':>9s} {'wall s':>7s}"
    print(f"{'':48s} {'ranks':>9s} {'nodes':>7s} {heads}")
    shares = []
    for cases in (pipelines(), plans()):
        for name, program in cases:
            found = played(program, state_of(program, None, None), binary)
            print(f"{name:48s} {row(found)}", flush=True)
            shares.append(abs(compare(found).difference))
    most, middle = max(shares), median(shares)
    print(f"{len(shares)} cases: apart by at most {most:.1e} of the step, median {middle:.1e} (asked: 1e-3)")
    for words, microseconds in plain(binary):
        print(f"{words:78s} {microseconds:>12s} us")


def row(found: Played) -> str:
    """What one case gave; ranks as real + virtual."""
    told, real = compare(found), len(found.program.rank_stage)
    flag = "" if found.in_order and not told.missing else "  links out of order or nodes missing"
    ranks = f"{real}+{len(found.work.traces) - real}"
    return (
        f"{ranks:>9s} {found.work.num_nodes:7d} {told.fast_step_time_s:12.7f} {told.step_time_s:12.7f} "
        f"{told.difference * 1e9:7.2f}e-9 {told.largest_difference_s * 1e9:6.0f} ns {found.seconds:7.2f}{flag}"
    )


# ---------------------------------------------------------------------------------------------- the trap, m = 8
def plain(binary: Path) -> Iterator[tuple[str, str]]:
    """The pipeline of two domains with messages as SEND and RECV of 16 MiB, one node each."""
    unaware = binary.with_name(NAMES[1])
    cases = (
        ("plain SEND/RECV, unaware, [LAN, WAN], rank = stage: the WAN hop goes as LAN", (0, 1, 2, 3), False),
        ("the same, both ends of the WAN hop at the same place in their domains", (0, 1, 3, 2), False),
        ("the same, [WAN, LAN], rank = domain + 2 * local: one SEND at a time", (0, 2, 1, 3), True),
    )
    for words, rank_of_stage, wan_first in cases:
        if not unaware.is_file():
            yield words, "not run"
            continue
        files = plain_files(line_of([0, 0, 1, 1], 8, [WAN, WAN]), rank_of_stage, wan_first)
        yield words, f"{max(run(unaware, files, 4).finished_ns) / 1e3:,.1f}"


def plain_files(program: Program, rank_of_stage: tuple[int, ...], wan_first: bool) -> dict[str, bytes]:
    """Traces and a network of two dimensions."""
    stages = len(rank_of_stage)
    tags: dict[tuple[int, int, int], int] = {}
    files = {}
    for stage in range(stages):
        nodes: list[ChakraNode] = []
        for kind, _, m in program.order[program.order_start[stage] : program.order_start[stage + 1]].tolist():
            step, number = (1 if kind == FORWARD else -1), len(nodes) + 1
            source, to = stage - step, stage + step
            after = [node.id for node in nodes if node.type == COMP][-1:]
            if 0 <= source < stages:
                tag = tags.setdefault((source, kind, m), len(tags) + 1)
                nodes.append(message(number, RECV, "comm_src", rank_of_stage[source], tag, ()))
                after, number = [*after, number], number + 1
            length = F_US if kind == FORWARD else B_US
            nodes.append(ChakraNode(number, f"{kind}.{m}", COMP, tuple(after), (), length))
            if 0 <= to < stages:
                tag = tags.setdefault((stage, kind, m), len(tags) + 1)
                nodes.append(message(number + 1, SEND, "comm_dst", rank_of_stage[to], tag, (number,)))
        files[f"{PREFIX}.{rank_of_stage[stage]}.et"] = trace(nodes)
    rates, latencies = np.array([400 * GBIT, WAN.bandwidth_bytes_per_s]) / 2**30, np.array([1e3, 4e7])
    turn = -1 if wan_first else 1
    network = (
        f"topology: [ FullyConnected, FullyConnected ]\nnpus_count: [ 2, 2 ]\n"
        f"bandwidth: {rates[::turn].tolist()}\nlatency: {latencies[::turn].tolist()}\n"
    )
    both = {f"{name}-implementation": ["ring", "ring"] for name in ("all-reduce", "all-gather", "reduce-scatter")}
    system = {**both, "all-to-all-implementation": ["ring", "ring"], "scheduling-policy": "FIFO", "endpoint-delay": 1}
    more = {"active-chunks-per-dimension": 1, "preferred-dataset-splits": 1, "peak-perf": 1, "local-mem-bw": 1}
    memory = {"memory-type": "NO_MEMORY_EXPANSION"}
    documents = {SYSTEM: json_text({**system, **more}), MEMORY: json_text(memory), NETWORK: network}
    return {**files, **{name: text.encode() for name, text in documents.items()}}


def message(number: int, kind: int, end: str, rank: int, tag: int, after: tuple[int, ...]) -> ChakraNode:
    """A SEND or RECV of 16 MiB."""
    about = (("is_cpu_op", False), (end, rank), ("comm_size", MIB16), ("comm_tag", tag))
    return ChakraNode(number, f"message {tag}", kind, after, about)


# ----------------------------------------------------------------------------------- a second opinion on drawn worlds
METHODS = ("exact", "single_domain", "even", "zero", "alpa", "mast", "sailor", "crosspipe", "dtfm", "ray")
"""Whom `hippo compare` asks, but `diloco`: local SGD is other training, and ASTRA-sim's step knows no every H steps."""

MODELS: Mapping[str, tuple[str, ...]] = {
    "toy": ("llama-3-8b", "qwen2.5-7b"),
    "three-aws-regions": ("llama-3-70b", "qwen2.5-32b"),
    "four-hubs": ("llama-3-70b", "gpt3-175b"),
}
GBPS, LATENCY_MS = (1.0, 25.0), (2.0, 80.0)
"""Drawn evenly on a logarithmic scale; what the clusters of the catalogue have lies between."""
SEARCH = Stop(2.0)
NEAR = (0.005, 0.1)
"""A pair of plans is near when our steps are apart by so much; below, `hippo plan` calls them equal."""
WAYS = {"one SEND at a time": False, "GPUs send in turn": True}


def drawn(rng: np.random.Generator) -> Problem:
    """A cluster of two to four domains, a model, a batch, and links that ASTRA-sim's network can express: domains are
    the leaves of a drawn tree, and pairs that one split parts have one bandwidth and latency, both ways."""
    name = str(rng.choice(list(MODELS)))
    cluster, model = CLUSTERS[name], str(rng.choice(MODELS[name]))
    state: dict[frozenset[str], tuple[float, float]] = {}

    def part(domains: Sequence[str]) -> None:
        if len(domains) > 1:
            cut = int(rng.integers(1, len(domains)))
            gbps, milliseconds = (float(np.exp(rng.uniform(*np.log(span)))) for span in (GBPS, LATENCY_MS))
            for one in domains[:cut]:
                state.update({frozenset((one, two)): (gbps, milliseconds) for two in domains[cut:]})
            part(domains[:cut])
            part(domains[cut:])

    part([str(each) for each in rng.permutation([domain.name for domain in cluster.domains])])
    links = []
    for link in cluster.links:
        gbps, milliseconds = state[frozenset((link.source, link.destination))]
        shared = replace(link, bandwidth_bytes_per_s=gbps * GBIT, per_node_bytes_per_s=None)
        links.append(replace(shared, latency_s=milliseconds / 1e3))
    batch = int(rng.choice((64, 128) if name == "toy" else (128, 256)))
    return load_problem(model=model, cluster=replace(cluster, links=tuple(links)), global_batch=batch)


def steps(problem: Problem, binary: Path) -> tuple[dict[str, tuple[float, ...]], dict[str, str]]:
    """Per planner the step by ``fast`` and by ASTRA-sim's network both ways; and why others are left out."""
    found: dict[str, tuple[float, ...]] = {}
    left_out: dict[str, str] = {}
    known: dict[object, tuple[float, ...]] = {}
    for name in METHODS:
        plan = planner(name).propose(problem, SEARCH).plan
        try:
            if plan is None:
                left_out[name] = "no plan"
                continue
            if plan not in known:
                theirs = [step_time_s(problem, plan, binary, follow=follow) for follow in WAYS.values()]
                known[plan] = (fast.step_time(lower(problem, plan)), *theirs)
            found[name] = known[plan]
        except InputError as error:
            left_out[name] = str(error)
    return found, left_out


def second_opinion(binary: Path, worlds: int, seed: int, *, rows: bool) -> None:
    """Plays the worlds, and prints how alike the methods are ranked."""
    played: list[dict[str, tuple[float, ...]]] = []
    refused: Counter[str] = Counter()
    for index in range(worlds):
        problem = drawn(np.random.default_rng((seed, index)))
        found, left_out = steps(problem, binary)
        refused.update(f"{name}: {why}" for name, why in left_out.items())
        where = f"{problem.model.name} on {problem.cluster.name}, batch {problem.workload.global_batch}"
        print(f"world {index}: {where}, {len(found)} methods, {len(set(found.values()))} plans", flush=True)
        if rows:
            for name, times in found.items():
                print(f"  {name:14s}" + "".join(f" {each:12.4f}" for each in times), flush=True)
        if len({times[0] for times in found.values()}) < 2:
            refused["a world: its methods have one plan"] += 1
        else:
            played.append(found)
    alike(played)
    for why, count in sorted(refused.items()):
        print(f"left out {count} times: {why}")


def alike(played: Sequence[Mapping[str, tuple[float, ...]]]) -> None:
    """Means over worlds with their intervals. A tie of steps is a tie of ranks."""
    labels = ("Spearman", "Kendall's tau-b", "share with the same best method", "loss of our best", "steps apart")
    for at, way in enumerate(WAYS, start=1):
        told, near = [], []
        for found in played:
            ours, theirs = ([times[which] for times in found.values()] for which in (0, at))
            chosen = theirs[int(np.argmin(ours))] / min(theirs) - 1
            off = float(np.mean([abs(their / our - 1) for our, their in zip(ours, theirs, strict=True)]))
            ranks = float(spearmanr(ours, theirs).statistic), float(kendalltau(ours, theirs).statistic)
            told.append((*ranks, float(chosen < 1e-6), chosen, off))
            for one, two in combinations(found.values(), 2):
                if NEAR[0] < abs(one[0] / two[0] - 1) < NEAR[1]:
                    near.append((one[0] < two[0]) == (one[at] < two[at]))
        print(f"\n{way}: {len(told)} worlds, mean (95 %)")
        for label, column in zip(labels, zip(*told, strict=True), strict=True):
            print(f"  {label:32s} {_interval(column)}")
        print(f"  near pairs in the same order: {sum(near)} of {len(near)}")
        for name in METHODS:
            if signed := [found[name][at] / found[name][0] - 1 for found in played if name in found]:
                size = f"apart {_interval(np.abs(signed).tolist())}, signed {np.mean(signed):+.3f}"
                print(f"    {name:14s} in {len(signed):2d} worlds {size}")
    every = [times for found in played for times in found.values()]
    between = [min(both) * (1 - NEAR[0]) <= ours <= max(both) * (1 + NEAR[0]) for ours, *both in every]
    print(f"\nour step lies between both ways (to {NEAR[0]:.1%}): {sum(between)} of {len(between)}")


def _interval(values: Sequence[float]) -> str:
    found = interval(values)
    assert found is not None
    return f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f})"


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(f"not run: {error}", file=sys.stderr)
        raise SystemExit(2) from None
