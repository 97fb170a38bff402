"""Whether a pipeline over n domains, each with its own layout, can do a step within a limit: a dynamic program.

Forwards over (domains used, layers placed) the least round trip of one wave through the stages placed so far; backwards
the least round trip through those that follow; forwards again with the latter known. What a stage needs only grows with
both, so the least is the best (docs/theory.md, "Unlike domains"). Letters: O options (layouts), N layers, n domains;
tables as in ``bounds``; heads and rests (n, N + 1): of the layers before, and behind, a stage of that domain.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.planners.exact.bounds import stage_fits


@kernel
def stage_after(  # type: ignore[no-untyped-def]
    table, heads, before, after, down, rests, waves, usable, limit, drained, starts
):
    """(N + 1,) least round trips up to the end of one more stage; fills ``starts`` with its first layers."""
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
            if stage_fits(table, a, b, head, down, rests[b] + after, waves, waves, usable, limit, drained, 0.0):
                following[b], starts[b] = heads[a] + trip, a
    return following


@kernel
def stage_before(  # type: ignore[no-untyped-def]
    table, rests, before, after, down, heads, waves, usable, limit, drained
):
    """(N + 1,) least round trips from the start of a stage of a layout that ends where ``rests`` begin."""
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
            if stage_fits(table, a, b, heads[a] + before, down, rest, waves, waves, usable, limit, drained, 0.0):
                earlier[a] = rests[b] + trip
    return earlier


@kernel
def forwards(  # type: ignore[no-untyped-def]
    tables, kinds, stages, hops, rests, before, after, down, allowed, waves, usable, limit, drained, choice
):
    """(n, N + 1) least heads of any stage of each domain, and whether all layers can be placed; fills ``choice``."""
    n = tables.shape[2] - 1
    state, starts = np.full(n + 1, np.inf), np.zeros(n + 1, np.int64)
    state[0] = 0.0
    seen = np.full((len(before), n + 1), np.inf)
    for j in range(len(before)):
        reached = np.full(n + 1, np.inf)
        for o in range(len(kinds)):
            if not allowed[j, kinds[o]]:
                continue
            heads, origin = state, np.arange(n + 1)
            for q in range(stages[o]):
                seen[j] = np.minimum(seen[j], heads)
                following = stage_after(
                    tables[o], heads, before[j], after[j], down[j], rests[j], waves, usable, limit, drained, starts
                )
                source, found = origin[starts], False
                for b in range(n + 1):
                    if following[b] < np.inf:
                        found = True
                        if following[b] < reached[b]:
                            reached[b] = following[b]
                            choice[j, b, 0], choice[j, b, 1], choice[j, b, 2] = o, q + 1, source[b]
                if not found:
                    break
                heads, origin = following + 2 * hops[o], source
        state = reached
    return seen, state[n] < np.inf


@kernel
def backwards(  # type: ignore[no-untyped-def]
    tables, kinds, stages, hops, heads, before, after, down, allowed, waves, usable, limit, drained
):
    """(n, N + 1) least rests of any stage of each domain."""
    n = tables.shape[2] - 1
    state = np.full(n + 1, np.inf)
    state[n] = 0.0
    seen = np.full((len(before), n + 1), np.inf)
    for j in range(len(before) - 1, -1, -1):
        reached = np.full(n + 1, np.inf)
        for o in range(len(kinds)):
            if not allowed[j, kinds[o]]:
                continue
            rests = state
            for _ in range(stages[o]):
                seen[j] = np.minimum(seen[j], rests)
                earlier = stage_before(
                    tables[o], rests, before[j], after[j], down[j], heads[j], waves, usable, limit, drained
                )
                if np.min(earlier) == np.inf:
                    break
                reached = np.minimum(reached, earlier)
                rests = earlier + 2 * hops[o]
        state = reached
    return seen


@kernel
def mixed_fits(  # type: ignore[no-untyped-def]
    tables, kinds, stages, hops, rest, before, after, down, allowed, waves, usable, limit, drained, choice, rests
):
    """Whether n domains can do a step within ``limit``; ``allowed`` (n, kinds) says which kind may come where.

    ``before`` and ``after`` (n,) are round trips of the borders before and behind each domain, ``down`` one way;
    ``rest`` (N + 1,) of the layers behind a cut, at least; ``drained`` what follows the last backward. Fills ``choice``
    (n, N + 1, 3) with the option, number of stages and first layer of the domain whose layers end there, and ``rests``
    (n, N + 1).
    """
    for j in range(len(before)):
        rests[j] = rest
    numbers = (waves, usable, limit, drained)
    seen, fits = forwards(tables, kinds, stages, hops, rests, before, after, down, allowed, *numbers, choice)
    if not fits:
        return False
    rests[:] = backwards(tables, kinds, stages, hops, seen, before, after, down, allowed, *numbers)
    _, fits = forwards(tables, kinds, stages, hops, rests, before, after, down, allowed, *numbers, choice)
    return fits


@kernel
def cuts_of_domain(  # type: ignore[no-untyped-def]
    table, hop, first, last, stages, head, before, after, down, rests, waves, usable, limit, drained
):
    """(stages + 1,) cuts of layers [first, last) of one domain, as ``mixed_fits`` found them."""
    n = table.shape[1] - 1
    heads = np.full(n + 1, np.inf)
    heads[first] = head
    back = np.zeros((stages, n + 1), np.int64)
    for q in range(stages):
        following = stage_after(table, heads, before, after, down, rests, waves, usable, limit, drained, back[q])
        heads = following + 2 * hop
    cuts = np.zeros(stages + 1, np.int64)
    cuts[stages] = last
    for q in range(stages - 1, -1, -1):
        cuts[q] = back[q, cuts[q + 1]]
    return cuts
