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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from hippo.emulate import syscalls as kernel
from hippo.emulate.emulation import DOMAIN_VARIABLE, INTERFACE, VARIABLE
from hippo.emulate.forward import Control, Forwarder
from hippo.emulate.namespaces import make_namespaces
from hippo.emulate.netem import Netem, has_netem
from hippo.emulate.setting import EmulatorSetting, loaded
from hippo.emulate.syscalls import run_first
from hippo.errors import InputError

# ------------------------------------------------------------------------------------------------------------ commands
# The user's command inside: started, waited for, and ended when somebody asks for that.

PATIENCE_S = 5.0
"""How long a command may take to end after it was asked to; and how long the rest may go on after one has failed."""
EMULATOR_DIED = 70
_ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_USUAL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)  # the last two Python ignores


@dataclass(frozen=True)
class CommandEnded:
    """A process that has ended, and how."""

    process: int
    code: int


def run_commands(setting: EmulatorSetting, emulator: int) -> int:
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
            _signal(running, signal.SIGTERM if not asked else signal.SIGKILL)
            asked, until_s = True, time.monotonic() + PATIENCE_S
        if running and (request := _request(until_s - time.monotonic())):
            asked, until_s = True, time.monotonic() + PATIENCE_S
            if request != signal.SIGINT:  # the terminal tells every process of its own
                _signal(running, request)
            code = code or 128 + request
    return code


def _ended() -> list[CommandEnded]:
    """Every child that has ended since the last call."""
    found: list[CommandEnded] = []
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if process == 0:
            return found
        code = os.waitstatus_to_exitcode(status)
        found.append(CommandEnded(process, code if code >= 0 else 128 - code))


def _request(patience_s: float) -> int:
    """Waits for a signal: 0 for a child's end or none within the time, else the request to end."""
    if patience_s == float("inf"):
        number = signal.sigwait(_ASKED)
    else:
        caught = signal.sigtimedwait(_ASKED, max(0.0, patience_s))
        number = caught.si_signo if caught else 0
    return number if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) else 0


def _signal(running: Mapping[int, int], number: int) -> None:
    for process in running:
        os.kill(process, number)


# -------------------------------------------------------------------------------------------------------------- worker
# The process that is the WAN: forked from process 1, asked to stop by the end of a pipe, says its run on another.

READY = b"ready\n"


@dataclass(frozen=True)
class ForwarderProcess:
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


def start_worker(setting: EmulatorSetting, control: str, started_ns: int) -> ForwarderProcess:
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
    return ForwarderProcess(process, stopper, answer)


def _work(setting: EmulatorSetting, control: str, started_ns: int, stop: int, teller: int) -> None:
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


def _first(setting: EmulatorSetting, stream: socket.socket, parents_end: int) -> int:
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


def _name_hosts(setting: EmulatorSetting) -> None:
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


def _write_document(setting: EmulatorSetting, started_ns: int) -> None:
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
