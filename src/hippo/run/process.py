"""The program of one process: ``python -m hippo.run.process FOLDER PROCESS``.

It does what the launcher says, one JSON object a line: on stdin ``{"prepare": version}``, ``{"forget": version}``,
``{"hand": version}``, ``{"go": step, "at": monotonic seconds, "version": ..}``, ``{"update": step}``, ``{"abort":
step}``, ``{"break": step}``, ``{"outer": step, "version": .., "now": ..}``, ``{"use": step}``, ``{"save": folder,
"number": .., "version": ..}`` or ``{"stop": true}``; on stdout ``{"prepared": ..}``, ``{"streams": ..}``, ``{"handed":
..}``, ``{"beat": ..}``, ``{"agreed": step, ..}``, ``{"done": step, ..}``, ``{"summed": step}``,
``{"broken": ..}``, ``{"aborted": step}``, ``{"saved": number, ..}`` or ``{"failed": ..}``. A version is prepared beside
the step that runs. Nobody changes a weight before all have agreed on gradients, so a step that breaks can be given up
by all; and nobody uses what replicas that train alone agree on before all have it. When stdin ends the launcher is
gone, and so is the process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from shutil import rmtree
from threading import Lock, Thread, get_native_id
from typing import TYPE_CHECKING, Any

from hippo.run.job import replicas_alone
from hippo.run.version import Version

if TYPE_CHECKING:
    from hippo.run.seat import Seat

BEAT_EVERY_S = 1.0
OVER = frozenset(
    ("agreed", "done", "summed", "handed", "broken", "aborted")
)  # with which nothing is waited for any more
IDLE = 19  # niceness of what may wait


class LauncherLine:
    """The way to the launcher and back."""

    def __init__(self, folder: Path) -> None:
        """``folder``: of the run, which goes with a launcher that was killed."""
        self.orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.broken_off: Callable[[], None] = lambda: None
        self.heard_s: Callable[[], float] = lambda: 0.0  # when the last message of others came
        self.beside: Callable[[dict[str, Any]], None] = lambda order: None  # how a version is prepared
        self._folder = folder
        self._lock, self._beat_at_s, self._waiting = Lock(), 0.0, ""
        self._out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints goes to the log
        Thread(target=self._listen, daemon=True).start()
        Thread(target=self._still_wait, daemon=True).start()

    def _listen(self) -> None:
        steps = False  # whether a step was asked for last: nothing else is overtaken
        for line in sys.stdin:
            order = json.loads(line)
            if "abort" in order or "break" in order:
                self.broken_off()
            if "break" in order:
                continue
            if "prepare" in order and steps:
                self.beside(order)
                continue
            steps = "go" in order
            self.orders.put(order)
        rmtree(self._folder, ignore_errors=True)
        os._exit(1)

    def _still_wait(self) -> None:
        """Who waits says so, or that something has come since: all of a sum may take longer than a run waits where
        nothing moves."""
        said_s = 0.0
        while True:
            time.sleep(BEAT_EVERY_S)
            if waiting := self._waiting:
                self.say(beat="" if self.heard_s() > said_s else waiting)
            said_s = time.monotonic()

    def say(self, **told: Any) -> None:
        """One line to the launcher."""
        if told.keys() & OVER:
            self._waiting = ""
        with self._lock:
            self._out.write(json.dumps(told) + "\n")
            self._out.flush()

    def beat(self, waits: str) -> None:
        """A sign of life, at most one a second; what the worker waits for is said every second while it does."""
        self._waiting = waits
        if time.monotonic() - self._beat_at_s >= BEAT_EVERY_S:
            self._beat_at_s = time.monotonic()
            self.say(beat=waits)


def main() -> None:
    """Runs one process until the launcher says stop. torch, which takes seconds to load, is loaded when the launcher
    has heard that the process lives."""
    folder, process = Path(sys.argv[1]), int(sys.argv[2])
    line = LauncherLine(folder)
    line.say(beat="")
    import torch

    from hippo.run.seat import Seat

    torch.set_num_threads(1)
    torch.serialization.set_crc32_options(False)  # files of checkpoints have digests of our own
    line.say(beat="")

    def answer(do: Callable[[], None]) -> None:
        """Does something; whatever goes wrong is told, and ends the process."""
        try:
            do()
        except BaseException as error:
            import traceback

            traceback.print_exc()
            line.say(failed=_reason(error))
            os._exit(1)

    def work() -> None:
        seat = Seat(folder, process, line.beat, Version.read(folder, 0).job.options)

        def beside(order: dict[str, Any]) -> None:
            Thread(target=answer, args=(partial(_prepare, seat, order, line),), daemon=True).start()

        line.broken_off, line.beside, line.heard_s, started_s = seat.break_off, beside, seat.heard_s, 0.0
        while "stop" not in (order := line.orders.get()):
            if "prepare" in order:
                beside(order)
            elif "hand" in order:
                _hand(seat, order["hand"], line)
            elif "forget" in order:
                seat.forget(order["forget"])
            elif "save" in order:
                _enter(seat, order["version"])
                write = _saving(seat, order["number"], Path(order["save"]), line)
                Thread(target=answer, args=(write,), daemon=True).start()
            elif "abort" in order:
                seat.give_up()
                line.say(aborted=order["abort"])
            elif "update" in order:
                _update(seat, order["update"], started_s, line)
            elif "outer" in order:
                _enter(seat, order["version"])
                _agree(seat, order["outer"], order["now"], line)
            elif "use" in order:
                seat.use()
            else:
                started_s = order["at"]
                _step(seat, order, line)

    answer(work)
    os._exit(0)  # threads that wait for messages which never come are left as they are


def _reason(error: BaseException) -> str:
    """What was at the root, in a line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def _prepare(seat: Seat, order: dict[str, Any], line: LauncherLine) -> None:
    number = order["prepare"]
    ways = {key: order.get(key, False) for key in ("background", "warms")}
    try:
        warmed = seat.prepare(number, order["after"], **ways)
    except Exception:
        if seat.wants(number):
            raise
        return  # it was given up, and whoever was to be met has gone
    line.say(prepared=number, warmed=warmed)


