"""Joint decisions tried ahead: what each rule would do now, and single jobs moved, resized or stopped, are played to
the end in a copy of the world, and the cheapest is carried out (roll-out: Bertsekas, Tsitsiklis and Wu, 1997).

The copy knows what is known now: who has come, what runs where, links as they are, nodes that are being repaired. It
knows of no arrival, failure, tenant or movement of links that is to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.flows import find_finish, next_due
from hippo.jobs.engine.heaps import set_due
from hippo.jobs.engine.keys import remaining, told_left
from hippo.jobs.engine.world import QueueWorld
from hippo.jobs.joint.copies import WorldCopy
from hippo.jobs.joint.moment import JobPlace, Moment
from hippo.jobs.joint.play import step
from hippo.jobs.joint.ranked import RankRoom, decide_ranked, rank_room
from hippo.jobs.joint.rules import SAILOR, SHORTEST, SRPT, Ranked

NEVER_S = 1e7
"""A job that no rule ever begins counts for so long: longer than any other outcome."""


class Change(NamedTuple):
    """One job goes to a place; none: it stops."""

    job: int
    place: JobPlace | None


@dataclass(frozen=True)
class JointCandidate:
    """A joint decision: a change, if there is one, and then whatever a rule does."""

    rule: Ranked
    change: Change | None = None

    def carry_out(self, moment: Moment) -> None:
        """At a moment, or at its copy."""
        if self.change is not None:
            job, place = self.change
            if place is None:
                moment.pause(job)
            elif moment.world.mark[job, c.STATUS] == c.RUNNING:
                moment.resize(job, place)
            else:
                moment.begin(job, place)
        self.rule.decide(moment)


FILL = replace(SRPT, preempts=False, grows=False, margin=1.0)
"""What goes on beside a change: nobody is stopped for it."""


@dataclass(frozen=True)
class JointHorizon:
    """Roll-out over joint decisions under a base rule, whose own decision is the first candidate."""

    name: str = "receding_horizon"
    summary: str = "what rules and single changes would lead to, played ahead; the cheapest is done"
    source: str = "Bertsekas, Tsitsiklis and Wu, 1997"
    knows: str = "durations"
    preempts: bool = True
    learns: bool = False
    base: Ranked = SRPT
    """Decides in what is played ahead."""
    rules: tuple[Ranked, ...] = (replace(SRPT, grows=False), replace(SRPT, ahead=0.0), FILL, SHORTEST, SAILOR)
    """Whose decisions are candidates, beside the base's."""
    changes: int = 12
    """Single changes that are tried (0 or more), beside the rules."""
    horizon_s: float = 1e9
    """So far is played (above 0); what is left then counts as if undisturbed."""
    lead: float = 0.001
    """A candidate must cost less than the base's decision by more than this share."""
    effort: float = 1e5
    """Moments that are played x jobs in the system, of all candidates: 3 to 5 us each, so that an answer takes less
    than a second. Where the base's own play takes more, the base decides."""

    def decide(self, moment: Moment) -> None:
        """Try candidates in copies of the world; carry out the cheapest. Where nobody waits the base decides."""
        if not len(moment.waiting):
            self.base.decide(moment)
            return
        ahead = WorldAhead.of(moment)
        best, least, left = JointCandidate(self.base), np.inf, self.effort
        for candidate in self._candidates(moment):
            ahead.carry_out(candidate.carry_out)
            cost, spent = ahead.cost(self.base, left, horizon_s=self.horizon_s)
            left -= spent
            if left <= 0.0:
                moment.counts["degraded"] += int(np.isinf(least))
                break
            if cost < least * (1.0 - (self.lead if candidate.rule is not self.base else 0.0)):
                best, least = candidate, cost
        best.carry_out(moment)

    def _candidates(self, moment: Moment) -> Iterator[JointCandidate]:
        yield JointCandidate(self.base)
        for rule in self.rules:
            yield JointCandidate(rule)
        for count, change in enumerate(_changes(moment)):
            if count == self.changes:
                return
            yield JointCandidate(FILL, change)


def _changes(moment: Moment) -> Iterator[Change]:
    """Of who waits and who runs the six that weigh most: the quickest and the leanest place of one that waits; half as
    many GPUs, none and more for one that runs."""
    price = {job: float(moment.sight.price[job]) for job in (*moment.waiting, *moment.running)}
    waiting = sorted(moment.waiting.tolist(), key=lambda job: (-price[job], job))
    running = [job for job in moment.running.tolist() if moment.workload.elastic[job] and moment.sight.stops]
    running.sort(key=lambda job: (-moment.remaining_s(job) * moment.running_at(job).gpus, job))
    lists = [list(_of_waiting(moment, job)) for job in waiting[:6]] + [
        list(_of_running(moment, job)) for job in running[:6]
    ]
    for turn in range(max(map(len, lists), default=0)):
        yield from (each[turn] for each in lists if turn < len(each))


def _of_waiting(moment: Moment, job: int) -> Iterator[Change]:
    places = moment.places(job) if moment.workload.elastic[job] else []
    if places:
        yield Change(job, places[0])
        yield Change(job, max(places, key=lambda each: each.rate / each.gpus))


