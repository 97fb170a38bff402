"""``launch.sh``: starts the ranks of one host, whoever calls it: a person, Slurm, SkyPilot, Ray or Kubernetes.

torchrun with static rendezvous and explicit node ranks: the only way in which ranks follow the plan's order even when
hosts start in another (with c10d rendezvous node ranks are ignored; pytorch issues 150660, 182223).
"""

from __future__ import annotations

from shlex import quote

from hippo.export.program import Program
from hippo.export.seats import Agent, Host

C10D = (
    "Rendezvous is static, on purpose: with --rdzv-backend=c10d torchrun ignores node ranks, and stages land in "
    "whichever domain starts first."
)


def launch_script(program: Program) -> str:
    """The text of ``launch.sh``; it needs ``program.sh`` beside it."""
    return "\n".join(
        (
            "#!/usr/bin/env bash",
            "# Starts the ranks of one host of the plan:  bash launch.sh DOMAIN POSITION",
            "# POSITION counts the hosts of the domain from 0, in the order of the table in README.md.",
            "set -euo pipefail",
            'cd "$(dirname "$0")"',
            ': "${MASTER_ADDR:?the address of the first host of the table, reachable from every other host}"',
            "export MASTER_ADDR MASTER_PORT=${MASTER_PORT:-29500}",
            "source ./program.sh",
            "",
            "pids=()",
            _START.replace("@AGENTS@", str(program.seating.num_agents)),
            "",
            'case "${1:?domain}/${2:?position}" in',
            *(_case(host) for host in program.seating.hosts),
            '*) echo "launch.sh: the plan has no host $1/$2" >&2; exit 2 ;;',
            "esac",
            'for pid in "${pids[@]}"; do wait "$pid" || { kill "${pids[@]}" 2>/dev/null || true; exit 1; }; done',
            "",
        )
    )


_START = """\
# agent NODE_RANK RANKS GPU..: one torchrun; GPUs are counted among those that this host may use
agent() {
    local turn=$1 ranks=$2 seen chosen=(); shift 2
    IFS=, read -ra seen <<< "${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 127)}"
    for gpu in "$@"; do chosen+=("${seen[$gpu]}"); done
    CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${chosen[*]}") \\
        torchrun --nnodes=@AGENTS@ --nproc-per-node="$ranks" --node-rank="$turn" --rdzv-backend=static \\
        --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "${PROGRAM[@]}" &
    pids+=($!)
}"""


def _case(host: Host) -> str:
    starts = "; ".join(_agent(agent) for agent in host.agents)
    first, last = host.seats[0].rank, host.seats[-1].rank
    ranks = f"ranks {first}-{last}" if last - first + 1 == len(host.seats) else f"{len(host.seats)} ranks"
    return f"{quote(host.domain)}/{host.position}) {starts} ;;  # node {host.node} of the plan, {ranks}"


def _agent(agent: Agent) -> str:
    return f"agent {agent.index} {len(agent.seats)} {' '.join(map(str, agent.gpus))}"


def program_script(program: Program) -> str:
    """The text of ``program.sh``: what every rank runs, as a bash array."""
    exports = [f"export {name}={quote(value)}" for name, value in program.environment.items()]
    head = [f"# What every rank runs: {program.name}. Read by launch.sh.", *exports, "PROGRAM=("]
    return "\n".join([*head, *(f"    {word}" for word in program.words), ")", ""])
