"""Chakra execution traces with the files that ASTRA-sim's analytical binaries read beside them.

The traces are those of ``hippo simulate --engine astra``: links are virtual ranks, so any mesh of unequal links, relays
and caps of nodes can be expressed; nothing is refused.
"""

from __future__ import annotations

from dataclasses import replace

from hippo.decide.wording import capital, described, seconds
from hippo.export.base import Export, Wishes
from hippo.files import json_text
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.problem.runtimes import Messages
from hippo.simulate.astra.binary import NAMES
from hippo.simulate.astra.configuration import arguments, files
from hippo.simulate.astra.play import by_fast, drawn_up, state_of
from hippo.simulate.astra.workload import AstraWorkload
from hippo.simulate.lower import lower

UNCHECKED = (
    "ASTRA-sim exits with 0 even when ranks hang: a run counts only when every rank has printed 'finished'. "
    "`hippo simulate plan.json --engine astra` runs it, demands that, and compares node by node."
)
CALLS = (
    "Here a message goes when it is made. {runtime} makes sender and receiver wait for each other, which ASTRA-sim "
    "cannot play: `hippo simulate plan.json` says how long the plan takes so."
)
OPEN = "ASTRA-sim opens a file per rank and wants to write to it: {ranks} ranks need `ulimit -n` above that."


def export(problem: Problem, plan: Plan, wishes: Wishes) -> Export:
    """A trace per real and virtual rank, ``system.json``, ``network.yml``, ``memory.json``, communicator groups where
    replicas agree, ``ranks.json`` (what each rank is) and a README. ``wishes`` do not matter here."""
    program = replace(lower(problem, plan), messages=Messages())  # traces know no calls
    state = state_of(program, None, None)
    work = drawn_up(program, state)
    made = files(program, work, traced=False)
    command = " \\\n  ".join([NAMES[0], *arguments(".", made, "log")])
    calls = () if problem.rules.messages == Messages() else (CALLS.format(runtime=problem.rules.told),)
    notes = (UNCHECKED, OPEN.format(ranks=len(work.traces)), *calls)
    text = _readme(problem, plan, work, by_fast(program, state)[0], command, notes)
    return Export({**made, "ranks.json": json_text(list(work.roles)), "README.md": text}, command, notes)


def _readme(
    problem: Problem, plan: Plan, work: AstraWorkload, step_time_s: float, command: str, notes: tuple[str, ...]
) -> str:
    real = sum(len(pipeline.stages) for pipeline in plan.pipelines)
    parts = [
        f"# {problem.model.name} for ASTRA-sim",
        f"{capital(described(plan))}. One optimizer step; hippo's own simulator says {seconds(step_time_s)}.",
        f"```bash\n{command}\n```",
        "The result is the largest number of cycles (nanoseconds) among the lines `sys[N] finished`.",
        f"Ranks 0 to {real - 1} are the stages of the pipelines (a stage's GPUs move in lockstep). The other "
        f"{len(work.traces) - real} are no GPUs: a rank per directed link, whose COMP nodes are times on the wire, and "
        "ranks that wait out latencies. ASTRA-sim's analytical networks know no bandwidth per pair of ranks; this way "
        "they need not. `ranks.json` says what each rank is.",
        "\n".join(f"- {note}" for note in notes),
    ]
    return "\n\n".join(parts) + "\n"
