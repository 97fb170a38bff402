"""What every rank runs, and what it asks of the ranks: the part of an export that does not depend on the launcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from hippo.decide.wording import described, seconds
from hippo.errors import InfeasibleError, UnknownNameError
from hippo.export.limits import SPOKEN, cannot_express
from hippo.export.nearest import Nearest, Unsaid, left_out, planned_anew
from hippo.export.seats import Seating
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.score.judge import evaluate


@dataclass(frozen=True)
class Blank:
    """Something that only the user knows."""

    name: str
    meaning: str


NETWORK = Blank(
    "NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME",
    "the network interface that reaches the other domains, where a host has several (may stay empty)",
)


@dataclass(frozen=True)
class Program:
    """One command per rank under one rank order.

    ``words`` are what stands behind torchrun's own options, as lines of bash: quoted where they must be.
    """

    name: str  # as it is written: Megatron-LM
    words: tuple[str, ...]
    seating: Seating
    files: Mapping[str, str]
    blanks: tuple[Blank, ...] = ()
    notes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables among the blanks: launchers pass them on to every host."""
        names = (name for blank in (*self.blanks, NETWORK) for name in blank.name.split(", "))
        return tuple(name for name in names if name.isupper())


def refuse_unsaid(problem: Problem, plan: Plan, runtime: str, unsaid: Unsaid) -> None:
    """``InfeasibleError`` for a plan that the runtime cannot run: all of what it cannot express, and the nearest plan
    that it can, with its step time beside the plan's own."""
    sentences = cannot_express(problem, plan, runtime) + unsaid(problem, plan)
    if not sentences:
        return
    own = evaluate(problem, plan).step_time_s
    reasons = [f"{SPOKEN[runtime]} cannot run this plan: {'; '.join(sentences)}."]
    near, anew = left_out(problem, plan, runtime, unsaid), planned_anew(problem, runtime, unsaid)
    if near is not None:
        told = f"Nearest plan that it can run, the same with that left out: {_told(near, own)}"
        reasons.append(f"{told}; --nearest exports it.")
    if anew is not None and (near is None or anew.step_time_s < near.step_time_s):
        option = "`" if near is not None else "`, or in passing by --nearest"
        reasons.append(f"Planned anew for it: {_told(anew, own)}, by `hippo plan --runtime {runtime}{option}.")
    if len(reasons) == 1:
        reasons.append(
            "No plan that it can run was found in passing. Nearest way out: another target, or a launcher "
            "(--to torchrun) with --program own."
        )
    raise InfeasibleError(reasons)


def _told(found: Nearest, own_s: float) -> str:
    return f"{described(found.plan)}; {seconds(found.step_time_s)} a step instead of {seconds(own_s)}"


PROGRAMS: Sequence[str] = ("megatron", "torchtitan", "deepspeed", "own")
"""What a launcher may start on every rank; ``auto`` is the plan's runtime, else the first of these that can run it."""

LAUNCHERS: Sequence[str] = ("torchrun", "slurm", "skypilot", "ray", "jobset")
"""Targets that start whatever program they are told to."""

_OF_RUNTIME = {"megatron": "megatron", "torch": "torchtitan", "deepspeed": "deepspeed"}


def program(problem: Problem, plan: Plan, name: str) -> Program:
    """The program of that name for a plan; ``InfeasibleError`` when it cannot run the plan."""
    from hippo.export import deepspeed, megatron, own, torchtitan

    makers = {
        "megatron": megatron.program,
        "torchtitan": torchtitan.program,
        "deepspeed": deepspeed.program,
        "own": own.program,
    }
    if name == "auto":
        name = _chosen(problem, plan)
    if name not in makers:
        raise UnknownNameError("program", name[:60], ("auto", *makers), source="--program")
    return makers[name](problem, plan)


def _chosen(problem: Problem, plan: Plan) -> str:
    """The program of the plan's own runtime, or the first that can run the plan."""
    if problem.runtime in _OF_RUNTIME:
        return _OF_RUNTIME[problem.runtime]
    unsaid = {each: cannot_express(problem, plan, each) + more(problem, plan) for each, more in _unsaid().items()}
    found = [_OF_RUNTIME[runtime] for runtime, sentences in unsaid.items() if not sentences]
    if found:
        return found[0]
    told = " ".join(f"{SPOKEN[runtime]}: {'; '.join(sentences)}." for runtime, sentences in unsaid.items())
    way_out = (
        "Nearest way out: --nearest exports the nearest plan that one of them can run, --program own launches a "
        "program of yours, which reads its part in ranks.json."
    )
    raise InfeasibleError([f"No runtime known here can run this plan. {told}", way_out])


def instead(problem: Problem, plan: Plan, target: str, wished: str) -> tuple[Plan, tuple[str, ...]]:
    """The plan itself where the target (or the program it launches) can run it, else the nearest that it can, and a
    word on what it costs. ``InfeasibleError`` when there is none."""
    runtimes = _asked(problem, target, wished)
    unsaid = _unsaid()
    sentences = {each: cannot_express(problem, plan, each) + unsaid[each](problem, plan) for each in runtimes}
    if not sentences or not all(sentences.values()):
        return plan, ()
    found: dict[str, Nearest] = {}
    for runtime in runtimes:
        near = left_out(problem, plan, runtime, unsaid[runtime]) or planned_anew(problem, runtime, unsaid[runtime])
        if near is not None:
            found[runtime] = near
    if not found:
        refuse_unsaid(problem, plan, runtimes[0], unsaid[runtimes[0]])
    runtime = min(found, key=lambda each: found[each].step_time_s)
    said = f"{SPOKEN[runtime]} cannot run the plan as it is: {'; '.join(sentences[runtime])}."
    own = evaluate(problem, plan).step_time_s
    return found[runtime].plan, (f"{said} Exported instead: {_told(found[runtime], own)}.",)


def _asked(problem: Problem, target: str, wished: str) -> tuple[str, ...]:
    """Runtimes one of which must be able to run the plan; none: whatever runs it is the user's own affair."""
    of_program = {program: runtime for runtime, program in _OF_RUNTIME.items()}
    if target in of_program or wished in of_program:
        return (of_program[target if target in of_program else wished],)
    if wished != "auto" or target not in LAUNCHERS:
        return ()
    return (problem.runtime,) if problem.runtime in _OF_RUNTIME else tuple(_OF_RUNTIME)


def _unsaid() -> Mapping[str, Unsaid]:
    from hippo.export import deepspeed, megatron, torchtitan

    return {"megatron": megatron.unsaid, "torch": torchtitan.unsaid, "deepspeed": deepspeed.unsaid}
