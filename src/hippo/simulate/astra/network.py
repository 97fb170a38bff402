"""A second opinion: a plan on ASTRA-sim's own network, messages as SEND and RECV of their true sizes.

Only durations of operations, and of sums inside a domain, are ours. An NPU is a stage of a pipeline, its GPUs together.
What ASTRA-sim's analytical networks know decides what can be asked:

* congestion aware: one dimension, so fabric and WAN alike, and a link of its own for every pair of NPUs;
* congestion unaware, used here: several dimensions of one bandwidth and latency each. A pair of NPUs is charged the
  first in which they differ, alone on it. So the last dimension is the fabric, and those before it are the splits of a
  tree of domains: all pairs that a split parts have equal links, both ways. Others are refused (``InputError``):
  of three domains two links of three must be equal.

An NPU has one SEND under way until it has arrived: messages do not follow one another over a latency. ``follow`` has a
stage's GPUs send in turn, as many as the link holds messages (and as the stage has GPUs).

Sums over domains are ASTRA-sim's ring collectives, of one stage per domain, of as many bytes a hop as the plan's. What
has no counterpart is refused: caps of single nodes, local SGD, runtimes whose messages wait for their receivers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, cycle
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.files import json_text
from hippo.plan.plan import Plan
from hippo.problem.cluster import Cluster
from hippo.problem.problem import Problem
from hippo.simulate.astra.binary import NAMES, run
from hippo.simulate.astra.chakra import ALL_GATHER, ALL_REDUCE, COMP, REDUCE_SCATTER, ChakraNode, trace
from hippo.simulate.astra.configuration import GROUPS, PREFIX, Dimension, machine
from hippo.simulate.astra.draft import Step, TraceDraft, numbered, written
from hippo.simulate.astra.workload import nanoseconds
from hippo.simulate.costs import costs, nodes
from hippo.simulate.lower import lower
from hippo.simulate.packed import destinations, durations
from hippo.simulate.program import BACKWARD, FORWARD, WEIGHT, Program

GIB = 2**30
_IDLE = (ChakraNode(1, "idle", COMP, (), (("is_cpu_op", False), ("num_ops", 1500), ("tensor_size", 1))),)


def step_time_s(problem: Problem, plan: Plan, binary: Path, *, follow: bool = False) -> float:
    """Seconds of one step by ASTRA-sim's congestion-unaware network; ``binary``: it, or the aware one beside it."""
    unaware = binary.with_name(NAMES[1])
    if not unaware.is_file():
        remedy = "build both of its analytical binaries (tools/astra.sh)"
        raise InputError("is not there: several dimensions need it", source=str(unaware), remedy=remedy)
    files = second_opinion(problem, plan, follow=follow)
    ranks = sum(name.startswith(PREFIX) for name in files)
    return max(run(unaware, files, ranks).finished_ns) / 1e9


def second_opinion(problem: Problem, plan: Plan, *, follow: bool = False) -> Mapping[str, bytes]:
    """File name to content; raises ``InputError`` for what this network cannot express."""
    program = lower(problem, plan)
    _refuse(plan, program)
    tree = Tree.of(problem.cluster, program)
    return _Writer(problem, plan, program, tree, follow).files()


def _refuse(plan: Plan, program: Program) -> None:
    caps = [program.down_nic_bytes_per_s, program.up_nic_bytes_per_s]
    for refused, what in (
        (program.messages.calls != "free", "messages that wait for their receivers"),
        (plan.sync.method == "local_sgd", "sums that are made every few steps"),
        (any(np.isfinite(cap).any() for cap in caps), "caps of single nodes"),
        (program.gather is not None and not _in_turn(program), "parameters gathered by several stages of a domain"),
    ):
        if refused:
            raise InputError(f"ASTRA-sim's own network knows no {what}", key="plan", remedy="leave this plan out")


def _in_turn(program: Program) -> bool:
    """Whether every domain has one stage, and the one with most waves runs what all others do, and then more."""
    kinds = _kinds(program)
    longest = max(kinds, key=len)
    one_each = len(set(program.rank_domain.tolist())) == len(kinds)
    return one_each and all(each == longest[: len(each)] for each in kinds)


