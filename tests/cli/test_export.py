"""``hippo export``: what it writes, says and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hippo.plan.codec import save_plan
from hippo.plan.plan import Compression, ScheduleChoice, Sync
from hippo.registry import EXPORTERS

from ..export.examples import example, replicas
from .conftest import Hippo

TARGETS = ("megatron", "deepspeed", "torchtitan", "torchrun", "slurm", "skypilot", "ray", "jobset")


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    save_plan(*example(), tmp_path / "plan.json")
    return tmp_path / "plan.json"


@pytest.fixture
def gpipe_file(tmp_path: Path) -> Path:
    problem, plan = example()
    save_plan(problem, replace(plan, schedule=ScheduleChoice("gpipe")), tmp_path / "gpipe.json")
    return tmp_path / "gpipe.json"


def test_every_target_is_in_the_table():
    assert set(TARGETS) <= set(EXPORTERS)


@pytest.mark.parametrize("target", TARGETS)
def test_files_command_and_notes(hippo: Hippo, plan_file: Path, tmp_path: Path, target: str):
    answer = hippo("export", plan_file, "--to", target, "--out", tmp_path / "out", "--json")
    assert answer.code == 0, answer.err
    document = answer.document
    assert document["to"] == target
    assert document["files"][0] == str(tmp_path / "out" / "README.md")
    assert all(Path(name).is_file() for name in document["files"])
    assert document["command"] in (tmp_path / "out" / "README.md").read_text()
    assert document["notes"]
    again, given = json.loads((tmp_path / "out" / "plan.json").read_text()), json.loads(plan_file.read_text())
    runtime = {"deepspeed": "deepspeed", "torchtitan": "torch"}.get(target, "megatron")  # the first that can run it
    assert again["problem"].pop("runtime") == document["expected"]["runtime"] == runtime
    assert document["expected"]["planned"]["runtime"] == given["problem"].pop("runtime") == "ideal"
    assert again == given


def test_the_command_on_stdout_and_the_rest_on_stderr(hippo: Hippo, plan_file: Path, tmp_path: Path):
    answer = hippo("export", plan_file, "--to", "slurm", "--out", tmp_path / "out")
    assert answer.out == "sbatch job.sbatch\n"
    assert f"wrote {tmp_path / 'out' / 'README.md'}" in answer.err


def test_another_target_into_the_same_folder_takes_its_place(hippo: Hippo, plan_file: Path, tmp_path: Path):
    for target in ("ray", "slurm"):
        assert hippo("export", plan_file, "--to", target, "--out", tmp_path / "out").code == 0
    assert not (tmp_path / "out" / "ray_launch.py").exists()
    assert (tmp_path / "out" / "job.sbatch").exists()


def test_files_of_others_stay(hippo: Hippo, refused: Callable[..., str], plan_file: Path, tmp_path: Path):
    (tmp_path / "README.md").write_text("mine")
    message = refused("export", plan_file, "--to", "slurm", "--out", tmp_path)
    assert str(tmp_path / "README.md") in message
    assert "--force" in message
    assert (tmp_path / "README.md").read_text() == "mine"
    assert not (tmp_path / "job.sbatch").exists()
    assert hippo("export", plan_file, "--to", "slurm", "--out", tmp_path, "--force").code == 0


def test_an_order_that_the_target_cannot_express_is_wrong_input_and_nothing_is_written(
    refused: Callable[..., str], gpipe_file: Path, tmp_path: Path
):
    message = refused("export", gpipe_file, "--to", "megatron", "--out", tmp_path / "out", "--json")
    assert "Megatron-LM cannot express schedule 'gpipe'" in message
    assert "--nearest exports it" in message
    assert not (tmp_path / "out").exists()


def test_a_collective_that_the_target_has_not_is_wrong_input(refused: Callable[..., str], tmp_path: Path):
    problem, plan = replicas()
    save_plan(problem, replace(plan, sync=Sync(all_reduce="two-level")), tmp_path / "plan.json")
    message = refused("export", tmp_path / "plan.json", "--to", "megatron", "--out", tmp_path / "out")
    assert "Megatron-LM sums on two levels with sharding optimizer alone, not none" in message
    assert "--nearest exports it" in message
    assert not (tmp_path / "out").exists()


def test_a_lever_that_the_target_has_not_is_wrong_input(refused: Callable[..., str], tmp_path: Path):
    problem, plan = example()
    save_plan(problem, replace(plan, compression=(Compression("dc-a", "dc-b", "fp8"),)), tmp_path / "plan.json")
    message = refused("export", tmp_path / "plan.json", "--to", "torchtitan", "--out", tmp_path / "out")
    assert "torchtitan cannot compress activations" in message


def test_one_domain_and_the_time_come_first(hippo: Hippo, plan_file: Path, tmp_path: Path):
    answer = hippo("export", plan_file, "--to", "torchtitan", "--out", tmp_path / "out")
    lines = answer.err.splitlines()
    assert "Better inside one domain: " in lines[0]
    assert "under torch's pipelining" in answer.err
    assert "The plan was made for no runtime (ideal); as exported it would take " in answer.err


def test_the_folders_plan_confirms_its_time(hippo: Hippo, plan_file: Path, tmp_path: Path):
    told = hippo("export", plan_file, "--to", "torchtitan", "--out", tmp_path / "out", "--json").document
    again = hippo("simulate", tmp_path / "out" / "plan.json", "--json").document
    assert again["step_time_s"] == told["expected"]["step_time_s"]


def test_the_nearest_plan_is_exported_where_asked_for(hippo: Hippo, gpipe_file: Path, tmp_path: Path):
    answer = hippo("export", gpipe_file, "--to", "megatron", "--out", tmp_path / "out", "--nearest", "--json")
    assert answer.code == 0, answer.err
    assert answer.document["notes"][0].startswith("Megatron-LM cannot run the plan as it is")
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["schedule"] == {"name": "1f1b"}


def test_places(hippo: Hippo, plan_file: Path, tmp_path: Path):
    words = ("--place", "dc-a=gcp/us-central1", "--place", "dc-b=aws/eu-west-1")
    assert hippo("export", plan_file, "--to", "skypilot", "--out", tmp_path / "out", *words).code == 0
    text = (tmp_path / "out" / "hippo.sky.yaml").read_text()
    assert "infra: gcp/us-central1" in text
    assert "infra: aws/eu-west-1" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "megatorn"), "did you mean 'megatron'"),
        (("--to", "slurm", "--program", "deepsped"), "did you mean 'deepspeed'"),
        (("--to", "slurm", "--place", "dc-c=x"), "dc-a, dc-b"),
        (("--to", "slurm", "--place", "dc-a"), "DOMAIN=WHERE"),
        (("--to", "slurm", "--place", "dc-a=two words; rm"), "--place"),
    ],
)
def test_wrong_words(refused: Callable[..., str], plan_file: Path, tmp_path: Path, words: tuple[str, ...], said: str):
    assert said in refused("export", plan_file, "--out", tmp_path / "out", *words)
    assert not (tmp_path / "out").exists()


def test_a_plan_that_is_none(refused: Callable[..., str], plan_file: Path, tmp_path: Path):
    document = json.loads(plan_file.read_text())
    document["pipelines"][0]["stages"][1]["layers"] = [7, 13]
    plan_file.write_text(json.dumps(document))
    assert "layer 6 is on no stage" in refused("export", plan_file, "--to", "ray", "--out", tmp_path / "out")


def test_a_file_in_place_of_the_folder(refused: Callable[..., str], plan_file: Path):
    assert "is a file, not a folder" in refused("export", plan_file, "--to", "ray", "--out", plan_file)
