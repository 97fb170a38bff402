"""One direction of a pair of processes: receives posted ahead and waited for by a thread; sends that start at once.

gloo's work has no completion test, so a thread waits for each message in the order in which they are expected, and
says so to whoever listens.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from threading import Condition, Lock, Thread
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed

from hippo.run.executor.relaying import relayed
from hippo.run.executor.sockets import own_address
from hippo.run.executor.warming import AHEAD_BYTES, Product, take_turns, turns
from hippo.run.messages import VIA
from hippo.run.work import Transfer, Work

# --------------------------------------------------------------------------------------------------------------- codec
# What crosses the WAN in fewer bits: bf16, or eight bits with one scale per message (fp8 e4m3, int8).
#
# The scale makes the largest magnitude of the message the largest that the format holds. Activations and their
# gradients alike; gradients of weights, and everything inside a domain, travel as they are.

Tensor = torch.Tensor
SCALE_BYTES = 4
LARGEST: Mapping[str, float] = MappingProxyType({"fp8": 448.0, "int8": 127.0})


class Codec:
    """One kind of compression; a message is a tensor of bytes."""

    def __init__(self, kind: str) -> None:
        assert kind == "bf16" or kind in LARGEST, kind
        self.kind = kind

    def size(self, like: Tensor) -> int:
        """Bytes of a message for such a tensor."""
        return 2 * like.numel() if self.kind == "bf16" else SCALE_BYTES + like.numel()

    @torch.no_grad()
    def encode(self, tensor: Tensor) -> Tensor:
        """The message."""
        flat = tensor.detach().reshape(-1)
        if self.kind == "bf16":
            return flat.to(torch.bfloat16).view(torch.uint8)
        values = flat.float()
        scale = values.abs().amax().clamp_min(torch.finfo(torch.float32).tiny) / LARGEST[self.kind]
        scaled = values / scale
        packed = scaled.round().to(torch.int8) if self.kind == "int8" else scaled.to(torch.float8_e4m3fn)
        return torch.cat([scale.reshape(1).view(torch.uint8), packed.view(torch.uint8)])

    @torch.no_grad()
    def decode(self, message: Tensor, into: Tensor) -> None:
        """Writes what a message says."""
        if self.kind == "bf16":
            into.copy_(message.view(torch.bfloat16).view_as(into))
            return
        scale = message[:SCALE_BYTES].clone().view(torch.float32)
        body = message[SCALE_BYTES:].clone()
        values = body.view(torch.int8 if self.kind == "int8" else torch.float8_e4m3fn).float()
        into.copy_((values * scale).view_as(into))


def codec_of(work: Work, transfer: Transfer) -> Codec | None:
    """How a message is packed; None: as it is. A stand-in's messages have their size already."""
    if work.whole_stages:
        return None
    pair = work.workers[transfer.source].domain, work.workers[transfer.destination].domain
    kinds = {(one.source, one.destination): one.kind for one in work.plan.compression}
    kind = kinds.get(pair, "none")
    return None if kind == "none" or pair[0] == pair[1] else Codec(kind)


# --------------------------------------------------------------------------------------------------------------- inbox
# What has come in, filled by the channels' threads.


Key = tuple[int, int, int]  # kind, chunk and wave of the operation that a message feeds


class BrokenError(Exception):
    """A step cannot be ended: a neighbour has gone, or the launcher gave the step up."""


class Inbox:
    """Messages of one step."""

    def __init__(self) -> None:
        self.missing: dict[Key, int] = {}
        self.came_at_s: dict[Key, float] = {}  # on the monotonic clock
        self.tensors: dict[Key, Tensor] = {}
        self.news = Condition()
        self.error: BaseException | None = None

    def heard(self, key: Key) -> None:
        """One message of a key is there."""
        with self.news:
            self.missing[key] -= 1
            self.came_at_s[key] = time.monotonic()
            self.news.notify()

    def failed(self, error: BaseException) -> None:
        """A channel broke."""
        with self.news:
            self.error = error
            self.news.notify()

    def has(self, key: Key) -> bool:
        """Whether all of it is there, or nothing need come."""
        return self.missing.get(key, 0) == 0

    def check(self) -> None:
        """``BrokenError`` where a channel broke, or the step was given up."""
        if self.error is not None:
            raise BrokenError from self.error


