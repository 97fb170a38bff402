"""Every layer of a model at every (tp, micro-batch) asked for, as the profile that ``--profile`` reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from hippo.cost.memory import activation_bytes
from hippo.cost.stage import Layout
from hippo.errors import InputError
from hippo.measure.profile.device import DTYPES, device_at_hand, free_bytes, gpu_of, name_of
from hippo.measure.profile.layer import time_layer
from hippo.measure.profile.rows import LayerTimes, ProfiledDevice, ProfiledRow, ProfileRequest, TimedShape
from hippo.problem.model import Layer, Model
from hippo.problem.profile import Profile, ProfileRow
from hippo.problem.runtimes import runtime_of, tp_refusal
from hippo.problem.workload import Workload
from hippo.run.fits import refuse_model

_ROOM = 3.0
"""Times the kept activations that one layer may hold at its worst (gradients, temporaries)."""


def check_asked(asked: ProfileRequest) -> None:
    """``InputError`` for what cannot be timed: mixtures of experts, a tp that does not divide, too long a sequence."""
    try:
        refuse_model(asked.model, seq=asked.seq)
    except InputError as error:
        remedy = "profile a dense model, or plan this one by formulas"
        raise InputError(error.problem, source="--model", value=asked.model.name, remedy=remedy) from None
    learned = asked.model.layers[0].positions
    if learned and asked.seq > learned:
        problem = f"exceeds the {learned} learned positions of {asked.model.name}"
        raise InputError(problem, source="--seq", value=asked.seq, remedy=f"write at most {learned}")
    for tp in asked.widths:
        refusal = tp_refusal(asked.model, tp, runtime_of("ideal"))
        if refusal:
            raise InputError(str(refusal), source="--tp", value=tp, remedy="leave it out")


def profiled(asked: ProfileRequest, progress: Callable[[str, float], None]) -> ProfiledDevice:
    """Times every sort of layer at every shape, on the GPU where there is one, else on the CPU.

    Raises
    ------
    InputError
        What cannot be timed (``check_asked``), or a shape that the device has too little memory for.
    """
    check_asked(asked)
    torch.set_num_threads(asked.threads)
    device = device_at_hand()
    precision = asked.precision or ("fp32" if device.type == "cpu" else "bf16")
    gpu = gpu_of(device, asked.gpu or name_of(device), precision)
    asked = replace(asked, precision=precision, gpu=gpu.name)
    rows = _rows(asked, device, progress)
    return ProfiledDevice(_profile(asked, precision, rows, device), gpu, rows)


def _rows(
    asked: ProfileRequest, device: torch.device, progress: Callable[[str, float], None]
) -> tuple[ProfiledRow, ...]:
    sorts = tuple(_sorts(asked.model))
    shapes = [TimedShape(tp, size, asked.seq) for tp in asked.widths for size in asked.micro_batches]
    found: list[ProfiledRow] = []
    for shape in shapes:
        for kind, index, layer in sorts:
            share = len(found) / (len(shapes) * len(sorts))
            progress(f"{kind or f'layer {index}'}, tp {shape.tp}, micro-batch {shape.micro_batch}", share)
            times = _timed(asked, layer, shape, device)
            found.append(ProfiledRow(_row(asked, (kind, index), shape, times), times))
    return tuple(found)


def _sorts(model: Model) -> Iterator[tuple[str | None, int | None, int]]:
    """What a row is keyed by (a kind, or an index where layers of a kind differ), and a layer of that sort."""
    by_kind: dict[str, list[int]] = {}
    for index, layer in enumerate(model.layers):
        by_kind.setdefault(layer.kind.value, []).append(index)
    for kind, indices in by_kind.items():
        if len({model.layers[index] for index in indices}) == 1:
            yield kind, None, indices[0]
        else:
            yield from ((None, index, index) for index in indices)


def _timed(asked: ProfileRequest, layer: int, shape: TimedShape, device: torch.device) -> LayerTimes:
    assert asked.precision is not None
    dtype = DTYPES[asked.precision]
    _check_room(asked, asked.model.layers[layer], shape, device)
    try:
        return time_layer(asked.model, layer, shape, device=device, dtype=dtype, budget_s=asked.budget_s)
    except torch.OutOfMemoryError:
        raise _too_large(shape) from None


def _check_room(asked: ProfileRequest, layer: Layer, shape: TimedShape, device: torch.device) -> None:
    """``InputError`` where the layer cannot fit: a CPU's allocator hands out what is not there, and is killed."""
    assert asked.precision is not None
    width = DTYPES[asked.precision].itemsize
    layout = Layout(shape.tp, 1, shape.micro_batch, precision=asked.precision)
    logits = 3 * 4.0 * shape.micro_batch * shape.seq * layer.vocab
    need = 2.0 * width * (layer.parameters / shape.tp + layer.vocab * layer.hidden)
    need += _ROOM * activation_bytes(layer, layout, Workload(seq=asked.seq)) + logits
    if need > free_bytes(device):
        raise _too_large(shape)


def _too_large(shape: TimedShape) -> InputError:
    remedy = "leave this micro-batch out, or give a shorter --seq"
    problem = f"tp {shape.tp}, micro-batch {shape.micro_batch}: the device has too little memory"
    return InputError(problem, source="--micro-batch", value=shape.micro_batch, remedy=remedy)


def _row(asked: ProfileRequest, key: tuple[str | None, int | None], shape: TimedShape, times: LayerTimes) -> ProfileRow:
    assert asked.gpu is not None
    return ProfileRow(
        layer_kind=key[0],
        layer_index=key[1],
        gpu=asked.gpu,
        tp=shape.tp,
        micro_batch=shape.micro_batch,
        forward_s=times.forward.median_s,
        backward_s=times.backward.median_s,
        weight_gradient_s=times.weight.median_s,
        parameter_bytes=times.parameter_bytes,
        activation_bytes=times.activation_bytes,
        output_bytes=times.output_bytes,
    )


def _profile(asked: ProfileRequest, precision: str, found: Sequence[ProfiledRow], device: torch.device) -> Profile:
    """The profile of these rows, and in its source how they were made."""
    repeats = min(each.times.repeats for each in found)
    wide = max(asked.widths) > 1
    told = "; one rank's shard, without the collectives of tensor parallelism" if wide else ""
    where = f"a CPU, {asked.threads} thread{'s' if asked.threads > 1 else ''}" if device.type == "cpu" else asked.gpu
    source = (
        f"hippo profile: {asked.model.name}, sequences of {asked.seq} tokens, on {where} with torch "
        f"{torch.__version__}, medians of {repeats} repeats or more{told}"
    )
    return Profile(precision, 16.0, tuple(each.row for each in found), source)
