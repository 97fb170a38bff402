"""Measurements of links by OTLP, as OpenTelemetry's own SDK makes and sends them."""

from __future__ import annotations

import gzip
import time
from threading import Thread

import pytest
import uvicorn
from google.protobuf.json_format import MessageToJson
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Meter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult

from hippo.errors import InputError
from hippo.serve.otlp import JSON, PROTOBUF, RATE, TRIP, told_links

from .test_api import Asked, asked  # noqa: F401  a fixture

MOST = 100_000
LINK = {"src": "wuhu", "dst": "guian"}
ADDRESS = "/otlp/v1/metrics"


def metrics(**rates: float):
    """What an SDK has collected: a rate of each link, one round trip, and a metric of somebody else."""
    reader = InMemoryMetricReader()
    meter: Meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("prober")
    rate = meter.create_gauge(RATE, "bit/s")
    for ends, value in rates.items():
        source, _, destination = ends.partition("_")
        rate.set(value, {"src": source, "dst": destination})
    meter.create_gauge(TRIP, "s").set(0.04, LINK)
    meter.create_counter("http.server.requests").add(3, LINK)
    return reader.get_metrics_data()


def body(**rates: float) -> bytes:
    return encode_metrics(metrics(**rates)).SerializeToString()


def test_what_an_sdk_says_of_links():
    told = told_links(body(wuhu_guian=2e9, guian_wuhu=3e9), PROTOBUF, "", MOST)
    assert [(each.source, each.destination, each.gbps, each.latency_ms) for each in told] == [
        ("wuhu", "guian", 2.0, 20.0),
        ("guian", "wuhu", 3.0, None),
    ]
    assert told[0].time_s is not None
    as_json = MessageToJson(ExportMetricsServiceRequest.FromString(body(wuhu_guian=2e9))).encode()
    (again,) = told_links(as_json, JSON, "", MOST)
    assert (again.gbps, again.latency_ms) == (2.0, 20.0)
    assert told_links(gzip.compress(body(wuhu_guian=2e9)), PROTOBUF, "gzip", MOST)[0].gbps == 2.0


def test_a_round_trip_belongs_to_the_rate_that_is_nearest_in_time():
    made = ExportMetricsServiceRequest()
    scope = made.resource_metrics.add().scope_metrics.add()
    for name, points in ((RATE, ((1e9, 1000), (2e9, 2000))), (TRIP, ((0.2, 1010), (0.4, 1930), (0.6, 2100)))):
        metric = scope.metrics.add(name=name)
        for value, time_s in points:
            point = metric.gauge.data_points.add(as_double=value, time_unix_nano=time_s * 10**9)
            for key, end in LINK.items():
                point.attributes.add(key=key).value.string_value = end
    told = told_links(made.SerializeToString(), PROTOBUF, "", MOST)
    assert [(each.gbps, each.latency_ms, each.time_s) for each in told] == [(1.0, 100.0, 1000.0), (2.0, None, 2000.0)]


def test_a_series_that_went_stale_measured_no_zero():
    """A collector that scrapes sends a point without a value when a series ends (OTLP: NO_RECORDED_VALUE)."""
    sent = ExportMetricsServiceRequest.FromString(body(wuhu_guian=2e9))
    (rate,) = [each for each in sent.resource_metrics[0].scope_metrics[0].metrics if each.name == RATE]
    point = rate.gauge.data_points[0]
    point.ClearField("as_double")
    point.flags = 1
    assert told_links(sent.SerializeToString(), PROTOBUF, "", MOST) == []
    point.as_int = 0
    assert [each.gbps for each in told_links(sent.SerializeToString(), PROTOBUF, "", MOST)] == [0.0]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ((b"\xff\xff", PROTOBUF, ""), "is no ExportMetricsServiceRequest"),
        ((b"[", JSON, ""), "is no ExportMetricsServiceRequest"),
        ((b"\xff", JSON, ""), "is no ExportMetricsServiceRequest"),
        ((b'{"resourceMetrics": 3}', JSON, ""), "is no ExportMetricsServiceRequest"),
        ((b"[" * 5000, JSON, ""), "is no ExportMetricsServiceRequest"),
        ((b"", "text/plain", ""), "Content-Type"),
        ((b"", PROTOBUF, "br"), "Content-Encoding"),
        ((b"no gzip", PROTOBUF, "gzip"), "is not gzip"),
        ((gzip.compress(b"")[:-4], PROTOBUF, "gzip"), "is torn"),
        ((gzip.compress(b"") * 2, PROTOBUF, "gzip"), "is torn"),
        ((gzip.compress(bytes(MOST + 1)), PROTOBUF, "gzip"), "more than 100000 bytes"),
    ],
)
def test_what_is_no_request(told: tuple[bytes, str, str], words: str):
    with pytest.raises(InputError, match=words):
        told_links(*told, MOST)


def test_the_good_is_taken_and_the_rest_is_told(asked: Asked):  # noqa: F811
    sent = ExportMetricsServiceRequest.FromString(body(wuhu_guian=2.25e9, wuhu_nowhere=1e9, guian_wuhu=1e15))
    for metric in sent.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.gauge.data_points:
            point.ClearField("time_unix_nano")  # now
    answer = asked.http.post(ADDRESS, content=sent.SerializeToString(), headers={"Content-Type": PROTOBUF})
    assert (answer.status_code, answer.headers["content-type"]) == (200, PROTOBUF)
    told = ExportMetricsServiceResponse.FromString(answer.content).partial_success
    assert told.rejected_data_points == 2
    assert "no such domain" in told.error_message
    asked.served.turn()
    links = {(each["from"], each["to"]): each["gbps"] for each in asked.http.get("/v1/links").json()["links"]}
    assert links["wuhu", "guian"] == 2.25
    wrong = asked.http.post(ADDRESS, content=b"\xff", headers={"Content-Type": PROTOBUF})
    assert (wrong.status_code, wrong.headers["content-type"]) == (400, "application/problem+json")
    viewer = {"Content-Type": PROTOBUF, "Authorization": f"Bearer {asked.tokens['viewer']}"}
    assert asked.http.post(ADDRESS, content=b"", headers=viewer).status_code == 403
    assert asked.http.post(ADDRESS, content=b"", headers={"Content-Type": PROTOBUF}).content == b""


def test_the_exporter_of_an_sdk_sends_and_is_answered(asked: Asked):  # noqa: F811
    server = uvicorn.Server(uvicorn.Config(asked.http.app, port=0, log_level="critical", lifespan="off"))
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    headers = {"Authorization": f"Bearer {asked.tokens['agent']}"}
    exporter = OTLPMetricExporter(f"http://127.0.0.1:{port}{ADDRESS}", headers=headers)
    asked.served.clock.now_s = time.time()  # as the exporter's
    try:
        before = asked.served.loop.state.points
        assert exporter.export(metrics(wuhu_guian=2e9)) is MetricExportResult.SUCCESS
        assert asked.served.loop.state.points == before + 1
    finally:
        exporter.shutdown()
        server.should_exit = True
        thread.join(10.0)
