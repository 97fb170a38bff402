"""How far a long computation is, on stderr: nothing for the first second, then a bar (terminal) or plain lines."""

from __future__ import annotations

import sys
import time
from threading import Timer
from types import TracebackType
from typing import Any

PATIENCE_S = 1.0
PLAIN_EVERY_S = 5.0


class Watch:
    """A progress callback and a context: ``with Watch("planning") as watch: work(progress=watch)``.

    A timer, not the callback, opens the bar: work that never calls back is seen too.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._phase, self._share = "", 0.0
        self._said_at_s = float("-inf")
        self._bar: Any = None
        self._task: Any = None
        self._timer = Timer(PATIENCE_S, self._open)
        self._timer.daemon = True

    def __enter__(self) -> Watch:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, phase: str, share: float) -> None:
        """Takes note of a phase's name and the share of it that is done (0..1)."""
        self._phase, self._share = phase, min(max(share, 0.0), 1.0)
        if self._bar is not None:
            self._bar.update(self._task, description=self._words(), completed=self._share)
        elif self._said_at_s > float("-inf") and time.monotonic() - self._said_at_s >= PLAIN_EVERY_S:
            self._say()

    def _open(self) -> None:
        """The first second is over: show something."""
        if not sys.stderr.isatty():
            self._say()
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = bar.add_task(self._words(), total=1.0)
        bar.update(self._task, completed=self._share)
        bar.start()
        self._bar = bar

    def _words(self) -> str:
        return f"{self.title}: {self._phase}" if self._phase else self.title

    def _say(self) -> None:
        done = f", {self._share:.0%} done" if self._share else ""
        print(f"hippo: {self._words()}{done} ...", file=sys.stderr, flush=True)
        self._said_at_s = time.monotonic()  # only now: the callback, in another thread, speaks after the first line
