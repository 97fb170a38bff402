"""What a runtime cannot express of a plan, in sentences.

The rules of ``plan/runtimes.py`` say most of it. What they leave open because no planner needs it to be closed is added
here: none of the runtimes lets one domain pass on traffic of two others, or runs DiLoCo in one job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from hippo.plan.check import check
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem

SPOKEN: Mapping[str, str] = MappingProxyType(
    {"megatron": "Megatron-LM", "deepspeed": "DeepSpeed", "torch": "torchtitan"}
)
"""Names of runtimes as they are written."""


def cannot_express(problem: Problem, plan: Plan, runtime: str) -> list[str]:
    """Sentences without a full stop, one for each thing that the runtime cannot express; empty: it can run the plan."""
    found = [
        violation.message
        for violation in check(replace(problem, runtime=runtime), plan)
        if violation.rule in ("runtime", "tensor parallel")
    ]
    name = SPOKEN[runtime]
    told = [message.replace(runtime, name, 1) if message.startswith(runtime) else message for message in found]
    for relay in plan.relays:
        told.append(f"{name} cannot relay '{relay.source}' to '{relay.destination}' through '{relay.via}'")
    if runtime == "torch" and plan.sync.method == "local_sgd":
        told.append(f"{name} cannot average parameters every {plan.sync.every} steps in one job")
    return list(dict.fromkeys(told))
