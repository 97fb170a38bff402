"""Slurm: a batch job an order, one component a domain, which is a partition of its own.

``HIPPO_SLURM_PARTITIONS`` ("oslo=gpu-north,lyon=gpu-south") names partitions that are not called as their domains.
Nothing of Slurm is asked for but ``sbatch``, ``squeue``, ``scancel`` and ``sinfo``: no accounting, no plugin.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from hippo.errors import InputError
from hippo.files import write_whole
from hippo.serve.actuators.base import ActuatorError
from hippo.serve.actuators.batch import PENDING, BatchActuator, BatchJob, BatchLaunch, LaunchRefusedError
from hippo.serve.actuators.placing import renamed
from hippo.serve.records import DONE, FAILED, RUNNING

PARTITIONS = "HIPPO_SLURM_PARTITIONS"
WITHIN_S = 30.0  # that a command of Slurm may take
COLUMNS = "%i|%j|%T|%r|%N"
NODE_COLUMNS = "Partition:200|,Available:20|,StateLong:50|,Gres:500|,GresUsed:500|"
SOUND = ("idle", "mixed", "allocated", "completing", "planned")
"""Of nodes that may get jobs. Of one in another state, or marked (but ``~``, ``#``: power saved, ``-``: planned for),
or of a partition that is not up, those GPUs alone count that jobs have: one that is drained lets them end."""
STATES = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "SUSPENDED"), PENDING),
    **dict.fromkeys(("RUNNING", "COMPLETING", "STAGE_OUT"), RUNNING),
    "COMPLETED": DONE,
}
"""What is none of these has failed."""
PASSING = ("socket timed out", "unable to contact", "connection refused", "communication connection", "try again")
"""What Slurm says where it may answer later."""
SCRIPT = """\
#!/bin/bash
# Of hippo: runs a command on all nodes of this job, once for its order, and says how it ended.
began="$HIPPO_HOME/began-$HIPPO_KEY"
(set -o noclobber; echo "$SLURM_JOB_ID" > "$began") 2>/dev/null || [ "$(cat "$began")" = "$SLURM_JOB_ID" ] || exit 0
groups=()
[ -n "$SLURM_HET_SIZE" ] && groups=("--het-group=0-$((SLURM_HET_SIZE - 1))")
mkdir -p "$HIPPO_HOME/done-$HIPPO_KEY"
task='"$@" && touch "$HIPPO_HOME/done-$HIPPO_KEY/$SLURM_PROCID"'
srun "${groups[@]}" --ntasks-per-node=1 --kill-on-bad-exit=1 bash -c "$task" hippo "$@"
code=$?
# srun says 0 where a node died under it: all nodes must have said so.
[ "$code" = 0 ] && [ "$(ls "$HIPPO_HOME/done-$HIPPO_KEY" | wc -l)" -lt "$HIPPO_TASKS" ] && code=143
echo "$code" > "$HIPPO_HOME/exit-$HIPPO_KEY.part" && mv "$HIPPO_HOME/exit-$HIPPO_KEY.part" "$HIPPO_HOME/exit-$HIPPO_KEY"
exit "$code"
"""


class SlurmEngine:
    """Asks the commands of Slurm."""

    name = "slurm"

    def __init__(self, partitions: Mapping[str, str]) -> None:
        self.partitions = partitions

    def begin(self, launch: BatchLaunch) -> None:
        """One component a domain; all begin together."""
        script = launch.home / "hippo.sh"
        write_whole(script, SCRIPT)
        words = list[str]()
        for at, share in enumerate(launch.shares):
            words += [":"] if at else []
            words += [f"--job-name={launch.key}", f"--partition={self.partitions.get(share.domain, share.domain)}"]
            words += [f"--nodes={share.nodes}", f"--gres=gpu:{share.gpus_per_node}", "--no-requeue"]
            words += [f"--output={launch.home / 'log.txt'}", "--open-mode=append", f"--chdir={launch.home}"]
        told = {**launch.environment, "HIPPO_TASKS": str(sum(each.nodes for each in launch.shares))}
        _told(["sbatch", "--parsable", *words, str(script), *launch.words], told)

    def jobs(self) -> Sequence[BatchJob]:
        """All that it remembers: some minutes beyond their end."""
        return jobs_of(_told(["squeue", "--states=all", "--noheader", "-o", COLUMNS]))

    def usable(self, domains: Sequence[str]) -> dict[str, int]:
        """GPUs of the nodes of their partitions that can be used, of those that there are."""
        counted = gpus_of(_told(["sinfo", "--noheader", "--Node", "--all", "-O", NODE_COLUMNS]))
        found = {each: counted.get(self.partitions.get(each, each)) for each in domains}
        return {each: count for each, count in found.items() if count is not None}

    def end(self, job: BatchJob) -> None:
        """Signals, then kills."""
        _told(["scancel", job.id])

    def close(self) -> None:
        """Nothing is held open."""


def jobs_of(text: str) -> list[BatchJob]:
    """What ``squeue`` lists; a job of several components is as its worst."""
    found: dict[str, BatchJob] = {}
    for line in text.splitlines():
        number, key, word, reason, nodes = line.split("|", 4)
        name, state = number.split("+")[0], STATES.get(word, FAILED)
        told = (
            ""
            if state == RUNNING
            else f"{word.lower().replace('_', ' ')} ({reason})" + (f" on {nodes}" if nodes else "")
        )
        each, known = BatchJob(name, key, state, told), found.get(name)
        if known is None or _RANK[each.state] > _RANK[known.state]:
            found[name] = each
    return list(found.values())


def gpus_of(text: str) -> dict[str, int]:
    """GPUs of each partition that can be used, as ``sinfo`` lists its nodes."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        partition, up, state, has, used = (each.strip() for each in line.split("|")[:5])
        sound = up == "up" and state.rstrip("~#-") in SOUND
        count = sum(int(each) for each in GPUS.findall(has if sound else used))
        found[partition] = found.get(partition, 0) + count
    return found


GPUS = re.compile(r"\bgpu(?::[^:,()]+)?:(\d+)")
_RANK = {DONE: 0, RUNNING: 1, PENDING: 2, FAILED: 3}


def slurm(folder: Path | None = None, cluster: str | Path | None = None) -> BatchActuator:
    """The actuator. ``InputError``: Slurm's commands are not here, or partitions are no list."""
    if shutil.which("sbatch") is None:
        remedy = "install Slurm's client where the service runs (Debian: slurm-client)"
        raise InputError("sbatch is not installed", source="--actuator", value="slurm", remedy=remedy)
    return BatchActuator(SlurmEngine(renamed(PARTITIONS, "PARTITION")), folder, cluster)


def _told(words: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """What a command of Slurm says. ``LaunchRefusedError``: no, and never; ``ActuatorError``: perhaps later."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("SLURM_CONF") or name == "PATH"}
    env = {**(environment or {}), **kept}
    try:
        ran = subprocess.run(words, env=env, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    except FileNotFoundError:
        raise LaunchRefusedError(
            f"{words[0]} is not installed. To fix: install Slurm's client where the service runs"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ActuatorError(f"{words[0]} does not answer: {error}"[:300]) from None
    if ran.returncode == 0:
        return ran.stdout
    told = (ran.stderr.strip() or ran.stdout.strip() or "no reason given").splitlines()[-1][:300]
    if any(each in told.lower() for each in PASSING):
        raise ActuatorError(f"{words[0]}: {told}")
    raise LaunchRefusedError(f"{words[0]}: {told}")
