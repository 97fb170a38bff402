"""``README.md`` of an export: how to launch it, who sits where, what is left to fill in."""

from __future__ import annotations

from collections.abc import Sequence

from hippo.decide.wording import capital, count, described, seconds
from hippo.export.program import NETWORK, Blank, Program
from hippo.export.seats import Host
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.score.judge import evaluate

ADDRESS = Blank(
    "MASTER_ADDR", "the address of the host with rank 0 (the first of the table), reachable from all others"
)


def readme(
    title: str,
    problem: Problem,
    plan: Plan,
    program: Program,
    *,
    command: str,
    blanks: Sequence[Blank] = (),
    notes: Sequence[str] = (),
) -> str:
    """The text of ``README.md``."""
    model = problem.model.name
    expected = seconds(evaluate(problem, plan).step_time_s)
    parts = [
        f"# {model} with {program.name} ({title})",
        f"{capital(described(plan))}.",
        f"Expected: {expected} a step of {count(plan.global_batch, 'sequence')} on {count(plan.gpus, 'GPU')} "
        "(`hippo simulate plan.json`).",
        "## Launch",
        f"```bash\n{command}\n```",
        "## Left to fill in",
        _blanks((*blanks, *program.blanks, NETWORK)),
        "## Who sits where",
        f"Hosts in the order of their ranks; `launch.sh DOMAIN POSITION` starts one. {len(program.seating.seats)} "
        f"ranks, {_order(program)}.",
        host_table(plan, program.seating.hosts),
        "## Good to know",
        "\n".join(f"- {note}" for note in (*notes, *program.notes)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _order(program: Program) -> str:
    orders = {
        "stages": "numbered stage by stage (within a stage: lane, then tensor)",
        "lanes": "numbered lane by lane (within a lane: stage, then tensor)",
        "plan": "numbered host by host",
    }
    return orders[program.seating.order]


def _blanks(blanks: Sequence[Blank]) -> str:
    rows = "\n".join(f"| `{blank.name}` | {blank.meaning} |" for blank in blanks)
    return f"| variable or file | what |\n|---|---|\n{rows}"


def host_table(plan: Plan, hosts: Sequence[Host]) -> str:
    """A table in Markdown: host, ranks, stages, layers."""
    head = "| domain | position | node of the plan | ranks | stages | layers |\n|---|---|---|---|---|---|"
    return "\n".join([head, *(_row(plan, host) for host in hosts)])


def _row(plan: Plan, host: Host) -> str:
    ranks = ", ".join(_span([seat.rank for seat in agent.seats]) for agent in host.agents)
    stages = dict.fromkeys((seat.pipeline, seat.stage) for seat in host.seats)
    several = len(plan.pipelines) > 1
    names = ", ".join(f"{p}.{s}" if several else str(s) for p, s in stages)
    layers = ", ".join(_span(range(*plan.pipelines[p].stages[s].layers)) for p, s in stages)
    if plan.interleave > 1:
        layers = f"{plan.interleave} chunks a stage"
    return f"| {host.domain} | {host.position} | {host.node} | {ranks} | {names} | {layers} |"


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
