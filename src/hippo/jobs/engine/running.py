"""A job takes devices and starts, its data follow, it is stopped, crosses a level of service, ends; nodes fail."""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import learned_keys
from hippo.jobs.engine import world as c
from hippo.jobs.engine.heaps import join, leave, rekey, set_due
from hippo.jobs.engine.keys import key


@kernel(lean=True)
def start(w, job, pool):  # type: ignore[no-untyped-def]
    """Run a job that waits on free devices of one pool."""
    take(w, job, pool, w.mark[job, c.DEVICES])
    w.mark[job, c.POOL] = pool
    there = fetch(w, job, w.pool[pool, c.POOL_DOMAIN], w.job[job, c.GB], w.clock[c.NOW])
    _begin(w, job, 0, there, w.speed[pool], 0.0)


@kernel(lean=True)
def start_over(w, job, domains, parts):  # type: ignore[no-untyped-def]
    """Run a job that waits over a set of domains, an equal part on free devices of each."""
    speed, domain, rest = np.inf, 0, domains
    shape, part, row = w.mark[job, c.SHAPE], w.mark[job, c.DEVICES] // parts, w.mark[job, c.ROW]
    w.mark[job, c.POOL] = -1
    while rest > 0:
        if rest & 1:
            pool = part_pool(w, shape, domain, part)
            take(w, job, pool, part)
            speed = min(speed, w.speed[pool])
            if w.mark[job, c.POOL] < 0:
                w.mark[job, c.POOL] = pool
        rest >>= 1
        domain += 1
    there = fetch_to_set(w, job, domains, w.clock[c.NOW])
    _begin(w, job, domains, there, speed / w.factor[row, domains], w.usd_per_s[row, domains])


@kernel(lean=True)
def part_pool(w, shape, domain, devices):  # type: ignore[no-untyped-def]
    """The first pool of a domain with room for a part of a job, -1: none."""
    for pool in range(len(w.pool)):
        if w.pool[pool, c.POOL_DOMAIN] == domain and w.partly[shape, pool] and w.pool[pool, c.POOL_FREE] >= devices:
            return pool
    return -1


@kernel(lean=True)
def _begin(w, job, domains, there, rate, usd_per_s):  # type: ignore[no-untyped-def]
    """Times of a run that begins now; ``domains``: the set that it spans, ``there``: when its data are with it."""
    leave(w, job)
    now, row, mark = w.clock[c.NOW], w.job[job], w.mark[job]
    stopped = mark[c.STOPS] + mark[c.FAILED] > 0
    ready = now + (w.restart_s if stopped else 0.0)
    if w.before:
        ready = max(ready, there)
    row[c.BEGAN], row[c.READY], row[c.RATE], row[c.USD_PER_S] = now, ready, rate, usd_per_s
    row[c.FINISH] = max(ready + row[c.LEFT] / rate, there)
    row[c.SLOWDOWN] = 1.0 / rate
    if not stopped:
        row[c.FIRST] = now
    mark[c.STATUS], mark[c.DOMAINS] = c.RUNNING, domains
    w.tally[c.N_RUNNING] += 1
    w.tally[c.EVENTS] += 1
    _count_for_user(w, job, now, mark[c.DEVICES])
    _look_ahead(w, job)


@kernel(lean=True)
def _count_for_user(w, job, now, devices):  # type: ignore[no-untyped-def]
    user = w.user[w.mark[job, c.USER]]
    user[c.USER_SERVED] += user[c.USER_DEVICES] * (now - user[c.USER_SINCE])
    user[c.USER_SINCE] = now
    user[c.USER_DEVICES] += devices


@kernel(lean=True)
def _look_ahead(w, job):  # type: ignore[no-untyped-def]
    """When a running job ends or crosses its next level, whichever is first."""
    row, level = w.job[job], w.mark[job, c.LEVEL]
    due = row[c.FINISH]
    if level < len(w.levels):
        per_s = float(w.mark[job, c.DEVICES]) if w.per_device else 1.0
        lacks = w.levels[level] / per_s - row[c.HELD]
        due = min(due, row[c.READY] + max(0.0, lacks))
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], job, due)


