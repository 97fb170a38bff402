"""Layers stream to where they go while training goes on: their state, then the gradients of every step since.

A slice, some rows of one weight, is sent as it is after some step: its master copy and both moments. From then on the
summed gradient of every step follows, a third of the bytes, and the taker makes the same steps of AdamW: each number
follows from its own gradient alone, so the copy is the giver's bit for bit. A slice that is three gradients behind is
sent whole again, which is as many bytes; so what is left to send is never more than stop and copy would send. At the
border of a step where the run goes over, the rest is sent while training stands still.

A pair of processes has a connection of its own for it, which sends what training leaves of the link (``spare.py``).
Whatever breaks it breaks the move alone: the process goes on.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any, Protocol

import torch

from hippo.run.executor.channels import settle
from hippo.run.executor.handing import LayerExchange, Piece, PieceViews, views
from hippo.run.executor.sockets import Listening, connected, receive_into
from hippo.run.executor.spare import Spare
from hippo.run.handover import GRADIENT, STATE
from hippo.run.model.optimizer import AdamRates, AdamState, advance
from hippo.run.model.stage import Part, settings_of
from hippo.run.version import Version, place

Tensor = torch.Tensor

SLICE_NUMBERS = 1 << 18
"""Most numbers of a slice: it is copied while no step can end."""
WHOLE, STEP, END = 1, 2, 3  # kinds of messages
HEAD = struct.Struct("!BIQQQQ")  # kind, piece, first row, last row + 1, step, bytes that follow
PLACED = b"."


@dataclass(frozen=True)
class StateSlice:
    """Rows [start, stop) of a piece."""

    piece: int  # place among all pieces of a pair of processes
    start: int
    stop: int
    numbers: int


def sliced(piece: int, shape: Sequence[int], most: int = SLICE_NUMBERS) -> Iterable[StateSlice]:
    """A piece of a shape as slices of so many numbers at most, one row at least."""
    row = 1
    for size in shape[1:]:
        row *= size
    rows = max(1, most // max(1, row))
    for start in range(0, shape[0], rows):
        stop = min(shape[0], start + rows)
        yield StateSlice(piece, start, stop, (stop - start) * row)


class StreamedState(Protocol):
    """What a process holds of the pieces of a pair."""

    def shape(self, piece: int) -> Sequence[int]:
        """Of a weight."""
        ...

    def whole(self, one: StateSlice) -> Tensor:
        """A copy of the state, flat: master, first, second."""
        ...

    def gradient(self, one: StateSlice) -> Tensor:
        """A copy of the summed gradient, flat."""
        ...

    def put(self, one: StateSlice, came: Tensor) -> None:
        """Takes a state."""
        ...

    def step(self, one: StateSlice, came: Tensor, step: int) -> None:
        """Takes a gradient: the state after ``step``."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Of the numbers."""
        ...


class StreamedLayers:
    """Of real layers."""

    def __init__(self, part: Part, pieces: Sequence[Piece], rates: AdamRates) -> None:
        """``rates``: of the steps that are taken, which are those of the plan before."""
        self._views, self._rates = [views(part, piece, part.split.size) for piece in pieces], rates
        self.dtype = self._views[0].total.dtype

    def shape(self, piece: int) -> Sequence[int]:
        """Of a weight."""
        return tuple(self._views[piece].total.shape)

    @torch.no_grad()
    def whole(self, one: StateSlice) -> Tensor:
        """A copy of the state, flat: master, first, second."""
        return torch.cat([_rows(each, one).reshape(-1) for each in self._views[one.piece].tensors]).cpu()

    @torch.no_grad()
    def gradient(self, one: StateSlice) -> Tensor:
        """A copy of the summed gradient, flat."""
        return _rows(self._views[one.piece].total, one).reshape(-1).clone().cpu()

    @torch.no_grad()
    def put(self, one: StateSlice, came: Tensor) -> None:
        """Takes a state."""
        for each, flat in zip(self._views[one.piece].tensors, came.chunk(STATE), strict=True):
            rows = _rows(each, one)
            rows.copy_(flat.view_as(rows))

    @torch.no_grad()
    def step(self, one: StateSlice, came: Tensor, step: int) -> None:
        """Takes a gradient: the state after ``step``."""
        held: PieceViews = self._views[one.piece]
        state = AdamState(*(_rows(each, one) for each in held.tensors))
        gradient = came.view_as(state.master).to(state.master.device)
        advance([state], [gradient], step, self._rates)


