"""A sum over the ranks of a ring whose receives were posted ahead: each hop costs one way, never a round trip.

The ring algorithm (Patarasuk and Yuan 2009): n pieces go round twice, added up on the first lap and handed out on the
second, so every rank sends 2 (n - 1) / n of the bytes. A piece goes on in the thread that heard it come, while the
seat computes. All ranks get the same bits: each piece is added up once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import Event, Lock

import torch

from hippo.run.executor.channels import Channel

Tensor = torch.Tensor


class Ring:
    """Ranks in a ring, of which this one has place ``place`` of ``size``. Sums are asked for in one order by all."""

    def __init__(self, size: int, place: int, channels: tuple[Channel, Channel], check: Callable[[], None]) -> None:
        self.size, self.place, self.check = size, place, check
        self.onward, self.behind = channels
        self._expected: deque[RingSum] = deque()
        self._number = 0

    def expect(self, sizes: Iterable[int], like: Tensor) -> None:
        """Posts the receives of the sums of the next step, each of so many elements of the sort of ``like``."""
        assert not self._expected, "sums of the step before are missing"
        self._expected.extend(RingSum(self, elements, like, number) for number, elements in enumerate(sizes))

    def allreduce(self, tensors: Sequence[Tensor]) -> RingSum:
        """Begins the next sum of a step; the one tensor becomes the sum when ``wait`` returns."""
        (flat,) = tensors
        one = self._expected.popleft()
        one.begin(flat)
        return one


class RingSum:
    """One sum."""

    def __init__(self, ring: Ring, elements: int, like: Tensor, number: int) -> None:
        self._ring, self._hops = ring, 2 * (ring.size - 1)
        self._first = number * self._hops  # tag of the first hop
        self._sizes = [len(each) for each in torch.arange(elements).tensor_split(ring.size)]
        self._pieces: list[Tensor] | None = None
        self._heard = self._done = 0
        self._lock, self._over = Lock(), Event()
        self._buffers = [
            torch.empty(self._sizes[self._index(hop)], dtype=like.dtype, device=like.device)
            for hop in range(self._hops)
        ]
        for hop, buffer in enumerate(self._buffers):
            ring.behind.receive(buffer, self._first + hop, partial(self._hear, hop))

    def _index(self, hop: int) -> int:
        """The piece that comes in with a hop."""
        return (self._ring.place - 1 - hop) % self._ring.size

    def begin(self, flat: Tensor) -> None:
        """The rank's own addends, which become the sums."""
        with self._lock:
            self._pieces = list(torch.split(flat, self._sizes))
            self._ring.onward.send(self._pieces[self._ring.place].clone(), self._first)
            self._advance()

    def _hear(self, hop: int) -> None:
        with self._lock:
            self._heard = hop + 1
            self._advance()

    @torch.no_grad()
    def _advance(self) -> None:
        """Does what has come in and can be done."""
        while self._pieces is not None and self._done < self._heard:
            hop, piece = self._done, self._pieces[self._index(self._done)]
            if hop < self._ring.size - 1:
                piece.add_(self._buffers[hop])
            else:
                piece.copy_(self._buffers[hop])
            self._done += 1
            if self._done < self._hops:
                self._ring.onward.send(piece.clone(), self._first + self._done)
            else:
                self._over.set()

    def wait(self) -> None:
        """Returns when the sums are there; ``check`` may raise."""
        while not self._over.wait(1.0):
            self._ring.check()
