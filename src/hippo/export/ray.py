"""Ray: a placement group with a bundle per host, each bound to its domain by the label ``ray.io/region``.

Ray Train numbers its workers by nodes as it finds them; here the order of bundles is the order of hosts.
"""

from __future__ import annotations

import json

from hippo.export.base import Export, Wishes
from hippo.export.program import Blank
from hippo.export.program import program as program_named
from hippo.export.templates import rendered
from hippo.export.torchrun import C10D, Launch, launched, split_note
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem

COMMAND = "ray job submit --working-dir . -- python ray_launch.py"
LABELS = Blank("ray.io/region", "a label of every node, its domain: ray start --labels=ray.io/region=DOMAIN ..")
TRAIN = (
    "Ray Train is not used on purpose: it numbers workers by nodes as it finds them, and the plan needs its own order."
)


def export(problem: Problem, plan: Plan, wishes: Wishes) -> Export:
    """``ray_launch.py`` and the program's files."""
    program = program_named(problem, plan, wishes.program)
    hosts = [
        (_word(wishes.place(host.domain)), _word(host.domain), host.position, len(host.ranks))
        for host in program.placed.hosts
    ]
    files = {"ray_launch.py": rendered("ray_launch.py.jinja", hosts=hosts, variables=program.variables)}
    launch = Launch("Ray", COMMAND, files, (LABELS,), (TRAIN, C10D, *split_note(program)))
    return launched(problem, plan, program, launch)


def _word(text: str) -> str:
    """The text as a literal of Python."""
    return json.dumps(text, ensure_ascii=False)
