"""How processes meet and talk: groups through a file store, one for each direction of each pair of neighbours.

Data and the receiver's notices share one TCP stream in gloo, and a notice behind bulk data waits until that has drained
(facts: pytorch/gloo, ``transport/tcp/pair.cc``). So every direction of a pair has a group, and with it a stream, of its
own; receives are posted long before they are needed. Meeting goes through files, never over the network.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

Tensor = torch.Tensor
dist: Any = torch.distributed  # its types leave out what is used here
PATIENCE = timedelta(days=365)
"""Of the libraries: a receive is posted long before its message is made, and only the launcher knows what still moves.
It ends every process when nothing does (``Crew.gather``)."""


class Meeting:
    """Where the processes of a run meet."""

    def __init__(self, folder: str, rank: int, *, world: int, device: str = "cpu") -> None:
        self.rank, self.device = rank, device
        self._store = dist.FileStore(os.path.join(folder, "store"), world)
        self._gloo: Any = None

    def group(self, name: str, ranks: Sequence[int]) -> Any:
        """The group of these ranks, of which this process is one; comes back when all are there.

        Every process must ask for its groups in one order that holds for all (sorted names), else they wait for ever.
        """
        store, place = dist.PrefixStore(name, self._store), list(ranks).index(self.rank)
        if self.device == "cpu":
            return dist.ProcessGroupGloo(store, place, len(ranks), self._gloo_options())
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = PATIENCE
        made = dist.ProcessGroupNCCL(store, place, len(ranks), options)
        _connect(made, place, len(ranks))
        return made

    def _gloo_options(self) -> Any:
        """One loop thread for all groups of this process."""
        if self._gloo is None:
            interface = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
            self._gloo = dist.ProcessGroupGloo.create_device(interface=interface, lazy_init=False)
        options = dist.ProcessGroupGloo._Options()
        options._devices, options._timeout, options._threads = [self._gloo], PATIENCE, 2
        return options


def _connect(group: Any, place: int, size: int) -> None:
    """Uses a group once: NCCL connects at first use and waits for the other side, which may ask much later."""
    told = torch.zeros(1, device="cuda")
    group.allreduce([told]).wait()
    if size == 2:
        (group.send([told], 1, 0) if place == 0 else group.recv([told], 0, 0)).wait()
    settle("cuda")


def settle(device: str) -> None:
    """Waits until what was asked of the device is done, so that times are true and results may be sent."""
    if device != "cpu":
        torch.cuda.synchronize()


def claim(device: str, rank: int) -> None:
    """Gives this process a device of its own; raises ``RuntimeError`` where there are too few."""
    if device == "cpu":
        return
    count = torch.cuda.device_count()
    if rank >= count:
        raise RuntimeError(f"--device cuda needs a GPU per process, and this machine has {count}")
    torch.cuda.set_device(rank)


class GroupTeam:
    """A tensor-parallel group: sums inside layers, and the leader's word on what is next."""

    def __init__(self, group: Any, size: int, index: int, device: str = "cpu") -> None:
        self._group, self.size, self.index, self._device = group, size, index, device

    def sum(self, tensor: Tensor) -> None:
        """Replaces the tensor by the sum over the ranks."""
        self._group.allreduce([tensor]).wait()

    def tell_numbers(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """The leader's numbers; of the others' only the count matters."""
        told = torch.tensor(numbers, dtype=torch.int64, device=self._device)
        self.tell(told)
        return tuple(told.tolist())

    def tell(self, tensor: Tensor) -> None:
        """Replaces the tensor by the leader's."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        self._group.broadcast([tensor], options).wait()
