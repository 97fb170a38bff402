"""A job takes devices and starts, its data follow, it is stopped, crosses a level of service, ends; nodes fail."""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import learned_keys
from hippo.jobs.engine import world as c
from hippo.jobs.engine.flows import (
    begin_exchange,
    carries,
    crosses_s,
    data_there,
    drop,
    end_exchange,
    end_streams,
    find_finish,
    give_up_state,
    next_due,
    rate_alone,
    send,
    settle,
    stream_is_in_step,
    transfer_is_due,
)
from hippo.jobs.engine.heaps import join, leave, rekey, set_due
from hippo.jobs.engine.keys import key


@kernel(lean=True)
def start(w, job, pool):  # type: ignore[no-untyped-def]
    """Run a job that waits on free devices of one pool."""
    take(w, job, pool, w.mark[job, c.DEVICES])
    w.mark[job, c.POOL], w.mark[job, c.HOLDS], w.mark[job, c.OFFER] = pool, w.mark[job, c.DEVICES], -1
    fetch(w, job, w.pool[pool, c.POOL_DOMAIN], w.job[job, c.GB])
    begin_run(w, job, 0, w.speed[pool], 0.0)


@kernel(lean=True)
def start_over(w, job, domains, parts):  # type: ignore[no-untyped-def]
    """Run a gang that waits over a set of domains, an equal part on free devices of each."""
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
    w.mark[job, c.HOLDS] = w.mark[job, c.DEVICES]
    _fetch_to_set(w, job, domains)
    offer = w.exchange[row, domains]
    w.mark[job, c.OFFER] = offer
    if offer < 0:
        begin_run(w, job, domains, speed / w.factor[row, domains], w.usd_per_s[row, domains])
        return
    route = w.route[offer - len(w.offers.form) + len(w.route)]
    for at in range(len(route)):
        w.part[job, at] = route[at]
    begin_run(w, job, domains, rate_alone(w, offer, route), 0.0)


@kernel(lean=True)
def part_pool(w, shape, domain, devices):  # type: ignore[no-untyped-def]
    """The first pool of a domain with room for a part of a job, -1: none."""
    for pool in range(len(w.pool)):
        if w.pool[pool, c.POOL_DOMAIN] == domain and w.partly[shape, pool] and w.pool[pool, c.POOL_FREE] >= devices:
            return pool
    return -1


@kernel(lean=True)
def begin_run(w, job, domains, rate, usd_per_s):  # type: ignore[no-untyped-def]
    """Times of a run that begins now, its data under way; ``domains``: the set that a gang spans."""
    leave(w, job)
    now, row, mark = w.clock[c.NOW], w.job[job], w.mark[job]
    stopped = mark[c.STOPS] + mark[c.FAILED] > 0
    row[c.BEGAN], row[c.AS_OF], row[c.RATE], row[c.USD_PER_S] = now, now, rate, usd_per_s
    row[c.LATE_SINCE] = np.inf
    row[c.DONE_IN_RUN], row[c.SAVED] = 0.0, 0.0
    if not stopped:
        row[c.FIRST] = now
    mark[c.STATUS], mark[c.DOMAINS] = c.RUNNING, domains
    _find_ends(w, job)
    w.tally[c.N_RUNNING] += 1
    w.tally[c.EVENTS] += 1
    count_for_user(w, job, now, mark[c.HOLDS])
    _look_ahead(w, job)


@kernel(lean=True)
def _find_ends(w, job):  # type: ignore[no-untyped-def]
    """When a run computes and when it ends, by what is known of its data and state; inf: they are on their way."""
    row, mark = w.job[job], w.mark[job]
    ready = row[c.BEGAN] + (w.restart_s if mark[c.STOPS] + mark[c.FAILED] > 0 else 0.0)
    if w.before:
        ready = max(ready, data_there(w, job))
    if mark[c.COMING] > 0:
        ready = np.inf
    elif mark[c.ELASTIC] == 1 and ready < w.clock[c.NOW]:  # its state has come now, or had come before
        ready = min(row[c.READY], w.clock[c.NOW])
    row[c.READY] = ready
    find_finish(w, job)


@kernel(lean=True)
def count_for_user(w, job, now, devices):  # type: ignore[no-untyped-def]
    """From now on a job holds so many devices more."""
    user = w.user[w.mark[job, c.USER]]
    user[c.USER_SERVED] += user[c.USER_DEVICES] * (now - user[c.USER_SINCE])
    user[c.USER_SINCE] = now
    user[c.USER_DEVICES] += devices


