"""torchrun: ranks land where the plan puts them, even when the second domain starts first."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from hippo.errors import InexpressibleError, UnknownNameError
from hippo.export import torchrun
from hippo.export.base import Wishes
from hippo.plan.plan import Pipeline, ScheduleChoice, Stage

from ..ports import reserved_port
from ..processes import started
from .conftest import Written, exported
from .examples import cluster, devices, example

PROBE = """
import os
names = ("RANK", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "WORLD_SIZE")
place = os.path.join(os.environ["FOLDER"], os.environ["RANK"])
open(place, "w").write(" ".join(os.environ[name] for name in names) + " " + os.environ["WHERE"])
"""


def test_scripts_are_bash(written: Written):
    folder = written("torchrun")
    for name in ("launch.sh", "program.sh"):
        subprocess.run(["bash", "-n", name], cwd=folder, check=True)


def test_a_host_that_the_plan_has_not(written: Written):
    folder = written("torchrun")
    command = ["bash", "launch.sh", "dc-c", "0"]
    environment = {**os.environ, "MASTER_ADDR": "x", "MEGATRON_LM": "x", "CHECKPOINTS": "x"}
    answer = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (2, "launch.sh: the plan has no host dc-c/0\n")


@pytest.mark.parametrize(("left_out", "said"), [("MASTER_ADDR", "the address of the first host"), ("MEGATRON_LM", "")])
def test_what_is_left_to_fill_in_is_said(written: Written, left_out: str, said: str):
    environment = {"PATH": os.environ["PATH"], "MASTER_ADDR": "x", "MEGATRON_LM": "x", "CHECKPOINTS": "x"}
    del environment[left_out]
    command = ["bash", "launch.sh", "dc-a", "0"]
    answer = subprocess.run(command, cwd=written("torchrun"), env=environment, capture_output=True, text=True)
    assert answer.returncode != 0
    assert f"{left_out}: {said}" in answer.stderr


def test_programs_go_by_the_plans_runtime_or_by_name():
    problem, plan = example()
    assert "Megatron-LM" in str(torchrun.export(problem, plan, Wishes()).files["README.md"])
    own = replace(problem, runtime="torch")
    assert "torchtitan" in str(torchrun.export(own, plan, Wishes()).files["README.md"])
    named = torchrun.export(problem, plan, Wishes(program="deepspeed"))
    assert "train.py" in str(named.files["program.sh"])
    ahead = replace(plan, schedule=ScheduleChoice("cross-domain"))  # only torchtitan runs such an order
    assert "torchtitan" in str(torchrun.export(problem, ahead, Wishes()).files["README.md"])
    with pytest.raises(UnknownNameError):
        torchrun.export(problem, plan, Wishes(program="megatorn"))


def unlike():
    """tp 1 and dp 2 in one domain, tp 2 and dp 1 in the other: no runtime here can, a program of one's own may."""
    problem, plan = example()
    stages = (
        Stage("dc-b", (0, 17), 1, 2, devices("dc-b", 3, 1)),
        Stage("dc-a", (17, 34), 2, 1, devices("dc-a", 0, 1)),
    )
    return problem, replace(plan, pipelines=(Pipeline(stages, 8),))


def test_a_plan_that_no_runtime_can_run_is_refused_with_every_reason():
    with pytest.raises(InexpressibleError) as refusal:
        torchrun.export(*unlike(), Wishes())
    for name in ("Megatron-LM", "torchtitan", "DeepSpeed"):
        assert f"{name}: {name} has one tp and dp for all stages" in str(refusal.value)
    assert "--program own" in str(refusal.value)


def test_a_program_of_ones_own_gets_the_map():
    files = exported("torchrun", *unlike(), Wishes(program="own")).files
    assert '"domain": "dc-b"' in str(files["ranks.json"])


STAND_IN = """\
#!/bin/sh
echo "$CUDA_VISIBLE_DEVICES $*" | tr '\\n' ' '
"""


def test_names_of_domains_may_be_anything(tmp_path: Path):
    """With a stand-in for torchrun."""
    problem, plan = example()
    names = {"dc-a": "south 2", "dc-b": "贵安"}
    stages = tuple(
        replace(
            stage,
            domain=names[stage.domain],
            devices=tuple(d.replace(stage.domain, names[stage.domain]) for d in stage.devices),
        )
        for stage in plan.pipelines[0].stages
    )
    problem = replace(problem, cluster=cluster(domains=tuple(names.values())))
    files = exported("jobset", problem, replace(plan, pipelines=(Pipeline(stages, 8),)), Wishes(program="own")).files
    assert {"jobset-south-2.yaml", "jobset-d.yaml"} <= set(files)
    for name in ("launch.sh", "program.sh"):
        (tmp_path / name).write_text(str(files[name]))
    (tmp_path / "torchrun").write_text(STAND_IN)
    (tmp_path / "torchrun").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "MASTER_ADDR": "m", "TRAIN": "go.py --fast"}
    for turn, domain in enumerate(names.values()):
        answer = subprocess.run(
            ["bash", "launch.sh", domain, "0"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stdout.strip() == (
            f"0,1,2,3,4,5,6,7 --nnodes=2 --nproc-per-node=8 --node-rank={turn} --rdzv-backend=static --master-addr=m "
            "--master-port=29500 go.py --fast"
        )


def test_one_torchrun_that_fails_ends_the_host(tmp_path: Path):
    for name in ("launch.sh", "program.sh"):
        (tmp_path / name).write_text(str(exported("torchrun", *example(), Wishes(program="own")).files[name]))
    (tmp_path / "torchrun").write_text("#!/bin/sh\nexit 7\n")
    (tmp_path / "torchrun").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "MASTER_ADDR": "m", "TRAIN": "go.py"}
    assert subprocess.run(["bash", "launch.sh", "dc-a", "0"], cwd=tmp_path, env=environment).returncode == 1


def test_ranks_follow_the_plan_whoever_starts_first(written: Written, tmp_path: Path):
    """Real torchruns, two of them; each rank writes down what it got."""
    pytest.importorskip("torch", reason="torchrun comes with torch (extra 'run')")
    folder = written("torchrun", *unlike(), program="own", places=MappingProxyType({}))
    (folder / "probe.py").write_text(PROBE)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONWARNINGS": "ignore",
        "TRAIN": "probe.py",
        "FOLDER": str(tmp_path),
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "4,5,6,7",
    }
    with reserved_port() as port:
        first, second = (
            started(
                ["bash", "launch.sh", domain, "0"],
                cwd=folder,
                env={**environment, "MASTER_PORT": str(port), "WHERE": domain},
            )
            for domain in ("dc-a", "dc-b")
        )
        with first as one, second as other:
            assert [host.wait(600) for host in (one, other)] == [0, 0]
    told = {(tmp_path / str(rank)).read_text() for rank in range(4)}
    # the plan's first stage lies in dc-b, on its GPUs 3 and 1 in that order: the second and the first of those in use
    assert told == {"0 0 5,4 4 dc-b", "1 1 5,4 4 dc-b", "2 0 4,5 4 dc-a", "3 1 4,5 4 dc-a"}
