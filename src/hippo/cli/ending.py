"""A request to end (SIGTERM, SIGHUP) ends a command as Ctrl-C does: what it has started and written goes first, and
nobody who asks again breaks that off."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from hippo.cli.output import say

REQUESTS = (signal.SIGTERM, signal.SIGHUP)


class _Asked(BaseException):
    """No ``Exception``, which may be caught on the way: by ``Thread.start``, which then forgets a thread that runs."""

    def __init__(self, number: int) -> None:
        self.number = number


@contextmanager
def ended_cleanly() -> Iterator[None]:
    """Within it a request to end is an exception, so that contexts are left; exit code 128 + its number.

    What the caller ignores (``nohup``) stays ignored. Only in the main thread.
    """
    before = {number: signal.getsignal(number) for number in (*REQUESTS, signal.SIGINT)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, _end)
    try:
        yield
    except _Asked as asked:
        raise typer.Exit(128 + asked.number) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _: FrameType | None) -> None:
    """The first request ends; those that follow must not break off the cleaning."""
    for each in (*REQUESTS, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    say(f"ended: {signal.strsignal(number)}")
    raise _Asked(number)
