"""Checkpoints on disk: a folder per step, whole or not there at all. No torch.

    DIR/step-00000010/meta.json               step, model, seed, losses so far, sizes and digests (SHA-256) of the other
                                              files: written last, then the folder gets its name
    DIR/step-00000010/layer-3.part-0-of-2.pt  a layer's weights and optimizer state, one file per tensor-parallel share;
                                              those of replicas that train alone end in ``.replica-0.pt``, .., and the
                                              first's hold where all began last and the outer momentum, too

Layers lie in files of their own, so another plan, cut otherwise, reads the same checkpoint. A step that is written anew
stands aside as ``step-00000010.old`` until the new one has its name: at every moment one of them is whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hippo.errors import InputError
from hippo.files import json_text, write_whole
from hippo.problem.model import Model

META = "meta.json"
KEPT = 2
INSTEAD = "remove that folder, so that the one before is taken"
_REPLICA = re.compile(r"\.replica-(\d+)\.pt$")
_NAME = re.compile(r"step-(\d{8,})(\.old)?")


@dataclass(frozen=True)
class RunCheckpoint:
    """A whole checkpoint."""

    folder: Path
    step: int  # the last that is in it
    losses: tuple[float, ...]
    replicas: int = 1  # that train alone


def begin(place: Path, step: int) -> Path:
    """A new, hidden folder for a step; what an earlier run left half-done goes."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        for old in place.glob(".step-*.part"):
            shutil.rmtree(old)
        folder = place / f".step-{step:08d}.part"
        folder.mkdir()
    except OSError as error:
        raise _unwritable(place, error) from None
    return folder


