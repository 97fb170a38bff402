"""Rounds of measurements over every pair of domains, one pair and one direction at a time: none disturbs another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hippo.errors import InputError
from hippo.measure.probe.ask import Measured, measure, measure_between
from hippo.measure.probe.hosts import Host
from hippo.measure.probe.sample import Sample, frame_share
from hippo.measure.probe.wire import Effort, NoAnswer


@dataclass(frozen=True)
class Leg:
    """A pair to measure, from its first end to its second and back."""

    domains: tuple[str, str]
    told: str  # the two ends in words
    ask: Callable[[Effort], Measured]  # ``NoAnswer`` where it fails


@dataclass(frozen=True)
class Look:
    """A leg after it was measured: None, and why, where nobody answered."""

    leg: Leg
    measured: Measured | None
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


def legs_between(hosts: Sequence[Host], here: str | None) -> tuple[Leg, ...]:
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


def _from_here(here: str, host: Host) -> Leg:
    return Leg((here, host.domain), f"{here} to {host}", lambda effort: measure(*host.place, effort))


def _between(one: Host, two: Host) -> Leg:
    domains = one.domain, two.domain
    return Leg(domains, f"{one} to {two}", lambda effort: measure_between(one.place, two.place, effort))


def usual_s(legs: Sequence[Leg], effort: Effort) -> float:
    """Seconds that a round takes on good links."""
    return len(legs) * effort.usual_s


def a_round(legs: Sequence[Leg], effort: Effort, progress: Callable[[str, float], None]) -> tuple[Look, ...]:
    """Measures every leg once, one after the other."""
    looks = []
    for index, leg in enumerate(legs):
        progress(f"{leg.domains[0]} - {leg.domains[1]}", index / len(legs))
        try:
            looks.append(Look(leg, leg.ask(effort)))
        except NoAnswer as error:
            looks.append(Look(leg, None, str(error)))
    return tuple(looks)


def refuse_silence(looks: Sequence[Look]) -> None:
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
    effort: Effort,
    *,
    every_s: float,
    for_s: float,
    progress: Callable[[str, float], None],
) -> Iterator[tuple[float, tuple[Look, ...]]]:
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
