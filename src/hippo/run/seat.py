"""One process through the versions of a run: whom it has met, what it holds, what it runs now and what comes next.

A version is prepared while the one before still trains: neighbours meet, room for layers is made, receives of layers
are posted. At the border of a step ``hand`` lets layers go where they have to be, and ``enter`` goes over. Groups, and
the channels on them, are made once and used by every version: when a step has ended, all its messages have come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from hippo.machine import resident_bytes
from hippo.run.checkpoint import is_of_several, replica_in
from hippo.run.dispatching import WorkerNoise, noise_for, problem_of, rank_of
from hippo.run.executor.agree import (
    Agreeing,
    AllReduce,
    Bucket,
    Gradients,
    PartGradients,
    StandInGradients,
    buckets,
    messages,
    parameters,
)
from hippo.run.executor.asking import Asking, NoteChannels, ways_in
from hippo.run.executor.channels import (
    BrokenError,
    Channel,
    Failed,
    GroupTeam,
    Inbox,
    Meeting,
    as_it_is,
    claim,
    codec_of,
)
from hippo.run.executor.compute import Compute, Layers, StandIn
from hippo.run.executor.handing import Handing
from hippo.run.executor.local_sgd import (
    LocalLayers,
    LocalStandIn,
    OuterLayers,
    OuterSteps,
    OuterTies,
    begin_outer,
    inner_work,
    is_local,
    outer_stand_in,
    share,
)
from hippo.run.executor.step import Habits, Runner, Ties
from hippo.run.executor.streaming import Streaming
from hippo.run.handover import lineage, stays
from hippo.run.job import RunOptions
from hippo.run.messages import VIA
from hippo.run.model.stage import ALONE, Part, settings_of
from hippo.run.model.store import Snapshot, load
from hippo.run.model.weights import TensorSplit
from hippo.run.stand_in import LOCAL_BYTES, times
from hippo.run.version import Version, place
from hippo.run.work import Transfer, Work, Worker, levels

if TYPE_CHECKING:
    from hippo.run.torch_runtime import TorchRunner


MOST_SUMS, VERSIONS = 1_000_000, 2_000
"""Messages of a step's sums to one partner, and versions whose messages are told apart: tags have 31 bits."""


@dataclass(frozen=True, eq=False)
class Met:
    """Whom a worker talks with."""

    incoming: dict[Transfer, Channel] = field(default_factory=dict)
    outgoing: dict[Transfer, Channel] = field(default_factory=dict)
    team: GroupTeam | None = None
    groups: dict[str, Any] = field(default_factory=dict)  # of sums, by name
    notes: NoteChannels = NoteChannels({}, {})


@dataclass(frozen=True, eq=False)
class PreparedSeat:
    """What a process is going to be in a version."""

    version: Version
    worker: Worker | None  # None: it leaves
    met: Met
    part: Part | None  # None: it only waits, or leaves
    handing: Handing | Streaming | None  # None: nothing was before
    runner: Runner | TorchRunner | None = None  # None: it leaves
    comes_apart: bool = False  # replicas were alike before, and train alone from then on