@kernel(lean=True)
def _look_ahead(w, job):  # type: ignore[no-untyped-def]
    """Wait for what a running job is due for next; it exchanges as soon as it computes."""
    row = w.job[job]
    if w.mark[job, c.OFFER] >= 0 and row[c.READY] <= w.clock[c.NOW] and row[c.LEFT] > 0.0:
        begin_exchange(w, job)
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], job, next_due(w, job))


@kernel(lean=True)
def happen(w, job, now):  # type: ignore[no-untyped-def]
    """What a job was due for: it ends, crosses a level, begins or ends to exchange, or has waited so long that it is
    promoted."""
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
    elif mark[c.OFFER] >= 0 and crosses_s(w, job) > now:
        if row[c.READY] <= now and row[c.ENDS] <= now:  # it waits for its data still
            settle(w, job, now)
            row[c.LEFT] = 0.0
            end_exchange(w, job)
            if mark[c.ELASTIC] == 1:
                give_up_move(w, job)
        _look_ahead(w, job)
    else:
        mark[c.LEVEL] += 1
        row[c.JOINED] = now
        learned_keys.learn(w, job, now)
        _look_ahead(w, job)


@kernel(lean=True)
def _end_run(w, job, now):  # type: ignore[no-untyped-def]
    """Settle a run that ends now, and give its devices back."""
    row, mark = w.job[job], w.mark[job]
    settle(w, job, now)
    row[c.HELD] += max(0.0, now - row[c.READY])
    row[c.RUN] += now - row[c.BEGAN]
    _served_late(row, now)
    end_exchange(w, job)
    if mark[c.ELASTIC] == 1:
        give_up_move(w, job)
    if mark[c.COMING] > 0:
        give_up_state(w, job)
    elif mark[c.ELASTIC] == 1 and row[c.READY] <= now:
        mark[c.STATE_AT] = w.part[job, 0]
    count_for_user(w, job, now, -mark[c.HOLDS])
    give_back(w, mark[c.PIECE], row[c.BEGAN])
    mark[c.PIECE] = -1
    w.tally[c.N_RUNNING] -= 1


@kernel(lean=True)
def give_up_move(w, job):  # type: ignore[no-untyped-def]
    """A move in the background that is on ends where it is; what it sent is lost."""
    going = w.going[job]
    if going[c.GOING_OFFER] >= 0:
        end_streams(w, job)
        count_for_user(w, job, w.clock[c.NOW], -going[c.GOING_HOLDS])
        give_back(w, going[c.GOING_PIECE], w.going_s[job])
        going[c.GOING_OFFER], going[c.GOING_PIECE] = -1, -1


@kernel(lean=True)
def evict(w, piece, failed):  # type: ignore[no-untyped-def]
    """Somebody else needs devices that a job holds: it stops, or, if they are those that it moves to, stays."""
    job = w.piece[piece, c.PIECE_JOB]
    if w.mark[job, c.ELASTIC] == 1 and w.going[job, c.GOING_OFFER] >= 0:
        other = w.going[job, c.GOING_PIECE]
        while other >= 0 and other != piece:
            other = w.piece[other, c.PIECE_OF_JOB]
        if other == piece:
            give_up_move(w, job)
            return
    stop(w, job, failed)


@kernel(lean=True)
def _served_late(row, now):  # type: ignore[no-untyped-def]
    """Clients of a job are near again, or it stops."""
    if row[c.LATE_SINCE] < np.inf:
        row[c.LATE_S] += max(0.0, now - max(row[c.LATE_SINCE], row[c.READY]))
        row[c.LATE_SINCE] = np.inf


@kernel(lean=True)
def look_for_clients(w):  # type: ignore[no-untyped-def]
    """Links have moved: who serves within a bound may begin where its clients are near now; where they are not, a job
    that runs is late, and one that waits and can never hope again is refused."""
    links = w.links
    for shape in range(len(w.clients)):
        at = w.clients[shape]
        if at >= 0:
            w.shape[shape, c.SHAPE_ALONE] = 0
            for pool in range(len(w.pool)):
                here = w.pool[pool, c.POOL_DOMAIN]
                far_s = max(links.latency[here, at], links.latency[at, here])
                cut = links.capacity[here, at] <= 0.0 or links.capacity[at, here] <= 0.0
                near = w.large_enough[shape, pool] and not cut and far_s <= w.bound_s[shape]
                w.allowed[shape, pool] = w.partly[shape, pool] = near
                if near:
                    w.shape[shape, c.SHAPE_ALONE] = 1
    for job in w.serving:
        row, mark = w.job[job], w.mark[job]
        if mark[c.STATUS] == c.RUNNING:
            if w.allowed[mark[c.SHAPE], mark[c.POOL]]:
                _served_late(row, w.clock[c.NOW])
            else:
                row[c.LATE_SINCE] = min(row[c.LATE_SINCE], w.clock[c.NOW])
        elif mark[c.STATUS] == c.WAITING:
            give_up_hope(w, job)


