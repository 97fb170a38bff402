"""Policies that served, as files beside the log, each written whole and known by its hash."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeVar

from hippo.errors import InputError
from hippo.files import write_whole
from hippo.jobs.online.learner import Learner

W = TypeVar("W")


def newest(folder: Path) -> int:
    """The highest version of which a file lies there, known to the log or not; 0: none."""
    found = (path.stem.removeprefix("policy-") for path in folder.glob("policy-*.npz"))
    return max((int(number) for number in found if number.isdecimal()), default=0)


def put(folder: Path, version: int, content: bytes) -> tuple[str, str]:
    """Write a policy of a new version; its file's name and SHA-256."""
    name = f"policy-{version}.npz"
    assert not (folder / name).exists(), "a policy is never overwritten"
    write_whole(folder / name, content)
    return name, hashlib.sha256(content).hexdigest()


def load(folder: Path, name: str, sha256: str, learner: Learner[W]) -> W:
    """Read a policy; ``InputError`` where it is missing, not what was written, or of another shape."""
    path = folder / name
    try:
        content = path.read_bytes()
    except OSError as error:
        remedy = "put the file back, or let an older policy serve"
        raise InputError(f"cannot read the policy: {error.strerror}", source=str(path), remedy=remedy) from None
    if hashlib.sha256(content).hexdigest() != sha256:
        remedy = "put the file back as it was, or let an older policy serve"
        raise InputError("the policy is not what the loop wrote", source=str(path), remedy=remedy)
    return learner.unpacked(content, str(path))
