"""Whether a plan can be run here: what the executor cannot do is refused before any process starts."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from hippo.dispatch.noise.pipelines import check_dispatcher
from hippo.dispatch.noise.presets import fluctuation_of
from hippo.engine.program import FORWARD
from hippo.errors import InexpressibleError, InputError, MissingExtraError, UnknownNameError
from hippo.machine import available_bytes
from hippo.plan.plan import Pipeline, Plan
from hippo.problem.model import Model
from hippo.problem.runtimes import not_run_here
from hippo.run.handover import Hand
from hippo.run.job import BATCH_RULES, RATE_RULES, RunJob, RunOptions, replicas_alone
from hippo.schedule.schedule import order_of

PRECISIONS = ("fp32", "fp64", "bf16")
ORDERS = ("auto", "fixed", "ready")
BACKWARDS = ("split", "whole")
DEVICES = ("cpu", "cuda", "shared")
RUNTIMES = ("hippo", "torch")
PACKED = ("none", "bf16", "fp8", "int8")
"""Kinds of compression that messages between domains are sent in; others are planned and waited for only."""
SMALL_PARAMETER_TOKENS = 3e11
"""Parameters times tokens up to which the same training in one process is run too: minutes on one core."""
MOST_PROCESSES = 256


def check_job(job: RunJob, *, source: str, held: bool = False) -> None:
    """``InputError`` for a plan that the executor cannot run. ``held``: a run has its memory, but for what
    ``check_room`` is asked about."""
    options = job.options
    if options.precision not in PRECISIONS:
        raise UnknownNameError("precision", options.precision[:60], PRECISIONS, source="--precision")
    if options.order not in ORDERS:
        raise UnknownNameError("order", options.order[:60], (*ORDERS, "learned", "learned-ready"), source="--order")
    if options.backward not in BACKWARDS:
        raise UnknownNameError("backward", options.backward[:60], BACKWARDS, source="--backward")
    for value, known, option in (
        (options.batch_rule, BATCH_RULES, "--batch-rule"),
        (options.rate_rule, RATE_RULES, "--rate-rule"),
    ):
        if value not in known:
            raise UnknownNameError("rule", value[:60], (*known,), source=option)
    _check_dispatch(job, source)
    if options.device not in DEVICES:
        raise UnknownNameError("device", options.device[:60], DEVICES, source="--device")
    if options.device != "cpu" and options.stand_in:
        remedy = "leave out one of them"
        raise InputError("stand-ins need no GPU", source="--device", value=options.device, remedy=remedy)
    if options.lanes and not options.stand_in:
        remedy = "leave it out, or add --stand-in"
        raise InputError("every device has a process of its own already", source="--lanes", remedy=remedy)
    if options.runtime not in RUNTIMES:
        raise UnknownNameError("runtime", options.runtime[:60], RUNTIMES, source="--runtime")
    if options.runtime == "torch":
        _check_own(job)
        check_torch(job)
    _check_plan(job, source)
    processes = len(job.work.workers)
    if processes > MOST_PROCESSES:
        remedy = "run it with --stand-in, or a smaller plan" if not options.stand_in else "run a smaller plan"
        told = f"needs {processes} processes on this machine; at most {MOST_PROCESSES} are started"
        raise InputError(told, source=source, key="pipelines", remedy=remedy)
    if not held:
        check_room(job, needed_bytes(job), source=source)


def check_machine(job: RunJob) -> None:
    """``InputError`` where this machine lacks what the processes of a job need: torch, a GPU each or room on one."""
    if find_spec("torch") is None:
        raise MissingExtraError("torch", "run", source="hippo run")
    device = job.options.device
    wanted = {"cpu": 0, "cuda": job.plan.gpus, "shared": 1}[device]
    there = _gpus() if wanted else 0
    if there < wanted:
        told = f"needs a GPU per process: {wanted}" if device == "cuda" else "needs a GPU"
        remedy = "run it with --device cpu, or --device shared where one GPU can hold them all"
        raise InputError(f"{told}, and this machine has {there}", source="--device", value=device, remedy=remedy)
    if device == "shared" and (needed := needed_bytes(job)) > (room := _gpu_bytes()):
        told = f"needs {needed / 1e9:.3g} GB on one GPU, which has {room / 1e9:.3g} GB"
        remedy = "run it with --device cpu, or a smaller model"
        raise InputError(told, source="--device", value=device, remedy=remedy)


def _gpus() -> int:
    """GPUs that torch finds on this machine."""
    count: int = import_module("torch").cuda.device_count()  # by name: checking a job for CPUs must not load it
    return count


def _gpu_bytes() -> float:
    """Memory of the first GPU."""
    return float(import_module("torch").cuda.get_device_properties(0).total_memory)


def _check_own(job: RunJob) -> None:
    """``InputError`` for what only hippo's own executor can be told."""
    for name in ("order", "backward", "lanes", "dispatch", "noise", "play_links"):
        value = getattr(job.options, name)
        if value != getattr(RunOptions, name):
            option = f"--{name.replace('_', '-')}"
            remedy = f"leave out {option}, or --runtime torch"
            raise InputError("torch's runtime has its own way", source=option, value=str(value), remedy=remedy)


