"""Samples from reports of ``iperf3 -J`` (3.x), one or two directed links each.

    iperf3 -J -c HOST -t 10 -O 2 > east-west.json       (-O 2: the ramp is not counted; -R: the way back)

Read: ``end.sum_received.bits_per_second``, the least (else mean) round trip of the streams' senders, the time of
``start.timestamp``, the hosts of ``start.connected``, and the directions from ``start.test_start``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hippo.errors import InputError
from hippo.files import read_text
from hippo.measure.probe.sample import USUAL_SEGMENT_BYTES, Sample, frame_share
from hippo.problem.table import Table, open_table
from hippo.units import BITS_PER_BYTE, s_from_us

MAX_BITS_PER_S = 1e15
_TRIPS = ("min_rtt", "mean_rtt")  # us; the first that is told and not 0
_BOTH_WAYS = "sum_received_bidir_reverse"
_AS_WRITTEN = "give a report as 'iperf3 -J' writes it"


@dataclass(frozen=True)
class Reports:
    """What the files say, and remarks on what they do not."""

    samples: tuple[Sample, ...]  # by time
    remarks: tuple[str, ...]


def samples_from_reports(paths: Sequence[str], domains: Mapping[str, str]) -> Reports:
    """The samples of all files; ``domains``: address (or host name) to domain.

    A report of a test that failed is left out with a remark: it does not say which hosts it was between.

    Raises
    ------
    InputError
        A file that is no such report, of UDP, of hosts that stand in no domain or in the same; no sample at all.
    """
    found: list[Sample] = []
    remarks: list[str] = []
    for path in paths:
        document = _document(path)
        if isinstance(document, dict) and document.get("error"):
            remarks.append(f"{path}: left out, the test failed: {str(document['error'])[:200]}")
            continue
        report = open_table(document, source=path)
        found += _samples(report, domains)
        if not _inner(_inner(report, "start"), "test_start").values.get("omit"):
            remarks.append(f"{path}: its rate has the ramp of TCP in it (measure with -O 2)")
    if not found:
        raise InputError("no report holds a measurement", source="--iperf3", remedy="; ".join(remarks)[:300] or None)
    return Reports(tuple(sorted(found, key=lambda sample: sample.time_s)), tuple(remarks))


def _document(path: str) -> object:
    """The JSON of a file. Of a key that stands twice the last counts: iperf3 writes such with ``--bidir``."""
    text = read_text(Path(path), what="iperf3 report")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where, told = f"line {error.lineno}, column {error.colno}", error.msg
    except (ValueError, RecursionError) as error:
        where, told = "", str(error)[:100] or "nested too deep"
    raise InputError(f"not valid JSON: {told}", source=path, key=where or None, remedy=_AS_WRITTEN)


def _samples(report: Table, domains: Mapping[str, str]) -> list[Sample]:
    """One sample, or two of a test in both directions at once."""
    start = _inner(report, "start")
    test = _inner(start, "test_start")
    if test.text("protocol", default="TCP") != "TCP":
        test.refuse("protocol", "only TCP says what a link gives", "measure without -u")
    ends = _ends(start, domains)
    time_s = _inner(start, "timestamp").number("timesecs", least=0.0, most=1e11)
    segment = start.number("tcp_mss_default", default=float(USUAL_SEGMENT_BYTES), least=0.0, most=1e6)
    share = frame_share(segment if segment >= 1.0 else USUAL_SEGMENT_BYTES)
    end = _inner(report, "end")
    trip = _round_trip_s(end)
    backwards = bool(test.values.get("reverse"))
    first = ends[::-1] if backwards else ends
    found = [Sample(time_s, *first, _rate(end, "sum_received") * share, trip)]
    if end.has(_BOTH_WAYS):  # what --bidir adds; start says nothing of it
        found.append(Sample(time_s, *first[::-1], _rate(end, _BOTH_WAYS) * share, trip))
    return found


def _inner(table: Table, key: str) -> Table:
    return table.table(key, known=None)


def _rows(table: Table, key: str) -> list[Table]:
    items = enumerate(table.items(key, default=(), most=100_000))
    return [open_table(item, source=table.source, place=f"{table.key(key)}[{index}]") for index, item in items]


def _ends(start: Table, domains: Mapping[str, str]) -> tuple[str, str]:
    """Domains of the client and of the server."""
    rows = _rows(start, "connected")
    if not rows:
        start.refuse("connected", "is empty: the test never began", _AS_WRITTEN)
    hosts = [rows[0].text(key) for key in ("local_host", "remote_host")]
    names = [domains.get(host) for host in hosts]
    for host, name in zip(hosts, names, strict=True):
        if name is None:
            raise InputError(
                "stands in no domain",
                source=start.source,
                key="start.connected[0]",
                value=host,
                remedy=f"say in which, with --host NAME={host}",
            )
    if names[0] == names[1]:
        start.refuse("connected", f"joins {names[0]} to itself", "give reports of links between domains", value=hosts)
    return str(names[0]), str(names[1])


def _rate(end: Table, key: str) -> float:
    """Bytes/s of the stream."""
    if not end.has(key):
        end.refuse(key, "is missing", _AS_WRITTEN)
    return float(_inner(end, key).number("bits_per_second", least=0.0, most=MAX_BITS_PER_S)) / BITS_PER_BYTE


def _round_trip_s(end: Table) -> float | None:
    """The least round trip of the streams; None: not told (of the way back it never is). Taken under load."""
    trips: list[float] = []
    for stream in _rows(end, "streams"):
        if isinstance(stream.values.get("sender"), dict):
            told = (_inner(stream, "sender").number(key, default=0.0, least=0.0, most=1e9) for key in _TRIPS)
            trips.append(next((trip for trip in told if trip), 0.0))
    return min((s_from_us(trip) for trip in trips if trip), default=None)
