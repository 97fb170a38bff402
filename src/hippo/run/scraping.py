"""An address at which Prometheus finds what a run measures, for as long as it runs. No torch."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from hippo.errors import InputError
from hippo.run.control import RunClient

TEXT = "text/plain; version=0.0.4; charset=utf-8"
LOOK_S = 0.5  # between two looks whether the run is still there


class _Scraped(BaseHTTPRequestHandler):
    server: _ScrapeServer

    def do_GET(self) -> None:
        """The run's metrics; nothing else is here."""
        if self.path != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            with RunClient(self.server.run) as run:
                text = str(run.ask({"ask": "metrics"})["metrics"]).encode()
        except (InputError, OSError):
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "the run has ended")
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", TEXT)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not worth a line each."""


class _ScrapeServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, run: Path) -> None:
        self.run, self.timeout = run, LOOK_S
        super().__init__((host, port), _Scraped)


def serve_metrics(run: Path, host: str, port: int, *, listens: Callable[[str], None]) -> None:
    """Answers ``GET /metrics`` until the run at the socket ``run`` is over; ``listens`` is told the address.

    Raises
    ------
    InputError
        No run is there, or nobody may listen at that address.
    """
    RunClient(run).close()
    try:
        server = _ScrapeServer(host, port, run)
    except (OSError, OverflowError) as error:
        told, remedy = getattr(error, "strerror", None) or str(error), "name another port, or 0 for any that is free"
        raise InputError(f"cannot listen: {told}", source="--at", value=f"{host}:{port}", remedy=remedy) from None
    with server:
        listens(f"http://{host}:{server.server_address[1]}/metrics")
        while run.exists():
            server.handle_request()