@kernel(lean=True)
def has_somewhere(w, shape):  # type: ignore[no-untyped-def]
    """Whether a shape could run now, were all devices free: not if its clients are too far from all of them."""
    return w.shape[shape, c.SHAPE_ALONE] == 1 or w.sets[shape, 0] >= 0


@kernel(lean=True)
def give_up_hope(w, job):  # type: ignore[no-untyped-def]
    """Refuse a job that waits until links move that will move no more."""
    mark = w.mark[job]
    if w.links.tally[c.STATE_NOW] < len(w.links.time_s) - 1 or has_somewhere(w, mark[c.SHAPE]):
        return
    leave(w, job)
    _leave_site(w, job)


@kernel(lean=True)
def withdraw(w, job):  # type: ignore[no-untyped-def]
    """A job that waits or runs is cancelled."""
    if w.mark[job, c.STATUS] == c.RUNNING:
        _end_run(w, job, w.clock[c.NOW])
    else:
        leave(w, job)
    _leave_site(w, job)


@kernel(lean=True)
def _leave_site(w, job):  # type: ignore[no-untyped-def]
    """A job that holds nothing is gone, its work undone."""
    mark = w.mark[job]
    mark[c.STATUS] = c.REFUSED
    w.tally[c.N_DONE] += 1
    w.user[mark[c.USER], c.USER_JOBS] -= 1
    w.group[w.shape[mark[c.SHAPE], c.SHAPE_GROUP], c.GROUP_DEMAND] -= mark[c.DEVICES]
    w.tally[c.SHARES_OLD] = 1
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], job, np.inf)


@kernel(lean=True)
def progressed(w, job, left):  # type: ignore[no-untyped-def]
    """A running job says how much of its work is left: what was thought of it gives way."""
    settle(w, job, w.clock[c.NOW])
    row = w.job[job]
    row[c.DONE_IN_RUN] += row[c.LEFT] - left
    row[c.LEFT] = left
    find_finish(w, job)
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], job, next_due(w, job))


@kernel(lean=True)
def _draw(w, piece, since):  # type: ignore[no-untyped-def]
    """Write down what was held; counts on where there is no room, so that whoever asked can make some."""
    while piece >= 0:
        at, row = w.tally[c.SEGMENTS], w.piece[piece]
        if at < len(w.segment):
            pool = w.bin[row[c.PIECE_BIN], c.BIN_POOL]
            w.segment[at, 0], w.segment[at, 1], w.segment[at, 2] = row[c.PIECE_JOB], pool, row[c.PIECE_DEVICES]
            w.segment_s[at, 0], w.segment_s[at, 1] = since, w.clock[c.NOW]
        w.tally[c.SEGMENTS] += 1
        piece = row[c.PIECE_OF_JOB]


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
    if failed:
        row[c.LEFT] += row[c.DONE_IN_RUN] - row[c.SAVED]
        row[c.DONE_IN_RUN] = row[c.SAVED]
    mark[c.FAILED if failed else c.STOPS] += 1
    row[c.WORKED] += row[c.DONE_IN_RUN]
    row[c.SINCE] = now
    mark[c.STATUS] = c.WAITING
    w.tally[c.EVENTS] += 1
    due = np.inf
    if w.promotes_after < np.inf and mark[c.LEVEL] > 0:
        due = now + w.promotes_after * row[c.HELD]
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], job, due)
    join(w, job, key(w, job, now))
    if w.clients[mark[c.SHAPE]] >= 0:
        give_up_hope(w, job)


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
        hold(w, job, chosen, taken)
        devices -= taken


@kernel(lean=True)
def hold(w, job, where, devices):  # type: ignore[no-untyped-def]
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
def give_back(w, piece, since):  # type: ignore[no-untyped-def]
    """A piece and all behind it of its job, held since then."""
    if len(w.segment) > 0:
        _draw(w, piece, since)
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


@kernel(lean=True)
def is_far(w, job, domain, gb):  # type: ignore[no-untyped-def]
    """Whether some of ``gb`` must still be sent to a domain."""
    home = w.mark[job, c.HOME]
    return gb > 0.0 and home >= 0 and home != domain and w.there[job, domain, 0] < gb


