"""A world before its first instant: tables from workload, site, policy and settings. Letters: ``world``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.jobs.engine import world as c
from hippo.jobs.engine.heaps import set_due
from hippo.jobs.engine.running import look_for_clients, time_to_failure
from hippo.jobs.engine.shapes import Shapes, shapes
from hippo.jobs.engine.world import QueueWorld
from hippo.jobs.learned.state import LearnedSetup, nothing, writable
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.placement.slowdown import Exchange, Slowdown
from hippo.jobs.policies.policy import QueuePolicy
from hippo.jobs.settings import ReplayRules, Tenants
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SERIES = 512  # bins of time
MOST_PIECES = 5_000_000
MOST_TRANSFERS = 65_536  # at once


@dataclass(frozen=True)
class Opening:
    """A world to play, and the jobs that can never run, with the reason."""

    world: QueueWorld
    refused: tuple[tuple[int, str], ...]
    domains: tuple[str, ...]


def open_world(
    workload: JobWorkload,
    site: JobSite,
    policy: QueuePolicy,
    settings: ReplayRules,
    *,
    slowdown: Slowdown | None = None,
    offers: OfferTable | None = None,
    tenants: Tenants | None = None,
    segments: int = 0,
    learner: LearnedSetup | None = None,
) -> Opening:
    """The world of a replay; ``segments``: how many rows to hold of who held what when."""
    _check(policy, settings)
    slowdown = slowdown or Slowdown.none(len(site.domains))
    kinds = shapes(workload, site, settings, slowdown)
    if offers is not None:
        kinds = replace(kinds, refused=_refused(kinds, workload, site, offers))
    mark = _marks(workload, kinds, offers)
    places = _places(site, settings.failures is not None or offers is not None or tenants is not None)
    start_s = float(workload.arrival_s[0]) if len(workload) else 0.0
    world = QueueWorld(
        **_rules(policy, settings),
        job=_jobs(workload, policy),
        mark=mark,
        **_classes(mark, by_user=policy.key.by_user),
        shape=kinds.shape,
        allowed=kinds.allowed,
        partly=kinds.partly,
        sets=kinds.sets,
        clients=kinds.clients,
        bound_s=kinds.bound_s,
        large_enough=kinds.allowed.copy(),
        serving=np.flatnonzero(np.isfinite(workload.latency_bound_s) & (mark[:, c.STATUS] != c.REFUSED)),
        reach=kinds.reach,
        group=np.zeros((len(kinds.reach), 3)),
        **places,
        **_shared(workload, site, offers, slowdown.exchange, bins=len(places["bin"])),
        tenant=np.zeros((0, 2), np.int64) if tenants is None else np.stack([tenants.node, tenants.devices], axis=1),
        tenant_s=np.zeros(0) if tenants is None else tenants.time_s.copy(),
        there=np.zeros((len(workload) if np.any(workload.data_gb > 0) else 0, len(site.domains), 2)),
        factor=slowdown.factor,
        usd_per_s=slowdown.usd_per_s,
        exchange=_exchange(slowdown, offers),
        user=np.zeros((max(1, len(workload.users)), 4)),
        clock=np.array([start_s, max((_last(workload) - start_s) / (SERIES / 2), 1.0), start_s]),
        tally=np.zeros(14, np.int64),
        segment=np.zeros((segments, 3), np.int64),
        segment_s=np.zeros((segments, 2)),
        learned=writable((learner or LearnedSetup()).begin(workload, site.devices)) if policy.learns else nothing(),
    )
    look_for_clients(world)
    if len(kinds.refused) < len(workload):  # else nodes would fail for nobody until the last one has come
        _plan_failures(world, start_s)
        _plan(world, c.NETWORK, np.maximum(world.links.time_s[1:2], start_s))
        _plan(world, c.TENANTS, np.maximum(world.tenant_s[:1], start_s))
    return Opening(world, kinds.refused, site.domains)


def _refused(kinds: Shapes, workload: JobWorkload, site: JobSite, offers: OfferTable) -> tuple[tuple[int, str], ...]:
    """Who can never run: gangs as ``shapes`` says, elastic jobs of whose offers none fits on the empty site."""
    elastic, row, sizes = workload.elastic, offers.rows(workload), offers.gpus.sum(axis=1)

    @cache
    def why(shape: int, kind: int, least: int, most: int) -> str:
        usable = kinds.partly[shape]
        held = sorted((pool.devices for pool, may in zip(site.pools, usable, strict=True) if may), reverse=True)
        held = (held + [0] * c.MOST_PARTS)[: c.MOST_PARTS]
        sized = (offers.kind == kind) & (sizes >= least) & (sizes <= most)
        if not held[0]:
            return "no device of the site can run it, or no link leads from its data to one"
        if not sized.any():
            return f"no plan trains it on {least} to {most} devices"
        if not (sized & (offers.gpus <= np.array(held)).all(axis=1)).any():
            return f"needs more devices than the site has: at least {sizes[sized].min()}"
        return ""

    found = [each for each in kinds.refused if not elastic[each[0]]]
    asked = np.stack([kinds.of_job, row, workload.least, workload.most], axis=1)
    found += [(job, why(*asked[job].tolist())) for job in np.flatnonzero(elastic).tolist()]
    return tuple(sorted(each for each in found if each[1]))


def _check(policy: QueuePolicy, settings: ReplayRules) -> None:
    """A round must leave time to work, or jobs that take turns would never get on."""
    if policy.rounds and settings.restart_s >= settings.round_s:
        raise InputError(
            f"a restart takes as long as a round of {settings.round_s:g} s, so jobs that take turns would never get on",
            source=f"policy {policy.name}",
            key="restart_s",
            value=settings.restart_s,
            remedy="make restarts shorter or rounds longer, or take a policy without rounds",
        )


def _last(workload: JobWorkload) -> float:
    return float(workload.arrival_s[-1]) if len(workload) else 0.0


def _rules(policy: QueuePolicy, settings: ReplayRules) -> dict[str, Any]:
    """What the policy may do, and what all must keep to."""
    failures = settings.failures
    return {
        "before": settings.data == "before",
        "fails": failures is not None,
        "remembers": policy.learns,
        "restart_s": float(settings.restart_s),
        "round_s": float(policy.refresh_s if policy.learns else settings.round_s),
        "mtbf_s": float(failures.mtbf_s) if failures else np.inf,
        "repair_s": float(failures.repair_s) if failures else 0.0,
        "checkpoint_s": float(failures.checkpoint_every_s) if failures else np.inf,
        "seed": settings.seed,
        **key_rules(policy),
        "preempts": policy.preempts and settings.stops,
    }


def key_rules(policy: QueuePolicy) -> dict[str, Any]:
    """What a policy ranks by and may do, as fields of a world."""
    key = policy.key
    weights = np.array([key.remaining, key.expected, key.attained, key.served, key.level, key.in_turn])
    same = ("preempts", "strict", "rounds", "per_device", "backfills", "learns", "for_deadlines")
    numbers = ("refresh_s", "patience_s", "promotes_after")
    return {
        **{name: getattr(policy, name) for name in same},
        **{name: float(getattr(policy, name)) for name in numbers},
        "by_user": key.by_user,
        "by_share": key.by_share,
        "changes": int(np.sum((weights != 0.0) << np.arange(len(weights)))),
        "weights": weights,
        "levels": np.array(policy.levels, np.float64),
    }


def _places(site: JobSite, by_node: bool) -> dict[str, Any]:
    """Pools, and room for who runs in them."""
    pools, bins = _bins(site, by_node)
    pieces = min(site.devices, MOST_PIECES)
    return {
        "pool": pools,
        "speed": np.array([pool.speed for pool in site.pools], np.float64),
        "bin": bins,
        "piece": _pieces(pieces),
        "victim": np.zeros(pieces, np.int64),
        "series": np.zeros((SERIES, len(pools) + 1)),
    }


def _jobs(workload: JobWorkload, policy: QueuePolicy) -> Floats:
    job = _rows(len(workload), c.JOB_COLUMNS, np.float64)
    job[:, c.ARRIVAL], job[:, c.DURATION] = workload.arrival_s, workload.duration_s
    job[:, c.LEFT], job[:, c.ESTIMATE] = workload.duration_s, workload.estimate_s
    job[:, c.DEADLINE], job[:, c.GB] = workload.deadline_s, workload.data_gb
    job[:, c.FIRST], job[:, c.WEIGHT], job[:, c.LATE_SINCE] = np.nan, 1.0, np.inf
    key = policy.key
    job[:, c.KNOWN_KEY] = 0.0 if key.known is None else key.known(workload)
    job[:, c.KEY_FACTOR] = 1.0 if key.factor is None else key.factor(workload)
    return job


def _rows(count: int, columns: int, kind: type[Any]) -> NDArray[Any]:
    """Zeros (count, columns), eight columns to a line of the CPU's cache."""
    room = np.zeros(count * columns + 8, kind)
    first = -room.ctypes.data % 64 // 8
    return room[first : first + count * columns].reshape(count, columns)


