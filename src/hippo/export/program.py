"""What every rank runs, and what it asks of the ranks: the part of an export that does not depend on the launcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import MappingProxyType

from hippo.decide.wording import described, seconds
from hippo.errors import HippoError, InexpressibleError, UnknownNameError
from hippo.export import sums
from hippo.export.expected import under
from hippo.export.ranks import RankOrder
from hippo.plan.check import check
from hippo.plan.plan import Pipeline, Plan, ScheduleChoice, Sync
from hippo.planners.answers import answer_of
from hippo.planners.base import Stop
from hippo.planners.exact.search import Exact
from hippo.problem.problem import Problem
from hippo.problem.runtimes import ACROSS, Runtime, runtime_of
from hippo.score.judge import evaluate, fits

# -------------------------------------------------------------------------------------------------------------- limits
# What a runtime cannot express of a plan, in sentences.
#
# The rules of ``problem/runtimes.py`` say most of it. What they leave open because no planner needs it to be closed is
# added here: none of the runtimes lets one domain pass on traffic of two others, or runs DiLoCo in one job.

SPOKEN: Mapping[str, str] = MappingProxyType(
    {"megatron": "Megatron-LM", "deepspeed": "DeepSpeed", "torch": "torchtitan"}
)
"""Names of runtimes as they are written."""


def cannot_express(problem: Problem, plan: Plan, runtime: str) -> list[str]:
    """Sentences without a full stop, one for each thing that the runtime cannot express; empty: it can run the plan."""
    rules = replace(problem, runtime=runtime).rules
    found = [
        violation.message
        for violation in check(replace(problem, runtime=runtime), plan)
        if violation.rule in ("runtime", "tensor parallel") and violation.where != "relays"
    ]
    name = SPOKEN[runtime]
    told = [message.replace(runtime, name, 1) if message.startswith(runtime) else message for message in found]
    told += sums.cannot_sum(plan, rules, name)
    for relay in plan.relays:
        told.append(f"{name} cannot relay '{relay.source}' to '{relay.destination}' through '{relay.via}'")
    if runtime == "torch" and plan.sync.method == "local_sgd":
        way = "(--to torchft starts one for each domain)"
        told.append(f"{name} cannot average parameters every {plan.sync.every} steps in one job {way}")
    return list(dict.fromkeys(told))


# ------------------------------------------------------------------------------------------------------------- nearest
# The nearest plan that a runtime can run: the plan with what cannot be said left out, or planned anew.
#
# First each thing that the rules forbid is replaced by what the runtime does instead. That may be no plan (unlike tp
# per stage cannot be made alike without moving layers), not fit, or be slow: the exact search plans for the runtime,
# too.

STOP = Stop(time_limit_s=5.0)

Unsaid = Callable[[Problem, Plan], list[str]]
"""Sentences on what a target cannot express beyond the rules of its runtime."""


@dataclass(frozen=True)
class Nearest:
    """A plan that the runtime can run, and what it costs."""

    plan: Plan
    step_time_s: float
    anew: bool  # planned anew; False: the same plan with something left out


def left_out(problem: Problem, plan: Plan, runtime: str, unsaid: Unsaid) -> Nearest | None:
    """The plan without what the runtime cannot express; None: that is no plan, or does not fit.

    ``unsaid``: sentences on what the target cannot express beyond the rules of its runtime.
    """
    asked = replace(problem, runtime=runtime, allow_local_sgd=False)
    return _sound(asked, plain(plan, runtime_of(runtime)), unsaid, anew=False)


def planned_anew(problem: Problem, runtime: str, unsaid: Unsaid) -> Nearest | None:
    """The best plan for the runtime that a short search finds; None: none."""
    asked = replace(problem, runtime=runtime, allow_local_sgd=False)
    try:
        proposal = answer_of(Exact(), asked, STOP)
    except HippoError:
        return None
    if proposal.plan is None:
        return None
    return _sound(asked, plain(proposal.plan, runtime_of(runtime)), unsaid, anew=True)


def _sound(problem: Problem, plan: Plan, unsaid: Unsaid, *, anew: bool) -> Nearest | None:
    """The plan with its step time, if it is one, fits, and the runtime can express and play it."""
    if check(problem, plan) or cannot_express(problem, plan, problem.runtime) or unsaid(problem, plan):
        return None
    if not fits(problem, plan):
        return None
    try:
        plan = sums.in_ring_order(problem, plan)
        return Nearest(plan, evaluate(problem, plan).step_time_s, anew)
    except HippoError:  # no link, or ranks that would wait for each other for ever
        return None


def plain(plan: Plan, rules: Runtime) -> Plan:
    """The plan with everything left out that the rules forbid and that leaving out mends."""
    free = rules.schedules is None
    name = plan.schedule.name if free or plan.schedule.name in (rules.schedules or ()) else "1f1b"
    limit = plan.schedule.live_limit if rules.live_limit else None
    deep = any(len(pipeline.stages) > 1 for pipeline in plan.pipelines)
    shardings = rules.shardings_with_pipeline if deep else rules.shardings
    sharding = plan.sharding if plan.sharding in shardings else _sharding(plan.sharding, shardings)
    return replace(
        plan,
        pipelines=tuple(_plain_pipeline(each, plan, rules, name) for each in plan.pipelines),
        schedule=ScheduleChoice(name, limit),
        interleave=plan.interleave if name == "interleaved" and rules.interleave else 1,
        sharding=sharding,
        overlap_exchange=plan.overlap_exchange and rules.overlaps_exchange,
        expert_tensor_parallel=plan.expert_tensor_parallel if rules.whole_experts else None,
        recompute=plan.recompute if rules.recomputes(plan.recompute) else "full",
        relays=(),
        compression=(),
        sync=_plain_sync(plan, rules, sharding),
    )


def _plain_sync(plan: Plan, rules: Runtime, sharding: str) -> Sync:
    """Sums every step, as the plan has them where the runtime can, else as it can."""
    if len(plan.pipelines) == 1:
        return Sync()
    known = sums.ways(plan, rules, sharding)
    kept = plan.sync.all_reduce in known or not known
    return Sync(all_reduce=plan.sync.all_reduce if kept else known[0])


def _plain_pipeline(pipeline: Pipeline, plan: Plan, rules: Runtime, schedule: str) -> Pipeline:
    """Its own order and warm-up where the schedule keeps them; the first pipeline's cuts and a fair share."""
    kept = schedule == plan.schedule.name
    first, stages, waves = plan.pipelines[0], pipeline.stages, pipeline.num_micro_batches
    if rules.uniform_cuts_across_replicas and len(stages) == len(first.stages):
        stages = tuple(replace(one, layers=two.layers) for one, two in zip(stages, first.stages, strict=True))
    total = sum(each.num_micro_batches for each in plan.pipelines)
    if rules.equal_shares and total % len(plan.pipelines) == 0:
        waves = total // len(plan.pipelines)
    same = waves == pipeline.num_micro_batches
    warm_up = pipeline.warm_up if kept and same and rules.live_limit else ()
    return Pipeline(stages, waves, warm_up, pipeline.order if kept else ())


