"""A seat's part of the model: forward, backward and weight gradient of each chunk and wave, and the optimizer step.

A backward pass may leave the gradients of the matrices for later (``weight``), as split schedules want it. Everything
between the passes of a wave is kept under (chunk, wave).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from hippo.problem.model import LayerKind, Model
from hippo.run.model.adamw import Moments, Rates, moments, update
from hippo.run.model.layers import Frame, loss, run
from hippo.run.model.products import Ledger
from hippo.run.model.tensor_parallel import Alone, Team
from hippo.run.model.weights import Form, Split, Weight, initial

Tensor = torch.Tensor
Ready = Callable[[int], None]
Pass = tuple[int, int]  # chunk, wave
WHOLE, ALONE = Split(), Alone()


@dataclass(frozen=True)
class Settings:
    """How the part is trained."""

    tokens_per_step: int  # of the global batch: the loss is the mean over them
    seed: int = 0
    dtype: torch.dtype = torch.float32
    recompute: bool = False
    rates: Rates = Rates()
    device: str = "cpu"


@dataclass(frozen=True, eq=False)
class _Kept:
    """A wave between its passes."""

    given: Tensor | None  # activations from above, with the gradient that goes back; None: the chunk begins the model
    output: Tensor
    ledger: Ledger


@dataclass(frozen=True, eq=False)
class Part:
    """The layers of one seat."""

    model: Model
    chunks: tuple[tuple[int, int], ...]  # layers [start, stop) of each
    settings: Settings
    split: Split = Split()
    team: Team = Alone()
    weights: dict[int, dict[str, Weight]] = field(default_factory=dict)  # by layer
    states: dict[int, dict[str, Moments]] = field(default_factory=dict)
    _kept: dict[Pass, _Kept] = field(default_factory=dict)

    @classmethod
    def new(
        cls,
        model: Model,
        chunks: Sequence[tuple[int, int]],
        settings: Settings,
        split: Split = WHOLE,
        team: Team = ALONE,
    ) -> Part:
        """The part as it is at the start of the training."""
        part = cls(model, tuple(chunks), settings, split, team)
        for start, stop in chunks:
            for layer in range(start, stop):
                part.place(layer, part.fresh(layer))
        part.tie()
        return part

    def fresh(self, layer: int) -> dict[str, Weight]:
        """A layer's weights as they are at the start."""
        given = self.settings
        return initial(self.model, layer, seed=given.seed, split=self.split, dtype=given.dtype, device=given.device)

    def place(self, layer: int, weights: dict[str, Weight], states: dict[str, Moments] | None = None) -> None:
        """Takes a layer in."""
        self.weights[layer] = weights
        self.states[layer] = {name: moments(one) for name, one in weights.items()} if states is None else states

    def tie(self) -> None:
        """Gives a tied head its matrix: the embedding's own where both are here, else a copy that agrees with it."""
        last = self.model.num_layers - 1
        if not self.model.tied or last not in self.weights or "matrix" in self.weights[last]:
            return
        if 0 in self.weights:
            self.weights[last]["matrix"] = self.weights[0]["matrix"]
            return
        first = self.fresh(0)
        self.weights[last]["matrix"] = first["matrix"]
        self.states[last]["matrix"] = moments(first["matrix"])

    def forms(self) -> Iterator[tuple[int, str, Form]]:
        """Every weight: layer, name, form."""
        for layer, weights in self.weights.items():
            for name, weight in weights.items():
                yield layer, name, weight.form

    # passes
    def forward(self, at: Pass, given: Tensor | None, tokens: Tensor | None) -> Tensor:
        """Output of a chunk: activations (b, s, h), or the wave's share of the loss where the chunk ends the model.

        ``given`` are activations from above, or None where the chunk begins the model; ``tokens`` (b, s + 1) are needed
        where it begins or ends the model.
        """
        if given is not None:
            given = given.detach().requires_grad_()
        if self.settings.recompute:
            with torch.no_grad():
                output = self.through(at, given, tokens, Ledger())
            self._kept[at] = _Kept(given, tokens if tokens is not None else output, Ledger())
            return output
        ledger = Ledger()
        output = self.through(at, given, tokens, ledger)
        self._kept[at] = _Kept(given, output, ledger)
        return output.detach()

    def through(self, at: Pass, given: Tensor | None, tokens: Tensor | None, ledger: Ledger) -> Tensor:
        """A chunk's layers, one after the other; what they owe to the weights is noted in the ledger."""
        model, (start, stop) = self.model, self.chunks[at[0]]
        output = given
        for layer in range(start, stop):
            ledger.layer, kind = layer, model.layers[layer].kind
            frame = Frame(model.layers[layer], ledger, self.split, self.team, model.layers[0].positions == 0)
            if kind is LayerKind.HEAD:
                assert output is not None
                assert tokens is not None, "the head needs targets"
                output = loss(frame, self.weights[layer], output, tokens[:, 1:]) / self.settings.tokens_per_step
            else:
                entering = tokens[:, :-1] if kind is LayerKind.EMBEDDING and tokens is not None else output
                assert entering is not None, "a chunk needs an input"
                output = run(frame, self.weights[layer], entering)
        assert output is not None
        return output

    def backward(self, at: Pass, gradient: Tensor | None) -> Tensor | None:
        """Gradient of what came from above (None: nothing did); the matrices' gradients wait for ``weight``."""
        kept = self._kept[at]
        output, ledger = kept.output, kept.ledger
        if self.settings.recompute:
            tokens = None if output.is_floating_point() else output
            output = self.through(at, kept.given, tokens, ledger)
        torch.autograd.backward(output, gradient)
        self._kept[at] = _Kept(None, output.detach(), ledger)
        self.take_vectors(at[0])
        return None if kept.given is None else kept.given.grad

    def take_vectors(self, chunk: int) -> None:
        """Adds what autograd found for norms and biases to the sums."""
        for layer in range(*self.chunks[chunk]):
            for weight in self.weights[layer].values():
                if weight.value.grad is not None:
                    weight.total.add_(weight.value.grad)
                    weight.value.grad = None

    def weight(self, at: Pass, ready: Ready | None = None) -> None:
        """The matrices' gradients of a wave, the last layer first; ``ready`` hears of each layer that is done."""
        ledger = self._kept.pop(at).ledger
        if ready is None:
            ledger.settle()
            return
        start, stop = self.chunks[at[0]]
        for layer in reversed(range(start, stop)):
            ledger.settle_layer(layer)
            ready(layer)

    def finish(self, step: int) -> None:
        """The optimizer's step with the summed gradients."""
        for layer, states in self.states.items():
            pairs = ((self.weights[layer][name], state) for name, state in states.items())
            update(pairs, step, self.settings.rates)
