"""SkyPilot: a job group, one task per domain, each with an infrastructure of its own.

A task is one cluster in one region, and names are resolved inside a group only on one Kubernetes cluster: across clouds
the address of rank 0 and the place of each task in the rank order are ours to give.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from shlex import quote
from types import MappingProxyType
from typing import Any

from hippo.export.base import Export, Wishes, job_name, slugs, yaml_text
from hippo.export.program import Blank, LaunchedProgram
from hippo.export.program import program as program_named
from hippo.export.torchrun import C10D, Launch, launched, split_note
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem

ACCELERATORS: Mapping[str, str] = MappingProxyType(
    {
        "V100-SXM2-16GB": "V100",
        "A100-SXM-40GB": "A100",
        "A100-SXM-80GB": "A100-80GB",
        "H100-SXM-80GB": "H100",
        "H100-96GB-HBM2e": "H100",
        "H200-SXM-141GB": "H200",
        "H800-80GB": "H800",
        "GH200-96GB": "GH200",
    }
)
"""What SkyPilot calls the GPUs of the catalogue; others keep their names."""

COMMAND = "sky jobs launch hippo.sky.yaml --env MASTER_ADDR=.."
ADDRESS = Blank(
    "MASTER_ADDR",
    "an address of the first task's first host that the other tasks reach (the first task itself finds its own)",
)
INFRA = Blank("infra", "where each task runs, as cloud/region; --place DOMAIN=gcp/us-central1 writes it")
_CLOUD = re.compile(r"(aws|gcp|azure)-([a-z0-9-]+)")


def export(problem: Problem, plan: Plan, wishes: Wishes) -> Export:
    """``hippo.sky.yaml`` and the program's files, which are the tasks' working directory."""
    program = program_named(problem, plan, wishes.program)
    command = COMMAND if len(program.placed.domains) > 1 else "sky jobs launch hippo.sky.yaml"
    blanks = (ADDRESS, INFRA, Blank("setup", "how a host gets torch and the program, in hippo.sky.yaml"))
    files = {"hippo.sky.yaml": yaml_text(documents(problem, program, wishes))}
    launch = Launch("SkyPilot", command, files, blanks, (C10D, *split_note(program)))
    return launched(problem, plan, program, launch)


def documents(problem: Problem, program: LaunchedProgram, wishes: Wishes) -> list[dict[str, Any]]:
    """The group and its tasks; a plan in one domain is one task without a group."""
    names = slugs(program.placed.domains)
    tasks = [
        _task(problem, program, wishes, domain, names[domain], first=at == 0)
        for at, domain in enumerate(program.placed.domains)
    ]
    if len(tasks) == 1:
        return tasks
    return [{"name": job_name(problem.model.name), "execution": "parallel", "inter_connection": False}, *tasks]


def _task(
    problem: Problem, program: LaunchedProgram, wishes: Wishes, domain: str, name: str, *, first: bool
) -> dict[str, Any]:
    hosts = program.placed.hosts_of(domain)
    gpu, count = problem.cluster.gpu.name, max(len(host.ranks) for host in hosts)
    resources: dict[str, Any] = {"accelerators": f"{ACCELERATORS.get(gpu, gpu)}:{count}"}
    infra = infra_of(domain, wishes)
    if infra:
        resources = {"infra": infra, **resources}
    if first:
        resources["ports"] = 29500
    own = 'export MASTER_ADDR="${MASTER_ADDR:-$(head -n 1 <<< "$SKYPILOT_NODE_IPS")}"\n' if first else ""
    return {
        "name": name,
        "num_nodes": len(hosts),
        "resources": resources,
        "workdir": ".",
        "envs": dict.fromkeys(("MASTER_ADDR", *program.variables), ""),
        "run": f'{own}bash launch.sh {quote(domain)} "$SKYPILOT_NODE_RANK"\n',
    }


def infra_of(domain: str, wishes: Wishes) -> str | None:
    """Where the domain lies in SkyPilot's words; None: nobody said, and its name does not tell."""
    if domain in wishes.places:
        return wishes.places[domain]
    found = _CLOUD.fullmatch(domain)
    return f"{found[1]}/{found[2]}" if found else None