def _of_running(moment: Moment, job: int) -> Iterator[Change]:
    here, places = moment.running_at(job), moment.places(job)
    fewer = [each for each in places if each.gpus <= here.gpus // 2]
    more = [each for each in places if each.gpus > here.gpus]
    if fewer:
        yield Change(job, fewer[0])
    yield Change(job, None)
    if more:
        yield Change(job, more[0])


# ---------------------------------------------------------------------------------------------------- what is to come
@dataclass(frozen=True, eq=False)
class WorldAhead:
    """A world that holds what is known at a moment, and a copy of it in which candidates are played."""

    known: QueueWorld
    trial: Moment
    room: RankRoom
    again: WorldCopy = field(repr=False)  # the trial, of what is known

    @classmethod
    def of(cls, moment: Moment) -> WorldAhead:
        """At a moment."""
        known = WorldCopy.of(moment.world).copy._replace(mtbf_s=np.inf)
        _hide(known)
        again = WorldCopy.of(known)
        room = rank_room(moment.sight)
        there = Moment(again.copy, moment.workload, moment.site, moment.offers, moment.sight)
        return cls(known, there, room, again)

    def carry_out(self, decide: Callable[[Moment], object]) -> None:
        """Let the copy be as what is known, and something be decided in it."""
        self.again.restore()
        decide(self.trial)

    @property
    def stands(self) -> tuple[NDArray[Any], ...]:
        """How jobs and devices stand in the copy (it changes with it)."""
        world = self.trial.world
        return world.mark, world.part, world.bin, world.piece, world.job[:, c.WEIGHT]

    def cost(
        self,
        base: Ranked,
        effort: float,
        *,
        horizon_s: float = 1e9,
        on_time: Callable[[], bool] = lambda: True,
    ) -> tuple[float, float]:
        """What all known jobs cost from now on if the copy is played on as it stands and the base decides what comes,
        so far ahead; the effort that took, at most ``effort`` (then the cost is of a part). Where ``on_time``, which is
        asked every ``SLICE``, says no, all of it is spent."""
        world, sight, terms = self.trial.world, self.trial.sight, base.terms
        until_s, paid, spent, comes = self.trial.now_s + horizon_s, 0.0, 0.0, True
        while comes and world.clock[c.NOW] < until_s and spent < effort:
            if not on_time():
                return np.inf, effort
            most = min(effort, spent + SLICE)
            paid, spent, comes = _play(world, sight, terms, self.room, (until_s, most), paid, spent)
        return float(_rest(world, sight, paid, comes)), float(spent)


SLICE = 5e3
"""Of effort; some 20 ms."""


@kernel(lean=True)
def _hide(w):  # type: ignore[no-untyped-def]
    """Forget who comes, when nodes fail, links move and tenants change, and when jobs end but by what was told."""
    for job in range(w.tally[c.ARRIVED], len(w.job)):
        w.job[job, c.ARRIVAL] = np.inf
    now, height, first = w.clock[c.NOW], w.tally[c.HEAP : c.HEAP + 1], len(w.job)
    for job in range(w.tally[c.ARRIVED]):
        row, status = w.job[job], w.mark[job, c.STATUS]
        more = told_left(w, job, now) - remaining(w, job, now)
        if more == 0.0 or row[c.LEFT] <= 0.0 or (status != c.WAITING and status != c.RUNNING):
            continue
        row[c.LEFT] += more
        row[c.DURATION] += more
        if status == c.RUNNING:
            find_finish(w, job)
            set_due(w.heap, w.due, w.place, height, job, next_due(w, job))
    for node in range(len(w.bin)):
        if w.bin[node, c.BIN_UP] == 1:
            set_due(w.heap, w.due, w.place, height, first + node, np.inf)
    for item in (c.NETWORK, c.TENANTS):
        set_due(w.heap, w.due, w.place, height, first + len(w.bin) + item, np.inf)


@kernel(lean=True)
def _play(w, s, r, room, ends, paid, spent):  # type: ignore[no-untyped-def]
    """Play on under a rule until a time or an effort; price of the time that jobs are in the system and effort, with
    what they were before, and whether anything is to come."""
    comes = True
    while comes and w.clock[c.NOW] < ends[0] and spent < ends[1]:
        before, each = w.clock[c.NOW], 0.0
        for job in range(w.tally[c.ARRIVED]):
            if w.mark[job, c.STATUS] == c.WAITING or w.mark[job, c.STATUS] == c.RUNNING:
                each += s.price[job]
                spent += 1.0
        comes = step(w)
        paid += each * (w.clock[c.NOW] - before)
        if comes:
            decide_ranked(w, s, r, room)
    return paid, spent, comes


@kernel(lean=True)
def _rest(w, s, paid, comes):  # type: ignore[no-untyped-def]
    """Paid, with what those who are still there cost as if undisturbed; nothing is to come: for as long as counts."""
    for job in range(w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] == c.WAITING or w.mark[job, c.STATUS] == c.RUNNING:
            left = remaining(w, job, w.clock[c.NOW])
            rate = w.job[job, c.RATE] if w.mark[job, c.STATUS] == c.RUNNING else s.quickest[job]
            paid += s.price[job] * (NEVER_S if not comes else min(NEVER_S, left / max(1e-12, rate)))
    return paid
