"""How far a long computation is, on stderr: nothing for the first second, then a bar (terminal) or plain lines.

``--quiet``: nothing at all; ``--verbose``: a line for each phase, at once, with the seconds so far.
"""

from __future__ import annotations

import sys
import time
from threading import Timer
from types import TracebackType
from typing import Any

from hippo.cli.output import Loudness, loudness, say

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
        self._began_s = time.monotonic()

    def __enter__(self) -> Watch:
        if loudness() is Loudness.USUAL:
            self._timer.start()
        elif loudness() is Loudness.VERBOSE:
            say(f"{self.title} ...")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._timer.ident is not None:
            self._timer.join()
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, phase: str, share: float) -> None:
        """Takes note of a phase's name and the share of it that is done (0..1)."""
        before, self._phase, self._share = self._phase, phase, min(max(share, 0.0), 1.0)
        if loudness() is Loudness.VERBOSE:
            if phase != before:
                say(f"{self._words()} (after {time.monotonic() - self._began_s:.2f} s) ...")
        elif self._bar is not None:
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
        say(f"{self._words()}{done} ...")
        self._said_at_s = time.monotonic()  # only now: the callback, in another thread, speaks after the first line
