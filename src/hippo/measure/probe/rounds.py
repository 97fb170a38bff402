"""Rounds of measurements over every pair of domains, one pair and one direction at a time: none disturbs another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hippo.errors import InputError, UnknownNameError
from hippo.measure.probe.ask import PathMeasured, measure, measure_between
from hippo.measure.probe.sample import Sample, frame_share
from hippo.measure.probe.wire import PORT, NoAnswer, ProbeEffort

# --------------------------------------------------------------------------------------------------------------- hosts
# Which host stands in which domain: ``NAME=HOST[:PORT]``, or a bare ``HOST[:PORT]`` whose name is the domain's.

LONGEST_NAME = 100  # of a domain, as cluster files have it


@dataclass(frozen=True)
class ProbeHost:
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


def hosts_from_texts(texts: Sequence[str], *, source: str, known: Sequence[str] | None = None) -> tuple[ProbeHost, ...]:
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


def _host(text: str, source: str) -> ProbeHost:
    domain, given, rest = text.partition("=")
    address, port = _place(rest if given else text, source)
    domain = domain if given else address
    if not domain or domain != domain.strip() or "/" in domain or len(domain) > LONGEST_NAME:
        remedy = "write NAME=HOST[:PORT], for instance east=10.0.0.1"
        raise InputError("names no domain", source=source, value=text, remedy=remedy)
    return ProbeHost(domain, address, port)


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


@dataclass(frozen=True)
class Leg:
    """A pair to measure, from its first end to its second and back."""

    domains: tuple[str, str]
    told: str  # the two ends in words
    ask: Callable[[ProbeEffort], PathMeasured]  # ``NoAnswer`` where it fails


@dataclass(frozen=True)
class LegMeasured:
    """A leg after it was measured: None, and why, where nobody answered."""

    leg: Leg
    measured: PathMeasured | None
    reason: str = ""

    def samples(self, time_s: float) -> tuple[Sample, Sample]:
        """There and back; a rate of 0 where nobody answered."""
        (one, two), found = self.leg.domains, self.measured
        if found is None:
            return Sample(time_s, one, two, 0.0, None), Sample(time_s, two, one, 0.0, None)
        share = frame_share(found.segment_bytes)
        return (
            Sample(time_s, one, two, found.there.bytes_per_s * share, found.round_trip_min_s),
            Sample(time_s, two, one, found.back.bytes_per_s * share, found.round_trip_min_s),
        )


def legs_between(hosts: Sequence[ProbeHost], here: str | None) -> tuple[Leg, ...]:
    """Every pair of domains once: this machine (where it stands in one) with each host, and the hosts among themselves.

    Raises
    ------
    InputError
        Fewer than two domains.
    """
    others = [host for host in hosts if host.domain != here]
    own = [] if here is None else [_from_here(here, host) for host in others]
    among = [_between(one, two) for index, one in enumerate(others) for two in others[index + 1 :]]
    if not own and not among:
        remedy = "say where this machine stands with --here NAME, or name another host"
        raise InputError("a link has two ends, and one host is named", source="--to", remedy=remedy)
    return (*own, *among)


def _from_here(here: str, host: ProbeHost) -> Leg:
    return Leg((here, host.domain), f"{here} to {host}", lambda effort: measure(*host.place, effort))


def _between(one: ProbeHost, two: ProbeHost) -> Leg:
    domains = one.domain, two.domain
    return Leg(domains, f"{one} to {two}", lambda effort: measure_between(one.place, two.place, effort))


def usual_s(legs: Sequence[Leg], effort: ProbeEffort) -> float:
    """Seconds that a round takes on good links."""
    return len(legs) * effort.usual_s


def a_round(
    legs: Sequence[Leg], effort: ProbeEffort, progress: Callable[[str, float], None]
) -> tuple[LegMeasured, ...]:
    """Measures every leg once, one after the other."""
    looks = []
    for index, leg in enumerate(legs):
        progress(f"{leg.domains[0]} - {leg.domains[1]}", index / len(legs))
        try:
            looks.append(LegMeasured(leg, leg.ask(effort)))
        except NoAnswer as error:
            looks.append(LegMeasured(leg, None, str(error)))
    return tuple(looks)


def refuse_silence(looks: Sequence[LegMeasured]) -> None:
    """``InputError`` where a leg did not answer: before anything was measured that is a mistake, not an outage."""
    silent = [look for look in looks if look.measured is None]
    if silent:
        more = f"; so do {len(silent) - 1} other pairs" if len(silent) > 1 else ""
        raise InputError(
            f"{silent[0].leg.told}: {silent[0].reason}{more}",
            source="--to",
            remedy="start 'hippo probe --serve' there, and let its port through the firewall",
        )


def rounds(
    legs: Sequence[Leg],
    effort: ProbeEffort,
    *,
    every_s: float,
    for_s: float,
    progress: Callable[[str, float], None],
) -> Iterator[tuple[float, tuple[LegMeasured, ...]]]:
    """Rounds that begin ``every_s`` apart, for ``for_s`` seconds: the time of each (seconds since 1970) and its looks.

    Times run on the monotonic clock from the first: a clock that is set anew meanwhile changes nothing. A round that
    takes longer than ``every_s`` (links that do not answer) lets the rounds that it covers fall out.
    """
    zero_s, began_s = time.time(), time.monotonic()
    number = 0
    while number * every_s <= for_s:
        due_s = began_s + number * every_s
        while (left_s := due_s - time.monotonic()) > 0:
            time.sleep(min(left_s, 1.0))
        yield zero_s + number * every_s, a_round(legs, effort, progress)
        number = max(number + 1, -int(-(time.monotonic() - began_s) // every_s))
