"""Layers to files and back: a file per layer and tensor-parallel share, with all that training needs to go on."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path
from typing import Any

import torch

from hippo.errors import InputError
from hippo.run.model.optimizer import AdamState
from hippo.run.model.stage import Part
from hippo.run.model.weights import Weight, cut, forms, weight

Tensor = torch.Tensor
STATE = ("master", "first", "second")
_FILE = re.compile(r"layer-(\d+)\.part-(\d+)-of-(\d+)\.pt")


def save(part: Part, folder: Path) -> None:
    """Writes every layer of a part; a tied head leaves its matrix to the embedding's file. May raise ``OSError``."""
    for layer, states in part.states.items():
        names = {form.name for form in forms(part.model, layer, part.split.parts)}
        content = {
            name: {key: getattr(state, key).detach() for key in STATE} | {"split": part.weights[layer][name].form.split}
            for name, state in states.items()
            if name in names
        }
        path = folder / f"layer-{layer}.part-{part.split.index}-of-{part.split.size}.pt"
        with open(path, "wb") as stream:
            try:
                torch.save(content, stream)
            except RuntimeError as error:  # torch's own words hide what the system said
                raise error.__context__ if isinstance(error.__context__, OSError) else error from None
            stream.flush()
            os.fsync(stream.fileno())


def load(part: Part, folder: Path) -> None:
    """Takes the weights and states of every layer of a part from a checkpoint, however it was cut.

    Raises
    ------
    InputError
        A layer's file is missing or broken.
    """
    own = list(part.weights)
    for layer in own:
        weights, states = _layer(part, folder, layer)
        part.place(layer, weights, states)
    last = part.model.num_layers - 1
    if part.model.tied and last in own:
        if 0 in own:
            part.weights[last]["matrix"] = part.weights[0]["matrix"]
        else:
            weights, states = _layer(part, folder, 0)
            part.weights[last]["matrix"], part.states[last]["matrix"] = weights["matrix"], states["matrix"]


def _layer(part: Part, folder: Path, layer: int) -> tuple[dict[str, Weight], dict[str, AdamState]]:
    shares = _shares(folder, layer)
    weights, states = {}, {}
    settings = part.settings
    for form in forms(part.model, layer, part.split.parts):
        try:
            split = shares[0][form.name]["split"]
            whole = {
                key: shares[0][form.name][key]
                if split is None
                else torch.cat([share[form.name][key] for share in shares], dim=split)
                for key in STATE
            }
        except (KeyError, RuntimeError) as error:
            raise _broken(folder, layer, f"lacks '{form.name}': {error}") from None
        if tuple(whole["master"].shape) != form.shape:
            raise _broken(folder, layer, f"'{form.name}' is {tuple(whole['master'].shape)}, not {form.shape}")
        mine = {key: cut(form, tensor, part.split).to(settings.device) for key, tensor in whole.items()}
        one = weights[form.name] = weight(form, mine["master"].to(settings.dtype))
        precise = one.total.dtype
        same = precise == settings.dtype
        master = one.value.detach() if same else mine["master"].to(precise)
        states[form.name] = AdamState(master, mine["first"].to(precise), mine["second"].to(precise))
    return weights, states


def _shares(folder: Path, layer: int) -> list[dict[str, Any]]:
    """What the files of a layer hold, by tensor-parallel rank."""
    names = sorted(
        (int(match[2]), int(match[3]), path)
        for path in folder.glob(f"layer-{layer}.part-*.pt")
        if (match := _FILE.fullmatch(path.name))
    )
    if not names or [index for index, _, _ in names] != list(range(names[0][1])):
        raise _broken(folder, layer, "is missing, or a share of it")
    found = []
    for _, _, path in names:
        try:
            found.append(torch.load(path, weights_only=True))
        except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
            told = next(iter(str(error).splitlines()), "it ends early")
            raise _broken(folder, layer, f"cannot be read: {told}") from None
    return found


def _broken(folder: Path, layer: int, told: str) -> InputError:
    remedy = "remove that folder, so that the checkpoint before is taken"
    return InputError(f"layer {layer} {told}", source=str(folder), remedy=remedy)
