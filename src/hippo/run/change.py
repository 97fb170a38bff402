"""What changes a run: another plan from the border of a step on. Where layers have to move they go with all that the
optimizer knows of them, and nothing is lost.

Processes make ready for the next plan while they train under the one before; new ones start meanwhile. At a border
layers are handed over, processes that are not needed any more end, and the run goes on. Layers go while training stands
still (stop and copy), or stream beside it before (in the background), so that only the rest is left for the border.
What fails in between leaves the plan before, or, where a process is lost, the replicas that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

from hippo.errors import InfeasibleError, InputError
from hippo.plan.plan import WITH_ORDER, Pipeline, Plan, ScheduleChoice, Stage
from hippo.planners.orders import ordered
from hippo.problem.cluster import Domain
from hippo.run.fits import added_bytes, check_room
from hippo.run.handover import hands
from hippo.run.job import FOLLOW, RATE_RULES, RunJob, replicas_alone
from hippo.run.version import Version


@dataclass(frozen=True)
class PlanChange:
    """A plan under which a run goes on."""

    plan: Plan
    after_step: int | None = None  # the last step under the plan before; None: as soon as all have made ready
    order: int = 0  # number of the order that asked for it; 0: nobody's
    background: bool = False  # layers stream beside the training; else they go while it stands still
    asked: str = "another plan"  # in the words of whoever asked


@dataclass(frozen=True)
class Changed:
    """A change as it was. Seconds on the launcher's clock."""

    order: int
    after_step: int  # the last step under the plan before
    wan_bytes: Mapping[tuple[str, str], float]  # by pair of domains
    predicted_s: float  # of the move
    measured_s: float  # from the word to the last layer in place; in the background from the first byte on
    stopped_s: float  # from the end of the last step under the old plan until the new one can go on
    sent_bytes: int  # between all processes, those of one domain too
    prepared_s: float  # from when it was asked for until all had made ready
    lost: str = ""  # what was lost, where that led to the change
    background: bool = False
    predicted_stopped_s: float = 0.0
    asked: str = ""
    warmed_bytes: int = 0  # sent over new connections between domains, so that they are quick when they are used


class Changes(Protocol):
    """Who asks for changes, and hears what became of them."""

    def due(self, done: int, now: RunJob) -> PlanChange | None:
        """The next change, where none is under way; ``done``: the last step that was made."""
        ...

    def again(self, what: PlanChange) -> None:
        """A change that was due has not been made, and is to be due again."""
        ...

    def unwanted(self, what: PlanChange) -> str:
        """Why a change that is under way is to be given up; empty: it is not."""
        ...

    def changed(self, what: Changed, now: RunJob) -> None:
        """A change has been made; ``what.order`` 0: nobody asked for it."""
        ...

    def gave_up(self, what: PlanChange, told: str) -> None:
        """A change could not be made; the run goes on as before."""
        ...


class Planned:
    """Changes that are known when the run begins, one after another."""

    def __init__(self, *changes: PlanChange, tell: Callable[[str], None] = lambda why: None) -> None:
        """``tell`` hears why one is not made."""
        self._left, self._tell = list(changes), tell

    def due(self, done: int, now: RunJob) -> PlanChange | None:
        """The next one that can be made of what there is."""
        while self._left:
            change = self._left.pop(0)
            try:
                check_change(now, change, source="--then")
            except InputError as error:
                self._tell(str(error))
            else:
                return change
        return None

    def again(self, what: PlanChange) -> None:
        """It comes first."""
        self._left.insert(0, what)

    def unwanted(self, what: PlanChange) -> str:
        """Nothing is."""
        return ""

    def changed(self, what: Changed, now: RunJob) -> None:
        """Nobody has to be told."""

    def gave_up(self, what: PlanChange, told: str) -> None:
        """Why."""
        self._tell(told)


