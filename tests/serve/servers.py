"""Real servers that tests start: PostgreSQL, by an ordinary user; Slurm; Ray."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

ORDINARY = "nobody"


def found(name: str, *places: str) -> str | None:
    """Where a program lies; None: it is not installed."""
    return shutil.which(name) or shutil.which(name, path=":".join(places))


def has_postgresql() -> bool:
    """Whether it can be started here."""
    return None not in _postgresql()


def _postgresql() -> tuple[str | None, str | None]:
    places = [str(each) for each in sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    return found("initdb", *places), found("postgres", *places)


@contextmanager
def postgresql(*, sync: bool = True) -> Iterator[str]:
    """The folder of the socket behind which it answers; it refuses to run as root."""
    initdb, postgres = _postgresql()
    assert initdb is not None, "no PostgreSQL on this machine"
    assert postgres is not None, "no PostgreSQL on this machine"
    user = pwd.getpwnam(ORDINARY).pw_uid if os.getuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="hippo-pg-") as folder:  # short: sockets have short paths
        if user is not None:
            os.chown(folder, user, -1)
        data, how = f"{folder}/data", {"user": user, "cwd": folder}
        made = [initdb, "-D", data, "-A", "trust", "-U", "hippo", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, **how)  # type: ignore[call-overload]
        command = [postgres, "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", f"fsync={sync}"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, **how) as process:  # type: ignore[call-overload]
            end_s = time.monotonic() + 30.0
            while not Path(folder, ".s.PGSQL.5432").exists():
                assert process.poll() is None
                assert time.monotonic() < end_s
                time.sleep(0.05)
            try:
                yield folder
            finally:
                process.send_signal(signal.SIGINT)  # at once, whoever is connected; its last writes may take a while
                process.wait(60.0)


SLURM_NODES = {"oslo1": "oslo", "oslo2": "oslo", "lyon1": "lyon"}
"""Of two domains; each has two GPUs, as far as Slurm knows."""


@dataclass
class SlurmSite:
    """A Slurm of three nodes on this machine."""

    folder: Path
    environment: dict[str, str]
    daemons: dict[str, subprocess.Popen[bytes]]

    def ask(self, *words: str) -> str:
        ran = subprocess.run(words, env={**os.environ, **self.environment}, capture_output=True, text=True, check=True)
        return ran.stdout

    def state(self, node: str) -> str:
        return self.ask("sinfo", "-h", "-N", "-n", node, "-o", "%T").strip()

    def lose(self, node: str) -> None:
        """It is dead, and Slurm is told so."""
        self.daemons[node].kill()
        self.daemons[node].wait()
        self.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=dead")


def has_slurm() -> bool:
    """Whether it can be started here."""
    return os.getuid() == 0 and None not in [found(each, "/usr/sbin") for each in ("slurmctld", "slurmd", "sbatch")]


@contextmanager
def slurm() -> Iterator[SlurmSite]:
    """slurmctld and three slurmd, without munge or cgroups; as root, as slurmd must be."""
    with tempfile.TemporaryDirectory(prefix="hippo-slurm-") as name:
        folder, ports = Path(name), free_ports(1 + len(SLURM_NODES))
        for at in range(2):
            (folder / f"gpu{at}").touch()
        lines = ["ClusterName=hippo", "SlurmctldHost=localhost", f"SlurmctldPort={ports[0]}", "SlurmUser=root"]
        lines += ["AuthType=auth/none", "CredType=cred/none", "ProctrackType=proctrack/linuxproc", "MpiDefault=none"]
        lines += ["TaskPlugin=task/none", "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core", "KillWait=2"]
        lines += ["SlurmdParameters=config_overrides", "ReturnToService=0", "GresTypes=gpu", "SlurmdTimeout=300"]
        lines += ["SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0"]
        lines += [f"StateSaveLocation={folder}/state", f"SlurmdSpoolDir={folder}/spool.%n"]
        lines += [f"SlurmctldPidFile={folder}/ctld.pid", f"SlurmdPidFile={folder}/%n.pid"]
        lines += [f"SlurmctldLogFile={folder}/ctld.log", f"SlurmdLogFile={folder}/%n.log"]
        for at, node in enumerate(SLURM_NODES):
            place = f"NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1 + at]}"
            lines.append(f"NodeName={node} {place} CPUs=2 Gres=gpu:2 State=UNKNOWN")
            (folder / f"spool.{node}").mkdir()
        for domain in sorted(set(SLURM_NODES.values())):
            nodes = ",".join(node for node, there in SLURM_NODES.items() if there == domain)
            lines.append(f"PartitionName={domain} Nodes={nodes} MaxTime=INFINITE State=UP")
        (folder / "state").mkdir()
        (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
        (folder / "gres.conf").write_text(f"NodeName={','.join(SLURM_NODES)} Name=gpu File={folder}/gpu[0-1]\n")
        config = str(folder / "slurm.conf")
        daemons = {"": subprocess.Popen([str(found("slurmctld", "/usr/sbin")), "-D", "-f", config])}
        for node in SLURM_NODES:
            words = [str(found("slurmd", "/usr/sbin")), "-D", "-N", node, "-f", config]
            daemons[node] = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        site = SlurmSite(folder, {"SLURM_CONF": config}, daemons)
        try:
            end_s = time.monotonic() + 60.0
            while not all(_idle(site, node) for node in SLURM_NODES):
                assert time.monotonic() < end_s, (folder / "ctld.log").read_text()[-3000:]
                time.sleep(0.2)
            yield site
        finally:
            with suppress(subprocess.CalledProcessError):
                site.ask("scancel", "--user=root", "--signal=KILL")
                site.ask("scancel", "--user=root")
            time.sleep(1.0)
            for each in reversed(daemons.values()):
                each.terminate()
            for each in daemons.values():
                each.wait(20.0)


def _idle(site: SlurmSite, node: str) -> bool:
    try:
        return site.state(node).strip("*") == "idle"
    except subprocess.CalledProcessError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    taken = [socket.socket() for _ in range(count)]
    for each in taken:
        each.bind(("127.0.0.1", 0))
    numbers = [int(each.getsockname()[1]) for each in taken]
    for each in taken:
        each.close()
    return numbers


def ray_program() -> str | None:
    """Ray's command; None: not installed."""
    return found(os.environ.get("HIPPO_TEST_RAY", "ray"), str(Path(sys.executable).parent))


