"""All that a replay holds, for the kernels: what stands and what changes, in one tuple, and the names of its columns.

n jobs, S shapes, C classes, P pools, K domains, B bins, E pieces, U users, G groups, R rows of the table of slowdowns,
L levels, T instants of the series.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.learned.state import KeyMemory

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class QueueWorld(NamedTuple):
    """Tables and state of one replay; kernels hand it on by its place."""

    preempts: bool
    strict: bool  # nobody passes a head that does not fit
    backfills: bool  # classes are in order of arrival, whatever their keys (estimates)
    rounds: bool  # jobs are stopped at ends of rounds only
    per_device: bool  # levels count device-seconds, else seconds
    before: bool  # jobs wait for their data before they compute
    fails: bool
    remembers: bool  # a learned policy's state is kept up to date, whoever ranks now
    restart_s: float
    round_s: float
    mtbf_s: float
    repair_s: float
    checkpoint_s: float
    seed: int
    learns: bool  # keys are the learned policy's
    for_deadlines: bool  # those for jobs with deadlines
    by_user: bool  # classes are of one user each, and rank by its device-seconds
    by_share: bool  # jobs rank by what they lack of an equal share
    refresh_s: float  # learned keys are asked for again this often
    patience_s: float  # without an end in sight a head may be passed for so long
    promotes_after: float  # a stopped job begins at the first level again after so many times its service
    changes: int  # which of the weights are not 0, as bits
    weights: Floats  # (6,) of what changes in a key
    levels: Floats  # (L,) of attained service
    job: Floats  # (n, JOB_COLUMNS)
    mark: Ints  # (n, MARK_COLUMNS)
    order: Ints  # (n,) jobs by class, then arrival
    klass: Ints  # (C, 7)
    head_key: Floats  # (C,) of the head, inf: nobody waits
    tree: Floats  # smallest keys, of all classes
    active: Ints  # (C,) classes in which somebody waits
    passed: NDArray[np.bool_]  # (C,) whose head has been tried in this instant
    shape: Ints  # (S, 3)
    allowed: NDArray[np.bool_]  # (S, P) pools that are large enough for the whole job
    partly: NDArray[np.bool_]  # (S, P) pools that could hold a part of it
    sets: Ints  # (S, M) sets of domains that it may span, best first, then -1
    pool: Ints  # (P, 8)
    speed: Floats  # (P,)
    bin: Ints  # (B, 6)
    piece: Ints  # (E, 6)
    link: Floats  # (K, K, 3) bytes/s, latency, when it is free
    link_gb: Floats  # (K, K) moved
    there: Floats  # (n, K, 2) or (0, K, 2): GB in each domain or on their way, and when the last is there
    factor: Floats  # (R, 2^K) of time when spanning
    usd_per_s: Floats  # (R, 2^K)
    user: Floats  # (U, 4)
    group: Floats  # (G, 3)
    reach: Ints  # (G,) the pools (as a set) that jobs of a group may use, -1: all
    due: Floats  # (n + B + 1,) next event of each job and node, and of the rounds; inf: none
    heap: Ints  # (n + B + 1,)
    place: Ints  # (n + B + 1,) in the heap, -1: not there
    victim: Ints  # (running jobs,)
    clock: Floats  # (3,)
    tally: Ints  # (12,)
    series: Floats  # (T, P + 1) device-seconds and waiting seconds per bin of time
    segment: Ints  # (s, 3) or (0, 3)
    segment_s: Floats  # (s, 2)
    learned: KeyMemory  # of the learned policy; of no jobs where nobody ``remembers``


(
    LEFT,  # work, in seconds on devices of speed 1, as of its last start or stop
    READY,  # when it computes: restarted, and its data there if it waits for them
    RATE,  # work per second of the run that is on
    KNOWN_KEY,  # what is known of its key when it comes
    KEY_FACTOR,  # and what the rest of it is multiplied with
    WORKED,  # the work done by then; no policy that knows nothing may ask what is left
    SERVED,  # work that its devices could have done meanwhile, waits included
    BEGAN,  # of the run that is on
    FINISH,  # of the run that is on, if nobody stops it
    KEY,  # of the learned policy
    ARRIVAL,
    DURATION,
    ESTIMATE,  # nan: none
    DEADLINE,  # inf: none
    GB,  # data that has to be where the job runs
    HELD,  # seconds that it has computed in runs that have ended, since it came or was promoted
    RUN,  # seconds on devices, in runs that have ended
    SINCE,  # when it began to wait
    FIRST,  # start; nan: none
    MOVED,  # GB over links
    USD_PER_S,  # of the exchange between its domains
    USD,
    SLOWDOWN,
    JOINED,  # when it came to its queue: arrived, crossed a level or was promoted
) = range(24)
JOB_COLUMNS = 24
"""``QueueWorld.job`` (n, ...), float64, three lines of the CPU's cache; what ranks jobs stands in the first."""

