"""Lower bounds on the played step time of pipelines, as numba kernels. Proofs: ``docs/theory.md``.

Letters: N layers, m waves, p stages. Stage i holds layers [a, b) with ``f`` seconds of forward and ``t`` seconds of
forward and backward per wave, of which the ``w`` seconds of the weight gradient may come later (0: the backward is one
operation); ``head`` is the round trip of one wave through everything before the stage, ``rest`` through everything
behind it, both without weight gradients that nothing waits for; ``live`` the most micro-batches its memory holds.

``table`` (12, N + 1) is ``layouts.LayerTable.packed``. ``before`` and ``after`` (p,) are the round-trip delays of
one wave between stages before and behind each stage, ``down`` the way down alone. ``sync`` (p,) is what replicas would
need to agree on the whole model over the ring of the stage's domain (0: there is one replica); stages of one domain
share that ring, and ``per_domain`` of them in a row lie in one domain.

For pipelines over n domains that lie differently a dynamic program says whether a step within a limit is possible.
Forwards over (domains used, layers placed) it finds the least round trip of one wave through the stages placed so far;
backwards the least round trip through those that follow; forwards again with the latter known. What a stage needs only
grows with both, so the least is the best (docs/theory.md, "Unlike domains"). There: O options (layouts); heads and
rests (n, N + 1): of the layers before, and behind, a stage of that domain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
STEPS = 40  # most halvings of a bisection
PRECISION = 1e-4  # relative; a bound is the lower end, so this costs no proof
NO_LIMIT = 1e15  # seconds


class Around(NamedTuple):
    """What lies around a stage; seconds."""

    head: float  # round trip of one wave through everything before it
    forward: float  # the way down to it alone
    rest: float  # round trip of one wave through everything behind it
    deepest: int  # most waves the schedule lets it run ahead
    sync: float  # what follows its own end on the links
    least: int  # fewest waves that the schedule has it run ahead


class StepLimits(NamedTuple):
    """What a step has to keep to."""

    waves: int
    usable: float  # bytes of a GPU
    limit: float  # seconds
    drained: float  # what the first stage does once all gradients have reached it


class UniformLine(NamedTuple):
    """A pipeline of p stages of one layout."""

    table: Floats  # (12, N + 1)
    before: Floats  # (p,)
    after: Floats  # (p,)
    down: Floats  # (p,)
    sync: Floats  # (p,)
    per_domain: int
    waves: int
    ahead: bool  # whether a stage may run further ahead than 1F1B
    slowest: float  # seconds one wave occupies the slowest link
    tail: float  # seconds after the first stage is done
    usable: float  # bytes of a GPU


class Options(NamedTuple):
    """Layouts that may stand in one pipeline, O of them."""

    tables: Floats  # (O, 12, N + 1)
    groups: Ints  # (O,) class of the domains they are for; -1: for none
    stages: Ints  # (O,) most in one domain
    hops: Floats  # (O,) between two stages of a domain, one way


class Borders(NamedTuple):
    """What lies between n domains in a row."""

    before: Floats  # (n,) round trips of the borders before each domain
    after: Floats  # (n,) behind each domain
    down: Floats  # (n,) one way
    sends: Floats  # (n, O) seconds that a wave from there to another domain occupies links, at least
    back: Floats  # (n, O) more that it takes to the domain before than the above say, as fewer nodes send
    on: Floats  # (n, O) to the next one


class DomainPart(NamedTuple):
    """Layers [first, last) that one domain holds on so many stages."""

    first: int
    last: int
    stages: int
    head: float  # round trip of one wave through the stages before
    rests: Floats  # (N + 1,) as ``mixed_fits`` left them


class PacedLine(NamedTuple):
    """A pipeline of p stages over D domains, each with a layout of its own."""

    tables: Floats  # (D, 12, N + 1)
    part: Ints  # (p,) domain of each stage
    hops: Floats  # (D,) seconds between two stages of a domain, one way
    trips: Floats  # (D,) round trip of one wave over the border before each domain
    waits: float  # share of a round trip in which both its ranks wait for messages, every wave
    waves: int
    ahead: bool  # whether a stage may run further ahead than 1F1B
    usable: float  # bytes of a GPU
    slowest: float  # seconds one wave occupies the slowest link
    split: bool  # whether weight gradients may come later


@kernel
def stage_need(t, f, w, rest, waves, live):  # type: ignore[no-untyped-def]
    """Least seconds from the first input of the stage to the end of its last input gradient, and of its last operation.

    Fill: before its first backward a stage runs at most ``live`` forwards, and that backward comes no sooner than one
    round trip. Drain: after its last forward at most ``live`` waves are left, and the last of them comes back no sooner
    than one round trip. Window: a micro-batch holds its slot for a whole round trip (docs/theory.md, bounds 2 and 3).
    """
    ahead = min(waves, live)
    turns, left = divmod(waves - 1, ahead)
    window = (turns + 1) * (t + rest) + left * f
    fill = max(0.0, f + rest - ahead * f)
    back, b = 0.0, t - f - w
    for late in (ahead * w, 0.0):  # weight gradients that may still be left; then none
        drain = max(0.0, rest + b - ahead * b)
        idle = fill + drain if waves > ahead else max(fill, drain)
        whole = max(waves * t - late + idle, window - (w if late > 0.0 else 0.0))
        if late > 0.0 or w == 0.0:
            back = whole
        b = t - f
    return back, whole


@kernel
def gathering(table, gathers, stages):  # type: ignore[no-untyped-def]
    """The table of a layout whose passes gather weights over links: ``gathers`` (2,) seconds in which these carry those
    of the whole model forward, half of what goes backward, and of latencies before.

    A pass lasts as long as its work or its gathers. Each of both is a sum over layers, a bound, and that counts which
    takes longer for the whole model. Latencies are those of a pass, so only a single stage has them in its sums.
    """
    found, n = table.copy(), table.shape[1] - 1
    late = gathers[1] if stages == 1 else 0.0
    forth, back = gathers[0] * table[7], table[1] - table[0]
    if forth[n] + late > table[0, n]:
        found[0] = forth
        found[0, n] += late
    found[8] = found[0] + table[8] - table[0]
    if 2.0 * forth[n] + late > back[n]:
        back = 2.0 * forth
        back[n] += late
        found[8] = found[0] + back
        found[10] = 0.0  # work hides behind gathers
    found[1] = found[0] + back
    return found


@kernel
def room_for(table, usable, a, b):  # type: ignore[no-untyped-def]
    """Most live micro-batches that layers [a, b) leave room for (0: the layers alone do not fit)."""
    return room_with(table, usable, a, b, b)


@kernel
def room_with(table, usable, a, b, border):  # type: ignore[no-untyped-def]
    """The same where blocks up to ``border`` are computed again, and those behind it are not."""
    passing = max(table[4, a], table[4, b - 1])
    if table[10, border] > table[10, a]:
        passing = max(passing, table[11, a])
    kept = table[2, b] - table[2, a] + passing
    each = table[3, b] - table[3, a] + table[9, b] - table[9, border]
    if kept + each > usable:
        return 0
    return int(min(float(1 << 40), (usable - kept) / max(each, 1e-9)))  # layers may keep nothing


@kernel
def least_again(table, usable):  # type: ignore[no-untyped-def]
    """Seconds of a wave in which one stage with all layers computes blocks again, at least; inf: it never fits."""
    n = table.shape[1] - 1
    for border in range(n + 1):
        if room_with(table, usable, 0, n, border) >= 1:
            return table[10, border]
    return np.inf


@kernel
def stage_fits(table, a, b, around, limits):  # type: ignore[no-untyped-def]
    """Whether a stage with layers [a, b) fits its memory and the step can be done within the limit."""
    t, f, trip = table[1, b] - table[1, a], table[0, b] - table[0, a], table[8, b] - table[8, a]
    waves, limit, drained = limits.waves, limits.limit, limits.drained
    if around.head + waves * trip + drained > limit or around.forward + waves * t > limit:
        return False
    once = table[5, b] - table[5, a] + table[6, 0]
    agreed = max(once, table[6, 0] + around.sync)
    for border in range(a, b + 1):  # blocks before it are computed again: no more than the waves under way ask for
        again, room = table[10, border] - table[10, a], room_with(table, limits.usable, a, b, border)
        if around.forward + waves * (t + again) > limit:
            return False
        if room >= around.least:
            live = min(around.deepest, room)
            back, whole = stage_need(t + again, f, t - trip, around.rest, waves, live)
            if around.head + back + drained <= limit and around.forward + whole + agreed <= limit:
                return True
        if room >= around.deepest or table[9, b] <= table[9, border]:
            return False
    return False


@kernel
def held(table, stages, usable):  # type: ignore[no-untyped-def]
    """Whether ``stages`` stages have memory for all layers with one micro-batch each: every stage takes what it can."""
    n, a = table.shape[1] - 1, 0
    for i in range(stages):
        low, high = a, n - (stages - 1 - i)
        while low < high:
            b = (low + high + 1) // 2
            if room_for(table, usable, a, b) >= 1:
                low = b
            else:
                high = b - 1
        if low == a:
            return False
        a = low
    return a == n


@kernel
def cuts_at_pace(line, calls, behind, pace, cuts):  # type: ignore[no-untyped-def]
    """Whether every stage of a ``PacedLine`` can do a wave in ``pace`` seconds, with memory for those under way behind
    it by then; each stage takes as many layers as it can. Fills ``cuts`` (p + 1,).

    ``calls`` (p,) seconds of a wave in which the rank waits for messages with its neighbours, ``behind`` (p,) round
    trips of one wave over all borders behind the stage.
    """
    p, n, a = len(line.part), line.tables.shape[2] - 1, 0
    cuts[0] = 0
    for i in range(p):
        table, deepest = line.tables[line.part[i]], p - i
        if line.ahead:
            deepest += int(np.ceil(behind[i] / pace))
        deepest = min(deepest, line.waves)
        low, high = a, n - (p - 1 - i)
        while low < high:
            b = (low + high + 1) // 2
            if table[1, b] - table[1, a] + calls[i] <= pace and room_for(table, line.usable, a, b) >= deepest:
                low = b
            else:
                high = b - 1
        if low == a:
            return False
        a = low
        cuts[i + 1] = a
    return a == n


@kernel
def quickest_cuts(line, calls, behind, cuts):  # type: ignore[no-untyped-def]
    """Whether any cuts of a ``PacedLine`` fit; fills ``cuts`` (p + 1,) with those of the least pace."""
    n = line.tables.shape[2] - 1
    low, high = 0.0, line.tables[:, 1, n].max() + calls.max()
    if len(line.part) > n or not cuts_at_pace(line, calls, behind, high, cuts):
        return False
    low = high / (2 * len(line.part))
    for _ in range(STEPS):
        if high - low <= PRECISION * high:
            break
        middle = 0.5 * (low + high)
        if cuts_at_pace(line, calls, behind, middle, cuts):
            high = middle
        else:
            low = middle
    return cuts_at_pace(line, calls, behind, high, cuts)


@kernel
def paced_step(line, cuts, numbers):  # type: ignore[no-untyped-def]
    """Estimated seconds of a step of a ``PacedLine`` with its quickest cuts but for what follows the first stage's end;
    inf where none fit. Fills ``cuts`` (p + 1,) and ``numbers`` (4, p): seconds of forward, of everything, round trip
    before the stage, micro-batches that it has room for."""
    p, forward, seconds, delays = len(line.part), numbers[0], numbers[1], numbers[2]
    calls, behind = np.zeros(p), np.zeros(p)
    for i in range(1, p):
        border = line.part[i] != line.part[i - 1]
        delays[i] = line.trips[line.part[i]] if border else 2.0 * line.hops[line.part[i]]
    for i in range(p - 1, -1, -1):
        after = delays[i + 1] if i + 1 < p else 0.0
        behind[i] = after + (behind[i + 1] if i + 1 < p else 0.0)
        calls[i] = line.waits * (delays[i] + after)
    if not quickest_cuts(line, calls, behind, cuts):
        return np.inf
    pace, once, fixed = line.slowest, 0.0, 0.0
    for i in range(p):
        table, a, b = line.tables[line.part[i]], cuts[i], cuts[i + 1]
        forward[i], seconds[i] = table[0, b] - table[0, a], table[1, b] - table[1, a]
        numbers[3, i] = room_for(table, line.usable, a, b)
        pace = max(pace, seconds[i] + calls[i])
        once, fixed = max(once, table[5, b] - table[5, a]), max(fixed, table[6, 0])
    filled = forward.sum() + 0.5 * delays.sum() + pace if line.split else seconds.sum() + delays.sum()
    return (line.waves - 1) * pace + filled + once + fixed


@kernel
def sent(table, first, waves, deepest, usable):  # type: ignore[no-untyped-def]
    """When the first stage, with layers [0, first), can have sent its last wave on: all forwards are done by then, and
    all backwards but those of the waves it has room for (docs/theory.md, bound 6)."""
    live = min(waves, deepest, max(1, room_for(table, usable, 0, first)))
    return float(waves * table[0, first] + (waves - live) * (table[1, first] - table[0, first]))


@kernel
def greedy_cuts(line, first, limit, cuts):  # type: ignore[no-untyped-def]
    """Whether all stages of a ``UniformLine`` can each be done within ``limit``, the first with layers [0, first).

    Each other stage takes as many layers as it can: what it needs grows with its end and shrinks with its start, so
    this loses nothing. Fills ``cuts`` (p + 1,).
    """
    table, before, after, down, sync = line.table, line.before, line.after, line.down, line.sync
    per_domain, waves, ahead = line.per_domain, line.waves, line.ahead
    slowest, tail, usable = line.slowest, line.tail, line.usable
    p, n = len(before), table.shape[1] - 1
    trip, split = table[8, n], table[8, n] < table[1, n]
    drained = table[1, first] - table[8, first] + table[5, first] + table[6, 0] + max(tail, sync[0] * table[7, first])
    ready = sent(table, first, waves, waves if ahead else p, usable) if sync[0] > 0.0 else 0.0
    limits = StepLimits(waves, usable, limit, drained)
    a, cuts[0], border = 0, 0, 0
    for i in range(p):
        if split or i % per_domain == 0:  # the gradients of earlier stages are late where weight gradients cannot be
            border = a
        head, forward, deepest = table[8, a] + before[i], table[0, a] + down[i], waves if ahead else p - i
        low, high = a + 1, n - (p - 1 - i)
        if i == p - 1:
            low = n
        if i == 0:
            low, high = first, first
        fits = False
        while True:
            b = low if not fits else (low + high + 1) // 2
            rest, agree = trip - table[8, b] + after[i], sync[i] * (table[7, b] - table[7, border])
            if i == p - 1 and tail > 0.0:  # both ends exchange what they share once they have agreed in their domains
                agree = max(agree, table[5, b] - table[5, a] + tail)
            around = Around(head, forward, rest, deepest, agree, 1 if ahead else min(deepest, waves))
            good = low <= high and stage_fits(table, a, b, around, limits)
            if i > 0 and good and not ahead:  # 1F1B: two waves per round trip between neighbours (bound 7)
                t, turns = table[1, b] - table[1, a], max(0, waves + 1 - (p - i + 1)) // 2
                good = turns * (t + before[i] - before[i - 1]) + t <= limit
            if good and sync[0] > 0.0:  # the last wave comes late: from the first stage, and over the slowest link
                t = table[1, b] - table[1, a]
                late = max(ready + forward - table[0, first] if i > 0 else 0.0, (waves - 1) * slowest)
                good = late + t + table[6, 0] + agree <= limit
            if not fits and not good:
                return False
            fits = True
            if good:
                low = b
            else:
                high = b - 1
            if low >= high:
                break
        a = low
        cuts[i + 1] = a
    return True


@kernel
def cuts_within(line, limit, cuts):  # type: ignore[no-untyped-def]
    """Whether any cuts can be done within ``limit``; ``cuts`` (p + 1,) gets the first found.

    The first stage's layers are tried from many to few: fewer shorten its own synchronisation, but all others grow.
    """
    table, p, n = line.table, len(line.before), line.table.shape[1] - 1
    if p == 1:
        return greedy_cuts(line, n, limit, cuts)
    for first in range(n - p + 1, 0, -1):
        if line.waves * table[1, first] > limit:
            continue
        if line.waves * (table[1, n] - table[1, first]) / (p - 1) + table[0, first] > limit:
            return False
        if greedy_cuts(line, first, limit, cuts):
            return True
    return False


@kernel
def known_within(line, limit, cuts, known):  # type: ignore[no-untyped-def]
    """``cuts_within``, asked only for limits of which ``known`` (2,) does not tell: none up to the first, some from the
    second on. What is found is noted there."""
    if known[0] < limit < known[1]:
        known[1 if cuts_within(line, limit, cuts) else 0] = limit
    return limit >= known[1]


@kernel
def settled_bound(line, floor, ceiling, enough, cuts, known):  # type: ignore[no-untyped-def]
    """``uniform_bound``, whether it is settled, and the limit whose cuts reach it.

    It stays open where it is above ``enough``: then what is returned is above that, too, and no more than the bound.
    ``known``: as for ``known_within``; (0, inf) at first, and kept until the bound is settled.
    """
    table, after, waves, tail = line.table, line.after, line.waves, line.tail
    p, n = len(after), table.shape[1] - 1
    low = table[8, n] + table[1, 1] - table[8, 1] + after[0] + (waves - 1) * line.slowest + table[5, 1] + table[6, 0]
    low = max(floor, low + tail, waves * table[1, n] / p + table[6, 0])
    if p == 1:  # nothing to cut: the bound is a sum
        busy = waves * (table[1, n] + least_again(table, line.usable))
        low = max(low, busy + table[5, n] + table[6, 0] + max(tail, line.sync[0]))
    if low > ceiling or not held(table, p, line.usable):
        return np.inf, True, np.inf
    if p == 1:
        return low, True, low
    if low > enough:
        return low, False, low
    beyond = enough * (1.0 + 2.0 * PRECISION)  # no cuts up to here: the bound is above ``enough``
    if beyond < ceiling and not known_within(line, beyond, cuts, known):
        return beyond * (1.0 - PRECISION), False, beyond
    if known_within(line, low, cuts, known):
        return low, True, low
    if not known_within(line, ceiling, cuts, known):
        return np.inf, True, np.inf
    high = low
    while high < ceiling:
        high = min(1.25 * high, ceiling)
        if known_within(line, high, cuts, known):
            break
        low = high
    for _ in range(STEPS):
        if high - low <= PRECISION * high:
            break
        middle = 0.5 * (low + high)
        if known_within(line, middle, cuts, known):
            high = middle
        else:
            low = middle
    return low, True, high


@kernel
def uniform_bound(line, floor, ceiling, cuts):  # type: ignore[no-untyped-def]
    """Least step time over all cuts of a ``UniformLine``; inf when above ``ceiling``.

    ``floor``: a bound known already. ``cuts`` (p + 1,) gets the cuts that reach the bound.
    """
    bound, _, reach = settled_bound(line, floor, ceiling, np.inf, cuts, np.array([0.0, np.inf]))
    cut(line, reach, cuts)
    return bound


@kernel
def cut(line, limit, cuts):  # type: ignore[no-untyped-def]
    """Fills ``cuts`` (p + 1,) with those within ``limit``; a single stage has all layers."""
    if len(line.before) == 1:
        cuts[0], cuts[1] = 0, line.table.shape[1] - 1
    elif limit < np.inf:
        cuts_within(line, limit, cuts)


class Sorts(NamedTuple):
    """Layouts of one kind of domain, L of them."""

    tables: Floats  # (L, 12, N + 1)
    fused: Floats  # (L, 12, N + 1) the same where backwards are one operation
    hop_s: Floats  # (L,) between two stages of a domain, one way
    ends_s: Floats  # (L,) in which two stages of a domain sum what they share
    wave: Ints  # (L,) sequences


class Courses(NamedTuple):
    """Ways to join, W of them, n domains per group at most; as in ``ways.Way``."""

    span: Ints  # (W,)
    groups: Ints  # (W,)
    split: NDArray[np.bool_]  # (W,) whether backwards may be split
    latency_s: Floats  # (W, 3, n) round trip before and behind each domain, and the way down
    pace: Floats  # (W, 3, n) per byte
    slowest: Floats  # (W,)
    tail_s: Floats  # (W,)
    gathers_s: Floats  # (W, 2) as of ``gathering``
    sync_s: Floats  # (W, n) with one rank of each domain on the ring
    carried_s: Floats  # (W, n) of it what links carry, without latencies


class Entries(NamedTuple):
    """Shapes, S of them, the least rough bound first; what they are worth is ``fixed + per_second * step time``."""

    keys: Ints  # (S, 3) layout, way, stages per domain
    rough: Floats  # (S,) in the unit of the objective
    per_second: Floats  # (S,)
    fixed: Floats  # (S,)
    longer: Floats  # (S,) ``space.ring_share``


class ShapeNumbers(NamedTuple):
    """What all shapes share."""

    batch: int  # sequences of a step
    ahead: bool
    usable: float
    wave_bytes: float  # of one sequence


class Standings(NamedTuple):
    """What is known of shapes so far, S of them."""

    bound: Floats  # (S,) settled, or no more than that; inf: no cuts, none below the ceiling, or taken already
    settled: NDArray[np.bool_]  # (S,)
    ceiling: Floats  # (S,) when it was looked at first
    known: Floats  # (S, 2) as for ``known_within``
    reach: Floats  # (S,) limit whose cuts reach the bound


@kernel
def settle_one(sorts, courses, entries, standing, one, asked, enough, cuts):  # type: ignore[no-untyped-def]
    """Settles one shape where its bound may be at most ``enough``; one that is settled gives its cuts."""
    batch, ahead, usable, wave_bytes = asked
    layout, way, q = entries.keys[one]
    span, groups, wave = courses.span[way], courses.groups[way], sorts.wave[layout]
    p, hop, size, lots = span * q, sorts.hop_s[layout], wave * wave_bytes, batch // wave
    before, after, down, sync = np.empty(p), np.empty(p), np.empty(p), np.empty(p)
    latency, pace, longer = courses.latency_s[way], courses.pace[way], entries.longer[one]
    for i in range(p):
        j, hops = i // q, i - i // q
        before[i] = latency[0, j] + pace[0, j] * size + 2 * hop * hops
        after[i] = latency[1, j] + pace[1, j] * size + 2 * hop * (span * (q - 1) - hops)
        down[i] = latency[2, j] + pace[2, j] * size + hop * hops
        sync[i] = courses.sync_s[way, j] if longer == 1.0 else courses.carried_s[way, j] * longer
    most = -(-lots // groups)
    fewer = (lots // groups - 1) / max(1, most - 1)  # whoever has the slowest border may have fewer waves
    slowest = courses.slowest[way] * wave * wave_bytes * fewer
    tail = sorts.ends_s[layout] if span == 1 and q > 1 else courses.tail_s[way]
    table = sorts.tables[layout] if courses.split[way] else sorts.fused[layout]
    if courses.gathers_s[way, 0] > 0.0:
        table = gathering(table, courses.gathers_s[way], p)
    line = UniformLine(table, before, after, down, sync, q, most, ahead, slowest, tail, usable)
    if standing.settled[one]:
        cut(line, standing.reach[one], cuts)
        return
    fixed, rate = entries.fixed[one], entries.per_second[one]
    floor, ceiling = (entries.rough[one] - fixed) / rate, min((standing.ceiling[one] - fixed) / rate, NO_LIMIT)
    bound, settled, reach = settled_bound(line, floor, ceiling, (enough - fixed) / rate, cuts, standing.known[one])
    standing.bound[one] = fixed + rate * bound
    standing.settled[one], standing.reach[one] = settled, reach


@kernel
def settle(sorts, courses, entries, standing, begun, asked, ceiling, cuts):  # type: ignore[no-untyped-def]
    """The shape of the least bound below ``ceiling`` (-1: none), taken out with its ``cuts``; and how many shapes were
    looked at, those with rough bounds below it.

    Others are only settled where that is needed to know that they are not the least (ties: the rougher bound). What
    comes of it does not depend on that. ``begun``: shapes that were looked at before.
    """
    while True:
        best, least, open_, lowest = -1, np.inf, -1, np.inf
        for one in range(begun):
            if standing.settled[one] and standing.bound[one] < least:
                best, least = one, standing.bound[one]
            elif not standing.settled[one] and standing.bound[one] < lowest:
                open_, lowest = one, standing.bound[one]
        if open_ < 0 or lowest > least or lowest >= ceiling:
            break
        settle_one(sorts, courses, entries, standing, open_, asked, min(least, ceiling), cuts)
        if not standing.settled[open_] and standing.bound[open_] <= lowest:  # above in seconds, rounded alike in money
            settle_one(sorts, courses, entries, standing, open_, asked, np.inf, cuts)
    while begun < len(entries.rough) and entries.rough[begun] < min(least, ceiling):
        standing.ceiling[begun] = ceiling
        settle_one(sorts, courses, entries, standing, begun, asked, min(least, ceiling), cuts)
        if standing.settled[begun] and standing.bound[begun] < least:
            best, least = begun, standing.bound[begun]
        begun += 1
    if least >= ceiling:
        return -1, begun
    settle_one(sorts, courses, entries, standing, best, asked, least, cuts)
    return best, begun


@kernel
def stage_after(table, heads, rests, border, limits, starts):  # type: ignore[no-untyped-def]
    """(N + 1,) least round trips up to the end of one more stage; fills ``starts`` with its first layers.

    ``border``: round trips before and behind its domain, and the way down."""
    (before, after, down), (waves, _, limit, drained) = border, limits
    n = table.shape[1] - 1
    following = np.full(n + 1, np.inf)
    for a in range(n):
        if heads[a] == np.inf:
            continue
        head = heads[a] + before
        for b in range(a + 1, n + 1):
            t, trip = table[1, b] - table[1, a], table[8, b] - table[8, a]
            if head + waves * trip + drained > limit or waves * t > limit:
                break
            if heads[a] + trip >= following[b] or rests[b] == np.inf:
                continue
            if stage_fits(table, a, b, Around(head, down, rests[b] + after, waves, 0.0, 1), limits):
                following[b], starts[b] = heads[a] + trip, a
    return following


@kernel
def stage_before(table, heads, rests, border, limits):  # type: ignore[no-untyped-def]
    """(N + 1,) least round trips from the start of a stage of a layout that ends where ``rests`` begin."""
    (before, after, down), (waves, _, limit, drained) = border, limits
    n = table.shape[1] - 1
    earlier = np.full(n + 1, np.inf)
    for b in range(n, 0, -1):
        if rests[b] == np.inf:
            continue
        rest = rests[b] + after
        for a in range(b - 1, -1, -1):
            t, trip = table[1, b] - table[1, a], table[8, b] - table[8, a]
            if waves * trip + drained > limit or waves * t > limit:
                break
            if rests[b] + trip >= earlier[a] or heads[a] == np.inf:
                continue
            if stage_fits(table, a, b, Around(heads[a] + before, down, rest, waves, 0.0, 1), limits):
                earlier[a] = rests[b] + trip
    return earlier


@kernel
def forwards(options, rests, borders, steps, limits, choice):  # type: ignore[no-untyped-def]
    """(M, N + 1) least heads of any stage of a domain that comes after each mix, whether all layers can be placed, and
    how many stages were tried; fills ``choice``."""
    tables, groups, stages, hops = options.tables, options.groups, options.stages, options.hops
    before, after, down, sends = borders.before, borders.after, borders.down, borders.sends
    back, on = borders.back, borders.on
    n = tables.shape[2] - 1
    state, seen = np.full(rests.shape, np.inf), np.full(rests.shape, np.inf)
    starts, tried = np.zeros(n + 1, np.int64), 0
    state[0, 0] = 0.0
    for s in range(len(steps.place)):
        u, v, j = steps.source[s], steps.target[s], steps.place[s]
        if np.min(state[u]) == np.inf:
            continue
        for o in range(len(groups)):
            if groups[o] != steps.group[s]:
                continue
            heads, origin = state[u] + (back[j, o] if j > 0 else 0.0), np.arange(n + 1)
            for q in range(stages[o]):
                seen[u] = np.minimum(seen[u], heads)
                following = stage_after(tables[o], heads, rests[v], (before[j], after[j], down[j]), limits, starts)
                tried += 1
                source, found = origin[starts], False
                for b in range(n + 1):
                    if following[b] < np.inf:
                        found, left = True, following[b] + (on[j, o] if b < n else 0.0)
                        if j > 0 or b < n:  # all waves but one cross a border while that one goes round
                            crossed = following[b] + before[j] + after[j] + rests[v, b]  # with the way on, from b < n
                            crossed += (limits.waves - 1) * sends[j, o]
                            if crossed + limits.drained > limits.limit:
                                continue
                        if left < state[v, b]:
                            state[v, b] = left
                            choice[v, b, 0], choice[v, b, 1], choice[v, b, 2] = o, q + 1, source[b]
                if not found:
                    break
                heads, origin = following + 2 * hops[o], source
    fits = False
    for v in range(len(steps.ends)):
        fits = fits or (steps.ends[v] and state[v, n] < np.inf)
    return seen, fits, tried


@kernel
def backwards(options, heads, borders, steps, limits):  # type: ignore[no-untyped-def]
    """(M, N + 1) least rests of any stage of a domain with which each mix is full, and how many stages were tried."""
    tables, groups, stages, hops = options.tables, options.groups, options.stages, options.hops
    before, after, down = borders.before, borders.after, borders.down
    back, on = borders.back, borders.on
    n = tables.shape[2] - 1
    state, seen, tried = np.full(heads.shape, np.inf), np.full(heads.shape, np.inf), 0
    for v in range(len(steps.ends)):
        if steps.ends[v]:
            state[v, n] = 0.0
    for s in range(len(steps.place) - 1, -1, -1):
        u, v, j = steps.source[s], steps.target[s], steps.place[s]
        if np.min(state[v]) == np.inf or np.min(heads[u]) == np.inf:
            continue
        for o in range(len(groups)):
            if groups[o] != steps.group[s]:
                continue
            rests = state[v] + on[j, o]
            rests[n] = state[v, n]  # with all layers placed nothing is sent on
            for _ in range(stages[o]):
                seen[v] = np.minimum(seen[v], rests)
                earlier = stage_before(tables[o], heads[u], rests, (before[j], after[j], down[j]), limits)
                tried += 1
                if np.min(earlier) == np.inf:
                    break
                state[u] = np.minimum(state[u], earlier + (back[j, o] if j > 0 else 0.0))
                rests = earlier + 2 * hops[o]
    return seen, tried


@kernel
def mixed_fits(options, rest, borders, steps, limits, choice, rests):  # type: ignore[no-untyped-def]
    """Whether domains can do a step within the limit, in an order that ``steps`` allow, and how many stages were tried.

    ``rest`` (N + 1,) of the layers behind a cut, at least. Fills ``choice`` (M, N + 1, 3) with the option, number of
    stages and first layer of the domain whose layers end there and with which the mix is full, and ``rests``
    (M, N + 1).
    """
    for v in range(len(rests)):
        rests[v] = rest
    seen, fits, tried = forwards(options, rests, borders, steps, limits, choice)
    if not fits:
        return False, tried
    rests[:], more = backwards(options, seen, borders, steps, limits)
    _, fits, again = forwards(options, rests, borders, steps, limits, choice)
    return fits, tried + more + again


@kernel
def done_by(total, taken, groups, steps, count):  # type: ignore[no-untyped-def]
    """(M, W) most layers that domains of each mix do in a second, by weights of the layers: ``total`` (W, O) seconds of
    all layers at an option's best, ``taken`` (O,) the share of a step that its stages use (docs/theory.md, bound 4)."""
    done = np.zeros((count, len(total)))
    for s in range(len(steps.place)):
        for o in range(len(taken)):
            if groups[o] == steps.group[s]:
                for w in range(len(total)):
                    more = taken[o] / total[w, o] + (1.0 - taken[o]) * done[steps.source[s], w]
                    done[steps.target[s], w] = max(done[steps.target[s], w], more)
    return done


@kernel
def cuts_of_domain(table, hop, part, border, limits):  # type: ignore[no-untyped-def]
    """(stages + 1,) cuts of a ``DomainPart``, as ``mixed_fits`` found them; ``border``: as for ``stage_after``."""
    n, stages = table.shape[1] - 1, part.stages
    heads = np.full(n + 1, np.inf)
    heads[part.first] = part.head
    back = np.zeros((stages, n + 1), np.int64)
    for q in range(stages):
        following = stage_after(table, heads, part.rests, border, limits, back[q])
        heads = following + 2 * hop
    cuts = np.zeros(stages + 1, np.int64)
    cuts[stages] = part.last
    for q in range(stages - 1, -1, -1):
        cuts[q] = back[q, cuts[q + 1]]
    return cuts
