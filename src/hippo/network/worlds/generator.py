"""Worlds drawn for learning and judging: a problem and a moving network, by family, seed and split.

A family is a regime: how large the clusters are, how quick links are beside compute, and how they move. What a link
carries in tokens/s is ``B / (2 h)`` (bf16 activations; the gradient goes the other way), what GPUs compute
``G x efficiency x peak / (6 P)``; their ratio says whether a world is bound by links, by compute, or balanced.
Training networks lie at random on a plane of continents; the test split holds other models and other networks: other
draws, the measured matrix of twelve cloud regions, or the four hubs of the catalogue, so that no network is met in
both. K domains, T epochs, E links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hippo.dynamics.movements import HOUR_S, MINUTE_S, draw_movement
from hippo.dynamics.processes import congested_latency
from hippo.errors import InputError, UnknownNameError
from hippo.network.worlds.world import World
from hippo.problem.catalogue.clusters import CLUSTERS
from hippo.problem.catalogue.models import model as model_named
from hippo.problem.cluster import Cluster, Domain, Gpu, Link
from hippo.problem.gpus import gpu as gpu_named
from hippo.problem.links import Trace, base_bandwidth, base_latency
from hippo.problem.model import Model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload

Floats = NDArray[np.float64]
SPLITS = ("train", "test")
EFFICIENCY = 0.45  # of the peak; the rough figure that sizes clusters, nothing else
BALANCED = (0.7, 1.5)
LEAST_GPUS, MOST_NODES = 3.5, 16  # of a domain
TRIES = 200
MOST_EPOCHS = 20_000  # of a recorded trace
USUAL_QUANTILE = 0.7  # of the bandwidths: plans use the quicker links
EGRESS_SHARE = (0.005, 0.15)
"""Egress over rent at full pace. Where it is more, nobody trains across domains; in a quarter of the worlds it is
free, as on lines of one's own."""

MODELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "train": (
            *("llama-3-8b", "llama-2-13b", "megatron-18b", "llama-1-33b", "llama-3-70b", "megatron-76b", "gpt3-175b"),
            *("megatron-39b", "gpt3-6.7b"),
        ),
        "test": ("qwen2.5-7b", "qwen3-14b", "megatron-22b", "qwen2.5-32b", "qwen2.5-72b", "bloom-176b", "llama-1-65b"),
    }
)
GPUS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"train": ("A100-SXM-80GB", "H100-SXM-80GB"), "test": ("A100-SXM-80GB", "H100-SXM-80GB", "H200-SXM-141GB")}
)


@dataclass(frozen=True)
class WorldFamily:
    """How the worlds of a family are drawn; pairs are the ends of a range."""

    movement: tuple[str, ...]  # one of them
    epochs: int
    epoch_s: float
    domains: tuple[int, int]
    ratio: tuple[float, float] = BALANCED  # tokens/s of a usual link over tokens/s of the domains worth joining
    joined: tuple[int, int] = (2, 4)  # domains worth joining
    gbps: tuple[float, float] = (1.0, 10.0)  # of a usual link, as long as the domains are of usual sizes
    unequal: float = 0.2  # share of the worlds with domains of different sizes
    crossing: float = 0.0  # share of the worlds in which no domain alone has the memory


FAMILIES: Mapping[str, WorldFamily] = MappingProxyType(
    {
        "ou3": WorldFamily(("ou3",), 240, MINUTE_S, (3, 4)),
        "transient": WorldFamily(("transient",), 240, MINUTE_S, (3, 6)),
        "lasting": WorldFamily(("lasting",), 288, 10 * MINUTE_S, (3, 6)),
        "regimes": WorldFamily(("regimes",), 288, 10 * MINUTE_S, (3, 8), unequal=0.6),
        "day": WorldFamily(("day",), 288, 10 * MINUTE_S, (3, 6)),
        "outage": WorldFamily(("outage",), 240, MINUTE_S, (3, 6)),
        "halving": WorldFamily(("halving",), 288, 15 * MINUTE_S, (3, 6)),
        "compute_bound": WorldFamily(
            ("ou3", "transient", "day"), 240, 5 * MINUTE_S, (2, 6), ratio=(8.0, 16.0), joined=(6, 6), gbps=(4.0, 60.0)
        ),
        "link_bound": WorldFamily(
            ("ou3", "transient", "regimes", "day"),
            *(240, 5 * MINUTE_S, (2, 6)),
            ratio=(0.15, 0.4),
            gbps=(0.2, 10.0),
            crossing=0.5,
        ),
        "large": WorldFamily(("transient", "lasting", "regimes", "outage"), 240, 5 * MINUTE_S, (8, 16), joined=(3, 6)),
        "stragglers": WorldFamily(("stragglers",), 240, 3 * MINUTE_S, (3, 6)),
    }
)
"""Every family by its name."""