def check_change(job: RunJob, change: PlanChange, *, source: str, before: float = 0.0) -> None:
    """``InputError`` for a change that cannot be made; ``before``: bytes of memory that the run takes by then."""
    first, last = job.options.first_step, job.options.first_step + job.options.steps - 1
    if change.after_step is not None and not first <= change.after_step < last:
        remedy = f"give a step from {first} to {last - 1}, or more --steps"
        raise InputError("is not within the run", source=source, value=change.after_step, remedy=remedy)
    old, new = Version.first(job), Version.first(job).following(under(job, change.plan), fresh=10**6)
    given = hands(old.job.work, new.job.work, job.problem.cluster, old.kept(new))
    were, are = replicas_alone(job.plan), replicas_alone(change.plan)
    fresh = len({*new.everybody} - {*old.everybody})
    added = added_bytes(new.job, given, fresh, comes_apart=were == 1 < are)
    check_room(new.job, before + added, source=source, remedy="move fewer layers at a time, or let another leave first")
    if were > 1 and are == 1 and len(change.plan.pipelines) > 1:
        remedy = "let all but one leave first, then let others join it"
        told = "replicas that train alone have come apart, and cannot agree on gradients every step"
        raise InputError(told, source=source, key="sync.method", value=change.plan.sync.method, remedy=remedy)
    if max(were, are) > 1 and given and change.background:
        told = "is not for replicas that train alone, whose weights change by more than gradients"
        raise InputError(told, source=source, value="background", remedy="give way 'stop'")


def under(job: RunJob, plan: Plan) -> RunJob:
    """The job under another plan; where that has another batch the learning rate follows as ``rate_rule`` says: in
    proportion (Goyal et al. 2017), or to the root of it (Krizhevsky 2014)."""
    workload, options = job.problem.workload, replace(job.options, resume_from=None)
    if plan.global_batch == workload.global_batch:
        return replace(job, plan=plan, options=options)
    rate = options.learning_rate * (plan.global_batch / workload.global_batch) ** RATE_RULES[options.rate_rule]
    problem = replace(job.problem, workload=replace(workload, global_batch=plan.global_batch))
    return replace(job, plan=plan, problem=problem, options=replace(options, learning_rate=rate))


# --------------------------------------------------------------------------------------------------------- other plans
def dealt(line: Pipeline, count: int) -> Pipeline:
    """The pipeline with so many micro-batches; an order that was made for others goes."""
    return replace(line, num_micro_batches=count, warm_up=(), order=())


def again(job: RunJob, plan: Plan) -> Plan:
    """The plan, whose pipelines have no orders of their own, with an order for its micro-batches: that of its
    schedule's name, or the best that is found.

    Raises ``InputError`` where no order has room.
    """
    if plan.schedule.name != WITH_ORDER:
        return plan
    plain = replace(plan, schedule=ScheduleChoice("1f1b"))
    try:
        return ordered(job.problem, plain) or plain
    except InfeasibleError as error:
        remedy = "order smaller micro-batches first, or another schedule"
        raise InputError(str(error).removesuffix("."), source="order", remedy=remedy) from None


def _whole(job: RunJob, lost: Collection[int]) -> dict[int, Pipeline]:
    """The pipelines of a plan as they are without ranks, by their numbers: whole lanes of one that lost some go on."""
    gone: dict[int, set[int]] = {}  # lanes of pipelines
    for worker in (job.work.workers[rank] for rank in lost):
        gone.setdefault(worker.pipeline, set()).add(worker.lane)

    def thinner(stage: Stage, lanes: set[int]) -> Stage:
        each = len(stage.devices) // stage.dp
        kept = (stage.devices[lane * each : (lane + 1) * each] for lane in range(stage.dp) if lane not in lanes)
        return replace(stage, dp=stage.dp - len(lanes), devices=tuple(chain.from_iterable(kept)))

    found = dict(enumerate(job.plan.pipelines))
    for number, lanes in gone.items():
        stages = found.pop(number).stages
        if {stage.dp for stage in stages} == {stages[0].dp} and len(lanes) < stages[0].dp:
            line = job.plan.pipelines[number]
            found[number] = replace(line, stages=tuple(thinner(stage, lanes) for stage in stages))
    return dict(sorted(found.items()))


def without(job: RunJob, lost: Collection[int]) -> Plan | None:
    """The plan of the replicas that have lost no rank (pipelines, and lanes of one), which share out the batch of all
    by the share that each had, or (``batch_rule`` follow) go on with theirs; None: no replica is whole, or they
    cannot."""
    plan, work = job.plan, job.work
    if not lost:
        return plan
    left = list(_whole(job, lost).values())
    there = {domain for line in left for domain in line.domains}
    gone = {work.workers[rank].domain for rank in lost} - there  # where a process ended, no other one is begun
    plan = replace(plan, relays=tuple(each for each in plan.relays if each.via not in gone))
    if not left or job.options.runtime == "torch":
        return None
    return shared_by(job, plan, left)


