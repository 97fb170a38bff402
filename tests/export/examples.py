"""Plans that exports are tried on: the example of the facts, and variations that some target cannot express."""

from __future__ import annotations

from dataclasses import replace

from hippo.plan.plan import Pipeline, Plan, Stage, Sync
from hippo.problem.catalogue.models import MODELS
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import GPUS
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.units import bytes_per_s_from_gbps

DOMAINS = ("dc-a", "dc-b")


def cluster(nodes: int = 1, *, gpus_per_node: int = 8, domains: tuple[str, ...] = DOMAINS) -> Cluster:
    """Data centres of H100s, every pair joined by 10 Gbit/s and 20 ms."""
    gpu = GPUS["H100-SXM-80GB"]
    places = tuple(Domain(name, nodes, gpus_per_node, gpu.nvlink_bytes_per_s, 400e9 / 8, 15e-6) for name in domains)
    links = tuple(
        Link(one, two, bytes_per_s_from_gbps(10), 0.02, 0.02) for one in domains for two in domains if one != two
    )
    return Cluster("example", gpu, places, links)


def devices(domain: str, *gpus: int, node: int = 0) -> tuple[str, ...]:
    return tuple(f"{domain}/{node}/{gpu}" for gpu in gpus)


def example() -> tuple[Problem, Plan]:
    """Llama-3 8B, two data centres of 8 GPUs, pp 4, tp 2, dp 2, blocks 5/7/12/8, 8 micro-batches."""
    stages = (
        Stage("dc-a", (0, 6), 2, 2, devices("dc-a", 0, 1, 2, 3)),
        Stage("dc-a", (6, 13), 2, 2, devices("dc-a", 4, 5, 6, 7)),
        Stage("dc-b", (13, 25), 2, 2, devices("dc-b", 0, 1, 2, 3)),
        Stage("dc-b", (25, 34), 2, 2, devices("dc-b", 4, 5, 6, 7)),
    )
    plan = Plan((Pipeline(stages, 8),), micro_batch=1, recompute="full")
    workload = Workload(global_batch=plan.global_batch, seq=8192)
    return Problem(MODELS["llama-3-8b"], cluster(), workload), plan


def split_sequences() -> tuple[Problem, Plan]:
    """The example with each sequence over two tensor-parallel groups in place of two lanes."""
    problem, plan = example()
    (line,) = plan.pipelines
    halved = Pipeline(tuple(replace(stage, dp=1) for stage in line.stages), 2 * line.num_micro_batches)
    return problem, replace(plan, pipelines=(halved,), context_parallel=2)


def replicas() -> tuple[Problem, Plan]:
    """The same model as two replicas, one per data centre, each pp 2, tp 2, dp 2, which sum over one flat ring."""
    problem, plan = example()
    lines = tuple(
        Pipeline(
            (
                Stage(domain, (0, 17), 2, 2, devices(domain, 0, 1, 4, 5)),
                Stage(domain, (17, 34), 2, 2, devices(domain, 2, 3, 6, 7)),
            ),
            4,
        )
        for domain in DOMAINS
    )
    return problem, replace(plan, pipelines=lines, sync=Sync(all_reduce="ring"))