def _sharding(wanted: str, possible: tuple[str, ...]) -> str:
    """The first that saves as much memory as the one wanted, or more; else the one that saves most."""
    saves = ("none", "optimizer", ACROSS, "gradients", "hybrid", "full")
    enough = [each for each in saves[saves.index(wanted) :] if each in possible]
    return enough[0] if enough else [each for each in saves if each in possible][-1]


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
class LaunchedProgram:
    """One command per rank under one rank order.

    ``words`` are what stands behind torchrun's own options, as lines of bash: quoted where they must be.
    """

    name: str  # as it is written: Megatron-LM
    runtime: str  # whose time a run takes (``problem.runtimes``)
    words: tuple[str, ...]
    placed: RankOrder
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
    """``InexpressibleError`` for a plan that the runtime cannot run: all of what it cannot express, and the nearest
    plan that it can, with its step time beside the plan's own."""
    sentences = cannot_express(problem, plan, runtime) + unsaid(problem, plan)
    if not sentences:
        return
    reasons = [f"{SPOKEN[runtime]} cannot run this plan: {'; '.join(sentences)}."]
    near, anew = left_out(problem, plan, runtime, unsaid), planned_anew(problem, runtime, unsaid)
    if near is not None:
        told = f"Nearest plan that it can run, the same with that left out: {_told(problem, plan, near)}"
        reasons.append(f"{told}; --nearest exports it.")
    if anew is not None and (near is None or anew.step_time_s < near.step_time_s):
        option = "`" if near is not None else "`, or in passing by --nearest"
        reasons.append(
            f"Planned anew for it: {_told(problem, plan, anew)}, by `hippo plan --runtime {runtime}{option}."
        )
    if len(reasons) == 1:
        reasons.append(
            "No plan that it can run was found in passing; a launcher (--to torchrun) with --program own starts any "
            "program of yours."
        )
    raise InexpressibleError([*reasons, "To fix: export a plan without that, or for another target."])


