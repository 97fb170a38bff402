"""Network namespaces, one per domain, each with one interface ``wan0`` whose other end the emulator holds.

Every ``wan0`` has the same hardware address and no ARP: a frame is for whoever it is handed to, and no neighbour is
ever asked for. A domain has one route per link: what no link reaches is refused at once ("network is unreachable").
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from hippo.emulate.emulation import INTERFACE
from hippo.emulate.netem import interface_to
from hippo.emulate.setting import EmulatedLink, EmulatorSetting, port_name
from hippo.emulate.syscalls import set_network_namespace
from hippo.errors import InputError

NAMES = "/run/netns"
_SHARED_HARDWARE_ADDRESS = "02:00:00:00:00:01"
_COMMAND_WITHIN_S = 60.0

TUNING: Mapping[str, str] = MappingProxyType(
    {
        # 1 Gbit/s over 100 ms needs 12.5 MB in flight; the usual limits (4 and 6 MB) allow a quarter of that rate
        "net/ipv4/tcp_wmem": "4096 65536 67108864",
        "net/ipv4/tcp_rmem": "4096 131072 134217728",
        "net/ipv4/tcp_slow_start_after_idle": "0",  # a long local phase must not cost the ramp again
        "net/ipv4/tcp_no_metrics_save": "1",  # a connection starts the same whatever ran before
    }
)
_NO_IPV6 = "net/ipv6/conf/default/disable_ipv6"


def make_namespaces(setting: EmulatorSetting) -> None:
    """Makes every namespace and its interfaces; the emulator's ends are in the namespace of the caller.

    Raises
    ------
    InputError
        The kernel or ``ip`` refuses.
    """
    ip(["link set lo up", *(f"netns add {name}" for name in setting.namespaces)])
    write_sysctl(_NO_IPV6, "1")
    for name in setting.namespaces:
        tune(name)
    ip([line for domain in range(len(setting.names)) for line in _port(setting, domain)])
    if setting.backend == "netem":
        ip([_pair(setting, *pair) for pair in sorted({_ends(link) for link in setting.links})])
    for domain, name in enumerate(setting.namespaces):
        ip(_inside(setting, domain), namespace=name)


def _port(setting: EmulatorSetting, domain: int) -> Sequence[str]:
    """The pair of interfaces of a domain."""
    name = setting.namespaces[domain]
    far = f"peer name {INTERFACE} address {_SHARED_HARDWARE_ADDRESS} netns {name}"
    return (f"link add name {port_name(domain)} type veth {far}", f"link set {port_name(domain)} up arp off")


def _ends(link: EmulatedLink) -> tuple[int, int]:
    return min(link.source, link.destination), max(link.source, link.destination)


def _pair(setting: EmulatorSetting, one: int, other: int) -> str:
    """Interfaces between two domains (netem only)."""
    near, far = (
        f"name {interface_to(there)} address {_SHARED_HARDWARE_ADDRESS} netns {setting.namespaces[here]}"
        for here, there in ((one, other), (other, one))
    )
    return f"link add {near} type veth peer {far}"


def _inside(setting: EmulatorSetting, domain: int) -> Sequence[str]:
    """Address, and a route for each link."""
    netem = setting.backend == "netem"
    reached = {link.destination for link in setting.links if link.source == domain}
    linked = reached | {link.source for link in setting.links if link.destination == domain}
    ways = [interface_to(other) for other in sorted(linked)] if netem else []
    return (
        "link set lo up",
        f"link set {INTERFACE} up arp off",
        f"addr add {setting.address(domain)}/32 dev {INTERFACE}",
        *(f"link set {way} up arp off gso_max_segs 1" for way in ways),
        *(
            f"route add {setting.address(other)}/32 dev {interface_to(other) if netem else INTERFACE} "
            f"src {setting.address(domain)} congctl {setting.congestion}"
            for other in sorted(reached)
        ),
    )


def tune(namespace: str) -> None:
    """Writes the settings of TCP inside a namespace."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(os.path.join(NAMES, namespace), os.O_RDONLY)
    try:
        set_network_namespace(there)
        for key, value in TUNING.items():
            write_sysctl(key, value)
        write_sysctl(_NO_IPV6, "1")
    finally:
        set_network_namespace(home)
        os.close(home)
        os.close(there)


def write_sysctl(key: str, value: str) -> None:
    """One setting of the kernel for this namespace; a kernel that lacks it (no IPv6, an old one) is left as it is."""
    with suppress(OSError), open(f"/proc/sys/{key}", "w") as stream:
        stream.write(value)


def ip(lines: Sequence[str], *, namespace: str | None = None) -> None:
    """Runs lines of ``ip`` in one go; ``InputError`` with the first thing that it says."""
    argv = ["ip", *(["-netns", namespace] if namespace else []), "-batch", "-"]
    text = "\n".join(lines) + "\n"
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False, timeout=_COMMAND_WITHIN_S)
    if done.returncode:
        said = (done.stderr.strip() or "no word").splitlines()
        number = next((int(word.partition(":")[2]) for word in done.stderr.split() if word.startswith("-:")), 0)
        line = lines[number - 1] if 0 < number <= len(lines) else text.strip()
        raise InputError(
            f"'ip {line}' failed: {said[0]}",
            source="hippo emulate",
            remedy="see docs/running.md for what the kernel must offer",
        )