def _check_dispatch(job: RunJob, source: str) -> None:
    """``InputError`` for a dispatcher, a patience or noise that is none, and for what does not go with asking ranks."""
    options = job.options
    check_dispatcher(options.dispatch)
    if options.noise:
        fluctuation_of(options.noise, source="--noise")
    if options.patience != RunOptions.patience and options.dispatch != "hint":
        remedy = "leave it out, or add --dispatch hint"
        raise InputError("is of a hint alone", source="--patience", value=options.patience, remedy=remedy)
    if options.backward != "split" and options.dispatch != "fixed":
        remedy = "leave it out: a rank that chooses runs the weight gradient as an operation of its own"
        raise InputError("does not go with --dispatch", source="--backward", value=options.backward, remedy=remedy)
    if not job.asks:
        return
    if options.order != "fixed":
        remedy = "leave out --order, or --dispatch, --noise and --play-links"
        raise InputError("goes through a list without asking", source="--order", value=options.order, remedy=remedy)
    if job.plan.interleave > 1:
        remedy = "leave out --dispatch, --noise and --play-links, or give a plan with one chunk per stage"
        raise InputError(
            "goes through a list without asking",
            source=source,
            key="interleave",
            value=job.plan.interleave,
            remedy=remedy,
        )


STATE_BYTES = {"fp32": 16, "fp64": 32, "bf16": 18}
"""Of a parameter: value, sum of gradients, both moments, and a master copy where the value is a half."""
OUTER_BYTES = {"fp32": 16, "fp64": 32, "bf16": 16}
"""More of replicas that train alone: where all began, the outer momentum, what was told, and its sum."""
PROCESS_BYTES = 250e6  # Python with torch loaded
STAND_IN = "run it with --stand-in, or a smaller model"


def needed_bytes(job: RunJob) -> float:
    """What weights and states of all processes take, and the processes themselves; activations come on top."""
    return _held(job) * _state_bytes(job) + PROCESS_BYTES * len(job.work.workers)


def _held(job: RunJob) -> float:
    """Parameters of all processes."""
    work, layers = job.work, job.problem.model.layers
    return sum(
        layers[layer].parameters / work.widths(work.stage(worker))[0]
        for worker in work.workers
        for start, stop in work.chunks(worker)
        for layer in range(start, stop)
    )


def _state_bytes(job: RunJob) -> int:
    alone = replicas_alone(job.plan) > 1
    return STATE_BYTES[job.options.precision] + (OUTER_BYTES[job.options.precision] if alone else 0)


def added_bytes(job: RunJob, given: Sequence[Hand], processes: int, *, comes_apart: bool = False) -> float:
    """What a run takes more while it goes over to a job: room for layers that are handed over, and new processes;
    ``comes_apart``: replicas train alone from then on, and have an outer optimizer each."""
    work, layers = job.work, job.problem.model.layers
    widths = (work.widths(work.stage(work.workers[each.destination]))[0] for each in given)
    numbers = sum(layers[each.layer].parameters / tp for each, tp in zip(given, widths, strict=True))
    kept = _held(job) - numbers if comes_apart else 0.0
    return numbers * _state_bytes(job) + kept * OUTER_BYTES[job.options.precision] + PROCESS_BYTES * processes


def check_room(job: RunJob, needed: float, *, source: str, remedy: str = STAND_IN) -> None:
    """``InputError`` where this machine, which all processes share, has less memory free than so many bytes: weights
    and states alone must fit. Of a GPU ``check_machine`` knows."""
    there = available_bytes()
    if job.options.stand_in or job.options.device != "cpu":
        return
    if there is not None and needed > there:
        told = f"needs {needed / 1e9:.3g} GB on this machine, which has {there / 1e9:.3g} GB free"
        raise InputError(told, source=source, key="problem.model", value=job.problem.model.name, remedy=remedy)


def _check_plan(job: RunJob, source: str) -> None:
    """What a plan may ask for and the executor cannot do (yet)."""
    plan, stand_in = job.plan, job.options.stand_in
    limits: list[tuple[bool, str, object, str]] = [
        (plan.sync.fragments > 1, "sync.fragments", plan.sync.fragments, "take one fragment"),
        (plan.sync.delay > 0, "sync.delay", plan.sync.delay, "take 0, and run it with --outer-late"),
        (plan.sync.bits > 0, "sync.bits", plan.sync.bits, "leave it out"),
    ]
    if plan.sync.method == "local_sgd" and job.options.outer_late >= plan.sync.every:
        remedy = f"give fewer than the {plan.sync.every} steps between two sums"
        raise InputError("is too many", source="--outer-late", value=job.options.outer_late, remedy=remedy)
    _check_relays(job, source)
    packed = {one.kind for one in plan.compression} - set(PACKED)
    if not stand_in:
        limits += [
            (plan.context_parallel > 1, "context_parallel", plan.context_parallel, "run it with --stand-in"),
            (plan.expert_parallel > 1, "expert_parallel", plan.expert_parallel, "run it with --stand-in"),
            (bool(packed), "compression.kind", ", ".join(sorted(packed)), f"take {', '.join(PACKED)}, or --stand-in"),
        ]
    for broken, key, value, remedy in limits:
        if broken:
            raise InputError("cannot be run yet", source=source, key=key, value=value, remedy=remedy)
    if not stand_in:
        refuse_model(job.problem.model, seq=job.problem.workload.seq, source=source)
        _check_seq(job, source)


