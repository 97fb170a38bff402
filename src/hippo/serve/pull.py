"""What a Prometheus knows of links and GPUs, asked again and again: telemetry where others measure already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Thread
from time import time

from hippo.errors import HippoError, InputError
from hippo.measure.probe.prometheus import (
    RATE_QUERY,
    TRIP_QUERY,
    TimeSpan,
    gpus_from_server,
    rate_query,
    samples_from_server,
    trip_query,
)
from hippo.measure.probe.sample import Sample
from hippo.serve.domains import DomainNow, checked_domain, domains_written
from hippo.serve.loop import ServeLoop
from hippo.serve.records import LinkPoint
from hippo.serve.telemetry import checked, written

BY, NOTHING = "prometheus", "none"
LOOKS_BACK = 3
"""Steps that one question goes back: a scrape may be late."""


@dataclass(frozen=True)
class PullTerms:
    """Whom, what and how often."""

    url: str
    rate: str = RATE_QUERY  # NOTHING: links are not asked for, others tell of them
    trip: str = TRIP_QUERY
    every_s: float = 15.0
    gpus: str = ""  # empty: GPUs are not asked for


@dataclass(eq=False)
class Puller:
    """Asks in a thread of its own; who does not answer is a fault, and the service holds when links are stale."""

    loop: ServeLoop
    terms: PullTerms
    now_s: Callable[[], float] = time  # the clock of whom is asked
    fault: str = ""
    _last: dict[tuple[str, str], float] = field(default_factory=dict)  # of each link, the last sample's time
    _over: Event = field(default_factory=Event)

    def start(self) -> None:
        """Begin."""
        self._thread = Thread(target=self._go_on, name="prometheus", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask no more."""
        self._over.set()

    def count(self) -> int:
        """Ask once for GPUs, if that is wanted; of how many domains another number can be used than before. One whose
        count cannot be is a fault, and keeps nothing from the others."""
        site, terms, now_s = self.loop.site.live.site, self.terms, self.now_s()
        if not terms.gpus:
            return 0
        span = TimeSpan(now_s - LOOKS_BACK * terms.every_s, now_s, terms.every_s)
        counted = gpus_from_server(terms.url, span, terms.gpus)
        found = {name: counted[name] for name in site.domains if name in counted}
        if not found:
            remedy = "name a query whose label domain is a domain of the site, see docs/service.md"
            raise InputError("counts no GPUs", source="--gpus-query", value=terms.gpus, remedy=remedy)
        before, at_s = self.loop.counted_by(BY), self.loop.now_s()
        told, wrong = list[DomainNow](), list[InputError]()
        for name, gpus in found.items():
            if gpus == before.get(name):
                continue
            try:
                told.append(checked_domain(site, DomainNow(at_s, name, gpus, BY), name, at_s))
            except InputError as error:
                wrong.append(error)
        if told:
            self.loop.store.write(domains_written(site, told, at_s)).result()
            self.loop.tell_domains(told)
        if wrong:
            raise wrong[0]
        return len(told)

    def look(self) -> int:
        """Ask once for links, if that is wanted; how many points were new."""
        site, terms, now_s = self.loop.site.live.site, self.terms, self.now_s()
        if terms.rate == NOTHING:
            return 0
        span = TimeSpan(now_s - LOOKS_BACK * terms.every_s, now_s, terms.every_s)
        names = {each: each for each in site.domains}
        rate, trip = rate_query(terms.rate), trip_query(terms.trip)
        found = samples_from_server(terms.url, span, names, rate=rate, trip=trip)
        points = []
        for each in found.samples:
            if each.rate_bytes_per_s is None or each.time_s <= self._last.get(each.pair, 0.0):
                continue
            self._last[each.pair] = each.time_s
            point = _point(each, self.loop.of_wall_s(each.time_s))
            points.append(checked(site, point, f"{each.source} to {each.destination}", self.loop.now_s()))
        if points:
            self.loop.store.write(written(points)).result()
            self.loop.points(points)
        return len(points)

    def _go_on(self) -> None:
        while not self._over.is_set():
            faults = []
            for ask in (self.look, self.count):
                try:
                    ask()
                except HippoError as error:
                    faults.append(str(error))
                except Exception as error:  # whatever answers there must not end the service
                    faults.append(f"{type(error).__name__}: {error}")
            self.fault = "; ".join(faults)[:300]
            self._over.wait(self.terms.every_s)


def _point(sample: Sample, time_s: float) -> LinkPoint:
    rate, trip_s = sample.rate_bytes_per_s, sample.round_trip_s
    assert rate is not None
    late_s = None if trip_s is None else trip_s / 2.0
    return LinkPoint(time_s, sample.source, sample.destination, rate, late_s, BY)


def pulled(url: str, every_s: float, rate: str = "", trip: str = "", gpus: str = "") -> PullTerms | None:
    """Checked terms; None without an address. ``InputError``: it is none, the interval is, or nobody or nothing is
    asked."""
    if not 1.0 <= every_s <= 3600.0:
        raise InputError("is out of range", source="--every", value=every_s, remedy="give 1 to 3600 seconds")
    if not url:
        given = {"--rate-query": rate, "--latency-query": trip, "--gpus-query": gpus}
        if name := next((name for name, query in given.items() if query), ""):
            raise InputError("asks nobody", source=name, remedy="name a Prometheus with --prometheus, or leave it out")
        return None
    if rate == NOTHING and not gpus:
        raise InputError("leaves nothing to ask for", source="--rate-query", value=rate, remedy="add --gpus-query")
    if not url.startswith(("http://", "https://")):
        raise InputError("is no address", source="--prometheus", value=url[:100], remedy="write http://HOST:9090")
    return PullTerms(url, rate or RATE_QUERY, trip or TRIP_QUERY, every_s, gpus)
