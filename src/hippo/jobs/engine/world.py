"""All that a replay holds, for the kernels: what stands and what changes, in one tuple, and the names of its columns.

n jobs, S shapes, C classes, P pools, K domains, B bins, E pieces, U users, G groups, R rows of the table of slowdowns,
L levels, T instants of the series. Of links: X transfers, H states of the network. Of elastic jobs: O offers, Q kinds
of training, M parts (``MOST_PARTS``; more where gangs exchange over more domains). The last F offers are those of gangs
over several domains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.learned.state import KeyMemory

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Offers(NamedTuple):
    """``placement.offers.OfferTable`` for kernels, and behind its rows those of ``placement.slowdown.Exchange``."""

    form: Ints  # (O, 4)
    gpus: Ints  # (O, M)
    state_share: Floats  # (O, M) of its state that each part holds
    rate: Floats  # (O, latencies, bandwidths) work per second
    hop_bytes: Floats  # (O,) per second of work, each direction that is used over each hop
    bandwidth: Floats  # bytes/s, ascending
    latency: Floats  # s, ascending
    state_bytes: Floats  # (Q,) that a job carries along when it moves
    gradient_bytes: Floats  # (Q,) of all parameters, per second of work


class Links(NamedTuple):
    """Links, and what flows over them: transfers, and the exchange of jobs that run over several domains."""

    time_s: Floats  # (H,) when each state of the network begins
    history: Floats  # (H, K, K) bytes/s from, to
    capacity: Floats  # (K, K) bytes/s now
    latency: Floats  # (K, K) s now
    latency_history: Floats  # (H, K, K) s, (1, K, K) where latencies stand still
    usd_per_byte: Floats  # (K, K)
    moved_gb: Floats  # (K, K) by transfers
    exchanged_gb: Floats  # (K, K) by jobs
    transfer: Ints  # (X, 6)
    bytes: Floats  # (X, 5)
    active: Ints  # (X,) transfers, the first ``tally[TRANSFERS]`` of them
    spanning: Ints  # (n,) jobs that exchange over several domains, the first ``tally[SPANNING]`` of them
    tally: Ints  # (7,)
    behind: Ints  # (K, K) stream of each link, -1: none; ``next`` of the same link, too
    spare: Floats  # (K, K) bytes/s that streams share, where there are any
    first: Ints  # (K, K) flow of each link, -1: none
    next: Ints  # (F,) of the same link; transfers first, then the hops of spanning jobs, there and back
    demand: Floats  # (F,) bytes/s, inf: as much as it gets
    weight: Floats  # (F,)


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
    allowed: NDArray[np.bool_]  # (S, P) pools that are large enough for the whole job, and near its clients now
    partly: NDArray[np.bool_]  # (S, P) pools that could hold a part of it
    clients: Ints  # (S,) domain from which a shape is asked, -1: anywhere
    bound_s: Floats  # (S,) on the latency to it
    large_enough: NDArray[np.bool_]  # (S, P) pools that hold the whole job, wherever its clients are
    serving: Ints  # (V,) jobs with such a bound
    sets: Ints  # (S, M) sets of domains that it may span, best first, then -1
    pool: Ints  # (P, 8)
    speed: Floats  # (P,)
    bin: Ints  # (B, 8)
    piece: Ints  # (E, 6)
    links: Links
    offers: Offers
    part: Ints  # (n, M) or (0, M): domains of the parts of who runs under an offer or ran so last, -1: none
    going: Ints  # (n, 4 + MOST_PARTS) or (0, ..): where elastic jobs move to in the background
    going_s: Floats  # (n,) or (0,) since when
    tenant: Ints  # (A, 2) node, devices that other tenants take (negative: give back)
    tenant_s: Floats  # (A,) when, ascending
    there: Floats  # (n, K, 2) or (0, K, 2): GB in each domain or on their way, and when the last came (inf: on its way)
    factor: Floats  # (R, 2^K) of time when spanning
    usd_per_s: Floats  # (R, 2^K)
    exchange: Ints  # (R, 2^K) offer of a gang over a set, -1: it holds its factor, and sends nothing
    route: Ints  # (F, M) domains that exchange under it
    user: Floats  # (U, 4)
    group: Floats  # (G, 3)
    reach: Ints  # (G,) the pools (as a set) that jobs of a group may use, -1: all
    due: Floats  # (n + B + 3 + X,) next event of each job and node, rounds, network, tenants, transfers; inf: none
    heap: Ints  # (n + B + 3 + X,)
    place: Ints  # (n + B + 3 + X,) in the heap, -1: not there
    victim: Ints  # (running jobs,)
    clock: Floats  # (3,)
    tally: Ints  # (14,)
    series: Floats  # (T, P + 1) device-seconds and waiting seconds per bin of time
    segment: Ints  # (s, 3) or (0, 3)
    segment_s: Floats  # (s, 2)
    learned: KeyMemory  # of the learned policy; of no jobs where nobody ``remembers``


(
    LEFT,  # work, in seconds on devices of speed 1, as of ``AS_OF``
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
    USD_PER_S,  # of the exchange between the domains of a gang that is no flow; of who is see ``flows.settle``
    USD,
    USD_OF_FLOWS,
    JOINED,  # when it came to its queue: arrived, crossed a level or was promoted
    AS_OF,  # when its run began or its rate last changed
    DONE_IN_RUN,  # work of the run that is on, as of ``AS_OF``
    WEIGHT,  # of its flows
    PAUSED_S,  # on devices, but not computing: restarts, waits for data and state
    ENDS,  # work of the run that is on, if nobody stops it; its devices are held until its data have come, too
    SAVED,  # work of the run that is on, at its last checkpoint before ``AS_OF``
    LATE_S,  # that it computed with its clients farther than its bound
    LATE_SINCE,  # when they came to be; inf: they are near
) = range(32)
JOB_COLUMNS = 32
"""``QueueWorld.job`` (n, ...), float64, four lines of the CPU's cache; what ranks jobs stands in the first."""

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
    ROW,  # of the table of slowdowns; of an elastic job its kind of training
    OFFER,  # that an elastic job runs under, or ran under last; -1: none yet; of a gang that of its last run, -1: none
    HOLDS,  # devices that it holds, or held last
    STATE_AT,  # domain where the state of an elastic job lies, -1: it has none
    COMING,  # transfers of its state that are under way
    EXCHANGES,  # its place in ``Links.spanning`` plus 1, 0: it is not there
    ELASTIC,
    LEAST,  # GPUs
) = range(23)
MARK_COLUMNS = 24
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

