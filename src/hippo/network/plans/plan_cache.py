"""What can run: configurations of one problem, kept in a cache that knows how each does under any state of the links.

A *configuration* is a plan with its levers pulled: relays, micro-batches in flight, schedule, compression, shares of
the batch. Its *location* is where weights and devices lie. Its *place* is the location and every lever that the runtime
cannot pull live (``Runtime.live_levers``): a run goes to another configuration of its place at once and for nothing; to
one of its location that carries no bytes, but its processes start anew, as after any move.

Copies that ``share`` remember what any of them has played (``PlayedSteps``): who asks for the states of one epoch after
another is going to ask for the next ones, too, so these are played with them. Nothing but time depends on it.

Letters: C configurations, P places, S states, T epochs, H horizons, E links, K domains.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from hashlib import blake2b
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hippo.cost.money import egress_usd, rent_usd_per_s
from hippo.errors import InfeasibleError, InputError
from hippo.plan.check import check
from hippo.plan.diff import diff
from hippo.plan.plan import Plan, ScheduleChoice
from hippo.problem.problem import Problem
from hippo.score.judge import evaluate, fits
from hippo.score.score import Score
from hippo.simulate.batch import step_times
from hippo.simulate.lower import lower
from hippo.simulate.program import Program
from hippo.simulate.timeline import link_bytes

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Configuration:
    """A plan as it would run. ``origin`` says who proposed it, ``lever`` what was pulled (empty: nothing)."""

    plan: Plan
    place: int
    origin: str
    lever: str = ""
    worth: float = 1.0  # of a token trained with it: below 1 where what crosses domains is compressed


@dataclass(eq=False)
class PlanCache:
    """Configurations of one problem in the order they were proposed, and what each would do. It only grows.
    The problem's degree of expert parallelism is what plans made anew have (``candidates.fill``).

    Knows no trace: every question names the states of the links it asks about.
    """

    problem: Problem
    configurations: list[Configuration] = field(default_factory=list)
    _index: dict[Plan, int | None] = field(default_factory=dict)
    _places: dict[Plan, int] = field(default_factory=dict)  # by what is equal in a place
    _locations: dict[object, int] = field(default_factory=dict)  # by what is equal where weights lie alike
    _location: list[int] = field(default_factory=list)  # of every place
    _programs: list[Program] = field(default_factory=list)
    _sent: list[Floats] = field(default_factory=list)  # bytes per step on each link
    _moves: dict[tuple[int, int], Floats] = field(default_factory=dict)
    _moved_all: Floats = field(default_factory=lambda: np.zeros((0, 0, 0)))
    _scores: dict[int, Score] = field(default_factory=dict)
    _played: PlayedSteps | None = None  # what is remembered

    def __len__(self) -> int:
        return len(self.configurations)

    @property
    def places(self) -> int:
        """Places known so far."""
        return len(self._places)

    @property
    def tokens_per_step(self) -> float:
        """Tokens of one optimizer step; all plans of a problem train the same batch."""
        return float(self.problem.workload.global_batch * self.problem.workload.seq)

    @property
    def rent_usd_per_s(self) -> float:
        """Rent of all GPUs of the problem."""
        return rent_usd_per_s(self.problem.cluster.gpu, self.problem.cluster.gpus)

    def add(self, plan: Plan, *, origin: str, lever: str = "") -> int | None:
        """The configuration's index, the same for a plan known before; None: the plan cannot run in the base state
        (no memory, a missing link, a broken rule)."""
        if plan not in self._index:
            program = self._playable(plan) if self._played is None else self._played.program(plan, self._playable)
            if program is None:
                self._index[plan] = None
            else:
                self._index[plan] = len(self.configurations)
                self.configurations.append(Configuration(plan, self._place(plan), origin, lever, self._worth(plan)))
                self._programs.append(program)
                self._sent.append(link_bytes(program))
        return self._index[plan]

    def adopt(self, other: PlanCache, index: int) -> int:
        """Adds a configuration of another cache of the same problem, where it was checked; its index here."""
        chosen = other.configurations[index]
        if self._index.get(chosen.plan) is None:
            self._index[chosen.plan] = len(self)
            self.configurations.append(replace(chosen, place=self._place(chosen.plan)))
            program = other._programs[index]
            if self._played is not None:
                program = self._played.program(chosen.plan, lambda _: program) or program
            self._programs.append(program)
            self._sent.append(other._sent[index])
        found = self._index[chosen.plan]
        assert found is not None
        return found

    def copy(self, *, share: bool = False) -> PlanCache:
        """A cache of its own with all that this one knows; what is added to one of them is not in the other.

        ``share``: step times that one of them plays are remembered for both (for many runs over the same states).
        """
        if share and self._played is None:
            self._played = PlayedSteps()
        own = replace(self, **{each.name: copy(getattr(self, each.name)) for each in fields(self)[1:-1]})
        own._played = self._played if share else None
        return own

    def step_time_s(
        self, index: int, bandwidth_bytes_per_s: Floats, latency_s: Floats, compute: Floats | None = None
    ) -> Floats:
        """Seconds of a step, (S,), under states (S, E) of the links and (S, K) of the domains' compute; inf: it needs
        a link that is down."""
        states = bandwidth_bytes_per_s, latency_s, compute
        if self._played is None:
            return self._step_time_s(index, *states)
        return self._played.seconds(self._programs[index], states, lambda *given: self._step_time_s(index, *given))

    def expect(self, bandwidth_bytes_per_s: Floats, latency_s: Floats, compute: Floats) -> None:
        """Says which states copies that ``share`` will ask for, epoch after epoch, (T, H, E), (T, H, E) and (T, H, K):
        those of several epochs are then played at once."""
        if self._played is None:
            self._played = PlayedSteps()
        self._played.expect(bandwidth_bytes_per_s, latency_s, compute)

    def _step_time_s(self, index: int, bandwidth: Floats, latency_s: Floats, compute: Floats | None) -> Floats:
        program, used = self._programs[index], self._sent[index] > 0
        up = (bandwidth[:, used] > 0).all(axis=1)
        seconds = np.full(len(bandwidth), np.inf)
        if up.any():
            idle = np.where(bandwidth[up] > 0, bandwidth[up], 1.0)
            slower = None if compute is None else compute[up]
            seconds[up] = step_times(program, bandwidth_bytes_per_s=idle, latency_s=latency_s[up], compute=slower)
        return seconds

    def program(self, index: int) -> Program:
        """What is played; copies of a cache have it in common."""
        return self._programs[index]

    def bytes_per_step(self, index: int) -> Floats:
        """Bytes on each link, (E,)."""
        return self._sent[index].copy()

    def egress_usd_per_step(self, index: int) -> float:
        """Price of these bytes."""
        return float(self._sent[index] @ self.usd_per_byte)

    def busy_share_s(self, index: int) -> float:
        """Mean over the domains in use of the busy seconds of their GPUs in a step: over the step time, utilisation."""
        score = self.score(index)
        return score.utilization * score.step_time_s

    def score(self, index: int) -> Score:
        """Score in the base state of the links."""
        if index not in self._scores:
            self._scores[index] = evaluate(self.problem, self.configurations[index].plan)
        return self._scores[index]

    @cached_property
    def usd_per_byte(self) -> Floats:
        """Egress price of each link, (E,)."""
        return np.array([egress_usd(1.0, link.price_usd_per_gb) for link in self.problem.cluster.links])

    def of_place(self, place: int) -> list[int]:
        """Configurations between which a run switches without a stop."""
        return [index for index, each in enumerate(self.configurations) if each.place == place]

    def location(self, index: int) -> int:
        """A number for where the weights of a configuration lie: levers alone lie between those of one number."""
        return self._location[self.configurations[index].place]

    def move_bytes(self, source: int, destination: int) -> Floats:
        """Bytes each link carries, (E,), to bring weights and optimizer state from one place to another; inf: there is
        no way. Zeros: only the processes start anew."""
        return self._between(self._location[source], self._location[destination])

    def _between(self, source: int, destination: int) -> Floats:
        """The same from one location to another."""
        if (source, destination) not in self._moves:
            known = None if self._played is None else self._played.moves
            keys = list(self._locations)
            key = keys[source], keys[destination]
            if known is None or key not in known:
                found = self._moved(source, destination)
                if known is not None:
                    known[key] = found
            self._moves[source, destination] = found if known is None else known[key]
        return self._moves[source, destination]

    def moves(self) -> Floats:
        """``move_bytes`` of all pairs of places, (P, P, E); the same array until there are more places."""
        if len(self._moved_all) < self.places:
            among = range(len(self._locations))
            between = np.array([[self._between(one, other) for other in among] for one in among])
            self._moved_all = between[np.ix_(self._location, self._location)]
        return self._moved_all

    def domains_used(self, index: int) -> NDArray[np.bool_]:
        """Which domains a configuration uses, (K,)."""
        used = np.zeros(len(self.problem.cluster.domains), dtype=bool)
        used[[self.problem.cluster.domain_index[name] for name in self.configurations[index].plan.domains]] = True
        return used

    def _moved(self, source: int, destination: int) -> Floats:
        links = self.problem.cluster.links
        found = np.zeros(len(links))
        indices = range(len(self))
        found_at = [next(each for each in indices if self.location(each) == at) for at in (source, destination)]
        before, after = (self.configurations[index].plan for index in found_at)
        try:
            moves = diff(self.problem, before, after)
        except InputError:
            return np.full(len(links), np.inf)
        for pair, num_bytes in moves.link_bytes.items():
            found[self.problem.cluster.link_index[pair]] = num_bytes
        return found

    def _place(self, plan: Plan) -> int:
        """The place of a plan; a new one where none is equal."""
        place = self._places.setdefault(unlevered(plan, self.problem.rules.live_levers), len(self._places))
        if place == len(self._location):
            self._location.append(self._locations.setdefault(located(plan), len(self._locations)))
        return place

    def _worth(self, plan: Plan) -> float:
        if not plan.compression:
            return 1.0
        worth = self.problem.compression_worth
        assert worth is not None, "what a token trained with compression is worth was asked for at the door"
        return worth

    def _playable(self, plan: Plan) -> Program | None:
        try:
            if check(self.problem, plan) or not fits(self.problem, plan):
                return None
            return lower(self.problem, plan)
        except (InfeasibleError, InputError):
            return None


def located(plan: Plan) -> object:
    """What is equal where two plans keep weights on the same devices."""
    degrees = (
        plan.interleave,
        plan.context_parallel,
        plan.expert_parallel,
        plan.expert_tensor_parallel,
        plan.overlap_exchange,
    )
    return tuple(pipeline.stages for pipeline in plan.pipelines), plan.sharding, *degrees


def unlevered(plan: Plan, live: Collection[str]) -> Plan:
    """The plan with what some levers change left out: equal where a run that pulls them live need not stop."""
    lines = plan.pipelines
    if "order" in live:
        lines = tuple(replace(line, warm_up=(), order=()) for line in lines)
        plan = replace(plan, schedule=ScheduleChoice())
    if "micro-batch" in live:  # what a pipeline works through, in sequences
        lines = tuple(replace(line, num_micro_batches=line.num_micro_batches * plan.micro_batch) for line in lines)
        plan = replace(plan, micro_batch=1)
    if "shares" in live:
        lines = tuple(replace(line, num_micro_batches=1) for line in lines)
    relays = () if "relay" in live else plan.relays
    return replace(plan, pipelines=lines, relays=relays, compression=() if "fp8" in live else plan.compression)


States = tuple[Floats, Floats, Floats | None]  # bandwidths (S, E), latencies (S, E), factors on compute (S, K)
Play = Callable[[Floats, Floats, Floats | None], Floats]
TOGETHER = 16  # epochs that are played at once


class PlayedSteps:
    """Step times by program and states. Each key keeps its program, so that no other one can get its id."""

    def __init__(self) -> None:
        self.moves: dict[tuple[object, object], Floats] = {}  # bytes of a move, by what is equal where places are
        self._known: dict[tuple[int, bytes], tuple[Program, Floats]] = {}
        self._next: dict[bytes, tuple[int, int, int]] = {}  # states to come: series, epoch, how many of its horizons
        self._series: list[tuple[tuple[Floats, Floats, Floats], dict[int, list[bytes]]]] = []
        self._programs: dict[Plan, Program | None] = {}
        self._last: tuple[States | None, bytes] = None, b""

    def program(self, plan: Plan, make: Callable[[Plan], Program | None]) -> Program | None:
        """What is played for a plan, the same for every cache; None: it cannot run."""
        if plan not in self._programs:
            self._programs[plan] = make(plan)
        return self._programs[plan]

    def expect(self, bandwidth_bytes_per_s: Floats, latency_s: Floats, compute: Floats) -> None:
        """States that will be asked for epoch after epoch, (T, H, E), (T, H, E) and (T, H, K): all horizons of an
        epoch, or the first alone."""
        states = bandwidth_bytes_per_s, latency_s, compute
        keys: dict[int, list[bytes]] = {}
        for rows in (1, bandwidth_bytes_per_s.shape[1]):
            keys[rows] = [_key(states, epoch, rows) for epoch in range(len(bandwidth_bytes_per_s))]
            if keys[rows][0] in self._next:
                return  # the same as before
        for rows, each in keys.items():
            self._next |= {key: (len(self._series), epoch, rows) for epoch, key in enumerate(each)}
        self._series.append((states, keys))

    def seconds(self, program: Program, states: States, play: Play) -> Floats:
        """Step times of a program, (S,); what is not known is played."""
        asked, key = self._last
        if asked is None or any(one is not other for one, other in zip(asked, states, strict=True)):
            key = _key(states)
            self._last = states, key
        known = self._known.get((id(program), key))
        if known is None:
            self._play(program, key, states, play)
            known = self._known[id(program), key]
        return known[1].copy()

    def _play(self, program: Program, key: bytes, states: States, play: Play) -> None:
        series, epoch, rows = self._next.get(key, (-1, 0, 0))
        if series >= 0:
            whole, keys = self._series[series]
            if epoch > 0 and (id(program), keys[rows][epoch - 1]) in self._known:
                wanted = keys[rows][epoch : epoch + TOGETHER]
                stop = epoch + len(wanted)
                found = play(*(np.concatenate(each[epoch:stop, :rows]) for each in whole))
                for place, each in enumerate(wanted):
                    self._known[id(program), each] = program, found[place * rows : (place + 1) * rows]
                return
        self._known[id(program), key] = program, play(*states)


def _key(states: States, epoch: int | None = None, rows: int = 0) -> bytes:
    """What is equal where states are; ``epoch``: of (T, H, ..), the first ``rows`` of that one."""
    given = [each if epoch is None else each[epoch, :rows] for each in states if each is not None]
    told = b"".join(each.tobytes() for each in given)
    return blake2b(told, digest_size=16).digest() + bytes([len(given)])


_COUNTED: WeakKeyDictionary[PlanCache, tuple[float, Floats]] = WeakKeyDictionary()


def net_tokens_per_step(cache: PlanCache, usd_per_token: float) -> Floats:
    """Tokens of a step as they count, less its egress in tokens, (C,); kept until the cache grows."""
    known = _COUNTED.get(cache)
    if known is None or known[0] != usd_per_token or len(known[1]) != len(cache):
        price = 1.0 / usd_per_token if usd_per_token > 0 else 0.0
        counted = [
            cache.tokens_per_step * each.worth - price * cache.egress_usd_per_step(index)
            for index, each in enumerate(cache.configurations)
        ]
        known = _COUNTED[cache] = usd_per_token, np.array(counted)
        known[1].setflags(write=False)
    return known[1]
