"""What the inner process is told and what it says at its end, as plain data that travels as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

FIRST_ADDRESS = 1  # domain 0 is 10.77.0.1


@dataclass(frozen=True)
class EmulatedLink:
    """A directed link between two domains (positions in ``EmulatorSetting.namespaces``)."""

    source: int
    destination: int
    rate_bytes_per_s: float  # 0: an outage
    latency_s: float  # one way


@dataclass(frozen=True)
class LinkMove:
    """A link takes another rate and delay, seconds of the clock after the start."""

    after_s: float
    link: int  # position in EmulatorSetting.links
    rate_bytes_per_s: float
    latency_s: float


@dataclass(frozen=True)
class EmulatorSetting:
    """Everything the inner process needs."""

    cluster: str
    names: tuple[str, ...]  # (K,) domains
    namespaces: tuple[str, ...]  # (K,)
    links: tuple[EmulatedLink, ...]  # (E,)
    moves: tuple[LinkMove, ...]  # in time
    command: tuple[str, ...]
    each: bool
    congestion: str
    backend: str  # auto, userspace, netem
    trace: str | None
    speed: float

    def address(self, domain: int) -> str:
        """IPv4 address of a domain's interface to the WAN."""
        number = domain + FIRST_ADDRESS
        return f"10.77.{number >> 8}.{number & 255}"

    def position(self, link: EmulatedLink) -> tuple[str, str]:
        """Names of a link's two ends."""
        return self.names[link.source], self.names[link.destination]


@dataclass(frozen=True)
class LinkTraffic:
    """What one directed link carried: bytes and frames as on the wire, super-packets counted as one frame.

    Carried bytes are payload, repeated and header bytes together; netem does not tell them apart (None).
    """

    source: str
    destination: str
    carried_bytes: int
    carried_frames: int
    dropped_bytes: int
    dropped_frames: int
    payload_bytes: int | None = None  # of TCP's streams, every byte once
    repeated_bytes: int | None = None  # of them, what the link had carried before
    header_bytes: int | None = None  # framing, headers, acknowledgements, and whatever is not TCP


@dataclass(frozen=True)
class EmulatorRun:
    """What the emulator says at its end."""

    seconds: float
    cpu_s: float
    mean_late_ms: float  # by how much frames left later than they should
    max_late_ms: float
    missed_frames: int  # never seen: the emulator did not keep up
    links: tuple[LinkTraffic, ...]


def dumped(setting: EmulatorSetting) -> str:
    """The setting as JSON."""
    return json.dumps(asdict(setting))


def loaded(text: str) -> EmulatorSetting:
    """What ``dumped`` wrote."""
    document: dict[str, Any] = json.loads(text)
    lists: Mapping[str, Sequence[Any]] = {
        "links": [EmulatedLink(**link) for link in document["links"]],
        "moves": [LinkMove(**move) for move in document["moves"]],
        **{key: document[key] for key in ("names", "namespaces", "command")},
    }
    return EmulatorSetting(**{**document, **{key: tuple(values) for key, values in lists.items()}})


def port_name(domain: int) -> str:
    """The emulator's end of a domain's interface."""
    return f"port{domain}"
