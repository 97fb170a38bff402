"""In which order ranks stand on the ring on which they sum: domain by domain, as the simulator's best ring has them."""

from __future__ import annotations

from hippo.problem.problem import Problem
from hippo.run.work import Work
from hippo.simulate.ring import ring
from hippo.simulate.routes import Routes

USUAL_BYTES = 8e6  # of a bucket; only the order of domains depends on it


def ring_order(problem: Problem, work: Work, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks in order; raises ``InputError`` when no ring of links joins their domains."""
    domains = tuple(dict.fromkeys(work.seats[rank].domain for rank in ranks))
    routes = Routes.of(problem.cluster, work.plan)
    if len(domains) > 1:
        links = problem.cluster.links
        domains = tuple(links[pair[0]].source for pair in ring(routes, domains, USUAL_BYTES))
    return tuple(sorted(ranks, key=lambda rank: (domains.index(work.seats[rank].domain), rank)))
