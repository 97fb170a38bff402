"""torchft: Streaming DiLoCo, a torchtitan of its own in each domain, which average fragments with each other.

Every replica of the plan is an island with torchtitan's recipe (``torchtitan.py``) and torchft's section around it
(``torchtitan.experiments.torchft`` of torchtitan 0.3, torchft 0.2); a lighthouse, started once, brings them together.
"""

from __future__ import annotations

from dataclasses import replace
from shlex import quote

from hippo.decide.wording import capital, count, described
from hippo.errors import InexpressibleError
from hippo.export import torchtitan
from hippo.export.base import Export, Wishes
from hippo.export.expected import expected
from hippo.export.program import LaunchedProgram
from hippo.export.templates import rendered
from hippo.export.torchrun import ADDRESS, host_table, program_files
from hippo.files import json_text
from hippo.plan.plan import Pipeline, Plan, Sync
from hippo.problem.problem import Problem

PORT = 29510
WHERE = f"TORCHFT_LIGHTHOUSE=http://..:{PORT} MASTER_ADDR=.."
SENT = {0: False, 8: True, 32: False}
"""Bits of a parameter on its way, and whether torchft quantizes (to eight bits; else it sends fp32)."""

FP32 = "torchft sends what parameters changed by in fp32, where the plan counts the bytes of gradients"
OUTER = "The outer optimizer is torchtitan's: SGD with Nesterov momentum 0.9 and a rate of 0.7."
LIGHTHOUSE = (
    "The lighthouse lets islands average once all are there; a lower --min_replicas of it, and min_replica_size in the "
    "recipes, let the others go on without one that is lost."
)


def export(problem: Problem, plan: Plan, wishes: Wishes) -> Export:
    """A folder for each island with its recipes and ``launch.sh``, and the command that starts the lighthouse.

    Raises ``InexpressibleError`` as ``unsaid`` says, and for an island as ``torchtitan.program`` does.
    """
    found = unsaid(plan)
    if found:
        reasons, ways = ("; ".join(part) for part in zip(*found, strict=True))
        raise InexpressibleError([f"torchft cannot run this plan: {reasons}.", f"To fix: {ways}."])
    told = expected(problem, plan, torchtitan.RUNTIME)
    files: dict[str, str | bytes] = {}
    commands, tables = [_lighthouse(len(plan.pipelines))], []
    for at, line in enumerate(plan.pipelines):
        name, own = f"island-{at}", replace(plan, pipelines=(line,), sync=Sync())
        island = _island(problem, plan, own, at)
        files |= {f"{name}/{path}": text for path, text in program_files(island).items()}
        tables.append(f"`{name}`\n\n{host_table(own, island.placed.hosts)}")
        commands += [
            f"{WHERE} bash {name}/launch.sh {quote(host.domain)} {host.position}" for host in island.placed.hosts
        ]
    notes = (OUTER, LIGHTHOUSE, *([FP32 + "."] if plan.sync.bits == 0 else []))
    text = "\n\n".join(
        (
            f"# {problem.model.name} with torchft",
            f"{capital(described(plan))}; {count(plan.sync.fragments, 'fragment')}, used {plan.sync.delay} steps late.",
            *told.sentences(),
            "## Launch",
            "```bash\n" + "\n".join(commands) + "\n```",
            f"`{ADDRESS.name}`: the first host of that island. `TORCHFT_LIGHTHOUSE`: the lighthouse, seen by all.",
            "## Who sits where",
            *tables,
            "## Good to know",
            "\n".join(f"- {note}" for note in notes),
        )
    )
    files |= {"README.md": text + "\n", "expected.json": json_text(told.document())}
    return Export(files, "\n".join(commands), notes, told)


def unsaid(plan: Plan) -> list[tuple[str, str]]:
    """What of a plan torchft cannot be told, each with what to do instead."""
    sync, lines, found = plan.sync, plan.pipelines, []
    every = f"{sync.every},{sync.fragments},{sync.delay}"
    if sync.method != "local_sgd":
        found.append(("its replicas agree every step", "plan with --runtime torch --allow-local-sgd"))
    elif sync.bits not in SENT:
        found.append((f"it sends {sync.bits} bits of a parameter", f"plan with --outer-step {every},8 or {every},32"))
    if any(len(line.stages) > 1 for line in lines):
        found.append(
            (
                "it fragments a model that is one part, no pipeline",
                "edit the plan to one stage a replica, which hippo explain checks",
            )
        )
    if len({_share(line) for line in lines}) > 1:
        found.append(("its islands have unlike widths or shares", "plan with --runtime torch, which has equal ones"))
    return found


def _share(line: Pipeline) -> tuple[int, int]:
    return line.stages[0].dp, line.num_micro_batches


def _lighthouse(islands: int) -> str:
    return f"torchft_lighthouse --min_replicas {islands} --bind '[::]:{PORT}' --join_timeout_ms 60000  # once, anywhere"


def _island(problem: Problem, plan: Plan, own: Plan, at: int) -> LaunchedProgram:
    """torchtitan's program for one replica, with torchft's section around its recipe."""
    asked = replace(problem, workload=replace(problem.workload, global_batch=own.global_batch))
    made, sync = torchtitan.program(asked, own), plan.sync
    recipe = rendered(
        "torchft_recipe.py.jinja",
        islands=len(plan.pipelines),
        island=at,
        sync=sync,
        quantize=SENT[sync.bits],
        global_batch=plan.global_batch,
    )
    words = tuple(word.replace("--module hippo_recipe", "--module island_recipe") for word in made.words)
    return replace(made, name="torchtitan and torchft", words=words, files={**made.files, "island_recipe.py": recipe})