def shared_by(job: RunJob, plan: Plan, lines: Sequence[Pipeline]) -> Plan | None:
    """The plan with these pipelines, which share out the batch that it has by what each has had, or (``batch_rule``
    follow) do as they did; None: they cannot."""
    if job.options.batch_rule == FOLLOW:
        return replace(plan, pipelines=tuple(lines))
    widths = [line.stages[0].dp for line in lines]
    had = sum(line.num_micro_batches * width for line, width in zip(lines, widths, strict=True))
    whole = plan.global_batch // plan.micro_batch
    waves = [line.num_micro_batches * whole // had for line in lines]
    rest = whole - sum(count * width for count, width in zip(waves, widths, strict=True))
    while rest > 0:  # what is left over goes to whoever has the least to do for what it had
        takes = [number for number, width in enumerate(widths) if width <= rest]
        if not takes:
            return None
        first = min(takes, key=lambda number: ((waves[number] + 1) / lines[number].num_micro_batches, -widths[number]))
        waves[first] += 1
        rest -= widths[first]
    if min(waves) < 1:
        return None
    shared = tuple(dealt(line, count) for line, count in zip(lines, waves, strict=True))
    return again(job, replace(plan, pipelines=shared))


def joined(job: RunJob, domain: Domain, like: int) -> Pipeline:
    """A replica in one domain, cut as the pipeline ``like`` is, on devices that nobody uses: each tensor-parallel group
    in a node. ``InputError``: too few are free."""
    used = {device for line in job.plan.pipelines for stage in line.stages for device in stage.devices}
    free = [each for each in domain.devices if each not in used]
    by_node: dict[str, list[str]] = {}
    for each in free:
        by_node.setdefault(each.rpartition("/")[0], []).append(each)

    def group(size: int) -> list[str]:
        """In the fullest node that has room."""
        node = min((node for node in by_node.values() if len(node) >= size), key=len, default=None)
        if node is None:
            wanted = sum(len(stage.devices) for stage in line.stages)
            told = f"has no room for {wanted} devices, tensor-parallel groups whole in a node"
            remedy = f"{len(free)} of it are free: let another leave first, or name a pipeline that is smaller"
            raise InputError(told, source="order", key="domain", value=domain.name, remedy=remedy)
        taken, node[:size] = node[:size], []
        return taken

    line = job.plan.pipelines[like]
    sizes = [len(stage.devices) // stage.dp for stage in line.stages]
    placed: dict[int, tuple[str, ...]] = {}
    for at in sorted(range(len(sizes)), key=lambda at: -sizes[at]):  # the largest groups first
        placed[at] = tuple(chain.from_iterable(group(sizes[at]) for _ in range(line.stages[at].dp)))
    stages = (replace(stage, domain=domain.name, devices=placed[at]) for at, stage in enumerate(line.stages))
    return replace(line, stages=tuple(stages))


def cut_off(job: RunJob, lost: Collection[int]) -> set[int]:
    """Ranks that are left behind where links between domains are dead: of what is left, replicas that share a domain
    stay together, and those with the largest share of the batch go on; empty: all hang together."""
    whole, work = _whole(job, lost), job.work
    sides: list[tuple[set[str], list[int]]] = []  # domains, and pipelines in them
    for number, line in whole.items():
        domains, numbers = {stage.domain for stage in line.stages}, [number]
        for side in [each for each in sides if each[0] & domains]:
            sides.remove(side)
            domains, numbers = domains | side[0], side[1] + numbers
        sides.append((domains, numbers))
    if len(sides) < 2:
        return set()

    def batch(side: tuple[set[str], list[int]]) -> int:
        return sum(whole[each].num_micro_batches * whole[each].stages[0].dp for each in side[1])

    kept = max(sides, key=lambda side: (batch(side), -min(side[1])))
    return {worker.rank for worker in work.workers if worker.pipeline in whole.keys() - {*kept[1]}}
