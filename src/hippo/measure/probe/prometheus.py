"""Samples from a Prometheus server (``/api/v1/query_range``): what it knows of the links, over a span of time.

Every value is text there, ``NaN`` included; more than 11,000 points of a series are refused, so that long spans are
asked in pieces; a series that does not exist is an empty success, which here means "no data".
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hippo.errors import InputError, MissingExtraError
from hippo.measure.probe.sample import Sample
from hippo.units import BITS_PER_BYTE

# ------------------------------------------------------------------------------------------------------------ instants
# Instants as people write them: ``now``, ``-6h`` (that long ago), seconds since 1970, or a date of ISO 8601.

_AGO = re.compile(r"-(\d+(?:\.\d+)?)([smhdw])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
LATEST_S = 1e11


def instant(text: str, now_s: float, *, option: str) -> float:
    """Seconds since 1970; a date without a zone is UTC. ``InputError`` for anything else."""
    found = _AGO.fullmatch(text)
    if text == "now":
        return now_s
    if found:
        return max(now_s - float(found[1]) * _SECONDS[found[2]], 0.0)
    try:
        value = float(text)
    except ValueError:
        value = _date_s(text)
    if not 0 <= value <= LATEST_S:
        remedy = "give -6h, now, seconds since 1970, or a date such as 2026-11-21T08:00:00"
        raise InputError("is no instant", source=option, value=text, remedy=remedy)
    return value


def _date_s(text: str) -> float:
    """NaN where it is no date."""
    try:
        date = datetime.fromisoformat(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return float("nan")


MOST_POINTS = 11_000  # of a series in one answer
MOST_PIECES = 1000
WITHIN_S = 30.0
MOST_BYTES = 256_000_000
PATH = "/api/v1/query_range"
MAX_BITS_PER_S, MAX_TRIP_S = 1e15, 120.0
NAMES = ("src", "dst")  # labels that name the link's ends
DOMAIN, MOST_GPUS = "domain", 1e7

RATE_QUERY = "hippo_link_bits_per_second"
TRIP_QUERY = 'hippo_link_round_trip_seconds or probe_icmp_duration_seconds{phase="rtt"}'
"""What the prober's own text file (``--textfile``) says; round trips also as the blackbox exporter measures them."""


@dataclass(frozen=True)
class TimeSpan:
    """Instants ``start_s``, ``start_s + step_s``, .. up to ``stop_s``; seconds since 1970."""

    start_s: float
    stop_s: float
    step_s: float

    def pieces(self) -> Iterator[tuple[float, float]]:
        """Start and stop of each question, none of more than ``MOST_POINTS`` instants, none asked twice."""
        instants = math.floor((self.stop_s - self.start_s) / self.step_s) + 1
        for first in range(0, instants, MOST_POINTS):
            last = min(first + MOST_POINTS, instants) - 1
            yield self.start_s + first * self.step_s, self.start_s + last * self.step_s


def check_span(span: TimeSpan) -> None:
    """``InputError`` for a span that runs backwards, has no step, or asks for too much."""
    if not span.step_s > 0 or not math.isfinite(span.step_s):
        raise InputError("must be above 0", source="--step", value=span.step_s, remedy="give seconds, for instance 60")
    if not span.start_s <= span.stop_s:
        remedy = "give a start before the end"
        raise InputError("begins after its end", source="--start", value=span.start_s, remedy=remedy)
    if (span.stop_s - span.start_s) / span.step_s > MOST_POINTS * MOST_PIECES:
        raise InputError("asks for too many points", source="--step", value=span.step_s, remedy="give a longer step")


@dataclass(frozen=True)
class Query:
    """A question about all links: PromQL, what its values are, and what one of them makes in our unit."""

    option: str
    text: str
    factor: float  # of our unit (bytes/s, s) in the query's (bit/s, s)
    most: float  # in the query's unit; more is no figure


def rate_query(text: str) -> Query:
    """Bits per second of each link."""
    return Query("--rate-query", text, 1.0 / BITS_PER_BYTE, MAX_BITS_PER_S)


def trip_query(text: str) -> Query:
    """Seconds of a round trip of each link."""
    return Query("--latency-query", text, 1.0, MAX_TRIP_S)


