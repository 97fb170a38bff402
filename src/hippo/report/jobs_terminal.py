"""A replay of jobs in the terminal: a table with a row per policy, and who was refused."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.text import Text

from hippo.decide.wording import count, percent
from hippo.jobs.account import Play, ReplayAccount
from hippo.report.fitted import FittedTable, column
from hippo.report.jobs_charts import span
from hippo.report.text import NOTHING, usd

COLUMNS = (
    *(
        "policy",
        "knows",
        "mean",
        "p50",
        "p95",
        "p99",
        "queueing",
        "makespan",
        "busy",
        "late",
        "far",
        "fairness",
        "stops",
    ),
    *("weighted", "goodput", "frag.", "stopped", "egress"),
)
RANKS = {
    **{"late": 1, "queueing": 2, "p95": 3, "busy": 4, "knows": 5, "p50": 6, "p99": 7},
    **{
        "fairness": 8,
        "stops": 9,
        "makespan": 10,
        "egress": 11,
        "weighted": 12,
        "goodput": 13,
        "frag.": 14,
        "stopped": 15,
        "far": 16,
    },
}
WORLD_RANKS = {
    **{
        "late": 1,
        "far": 1,
        "p95": 2,
        "weighted": 3,
        "busy": 4,
        "egress": 5,
        "stops": 6,
        "goodput": 7,
        "frag.": 8,
        "stopped": 9,
    },
    **{"fairness": 10, "queueing": 11, "knows": 12, "p50": 13, "p99": 14, "makespan": 15},
}
"""Where jobs are elastic."""

"""Which columns go first where the terminal is narrow: the highest; policy and mean stay."""

REASONS = 5  # of refusal that are told one by one


def account_view(account: ReplayAccount) -> RenderableType:
    """The table, the verdict, and reasons of refusal."""
    rows = [dict(zip(COLUMNS, cells_of(each), strict=True)) for each in account.plays]
    ranks = RANKS if account.offers is None else WORLD_RANKS
    table = FittedTable(
        tuple(
            column(name, (row[name] for row in rows), rank=ranks.get(name, 0), right=name not in ("policy", "knows"))
            for name in columns_of(account)
        ),
        highlight=0,
    )
    parts: list[RenderableType] = [Text(headline(account), style="dim"), table, Text()]
    parts.append(Text(verdict(account)))
    parts += [Text(remark, style="dim") for remark in remarks(account)]
    for reason, number in account.refused[:REASONS]:
        parts.append(Text(f"refused {count(number, 'job')}: {reason}", style="red"))
    more = account.refused[REASONS:]
    if more:
        told = f"refused {count(sum(number for _, number in more), 'job')} more, for {count(len(more), 'other reason')}"
        parts.append(Text(f"{told} (--json and --out name them)", style="red"))
    return Group(*parts)


def any_deadline(account: ReplayAccount) -> bool:
    """Whether any job has a deadline."""
    return any(each.figures.deadline_jobs for each in account.plays)


def columns_of(account: ReplayAccount) -> tuple[str, ...]:
    """``COLUMNS`` without those in which nothing would stand."""
    idle = {"late": not any_deadline(account), "egress": not any(each.egress_usd > 0 for each in account.plays)}
    idle["far"] = not any(each.figures.bounded_jobs for each in account.plays)
    idle |= dict.fromkeys(("goodput", "frag.", "stopped"), account.offers is None)
    idle["weighted"] = not account.workload.priority.any()
    return tuple(name for name in COLUMNS if not idle.get(name))


def cells_of(each: Play) -> tuple[str, ...]:
    """What stands in the row of a policy, in the order of ``COLUMNS``."""
    told = each.figures
    if not told.jobs:
        return (each.policy.name, each.policy.knows, *(NOTHING for _ in COLUMNS[2:]))
    late = f"{told.deadline_misses:,} of {told.deadline_jobs:,}" if told.deadline_jobs else NOTHING
    named = (("goodput", lambda value: f"{value:.2f}"), ("fragmentation", percent), ("interruption_s", span))
    world = [(getattr(each.world, name, math.nan), text) for name, text in named]
    times = (told.mean_completion_s, told.p50_completion_s, told.p95_completion_s, told.p99_completion_s)
    return (
        each.policy.name,
        each.policy.knows,
        *(span(value) for value in (*times, told.mean_queueing_s, told.makespan_s)),
        percent(told.utilization),
        late,
        NOTHING if math.isnan(told.beyond_bound) else percent(told.beyond_bound),
        f"{told.fairness:.2f}",
        f"{told.preemptions:,}",
        span(told.weighted_completion_s),
        *(NOTHING if math.isnan(value) else text(value) for value, text in world),
        usd(each.egress_usd) if each.egress_usd else NOTHING,
    )


def headline(account: ReplayAccount) -> str:
    """What was replayed, in a line."""
    jobs, site = account.workload, account.site
    seconds = float(jobs.arrival_s[-1]) if len(jobs) else 0.0
    kinds = ", ".join(
        f"{sum(pool.devices for pool in site.pools if pool.kind == kind):,} {kind}" for kind in site.kinds
    )
    users = len(set(jobs.user.tolist()))
    load = f"load {account.load:.2f}" if math.isfinite(account.load) else "all at once"
    return (
        f"{count(len(jobs), 'job')} of {count(users, 'user')} over {span(seconds)}, {load}, "
        f"on {kinds} in {count(len(site.domains), 'domain')}"
    )


def remarks(account: ReplayAccount) -> tuple[str, ...]:
    """How to read the table: sentences about figures that would mislead."""
    if not account.ran:
        return ()
    found, last_s = [], float(account.workload.arrival_s[-1])
    if account.first.figures.utilization < 0.5:
        to_s = account.first.figures.makespan_s
        found.append(f"Devices are counted up to the last finish, after {span(to_s)}; jobs arrive for {span(last_s)}.")
    by_deadline = [each.policy.name for each in account.plays if each.policy.name in ("deadline", "least_slack")]
    if by_deadline and not any_deadline(account):
        found.append(f"No job has a deadline, so priority and arrival decide under {' and '.join(by_deadline)}.")
    return tuple(found)


def verdict(account: ReplayAccount) -> str:
    """What came of it, in a sentence or two."""
    mine = account.first.figures
    if not mine.jobs:
        return "No job could run."
    head = (
        f"Under {account.first.policy.name} a job is done {span(mine.mean_completion_s)} after it was submitted on "
        f"average, {span(mine.mean_queueing_s)} of them not on devices; half are done in {span(mine.p50_completion_s)}."
    )
    others = [each for each in account.plays[1:] if each.figures.jobs]
    if not others:
        return head
    best = min(account.plays, key=lambda each: each.figures.mean_completion_s)
    unaware = [each for each in account.plays if each.policy.knows == "nothing"]
    first = min(unaware, key=lambda each: each.figures.mean_completion_s) if unaware else None
    text = f"{head} The least mean of all is that of {best.policy.name}: {span(best.figures.mean_completion_s)}"
    if best.policy.knows == "nothing" or first is None:
        return f"{text}."
    return (
        f"{text}, which knows {best.policy.knows}; of those that know nothing, that of {first.policy.name}: "
        f"{span(first.figures.mean_completion_s)}."
    )