@dataclass(frozen=True)
class DrawnTerms:
    """What is said of a drawn problem besides model, cluster and batch."""

    runtime: str = "ideal"
    allow_local_sgd: bool = False
    compression_worth: float | None = None  # None: nobody compresses

    def of(self, problem: Problem) -> Problem:
        """The problem under these terms."""
        allowed = self.compression_worth is not None
        return replace(
            problem,
            runtime=self.runtime,
            allow_local_sgd=self.allow_local_sgd,
            allow_compression=allowed,
            compression_worth=self.compression_worth,
        )


def make_world(
    family: str, seed: int, *, split: str = "train", movement: int = 0, terms: DrawnTerms = DrawnTerms()
) -> World:
    """The world of this family, seed and split; always the same, and another for another seed. ``movement`` above 0:
    the same problem, its network moving in another way.

    Raises
    ------
    UnknownNameError
        No such family or split.
    """
    if family not in FAMILIES:
        raise UnknownNameError("family of networks", family, FAMILIES)
    if split not in SPLITS:
        raise UnknownNameError("split", split, SPLITS)
    plan = FAMILIES[family]
    rng = np.random.default_rng((crc32(f"{family}/{split}".encode()), seed))
    problem = terms.of(draw_problem(plan, rng, split, f"{family}-{split}-{seed}"))
    if movement:
        rng = np.random.default_rng((crc32(f"{family}/{split}".encode()), seed, movement))
    time_s = np.arange(plan.epochs, dtype=np.float64) * plan.epoch_s
    moved = draw_movement(str(rng.choice(plan.movement)), problem.cluster, time_s, rng)
    base = base_bandwidth(problem.cluster)
    return World(
        name=f"{family}-{split}-{seed}" + (f"-{movement}" if movement else ""),
        family=family,
        problem=problem,
        epoch_s=plan.epoch_s,
        bandwidth_bytes_per_s=moved.bandwidth * base,
        latency_s=congested_latency(base_latency(problem.cluster), moved.bandwidth),
        compute=moved.compute,
        told=_told(moved.bandwidth.shape, rng),
        seed=seed,
    )


def world_from_trace(problem: Problem, trace: Trace, *, epoch_s: float | None = None, name: str = "trace") -> World:
    """The world of a trace that a user gave. ``epoch_s``: the median distance of its instants (at least a minute)
    where left out. A value holds until the link's next; an epoch has the state of its begin. ``InputError`` for more
    than ``MOST_EPOCHS``."""
    gaps = np.diff(trace.time_s)
    epoch = float(epoch_s if epoch_s is not None else max(MINUTE_S, float(np.median(gaps)) if len(gaps) else HOUR_S))
    begin, end = float(trace.time_s[0]), float(trace.time_s[-1]) + (float(gaps[-1]) if len(gaps) else epoch)
    count = max(1, int(np.ceil((end - begin) / epoch - 1e-9)))
    if count > MOST_EPOCHS:
        remedy = f"make epochs of {np.ceil((end - begin) / MOST_EPOCHS):.0f} s or more, or cut the trace"
        told = f"{end - begin:g} s make {count:,} epochs of {epoch:g} s, more than {MOST_EPOCHS:,}"
        raise InputError(told, source=trace.source, remedy=remedy)
    at = np.maximum(np.searchsorted(trace.time_s, begin + np.arange(count) * epoch, side="right") - 1, 0)
    bandwidth = trace.bandwidth_bytes_per_s[at]
    return World(
        name=name,
        family="trace",
        problem=problem,
        epoch_s=epoch,
        bandwidth_bytes_per_s=bandwidth,
        latency_s=trace.latency_s[at],
        compute=np.ones((count, len(problem.cluster.domains))),
        told=np.ones(bandwidth.shape, dtype=bool),
    )


@dataclass(frozen=True)
class WorldSize:
    """What is trained on what: sizes for which the links of a family are realistic."""

    model: Model
    gpu: Gpu
    joined: int
    wanted: float  # GPUs of a domain
    ratio: float
    bytes_per_s: float  # of a usual link

    @property
    def per_node(self) -> int:
        """GPUs of a node."""
        return 8 if self.wanted > 6.0 else 4

    @property
    def nodes(self) -> int:
        """Nodes of a usual domain."""
        return int(np.clip(round(self.wanted / self.per_node), 1, MOST_NODES))