def _marks(workload: JobWorkload, kinds: Shapes, offers: OfferTable | None) -> Ints:
    mark = _rows(len(workload), c.MARK_COLUMNS, np.int64)
    mark[:, c.DEVICES], mark[:, c.USER], mark[:, c.PRIORITY] = workload.devices, workload.user, workload.priority
    mark[:, c.SHAPE], mark[:, c.HOME], mark[:, c.ROW] = kinds.of_job, kinds.home, kinds.row
    mark[:, c.PIECE], mark[:, c.POOL] = -1, -1
    mark[:, c.OFFER], mark[:, c.STATE_AT], mark[:, c.HOLDS] = -1, -1, workload.devices
    mark[[job for job, _ in kinds.refused], c.STATUS] = c.REFUSED
    if offers is not None:
        elastic = workload.elastic
        mark[elastic, c.ELASTIC], mark[elastic, c.LEAST] = 1, workload.least[elastic]
        mark[elastic, c.ROW] = offers.rows(workload)[elastic]
    return mark


def _classes(mark: Ints, *, by_user: bool) -> dict[str, Any]:
    """Classes of jobs and their empty trees; writes each job's class and leaf into ``mark``."""
    group = mark[:, c.USER] if by_user else np.zeros(len(mark), np.int64)
    pairs, of_job = np.unique(np.stack([mark[:, c.SHAPE], group], axis=1), axis=0, return_inverse=True)
    of_job = of_job.reshape(-1)
    order = np.argsort(of_job, kind="stable")
    members = np.bincount(of_job, minlength=len(pairs))
    first = np.concatenate([[0], np.cumsum(members)[:-1]]) if len(pairs) else np.zeros(0, np.int64)
    size = 2 ** np.ceil(np.log2(np.maximum(members, 1))).astype(np.int64)
    klass = np.full((len(pairs), 7), -1, np.int64)
    klass[:, c.CLASS_SHAPE], klass[:, c.CLASS_USER] = pairs[:, 0], pairs[:, 1]
    klass[:, c.CLASS_BASE] = np.cumsum(2 * size) - 2 * size
    klass[:, c.CLASS_SIZE], klass[:, c.CLASS_FIRST] = size, first
    mark[:, c.CLASS] = of_job
    mark[order, c.LEAF] = np.arange(len(mark)) - first[of_job[order]]
    return {
        "order": order,
        "klass": klass,
        "head_key": np.full(len(pairs), np.inf),
        "tree": np.full(int(2 * size.sum()), np.inf),
        "active": np.zeros(len(pairs), np.int64),
        "passed": np.zeros(len(pairs), np.bool_),
    }


