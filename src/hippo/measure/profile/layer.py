"""One layer of the executor's model on one device, timed pass by pass: forward, input gradient, weight gradient.

The layers are those that ``hippo run`` trains. Under tensor parallelism the shard of one rank is timed, its sums over
the team left out: only what the device computes. b sequences of s tokens, h hidden.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from hippo.measure.profile.device import seconds_of, settle
from hippo.measure.profile.rows import LayerTimes, PassTimes, TimedShape
from hippo.problem.model import LayerKind, Model
from hippo.run.model.stage import Part, StageSettings, sequences
from hippo.run.model.weights import TensorSplit, Weight, WeightForm, forms, weight

LEAST_REPEATS = 3
_WARM_UP = 2
_WAVES_ON_A_GPU = 4  # micro-batches between two waits for the device: launches overlap kernels, as in training


class _Silent:
    """A team that never speaks: its sums are no work of the device."""

    def __init__(self, size: int) -> None:
        self.size = size

    def sum(self, tensor: torch.Tensor) -> None:
        """Nothing."""


def time_layer(
    model: Model, layer: int, shape: TimedShape, *, device: torch.device, dtype: torch.dtype, budget_s: float
) -> LayerTimes:
    """Times layer ``layer`` for about ``budget_s`` seconds, at least ``LEAST_REPEATS`` repeats after a warm-up.

    Raises
    ------
    torch.OutOfMemoryError
        The device has too little memory.
    """
    part = _part(model, layer, shape, device, dtype)
    given, tokens, gradient = _inputs(model, layer, shape, device, dtype)
    passes = _Passes(part, given, tokens, gradient, _WAVES_ON_A_GPU if device.type == "cuda" else 1)
    for _ in range(_WARM_UP):
        passes.each(device)
    activation, peak = _bytes_kept(passes, device)
    seconds: list[tuple[float, float, float]] = []
    until_s = time.perf_counter() + budget_s
    while len(seconds) < LEAST_REPEATS or time.perf_counter() < until_s:
        seconds.append(passes.each(device))
    forward, backward, weights = (PassTimes.of([each[kind] for each in seconds]) for kind in range(3))
    tokens_of_wave = shape.micro_batch * shape.seq
    return LayerTimes(
        forward,
        backward,
        weights,
        repeats=len(seconds),
        parameter_bytes=_parameter_bytes(model, layer, shape, dtype),
        activation_bytes=activation,
        output_bytes=float(tokens_of_wave * model.hidden * dtype.itemsize),
        peak_bytes=peak,
    )


# ------------------------------------------------------------------------------------------------------------ the layer
def _split(shape: TimedShape) -> TensorSplit:
    return TensorSplit(shape.tp, 0, shape.tp)


def _share(form: WeightForm, tp: int) -> tuple[int, ...]:
    """Shape of a rank's share of a weight."""
    return tuple(size // tp if axis == form.split else size for axis, size in enumerate(form.shape))


def _part(model: Model, layer: int, shape: TimedShape, device: torch.device, dtype: torch.dtype) -> Part:
    """The rank's share of the layer; first values are drawn on the device, no optimizer state is made."""
    settings = StageSettings(shape.micro_batch * shape.seq, dtype=dtype, device=device.type)
    part = Part(model, ((layer, layer + 1),), settings, _split(shape), _Silent(shape.tp))
    own = {form.name: _drawn(form, shape, device, dtype) for form in forms(model, layer, shape.tp)}
    if model.layers[layer].kind is LayerKind.HEAD and "matrix" not in own:  # tied: the head computes with a copy
        matrix = next(form for form in forms(model, 0, shape.tp) if form.name == "matrix")
        own["matrix"] = _drawn(matrix, shape, device, dtype)
    part.place(layer, own, {})
    return part


def _drawn(form: WeightForm, shape: TimedShape, device: torch.device, dtype: torch.dtype) -> Weight:
    value = torch.full(_share(form, shape.tp), form.start, device=device, dtype=dtype)
    return weight(form, value.normal_(form.start, form.spread) if form.spread else value)


def _parameter_bytes(model: Model, layer: int, shape: TimedShape, dtype: torch.dtype) -> float:
    """Weights on one device; a tied head's matrix counts with the embedding, as everywhere."""
    sizes = (torch.Size(_share(form, shape.tp)).numel() for form in forms(model, layer, shape.tp))
    return float(sum(sizes) * dtype.itemsize)


def _inputs(
    model: Model, layer: int, shape: TimedShape, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Activations from above, tokens, gradient from below; each None where the layer takes none."""
    kind, size = model.layers[layer].kind, (shape.micro_batch, shape.seq, model.hidden)
    given = gradient = tokens = None
    if kind is not LayerKind.EMBEDDING:
        given = torch.randn(size, device=device, dtype=dtype)
    if kind is not LayerKind.BLOCK:
        tokens = sequences(0, 0, shape.micro_batch, seq=shape.seq, vocab=model.vocab).to(device)
    if kind is not LayerKind.HEAD:
        gradient = torch.randn(size, device=device, dtype=dtype)
    return given, tokens, gradient


# --------------------------------------------------------------------------------------------------------------- passes
class _Passes:
    """The three passes of a few waves, one kind after the other."""

    def __init__(
        self,
        part: Part,
        given: torch.Tensor | None,
        tokens: torch.Tensor | None,
        gradient: torch.Tensor | None,
        waves: int,
    ) -> None:
        self.part, self.given, self.tokens, self.gradient, self.waves = part, given, tokens, gradient, waves

    def forward(self, wave: int) -> None:
        """Keeps what the other passes need."""
        self.part.forward((0, wave), self.given, self.tokens)

    def backward(self, wave: int) -> None:
        """Gradient of the input."""
        self.part.backward((0, wave), self.gradient)

    def weight(self, wave: int) -> None:
        """Gradient of the weights."""
        self.part.weight((0, wave))

    def each(self, device: torch.device) -> tuple[float, float, float]:
        """Seconds of forward, backward and weight gradient of one wave, mean over the waves."""
        one, two, three = (
            seconds_of(device, lambda act=act: [act(wave) for wave in range(self.waves)]) / self.waves  # type: ignore[misc]
            for act in (self.forward, self.backward, self.weight)
        )
        return one, two, three


def _bytes_kept(passes: _Passes, device: torch.device) -> tuple[float, float]:
    """Bytes that one wave keeps between its passes, and the most that are held at any time, weights included."""
    with _saved(passes) as saved:
        passes.forward(0)
    own = {each.value.untyped_storage().data_ptr() for each in _weights(passes)}
    activation = float(sum(size for place, size in saved.items() if place not in own))
    passes.backward(0)
    passes.weight(0)
    held = float(sum(each.value.nbytes + each.total.nbytes for each in _weights(passes)))
    return activation, held + _peak(passes, device)


def _weights(passes: _Passes) -> Iterator[Weight]:
    for weights in passes.part.weights.values():
        yield from weights.values()


@contextmanager
def _saved(passes: _Passes) -> Iterator[dict[int, int]]:
    """Storages that autograd keeps while the context is open: address to bytes."""
    found: dict[int, int] = {}
    kept: list[torch.Tensor] = []  # alive, so that no address is given twice

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield found


def _peak(passes: _Passes, device: torch.device) -> float:
    """Most bytes that the three passes of one wave hold beyond what is there before."""

    def all_three() -> None:
        for act in (passes.forward, passes.backward, passes.weight):
            act(0)

    if device.type == "cuda":
        settle(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        all_three()
        settle(device)
        return float(torch.cuda.max_memory_allocated(device) - before)
    return _peak_of_allocator(all_three)


def _peak_of_allocator(body: Callable[[], None]) -> float:
    """From torch's record of what its CPU allocator hands out and takes back."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with _quiet(), torch.profiler.profile(activities=activities, profile_memory=True) as record:
        body()
    held = most = 0
    events = record.profiler.kineto_results.events() if record.profiler else []
    for event in sorted((each for each in events if each.name() == "[memory]"), key=lambda each: each.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return float(most)


@contextmanager
def _quiet() -> Iterator[None]:
    """The profiler writes to the error stream of the process, whatever its log level is."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
