"""The program of one process: ``python -m hippo.run.executor.seat FOLDER RANK``.

It reads the job of the folder, meets its neighbours, and does what the launcher says, one JSON object a line: on stdin
``{"go": step, "at": monotonic seconds}``, ``{"save": folder}``, ``{"move": true, ..}`` or ``{"stop": true}``; on stdout
``{"ready": ..}``, ``{"beat": ..}``, ``{"done": step, ..}``, ``{"saved": ..}``, ``{"failed": ..}`` and what a move asks
for. When stdin ends the launcher is gone, and so is the process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

import torch

from hippo.problem.problem import Problem
from hippo.run.executor.agree import Agreeing, Gradients, PartGradients, StandInGradients, buckets
from hippo.run.executor.channels import Channel
from hippo.run.executor.codec import codec_of
from hippo.run.executor.compute import Compute, Layers, StandIn
from hippo.run.executor.handing import Mover
from hippo.run.executor.inbox import Inbox
from hippo.run.executor.local_sgd import (
    LocalLayers,
    LocalStandIn,
    OuterLayers,
    OuterTies,
    inner_work,
    is_local,
    outer_stand_in,
    share,
)
from hippo.run.executor.ring import Ring
from hippo.run.executor.settings import settings_of
from hippo.run.executor.step import Habits, Runner, Ties
from hippo.run.executor.wires import GroupTeam, Meeting, claim
from hippo.run.job import Job
from hippo.run.model.stage import ALONE, Part
from hippo.run.model.store import load, save
from hippo.run.model.weights import Split
from hippo.run.ring_order import ring_order
from hippo.run.stand_in import times
from hippo.run.work import Seat, Transfer, Work

if TYPE_CHECKING:
    from hippo.run.torch_runtime.runner import TorchRunner

BEAT_EVERY_S = 1.0


class Line:
    """The way to the launcher and back."""

    def __init__(self) -> None:
        self.orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._lock, self._beat_at_s = Lock(), 0.0
        self._out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints goes to the log
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self.orders.put(json.loads(line))
        os._exit(1)

    def say(self, **told: Any) -> None:
        """One line to the launcher."""
        with self._lock:
            self._out.write(json.dumps(told) + "\n")
            self._out.flush()

    def beat(self, waits: str) -> None:
        """A sign of life, at most one a second; what the seat waits for."""
        if waits or time.monotonic() - self._beat_at_s >= BEAT_EVERY_S:
            self._beat_at_s = time.monotonic()
            self.say(beat=waits)


def main() -> None:
    """Runs one seat until the launcher says stop."""
    torch.set_num_threads(1)
    line, folder, rank = Line(), Path(sys.argv[1]), int(sys.argv[2])
    try:
        job = Job.read(folder)
        runner = _seated(job, folder, rank, line)
        mover = Mover(job, folder, rank, _own(runner))
        runner.post()
        line.say(ready=rank)
        while "stop" not in (order := line.orders.get()):
            if "save" in order:
                _save(runner, Path(order["save"]))
                line.say(saved=rank)
            elif "move" in order:
                line.say(**mover.do(order))
            else:
                _step(runner, order, line)
    except BaseException as error:
        import traceback

        traceback.print_exc()
        line.say(failed=_reason(error))
        os._exit(1)
    os._exit(0)  # threads that wait for messages which never come are left as they are


def _reason(error: BaseException) -> str:
    """What was at the root, in a line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def _seated(job: Job, folder: Path, rank: int, line: Line) -> Runner | TorchRunner:
    if job.options.runtime == "torch":
        from hippo.run.torch_runtime.runner import prepare as prepare_torch

        return prepare_torch(job, folder, rank, line.beat)
    return prepare(job, folder, rank, line.beat)


def _step(runner: Runner | TorchRunner, order: dict[str, Any], line: Line) -> None:
    time.sleep(max(0.0, order["at"] - time.monotonic()))
    runner.run(order["go"], order["at"])
    runner.post()
    operations = [[one.kind, one.chunk, one.wave, one.start_s, one.end_s] for one in runner.done]
    line.say(done=order["go"], loss=runner.compute.loss(), operations=operations)


def _own(runner: Runner | TorchRunner) -> Part | None:
    """The layers of the seat; None: it only waits."""
    if isinstance(runner, Runner):
        return runner.compute.part if isinstance(runner.compute, Layers) else None
    return runner.part


def _save(runner: Runner | TorchRunner, folder: Path) -> None:
    """Every layer once: replicas are equal, so those of the first lane of the first pipeline speak for all."""
    part = _own(runner)
    if part is not None and (runner.seat.pipeline, runner.seat.lane) == (0, 0):
        save(part, folder)


