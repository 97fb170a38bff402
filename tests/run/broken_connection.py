"""The program of a process, in which the connection is reset over which the last words of a first sum come to the
process whose number ``BREAKS`` says."""

from __future__ import annotations

import os
import sys
from typing import Any

from hippo.run import process
from hippo.run.executor import agree


def main() -> None:
    """As the program, with the fault."""
    hears, dead = agree.Sum._hear, set[int]()

    def hear(self: Any, at: int, came: Any) -> None:
        channel = self._group.channels[at]
        ends = sys.argv[2] == os.environ["BREAKS"] and self._group.messages[at].how == "copy"
        if ends and (not dead or id(channel) in dead):
            dead.add(id(channel))
            channel._failed(RuntimeError("Connection reset by peer"))
        else:
            hears(self, at, came)

    agree.Sum._hear = hear  # type: ignore[method-assign]
    process.main()


if __name__ == "__main__":
    main()