@dataclass(frozen=True)
class ServerSamples:
    """What the server says of the links."""

    samples: tuple[Sample, ...]  # by time
    remarks: tuple[str, ...]


def samples_from_server(
    url: str, span: TimeSpan, domains: Mapping[str, str], *, rate: Query, trip: Query, names: Sequence[str] = NAMES
) -> ServerSamples:
    """The samples of a span; ``domains``: value of a label (a domain, a host, with or without port) to domain.

    A negative rate is unknown (as ``node_network_speed_bytes`` of a virtual interface); one of 0 is an outage.

    Raises
    ------
    InputError
        The server cannot be reached or refuses, an answer of another form, time that runs backwards, series without
        the labels, several series for one link, no data at all.
    """
    check_span(span)
    found: list[Mapping[tuple[str, str], Mapping[float, float]]] = []
    remarks: list[str] = []
    for query in (rate, trip):
        series = _asked(url, query, span)
        values, notes = _by_link(series, query, domains, names)
        found.append(values)
        remarks += notes or ([] if series else [f"no data: {query.text}"])
    rates, trips = found
    samples = [
        Sample(time_s, *pair, rates.get(pair, {}).get(time_s), trips.get(pair, {}).get(time_s))
        for pair in dict.fromkeys((*rates, *trips))
        for time_s in sorted({*rates.get(pair, {}), *trips.get(pair, {})})
    ]
    if not any(sample.rate_bytes_per_s is not None for sample in samples):
        told = "; ".join(remarks)[:300] or "no value of it is a rate"
        remedy = "name a query that has data with --rate-query, in bits per second per link (see docs/measuring.md)"
        raise InputError(f"no rate of any link ({told})", source=url, remedy=remedy)
    return ServerSamples(tuple(sorted(samples, key=lambda sample: sample.time_s)), tuple(remarks))


def gpus_from_server(url: str, span: TimeSpan, text: str) -> dict[str, int]:
    """GPUs of each domain (the label ``domain``) as they were counted last in a span.

    Raises
    ------
    InputError
        As ``samples_from_server``, of which no data is no error here.
    """
    found, query = dict[str, int](), Query("--gpus-query", text, 1.0, MOST_GPUS)
    for labels, values in _asked(url, query, span):
        name = labels.get(DOMAIN, "")
        if name in found:
            problem, remedy = f"several series for {name or 'no domain'}", "count by (domain) (..)"
            raise InputError(problem, source=query.option, value=text, remedy=remedy)
        if values:
            found[name] = int(values[max(values)])
    return found


# --------------------------------------------------------------------------------------------------------------- asking
Series = tuple[Mapping[str, str], Mapping[float, float]]
"""Labels; time to value, values that are no figures left out."""


def _asked(url: str, query: Query, span: TimeSpan) -> list[Series]:
    """Every series of the answer, the pieces of the span put together."""
    found: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    for start_s, stop_s in span.pieces():
        parameters = {
            "query": query.text,
            "start": f"{start_s:.3f}",
            "end": f"{stop_s:.3f}",
            "step": f"{span.step_s:g}",
        }
        for labels, values in _series(_answer(url, parameters, query), url, query):
            found.setdefault(tuple(sorted(labels.items())), {}).update(values)
    return [(dict(labels), values) for labels, values in found.items()]


def _answer(url: str, parameters: Mapping[str, str], query: Query) -> object:
    """The ``data`` of a successful answer."""
    httpx = _httpx()
    try:
        with httpx.stream("GET", f"{url.rstrip('/')}{PATH}", params=parameters, timeout=WITHIN_S) as answer:
            status, body = answer.status_code, _body(answer, url)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        problem = f"cannot be asked: {str(error)[:200] or type(error).__name__}"
        remedy = "give the address of a running Prometheus, for instance http://localhost:9090"
        raise InputError(problem, source="--prometheus", value=url, remedy=remedy) from None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or "status" not in document:
        remedy = "give the address of Prometheus itself, without a path of the API"
        problem = f"answers {status}, and not as Prometheus does"
        raise InputError(problem, source="--prometheus", value=url, remedy=remedy)
    if document["status"] != "success":
        told = f"{document.get('errorType', status)}: {document.get('error', 'no reason given')}"
        raise InputError(f"refused: {told[:300]}", source=query.option, value=query.text, remedy="correct the query")
    return document.get("data")


