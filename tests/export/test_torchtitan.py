"""torchtitan: its recipe read by torchtitan, its schedule by torch."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest

from hippo.errors import InexpressibleError
from hippo.export import torchtitan
from hippo.export.torchtitan import FLAVORS, flavor_of
from hippo.plan.plan import Compression, Pipeline, Plan, Relay, ScheduleChoice, Sync
from hippo.problem.catalogue.models import MODELS
from hippo.problem.problem import Problem

from .conftest import Asked, Written
from .examples import cluster, example, replicas, split_sequences

READ = """
import json, os, sys
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore
torch.distributed.init_process_group("fake", store=FakeStore(), rank=int(os.environ["RANK"]), world_size=16)
from torch.distributed.pipelining import PipelineStage
from torchtitan.config import ConfigManager
from torchtitan.distributed import ParallelDims
from torchtitan.distributed.pipeline_parallel import _build_pipeline_schedule
config = ConfigManager().parse_args(["--module", "hippo_recipe", "--config", "planned", *sys.argv[1:]])
mesh = ParallelDims.from_config(config.parallelism, 16)
parts = config.parallelism.module_fqns_per_model_part
pp = config.parallelism.pipeline_parallel_degree
rank = int(os.environ["RANK"]) // (16 // pp)
width = 16 // pp
group = torch.distributed.new_group([int(os.environ["RANK"]) % width + width * at for at in range(pp)])
stages = [
    PipelineStage(torch.nn.Linear(1, 1), at, len(parts), torch.device("cpu"), group=group)
    for at in range(rank, len(parts), pp)
]
schedule = _build_pipeline_schedule(
    parallelism=config.parallelism, local_batch_size=config.training.local_batch_size, stages=stages,
    loss_fn=lambda *a: (torch.zeros(()), None),
)
orders = getattr(schedule, "pipeline_order", {}) if config.parallelism.pipeline_parallel_schedule_csv else {}
print(json.dumps({
    "schedule": type(schedule).__name__,
    "sizes": [config.parallelism.pipeline_parallel_degree, mesh.dp_replicate, mesh.dp_shard, mesh.cp, mesh.tp],
    "micro_batches": schedule._n_microbatches,
    "parts": [len([name for name in part if name.startswith("layers.")]) for part in parts],
    "ends": [parts[0][0], parts[-1][-1]],
    "blocks": len(config.model_spec.model.layers),
    "csv": os.path.basename(config.parallelism.pipeline_parallel_schedule_csv or ""),
    "order": {rank: [str(each) for each in row if each] for rank, row in orders.items()},
}))
"""


def ordered() -> tuple[Problem, Plan]:
    """The example with an order of its own: 1F1B two waves ahead, weight gradients last."""
    problem, plan = example()
    order = (
        "FFFFFFBFBFBBBBBBWWWWWWWW",
        "FFFFFBFBFBFBBBBBWWWWWWWW",
        "FFFBFBFBFBFBFBBBWWWWWWWW",
        "FBWFBWFBWFBWFBWFBWFBWFBW",
    )
    lines = (Pipeline(plan.pipelines[0].stages, 8, order=order),)
    return problem, replace(plan, pipelines=lines, schedule=ScheduleChoice("best"))


def test_torchs_own_schedules_go_by_name():
    made = torchtitan.program(*example())
    assert set(made.files) == {"hippo_recipe.py"}
    assert 'pipeline_parallel_schedule="1F1B"' in made.files["hippo_recipe.py"]


def test_a_free_order_is_a_csv():
    made = torchtitan.program(*ordered())
    assert "SCHEDULES = ['schedule.csv', 'schedule.csv']" in made.files["hippo_recipe.py"]
    rows = list(csv.reader(made.files["schedule.csv"].splitlines()))
    assert rows[0][:7] == ["0F0", "0F1", "0F2", "0F3", "0F4", "0F5", "0B0"]  # the first stage has no input gradient
    assert rows[2][:5] == ["2F0", "2F1", "2F2", "2I0", "2F3"]
    assert rows[3][:4] == ["3F0", "3B0", "3F1", "3B1"]


def test_replicas_with_orders_of_their_own_read_each_its_file():
    problem, plan = replicas()
    orders = (("FFFBFBBB", "FBFBFBFB"), ("FFBFBFBB", "FBFBFBFB"))
    lines = tuple(replace(line, order=order) for line, order in zip(plan.pipelines, orders, strict=True))
    made = torchtitan.program(problem, replace(plan, pipelines=lines, schedule=ScheduleChoice("best")))
    names = ["schedule-0.csv"] * 2 + ["schedule-1.csv"] * 2
    assert f"SCHEDULES = {names}" in made.files["hippo_recipe.py"]
    assert made.files["schedule-0.csv"] != made.files["schedule-1.csv"]


def test_chunks_in_an_order_that_is_not_torchs():
    problem, plan = example()
    plan = replace(plan, interleave=2, schedule=ScheduleChoice("interleaved"), micro_batch=1)
    lines = (replace(plan.pipelines[0], num_micro_batches=6),)  # not a multiple of the stages
    rows = torchtitan.program(
        replace(problem, workload=replace(problem.workload, global_batch=12)), replace(plan, pipelines=lines)
    )
    text = rows.files["schedule.csv"].splitlines()
    assert len(text) == 4
    assert {cell.split("F")[0] for cell in text[1].split(",") if "F" in cell} == {"1", "5"}


def test_what_it_cannot_express_is_named():
    problem, plan = replicas()
    problem = replace(problem, cluster=cluster(domains=("dc-a", "dc-b", "dc-c")))
    stages = plan.pipelines[1].stages
    shifted = (replace(stages[0], layers=(0, 15)), replace(stages[1], layers=(15, 34)))
    lines = (plan.pipelines[0], Pipeline(shifted, 4))
    wrong = replace(
        plan,
        pipelines=lines,
        sync=Sync("local_sgd", 8),
        compression=(Compression("dc-a", "dc-b", "fp8"),),
        sharding="optimizer",
        relays=(Relay("dc-a", "dc-b", "dc-c"),),
    )
    with pytest.raises(InexpressibleError) as refusal:
        torchtitan.program(replace(problem, allow_local_sgd=True), wrong)
    said = refusal.value.reasons[0]
    for part in (
        "sharding 'optimizer'",
        "cannot compress activations",
        "cuts every replica at the same layers",
        "cannot relay 'dc-a' to 'dc-b' through 'dc-c'",
        "cannot average parameters every 8 steps",
    ):
        assert part in said
    assert refusal.value.reasons[1].startswith("Nearest plan that it can run, the same with that left out:")


def test_models_are_known_by_their_layers():
    assert flavor_of(replace(MODELS["llama-3-8b"], name="mine")) == ("llama3", "8B")
    assert flavor_of(MODELS["gpt2"]) == ("", "")
    assert "MODEL_SPEC" in torchtitan.program(*with_model("llama-2-7b")).variables


def with_model(name: str) -> tuple[Problem, Plan]:
    problem, plan = example()
    return replace(problem, model=MODELS[name]), plan


def test_torchtitan_takes_the_example(written: Written, ask: Asked):
    answer = ask("torchtitan", written("torchtitan"), READ, RANK=5)
    assert answer.returncode == 0, answer.stderr[-2000:]
    told = json.loads(answer.stdout.splitlines()[-1])
    assert told["parts"] == [5, 7, 12, 8]
    assert told["ends"] == ["tok_embeddings", "lm_head"]
    assert told["sizes"] == [4, 2, 1, 1, 2]
    assert (told["micro_batches"], told["blocks"], told["schedule"]) == (8, 32, "Schedule1F1B")


def test_torchtitan_splits_sequences(written: Written, ask: Asked):
    answer = ask("torchtitan", written("torchtitan", *split_sequences()), READ, RANK=5)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout.splitlines()[-1])["sizes"] == [4, 1, 1, 2, 2]


def test_torchtitan_runs_a_free_order(written: Written, ask: Asked):
    folder = written("torchtitan", *ordered())
    answer = ask("torchtitan", folder, READ, RANK=9)
    assert answer.returncode == 0, answer.stderr[-2000:]
    told = json.loads(answer.stdout.splitlines()[-1])
    assert (told["csv"], told["schedule"]) == ("schedule.csv", "_PipelineScheduleRuntime")
    cells = (folder / "schedule.csv").read_text().splitlines()
    assert told["order"]["2"] == cells[2].split(",")
    # a B before its F
    (folder / "schedule.csv").write_text("\n".join([cells[0].replace("0F0,", "0B0,0F0,", 1), *cells[1:]]) + "\n")
    assert ask("torchtitan", folder, READ, RANK=9).returncode != 0


FLAVORS_READ = """
import json
from importlib import import_module
flavors = json.loads(%r)
found = {}
for name, (family, flavor) in flavors.items():
    model = import_module(f"torchtitan.models.{family}").model_registry(flavor).model
    found[name] = [len(model.layers), model.tok_embeddings.embedding_dim, model.tok_embeddings.num_embeddings]
print(json.dumps(found))
"""


def test_torchtitan_holds_these_models(tmp_path, ask: Asked):
    answer = ask("torchtitan", tmp_path, FLAVORS_READ % json.dumps(dict(FLAVORS)))
    assert answer.returncode == 0, answer.stderr[-2000:]
    told = json.loads(answer.stdout.splitlines()[-1])
    for name, (blocks, hidden, vocab) in told.items():
        assert (blocks, hidden, vocab) == (MODELS[name].num_blocks, MODELS[name].hidden, MODELS[name].vocab)
