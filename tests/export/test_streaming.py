"""Streaming DiLoCo for torchft and MaxText: what is written, what is refused, and their own packages' word on it."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hippo.errors import InexpressibleError
from hippo.export import maxtext, torchft
from hippo.export.base import Wishes
from hippo.export.folder import write_export
from hippo.plan.check import check
from hippo.plan.plan import Pipeline, Plan, Stage, Sync
from hippo.problem.catalogue.models import MODELS
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload

from .conftest import Asked, Written
from .examples import DOMAINS, cluster, devices


def islands(sync: Sync | None = None, **changed: object) -> tuple[Problem, Plan]:
    """Llama-3 8B in each of two data centres, tp 2, dp 4, which average every 99 steps in nine fragments."""
    lines = tuple(Pipeline((Stage(name, (0, 34), 2, 4, devices(name, *range(8))),), 2) for name in DOMAINS)
    sync = sync or Sync("local_sgd", 99, fragments=9, delay=5, bits=32)
    plan = replace(Plan(lines, 1, recompute="full", sharding="hybrid", sync=sync), **changed)  # type: ignore[arg-type]
    work = Workload(global_batch=plan.global_batch, seq=4096)
    asked = Problem(MODELS["llama-3-8b"], cluster(), work, runtime="torch", allow_local_sgd=True)
    assert not check(asked, plan)
    return asked, plan


def test_each_island_is_a_torchtitan_with_its_number():
    made = torchft.export(*islands(), Wishes())
    assert {path.split("/")[0] for path in made.files if "/" in path} == {"island-0", "island-1"}
    text = str(made.files["island-1/island_recipe.py"])
    for part in ("replica_id=1", "sync_steps=99", "num_fragments=9", "fragment_sync_delay=5", "should_quantize=False"):
        assert part in text
    assert "--module island_recipe" in str(made.files["island-0/program.sh"])
    assert "torchft_lighthouse --min_replicas 2" in made.command
    assert made.command.count("launch.sh") == 2
    recipe = str(made.files["island-0/hippo_recipe.py"])
    assert "data_parallel_shard_degree=4" in recipe
    assert "global_batch_size=16" in text


def test_eight_bits_are_quantized_and_bits_as_of_gradients_are_said():
    eight = torchft.export(*islands(Sync("local_sgd", 99, fragments=9, bits=8)), Wishes())
    assert "should_quantize=True" in str(eight.files["island-0/island_recipe.py"])
    plain = torchft.export(*islands(Sync("local_sgd", 99, fragments=9)), Wishes())
    assert any("fp32" in note for note in plain.notes)


def test_maxtexts_configuration():
    asked, plan = islands()
    made = maxtext.export(asked, plan, Wishes())
    found = yaml.safe_load(str(made.files["hippo.yml"]))
    assert found == maxtext.configuration(asked, plan)
    assert (found["enable_streaming_diloco"], found["num_diloco_fragments"]) == (True, 9)
    assert (found["diloco_sync_period"], found["num_communication_overlapping_steps"]) == (99, 5)
    assert (found["dcn_diloco_parallelism"], found["ici_fsdp_parallelism"], found["ici_tensor_parallelism"]) == (
        2,
        4,
        2,
    )
    batch = found["per_device_batch_size"] * 16 * found["gradient_accumulation_steps"]
    assert batch == plan.global_batch
    whole = maxtext.configuration(*islands(Sync("local_sgd", 100)))
    assert whole["enable_diloco"]
    assert "enable_streaming_diloco" not in whole


@pytest.mark.parametrize(
    ("target", "sync", "said", "way"),
    [
        (torchft, Sync(), "agree every step", "--allow-local-sgd"),
        (torchft, Sync("local_sgd", 99, fragments=9, bits=4), "4 bits", "--outer-step 99,9,0,8"),
        (maxtext, Sync(), "agree every step", "--allow-local-sgd"),
        (maxtext, Sync("local_sgd", 99, fragments=9, bits=8), "8 bits", "--outer-step 99,9,0,32"),
        (maxtext, Sync("local_sgd", 100, fragments=10), "32 layers do not divide into 9", "take 2, 5 of 100 steps"),
        (maxtext, Sync("local_sgd", 100, delay=3), "cannot be late", "--outer-step 100"),
    ],
)
def test_what_a_target_cannot_be_told_is_refused_with_a_remedy(target, sync: Sync, said: str, way: str):
    with pytest.raises(InexpressibleError) as refusal:
        target.export(*islands(sync), Wishes())
    first, remedy = refusal.value.reasons
    assert said in first
    assert remedy.startswith("To fix: ")
    assert way in remedy


def test_pipelines_unlike_islands_and_other_models_are_refused():
    asked, plan = islands()
    stages = tuple(
        Stage("dc-a", part, 2, 2, devices("dc-a", *range(4 * at, 4 * at + 4)))
        for at, part in enumerate(((0, 17), (17, 34)))
    )
    mixed = replace(plan, pipelines=(Pipeline(stages, 4), plan.pipelines[1]))
    for target in (torchft, maxtext):
        with pytest.raises(InexpressibleError, match="pipeline"):
            target.export(asked, mixed, Wishes())
    with pytest.raises(InexpressibleError, match="holds no gpt2 .*--to torchft"):
        maxtext.export(replace(asked, model=MODELS["gpt2"]), plan, Wishes())


READ = """
import json, sys
import torch
from torchtitan.config import ConfigManager
from torchtitan.experiments.torchft.diloco import fragment_llm
config = ConfigManager().parse_args(["--module", "island_recipe", "--config", "planned"])
ft, n = config.fault_tolerance, len(config.model_spec.model.layers)
with torch.device("meta"):
    model = config.model_spec.model.build()
