"""The process that is the WAN: forked from process 1, asked to stop by the end of a pipe, says its run on another."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from hippo.emulate.control import Control
from hippo.emulate.forward import Forwarder
from hippo.emulate.kernel import run_first
from hippo.emulate.netem import Netem
from hippo.emulate.setting import Setting
from hippo.errors import InputError

READY = b"ready\n"


@dataclass(frozen=True)
class Worker:
    """A running emulator."""

    process: int
    stopper: int
    answer: int

    def stop(self) -> Mapping[str, Any]:
        """Ends it; what it carried, or ``error`` where it died before."""
        os.close(self.stopper)
        with os.fdopen(self.answer, "rb") as stream:
            text = stream.read()
        with suppress(ChildProcessError):
            os.waitpid(self.process, 0)
        try:
            told: Mapping[str, Any] = json.loads(text)
        except ValueError:
            return {"error": text.decode(errors="replace").strip() or "it was killed"}
        return told


def start_worker(setting: Setting, control: str, started_ns: int) -> Worker:
    """Forks the emulator and waits until it forwards.

    Raises
    ------
    InputError
        It cannot open its ports or its socket; the message says why.
    """
    stop, stopper = os.pipe()
    answer, teller = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.close(stopper)
            os.close(answer)
            _work(setting, control, started_ns, stop, teller)
        finally:
            os._exit(0)  # never back into the parent's code
    os.close(stop)
    os.close(teller)
    first = os.read(answer, 4096)
    if first != READY:
        raise InputError(
            f"the emulator did not start: {first.decode(errors='replace').strip() or 'it died'}", source="hippo emulate"
        )
    return Worker(process, stopper, answer)


def _work(setting: Setting, control: str, started_ns: int, stop: int, teller: int) -> None:
    """The child's life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the command; process 1 ends this one
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()  # a session has its own share of the machine (autogroup), however many processes train
    run_first()
    try:
        wide_area = (Netem if setting.backend == "netem" else Forwarder)(setting, Control(control, setting), started_ns)
        os.write(teller, READY)
        _write(teller, json.dumps(asdict(wide_area.run(stop))))
    except Exception as error:
        _write(teller, str(error) or type(error).__name__)
        if os.environ.get("HIPPO_TRACE"):
            traceback.print_exc()


def _write(descriptor: int, text: str) -> None:
    """All of it; where nobody reads any more, nothing."""
    with suppress(OSError), os.fdopen(descriptor, "w", closefd=False) as stream:
        stream.write(text)
