"""``hippo jobs``: a job trace replayed on a site, traces drawn after a trace, and the policies there are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hippo.cli.jobs_generate import generate
from hippo.cli.jobs_question import Question, asked, check_options, policies_named
from hippo.cli.options import Json, takes
from hippo.cli.output import check_folder, finish, mention, print_document, print_view, say, write_files
from hippo.cli.progress import Watch

if TYPE_CHECKING:
    from hippo.jobs.account import ReplayAccount
    from hippo.jobs.policies.policy import QueuePolicy

jobs = typer.Typer(
    name="jobs",
    help="A queue of jobs replayed over several data centres.",
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


@jobs.callback()
def _top(context: typer.Context) -> None:
    """A queue of jobs replayed over several data centres."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@dataclass(frozen=True)
class Wanted(Question):
    """What is replayed, and who decides."""

    policy: Annotated[
        str,
        typer.Option(metavar="NAME[,NAME..]", help="Who decides, the first before the others; see 'jobs policies'."),
    ] = "learned"
    compare: Annotated[bool, typer.Option("--compare", help="Every other policy beside it.")] = False
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write jobs.html and jobs.json there.")] = None
    json: Json = False


@takes(Wanted)
def replay(wanted: Wanted) -> None:
    """A job trace replayed on a cluster, under one policy or several.

    Jobs are gangs: all of their devices at once, in one domain, or over several where that is asked for and the
    planner knows how much longer they then take. A job that no part of the site can hold is refused with the reason,
    the rest goes on.
    """
    check_options(wanted)
    policies = policies_named(wanted.policy, everyone=wanted.compare)
    if wanted.out is not None:
        check_folder(wanted.out)
    account = asked(wanted)
    for remark in account.remarks:
        mention(remark)
    with Watch("replaying") as progress:
        account = _played(account, policies, progress)
    if wanted.json:
        print_document(account.document())
    else:
        from hippo.report.jobs_terminal import account_view

        print_view(account_view(account))
    if wanted.out is not None:
        _write(wanted.out, account)
    if not account.ran:
        say("infeasible: none of these jobs can run there")
    finish(feasible=account.ran)


def _played(account: ReplayAccount, policies: tuple[QueuePolicy, ...], progress: Watch) -> ReplayAccount:
    """The account with one replay after the other."""
    from hippo.first_use import prepare_jobs
    from hippo.jobs.account import played
    from hippo.jobs.policies.learned import suited

    prepare_jobs(progress=progress)
    for place, each in enumerate(policies):
        policy, told = suited(each, account.workload), []
        if policy is not each:
            told.append(f"some jobs have deadlines: {each.name} goes by the key for them, {policy.name}")
            policy = replace(policy, name=each.name)  # the name that was asked for
        if policy.learns and account.learner is not None and account.learner.past is not None:
            told.append(f"{policy.name} knows the {len(account.learner.past):,} jobs of the trace before this part")
        for remark in told:
            mention(remark)
        account = replace(account, remarks=(*account.remarks, *told))
        progress(policy.name, place / len(policies))

        def watch(done: int, of: int, name: str = policy.name, begun: int = place) -> None:
            progress(name, (begun + done / max(of, 1)) / len(policies))

        account = played(account, policy, watch=watch)
    return account


def _write(folder: Path, account: ReplayAccount) -> None:
    from hippo.files import json_text
    from hippo.report.jobs_html import jobs_html

    write_files(folder, {"jobs.html": jobs_html(account), "jobs.json": json_text(account.document())})


# ----------------------------------------------------------------------------------------------------------- policies
@dataclass(frozen=True)
class Listing:
    """How the list is told."""

    json: Json = False


@takes(Listing)
def policies(listing: Listing) -> None:
    """The policies: rule, what each knows, whether it stops jobs."""
    from hippo.registry import JOB_POLICIES, load

    rows: list[dict[str, Any]] = []
    for name in JOB_POLICIES:
        policy: QueuePolicy = load(JOB_POLICIES, "policy", name)
        rows.append(
            {
                "name": name,
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
