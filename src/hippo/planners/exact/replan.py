"""How quick the best plan over given domains is when the links change: planned anew, from the tables of one problem.

What layers cost does not depend on the links, so everything but the way to join domains is worked out once. A *joining*
is the domains of every group, in order: ``((0, 1),)`` a pipeline over two domains, ``((0,), (1,))`` replicas in two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from itertools import permutations

import numpy as np

from hippo.plan.plan import Plan
from hippo.planners.exact.candidates import Tried
from hippo.planners.exact.polish import LONG, play_ordered
from hippo.planners.exact.space import NOBODY, Field, remembered
from hippo.planners.exact.uniform import best_first, play
from hippo.planners.exact.ways import DomainWay, Groups, real_way
from hippo.problem.problem import Problem

MOST_ORDERED = 4  # domains of a single pipeline up to which all their orders are looked at
WAYS = 2  # orders and relays that are planned: those of the fastest slowest link
PLAYED = 2  # shapes played for a plan,
CLOSE = 1.003  # or one, where it comes this close to its bound


def joining_of(problem: Problem, plan: Plan) -> Groups | None:
    """The joining of a plan of one pipeline; None: of several, where the bound is too loose to plan by it alone."""
    at, group = problem.cluster.domain_index, plan.pipelines[0].domains
    alike = len(plan.pipelines) == 1 and len(set(group)) == len(group)
    kinds = {replace(problem.cluster.domain(name), name="") for name in group}
    return (tuple(at[name] for name in group),) if alike and len(kinds) == 1 else None


@dataclass(frozen=True, eq=False)
class DomainReplanner:
    """Plans one problem again and again, each time under other links."""

    field: Field
    _alone: dict[Groups, float] = dataclass_field(default_factory=dict)  # bounds of single domains: no link matters
    _alone_played: dict[Groups, float] = dataclass_field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem, plan: Plan | None = None) -> DomainReplanner:
        """For this problem's model, domains and workload; without orders where ``plan`` (to start from) has long
        pipelines: there they hardly matter, and would be made again and again."""
        field = remembered(problem) or Field.of(problem, Tried(problem))
        lines = () if plan is None else plan.pipelines
        long = any(3 * len(line.stages) * line.num_micro_batches > LONG for line in lines)
        return cls(replace(field, ordered=NOBODY) if long else field)

    def bound_s(self, problem: Problem, joining: Groups) -> float:
        """Least step time of any plan with this joining, before it is played; inf: there is none."""
        if joining in self._alone:
            return self._alone[joining]
        field, kind, ways = self._under(problem, joining)
        found = next((bound for bound, _, _ in best_first(field, kind, ways)), np.inf) if ways else np.inf
        if len(joining[0]) == 1:
            self._alone[joining] = found
        return found

    def step_time_s(self, problem: Problem, joining: Groups) -> float:
        """Step time of the best plan with this joining among those of least bound, as played; inf: there is none."""
        if joining in self._alone_played:
            return self._alone_played[joining]
        found = self._played(problem, joining).value
        if len(joining[0]) == 1:
            self._alone_played[joining] = found
        return found

    def plan(self, problem: Problem, joining: Groups) -> Plan | None:
        """That plan."""
        winner = self._played(problem, joining).winner
        return None if winner is None else winner.plan(problem)

    def _played(self, problem: Problem, joining: Groups) -> Tried:
        field, kind, ways = self._under(problem, joining)
        for tried, (bound, shape, cuts) in enumerate(best_first(field, kind, ways) if ways else ()):
            play(field, shape, cuts, bound)
            if tried + 1 >= PLAYED or field.tried.value <= bound * CLOSE:
                break
        play_ordered(field, operations=1)
        return field.tried

    def _under(self, problem: Problem, joining: Groups) -> tuple[Field, int, list[DomainWay]]:
        """The field with this problem's links, the kind of the domains, and the best ways over them in any order."""
        own = self.field
        kinds = {own.tables.kinds[each] for group in joining for each in group}
        if len(kinds) > 1:
            return own, 0, []
        (kind,) = kinds
        rows: dict[object, object] = {("rows", kind): own.layout_rows(kind)}
        field = Field(problem, own.tables, Tried(problem), own.sync, own.ordered, _cache=rows)
        field.__dict__["layouts"] = own.layouts  # they do not depend on links
        tied, senders = bool(field.tied_bytes), {way.senders for way in field.ideal_ways(kind)}
        ways: list[DomainWay] = []
        for sending in sorted(senders):
            found = (
                real_way(field.routes(sending), groups, ceiling, tied=tied)
                for groups in orders(joining)
                for ceiling in (np.inf, 0.0)  # directly, and relayed wherever that is faster
            )
            sound = [way for way in found if way is not None and np.isfinite(way.slowest + way.tail_pace)]
            sound.sort(key=lambda way: (way.slowest, way.before_s[-1] + way.tail_s))
            ways += [replace(way, senders=sending) for way in sound[:WAYS]]
        return field, kind, ways


def orders(joining: Groups) -> list[Groups]:
    """The joining; of a single pipeline over few domains, each of its orders (a path and its reverse once)."""
    if len(joining) > 1 or len(joining[0]) > MOST_ORDERED:
        return [joining]
    return [(order,) for order in permutations(sorted(joining[0])) if order[0] <= order[-1]]