def draw_problem(plan: WorldFamily, rng: np.random.Generator, split: str, name: str) -> Problem:
    """A model, and a cluster whose links suit what its GPUs compute."""
    count = int(rng.integers(plan.domains[0], plan.domains[1] + 1))
    if split == "test" and rng.random() < 0.6:
        where = measured(count, rng)
    else:
        where = plane(count, rng, uneven=float(rng.uniform(0.1, 0.5)))
    if count > 3 and rng.random() < 0.2:
        where = thinned(where, rng, most=0.4)
    joined = min(int(rng.integers(plan.joined[0], plan.joined[1] + 1)), count)
    size = _size(plan, rng, split, joined)
    workload = Workload(global_batch=int(rng.choice((128, 256, 512))), seq=int(rng.choice((2048, 4096))))
    return Problem(size.model, _cluster(plan, rng, size, where, name), workload)


def _size(plan: WorldFamily, rng: np.random.Generator, split: str, joined: int) -> WorldSize:
    """Model, GPU and bandwidth such that ``joined`` domains compute ``1 / ratio`` times what a usual link carries.

    Drawn again until a domain has between ``LEAST_GPUS`` and ``MOST_NODES`` nodes of GPUs, at most ``TRIES`` times.
    """
    crossing = rng.random() < plan.crossing
    for _ in range(TRIES):
        model = model_named(str(rng.choice(MODELS[split])))
        gpu = gpu_named(str(rng.choice(GPUS[split])))
        ratio = float(np.exp(rng.uniform(*np.log(plan.ratio))))
        bytes_per_s = float(np.exp(rng.uniform(*np.log(plan.gbps)))) * 1e9 / 8.0
        carried = bytes_per_s / (2.0 * model.layers[1].hidden)  # tokens/s
        needed = 2.0 * 16.0 * model.parameters / gpu.memory_bytes  # for weights and optimizer state, and as much again
        wanted = needed if crossing else max(carried / ratio / tokens_per_s(model, gpu), needed)
        wanted /= joined
        found = WorldSize(model, gpu, joined, wanted, ratio, bytes_per_s)
        if LEAST_GPUS <= wanted <= 8 * MOST_NODES:
            break
    return found


def tokens_per_s(model: Model, gpu: Gpu) -> float:
    """Roughly what one GPU trains: six FLOP per parameter and token."""
    return EFFICIENCY * gpu.peak_flops["bf16"] / (6.0 * model.parameters)


def _cluster(plan: WorldFamily, rng: np.random.Generator, size: WorldSize, where: Geography, name: str) -> Cluster:
    """The domains and links; bandwidth makes good what rounding to whole nodes changed."""
    nodes = np.full(len(where.names), size.nodes)
    if rng.random() < plan.unequal:
        nodes = np.maximum(1, np.round(size.nodes * np.exp(rng.uniform(-0.7, 0.7, len(nodes))))).astype(np.int64)
    domains = tuple(
        _domain(each, int(own), size.per_node, size.gpu) for each, own in zip(where.names, nodes, strict=True)
    )
    computed = size.nodes * size.per_node * size.joined * tokens_per_s(size.model, size.gpu)
    usual = computed * size.ratio * 2.0 * size.model.layers[1].hidden  # bytes/s
    quick = where.quickness / np.quantile(where.quickness[where.quickness > 0], USUAL_QUANTILE)
    # Price: an exchange at the pace of the computation, both ways over every border, costs this share of the rent.
    share = 0.0 if rng.random() < 0.25 else float(np.exp(rng.uniform(*np.log(EGRESS_SHARE))))
    rent = size.gpu.price_usd_per_hour / 3600.0 * sum(domain.gpus for domain in domains)
    sent = 2.0 * (size.joined - 1) * min(usual, usual / size.ratio)
    price = share * rent / (sent / 1e9) * np.exp(rng.normal(0.0, 0.3, where.quickness.shape))
    links = tuple(
        Link(
            where.names[a],
            where.names[b],
            float(usual * quick[a, b]),
            float(where.latency_s[a, b]),
            round(float(price[a, b]), 5),
        )
        for a in range(len(where.names))
        for b in range(len(where.names))
        if where.quickness[a, b] > 0
    )
    return Cluster(name, size.gpu, domains, links, source="drawn")


def _domain(name: str, nodes: int, per_node: int, gpu: Gpu) -> Domain:
    return Domain(name, nodes, per_node, gpu.nvlink_bytes_per_s, gpu.node_bytes_per_s or 5e10, 10e-6)


