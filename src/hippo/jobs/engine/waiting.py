"""Who waits: one tree of smallest keys per class of jobs, leaves in order of arrival, so ties go to who came first."""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine.columns import (
    ACTIVE,
    CLASS,
    CLASS_ACTIVE,
    CLASS_BASE,
    CLASS_FIRST,
    CLASS_HEAD,
    CLASS_SIZE,
    LEAF,
    N_WAITING,
    NEVER,
)


@kernel(lean=True)
def put(tree, base, size, leaf, key):  # type: ignore[no-untyped-def]
    """Write a leaf (inf: nobody) and what follows above it."""
    node = size + leaf
    tree[base + node] = key
    while node > 1:
        node >>= 1
        least = min(tree[base + 2 * node], tree[base + 2 * node + 1])
        if tree[base + node] == least:
            return
        tree[base + node] = least


@kernel(lean=True)
def first_at_most(tree, base, size, limit):  # type: ignore[no-untyped-def]
    """The first leaf whose key is not above ``limit``, -1: none."""
    if not tree[base + 1] <= limit:
        return -1
    node = 1
    while node < size:
        node *= 2
        if not tree[base + node] <= limit:
            node += 1
    return node - size


@kernel(lean=True)
def join(w, job, key):  # type: ignore[no-untyped-def]
    """A job waits under ``key``, from now on or again."""
    kind, leaf = w.mark[job, CLASS], w.mark[job, LEAF]
    key = min(key, NEVER)
    put(w.tree, w.klass[kind, CLASS_BASE], w.klass[kind, CLASS_SIZE], leaf, key)
    w.tally[N_WAITING] += 1
    head = w.klass[kind, CLASS_HEAD]
    if head < 0:
        w.klass[kind, CLASS_ACTIVE] = w.tally[ACTIVE]
        w.active[w.tally[ACTIVE]] = kind
        w.tally[ACTIVE] += 1
    find_head(w, kind)


@kernel(lean=True)
def leave(w, job):  # type: ignore[no-untyped-def]
    """A job waits no longer."""
    kind = w.mark[job, CLASS]
    put(w.tree, w.klass[kind, CLASS_BASE], w.klass[kind, CLASS_SIZE], w.mark[job, LEAF], np.inf)
    w.tally[N_WAITING] -= 1
    find_head(w, kind)
    if w.klass[kind, CLASS_HEAD] < 0:
        w.tally[ACTIVE] -= 1
        last, at = w.active[w.tally[ACTIVE]], w.klass[kind, CLASS_ACTIVE]
        w.active[at] = last
        w.klass[last, CLASS_ACTIVE] = at
        w.klass[kind, CLASS_ACTIVE] = -1


@kernel(lean=True)
def rekey(w, job, key):  # type: ignore[no-untyped-def]
    """A job that waits has another key."""
    kind = w.mark[job, CLASS]
    put(w.tree, w.klass[kind, CLASS_BASE], w.klass[kind, CLASS_SIZE], w.mark[job, LEAF], min(key, NEVER))
    find_head(w, kind)


@kernel(lean=True)
def find_head(w, kind):  # type: ignore[no-untyped-def]
    """Note who goes first in a class: smallest key, then first come (by arrival alone if all that fits goes)."""
    base, size = w.klass[kind, CLASS_BASE], w.klass[kind, CLASS_SIZE]
    least = w.tree[base + 1]
    w.head_key[kind] = 0.0 if w.by_arrival else least
    if least == np.inf:
        w.klass[kind, CLASS_HEAD] = -1
        return
    limit = NEVER if w.by_arrival else least
    leaf = first_at_most(w.tree, base, size, limit)
    w.klass[kind, CLASS_HEAD] = w.order[w.klass[kind, CLASS_FIRST] + leaf]
