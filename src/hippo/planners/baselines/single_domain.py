"""Do not cross: the best plan inside the best single domain. The honest answer where links are slow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hippo.plan.plan import Plan, ScheduleChoice
from hippo.planners.base import Progress, Proposal, Stop
from hippo.planners.inside_domain import DomainSearch, Inside
from hippo.planners.placement import place
from hippo.planners.shortlist import ShortList
from hippo.problem.cluster import Cluster, Domain
from hippo.problem.problem import Problem
from hippo.simulate.costs import cost_model

DOMAIN_S = 0.1  # of work for a domain (planners.effort)
TRIED = 8  # layouts of each domain that the judge plays
CHUNKS = (2, 4)  # model chunks per rank that are tried on the best layouts (interleaved 1F1B, SC'21, section 2.2.2)


@dataclass(frozen=True)
class SingleDomain:
    """Full search over width, stages, micro-batch, recomputation and sharding inside every domain on its own."""

    name: str = "single_domain"

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """The best plan that uses one domain; see ``planners.base``."""
        shortlist = ShortList.of(problem, stop)
        bids(shortlist, progress)
        return shortlist.proposal(
            self.name,
            notes=("Uses one domain and leaves the others idle.",),
            nothing=f"{problem.model.name} does not fit into any single domain.",
        )


def bids(shortlist: ShortList, progress: Progress | None = None) -> None:
    """Tries the best layouts of the whole job in every domain on its own."""
    problem = shortlist.problem
    costs, alike = cost_model(problem), unlike_domains(problem.cluster)
    for index, domain in enumerate(alike):
        if index and shortlist.effort.over():
            break
        shortlist.effort.spend(DOMAIN_S)
        search = DomainSearch(costs, domain, problem.workload.global_batch)
        insides = search.best(TRIED, shortlist.reject_memory)
        shortlist.try_all(plan for inside in insides for plan in variants(problem, inside))
        if progress is not None:
            progress("one domain after the other", (index + 1) / len(alike))


def variants(problem: Problem, inside: Inside) -> Iterator[Plan]:
    """The layout as it is, and interleaved where the waves and the layers divide."""
    pipelines = place(problem.cluster, [inside.sketch], cp=problem.context_parallel)
    yield inside.recipe.plan(problem, pipelines)
    if inside.pp == 1 or inside.waves % inside.pp:
        return
    for chunks in CHUNKS:
        if all((stop - start) % chunks == 0 for start, stop in zip(inside.cuts[:-1], inside.cuts[1:], strict=True)):
            recipe = replace(inside.recipe, interleave=chunks, schedule=ScheduleChoice("interleaved"))
            yield recipe.plan(problem, pipelines)


def unlike_domains(cluster: Cluster) -> tuple[Domain, ...]:
    """One domain of each size and fabric: the first, in the order of the cluster."""
    seen: dict[Domain, Domain] = {}
    for domain in cluster.domains:
        seen.setdefault(replace(domain, name=""), domain)
    return tuple(seen.values())
