"""How replicas sum where a plan is launched: the order of domains that ranks follow, and the levels of a sum.

Runtimes hand NCCL groups of ranks and NCCL joins hosts in the order of ranks, so pipelines are numbered in the order of
the ring that was counted: each link of it is crossed once. A sum on two levels is cut into equal runs of consecutive
lanes, an instance each: reduce-scatter inside, shards over the instances in parallel, gather inside.
Read in ``parallel_state.initialize_model_parallel`` (Megatron Core), ``ParallelDims.build_mesh`` (torchtitan),
``graph/tuning.cc`` (NCCL). DeepSpeed sums over one flat ring: 0.19.7 took MiCS out, hpZ leaves gradients flat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.problem.runtimes import Runtime
from hippo.simulate.lower import lower

RING = "allreduce:ring"
"""``NCCL_ALGO`` of a flat ring (NCCL 2.24 and later): no tree, which crosses domains as often as it likes."""


def in_ring_order(problem: Problem, plan: Plan) -> Plan:
    """The plan with its pipelines in the order of the ring over domains on which most bytes are summed.

    Pipelines of one domain stand side by side, in their own order. Raises ``InputError`` for a plan that cannot be
    played.
    """
    if len(plan.pipelines) == 1 or len(plan.domains) == 1:
        return plan
    owners = [at for at, pipeline in enumerate(plan.pipelines) for _ in pipeline.stages]
    everyone = len(plan.pipelines)
    groups = [group for group in lower(problem, plan).groups if len(group.routes) > 1]
    groups = [group for group in groups if len({owners[rank] for rank in group.ranks}) == everyone]
    if not groups:  # sharded over domains, or cut too differently for one ring: those of a domain side by side
        places = list(dict.fromkeys(pipeline.domains for pipeline in plan.pipelines))
        return replace(plan, pipelines=tuple(sorted(plan.pipelines, key=lambda line: places.index(line.domains))))
    heaviest = max(groups, key=lambda group: sum(group.link_bytes))
    turn = {problem.cluster.links[pair[0]].source: at for at, pair in enumerate(heaviest.routes)}
    stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
    place = {owners[rank]: turn[stages[rank].domain] for rank in heaviest.ranks}
    order = sorted(range(len(plan.pipelines)), key=place.__getitem__)
    return replace(plan, pipelines=tuple(plan.pipelines[at] for at in order))


def domains_that_sum(plan: Plan) -> tuple[tuple[str, ...], ...]:
    """Per stage the domain of each lane, in the order of ranks; nothing where pipelines differ in their stages."""
    if len({len(pipeline.stages) for pipeline in plan.pipelines}) > 1:
        return ()
    rows = zip(*(pipeline.stages for pipeline in plan.pipelines), strict=True)
    return tuple(tuple(stage.domain for stage in row for _ in range(stage.dp)) for row in rows)


def crosses(plan: Plan) -> bool:
    """Whether any sum over replicas goes over several domains, in a plan whose pipelines have equally many stages."""
    return any(len(set(row)) > 1 for row in domains_that_sum(plan))


def instances(plan: Plan) -> int | None:
    """Into how many equal runs of lanes, one in each domain, every sum on two levels is cut; None: there is no such
    cut, for domains hold unequal numbers of lanes, or others from stage to stage. A stage whose replicas all lie in one
    domain may be cut into any number."""
    rows = domains_that_sum(plan)
    if not rows:
        return None
    number = max(len(set(row)) for row in rows)
    size, rest = divmod(len(rows[0]), number)
    fits = not rest and all(
        len(set(row)) in (1, number) and all(len(set(row[at : at + size])) == 1 for at in range(0, len(row), size))
        for row in rows
    )
    return number if fits else None


def replicas_of_shards(plan: Plan) -> int:
    """Replicas that shards have (``hybrid``): one in each domain where sums go over several, else one a pipeline."""
    number = instances(plan)
    return number if number is not None and number > 1 else len(plan.pipelines)


def ways(plan: Plan, rules: Runtime, sharding: str) -> tuple[str, ...]:
    """Ways of a sum over several domains that the runtime has for this plan, the one that sends less first.

    Shards of one replica (``hybrid``: HSDP) are summed on two levels and no other way.
    """
    cut = instances(plan) is not None
    return tuple(way for way in rules.all_reduces(sharding) if (cut if way == "two-level" else sharding != "hybrid"))


def cannot_sum(plan: Plan, rules: Runtime, name: str) -> list[str]:
    """What the runtime, called ``name``, cannot do of the way in which the plan sums, beyond ``plan.check``: sentences
    without a full stop."""
    way = plan.sync.all_reduce
    if not crosses(plan) or way not in rules.all_reduces(plan.sharding) or way in ways(plan, rules, plan.sharding):
        return []
    if way == "ring":
        return [f"{name} sums on two levels with sharding hybrid, not over one ring"]
    rows = max(domains_that_sum(plan), key=lambda row: len(set(row)))
    lanes = ", ".join(f"{domain} {rows.count(domain)}" for domain in dict.fromkeys(rows))
    return [f"{name} sums on two levels over equal runs of lanes, one in each domain and alike in all stages ({lanes})"]


def environment(plan: Plan) -> Mapping[str, str]:
    """Variables that keep a flat ring a ring."""
    return {"NCCL_ALGO": RING} if plan.sync.all_reduce == "ring" and crosses(plan) else {}


def told(plan: Plan) -> str:
    """How sums go over domains, in a sentence; empty where none does; for any plan."""
    if len(plan.pipelines) == 1 or len(plan.domains) == 1 or plan.sync.method == "local_sgd":
        return ""
    if plan.sync.all_reduce == "ring":
        return "Replicas sum over one flat ring through all lanes, domain after domain."
    return "Replicas sum on two levels: inside each domain, then each lane's shard over the domains in parallel."
