"""A training run as one file: everything that the next update depends on, so that a resumed run is the same run.

Weights, the optimizer's moments, multipliers, and of every share of the worlds its random numbers, what each of its
worlds is doing, and what was last seen there. The file appears whole or not at all, and holds data alone: reading one
runs no code.
"""

from __future__ import annotations

import io
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hippo.errors import InputError
from hippo.files import write_whole

FORMAT = "hippo training run 4"
NAME = "checkpoint.pt"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A run between two updates."""

    update: int  # done so far
    seconds: float  # of wall clock, this far
    settings: dict[str, Any]  # as mappings, to see whether a resumed run is asked for something else
    policy: dict[str, Any]
    optimizer: dict[str, Any]
    multipliers: list[float]
    shares: list[Any]  # in their order; nested mappings and lists of arrays, numbers and words
    notes: dict[str, Any]  # whatever else a run carries on: best so far, epochs seen


def save(folder: Path, run: Checkpoint) -> Path:
    """Writes ``checkpoint.pt`` into the folder."""
    stream = io.BytesIO()
    torch.save({**vars(run), "format": FORMAT, "shares": _tensors(run.shares)}, stream)
    write_whole(folder / NAME, stream.getvalue())
    return folder / NAME


def earlier_run(folder: Path, *, resume: bool) -> Checkpoint | None:
    """The run in a folder, to go on with; None: a new one begins.

    Raises
    ------
    InputError
        A new run is to begin where one is already; or there is none to go on with.
    """
    if resume:
        return load(folder)
    if (folder / NAME).exists():
        remedy = "go on with --resume, or give another folder"
        raise InputError("holds a run already", source="--out", value=str(folder), remedy=remedy)
    return None


def must_match(run: Checkpoint, settings: Any, *, free: Collection[str]) -> None:
    """``InputError`` where a run to go on with was made with other settings; it names them as ``section.key``.

    ``free``: those that a resumed run may change.
    """
    mine = asdict(settings)
    differing = [
        f"{section}.{key}"
        for section in mine
        for key in mine[section]
        if f"{section}.{key}" not in free
        and _plain(run.settings.get(section, {}).get(key)) != _plain(mine[section][key])
    ]
    if differing:
        problem = f"was made with other settings: {', '.join(differing)}"
        raise InputError(problem, source="--resume", remedy="give the same configuration, or begin a new run")


def load(path: Path) -> Checkpoint:
    """A run from its file, or from the folder that holds one.

    Raises
    ------
    InputError
        There is none, or it is something else.
    """
    file = path / NAME if path.is_dir() else path
    remedy = "give the folder of an earlier 'hippo train --out'"
    if not file.exists():
        raise InputError("there is no checkpoint", source="--resume", value=str(path), remedy=remedy)
    try:
        document = torch.load(file, weights_only=True)
        if document.pop("format", None) != FORMAT:
            raise InputError("is no training run of this version", source=str(file), remedy=remedy)
        return Checkpoint(**{**document, "shares": _arrays(document["shares"])})
    except InputError:
        raise
    except Exception:  # what is no pickle may break the reader anywhere
        raise InputError("is no training run, or a broken one", source=str(file), remedy=remedy) from None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | list) else value


def _tensors(value: Any) -> Any:
    """The same with tensors for arrays: what can be read without running code."""
    if isinstance(value, dict):
        return {name: _tensors(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_tensors(each) for each in value]
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray | np.generic) else value


def _arrays(value: Any) -> Any:
    """The way back."""
    if isinstance(value, dict):
        return {name: _arrays(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_arrays(each) for each in value]
    return value.numpy() if isinstance(value, torch.Tensor) else value