parts = config.model_spec.fragment_fn(model, ft, n)
from torchft.local_sgd import DiLoCo
class Manager:
    _use_async_quorum = False
    def register_state_dict_fn(self, *a): pass
inner = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
small = [torch.nn.Linear(2, 2) for _ in parts]
outer = [torch.optim.SGD(each.parameters(), lr=0.7) for each in small]
made = DiLoCo(Manager(), small, inner, outer, ft.sync_steps, pin_memory=False, should_quantize=ft.should_quantize,
              fragment_sync_delay=ft.fragment_sync_delay, fragment_update_alpha=ft.fragment_update_alpha)
print(json.dumps({
    "method": ft.semi_sync_method, "fragments": len(parts),
    "apart": made._sync_every, "delay": made._fragment_sync_delay,
    "replica": ft.replica_id, "group": ft.group_size, "batch": config.training.global_batch_size,
    "layers": sum(sum("layers" in name for name, _ in part.named_children()) for part in parts),
}))
"""


def test_torchtitan_reads_the_section_and_torchft_takes_it(written: Written, ask: Asked, needs):
    needs("torchft")
    folder = written("torchft", *islands()) / "island-1"
    answer = ask("torchtitan", folder, READ)
    assert answer.returncode == 0, answer.stderr[-2000:]
    told = json.loads(answer.stdout.splitlines()[-1])
    assert (told["method"], told["fragments"], told["apart"], told["delay"]) == ("diloco", 9, 11, 5)
    assert (told["replica"], told["group"], told["batch"]) == (1, 2, 16)
    assert told["layers"] > 0


CHECK = """
import json
from maxtext.configs import pyconfig
made = pyconfig.initialize_pydantic(["train", "hippo.yml", "run_name=a", "hardware=cpu", "enable_checkpointing=false"])
from maxtext.trainers.diloco.utils.fragmenter import get_streaming_schedule
print(json.dumps({
    "schedule": get_streaming_schedule(made), "layers": made.num_decoder_layers, "replicas": made.num_diloco_replicas,
    "sizes": [made.emb_dim, made.num_query_heads, made.num_kv_heads, made.mlp_dim, made.vocab_size],
}))
"""


@pytest.mark.skipif("HIPPO_TEST_MAXTEXT" not in os.environ, reason="HIPPO_TEST_MAXTEXT names no Python with MaxText")
@pytest.mark.parametrize("name", sorted(maxtext.MODELS))
def test_maxtext_reads_its_configuration(name: str, tmp_path: Path):
    asked, plan = islands()
    model = MODELS[name]
    fragments = next(each for each in range(9, 99) if model.num_blocks % (each - 1) == 0)
    sync = Sync("local_sgd", 3 * fragments, fragments=fragments, delay=2, bits=32)
    asked = replace(asked, model=model)
    lines = tuple(
        replace(line, stages=(replace(line.stages[0], layers=(0, model.num_layers)),)) for line in plan.pipelines
    )
    made = maxtext.configuration(asked, replace(plan, pipelines=lines, sync=sync))
    write_export(tmp_path, {"hippo.yml": yaml.safe_dump(made)})
    python = os.environ["HIPPO_TEST_MAXTEXT"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=16"}
    asking = [python, "-W", "ignore", "-c", CHECK]
    answer = subprocess.run(asking, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, answer.stderr[-2000:]
    told = json.loads(answer.stdout.splitlines()[-1])
    block = model.layers[1]
    assert block.attention is not None
    assert block.feed_forward is not None
    assert (told["schedule"], told["layers"], told["replicas"]) == ([3, 3 * fragments], model.num_blocks, 2)
    assert told["sizes"][:3] == [model.hidden, block.attention.heads, block.attention.kv_heads]