@kernel(lean=True)
def happen(w, job, now):  # type: ignore[no-untyped-def]
    """What a job was due for: it ends, crosses a level, or has waited so long that it is promoted."""
    mark, row = w.mark[job], w.job[job]
    w.tally[c.EVENTS] += 1
    if mark[c.STATUS] == c.WAITING:
        set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], job, np.inf)
        mark[c.LEVEL] = 0
        row[c.HELD] = 0.0
        row[c.JOINED] = now
        rekey(w, job, key(w, job, now))
    elif row[c.FINISH] <= now:
        _finish(w, job, now)
    else:
        mark[c.LEVEL] += 1
        row[c.JOINED] = now
        learned_keys.learn(w, job, now)
        _look_ahead(w, job)


@kernel(lean=True)
def _end_run(w, job, now):  # type: ignore[no-untyped-def]
    """Settle a run that ends now, and give its devices back."""
    row, mark = w.job[job], w.mark[job]
    ran = now - row[c.BEGAN]
    row[c.HELD] += max(0.0, now - row[c.READY])
    row[c.RUN] += ran
    row[c.SERVED] += ran * row[c.RATE]
    row[c.USD] += max(0.0, now - row[c.READY]) * row[c.USD_PER_S]
    _count_for_user(w, job, now, -mark[c.DEVICES])
    if len(w.segment) > 0:
        _draw(w, job, now)
    give_back(w, job)
    w.tally[c.N_RUNNING] -= 1


@kernel(lean=True)
def _draw(w, job, now):  # type: ignore[no-untyped-def]
    """Write down what a run held; counts on where there is no room, so that whoever asked can make some."""
    piece = w.mark[job, c.PIECE]
    while piece >= 0:
        at = w.tally[c.SEGMENTS]
        if at < len(w.segment):
            pool = w.bin[w.piece[piece, c.PIECE_BIN], c.BIN_POOL]
            w.segment[at, 0], w.segment[at, 1], w.segment[at, 2] = job, pool, w.piece[piece, c.PIECE_DEVICES]
            w.segment_s[at, 0], w.segment_s[at, 1] = w.job[job, c.BEGAN], now
        w.tally[c.SEGMENTS] += 1
        piece = w.piece[piece, c.PIECE_OF_JOB]


@kernel(lean=True)
def _finish(w, job, now):  # type: ignore[no-untyped-def]
    _end_run(w, job, now)
    w.job[job, c.LEFT] = 0.0
    w.mark[job, c.STATUS] = c.DONE
    w.tally[c.N_DONE] += 1
    w.user[w.mark[job, c.USER], c.USER_JOBS] -= 1
    w.group[w.shape[w.mark[job, c.SHAPE], c.SHAPE_GROUP], c.GROUP_DEMAND] -= w.mark[job, c.DEVICES]
    w.tally[c.SHARES_OLD] = 1
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], job, np.inf)
    learned_keys.finished(w, job)


@kernel(lean=True)
def stop(w, job, failed):  # type: ignore[no-untyped-def]
    """Stop a job that runs; it waits again. ``failed``: by a broken node, so work since its checkpoint is lost."""
    now, row, mark = w.clock[c.NOW], w.job[job], w.mark[job]
    _end_run(w, job, now)
    computed = max(0.0, now - row[c.READY])
    if failed:
        computed = np.floor(computed / w.checkpoint_s) * w.checkpoint_s
        mark[c.FAILED] += 1
    else:
        mark[c.STOPS] += 1
    row[c.LEFT] = max(0.0, row[c.LEFT] - computed * row[c.RATE])
    row[c.WORKED] += computed * row[c.RATE]
    row[c.SINCE] = now
    mark[c.STATUS] = c.WAITING
    w.tally[c.EVENTS] += 1
    due = np.inf
    if w.promotes_after < np.inf and mark[c.LEVEL] > 0:
        due = now + w.promotes_after * row[c.HELD]
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], job, due)
    join(w, job, key(w, job, now))


