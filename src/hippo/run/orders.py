"""Orders to a running job: what each asks for, and the plan under which the run goes on. No torch.

Every order gives a plan: a lever changes how the layers that lie where they lie are run, ``plan`` may move them. What
the plan, the runtime or the memory does not allow is refused before anything changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from hippo.errors import InputError, UnknownNameError
from hippo.plan.check import check
from hippo.plan.codec import plan_from_document, plan_to_document
from hippo.plan.plan import WITH_ORDER, Compression, Plan, Relay, ScheduleChoice
from hippo.run.change import PlanChange, again, check_change, dealt, joined, shared_by, under, without
from hippo.run.fits import PACKED, check_job
from hippo.run.job import FOLLOW, RunJob
from hippo.schedule.schedule import SCHEDULES
from hippo.score.judge import fits

SOURCE = "order"
GIVE_UP = "give-up"  # the order that another one is given up: no change of a plan
WAYS = ("two-level", "ring")
DIRECT = "none"  # through no third domain
BACKGROUND = "background"
MOST_WAVES = 100_000  # micro-batches of a pipeline in a step
MOVES = ("stop", BACKGROUND)
"""How layers move: while training stands still, or beside it."""
FORMS: Mapping[type, str] = MappingProxyType(
    {int: "a whole number", str: "a word", list: "a list", dict: "the document of a plan"}
)


@dataclass(frozen=True)
class RunOrder:
    """What a run is asked to do, from the border of a step on."""

    kind: str  # of ``KINDS``
    values: Mapping[str, Any]
    after_step: int | None = None  # the last step as before; None: as soon as all processes have made ready


def order_of_document(document: Any) -> RunOrder:
    """``{"order": kind, .., "after_step": N}``; ``InputError`` for what is no such thing."""
    if not isinstance(document, dict) or not isinstance(document.get("order"), str):
        remedy = f"give {', '.join((*KINDS, GIVE_UP))}"
        raise InputError("is no order", source=SOURCE, value=str(document)[:60], remedy=remedy)
    values = {key: value for key, value in document.items() if key not in ("order", "after_step")}
    kind, after = document["order"], document.get("after_step")
    if kind not in KINDS:
        raise UnknownNameError("order", kind[:60], (*KINDS, GIVE_UP), source=SOURCE)
    if after is not None and (not isinstance(after, int) or isinstance(after, bool)):
        remedy = "give a whole number"
        told = "must be the number of a step"
        raise InputError(told, source=SOURCE, key="after_step", value=str(after)[:60], remedy=remedy)
    known = KINDS[kind].values
    for key in known.keys() - values.keys() - KINDS[kind].optional:
        raise InputError("is missing", source=SOURCE, key=key, remedy=f"'{kind}' takes {', '.join(known)}")
    for key, value in values.items():
        if key not in known:
            raise InputError("is unknown", source=SOURCE, key=key[:60], remedy=f"'{kind}' takes {', '.join(known)}")
        if not isinstance(value, known[key]) or isinstance(value, bool):
            told = f"must be {FORMS[known[key]]}"
            remedy = f"see 'hippo ctl --help' for what '{kind}' takes"
            raise InputError(told, source=SOURCE, key=key, value=str(value)[:60], remedy=remedy)
    return RunOrder(kind, values, after)


def change_of(order: RunOrder, job: RunJob, *, done: int, number: int = 0, before: float = 0.0) -> PlanChange:
    """What an order makes of a job whose last step so far is ``done``; ``before``: bytes of memory that orders before
    will take.

    Raises
    ------
    InputError
        The order cannot be carried out: the sentence says why.
    """
    plan = KINDS[order.kind].plan(job, order.values)
    if plan == job.plan:
        remedy = "nothing has to be done: the run goes that way, or has been asked to"
        raise InputError("changes nothing", source=SOURCE, value=order.kind, remedy=remedy)
    if order.after_step is not None and order.after_step < max(done, job.options.first_step):
        remedy = f"name a step from {max(done, job.options.first_step)} on, or none"
        raise InputError("has passed", source=SOURCE, key="after_step", value=order.after_step, remedy=remedy)
    plan_from_document(plan_to_document(job.problem, plan), source=SOURCE)  # processes read it so
    changed, batch = under(job, plan), job.problem.workload.global_batch
    if job.options.batch_rule != FOLLOW and plan.global_batch != batch:
        remedy = "give one of that batch, or run with --batch-rule follow"
        told = f"makes another batch than the {batch} sequences that run"
        raise InputError(told, source=SOURCE, value=plan.global_batch, remedy=remedy)
    for violation in check(changed.problem, plan):
        raise InputError(str(violation), source=SOURCE, remedy=violation.remedy)
    check_job(changed, source=SOURCE, held=True)
    change = PlanChange(plan, order.after_step, number, order.values.get("way") == BACKGROUND, asked=_asked(order))
    check_change(job, change, source=SOURCE, before=before)
    held_to = job.options.device != "cpu" or fits(job.problem, job.plan)
    if held_to and not fits(changed.problem, plan):
        remedy = "order smaller micro-batches, or fewer in flight, first"
        raise InputError("does not fit into the memory of its devices", source=SOURCE, value=order.kind, remedy=remedy)
    return change


def _asked(order: RunOrder) -> str:
    """An order in a few words, as ``hippo ctl`` takes it."""
    if order.kind == "plan":
        return "another plan" + (", beside the training" if order.values.get("way") == BACKGROUND else "")
    words = [str(value) for value in order.values.values() if isinstance(value, str | int)]
    shares = [str(value) for each in order.values.values() if isinstance(each, list) for value in each]
    return " ".join([order.kind, *words, *shares])


# -------------------------------------------------------------------------------------------------------------- levers
def _schedule(job: RunJob, values: Mapping[str, Any]) -> Plan:
    """Another order of micro-batches: a schedule by name, or the best that is found."""
    name, live = values["name"], values.get("live_limit")
    if name not in (*SCHEDULES, WITH_ORDER):
        raise UnknownNameError("schedule", name[:60], (*SCHEDULES, WITH_ORDER), source=SOURCE, key="name")
    plain = replace(job.plan, pipelines=tuple(dealt(line, line.num_micro_batches) for line in job.plan.pipelines))
    if name == WITH_ORDER:
        return again(job, replace(plain, schedule=ScheduleChoice(WITH_ORDER)))
    return replace(plain, schedule=ScheduleChoice(name, live))


def _micro_batch(job: RunJob, values: Mapping[str, Any]) -> Plan:
    """Micro-batches of another size; as many sequences a step."""
    size, plan = values["size"], job.plan
    found = []
    for line in plan.pipelines:
        waves, rest = divmod(line.num_micro_batches * plan.micro_batch, size) if size > 0 else (0, 1)
        if rest or waves < 1:
            told = f"does not share out the {line.num_micro_batches * plan.micro_batch} sequences of a lane"
            remedy = "give a divisor of it"
            raise InputError(told, source=SOURCE, key="size", value=size, remedy=remedy)
        found.append(dealt(line, waves))
    return again(job, replace(plan, pipelines=tuple(found), micro_batch=size))


def _shares(job: RunJob, values: Mapping[str, Any]) -> Plan:
    """The batch dealt otherwise to the replicas: micro-batches of each pipeline."""
    waves, plan = values["waves"], job.plan
    if len(waves) != len(plan.pipelines) or not all(type(each) is int and 0 < each <= MOST_WAVES for each in waves):
        told = f"must be a number of micro-batches from 1 to {MOST_WAVES} for each of {len(plan.pipelines)} pipelines"
        now = " ".join(str(line.num_micro_batches) for line in plan.pipelines)
        remedy = f"give as many numbers as pipelines; now: {now}"
        raise InputError(told, source=SOURCE, key="waves", value=str(waves)[:60], remedy=remedy)
    lines = tuple(dealt(line, each) for line, each in zip(plan.pipelines, waves, strict=True))
    return again(job, replace(plan, pipelines=lines))


def _compress(job: RunJob, values: Mapping[str, Any]) -> Plan:
    """What crosses from one domain to another in fewer bits, or as it is; both ways."""
    one, two, kind = values["source"], values["destination"], values["kind"]
    for key, name in (("source", one), ("destination", two)):
        if name not in job.plan.domains:
            raise UnknownNameError("domain", name[:60], job.plan.domains, source=SOURCE, key=key)
    if kind not in PACKED:
        raise UnknownNameError("compression", kind[:60], PACKED, source=SOURCE, key="kind")
    if kind != "none" and not job.problem.allow_compression:
        remedy = "plan with --allow-compression: a token trained so may be worth less"
        raise InputError("is not allowed by the plan's problem", source=SOURCE, key="kind", value=kind, remedy=remedy)
    pairs = {(one, two), (two, one)}
    rest = tuple(each for each in job.plan.compression if (each.source, each.destination) not in pairs)
    added = () if kind == "none" else tuple(Compression(*pair, kind) for pair in sorted(pairs))
    return replace(job.plan, compression=(*rest, *added))


def _relay(job: RunJob, values: Mapping[str, Any]) -> Plan:
    """What crosses from one domain to another goes through a third, or directly again; both ways."""
    one, two, via = values["source"], values["destination"], values["via"]
    used, there = job.plan.domains, [domain.name for domain in job.problem.cluster.domains]
    for key, name, known in (("source", one, used), ("destination", two, used), ("via", via, (*there, DIRECT))):
        if name not in known:
            raise UnknownNameError("domain", name[:60], known, source=SOURCE, key=key)
    pairs = ((one, two), (two, one))
    rest = tuple(each for each in job.plan.relays if (each.source, each.destination) not in pairs)
    added = () if via == DIRECT else tuple(Relay(*pair, via) for pair in pairs)
    return replace(job.plan, relays=(*rest, *added))


def _all_reduce(job: RunJob, values: Mapping[str, Any]) -> Plan:
    """Sums on two levels, or over one flat ring."""
    if values["way"] not in WAYS:
        raise UnknownNameError("all_reduce", values["way"][:60], WAYS, source=SOURCE, key="way")
    if sum(line.stages[0].dp for line in job.plan.pipelines) == 1:
        remedy = "let another replica join first"
        raise InputError("is of replicas, and this plan has one", source=SOURCE, value=values["way"], remedy=remedy)
    return replace(job.plan, sync=replace(job.plan.sync, all_reduce=values["way"]))


def _every(job: RunJob, values: Mapping[str, Any]) -> Plan:
    """Local SGD: steps between two sums."""
    if job.plan.sync.method != "local_sgd":
        remedy = "leave it, or run a plan whose sync.method is local_sgd"
        told = "is of local SGD, and this plan's replicas agree every step"
        raise InputError(told, source=SOURCE, key="steps", value=values["steps"], remedy=remedy)
    return replace(job.plan, sync=replace(job.plan.sync, every=values["steps"]))


def _leave(job: RunJob, values: Mapping[str, Any]) -> Plan:
    """The plan without the replicas that have a stage in a domain."""
    domain = values["domain"]
    if domain not in job.plan.domains:
        raise UnknownNameError("domain", domain[:60], job.plan.domains, source=SOURCE, key="domain")
    plan = without(job, {worker.rank for worker in job.work.workers if worker.domain == domain})
    if plan is None:
        remedy = "order a plan whose layers lie elsewhere: 'hippo ctl SOCKET plan PLAN.json'"
        told = "cannot leave: no replica is whole without it, or those that are cannot share out the batch"
        raise InputError(told, source=SOURCE, key="domain", value=domain, remedy=remedy)
    return plan


def _join(job: RunJob, values: Mapping[str, Any]) -> Plan:
    """The plan with one replica more, whole in a domain."""
    name, like, lines = values["domain"], values.get("like", 0), job.plan.pipelines
    found = next((each for each in job.problem.cluster.domains if each.name == name), None)
    if found is None:
        known = [each.name for each in job.problem.cluster.domains]
        raise UnknownNameError("domain", name[:60], known, source=SOURCE, key="domain")
    if not 0 <= like < len(lines):
        remedy = f"name one from 0 to {len(lines) - 1}"
        raise InputError("is no pipeline of the plan", source=SOURCE, key="like", value=like, remedy=remedy)
    if job.options.runtime == "torch":
        remedy = "order a plan with it: 'hippo ctl SOCKET plan PLAN.json'"
        raise InputError("is not for torch's runtime, which begins anew", source=SOURCE, value="join", remedy=remedy)
    plan = shared_by(job, job.plan, [*lines, joined(job, found, like)])
    if plan is None:
        told = f"cannot share out {job.plan.global_batch // job.plan.micro_batch} micro-batches with one replica more"
        remedy = "order smaller micro-batches first, or run with --batch-rule follow"
        raise InputError(told, source=SOURCE, key="domain", value=name, remedy=remedy)
    return plan


def _plan(job: RunJob, values: Mapping[str, Any]) -> Plan:
    """Another plan of the same model over the same links: layers move, replicas join and leave."""
    if (way := values.get("way", MOVES[0])) not in MOVES:
        raise UnknownNameError("way", way[:60], MOVES, source=SOURCE, key="way")
    if way == BACKGROUND and job.options.runtime == "torch":
        remedy = "give way 'stop'"
        raise InputError("is not for torch's runtime, which begins anew", source=SOURCE, value=way, remedy=remedy)
    problem, plan = plan_from_document(values["plan"], source=SOURCE)
    if (batch := problem.workload.global_batch) != plan.global_batch:
        told = f"makes {plan.global_batch} sequences a step, where its problem says {batch}"
        raise InputError(told, source=SOURCE, key="pipelines", remedy="give its pipelines as many micro-batches")
    workload = replace(job.problem.workload, global_batch=batch)
    if problem.model != job.problem.model or problem.workload != workload:
        remedy = "make the plan from the model and workload that run"
        raise InputError("is for another model or workload", source=SOURCE, value=problem.model.name, remedy=remedy)
    if problem.cluster.links != job.problem.cluster.links:
        remedy = "make the plan for the cluster that runs"
        raise InputError("is for other links", source=SOURCE, value=problem.cluster.name, remedy=remedy)
    return plan


@dataclass(frozen=True)
class OrderKind:
    """One kind of order."""

    plan: Callable[[RunJob, Mapping[str, Any]], Plan]
    values: Mapping[str, type]
    told: str
    optional: frozenset[str] = frozenset()


KINDS: Mapping[str, OrderKind] = MappingProxyType(
    {
        "schedule": OrderKind(
            _schedule, {"name": str, "live_limit": int}, "another order of micro-batches", frozenset({"live_limit"})
        ),
        "micro-batch": OrderKind(_micro_batch, {"size": int}, "sequences of a micro-batch"),
        "shares": OrderKind(_shares, {"waves": list}, "micro-batches of each pipeline"),
        "compress": OrderKind(
            _compress, {"source": str, "destination": str, "kind": str}, "what crosses two domains in fewer bits"
        ),
        "relay": OrderKind(
            _relay, {"source": str, "destination": str, "via": str}, "what crosses two domains goes through a third"
        ),
        "all-reduce": OrderKind(_all_reduce, {"way": str}, "two-level, or ring"),
        "every": OrderKind(_every, {"steps": int}, "local SGD: steps between two sums"),
        "leave": OrderKind(_leave, {"domain": str}, "replicas with a stage in a domain leave"),
        "join": OrderKind(
            _join, {"domain": str, "like": int}, "one replica more, whole in a domain", frozenset({"like"})
        ),
        "plan": OrderKind(
            _plan,
            {"plan": dict, "way": str},
            "another plan: layers move, replicas join and leave",
            frozenset({"way"}),
        ),
    }
)
"""Orders that change a plan."""
