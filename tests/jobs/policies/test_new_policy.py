"""A queue policy of one's own is a file and a line: one that the package does not know, played and asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hippo import registry
from hippo.cli.main import run
from hippo.jobs.engine.play import play
from hippo.jobs.job import Job
from hippo.jobs.policies.policy import Key, QueuePolicy
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, site
from hippo.jobs.workload import JobWorkload

FILE = '''"""Shortest remaining service first: the work that is left, times the devices."""

from hippo.jobs.policies.policy import Key, QueuePolicy

SRSF = QueuePolicy(
    name="srsf",
    summary="least remaining device time first; stops those with more",
    knows="durations",
    key=Key(remaining=1.0, factor=lambda workload: workload.devices),
    source="Gu et al., Tiresias, NSDI 2019 (SRSF)",
    preempts=True,
)
'''
JOBS = (Job("tall", 0, 10), Job("wide", 0, 6, devices=2), Job("late", 1, 3, devices=2))
TWO = site([DevicePool("here", "gpu", 1, 2)])


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shortest_service.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry.JOB_POLICIES, "srsf", "shortest_service:SRSF")  # the line


@pytest.mark.usefixtures("added")
def test_a_file_and_a_line_make_a_policy():
    """Tall (10 device-seconds) goes before wide (12). Late (6) stops it at 1, while 9 are left, and ends at 4. Then
    tall, until 13, and wide after it. By time alone (``srtf``) wide would have been first."""
    policy = registry.job_policy("srsf")
    found = play(JobWorkload.of(JOBS), TWO, policy, ReplayRules(restart_s=0))
    assert found.finish_s.tolist() == [13, 19, 4]
    assert found.preemptions.tolist() == [1, 0, 0]
    by_time = play(JobWorkload.of(JOBS), TWO, registry.job_policy("srtf"), ReplayRules(restart_s=0))
    assert by_time.finish_s.tolist() == [19, 9, 4]


@pytest.mark.usefixtures("added")
def test_commands_know_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    cluster, trace = tmp_path / "one.yaml", tmp_path / "jobs.json"
    cluster.write_text("gpu: A100-SXM-80GB\ndomains:\n  - {name: east, nodes: 1, gpus_per_node: 2}\nlinks: []\n")
    jobs = [{"name": j.name, "arrival_s": j.arrival_s, "duration_s": j.duration_s, "devices": j.devices} for j in JOBS]
    trace.write_text(json.dumps({"hippo_jobs": 1, "jobs": jobs}))
    asked = ("--cluster", str(cluster), "--policy", "srsf", "--restart-s", "0", "--part", "0:1", "--json")
    assert run(["jobs", "replay", str(trace), *asked]) == 0
    assert json.loads(capsys.readouterr().out)["mean_completion_s"] == pytest.approx((13 + 19 + 3) / 3)
    assert run(["jobs", "policies", "--json"]) == 0
    assert "srsf" in [each["name"] for each in json.loads(capsys.readouterr().out)["policies"]]


def test_all_that_changes_in_a_key_counts():
    """Two jobs that could share nothing: who has had more work goes last (least attained service, levels at each
    second), so they take turns."""
    turns = QueuePolicy(
        name="las",
        summary="least attained service first",
        knows="nothing",
        key=Key(attained=1.0),
        preempts=True,
        levels=tuple(np.arange(2.0, 40.0, 2.0)),
    )
    jobs = JobWorkload.of([Job("one", 0, 4, devices=2), Job("other", 0, 4, devices=2)])
    found = play(jobs, TWO, turns, ReplayRules(restart_s=0))
    assert found.preemptions.sum() > 0
    assert found.finish_s.tolist() == [7, 8]
