"""The kernel's own delay line, where there is one: an interface per link, ``tc qdisc .. netem`` on it.

Every linked pair of domains has a pair of interfaces of its own; ``wan0`` bears the address, the routes choose the
interface. Super-packets are cut before they come to netem, which counts packets, not bytes, against its limit.
"""

from __future__ import annotations

import json
import math
import resource
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from hippo.emulate.forward import Control, Timetable
from hippo.emulate.setting import EmulatedLink, EmulatorRun, EmulatorSetting, LinkTraffic
from hippo.problem.transport import queue_limit_bytes

_TC_WITHIN_S = 30.0
_LONGEST_WAIT_S = 1.0
_PACKET_BYTES = 1518
_CHECK_SEQUENCE = 4  # bytes of a frame that the kernel does not count
_SLOWEST_BIT_PER_S = 8000
_TRIAL = "netem rate 1000000bit 4 delay 1000us limit 10 loss 0%"


def has_netem() -> bool:
    """Whether the kernel has netem and ``tc`` is there; tried on the loopback of this namespace."""
    if shutil.which("tc") is None:
        return False
    made = _tc(["qdisc", "add", "dev", "lo", "root", *_TRIAL.split()]).returncode == 0
    if made:
        _tc(["qdisc", "del", "dev", "lo", "root"])
    return made


def interface_to(domain: int) -> str:
    """The interface over which the others reach a domain."""
    return f"to{domain}"


def discipline(rate_bytes_per_s: float, latency_s: float) -> list[str]:
    """Words of ``tc`` for a link's rate and delay; the limit holds what is on its way and what waits."""
    held_bytes = rate_bytes_per_s * latency_s + queue_limit_bytes(rate_bytes_per_s, latency_s)
    rate = max(_SLOWEST_BIT_PER_S, round(rate_bytes_per_s * 8))
    words = f"netem rate {rate}bit {_CHECK_SEQUENCE} delay {round(latency_s * 1e6)}us"
    lost = 0 if rate_bytes_per_s > 0 else 100
    return f"{words} limit {math.ceil(held_bytes / _PACKET_BYTES)} loss {lost}%".split()


def tc_words(setting: EmulatorSetting, link: EmulatedLink, verb: str) -> list[str]:
    """``tc`` without its own name: one link's discipline made (``add``) or moved (``change``)."""
    where = ["-netns", setting.namespaces[link.source], "qdisc", verb, "dev", interface_to(link.destination), "root"]
    return [*where, *discipline(link.rate_bytes_per_s, link.latency_s)]


class Netem:
    """Moves links by ``tc``; the kernel does the rest."""

    def __init__(self, setting: EmulatorSetting, control: Control, started_ns: int) -> None:
        self._setting, self._control = setting, control
        self._timetable = Timetable(setting.moves, started_ns)
        for link in setting.links:
            self._run(tc_words(setting, link, "add"))

    def run(self, stop: int) -> EmulatorRun:
        """Moves links until the file ``stop`` becomes readable."""
        begun_ns = time.monotonic_ns()
        while True:
            wait_s = min((self._timetable.due_ns() - time.monotonic_ns()) / 1e9, _LONGEST_WAIT_S)
            ready, _, _ = select.select([self._control.socket.fileno(), stop], [], [], max(0.0, wait_s))
            if stop in ready:
                return self._told((time.monotonic_ns() - begun_ns) / 1e9)
            self._control.serve(self._change)
            self._timetable.apply(time.monotonic_ns(), self._change)

    def _change(self, index: int, rate_bytes_per_s: float, latency_s: float) -> None:
        link = self._setting.links[index]
        moved = EmulatedLink(link.source, link.destination, rate_bytes_per_s, latency_s)
        self._run(tc_words(self._setting, moved, "change"))

    def _run(self, words: Sequence[str]) -> None:
        done = _tc(words)
        if done.returncode:
            raise OSError(f"'tc {' '.join(words)}' failed: {done.stderr.strip() or 'no word'}")

    def _told(self, seconds: float) -> EmulatorRun:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        links = tuple(self._traffic(link) for link in self._setting.links)
        return EmulatorRun(seconds, used.ru_utime + used.ru_stime, 0.0, 0.0, 0, links)

    def _traffic(self, link: EmulatedLink) -> LinkTraffic:
        namespace = self._setting.namespaces[link.source]
        shown = _tc(["-netns", namespace, "-s", "-j", "qdisc", "show", "dev", interface_to(link.destination)])
        rows: list[dict[str, Any]] = json.loads(shown.stdout or "[]")
        counts = next((row for row in rows if row.get("kind") == "netem"), {})
        packets, drops = int(counts.get("packets", 0)), int(counts.get("drops", 0))
        carried = int(counts.get("bytes", 0)) + packets * _CHECK_SEQUENCE
        return LinkTraffic(*self._setting.position(link), carried, packets, drops * _PACKET_BYTES, drops)


def _tc(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["tc", *words], capture_output=True, text=True, check=False, timeout=_TC_WITHIN_S)
