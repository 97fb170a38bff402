"""A service in the terminal: its jobs, its links, what it decided last."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from hippo.decide.wording import number, percent
from hippo.report.fitted import FittedTable, column

MOST_JOBS, MOST_LINKS = 20, 12


def service_view(told: Mapping[str, Any]) -> RenderableType:
    """What ``hippo top URL`` shows; ``told``: ``service``, ``jobs``, ``links``, ``decisions``, as the addresses do."""
    service, jobs, links = told["service"], told["jobs"], told["links"]
    held = sum(each["used"] for each in service["domains"])
    gpus = sum(each["gpus"] for each in service["domains"])
    words = f"{service['cluster']}: mode {service['mode']}, {service['policy']} decides, {held} of {gpus} GPUs are used"
    parts: list[RenderableType] = [Text(words)]
    faults = [f"{each['name']} does not answer: {each['fault']}" for each in service["actuators"] if each["fault"]]
    for why in (service["unwritten"], service["holds"] and f"holds: {service['holds']}", *faults):
        parts += [Text(why, style="bold")] if why else []
    parts += [Text(), _jobs(jobs[:MOST_JOBS])] if jobs else [Text("No job runs or waits.")]
    if len(jobs) > MOST_JOBS:
        parts.append(Text(f"and {len(jobs) - MOST_JOBS} more"))
    worst = sorted(links, key=lambda each: each["gbps"] / each["bought_gbps"])[:MOST_LINKS]
    parts += [Text(), _links(worst)] if worst else []
    for each in told["decisions"]:
        clock = time.strftime("%H:%M:%S", time.localtime(each["time_s"]))
        where = f" in {_place(each['after'])}" if each["after"] else ""
        cause = each["why"].get("cause", "")
        parts.append(Text(f"{clock} {each['job']}: {each['act']}{where} ({each['state']}). {cause}"))
    return Group(*parts)


def _jobs(jobs: Sequence[Mapping[str, Any]]) -> RenderableType:
    return FittedTable(
        (
            column("job", (each["id"] for each in jobs), right=False),
            column("state", (each["state"] for each in jobs), right=False),
            column(
                "where", (_place(each["place"]) if each["state"] == "running" else "" for each in jobs), right=False
            ),
            column("done", (percent(each["share_done"]) for each in jobs)),
            column("step s", (_told(each["step_s"]) for each in jobs)),
            column("predicted", (_told(each["predicted_step_s"]) for each in jobs), rank=2),
            column("owner", (each["owner"] for each in jobs), right=False, rank=3),
        )
    )


def _links(links: Sequence[Mapping[str, Any]]) -> RenderableType:
    return FittedTable(
        (
            column("link", (f"{each['from']} -> {each['to']}" for each in links), right=False),
            column("Gbit/s", (number(each["gbps"], 3) for each in links)),
            column("of bought", (percent(each["gbps"] / each["bought_gbps"]) for each in links)),
            column("expected", (_told(each["forecast_gbps"]) for each in links), rank=2),
            column("ms", (number(each["latency_ms"], 3) for each in links), rank=3),
        )
    )


def _place(place: Mapping[str, Any] | None) -> str:
    if place is None:
        return ""
    return " + ".join(f"{name} {gpus}" for name, gpus in zip(place["domains"], place["gpus"], strict=True))


def _told(value: float | None) -> str:
    return "-" if value is None else number(value, 3)