class MessageLog:
    """What a process sent and got since it was asked last; who reads both sides knows how long each was under way."""

    def __init__(self) -> None:
        self._sent: deque[tuple[str, int, int, float]] = deque()  # filled by the channels' threads, too
        self._came: deque[tuple[str, int, float]] = deque()
        self._team: deque[tuple[int, float, float]] = deque()

    def sent(self, way: str, tag: int, size: int) -> None:
        """A message of so many bytes begins."""
        self._sent.append((way, tag, size, time.monotonic()))

    def came(self, way: str, tag: int) -> None:
        """A message is there."""
        self._came.append((way, tag, time.monotonic()))

    @property
    def last_s(self) -> float:
        """When the last message came (``time.monotonic()``); 0: none has since it was asked."""
        try:
            return self._came[-1][2]
        except IndexError:
            return 0.0

    @contextmanager
    def in_team(self, size: int) -> Iterator[None]:
        """So many bytes are summed, or told, in a tensor-parallel group meanwhile."""
        began_s = time.monotonic()
        yield
        self._team.append((size, began_s, time.monotonic()))

    def take(self, started_s: float) -> dict[str, Any]:
        """What came and went, in seconds since the step started; it is forgotten."""
        sent = [self._sent.popleft() for _ in range(len(self._sent))]
        came = [self._came.popleft() for _ in range(len(self._came))]
        team = [self._team.popleft() for _ in range(len(self._team))]
        team = [one for one in team if one[1] >= started_s]  # an outer step of before is of no step
        return {
            "sent": [[way, tag, size, at_s - started_s] for way, tag, size, at_s in sent],
            "came": [[way, tag, at_s - started_s] for way, tag, at_s in came],
            "team": [[size, began_s - started_s, ended_s - started_s] for size, began_s, ended_s in team],
        }


POLL_S = 1e-4
Heard = Callable[[], None]
Failed = Callable[[BaseException], None]


class Channel:
    """A group of two: rank 0 sends, rank 1 receives. gloo moves what lies in the machine's memory: what a GPU holds is
    copied there and back, through pages that are never moved (pinned), which the GPU reads and writes by itself.
    """

    def __init__(
        self,
        group: Any,
        *,
        failed: Failed,
        codec: Codec | None = None,
        talks_on: str = "cpu",
        way: str = "",
        log: MessageLog | None = None,
    ) -> None:
        self._group, self._failed, self._codec, self._talks_on = group, failed, codec, talks_on
        self._way, self._log = way, log or MessageLog()
        self._posted: SimpleQueue[tuple[Any, Tensor, Heard | None] | None] = SimpleQueue()
        self._thread = Thread(target=self._wait, daemon=True)
        self._thread.start()

    def receive(self, into: Tensor, tag: int, heard: Heard) -> None:
        """Posts a receive; ``heard`` is called, in another thread, when the message is there."""
        codec = self._codec
        if codec is None and into.device.type == self._talks_on:
            self._post(lambda: self._group.recv([into], 0, tag), into, partial(self._heard, tag, heard))
            return
        size, dtype = (into.shape, into.dtype) if codec is None else ((codec.size(into),), torch.uint8)
        message = self._room(size, dtype, pinned=into.is_cuda)

        def unpacked() -> None:  # on a GPU whoever reads it is behind it in the device's queue
            if codec is None:
                with torch.no_grad():
                    into.copy_(message, non_blocking=True)
            else:
                codec.decode(message.to(into.device, non_blocking=True), into)
            heard()

        self._post(lambda: self._group.recv([message], 0, tag), message, partial(self._heard, tag, unpacked))

    def _heard(self, tag: int, heard: Heard) -> None:
        self._log.came(self._way, tag)
        heard()

    def send(self, tensor: Tensor, tag: int) -> None:
        """Starts to send; the tensor must not change until it has gone (it is kept until then)."""
        message = (tensor if self._codec is None else self._codec.encode(tensor)).detach()
        if message.device.type != self._talks_on:
            message = self._room(message.shape, message.dtype, pinned=message.is_cuda).copy_(message)
        self._log.sent(self._way, tag, message.nbytes)
        self._post(lambda: self._group.send([message], 1, tag), message, None)

    def _post(self, begin: Callable[[], Any], tensor: Tensor, heard: Heard | None) -> None:
        """Begins what the thread then waits for; a way that has broken already is told as one that breaks later is."""
        try:
            work = begin()
        except RuntimeError as error:
            self._failed(error)
            return
        self._posted.put((work, tensor, heard))

    def _room(self, size: Sequence[int], dtype: torch.dtype, *, pinned: bool) -> Tensor:
        return torch.empty(size, dtype=dtype, device=self._talks_on, pin_memory=pinned and self._talks_on == "cpu")

    def close(self) -> None:
        """Nothing comes or goes any more; its thread ends."""
        self._posted.put(None)

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


