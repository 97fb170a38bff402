"""``hippo probe``: links measured, by its own prober or from what others measured, as cluster file and trace."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hippo.cli.options import LONGEST_S, Json, takes
from hippo.cli.output import check_folder, mention, print_document, print_view, say
from hippo.cli.progress import Watch
from hippo.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hippo.measure.probe.findings import Findings
    from hippo.measure.probe.prometheus import TimeSpan
    from hippo.measure.probe.rounds import Leg, LegMeasured
    from hippo.measure.probe.sample import Sample
    from hippo.measure.probe.wire import ProbeEffort
    from hippo.problem.cluster import Cluster

_NAMED = "NAME=HOST[:PORT]"
Files = dict[Path, Mapping[str, str]]
"""A folder to its files, name to text."""
LONGEST_PROBING_S = 366 * LONGEST_S


@dataclass(frozen=True)
class Choice:
    """Who measures what, how hard, and where it goes."""

    more: Annotated[
        list[str] | None, typer.Argument(metavar="[MORE]...", help="Further hosts of --to, or files of --iperf3.")
    ] = None
    to: Annotated[
        list[str] | None, typer.Option(metavar=_NAMED, help="Measure to hosts that run 'hippo probe --serve'.")
    ] = None
    here: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Domain that this machine stands in.", show_default="$HIPPO_DOMAIN, or none"),
    ] = None
    serve: Annotated[bool, typer.Option("--serve", help="Answer those who measure, until interrupted.")] = False
    port: Annotated[int, typer.Option(metavar="N", help="--serve: TCP port.")] = 5210
    bind: Annotated[str, typer.Option(metavar="ADDRESS", help="--serve: which own address.", show_default="all")] = ""
    iperf3: Annotated[list[str] | None, typer.Option(metavar="FILE", help="Read reports of 'iperf3 -J'.")] = None
    prometheus: Annotated[str | None, typer.Option(metavar="URL", help="Ask a Prometheus server.")] = None
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=ADDRESS", help="--iperf3, --prometheus: which domain an address stands for."),
    ] = None
    cluster: Annotated[
        str | None, typer.Option(metavar="CLUSTER.yaml|NAME", help="The domains' hardware, and prices of links.")
    ] = None
    gpu: Annotated[str | None, typer.Option(metavar="NAME", help="Without --cluster: GPU of all domains.")] = None
    nodes: Annotated[int, typer.Option(metavar="N", help="Without --cluster: nodes of each domain.")] = 1
    gpus_per_node: Annotated[int, typer.Option(metavar="N", help="Without --cluster: GPUs of a node.")] = 8
    seconds: Annotated[float, typer.Option(metavar="S", help="Seconds that count, of each direction.")] = 5.0
    ramp: Annotated[float, typer.Option(metavar="S", help="Seconds before them that do not.")] = 2.0
    flows: Annotated[int, typer.Option(metavar="N", help="TCP connections at the same time.")] = 1
    most_mb: Annotated[float, typer.Option(metavar="MB", help="Most megabytes of each direction.")] = 100_000.0
    timeout: Annotated[float, typer.Option(metavar="S", help="Silence after which a host counts as gone.")] = 10.0
    every: Annotated[float | None, typer.Option(metavar="S", help="Measure again and again: a trace.")] = None
    lasting: Annotated[float | None, typer.Option("--for", metavar="S", help="--every, --serve: for so long.")] = None
    start: Annotated[str, typer.Option(metavar="TIME", help="--prometheus: unix time, date, or -6h.")] = "-1h"
    end: Annotated[str, typer.Option(metavar="TIME", help="--prometheus: the same.")] = "now"
    step: Annotated[float, typer.Option(metavar="S", help="--prometheus: seconds between points.")] = 60.0
    rate_query: Annotated[
        str | None, typer.Option(metavar="PROMQL", help="Bits/s of links.", show_default="see docs/measuring.md")
    ] = None
    latency_query: Annotated[
        str | None, typer.Option(metavar="PROMQL", help="Seconds of round trips.", show_default="see docs/measuring.md")
    ] = None
    labels: Annotated[str, typer.Option(metavar="SRC[,DST]", help="Labels that name a link's ends.")] = "src,dst"
    textfile: Annotated[
        Path | None, typer.Option(metavar="FILE.prom", help="Latest round for node_exporter's textfile collector.")
    ] = None
    push: Annotated[
        str | None, typer.Option(metavar="URL", help="Tell a 'hippo serve' the latest of each link; HIPPO_TOKEN.")
    ] = None
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write cluster.yaml and network.csv there.")] = None
    json: Json = False


@takes(Choice)
def probe(choice: Choice) -> None:
    """Links as they are: measured, or read from iperf3 or Prometheus.

    Writes a cluster file and a network trace. Inside 'hippo emulate' it measures the emulated links without --to.
    """
    from hippo.measure.probe.findings import document_of

    mode = _mode(choice)
    if mode == "--serve":
        _serve(choice)
        return
    if choice.out is not None:
        check_folder(choice.out)
    base = _given_cluster(choice)
    unheard = list[InputError]()
    own = partial(_from_own, unheard=unheard)
    findings, files = {"--iperf3": _from_iperf3, "--prometheus": _from_prometheus}.get(mode, own)(choice, base)
    if choice.every is None:
        _push(choice, findings.samples)
    document = document_of(findings)
    if choice.json:
        print_document(document)
    else:
        print_view(_view(document))
        print("\n".join(findings.how))
    for remark in findings.remarks:
        mention(remark)
    _write(files)
    if unheard:
        raise unheard[-1]


def _mode(choice: Choice) -> str:
    """The one way of measuring that is asked for; ``InputError`` for none, several, or idle arguments."""
    asked = {
        "--serve": choice.serve,
        "--to": bool(choice.to),
        "--iperf3": bool(choice.iperf3),
        "--prometheus": choice.prometheus is not None,
    }
    modes = [name for name, given in asked.items() if given]
    if len(modes) > 1:
        raise InputError(f"{' and '.join(modes)} are asked for together", source="hippo probe", remedy="give one")
    if not modes:
        from hippo.emulate.emulation import emulation

        if emulation() is None:
            remedy = f"give --to {_NAMED}, --iperf3 FILE, --prometheus URL, or --serve"
            raise InputError("nothing says what to measure", source="hippo probe", remedy=remedy)
        modes = ["emulated"]
    if choice.more and modes[0] not in ("--to", "--iperf3"):
        raise InputError(
            "is not expected", source="hippo probe", value=choice.more[0], remedy="see 'hippo probe --help'"
        )
    return modes[0]


# ---------------------------------------------------------------------------------------------------------------- serve
def _serve(choice: Choice) -> None:
    import time

    from hippo.measure.probe.serve import listening, serve

    if not 0 <= choice.port < 65536:
        raise InputError("is no port", source="--port", value=choice.port, remedy="give one from 1024 to 65535")
    seconds = _seconds("--for", choice.lasting, LONGEST_PROBING_S) if choice.lasting is not None else float("inf")
    with listening(choice.port, bind=choice.bind) as own:
        say(f"serving on port {own.getsockname()[1]}")
        serve(own, until_s=time.monotonic() + seconds)


# ----------------------------------------------------------------------------------------------------------- own prober
def _from_own(choice: Choice, base: Cluster | None, unheard: list[InputError]) -> tuple[Findings, Files]:
    from hippo.measure.probe.rounds import usual_s

    effort = _effort(choice)
    with _legs(choice, base) as (legs, base):
        if choice.out is not None:
            base = _hardware(choice, base, [name for leg in legs for name in leg.domains])
        if choice.every is None:
            return _once(choice, legs, effort, base)
        _seconds("--every", choice.every, LONGEST_PROBING_S)
        if choice.every < usual_s(legs, effort):
            remedy = f"give at least {usual_s(legs, effort):.0f}, or less of --seconds and --ramp"
            raise InputError("is shorter than one round", source="--every", value=choice.every, remedy=remedy)
        return _again_and_again(choice, legs, effort, base, unheard)


@contextmanager
def _legs(choice: Choice, base: Cluster | None) -> Iterator[tuple[tuple[Leg, ...], Cluster | None]]:
    """The pairs to measure (only those that the cluster file links, where it links any), and the cluster file."""
    from hippo.emulate.emulation import DOMAIN_VARIABLE, emulation
    from hippo.measure.probe.rounds import hosts_from_texts, legs_between
    from hippo.problem.load import load_cluster

    known = None if base is None else [domain.name for domain in base.domains]
    if choice.to:
        here = choice.here or os.environ.get(DOMAIN_VARIABLE)
        if known is not None and here is not None and here not in known:
            raise UnknownNameError("domain", here[:60], known, source="--here")
        hosts = hosts_from_texts([*choice.to, *(choice.more or ())], source="--to", known=known)
        yield _linked(legs_between(hosts, here), base), base
        return
    from hippo.measure.probe.emulated import emulated_legs

    emulated = emulation()
    assert emulated is not None
    cluster = base or load_cluster(emulated.cluster)
    names = [domain.name for domain in cluster.domains if domain.name in emulated.domains]
    pairs = [(one, two) for index, one in enumerate(names) for two in names[index + 1 :]]
    joined = tuple(pair for pair in pairs if cluster.link(*pair) or cluster.link(*pair[::-1]))
    with emulated_legs(emulated, joined) as legs:
        yield legs, cluster


def _linked(legs: tuple[Leg, ...], base: Cluster | None) -> tuple[Leg, ...]:
    if base is None or not base.links:
        return legs
    kept = tuple(leg for leg in legs if base.link(*leg.domains) or base.link(*leg.domains[::-1]))
    if not kept:
        remedy = "name hosts of domains that are linked, or remove the links from the cluster file"
        raise InputError("the cluster file has no link between these domains", source="--to", remedy=remedy)
    return kept


def _once(choice: Choice, legs: Sequence[Leg], effort: ProbeEffort, base: Cluster | None) -> tuple[Findings, Files]:
    import time

    from hippo.measure.probe.rounds import a_round, refuse_silence

    time_s = time.time()
    with Watch("probing") as watch:
        looks = a_round(legs, effort, watch)
    refuse_silence(looks)
    return _found(choice, effort, base, {time_s: looks})


def _again_and_again(
    choice: Choice, legs: Sequence[Leg], effort: ProbeEffort, base: Cluster | None, unheard: list[InputError]
) -> tuple[Findings, Files]:
    """The files are written after every round, so that an interruption loses at most the round that runs.
    ``unheard``: why the service did not hear of the last rounds, where it did not."""
    from hippo.measure.probe.findings import TRACE_FILE
    from hippo.measure.probe.rounds import refuse_silence, rounds

    if choice.out is not None and (choice.out / TRACE_FILE).exists():
        remedy = "name another folder, or move the file away"
        raise InputError("a trace is there already", source="--out", value=str(choice.out / TRACE_FILE), remedy=remedy)
    assert choice.every is not None
    lasting = _seconds("--for", choice.every if choice.lasting is None else choice.lasting, LONGEST_PROBING_S)
    seen: dict[float, Sequence[LegMeasured]] = {}
    with Watch("probing") as watch:
        for time_s, looks in rounds(legs, effort, every_s=choice.every, for_s=lasting, progress=watch):
            if not seen:
                refuse_silence(looks)
            for look in looks:
                if look.measured is None:
                    mention(f"{look.leg.told}: {look.reason}; written as an outage")
            seen[time_s] = looks
            found = _found(choice, effort, base, seen)
            _write(found[1])
            try:
                _push(choice, [sample for look in looks for sample in look.samples(time_s)])
                unheard.clear()
            except InputError as error:
                unheard.append(error)
                mention(f"not told: {error}")
    return found


def _found(
    choice: Choice, effort: ProbeEffort, base: Cluster | None, seen: Mapping[float, Sequence[LegMeasured]]
) -> tuple[Findings, Files]:
    from hippo.measure.probe.findings import Findings, files_of, how_probed, textfile

    samples = tuple(sample for time_s, looks in seen.items() for look in looks for sample in look.samples(time_s))
    last = seen[max(seen)]
    findings = Findings(samples, how_probed(effort, last))
    files: Files = {}
    if choice.out is not None:
        assert base is not None
        files[choice.out] = files_of(findings, base)
    if choice.textfile is not None:
        text = textfile([sample for look in last for sample in look.samples(max(seen))])
        files[choice.textfile.parent] = {**files.get(choice.textfile.parent, {}), choice.textfile.name: text}
    return findings, files


def _effort(choice: Choice) -> ProbeEffort:
    from hippo.measure.probe.wire import LIMITS, ProbeEffort

    given = {
        "--seconds": ("window_s", choice.seconds),
        "--ramp": ("ramp_s", choice.ramp),
        "--flows": ("flows", choice.flows),
        "--most-mb": ("most_bytes", choice.most_mb * 1e6),
        "--timeout": ("patience_s", choice.timeout),
    }
    for option, (field, value) in given.items():
        least, most = LIMITS[field]
        unit = 1e6 if option == "--most-mb" else 1
        if not least <= value <= most:
            remedy = f"give a number from {least / unit:g} to {most / unit:g}"
            raise InputError("is out of range", source=option, value=value / unit, remedy=remedy)
    return ProbeEffort(
        choice.seconds, choice.ramp, choice.flows, most_bytes=choice.most_mb * 1e6, patience_s=choice.timeout
    )


def _seconds(option: str, value: float, most: float) -> float:
    if not 0 < value <= most:
        raise InputError("is out of range", source=option, value=value, remedy=f"give seconds, above 0 to {most:g}")
    return value


# -------------------------------------------------------------------------------------------------------------- readers
def _from_iperf3(choice: Choice, base: Cluster | None) -> tuple[Findings, Files]:
    from hippo.measure.probe.findings import Findings
    from hippo.measure.probe.iperf3 import samples_from_reports

    paths = [*(choice.iperf3 or ()), *(choice.more or ())]
    reports = samples_from_reports(paths, _addresses(choice, base))
    how = f"Goodput and round trips of {len(paths)} reports of iperf3. Rate: goodput times frame over stream bytes. "
    how += "Round trips are under load, with the queues that the test itself filled."
    return _from_others(choice, base, Findings(reports.samples, (how,), reports.remarks))


def _from_prometheus(choice: Choice, base: Cluster | None) -> tuple[Findings, Files]:
    from hippo.measure.probe import prometheus
    from hippo.measure.probe.findings import Findings

    assert choice.prometheus is not None
    rate = prometheus.rate_query(choice.rate_query or prometheus.RATE_QUERY)
    trip = prometheus.trip_query(choice.latency_query or prometheus.TRIP_QUERY)
    names = [name.strip() for name in choice.labels.split(",")]
    if not 1 <= len(names) <= 2 or not all(names):
        raise InputError("is no label or two", source="--labels", value=choice.labels, remedy="give SRC or SRC,DST")
    span, addresses = _span(choice), _addresses(choice, base)
    if not addresses:
        remedy = "give --cluster FILE, or --host NAME=VALUE for each value of the labels"
        raise InputError("no domain is known", source="--prometheus", remedy=remedy)
    with Watch("asking Prometheus"):
        known = prometheus.samples_from_server(choice.prometheus, span, addresses, rate=rate, trip=trip, names=names)
    how = (f"Asked of Prometheus, every {span.step_s:g} s: rate {rate.text}; round trip {trip.text}.",)
    return _from_others(choice, base, Findings(known.samples, how, known.remarks))


def _span(choice: Choice) -> TimeSpan:
    import time

    from hippo.measure.probe.prometheus import TimeSpan, instant

    now_s = time.time()
    return TimeSpan(
        instant(choice.start, now_s, option="--start"), instant(choice.end, now_s, option="--end"), choice.step
    )


def _addresses(choice: Choice, base: Cluster | None) -> Mapping[str, str]:
    """Address to domain; a domain's name is an address of its own."""
    from hippo.measure.probe.rounds import domains_of_addresses

    known = None if base is None else [domain.name for domain in base.domains]
    given = domains_of_addresses(choice.host or (), source="--host", known=known)
    return {name: name for name in (known or given.values())} | dict(given)