(
    DEVICES,
    SHAPE,
    CLASS,
    LEAF,  # place in its class, in order of arrival
    USER,
    HOME,  # domain of its data, -1: everywhere
    STATUS,
    LEVEL,  # levels of attained service that it has crossed
    PIECE,  # first of what it holds, -1: nothing
    STOPS,
    FAILED,
    POOL,  # the first that it runs (or ran) in, -1: none yet
    DOMAINS,  # the set that it spans (bits), 0: it runs inside one pool
    CHOSEN,  # as a victim
    PRIORITY,
    ROW,  # of the table of slowdowns
) = range(16)
MARK_COLUMNS = 16
"""``QueueWorld.mark`` (n, ...), int64."""

ABSENT, WAITING, RUNNING, DONE, REFUSED = range(5)
"""``STATUS``."""

CLASS_SHAPE, CLASS_USER, CLASS_BASE, CLASS_SIZE, CLASS_FIRST, CLASS_HEAD, CLASS_ACTIVE = range(7)
"""``QueueWorld.klass`` (C, 7): its tree stands at BASE and has SIZE leaves; leaf i is the job ``order[FIRST + i]``;
HEAD is the job that goes first, -1: nobody waits; ACTIVE its place among the classes in which somebody waits."""

SHAPE_DEVICES, SHAPE_GROUP, SHAPE_ALONE = range(3)
"""``QueueWorld.shape`` (S, 3): jobs of one shape can stand in for each other; ALONE: some pool holds a
whole one."""

POOL_DOMAIN, POOL_FIRST, POOL_LAST, POOL_DEVICES, POOL_FREE, POOL_HELD, POOL_WORST, POOL_SPARE = range(8)
"""``QueueWorld.pool`` (P, 8): its bins are FIRST to LAST - 1; WORST is the running job that ranks last, -1: none, or
``UNKNOWN`` in this instant; SPARE is how many devices the head of the line will leave there when it starts, -1: nothing
is kept for it there."""
UNKNOWN = -2
"""To be found anew when somebody asks."""

BIN_POOL, BIN_SIZE, BIN_FREE, BIN_FIRST, BIN_UP, BIN_FAILURES = range(6)
"""``QueueWorld.bin`` (B, 6): a node if nodes fail, else a whole pool. FIRST is its first piece; a broken one has no
room."""

PIECE_JOB, PIECE_BIN, PIECE_DEVICES, PIECE_NEXT, PIECE_BEFORE, PIECE_OF_JOB = range(6)
"""``QueueWorld.piece`` (E, 6): devices of one bin that one job holds; NEXT and BEFORE in the bin, OF_JOB the job's
next."""

USER_SERVED, USER_DEVICES, USER_SINCE, USER_JOBS = range(4)
"""``QueueWorld.user`` (U, 4): device-seconds up to SINCE, devices held since then, jobs that wait or run."""

GROUP_SHARE, GROUP_ENTITLED, GROUP_DEMAND = range(3)
"""``QueueWorld.group`` (G, 3): share of the moment, its integral, devices that jobs of the group want."""

NOW, BIN_WIDTH, STARTED_AT = range(3)
"""``QueueWorld.clock`` (3,)."""

ARRIVED, HEAP, ACTIVE, N_WAITING, N_RUNNING, N_DONE, EVENTS, FREE_PIECE, ROUND_ENDS, SEGMENTS, VICTIMS, SHARES_OLD = (
    range(12)
)
"""``QueueWorld.tally`` (12,)."""

REMAINING, EXPECTED, ATTAINED, SERVICE, CROSSED, IN_TURN = range(6)
"""``QueueWorld.weights`` (6,): see ``policies.policy.Key``."""

NEVER = 1e300
"""A key or a time later than all others that still counts as one."""
