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
_STEP = re.compile(r"step-(\d+)")
_SHELLS = re.compile(
    r"torch\.distributed\.checkpoint\.metadata\.\w+|torch\.distributed\.checkpoint\.filesystem\._StorageInfo"
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
    """The newest checkpoint of a folder of ``step-N`` folders.

    Raises
    ------
    InputError
        There is none, its index cannot be read, or a file is missing or cut off.
    """
    steps = [(int(match[1]), path) for path in _folders(place) if (match := _STEP.fullmatch(path.name))]
    whole = sorted((step, path) for step, path in steps if (path / INDEX).is_file())
    if not whole:
        remedy = "give the folder in which torchtitan leaves step-N folders (outputs/checkpoint)"
        raise InputError("holds no whole checkpoint", source="--checkpoint", value=str(place), remedy=remedy)
    step, folder = whole[-1]
    index = _read(folder / INDEX)
    sizes: dict[str, int] = {}
    for info in index.storage_data.values():
        sizes[info.relative_path] = max(sizes.get(info.relative_path, 0), info.offset + info.length)
    for name, size in sorted(sizes.items()):
        path = folder / name
        there = path.stat().st_size if path.is_file() else 0
        if Path(name).name != name or there < size:
            told = f"has {there} bytes of the {size} that the index tells of"
            raise InputError(told, source=str(path), remedy=f"remove {folder}, so that the one before is taken")
    entries = index.state_dict_metadata.items()
    shapes = {name: tuple(entry.size) for name, entry in entries if hasattr(entry, "size")}
    return StoredState(folder.resolve(), step, shapes)


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(place.iterdir())
    except OSError as error:
        remedy = "give the folder in which torchtitan leaves step-N folders"
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
