"""What a command inside an emulated WAN may know and do: where each domain lives, and how a link is moved.

    emulation()                                     -> Emulation, or None outside ``hippo emulate``
    emulation().command("east", ["python", "x.py"]) -> the same command, in the namespace of domain ``east``
    emulation().set_link("east", "west", gbps=0.1, latency_ms=20.0)

The file behind it (environment variable ``HIPPO_EMULATION``) is JSON:

    {"cluster": FILE, "control": SOCKET, "domains": {NAME: {"namespace": N, "address": A, "interface": "wan0"}},
     "started_s": CLOCK, "trace": FILE or null, "speed": TIMES, "congestion": NAME, "backend": NAME}

``started_s`` is ``time.monotonic()`` of the instant at which the trace began to run.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from hippo.errors import InputError, UnknownNameError
from hippo.files import read_text

VARIABLE = "HIPPO_EMULATION"
DOMAIN_VARIABLE = "HIPPO_DOMAIN"
INTERFACE = "wan0"
LOG = ".log"  # behind the control socket's path: what was moved by hand
ANSWER_WITHIN_S = 5.0


@dataclass(frozen=True)
class DomainPlace:
    """Where a domain lives: its network namespace, and the IPv4 address of its one interface to the WAN."""

    namespace: str
    address: str
    interface: str = INTERFACE


@dataclass(frozen=True)
class LinkChange:
    """A directed link that was moved by hand, and when."""

    at_s: float  # time.monotonic()
    source: str
    destination: str
    gbps: float  # on the wire; 0: an outage
    latency_ms: float  # one way


@dataclass(frozen=True)
class Emulation:
    """An emulated WAN as seen from inside."""

    cluster: str  # file, or a name of the catalogue
    control: str  # path of the socket that moves links
    domains: Mapping[str, DomainPlace]  # in the order of the cluster
    started_s: float  # time.monotonic() at the trace's first instant
    trace: str | None = None
    speed: float = 1.0  # seconds of the trace per second of the clock
    congestion: str = "cubic"
    backend: str = "userspace"

    def command(self, domain: str, argv: Sequence[str]) -> list[str]:
        """``argv`` prefixed so that it runs in the namespace of ``domain``.

        Raises
        ------
        UnknownNameError
            The emulation has no such domain.
        """
        return ["ip", "netns", "exec", self.place(domain).namespace, *argv]

    def place(self, domain: str) -> DomainPlace:
        """Where a domain lives; ``UnknownNameError``: the emulation has no such domain."""
        if domain not in self.domains:
            raise UnknownNameError("domain", domain, self.domains, source=self.cluster)
        return self.domains[domain]

    def set_link(self, source: str, destination: str, *, gbps: float, latency_ms: float) -> None:
        """Gives the directed link another rate (0: an outage) and one-way latency, from now on; see ``set_link``."""
        set_link(self.control, f"{source} {destination} {gbps!r} {latency_ms!r}")

    def changes(self) -> tuple[LinkChange, ...]:
        """Links that were moved by hand so far, whoever did it, in turn."""
        try:
            with open(f"{self.control}{LOG}") as log:
                whole, _, _ = log.read().rpartition("\n")  # the last line may be under way
        except FileNotFoundError:
            return ()
        return tuple(LinkChange(*json.loads(line)) for line in whole.splitlines())


def emulation() -> Emulation | None:
    """The emulation that this process runs in, or None.

    Raises
    ------
    InputError
        ``HIPPO_EMULATION`` names a file that cannot be read or holds something else.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    try:
        return _from_document(json.loads(read_text(path, what="emulation file")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        remedy = f"run inside 'hippo emulate', or unset {VARIABLE}"
        raise InputError("is no description of an emulation", source=VARIABLE, value=path, remedy=remedy) from None


def _from_document(document: Mapping[str, object]) -> Emulation:
    rest = dict(document)
    domains = rest.pop("domains")
    if not isinstance(domains, dict):
        raise TypeError("domains are no mapping")
    return Emulation(domains=MappingProxyType({name: DomainPlace(**place) for name, place in domains.items()}), **rest)  # type: ignore[arg-type]


def set_link(control: str, change: str) -> None:
    """Sends ``SRC DST gbps latency_ms`` to the control socket of an emulation and waits for the answer.

    Raises
    ------
    InputError
        No emulation listens there, or it refuses the change (unknown link, number out of range).
    """
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with mine, theirs, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        mine.settimeout(ANSWER_WITHIN_S)
        try:
            sender.connect(control)
            socket.send_fds(sender, [change.encode()], [theirs.fileno()])
            answer = mine.recv(4096).decode()
        except OSError as error:
            reason = error.strerror or "no answer"
            remedy = "run it while 'hippo emulate' runs, with the path that it says"
            raise InputError(
                f"no emulation listens: {reason}", source="--control", value=control, remedy=remedy
            ) from None
    if answer != "ok":
        raise InputError(answer, source="link", value=change, remedy="give SRC DST gbps latency_ms")
