"""Slurm: directives by our own reading, and by a real slurmctld with four invented nodes where one can be started."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from hippo.export import slurm
from hippo.export.base import Wishes
from hippo.plan.plan import Pipeline

from ..processes import started
from .examples import example

MISSING = [tool for tool in ("slurmctld", "sbatch", "scancel") if shutil.which(tool) is None]


def script(**wishes: object) -> str:
    return str(slurm.export(*example(), Wishes(**wishes)).files["job.sbatch"])


def test_one_component_per_domain_in_the_order_of_ranks():
    components = script().split("#SBATCH hetjob\n")
    assert [re.findall(r"--partition=(\S+)", part) for part in components] == [["dc-a"], ["dc-b"]]
    assert all("--nodes=1\n" in part and "--gres=gpu:8\n" in part for part in components)
    assert "srun --kill-on-bad-exit=1 --het-group=0 bash slurm_host.sh dc-a 0 : --het-group=1 bash" in components[1]


def test_partitions_may_have_other_names():
    assert "--partition=big-one\n" in script(places=MappingProxyType({"dc-a": "big-one"}))


def test_one_domain_is_a_plain_job():
    problem, plan = example()
    stages = tuple(
        replace(stage, domain="dc-a", devices=tuple(d.replace("dc-b/0", "dc-a/1") for d in stage.devices))
        for stage in plan.pipelines[0].stages
    )
    text = str(slurm.export(problem, replace(plan, pipelines=(Pipeline(stages, 8),)), Wishes()).files["job.sbatch"])
    assert "hetjob" not in text
    assert "het-group" not in text
    assert "--nodes=2\n" in text


@pytest.mark.parametrize("text", [script(), str(slurm._HOST)])
def test_scripts_are_bash(text: str):
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_a_node_finds_its_place(tmp_path: Path):
    """``slurm_host.sh`` with a stand-in for scontrol."""
    (tmp_path / "scontrol").write_text("#!/bin/sh\nprintf 'b7\\nb8\\nb12\\n'\n")
    (tmp_path / "launch.sh").write_text('echo "$@"\n')
    (tmp_path / "slurm_host.sh").write_text(slurm._HOST)
    (tmp_path / "scontrol").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURMD_NODENAME": "b12",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "b[7-8,12]",
    }
    told = subprocess.run(
        ["bash", "slurm_host.sh", "dc-b", "1"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "dc-b 2\n"


# --------------------------------------------------------------------------------------------------- a real controller
CONFIGURATION = """\
ClusterName=invented
SlurmctldHost=localhost
AuthType=auth/none
CryptoType=crypto/munge
SlurmUser=root
SlurmctldPort={port}
SlurmdPort={daemon}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/pid
SlurmctldLogFile={folder}/log
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
MpiDefault=none
NodeName=a[0-1],b[0-1] CPUs=8 RealMemory=1000 Gres=gpu:8 State=UNKNOWN NodeAddr=127.0.0.1 Port=[{daemon}-{last}]
PartitionName=dc-a Nodes=a[0-1] Default=YES State=UP
PartitionName=dc-b Nodes=b[0-1] State=UP
"""
Submit = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def submit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submit]:
    """``submit(script)`` asks a slurmctld of our own; nothing ever runs, as its nodes are invented."""
    if MISSING or os.geteuid() != 0:
        pytest.skip(f"no slurmctld to be had: {', '.join(MISSING) or 'only root may start one'}")
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "state").mkdir()
    with socket.socket() as one, socket.socket() as two:
        one.bind(("localhost", 0))
        two.bind(("localhost", 0))
        ports = {"port": one.getsockname()[1], "daemon": two.getsockname()[1], "last": two.getsockname()[1] + 3}
    configuration = folder / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder, **ports))
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    with started(["slurmctld", "-D"], env=environment, stdout=-3, stderr=-3) as controller:
        _wait(ports["port"], controller)

        def ask(text: str) -> subprocess.CompletedProcess[str]:
            (folder / "job.sbatch").write_text(text)
            return subprocess.run(
                ["sbatch", "job.sbatch"], cwd=folder, env=environment, capture_output=True, text=True, timeout=30
            )

        yield ask
        subprocess.run(["scancel", "-u", "root"], env=environment, check=False, timeout=30)
        controller.terminate()
        with suppress(subprocess.TimeoutExpired):
            controller.wait(30)


def _wait(port: int, controller: subprocess.Popen[bytes]) -> None:
    """Until it listens: a client that comes too early waits long before it asks again."""
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
            return
        if controller.poll() is not None:
            break
        time.sleep(0.05)
    pytest.skip("slurmctld does not start here")


def test_slurm_takes_the_example(submit: Submit):
    answer = submit(script())
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("Submitted batch job")


@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        ("gpu:8", "gpu:9", "node configuration is not available"),
        ("#SBATCH hetjob", "#SBATCH hetjobb", "Invalid directive"),
        ("--partition=dc-b", "--partition=dc-c", "nvalid partition"),
    ],
)
def test_slurm_refuses_broken_ones(submit: Submit, right: str, wrong: str, complaint: str):
    answer = submit(script().replace(right, wrong))
    assert answer.returncode != 0
    assert re.search(complaint, answer.stderr), answer.stderr
