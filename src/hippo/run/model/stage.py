"""A worker's part of the model: forward, backward and weight gradient of each chunk and wave, and the optimizer step.

A backward pass may leave the gradients of the matrices for later (``weight``), as split schedules want it. Everything
between the passes of a wave is kept under (chunk, wave).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from hippo.problem.model import LayerKind, Model
from hippo.run.job import RunJob
from hippo.run.model.layers import LayerContext, NoTeam, Team, WeightGradients, loss, run
from hippo.run.model.optimizer import AdamRates, AdamState, moments, update
from hippo.run.model.weights import TensorSplit, Weight, WeightForm, initial

# -------------------------------------------------------------------------------------------------------------- tokens
# The text that is learned: sequences of a small Markov chain, made where they are needed, the same for every plan.
#
# Each of up to 256 words has four followers with chances .6, .2, .15, .05, so that there is something to learn: the
# entropy is 1.08 nats a token. Sequence i of step t depends on the seed, t and i alone.

WORDS = 256
CHANCES = (0.6, 0.2, 0.15, 0.05)


def sequences(step: int, start: int, stop: int, *, seq: int, vocab: int, seed: int = 0) -> torch.Tensor:
    """Tokens (stop - start, seq + 1) of sequences [start, stop) of a step; the last is only a target."""
    words = min(WORDS, vocab)
    followers = np.random.default_rng([seed, 0]).integers(0, words, size=(words, len(CHANCES)))
    bounds = np.cumsum(CHANCES)[:-1]
    drawn = np.stack([np.random.default_rng([seed, 1, step, i]).random(seq + 1) for i in range(start, stop)])
    choice = np.searchsorted(bounds, drawn, side="right")
    tokens = np.empty(drawn.shape, dtype=np.int64)
    tokens[:, 0] = (drawn[:, 0] * words).astype(np.int64)
    for place in range(1, seq + 1):
        tokens[:, place] = followers[tokens[:, place - 1], choice[:, place]]
    return torch.from_numpy(tokens)


# ------------------------------------------------------------------------------------------------------------ settings
# What a job says, as settings of the layers.

TYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}


def settings_of(job: RunJob) -> StageSettings:
    """How the layers of a job are trained."""
    options = job.options
    return StageSettings(
        job.problem.workload.tokens_per_step,
        options.seed,
        TYPES[options.precision],
        job.plan.recompute == "full",
        AdamRates(options.learning_rate),
        options.computes_on,
    )


Tensor = torch.Tensor
Ready = Callable[[int], None]
Pass = tuple[int, int]  # chunk, wave
At = tuple[int, str]  # layer, name of the weight
WHOLE, ALONE = TensorSplit(), NoTeam()


@dataclass(frozen=True)
class StageSettings:
    """How the part is trained."""

    tokens_per_step: int  # of the global batch: the loss is the mean over them
    seed: int = 0
    dtype: torch.dtype = torch.float32
    recompute: bool = False
    rates: AdamRates = AdamRates()
    device: str = "cpu"


@dataclass(frozen=True, eq=False)
class _Kept:
    """A wave between its passes."""

    given: Tensor | None  # activations from above, with the gradient that goes back; None: the chunk begins the model
    output: Tensor
    ledger: WeightGradients


@dataclass(frozen=True, eq=False)
class Part:
    """The layers of one worker."""

    model: Model
    chunks: tuple[tuple[int, int], ...]  # layers [start, stop) of each
    settings: StageSettings
    split: TensorSplit = TensorSplit()
    team: Team = NoTeam()
    weights: dict[int, dict[str, Weight]] = field(default_factory=dict)  # by layer
    states: dict[int, dict[str, AdamState]] = field(default_factory=dict)
    outer: dict[str, dict[At, Tensor]] = field(default_factory=dict)  # of replicas that train alone, by what it is
    _kept: dict[Pass, _Kept] = field(default_factory=dict)

    @classmethod
    def new(
        cls,
        model: Model,
        chunks: Sequence[tuple[int, int]],
        settings: StageSettings,
        split: TensorSplit = WHOLE,
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

    def place(self, layer: int, weights: dict[str, Weight], states: dict[str, AdamState] | None = None) -> None:
        """Takes a layer in."""
        self.weights[layer] = weights
        self.states[layer] = {name: moments(one) for name, one in weights.items()} if states is None else states

    def keep(self, other: Part, layer: int) -> None:
        """Takes a layer of another part, both of one process, which share it from now on; of a tied head without its
        matrix (``tie``)."""
        head = self.model.tied and layer == self.model.num_layers - 1
        names = [name for name in other.weights[layer] if not (head and name == "matrix")]
        weights = {name: other.weights[layer][name] for name in names}
        self.place(layer, weights, {name: other.states[layer][name] for name in names})
        self._keep_outer(other, {(layer, name): (layer, name) for name in names})

    def _keep_outer(self, other: Part, names: dict[At, At]) -> None:
        for key, held in other.outer.items():
            self.outer.setdefault(key, {}).update({at: held[its] for at, its in names.items() if its in held})

    def tie(self, before: Part | None = None) -> None:
        """Gives a tied head its matrix: the embedding's own where both are here, else a copy that agrees with it, that
        of the part ``before`` where that had one."""
        last = self.model.num_layers - 1
        if not self.model.tied or last not in self.weights or "matrix" in self.weights[last]:
            return
        if 0 in self.weights:
            self.weights[last]["matrix"] = self.weights[0]["matrix"]
            return
        at = next((at for at in (0, last) if before is not None and at in before.weights), None)
        if before is not None and at is not None:
            found = before.weights[at]["matrix"], before.states[at]["matrix"]
            self._keep_outer(before, {(last, "matrix"): (at, "matrix")})
        else:
            matrix = self.fresh(0)["matrix"]
            found = matrix, moments(matrix)
        self.weights[last]["matrix"], self.states[last]["matrix"] = found

    def forms(self) -> Iterator[tuple[int, str, WeightForm]]:
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
                output = self.through(at, given, tokens, WeightGradients())
            self._kept[at] = _Kept(given, tokens if tokens is not None else output, WeightGradients())
            return output
        ledger = WeightGradients()
        output = self.through(at, given, tokens, ledger)
        self._kept[at] = _Kept(given, output, ledger)
        return output.detach()

    def through(self, at: Pass, given: Tensor | None, tokens: Tensor | None, ledger: WeightGradients) -> Tensor:
        """A chunk's layers, one after the other; what they owe to the weights is noted in the ledger."""
        model, (start, stop) = self.model, self.chunks[at[0]]
        output = given
        for layer in range(start, stop):
            ledger.layer, kind = layer, model.layers[layer].kind
            frame = LayerContext(model.layers[layer], ledger, self.split, self.team, model.layers[0].positions == 0)
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
        ledger.entries.clear()  # else they hold the graph that holds them, where no collector looks

    @torch.no_grad()
    def give_up(self) -> None:
        """As before the step: no sums of gradients, no wave under way."""
        for kept in self._kept.values():
            kept.ledger.entries.clear()
        self._kept.clear()
        for weights in self.weights.values():
            for weight in weights.values():
                weight.total.zero_()
                weight.value.grad = None

    def finish(self, step: int) -> None:
        """The optimizer's step with the summed gradients."""
        for layer, states in self.states.items():
            pairs = ((self.weights[layer][name], state) for name, state in states.items())
            update(pairs, step, self.settings.rates)
