"""Runs a command of the tree on the path and writes which of its functions ran, in the order of their first calls.

python walk.py PACKAGE OUT.json MODULE:FUNCTION ARGUMENTS ..
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any


def main(package: str, out: str, start: str, *arguments: str) -> None:
    """The functions, a (file, name) each; what modules do when they are imported is none."""
    module, _, name = start.partition(":")
    command, sys.argv = getattr(import_module(module), name), ["hippo", *arguments]
    seen: dict[CodeType, None] = {}

    def see(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.setdefault(frame.f_code)

    sys.setprofile(see)
    with suppress(SystemExit):
        command()
    sys.setprofile(None)
    root = f"{package}/"
    calls = [
        (code.co_filename.removeprefix(root), code.co_qualname)
        for code in seen
        if code.co_filename.startswith(root) and "<" not in code.co_qualname.rpartition(".")[2]
    ]
    Path(out).write_text(json.dumps(calls))


if __name__ == "__main__":
    main(*sys.argv[1:])
