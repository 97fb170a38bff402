"""Matrix products whose weight gradients are made by hand: at once, or later (the W of split backwards).

Autograd makes the gradient of the input only. What the weight's gradient needs, the input x (n, k) and the gradient of
the output (n, r), is noted in a ledger; ``settle`` adds x^T times it to the sum. Embeddings likewise.
"""

from __future__ import annotations

from typing import Any

import torch

from hippo.run.model.weights import Weight

Tensor = torch.Tensor


class Ledger:
    """What one pass of one wave owes to the weights, in the order in which the backward pass met them."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, Weight, Tensor, Tensor]] = []  # layer, weight, input or tokens, gradient
        self.layer = 0  # that runs forward now

    def note(self, layer: int, weight: Weight, given: Tensor, gradient: Tensor) -> None:
        """Keeps what the gradient of a weight needs."""
        self.entries.append((layer, weight, given, gradient))

    def settle(self) -> None:
        """Adds everything to the sums of the weights."""
        for layer in dict.fromkeys(entry[0] for entry in self.entries):
            self.settle_layer(layer)
        self.entries.clear()

    @torch.no_grad()
    def settle_layer(self, layer: int) -> None:
        """Adds what is owed to one layer's weights."""
        for of, weight, given, gradient in self.entries:
            if of == layer:
                _add(weight, given, gradient)


def _add(weight: Weight, given: Tensor, gradient: Tensor) -> None:
    gradient = gradient.reshape(-1, gradient.shape[-1])
    if given.is_floating_point():
        flat = given.reshape(-1, given.shape[-1])
        if flat.dtype == weight.total.dtype:
            weight.total.addmm_(gradient.t(), flat)
        else:
            weight.total.add_(gradient.t() @ flat)
    else:
        weight.total.index_add_(0, given.reshape(-1), gradient.to(weight.total.dtype))


class _Product(torch.autograd.Function):
    """y = x W^T."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, value: Tensor, weight: Weight, ledger: Ledger) -> Tensor:
        """(.., r); ``value`` is the weight's own, so that autograd knows there is something to do."""
        ctx.save_for_backward(given)
        ctx.weight, ctx.ledger, ctx.layer = weight, ledger, ledger.layer
        return given @ value.t()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Gradient of the input; the weight's is noted."""
        (given,) = ctx.saved_tensors
        ctx.ledger.note(ctx.layer, ctx.weight, given, gradients[0])
        return gradients[0] @ ctx.weight.value, None, None, None


class _LookUp(torch.autograd.Function):
    """Rows of a matrix."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, rows: Tensor, weight: Weight, ledger: Ledger) -> Tensor:
        """(.., h)."""
        ctx.weight, ctx.ledger, ctx.layer, ctx.rows = weight, ledger, ledger.layer, rows
        return value[rows]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """The matrix's gradient is noted."""
        ctx.ledger.note(ctx.layer, ctx.weight, ctx.rows, gradients[0])
        return None, None, None, None


def product(given: Tensor, weight: Weight, ledger: Ledger) -> Tensor:
    """(.., k) times the transpose of a matrix (r, k): (.., r)."""
    return _Product.apply(given, weight.value, weight, ledger)  # type: ignore[no-any-return, no-untyped-call]


def look_up(rows: Tensor, weight: Weight, ledger: Ledger) -> Tensor:
    """Rows (..) of a matrix (n, h): (.., h)."""
    return _LookUp.apply(weight.value, rows, weight, ledger)  # type: ignore[no-any-return, no-untyped-call]
