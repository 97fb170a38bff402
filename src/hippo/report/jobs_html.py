"""The page of a replay of jobs, whole in one file: figures, policies side by side, utilisation and queue over time,
completion times, slowdown by size and user, who waited longest, who was refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from hippo.decide.wording import count, number, percent
from hippo.jobs.account import Play, ReplayAccount
from hippo.jobs.figures import JobGroup, counted
from hippo.report.frame import frame, template
from hippo.report.jobs_charts import Axes, ChartLine, Floats, chart, distribution, sample, span, stacked
from hippo.report.jobs_terminal import COLUMNS, cells_of, columns_of, headline, verdict
from hippo.report.text import NOTHING, unbroken, usd
from hippo.report.world_html import world_panels

X_LABEL = "time since the first arrival"
DASHES = ("", "9 4", "2 3", "9 3 2 3")
"""Colours come again after so many lines: dashes tell those of one colour apart, and neighbours for who sees none."""
MOST_USERS, MOST_WAITED, MOST_REASONS = 12, 12, 12
TITLES = {
    "mean": "Mean",
    "weighted": "Weighted",
    "goodput": "Goodput",
    "frag.": "Frag.",
    "stopped": "Stopped",
    "queueing": "Queueing",
    "makespan": "Makespan",
    "busy": "Busy",
    "late": "Late",
    "far": "Far",
    "fairness": "Fairness",
    "stops": "Stops",
    "egress": "Egress",
    "knows": "Knows",
    "policy": "Policy",
}


@dataclass(frozen=True)
class BarRow:
    """A row of a table with a bar."""

    name: str
    share: float  # length of the bar, 0..1
    cells: tuple[str, ...]
    chosen: bool = False


def jobs_html(account: ReplayAccount) -> str:
    """The page: a whole document."""
    page, record = template("jobs.html.j2"), account.first.record if account.ran else None
    return page.render(
        **frame(*(() if record is None else ("jobs.js",))),
        world=record is not None,
        **({} if record is None else world_panels(account, record)),
        trace=Path(account.source).name,
        cluster=account.cluster.name,
        question=tied(f"{headline(account)}. {_rules(account)}"),
        figures=_figures(account),
        verdict=tied(verdict(account)),
        remarks=account.remarks,
        **(_panels(account) if account.ran else {"ran": False, "compared": False}),
        refused=[(f"{number:,}", reason) for reason, number in account.refused[:MOST_REASONS]],
        refused_more=max(0, len(account.refused) - MOST_REASONS),
    )


def tied(text: str) -> str:
    """The same words with every number and its unit kept on one line."""
    return unbroken(_NUMBER_AND_UNIT.sub("\u00a0", text))


_NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(?:d|h|min)\b)")


# ----------------------------------------------------------------------------------------------------------- headline
def _rules(account: ReplayAccount) -> str:
    """The rules of the replay in a sentence."""
    rules = account.settings
    spans = {"never": "no job spans domains", "must": "only jobs larger than a domain span", "free": "jobs may span"}
    where = (
        spans[rules.span] if account.offers is None else "elastic jobs run as the planner offers, in up to four parts"
    )
    parts = [where, f"resuming after a stop takes {rules.restart_s:g} s"]
    if account.workload.data_gb.any():
        parts.append("data move before a job runs" if rules.data == "before" else "data move while a job runs")
    if not rules.stops:
        parts.append("who decides stops no running job")
    if account.site.history is not None:
        parts.append("links move as in the network trace and are shared")
    if rules.failures is not None:
        parts.append(
            f"a node fails every {span(rules.failures.mtbf_s)} and is away for {span(rules.failures.repair_s)}"
        )
    return f"{', '.join(parts)[:1].upper()}{', '.join(parts)[1:]}."


def _figures(account: ReplayAccount) -> tuple[tuple[str, str, str], ...]:
    """(name, value, remark) of the figures that head the page."""
    told = account.first.figures
    if not told.jobs:
        return (("jobs that ran", "0", "none could"),)
    late = f"{told.deadline_misses:,}" if told.deadline_jobs else NOTHING
    egress = account.first.egress_usd
    chosen = zip(account.site.pools, counted(account.workload, account.site), strict=True)
    devices = sum(pool.devices for pool, counts in chosen if counts)
    paid = (("egress", usd(egress), f"{number(told.moved_gb)} GB of data moved"),) if egress else ()
    far, of = told.beyond_bound, f"of the time of {count(told.bounded_jobs, 'job')} with a bound on latency"
    return (
        ("mean completion", span(told.mean_completion_s), f"under {account.first.policy.name}"),
        ("median", span(told.p50_completion_s), f"p99 {span(told.p99_completion_s)}"),
        ("mean queueing", span(told.mean_queueing_s), "not on devices"),
        ("devices busy", percent(told.utilization), f"of {devices:,}, to the last finish"),
        ("deadlines missed", late, f"of {told.deadline_jobs:,}" if told.deadline_jobs else "no job has one"),
        ("fairness", f"{told.fairness:.2f}", "Jain's index over users"),
        ("refused", f"{told.refused:,}", f"of {len(account.workload):,} jobs"),
        *((("clients too far", percent(far), of),) if told.bounded_jobs and not math.isnan(far) else ()),
        *paid,
    )


# -------------------------------------------------------------------------------------------------------------- panels
def _panels(account: ReplayAccount) -> dict[str, object]:
    first, until_s = account.first, _until_s(account)
    over_time = X_LABEL if until_s is None else f"{X_LABEL}; {_folded(account, until_s)}"
    busy, queue_lines, completion = _busy(account), _queues(account), _completions(account)
    return {
        "ran": True,
        "compared": len(account.plays) > 1,
        "policies_head": _shown(account),
        "policies": _policies(account),
        "busy": Markup(
            chart(busy, Axes(240, over_time, most=float(account.site.devices), until=until_s), title="Devices in use")
        ),
        "busy_legend": _legend(busy),
        "queue": Markup(chart(queue_lines, Axes(230, over_time, until=until_s), title="Jobs that wait")),
        "queue_legend": _legend(queue_lines),
        "completion": Markup(
            chart(
                completion,
                Axes(340, "completion time (logarithmic)", log=True, percent=True, most=1.0),
                title="Completion",
            )
        ),
        "completion_legend": _legend(completion),
        "completion_lead": _completion_lead(account),
        "sizes": _groups(first.figures.sizes, "GPU" if len(account.site.kinds) == 1 else "device"),
        "users": _groups(first.figures.users[:MOST_USERS], ""),
        "users_more": max(0, len(first.figures.users) - MOST_USERS),
        "waited": _waited(account),
    }


def _shown(account: ReplayAccount) -> list[tuple[str, bool]]:
    """Heads of the columns of the table of policies, and whether they are figures."""
    less = () if account.offers is None else ("p50", "p99", "queueing", "makespan")
    return [(TITLES.get(name, name), name != "knows") for name in columns_of(account)[1:] if name not in less]


def _policies(account: ReplayAccount) -> list[BarRow]:
    """Best mean first."""
    heads = [name for name, _ in _shown(account)]
    ran = [each for each in account.plays if each.figures.jobs]
    most = max(each.figures.mean_completion_s for each in ran)
    found = []
    for each in sorted(ran, key=lambda play: play.figures.mean_completion_s):
        cells = dict(zip((TITLES.get(name, name) for name in COLUMNS), cells_of(each), strict=True))
        share = each.figures.mean_completion_s / most
        found.append(BarRow(each.policy.name, share, tuple(cells[head] for head in heads), each is account.first))
    return found


def _busy(account: ReplayAccount) -> list[ChartLine]:
    """Devices at work over time, pool upon pool."""
    ledger = account.first.ledger
    pools = account.site.pools
    several = len({pool.kind for pool in pools}) > 1
    lines = [
        ChartLine(
            f"{pool.domain} ({pool.kind})" if several else pool.domain,
            ledger.time_s,
            ledger.busy_devices[:, index],
            colour=index,
        )
        for index, pool in enumerate(pools)
    ]
    return stacked(lines)


def _queues(account: ReplayAccount) -> list[ChartLine]:
    return [_line(account, each, each.ledger.time_s, each.ledger.waiting_jobs) for each in account.plays]


def _completions(account: ReplayAccount) -> list[ChartLine]:
    lines = []
    for each in account.plays:
        ran = each.ledger.ran
        if ran.any():
            lines.append(_line(account, each, *distribution((each.ledger.finish_s - account.workload.arrival_s)[ran])))
    alone = distribution(account.workload.duration_s[account.first.ledger.ran])
    return [*lines, ChartLine("duration, without waiting", *alone, muted=True, dash="5 4")]


def _line(account: ReplayAccount, each: Play, x: Floats, y: Floats) -> ChartLine:
    place = [play.policy.name for play in account.plays].index(each.policy.name)
    dash = "" if place == 0 else DASHES[(place - 1) % len(DASHES)]
    return ChartLine(each.policy.name, x, y, colour=place - 1, strong=place == 0, dash=dash)


def _legend(lines: list[ChartLine]) -> list[tuple[str, Markup]]:
    return [(line.name, Markup(sample(line))) for line in lines]


def _until_s(account: ReplayAccount) -> float | None:
    """Where the charts over time end: with the last arrival, or when nobody waits any more under any policy.

    None: with the last finish, where that comes soon after.
    """
    ends = [float(account.workload.arrival_s[-1])]
    for each in account.plays:
        waits = np.flatnonzero(each.ledger.waiting_jobs >= 0.5)
        ends += [float(each.ledger.time_s[waits[-1]])] if len(waits) else []
    last_s = max(float(each.ledger.time_s[-1]) for each in account.plays if len(each.ledger.time_s))
    until_s = 1.1 * max(ends)
    return until_s if until_s < 0.7 * last_s else None


def _folded(account: ReplayAccount, until_s: float) -> str:
    """What a chart that ends early leaves out."""
    ledger = account.first.ledger
    left = int(np.sum(ledger.finish_s[ledger.ran] > until_s))
    return f"not shown: {count(left, 'job')} that run on, the last until {span(account.first.figures.makespan_s)}"


def _completion_lead(account: ReplayAccount) -> str:
    """What the distribution says, in a sentence."""
    ledger, jobs = account.first.ledger, account.workload
    ran = ledger.ran
    waited = (ledger.finish_s - jobs.arrival_s - ledger.run_s)[ran]
    at_once = float(np.mean(waited < 1.0))
    long = float(np.mean(waited > 3600.0))
    return (
        f"Under {account.first.policy.name} {percent(at_once)} of the jobs never wait, and {percent(long)} wait for "
        "more than an hour in all. The dashed line is how long they run: nearer to it is better."
    )


def _groups(groups: tuple[JobGroup, ...], unit: str) -> list[BarRow]:
    """Users or sizes; the bar is what the mean slowdown has above 1, of the most that any has."""
    most = max((group.mean_slowdown - 1.0 for group in groups), default=0.0)
    all_s = sum(group.device_s for group in groups) or 1.0
    rows = []
    for group in groups:
        name = (count(int(group.name), unit) if unit else group.name) or "(no name)"
        cells = (
            f"{group.jobs:,}",
            percent(group.device_s / all_s),
            span(group.mean_completion_s),
            span(group.p95_completion_s),
            span(group.mean_queueing_s),
            number(group.mean_slowdown),
        )
        rows.append(BarRow(name, (group.mean_slowdown - 1.0) / most if most > 0.0 else 0.0, cells))
    return rows


def _waited(account: ReplayAccount) -> list[tuple[str, ...]]:
    """The jobs that waited longest."""
    ledger, jobs = account.first.ledger, account.workload
    waited = np.where(ledger.ran, ledger.finish_s - jobs.arrival_s - ledger.run_s, -1.0)
    longest = np.argsort(-waited, kind="stable")[:MOST_WAITED]
    return [
        (
            jobs.name(job),
            jobs.users[jobs.user[job]],
            f"{jobs.devices[job]:,}",
            span(float(jobs.arrival_s[job])),
            span(float(jobs.duration_s[job])),
            span(float(waited[job])),
            f"{ledger.preemptions[job]:,}",
        )
        for job in longest.tolist()
        if waited[job] > 0
    ]