def _from_others(choice: Choice, base: Cluster | None, findings: Findings) -> tuple[Findings, Files]:
    from hippo.measure.probe.findings import files_of

    if choice.out is not None:
        names = [name for sample in findings.samples for name in sample.pair]
        return findings, {choice.out: files_of(findings, _hardware(choice, base, names))}
    return findings, {}


# ----------------------------------------------------------------------------------------------------------------- push
def _push(choice: Choice, samples: Sequence[Sample]) -> None:
    """The latest sample of each link, to a service. ``InputError``: it is not heard."""
    if choice.push is None:
        return
    from hippo.front_door.service import Client
    from hippo.units import gbps_from_bytes_per_s

    rows = {each.pair: each for each in sorted(samples, key=lambda each: each.time_s)}
    links: list[dict[str, Any]] = []
    for (source, destination), each in rows.items():
        if each.rate_bytes_per_s is None:
            continue
        told = {"from": source, "to": destination, "gbps": gbps_from_bytes_per_s(each.rate_bytes_per_s)}
        late = {} if each.round_trip_s is None else {"latency_ms": 1e3 * each.round_trip_s / 2.0}
        links.append({**told, **late, "time_s": each.time_s})
    with Client(choice.push) as service:
        service.push(links)


# ---------------------------------------------------------------------------------------------------------------- files
def _write(files: Files) -> None:
    from hippo.files import write_files

    for folder, texts in files.items():
        write_files(folder, texts)