def _hand(seat: Seat, number: int, line: LauncherLine) -> None:
    try:
        line.say(handed=number, sent=seat.hand())
    except RuntimeError as error:  # whoever was to send has gone; what is here is as it was
        line.say(broken=_reason(error))


def _enter(seat: Seat, version: int) -> None:
    """Whoever is left of a version goes over to the next with what is asked of it first."""
    if seat.version is None or seat.version.number != version:
        seat.enter()


def _step(seat: Seat, order: dict[str, Any], line: LauncherLine) -> None:
    _enter(seat, order["version"])
    runner = seat.runner
    assert runner is not None
    runner.post()
    time.sleep(max(0.0, order["at"] - time.monotonic()))
    from hippo.run.executor.channels import BrokenError

    try:
        runner.run(order["go"], order["at"])
    except BrokenError as error:
        line.say(broken=_reason(error))
        return
    line.say(agreed=order["go"], loss=runner.compute.loss())


def _agree(seat: Seat, step: int, now: bool, line: LauncherLine) -> None:
    """What replicas that train alone agree on, where a sum is under way."""
    from hippo.run.executor.channels import BrokenError

    try:
        seat.agree(step, now=now)
    except BrokenError as error:
        line.say(broken=_reason(error))
        return
    line.say(summed=step)


def _update(seat: Seat, step: int, started_s: float, line: LauncherLine) -> None:
    from hippo.run.executor.channels import BrokenError

    runner = seat.runner
    assert runner is not None
    whole = True  # whether what replicas that train alone sum is here; those who are left make it anew where it is not
    try:
        seat.update(step, started_s)
    except BrokenError:
        whole = False
    if seat.streaming is not None:
        line.say(streams=seat.streaming.told())
    operations = [[one.kind, one.chunk, one.wave, one.start_s, one.end_s] for one in runner.done]
    asking = getattr(runner, "asking", None)
    asked = [] if asking is None else [asking.asked, asking.asked_s]
    line.say(done=step, whole=whole, operations=operations, asked=asked, **seat.telemetry(started_s))


def _saving(seat: Seat, number: int, folder: Path, line: LauncherLine) -> Callable[[], None]:
    """What writes the layers as they are now, beside the training. Every layer once: replicas are equal, so those of
    the first lane of the first pipeline speak for all; where replicas train alone, those of each pipeline for its own.
    Told with it: why nothing is saved (a full disk), which is no reason to end a training; empty: all is."""
    assert seat.version is not None
    worker = seat.version.worker(seat.process)
    speaks = worker.pipeline == 0 or replicas_alone(seat.version.job.plan) > 1
    snapshot = seat.snapshot() if speaks and worker.lane == 0 else None

    def written() -> None:
        try:
            line.say(saved=number, why="", files={} if snapshot is None else snapshot.write(folder, _wait_politely))
        except OSError as error:
            line.say(saved=number, why=error.strerror or str(error), files={})

    return written


def _wait_politely() -> None:
    """This thread does the rest while nobody else has anything to do, where the system knows threads."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, get_native_id(), IDLE)


if __name__ == "__main__":
    main()
