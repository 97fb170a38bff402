"""The parts of a page about a world: two domains of eight GPUs, elastic jobs over one or both, a gang."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tests.chromium import CHROMIUM, opened
from tests.jobs.joint.test_play import BOTH, HERE, KIND, THERE, Scripted, offers, train

from hippo.jobs.account import ReplayAccount, played
from hippo.jobs.job import Job
from hippo.jobs.joint.settings import SEPARATE
from hippo.jobs.settings import Failures, ReplayRules
from hippo.jobs.site import JobSite, LinkHistory
from hippo.jobs.traces.load import JobTrace
from hippo.jobs.workload import JobWorkload
from hippo.problem.catalogue.clusters import CLUSTERS
from hippo.report.jobs_html import jobs_html
from hippo.report.jobs_terminal import account_view
from hippo.report.world_charts import DeviceBlock, TimeAxis, binned, device_map

from .test_jobs_html import EVIL


class Moving(Scripted):
    """Moves the first job when the second comes."""

    summary, source, knows, preempts, learns = "", "", "nothing", True, False


@pytest.fixture(scope="module")
def account() -> ReplayAccount:
    """The first job goes over to the other domain at 40 s, the second runs over both, a gang finds no room."""
    cluster = CLUSTERS["toy"]
    jobs = [
        replace(train(f"{EVIL}0", 100), priority=2, deadline_s=120.0),
        train("both", 60, arrival_s=40.0, data_gb=0.0),
        Job("gang", 45.0, 30.0, devices=7, kind="preprocess"),
    ]
    workload = JobWorkload.of(jobs)
    account = ReplayAccount(
        source="world.csv",
        trace=JobTrace(workload, "own", None, (), {}),
        workload=workload,
        cluster=cluster,
        site=JobSite.of(cluster),
        settings=ReplayRules(failures=Failures(400.0, repair_s=20.0), seed=3),
        slowdown=None,
        load=0.5,
        left_out={},
        remarks=(),
        offers=offers(),
    )
    move = (40.0, lambda moment: moment.resize(0, THERE))
    return played(account, Moving({0: HERE, 1: BOTH}, (move,)))


def test_it_tells_every_part(account: ReplayAccount) -> None:
    page = unescape(jobs_html(account))
    for part in ("devices", "links", "waits", "stops"):
        assert f'id="{part}"' in page
    assert "east → west" in page
    assert KIND.model in page
    assert "1 job ran over several domains" in page.replace("\u00a0", " ")
    assert "goes on otherwise" in page
    assert 'class="cut"' in page


def test_names_are_no_markup(account: ReplayAccount) -> None:
    assert EVIL not in jobs_html(account)


def test_the_document_names_stops_and_links(account: ReplayAccount) -> None:
    document = json.loads(json.dumps(account.document(), allow_nan=False))
    move = document["stops"][0]
    assert (move["time_s"], move["from"], move["to"]) == (40.0, {"east": 4}, {"west": 4})
    assert {"goodput", "interruption_s", "fragmentation", "exchanged_gb", "moves"} <= document.keys()
    assert sum(link["gb"] for link in document["links"]) == pytest.approx(document["egress_gb"])


def test_the_figures_of_a_world_follow_from_its_rows(account: ReplayAccount) -> None:
    rows, document = json.loads(json.dumps(account.job_rows(), allow_nan=False)), account.document()
    took_s = [row["finish_s"] - row["arrival_s"] for row in rows if row["finish_s"] is not None]
    assert sum(took_s) / len(took_s) == pytest.approx(document["mean_completion_s"], rel=1e-12)
    lasts_s = max(row["arrival_s"] for row in rows) - min(row["arrival_s"] for row in rows)
    done = sum((1 + max(row["priority"], 0)) * row["work_device_s"] for row in rows)
    assert done / (lasts_s * account.site.devices) == pytest.approx(document["goodput"], rel=1e-9)


def test_the_terminal_tells_the_figures_of_a_world(account: ReplayAccount) -> None:
    console = Console(width=200, record=True, file=StringIO())
    console.print(account_view(account))
    assert {"weighted", "goodput", "frag.", "stopped", "egress"} <= set(console.export_text().split())


def test_steps_are_averaged_between_edges() -> None:
    """2 from 0 to 3, then 6: means over 0-2, 2-4, 4-6; nothing before the first."""
    assert binned([0.0, 3.0], [2.0, 6.0], np.array([0.0, 2.0, 4.0, 6.0])).tolist() == [2, 4, 6]
    assert binned([1.0], [4.0], np.array([0.0, 2.0])).tolist() == [2]
    assert binned([], [], np.array([0.0, 2.0])).tolist() == [0]


def test_blocks_of_one_node_lie_beside_each_other_and_inside_the_picture() -> None:
    """Five of eight devices, then three beside them, then five again when the first are free: never on each other."""
    site = JobSite.of(CLUSTERS["toy"])
    held = [(0.0, 10.0, 5), (5.0, 20.0, 3), (10.0, 20.0, 5)]
    blocks = [
        DeviceBlock(begin, begin, end, ((0, size),), "red", "j", "", at) for at, (begin, end, size) in enumerate(held)
    ]
    drawn = device_map(site, blocks, TimeAxis(0.0, 20.0), [0, 1])
    found = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" height="([\d.]+)" width="([\d.]+)" style="fill:red"', drawn)
    rects = [tuple(map(float, each)) for each in found]
    assert len(rects) == 3
    for at, (x, y, tall, wide) in enumerate(rects):
        assert x + wide <= 1000
        for x2, y2, tall2, wide2 in rects[at + 1 :]:
            apart = x + wide <= x2 + 0.11 or x2 + wide2 <= x + 0.11 or y + tall <= y2 + 0.11 or y2 + tall2 <= y + 0.11
            assert apart


@pytest.mark.skipif(CHROMIUM is None, reason="no browser on this machine")
def test_a_browser_draws_it_without_a_fault(account: ReplayAccount, tmp_path: Path) -> None:
    page = tmp_path / "world.html"
    page.write_text(jobs_html(account))
    shown = opened(page, "--dump-dom")
    assert 'data-ready="yes"' in shown
    assert "data-fault" not in shown


@pytest.fixture(scope="module")
def serving(account: ReplayAccount) -> ReplayAccount:
    """A job that serves, in the first domain, has its clients in the second: near, but from 40 to 70 s."""
    here, there = account.site.domains[:2]
    jobs = [
        Job("serve", 0.0, 100.0, devices=4, kind="deploy", clients_at=there, latency_bound_s=0.03),
        Job("other", 0.0, 200.0, devices=2),
    ]
    workload = JobWorkload.of(jobs)
    size = len(account.site.domains)
    far_s = np.array([0.02, 0.05, 0.02])[:, None, None] * (1.0 - np.eye(size))
    carries = np.stack([np.where(np.eye(size), np.inf, 1e9)] * 3)
    site = replace(account.site, history=LinkHistory(np.array([0.0, 40.0, 70.0]), carries, latency_s=far_s))
    fresh = replace(account, workload=workload, site=site, settings=ReplayRules(), plays=())
    return played(fresh, SEPARATE)


def test_time_with_clients_too_far_is_in_the_figures_and_the_record(serving: ReplayAccount) -> None:
    told, record = serving.first.figures, serving.first.record
    assert record is not None
    assert serving.first.ledger.pool[0] == 0
    assert (told.bounded_jobs, told.beyond_bound) == (1, pytest.approx(0.3))
    assert [tuple(each) for each in record.far] == [(0, 40.0, 70.0)]
    assert serving.document()["beyond_bound"] == pytest.approx(0.3)


def test_time_with_clients_too_far_is_on_the_page_and_in_the_table(serving: ReplayAccount) -> None:
    page = unescape(jobs_html(serving))
    assert "clients too far" in page
    assert "30 %" in page
    assert f"serve: its clients in {serving.site.domains[1]} are farther than its bound\nfrom 40.0 s for 30.0 s" in page
    assert "Red: clients are farther than the bound" in page
    stream = StringIO()
    Console(file=stream, width=200).print(account_view(serving))
    assert re.search(r"\bfar\b", stream.getvalue())


def test_without_bounds_nothing_is_said_of_clients(account: ReplayAccount) -> None:
    assert account.first.figures.bounded_jobs == 0
    assert account.document()["beyond_bound"] is None
    assert "clients too far" not in jobs_html(account)