class Seat:
    """A process of a run."""

    def __init__(
        self, folder: Path, process: int, beat: Callable[[str], None], options: RunOptions | None = None
    ) -> None:
        options = options or RunOptions()
        self.folder, self.process, self.beat = folder, process, beat
        claim(options.device, process)
        self.version: Version | None = None
        self.part: Part | None = None
        self.runner: Runner | TorchRunner | None = None
        self._meeting, self._inbox = Meeting(folder, process, talks_on=options.talks_on), Inbox()
        self._next: PreparedSeat | None = None
        self._asked = 0
        self._snapshot: Snapshot | None = None  # that the weights have not changed since
        self._changing = Lock()  # weights, or what comes next

    def prepare(self, number: int, after: int | None = None, *, background: bool = False, warms: bool = False) -> int:
        """Makes ready for a version that follows another (``after``; None: nothing was before); may be called while a
        step runs. ``background``: layers begin to stream; ``warms``: new connections between domains are warmed. The
        bytes that this process sent for that."""
        self.forget()
        self._asked = number
        new = Version.read(self.folder, number)
        old = None if after is None else Version.read(self.folder, after)
        meeting, inbox = self._meeting.of(new.era), self._inbox
        rank = new.rank(self.process)
        worker = None if rank is None else new.job.work.workers[rank]
        met, part, runner = Met(), None, None
        warmed_bytes = meeting.warmed_bytes
        if self.process in new.porters.values():
            wanted, largest = _handed_on(new, self.process)
            meeting.groups(wanted, partial(_warmth, new, largest) if warms else as_it_is)
            old = None
        if worker is not None and new.job.options.runtime == "torch":
            from hippo.run.torch_runtime import prepare

            runner = prepare(new, worker, meeting, place(self.folder, number), self.beat)
            part = runner.part
        elif worker is not None:
            met = _meet(new, worker, meeting, inbox, warms)
            part = None if new.job.options.stand_in else self._part(new, worker, met.team)
        handing: Handing | Streaming | None = None
        if old is not None and background:
            handing = Streaming(old, new, self.process, self.folder, (self.part, part))
        elif old is not None:
            handing = Handing(old, new, self.process, meeting, (self.part, part), self.beat)
        comes_apart = old is not None and is_local(new.job.work) and not is_local(old.job.work)
        prepared = PreparedSeat(new, worker, met, part, handing, runner, comes_apart)
        if runner is None and worker is not None:
            prepared = replace(prepared, runner=self._runner(prepared))
        with self._changing:
            if self._asked == number:
                self._meeting, self._next = meeting, prepared
                if self.streaming is not None:
                    self.streaming.begin()
            elif handing is not None:  # it was given up meanwhile
                handing.close()
        if after is None and worker is not None:  # what follows may be prepared before the first step
            self.enter()
        return meeting.warmed_bytes - warmed_bytes

    def hand(self) -> int:
        """Layers go where the next version has them; the bytes that this process sent."""
        assert self._next is not None, "a version is prepared first"
        assert self._next.handing is not None, "layers are handed over from a version before"
        return self._next.handing.do()

    def update(self, step: int, started_s: float) -> None:
        """Weights change: the step is made. What streams is told by which gradients."""
        assert self.runner is not None, "no step was begun"
        self._settle()
        with self._changing:
            if self.streaming is None:
                self.runner.update(step, started_s)
            else:
                self.streaming.made(step, partial(self.runner.update, step, started_s))

    def _settle(self) -> None:
        """Weights are about to change, of which a checkpoint may be written."""
        if self._snapshot is not None:
            self._snapshot.settle()
            self._snapshot = None

    def agree(self, step: int, *, now: bool) -> None:
        """Waits for what replicas that train alone agree on after a step, or now; ``BrokenError``: it is not made."""
        if (outer := _outer(self.runner)) is not None:
            outer.wait(step, now=now)

    def use(self) -> None:
        """All have it: it is used."""
        if (outer := _outer(self.runner)) is not None:
            with self._changing:
                self._settle()
                outer.use()

    def snapshot(self) -> Snapshot | None:
        """The layers as they are now, to be written beside the training; None: a stand-in has none."""
        compute = getattr(self.runner, "compute", None)
        if self.part is None or not isinstance(compute, LocalLayers):
            self._snapshot = None if self.part is None else Snapshot(self.part)
        else:
            replica = compute.outer.worker.pipeline
            self._snapshot = Snapshot(self.part, replica, self.part.outer if replica == 0 else None)
        return self._snapshot

    def telemetry(self, started_s: float) -> dict[str, Any]:
        """Messages since the step started, and the memory that the process holds now, bytes."""
        return {**self._meeting.log.take(started_s), "memory_bytes": resident_bytes()}

    def heard_s(self) -> float:
        """When the last message of this step came (``time.monotonic()``); 0: none has."""
        return self._meeting.log.last_s

    @property
    def streaming(self) -> Streaming | None:
        """The move that goes on beside the training."""
        coming = None if self._next is None else self._next.handing
        return coming if isinstance(coming, Streaming) else None

    def enter(self) -> None:
        """The next version is the one that runs."""
        assert self._next is not None, "a version is prepared first"
        now, self._next = self._next, None
        assert now.runner is not None, "who leaves enters nothing"
        _go_on(self.runner, now)
        self.version, self.part, self.runner = now.version, now.part, now.runner

    def _runner(self, now: PreparedSeat) -> Runner:
        assert now.worker is not None, "who leaves runs nothing"
        job, work, worker = now.version.job, now.version.job.work, now.worker
        noise = noise_for(job, worker)
        compute, gradients = _computing(now, noise, self.beat)
        agreeing = Agreeing(inner_work(work, worker), worker, gradients, now.met.groups)
        ties = Ties(now.met.incoming, now.met.outgoing, self._inbox, now.met.team, agreeing, _asking(now, noise))
        habits = Habits(_free(work, worker, job.options.order), job.options.backward == "whole")
        return Runner(work, worker, compute, ties, habits, self.beat)

    def close(self) -> None:
        """The process has no more to do."""
        self._meeting.close()

    def break_off(self) -> None:
        """The step that runs is given up; may be called from another thread."""
        self._inbox.failed(BrokenError("the step was given up"))

    def give_up(self) -> None:
        """As before the step that was begun; whoever it heard from is heard no more."""
        if self.runner is not None:  # a porter has none
            self.runner.give_up()
        self._meeting.log.take(0.0)
        self._inbox = Inbox()
        self.forget()

    def forget(self, number: int | None = None) -> None:
        """Whatever is prepared, or being prepared, is given up; ``number``: if it is this version."""
        with self._changing:
            if number not in (None, self._asked):
                return
            coming, self._next, self._asked = self._next, None, -1
        if coming is not None and coming.handing is not None:
            coming.handing.close()

    def wants(self, number: int) -> bool:
        """Whether a version that is being prepared has not been given up."""
        return self._asked == number

    def _part(self, new: Version, worker: Worker, team: GroupTeam | None) -> Part:
        """The layers of a worker: those that its process holds already, others as at the start of the training."""
        job, work = new.job, new.job.work
        tp, _ = work.widths(work.stage(worker))
        split, settings = TensorSplit(tp, worker.tp_index, work.parts), settings_of(job)
        settings = replace(settings, tokens_per_step=round(settings.tokens_per_step * share(work, worker)))
        part = Part(job.problem.model, tuple(work.chunks(worker)), settings, split, team or ALONE)
        own = [layer for start, stop in part.chunks for layer in range(start, stop)]
        here = self._held(new, worker)
        for layer in own:
            if here is not None and layer in here[1]:
                part.keep(here[0], layer)
            else:
                part.place(layer, part.fresh(layer))
        part.tie(None if here is None else here[0])
        if job.options.resume_from is not None:
            folder = Path(job.options.resume_from)
            load(part, folder, replica_in(folder, worker.pipeline))
        if is_local(work):
            begin_outer(part)
        else:
            part.outer.clear()
        return part

    def _held(self, new: Version, worker: Worker) -> tuple[Part, set[int]] | None:
        """The part of the version that runs, and which of its layers a worker of another finds cut as it needs them."""
        if self.part is None or self.version is None:
            return None
        work, old, before = new.job.work, self.version.job.work, self.version.worker(self.process)
        line = lineage(old, work, new.job.problem.cluster, self.version.kept(new))[worker.pipeline]
        if line not in (None, before.pipeline):
            return None
        return self.part, {layer for layer in self.part.weights if stays(old, work, before, worker, layer)}