def _told(problem: Problem, plan: Plan, found: Nearest) -> str:
    own = f"{seconds(evaluate(problem, plan).step_time_s)} {under(problem.runtime)}"
    return f"{described(found.plan)}; {seconds(found.step_time_s)} a step instead of {own}"


PROGRAMS: Mapping[str, str] = MappingProxyType(
    {name: f"hippo.export.{name}" for name in ("megatron", "torchtitan", "deepspeed", "own")}
)
"""What a launcher may start on every rank, and the module whose ``program`` writes it (``unsaid``: what its runtime
cannot be told), found by name as it lies above this file. ``auto``: the plan's runtime, else the first that can."""

LAUNCHERS: Sequence[str] = ("torchrun", "slurm", "skypilot", "ray", "jobset")
"""Targets that start whatever program they are told to."""

_OF_RUNTIME = {"megatron": "megatron", "torch": "torchtitan", "deepspeed": "deepspeed"}


def program(problem: Problem, plan: Plan, name: str) -> LaunchedProgram:
    """The program of that name for a plan; ``InexpressibleError`` when it cannot run the plan."""
    if name == "auto":
        name = _chosen(problem, plan)
    if name not in PROGRAMS:
        raise UnknownNameError("program", name[:60], ("auto", *PROGRAMS), source="--program")
    found: LaunchedProgram = import_module(PROGRAMS[name]).program(problem, plan)
    return found


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
        "To fix: --nearest exports the nearest plan that one of them can run, --program own launches a program of "
        "yours, which reads its part in ranks.json."
    )
    raise InexpressibleError([f"No runtime known here can run this plan. {told}", way_out])


def instead(problem: Problem, plan: Plan, target: str, wished: str) -> tuple[Plan, tuple[str, ...]]:
    """The plan itself where the target (or the program it launches) can run it, else the nearest that it can, and a
    word on what it costs. ``InexpressibleError`` when there is none."""
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
    return found[runtime].plan, (f"{said} Exported instead: {_told(problem, plan, found[runtime])}.",)


def _asked(problem: Problem, target: str, wished: str) -> tuple[str, ...]:
    """Runtimes one of which must be able to run the plan; none: whatever runs it is the user's own affair."""
    of_program = {program: runtime for runtime, program in _OF_RUNTIME.items()}
    if target in of_program or wished in of_program:
        return (of_program[target if target in of_program else wished],)
    if wished != "auto" or target not in LAUNCHERS:
        return ()
    return (problem.runtime,) if problem.runtime in _OF_RUNTIME else tuple(_OF_RUNTIME)


def _unsaid() -> Mapping[str, Unsaid]:
    return {runtime: import_module(PROGRAMS[name]).unsaid for runtime, name in _OF_RUNTIME.items()}