def _given_cluster(choice: Choice) -> Cluster | None:
    from hippo.problem.load import load_cluster

    if choice.cluster is not None and choice.gpu is not None:
        raise InputError("stands beside --cluster", source="--gpu", value=choice.gpu, remedy="give one of the two")
    return None if choice.cluster is None else load_cluster(choice.cluster)


def _hardware(choice: Choice, base: Cluster | None, domains: Sequence[str]) -> Cluster:
    """The cluster file's, or equal domains of --gpu, --nodes and --gpus-per-node."""
    from hippo.measure.probe.findings import bare_cluster

    if base is not None:
        return base
    if choice.gpu is None:
        remedy = "give --cluster FILE, or --gpu NAME with --nodes and --gpus-per-node"
        raise InputError("the cluster file needs the domains' hardware", source="--out", remedy=remedy)
    names = tuple(dict.fromkeys(domains))
    return bare_cluster(names, gpu=choice.gpu, nodes=choice.nodes, gpus_per_node=choice.gpus_per_node)


def _view(document: Mapping[str, Any]) -> RenderableType:
    """A line for each directed link."""
    from hippo.report.fitted import FittedTable, column

    rows = document["links"]

    def cells(key: str, unit: float, percentile: str) -> list[str]:
        return [f"{row[key][percentile] * unit:.4g}" if row[key] else "-" for row in rows]

    return FittedTable(
        (
            column("link", (f"{row['from']} -> {row['to']}" for row in rows), right=False),
            column("Mbit/s", cells("bandwidth_gbps", 1e3, "median")),
            column("5 %", cells("bandwidth_gbps", 1e3, "p5"), rank=3),
            column("95 %", cells("bandwidth_gbps", 1e3, "p95"), rank=3),
            column("round trip ms", cells("round_trip_ms", 1.0, "median")),
            column("samples", (str(row["samples"]) for row in rows), rank=2),
            column("outages", (str(row["outages"]) for row in rows), rank=1),
        )
    )