def _go_on(before: Runner | TorchRunner | None, now: PreparedSeat) -> None:
    """Replicas that train alone go on from where they began last, or begin where those did that had been alike."""
    old, new = _outer(before), _outer(now.runner)
    if new is not None and old is not None:
        new.go_on_from(old)
    elif new is not None and now.comes_apart:
        new.all_begin()


def _outer(runner: Runner | TorchRunner | None) -> OuterSteps | None:
    found = getattr(getattr(runner, "compute", None), "outer", None)
    return found if isinstance(found, OuterSteps) else None


def _computing(now: PreparedSeat, noise: WorkerNoise, beat: Callable[[str], None]) -> tuple[Compute, Gradients]:
    """What the worker computes, and what of it is agreed at every step."""
    assert now.worker is not None
    job, worker, met = now.version.job, now.worker, now.met
    work = job.work
    inner, late = inner_work(work, worker), job.options.outer_late
    if job.options.stand_in:
        mine, chunks = times(job.problem, work)[worker.rank], tuple(work.chunks(worker))
        each = job.problem.workload.gradient_bytes_per_parameter
        gradients = StandInGradients(inner, bytes_per_parameter=each, sync_s=mine.sync_s)
        if is_local(work):
            return LocalStandIn(mine, chunks, noise, outer_stand_in(job, work, worker, met.groups, beat)), gradients
        return StandIn(mine, chunks, noise), gradients
    part = now.part
    assert part is not None
    if not is_local(work):
        return Layers(work, worker, part, job.problem.workload, noise), PartGradients(inner, worker, part, met.team)
    outer = OuterLayers(work, worker, part, OuterTies(met.groups, met.team, beat, late))
    if job.options.resume_from is not None and is_of_several(Path(job.options.resume_from)):
        outer.outer.restore(Path(job.options.resume_from))  # else all begin here
    layers = LocalLayers(work, worker, part, job.problem.workload, noise, outer)
    return layers, PartGradients(inner, worker, part, met.team)


