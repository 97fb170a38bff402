"""A way of messages through a third domain: what one process sends, another one there hands on as it comes.

gloo joins two processes directly, so both halves of such a way are TCP connections of our own. What a channel sees is
the same: a group of two whose first sends and whose second receives, with messages told apart by their tags. Bytes
are handed on one after another, so a message streams through: its first byte is on the second link before its last one
has left the first.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread

import torch

from hippo.run.executor.sockets import Listening, connected, receive_into
from hippo.run.executor.warming import Product, take_turns, turns

Tensor = torch.Tensor
HEAD = struct.Struct("!qQ")  # tag, bytes that follow
CAME = b"."
HANDED_ON_BYTES = 1 << 18
"""Most at a time."""


class Passing:
    """A message that is under way, as gloo's work is."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.error = tensor, ""
        self._over = Event()

    def end(self, error: str = "") -> None:
        """It has gone or come, or never will."""
        self.error = error
        self._over.set()

    def wait(self) -> None:
        """Comes back when it has gone or come; ``RuntimeError``: the way is broken."""
        self._over.wait()
        if self.error:
            raise RuntimeError(self.error)


class RelaySender:
    """The first end of a way."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._broken = connection, ""
        self._queue: SimpleQueue[tuple[int, Passing] | None] = SimpleQueue()
        Thread(target=self._run, daemon=True).start()

    def send(self, tensors: Sequence[Tensor], _to: int, tag: int) -> Passing:
        """Begins to send; messages go one after another."""
        if self._broken:
            raise RuntimeError(self._broken)
        (tensor,) = tensors
        message = Passing(tensor)
        self._queue.put((tag, message))
        return message

    def close(self) -> None:
        """Nothing goes any more."""
        self._queue.put(None)

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            tag, message = entry
            try:
                if not self._broken:
                    body = _bytes_of(message.tensor)
                    self._connection.sendall(HEAD.pack(tag, len(body)))
                    self._connection.sendall(body)
            except OSError as error:
                self._broken = f"the way through a third domain broke: {error}"
            message.end(self._broken)
        self._connection.close()


class RelayReceiver:
    """The last end of a way. Where nothing comes any more, whoever waits waits on: sums of local SGD are asked for long
    before they begin, and a porter that has left in order is no fault. The launcher knows who died, and what moves.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._lock = connection, Lock()
        self._posted: dict[int, deque[Passing]] = {}
        self._early: dict[int, deque[Tensor]] = {}  # what came before it was asked for
        Thread(target=self._run, daemon=True).start()

    def recv(self, tensors: Sequence[Tensor], _from: int, tag: int) -> Passing:
        """Asks for the next message of a tag, which is written into the tensor."""
        (tensor,) = tensors
        message = Passing(tensor)
        with self._lock:
            if early := self._early.get(tag):
                _bytes_of(tensor)[:] = early.popleft().numpy().data
                message.end()
            else:
                self._posted.setdefault(tag, deque()).append(message)
        return message

    def close(self) -> None:
        """Nothing comes any more."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        head = memoryview(bytearray(HEAD.size))
        with self._connection, suppress(OSError):
            while True:
                receive_into(self._connection, head)
                tag, size = HEAD.unpack(head)
                with self._lock:
                    posted = self._posted.get(tag)
                    waiting = posted.popleft() if posted else None
                if waiting is None:
                    self._came_early(tag, size)
                else:
                    receive_into(self._connection, _bytes_of(waiting.tensor))
                    waiting.end()

    def _came_early(self, tag: int, size: int) -> None:
        body = torch.empty(size, dtype=torch.uint8)
        receive_into(self._connection, body.numpy().data)
        with self._lock:
            if posted := self._posted.get(tag):
                message = posted.popleft()
                _bytes_of(message.tensor)[:] = body.numpy().data
                message.end()
            else:
                self._early.setdefault(tag, deque()).append(body)


class RelayPorter:
    """The middle of a way: hands on what comes."""

    def __init__(self, source: socket.socket, destination: socket.socket) -> None:
        self._ends = source, destination
        Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """Nothing is handed on any more."""
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        source, destination = self._ends
        room = memoryview(bytearray(HANDED_ON_BYTES))
        with suppress(OSError):
            while count := source.recv_into(room):
                destination.sendall(room[:count])
        self.close()
        for end in self._ends:
            end.close()


RelayEnd = RelaySender | RelayReceiver | RelayPorter


def relayed(
    path: Path, processes: Sequence[int], me: int, patience_s: float, product: Product = lambda one, other: 0.0
) -> RelayEnd:
    """The own part of a way from the first of three processes through the second to the third; comes back when all are
    there, and both connections are warm where ``product`` says so. ``path``: of files that say where the second and the
    third listen, without their numbers.

    ``RuntimeError`` or ``OSError``: somebody does not come.
    """
    source, middle, destination = processes
    if me == source:
        return RelaySender(_warmed(connected(_place(path, middle), me, patience_s), product(source, middle)))
    listening = Listening(_place(path, me), 1, patience_s)
    came, _ = listening.accept()
    listening.close()
    before = middle if me == destination else source
    with suppress(OSError):  # who was to come has gone: whoever needs the way will hear of it
        for size in turns(product(before, me)):
            receive_into(came, memoryview(bytearray(size)))
            came.sendall(CAME)
    if me == destination:
        return RelayReceiver(came)
    return RelayPorter(
        came, _warmed(connected(_place(path, destination), me, patience_s), product(middle, destination))
    )


def _warmed(connection: socket.socket, product_bytes: float) -> socket.socket:
    """A connection, after its turns."""

    def hear() -> None:
        receive_into(connection, memoryview(bytearray(len(CAME))))

    with suppress(OSError):
        take_turns(connection.getpeername()[0], product_bytes, lambda size: connection.sendall(bytes(size)), hear)
    return connection


def _place(path: Path, process: int) -> Path:
    return path.with_name(f"{path.name}-{process}.json")


def _bytes_of(tensor: Tensor) -> memoryview:
    found: memoryview = tensor.detach().reshape(-1).view(torch.uint8).numpy().data
    return found
