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
from hippo.score.evaluate import evaluate


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
        reasons.append(f"Nearest way out: `hippo plan --runtime {runtime}`; no plan for it was found in passing.")
    raise InfeasibleError(reasons)


def _told(found: Nearest, own_s: float) -> str:
    return f"{described(found.plan)}; {seconds(found.step_time_s)} a step instead of {seconds(own_s)}"


PROGRAMS: Sequence[str] = ("megatron", "torchtitan", "deepspeed", "own")
"""What a launcher may start on every rank; ``auto`` is the plan's runtime, else the first of these that can run it."""

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
    unsaid = {runtime: cannot_express(problem, plan, runtime) for runtime in ("megatron", "torch", "deepspeed")}
    found = [_OF_RUNTIME[runtime] for runtime, sentences in unsaid.items() if not sentences]
    if found:
        return found[0]
    told = " ".join(f"{SPOKEN[runtime]}: {'; '.join(sentences)}." for runtime, sentences in unsaid.items())
    way_out = (
        "Nearest way out: --program NAME --nearest exports the nearest plan that NAME can run; "
        "--program own launches a program of yours, which reads ranks.json."
    )
    raise InfeasibleError([f"No runtime known here can run this plan. {told}", way_out])


def instead(problem: Problem, plan: Plan, target: str, wished: str) -> tuple[Plan, tuple[str, ...]]:
    """The plan itself where the target (or the program it launches) can run it, else the nearest that it can, and a
    word on what it costs. ``InfeasibleError`` when there is none."""
    from hippo.export import deepspeed, megatron, torchtitan

    unsaid = {"megatron": megatron.unsaid, "torchtitan": torchtitan.unsaid, "deepspeed": deepspeed.unsaid}
    name = target if target in unsaid else wished
    if name == "auto":
        name = _OF_RUNTIME.get(problem.runtime, "megatron")
    if name not in unsaid:
        return plan, ()
    runtime = next(key for key, value in _OF_RUNTIME.items() if value == name)
    sentences = cannot_express(problem, plan, runtime) + unsaid[name](problem, plan)
    if not sentences:
        return plan, ()
    found = left_out(problem, plan, runtime, unsaid[name]) or planned_anew(problem, runtime, unsaid[name])
    if found is None:
        refuse_unsaid(problem, plan, runtime, unsaid[name])
    assert found is not None, "refused above"
    said = f"{SPOKEN[runtime]} cannot run the plan as it is: {'; '.join(sentences)}."
    return found.plan, (f"{said} Exported instead: {_told(found, evaluate(problem, plan).step_time_s)}.",)
