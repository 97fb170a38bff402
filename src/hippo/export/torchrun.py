"""torchrun: one ``launch.sh`` that is started on every host, with static rendezvous and explicit node ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from types import MappingProxyType

from hippo.decide.wording import capital, described
from hippo.export import sums
from hippo.export.base import Export, Wishes
from hippo.export.expected import ExportTimes, expected
from hippo.export.program import NETWORK, Blank, LaunchedProgram
from hippo.export.program import program as program_named
from hippo.export.ranks import Agent, Host
from hippo.files import json_text
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem

# ------------------------------------------------------------------------------------------------------- launch script
# ``launch.sh``: starts the ranks of one host, whoever calls it: a person, Slurm, SkyPilot, Ray or Kubernetes.
#
# torchrun with static rendezvous and explicit node ranks: the only way in which ranks follow the plan's order even
# when hosts start in another (with c10d rendezvous node ranks are ignored; pytorch issues 150660, 182223).

C10D = (
    "Rendezvous is static, on purpose: with --rdzv-backend=c10d torchrun ignores node ranks, and stages land in "
    "whichever domain starts first."
)


def launch_script(program: LaunchedProgram) -> str:
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
            _START.replace("@AGENTS@", str(program.placed.num_agents)),
            "",
            'case "${1:?domain}/${2:?position}" in',
            *(_case(host) for host in program.placed.hosts),
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
    first, last = host.ranks[0].rank, host.ranks[-1].rank
    ranks = f"ranks {first}-{last}" if last - first + 1 == len(host.ranks) else f"{len(host.ranks)} ranks"
    return f"{quote(host.domain)}/{host.position}) {starts} ;;  # node {host.node} of the plan, {ranks}"


def _agent(agent: Agent) -> str:
    return f"agent {agent.index} {len(agent.ranks)} {' '.join(map(str, agent.gpus))}"


def program_script(program: LaunchedProgram) -> str:
    """The text of ``program.sh``: what every rank runs, as a bash array."""
    exports = [f"export {name}={quote(value)}" for name, value in program.environment.items()]
    head = [f"# What every rank runs: {program.name}. Read by launch.sh.", *exports, "PROGRAM=("]
    return "\n".join([*head, *(f"    {word}" for word in program.words), ")", ""])


# -------------------------------------------------------------------------------------------------------------- folder
# What every launcher's folder holds: ``README.md`` (what to expect, how to launch it, who sits where, what is left to
# fill in), ``expected.json``, and the program's files.

ADDRESS = Blank(
    "MASTER_ADDR", "the address of the host with rank 0 (the first of the table), reachable from all others"
)


@dataclass(frozen=True)
class Launch:
    """How a launcher starts a program: its name, what is typed, files of its own, what only the user knows, notes."""

    title: str
    command: str
    files: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    blanks: tuple[Blank, ...] = ()
    notes: tuple[str, ...] = ()


def launched(problem: Problem, plan: Plan, program: LaunchedProgram, launch: Launch) -> Export:
    """The folder of a launcher that starts the program on every rank."""
    told = expected(problem, plan, program.runtime)
    files = {
        **program_files(program),
        **launch.files,
        "expected.json": json_text(told.document()),
        "README.md": _readme(plan, program, launch, told),
    }
    return Export(files, launch.command, (*launch.notes, *program.notes), told)


def _readme(plan: Plan, program: LaunchedProgram, launch: Launch, told: ExportTimes) -> str:
    parts = [
        f"# {told.problem.model.name} with {program.name} ({launch.title})",
        f"{capital(described(plan))}.",
        *told.sentences(),
        "## Launch",
        f"```bash\n{launch.command}\n```",
        "## Left to fill in",
        _blanks((*launch.blanks, *program.blanks, NETWORK)),
        "## Who sits where",
        f"Hosts in the order of their ranks; `launch.sh DOMAIN POSITION` starts one. {len(program.placed.ranks)} "
        f"ranks, {_order(program)}.{_domains(plan, program)}",
        host_table(plan, program.placed.hosts),
        "## Good to know",
        "\n".join(f"- {note}" for note in (*launch.notes, *program.notes)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _domains(plan: Plan, program: LaunchedProgram) -> str:
    """In which order domains stand, and what goes around them in that order."""
    names = program.placed.domains
    if len(names) == 1:
        return ""
    ring = sums.told(plan)
    order = f" Domains stand in the order {', '.join(names)}"
    return f"{order}, that of ranks and of every ring over domains. {ring}" if ring else f"{order}, that of ranks."


def _order(program: LaunchedProgram) -> str:
    orders = {
        "stages": "numbered stage by stage (within a stage: lane, then tensor)",
        "lanes": "numbered lane by lane (within a lane: stage, then tensor)",
        "plan": "numbered host by host",
    }
    return orders[program.placed.order]


def _blanks(blanks: Sequence[Blank]) -> str:
    rows = "\n".join(f"| `{blank.name}` | {blank.meaning} |" for blank in blanks)
    return f"| variable or file | what |\n|---|---|\n{rows}"


def host_table(plan: Plan, hosts: Sequence[Host]) -> str:
    """A table in Markdown: host, ranks, stages, layers."""
    head = "| domain | position | node of the plan | ranks | stages | layers |\n|---|---|---|---|---|---|"
    return "\n".join([head, *(_row(plan, host) for host in hosts)])


def _row(plan: Plan, host: Host) -> str:
    ranks = ", ".join(_span([each.rank for each in agent.ranks]) for agent in host.agents)
    stages = dict.fromkeys((each.pipeline, each.stage) for each in host.ranks)
    several = len(plan.pipelines) > 1
    names = ", ".join(f"{p}.{s}" if several else str(s) for p, s in stages)
    layers = ", ".join(_span(range(*plan.pipelines[p].stages[s].layers)) for p, s in stages)
    if plan.interleave > 1:
        layers = f"{plan.interleave} chunks a stage"
    return f"| {host.domain} | {host.position} | {host.node} | {ranks} | {names} | {layers} |"


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


SPLIT = (
    "Some hosts start several torchruns: ranks of other hosts lie between their own. NCCL may then copy between GPUs "
    "of one host through its memory instead of NVLink."
)


def export(problem: Problem, plan: Plan, wishes: Wishes) -> Export:
    """The program asked for, launched by hand or by ssh on every host."""
    return export_program("torchrun", problem, plan, program_named(problem, plan, wishes.program))


def export_program(title: str, problem: Problem, plan: Plan, program: LaunchedProgram) -> Export:
    """One command per host, and nothing but the program's own files."""
    command = "\n".join(
        f"MASTER_ADDR=.. bash launch.sh {quote(host.domain)} {host.position}  # on node {host.node} of {host.domain}"
        for host in program.placed.hosts
    )
    launch = Launch(title, command, blanks=(ADDRESS,), notes=(C10D, *split_note(program)))
    return launched(problem, plan, program, launch)


def program_files(program: LaunchedProgram) -> Mapping[str, str]:
    """What every launcher needs: the program's files, ``program.sh`` and ``launch.sh``."""
    return {**program.files, "program.sh": program_script(program), "launch.sh": launch_script(program)}


def split_note(program: LaunchedProgram) -> tuple[str, ...]:
    """A word on hosts that start several torchruns; empty where none does."""
    return () if program.placed.whole else (SPLIT,)
