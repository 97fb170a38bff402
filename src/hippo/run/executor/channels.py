"""One direction of a pair of processes: receives posted ahead and waited for by a thread; sends that start at once.

gloo's work has no completion test, so a thread waits for each message in the order in which they are expected, and
says so to whoever listens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

import torch

from hippo.run.executor.codec import Codec

Tensor = torch.Tensor
POLL_S = 1e-4
Heard = Callable[[], None]
Failed = Callable[[BaseException], None]


class Channel:
    """A group of two: rank 0 sends, rank 1 receives."""

    def __init__(self, group: Any, *, failed: Failed, codec: Codec | None = None) -> None:
        self._group, self._failed, self._codec = group, failed, codec
        self._posted: SimpleQueue[tuple[Any, Tensor, Heard | None] | None] = SimpleQueue()
        self._thread = Thread(target=self._wait, daemon=True)
        self._thread.start()

    def receive(self, into: Tensor, tag: int, heard: Heard) -> None:
        """Posts a receive; ``heard`` is called, in another thread, when the message is there."""
        codec = self._codec
        if codec is None:
            self._posted.put((self._group.recv([into], 0, tag), into, heard))
            return
        message = codec.room(into)

        def decoded() -> None:
            codec.decode(message, into)
            heard()

        self._posted.put((self._group.recv([message], 0, tag), message, decoded))

    def send(self, tensor: Tensor, tag: int) -> None:
        """Starts to send; the tensor must not change until it has gone (it is kept until then)."""
        message = tensor if self._codec is None else self._codec.encode(tensor)
        self._posted.put((self._group.send([message], 1, tag), message, None))

    def _wait(self) -> None:
        while (entry := self._posted.get()) is not None:
            work, tensor, heard = entry
            try:
                _finish(work, tensor)
            except BaseException as error:  # the group is broken: the run ends with this reason
                self._failed(error)
                return
            if heard is not None:
                heard()


def _finish(work: Any, tensor: Tensor) -> None:
    """Comes back when the message has come or gone; on a GPU ``wait`` only orders the stream."""
    if tensor.device.type == "cpu":
        work.wait()
        return
    while not work.is_completed():
        time.sleep(POLL_S)
    work.wait()
