"""Which host stands in which domain: ``NAME=HOST[:PORT]``, or a bare ``HOST[:PORT]`` whose name is the domain's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hippo.errors import InputError, UnknownNameError
from hippo.measure.probe.wire import PORT

LONGEST_NAME = 100  # of a domain, as cluster files have it


@dataclass(frozen=True)
class Host:
    """A machine that stands for its domain."""

    domain: str
    address: str
    port: int

    @property
    def place(self) -> tuple[str, int]:
        """Address and port."""
        return self.address, self.port

    def __str__(self) -> str:
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.domain} ({address}:{self.port})"


def hosts_from_texts(texts: Sequence[str], *, source: str, known: Sequence[str] | None = None) -> tuple[Host, ...]:
    """The hosts that these texts name; ``known``: domains of the cluster file, where there is one.

    Raises
    ------
    InputError
        A text of another form, a port out of range, a domain that is not known or named twice.
    """
    hosts = tuple(_host(text, source) for text in texts)
    for index, host in enumerate(hosts):
        if known is not None and host.domain not in known:
            raise UnknownNameError("domain", host.domain[:60], known, source=source)
        if any(host.domain == other.domain for other in hosts[:index]):
            remedy = "name one host for each domain, as NAME=HOST"
            raise InputError("two hosts for one domain", source=source, value=host.domain, remedy=remedy)
    return hosts


def _host(text: str, source: str) -> Host:
    domain, given, rest = text.partition("=")
    address, port = _place(rest if given else text, source)
    domain = domain if given else address
    if not domain or domain != domain.strip() or "/" in domain or len(domain) > LONGEST_NAME:
        remedy = "write NAME=HOST[:PORT], for instance east=10.0.0.1"
        raise InputError("names no domain", source=source, value=text, remedy=remedy)
    return Host(domain, address, port)


def _place(text: str, source: str) -> tuple[str, int]:
    """Address and port; an IPv6 address with a port stands in brackets."""
    address, port = text, ""
    if text.startswith("["):
        address, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.count(":") == 1:
        address, _, port = text.partition(":")
    try:
        number = int(port) if port else PORT
    except ValueError:
        number = 0
    if not address or any(letter.isspace() for letter in address) or not 0 < number < 65536:
        remedy = "write NAME=HOST[:PORT], for instance east=10.0.0.1:5210"
        raise InputError("is no host", source=source, value=text, remedy=remedy)
    return address, number


def domains_of_addresses(texts: Sequence[str], *, source: str, known: Sequence[str] | None) -> Mapping[str, str]:
    """Address to domain, from ``NAME=ADDRESS``; a domain may have several addresses, an address one domain.

    Raises
    ------
    InputError
        Another form, an unknown domain, one address in two domains.
    """
    found: dict[str, str] = {}
    for text in texts:
        domain, given, address = text.partition("=")
        if not (domain and given and address):
            remedy = "write NAME=ADDRESS, for instance east=10.0.0.1"
            raise InputError("names no domain and address", source=source, value=text, remedy=remedy)
        if known is not None and domain not in known:
            raise UnknownNameError("domain", domain[:60], known, source=source)
        if found.setdefault(address, domain) != domain:
            problem = f"stands in two domains, {found[address]} and {domain}"
            raise InputError(problem, source=source, value=address, remedy="keep one of them")
    return found
