"""``hippo jobs``: a job trace replayed on a site, traces drawn after a trace, and the policies there are."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hippo.cli.options import AllowLocalSgd, Json, Seed, ServiceUrl, takes
from hippo.cli.output import check_file, check_folder, finish, mention, print_document, print_view, say, write_files
from hippo.cli.progress import Watch
from hippo.errors import InputError

if TYPE_CHECKING:
    from hippo.jobs.joint.moment import Scheduler
    from hippo.jobs.policies.policy import QueuePolicy

jobs = typer.Typer(
    name="jobs",
    help="Jobs over several data centres: replayed, or submitted.",
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


TraceFile = Annotated[Path, typer.Argument(metavar="TRACE", help="Job trace (a file, packed or not; PAI: the folder).")]
Form = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="philly|helios|pai|gavel|swf|own", help="Form of the trace.", show_default="told by content"
    ),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Pass over wrong rows, and count them.")]


@jobs.callback()
def _top(context: typer.Context) -> None:
    """Jobs over several data centres: replayed, or submitted."""
    if context.invoked_subcommand is None:
        print(context.get_help())


# ------------------------------------------------------------------------------------------------------------- replay
@dataclass(frozen=True)
class Wanted:
    """What is replayed, and who decides."""

    trace: TraceFile
    cluster: Annotated[
        str, typer.Option(metavar="CLUSTER.yaml|NAME", help="Cluster file, file of agents, or a catalogue name.")
    ]
    network: Annotated[
        Path | None,
        typer.Option(metavar="NET.csv", help="Network trace: how the links move.", show_default="they stand still"),
    ] = None
    format: Form = None
    begin: Annotated[float | None, typer.Option("--from", metavar="S", help="Jobs from this time of the trace on.")] = (
        None
    )
    end: Annotated[float | None, typer.Option("--to", metavar="S", help="Jobs before this time.")] = None
    part: Annotated[
        str | None, typer.Option(metavar="A:B", help="Part of the trace's time, as shares: 0.7:1 is the last 30 %.")
    ] = None
    load: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Stretch the arrivals to this load of the site.")
    ] = None
    span: Annotated[
        str, typer.Option(metavar="never|must|free", help="Jobs over several domains: must = only the too large.")
    ] = "must"
    data: Annotated[str, typer.Option(metavar="before|while", help="Data move before a job runs, or meanwhile.")] = (
        "while"
    )
    data_gb: Annotated[
        str | None,
        typer.Option(metavar="GB|usual", help="Data per device, for jobs whose trace tells none; usual: by kind."),
    ] = None
    cpus_per_node: Annotated[int, typer.Option(metavar="N", help="CPU cores per node, for jobs without GPUs.")] = 0
    keep_running: Annotated[
        bool, typer.Option("--keep-running", help="Who decides stops and moves no running job; failures do.")
    ] = False
    restart_s: Annotated[float, typer.Option(metavar="S", help="Time that a resumption takes after a stop.")] = 30.0
    mtbf_h: Annotated[
        float | None, typer.Option(metavar="H", help="Hours between failures of one node; left out: none fail.")
    ] = None
    repair_h: Annotated[float, typer.Option(metavar="H", help="Hours that a failed node is away.")] = 1.0
    no_past: Annotated[
        bool, typer.Option("--no-past", help="Policies that learn do not know the trace before the part.")
    ] = False
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Weights of learned.", show_default="the shipped ones")
    ] = None
    borders: Annotated[
        str | None,
        typer.Option(
            metavar="S[,S..]", help="Device-seconds at which two_queue moves a job on.", show_default="200000"
        ),
    ] = None
    promote_after: Annotated[
        float | None,
        typer.Option(
            metavar="N", help="two_queue promotes a job that waits N times its service.", show_default="never"
        ),
    ] = None
    allow_local_sgd: AllowLocalSgd = False
    online: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The agents decide first, and learn while they serve; log and policies lie there."
        ),
    ] = None
    skip_bad: SkipBad = False
    seed: Seed = 0
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME..]",
            help="Who decides, the first before the others; see 'jobs policies'.",
            show_default="learned; for elastic jobs hi_ppo",
        ),
    ] = None
    compare: Annotated[bool, typer.Option("--compare", help="Every other policy beside it.")] = False
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write jobs.html, jobs.json, a row a job there.")] = (
        None
    )
    json: Json = False


@takes(Wanted)
def replay(wanted: Wanted) -> None:
    """A job trace replayed on a cluster, under one policy or several.

    Jobs are gangs: all of their devices at once, in one domain, or over several where that is asked for and the
    planner knows how much longer they then take. Elastic jobs (they tell a model, tokens, least and most devices) run
    under what the planner offers for their sizes. A job that no part of the site can hold is refused with the reason,
    the rest goes on.
    """
    from hippo.front_door.queues import JobsQuestion, replay_jobs

    if wanted.out is not None:
        check_folder(wanted.out)
    try:
        question = JobsQuestion(**{each.name: getattr(wanted, each.name) for each in fields(JobsQuestion)})
    except InputError as error:  # by the names of options
        option = f"--{str(error.key).replace('_', '-')}"
        raise InputError(error.problem, source=option, value=error.value, remedy=error.remedy) from None
    with Watch("replaying") as progress:
        asked = () if wanted.policy is None else wanted.policy.split(",")
        account = replay_jobs(question, asked, everyone=wanted.compare, progress=progress)
    for remark in account.remarks:
        mention(remark)
    if wanted.json:
        print_document(account.document())
    else:
        from hippo.report.jobs_terminal import account_view

        print_view(account_view(account))
    if wanted.out is not None:
        from hippo.files import json_line, json_text
        from hippo.report.jobs_html import jobs_html

        files = {"jobs.html": jobs_html(account), "jobs.json": json_text(account.document())}
        write_files(wanted.out, {**files, "replayed.jsonl": "".join(map(json_line, account.job_rows()))})
    if not account.ran:
        say("infeasible: none of these jobs can run there")
    finish(feasible=account.ran)


# ----------------------------------------------------------------------------------------------------------- generate
@dataclass(frozen=True)
class Drawing:
    """After which trace or as which family, how many jobs, and what is drawn on top."""

    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write: .json or .csv, with .gz packed.")]
    like: Annotated[Path | None, typer.Option(metavar="TRACE", help="Job trace that the generator is fitted to.")] = (
        None
    )
    elastic: Annotated[
        str | None,
        typer.Option(
            metavar="mixed|steady|bursty|large|philly-like",
            help="Elastic training of LLMs among other jobs, for --cluster; with --like by the trace's arrivals.",
        ),
    ] = None
    models: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME..]", help="What elastic jobs train.", show_default="six from 1B to 70B"),
    ] = None
    load: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Load of the cluster by an --elastic family.", show_default="0.9"),
    ] = None
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Jobs to draw.", show_default="the trace's; 60 with --elastic")
    ] = None
    format: Form = None
    deadlines: Annotated[bool, typer.Option("--deadlines", help="Draw deadlines: slack 1.2, 2 or 10.")] = False
    priorities: Annotated[bool, typer.Option("--priorities", help="Draw priorities 0, 1 and 2.")] = False
    kinds: Annotated[bool, typer.Option("--kinds", help="Draw what jobs do: train, preprocess, predict, deploy.")] = (
        False
    )
    data_gb: Annotated[float, typer.Option(metavar="GB", help="Draw data of this mean; needs --cluster.")] = 0.0
    cluster: Annotated[
        str | None, typer.Option(metavar="CLUSTER.yaml|NAME", help="Whose domains hold the data; of --elastic.")
    ] = None
    skip_bad: SkipBad = False
    seed: Seed = 0
    json: Json = False


@takes(Drawing)
def generate(drawing: Drawing) -> None:
    """A job trace of any length, drawn after a trace, or with --elastic as a family of jobs for a cluster.

    Fitted: bursts by hour of the week and how uneven hours are, users, sizes, durations by size. How far what was drawn
    is from the trace is printed as Kolmogorov-Smirnov distances.
    """
    from hippo.front_door.queues import JobsDrawing, generate_jobs

    wanted = JobsDrawing(**{each.name: getattr(drawing, each.name) for each in fields(JobsDrawing)})
    check_file(drawing.out)
    with Watch("drawing jobs") as progress:
        document = generate_jobs(wanted, progress=progress)
    for remark in document["remarks"]:
        mention(remark)
    mention(f"wrote {document['jobs']:,} jobs to {drawing.out}")
    if drawing.json:
        print_document(document)
    else:
        from hippo.report.fitted import names_view

        print_view(names_view("figures", [{"name": name, **pair} for name, pair in document["moments"].items()]))
        far = [{"name": name, "distance": value} for name, value in document["ks"].items()]
        if far:
            print_view(names_view("KS distances", far))


# ----------------------------------------------------------------------------------------------------------- policies
@dataclass(frozen=True)
class Listing:
    """How the list is told."""

    json: Json = False


@takes(Listing)
def policies(listing: Listing) -> None:
    """The policies: rule, what each knows, whether it stops jobs."""
    from hippo.registry import JOB_POLICIES, JOB_SCHEDULERS, load

    rows: list[dict[str, Any]] = []
    for table, decides in ((JOB_POLICIES, "gangs"), (JOB_SCHEDULERS, "elastic jobs")):
        for name in table:
            policy: QueuePolicy | Scheduler = load(table, "policy", name)
            rows.append(
                {
                    "name": name,
                    "for": decides,
                    "knows": policy.knows,
                    "preempts": "yes" if policy.preempts else "no",
                    "about": policy.summary,
                    "source": policy.source,
                }
            )
    if listing.json:
        print_document({"policies": rows})
    else:
        from hippo.report.fitted import names_view

        print_view(names_view("policies", rows))


for command in (replay, generate, policies):
    jobs.command(command.__name__)(command)


# ---------------------------------------------------------------------------------------------------- a service's queue
@dataclass(frozen=True)
class Submitted:
    """A job for a service."""

    file: Annotated[Path | None, typer.Argument(metavar="JOB.json", help="The job as a file, in place of options.")] = (
        None
    )
    model: Annotated[str, typer.Option(metavar="NAME", help="What it trains.")] = ""
    tokens: Annotated[float, typer.Option(metavar="N", help="On so many tokens.")] = 0.0
    batch: Annotated[int, typer.Option(metavar="N", help="Sequences a step.", show_default="as usual")] = 0
    seq: Annotated[int, typer.Option(metavar="N", help="Tokens a sequence.", show_default="as usual")] = 0
    least: Annotated[int, typer.Option(metavar="N", help="GPUs at least.", show_default="as most")] = 0
    most: Annotated[int, typer.Option(metavar="N", help="GPUs at most.")] = 0
    devices: Annotated[
        int | None, typer.Option(metavar="N", help="GPUs of a gang: all at once.", show_default="no gang")
    ] = None
    duration: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds that a gang lasts.", show_default="no gang")
    ] = None
    priority: Annotated[int, typer.Option(metavar="N", help="Higher goes first.")] = 0
    deadline: Annotated[float | None, typer.Option(metavar="S", help="Seconds from now.", show_default="none")] = None
    actuator: Annotated[str | None, typer.Option(metavar="NAME", help="Who runs it.", show_default="the usual")] = None
    key: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Sent again with it, it is the same job.", show_default="drawn")
    ] = None
    whatif: Annotated[bool, typer.Option("--whatif", help="Only say how long it would wait.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say whether it would be taken in.")] = False
    url: ServiceUrl = None
    json: Json = False


@jobs.command("submit")
@takes(Submitted)
def submit(choice: Submitted) -> None:
    """Hand a job to a service; --whatif: ask how long it would wait.

    Elastic training by --model, --tokens and --most, or a gang by --devices and --duration. What an actuator is to
    start (run), and whatever else a job says, stands in a JOB.json.
    """
    from hippo.front_door.service import Client

    if choice.whatif and choice.dry_run:
        raise InputError("does not go with --whatif", source="--dry-run", remedy="leave out one of them")
    with Client(choice.url) as service:
        spec = _submission(choice)
        if choice.whatif:
            with Watch("asking, which may have to plan first"):
                found = service.whatif(spec)
            if choice.json:
                print_document(found)
            else:
                low, high = found["interval_s"]
                say(f"would wait {found['expected_wait_s']:.0f} s ({low:.0f} to {high:.0f} s in nine of ten)")
            return
        found = service.submit(spec, key=choice.key, dry_run=choice.dry_run)
    if choice.json:
        print_document(found)
    elif choice.dry_run:
        known = found["known_as"]
        say(f"only tried: it is {known} already" if known else "only tried: it would be taken in")
    else:
        print(found["id"])


def _submission(choice: Submitted) -> dict[str, Any]:
    if choice.file is not None:
        import json
        import sys

        from hippo.files import read_text

        how = ("file", "key", "whatif", "dry_run", "url", "json")
        for each in fields(choice):
            if each.name not in how and (value := getattr(choice, each.name)) != each.default:
                remedy = "write it into the file"
                raise InputError("does not go with a JOB.json", source=f"--{each.name}", value=value, remedy=remedy)
        text = sys.stdin.read() if str(choice.file) == "-" else read_text(choice.file, what="job file")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            remedy = "write one JSON object, as POST /v1/jobs takes it"
            raise InputError("is no job", source=str(choice.file), remedy=remedy)
        return found
    gang = {"--devices": choice.devices, "--duration": choice.duration}
    training = ("model", "tokens", "batch", "seq", "least", "most")
    told = [option for option, value in gang.items() if value is not None]
    if told and (others := [f"--{each}" for each in training if getattr(choice, each)]):
        remedy = f"leave out {told[0]} for training, or {others[0]} for a gang"
        raise InputError(f"does not go with {others[0]}", source=told[0], value=gang[told[0]], remedy=remedy)
    if len(told) == 1:
        (missing,) = gang.keys() - set(told)
        raise InputError("is missing", source=missing, remedy="a gang says both: --devices N --duration S")
    named = {"deadline_s": choice.deadline, "actuator": choice.actuator}
    named |= {"devices": choice.devices, "duration_s": choice.duration}
    numbers = ("tokens", "batch", "seq", "least", "most", "priority")
    given = {key: getattr(choice, key) for key in ("model", *numbers) if getattr(choice, key)}
    return {**given, **{key: value for key, value in named.items() if value is not None}}


@dataclass(frozen=True)
class Asked:
    """Which job of a service."""

    job: Annotated[str, typer.Argument(metavar="ID", help="As 'hippo jobs submit' printed it.")]
    url: ServiceUrl = None
    json: Json = False


@dataclass(frozen=True)
class AskedStatus:
    """Which jobs of a service."""

    job: Annotated[str | None, typer.Argument(metavar="[ID]", help="One job; without it, all.")] = None
    state: Annotated[str | None, typer.Option(metavar="NAME", help="Only those that are so.")] = None
    url: ServiceUrl = None
    json: Json = False


@dataclass(frozen=True)
class AskedCancel(Asked):
    """Which job of a service, and whether it ends."""

    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say whether it would end.")] = False


@jobs.command("status")
@takes(AskedStatus)
def status(choice: AskedStatus) -> None:
    """How the jobs of a service stand."""
    from hippo.front_door.service import Client

    with Client(choice.url) as service:
        rows = list(service.jobs(state=choice.state)) if choice.job is None else [service.job(choice.job)]
        holds = service.state()["holds"] if any(each["state"] == "waiting" for each in rows) else ""
    if choice.json:
        print_document(rows[0] if choice.job is not None else {"jobs": rows})
    else:
        print_view(_jobs_table(rows))
        if holds:
            say(f"nothing is decided: {holds}")


@jobs.command("cancel")
@takes(AskedCancel)
def cancel(choice: AskedCancel) -> None:
    """Cancel a job of a service."""
    from hippo.front_door.service import Client

    with Client(choice.url) as service:
        found = service.cancel(choice.job, dry_run=choice.dry_run)
    if choice.json:
        print_document(found)
    else:
        say(f"only tried: {choice.job} would end" if choice.dry_run else f"{choice.job} ends")


@jobs.command("why")
@takes(Asked)
def why(choice: Asked) -> None:
    """Why a job of a service runs where it does, or waits: the decisions about it."""
    from hippo.cli.decisions import decisions_table
    from hippo.front_door.service import Client

    with Client(choice.url) as service:
        found, rows = service.job(choice.job), service.why(choice.job)
    if choice.json:
        print_document({"job": found, "decisions": rows})
        return
    say(f"{choice.job} is {found['state']}" + (f": {found['why']}" if found["why"] else ""))
    print_view(decisions_table(rows))
    for each in (rows[0]["why"].get("alternatives") or []) if rows else []:
        where = ", ".join(f"{one} {two}" for one, two in zip(each["domains"], each["gpus"], strict=True))
        say(f"  could have had {where}: a step of {each['step_s']:.3g} s")


def _jobs_table(rows: list[dict[str, Any]]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for name in ("id", "state", "model", "where", "done", "step s", "predicted", "owner", "why"):
        table.add_column(name, justify="right" if name in ("done", "step s", "predicted") else "left")
    for row in rows:
        place = {} if row["state"] == "waiting" else row["place"] or {}
        pairs = zip(place.get("domains", ()), place.get("gpus", ()), strict=True)
        where = ", ".join(f"{domain} {gpus}" for domain, gpus in pairs)
        steps = ["" if row[key] is None else f"{row[key]:.3g}" for key in ("step_s", "predicted_step_s")]
        done = f"{100 * row['share_done']:.0f} %"
        table.add_row(
            row["id"], row["state"], row["job"].get("model", ""), where, done, *steps, row["owner"], row["why"]
        )
    return table
