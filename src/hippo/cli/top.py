"""``hippo top``: a running job, or a service with its jobs, at a glance."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hippo.cli.options import Json, takes
from hippo.cli.output import print_document, print_view
from hippo.errors import InputError

SHORTEST_S, LONGEST_S = 0.1, 3600.0


@dataclass(frozen=True)
class Choice:
    """Whom, and how often."""

    socket: Annotated[
        str, typer.Argument(metavar="SOCKET|URL", help="Of 'hippo run --control SOCKET', or of a 'hippo serve'.")
    ]
    every: Annotated[float, typer.Option(metavar="S", help="Seconds between two looks.")] = 0.5
    once: Annotated[bool, typer.Option("--once", help="One look; into a pipe or a file it is always one.")] = False
    json: Json = False


@takes(Choice)
def top(choice: Choice) -> None:
    """A running job at a glance: ranks, links and orders as they are.

    How each rank spends a step, what each link carries, what was ordered; until the run is over or Ctrl-C. Of a service
    (http://HOST:PORT, with HIPPO_TOKEN): jobs, links and the last decisions.
    """
    from hippo.report.run_terminal import top_view
    from hippo.run.control import RunClient

    if not SHORTEST_S <= choice.every <= LONGEST_S:
        remedy = f"between {SHORTEST_S:g} and {LONGEST_S:g} seconds"
        raise InputError("is out of range", source="--every", value=f"{choice.every:g}", remedy=remedy)
    if choice.socket.startswith(("http://", "https://")):
        _of_service(choice)
        return
    with RunClient(Path(choice.socket)) as run:
        if choice.json:
            print_document(_look(run))
            return
        if choice.once or not sys.stdout.isatty():
            print_view(top_view(_look(run)))
            return
        from rich.live import Live

        found = _look(run)
        with Live(top_view(found), auto_refresh=False) as live:
            while found["step"] < found["last_step"]:
                time.sleep(choice.every)
                try:
                    found = _look(run)
                except (InputError, OSError):  # the run is over
                    return
                live.update(top_view(found), refresh=True)


def _look(run: Any) -> dict[str, Any]:
    found: dict[str, Any] = run.ask({"ask": "status", "record": True})
    return found


def _of_service(choice: Choice) -> None:
    from hippo.front_door.service import Client
    from hippo.report.service_terminal import service_view

    with Client(choice.socket) as service:

        def look() -> dict[str, Any]:
            jobs = [*service.jobs(state="running"), *service.jobs(state="waiting")]
            told = {"jobs": jobs, "links": service.links(), "decisions": service.decisions(limit=8)}
            return {"service": service.state(), **told}

        if choice.json:
            print_document(look())
            return
        if choice.once or not sys.stdout.isatty():
            print_view(service_view(look()))
            return
        from rich.live import Live

        with Live(service_view(look()), auto_refresh=False) as live:
            while True:
                time.sleep(choice.every)
                live.update(service_view(look()), refresh=True)