def _check_relays(job: RunJob, source: str) -> None:
    """gloo's messages alone are handed on, through a domain that is there."""
    known = [domain.name for domain in job.problem.cluster.domains]
    for number, relay in enumerate(job.plan.relays):
        key = f"relays[{number}].via"
        if relay.via not in known:
            raise UnknownNameError("domain", relay.via[:60], known, source=source, key=key)
        if job.options.talks_on != "cpu":
            remedy = "run it with --device cpu or shared, or plan without relays"
            raise InputError("cannot be handed on by NCCL", source=source, key=key, value=relay.via, remedy=remedy)


def _check_seq(job: RunJob, source: str) -> None:
    """Every token needs a position: learned ones are as many as the model has."""
    model, seq = job.problem.model, job.problem.workload.seq
    learned = model.layers[0].positions
    if learned and seq > learned:
        remedy = f"plan with --seq of at most {learned}, or run it with --stand-in"
        told = f"exceeds the {learned} learned positions of {model.name}"
        raise InputError(told, source=source, key="problem.workload.seq", value=seq, remedy=remedy)


def refuse_model(model: Model, *, seq: int, source: str | None = None) -> None:
    """``InputError`` for a model that cannot be run yet on sequences of ``seq`` tokens."""
    part = not_run_here(model, seq)
    if part is not None:
        remedy = "run a dense model of Llama's form, or this one with --stand-in"
        told = f"{part} are planned and simulated, not run"
        raise InputError(told, source=source, key="problem.model", value=model.name, remedy=remedy)


def is_small(job: RunJob) -> bool:
    """Whether the same training in one process takes little."""
    tokens = job.problem.workload.tokens_per_step * job.options.steps
    return tokens * job.problem.model.parameters <= SMALL_PARAMETER_TOKENS


# ---------------------------------------------------------------------------------------------------------------- fits
# What ``torch.distributed.pipelining`` cannot run: refused before any process starts. No torch is needed here.

NAME = "torch.distributed.pipelining"
_ELSE = "leave out --runtime torch, or run"
BUILT_IN = {"1f1b": "Schedule1F1B", "gpipe": "ScheduleGPipe"}
"""Schedules that the runtime has itself; the others are handed over as CSV."""


def check_torch(job: RunJob) -> None:
    """``InexpressibleError`` for a plan that the runtime cannot express."""
    plan = job.plan
    if plan.compression:
        raise InexpressibleError([f"{NAME} sends activations as they are. To fix: {_ELSE} a plan without compression."])
    if plan.relays:
        raise InexpressibleError(
            [f"{NAME} sends nothing through a third domain. To fix: {_ELSE} a plan without relays."]
        )
    if plan.sync.method != "allreduce":
        raise InexpressibleError(
            [f"{NAME} knows no outer steps here. To fix: {_ELSE} a plan whose gradients are agreed every step."]
        )
    for pipeline in plan.pipelines:
        widths = {(stage.tp, stage.dp) for stage in pipeline.stages}
        if len(widths) > 1 and not job.options.stand_in:
            told = ", ".join(f"tp {tp} dp {dp}" for tp, dp in sorted(widths))
            raise InexpressibleError(
                [
                    f"{NAME} sends from one rank to one rank: all stages of a pipeline need the same tp and dp, these "
                    f"have {told}. To fix: {_ELSE} a plan for it (hippo plan --runtime torch)."
                ]
            )
        _check_losses(plan, pipeline)


def _check_losses(plan: Plan, pipeline: Pipeline) -> None:
    """Losses are stored in the order of F on the last stage, and looked up by micro-batch."""
    rows = order_of(plan, pipeline).rank(len(pipeline.stages) - 1).tolist()
    waves = [wave for kind, chunk, wave in rows if (kind, chunk) == (FORWARD, plan.interleave - 1)]
    if waves != sorted(waves):
        raise InexpressibleError(
            [
                f"{NAME} looks up losses by the order of F on the last stage; out of order its gradients are wrong. "
                f"To fix: {_ELSE} a plan with F in order there."
            ]
        )


def built_in(plan: Plan, pipeline: Pipeline) -> str | None:
    """The runtime's own class for the schedule; None: it is handed over as CSV."""
    plain = plan.interleave == 1 and plan.schedule.live_limit is None and not pipeline.run_ahead
    if not plain or pipeline.num_micro_batches < len(pipeline.stages):
        return None
    return BUILT_IN.get(plan.schedule.name)
