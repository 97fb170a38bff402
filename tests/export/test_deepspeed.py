"""DeepSpeed: its configuration, hostfile, topology and pipeline module read by DeepSpeed itself."""

from __future__ import annotations

import ast
import json
from dataclasses import replace

import pytest

from hippo.errors import InexpressibleError
from hippo.export import deepspeed
from hippo.export.ranks import rank_order
from hippo.plan.plan import Pipeline, ScheduleChoice

from .conftest import Asked, Written, exported
from .examples import example, replicas

FAKE = """
import json, os, sys
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore
import deepspeed
rank = int(os.environ["RANK"])
torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=16)
deepspeed.init_distributed(dist_backend="fake", auto_mpi_discovery=False)
"""
ALL = (
    FAKE
    + """
from deepspeed.launcher.runner import fetch_hostfile
from deepspeed.runtime.config import DeepSpeedConfig
from cut_pipeline import BOUNDS, CutPipelineModule, topology

class Mpu:
    def get_data_parallel_world_size(self): return topology().get_dim("data")

def attempt(function):
    try:
        return function()
    except Exception as error:
        return f"refused: {error}"

def cut(number):
    module = CutPipelineModule(layers=[torch.nn.Linear(1, 1) for _ in range(number)], topology=topology())
    return [module._local_start, module._local_stop]

def batch(**changes):
    config = DeepSpeedConfig({**json.load(open("ds_config.json")), **changes}, mpu=Mpu())
    return [config.train_batch_size, config.gradient_accumulation_steps, config.pipeline["stages"]]

def hosts(text):
    open("other", "w").write(text)
    return list(fetch_hostfile("other").items())

print(json.dumps({
    "cut": cut(34),
    "places": [list(topology().get_coord(at)._asdict().items()) for at in range(16)],
    "batch": batch(),
    "hosts": list(fetch_hostfile("hostfile").items()),
    "too few layers": attempt(lambda: cut(33)),
    "other batch": attempt(lambda: batch(train_batch_size=17)),
    "host twice": attempt(lambda: hosts("dc-a-0 slots=8\\n" * 2)),
    "no slots": attempt(lambda: hosts("dc-a-0\\n")),
}))
"""
)


def test_the_batch_is_micro_batch_times_waves_times_lanes():
    config = deepspeed.ds_config(*example())
    assert config["train_batch_size"] == 16 == 1 * 8 * 2
    assert (config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]) == (1, 8)
    assert config["zero_optimization"] == {"stage": 0}


def test_hosts_stand_in_the_order_of_ranks():
    files = exported("deepspeed", *example()).files
    assert files["hostfile"] == "dc-a-0 slots=8\ndc-b-0 slots=8\n"
    assert "BOUNDS = [0, 6, 13, 25, 34]" in str(files["cut_pipeline.py"])
    assert 'axes=["pipe", "data", "model"], dims=[4, 2, 2]' in str(files["cut_pipeline.py"])


def test_lanes_outermost_where_replicas_lie_in_domains():
    made = deepspeed.program(*replicas())
    assert 'axes=["data", "pipe", "model"], dims=[4, 2, 2]' in made.files["cut_pipeline.py"]


def test_a_host_with_gpus_out_of_turn_is_launched_by_hand():
    problem, plan = example()
    first = plan.pipelines[0].stages[0]
    turned = replace(first, devices=first.devices[::-1])
    lines = (replace(plan.pipelines[0], stages=(turned, *plan.pipelines[0].stages[1:])),)
    files = exported("deepspeed", problem, replace(plan, pipelines=lines)).files
    assert "hostfile" not in files
    assert "agent 0 8 3 2 1 0 4 5 6 7" in str(files["launch.sh"])


def test_one_stage_needs_no_pipeline_which_knows_no_zero_3():
    problem, plan = example()
    stage = replace(plan.pipelines[0].stages[0], layers=(0, 34))
    line = Pipeline((stage,), 8)
    files = deepspeed.program(problem, replace(plan, pipelines=(line,), sharding="full")).files
    assert "cut_pipeline.py" not in files
    assert "CutPipelineModule" not in files["train.py"]
    assert json.loads(files["ds_config.json"])["zero_optimization"] == {"stage": 3}
    for name in ("train.py", "model.py"):
        compile(files[name], name, "exec")


def test_its_files_are_python():
    files = deepspeed.program(*example()).files
    programs = {name: ast.parse(text) for name, text in files.items() if name.endswith(".py")}
    assert set(programs) >= {"train.py", "model.py"}
    assert all(each.body for each in programs.values())


def test_the_models_name_is_no_code():
    problem, plan = example()
    problem = replace(problem, model=replace(problem.model, name='x"""\nraise SystemExit\n"""'))
    text = deepspeed.program(problem, plan).files["model.py"]
    compile(text, "model.py", "exec")
    assert "\nraise" not in text


def test_other_orders_and_half_recomputation_are_refused():
    problem, plan = example()
    with pytest.raises(InexpressibleError, match=r"schedule 'cross-domain', only 1f1b; .*recompute 'selective'"):
        deepspeed.program(problem, replace(plan, schedule=ScheduleChoice("cross-domain"), recompute="selective"))


def test_deepspeed_takes_the_example_and_refuses_broken_ones(written: Written, ask: Asked):
    answer = ask("deepspeed", written("deepspeed"), ALL, RANK=11, LOCAL_RANK=3)
    assert answer.returncode == 0, answer.stderr[-2000:]
    told = json.loads(answer.stdout.splitlines()[-1])
    assert told["cut"] == [13, 25]
    assert told["batch"] == [16, 8, 4]
    assert told["hosts"] == [["dc-a-0", 8], ["dc-b-0", 8]]
    ranks = rank_order(example()[1]).ranks
    assert [dict(place) for place in told["places"]] == [
        {"pipe": each.stage, "data": each.lane, "model": each.tensor} for each in ranks
    ]
    assert told["too few layers"] == "refused: the plan cuts 34 layers, the model has 33"
    assert "train_batch_size is not equal to micro_batch_per_gpu" in told["other batch"]
    assert "multiple entries for dc-a-0" in told["host twice"]
    assert "bad entry" in told["no slots"]


def test_deepspeed_takes_lanes_outermost(written: Written, ask: Asked):
    answer = ask("deepspeed", written("deepspeed", *replicas()), ALL, RANK=10, LOCAL_RANK=2)
    assert answer.returncode == 0, answer.stderr[-2000:]
    told = json.loads(answer.stdout.splitlines()[-1])
    assert told["cut"] == [17, 34]  # rank 10: the second domain's first lane, stage 1
    assert [dict(place) for place in told["places"]] == [
        {"pipe": each.stage, "data": 2 * each.pipeline + each.lane, "model": each.tensor}
        for each in rank_order(replicas()[1]).ranks
    ]
