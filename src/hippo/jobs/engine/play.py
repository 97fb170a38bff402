"""A whole replay: ``play`` gives the account of a workload on a site under a policy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.engine import learned_keys
from hippo.jobs.engine import world as c
from hippo.jobs.engine.decide import decide
from hippo.jobs.engine.elastic import go_over
from hippo.jobs.engine.flows import carries, network_moves, share
from hippo.jobs.engine.heaps import join, set_due
from hippo.jobs.engine.keys import find_shares, key, served
from hippo.jobs.engine.opening import Opening, open_world
from hippo.jobs.engine.running import break_or_repair, came, give_up_hope, happen, look_for_clients, tenants_change
from hippo.jobs.engine.world import Floats, QueueWorld
from hippo.jobs.learned.state import LearnedSetup
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.slowdown import Slowdown
from hippo.jobs.policies.policy import QueuePolicy
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

STRIDE = 20_000
"""Instants between two calls of ``watch``."""
PATIENCE, PATIENT_WITH_ALL = 2_048, 131_072
"""Instants in which nothing comes but failures and repairs, and no job that runs can end: then none will. More where
all jobs wait: for nodes that are seldom up together."""
SCAN = 64
"""Instants from one look for that to the next."""


def play(
    workload: JobWorkload,
    site: JobSite,
    policy: QueuePolicy,
    settings: ReplayRules | None = None,
    *,
    slowdown: Slowdown | None = None,
    segments: bool = False,
    learner: LearnedSetup | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> Ledger:
    """Replay a workload.

    ``slowdown``: what spanning costs (default: no job spans). ``segments``: write down who held what when, by
    which the tests judge that no pool gives more than it has. ``learner``: weights and past of the learned policy
    (default: the weights that ship, no past). ``watch(jobs done, jobs)`` is called now and then.
    """
    settings = settings or ReplayRules()
    rows = 4 * len(workload) + 1024 if segments else 0
    while True:
        opening = open_world(workload, site, policy, settings, slowdown=slowdown, segments=rows, learner=learner)
        world = opening.world
        while run(world, STRIDE):
            if watch is not None:
                watch(int(world.tally[c.N_DONE]), len(workload))
        if world.tally[c.SEGMENTS] <= rows or not segments:
            return ledger(opening, policy.name)
        rows = int(world.tally[c.SEGMENTS])


@kernel(lean=True)
def run(w, instants):  # type: ignore[no-untyped-def]
    """Play so many instants; False: nothing is left to do."""
    for _ in range(instants):
        if not advance(w):
            return False
        decide(w)
        if w.links.tally[c.UNSHARED] == 1:
            share(w)
    return True


def ledger(opening: Opening, policy: str) -> Ledger:
    """The account of a world that has been played."""
    world = opening.world
    job, mark = world.job, world.mark
    done = mark[:, c.STATUS] == c.DONE
    late = "its clients came to be farther than its bound from all devices that it could use, and stayed there"
    known = {job for job, _ in opening.refused}
    given_up = ((job, late) for job in np.flatnonzero(mark[:, c.STATUS] == c.REFUSED).tolist() if job not in known)
    refused = tuple(sorted((*opening.refused, *given_up, *_left(opening))))
    assert world.links.tally[c.TOO_MANY] == 0, "more transfers at once than there is room for"
    assert done.sum() + len(refused) == len(job), "jobs are left that neither ran nor were refused"
    taken = world.tally[c.SEGMENTS] if len(world.segment) else 0
    time_s, busy, waiting = _series(world)
    pools = world.pool[:, c.POOL_DEVICES].size
    return Ledger(
        policy=policy,
        first_start_s=np.where(done, job[:, c.FIRST], np.nan),
        finish_s=np.where(done, job[:, c.FINISH], np.nan),
        run_s=np.where(done, job[:, c.RUN], np.nan),
        moved_gb=job[:, c.MOVED].copy(),
        late_s=job[:, c.LATE_S].copy(),
        preemptions=mark[:, c.STOPS].copy(),
        failures=mark[:, c.FAILED].copy(),
        slowdown=_slowdown(job[:, c.RATE], done),
        pool=np.where(done, mark[:, c.POOL], -1),
        refused=refused,
        events=int(world.tally[c.EVENTS]),
        busy_device_s=world.series[:, :pools].sum(axis=0),
        link_gb=world.links.moved_gb + world.links.exchanged_gb,
        exchange_usd=job[:, c.USD].copy(),  # that of flows is in link_gb
        time_s=time_s,
        busy_devices=busy,
        waiting_jobs=waiting,
        segments=(world.segment[:taken], world.segment_s[:taken]) if len(world.segment) else None,
    )


def _slowdown(rate: Floats, done: NDArray[np.bool_]) -> Floats:
    """(n,) seconds of work of those who are done, as quick as they were last."""
    found = np.where(done, np.inf, np.nan)
    np.divide(1.0, rate, out=found, where=done & (rate > 0.0))
    return found


def _left(opening: Opening) -> list[tuple[int, str]]:
    """Who is there still when nothing is to come any more, and behind which link; but those who are refused already."""
    world, known = opening.world, {job for job, _ in opening.refused}
    links, status = world.links, world.mark[:, c.STATUS]
    waits = "waits for ever for devices: who holds them never ends, or too few are ever free together"
    found = dict.fromkeys(np.flatnonzero(status == c.WAITING).tolist(), waits)
    for job in found:
        sets = world.sets[world.mark[job, c.SHAPE]]
        spans = [int(each) for each in sets if each >= 0]
        if spans and not any(carries(world, job, each) for each in spans):
            route = world.route[world.exchange[world.mark[job, c.ROW], spans[0]] - len(world.offers.form)]
            at = [int(domain) for domain in route if domain >= 0]
            dead = [(here, there) for here in at for there in at if links.capacity[here, there] <= 0.0]
            found[job] = "can never begin" + "".join(_cut(opening, *each) for each in dead[:1])
    for job in np.flatnonzero(status == c.RUNNING).tolist():
        sent = [links.transfer[each] for each in links.active[: links.tally[c.TRANSFERS]]]
        over = [(row[c.SENT_FROM], row[c.SENT_TO]) for row in sent if row[c.SENT_FOR] == job]
        parts = [part for part in world.part[job].tolist() if part >= 0] if world.mark[job, c.OFFER] >= 0 else []
        over += [(here, there) for here in parts for there in parts if here != there]
        dead = [(int(here), int(there)) for here, there in over if links.capacity[here, there] <= 0.0]
        found[job] = "can never end" + "".join(_cut(opening, *each) for each in dead[:1])
    return [(job, why) for job, why in found.items() if job not in known]


def _cut(opening: Opening, here: int, there: int) -> str:
    """What is to be said of a link that carries nothing any more."""
    links = opening.world.links
    carries = np.flatnonzero(links.history[:, here, there] > 0.0)
    since_s = float(links.time_s[carries[-1] + 1]) if len(carries) else float(links.time_s[0])
    between = f"{opening.domains[here]} -> {opening.domains[there]}"
    return f": what it needs waits behind the link {between}, which carries nothing from {since_s:.0f} s on"


def _series(world: QueueWorld) -> tuple[Floats, Floats, Floats]:
    """Ends of the bins of time, devices at work (T, P) and jobs that waited (T,), each the mean of its bin."""
    start_s, now_s, width = world.clock[c.STARTED_AT], world.clock[c.NOW], world.clock[c.BIN_WIDTH]
    count = min(int(np.ceil((now_s - start_s) / width)), len(world.series))
    ends = np.minimum(start_s + np.arange(1, count + 1) * width, now_s)
    lasts = np.maximum(np.diff(ends, prepend=start_s), 1e-9)[:, None]
    means = world.series[:count] / lasts
    return ends, means[:, :-1], means[:, -1]


@kernel(lean=True)
def advance(w):  # type: ignore[no-untyped-def]
    """Go to the next instant; False: nothing is to come."""
    if w.tally[c.N_DONE] == len(w.job):
        return False
    arrived, now = w.tally[c.ARRIVED], np.inf
    if arrived < len(w.job):
        now = w.job[arrived, c.ARRIVAL]
    if w.tally[c.HEAP] > 0:
        now = min(now, w.due[w.heap[0]])
    if now == np.inf or (arrived == len(w.job) and _is_stuck(w)):
        return False
    _account(w, now)
    w.clock[c.NOW] = now
    while w.tally[c.HEAP] > 0 and w.due[w.heap[0]] <= now:
        _item(w, w.heap[0], now)
    while w.tally[c.ARRIVED] < len(w.job) and w.job[w.tally[c.ARRIVED], c.ARRIVAL] <= now:
        _arrive(w, w.tally[c.ARRIVED], now)
        w.tally[c.ARRIVED] += 1
    if w.by_share and w.tally[c.SHARES_OLD] > 0:
        find_shares(w)
        w.tally[c.SHARES_OLD] = 0
    return True


@kernel(lean=True)
def pass_time(w, now):  # type: ignore[no-untyped-def]
    """Let it be ``now`` where nothing was due until then, for a site whose news come from outside."""
    _account(w, now)
    w.clock[c.NOW] = now


@kernel(lean=True)
def _is_stuck(w):  # type: ignore[no-untyped-def]
    """Whether those that are there can never end: their data, state or exchange wait behind links that carry nothing
    and will not move again, while nodes fail and are repaired for ever."""
    w.tally[c.STUCK] += 1
    if w.tally[c.STUCK] % SCAN:
        return False
    links = w.links
    comes = links.tally[c.STATE_NOW] < len(links.time_s) - 1 or w.tally[c.TENANT] < len(w.tenant)
    for at in range(links.tally[c.TRANSFERS]):
        transfer = links.active[at]
        comes |= w.due[len(w.job) + len(w.bin) + c.FIRST_TRANSFER + transfer] < np.inf
    for job in range(len(w.job)):
        comes |= w.mark[job, c.STATUS] == c.RUNNING and w.job[job, c.FINISH] < np.inf
    if comes:
        w.tally[c.STUCK] = 0
    return w.tally[c.STUCK] >= (PATIENCE if w.tally[c.N_RUNNING] > 0 else PATIENT_WITH_ALL)


@kernel(lean=True)
def _item(w, item, now):  # type: ignore[no-untyped-def]
    """Whatever was due: of a job, of a node, or the end of a round."""
    if item < len(w.job):
        happen(w, item, now)
    elif item < len(w.job) + len(w.bin):
        break_or_repair(w, item - len(w.job), now)
    elif item >= len(w.job) + len(w.bin) + c.FIRST_TRANSFER:
        job = came(w, item - len(w.job) - len(w.bin) - c.FIRST_TRANSFER, now)
        if job >= 0:
            go_over(w, job)
    elif item == len(w.job) + len(w.bin) + c.TENANTS:
        tenants_change(w, now)
    elif item == len(w.job) + len(w.bin) + c.NETWORK:
        network_moves(w, now)
        look_for_clients(w)
    else:
        w.tally[c.ROUND_ENDS] = 1
        learned_keys.refresh(w, now)
        w.tally[c.EVENTS] += 1
        set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], item, np.inf)


@kernel(lean=True)
def _arrive(w, job, now):  # type: ignore[no-untyped-def]
    """A job comes, and waits; one that can never run is passed over."""
    mark = w.mark[job]
    if mark[c.STATUS] == c.REFUSED:
        w.tally[c.N_DONE] += 1
        return
    w.tally[c.EVENTS] += 1
    user = w.user[mark[c.USER]]
    if w.by_user and user[c.USER_JOBS] == 0.0:
        _catch_up(w, mark[c.USER], now)
    user[c.USER_JOBS] += 1
    group = w.group[w.shape[mark[c.SHAPE], c.SHAPE_GROUP]]
    group[c.GROUP_DEMAND] += mark[c.DEVICES]
    w.tally[c.SHARES_OLD] = 1
    if w.by_share:
        w.job[job, c.KNOWN_KEY] += group[c.GROUP_ENTITLED]
    mark[c.STATUS] = c.WAITING
    w.job[job, c.SINCE] = w.job[job, c.JOINED] = now
    learned_keys.arrived(w, job)
    learned_keys.learn(w, job, now)
    join(w, job, key(w, job, now))
    if w.clients[mark[c.SHAPE]] >= 0:
        give_up_hope(w, job)


@kernel(lean=True)
def _catch_up(w, user, now):  # type: ignore[no-untyped-def]
    """Who comes back has at least the service of the one who is there and has had least."""
    least = np.inf
    for other in range(len(w.user)):
        row = w.user[other]
        if row[c.USER_JOBS] > 0.0:
            least = min(least, served(w, other, now))
    if least < np.inf:
        row = w.user[user]
        row[c.USER_SERVED], row[c.USER_SINCE] = max(row[c.USER_SERVED], least), now


@kernel(lean=True)
def _account(w, until):  # type: ignore[no-untyped-def]
    """Add what stood since the last instant to the series and to what groups are entitled to."""
    now, pools, length = w.clock[c.NOW], len(w.pool), len(w.series)
    for group in range(len(w.group)):
        w.group[group, c.GROUP_ENTITLED] += w.group[group, c.GROUP_SHARE] * (until - now)
    while until - w.clock[c.STARTED_AT] >= length * w.clock[c.BIN_WIDTH]:
        _fold(w)
    start, width = w.clock[c.STARTED_AT], w.clock[c.BIN_WIDTH]
    while now < until:
        at = min(int((now - start) / width), length - 1)
        end = start + (at + 1) * width
        if end <= now:  # rounding
            at, end = min(at + 1, length - 1), start + (at + 2) * width
        part = min(until, end) - now
        for pool in range(pools):
            w.series[at, pool] += w.pool[pool, c.POOL_HELD] * part
        w.series[at, pools] += w.tally[c.N_WAITING] * part
        now = min(until, end)


@kernel(lean=True)
def _fold(w):  # type: ignore[no-untyped-def]
    """Make the series reach twice as far: two of its bins become one."""
    length = len(w.series)
    for at in range(length):
        for column in range(w.series.shape[1]):
            both = 0.0
            if 2 * at + 1 < length:
                both = w.series[2 * at, column] + w.series[2 * at + 1, column]
            w.series[at, column] = both
    w.clock[c.BIN_WIDTH] *= 2.0
