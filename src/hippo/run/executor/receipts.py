"""Receives of a step, posted ahead: as many per channel as memory allows, the next as soon as one is taken.

Each channel has a window of its own, in the order in which its sender makes the messages, so that a full one never
keeps back what another channel must deliver.
"""

from __future__ import annotations

from collections import deque
from functools import partial

import torch

from hippo.run.executor.channels import Channel
from hippo.run.executor.compute import Compute
from hippo.run.executor.inbox import Inbox, Key
from hippo.run.work import Transfer, Work

Tensor = torch.Tensor
AHEAD_BYTES, LEAST = 256_000_000, 4
"""Most bytes of posted receives per channel, and the messages that are posted whatever their size."""


class Receipts:
    """What a seat receives in a step."""

    def __init__(
        self, work: Work, rank: int, compute: Compute, incoming: dict[Transfer, Channel], inbox: Inbox
    ) -> None:
        self._work, self._compute, self._incoming, self._inbox = work, compute, incoming, inbox
        self._arrivals = work.arrivals(work.seats[rank])
        self._later: dict[Transfer, deque[int]] = {}
        self._fed: dict[tuple[int, int], list[Transfer]] = {}
        for transfer in incoming:
            self._fed.setdefault((transfer.kind, transfer.destination_chunk), []).append(transfer)

    def post(self) -> None:
        """Posts the first receives of a step."""
        missing = self._inbox.missing
        missing.clear()
        self._inbox.tensors.clear()
        self._later = {transfer: deque() for transfer in self._incoming}
        posted = dict.fromkeys(self._incoming.values(), 0)
        for transfer, wave in self._arrivals:
            key = (transfer.kind, transfer.destination_chunk, wave)
            missing[key] = missing.get(key, 0) + 1
        for transfer, wave in self._arrivals:
            channel = self._incoming[transfer]
            if posted[channel] < self._window(transfer):
                posted[channel] += 1
                self._receive(transfer, wave)
            else:
                self._later[transfer].append(wave)

    def take(self, key: Key) -> Tensor | None:
        """What came in for an operation (None: nothing does); posts the next of its channels."""
        given = self._inbox.tensors.pop(key, None)
        for transfer in self._fed.get(key[:2], []):
            if self._later[transfer]:
                self._receive(transfer, self._later[transfer].popleft())
        return given

    def _window(self, transfer: Transfer) -> int:
        whole = self._compute.room(transfer.kind)
        size = self._compute.piece(whole, transfer).nbytes
        return max(LEAST, AHEAD_BYTES // max(size, 1)) if self._work.plan.interleave == 1 else len(self._arrivals)

    def _receive(self, transfer: Transfer, wave: int) -> None:
        key = (transfer.kind, transfer.destination_chunk, wave)
        if key not in self._inbox.tensors:
            self._inbox.tensors[key] = self._compute.room(transfer.kind)
        piece = self._compute.piece(self._inbox.tensors[key], transfer)
        heard = partial(self._inbox.heard, key)
        self._incoming[transfer].receive(piece, tag(self._work, transfer, wave), heard)


def tag(work: Work, transfer: Transfer, wave: int) -> int:
    """A number that both sides of a message know."""
    return wave * work.plan.interleave + transfer.destination_chunk