@kernel(lean=True)
def fetch(w, job, domain, gb):  # type: ignore[no-untyped-def]
    """Send what a domain lacks of ``gb``."""
    if is_far(w, job, domain, gb):
        missing, home = gb - w.there[job, domain, 0], w.mark[job, c.HOME]
        w.there[job, domain, 0], w.there[job, domain, 1] = gb, np.inf
        if w.links.capacity[home, domain] == np.inf and w.links.latency[home, domain] == 0.0:
            w.there[job, domain, 1] = w.clock[c.NOW]
            w.links.moved_gb[home, domain] += missing
            w.job[job, c.MOVED] += missing
        else:
            send(w, job, home, domain, c.DATA, missing * 1e9)


@kernel(lean=True)
def _fetch_to_set(w, job, domains):  # type: ignore[no-untyped-def]
    """The same for a set of domains, to each an equal part."""
    count, domain = size_of_set(domains), 0
    while domains > 0:
        if domains & 1:
            fetch(w, job, domain, w.job[job, c.GB] / count)
        domains >>= 1
        domain += 1


@kernel(lean=True)
def came(w, transfer, now):  # type: ignore[no-untyped-def]
    """A transfer is due; if all of it is there, its job may compute, or end. Returns the job that may go over to where
    all of its state is in step, -1: none."""
    row, links = w.links.transfer[transfer], w.links
    job, domain, what = row[c.SENT_FOR], row[c.SENT_TO], row[c.SENT_WHAT]
    if what == c.STREAM:
        w.tally[c.EVENTS] += 1
        return job if stream_is_in_step(w, transfer) else -1
    if not transfer_is_due(w, transfer, now):
        return -1
    w.tally[c.EVENTS] += 1
    drop(w, transfer)
    if what == c.STATE:
        w.mark[job, c.COMING] -= 1
    else:
        for at in range(links.tally[c.TRANSFERS]):
            other = links.transfer[links.active[at]]
            if other[c.SENT_FOR] == job and other[c.SENT_TO] == domain and other[c.SENT_WHAT] == c.DATA:
                return -1
        w.there[job, domain, 1] = now
    if w.mark[job, c.STATUS] == c.RUNNING:
        settle(w, job, now)
        _find_ends(w, job)
        _look_ahead(w, job)
    return -1


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
    """The set of domains for it and how many they are; (0, 0): none that it may span has room and links."""
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
        if rest == 0 and carries(w, job, domains):
            return domains, parts
    return 0, 0


@kernel(lean=True)
def could_start(w, job):  # type: ignore[no-untyped-def]
    """Whether a gang that waits has somewhere to start on what is free."""
    return find_pool(w, job) >= 0 or find_set(w, job)[1] > 0


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
            evict(w, row[c.BIN_FIRST], True)
        row[c.BIN_UP] = 0
        row[c.BIN_FAILURES] += 1
        w.pool[pool, c.POOL_FREE] -= row[c.BIN_FREE]
        due = now + w.repair_s
    else:
        row[c.BIN_UP] = 1
        w.pool[pool, c.POOL_FREE] += row[c.BIN_FREE]
        due = now + time_to_failure(w.seed, node, row[c.BIN_FAILURES], w.mtbf_s)
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], len(w.job) + node, due)


@kernel(lean=True)
def others_take(w, node, devices):  # type: ignore[no-untyped-def]
    """Other tenants take devices of a node, from jobs if they must (who holds most of it first), or give some back."""
    row = w.bin[node]
    devices = min(max(devices, -row[c.BIN_TENANTS]), row[c.BIN_SIZE] - row[c.BIN_TENANTS])
    while row[c.BIN_FREE] < devices:
        piece, most = row[c.BIN_FIRST], row[c.BIN_FIRST]
        while piece >= 0:
            if w.piece[piece, c.PIECE_DEVICES] > w.piece[most, c.PIECE_DEVICES]:
                most = piece
            piece = w.piece[piece, c.PIECE_NEXT]
        evict(w, most, False)
    row[c.BIN_TENANTS] += devices
    row[c.BIN_FREE] -= devices
    if row[c.BIN_UP] == 1:
        w.pool[row[c.BIN_POOL], c.POOL_FREE] -= devices


@kernel(lean=True)
def tenants_change(w, now):  # type: ignore[no-untyped-def]
    """What other tenants take and give back by now."""
    while w.tally[c.TENANT] < len(w.tenant) and w.tenant_s[w.tally[c.TENANT]] <= now:
        others_take(w, w.tenant[w.tally[c.TENANT], 0], w.tenant[w.tally[c.TENANT], 1])
        w.tally[c.TENANT] += 1
        w.tally[c.EVENTS] += 1
    due = w.tenant_s[w.tally[c.TENANT]] if w.tally[c.TENANT] < len(w.tenant) else np.inf
    item = len(w.job) + len(w.bin) + c.TENANTS
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], item, due)