def _kinds(program: Program) -> list[list[int]]:
    """Kinds of the operations of each rank, in their order."""
    ends = program.order_start.tolist()
    return [program.order[start:stop, 0].tolist() for start, stop in zip(ends, ends[1:], strict=False)]


# ---------------------------------------------------------------------------------------------------------- dimensions
Link = tuple[float, float]
"""Bytes/s and seconds."""


@dataclass(frozen=True)
class Tree:
    """Domains as leaves: each split is a dimension, whose link the pairs have that it parts (a symbolic ultrametric:
    Boecker and Dress 1998). K domains, D splits."""

    links: tuple[Link, ...]  # (D,)
    sizes: tuple[int, ...]  # (D,) parts of each split
    place: tuple[tuple[int, ...], ...]  # (K, D) the part in which each domain is; 0 beside its way from the root

    @classmethod
    def of(cls, cluster: Cluster, program: Program) -> Tree:
        """The tree of the links in their base state; raises ``InputError`` where there is none."""
        rate, delay = program.link_bandwidth_bytes_per_s.tolist(), program.link_latency_s.tolist()
        between = {
            (cluster.domain_index[link.source], cluster.domain_index[link.destination]): each
            for link, each in zip(cluster.links, zip(rate, delay, strict=True), strict=True)
        }
        splits = list(_splits(tuple(range(len(cluster.domains))), between))
        place = np.zeros((len(cluster.domains), len(splits)), dtype=np.int64)
        for index, (_, parts) in enumerate(splits):
            for part, members in enumerate(parts):
                place[list(members), index] = part
        sizes = tuple(len(parts) for _, parts in splits)
        return cls(tuple(link for link, _ in splits), sizes, tuple(map(tuple, place.tolist())))


def _splits(
    domains: tuple[int, ...], between: Mapping[tuple[int, int], Link]
) -> Iterator[tuple[Link, list[tuple[int, ...]]]]:
    """The link and the parts of each split, from the root: where links of one kind alone join parts, they part them."""
    if len(domains) < 2:
        return
    pairs = list(combinations(domains, 2))
    for link in dict.fromkeys(between.get(pair, (0.0, 0.0)) for pair in pairs):
        parts = [{domain} for domain in domains]
        for one, two in pairs:
            if between.get((one, two)) != link or between.get((two, one)) != link:
                joined = [part for part in parts if one in part or two in part]
                parts = [part for part in parts if part not in joined] + [set[int]().union(*joined)]
        if len(parts) > 1 and link[0] > 0:
            found = sorted(tuple(sorted(part)) for part in parts)
            yield link, found
            for part in found:
                yield from _splits(part, between)
            return
    remedy = "give pairs of domains equal links where one split of a tree parts them, the same both ways"
    raise InputError(
        "ASTRA-sim's own network has one link per dimension, and these do not fit", key="links", remedy=remedy
    )


def _dimension(size: int, link: Link) -> Dimension:
    return Dimension(size, link[0] / GIB, link[1] * 1e9)


