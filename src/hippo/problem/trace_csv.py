"""Network traces from CSV: ``time_s,src,dst,bandwidth_gbps,latency_ms``, sorted by time.

A row's values hold until the next row of the same directed link; before its first row a link has its base values. Each
direction is a link of its own. Bandwidth 0 is an outage.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError, UnknownNameError
from hippo.problem.cluster import Cluster
from hippo.problem.links import Trace
from hippo.units import bytes_per_s_from_gbps, s_from_ms

HEADER = ("time_s", "src", "dst", "bandwidth_gbps", "latency_ms")
MAX_GBPS = 1e6
MAX_LATENCY_MS = 60_000.0
MAX_TIME_S = 1e10
MAX_CELLS = 20_000_000
"""Most instants x links; a year at one minute over 30 links has 16 million."""


def trace_from_csv(text: str, cluster: Cluster, *, source: str, complete: bool = False) -> Trace:
    """The trace of a CSV text over the links of ``cluster``; T instants, E links.

    ``complete``: every link must have a row at the trace's first time, none starts with its base values.

    Raises
    ------
    InputError
        A link without a first row (``complete``), another header, a row that is not five fields, a number that is not
        finite or in range, a link that the cluster does not have, time that runs backwards, the same link twice at one
        instant. The message names the line.
    """
    times: list[float] = []  # (T,)
    changes: list[tuple[int, int, float, float]] = []  # instant, link, bytes/s, s
    last: dict[int, float] = {}  # link -> time of its latest row
    for line, fields in _rows(text, source):
        time_s, link, bandwidth, latency = _row(fields, cluster, line=line, source=source)
        if times and time_s < times[-1]:
            _refuse(f"time runs backwards, from {times[-1]:g} s", source, line, fields[0], "sort the rows by time_s")
        if last.get(link) == time_s:
            pair = f"{fields[1]},{fields[2]}"
            _refuse("this link has two rows at one instant", source, line, pair, "keep one of them")
        last[link] = time_s
        if not times or time_s > times[-1]:
            times.append(time_s)
        changes.append((len(times) - 1, link, bandwidth, latency))
    if not times:
        _refuse("the trace holds no rows", source, 2, None, "write at least one row below the header")
    if len(times) * len(cluster.links) > MAX_CELLS:
        problem = f"{len(times)} instants x {len(cluster.links)} links are too many"
        raise InputError(problem, source=source, remedy=f"thin the trace to {MAX_CELLS // len(cluster.links)} instants")
    if complete:
        _check_first(changes, cluster, source, times[0])
    bandwidth_bytes_per_s, latency_s = _filled(changes, cluster, len(times))
    goodput, overhead_s = np.array([(link.goodput, link.overhead_s) for link in cluster.links]).reshape(-1, 2).T
    return Trace(np.array(times), bandwidth_bytes_per_s * goodput, latency_s + overhead_s, source)


def _rows(text: str, source: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every row after the header; blank lines are passed over."""
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        header = next(reader, [])
        if tuple(header) != HEADER:
            _refuse("another header", source, 1, ",".join(header), f"write {','.join(HEADER)}")
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        _refuse(f"not valid CSV: {error}", source, reader.line_num, None, "write five plain fields per line")


def _row(fields: list[str], cluster: Cluster, *, line: int, source: str) -> tuple[float, int, float, float]:
    """Time in s, index of the link, bytes/s, seconds."""
    if len(fields) != len(HEADER):
        _refuse(f"{len(fields)} fields", source, line, ",".join(fields), f"write {','.join(HEADER)}")
    time_s = _number(fields[0], 0, MAX_TIME_S, line=line, source=source)
    for column in (1, 2):
        if fields[column] not in cluster.domain_index:
            key = f"line {line}, {HEADER[column]}"
            raise UnknownNameError("domain", fields[column][:60], cluster.domain_index, source=source, key=key)
    link = cluster.link_index.get((fields[1], fields[2]))
    if link is None:
        remedy = "remove the row, or add the link to the cluster file"
        _refuse("the cluster has no such link", source, line, f"{fields[1]},{fields[2]}", remedy)
    bandwidth = _number(fields[3], 3, MAX_GBPS, line=line, source=source)
    latency = _number(fields[4], 4, MAX_LATENCY_MS, line=line, source=source)
    return time_s, link, bytes_per_s_from_gbps(bandwidth), s_from_ms(latency)


def _number(text: str, column: int, most: float, *, line: int, source: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0.0 <= value <= most):
        key = f"line {line}, {HEADER[column]}"
        remedy = f"write a number from 0 to {most:g}"
        raise InputError("must be a finite number, not negative", source=source, key=key, value=text, remedy=remedy)
    return value


def _check_first(changes: list[tuple[int, int, float, float]], cluster: Cluster, source: str, first_s: float) -> None:
    """``InputError`` naming the links that have no row at the first instant."""
    known = {link for instant, link, _, _ in changes if instant == 0}
    missing = [f"{link.source},{link.destination}" for n, link in enumerate(cluster.links) if n not in known]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise InputError(
            f"no value at the trace's first time, {first_s:g} s, for {'; '.join(missing[:3])}{more}",
            source=source,
            key="src,dst",
            value=missing[0],
            remedy="write a row for every directed link of the cluster at the first time",
        )


def _refuse(problem: str, source: str, line: int, value: object, remedy: str) -> NoReturn:
    raise InputError(problem, source=source, key=f"line {line}", value=value, remedy=remedy)


def _filled(
    changes: list[tuple[int, int, float, float]], cluster: Cluster, instants: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bandwidth and latency, each (T, E): base values, then every change carried forward."""
    state = np.full((2, instants, len(cluster.links)), np.nan)
    for instant, link, bandwidth, latency in changes:
        state[:, instant, link] = bandwidth, latency
    base = np.array(
        [
            [link.rate_bytes_per_s(cluster.domain(link.source).nodes) / link.goodput for link in cluster.links],
            [link.latency_s for link in cluster.links],
        ]
    )
    first = state[:, 0]
    first[np.isnan(first)] = base[np.isnan(first)]
    for instant in range(1, instants):
        gaps = np.isnan(state[0, instant])
        state[:, instant, gaps] = state[:, instant - 1, gaps]
    return state[0], state[1]
