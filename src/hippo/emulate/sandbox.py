"""The inner processes: one that leaves the machine's namespaces, and one that is the first process of the new ones.

    hippo emulate -- supervisor: reads files, says what happened
      `- leave       unshares user (where not root), mounts, network and processes; waits
           `- first  process 1 of the new namespace: makes the network, starts the command, collects the dead
                |- forwarder
                `- COMMAND (with --each: one per domain)

Each dies with its parent, and with process 1 the kernel ends every process inside; with the last process go namespaces,
interfaces and the one folder (a tmpfs over /run). So nothing is left whatever is killed, and nothing is tidied by hand.

Run as ``python -m hippo.emulate.sandbox CHANNEL PARENT``: the number of an inherited socket, the parent's id.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, replace

from hippo.emulate import kernel
from hippo.emulate.commands import run_commands
from hippo.emulate.emulation import INTERFACE, VARIABLE
from hippo.emulate.namespaces import make_namespaces
from hippo.emulate.netem import has_netem
from hippo.emulate.setting import Setting, loaded
from hippo.emulate.worker import start_worker
from hippo.errors import InputError

FOLDER = "/run/hippo"
CONTROL = f"{FOLDER}/control"
DOCUMENT = f"{FOLDER}/emulation.json"
_REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ALONE = ("netns", "hippo")  # what of the machine's /run is not seen inside

REFUSED = (
    "run as root, or allow user namespaces (sysctl user.max_user_namespaces above 0; where there are such, "
    "kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0), "
    "or start the container with SYS_ADMIN and NET_ADMIN"
)


def main(channel: int, parent: int) -> None:
    """Reads the setting, leaves the machine's namespaces, and becomes parent of process 1."""
    kernel.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        return
    with socket.socket(fileno=channel) as stream:
        setting = loaded(_all(stream))
        try:
            _leave()
        except OSError as error:
            _tell(stream, error={"problem": f"the kernel grants no namespaces: {error.strerror}", "remedy": REFUSED})
            return
        parents_end, ours = os.pipe()  # of which we never write: it ends with us
        signal.pthread_sigmask(signal.SIG_BLOCK, _REQUESTS)  # until both know what to do: none is lost
        first = os.fork()
        if first == 0:
            os.close(ours)
            os._exit(_first(setting, stream, parents_end))
        _pass_on(first)
        _tell(stream, first=first)
    os.waitpid(first, 0)


def _all(stream: socket.socket) -> str:
    """What the parent sends until it closes its side."""
    with stream.makefile("r") as lines:
        return lines.readline()


def _tell(stream: socket.socket, **words: object) -> None:
    with suppress(OSError):
        stream.sendall(json.dumps(words).encode() + b"\n")


def _leave() -> None:
    """Into namespaces of our own: as we are, or as root of a user namespace."""
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWPID
    if os.geteuid() == 0:
        with suppress(PermissionError):
            kernel.unshare(flags)
            return
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(flags | kernel.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w") as stream:
            stream.write(text)
    kernel.die_with_parent(signal.SIGKILL)  # other rights may have cleared it


def _pass_on(first: int) -> None:
    """A request to end goes to process 1."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal has told process 1 as well
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os.kill(first, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _REQUESTS)


def _first(setting: Setting, stream: socket.socket, parents_end: int) -> int:
    """Process 1."""
    for number in _REQUESTS:
        signal.signal(number, lambda *_: os._exit(1))  # until the command runs
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _REQUESTS)
    kernel.die_with_parent(signal.SIGKILL)
    if select.select([parents_end], [], [], 0)[0]:
        return 1  # it died before we asked
    try:
        _mount()
        _name_hosts(setting)
        setting = replace(setting, backend=_backend(setting.backend))
        make_namespaces(setting)
        started_ns = time.monotonic_ns()
        worker = start_worker(setting, CONTROL, started_ns)
        _write_document(setting, started_ns)
        os.environ[VARIABLE] = DOCUMENT
        _tell(stream, ready=setting.backend)
        code = run_commands(setting, worker.process)
        _tell(stream, done={"exit_code": code, "run": worker.stop()})
        return 0
    except InputError as error:
        words = {"problem": error.problem, "source": error.source, "value": error.value, "remedy": error.remedy}
        _tell(stream, error=words)
    except OSError as error:
        if os.environ.get("HIPPO_TRACE"):
            traceback.print_exc()
        _tell(stream, error={"problem": f"the kernel refuses: {error}", "remedy": REFUSED})
    return 1


def _backend(asked: str) -> str:
    """netem where it is asked for, or where the kernel has it and nothing is asked for."""
    if asked == "userspace":
        return asked
    if has_netem():
        return "netem"
    if asked == "netem":
        remedy = "install tc (iproute2) and load it as root with 'modprobe sch_netem', or use --backend userspace"
        raise InputError("the kernel or tc has no netem", source="--backend", remedy=remedy)
    return "userspace"


def _mount() -> None:
    """Mounts that nobody outside sees: /proc of the new processes, and a /run of our own with what was in the old."""
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    with suppress(OSError):  # a container may forbid it; then /proc shows the machine's processes
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    old = os.open("/run", os.O_RDONLY | os.O_DIRECTORY)
    kernel.mount("tmpfs", "/run", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
    for entry in os.scandir(old):
        if entry.name not in _ALONE:
            with suppress(OSError):  # what we may not see we may not show
                _show(f"/proc/self/fd/{old}/{entry.name}", f"/run/{entry.name}", entry)
    os.close(old)
    os.mkdir(FOLDER)


def _name_hosts(setting: Setting) -> None:
    """A domain's name is a host's name inside, where it can be one and is none yet."""
    with suppress(OSError):
        with open("/etc/hosts") as stream:
            hosts = stream.read()
        known = set(hosts.split())
        added = [
            f"{setting.address(index)} {name}\n" for index, name in enumerate(setting.namespaces) if name not in known
        ]
        with open(f"{FOLDER}/hosts", "w") as stream:
            stream.write(hosts.rstrip("\n") + "\n" + "".join(added))
        kernel.mount(f"{FOLDER}/hosts", "/etc/hosts", None, kernel.MS_BIND)


def _show(old: str, new: str, entry: os.DirEntry[str]) -> None:
    """One entry of the machine's /run at its place in ours."""
    if entry.is_symlink():
        os.symlink(os.readlink(old), new)
        return
    if entry.is_dir():
        os.mkdir(new)
    else:
        os.close(os.open(new, os.O_CREAT | os.O_WRONLY))
    kernel.mount(old, new, None, kernel.MS_BIND | kernel.MS_REC)


def _write_document(setting: Setting, started_ns: int) -> None:
    domains = {
        name: {"namespace": namespace, "address": setting.address(index), "interface": INTERFACE}
        for index, (name, namespace) in enumerate(zip(setting.names, setting.namespaces, strict=True))
    }
    told = asdict(setting)
    document = {key: told[key] for key in ("cluster", "trace", "speed", "congestion", "backend")}
    document |= {"control": CONTROL, "domains": domains, "started_s": started_ns / 1e9}
    with open(DOCUMENT, "w") as stream:
        json.dump(document, stream)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
