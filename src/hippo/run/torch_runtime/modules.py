"""Chunks of a stage as modules of ``torch.distributed.pipelining``: the same layers, or waits as long as they take.

The gradients of the weights are made by hand, through the runtime's own hook for that (``dw_builder``): with a whole
backward right behind the gradient of the input, with a split one when W is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from hippo.problem.model import LayerKind
from hippo.run.model.products import Ledger
from hippo.run.model.stage import Part
from hippo.run.model.weights import Weight

Tensor = torch.Tensor


class Chunk(torch.nn.Module):
    """A module that makes the gradients of its weights by hand."""

    def weights(self) -> Callable[[], None]:
        """What is left to do after the backward that has just run."""
        raise NotImplementedError


class _Noted(Ledger):
    """A ledger that says whose backward runs."""

    def __init__(self, chunk: Layers) -> None:
        super().__init__()
        self._chunk = chunk

    def note(self, layer: int, weight: Weight, given: Tensor, gradient: Tensor) -> None:
        """Keeps what the gradient of a weight needs."""
        self._chunk.at_work = self
        super().note(layer, weight, given, gradient)


class _Again(torch.autograd.Function):
    """Nothing is kept but the input; the way back runs forward once more. (torch's own loads for seconds.)"""

    @staticmethod
    def forward(ctx: Any, given: Tensor, start: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Without a graph."""
        ctx.run = run
        ctx.save_for_backward(given)
        return run(given)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Gradient of the input."""
        (given,) = ctx.saved_tensors
        entering = given.detach()
        entering.requires_grad_(entering.is_floating_point())
        with torch.enable_grad():
            output = ctx.run(entering)
        torch.autograd.backward(output, gradients[0])
        return entering.grad, None, None


class Layers(Chunk):
    """Real layers: one chunk of a part."""

    def __init__(self, part: Part, chunk: int) -> None:
        super().__init__()
        self.part, self.chunk = part, chunk
        self.at_work: Ledger | None = None
        self.start = torch.zeros(1, requires_grad=True)  # so that there is something to go back to

    def forward(self, given: Tensor, tokens: Tensor | None = None) -> Tensor:
        """Activations (b, s, h) of activations, or of tokens (b, s + 1) where the model begins; its end gives (1,)."""
        start, stop = self.part.chunks[self.chunk]
        layers = self.part.model.layers
        begins = layers[start].kind is LayerKind.EMBEDDING
        at, ledger = (self.chunk, 0), _Noted(self)

        def run(given: Tensor) -> Tensor:
            return self.part.through(at, None if begins else given, given if begins else tokens, ledger)

        again = self.part.settings.recompute
        output: Tensor = _Again.apply(given, self.start, run) if again else run(given)  # type: ignore[no-untyped-call]
        return output.reshape(1) if layers[stop - 1].kind is LayerKind.HEAD else output

    def weights(self) -> Callable[[], None]:
        """Adds what the backward that has just run owes to the weights."""
        ledger, self.at_work = self.at_work, None
        self.part.take_vectors(self.chunk)
        return ledger.settle if ledger is not None else lambda: None


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor, start: Tensor, wait: Waits) -> Tensor:
        """Zeros after a while; ``start``: so that there is something to go back to."""
        ctx.wait, ctx.shape, ctx.real = wait, given.shape, given.is_floating_point()
        time.sleep(wait.forward_s)
        return torch.zeros(wait.numbers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Zeros after a while."""
        time.sleep(ctx.wait.backward_s)
        return torch.zeros(ctx.shape) if ctx.real else None, None, None


class Waits(Chunk):
    """Waits in place of layers; what it gives has so many numbers of four bytes."""

    def __init__(self, seconds: tuple[float, float, float], numbers: int) -> None:
        super().__init__()
        self.forward_s, self.backward_s, self.weight_s = seconds
        self.numbers = numbers
        self.start = torch.nn.Parameter(torch.zeros(1))

    def forward(self, given: Tensor, tokens: Tensor | None = None) -> Tensor:
        """Zeros (numbers,)."""
        return _Wait.apply(given, self.start, self)  # type: ignore[no-any-return, no-untyped-call]

    def weights(self) -> Callable[[], None]:
        """Waits as long as the weight gradients take."""
        return lambda: time.sleep(self.weight_s)