def _bins(site: JobSite, by_node: bool) -> tuple[Ints, Ints]:
    """Pools and their bins, all free."""
    pools = np.zeros((len(site.pools), 8), np.int64)
    bins: list[tuple[int, ...]] = []
    for index, pool in enumerate(site.pools):
        size = pool.per_node if by_node else pool.devices
        first = len(bins)
        bins += [(index, size, size, -1, 1, 0, 0, 0)] * (pool.nodes if by_node else 1)
        domain = site.domains.index(pool.domain)
        pools[index] = domain, first, len(bins), pool.devices, pool.devices, 0, -1, -1
    return pools, np.array(bins, np.int64)


def _pieces(count: int) -> Ints:
    """Free pieces, each naming the next."""
    piece = np.full((count, 6), -1, np.int64)
    piece[:-1, c.PIECE_NEXT] = np.arange(1, count)
    return piece


def _exchange(slowdown: Slowdown, offers: OfferTable | None) -> Ints:
    """(R, 2^K) offers of gangs, which stand behind those of elastic jobs; -1: none."""
    if slowdown.exchange is None:
        return np.full(slowdown.factor.shape, -1, np.int64)
    row, first = slowdown.exchange.row, 0 if offers is None else len(offers)
    return np.where(row >= 0, row + first, -1)


