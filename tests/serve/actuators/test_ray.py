"""Ray: what the address of its jobs says, as it was recorded, and what is asked of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from hippo.errors import InputError
from hippo.serve.actuators.base import ActuatorError
from hippo.serve.actuators.batch import PENDING, BatchJob, BatchLaunch, DomainNodes, LaunchRefusedError
from hippo.serve.actuators.ray_jobs import ADDRESS, RayEngine, jobs_of, ray
from hippo.serve.records import DONE, FAILED

from .sites import by_ray, cluster_file

# Recorded of Ray 2.60, without what is not read: one that ended, one that failed, one that waits, one that was stopped,
# a driver that nobody submitted.
SAID: list[dict[str, Any]] = [
    {"submission_id": "o-1-j1-18d3", "status": "SUCCEEDED", "message": "Job finished successfully."},
    {
        "submission_id": "o-2-j2-18d3",
        "status": "FAILED",
        "message": "Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):\n",
    },
    {"submission_id": "o-4-j4-18d3", "status": "PENDING", "message": "Job has not started yet."},
    {"submission_id": "o-3-j3-18d3", "status": "STOPPED", "message": "Job was intentionally stopped."},
    {"submission_id": None, "status": "RUNNING", "message": None},
]
TWICE = """\
RuntimeError: Request failed with status code 400: Traceback (most recent call last):
    raise ValueError(
ValueError: Job with submission_id o-1-j1-18d3 already exists. Please use a different submission_id.
.
"""


def asked(*answers: httpx.Response) -> tuple[RayEngine, list[httpx.Request]]:
    """An engine that is answered so, and what it asked."""
    engine, left, said = RayEngine("http://ray"), list(answers), list[httpx.Request]()

    def answer(request: httpx.Request) -> httpx.Response:
        said.append(request)
        return left.pop(0)

    engine._http = httpx.Client(base_url="http://ray", transport=httpx.MockTransport(answer))
    return engine, said


def launch(home: Path) -> BatchLaunch:
    words = ("python", "train.py", "a b; c")
    return BatchLaunch("o-1-j1-18d3", words, {"SEED": "1"}, home, (DomainNodes("oslo", 1, 2),))


def test_what_the_address_lists():
    engine, _ = asked(httpx.Response(200, json=SAID))
    found = {each.key: each for each in engine.jobs()}
    assert {key: each.state for key, each in found.items()} == {
        **{"o-1-j1-18d3": DONE, "o-2-j2-18d3": FAILED, "o-4-j4-18d3": PENDING, "o-3-j3-18d3": FAILED}
    }
    assert found["o-2-j2-18d3"].told.startswith("Job entrypoint command failed with exit code 1")
    assert jobs_of([]) == []


def test_resources_of_nodes_that_live():
    """Recorded of Ray 2.60, without what is not read, after a node's raylet was killed; a third domain has no node."""
    nodes = [
        {"state": "ALIVE", "resources_total": {"CPU": 2.0, "oslo": 4.0}},
        {"state": "DEAD", "resources_total": {"CPU": 2.0, "lyon": 4.0}},
        {"state": "ALIVE", "resources_total": {"CPU": 2.0, "oslo": 4.0}},
    ]
    answer = {"result": True, "data": {"result": {"total": 3, "result": nodes}}}
    engine, said = asked(httpx.Response(200, json=answer))
    assert engine.usable(["oslo", "lyon", "turin"]) == {"oslo": 8, "lyon": 0}
    assert str(said[0].url) == "http://ray/api/v0/nodes?limit=10000"


@pytest.mark.slow
def test_a_ray_says_what_its_nodes_have(tmp_path: Path):
    with by_ray(tmp_path) as site:
        assert site.actuator.usable() == {"oslo": 4, "lyon": 4}  # type: ignore[attr-defined]
        site.actuator.close()


def test_what_is_begun_and_ended(tmp_path: Path):
    engine, said = asked(httpx.Response(200, json={"submission_id": "o-1-j1-18d3"}), httpx.Response(200, json={}))
    engine.begin(launch(tmp_path))
    engine.end(BatchJob("o-1-j1-18d3", "o-1-j1-18d3", FAILED))
    told = json.loads(said[0].content)
    assert told["submission_id"] == "o-1-j1-18d3"
    assert told["entrypoint"] == "python train.py 'a b; c'"
    assert told["entrypoint_resources"] == {"oslo": 0.001}
    assert told["runtime_env"] == {"env_vars": {"SEED": "1"}}
    assert said[1].url.path == "/api/jobs/o-1-j1-18d3/stop"


def test_what_was_begun_before_counts_as_begun(tmp_path: Path):
    engine, said = asked(httpx.Response(500, text=TWICE))
    engine.begin(launch(tmp_path))
    assert len(said) == 1


def test_what_it_refuses_and_what_nobody_knows(tmp_path: Path):
    engine, _ = asked(httpx.Response(404, text="Job o-99-j3-18d3 does not exist"), httpx.Response(503, text=""))
    with pytest.raises(LaunchRefusedError, match="does not exist"):
        engine.end(BatchJob("o-99-j3-18d3", "o-99-j3-18d3", DONE))
    with pytest.raises(ActuatorError, match="no reason given"):
        engine.begin(launch(tmp_path))


def test_an_address_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(ADDRESS, "127.0.0.1:8265")
    with pytest.raises(InputError, match="http://HOST:8265"):
        ray(tmp_path, cluster_file(tmp_path))
