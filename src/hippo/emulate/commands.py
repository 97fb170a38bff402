"""The user's command inside: started, waited for, and ended when somebody asks for that."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass

from hippo.emulate.emulation import DOMAIN_VARIABLE
from hippo.emulate.setting import Setting
from hippo.errors import InputError

PATIENCE_S = 5.0
"""How long a command may take to end after it was asked to; and how long the rest may go on after one has failed."""
EMULATOR_DIED = 70
_ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_USUAL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)  # the last two Python ignores


@dataclass(frozen=True)
class Ended:
    """A process that has ended, and how."""

    process: int
    code: int


def run_commands(setting: Setting, emulator: int) -> int:
    """Runs the command once, or once per domain, and returns its exit code (of several: the first that failed).

    Raises
    ------
    InputError
        The command cannot be started.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _ASKED)  # they are waited for, not handled: none is lost
    if not setting.each:
        return _wait({_start(setting.command, os.environ): 0}, emulator)
    running = {
        _start(("ip", "netns", "exec", namespace, *setting.command), os.environ | {DOMAIN_VARIABLE: name}): index
        for index, (name, namespace) in enumerate(zip(setting.names, setting.namespaces, strict=True))
    }
    return _wait(running, emulator)


def _start(argv: tuple[str, ...], environment: Mapping[str, str]) -> int:
    """Starts a command with the signals as it expects them."""
    try:
        return os.posix_spawnp(argv[0], argv, environment, setsigmask=(), setsigdef=_USUAL)
    except OSError as error:
        raise InputError(
            f"cannot run it: {error.strerror}",
            source="COMMAND",
            value=argv[0],
            remedy="give a program that can be run",
        ) from None


def _wait(running: dict[int, int], emulator: int) -> int:
    """Waits until all have ended; ends them when asked to, when one has failed, or when the emulator has died."""
    code, asked, until_s = 0, False, float("inf")
    while running:
        for ended in _ended():
            if ended.process == emulator:
                return EMULATOR_DIED
            if running.pop(ended.process, None) is None:
                continue  # an orphan that process 1 inherits
            if ended.code and not code and not asked:
                code, until_s = ended.code, time.monotonic() + PATIENCE_S
            elif asked and not running:
                code = code or ended.code
        if running and time.monotonic() > until_s:
            _tell(running, signal.SIGTERM if not asked else signal.SIGKILL)
            asked, until_s = True, time.monotonic() + PATIENCE_S
        if running and (request := _request(until_s - time.monotonic())):
            asked, until_s = True, time.monotonic() + PATIENCE_S
            if request != signal.SIGINT:  # the terminal tells every process of its own
                _tell(running, request)
            code = code or 128 + request
    return code


def _ended() -> list[Ended]:
    """Every child that has ended since the last call."""
    found: list[Ended] = []
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if process == 0:
            return found
        code = os.waitstatus_to_exitcode(status)
        found.append(Ended(process, code if code >= 0 else 128 - code))


def _request(patience_s: float) -> int:
    """Waits for a signal: 0 for a child's end or none within the time, else the request to end."""
    if patience_s == float("inf"):
        number = signal.sigwait(_ASKED)
    else:
        caught = signal.sigtimedwait(_ASKED, max(0.0, patience_s))
        number = caught.si_signo if caught else 0
    return number if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) else 0


def _tell(running: Mapping[int, int], number: int) -> None:
    for process in running:
        os.kill(process, number)
