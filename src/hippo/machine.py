"""What the machine at hand has, and work shared out to processes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from signal import SIG_BLOCK, SIG_UNBLOCK, SIGINT, pthread_sigmask
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def available_bytes() -> float | None:
    """Memory that this machine has free; None where it does not say."""
    try:
        with open("/proc/meminfo") as stream:
            found = re.search(r"^MemAvailable:\s+(\d+) kB", stream.read(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else 1024.0 * int(found[1])


def shared_out(work: Callable[[Task], Result], tasks: Sequence[Task], processes: int) -> Iterator[tuple[int, Result]]:
    """Place and result of each task as it is done; with one process here, in order.

    Whoever stops taking results (Ctrl-C, a request to end, an error) ends the processes at once, whatever they are at.
    """
    if processes == 1 or len(tasks) < 2:
        yield from ((place, work(task)) for place, task in enumerate(tasks))
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import active_children, get_context

    others = set(active_children())
    pool = ProcessPoolExecutor(min(processes, len(tasks)), mp_context=get_context("spawn"))
    pthread_sigmask(SIG_BLOCK, {SIGINT})  # what is started now never hears of Ctrl-C: it is ended from here
    try:
        waiting = {pool.submit(work, task): place for place, task in enumerate(tasks)}
    finally:
        pthread_sigmask(SIG_UNBLOCK, {SIGINT})
    try:
        for done in as_completed(waiting):
            yield waiting[done], done.result()
    except BaseException:
        for each in set(active_children()) - others:
            each.kill()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