class Bytes:
    """Of a stand-in: as many numbers as its layers have."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers, self.dtype = numbers, torch.float32
        self._zeros = torch.zeros(STATE * min(max(numbers), SLICE_NUMBERS))

    def shape(self, piece: int) -> Sequence[int]:
        """One row a number."""
        return (self._numbers[piece],)

    def whole(self, one: StateSlice) -> Tensor:
        """Zeros."""
        return self._zeros[: STATE * one.numbers]

    def gradient(self, one: StateSlice) -> Tensor:
        """Zeros."""
        return self._zeros[: one.numbers]

    def put(self, one: StateSlice, came: Tensor) -> None:
        """Nothing is kept."""

    def step(self, one: StateSlice, came: Tensor, step: int) -> None:
        """Nothing is kept."""


def _rows(tensor: Tensor, one: StateSlice) -> Tensor:
    return tensor[one.start : one.stop]


# ---------------------------------------------------------------------------------------------------------------- give
class Giving:
    """One process's way to one taker."""

    def __init__(self, held: StreamedState, pieces: int, connection: socket.socket, spare: Spare | None) -> None:
        self.spare, self.broken, self.sent_bytes = spare, "", 0
        self._held, self._connection = held, connection
        self._width = held.dtype.itemsize
        self._unsent = [one for piece in range(pieces) for one in sliced(piece, held.shape(piece))]
        self._unsent.reverse()  # the last is the next
        self._behind: dict[StateSlice, list[tuple[int, Tensor]]] = {}  # of what was sent: gradients that are not
        self._now, self._left_of_message = 0, 0
        self._lock, self._hurry, self._over = Condition(), Event(), False
        self._thread = Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        """Sends from now on."""
        self._thread.start()

    def made(self, step: int) -> None:
        """Notes the gradients of a step whose weights are about to change; ``lock`` is held meanwhile."""
        for one, behind in list(self._behind.items()):
            if len(behind) + 1 >= STATE // GRADIENT:
                del self._behind[one]
                self._unsent.insert(0, one)
            else:
                behind.append((step, self._held.gradient(one)))
        self._now = step

    @property
    def lock(self) -> Condition:
        """Held while weights change."""
        return self._lock

    @property
    def left_bytes(self) -> int:
        """Still to send, were training to stand still now."""
        with self._lock:
            numbers = STATE * sum(one.numbers for one in self._unsent)
            numbers += GRADIENT * sum(one.numbers * len(behind) for one, behind in self._behind.items())
            return numbers * self._width + self._left_of_message

    def end(self) -> int:
        """Sends the rest at once; the bytes that were sent in all, when the taker has them in place.

        ``RuntimeError``: the connection broke.
        """
        with self._lock:
            self._over = True
            self._hurry.set()
            self._lock.notify()
        self._thread.join()
        if self.broken:
            raise RuntimeError(f"layers could not be sent: {self.broken}")
        return self.sent_bytes

    def close(self) -> None:
        """Sends no more."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self.broken = self.broken or "it was given up"
            self._unsent.clear()
            self._behind.clear()
            self._over = True
            self._hurry.set()
            self._lock.notify()

    def nudge(self) -> None:
        """There is something to send again; ``lock`` is held."""
        self._lock.notify()

    def _run(self) -> None:
        try:
            while True:
                head, body = self._next()
                self._send(head)
                if body is None:
                    break
                self._send(body.view(torch.uint8).numpy().data)
            if self._connection.recv(1) != PLACED:
                raise OSError("the taker left")
        except OSError as error:
            self.broken = self.broken or str(error)
        finally:
            self._connection.close()
            if self.spare is not None:
                self.spare.close()

    def _next(self) -> tuple[bytes, Tensor | None]:
        """The next message: gradients of what was sent, oldest first, else a slice that was not."""
        with self._lock:
            while True:
                found = next(((one, behind) for one, behind in self._behind.items() if behind), None)
                if found is not None:
                    one, behind = found
                    step, body = behind.pop(0)
                    return self._message(STEP, one, step, body)
                if self._unsent:
                    one = self._unsent.pop()
                    self._behind[one] = []
                    return self._message(WHOLE, one, self._now, self._held.whole(one))
                if self._over:
                    return HEAD.pack(END, 0, 0, 0, 0, 0), None
                self._lock.wait()

    def _message(self, kind: int, one: StateSlice, step: int, body: Tensor) -> tuple[bytes, Tensor]:
        self._left_of_message = body.nbytes
        return HEAD.pack(kind, one.piece, one.start, one.stop, step, body.nbytes), body

    def _send(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            count = len(view) if self.spare is None else self.spare.wait(len(view), self._hurry)
            sent = self._connection.send(view[:count])
            self.sent_bytes += sent
            self._left_of_message = max(0, self._left_of_message - sent)
            view = view[sent:]


# ---------------------------------------------------------------------------------------------------------------- take
class Taking:
    """One process's way from one giver."""

    def __init__(self, held: StreamedState, connection: socket.socket) -> None:
        self.broken = ""
        self._held, self._connection = held, connection
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Comes back when all is in place; ``RuntimeError``: the connection broke."""
        self._thread.join()
        if self.broken:
            raise RuntimeError(f"layers did not come: {self.broken}")

    def close(self) -> None:
        """Takes no more."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        try:
            while True:
                kind, piece, start, stop, step, size = HEAD.unpack(self._receive(HEAD.size).numpy().tobytes())
                if kind == END:
                    self._connection.sendall(PLACED)
                    return
                came = self._receive(size).view(self._held.dtype)
                one = StateSlice(piece, start, stop, len(came) // (STATE if kind == WHOLE else GRADIENT))
                if kind == WHOLE:
                    self._held.put(one, came)
                else:
                    self._held.step(one, came, step)
        except OSError as error:
            self.broken = str(error)
        finally:
            self._connection.close()

    def _receive(self, size: int) -> Tensor:
        found = torch.empty(size, dtype=torch.uint8)
        receive_into(self._connection, found.numpy().data)
        return found


# ------------------------------------------------------------------------------------------------------------- process
class Streaming:
    """What one process gives and takes while training goes on, until a version of the run follows another.

    Comes back from its making when all connections are there; layers stream from ``begin`` on, into a part that nobody
    runs yet. ``do`` ends it at the border of a step, as of ``Handing``.
    """

    def __init__(
        self, old: Version, new: Version, process: int, folder: Path, parts: tuple[Part | None, Part | None]
    ) -> None:
        self._exchange, (self._before, self._after) = LayerExchange.of(old, new, process), parts
        self.number, self._device, self._rates = new.number, new.job.options.computes_on, settings_of(old.job).rates
        self.closed = False
        own, patience_s = place(folder, new.number), new.job.options.timeout_s
        give, take = self._exchange.give, self._exchange.take
        self.giving: list[Giving] = []
        self.taking: list[Taking] = []
        listener = Listening(own / _file(process), len(take), patience_s) if take else None
        domains = {**_domains(old), **_domains(new)}
        for other, layers in sorted(give.items()):
            pieces = [piece for each in layers.values() for piece in each]
            connection = connected(own / _file(other), process, patience_s, lambda: self.closed)
            with suppress(OSError):  # cubic leaves slow start where training's messages delay it: it takes long then
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
            spare = None
            if domains[process] != domains[other]:
                spare = Spare(connection, _rate(new, domains[process], domains[other]))
            self.giving.append(Giving(self._holding(self._before, pieces), len(pieces), connection, spare))
        while listener is not None and len(self.taking) < len(take):
            connection, other = listener.accept()
            pieces = [piece for each in take[other].values() for piece in each]
            self.taking.append(Taking(self._holding(self._after, pieces), connection))
        if listener is not None:
            listener.close()

    def _holding(self, part: Part | None, pieces: Sequence[Piece]) -> StreamedState:
        if part is not None:
            return StreamedLayers(part, pieces, self._rates)
        layers = self._exchange.both.new.model.layers
        return Bytes([round(layers[piece.layer].parameters) for piece in pieces])

    def begin(self) -> None:
        """Layers stream from now on: no weight may change meanwhile but by ``made``."""
        for each in self.giving:
            each.begin()

    def made(self, step: int, update: Callable[[], None]) -> None:
        """Lets weights change (``update``), and notes by which gradients."""
        locks = [each.lock for each in self.giving]
        for lock in locks:
            lock.acquire()
        try:
            for each in self.giving:
                each.made(step)
            update()
            for each in self.giving:
                each.nudge()
        finally:
            for lock in locks:
                lock.release()

    @property
    def _ways(self) -> list[Giving | Taking]:
        return [*self.giving, *self.taking]

    def told(self) -> Mapping[str, Any]:
        """How far it is: bytes left, seconds that they take when training stands still, and what broke."""
        left = [(each.left_bytes, each.spare) for each in self.giving]
        seconds = [size / spare.rate_bytes_per_s for size, spare in left if spare is not None]
        broken = next((each.broken for each in self._ways if each.broken), "")
        return {
            "version": self.number,
            "left_bytes": sum(size for size, _ in left),
            "left_s": max(seconds, default=0.0),
            "sent_bytes": sum(each.sent_bytes for each in self.giving),
            "broken": broken,
        }

    def do(self) -> int:
        """Sends the rest and waits for all that comes; the bytes that were sent in all."""
        total = sum(each.end() for each in self.giving)
        for one in self.taking:
            one.end()
        self._exchange.put_own(self._before, self._after)
        settle(self._device)
        return total

    def close(self) -> None:
        """It is given up: connections end, and what came is nobody's."""
        self.closed = True
        for each in self._ways:
            each.close()


def _file(process: int) -> str:
    return f"stream-{process}.json"


def _domains(version: Version) -> dict[int, str]:
    return {process: version.worker(process).domain for process in version.members}


def _rate(version: Version, source: str, destination: str) -> float:
    """Bytes/s that a link should carry."""
    cluster = version.job.problem.cluster
    return cluster.links[cluster.link_index[source, destination]].rate_bytes_per_s(1)