# -------------------------------------------------------------------------------------------------------------- traces
@dataclass
class _Writer:
    """The traces of one step in the making. G ranks of the program are the first NPUs of the draft."""

    problem: Problem
    plan: Plan
    program: Program
    tree: Tree
    follow: bool
    draft: TraceDraft = field(init=False)
    domain: list[int] = field(init=False)  # of each NPU of the draft
    members: list[tuple[int, ...]] = field(default_factory=list)  # of each communicator group

    def __post_init__(self) -> None:
        self.domain = self.program.rank_domain.tolist()
        self.draft = TraceDraft(f"stage {rank}" for rank in range(len(self.domain)))
        self.stages = [stage for pipeline in self.plan.pipelines for stage in pipeline.stages]

    def files(self) -> dict[str, bytes]:
        """Everything that the binary reads."""
        last = self.sums(self.operations())
        for rank, seconds in enumerate(self.program.finish_s.tolist()):
            if seconds > 0:
                self.draft.run(rank, "optimizer", nanoseconds(seconds), last[rank])
        used = [0] * len(self.tree.place)
        for at in self.domain:
            used[at] += 1
        dimensions = [*map(_dimension, self.tree.sizes, self.tree.links), _dimension(max(*used, 1) + 1, self.fabric())]
        called, total = self.numbers([each.size for each in dimensions])
        traces = {called[npu]: written(numbered(steps), called) for npu, steps in enumerate(self.draft.steps) if steps}
        found = {f"{PREFIX}.{npu}.et": trace(traces.get(npu, _IDLE)) for npu in range(total)}
        found |= machine(dimensions, traced=False)
        if self.members:
            groups = {str(index): [called[npu] for npu in each] for index, each in enumerate(self.members, 1)}
            found[GROUPS] = json_text(groups).encode()
        return found

    def numbers(self, sizes: Sequence[int]) -> tuple[dict[int, int], int]:
        """What ASTRA-sim calls each NPU, the first dimension fastest, and how many it counts."""
        strides = np.cumprod([1, *sizes])
        next_one, called = [0] * len(self.tree.place), {}
        for npu, at in enumerate(self.domain):
            called[npu] = int(np.dot([*self.tree.place[at], next_one[at]], strides[:-1]))
            next_one[at] += 1
        return called, int(strides[-1])

    def fabric(self) -> Link:
        """One rate for all domains: that of the stage whose nodes send least."""
        domains = [self.problem.cluster.domain(stage.domain) for stage in self.stages]
        rates = [
            at.inter_node_bytes_per_s * len(nodes(each.devices)) for at, each in zip(domains, self.stages, strict=True)
        ]
        return min(rates), max(at.inter_node_latency_s for at in domains)

    # ------------------------------------------------------------------------------------------------------ operations
    def operations(self) -> list[list[Step]]:
        """Every rank's own work and messages; what each ends it with."""
        program, seconds = self.program, durations(self.program)
        owner = np.repeat(np.arange(len(self.stages)), np.diff(program.order_start)).tolist()
        rows = [(rank, *row) for rank, row in zip(owner, program.order.tolist(), strict=True)]
        before: list[list[Step]] = [[] for _ in self.stages]
        made: dict[tuple[int, ...], Step] = {}
        if program.gather is not None:
            leads, links = self.leads(range(len(self.stages))), program.gather.links
            self.members.append(tuple(dict.fromkeys(leads[self.ends(link)[0]] for link in links)))
        for rank, kind, chunk, wave in rows:
            step = self.draft.run(
                rank, f"{'FBW'[kind]}{chunk}.{wave}", nanoseconds(seconds[kind, rank, chunk]), before[rank]
            )
            made[rank, kind, chunk, wave] = step
            before[rank] = [step, *self.gathered(rank, kind, chunk, before[rank])]
        kinds = _kinds(program) if program.gather is not None else []
        for rank, own in enumerate(kinds):  # who has fewer waves takes part in the collectives of those who have more
            for kind in max(kinds, key=len)[len(own) :]:
                before[rank] = self.gathered(rank, kind, 0, before[rank]) or before[rank]
        self.messages(rows, made)
        for rank, sync in enumerate(program.sync_s.tolist()):
            if sync > 0:
                before[rank] = [self.draft.run(rank, "sync", nanoseconds(sync), before[rank])]
        return before

    def gathered(self, rank: int, kind: int, chunk: int, after: Sequence[Step]) -> list[Step]:
        """What a pass gathers and, backward, scatters meanwhile: parameters and gradients of all domains."""
        gather = self.program.gather
        if gather is None or kind == WEIGHT:
            return []
        each, n = float(gather.forward_bytes[rank, chunk]), len(self.members[0])
        name = f"{'FB'[kind]}{chunk} of {rank}"
        step = self.draft.join(rank, name, (ALL_GATHER, 1, round(each / (n - 1))), after)
        if kind == BACKWARD:
            step = self.draft.join(rank, name, (REDUCE_SCATTER, 1, round(each * n / (n - 1))), [step])
        return [step]

    def messages(self, rows: Sequence[tuple[int, ...]], made: Mapping[tuple[int, ...], Step]) -> None:
        """What every pass sends on: straight to its receiver, by way of the domain that relays."""
        program, chunks, inside = self.program, self.program.forward_s.shape[1], self.inside_bytes()
        receivers = destinations(program)
        senders: dict[tuple[int, ...], Iterator[int]] = {}
        relays: dict[tuple[int, ...], int] = {}
        for rank, kind, chunk, wave in rows:
            if kind == WEIGHT or (slot := int(receivers[kind, rank * chunks + chunk])) < 0:
                continue
            step, name = made[rank, kind, chunk, wave], f"{'FB'[kind]}{chunk}.{wave} of {rank}"
            receiver = made[slot // chunks, kind, slot % chunks, wave]
            size = float((program.down_bytes, program.up_bytes)[kind][rank, chunk])
            links = [link for link in (program.down_route, program.up_route)[kind][rank, chunk].tolist() if link >= 0]
            if size > 0 and links:
                key = rank, kind, chunk
                if key not in senders:
                    senders[key] = cycle(self.senders(rank, links[0], size))
                    if len(links) > 1:
                        relays[key] = self.npu(self.ends(links[0])[1])
                step = self.draft.tell(step, next(senders[key]), name)
                if key in relays:
                    step = self.draft.tell(step, relays[key], name, round(size))
            else:
                size = float(inside[kind, rank])
            receiver.after.append(self.draft.tell(step, receiver.rank, name, max(1, round(size))))

    def senders(self, rank: int, link: int, num_bytes: float) -> list[int]:
        """NPUs that send a stage's messages over the WAN in turn: itself; to ``follow``, as many as keep the link
        full, which it tells over the fabric."""
        if not self.follow:
            return [rank]
        seconds = num_bytes / float(self.program.link_bandwidth_bytes_per_s[link])
        full = ceil(1 + float(self.program.link_latency_s[link]) / seconds)
        return [self.npu(self.domain[rank]) for _ in range(min(full, len(self.stages[rank].devices)))]

    def ends(self, link: int) -> tuple[int, int]:
        """Domains that a link joins."""
        cluster = self.problem.cluster
        return cluster.domain_index[cluster.links[link].source], cluster.domain_index[cluster.links[link].destination]

    def leads(self, ranks: Iterable[int]) -> dict[int, int]:
        """The first rank of every domain."""
        return {self.domain[rank]: rank for rank in sorted(ranks, reverse=True)}

    def npu(self, domain: int) -> int:
        """One more in a domain."""
        self.domain.append(domain)
        return self.draft.rank("sends")

    def inside_bytes(self) -> NDArray[np.float64]:
        """Bytes that each rank sends on and back inside its domain, (2, G); none between stages on the same devices."""
        found = np.zeros((2, len(self.stages)))
        first = 0
        for pipeline in self.plan.pipelines:
            known = costs(self.problem).stages(self.plan, pipeline)
            sizes = [cost.output_bytes * stage.dp for cost, stage in zip(known, pipeline.stages, strict=True)]
            last = first + len(sizes)
            found[FORWARD, first:last], found[BACKWARD, first:last] = sizes, np.roll(sizes, 1)
            first = last
        delays = self.program.down_delay_s.max(axis=1), self.program.up_delay_s.max(axis=1)
        return np.where(np.stack(delays) > 0, found, 0.0)

    # ------------------------------------------------------------------------------------------------------------ sums
    def sums(self, before: Sequence[list[Step]]) -> list[list[Step]]:
        """Groups that agree, one after the other; what the optimizer of each rank waits for."""
        program, ended = self.program, [list(each) for each in before]
        heard: list[dict[int, list[Step]]] = []
        for index, group in enumerate(program.groups):
            leads = self.leads(group.ranks)
            heard.append({lead: [] for lead in leads.values()})
            for rank in group.ranks:
                lead = leads[self.domain[rank]]
                heard[-1][lead] += [self.draft.tell(each, lead, f"group {index}") for each in before[rank]]
        busy: dict[int, list[Step]] = defaultdict(list)
        for index, group in enumerate(program.groups):
            leads, name = self.leads(group.ranks), f"group {index}"
            pairs = group.routes or tuple((link,) for link in group.links)
            ring = [leads[self.ends(pair[0])[0]] for pair in pairs]
            if ring:
                self.members.append(tuple(ring))
            for at, lead in leads.items():
                step = self.draft.run(lead, name, nanoseconds(group.local_s), heard[index][lead])
                if ring:
                    size = round(min(group.link_bytes) * len(ring) / (2 * (len(ring) - 1)))
                    step = self.draft.join(lead, name, (ALL_REDUCE, len(self.members), size), [step, *busy[lead]])
                    busy[lead] = [step]
                for rank in group.ranks:
                    if self.domain[rank] == at:
                        ended[rank].append(self.draft.tell(step, rank, name))
        return ended
