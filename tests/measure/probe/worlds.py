"""Servers of a test's own: the prober's, and one that answers as Prometheus does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from urllib.parse import parse_qs, urlsplit

from hippo.measure.probe.serve import listening, serve
from hippo.measure.probe.wire import ProbeEffort

QUICK = ProbeEffort(window_s=0.1, ramp_s=0.02, trips=5, patience_s=20.0)
"""Patient: nothing waits so long but for a peer that is silent."""
HEADER = "time_s,src,dst,bandwidth_gbps,latency_ms"


@contextmanager
def prober() -> Iterator[int]:
    """A server of ``hippo probe --serve`` on a free port of this machine."""
    stop = Event()
    with listening(0, bind="127.0.0.1") as own:
        thread = Thread(target=serve, args=(own,), kwargs={"stop": stop.is_set}, daemon=True)
        thread.start()
        try:
            yield own.getsockname()[1]
        finally:
            stop.set()
            thread.join()


@contextmanager
def scripted(body: Callable[[object], None]) -> Iterator[int]:
    """A TCP server that does ``body`` with every connection."""
    stop = Event()
    with listening(0, bind="127.0.0.1") as own:
        own.settimeout(0.05)

        def run() -> None:
            while not stop.is_set():
                try:
                    peer, _ = own.accept()
                except TimeoutError:
                    continue
                with peer:
                    body(peer)

        thread = Thread(target=run, daemon=True)
        thread.start()
        try:
            yield own.getsockname()[1]
        finally:
            stop.set()
            thread.join()


class Clock:
    """In the place of the module ``time``: time passes where somebody sleeps, and nowhere else."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def time(self) -> float:
        return self.now_s

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Asked(list):
    """Parameters of each question that came, in order."""


@contextmanager
def prometheus(answer: Callable[[Mapping[str, str]], tuple[int, object]]) -> Iterator[tuple[str, Asked]]:
    """A server whose ``query_range`` answers with status and document (or raw text)."""
    asked = Asked()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            parameters = {key: values[0] for key, values in parse_qs(parts.query).items()}
            asked.append(parameters)
            status, document = answer(parameters) if parts.path == "/api/v1/query_range" else (404, "not here")
            body = (document if isinstance(document, str) else json.dumps(document)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


def matrix(*series: tuple[Mapping[str, str], object]) -> tuple[int, object]:
    """A successful answer."""
    rows = [{"metric": dict(labels), "values": values} for labels, values in series]
    return 200, {"status": "success", "data": {"resultType": "matrix", "result": rows}}


def within(seconds: float) -> Callable[[], None]:
    """Asserts, when called, that no more time than a generous bound has passed."""
    began_s = time.monotonic()

    def check() -> None:
        assert time.monotonic() - began_s < seconds, "not bounded"

    return check


def report(**changes: object) -> dict:
    """What ``iperf3 -J -O 2`` writes, cut to what is read and a little around it (fields as of version 3.12)."""
    document = {
        "start": {
            "connected": [
                {"socket": 5, "local_host": "10.0.0.1", "local_port": 4, "remote_host": "10.0.0.2", "remote_port": 5201}
            ],
            "version": "iperf 3.12",
            "timestamp": {"time": "Sat, 21 Nov 2026 08:00:00 GMT", "timesecs": 1795248000},
            "tcp_mss_default": 1448,
            "test_start": {"protocol": "TCP", "num_streams": 1, "omit": 2, "duration": 10, "bytes": 0, "reverse": 0},
        },
        "intervals": [],
        "end": {
            "streams": [{"sender": {"mean_rtt": 61000, "min_rtt": 40200, "max_rtt": 90000}, "receiver": {}}],
            "sum_sent": {"bits_per_second": 9.6e7, "retransmits": 3},
            "sum_received": {"bytes": 119250000, "bits_per_second": 9.54e7},
        },
    }
    for path, value in changes.items():
        *outer, last = path.split("__")
        place: dict = document
        for key in outer:
            place = place[key]
        place[last] = value
    return document