def _asking(now: PreparedSeat, noise: WorkerNoise) -> Asking | None:
    """How the worker asks what is next; None: it goes through a list, or does what its leader says."""
    job, worker = now.version.job, now.worker
    assert worker is not None
    if not job.asks or not worker.leads:
        return None
    return Asking(
        rank_of(job, worker),
        ways_in(problem_of(job, worker.pipeline), worker.stage, now.met.incoming),
        now.met.notes,
        waves=job.plan.pipelines[worker.pipeline].num_micro_batches,
        announces=job.announces,
        played=job.options.play_links,
        noise=noise,
    )


def _free(work: Work, worker: Worker, order: str) -> bool:
    """Whether the worker may run what is ready: where a message of its crosses the WAN."""
    if order != "auto" or work.plan.interleave > 1:
        return order == "ready" and work.plan.interleave == 1
    mine = [one for one in work.transfers if worker.rank in (one.source, one.destination)]
    return any(work.crosses_wan(one) for one in mine)


def _meet(version: Version, worker: Worker, meeting: Meeting, inbox: Inbox, warms: bool) -> Met:
    """Every group of the worker."""
    work, problem = version.job.work, version.job.problem
    who = version.members
    mine = [one for one in work.transfers if worker.rank in (one.source, one.destination)]
    wanted, largest = _ways(version, [worker])
    members = work.tensor_group(worker)
    team_name = _name("team", who, members)
    if len(members) > 1:
        wanted[team_name] = tuple(who[rank] for rank in members)
    agreed = _summed(work, worker)
    sums = {bucket.name: levels(problem, work, bucket.ranks) for bucket in agreed}
    names = {bucket.name: _name("agree", who, bucket.ranks) for bucket in agreed}
    own = meeting.talks_on == "cpu"  # NCCL knows no tags, which tell sums apart; it has a way of its own
    said = {name: messages(each, worker.rank) for name, each in sums.items() if own}
    if own and work.plan.relays:
        through, of_others = _handed_on(version, who[worker.rank])
        wanted, largest = {**wanted, **through}, {**of_others, **largest}
    if not own:
        wanted |= {names[name]: tuple(who[rank] for ranks in each for rank in ranks) for name, each in sums.items()}
    made = meeting.groups(wanted, partial(_warmth, version, largest) if warms else as_it_is)

    def channel(way: Mapping[str, Sequence[int]], failed: Failed = inbox.failed, **terms: Any) -> Channel:
        (name,) = way
        return meeting.channel(name, failed=failed, **terms)

    channels = {one: channel(_way(version, one), codec=codec_of(work, one)) for one in mine}
    notes = {one: channel(_way(version, one, "note")) for one in mine if version.job.notes}
    team = None
    if len(members) > 1:
        team = GroupTeam(made[team_name], len(members), worker.tp_index, meeting.log, version.job.options.computes_on)
    # Sums of local SGD are posted long before their step: those of another version must not hear them, and who leaves
    # with one that is posted breaks nothing but that.
    number, heard = (version.number % VERSIONS, Inbox()) if is_local(work) else (0, inbox)

    def check() -> None:
        inbox.check()
        heard.check()

    groups: dict[str, Any] = {name: made[names[name]] for name in sums if not own}
    short = {one.rank: LOCAL_BYTES // 4 for one in work.workers if work.whole_stages and one.domain == worker.domain}
    for name, each in said.items():
        every = []
        for at, message in enumerate(each):  # what is heard has a channel for each message, what is sent shares one
            use = "" if message.how == "send" else f"{number} {at}"
            failed = inbox.failed if message.how == "send" else heard.failed
            every.append(channel(_joined(version, names[name], message.ends(worker.rank)), failed, use=use))
        groups[name] = AllReduce(each, every, check, short, first_tag=number * MOST_SUMS)
    return Met(
        _to(worker, channels),
        _from(worker, channels),
        team,
        groups,
        NoteChannels(_to(worker, notes), _from(worker, notes)),
    )


def _to(worker: Worker, channels: dict[Transfer, Channel]) -> dict[Transfer, Channel]:
    return {one: channel for one, channel in channels.items() if one.destination == worker.rank}


def _from(worker: Worker, channels: dict[Transfer, Channel]) -> dict[Transfer, Channel]:
    return {one: channel for one, channel in channels.items() if one.source == worker.rank}


def _told_by(version: Version) -> tuple[str, ...]:
    """What goes over the ways between stages."""
    return ("pair", "note") if version.job.notes else ("pair",)


def _way(version: Version, one: Transfer, what: str = "pair") -> dict[str, tuple[int, ...]]:
    return _joined(version, f"{what}-{one.kind}", (one.source, one.destination))


def _joined(version: Version, kind: str, ends: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    """Name and processes of a way from one rank to another, directly or through a third domain."""
    who, middle = version.members, version.through(*ends)
    name, (source, destination) = _name(kind, who, ends), (who[end] for end in ends)
    if middle is None:
        return {name: (source, destination)}
    return {f"{VIA}{middle}-{name}": (source, middle, destination)}


def _ways(version: Version, workers: Sequence[Worker]) -> tuple[dict[str, tuple[int, ...]], dict[str, float]]:
    """Ways of some workers, and the bytes of the largest message on each: inf where it is one between stages, which may
    be as large as a link carries in a round trip; announcements have next to none."""
    work, job = version.job.work, version.job
    found: dict[str, tuple[int, ...]] = {}
    largest: dict[str, float] = {}

    def add(way: Mapping[str, tuple[int, ...]], size: float) -> None:
        found.update(way)
        largest.update({name: max(size, largest.get(name, 0.0)) for name in way})

    for worker in workers:
        for one in work.transfers:
            if worker.rank in (one.source, one.destination):
                for what in _told_by(version):
                    add(_way(version, one, what), inf if what == "pair" else 0.0)
        for bucket in _summed(work, worker) if job.options.talks_on == "cpu" else ():
            size = parameters(work, bucket) * job.problem.workload.gradient_bytes_per_parameter / bucket.parts
            kind = _name("agree", version.members, bucket.ranks)
            for message in messages(levels(job.problem, work, bucket.ranks), worker.rank):
                start, stop = message.span
                add(_joined(version, kind, message.ends(worker.rank)), size * float(stop - start))
    return found, largest


def _summed(work: Work, worker: Worker) -> list[Bucket]:
    """What a worker sums with others, within its pipeline too where replicas train alone."""
    return list(dict.fromkeys([*buckets(work, worker), *buckets(inner_work(work, worker), worker)]))


def _handed_on(version: Version, process: int) -> tuple[dict[str, tuple[int, ...]], dict[str, float]]:
    """Ways of others that go through this process, as of ``_ways``."""
    found, largest = _ways(version, version.job.work.workers)
    return {name: ends for name, ends in found.items() if len(ends) > 2 and ends[1] == process}, largest


def _warmth(version: Version, largest: Mapping[str, float], name: str, source: int, destination: int) -> float:
    """Bytes by which a new way is warmed: of two messages, or what the link carries in a round trip."""
    return min(version.product_bytes(source, destination), 2 * largest.get(name, 0.0))


def _name(kind: str, who: Sequence[int], ranks: Sequence[int]) -> str:
    return f"{kind}-" + "-".join(str(who[rank]) for rank in ranks)