@contextmanager
def held(place: Path) -> Iterator[None]:
    """One run at a time saves in a folder: each would clear away what another has under way. ``InputError``: another
    one does, or it cannot be made."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        folder = os.open(place, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(place, error) from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        remedy = "name another folder, or wait until that run is over"
        raise InputError("another run saves there", source="--checkpoint", value=str(place), remedy=remedy) from None
    finally:
        os.close(folder)


def refuse_older(place: Path) -> None:
    """``InputError`` where checkpoints of an earlier run lie: only the highest steps are kept, whoever wrote them."""
    if found := _whole(place):
        remedy = "go on from the newest with --resume, or name another folder"
        raise InputError("holds checkpoints already", source="--checkpoint", value=str(found[-1].folder), remedy=remedy)


def commit(
    hidden: Path,
    model: Model,
    step: int,
    losses: Sequence[float],
    *,
    digests: Mapping[str, str] = MappingProxyType({}),
    seed: int = 0,
    replicas: int = 1,
) -> Path:
    """Gives a folder whose layers are all written its name; the oldest of more than ``KEPT`` go. ``digests``: of what
    was meant to be written, by name."""
    sizes = {path.name: path.stat().st_size for path in sorted(hidden.iterdir())}
    document = {"step": step, "model": _shape(model), "seed": seed, "losses": list(losses), "files": sizes}
    document |= {} if replicas == 1 else {"replicas": replicas}
    document["sha256"] = dict(sorted(digests.items()))
    write_whole(hidden / META, json_text(document))
    _sync(hidden)
    final = hidden.parent / f"step-{step:08d}"
    aside = final.with_name(f"{final.name}.old")
    if (final / META).is_file():
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(final, aside)
    elif final.exists():
        shutil.rmtree(final)
    os.replace(hidden, final)
    _sync(hidden.parent)
    shutil.rmtree(aside, ignore_errors=True)
    for old in _whole(hidden.parent)[:-KEPT]:
        shutil.rmtree(old.folder, ignore_errors=True)
    return final


def last(place: Path, model: Model, *, seed: int | None = None) -> RunCheckpoint:
    """The newest whole checkpoint; ``seed``: of the run that goes on from it.

    Raises
    ------
    InputError
        There is none, it cannot be read, a file of it is missing, cut off or not what was written, or it is one of
        another model or seed.
    """
    found = _whole(place)
    if not found:
        remedy = "train with --checkpoint first, or leave out --resume"
        raise InputError("holds no whole checkpoint", source="--checkpoint", value=str(place), remedy=remedy)
    step, folder = found[-1].step, found[-1].folder
    try:
        meta = _meta(json.loads((folder / META).read_text()), step)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        told = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"cannot be read: {told}", source=str(folder / META), remedy=INSTEAD) from None
    if meta.model != _shape(model):
        remedy = "give the plan of that model, or another folder"
        value = meta.model.get("name")
        raise InputError(f"is of another model than {model.name}", source=str(folder), value=value, remedy=remedy)
    if seed is not None and seed != meta.seed:
        remedy = f"give --seed {meta.seed}, or begin anew in another folder"
        raise InputError(f"is not the seed of {folder}, {meta.seed}", source="--seed", value=seed, remedy=remedy)
    _check_files(folder, meta)
    if (layer := lacks(meta.files, model, meta.replicas)) is not None:
        raise InputError(f"lacks layer {layer}", source=str(folder / META), remedy=INSTEAD)
    return RunCheckpoint(folder, step, meta.losses, meta.replicas)


def _unwritable(place: Path, error: OSError) -> InputError:
    told, remedy = f"cannot write: {error.strerror}", "name a folder you may write to"
    return InputError(told, source="--checkpoint", value=str(place), remedy=remedy)


def lacks(names: Iterable[str], model: Model, replicas: int = 1) -> int | None:
    """The first layer of which none of these files holds a part of one of the replicas; None: each has one."""
    there = {(name.partition(".")[0], found[1] if (found := _REPLICA.search(name)) else None) for name in names}
    whose = [None] if replicas == 1 else list(map(str, range(replicas)))
    each = ((layer, replica) for layer in range(model.num_layers) for replica in whose)
    return next((layer for layer, replica in each if (f"layer-{layer}", replica) not in there), None)


def replica_in(folder: Path, pipeline: int) -> int | None:
    """Of replicas that train alone the one that a pipeline goes on from: its own, or a copy of the first where there
    are fewer; None: the checkpoint is of one set of weights."""
    if not is_of_several(folder):
        return None
    return pipeline if next(folder.glob(f"*.replica-{pipeline}.pt"), None) is not None else 0


def is_of_several(folder: Path) -> bool:
    """Whether a checkpoint is of replicas that train alone."""
    return next(folder.glob("*.replica-0.pt"), None) is not None


@dataclass(frozen=True)
class _Meta:
    """What ``meta.json`` says."""

    model: Mapping[str, object]
    seed: int
    losses: tuple[float, ...]
    files: Mapping[str, int]  # bytes by name
    digests: Mapping[str, str]  # SHA-256 by name; of checkpoints from before there were any: nothing
    replicas: int  # that train alone


def _meta(document: Any, step: int) -> _Meta:
    """The document as it must be; ``KeyError``, ``TypeError`` or ``ValueError`` says what is wrong with it."""
    if not isinstance(document, dict):
        raise TypeError("it is no JSON object")
    kinds = {"step": int, "model": dict, "seed": int, "losses": list, "files": dict}
    for key, kind in kinds.items():
        if not isinstance(document[key], kind):
            raise TypeError(f"'{key}' is {document[key]!r:.60}")
    if document["step"] != step:
        raise ValueError(f"its step is {document['step']!r:.60}, its folder's {step}")
    losses, files = document["losses"], document["files"]
    if not all(isinstance(loss, float | int) for loss in losses):
        raise TypeError("'losses' holds something else than numbers")
    if not all(isinstance(size, int) for size in files.values()):
        raise TypeError("'files' holds something else than sizes")
    digests = document.get("sha256", {})
    if not isinstance(digests, dict) or not all(isinstance(digest, str) for digest in digests.values()):
        raise TypeError("'sha256' holds something else than digests")
    if digests.keys() - files.keys():
        raise ValueError(f"'sha256' tells of {min(digests.keys() - files.keys())!r:.60}, which is not among its files")
    replicas = document.get("replicas", 1)
    if not isinstance(replicas, int) or replicas < 1:
        raise ValueError(f"'replicas' is {replicas!r:.60}")
    return _Meta(document["model"], document["seed"], tuple(float(loss) for loss in losses), files, digests, replicas)


def _check_files(folder: Path, meta: _Meta) -> None:
    """``InputError`` where a file is missing, or is not what was written."""
    for name, size in meta.files.items():
        try:
            there = (folder / name).stat().st_size
        except (OSError, ValueError):
            raise InputError("is missing", source=str(folder / name), remedy=INSTEAD) from None
        if there != size:
            told = f"has {there} bytes, not the {size} that were written"
            raise InputError(told, source=str(folder / name), remedy=INSTEAD)
        if name in meta.digests and _digest(folder / name) != meta.digests[name]:
            raise InputError("is not what was written: its digest differs", source=str(folder / name), remedy=INSTEAD)


def _digest(path: Path) -> str:
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path), remedy=INSTEAD) from None


@dataclass(frozen=True)
class _Whole:
    """A folder that was given its name."""

    step: int
    folder: Path


def _whole(place: Path) -> list[_Whole]:
    """What is there, the newest last; a step that stands aside comes before the one that replaces it."""
    if not place.is_dir():
        return []
    named = ((match, path) for path in place.iterdir() if (match := _NAME.fullmatch(path.name)))
    found = [(int(match[1]), match[2] is None, path) for match, path in named if (path / META).is_file()]
    return [_Whole(step, path) for step, _, path in sorted(found)]


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
