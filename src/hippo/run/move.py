"""How long a move of layers takes, and for how long training stands still for it. No torch.

While training stands still a link carries the state at all it has. Beside the training it carries what training leaves
of it (all of a link that training leaves alone): in each step the gradients of what has come, then more of the state.
What has come by the border of a step owes a gradient there, a third of its bytes, so no more than three steps' worth of
what is left can ever be kept in step. A move is planned for as many steps as leave a rest that takes ``REST_STEPS`` of
a step at most with all that the link has; the rest is sent while training stands still. It ends after them unless links
were so much slower that more than ``MOST_REST_STEPS`` are left, and before where next to nothing is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from hippo.run.handover import GRADIENT, STATE, hands, predicted_s, wan_bytes
from hippo.run.network import Pair, RunNetwork, trained_bytes
from hippo.run.version import Version

LITTLE_REST_STEPS, REST_STEPS, MOST_REST_STEPS = 0.1, 0.5, 0.9
"""Of a step: for how long training may stand still where a move beside it ends: at once, as planned, at most."""

USED = 0.8
"""Of what training leaves of a link, how much a stream takes without being in its way (``benchmarks/moves.py``)."""

LATE = 5
"""Steps of late, in whose mean a move is forecast."""

MOST_STEPS = 10_000
"""That a move is played for."""


@dataclass(frozen=True)
class MoveForecast:
    """What a move should take."""

    background: bool
    wan_bytes: Mapping[Pair, float]  # of the state, by pair of domains
    sent_bytes: float  # over all pairs, gradients too
    steps: int  # that are trained meanwhile
    seconds: float  # from the first byte to the last layer in place; inf: it never arrives
    stopped_s: float  # of these, that training stands still


def moved(old: Version, new: Version) -> Mapping[Pair, float]:
    """Bytes of state over the WAN when a version follows another, by pair of domains."""
    cluster, wide = new.job.problem.cluster, 8 if new.job.options.precision == "fp64" else 4
    before, after = old.job.work, new.job.work
    return wan_bytes(before, after, hands(before, after, cluster, old.kept(new)), number_bytes=wide)


def stopping(old: Version, new: Version, network: RunNetwork) -> MoveForecast:
    """By stop and copy."""
    state = moved(old, new)
    seconds = predicted_s(network.mean(new.job.problem.cluster), state, network.transport)
    return MoveForecast(False, state, sum(state.values()), 0, seconds, seconds)


def streaming(
    old: Version,
    new: Version,
    network: RunNetwork,
    *,
    step_s: float,
    steps: int | None = None,
    first: float | None = None,
) -> MoveForecast:
    """Beside steps of so many seconds; ``steps``: to train meanwhile, whatever is left then; ``first``: share of the
    first of them that is left when all have made ready. Until that is known: half where processes start, which are
    ready at any moment of a step, else all."""
    if first is None:
        first = 0.5 if {*new.members} - {*old.members} else 1.0
    state, trained = moved(old, new), trained_bytes(old.job)
    cluster = network.mean(new.job.problem.cluster).under(network.transport)
    links = {pair: cluster.links[cluster.link_index[pair]] for pair in state}
    rates = {pair: link.rate_bytes_per_s(1) for pair, link in links.items()}
    left = {
        pair: USED * max(0.0, rate * step_s - trained[pair]) if trained.get(pair) else rate * step_s
        for pair, rate in rates.items()
    }

    def play(pair: Pair, count: int | None) -> Streamed:
        most = REST_STEPS * rates[pair] * step_s
        return streamed(state[pair], left[pair], most_left=most, steps=count, first=first)

    if steps is None:
        steps = max((play(pair, None).steps for pair in state), default=1)
    if steps >= MOST_STEPS:
        return MoveForecast(True, state, inf, steps, inf, inf)
    played = {pair: play(pair, steps) for pair in state}
    rest = {pair: each.left_bytes / rates[pair] + 2 * links[pair].latency_s for pair, each in played.items()}
    stopped_s = max(rest.values(), default=0.0)
    sent = sum(each.sent_bytes + each.left_bytes for each in played.values())
    return MoveForecast(True, state, sent, steps, (steps - 1 + first) * step_s + stopped_s, stopped_s)


@dataclass(frozen=True)
class Streamed:
    """State of layers on one link after some steps."""

    steps: int
    sent_bytes: float
    left_bytes: float


def streamed(state: float, spare: float, *, most_left: float, steps: int | None = None, first: float = 1.0) -> Streamed:
    """Bytes of state over a link that has so many to spare in a step, until at most ``most_left`` are left, or for so
    many steps; of the first of them a share is left."""
    landed = owed = sent = 0.0
    for number in range(1, (steps or MOST_STEPS) + 1):
        room = spare * first if number == 1 else spare
        paid = min(room, owed)
        came = min(room - paid, state - landed)
        sent, landed = sent + paid + came, landed + came
        owed = min(owed - paid + landed * GRADIENT / STATE, landed)  # who is far behind is sent whole again
        left = state - landed + owed
        if steps is None and left <= most_left:
            return Streamed(number, sent, left)
    return Streamed(steps or MOST_STEPS, sent, left)
