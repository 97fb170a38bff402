"""Sums over domains: the order of ranks, flags of a flat ring and of two levels, and plans that a target cannot sum."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hippo.errors import InexpressibleError
from hippo.export import deepspeed, megatron, sums, torchtitan
from hippo.export.program import cannot_express
from hippo.export.torchrun import program_script
from hippo.plan.plan import Pipeline, Plan, Stage, Sync
from hippo.problem.catalogue.models import MODELS
from hippo.problem.problem import Problem

from .conftest import Asked, Written, exported
from .examples import cluster, devices, example, replicas

TWO_LEVEL, RING = Sync(all_reduce="two-level"), Sync(all_reduce="ring")


def lines(*places: tuple[str, int], waves: int = 4, **choices: object) -> tuple[Problem, Plan]:
    """Replicas of one stage and two lanes each, at (domain, first GPU), of a model of 30 layers."""
    stages = [Stage(domain, (0, 30), 1, 2, devices(domain, gpu, gpu + 1)) for domain, gpu in places]
    problem, _ = example()
    plan = Plan(tuple(Pipeline((stage,), waves) for stage in stages), micro_batch=1, recompute="full", **choices)
    domains = tuple(sorted({domain for domain, _ in places}))
    workload = replace(problem.workload, global_batch=plan.global_batch)
    return replace(problem, model=MODELS["llama-3.2-3b"], cluster=cluster(domains=domains), workload=workload), plan


def sharded(sharding: str, sync: Sync) -> tuple[Problem, Plan]:
    problem, plan = replicas()
    return problem, replace(plan, sharding=sharding, sync=sync)


# --------------------------------------------------------------------------------------------------------------- order
def test_ranks_follow_the_ring_over_domains():
    problem, plan = lines(("a", 0), ("b", 0), ("c", 0), ("d", 0), sync=RING)
    quick = {("a", "c"), ("c", "b"), ("b", "d"), ("d", "a")}
    links = tuple(
        replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s if pair in quick else 1e6)
        for link in problem.cluster.links
        for pair in [(link.source, link.destination)]
    )
    problem = replace(problem, cluster=replace(problem.cluster, links=links))
    turned = sums.in_ring_order(problem, plan)
    assert [pipeline.domains for pipeline in turned.pipelines] == [("a",), ("c",), ("b",), ("d",)]
    text = str(exported("megatron", problem, turned).files["README.md"])
    assert "Domains stand in the order a, c, b, d, that of ranks and of every ring over domains." in text
    assert "Replicas sum over one flat ring through all lanes, domain after domain." in text


def test_replicas_of_a_domain_stand_side_by_side():
    problem, plan = lines(("a", 0), ("b", 0), ("a", 2), ("b", 2), sync=RING)
    turned = sums.in_ring_order(problem, plan)
    assert [pipeline.stages[0].devices[0] for pipeline in turned.pipelines] == ["a/0/0", "a/0/2", "b/0/0", "b/0/2"]
    assert sums.instances(plan) is None
    assert sums.instances(turned) == 2


def test_replicas_sharded_over_domains_stand_side_by_side():
    problem, plan = lines(("b", 0), ("a", 0), ("b", 2), sharding="full", sync=RING)
    assert [pipeline.domains for pipeline in sums.in_ring_order(problem, plan).pipelines] == [("b",), ("b",), ("a",)]


# ------------------------------------------------------------------------------------------------------------ instances
def test_runs_of_lanes_are_equal_and_alike_in_all_stages():
    assert sums.instances(lines(("a", 0), ("b", 0))[1]) == 2
    assert sums.instances(lines(("a", 0), ("a", 2), ("b", 0))[1]) is None  # 4 lanes against 2
    assert sums.instances(replicas()[1]) == 2
    problem, plan = replicas()
    one, two = plan.pipelines
    back = replace(two, stages=(replace(two.stages[0], domain="dc-a"), two.stages[1]))
    assert sums.instances(replace(plan, pipelines=(one, back))) == 2  # stage 0 lies in dc-a alone, stage 1 in both


# ---------------------------------------------------------------------------------------------------------------- flags
@pytest.mark.parametrize(("sync", "number"), [(TWO_LEVEL, 2), (RING, 1)])
def test_megatron_holds_an_instance_of_the_optimizer_in_each_domain(sync: Sync, number: int):
    words = megatron.program(*sharded("optimizer", sync)).words
    at = words.index("--use-distributed-optimizer")
    assert words[at + 1] == f"--num-distributed-optimizer-instances {number}"


def test_a_state_sharded_over_all_domains_is_one_instance():
    problem, plan = sharded("optimizer", RING)
    across = replace(plan, sharding="optimizer-across")
    assert megatron.program(problem, across).words == megatron.program(problem, plan).words


def test_megatron_inside_one_domain_needs_no_instances():
    problem, plan = example()
    words = " ".join(megatron.program(problem, replace(plan, sharding="optimizer")).words)
    assert "--use-distributed-optimizer" in words
    assert "instances" not in words


@pytest.mark.parametrize(
    ("sharding", "sync", "mesh"),
    [("none", RING, (4, 1)), ("gradients", RING, (1, 4)), ("full", RING, (1, 4)), ("hybrid", TWO_LEVEL, (2, 2))],
)
def test_torchtitans_mesh_is_that_of_the_sum(sharding: str, sync: Sync, mesh: tuple[int, int]):
    recipe = torchtitan.program(*sharded(sharding, sync)).files["hippo_recipe.py"]
    assert f"data_parallel_replicate_degree={mesh[0]}," in recipe
    assert f"data_parallel_shard_degree={mesh[1]}," in recipe


def test_shards_span_the_replicas_of_a_domain():
    """Four replicas of two lanes in two domains: a mesh of two by four, or the links would carry 3/2 of the bytes."""
    problem, plan = lines(("a", 0), ("a", 2), ("b", 0), ("b", 2), sharding="hybrid", sync=TWO_LEVEL)
    recipe = torchtitan.program(problem, plan).files["hippo_recipe.py"]
    assert "data_parallel_replicate_degree=2," in recipe
    assert "data_parallel_shard_degree=4," in recipe


@pytest.mark.parametrize("made", [megatron.program, deepspeed.program, torchtitan.program])
def test_a_flat_ring_takes_no_trees(made):
    assert "export NCCL_ALGO=allreduce:ring" in program_script(made(*replicas()))
    assert "NCCL_ALGO" not in program_script(made(*example()))


def test_two_levels_are_left_to_nccl():
    assert "NCCL_ALGO" not in program_script(megatron.program(*sharded("optimizer", TWO_LEVEL)))


# ------------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("made", "told"),
    [
        (megatron.program, "sums on two levels with sharding optimizer alone, not none"),
        (deepspeed.program, "sums over one flat ring, not on two levels"),
        (torchtitan.program, "sums on two levels with sharding hybrid alone, not none"),
    ],
)
def test_two_levels_that_a_target_has_not_are_refused_with_what_it_has(made, told: str):
    with pytest.raises(InexpressibleError) as refusal:
        made(*sharded("none", TWO_LEVEL))
    assert told in str(refusal.value)
    assert "Nearest plan that it can run, the same with that left out: data parallel" in str(refusal.value)


def test_hybrid_shards_know_no_flat_ring():
    with pytest.raises(InexpressibleError, match="torchtitan sums on two levels with sharding hybrid, not over one"):
        torchtitan.program(*sharded("hybrid", RING))


def test_unequal_numbers_of_lanes_have_no_two_levels():
    problem, plan = lines(("a", 0), ("a", 2), ("b", 0), sharding="optimizer", sync=TWO_LEVEL)
    (sentence,) = cannot_express(problem, plan, "megatron")
    assert "equal runs of lanes, one in each domain and alike in all stages (a 4, b 2)" in sentence
    with pytest.raises(InexpressibleError, match="--nearest exports it"):
        megatron.program(problem, plan)


# ------------------------------------------------------------------------------------------------------ its own parser
INSTANCES = """
import json, os
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore
from megatron.core import parallel_state
torch.distributed.init_process_group("fake", store=FakeStore(), rank=int(os.environ["RANK"]), world_size=16)
parallel_state.initialize_model_parallel(
    tensor_model_parallel_size=2,
    pipeline_model_parallel_size=2,
    num_distributed_optimizer_instances=int(os.environ["NUMBER"]),
    order="tp-cp-ep-pp-dp",  # --use-tp-pp-dp-mapping
    create_gloo_process_groups=False,
)
ranks = torch.distributed.get_process_group_ranks
inside = parallel_state.get_data_parallel_group(with_context_parallel=True, partial_data_parallel=True)
print(json.dumps([ranks(inside), ranks(parallel_state.get_inter_distributed_optimizer_instance_group())]))
"""


def test_megatron_holds_each_instance_inside_a_domain(tmp_path: Path, needs: Callable[[str], None], ask: Asked):
    needs("einops")
    made = megatron.program(*sharded("optimizer", TWO_LEVEL))
    assert "--use-tp-pp-dp-mapping" in made.words
    assert "--num-distributed-optimizer-instances 2" in made.words
    answer = ask("megatron", tmp_path, INSTANCES, RANK=10, NUMBER=2)
    assert answer.returncode == 0, answer.stderr[-2000:]
    inside, across = json.loads(answer.stdout.splitlines()[-1])
    assert (inside, across) == ([10, 14], [2, 10])
    domains = [each.node.split("/")[0] for each in made.placed.ranks]
    assert [domains[rank] for rank in inside] == ["dc-b", "dc-b"]
    assert [domains[rank] for rank in across] == ["dc-a", "dc-b"]


MESH = """
import json, os
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore
torch.distributed.init_process_group("fake", store=FakeStore(), rank=int(os.environ["RANK"]), world_size=16)
from torchtitan.config import ConfigManager
from torchtitan.distributed import ParallelDims
config = ConfigManager().parse_args(["--module", "hippo_recipe", "--config", "planned"])
dims = ParallelDims.from_config(config.parallelism, 16)
dims.build_mesh()
print(json.dumps([dims.get_mesh(name).mesh.tolist() for name in ("dp_shard", "dp_replicate")]))
"""


def test_torchtitan_shards_inside_a_domain(written: Written, ask: Asked):
    problem, plan = sharded("hybrid", TWO_LEVEL)
    answer = ask("torchtitan", written("torchtitan", problem, plan), MESH, RANK=10)
    assert answer.returncode == 0, answer.stderr[-2000:]
    inside, across = json.loads(answer.stdout.splitlines()[-1])
    assert (inside, across) == ([8, 10], [10, 14])  # stage 1 of both replicas: ranks 8 to 11 in dc-a, 12 to 15 in dc-b
    domains = [each.node.split("/")[0] for each in torchtitan.program(problem, plan).placed.ranks]
    assert [domains[rank] for rank in (*inside, *across)] == ["dc-a", "dc-a", "dc-a", "dc-b"]
