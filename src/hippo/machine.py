"""What the machine at hand has, and work shared out to processes of it, or of a Ray cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import cpu_count, sysconf
from signal import SIG_BLOCK, SIG_UNBLOCK, SIGINT, pthread_sigmask
from typing import Any, TypeVar

from hippo.errors import InputError, MissingExtraError

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


def imported_ray() -> Any:
    """Ray; ``InputError`` where it is not installed."""
    try:
        import ray
    except ImportError:
        raise MissingExtraError("Ray", "learn,ray", source="--ray") from None
    return ray


@contextmanager
def ray_cluster(workers: int) -> Iterator[Any]:
    """Ray, with room for so many workers of a core each: the cluster that ``RAY_ADDRESS`` names or that ``ray start``
    made here, else one that is started on this machine and ended afterwards.

    Raises
    ------
    InputError
        Ray is not installed, or the cluster has fewer cores.
    """
    ray = imported_ray()
    before = ray.is_initialized()
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if not before:
        try:
            ray.init(address="auto", **quiet)
        except ConnectionError:
            ray.init(address="local", num_cpus=max(workers, cpu_count() or 1), include_dashboard=False, **quiet)
    try:
        cores = int(ray.cluster_resources().get("CPU", 0))
        if cores < workers:
            problem = f"the Ray cluster has {cores} cores for {workers} workers"
            raise InputError(problem, source="--workers", value=workers, remedy=f"give {max(1, cores)} or fewer")
        yield ray
    finally:
        if not before:
            ray.shutdown()


def on_ray(work: Callable[[Task], Result], tasks: Sequence[Task], workers: int) -> Iterator[tuple[int, Result]]:
    """As ``shared_out``, by so many workers of a Ray cluster; who is lost is replaced and its task done anew."""

    def done(task: Task) -> Result:  # `work` may be what Ray does not take for a function
        return work(task)

    with ray_cluster(workers) as ray:
        remote = ray.remote(num_cpus=1, max_retries=3)(done)
        todo = list(enumerate(tasks))[::-1]
        waiting: dict[Any, int] = {}
        while todo or waiting:
            while todo and len(waiting) < workers:
                place, task = todo.pop()
                waiting[remote.remote(task)] = place
            (first, *_), _ = ray.wait(list(waiting), num_returns=1)
            place = waiting.pop(first)
            try:
                found = ray.get(first)
            except ray.exceptions.RayTaskError as error:
                raise error.as_instanceof_cause() from None
            except ray.exceptions.RayError as error:
                problem, remedy = "workers were lost four times over one task", "look at the cluster's nodes"
                raise InputError(problem, source="--ray", value=type(error).__name__, remedy=remedy) from None
            yield place, found


def shared_out(
    work: Callable[[Task], Result], tasks: Sequence[Task], processes: int, *, ray: bool = False
) -> Iterator[tuple[int, Result]]:
    """Place and result of each task as it is done; with one process here, in order. ``ray``: by workers of a Ray
    cluster in place of processes.

    Whoever stops taking results (Ctrl-C, a request to end, an error) ends the processes at once, whatever they are at.
    """
    if ray:
        yield from on_ray(work, tasks, processes)
        return
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


def resident_bytes() -> int:
    """Memory that this process holds now; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as told:
            return int(told.read().split()[1]) * sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
