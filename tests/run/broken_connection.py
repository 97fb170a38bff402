"""The program of a process, in which connections are reset over which the last words of sums come: ``BREAKS`` says by
the process's number which of those that such words come over, in turn. Or a message is lost that came to a stage:
``LOSES`` says to which process, and which of its messages."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from hippo.run import process
from hippo.run.executor import agree
from hippo.run.executor.channels import Inbox


def main() -> None:
    """As the program, with the fault."""
    hears, met = agree.Sum._hear, list[Any]()
    which = json.loads(os.environ.get("BREAKS", "{}")).get(sys.argv[2], [])
    receives, came_in = Inbox.heard, [0]
    lost = json.loads(os.environ.get("LOSES", "{}")).get(sys.argv[2])

    def hear(self: Any, at: int, came: Any) -> None:
        channel = self._group.channels[at]
        if self._group.messages[at].how == "copy" and channel not in met:
            met.append(channel)
        if channel in met and self._group.messages[at].how == "copy" and met.index(channel) in which:
            channel._failed(RuntimeError("Connection reset by peer"))
        else:
            hears(self, at, came)

    def receive(self: Inbox, key: Any) -> None:
        came_in[0] += 1
        if came_in[0] != lost:
            receives(self, key)

    agree.Sum._hear = hear  # type: ignore[method-assign]
    Inbox.heard = receive  # type: ignore[method-assign]
    process.main()


if __name__ == "__main__":
    main()
