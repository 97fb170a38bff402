"""One problem searched again: under other links, over some of its domains alone, or with local SGD.

What layers cost does not depend on the links, so the problem's tables and layouts serve them all; and what was found
before is played first, so that a search begins where the last one ended. Nothing is proven here: it finds plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from itertools import combinations
from math import inf

from hippo.plan.plan import Plan, Sync
from hippo.planners.effort import Effort
from hippo.planners.exact.candidates import Candidate, Tried
from hippo.planners.exact.chains import WAITS, search_chains, search_without
from hippo.planners.exact.interleaved import search_interleaved, shapes_of
from hippo.planners.exact.mixed import search_mixed
from hippo.planners.exact.polish import play_ordered
from hippo.planners.exact.replicas import search_replicas
from hippo.planners.exact.search import polish_best, search_ways
from hippo.planners.exact.space import EVERY, Field, Only, remembered
from hippo.planners.exact.uniform import shapes
from hippo.problem.problem import Problem

TOLD = 6  # plans that a search hands over: the best of as many ways to join
MOST_ENUMERATED = 5  # domains of which all sets are looked at; of more, those near the sets that are known

Way = tuple[bool, bool, str, frozenset[str]]
"""Whether a pipeline crosses, whether there are replicas, how they agree, and the domains."""


def _way(candidate: Candidate) -> Way:
    """How a candidate joins which domains."""
    groups = {tuple(dict.fromkeys(stage.domain for stage in line.stages)) for line in candidate.pipelines}
    across, several = any(len(group) > 1 for group in groups), len(groups) > 1
    return across, several, candidate.sync.method, frozenset(name for group in groups for name in group)


@dataclass(frozen=True, eq=False)
class DomainReplanner:
    """Searches one problem again and again."""

    field: Field
    known: dict[Way, list[Candidate]] = dataclass_field(default_factory=dict)  # the first found of each, and the last

    @classmethod
    def of(cls, problem: Problem, answer: Plan | None = None) -> DomainReplanner:
        """From what the exact search of this very problem left, if it was the last one, and from the ``answer``,
        whoever found it; else from nothing."""
        field = remembered(problem) or Field.of(problem, Tried(problem))
        known = {_way(each): [each] for _, each in _best(field.tried)}
        first = None if answer is None else Candidate.of(problem, answer)
        if first is not None and first not in known.get(_way(first), []):
            known[_way(first)] = [first, *known.get(_way(first), [])]
        return cls(field, known)

    @property
    def first(self) -> frozenset[Plan]:
        """Plans that are played first in every search."""
        return frozenset(each.plan(self.field.problem) for found in self.known.values() for each in found)

    def plans(
        self,
        problem: Problem,
        effort: Effort,
        only: Only | None = None,
        *,
        local_sgd: bool = False,
        below: float = inf,
    ) -> tuple[tuple[float, Plan], ...]:
        """The best plan of each way to join that was found with its worth, best first.

        ``problem`` may have other links and allow more than the one that this is for. ``effort`` counts the work, and
        ends the search once it is spent: its ``cut`` says so. ``only``: over these domains; ``local_sgd``: replicas
        that agree now and then, and nothing else; ``below``: only what is worth less is looked for.
        """
        tried = Tried(problem, effort, ceiling=below, until_found=False)
        field = Field(problem, self.field.tables, tried, ordered=self.field.ordered, only=only)
        fields = [] if local_sgd else [field]
        if problem.allow_local_sgd and field.rules.local_sgd:
            fields.append(replace(field, sync=Sync.outer(problem.outer_step), ordered=EVERY, _cache={}))
        chunked = self._chunked
        for candidate in [each for found in self.known.values() for each in found]:
            if self._admits(candidate, only, local_sgd):
                tried.play(candidate)
        for each in fields:
            search_ways(each, others=False)
            search_replicas(each)
            play_ordered(each)
            if chunked:
                search_interleaved(each)
        if not local_sgd:
            search_mixed(field, 0.0)
            if self._chained(only):
                search_chains(field, [each for _, each in tried.best.values()], seeded=only is not None)
            polish_best(problem, tried, fields)
        found = _best(tried)[:TOLD]
        for _, candidate in found:
            last = self.known.setdefault(_way(candidate), [candidate])
            last[1:] = [] if candidate == last[0] else [candidate]
        return tuple((value, each.plan(problem)) for value, each in found)

    def without_each(self, problem: Problem, answer: Plan, effort: Effort) -> Iterator[Plan]:
        """The ``answer``, a pipeline, without each of its domains in turn: laid as it is where that is best."""
        start, at = Candidate.of(problem, answer), problem.cluster.domain_index
        if start is None or len(answer.domains) < 3:  # of two, each alone is searched anyway
            return
        for name in answer.domains:
            rest = Only(frozenset(at[each] for each in answer.domains if each != name), 1)
            tried = Tried(problem, effort)
            search_without(
                Field(problem, self.field.tables, tried, ordered=self.field.ordered, only=rest), start, at[name]
            )
            if tried.winner is not None:
                self.known.setdefault(_way(tried.winner), [tried.winner])
                yield tried.winner.plan(problem)

    def _chained(self, only: Only | None) -> bool:
        """Whether bounds alone do not lead to good plans: domains differ, or their ranks wait for messages."""
        kinds = self.field.tables.kinds
        among = range(len(kinds)) if only is None else only.domains
        return len({kinds[each] for each in among}) > 1 or self.field.rules.messages.calls in WAITS

    @property
    def _chunked(self) -> bool:
        """Whether plans with chunks are looked for: an answer without is held against others without."""
        return self.field.rules.interleave and any(each.chunks > 1 for found in self.known.values() for each in found)

    def _admits(self, candidate: Candidate, only: Only | None, local_sgd: bool) -> bool:
        if local_sgd != (candidate.sync.method == "local_sgd"):
            return False
        at = self.field.problem.cluster.domain_index
        return only is None or only.holds([at[stage.domain] for stage in line.stages] for line in candidate.pipelines)

    def sets_with(self, name: str, near: Sequence[frozenset[str]]) -> Iterator[tuple[float, Only]]:
        """Sets of domains with this one, each with a bound on the worth of its plans, the least first.

        Of few domains all sets; of more, those of ``near`` with this one added, or in the place of another.
        """
        at = self.field.problem.cluster.domain_index
        others = [each for each in at if each != name]
        if len(at) <= MOST_ENUMERATED:
            sets = {frozenset(rest) for n in range(len(others) + 1) for rest in combinations(others, n)}
        else:
            sets = {frozenset(), *(known - {name} for known in near)}
            sets |= {known - {name, each} for known in near for each in known}
        wanted = [Only(frozenset(at[each] for each in (name, *rest)), None if rest else 1) for rest in sets]
        bounded = [(self._bound(only), sorted(only.domains), only) for only in wanted]
        for bound, _, only in sorted(bounded, key=lambda item: item[:2]):
            yield bound, only

    def _bound(self, only: Only) -> float:
        """Least worth of plans whose stages all lie alike over these domains; 0 where domains are of several kinds."""
        own = self.field
        kinds = {own.tables.kinds[each] for each in only.domains}
        if len(kinds) > 1:
            return 0.0
        (kind,) = kinds
        field = Field(own.problem, own.tables, Tried(own.problem), own.sync, own.ordered, only)
        ways = field.ideal_ways(kind)
        if not ways:
            return inf
        bounds, _ = shapes(field, kind, ways)
        least = float(bounds[0]) if len(bounds) else inf
        if not self._chunked:
            return least
        return min([least, *(float(shapes_of(field, kind, way, inf)[0].rough.min(initial=inf)) for way in ways)])


def _best(tried: Tried) -> list[tuple[float, Candidate]]:
    """The best candidate of every way to join, best first; of equals the first that was played."""
    best: dict[Way, tuple[float, Candidate]] = {}
    for candidate, value in tried.known.items():
        way = _way(candidate)
        if value < (best[way][0] if way in best else inf):
            best[way] = value, candidate
    return sorted(best.values(), key=lambda item: item[0])
