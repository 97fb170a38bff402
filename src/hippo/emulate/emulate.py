"""An emulated WAN around a command, seen from outside: ``emulate(setting) -> EmulationOutcome``.

Linux only. Needs ``ip`` (iproute2), and root or user namespaces. Nothing of it is seen by the machine: no interface, no
namespace, no file; several run side by side.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from hippo.emulate.sandbox import CONTROL, PATIENCE_S
from hippo.emulate.setting import EmulatedLink, EmulatorRun, EmulatorSetting, LinkMove, LinkTraffic, dumped
from hippo.errors import InputError
from hippo.problem.cluster import Cluster
from hippo.problem.links import Trace
from hippo.problem.transport import IDEAL

BACKENDS = ("auto", "userspace", "netem")
DEFAULT_CONGESTION = "cubic"
MOST_DOMAINS = 256
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,40}")
_END_WITHIN_S = 3 * PATIENCE_S


@dataclass(frozen=True)
class EmulationOutcome:
    """How the command ended, and what the links carried."""

    exit_code: int
    backend: str
    run: EmulatorRun


class Stopped(Exception):
    """A signal has asked for the end before the command could say its own."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.strsignal(number))


@dataclass(frozen=True)
class Opened:
    """The emulation runs: its backend, and where its links are moved from outside."""

    backend: str
    control: str


def setting_of(
    cluster: Cluster,
    command: Sequence[str],
    *,
    source: str,
    trace: Trace | None = None,
    speed: float = 1.0,
    each: bool = False,
    congestion: str | None = None,
    backend: str = "auto",
) -> EmulatorSetting:
    """The links of ``cluster`` (from ``source``) around ``command``; with a trace they move, ``speed`` times as fast.
    ``congestion``: TCP's control; None: as the cluster says, else cubic.

    A link's rate is what all nodes of its source send together: ``bandwidth_gbps``, ``per_node_gbps`` times nodes.
    The trace (of the wire: loaded for a cluster under no runtime) starts when the command does, with its first instant.
    """
    position = cluster.domain_index
    cluster = cluster.under(IDEAL)  # a link's rate is that of the wire, whatever runtime a plan's cluster is told for
    links = tuple(
        EmulatedLink(
            position[link.source],
            position[link.destination],
            link.rate_bytes_per_s(cluster.domain(link.source).nodes),
            link.latency_s,
        )
        for link in cluster.links
    )
    names = tuple(domain.name for domain in cluster.domains)
    return EmulatorSetting(
        cluster=os.path.abspath(source) if os.path.exists(source) else source,
        names=names,
        namespaces=tuple(_namespace(name, index) for index, name in enumerate(names)),
        links=links,
        moves=() if trace is None else moves_of(trace, speed),
        command=tuple(command),
        each=each,
        congestion=congestion or cluster.congestion or DEFAULT_CONGESTION,
        backend=backend,
        trace=None if trace is None else os.path.abspath(trace.source),
        speed=speed,
    )


def _namespace(name: str, index: int) -> str:
    """The domain's own name where a namespace may bear it."""
    return name if _PLAIN.fullmatch(name) else f"domain-{index}"


def moves_of(trace: Trace, speed: float) -> tuple[LinkMove, ...]:
    """Every change of every link, the first instant included, in seconds of the clock from the first instant on."""
    rate, latency = trace.bandwidth_bytes_per_s, trace.latency_s  # (T, E) each
    moves = []
    for instant, time_s in enumerate(trace.time_s):
        for link in range(rate.shape[1]):
            now = rate[instant, link], latency[instant, link]
            if instant == 0 or now != (rate[instant - 1, link], latency[instant - 1, link]):
                moves.append(LinkMove(float(time_s - trace.time_s[0]) / speed, link, float(now[0]), float(now[1])))
    return tuple(moves)


def check(setting: EmulatorSetting) -> None:
    """``InputError`` for whatever can be known before anything is made."""
    if not sys.platform.startswith("linux"):
        raise InputError(
            "needs Linux", source="hippo emulate", value=sys.platform, remedy="run it on Linux, or in a VM"
        )
    if shutil.which("ip") is None:
        remedy = "install iproute2 (Debian, Ubuntu: apt install iproute2; Fedora: dnf install iproute)"
        raise InputError("needs the program 'ip', which is not on PATH", source="hippo emulate", remedy=remedy)
    if setting.backend not in BACKENDS:
        raise InputError(
            "unknown backend", source="--backend", value=setting.backend, remedy=f"use one of {', '.join(BACKENDS)}"
        )
    if len(setting.names) > MOST_DOMAINS:
        raise InputError(
            f"emulates at most {MOST_DOMAINS} domains", source=setting.cluster, remedy="give a smaller cluster"
        )
    _check_congestion(setting.congestion)
    if not setting.command:
        raise InputError(
            "no command", source="COMMAND", remedy="write it behind --: hippo emulate CLUSTER.yaml -- python x.py"
        )
    if shutil.which(setting.command[0]) is None:
        remedy = "give a program on PATH, or the path of one"
        raise InputError("no such program", source="COMMAND", value=setting.command[0], remedy=remedy)


