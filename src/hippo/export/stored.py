"""Checkpoints as ``torch.distributed.checkpoint`` writes them: what is in one, without its numbers. No torch.

The index (``.metadata``) is a pickle. Of what it names nothing is imported: the classes that torch puts there are read
as shells that hold what was told of them, and whatever else it names is refused, so a file from elsewhere runs nothing.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hippo.errors import InputError

INDEX = ".metadata"
STEP, ITERATION, TRACKER = "step-", "iter_", "latest_checkpointed_iteration.txt"
"""Folders of torchtitan's checkpoints; of Megatron-LM's, and the file that says which one it begins from."""
_SHELLS = re.compile(
    r"torch\.distributed\.checkpoint\.(metadata|planner)\.\w+|torch\.distributed\.checkpoint\.filesystem\._StorageInfo"
    r"|torch\.serialization\._get_layout|torch\.(bool|b?float|u?int|complex)\w*"
    r"|pathlib(\._local)?\.PosixPath"
)


@dataclass(frozen=True)
class StoredState:
    """What one checkpoint holds."""

    folder: Path
    step: int
    shapes: Mapping[str, tuple[int, ...]]  # of tensors, by name


class _Shell:
    """Whatever was told of an object."""

    def __init__(self, *told: object) -> None:
        self.told = told

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)


class _Index(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Shells of what an index is made of, sizes, and nothing else."""
        if (module, name) == ("torch", "Size"):
            return tuple
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if _SHELLS.fullmatch(f"{module}.{name}"):
            return type(name, (_Shell,), {})
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def newest(place: Path) -> StoredState:
    """The newest whole checkpoint of a folder of torchtitan's ``step-N`` folders.

    Raises
    ------
    InputError
        There is none, its index cannot be read, or a file is missing or cut off.
    """
    where = "give the folder in which torchtitan leaves step-N folders (outputs/checkpoint)"
    found = ((path.name.removeprefix(STEP), path) for path in _folders(place, where) if path.name.startswith(STEP))
    whole = sorted((int(step), path) for step, path in found if step.isdecimal() and (path / INDEX).is_file())
    if not whole:
        raise InputError("holds no whole checkpoint", source="--checkpoint", value=str(place), remedy=where)
    return _stored(*whole[-1], remedy=f"remove {whole[-1][1]}, so that the one before is taken")


def tracked(place: Path) -> StoredState:
    """The checkpoint of a folder of Megatron-LM's ``iter_N`` folders that Megatron-LM begins from; raises as
    ``newest``."""
    where = f"give the folder of --save, which holds {TRACKER} and iter_N folders of --ckpt-format torch_dist"
    _folders(place, where)
    try:
        told = (place / TRACKER).read_text(errors="replace").strip()[:20]
    except OSError:
        told = ""
    folder = place / f"{ITERATION}{told.rjust(7, '0')}"
    if not told.isdecimal() or not (folder / INDEX).is_file():
        raise InputError("holds no whole checkpoint", source="--checkpoint", value=str(place), remedy=where)
    return _stored(int(told), folder, remedy=f"write the number of a whole one into {place / TRACKER}")


def _stored(step: int, folder: Path, *, remedy: str) -> StoredState:
    index = _read(folder / INDEX)
    sizes: dict[str, int] = {}
    for info in index.storage_data.values():
        sizes[info.relative_path] = max(sizes.get(info.relative_path, 0), info.offset + info.length)
    for name, size in sorted(sizes.items()):
        path = folder / name
        there = path.stat().st_size if path.is_file() else 0
        if Path(name).name != name or there < size:
            told = f"has {there} bytes of the {size} that the index tells of"
            raise InputError(told, source=str(path), remedy=remedy)
    entries = index.state_dict_metadata.items()
    shapes = {name: tuple(entry.size) for name, entry in entries if hasattr(entry, "size")}
    return StoredState(folder.resolve(), step, shapes)


def _folders(place: Path, remedy: str) -> list[Path]:
    try:
        return sorted(place.iterdir())
    except OSError as error:
        told = f"cannot be read: {error.strerror}"
        raise InputError(told, source="--checkpoint", value=str(place), remedy=remedy) from None


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as stream:
            found = _Index(stream).load()
        _ = found.storage_data.values(), found.state_dict_metadata.items()
        return found
    except (OSError, pickle.UnpicklingError, EOFError, ValueError, AttributeError, TypeError, LookupError) as error:
        told = f"is no index of a checkpoint: {next(iter(str(error).splitlines()), 'it ends early')[:120]}"
        raise InputError(told, source=str(path), remedy=f"remove {path.parent}") from None