# --------------------------------------------------------------------------------------------------------------- wires
# How processes meet and talk: groups through a file store, one for each direction of each pair of neighbours.
#
# Data and the receiver's notices share one TCP stream in gloo, and a notice behind bulk data waits until that has
# drained (facts: pytorch/gloo, ``transport/tcp/pair.cc``). So every direction of a pair has a group, and with it a
# stream, of its own; receives are posted long before they are needed. Meeting goes through files, never over the
# network.


dist: Any = torch.distributed  # its types leave out what is used here
PATIENCE = timedelta(days=365)
"""Of the libraries: a receive is posted long before its message is made, and only the launcher knows what still moves.
It ends every process when nothing does (``Crew.gather``)."""


WARM_TAG = 2**31 - 64
"""Of the first turn in which a connection is warmed, above all others (``seat.MOST_SUMS``)."""


def as_it_is(name: str, source: int, destination: int) -> float:
    """No connection is warmed."""
    return 0.0


class Meeting:
    """Where the processes of a run meet. A group that was made once is there for as long as the run lasts.

    Processes are named by numbers that hold for the whole run, not by their ranks in a plan.
    """

    def __init__(
        self, folder: Path, process: int, *, talks_on: str = "cpu", era: int = 0, log: MessageLog | None = None
    ) -> None:
        self.process, self.talks_on, self.era, self._folder = process, talks_on, era, folder
        self.log = log or MessageLog()
        self.warmed_bytes = 0  # that this process sent to warm connections
        self._store = dist.FileStore(str(folder / "store"), -1)
        self._store.set(f"address-{process}", own_address())
        self._gloo: Any = None
        self._lock = Lock()
        self._made: dict[str, Any] = {}
        self._channels: dict[tuple[str, str], Channel] = {}

    def of(self, era: int) -> Meeting:
        """Where they meet after so many steps were given up: groups of an era before are left as they are, with
        whatever messages are under way in them."""
        if era == self.era:
            return self
        return Meeting(self._folder, self.process, talks_on=self.talks_on, era=era, log=self.log)

    def group(self, name: str, processes: Sequence[int]) -> Any:
        """The group of that name, of these processes, of which this is one; comes back when all are there. Three whose
        name begins with ``VIA``: a way from the first to the last through the second.
        """
        return self.groups({name: processes})[name]

    def groups(
        self, wanted: Mapping[str, Sequence[int]], warmth: Callable[[str, int, int], float] = as_it_is
    ) -> dict[str, Any]:
        """Such groups, by name; new ones are made all at once, as each takes round trips. Connections of new ways are
        warmed, from the first process to the last, by ``warmth`` of a name and two processes (``warming.turns``).
        """
        new: SimpleQueue[tuple[str, Any, BaseException | None]] = SimpleQueue()

        def make(name: str) -> None:
            try:
                new.put((name, self._new(name, wanted[name], partial(warmth, name)), None))
            except BaseException as error:  # it is raised below
                new.put((name, None, error))

        missing = sorted(wanted.keys() - self._made.keys())
        for name in missing:
            if self.talks_on == "cpu":
                Thread(target=make, args=(name,), daemon=True).start()
            else:  # NCCL: one after another, in one order that holds for all
                make(name)
        for _ in missing:
            name, made, error = new.get()
            if error is not None:
                raise error
            self._made[name] = made
            hops = (hop for hop in pairwise(wanted[name]) if hop[0] == self.process)
            if self.talks_on == "cpu":
                self.warmed_bytes += sum(sum(turns(warmth(name, *hop))) for hop in hops)
        return {name: self._made[name] for name in wanted}

    def channel(self, name: str, *, failed: Failed, codec: Codec | None = None, use: str = "") -> Channel:
        """One direction of a group of two that was made; ``use`` tells channels of one group apart."""
        key = name, f"{codec.kind if codec else ''} {use}"
        if key not in self._channels:
            group, on, log = self._made[name], self.talks_on, self.log
            self._channels[key] = Channel(group, failed=failed, codec=codec, talks_on=on, way=name, log=log)
        return self._channels[key]

    def close(self) -> None:
        """Threads of all channels end, but those that wait for what never comes."""
        for channel in self._channels.values():
            channel.close()
        for name, group in self._made.items():
            if name.startswith(VIA):
                group.close()

    def _new(self, name: str, processes: Sequence[int], product: Product) -> Any:
        if name.startswith(VIA):
            path = self._folder / f"{self.era}-{name}"
            return relayed(path, processes, self.process, PATIENCE.total_seconds(), product)
        store, place = dist.PrefixStore(f"{self.era}-{name}", self._store), list(processes).index(self.process)
        if self.talks_on == "cpu":
            made = dist.ProcessGroupGloo(store, place, len(processes), self._gloo_options())
            if len(processes) == 2:
                with suppress(RuntimeError):  # who was to answer has gone: whoever needs the way will hear of it
                    self._warm(made, processes, product(*processes))
            return made
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = PATIENCE
        made = dist.ProcessGroupNCCL(store, place, len(processes), options)
        _connect(made, place, len(processes))
        return made

    def _warm(self, group: Any, processes: Sequence[int], product_bytes: float) -> None:
        """Turns between the two processes of a way; receives are posted ahead, as gloo sends nothing before."""
        sizes = [part for size in turns(product_bytes) for part in (AHEAD_BYTES, size - AHEAD_BYTES)]
        room, mark = torch.zeros(max(sizes, default=0), dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8)
        tags = range(WARM_TAG, WARM_TAG + len(sizes))
        if self.process == processes[0]:
            left, answers = iter(tags), iter([group.recv([mark], 1, tag) for tag in tags[1::2]])
            address = self._store.get(f"address-{processes[1]}").decode()
            take_turns(
                address,
                product_bytes,
                lambda size: group.send([room[:size]], 1, next(left)).wait(),
                lambda: next(answers).wait(),
            )
            return
        came = [group.recv([room[:size]], 0, tag) for tag, size in zip(tags, sizes, strict=True)]
        for tag, one in zip(tags, came, strict=True):
            one.wait()
            if tag in tags[1::2]:
                group.send([mark], 0, tag).wait()

    def _gloo_options(self) -> Any:
        """One loop thread for all groups of this process."""
        with self._lock:
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
    """Gives this process a device of its own, or all the first (shared); ``RuntimeError`` where there are too few."""
    if device == "cpu":
        return
    count, own = torch.cuda.device_count(), rank if device == "cuda" else 0
    if own >= count:
        raise RuntimeError(f"--device {device} needs a GPU {'per process' if own else 'at least'}: there are {count}")
    torch.cuda.set_device(own)