def _check_congestion(name: str) -> None:
    try:
        with open("/proc/sys/net/ipv4/tcp_available_congestion_control") as stream:
            known = stream.read().split()
    except OSError:
        return
    if name not in known:
        load = f", or load its module (modprobe tcp_{name})" if name.isalnum() else ""
        remedy = f"use one of {', '.join(sorted(known))}{load}"
        raise InputError("the kernel has no such congestion control", source="--congestion", value=name, remedy=remedy)


def emulate(
    setting: EmulatorSetting, *, opened: Callable[[Opened], None] = lambda _: None, stdout: int | None = None
) -> EmulationOutcome:
    """Runs the command inside the emulated WAN and waits for it.

    ``opened`` is told once the links stand; ``stdout`` (a descriptor) takes the command's stdout.

    Raises
    ------
    InputError
        The machine cannot do it (no namespaces, no ``ip``), or the command cannot be started; nothing is left.
    KeyboardInterrupt
        After Ctrl-C, when everything inside has ended.
    Stopped
        After another request to end that came before the command ran.
    """
    own = str(Path(sys.executable).parent)  # a command may name what is installed beside hippo, hippo first of all
    if own not in (path := os.environ.get("PATH", os.defpath)).split(os.pathsep):
        os.environ["PATH"] = f"{path}{os.pathsep}{own}"
    check(setting)
    mine, theirs = socket.socketpair()
    argv = [sys.executable, "-m", "hippo.emulate.sandbox", str(theirs.fileno()), str(os.getpid())]
    with mine, subprocess.Popen(argv, pass_fds=(theirs.fileno(),), stdout=stdout) as inner:
        theirs.close()
        asked = _Asked(inner)
        with asked:
            with suppress(ConnectionError):  # it was ended before it could read
                mine.sendall(dumped(setting).encode() + b"\n")
            told = _listen(mine, opened, asked)
            inner.wait()
    if asked.by == signal.SIGINT:
        raise KeyboardInterrupt
    if asked.by is not None and "done" not in told:
        raise Stopped(asked.by)
    return _outcome(told)


class _Asked:
    """Passes a request to end to the inner process; what does not end in time is killed with all that is inside."""

    def __init__(self, inner: subprocess.Popen[bytes]) -> None:
        self._inner = inner
        self._before: dict[int, Any] = {}
        self.by: int | None = None
        self.until_s = float("inf")

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._note)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        """A terminal's Ctrl-C has reached the command too: it has its time before it is told again."""
        patience_s = PATIENCE_S if number == signal.SIGINT and self.by is None and _in_foreground() else 0.0
        self.by = self.by or number
        self.until_s = min(self.until_s, time.monotonic() + patience_s)

    def press(self) -> None:
        """Does what is due."""
        if time.monotonic() < self.until_s:
            return
        if self.until_s > 0:
            self._inner.send_signal(signal.SIGTERM)
            self.until_s, self._killed_at_s = 0.0, time.monotonic() + _END_WITHIN_S
        elif time.monotonic() > self._killed_at_s:
            self._inner.kill()


def _in_foreground() -> bool:
    """Whether a terminal's Ctrl-C comes to this group of processes."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    with os.fdopen(terminal) as stream:
        return os.tcgetpgrp(stream.fileno()) == os.getpgrp()


def _listen(mine: socket.socket, opened: Callable[[Opened], None], asked: _Asked) -> Mapping[str, Any]:
    """What the inner processes say, until the last of them has ended."""
    told: dict[str, Any] = {}
    mine.settimeout(0.2)
    rest = b""
    while True:
        asked.press()
        try:
            some = mine.recv(1 << 16)
        except TimeoutError:
            continue
        except ConnectionError:
            return told
        if not some:
            return told
        *lines, rest = (rest + some).split(b"\n")
        for line in lines:
            told |= json.loads(line)
            if "ready" in told and "first" in told and "opened" not in told:
                told["opened"] = True
                opened(Opened(told["ready"], f"/proc/{told['first']}/root{CONTROL}"))


def _outcome(told: Mapping[str, Any]) -> EmulationOutcome:
    """What was said at the end; ``InputError`` where it was a complaint."""
    if "error" in told:
        said = told["error"]
        raise InputError(**{"source": "hippo emulate", **said})
    if "done" not in told or "error" in told["done"]["run"]:
        why = told["done"]["run"]["error"] if "done" in told else "its processes were killed"
        remedy = "run it again; under HIPPO_TRACE=1 it says more"
        raise InputError(f"the emulator ended before the command did: {why}", source="hippo emulate", remedy=remedy)
    run = dict(told["done"]["run"])
    links = tuple(LinkTraffic(**link) for link in run.pop("links"))
    return EmulationOutcome(told["done"]["exit_code"], told["ready"], EmulatorRun(**run, links=links))