BIN_POOL, BIN_SIZE, BIN_FREE, BIN_FIRST, BIN_UP, BIN_FAILURES, BIN_TENANTS, BIN_RANK = range(8)
"""``QueueWorld.bin`` (B, 8): a node if nodes matter, else a whole pool. FIRST is its first piece; a broken one has no
room; TENANTS are devices that others use; blocks of elastic jobs go to the least RANK first."""

PIECE_JOB, PIECE_BIN, PIECE_DEVICES, PIECE_NEXT, PIECE_BEFORE, PIECE_OF_JOB = range(6)
"""``QueueWorld.piece`` (E, 6): devices of one bin that one job holds; NEXT and BEFORE in the bin, OF_JOB the job's
next."""

USER_SERVED, USER_DEVICES, USER_SINCE, USER_JOBS = range(4)
"""``QueueWorld.user`` (U, 4): device-seconds up to SINCE, devices held since then, jobs that wait or run."""

GROUP_SHARE, GROUP_ENTITLED, GROUP_DEMAND = range(3)
"""``QueueWorld.group`` (G, 3): share of the moment, its integral, devices that jobs of the group want."""

FORM_KIND, FORM_PARTS, FORM_BLOCK, FORM_RING = range(4)
"""``Offers.form`` (O, 4)."""
CHAIN, RING, ONE_WAY = range(3)
"""``FORM_RING``: the parts of a ring of replicas each send to the next and to nobody else."""
MOST_PARTS = 4

SENT_FOR, SENT_FROM, SENT_TO, SENT_WHAT, SENT_PHASE, SENT_PLACE = range(6)
"""``Links.transfer`` (X, 6): of which job, from and to which domain, DATA or STATE; its place among the active ones. A
free one names the next free one as SENT_FOR."""
DATA, STATE, STREAM = range(3)
"""A stream is state of a job that goes on computing."""
FREE, SENDING, FLYING, IN_STEP = range(4)
"""``SENT_PHASE``: the last byte of one that is flying has been sent and is not there yet; a stream that is in step has
brought all, and every step's gradients since."""
BYTES_LEFT, BYTES_RATE, BYTES_AS_OF, BYTES_WHOLE, BYTES_CHANGING = range(5)
"""``Links.bytes`` (X, 5). CHANGING, of a stream: gradients of its WHOLE, bytes/s."""
TRANSFERS, SPANNING, NEXT_FREE, STATE_NOW, UNSHARED, TOO_MANY, STREAMS = range(7)
"""``Links.tally`` (7,): active transfers, spanning jobs, the first free transfer, the state of the network, whether
shares are to be found anew, whether there was no room for a transfer, and how many of the transfers are streams."""

GOING_OFFER, GOING_PIECE, GOING_HOLDS, GOING_LACKS, GOING_PARTS = range(5)
"""``QueueWorld.going`` (n, 4 + M): the offer (-1: nowhere), the first piece and all devices held there, streams that
are not in step, and the domains from PARTS on."""
GRADIENT_SHARE = 2.0 / 16.0
"""Gradients (bf16) over weights and optimizer state: bytes a parameter, as in ``network.rules.move``."""

NOW, BIN_WIDTH, STARTED_AT = range(3)
"""``QueueWorld.clock`` (3,)."""

ARRIVED, HEAP, ACTIVE, N_WAITING, N_RUNNING, N_DONE, EVENTS, FREE_PIECE, ROUND_ENDS, SEGMENTS, VICTIMS, SHARES_OLD = (
    range(12)
)
TENANT = 12  # the next event of other tenants
STUCK = 13  # instants since anything was to come that could end a job
"""``QueueWorld.tally`` (14,)."""

ROUND, NETWORK, TENANTS, FIRST_TRANSFER = range(4)
"""Items of the heap behind jobs and bins."""

REMAINING, EXPECTED, ATTAINED, SERVICE, CROSSED, IN_TURN = range(6)
"""``QueueWorld.weights`` (6,): see ``policies.policy.Key``."""

NEVER = 1e300
"""A key or a time later than all others that still counts as one."""
