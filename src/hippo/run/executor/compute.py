"""What a worker does between messages: real layers, or waits as long as the plan says layers take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import torch

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.problem.model import LayerKind
from hippo.problem.workload import Workload
from hippo.run.dispatching import WorkerNoise
from hippo.run.executor.channels import settle
from hippo.run.model.stage import Part, sequences
from hippo.run.stand_in import StageTimes
from hippo.run.work import Transfer, Work, Worker

Tensor = torch.Tensor
Pass = tuple[int, int]  # chunk, wave


class Compute(Protocol):
    """Passes of a worker. Tensors that travel have a first dimension of sequences (stand-in: bytes of one message)."""

    def begin(self, step: int) -> None:
        """A step starts."""
        ...

    def room(self, kind: int) -> Tensor:
        """A new buffer for what comes in per wave: activations (FORWARD) or their gradients."""
        ...

    def piece(self, whole: Tensor, transfer: Transfer) -> Tensor:
        """The part of the worker's tensor that a message carries."""
        ...

    def forward(self, at: Pass, given: Tensor | None) -> Tensor | None:
        """What goes on to the next chunk; None: nothing does."""
        ...

    def backward(self, at: Pass, gradient: Tensor | None) -> Tensor | None:
        """What goes back to the chunk before."""
        ...

    def weight(self, at: Pass, ready: Callable[[int], None] | None) -> None:
        """Weight gradients; ``ready`` hears of each layer that is done."""
        ...

    def finish(self, step: int) -> None:
        """The optimizer."""
        ...

    def give_up(self) -> None:
        """Forgets a step that was not ended."""
        ...

    def loss(self) -> float:
        """This worker's share of the step's loss."""
        ...


class Layers:
    """Real layers."""

    def __init__(self, work: Work, worker: Worker, part: Part, workload: Workload, noise: WorkerNoise) -> None:
        self.part, self._noise = part, noise
        self._work, self._worker, self._workload = work, worker, workload
        self._step, self._loss = 0, 0.0
        self._share = work.share(worker)

    def begin(self, step: int) -> None:
        """A step starts."""
        self._step, self._loss = step, 0.0
        self._noise.begin(step)

    def room(self, kind: int) -> Tensor:
        """(sequences of the worker, seq, hidden)."""
        settings, count = self.part.settings, self._share[1] - self._share[0]
        shape = (count, self._workload.seq, self._work.model.hidden)
        return torch.empty(shape, dtype=settings.dtype, device=settings.device)

    def piece(self, whole: Tensor, transfer: Transfer) -> Tensor:
        """The sequences that the message carries."""
        first = transfer.start - self._share[0]
        return whole[first : first + transfer.count]

    def forward(self, at: Pass, given: Tensor | None) -> Tensor | None:
        """Activations; where the model ends, the loss is kept."""
        start, stop = self.part.chunks[at[0]]
        layers = self._work.model.layers
        ends = layers[stop - 1].kind is LayerKind.HEAD
        needed = ends or layers[start].kind is LayerKind.EMBEDDING
        with self._noise.stretching(FORWARD, at[1]):
            output = self.part.forward(at, given, self._tokens(at[1]) if needed else None)
            settle(self.part.settings.device)
        if not ends:
            return output
        if self._worker.leads:
            self._loss += float(output)
        return None

    def _tokens(self, wave: int) -> Tensor:
        first, last = self._work.sequences(self._worker, wave)
        settings = self.part.settings
        drawn = sequences(
            self._step - 1, first, last, seq=self._workload.seq, vocab=self._work.model.vocab, seed=settings.seed
        )
        return drawn.to(settings.device)

    def backward(self, at: Pass, gradient: Tensor | None) -> Tensor | None:
        """Gradient of the activations that came in."""
        with self._noise.stretching(BACKWARD, at[1]):
            back = self.part.backward(at, gradient)
            settle(self.part.settings.device)
        return back

    def weight(self, at: Pass, ready: Callable[[int], None] | None) -> None:
        """Weight gradients, the last layer first."""
        with self._noise.stretching(WEIGHT, at[1]):
            self.part.weight(at, ready)
            settle(self.part.settings.device)

    def finish(self, step: int) -> None:
        """AdamW."""
        self.part.finish(step)
        settle(self.part.settings.device)

    def give_up(self) -> None:
        """Gradients of the step go."""
        self.part.give_up()

    def loss(self) -> float:
        """Sum over the worker's sequences, as a share of the mean over the global batch."""
        return self._loss


class StandIn:
    """Waits in place of layers; messages of the right size."""

    def __init__(self, times: StageTimes, layers: tuple[tuple[int, int], ...], noise: WorkerNoise) -> None:
        self._times, self._layers, self._noise = times, layers, noise
        self._sent: dict[int, Tensor] = {}

    def begin(self, step: int) -> None:
        """A step starts."""
        self._noise.begin(step)

    def room(self, kind: int) -> Tensor:
        """Bytes of the largest message."""
        return torch.empty(self._times.received_bytes[0 if kind == FORWARD else 1], dtype=torch.uint8)

    def piece(self, whole: Tensor, transfer: Transfer) -> Tensor:
        """As many bytes of it."""
        return whole[: self._times.message_bytes[transfer]]

    def forward(self, at: Pass, given: Tensor | None) -> Tensor | None:
        """Waits; then a message of zeros."""
        time.sleep(self._times.forward_s[at[0]] * self._noise.operation(FORWARD, at[1]))
        return self._message(self._times.down_bytes[at[0]])

    def backward(self, at: Pass, gradient: Tensor | None) -> Tensor | None:
        """Waits; then a message of zeros."""
        time.sleep(self._times.backward_s[at[0]] * self._noise.operation(BACKWARD, at[1]))
        return self._message(self._times.up_bytes[at[0]])

    def _message(self, size: int) -> Tensor | None:
        if not size:
            return None
        if size not in self._sent:
            self._sent[size] = torch.zeros(size, dtype=torch.uint8)
        return self._sent[size]

    def weight(self, at: Pass, ready: Callable[[int], None] | None) -> None:
        """Waits, layer by layer where somebody wants to hear of them."""
        layers, seconds = range(*self._layers[at[0]]), self._times.weight_s[at[0]]
        seconds *= self._noise.operation(WEIGHT, at[1])
        if ready is None:
            time.sleep(seconds)
            return
        for layer in reversed(layers):
            time.sleep(seconds / len(layers))
            ready(layer)

    def finish(self, step: int) -> None:
        """Waits as long as the optimizer takes."""
        time.sleep(self._times.finish_s)

    def give_up(self) -> None:
        """Nothing is kept."""

    def loss(self) -> float:
        """There is none."""
        return 0.0
