"""Layers to files and back: a file per layer and tensor-parallel share, with all that training needs to go on."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from hippo.errors import InputError
from hippo.run.model.optimizer import AdamState
from hippo.run.model.stage import At, Part
from hippo.run.model.weights import Weight, cut, forms, weight

Tensor = torch.Tensor
STATE = ("master", "first", "second")
_FILE = re.compile(r"layer-(\d+)\.part-(\d+)-of-(\d+)(?:\.replica-(\d+))?\.pt")


Layer = Mapping[str, Mapping[str, Any]]
"""By weight's name: what training needs of it to go on."""


class Snapshot:
    """A part as it is now, which training goes on from while it is written. Nothing of it changes before the next
    update of the weights; only what is not written by then is copied."""

    def __init__(
        self, part: Part, replica: int | None = None, more: Mapping[str, Mapping[At, Tensor]] | None = None
    ) -> None:
        """A tied head leaves its matrix to the embedding's file. ``replica``: whose, where several train alone;
        ``more``: what else there is of each weight."""
        self._left: dict[str, Layer] = {}  # by file
        self._lock, self._copied = Lock(), False
        for layer, states in part.states.items():
            names = {form.name for form in forms(part.model, layer, part.split.parts)}
            of = "" if replica is None else f".replica-{replica}"
            self._left[f"layer-{layer}.part-{part.split.index}-of-{part.split.size}{of}.pt"] = {
                name: {
                    **{key: getattr(state, key).detach() for key in STATE},
                    **{key: held[layer, name] for key, held in (more or {}).items()},
                    "split": part.weights[layer][name].form.split,
                }
                for name, state in states.items()
                if name in names
            }

    def settle(self) -> None:
        """The weights are about to change: what is not written yet is copied."""
        with self._lock:
            if not self._copied:
                self._left = {file: _copy(layer) for file, layer in self._left.items()}
                self._copied = True

    def write(self, folder: Path, given: Callable[[], None] = lambda: None) -> dict[str, str]:
        """Writes every layer to a file of its own; SHA-256 of each by name. ``given`` is called when the system has
        all of them and only the disk is waited for. May raise ``OSError``."""
        files = list(self._left)
        for file in files:
            with self._lock:
                _put(self._left.pop(file), folder / file)
        given()
        return {file: _kept(folder / file) for file in files}


def _copy(layer: Layer) -> Layer:
    return {
        name: {key: value.clone() if isinstance(value, Tensor) else value for key, value in one.items()}
        for name, one in layer.items()
    }


def _put(layer: Layer, path: Path) -> None:
    with open(path, "wb") as stream:
        try:
            torch.save(layer, stream)
        except RuntimeError as error:  # torch's own words hide what the system said
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None


def _kept(path: Path) -> str:
    """The digest of a file that is on the disk from now on."""
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
        return hashlib.file_digest(stream, "sha256").hexdigest()


def load(part: Part, folder: Path, replica: int | None = None) -> None:
    """Takes the weights and states of every layer of a part from a checkpoint, however it was cut; ``replica``: whose,
    where several train alone.

    Raises
    ------
    InputError
        A layer's file is missing or broken.
    """
    own = list(part.weights)
    for layer in own:
        weights, states = _layer(part, folder, layer, replica)
        part.place(layer, weights, states)
    last = part.model.num_layers - 1
    if part.model.tied and last in own:
        if 0 in own:
            part.weights[last]["matrix"] = part.weights[0]["matrix"]
        else:
            weights, states = _layer(part, folder, 0, replica)
            part.weights[last]["matrix"], part.states[last]["matrix"] = weights["matrix"], states["matrix"]


def held_beside(part: Part, folder: Path, key: str) -> dict[At, Tensor]:
    """What a checkpoint of replicas that train alone has of every weight of a part beside its state, by ``key``: the
    first of them has it for all. Errors as of ``load``."""
    last, found = part.model.num_layers - 1, dict[At, Tensor]()
    for layer, states in part.states.items():
        own = _cut(part, folder, layer, 0, (key,))
        if part.model.tied and layer == last and "matrix" in states and "matrix" not in own:
            own |= {"matrix": _cut(part, folder, 0, 0, (key,))["matrix"]}
        found |= {(layer, name): own[name][key].to(state.master.dtype) for name, state in states.items()}
    return found


def _layer(part: Part, folder: Path, layer: int, replica: int | None) -> tuple[dict[str, Weight], dict[str, AdamState]]:
    weights, states = {}, {}
    settings, mine = part.settings, _cut(part, folder, layer, replica, STATE)
    for form in forms(part.model, layer, part.split.parts):
        own = mine[form.name]
        one = weights[form.name] = weight(form, own["master"].to(settings.dtype))
        precise = one.total.dtype
        same = precise == settings.dtype
        master = one.value.detach() if same else own["master"].to(precise)
        states[form.name] = AdamState(master, own["first"].to(precise), own["second"].to(precise))
    return weights, states


def _cut(
    part: Part, folder: Path, layer: int, replica: int | None, keys: Sequence[str]
) -> dict[str, dict[str, Tensor]]:
    """What a layer's files hold of its weights, as the part has them cut."""
    shares, found = _shares(folder, layer, replica), {}
    for form in forms(part.model, layer, part.split.parts):
        try:
            split = shares[0][form.name]["split"]
            whole = {
                key: shares[0][form.name][key]
                if split is None
                else torch.cat([share[form.name][key] for share in shares], dim=split)
                for key in keys
            }
        except (KeyError, RuntimeError) as error:
            raise _broken(folder, layer, f"lacks '{form.name}': {error}") from None
        if (shape := tuple(whole[keys[0]].shape)) != form.shape:
            raise _broken(folder, layer, f"'{form.name}' is {shape}, not {form.shape}")
        found[form.name] = {key: cut(form, one, part.split).to(part.settings.device) for key, one in whole.items()}
    return found


def _shares(folder: Path, layer: int, replica: int | None) -> list[dict[str, Any]]:
    """What the files of a layer hold, by tensor-parallel rank."""
    names = sorted(
        (int(match[2]), int(match[3]), path)
        for path in folder.glob(f"layer-{layer}.part-*.pt")
        if (match := _FILE.fullmatch(path.name)) and match[4] == (None if replica is None else str(replica))
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
