"""Slurm: a heterogeneous job, one component per domain; all components start together.

Federations and clusters of their own need an sbatch each; there the JobSet's way (an address to fill in) is the model.
"""

from __future__ import annotations

from shlex import quote

from hippo.export.base import Export, Wishes, job_name, slugs
from hippo.export.program import Blank, LaunchedProgram
from hippo.export.program import program as program_named
from hippo.export.torchrun import C10D, Launch, launched, split_note
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem

COMMAND = "sbatch job.sbatch"
PARTITIONS = (
    "Every domain is a partition of one Slurm (--place DOMAIN=PARTITION names it). Domains that are clusters of their "
    "own need one sbatch each, with MASTER_ADDR set."
)
_HOST = """\
#!/usr/bin/env bash
# slurm_host.sh DOMAIN COMPONENT: starts launch.sh with this node's position in its component of the job.
set -euo pipefail
list=SLURM_JOB_NODELIST_HET_GROUP_$2
position=$(scontrol show hostnames "${!list:-$SLURM_JOB_NODELIST}" | grep -nxF "$SLURMD_NODENAME" | cut -d: -f1)
exec bash launch.sh "$1" $((position - 1))
"""


def export(problem: Problem, plan: Plan, wishes: Wishes) -> Export:
    """``job.sbatch``, ``slurm_host.sh``, and the program's files."""
    program = program_named(problem, plan, wishes.program)
    blanks = (Blank("job.sbatch", "partitions, account, time; modules or container to load"),)
    files = {"job.sbatch": batch_script(problem, program, wishes), "slurm_host.sh": _HOST}
    notes = (PARTITIONS, C10D, *split_note(program))
    return launched(problem, plan, program, Launch("Slurm", COMMAND, files, blanks, notes))


def batch_script(problem: Problem, program: LaunchedProgram, wishes: Wishes) -> str:
    """The text of ``job.sbatch``."""
    domains, names = program.placed.domains, slugs(program.placed.domains)
    components = [_component(program, domain, wishes.places.get(domain, names[domain])) for domain in domains]
    first = [f"#SBATCH --job-name={job_name(problem.model.name)}", "#SBATCH --time=24:00:00"]
    head = "\n#SBATCH hetjob\n".join("\n".join(lines) for lines in components)
    steps = " : ".join(f"--het-group={at} bash slurm_host.sh {quote(domain)} {at}" for at, domain in enumerate(domains))
    nodes = "SLURM_JOB_NODELIST_HET_GROUP_0"
    if len(domains) == 1:
        steps, nodes = f"bash slurm_host.sh {quote(domains[0])} 0", "SLURM_JOB_NODELIST"
    return "\n".join(
        (
            "#!/usr/bin/env bash",
            *first,
            head,
            "",
            "# One component per domain, in the order of ranks; slurm_host.sh gives each node its place in the plan.",
            "set -euo pipefail",
            f'MASTER_ADDR=$(scontrol show hostnames "${nodes}" | head -n 1)',
            "export MASTER_ADDR MASTER_PORT=${MASTER_PORT:-29500}",
            f"srun --kill-on-bad-exit=1 {steps}",
            "",
        )
    )


def _component(program: LaunchedProgram, domain: str, partition: str) -> list[str]:
    hosts = program.placed.hosts_of(domain)
    gpus = max(len(host.ranks) for host in hosts)
    return [
        f"#SBATCH --partition={partition}",
        f"#SBATCH --nodes={len(hosts)}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gres=gpu:{gpus}",
        "#SBATCH --exclusive",
    ]
