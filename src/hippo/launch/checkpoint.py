"""Checkpoints on disk: a folder per step, whole or not there at all. No torch.

    DIR/step-00000010/meta.json               step, model, losses so far: written last, then the folder gets its name
    DIR/step-00000010/layer-3.part-0-of-2.pt  a layer's weights and optimizer state, one file per tensor-parallel share

Layers lie in files of their own, so another plan, cut otherwise, reads the same checkpoint.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hippo.errors import InputError
from hippo.files import json_text, write_whole
from hippo.problem.model import Model

META = "meta.json"
KEPT = 2
_NAME = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint."""

    folder: Path
    step: int  # the last that is in it
    losses: tuple[float, ...]


def begin(place: Path, step: int) -> Path:
    """A new, hidden folder for a step; what an earlier run left half-done goes."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        for old in place.glob(".step-*.part"):
            shutil.rmtree(old)
        folder = place / f".step-{step:08d}.part"
        folder.mkdir()
    except OSError as error:
        remedy = "name a folder you may write to"
        raise InputError(
            f"cannot write: {error.strerror}", source="--checkpoint", value=str(place), remedy=remedy
        ) from None
    return folder


def commit(hidden: Path, model: Model, step: int, losses: Sequence[float]) -> Path:
    """Gives a folder whose layers are all written its name; the oldest of more than ``KEPT`` go."""
    write_whole(hidden / META, json_text({"step": step, "model": _shape(model), "losses": list(losses)}))
    _sync(hidden)
    final = hidden.parent / f"step-{step:08d}"
    with suppress(FileNotFoundError):
        shutil.rmtree(final)
    os.replace(hidden, final)
    _sync(hidden.parent)
    for old in sorted(_whole(hidden.parent))[:-KEPT]:
        shutil.rmtree(old[1], ignore_errors=True)
    return final


def last(place: Path, model: Model) -> Checkpoint:
    """The newest whole checkpoint.

    Raises
    ------
    InputError
        There is none, it cannot be read, or it is one of another model.
    """
    found = sorted(_whole(place))
    if not found:
        remedy = "train with --checkpoint first, or leave out --resume"
        raise InputError("holds no whole checkpoint", source="--checkpoint", value=str(place), remedy=remedy)
    step, folder = found[-1]
    try:
        document = json.loads((folder / META).read_text())
        shape, losses = document["model"], tuple(float(loss) for loss in document["losses"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "remove that folder, so that the one before is taken"
        raise InputError(f"cannot be read: {error}", source=str(folder / META), remedy=remedy) from None
    if shape != _shape(model):
        remedy = "give the plan of that model, or another folder"
        raise InputError(
            f"is of another model than {model.name}", source=str(folder), value=shape.get("name"), remedy=remedy
        )
    return Checkpoint(folder, step, losses)


def _whole(place: Path) -> list[tuple[int, Path]]:
    """Steps that are there, with their folders."""
    if not place.is_dir():
        return []
    named = ((match, path) for path in place.iterdir() if (match := _NAME.fullmatch(path.name)))
    return [(int(match[1]), path) for match, path in named if (path / META).is_file()]


def _shape(model: Model) -> dict[str, object]:
    """What must be equal for weights to fit."""
    return {
        "name": model.name,
        "layers": model.num_layers,
        "hidden": model.hidden,
        "vocab": model.vocab,
        "parameters": model.parameters,
    }


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
