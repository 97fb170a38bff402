"""``hippo serve``: a service that watches links and jobs, decides and acts."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from hippo.cli.options import Json, takes
from hippo.cli.output import mention, print_document, say
from hippo.cli.progress import Watch
from hippo.errors import InputError, MissingExtraError, UnknownNameError

PREFIX = "HIPPO_SERVE"
"""Of environment variables that stand for options: HIPPO_SERVE_PORT for --port."""


def _configured(context: typer.Context, file: Path | None) -> Path | None:
    """Options of the environment and of a file, in this order behind those of the command line."""
    context.auto_envvar_prefix = PREFIX
    known = {f"{PREFIX}_{str(each.name).upper()}" for each in context.command.params}
    for name in sorted(os.environ):
        if name.startswith(f"{PREFIX}_") and name not in known:
            raise UnknownNameError("variable", name[:60], known, source="environment")
    if file is not None:
        context.default_map = _options_of(file, context)
    return file


def _options_of(file: Path, context: typer.Context) -> dict[str, Any]:
    """What a file says of options, by their names."""
    from hippo.files import read_text
    from hippo.problem.document import parse_yaml

    document, found = parse_yaml(read_text(file, what="configuration"), str(file)), dict[str, Any]()
    if document is None:  # nothing but comments
        return found
    if not isinstance(document, dict):
        remedy = "write one option a line, for instance 'port: 8470'"
        raise InputError("is no table of options", source=str(file), remedy=remedy)
    known: dict[str, Any] = {str(each.name).replace("_", "-"): each for each in context.command.params}
    known = {name: each for name, each in known.items() if name not in ("help", "config")}
    for name, value in document.items():
        if name not in known:
            raise UnknownNameError("option", str(name)[:60], known, source=str(file))
        option = known[name]
        several, flag = (bool(getattr(option, each, False)) for each in ("multiple", "is_flag"))
        told = [value] if several and isinstance(value, str) else value
        try:
            if (
                told in (None, "")
                or isinstance(told, dict)
                or isinstance(told, list) != several
                or (told is True) > flag
            ):
                raise TypeError("is no value of this option")
            option.process_value(context, told)
        except (typer.BadParameter, TypeError, ValueError) as error:
            problem = getattr(error, "message", str(error)).rstrip(".")
            remedy = f"write it as for --{name}: see 'hippo serve --help'"
            raise InputError(problem, source=str(file), key=name, value=value, remedy=remedy) from None
        found[str(option.name)] = told
    return found


@dataclass(frozen=True)
class Choice:
    """What is served, where, and who decides."""

    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.yaml",
            help=f"Options by name, where neither the command line nor {PREFIX}_NAME says them.",
            callback=_configured,
            is_eager=True,
            envvar=f"{PREFIX}_CONFIG",
            show_envvar=False,
        ),
    ] = None
    store: Annotated[str, typer.Option(metavar="URL", help="sqlite:///FILE, or postgresql://USER@HOST/DATABASE.")] = (
        "sqlite:///hippo.db"
    )
    mode: Annotated[
        str, typer.Option(metavar="observe|advise|act", help="Says what it would do; waits for a yes; does it.")
    ] = "observe"
    cluster: Annotated[
        str, typer.Option(metavar="CLUSTER.yaml|NAME", help="The site: a cluster file, or a catalogue name.")
    ] = "four-hubs"
    policy: Annotated[str, typer.Option(metavar="NAME", help="Who decides.")] = "hi_ppo"
    keep_running: Annotated[
        bool, typer.Option("--keep-running", help="Nobody stops or moves a running job but failures and people.")
    ] = False
    online: Annotated[
        str,
        typer.Option(metavar="DIR", help="hi_ppo learns while it serves, behind a guard; log and policies lie there."),
    ] = ""
    actuator: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Who carries out; the first does what names none.", show_default="paper"),
    ] = None
    steering: Annotated[
        str, typer.Option(metavar="NAME", help="Who decides about plans of running jobs, as in watch; none: nobody.")
    ] = "hi_ppo"
    epoch: Annotated[float, typer.Option(metavar="S", help="Seconds between decisions about plans.")] = 300.0
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where it listens; others need tokens.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(metavar="N", help="0: any that is free.")] = 8470
    tls_cert: Annotated[str, typer.Option(metavar="PEM", help="Certificate.", show_default="no TLS")] = ""
    tls_key: Annotated[str, typer.Option(metavar="PEM", help="Its key.", show_default="no TLS")] = ""
    stale: Annotated[float, typer.Option(metavar="S", help="Without telemetry for so long it holds.")] = 60.0
    prometheus: Annotated[
        str, typer.Option(metavar="URL", help="Ask a Prometheus what links carry.", show_default="wait for pushes")
    ] = ""
    every: Annotated[float, typer.Option(metavar="S", help="--prometheus: how often.")] = 15.0
    rate_query: Annotated[
        str,
        typer.Option(metavar="PROMQL", help="Bits/s of links; none: GPUs alone.", show_default="see docs/measuring.md"),
    ] = ""
    latency_query: Annotated[
        str, typer.Option(metavar="PROMQL", help="Seconds of round trips.", show_default="see docs/measuring.md")
    ] = ""
    gpus_query: Annotated[
        str, typer.Option(metavar="PROMQL", help="GPUs of domains that are up.", show_default="GPUs are not asked for")
    ] = ""
    log: Annotated[
        str, typer.Option(metavar="FILE|-", help="JSON lines of what changes or fails; -: stderr.", show_default="none")
    ] = ""
    demo: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="An emulated WAN with real jobs, in that folder, and the page of it."),
    ] = None
    new_token: Annotated[
        str | None, typer.Option(metavar="NAME", help="Make a token for somebody, print it, and end.")
    ] = None
    role: Annotated[str, typer.Option(metavar="viewer|agent|operator|proxy", help="Of the new token.")] = "viewer"
    drop_token: Annotated[str | None, typer.Option(metavar="NAME", help="Take somebody's token back, and end.")] = None
    json: Json = False


@takes(Choice)
def serve(choice: Choice) -> None:
    """A service that watches links and jobs, decides and acts.

    Jobs come by 'hippo jobs submit' or POST /v1/jobs, links by POST /v1/telemetry. It goes on
    where it was, however it ended; jobs run on while it is away. Ctrl-C or SIGTERM ends it.
    """
    try:
        from hippo.serve.access import made, taken_back
        from hippo.serve.pull import pulled
        from hippo.serve.server import Service, ServiceTerms
        from hippo.serve.store import written_beside
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "serve", source="hippo serve") from None
    import sys
    import time

    from hippo.first_use import prepare_serving
    from hippo.problem.load import load_cluster

    if choice.role != "viewer" and choice.new_token is None:
        raise InputError("is of a new token", source="--role", value=choice.role, remedy="name it: --new-token NAME")
    if choice.new_token is not None:
        token = written_beside(choice.store, made(choice.new_token, choice.role, time.time()))
        if choice.json:
            print_document({"name": choice.new_token, "role": choice.role, "token": token})
        else:
            print(token)
        return
    if choice.drop_token is not None:
        written_beside(choice.store, taken_back(choice.drop_token, time.time()))
        if choice.json:
            print_document({"dropped": choice.drop_token})
        else:
            say(f"the token of {choice.drop_token} is good for nothing any more")
        return
    if choice.demo is not None:
        own = ("demo", "port", "json", "config")
        for each in fields(choice):
            if each.name not in own and getattr(choice, each.name) != each.default:
                name = f"--{each.name.replace('_', '-')}"
                raise InputError("does not go with --demo, which has its own", source=name, remedy=f"leave {name} out")
        from hippo.serve.demo import run_demo

        run_demo(choice.demo.resolve(), choice.port, say)
        return
    for name, seconds in (("--stale", choice.stale), ("--epoch", choice.epoch)):
        if not 0 < seconds < inf:
            raise InputError("must be above 0", source=name, value=seconds, remedy="write seconds")
    terms = ServiceTerms(
        store=choice.store,
        mode=choice.mode,
        policy=choice.policy,
        actuators=tuple(choice.actuator or ("paper",)),
        host=choice.host,
        port=choice.port,
        certificate=choice.tls_cert,
        key=choice.tls_key,
        stale_s=choice.stale,
        cluster_file=choice.cluster if isinstance(_file_or_name(choice.cluster), Path) else "",
        keeps_running=choice.keep_running,
        online=choice.online,
        steering=choice.steering,
        epoch_s=choice.epoch,
        log=choice.log,
        pull=pulled(choice.prometheus, choice.every, choice.rate_query, choice.latency_query, choice.gpus_query),
    )
    service = Service.of(load_cluster(_file_or_name(choice.cluster)), terms, tell=mention)
    with Watch("making ready") as watch:  # nothing is left to compile when a link collapses
        prepare_serving(choice.steering, progress=watch)
    token_file = service.token_file

    def ready() -> None:
        if choice.json:
            found = {"url": service.address, "token_file": None if token_file is None else str(token_file)}
            print_document({**found, "mode": terms.mode, "store": choice.store.split("@")[-1]})
            return
        page = service.address + "/"
        if token_file is not None and sys.stderr.isatty():  # a journal is read by others
            page += f"#token={token_file.read_text().strip()}"
        say(f"serves {choice.cluster} in mode {terms.mode}; the page: {page}")
        if token_file is not None:
            say(f"the token lies in {token_file}: export HIPPO_TOKEN=$(cat {token_file})")

    service.run(ready)


def _file_or_name(given: str) -> str | Path:
    return Path(given) if given.endswith((".yaml", ".yml", ".json")) else given
