"""Which jobs are alike to the site: as many devices, the same pools, the same sets of domains. And who can never run.

n jobs, S shapes, P pools, M sets, Q combinations of what jobs ask of a pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.engine.keys import MOST_POOLS
from hippo.jobs.placement.slowdown import INSIDE, MOST_DOMAINS, Slowdown
from hippo.jobs.settings import MOST_GROUPS, MOST_TIMES_LONGER, ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_NOWHERE = -2  # data in a domain that the site has not


@dataclass(frozen=True, eq=False)
class Shapes:
    """Shapes of a workload on a site."""

    of_job: Ints  # (n,)
    home: Ints  # (n,) domain of its data, -1: everywhere
    row: Ints  # (n,) of the table of slowdowns
    shape: Ints  # (S, 3) see ``columns``
    allowed: Flags  # (S, P)
    partly: Flags  # (S, P)
    sets: Ints  # (S, M)
    clients: Ints  # (S,) domain, -1: anywhere
    bound_s: NDArray[np.float64]  # (S,)
    reach: Ints  # (G,)
    refused: tuple[tuple[int, str], ...]


def shapes(workload: JobWorkload, site: JobSite, settings: ReplayRules, slowdown: Slowdown) -> Shapes:
    """Find them all."""
    home = _homes(workload, site)
    asks, asked = _asks(workload, site, home)
    usable = np.array([_usable(workload, site, ask) for ask in asks], np.bool_).reshape(len(asks), len(site.pools))
    clients, bounds = _clients(workload, site), np.unique(workload.latency_bound_s)
    alone = (clients != -1) | workload.elastic  # who serves does so from one domain; elastic jobs run under offers
    row = np.where(alone, INSIDE, _rows(workload, slowdown, settings))
    bound = np.searchsorted(bounds, workload.latency_bound_s)
    found, of_job = np.unique(
        np.stack([asked, workload.devices, row, clients, bound], axis=1), axis=0, return_inverse=True
    )
    of_job = of_job.reshape(-1)
    size = np.array([pool.devices for pool in site.pools])
    near = _ever_near(found[:, 3], bounds[found[:, 4]], site)
    partly = usable[found[:, 0]] & near
    allowed = partly & (size[None, :] >= found[:, 1:2])
    sets = _sets(found, partly, allowed, site=site, settings=settings, slowdown=slowdown)
    reach, group = _groups(np.where(allowed.any(axis=1)[:, None], allowed, partly))
    shape = np.stack([found[:, 1], group, allowed.any(axis=1).astype(np.int64)], axis=1)
    hopeless = ~allowed.any(axis=1) & (sets[:, 0] < 0)
    never = []
    for job in np.flatnonzero(hopeless[of_job]).tolist():
        usable_here, place = usable[asked[job]], int(home[job])
        why = _no_place(workload, site, job, home=place, usable=usable_here)
        why = why or _too_far(workload, job, known=int(clients[job]) != _NOWHERE, near=partly[of_job[job]])
        why = why or _too_wide(workload, site, job, usable=usable_here, row=int(row[job]), settings=settings)
        never.append((job, why))
    if settings.failures is not None:
        up = cache(settings.failures.share_up)  # many shapes ask for as many nodes
        together = [
            _share_up(up, site, int(devices), whole=whole, parts=parts if fits[0] >= 0 else None)
            for devices, whole, parts, fits in zip(found[:, 1], allowed, partly, sets, strict=True)
        ]
        kept = np.where(hopeless[of_job], -1, of_job)
        never += _lost(workload, site, kept, partly=partly, together=together, settings=settings)
    return Shapes(
        of_job=of_job,
        home=np.maximum(home, -1),
        row=row,
        shape=shape,
        allowed=allowed,
        partly=partly,
        sets=sets,
        clients=np.maximum(found[:, 3], -1),
        bound_s=bounds[found[:, 4]],
        reach=reach,
        refused=tuple(sorted(never)),
    )


def _clients(workload: JobWorkload, site: JobSite) -> Ints:
    """(n,) domain of each job's clients by the site's numbers, -1: anywhere."""
    place = {name: index for index, name in enumerate(site.domains)}
    words = np.array([*(place.get(name, _NOWHERE) for name in workload.client_domains), -1], np.int64)
    found: Ints = words[workload.clients_at]
    return found


def _ever_near(clients: Ints, bound_s: NDArray[np.float64], site: JobSite) -> Flags:
    """(S, P) whether a pool is near enough to the clients of a shape at any time."""
    moving = site.history
    carries = np.array([site.bandwidth_bytes_per_s]) if moving is None else moving.bandwidth_bytes_per_s
    latency_s = np.where(carries > 0, site.moving_latency_s, np.inf)
    least_s = np.maximum(latency_s, latency_s.transpose(0, 2, 1)).min(axis=0)  # (K, K)
    domain = np.array([site.domains.index(pool.domain) for pool in site.pools])
    found: Flags = (clients == -1)[:, None] | (least_s[clients][:, domain] <= bound_s[:, None])
    found[clients == _NOWHERE] = False
    return found


def _share_up(
    up: Callable[[int, int], float], site: JobSite, devices: int, *, whole: Flags, parts: Flags | None
) -> float:
    """Share of the time in which enough nodes for a job are up: of one pool or over several (``parts``). ``up``: in
    which so many of so many nodes are."""
    pools = [pool for pool, may in zip(site.pools, whole, strict=True) if may]
    shares = [up(-(-devices // pool.per_node), pool.nodes) for pool in pools]
    if parts is not None:
        spanned = [pool for pool, may in zip(site.pools, parts, strict=True) if may]
        nodes = -(-devices // max(pool.per_node for pool in spanned))
        shares.append(up(nodes, sum(pool.nodes for pool in spanned)))
    return max(shares, default=0.0)


def _lost(
    workload: JobWorkload, site: JobSite, of_job: Ints, *, partly: Flags, together: list[float], settings: ReplayRules
) -> list[tuple[int, str]]:
    """Jobs that lose their work faster than they save it, or whose nodes are hardly ever up together, and why."""
    failures, found = settings.failures, []
    assert failures is not None
    for job in np.flatnonzero(of_job >= 0):
        widest = max(pool.per_node for pool, may in zip(site.pools, partly[of_job[job]], strict=True) if may)
        nodes = -(-int(workload.devices[job]) // widest)
        longer = failures.times_longer(float(workload.duration_s[job]), nodes, settings.restart_s)
        share = together[of_job[job]]
        if longer > MOST_TIMES_LONGER:
            between = failures.mtbf_s / nodes
            text = f"on {nodes} node{'s' if nodes > 1 else ''} a failure comes every {between:g} s, before it has saved"
            found.append((int(job), f"{text} its work: it would hardly ever end"))
        elif longer > MOST_TIMES_LONGER * share:
            text = f"needs {nodes} node{'s' if nodes > 1 else ''} at once, and so many are up {share:.1g} of the time"
            found.append((int(job), f"{text} only: it would hardly ever end"))
    return found


def _homes(workload: JobWorkload, site: JobSite) -> Ints:
    """Domain of each job's data by the site's numbers."""
    place = {name: index for index, name in enumerate(site.domains)}
    words = np.array([*(place.get(name, _NOWHERE) for name in workload.domains), -1], np.int64)
    return np.where(workload.data_gb > 0, words[workload.data_at], -1)


def _asks(workload: JobWorkload, site: JobSite, home: Ints) -> tuple[list[tuple[int, float, int]], Ints]:
    """What jobs ask of a pool (kinds, memory, data), each combination once, and whose is which (n,)."""
    steps = np.unique([pool.memory_gb for pool in site.pools])
    memory = np.searchsorted(steps, workload.memory_gb)
    found, asked = np.unique(np.stack([workload.runs_on, memory, home], axis=1), axis=0, return_inverse=True)
    least = np.append(steps, np.inf)
    asks = [(int(kinds), float(least[step]) if step < len(steps) else np.nan, int(at)) for kinds, step, at in found]
    return asks, asked.reshape(-1)


def _usable(workload: JobWorkload, site: JobSite, ask: tuple[int, float, int]) -> list[bool]:
    """(P,) pools of the right kind with the memory, which the data can reach."""
    kinds, memory_gb, home = ask
    wanted = workload.device_kinds[kinds]
    found = []
    for pool in site.pools:
        domain = site.domains.index(pool.domain)
        reached = home == -1 or home == domain or (home >= 0 and site.bandwidth_bytes_per_s[home][domain] > 0)
        found.append((not wanted or pool.kind in wanted) and pool.memory_gb >= memory_gb and reached)
    return found


def _rows(workload: JobWorkload, slowdown: Slowdown, settings: ReplayRules) -> Ints:
    """(n,) the row of each job in the table of slowdowns; 0 inside one domain only."""
    if settings.span == "never" or not slowdown.kinds:
        return np.zeros(len(workload), np.int64)
    return slowdown.rows(workload)


def _sets(
    found: Ints, partly: Flags, allowed: Flags, *, site: JobSite, settings: ReplayRules, slowdown: Slowdown
) -> Ints:
    """(S, M) sets of two domains or more that each shape may span, least slowdown first."""
    listed: list[list[int]] = []
    for (devices, row), parts, whole in zip(found[:, 1:3], partly, allowed, strict=True):
        may = settings.span == "free" or (settings.span == "must" and not whole.any())
        listed.append(_sets_of_row(int(devices), slowdown.factor[row], parts, site) if may and row > 0 else [])
    sets = np.full((len(found), 1 + max((len(each) for each in listed), default=0)), -1, np.int64)
    for shape, each in enumerate(listed):
        sets[shape, : len(each)] = each
    return sets


def _sets_of_row(devices: int, factor: NDArray[np.float64], parts: Flags, site: JobSite) -> list[int]:
    largest = np.zeros(min(len(site.domains), MOST_DOMAINS), np.int64)  # pool that a part may use, per domain
    for pool, usable in zip(site.pools, parts, strict=True):
        domain = site.domains.index(pool.domain)
        if usable and domain < len(largest):
            largest[domain] = max(largest[domain], pool.devices)
    fitting = []
    for domains in np.flatnonzero(np.isfinite(factor)):
        members = [domain for domain in range(len(largest)) if int(domains) >> domain & 1]
        part, rest = divmod(devices, len(members)) if members else (0, 1)
        if len(members) > 1 and rest == 0 and min(largest[member] for member in members) >= part:
            fitting.append((float(factor[domains]), int(domains)))
    return [domains for _, domains in sorted(fitting)]


def _groups(allowed: Flags) -> tuple[Ints, Ints]:
    """(G,) sets of pools that jobs may use, and (S,) whose is which; one for all where they are too many.

    A set is a number of bits; where there are more than ``MOST_POOLS`` it is -1: all pools.
    """
    if allowed.shape[1] > MOST_POOLS:
        return np.array([-1]), np.zeros(len(allowed), np.int64)
    reach = allowed.astype(np.int64) @ (1 << np.arange(allowed.shape[1], dtype=np.int64))
    found, group = np.unique(reach, return_inverse=True)
    if len(found) > MOST_GROUPS or not len(found):
        return np.bitwise_or.reduce(found, keepdims=True), np.zeros(len(allowed), np.int64)
    return found, group.reshape(-1)


def _no_place(workload: JobWorkload, site: JobSite, job: int, *, home: int, usable: Flags) -> str:
    """Why no device of the site can run a job; empty: some can."""
    wanted = workload.device_kinds[workload.runs_on[job]]
    kinds = [pool for pool in site.pools if not wanted or pool.kind in wanted]
    if not kinds:
        return f"runs on {' or '.join(wanted)} only; the site has {', '.join(site.kinds)}"
    roomy = [pool for pool in kinds if pool.memory_gb >= workload.memory_gb[job]]
    if not roomy:
        most = max(pool.memory_gb for pool in kinds)
        return f"needs {workload.memory_gb[job]:g} GB per device; the largest has {most:g} GB"
    if home == _NOWHERE:
        return f"its data lie in '{workload.domains[workload.data_at[job]]}', which the site has not"
    return "" if usable.any() else f"no link leads from its data in '{site.domains[home]}' to devices that it could use"


def _too_far(workload: JobWorkload, job: int, *, known: bool, near: Flags) -> str:
    """Why a job that serves can do so from no domain; empty: from some."""
    if near.any():
        return ""
    at = workload.client_domains[workload.clients_at[job]]
    if not known:
        return f"its clients are in '{at}', which the site has not"
    bound_ms = workload.latency_bound_s[job] * 1e3
    return f"no devices that it could use are ever within {bound_ms:g} ms of its clients in '{at}'"


def _too_wide(workload: JobWorkload, site: JobSite, job: int, *, usable: Flags, row: int, settings: ReplayRules) -> str:
    """Why a job that the devices of no single domain can hold does not span either."""
    devices, pools = int(workload.devices[job]), [pool for pool, may in zip(site.pools, usable, strict=True) if may]
    text = f"needs {devices} devices at once; the largest domain has {max(pool.devices for pool in pools)}"
    if settings.span == "never":
        return f"{text}, and jobs may not span domains"
    if sum(pool.devices for pool in pools) < devices:
        return f"{text}, and all together {sum(pool.devices for pool in pools)}"
    if row == INSIDE:
        return f"{text}, and over several domains nobody can plan it on these devices"
    return f"{text}, and no set of domains can run it in equal parts"
