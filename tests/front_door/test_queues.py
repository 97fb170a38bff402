"""``hippo.replay_jobs`` and ``hippo.generate_jobs``: a queue solved by hand, and jobs drawn after a trace."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hippo

EXAMPLES = Path(__file__).parents[2] / "examples"
ONE = "gpu: A100-SXM-80GB\ndomains:\n  - {name: east, nodes: 1, gpus_per_node: 2}\nlinks: []\n"
JOBS = [
    {"name": "a", "user": "x", "arrival_s": 0, "duration_s": 100, "devices": 2},
    {"name": "b", "user": "y", "arrival_s": 10, "duration_s": 50, "devices": 1},
    {"name": "c", "user": "y", "arrival_s": 20, "duration_s": 30, "devices": 1},
]


@pytest.fixture
def queue(tmp_path: Path) -> hippo.JobsQuestion:
    (tmp_path / "one.yaml").write_text(ONE)
    (tmp_path / "jobs.json").write_text(json.dumps({"hippo_jobs": 1, "jobs": JOBS}))
    return hippo.JobsQuestion(tmp_path / "jobs.json", str(tmp_path / "one.yaml"))


def test_a_queue_solved_by_hand_under_two_policies(queue):
    """a holds both GPUs until 100; b and c then run side by side until 150 and 130."""
    phases = []
    account = hippo.replay_jobs(queue, ["fifo", "sjf"], progress=lambda phase, share: phases.append(phase))
    assert [play.policy.name for play in account.plays] == ["fifo", "sjf"]
    assert account.first.figures.mean_completion_s == pytest.approx((100 + 140 + 110) / 3)
    assert account.document()["makespan_s"] == pytest.approx(150)
    assert {"reading the trace", "fifo", "sjf"} <= set(phases)


def test_everyone_may_be_asked(queue):
    from hippo.registry import JOB_POLICIES

    account = hippo.replay_jobs(queue, ["sjf"], everyone=True)
    assert account.first.policy.name == "sjf"
    assert {play.policy.name for play in account.plays} == set(JOB_POLICIES)


def test_jobs_are_drawn_after_a_trace(tmp_path):
    many = [JOBS[at % 3] | {"name": str(at), "arrival_s": 60 * at} for at in range(60)]
    like, out = tmp_path / "like.json", tmp_path / "drawn.json"
    like.write_text(json.dumps({"hippo_jobs": 1, "jobs": many}))
    document = hippo.generate_jobs(hippo.JobsDrawing(like, out, jobs=20, seed=3))
    assert document["jobs"] == 20
    assert len(json.loads(out.read_text())["jobs"]) == 20
    again = tmp_path / "again.json"
    hippo.generate_jobs(hippo.JobsDrawing(like, again, jobs=20, seed=3))
    assert again.read_bytes() == out.read_bytes()


def test_elastic_jobs_are_drawn_for_a_cluster_and_the_example_is_one_of_them(tmp_path):
    out, cluster = tmp_path / "elastic.csv", str(EXAMPLES / "four-by-eighty.yaml")
    document = hippo.generate_jobs(hippo.JobsDrawing(None, out, elastic="mixed", cluster=cluster, load=1.0, seed=1))
    assert out.read_text() == (EXAMPLES / "elastic.csv").read_text()
    assert document["moments"]["elastic jobs"]["drawn"] == 38
    models = hippo.JobsDrawing(None, out, jobs=30, elastic="steady", cluster="toy", models="gpt2, llama-3-405b")
    document = hippo.generate_jobs(models)
    assert document["remarks"] == ["left out llama-3-405b: too large for a job there"]
    assert {row["model"] for row in csv.DictReader(out.read_text().splitlines())} == {"gpt2", ""}


def test_arrivals_of_elastic_jobs_may_be_those_of_a_trace(tmp_path):
    like, out = tmp_path / "like.json", tmp_path / "drawn.json"
    many = [JOBS[at % 3] | {"name": str(at), "arrival_s": 60 * at} for at in range(60)]
    like.write_text(json.dumps({"hippo_jobs": 1, "jobs": many}))
    hippo.generate_jobs(hippo.JobsDrawing(like, out, jobs=20, elastic="bursty", cluster="toy"))
    assert {job["user"] for job in json.loads(out.read_text())["jobs"]} == {"x", "y"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "^like: neither a trace nor a family"),
        ({"elastic": "mixed"}, "^elastic: nobody says for which site"),
        ({"elastic": "mixd", "cluster": "toy"}, "^elastic: unknown family of jobs 'mixd'"),
        ({"elastic": "mixed", "cluster": "toy", "data_gb": 5.0}, "^data_gb: is drawn with elastic anyway"),
        ({"elastic": "mixed", "cluster": "toy", "models": "gpt5"}, "unknown model 'gpt5'"),
        ({"elastic": "mixed", "cluster": "toy", "models": ","}, "^models: no model is named"),
        ({"elastic": "mixed", "cluster": "toy", "load": -1.0}, "^load: must be from 0.001 to 1000"),
        ({"load": 0.5}, "^load: is for elastic"),
    ],
)
def test_a_drawing_that_cannot_be_is_refused(tmp_path, options, told):
    with pytest.raises(hippo.InputError, match=told):
        hippo.generate_jobs(hippo.JobsDrawing(None, tmp_path / "x.csv", **options))


def test_errors_name_what_was_given(queue, tmp_path):
    with pytest.raises(hippo.InputError, match="^load: must be from 0.001 to 1000"):
        hippo.replay_jobs(hippo.JobsQuestion(queue.trace, queue.cluster, load=-1))
    with pytest.raises(hippo.InputError, match="^policy: unknown policy 'lifo'"):
        hippo.replay_jobs(queue, ["lifo"])
    with pytest.raises(hippo.InputError, match="^jobs: must be 1 or more"):
        hippo.generate_jobs(hippo.JobsDrawing(queue.trace, tmp_path / "none.json", jobs=0))


def test_local_sgd_competes_only_where_it_is_allowed(queue, monkeypatch):
    monkeypatch.setattr("hippo.front_door.queues.offer_table", _two_sizes)
    with pytest.raises(hippo.InputError, match="is for elastic jobs, and this trace has none"):
        hippo.replay_jobs(replace(queue, allow_local_sgd=True))
    Path(queue.trace).write_text(json.dumps({"hippo_jobs": 1, "jobs": [ELASTIC]}))
    with pytest.raises(hippo.InputError, match="changes the optimizer, and that was not allowed"):
        hippo.replay_jobs(queue, ["diloco"])
    account = hippo.replay_jobs(replace(queue, allow_local_sgd=True), ["diloco"])
    assert account.first.ledger.finish_s.tolist() == [200]
    assert any("replicas average every 500 steps" in remark for remark in account.remarks)


def _two_sizes(cluster, kinds, *, local_sgd=False, progress=None):
    """Offers of one GPU at half the rate, and of two, for whatever is trained."""
    from hippo.jobs.placement.offers import OfferTable

    count = len(kinds)
    return replace(
        OfferTable.none(),
        kinds=tuple(kinds),
        kind=np.repeat(np.arange(count), 2),
        parts=np.ones(2 * count, np.int64),
        gpus=np.tile([[1, 0, 0, 0], [2, 0, 0, 0]], (count, 1)),
        block=np.ones(2 * count, np.int64),
        ring=np.zeros(2 * count, np.bool_),
        layout=np.ones((2 * count, 3), np.int64),
        rate=np.tile(np.array([0.5, 1.0])[:, None, None], (count, 2, 2)),
        **dict.fromkeys(("hop_bytes", "memory_left", "inside_comm"), np.zeros(2 * count)),
        tokens_per_s=np.full(count, 1000.0),
        state_bytes=np.full(count, 1e9),
    )


ELASTIC = {"name": "e", "arrival_s": 0, "model": "llama-3.2-1b", "tokens": 200_000, "least": 1, "most": 2}


def test_elastic_jobs_run_at_the_size_that_is_free(queue, monkeypatch):
    """a gang holds one GPU until 50, so e runs on the other at half its rate: 200 s of work take 400 s."""
    monkeypatch.setattr("hippo.front_door.queues.offer_table", _two_sizes)
    gang = {"name": "g", "arrival_s": 0, "duration_s": 50, "devices": 1, "priority": 1}
    Path(queue.trace).write_text(json.dumps({"hippo_jobs": 1, "jobs": [gang, ELASTIC]}))
    stays = hippo.replay_jobs(queue, ["mast"])
    assert stays.first.ledger.finish_s.tolist() == [50, 400]
    replanned = hippo.replay_jobs(queue, ["separate"])  # goes over to both at 50: 30 s of restart, 175 s of work left
    assert replanned.first.ledger.finish_s.tolist() == [50, 50 + 30 + 175]
    assert hippo.replay_jobs(queue).first.policy.name == "hi_ppo"
    assert replanned.document()["preemptions"] == 1


def test_weights_that_are_none_are_refused_before_anything_is_planned(queue, monkeypatch, tmp_path):
    def planned(*_: object, **__: object) -> None:
        raise AssertionError("weights are read first")

    monkeypatch.setattr("hippo.front_door.queues.offer_table", planned)
    Path(queue.trace).write_text(json.dumps({"hippo_jobs": 1, "jobs": [ELASTIC]}))
    (tmp_path / "junk.npz").write_text("junk")
    with pytest.raises(hippo.InputError, match="junk.npz"):
        hippo.replay_jobs(replace(queue, weights=tmp_path / "junk.npz"))


def test_rankings_and_schedulers_are_told_apart(queue, monkeypatch):
    monkeypatch.setattr("hippo.front_door.queues.offer_table", _two_sizes)
    with pytest.raises(hippo.InputError, match="schedules elastic jobs, and this trace has none"):
        hippo.replay_jobs(queue, ["mast"])
    Path(queue.trace).write_text(json.dumps({"hippo_jobs": 1, "jobs": [ELASTIC]}))
    with pytest.raises(hippo.InputError, match="ranks gangs, and this trace has elastic jobs"):
        hippo.replay_jobs(queue, ["srtf"])


def test_agents_that_learn_while_they_serve_go_first_and_say_who_decided(queue, monkeypatch, tmp_path):
    pytest.importorskip("torch")
    monkeypatch.setattr("hippo.front_door.queues.offer_table", _two_sizes)
    live = replace(queue, online=tmp_path / "live", keep_running=True)
    with pytest.raises(hippo.InputError, match="^online: is for agents that share out elastic jobs"):
        hippo.replay_jobs(live)
    Path(queue.trace).write_text(json.dumps({"hippo_jobs": 1, "jobs": [ELASTIC]}))
    account = hippo.replay_jobs(live, ["mast"])
    assert [play.policy.name for play in account.plays] == ["hi_ppo_online", "mast"]
    assert account.first.ledger.finish_s.tolist() == [200]
    assert any(remark.startswith("from 0 s on the rule decided") for remark in account.remarks)
    again = hippo.replay_jobs(live)  # goes on behind the first play
    assert [play.policy.name for play in again.plays] == ["hi_ppo_online"]


def test_an_elastic_job_that_no_size_holds_is_refused(queue, monkeypatch):
    monkeypatch.setattr("hippo.front_door.queues.offer_table", _two_sizes)
    large = ELASTIC | {"least": 4, "most": 8}
    Path(queue.trace).write_text(json.dumps({"hippo_jobs": 1, "jobs": [large, ELASTIC | {"name": "f"}]}))
    account = hippo.replay_jobs(queue)
    assert account.refused == (("no plan trains it on 4 to 8 devices", 1),)
