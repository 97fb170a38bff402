"""One piece of work beside the loop, in a process, a thread, or not beside at all."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

WAYS = ("process", "thread", "none")


@dataclass(frozen=True)
class Failed:
    """Work that ended with an error."""

    reason: str


class Background:
    """At most one piece of work at a time.

    ``process``: the work neither holds up nor brings down the loop; what is handed over must be picklable. It ends
    when the loop dies. ``thread``: the same process. ``none``: at once, in ``start``.
    """

    def __init__(self, way: str) -> None:
        assert way in WAYS
        self._way = way
        self._worker: Any = None
        self._ear: Connection | None = None
        self._answer: Any = None

    @property
    def busy(self) -> bool:
        """Whether work goes on, or its answer waits to be taken."""
        return self._worker is not None

    def start(self, work: Callable[..., Any], *given: Any) -> None:
        """Begin; there must be nothing under way."""
        assert not self.busy
        self._answer = None
        if self._way == "process":
            context = multiprocessing.get_context("spawn")
            self._ear, mouth = context.Pipe(duplex=False)
            self._worker = context.Process(target=_tell, args=(mouth, work, given), daemon=True)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for whoever began it
            try:
                self._worker.start()
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            mouth.close()
        elif self._way == "thread":
            self._worker = threading.Thread(target=self._keep, args=(work, given), daemon=True)
            self._worker.start()
        else:
            self._worker = True
            self._keep(work, given)

    def take(self, *, patient: bool = False) -> Any:
        """The answer, ``Failed``, or None: not yet. ``patient``: wait for it."""
        if self._way == "process":
            return self._take_told(patient)
        if self._way == "thread" and self._worker is not None:
            self._worker.join(None if patient else 0.0)
            if self._worker.is_alive():
                return None
        self._worker, answer, self._answer = None, self._answer, None
        return answer

    def end(self) -> None:
        """Let what is under way in a process fail: whoever waits for it hears that it died."""
        if self._way == "process" and (worker := self._worker) is not None:
            worker.kill()

    def close(self) -> None:
        """Give up what is under way in a process; wait for a thread."""
        if self._way == "process" and self._worker is not None:
            self._worker.terminate()
            self._worker.join()
            assert self._ear is not None
            self._ear.close()
        elif self._way == "thread" and self._worker is not None:
            self._worker.join()
        self._worker = None

    def _take_told(self, patient: bool) -> Any:
        if self._worker is None or self._ear is None or not (patient or self._ear.poll()):
            return None
        try:
            answer = self._ear.recv()
        except (EOFError, OSError):  # also in the middle of what it says
            answer = Failed("its process died")
        self._worker.join()
        self._ear.close()
        self._worker = None
        return answer

    def _keep(self, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self._answer = _done(work, given)


def _done(work: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    try:
        return work(*given)
    except Exception:  # whatever breaks in an update must not break the loop
        return Failed(traceback.format_exc(limit=-1).strip().splitlines()[-1])


def _tell(mouth: Connection, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    """In the other process; it ends with the one that asked."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    answer = _done(work, given)
    try:
        mouth.send(answer)
    except BrokenPipeError:
        return  # the loop is gone
    finally:
        mouth.close()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
