"""torchrun: one ``launch.sh`` that is started on every host, with static rendezvous and explicit node ranks."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote

from hippo.export.base import Export, Wishes
from hippo.export.launch_script import C10D, launch_script, program_script
from hippo.export.program import Program
from hippo.export.program import program as program_named
from hippo.export.readme import ADDRESS, readme
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem

SPLIT = (
    "Some hosts start several torchruns: ranks of other hosts lie between their own. NCCL may then copy between GPUs "
    "of one host through its memory instead of NVLink."
)


def export(problem: Problem, plan: Plan, wishes: Wishes) -> Export:
    """The program asked for, launched by hand or by ssh on every host."""
    return export_program("torchrun", problem, plan, program_named(problem, plan, wishes.program))


def export_program(title: str, problem: Problem, plan: Plan, program: Program) -> Export:
    """``launch.sh``, ``program.sh``, the program's own files and a README; one command per host."""
    command = "\n".join(
        f"MASTER_ADDR=.. bash launch.sh {quote(host.domain)} {host.position}  # on node {host.node} of {host.domain}"
        for host in program.seating.hosts
    )
    notes = (C10D, *split_note(program))
    text = readme(title, problem, plan, program, command=command, blanks=(ADDRESS,), notes=notes)
    return Export({**program_files(program), "README.md": text}, command, (*notes, *program.notes))


def program_files(program: Program) -> Mapping[str, str]:
    """What every launcher needs: the program's files, ``program.sh`` and ``launch.sh``."""
    return {**program.files, "program.sh": program_script(program), "launch.sh": launch_script(program)}


def split_note(program: Program) -> tuple[str, ...]:
    """A word on hosts that start several torchruns; empty where none does."""
    return () if program.seating.whole else (SPLIT,)