def _shared(
    workload: JobWorkload, site: JobSite, offers: OfferTable | None, exchange: Exchange | None, *, bins: int
) -> dict[str, Any]:
    """Links and all that goes over them, the offers, and the heap, which holds transfers too."""
    n, domains = len(workload), len(site.domains)
    spanning = n if offers is not None or exchange is not None else 0
    route = np.full((0, 0), -1, np.int64) if exchange is None else exchange.route
    parts = max(c.MOST_PARTS, route.shape[1])
    route = np.pad(route, ((0, 0), (0, parts - route.shape[1])), constant_values=-1)
    moving = offers is not None or bool(np.any(workload.data_gb > 0))
    of_job = domains * min(domains, c.MOST_PARTS + 1)  # a growing part of the data to each, and the state
    transfers = min(n * of_job, MOST_TRANSFERS) if moving else 0
    flows, items = transfers + 2 * parts * spanning, n + bins + c.FIRST_TRANSFER + transfers
    history = site.history
    transfer = np.zeros((transfers, 6), np.int64)
    transfer[:, c.SENT_FOR] = np.append(np.arange(1, transfers), -1)[:transfers]
    links = c.Links(
        time_s=history.time_s.astype(np.float64) if history else np.zeros(1),
        history=history.bandwidth_bytes_per_s if history else np.array([site.bandwidth_bytes_per_s]),
        capacity=np.array(history.bandwidth_bytes_per_s[0] if history else site.bandwidth_bytes_per_s),
        latency=site.moving_latency_s[0].copy(),
        latency_history=site.moving_latency_s,
        usd_per_byte=np.array(site.usd_per_gb) * 1e-9 if site.usd_per_gb else np.zeros((domains, domains)),
        moved_gb=np.zeros((domains, domains)),
        exchanged_gb=np.zeros((domains, domains)),
        transfer=transfer,
        bytes=np.zeros((transfers, 5)),
        active=np.zeros(transfers, np.int64),
        spanning=np.zeros(spanning, np.int64),
        tally=np.array([0, 0, 0 if transfers else -1, 0, 0, 0, 0]),
        behind=np.full((domains, domains), -1, np.int64),
        spare=np.zeros((domains, domains)),
        first=np.full((domains, domains), -1, np.int64),
        next=np.full(flows, -1, np.int64),
        demand=np.zeros(flows),
        weight=np.ones(flows),
    )
    return {
        "links": links,
        "offers": _offers(offers, exchange),
        "route": route,
        "part": np.full((spanning, parts), -1, np.int64),
        "going": np.full((spanning, c.GOING_PARTS + c.MOST_PARTS), -1, np.int64),
        "going_s": np.zeros(spanning),
        "due": np.full(items, np.inf),
        "heap": np.zeros(items, np.int64),
        "place": np.full(items, -1, np.int64),
    }


def _offers(elastic: OfferTable | None, exchange: Exchange | None) -> c.Offers:
    """Those of elastic jobs, and behind them those of gangs, of no kind."""
    tables = [each for each in (elastic, None if exchange is None else exchange.offers) if each is not None]
    table = OfferTable.joined(tables) if tables else OfferTable.none()
    for each in tables:
        assert np.array_equal(each.bandwidth_bytes_per_s, table.bandwidth_bytes_per_s), "two grids"
        assert np.array_equal(each.latency_s, table.latency_s), "two grids"
    of_gang = np.arange(len(table)) >= (0 if elastic is None else len(elastic))
    table = replace(table, kind=np.where(of_gang, -1, table.kind))
    steps = table.tokens_per_s / np.array([kind.batch * kind.seq for kind in table.kinds], np.float64)
    return c.Offers(
        form=np.stack([table.kind, table.parts, table.block, _rings(table)], axis=1),
        gpus=table.gpus,
        state_share=table.state_share,
        rate=table.rate,
        hop_bytes=table.hop_bytes,
        bandwidth=table.bandwidth_bytes_per_s,
        latency=table.latency_s,
        state_bytes=table.state_bytes,
        gradient_bytes=table.state_bytes * c.GRADIENT_SHARE * steps,
    )


def _rings(table: OfferTable) -> Ints:
    """(O,) how the parts of each offer are joined: where every one of a ring holds all of the state they are replicas,
    whose sum goes around one way (``simulate.ring``)."""
    replicas = ((table.state_share == 1.0) | (table.gpus == 0)).all(axis=1)
    return np.where(table.ring, np.where(replicas, c.ONE_WAY, c.RING), c.CHAIN)


def _plan(world: QueueWorld, item: int, time_s: Floats) -> None:
    """Let an item behind jobs and bins happen first at ``time_s`` (1,), if there is one."""
    if len(time_s):
        height, place = world.tally[c.HEAP : c.HEAP + 1], len(world.job) + len(world.bin) + item
        set_due(world.heap, world.due, world.place, height, place, float(time_s[0]))


def _plan_failures(world: QueueWorld, start_s: float) -> None:
    if not world.fails:
        return
    for node in range(len(world.bin)):
        due = start_s + time_to_failure(world.seed, node, 0, world.mtbf_s)
        height = world.tally[c.HEAP : c.HEAP + 1]
        set_due(world.heap, world.due, world.place, height, len(world.job) + node, due)
