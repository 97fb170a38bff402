"""Names of the columns in the engine's tables (``world.World``): one row per job, class, pool, bin, piece or user."""

from __future__ import annotations

(
    ARRIVAL,
    DURATION,
    ESTIMATE,  # nan: none
    DEADLINE,  # inf: none
    GB,  # data that has to be where the job runs
    LEFT,  # work, in seconds on devices of speed 1, as of its last start or stop
    WORKED,  # the work done by then; no policy that knows nothing may ask what is left
    HELD,  # seconds that it has computed in runs that have ended, since it came or was promoted
    RUN,  # seconds on devices, in runs that have ended
    SERVED,  # work that its devices could have done meanwhile, waits included
    BEGAN,  # of the run that is on
    READY,  # when it computes: restarted, and its data there if it waits for them
    RATE,  # work per second of the run that is on
    FINISH,  # of the run that is on, if nobody stops it
    SINCE,  # when it began to wait
    FIRST,  # start; nan: none
    KEY,  # static key of the learned policy, of deadlines (rank) and the like
    MOVED,  # GB over links
    USD_PER_S,  # of the exchange between its domains
    USD,
    SLOWDOWN,
) = range(21)
JOB_COLUMNS = 21
"""``World.job`` (n, ...), float64."""

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
"""``World.mark`` (n, ...), int64."""

ABSENT, WAITING, RUNNING, DONE, REFUSED = range(5)
"""``STATUS``."""

CLASS_SHAPE, CLASS_USER, CLASS_BASE, CLASS_SIZE, CLASS_FIRST, CLASS_HEAD, CLASS_ACTIVE = range(7)
"""``World.klass`` (C, 7): its tree stands at BASE and has SIZE leaves; leaf i is the job ``order[FIRST + i]``; HEAD is
the job that goes first, -1: nobody waits; ACTIVE its place among the classes in which somebody waits."""

SHAPE_DEVICES, SHAPE_GROUP, SHAPE_ALONE = range(3)
"""``World.shape`` (S, 3): jobs of one shape can stand in for each other; ALONE: some pool holds a
whole one."""

POOL_DOMAIN, POOL_FIRST, POOL_LAST, POOL_DEVICES, POOL_FREE, POOL_HELD, POOL_WORST, POOL_SPARE = range(8)
"""``World.pool`` (P, 8): its bins are FIRST to LAST - 1; WORST is the running job that ranks last, -1: none; SPARE is
how many devices the head of the line will leave there when it starts, -1: nothing is kept for it there."""

BIN_POOL, BIN_SIZE, BIN_FREE, BIN_FIRST, BIN_UP, BIN_FAILURES = range(6)
"""``World.bin`` (B, 6): a node if nodes fail, else a whole pool. FIRST is its first piece; a broken one has no room."""

PIECE_JOB, PIECE_BIN, PIECE_DEVICES, PIECE_NEXT, PIECE_BEFORE, PIECE_OF_JOB = range(6)
"""``World.piece`` (E, 6): devices of one bin that one job holds; NEXT and BEFORE in the bin, OF_JOB the job's next."""

USER_SERVED, USER_DEVICES, USER_SINCE, USER_JOBS = range(4)
"""``World.user`` (U, 4): device-seconds up to SINCE, devices held since then, jobs that wait or run."""

GROUP_SHARE, GROUP_ENTITLED, GROUP_DEMAND = range(3)
"""``World.group`` (G, 3): share of the moment, its integral, devices that jobs of the group want."""

NOW, BIN_WIDTH, STARTED_AT = range(3)
"""``World.clock`` (3,)."""

ARRIVED, HEAP, ACTIVE, N_WAITING, N_RUNNING, N_DONE, EVENTS, FREE_PIECE, ROUND_ENDS, SEGMENTS, VICTIMS, SHARES_OLD = (
    range(12)
)
"""``World.tally`` (12,)."""

FIFO, BACKFILL, SJF, SRTF, FAIR, TWO_QUEUE, MAX_MIN, DEADLINE_FIRST, LEAST_SLACK, LEARNED = range(10)
"""``World.policy``."""

NEVER = 1e300
"""A key or a time later than all others that still counts as one."""
