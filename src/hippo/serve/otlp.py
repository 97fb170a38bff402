"""Measurements by OTLP over HTTP: what an OpenTelemetry collector, or a program with its SDK, says of the links.

Gauges (or sums) have the names and labels of the prober's text file, so a collector that scrapes a prober passes them
on as they are: ``hippo_link_bits_per_second`` and ``hippo_link_round_trip_seconds``, each with ``src`` and ``dst``.
Everything else in a request is somebody else's, and passed over. Source: OTLP specification 1.9, "OTLP/HTTP".
"""

from __future__ import annotations

import zlib
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hippo.errors import InputError
from hippo.units import gbps_from_bytes_per_s

if TYPE_CHECKING:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

RATE, TRIP = "hippo_link_bits_per_second", "hippo_link_round_trip_seconds"
PROTOBUF, JSON = "application/x-protobuf", "application/json"
TRIP_AGE_S = 60.0
"""A round trip belongs to rates of the same link that were measured within so long of it."""


@dataclass(frozen=True)
class ToldLink:
    """What one data point says of a link, unchecked."""

    source: str
    destination: str
    gbps: float
    latency_ms: float | None  # one way: half of a round trip
    time_s: float | None  # since 1970; None: now


def told_links(body: bytes, kind: str, encoding: str, most_bytes: int) -> list[ToldLink]:
    """The rates of links in a request of ``ExportMetricsServiceRequest``, each with the round trip told nearest to it.

    Raises
    ------
    InputError
        Another content type or encoding, more than ``most_bytes`` once unpacked, or no such message.
    """
    request = _request(_unpacked(body, encoding, most_bytes), kind)
    trips: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for ends, trip_s, time_s in _points(request, TRIP):
        trips.setdefault(ends, []).append((time_s or 0.0, trip_s))
    for each in trips.values():
        each.sort()
    found = []
    for ends, bits_per_s, time_s in _points(request, RATE):
        near_s = _nearest(trips.get(ends, []), time_s or 0.0)
        late_ms = None if near_s is None else near_s * 1e3 / 2.0
        found.append(ToldLink(*ends, gbps_from_bytes_per_s(bits_per_s / 8.0), late_ms, time_s))
    return found


def _nearest(trips: list[tuple[float, float]], time_s: float) -> float | None:
    """The round trip (s) measured nearest to a time, of those in order of time; None: none within ``TRIP_AGE_S``."""
    at = bisect(trips, (time_s, 0.0))
    age_s, trip_s = min(
        ((abs(when - time_s), each) for when, each in trips[max(at - 1, 0) : at + 1]), default=(0.0, None)
    )
    return trip_s if age_s <= TRIP_AGE_S else None


def answer(kind: str, rejected: int, why: str) -> bytes:
    """``ExportMetricsServiceResponse`` in the request's own form: how many points were not taken, and why not."""
    from google.protobuf.json_format import MessageToJson
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsPartialSuccess,
        ExportMetricsServiceResponse,
    )

    part = ExportMetricsPartialSuccess(rejected_data_points=rejected, error_message=why) if rejected else None
    made = ExportMetricsServiceResponse(partial_success=part)
    return MessageToJson(made, indent=None).encode() if kind == JSON else made.SerializeToString()


def _unpacked(body: bytes, encoding: str, most_bytes: int) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise InputError(
            "is no encoding that is read", source="Content-Encoding", value=encoding[:40], remedy="send gzip"
        )
    unpacker = zlib.decompressobj(wbits=31)
    try:
        found = unpacker.decompress(body, most_bytes)
    except zlib.error:
        raise InputError("is not gzip", source="body", remedy="send what Content-Encoding says") from None
    if unpacker.unconsumed_tail or unpacker.unused_data or not unpacker.eof:
        raise InputError(
            f"is torn, or holds more than {most_bytes} bytes", source="body", remedy="send smaller batches"
        )
    return found


def _request(body: bytes, kind: str) -> ExportMetricsServiceRequest:
    from google.protobuf.json_format import Parse, ParseError
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    try:
        if kind == PROTOBUF:
            return ExportMetricsServiceRequest.FromString(body)
        if kind == JSON:
            return Parse(body, ExportMetricsServiceRequest(), ignore_unknown_fields=True)
    except (DecodeError, ParseError, UnicodeDecodeError, RecursionError):
        what = "ExportMetricsServiceRequest"
        raise InputError(f"is no {what} as {kind}", source="body", remedy="send what an OTLP exporter sends") from None
    raise InputError("is not read", source="Content-Type", value=kind[:60], remedy=f"send {PROTOBUF} or {JSON}")


def _points(request: ExportMetricsServiceRequest, name: str) -> Iterator[tuple[tuple[str, str], float, float | None]]:
    """Source and destination, value and seconds since 1970 of every data point of a metric."""
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in (each for each in scope.metrics if each.name == name):
                for point in (*metric.gauge.data_points, *metric.sum.data_points):
                    if (form := point.WhichOneof("value")) is None:
                        continue  # a series that has gone stale: nobody measured a zero
                    ends = {each.key: each.value.string_value for each in point.attributes}
                    value = float(getattr(point, form))
                    yield (ends.get("src", ""), ends.get("dst", "")), value, point.time_unix_nano / 1e9 or None
