"""The page of a replay of jobs: what it says, that it needs nothing outside itself, and what a browser draws."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from tests.chromium import CHROMIUM, opened

from hippo.jobs.account import ReplayAccount, played
from hippo.jobs.job import Job
from hippo.jobs.policies.heuristics import FIFO, SRTF
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, JobSite
from hippo.jobs.traces.load import JobTrace
from hippo.jobs.workload import JobWorkload
from hippo.problem.catalogue.clusters import CLUSTERS
from hippo.report.jobs_charts import Axes, ChartLine, chart, distribution, span, stacked
from hippo.report.jobs_html import jobs_html
from hippo.report.jobs_terminal import account_view, verdict

EVIL = '<script>document.documentElement.dataset.fault="xss"</script>'


def make_account(*, refused_only: bool = False) -> ReplayAccount:
    """Thirty jobs on the toy, one of them too large, names and users that are markup."""
    cluster = CLUSTERS["toy"]
    most = cluster.gpus
    jobs = [
        Job(f"{EVIL}{n}", 30.0 * n, 100.0 + 37 * (n % 7), devices=1 + n % 4, user=f"{EVIL}{n % 3}", deadline_s=9e3)
        for n in range(30)
    ]
    whale = Job("whale", 5.0, 10.0, devices=10 * most)
    workload = JobWorkload.of([whale] if refused_only else [*jobs, whale])
    trace = JobTrace(workload, "own", None, (), {})
    account = ReplayAccount(
        source=f"{EVIL}.json",
        trace=trace,
        workload=workload,
        cluster=cluster,
        site=JobSite.of(cluster),
        settings=ReplayRules(span="never"),
        slowdown=None,
        load=0.5,
        left_out={},
        remarks=("read 31 jobs",),
    )
    for policy in (FIFO, SRTF):
        account = played(account, policy)
    return account


@pytest.fixture(scope="module")
def account() -> ReplayAccount:
    return make_account()


def test_it_tells_every_part(account: ReplayAccount) -> None:
    page = jobs_html(account)
    for part in ("policies", "time", "completion", "groups", "waited", "refused"):
        assert f'id="{part}"' in page
    assert "jobs may not span domains" in unescape(page)
    assert page.count("<polyline") >= 5  # two queues, two distributions, durations
    assert page.count("<polygon") == len(account.site.pools)


def test_it_needs_nothing_outside_itself(account: ReplayAccount) -> None:
    page = jobs_html(account)
    assert not re.findall(r'(?:src|href)="(?!#)[^"]', page)
    assert "default-src 'none'" in unescape(page)
    assert EVIL not in page


def test_one_policy_has_nothing_beside_it(account: ReplayAccount) -> None:
    page = jobs_html(replace(account, plays=account.plays[:1]))
    assert "Policies side by side" not in page
    assert 'href="#policies"' not in page


def test_the_devices_that_are_busy_are_those_that_count(account: ReplayAccount) -> None:
    """Beside GPUs no CPU cores, as in the figure itself."""
    gpus, cores = account.cluster.gpus, DevicePool(account.site.domains[0], "cpu", 1, 64)
    jobs = replace(account.workload, device_kinds=((account.site.kinds[0],),))
    mixed = replace(account.site, pools=(*account.site.pools, cores))
    beside = played(replace(account, site=mixed, workload=jobs, plays=()), FIFO)
    assert beside.first.figures.utilization == pytest.approx(account.first.figures.utilization)
    assert f"of {gpus}, to the last finish" in jobs_html(beside)


def test_nobody_ran() -> None:
    account = make_account(refused_only=True)
    page = jobs_html(account)
    assert not account.ran
    assert "No job could run." in page
    assert 'class="chart"' not in page
    assert account_view(account) is not None


def test_the_document_is_that_of_the_first_play(account: ReplayAccount) -> None:
    document = account.document()
    assert document["policy"] == "fifo"
    assert [row["policy"] for row in document["rows"]] == ["fifo", "srtf"]
    assert document["refused"] == len(document["refused_jobs"]) == 1
    assert document["deadline_jobs"] == 30


def test_the_verdict_names_the_best(account: ReplayAccount) -> None:
    best = min(account.plays, key=lambda each: each.figures.mean_completion_s)
    assert f"that of {best.policy.name}" in verdict(account)


def test_distributions_and_stacks_by_hand() -> None:
    x, y = distribution(np.array([3.0, 1.0, 2.0, 2.0]))
    assert list(x) == [1, 2, 2, 3]
    assert list(y) == [0.25, 0.5, 0.75, 1.0]
    at = np.array([0.0, 1.0])
    lower, upper = stacked([ChartLine("a", at, np.array([1.0, 2.0])), ChartLine("b", at, np.array([3.0, 1.0]))])
    assert list(upper.y) == [4, 3]
    assert list(upper.base if upper.base is not None else []) == list(lower.y)


def test_a_chart_stays_inside_its_frame() -> None:
    values = np.array([0.0, 0.5, 4000.0])
    for log in (False, True):
        drawn = chart([ChartLine("a", values, np.array([0.0, 7.0, 3.0]))], Axes(200, "s", log=log), title="t")
        points = re.findall(r'points="([^"]+)"', drawn)[0].split()
        places = [tuple(map(float, point.split(","))) for point in points]
        assert all(0 <= x <= 1000 and 0 <= y <= 200 for x, y in places)
    assert chart([], Axes(200, "s"), title="t") == ""
    assert chart([ChartLine("flat", np.array([5.0]), np.array([0.0]))], Axes(200, "s"), title="t").startswith("<svg")


@pytest.mark.parametrize(
    ("seconds", "told"), [(12.0, "12.0 s"), (90.0, "1.50 min"), (7200.0, "2.00 h"), (345600.0, "4.00 d"), (0.0, "0 s")]
)
def test_times_in_words(seconds: float, told: str) -> None:
    assert span(seconds) == told


@pytest.mark.skipif(CHROMIUM is None, reason="no browser on this machine")
def test_a_browser_draws_it_without_a_fault(account: ReplayAccount, tmp_path: Path) -> None:
    page = tmp_path / "jobs.html"
    page.write_text(jobs_html(account))
    shown = opened(page, "--dump-dom")
    assert 'data-ready="yes"' in shown
    assert "data-fault" not in shown