def prepare(job: Job, folder: Path, rank: int, beat: Callable[[str], None]) -> Runner:
    """The seat, its neighbours met; ``beat`` hears signs of life, and what the seat waits for."""
    options = job.options
    work = Work(job.problem.model, job.plan, whole_stages=options.stand_in)
    seat = work.seats[rank]
    claim(options.device, rank)
    meeting = Meeting(str(folder), rank, world=len(work.seats), device=options.device)
    inbox = Inbox()
    incoming, outgoing, team, groups = _meet(job.problem, work, seat, meeting, inbox)
    compute, gradients = _computing(job, work, seat, team, groups)
    ties = Ties(incoming, outgoing, inbox, team, Agreeing(inner_work(work, seat), seat, gradients, groups))
    habits = Habits(_free(work, seat, options.order), options.backward == "whole")
    return Runner(work, seat, compute, ties, habits, beat)


def _computing(
    job: Job, work: Work, seat: Seat, team: GroupTeam | None, groups: dict[str, Any]
) -> tuple[Compute, Gradients]:
    """What the seat computes, and what of it is agreed at every step."""
    inner, late = inner_work(work, seat), job.options.outer_late
    if job.options.stand_in:
        mine, chunks = times(job.problem, work)[seat.rank], tuple(work.chunks(seat))
        each = job.problem.workload.gradient_bytes_per_parameter
        gradients = StandInGradients(inner, bytes_per_parameter=each, sync_s=mine.sync_s)
        if is_local(work):
            return LocalStandIn(mine, chunks, outer_stand_in(job, work, seat, groups)), gradients
        return StandIn(mine, chunks), gradients
    part = _part(job, work, seat, team)
    if is_local(work):
        outer = OuterLayers(work, seat, part, OuterTies(groups, team, late))
        compute: Compute = LocalLayers(work, seat, part, job.problem.workload, outer)
    else:
        compute = Layers(work, seat, part, job.problem.workload)
    return compute, PartGradients(inner, seat, part, team)


def _part(job: Job, work: Work, seat: Seat, team: GroupTeam | None) -> Part:
    tp, _ = work.widths(work.stage(seat))
    split, settings = Split(tp, seat.tp_index, work.parts), settings_of(job)
    settings = replace(settings, tokens_per_step=round(settings.tokens_per_step * share(work, seat)))
    part = Part.new(job.problem.model, work.chunks(seat), settings, split, team or ALONE)
    if job.options.resume_from is not None:
        load(part, Path(job.options.resume_from))
    return part


def _free(work: Work, seat: Seat, order: str) -> bool:
    """Whether the seat may run what is ready: where a message of its crosses the WAN."""
    if order != "auto" or work.plan.interleave > 1:
        return order == "ready" and work.plan.interleave == 1
    mine = [one for one in work.transfers if seat.rank in (one.source, one.destination)]
    return any(work.crosses_wan(one) for one in mine)


def _meet(
    problem: Problem, work: Work, seat: Seat, meeting: Meeting, inbox: Inbox
) -> tuple[dict[Transfer, Channel], dict[Transfer, Channel], GroupTeam | None, dict[str, Any]]:
    """Every group of the seat, made in one order that holds for all seats."""
    wanted: dict[str, tuple[int, ...]] = {}
    mine = [one for one in work.transfers if seat.rank in (one.source, one.destination)]
    for one in mine:
        wanted[_channel(one)] = (one.source, one.destination)
    members = work.tensor_group(seat)
    if len(members) > 1:
        wanted["team-" + "-".join(map(str, members))] = members
    agreed = [*buckets(work, seat), *buckets(inner_work(work, seat), seat)]
    rings = {bucket.name: ring_order(problem, work, bucket.ranks) for bucket in agreed}
    if meeting.device != "cpu":  # NCCL knows no tags, which tell the sums of a ring apart; it has rings of its own
        wanted |= rings
    for name, ranks in rings.items() if meeting.device == "cpu" else ():
        for pair in _neighbours(ranks, seat.rank):
            wanted[f"{name}-from-{pair[0]}"] = pair
    made = {name: meeting.group(name, wanted[name]) for name in sorted(wanted)}
    codecs = {_channel(one): codec_of(work, one) for one in mine}
    channels = {
        name: Channel(made[name], failed=inbox.failed, codec=codecs.get(name))
        for name in made
        if not name.startswith("team-") and name not in rings
    }
    incoming = {one: channels[_channel(one)] for one in mine if one.destination == seat.rank}
    outgoing = {one: channels[_channel(one)] for one in mine if one.source == seat.rank}
    team = None
    if len(members) > 1:
        team = GroupTeam(made["team-" + "-".join(map(str, members))], len(members), seat.tp_index, meeting.device)
    groups: dict[str, Any] = {name: made[name] for name in rings if name in made}
    for name, ranks in rings.items() if meeting.device == "cpu" else ():
        behind, onward = (channels[f"{name}-from-{pair[0]}"] for pair in _neighbours(ranks, seat.rank))
        groups[name] = Ring(len(ranks), ranks.index(seat.rank), (onward, behind), inbox.check)
    return incoming, outgoing, team, groups


def _neighbours(ranks: tuple[int, ...], rank: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Pairs (sender, receiver) of a ring that end and begin at a rank."""
    place = ranks.index(rank)
    return (ranks[place - 1], rank), (rank, ranks[(place + 1) % len(ranks)])


def _channel(one: Transfer) -> str:
    return f"pair-{one.kind}-{one.source}-{one.destination}"


if __name__ == "__main__":
    main()