@kernel(lean=True)
def take(w, job, pool, devices):  # type: ignore[no-untyped-def]
    """Devices of a pool that has as many: in the fullest node that has room for all, else in the emptiest ones."""
    w.pool[pool, c.POOL_FREE] -= devices
    w.pool[pool, c.POOL_HELD] += devices
    first, last = w.pool[pool, c.POOL_FIRST], w.pool[pool, c.POOL_LAST]
    while devices > 0:
        chosen = -1
        for each in range(first, last):
            free = w.bin[each, c.BIN_FREE]
            if w.bin[each, c.BIN_UP] == 0 or free == 0:
                continue
            most = w.bin[chosen, c.BIN_FREE] if chosen >= 0 else 0
            better = free < most if free >= devices and most >= devices else free > most
            if better:
                chosen = each
        taken = min(devices, w.bin[chosen, c.BIN_FREE])
        _hold(w, job, chosen, taken)
        devices -= taken


@kernel(lean=True)
def _hold(w, job, where, devices):  # type: ignore[no-untyped-def]
    """A new piece."""
    new = w.tally[c.FREE_PIECE]
    row = w.piece[new]
    w.tally[c.FREE_PIECE] = row[c.PIECE_NEXT]
    after = w.bin[where, c.BIN_FIRST]
    row[c.PIECE_JOB], row[c.PIECE_BIN], row[c.PIECE_DEVICES] = job, where, devices
    row[c.PIECE_NEXT], row[c.PIECE_BEFORE], row[c.PIECE_OF_JOB] = after, -1, w.mark[job, c.PIECE]
    if after >= 0:
        w.piece[after, c.PIECE_BEFORE] = new
    w.bin[where, c.BIN_FIRST] = new
    w.bin[where, c.BIN_FREE] -= devices
    w.mark[job, c.PIECE] = new


@kernel(lean=True)
def give_back(w, job):  # type: ignore[no-untyped-def]
    """All that a job holds."""
    piece = w.mark[job, c.PIECE]
    while piece >= 0:
        row = w.piece[piece]
        where, devices, before, after = row[c.PIECE_BIN], row[c.PIECE_DEVICES], row[c.PIECE_BEFORE], row[c.PIECE_NEXT]
        if before >= 0:
            w.piece[before, c.PIECE_NEXT] = after
        else:
            w.bin[where, c.BIN_FIRST] = after
        if after >= 0:
            w.piece[after, c.PIECE_BEFORE] = before
        w.bin[where, c.BIN_FREE] += devices
        w.pool[w.bin[where, c.BIN_POOL], c.POOL_FREE] += devices
        w.pool[w.bin[where, c.BIN_POOL], c.POOL_HELD] -= devices
        row[c.PIECE_NEXT] = w.tally[c.FREE_PIECE]
        w.tally[c.FREE_PIECE] = piece
        piece = row[c.PIECE_OF_JOB]
    w.mark[job, c.PIECE] = -1


@kernel(lean=True)
def is_far(w, job, domain, gb):  # type: ignore[no-untyped-def]
    """Whether some of ``gb`` must still be sent to a domain."""
    home = w.mark[job, c.HOME]
    return gb > 0.0 and home >= 0 and home != domain and w.there[job, domain, 0] < gb


@kernel(lean=True)
def fetch(w, job, domain, gb, now):  # type: ignore[no-untyped-def]
    """Send what a domain lacks of ``gb``, once the link is free; returns when all is there."""
    home = w.mark[job, c.HOME]
    if gb <= 0.0 or home < 0 or home == domain:
        return now
    missing = gb - w.there[job, domain, 0]
    if missing > 0.0:
        link = w.link[home, domain]
        begins = max(now, link[2])
        link[2] = begins + missing * 1e9 / link[0]
        w.there[job, domain, 0] = gb
        w.there[job, domain, 1] = link[2] + link[1]
        w.link_gb[home, domain] += missing
        w.job[job, c.MOVED] += missing
    return max(now, w.there[job, domain, 1])


