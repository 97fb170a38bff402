"""``hippo ctl``: what a running job is asked to do, and what it tells."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hippo.cli.options import Json, takes
from hippo.cli.output import print_document, print_view
from hippo.errors import InputError, UnknownNameError

ORDERS = (
    "schedule NAME IN-FLIGHT",
    "micro-batch SIZE",
    "shares WAVES WAVES ..",
    "compress DOMAIN DOMAIN none|bf16|fp8|int8",
    "relay DOMAIN DOMAIN DOMAIN|none",
    "all-reduce two-level|ring",
    "every STEPS",
    "plan PLAN.json stop|background",
    "leave DOMAIN",
    "join DOMAIN LIKE",
    "give-up ORDER",
    "link DOMAIN DOMAIN GBPS LATENCY_MS",
    "status",
    "watch",
    "metrics",
)
ASKS = ("status", "watch", "metrics")
EVERY_S = 0.1
NAMED = {
    "schedule": ("name", "live_limit"),
    "leave": ("domain",),
    "join": ("domain", "like"),
    "micro-batch": ("size",),
    "compress": ("source", "destination", "kind"),
    "relay": ("source", "destination", "via"),
    "all-reduce": ("way",),
    "every": ("steps",),
    "give-up": ("number",),
}
"""Values of orders in the order in which they are typed."""


@dataclass(frozen=True)
class Choice:
    """Whom, what, when."""

    socket: Annotated[Path, typer.Argument(metavar="SOCKET", help="Of 'hippo run --control SOCKET'.")]
    words: Annotated[list[str], typer.Argument(metavar="ORDER...", help=" | ".join(ORDERS))]
    after: Annotated[
        int | None, typer.Option(metavar="STEP", help="The last step as before.", show_default="as soon as can be")
    ] = None
    key: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A key that came before does nothing again.", show_default="new")
    ] = None
    at: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="With metrics: an address for Prometheus, until the run is over."),
    ] = None
    wait: Annotated[bool, typer.Option("--wait", help="Come back when the order has been carried out.")] = False
    json: Json = False


@takes(Choice)
def ctl(choice: Choice) -> None:
    """Orders to a running job: levers, other plans, what it measures.

    They are carried out at the border of a step, without a restart. ORDER is one of: schedule NAME [IN-FLIGHT],
    micro-batch SIZE, shares WAVES WAVES .., compress DOMAIN DOMAIN KIND, relay DOMAIN DOMAIN THROUGH|none,
    all-reduce two-level|ring, every STEPS, plan PLAN.json [stop|background], leave DOMAIN, join DOMAIN [LIKE],
    give-up [ORDER], status, watch, metrics (Prometheus' text); and, of an emulated WAN, link DOMAIN DOMAIN GBPS
    LATENCY_MS. With --wait an order that is given up ends with 1.
    """
    from hippo.files import json_line
    from hippo.run.control import RefusedError, RunClient

    request = _request(choice)
    if choice.at is not None:
        if request != {"ask": "metrics"}:
            raise InputError("is for metrics", source="--at", value=choice.at, remedy="leave it out")
        from hippo.run.scraping import serve_metrics

        serve_metrics(choice.socket, *_address(choice.at), listens=lambda address: print(address, flush=True))
        return
    with RunClient(choice.socket) as run:
        if request == {"ask": "watch"}:
            for step in run.watch():
                print(json_line(step) if choice.json else _line(step) + "\n", end="", flush=True)
            return
        try:
            answer = run.ask(request)
        except RefusedError as error:  # the run knows no files
            if choice.words[0] == "plan" and len(choice.words) > 1:
                raise RefusedError(f"{choice.words[1]}: {str(error).removeprefix('order: ')}") from None
            raise
        if choice.wait and "accepted" in answer:
            answer = _done(run, int(answer["accepted"]))
    if "metrics" in answer and not choice.json:
        print(answer["metrics"], end="")
    elif choice.json:
        print_document(answer)
    else:
        from hippo.report.run_terminal import control_view

        print_view(control_view(answer))
    if choice.wait and answer.get("state") == "given up":
        raise typer.Exit(1)


def _request(choice: Choice) -> dict[str, Any]:
    """What the words ask for."""
    (word, *rest), json = choice.words, choice.json
    if word in (*ASKS, "link"):
        for option, value in (("--after", choice.after), ("--key", choice.key), ("--wait", choice.wait or None)):
            if value is not None:
                told = f"is of orders, and '{word}' is none"
                raise InputError(told, source=option, value=value, remedy="leave it out")
    if word in ASKS:
        if rest:
            raise InputError("takes nothing", source=word, value=" ".join(rest)[:60], remedy="leave it out")
        return {"ask": word, **({"record": True} if json and word == "status" else {})}
    if word == "link":
        return {"ask": word, **dict(zip(("from", "to", "gbps", "latency_ms"), _link(rest), strict=True))}
    key = {"key": secrets.token_hex(8) if choice.key is None else choice.key}
    return {
        "order": word,
        **key,
        **_values(word, rest),
        **({} if choice.after is None else {"after_step": choice.after}),
    }


def _values(word: str, rest: list[str]) -> dict[str, Any]:
    """The values of an order by name; what is left out or unknown the run refuses in its own words."""
    if word == "plan":
        from hippo.files import read_text
        from hippo.problem.document import parse_json

        if len(rest) > 2:
            raise InputError("is one word too many", source=word, value=rest[2][:60], remedy="leave it out")
        path, *way = rest or [""]
        told = {"plan": parse_json(read_text(Path(path), what="plan file"), path)} if path else {}
        return {**told, **({"way": way[0]} if way else {})}
    if word == "shares":
        return {"waves": [_number(each) for each in rest]}
    if word not in NAMED:
        raise UnknownNameError("order", word[:60], [each.split()[0] for each in ORDERS], source="ORDER")
    named = NAMED[word]
    if len(rest) > len(named):
        raise InputError("is one word too many", source=word, value=rest[len(named)][:60], remedy="leave it out")
    return {
        name: _number(each) if name in ("size", "steps", "live_limit", "number", "like") else each
        for name, each in zip(named, rest, strict=False)
    }


def _address(text: str) -> tuple[str, int]:
    """Host, this machine's own where none is named, and port."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise InputError("is no port", source="--at", value=text[:60], remedy="write PORT or HOST:PORT, as 9400")
    return host or "127.0.0.1", int(port)


def _link(rest: list[str]) -> list[str | float]:
    """Two domains, Gbit/s, milliseconds."""
    remedy = "write link FROM TO GBPS LATENCY_MS, for instance link east west 0.01 20"
    if len(rest) != 4:
        raise InputError("takes two domains and two numbers", source="link", value=" ".join(rest)[:60], remedy=remedy)
    try:
        return [*rest[:2], float(rest[2]), float(rest[3])]
    except ValueError:
        told = "takes numbers for rate and latency"
        raise InputError(told, source="link", value=" ".join(rest[2:])[:60], remedy=remedy) from None


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() and len(text) < 30 else text


def _done(run: Any, number: int) -> dict[str, Any]:
    """The order, once it has been carried out."""
    while True:
        found: dict[str, Any] = run.ask({"ask": "status"})["orders"][number - 1]
        if found["state"] != "accepted":
            return found
        time.sleep(EVERY_S)


def _line(step: dict[str, Any]) -> str:
    loss = "" if step["loss"] is None else f", loss {step['loss']:.6g}"
    return f"step {step['step']}: {step['seconds']:.3f} s{loss}"