def _told(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.bool_]:
    """What telemetry brings: all of it in two worlds of three; else values are lost singly and for stretches."""
    told = np.ones(shape, dtype=bool)
    if rng.random() < 1.0 / 3.0:
        told &= rng.random(shape) > 0.02
        for _ in range(int(rng.integers(1, 4))):
            start, link = int(rng.integers(1, shape[0])), int(rng.integers(shape[1]))
            told[start : start + int(rng.integers(3, 20)), link] = False
    told[0] = True
    return told


def trace_of(world: World) -> Trace:
    """The true network of a world as a trace, for those who read CSV (``problem.trace_csv``)."""
    time_s = np.arange(world.epochs, dtype=np.float64) * world.epoch_s
    return Trace(time_s, world.bandwidth_bytes_per_s, world.latency_s, source=world.name)


def scaled(world: World, factor: float) -> World:
    """The same world with all movement of its links made ``factor`` times as strong (0: a still network)."""
    base = base_bandwidth(world.problem.cluster)
    share = world.bandwidth_bytes_per_s / base
    moved = np.where(share > 0, np.maximum(0.02, 1.0 + factor * (share - 1.0)), 0.0 if factor > 0 else 1.0)
    latency = congested_latency(base_latency(world.problem.cluster), moved)
    return replace(world, name=f"{world.name} x{factor:g}", bandwidth_bytes_per_s=moved * base, latency_s=latency)


ACCESS_S, S_PER_KM = 0.004, 10e-6
"""One-way latency: access and switching, then fibre of twice the great-circle distance (as in the catalogue)."""
WIDTH_KM, HEIGHT_KM = 6000.0, 3000.0


@dataclass(frozen=True, eq=False)
class Geography:
    """Names, relative bandwidth (mean 1 over the links) and one-way latency of each directed pair; 0: no link."""

    names: tuple[str, ...]
    quickness: Floats  # (K, K)
    latency_s: Floats  # (K, K)


def plane(count: int, rng: np.random.Generator, *, uneven: float) -> Geography:
    """Domains at random on a plane; the nearer the quicker, with ``uneven`` as standard deviation of the log."""
    at = rng.uniform(size=(count, 2)) * (WIDTH_KM, HEIGHT_KM)
    km = np.linalg.norm(at[:, None] - at[None], axis=-1) + 200.0
    noise = rng.standard_normal((count, count)) * uneven
    noise = np.where(rng.random() < 0.5, (noise + noise.T) / np.sqrt(2.0), noise)  # both directions alike, or not
    quickness = _scaled((km / km.mean()) ** (-0.3) * np.exp(noise))
    return Geography(tuple(f"site-{index}" for index in range(count)), quickness, ACCESS_S + S_PER_KM * km)


def measured(count: int, rng: np.random.Generator) -> Geography:
    """``count`` domains of a catalogue cluster with measured or published links: four hubs, or twelve cloud regions
    (again with other neighbours where more than twelve are asked for)."""
    hubs = count <= 4 and rng.random() < 0.4
    whole = CLUSTERS["four-hubs" if hubs else "twelve-cloud-regions"]
    chosen = np.concatenate([rng.permutation(len(whole.domains)) for _ in range(2)])[:count]
    quickness, latency = np.zeros((count, count)), np.zeros((count, count))
    for row, source in enumerate(chosen):
        for column, destination in enumerate(chosen):
            link = whole.link(whole.domains[source].name, whole.domains[destination].name)
            if row == column or link is None:  # the same region twice: two sites of it
                quickness[row, column], latency[row, column] = 6e8, ACCESS_S
                continue
            quickness[row, column] = link.rate_bytes_per_s(1)
            latency[row, column] = link.latency_s
    names = tuple(f"{whole.domains[each].name}{'' if at < 12 else '-b'}" for at, each in enumerate(chosen))
    return Geography(names, _scaled(quickness), np.maximum(latency, 1e-3))


def thinned(found: Geography, rng: np.random.Generator, *, most: float) -> Geography:
    """The same without some of its slower pairs (up to a share ``most``); a ring of links always stays."""
    count = len(found.names)
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count) if (b - a) % count not in (1, count - 1)]
    pairs.sort(key=lambda pair: found.quickness[pair] + found.quickness[pair[::-1]])
    gone = pairs[: int(rng.uniform(0.0, most) * len(pairs))]
    quickness = found.quickness.copy()
    for a, b in gone:
        quickness[a, b] = quickness[b, a] = 0.0
    return Geography(found.names, _scaled(quickness), found.latency_s)


def _scaled(quickness: Floats) -> Floats:
    found = quickness.copy()
    np.fill_diagonal(found, 0.0)
    scaled: Floats = found / found[found > 0].mean()
    return scaled
