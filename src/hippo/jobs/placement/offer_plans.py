"""The planner fills the table of ``offers``: each size and shape is planned, and what it finds is played on a grid.

One fabric stands for all domains of the site: the slowest of its figures, as an offer must hold wherever it lies. Nodes
are shared between jobs, so a block that is half a node has half of the node's network. Parts of an offer are joined by
equal links, as a job's rate hangs on its slowest hop. Plans are made at a quick, a middle and a slow bandwidth: these
bring up pipelines that are cut otherwise, and replicas. What a plan found at one is worth at all others is played.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from io import BytesIO
from itertools import groupby
from operator import gt
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from hippo.compiling import folder
from hippo.errors import InputError
from hippo.files import write_whole
from hippo.jobs.job import TrainingKind
from hippo.jobs.placement.offers import MOST_PARTS, Floats, OfferTable
from hippo.plan.plan import Plan
from hippo.planners.answers import answer_of
from hippo.planners.base import Planner, Progress, Stop
from hippo.planners.baselines.diloco import Diloco
from hippo.planners.exact.search import Exact
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.codec import problem_to_document
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem
from hippo.score.judge import Judged
from hippo.simulate.batch import step_times
from hippo.simulate.costs import costs
from hippo.simulate.timeline import link_bytes
from hippo.units import bytes_per_s_from_gbps

BANDWIDTH_GBPS = (0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 6.0, 12.0, 22.0, 40.0)
LATENCY_MS = (2.0, 20.0, 60.0)
PLANNED_GBPS = (20.0, 3.0, 0.5)  # the quick one first: what does not spend it well over several domains never will
PLANNED_MS = 20.0
STOP = Stop(time_limit_s=2.0, gap=0.02)
NEAR = 1.3  # times the step of the best plan up to which other ways to join parts may be the best on other links
CLOSE = 0.005  # rates that differ by less count as equal
BLOCKS = 4  # sizes of blocks: whole nodes, and halves of them down to an eighth
MOST_KEPT = 200  # tables beside the compiled files; the oldest go
BASES = (1, 3)  # sizes are these times powers of two
UNEQUAL = (2, 3)  # times the other part, in offers of two unequal parts
PLANNED_BY = ("cost", "engine", "jobs/placement", "plan", "planners", "problem", "schedule", "score", "simulate")

Told = Callable[[float], None]
"""Called with the share of a kind that is planned."""


@dataclass(frozen=True)
class _Shape:
    """GPUs of each part, most first, in blocks of so many to a node."""

    gpus: tuple[int, ...]
    block: int


@dataclass(frozen=True, eq=False)
class _Offer:
    """A plan for a shape, and what it is on the grid. Step times in seconds."""

    shape: _Shape
    judged: Judged
    ring: bool
    layout: tuple[int, int, int]  # dp, tp, pp
    seconds: Floats  # (L, G) of a step
    hop_bytes: float  # a step
    memory_left: float
    inside_comm: float
    state_share: tuple[float, ...]  # that each part holds
    raised: float = 0.0

    @property
    def local(self) -> bool:
        """Whether its parts are replicas that average every H steps."""
        return len(self.shape.gpus) > 1 and self.judged.plan.sync.method == "local_sgd"


def offer_table(
    cluster: Cluster,
    kinds: Sequence[TrainingKind],
    *,
    sizes: Sequence[int] | None = None,
    local_sgd: bool = False,
    progress: Progress | None = None,
) -> OfferTable:
    """The offers that these kinds of training have on a cluster; ``local_sgd``: DiLoCo's over several domains, too.

    ``sizes``: GPUs of a part; default: powers of two up to the largest domain, and three times such beyond a node where
    that pays. What was planned for the same question by the same sources is kept on the disk. ``InputError`` where a
    model is unknown, or fits nowhere.
    """
    unlike, tables = tuple(dict.fromkeys(kinds)), list[OfferTable]()
    for kind in unlike:

        def told(share: float, model: str = kind.model) -> None:
            if progress is not None:
                progress(f"planning sizes and shapes of {model}", (len(tables) + share) / len(unlike))

        tables.append(_kept(_asked(cluster, kind, sizes, local_sgd), told))
    if not tables:
        raise InputError("no kind of training", source="offers", remedy="name one model or more")
    table = OfferTable.joined(tables)
    table.check()
    return table


def planned_offers(
    cluster: Cluster,
    kind: TrainingKind,
    *,
    sizes: Sequence[int] | None = None,
    local_sgd: bool = False,
    planner: Planner | None = None,
) -> tuple[OfferTable, tuple[Judged, ...]]:
    """The offers of one kind planned anew, and the plan of each: what ``offer_table`` keeps, with what is behind it."""
    return _asked(cluster, kind, sizes, local_sgd).table(planner or Exact(), lambda share: None)


def _asked(cluster: Cluster, kind: TrainingKind, sizes: Sequence[int] | None, local_sgd: bool) -> _OfferQuestion:
    fabric, held = _fabric(cluster), tuple(sorted((each.gpus for each in cluster.domains), reverse=True))
    there, ladder = replace(cluster, domains=(fabric,), links=()), _ladder(fabric, held, sizes)
    return _OfferQuestion(kind, there, held, ladder, local_sgd)


def _fabric(cluster: Cluster) -> Domain:
    """A domain with the slowest figures of all and the most GPUs in a node."""
    domains = cluster.domains
    return Domain(
        "offer",
        1,
        max(each.gpus_per_node for each in domains),
        min(each.intra_node_bytes_per_s for each in domains),
        min(each.inter_node_bytes_per_s for each in domains),
        max(each.inter_node_latency_s for each in domains),
    )


def _ladder(fabric: Domain, held: Sequence[int], sizes: Sequence[int] | None) -> tuple[int, ...]:
    """Sizes of a part, ascending, up to all of the largest domain."""
    if sizes is not None:
        return tuple(sorted({size for size in sizes if size <= held[0]}))
    powers = range(held[0].bit_length())
    found = {base << power for base in BASES for power in powers if base == 1 or base << power > fabric.gpus_per_node}
    return tuple(sorted({*(size for size in found if size <= held[0]), held[0]}))


# ---------------------------------------------------------------------------------------------------------- one kind
@dataclass(frozen=True)
class _OfferQuestion:
    """One kind of training on one fabric."""

    kind: TrainingKind
    cluster: Cluster  # one domain, the fabric
    held: tuple[int, ...]  # GPUs of each domain of the site, most first
    ladder: tuple[int, ...]
    local_sgd: bool = False

    def table(self, planner: Planner, told: Told) -> tuple[OfferTable, tuple[Judged, ...]]:
        """The offers of this kind, and the plan of each."""
        told(0.0)
        alone = (_Shape((gpus,), block) for gpus in self.ladder for block in self._blocks(gpus))
        planned = [each for shape in alone for each in self._planned(planner, shape, PLANNED_GBPS[:1]) or ()]
        single = list(_worth_their_size(_lean(planned, {})))
        alone_s: dict[tuple[int, int], float] = {}
        for each in planned:
            key = each.shape.gpus[0], each.shape.block
            alone_s[key] = min(alone_s.get(key, np.inf), float(each.seconds[0, 0]))
        several = _lean(self._several(planner, alone_s, told), alone_s)
        averaged = _lean(self._averaged(), alone_s) if self.local_sgd else ()
        every = [*single, *several, *averaged]
        found = sorted(every, key=lambda each: (len(each.shape.gpus), each.shape.gpus, each.shape.block))
        if not found:
            problem = f"fits on no devices of these domains ({self.kind.batch} sequences of {self.kind.seq} tokens)"
            remedy = "name a smaller model, or domains with more GPUs"
            raise InputError(problem, source="offers", key="model", value=self.kind.model, remedy=remedy)
        return self._columns(found), tuple(each.judged for each in found)

    def problem(self, shape: _Shape, gbps: float, *, local_sgd: bool = False) -> Problem:
        """The planner's question: equal links join the parts."""
        fabric = self.cluster.domains[0]
        share = fabric.inter_node_bytes_per_s * shape.block / fabric.gpus_per_node
        part = replace(fabric, gpus_per_node=shape.block, inter_node_bytes_per_s=share)
        parts = tuple(replace(part, name=f"part{at}", nodes=gpus // shape.block) for at, gpus in enumerate(shape.gpus))
        rate = bytes_per_s_from_gbps(gbps), PLANNED_MS / 1e3, 0.0
        links = tuple(Link(one.name, two.name, *rate) for one in parts for two in parts if one != two)
        there, kind = replace(self.cluster, domains=parts, links=links), self.kind
        return load_problem(
            model=kind.model, cluster=there, global_batch=kind.batch, seq=kind.seq, allow_local_sgd=local_sgd
        )

    def _blocks(self, gpus: int) -> list[int]:
        """Sizes of blocks that share out so many GPUs, most first."""
        top = self.cluster.domains[0].gpus_per_node.bit_length() - 1
        blocks = (1 << power for power in range(top, max(top - BLOCKS, -1), -1))
        return [block for block in blocks if gpus % block == 0]

    def _several(self, planner: Planner, alone_s: Mapping[tuple[int, int], float], told: Told) -> Iterator[_Offer]:
        """Offers over two to four domains, of whole nodes or of halves; ``alone_s``: by size and block, in one."""
        powers = [size for size in self.ladder if not size & (size - 1)]
        alike = [(size,) * n for size in powers for n in range(2, MOST_PARTS + 1)]
        unlike = [(times * size, size) for size in powers for times in UNEQUAL if times * size in self.ladder]
        least = self.cluster.domains[0].gpus_per_node // 2
        idle: set[tuple[int, int]] = set()  # sizes and blocks of which two do no more than one, on the quick link
        for at, gpus in enumerate(shapes := (*alike, *unlike)):
            told(at / len(shapes))
            small = gpus[-1]
            if small < least or len(gpus) > len(self.held) or any(map(gt, gpus, self.held)):
                continue
            whole, *halves = self._blocks(small)[:2]
            as_quick = halves and all(
                alone_s.get((size, halves[0]), np.inf) <= (1.0 + CLOSE) * alone_s.get((size, whole), 0.0)
                for size in gpus
            )
            for block in halves if as_quick else (whole, *halves):
                if (small, block) not in idle:
                    found = self._planned(planner, _Shape(gpus, block), PLANNED_GBPS)
                    if found is None and gpus == (small, small):
                        idle.add((small, block))
                    yield from found or ()

    def _averaged(self) -> Iterator[_Offer]:
        """A replica in each of two to four domains, alike, in its best layout there, which average every H steps."""
        least = self.cluster.domains[0].gpus_per_node // 2
        for size in [each for each in self.ladder if not each & (each - 1) and each >= least]:
            for n in range(2, MOST_PARTS + 1):
                if n <= len(self.held) and size <= self.held[n - 1]:
                    shape = _Shape((size,) * n, self._blocks(size)[0])
                    yield from self._planned(Diloco(), shape, PLANNED_GBPS[:1], local_sgd=True) or ()

    def _planned(
        self, planner: Planner | Diloco, shape: _Shape, planned_gbps: Sequence[float], *, local_sgd: bool = False
    ) -> list[_Offer] | None:
        """What the planner finds for a shape; None: where it first looks it is quicker with a part left idle."""
        played: dict[Plan, _Offer | None] = {}
        for gbps in planned_gbps:
            proposal = answer_of(planner, self.problem(shape, gbps, local_sgd=local_sgd), STOP)
            if proposal.plan is None:
                break
            if len(proposal.plan.domains) < len(shape.gpus):
                if not played:
                    return None
                break
            found = [each for each in (proposal.best, *proposal.runners_up) if isinstance(each, Judged)]
            for each in found:
                if each.plan not in played and each.step_time_s <= NEAR * found[0].step_time_s:
                    played[each.plan] = _played(each, shape)
        return [each for each in played.values() if each is not None]

    def _columns(self, found: list[_Offer]) -> OfferTable:
        whole = [each for each in found if len(each.shape.gpus) == 1] or found
        most = max(sum(each.shape.gpus) for each in whole)
        reference_s = min(float(each.seconds.min()) for each in whole if sum(each.shape.gpus) == most)
        problem = self.problem(found[0].shape, PLANNED_GBPS[0])
        gpus = [(*each.shape.gpus, *(0,) * (MOST_PARTS - len(each.shape.gpus))) for each in found]
        shares = [(*each.state_share, *(0.0,) * (MOST_PARTS - len(each.state_share))) for each in found]
        state_bytes = problem.model.parameters * problem.workload.state_bytes_per_parameter
        return OfferTable(
            kinds=(self.kind,),
            kind=np.zeros(len(found), np.int64),
            parts=np.array([len(each.shape.gpus) for each in found]),
            gpus=np.array(gpus),
            block=np.array([each.shape.block for each in found]),
            ring=np.array([each.ring for each in found]),
            layout=np.array([each.layout for each in found]),
            rate=reference_s / np.array([each.seconds for each in found]),
            hop_bytes=np.array([each.hop_bytes for each in found]) / reference_s,
            memory_left=np.array([each.memory_left for each in found]),
            inside_comm=np.array([each.inside_comm for each in found]),
            bandwidth_bytes_per_s=np.array([bytes_per_s_from_gbps(each) for each in BANDWIDTH_GBPS]),
            latency_s=np.array(LATENCY_MS) / 1e3,
            tokens_per_s=np.array([self.kind.batch * self.kind.seq / reference_s]),
            state_bytes=np.array([float(state_bytes)]),
            raised=max(each.raised for each in found),
            state_share=np.array(shares),
            local=np.array([each.local for each in found]),
        )


def _played(judged: Judged, shape: _Shape) -> _Offer | None:
    """A plan on the whole grid; None: it leaves a part idle, or its hops are neither a chain nor a ring."""
    plan, problem, n = judged.plan, judged.problem, len(shape.gpus)
    sent, links = link_bytes(judged.program), problem.cluster.links
    hops = {frozenset((link.source, link.destination)) for link, size in zip(links, sent, strict=True) if size > 0}
    at_part = sorted(sum(part.name in hop for hop in hops) for part in problem.cluster.domains)
    chain = at_part == sorted((*(1,) * min(n, 2), *(2,) * (n - 2))) and len(hops) == n - 1
    ring = n > 2 and at_part == [2] * n
    if n > 1 and not (chain or ring):
        return None
    seconds, raised = on_grid(judged)
    goodput = links[0].goodput if links else 1.0  # all links are alike
    return _Offer(
        shape,
        judged,
        ring,
        (
            sum(line.stages[0].dp for line in plan.pipelines),
            plan.pipelines[0].stages[0].tp,
            max(len(line.stages) for line in plan.pipelines),
        ),
        seconds,
        float(sent.max(initial=0.0)) / goodput,
        1.0 - judged.score.peak_memory_gb * 1e9 / problem.cluster.gpu.memory_bytes,
        _inside_comm(judged),
        _state_share(judged),
        raised,
    )


def on_grid(judged: Judged) -> tuple[Floats, float]:
    """Seconds of a step (L, G) where every link has a bandwidth and a latency of the grid, never more on better ones;
    and by how much what was played was raised for that, as a share."""
    links, there = judged.problem.cluster.links, judged.problem.cluster
    if not links:
        return np.full((len(LATENCY_MS), len(BANDWIDTH_GBPS)), judged.step_time_s), 0.0
    senders = [there.domain(link.source).nodes for link in links]
    most = [
        replace(link, bandwidth_bytes_per_s=np.inf).rate_bytes_per_s(n) for link, n in zip(links, senders, strict=True)
    ]
    later, quick = np.meshgrid(
        np.array(LATENCY_MS) / 1e3, [bytes_per_s_from_gbps(each) for each in BANDWIDTH_GBPS], indexing="ij"
    )
    bandwidth = np.minimum(quick.reshape(-1, 1) * np.array([link.goodput for link in links]), most)
    latency = later.reshape(-1, 1) + np.array([link.overhead_s for link in links])
    found = step_times(judged.program, bandwidth_bytes_per_s=bandwidth, latency_s=latency).reshape(quick.shape)
    seconds = np.minimum.accumulate(np.minimum.accumulate(found, axis=1)[::-1], axis=0)[::-1]
    return seconds, float((found / seconds).max() - 1.0)


def _inside_comm(judged: Judged) -> float:
    """Seconds of tensor parallelism and of sums inside domains over those of the step, mean of the GPUs in use."""
    seconds = 0.0
    for line in judged.plan.pipelines:
        for stage, cost in zip(line.stages, costs(judged.problem).stages(judged.plan, line), strict=True):
            seconds += (cost.tp_s * line.num_micro_batches + cost.sync_s) * len(stage.devices)
    return min(1.0, seconds / (judged.plan.gpus * judged.step_time_s))


def _state_share(judged: Judged) -> tuple[float, ...]:
    """Of the parameters, that which the stages in each part hold between them."""
    parameters = np.array([float(layer.parameters) for layer in judged.problem.model.layers])
    held = {part.name: np.zeros(len(parameters), np.bool_) for part in judged.problem.cluster.domains}
    for line in judged.plan.pipelines:
        for stage in line.stages:
            held[stage.domain][slice(*stage.layers)] = True
    return tuple(float(parameters[layers].sum() / parameters.sum()) for layers in held.values())


# ----------------------------------------------------------------------------------------------------- which are kept
def _lean(offers: Iterable[_Offer], alone_s: Mapping[tuple[int, int], float]) -> Iterator[_Offer]:
    """Offers that somewhere on the grid are the best of their size and ring, and quicker than all of smaller blocks.

    ``alone_s``: seconds a step in one domain, by size and block: what is never quicker than its largest part goes.
    """

    def alike(each: _Offer) -> tuple[tuple[int, ...], bool]:
        return each.shape.gpus, each.ring

    for (gpus, _), same in groupby(sorted(offers, key=lambda each: (alike(each), each.shape.block)), key=alike):
        told = np.array(min((seconds for (size, _), seconds in alone_s.items() if size <= gpus[0]), default=np.inf))
        for _, of_block in groupby(same, key=lambda each: each.shape.block):
            rivals = list(of_block)
            seconds = np.array([each.seconds for each in rivals])
            best = seconds.min(axis=0)
            open_ = best * (1.0 + CLOSE) < told
            close = seconds <= best * (1.0 + CLOSE)
            while open_.any():
                at = int(np.argmax((close & open_).sum(axis=(1, 2))))
                yield rivals[at]
                open_ = open_ & ~close[at]
            told = np.minimum(told, best)


def _worth_their_size(offers: Iterable[_Offer]) -> Iterator[_Offer]:
    """Without sizes of three times a power of two that do no more than their neighbours would, half the time each."""
    found = list(offers)
    rate: dict[int, float] = {}
    for each in found:
        rate[each.shape.gpus[0]] = max(rate.get(each.shape.gpus[0], 0.0), float(1.0 / each.seconds[0, 0]))
    for each in found:
        size = each.shape.gpus[0]
        power = 1 << (size.bit_length() - 1)
        beside = [rate[other] for other in (power, 2 * power) if other in rate]
        if size == power or len(beside) < 2 or rate[size] >= (1.0 - CLOSE) * sum(beside) / 2:
            yield each


# -------------------------------------------------------------------------------------------------- kept on the disk
def _kept(asked: _OfferQuestion, told: Told) -> OfferTable:
    """The table of the disk, or planned anew and kept there."""
    own = folder()
    if own is None:
        return asked.table(Exact(), told)[0]
    file = own.parent / "offers" / f"{_digest(asked)}.npz"
    with suppress(OSError, ValueError, TypeError, KeyError, EOFError, BadZipFile, AssertionError):
        with np.load(BytesIO(file.read_bytes()), allow_pickle=False) as held:
            columns = {name: held[name] for name in held.files}
        table = OfferTable(kinds=(asked.kind,), **columns | {"raised": float(columns["raised"])})
        table.check()
        return table
    table, _ = asked.table(Exact(), told)
    content = BytesIO()
    np.savez_compressed(content, **{name: value for name, value in vars(table).items() if name != "kinds"})
    with suppress(InputError):  # nothing can be written: it is planned again the next time
        write_whole(file, content.getvalue())
        for each in sorted(file.parent.glob("*.npz"), key=lambda each: each.stat().st_mtime)[:-MOST_KEPT]:
            each.unlink(missing_ok=True)
    return table


def _digest(asked: _OfferQuestion) -> str:
    """Of the question and of the sources that answer it."""
    question = problem_to_document(asked.problem(_Shape((asked.ladder[0],), 1), PLANNED_GBPS[0]))
    terms = [asked.held, asked.ladder, asked.cluster.domains[0].gpus_per_node, asked.local_sgd]
    told = json.dumps([question, *terms], sort_keys=True)
    return sha256(told.encode() + _sources()).hexdigest()[:32]


@lru_cache(maxsize=1)
def _sources() -> bytes:
    found, top = sha256(), Path(__file__).parents[2]
    for place in PLANNED_BY:
        for file in sorted((top / place).rglob("*.py")):
            found.update(file.read_bytes())
    return found.digest()
