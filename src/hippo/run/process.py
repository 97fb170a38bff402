"""The program of one process: ``python -m hippo.run.process FOLDER RANK``.

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
from hippo.run.executor.agree import Agreeing, AllReduce, Gradients, PartGradients, StandInGradients, buckets, messages
from hippo.run.executor.channels import Channel, GroupTeam, Inbox, Meeting, claim, codec_of
from hippo.run.executor.compute import Compute, Layers, StandIn
from hippo.run.executor.handing import Mover
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
from hippo.run.executor.step import Habits, Runner, Ties
from hippo.run.job import RunJob
from hippo.run.model.stage import ALONE, Part, settings_of
from hippo.run.model.store import load, save
from hippo.run.model.weights import TensorSplit
from hippo.run.stand_in import LOCAL_BYTES, times
from hippo.run.work import Transfer, Work, Worker, levels

if TYPE_CHECKING:
    from hippo.run.torch_runtime import TorchRunner

BEAT_EVERY_S = 1.0


class LauncherLine:
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
        """A sign of life, at most one a second; what the worker waits for."""
        if waits or time.monotonic() - self._beat_at_s >= BEAT_EVERY_S:
            self._beat_at_s = time.monotonic()
            self.say(beat=waits)


def main() -> None:
    """Runs one worker until the launcher says stop."""
    torch.set_num_threads(1)
    line, folder, rank = LauncherLine(), Path(sys.argv[1]), int(sys.argv[2])
    try:
        job = RunJob.read(folder)
        runner = _trained_as(job, folder, rank, line)
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


def _trained_as(job: RunJob, folder: Path, rank: int, line: LauncherLine) -> Runner | TorchRunner:
    if job.options.runtime == "torch":
        from hippo.run.torch_runtime import prepare as prepare_torch

        return prepare_torch(job, folder, rank, line.beat)
    return prepare(job, folder, rank, line.beat)


def _step(runner: Runner | TorchRunner, order: dict[str, Any], line: LauncherLine) -> None:
    time.sleep(max(0.0, order["at"] - time.monotonic()))
    runner.run(order["go"], order["at"])
    runner.post()
    operations = [[one.kind, one.chunk, one.wave, one.start_s, one.end_s] for one in runner.done]
    line.say(done=order["go"], loss=runner.compute.loss(), operations=operations)


def _own(runner: Runner | TorchRunner) -> Part | None:
    """The layers of the worker; None: it only waits."""
    if isinstance(runner, Runner):
        return runner.compute.part if isinstance(runner.compute, Layers) else None
    return runner.part


def _save(runner: Runner | TorchRunner, folder: Path) -> None:
    """Every layer once: replicas are equal, so those of the first lane of the first pipeline speak for all."""
    part = _own(runner)
    if part is not None and (runner.worker.pipeline, runner.worker.lane) == (0, 0):
        save(part, folder)


def prepare(job: RunJob, folder: Path, rank: int, beat: Callable[[str], None]) -> Runner:
    """The worker, its neighbours met; ``beat`` hears signs of life, and what the worker waits for."""
    options = job.options
    work = job.work
    worker = work.workers[rank]
    claim(options.device, rank)
    meeting = Meeting(str(folder), rank, world=len(work.workers), device=options.device)
    inbox = Inbox()
    incoming, outgoing, team, groups = _meet(job.problem, work, worker, meeting, inbox)
    compute, gradients = _computing(job, work, worker, team, groups)
    ties = Ties(incoming, outgoing, inbox, team, Agreeing(inner_work(work, worker), worker, gradients, groups))
    habits = Habits(_free(work, worker, options.order), options.backward == "whole")
    return Runner(work, worker, compute, ties, habits, beat)


def _computing(
    job: RunJob, work: Work, worker: Worker, team: GroupTeam | None, groups: dict[str, Any]
) -> tuple[Compute, Gradients]:
    """What the worker computes, and what of it is agreed at every step."""
    inner, late = inner_work(work, worker), job.options.outer_late
    if job.options.stand_in:
        mine, chunks = times(job.problem, work)[worker.rank], tuple(work.chunks(worker))
        each = job.problem.workload.gradient_bytes_per_parameter
        gradients = StandInGradients(inner, bytes_per_parameter=each, sync_s=mine.sync_s)
        if is_local(work):
            return LocalStandIn(mine, chunks, outer_stand_in(job, work, worker, groups)), gradients
        return StandIn(mine, chunks), gradients
    part = _part(job, work, worker, team)
    if is_local(work):
        outer = OuterLayers(work, worker, part, OuterTies(groups, team, late))
        compute: Compute = LocalLayers(work, worker, part, job.problem.workload, outer)
    else:
        compute = Layers(work, worker, part, job.problem.workload)
    return compute, PartGradients(inner, worker, part, team)


def _part(job: RunJob, work: Work, worker: Worker, team: GroupTeam | None) -> Part:
    tp, _ = work.widths(work.stage(worker))
    split, settings = TensorSplit(tp, worker.tp_index, work.parts), settings_of(job)
    settings = replace(settings, tokens_per_step=round(settings.tokens_per_step * share(work, worker)))
    part = Part.new(job.problem.model, work.chunks(worker), settings, split, team or ALONE)
    if job.options.resume_from is not None:
        load(part, Path(job.options.resume_from))
    return part


def _free(work: Work, worker: Worker, order: str) -> bool:
    """Whether the worker may run what is ready: where a message of its crosses the WAN."""
    if order != "auto" or work.plan.interleave > 1:
        return order == "ready" and work.plan.interleave == 1
    mine = [one for one in work.transfers if worker.rank in (one.source, one.destination)]
    return any(work.crosses_wan(one) for one in mine)


def _meet(
    problem: Problem, work: Work, worker: Worker, meeting: Meeting, inbox: Inbox
) -> tuple[dict[Transfer, Channel], dict[Transfer, Channel], GroupTeam | None, dict[str, Any]]:
    """Every group of the worker, made in one order that holds for all workers."""
    wanted: dict[str, tuple[int, ...]] = {}
    mine = [one for one in work.transfers if worker.rank in (one.source, one.destination)]
    for one in mine:
        wanted[_channel(one)] = (one.source, one.destination)
    members = work.tensor_group(worker)
    if len(members) > 1:
        wanted["team-" + "-".join(map(str, members))] = members
    agreed = [*buckets(work, worker), *buckets(inner_work(work, worker), worker)]
    sums = {bucket.name: levels(problem, work, bucket.ranks) for bucket in agreed}
    own = meeting.device == "cpu"  # NCCL knows no tags, which tell sums apart; it has a way of its own
    said = {name: messages(each, worker.rank) for name, each in sums.items() if own}
    for name, each in said.items():
        wanted |= {f"{name}-{one}-{two}": (one, two) for one, two in (message.ends(worker.rank) for message in each)}
    if not own:
        wanted |= {name: tuple(rank for ranks in each for rank in ranks) for name, each in sums.items()}
    made = {name: meeting.group(name, wanted[name]) for name in sorted(wanted)}
    channels = {
        _channel(one): Channel(made[_channel(one)], failed=inbox.failed, codec=codec_of(work, one)) for one in mine
    }
    incoming = {one: channels[_channel(one)] for one in mine if one.destination == worker.rank}
    outgoing = {one: channels[_channel(one)] for one in mine if one.source == worker.rank}
    team = None
    if len(members) > 1:
        team = GroupTeam(made["team-" + "-".join(map(str, members))], len(members), worker.tp_index, meeting.device)
    groups: dict[str, Any] = {name: made[name] for name in sums if not own}
    short = {one.rank: LOCAL_BYTES // 4 for one in work.workers if work.whole_stages and one.domain == worker.domain}
    for name, each in said.items():
        ways = [message.ends(worker.rank) for message in each]
        made_of = {way: made[f"{name}-{way[0]}-{way[1]}"] for way in ways}
        sending = {way: Channel(made_of[way], failed=inbox.failed) for way in made_of if way[0] == worker.rank}
        every = [sending.get(way) or Channel(made_of[way], failed=inbox.failed) for way in ways]
        groups[name] = AllReduce(each, every, inbox.check, short)
    return incoming, outgoing, team, groups


def _channel(one: Transfer) -> str:
    return f"pair-{one.kind}-{one.source}-{one.destination}"


if __name__ == "__main__":
    main()