@kernel(lean=True)
def fetch_to_set(w, job, domains, now):  # type: ignore[no-untyped-def]
    """The same for a set of domains, to each an equal part; returns when the last is there."""
    count, rest, domain, there = 0, domains, 0, now
    while rest > 0:
        count += rest & 1
        rest >>= 1
    rest = domains
    while rest > 0:
        if rest & 1:
            there = max(there, fetch(w, job, domain, w.job[job, c.GB] / count, now))
        rest >>= 1
        domain += 1
    return there


@kernel(lean=True)
def try_start(w, job):  # type: ignore[no-untyped-def]
    """Start a job on what is free: inside one domain if it can, else over several if it may."""
    pool = find_pool(w, job)
    if pool >= 0:
        start(w, job, pool)
        return True
    domains, parts = find_set(w, job)
    if domains > 0:
        start_over(w, job, domains, parts)
        return True
    return False


@kernel(lean=True)
def find_pool(w, job):  # type: ignore[no-untyped-def]
    """The pool for it, -1: none has room. Best: where its data lie, then the fastest, then the fullest, then first."""
    shape, devices, gb = w.mark[job, c.SHAPE], w.mark[job, c.DEVICES], w.job[job, c.GB]
    best, best_far, best_speed, best_free = -1, True, 0.0, 0
    for pool in range(len(w.pool)):
        free = w.pool[pool, c.POOL_FREE]
        if free < devices or not w.allowed[shape, pool]:
            continue
        far, speed = is_far(w, job, w.pool[pool, c.POOL_DOMAIN], gb), w.speed[pool]
        if best < 0:
            better = True
        elif far != best_far:
            better = best_far
        elif speed != best_speed:
            better = speed > best_speed
        else:
            better = free < best_free
        if better:
            best, best_far, best_speed, best_free = pool, far, speed, free
    return best


@kernel(lean=True)
def find_set(w, job):  # type: ignore[no-untyped-def]
    """The set of domains for it and how many they are; (0, 0): none that it may span has room."""
    shape = w.mark[job, c.SHAPE]
    for at in range(w.sets.shape[1]):
        domains = w.sets[shape, at]
        if domains < 0:
            break
        parts = size_of_set(domains)
        part, domain, rest = w.mark[job, c.DEVICES] // parts, 0, domains
        while rest > 0:
            if rest & 1 and part_pool(w, shape, domain, part) < 0:
                break
            rest >>= 1
            domain += 1
        if rest == 0:
            return domains, parts
    return 0, 0


@kernel(lean=True)
def size_of_set(domains):  # type: ignore[no-untyped-def]
    """How many domains a set holds."""
    count = 0
    while domains > 0:
        count += domains & 1
        domains >>= 1
    return count


@kernel(lean=True)
def time_to_failure(seed, node, count, mtbf_s):  # type: ignore[no-untyped-def]
    """Seconds that a node works before its failure number ``count`` (0, 1, ...): exponential, by SplitMix64."""
    mixed = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(node) * np.uint64(0xD1B54A32D192ED03)
    mixed += np.uint64(count + 1) * np.uint64(0x8CB92BA72F3D8DD7)
    for _ in range(2):
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    share = (np.float64(mixed >> np.uint64(11)) + 1.0) / 9007199254740992.0
    return -np.log(share) * mtbf_s


@kernel(lean=True)
def break_or_repair(w, node, now):  # type: ignore[no-untyped-def]
    """A node that works fails: its jobs stop. A broken one comes back."""
    row, pool = w.bin[node], w.bin[node, c.BIN_POOL]
    w.tally[c.EVENTS] += 1
    if row[c.BIN_UP] == 1:
        while row[c.BIN_FIRST] >= 0:
            stop(w, w.piece[row[c.BIN_FIRST], c.PIECE_JOB], True)
        row[c.BIN_UP] = 0
        row[c.BIN_FAILURES] += 1
        w.pool[pool, c.POOL_FREE] -= row[c.BIN_SIZE]
        due = now + w.repair_s
    else:
        row[c.BIN_UP] = 1
        w.pool[pool, c.POOL_FREE] += row[c.BIN_SIZE]
        due = now + time_to_failure(w.seed, node, row[c.BIN_FAILURES], w.mtbf_s)
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], len(w.job) + node, due)
