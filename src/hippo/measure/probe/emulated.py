"""The prober inside ``hippo emulate``: a server in every domain's namespace, and legs that start there.

A thread that enters a network namespace takes with it the threads that it starts, and no others: one process measures
the whole emulated WAN.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import TypeVar

from hippo.emulate.emulation import Emulation
from hippo.emulate.namespaces import NAMES
from hippo.emulate.syscalls import set_network_namespace
from hippo.measure.probe.ask import PathMeasured, measure
from hippo.measure.probe.rounds import Leg
from hippo.measure.probe.serve import listening, serve
from hippo.measure.probe.wire import PORT, ProbeEffort

T = TypeVar("T")


def inside(namespace: str, body: Callable[[], T]) -> Future[T]:
    """Runs ``body`` in a thread of its own that lives in the network namespace."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            handle = os.open(os.path.join(NAMES, namespace), os.O_RDONLY)
            try:
                set_network_namespace(handle)
            finally:
                os.close(handle)
            future.set_result(body())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


@contextmanager
def emulated_legs(emulation: Emulation, pairs: tuple[tuple[str, str], ...]) -> Iterator[tuple[Leg, ...]]:
    """The legs between the domains of an emulation, with servers that answer while the context is open."""
    with ExitStack() as stack:
        for place in emulation.domains.values():
            stack.enter_context(_served(place.namespace))
        yield tuple(_leg(emulation, one, two) for one, two in pairs)


def _leg(emulation: Emulation, one: str, two: str) -> Leg:
    source, destination = emulation.domains[one], emulation.domains[two]

    def ask(effort: ProbeEffort) -> PathMeasured:
        return inside(source.namespace, lambda: measure(destination.address, PORT, effort)).result()

    return Leg((one, two), f"{one} to {two} ({destination.address}:{PORT})", ask)


@contextmanager
def _served(namespace: str) -> Iterator[None]:
    """A server in the namespace; it listens when the context opens."""
    stop, ready = Event(), Event()

    def body() -> None:
        with listening(PORT) as own:
            ready.set()
            serve(own, stop=stop.is_set)

    running = inside(namespace, body)
    running.add_done_callback(lambda _: ready.set())
    ready.wait()
    if running.done():
        running.result()  # raises what kept it from listening
    try:
        yield
    finally:
        stop.set()
        running.result()