def _body(answer: Any, url: str) -> bytes:
    """The whole answer, of bounded length and in bounded time."""
    until_s, body = time.monotonic() + WITHIN_S, bytearray()
    for piece in answer.iter_bytes():
        body += piece
        if len(body) > MOST_BYTES or time.monotonic() > until_s:
            remedy = "ask for a shorter span or a longer --step"
            problem = f"has not answered whole within {WITHIN_S:g} s and {MOST_BYTES / 1e6:g} MB"
            raise InputError(problem, source="--prometheus", value=url, remedy=remedy)
    return bytes(body)


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise MissingExtraError("httpx", "service", source="--prometheus") from None
    return httpx


def _series(data: object, url: str, query: Query) -> Iterator[Series]:
    """The series of one answer; ``InputError`` where it has another form or time runs backwards."""
    rows = data.get("result") if isinstance(data, dict) else None
    if not isinstance(rows, list) or (isinstance(data, dict) and data.get("resultType") != "matrix"):
        raise _other_form(url, "no matrix")
    for row in rows:
        labels, values = (row.get("metric"), row.get("values")) if isinstance(row, dict) else (None, None)
        if not isinstance(labels, dict) or not isinstance(values, list):
            raise _other_form(url, "a series without metric or values")
        yield {str(key): str(value) for key, value in labels.items()}, _points(values, url, query)


def _points(values: Sequence[object], url: str, query: Query) -> dict[float, float]:
    found: dict[float, float] = {}
    last_s = -math.inf
    for point in values:
        if not isinstance(point, list) or len(point) != 2:
            raise _other_form(url, "a point that is no pair")
        time_s, value = _figure(point[0]), _figure(point[1])
        if time_s is None:
            raise _other_form(url, "a point without time")
        if time_s <= last_s:
            raise _other_form(url, f"time that runs backwards, from {last_s:g} to {time_s:g}")
        last_s = time_s
        if value is not None and 0 <= value <= query.most:
            found[time_s] = value * query.factor
    return found


def _figure(value: object) -> float | None:
    """A finite number, also written as text; None otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _other_form(url: str, what: str) -> InputError:
    remedy = "give the address of Prometheus itself; nothing between may change its answers"
    return InputError(f"answers in another form: {what}", source="--prometheus", value=url, remedy=remedy)


# ---------------------------------------------------------------------------------------------------------------- links
def _by_link(
    series: Sequence[Series], query: Query, domains: Mapping[str, str], names: Sequence[str]
) -> tuple[dict[tuple[str, str], Mapping[float, float]], list[str]]:
    """Time to value for each link; remarks on series that are passed over."""
    found: dict[tuple[str, str], Mapping[float, float]] = {}
    remarks: list[str] = []
    for labels, values in series:
        pairs = _pairs([_domain(labels.get(name), domains) for name in names], domains)
        shown = "{" + ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))[:200] + "}"
        if not pairs or not values:
            why = "none of its values is a figure (negative is unknown)" if pairs else f"{_told(names)} name no link"
            remarks.append(f"passed over, as {why}: {shown}")
            continue
        for pair in pairs:
            if pair in found:
                remedy = "narrow the query to one series for each link, for instance with max by (src, dst) (..)"
                problem = f"several series for {pair[0]}->{pair[1]}"
                raise InputError(problem, source=query.option, value=shown, remedy=remedy)
            found[pair] = values
    return found, remarks


def _told(names: Sequence[str]) -> str:
    return " and ".join(names)


def _pairs(ends: Sequence[str | None], domains: Mapping[str, str]) -> list[tuple[str, str]]:
    """The link that two labels name, or every link out of the domain that one label names."""
    if None in ends or not ends:
        return []
    others = ends[1:] if len(ends) > 1 else tuple(dict.fromkeys(domains.values()))
    return [(str(ends[0]), str(other)) for other in others if other != ends[0]]


def _domain(value: str | None, domains: Mapping[str, str]) -> str | None:
    """The domain of a label's value: as it stands, or a host's without its port."""
    if value is None:
        return None
    return domains.get(value) or domains.get(value.rpartition(":")[0].strip("[]"))
