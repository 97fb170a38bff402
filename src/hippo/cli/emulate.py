"""``hippo emulate``: a command inside an emulated WAN, one network namespace per domain."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hippo.cli.options import Json, takes
from hippo.cli.output import mention, print_document, say
from hippo.errors import InputError

if TYPE_CHECKING:
    from hippo.emulate.emulate import EmulationOutcome, Opened
    from hippo.emulate.setting import EmulatorSetting

FASTEST = 1e6
MOST_LINES = 12


@dataclass(frozen=True)
class Choice:
    """Which links, what moves them, and what runs inside."""

    cluster: Annotated[
        str | None, typer.Argument(metavar="[CLUSTER.yaml|NAME]", help="Domains and links to emulate.")
    ] = None
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND...", help="What runs inside, and its arguments.")
    ] = None
    each: Annotated[bool, typer.Option("--each", help="Run COMMAND once in every domain, with HIPPO_DOMAIN set.")] = (
        False
    )
    trace: Annotated[Path | None, typer.Option(metavar="NET.csv", help="Network trace that moves the links.")] = None
    speed: Annotated[float, typer.Option(metavar="TIMES", help="Seconds of the trace per second.")] = 1.0
    congestion: Annotated[
        str | None,
        typer.Option(metavar="cubic|bbr", help="TCP's congestion control.", show_default="the cluster's, else cubic"),
    ] = None
    backend: Annotated[
        str,
        typer.Option(metavar="auto|userspace|netem", help="What delays the packets; auto: netem where there is one."),
    ] = "auto"
    set: Annotated[
        str | None,
        typer.Option(metavar="'SRC DST GBPS MS'", help="Move a link of a running emulation (0 Gbit/s: an outage)."),
    ] = None
    control: Annotated[
        str | None,
        typer.Option(metavar="SOCKET", help="Which one; inside, the one around.", show_default="the one around"),
    ] = None
    json: Json = False


@takes(Choice)
def emulate(choice: Choice) -> None:
    """A command inside an emulated WAN, whose links may move.

    Each domain is a network namespace; links have rate and delay. Without --each, COMMAND runs once, outside all
    domains, and finds them in the file $HIPPO_EMULATION. With --json its stdout goes to stderr.
    """
    if choice.set is not None:
        _set(choice.set, choice.control)
        return
    from hippo.emulate.emulate import Stopped
    from hippo.emulate.emulate import emulate as run

    setting = _setting(choice)
    try:
        outcome = run(setting, opened=lambda opened: _say_opened(setting, opened), stdout=2 if choice.json else None)
    except Stopped as stopped:
        say(f"ended before COMMAND ran: {stopped}")
        raise typer.Exit(128 + stopped.number) from None
    if choice.json:
        print_document(asdict(outcome))
    _say_outcome(outcome)
    raise typer.Exit(outcome.exit_code)


def _setting(choice: Choice) -> EmulatorSetting:
    """The question, checked: every mistake that can be seen is said before anything is made."""
    from hippo.emulate.emulate import check, setting_of
    from hippo.problem.load import load_cluster, load_trace

    if choice.cluster is None:
        remedy = "hippo emulate CLUSTER.yaml -- COMMAND"
        raise InputError("no cluster", source="hippo emulate", remedy=remedy)
    if not 0 < choice.speed <= FASTEST:
        remedy = "give a number above 0, for instance 60: a minute of the trace each second"
        raise InputError(
            f"must be above 0 and at most {FASTEST:g}", source="--speed", value=choice.speed, remedy=remedy
        )
    cluster = load_cluster(choice.cluster)
    setting = setting_of(
        cluster,
        choice.command or (),
        source=choice.cluster,
        trace=None if choice.trace is None else load_trace(choice.trace, cluster),
        speed=choice.speed,
        each=choice.each,
        congestion=choice.congestion,
        backend=choice.backend,
    )
    check(setting)
    return setting


def _set(change: str, control: str | None) -> None:
    """Moves a link of the emulation around, or of the one whose socket is named."""
    from hippo.emulate.emulation import emulation, set_link

    around = None if control else emulation()
    if control is None and around is None:
        remedy = "name its socket with --control; 'hippo emulate' says it when it starts"
        raise InputError("no emulation around", source="--set", value=change, remedy=remedy)
    set_link(control or (around.control if around else ""), change)


def _say_opened(setting: EmulatorSetting, opened: Opened) -> None:
    mention(
        f"{len(setting.names)} domains, {len(setting.links)} links ({opened.backend}, {setting.congestion}); "
        f"to move one: hippo emulate --set 'SRC DST GBPS MS' --control {opened.control}"
    )


def _say_outcome(outcome: EmulationOutcome) -> None:
    """What the links carried, and how well the emulator kept up."""
    run = outcome.run
    used = [link for link in run.links if link.carried_bytes or link.dropped_bytes]
    lines = [
        f"  {link.source} -> {link.destination}: {link.carried_bytes / 1e6:.4g} MB, "
        f"{link.carried_bytes * 8e-6 / run.seconds:.3g} Mbit/s on average, {link.dropped_frames} dropped"
        for link in sorted(used, key=lambda link: -link.carried_bytes)[:MOST_LINES]
    ]
    more = [f"  and {len(used) - MOST_LINES} more links"] if len(used) > MOST_LINES else []
    head = (
        f"ended with exit code {outcome.exit_code} after {run.seconds:.1f} s; the emulator took "
        f"{run.cpu_s / run.seconds:.0%} of a core, packets came {run.mean_late_ms:.2f} ms late on average; on the wire:"
    )
    mention("\n".join([head, *lines, *more] if lines else [f"{head} nothing"]))
    if run.missed_frames:
        mention(f"the emulator did not keep up: {run.missed_frames} packets were never seen, so the links seemed worse")