class GroupTeam:
    """A tensor-parallel group: sums inside layers, and the leader's word on what is next."""

    def __init__(self, group: Any, size: int, index: int, log: MessageLog, device: str = "cpu") -> None:
        self._group, self.size, self.index, self._log, self._device = group, size, index, log, device

    def sum(self, tensor: Tensor) -> None:
        """Replaces the tensor by the sum over the ranks."""
        with self._log.in_team(tensor.nbytes):
            self._group.allreduce([tensor]).wait()

    def tell_numbers(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """The leader's numbers; of the others' only the count matters."""
        told = torch.tensor(numbers, dtype=torch.int64, device=self._device)
        self.tell(told)
        return tuple(told.tolist())

    def tell(self, tensor: Tensor) -> None:
        """Replaces the tensor by the leader's."""
        with self._log.in_team(tensor.nbytes):
            self._broadcast(tensor).wait()

    def release(self, numbers: Sequence[int]) -> None:
        """The leader's last numbers, for whoever waits for them; it does not wait until they have come."""
        told = torch.tensor(numbers, dtype=torch.int64, device=self._device)
        self._released = told, self._broadcast(told)  # it must stay while it goes

    def _broadcast(self, tensor: Tensor) -> Any:
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        return self._group.broadcast([tensor], options)