@contextmanager
def ray_cluster() -> Iterator[str]:
    """The address of the jobs of a local cluster of two nodes, domains oslo and lyon."""
    program, (port, dashboard, *more) = str(ray_program()), free_ports(6)
    with tempfile.TemporaryDirectory(prefix="hippo-ray-") as folder:
        environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
        head = [program, "start", "--head", f"--port={port}", f"--dashboard-port={dashboard}", "--num-cpus=2"]
        head += ["--include-dashboard=true", f"--temp-dir={folder}", '--resources={"oslo": 4}']
        head += [f"--dashboard-agent-listen-port={more[0]}", "--min-worker-port=0", "--max-worker-port=0"]
        other = [program, "start", f"--address=127.0.0.1:{port}", "--num-cpus=2", '--resources={"lyon": 4}']
        other += [f"--dashboard-agent-listen-port={more[1]}", "--min-worker-port=0", "--max-worker-port=0"]
        with ExitStack() as stack:
            for words in (head, other):
                log = stack.enter_context(open(f"{folder}/{words[2].strip('-')[:4]}.log", "wb"))
                node = subprocess.Popen(
                    [*words, "--block"], env=environment, stdout=log, stderr=log, start_new_session=True
                )
                stack.callback(_end_node, node)
                if words is head:
                    until(lambda: _answers(dashboard))
            until(lambda: _nodes(dashboard) == 2)
            yield f"http://127.0.0.1:{dashboard}"


def _answers(port: int) -> bool:
    with suppress(OSError, ValueError):
        return bool(_asked(port, "/api/version"))
    return False


def _nodes(port: int) -> int:
    with suppress(OSError, ValueError, KeyError):
        return len(
            [
                each
                for each in _asked(port, "/nodes?view=summary")["data"]["summary"]
                if each["raylet"].get("state") == "ALIVE"
            ]
        )
    return 0


def _asked(port: int, path: str) -> Any:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5.0) as answer:
        return json.load(answer)


def _end_node(node: subprocess.Popen[bytes]) -> None:
    """A node of Ray with all its processes, and no other."""
    node.terminate()
    with suppress(subprocess.TimeoutExpired):
        node.wait(30.0)
    with suppress(ProcessLookupError):
        os.killpg(node.pid, signal.SIGKILL)
    node.wait(10.0)


def until(what: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end_s, "it never came about"
        time.sleep(0.02)
