"""What can be served by an actuator in tests, each in one form: an engine in memory, hippo's own runs, Slurm, Ray, a
server that plays Kueue."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.serve import servers

from hippo.files import write_files
from hippo.serve import demo
from hippo.serve.actuators.api_server import ApiAddress
from hippo.serve.actuators.base import Actuator, ActuatorError
from hippo.serve.actuators.batch import BatchActuator, BatchJob, BatchLaunch
from hippo.serve.actuators.kueue import Kueue, KueueSite
from hippo.serve.actuators.own import _PROCESSES, Own
from hippo.serve.actuators.ray_jobs import RayEngine
from hippo.serve.actuators.slurm import SlurmEngine
from hippo.serve.records import DONE, FAILED, RUNNING, JobOrder

from .cluster_fake import QUEUE, SPACE, TOKEN, FakeCluster, served

MARK = "18d3f0a1"
"""Of a store."""


@dataclass
class ServedBy:
    """Orders for one job, and what came of them."""

    make: Callable[[], Actuator]
    folder: Path
    spec: Callable[[float, int], dict[str, Any]]  # of a job that runs so many seconds and ends with a code
    begun: Callable[[], int]  # how often processes of the job were begun
    moves: bool = False  # processes go over; else they are begun anew
    actuator: Actuator = field(init=False)

    def __post_init__(self) -> None:
        self.actuator = self.make()

    def again(self) -> None:
        """As after kill -9."""
        self.actuator.close()
        self.actuator = self.make()

    def order(self, act: str, number: int, *domains: str, lasts_s: float = 600.0, code: int = 0) -> JobOrder:
        place = {"domains": list(domains), "gpus": [2, 1][: len(domains)]} if domains else None
        return JobOrder(f"o-{number}-j1-{MARK}", act, "j1", self.spec(lasts_s, code), place)


class MemoryEngine:
    """Begins nothing, and remembers."""

    name = "memory"

    def __init__(self) -> None:
        self.known: dict[str, BatchJob] = {}
        self.begins = 0

    def begin(self, launch: BatchLaunch) -> None:
        self.begins += 1
        with open(launch.home / "begun", "a") as out:
            out.write("begun\n")
        seconds, code = float(launch.words[1]), int(launch.words[2])
        state = RUNNING if seconds > 1.0 else (FAILED if code else DONE)
        self.known[launch.key] = BatchJob(str(self.begins), launch.key, state, f"exit {code}" if code else "")

    def jobs(self) -> Sequence[BatchJob]:
        return list(self.known.values())

    def end(self, job: BatchJob) -> None:
        self.known[job.key] = BatchJob(job.id, job.key, FAILED, "ended")

    def close(self) -> None:
        pass


def command(seconds: float, code: int) -> dict[str, Any]:
    """A gang that notes that it was begun, once a node."""
    script = f'echo begun >> "$HIPPO_HOME/begun"; sleep {seconds}; exit {code}'
    return {"devices": 3, "duration_s": 1e4, "run": {"command": ["sh", "-c", script]}}


def cluster_file(folder: Path) -> Path:
    """Two GPUs a node, in two domains."""
    domains = [{"name": "oslo", "nodes": 2, "gpus_per_node": 2}, {"name": "lyon", "nodes": 1, "gpus_per_node": 2}]
    links = [{"from": "oslo", "to": "lyon", "bandwidth_gbps": 1, "latency_ms": 5, "both": True}]
    path = folder / "site.yaml"
    path.write_text(json.dumps({"name": "two", "gpu": "A100", "domains": domains, "links": links}))
    return path


@contextmanager
def in_memory(folder: Path) -> Iterator[ServedBy]:
    engine = MemoryEngine()

    def spec(seconds: float, code: int) -> dict[str, Any]:
        return {"devices": 3, "duration_s": 1e4, "run": {"command": ["run", str(seconds), str(code)]}}

    runs = folder / "runs"
    yield ServedBy(lambda: BatchActuator(engine, runs, cluster_file(folder)), runs, spec, lambda: noted(runs / "j1"))


@contextmanager
def by_own(folder: Path) -> Iterator[ServedBy]:
    write_files(folder, demo.files())
    runs = folder / "runs"
    home = runs / "j1"

    def spec(seconds: float, code: int) -> dict[str, Any]:
        steps, model = (3 if seconds < 10.0 else 4000), str(folder / "small.json") if code == 0 else "/no/such.json"
        return {"model": model, "batch": 32, "seq": 64, "tokens": 32.0 * 64 * steps}

    def begun() -> int:
        orders = [line for line in (home / "log.txt").read_text().splitlines() if "began with" in line]
        state = json.loads((home / "state.json").read_text())
        return max(1, len(orders)) if state["pid"] else 0

    try:
        yield ServedBy(lambda: Own(runs, folder / "demo.yaml"), runs, spec, begun, moves=True)
    finally:
        for state in runs.glob("*/state.json"):
            pid = int(json.loads(state.read_text())["pid"])
            if pid in _PROCESSES and _PROCESSES[pid].poll() is None:
                os.killpg(pid, signal.SIGKILL)


@contextmanager
def by_slurm(folder: Path) -> Iterator[ServedBy]:
    if not servers.has_slurm():
        pytest.skip("Slurm cannot be started here (Debian: slurmctld, slurmd, slurm-client; as root)")
    with servers.slurm() as site, pytest.MonkeyPatch.context() as patch:
        for name, value in site.environment.items():
            patch.setenv(name, value)
        made = ServedBy(
            lambda: BatchActuator(SlurmEngine({}), folder / "runs", cluster_file(folder)),
            folder / "runs",
            command,
            lambda: noted(folder / "runs" / "j1"),
        )
        made.site = site  # type: ignore[attr-defined]
        yield made


@contextmanager
def by_ray(folder: Path) -> Iterator[ServedBy]:
    if servers.ray_program() is None:
        pytest.skip("ray is not installed (extra 'targets', or HIPPO_TEST_RAY=PROGRAM)")
    with servers.ray_cluster() as address:
        yield ServedBy(
            lambda: BatchActuator(RayEngine(address), folder / "runs", cluster_file(folder)),
            folder / "runs",
            command,
            lambda: noted(folder / "runs" / "j1"),
        )


@contextmanager
def by_kueue(folder: Path, *clusters: str) -> Iterator[ServedBy]:
    with served(FakeCluster(folder, clusters=clusters)) as there:
        made = ServedBy(
            lambda: kueue_of(there),
            folder / "runs",
            command,
            lambda: noted(folder / "runs" / "j1"),
        )
        made.site = there  # type: ignore[attr-defined]
        yield made


def by_multikueue(folder: Path) -> Any:
    """Domains are clusters; one is called otherwise there."""
    return by_kueue(folder, "worker-oslo", "lyon")


def kueue_of(there: FakeCluster, **other: Any) -> Kueue:
    token = there.folder / "token"
    token.write_text(f"{TOKEN}\n")
    names = {"oslo": "worker-oslo"} if there.clusters else {}
    where = ApiAddress(there.url, token)
    site = KueueSite(where, SPACE, QUEUE, "runs", image="example/train:1", clusters=names)
    return Kueue(there.folder / "runs", cluster_file(there.folder), replace(site, **other))


def noted(home: Path) -> int:
    """How often its first node began it: two nodes note at once, which counts once a key."""
    try:
        return len((home / "begun").read_text().splitlines())
    except OSError:
        return 0


class LosesAnswers:
    """An actuator whose answer is lost after it has done what was asked."""

    def __init__(self, actuator: Actuator) -> None:
        self.actuator = actuator

    def carry_out(self, order: JobOrder) -> None:
        self.actuator.carry_out(order)
        raise ActuatorError("the answer was lost")


SITES = {"memory": in_memory, "own": by_own, "slurm": by_slurm, "ray": by_ray}
SITES |= {"kueue": by_kueue, "multikueue": by_multikueue}
QUICK = ("memory", "kueue")
__all__ = ["QUICK", "SITES", "LosesAnswers", "ServedBy", "subprocess"]
