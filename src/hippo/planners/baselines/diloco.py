"""DiLoCo (Douillard et al., 2023): every domain trains its own replica and they average every H steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from hippo.cost.cost_model import CostModel
from hippo.plan.plan import Plan, Sync
from hippo.planners.base import Progress, Proposal, Status, Stop
from hippo.planners.cuts import deal_sequences
from hippo.planners.inside_domain import DomainSearch, Inside, Reject
from hippo.planners.placement import place
from hippo.planners.recipe import Recipe, powers_of_two
from hippo.planners.shortlist import ShortList
from hippo.problem.cluster import Domain
from hippo.problem.outer_step import OuterStep
from hippo.problem.problem import Problem
from hippo.simulate.costs import cost_model

SCANNED = (60, 600, 6000)  # layouts of a domain among which recipes that all share are looked for; more if none is
TRIED = 8
FINEST = 16  # where the batch does not divide, a share is dealt in grains of about 1/16 of it
NOTES = (
    f"Local SGD changes the optimizer: replicas average every {OuterStep().every} steps, or as --outer-step says "
    "(AdamW inside, Nesterov outside).",
    "Published penalty in evaluation loss against data parallelism (Charles et al. 2025, tables 4 and 5, H = 30): "
    "-0.2 % with 2 replicas, +0.2 % (4B parameters) to +0.3 % (10B) with 4, +1.1 % (2.4B) with 8; none is published "
    "for H = 500 at this size. The step time counts none of it.",
    "Left out: the outer optimizer's copy of the parameters and momentum are taken to lie in host memory; no "
    "asynchronous replicas.",
)


@dataclass(frozen=True)
class Diloco:
    """One replica per domain in its best layout; competes only where the user allows local SGD."""

    name: str = "diloco"

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """The best local SGD plan over all domains that hold the model; see ``planners.base``."""
        if not problem.allow_local_sgd:
            return Proposal(self.name, Status.INFEASIBLE, notes=("The user has not allowed local SGD.",))
        if not problem.rules.local_sgd:
            return Proposal(self.name, Status.INFEASIBLE, notes=(f"{problem.runtime} cannot express local SGD.",))
        shortlist = ShortList.of(problem, stop)
        shortlist.try_all(_plans(problem, shortlist.reject_memory), most=TRIED)
        nothing = f"Fewer than two domains hold a replica of {problem.model.name}."
        return shortlist.proposal(self.name, notes=NOTES, nothing=nothing)


def _plans(problem: Problem, reject: Reject) -> Iterator[Plan]:
    """Plans of all domains that hold the model, those with the fastest slowest replica first."""
    for scanned in SCANNED:
        replicas = _replicas(cost_model(problem), reject, scanned)
        shared = [key for key in replicas[0] if all(key in others for others in replicas)] if replicas else []
        if shared or not replicas:
            break
    for key in sorted(shared, key=lambda key: max(layouts[key].seconds for layouts in replicas)):
        chosen = [layouts[key] for layouts in replicas]
        recipe = replace(chosen[0].recipe, sync=Sync.outer(problem.outer_step))
        yield recipe.plan(
            problem, place(problem.cluster, [inside.sketch for inside in chosen], cp=problem.context_parallel)
        )


Key = tuple[Recipe, tuple[int, int, int] | None]
"""What all replicas must share: the recipe and, where the runtime has one layout for all, (tp, dp, pp)."""


def _replicas(costs: CostModel, reject: Reject, scanned: int) -> list[Mapping[Key, Inside]]:
    """For each domain that holds the model its fastest layout of every key; fewer than two such domains: []."""
    domains = list(costs.problem.cluster.domains)
    while len(domains) >= 2:
        if costs.problem.rules.equal_shares and costs.problem.workload.global_batch % len(domains):
            domains.pop()  # a uniform world deals every replica as much
            continue
        layouts = _layouts(costs, domains, reject, scanned)
        if all(layouts):
            return layouts
        domains = [domain for domain, found in zip(domains, layouts, strict=True) if found]
    return []


def _layouts(costs: CostModel, domains: Sequence[Domain], reject: Reject, scanned: int) -> list[Mapping[Key, Inside]]:
    """The fastest layouts of each domain for its share of the batch, in proportion to its GPUs; alike ones once."""
    uniform = costs.problem.rules.uniform_tp_dp
    weights = [1 if uniform else domain.gpus for domain in domains]
    shares = deal_sequences(costs.problem.workload.global_batch, weights, grain=_grain(costs.problem, weights))
    known: dict[tuple[Domain, int], Mapping[Key, Inside]] = {}
    found: list[Mapping[Key, Inside]] = []
    for domain, share in zip(domains, shares, strict=True):
        alike = replace(domain, name=""), share
        if alike not in known:
            layouts = islice(DomainSearch(costs, domain, share).layouts(reject), scanned)
            fastest: dict[Key, Inside] = {}
            for inside in layouts:
                shape = (inside.tp, inside.dp, inside.pp) if uniform else None
                fastest.setdefault((inside.recipe, shape), inside)
            known[alike] = fastest
        found.append({key: replace(inside, domain=domain.name) for key, inside in known[alike].items()})
    return found


def _grain(problem: Problem, weights: Sequence[int]) -> int:
    """1 where the batch divides in proportion; otherwise a power of two, so that shares still split into many waves."""
    batch = problem.workload.global_batch
    if all(batch * weight % sum(weights) == 0 for weight in weights):
        return 1
    grains = (grain for grain in reversed(powers_of_two(batch)) if batch % grain == 0)
    return next((grain for grain in grains if batch // grain >= FINEST * len(weights)), 1)
