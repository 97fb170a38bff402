"""Calls of the Linux kernel that Python's library lacks."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping
from types import MappingProxyType

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x8, 0x1000, 0x4000, 0x40000
_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_SCHED_SETATTR: Mapping[str, int] = MappingProxyType({"x86_64": 314, "aarch64": 274})
_SLICE_NS = 100_000

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Leaves the namespaces of ``flags`` for new ones; ``OSError`` where the kernel says no."""
    _check(_libc.unshare(flags), "unshare")


def set_network_namespace(descriptor: int) -> None:
    """Enters the network namespace behind an open file."""
    _check(_libc.setns(descriptor, CLONE_NEWNET), "setns")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """``mount(2)``."""
    words = (os.fsencode(source), os.fsencode(target), kind and kind.encode())
    _check(_libc.mount(*words, ctypes.c_ulong(flags), options.encode()), f"mount {target}")


def die_with_parent(signal_number: int) -> None:
    """Asks for a signal when the parent ends, however it ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl")


def wake_on_time() -> None:
    """Timers of this process are not put off to be served together (the kernel's usual slack is 50 us)."""
    _check(_libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0), "prctl")


def run_first() -> None:
    """This process before others that are ready: in real time where we may (root), else in short slices.

    A frame that is due waits for the scheduler. Two busy cores, mean and longest wait in ms: as usual 0.2-0.7 and
    15-30, short slices (Linux 6.12 and later) 0.05-0.5 and 4-12, real time 0.04 and 3-8.
    """
    try:
        before_others = os.sched_getparam(0).sched_priority + 1  # 0 where nothing around it is in real time
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(before_others))
    except OSError:
        # struct sched_attr: size, policy, flags, nice, priority, runtime (the slice), deadline, period, two clamps
        attributes = struct.pack("IIQiIQQQII", 56, 0, 0, 0, 0, _SLICE_NS, 0, 0, 0, 0)
        if (number := _SCHED_SETATTR.get(os.uname().machine)) is not None:
            _libc.syscall(number, 0, attributes, 0)


def _check(answer: int, what: str) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
