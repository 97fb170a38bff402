"""The one form of whatever was learned: a file of named arrays (.npz) with a header, read without torch.

The header says what kind of weights these are, which features their networks see, and how they were made. Weights of
another kind, or for other features than this program has, are refused: they would answer, and wrongly. Equal weights
make equal bytes; reading a file runs no code.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError

FORMAT = 1
HEADER = "hippo"
MOST_BYTES = 32_000_000
"""Of a file, packed and unpacked; ours have some hundred kilobytes."""

Arrays = Mapping[str, NDArray[Any]]
Features = Mapping[str, list[Any]]
"""Names by group, in the order in which a network sees them."""


@dataclass(frozen=True)
class Form:
    """What a file of weights has to be."""

    kind: str  # in words that fit "is no .."
    features: Features
    remedy: str

    def packed(self, arrays: Arrays, **made: Any) -> bytes:
        """The bytes of a file. ``made``: whatever is worth knowing of how they were made (JSON)."""
        header = {"format": FORMAT, "kind": self.kind, "features": dict(self.features), "made": made}
        stream = io.BytesIO()
        held: dict[str, Any] = {HEADER: np.array(json.dumps(header, sort_keys=True)), **arrays}
        np.savez_compressed(stream, **held)
        return stream.getvalue()

    def wrong(self, source: str) -> InputError:
        """For arrays that are missing, of another shape, or not finite."""
        return InputError(f"is no {self.kind} of this version", source=source, remedy=self.remedy)

    def read(self, path: str | Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays by name, and how they were made, from a file. ``InputError``: there is none; as of ``unpacked``."""
        source = str(path)
        try:
            with open(path, "rb") as stream:
                content = stream.read(MOST_BYTES + 1)
        except FileNotFoundError:
            raise InputError(f"{self.kind} does not exist", source=source, remedy=self.remedy) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"cannot read the {self.kind}: {reason}", source=source, remedy=self.remedy) from None
        return self.unpacked(content, source)

    def unpacked(self, content: bytes, source: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """The same from bytes.

        Raises
        ------
        InputError
            Something else, damaged, too large; of another kind or version; made for other features.
        """
        try:
            arrays = _members(content)
            header = json.loads(str(arrays.pop(HEADER)))
            kind, version, features, made = (header[key] for key in ("kind", "format", "features", "made"))
        except Exception:  # what is no such file may break zip's or numpy's reader anywhere
            problem = f"is no {self.kind}, or a broken one"
            raise InputError(problem, source=source, remedy=self.remedy) from None
        if kind != self.kind:
            raise InputError(f"is no {self.kind}", source=source, key="kind", value=kind, remedy=self.remedy)
        if version != FORMAT:
            problem = f"is a {self.kind} of another version"
            raise InputError(problem, source=source, key="format", value=version, remedy=self.remedy)
        for group, names in self.features.items():
            if not isinstance(features, dict) or features.get(group) != names:
                problem = f"is a {self.kind} for other features than this program has"
                raise InputError(problem, source=source, key=f"features.{group}", remedy=self.remedy)
        return arrays, made


def _members(content: bytes) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz; each member is unpacked whole, so that its checksum is looked at."""
    with zipfile.ZipFile(io.BytesIO(content)) as folder:
        if len(content) > MOST_BYTES or sum(each.file_size for each in folder.infolist()) > MOST_BYTES:
            raise ValueError("too large")
        members = {name.removesuffix(".npy"): folder.read(name) for name in folder.namelist()}
    return {name: np.lib.format.read_array(io.BytesIO(each), allow_pickle=False) for name, each in members.items()}
