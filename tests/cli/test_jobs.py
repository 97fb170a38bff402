"""``hippo jobs``: a small queue solved by hand, traces drawn after a trace, the list of policies, refused input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hippo.registry import JOB_POLICIES, JOB_SCHEDULERS

KEYS = {
    *("mean_completion_s", "p50_completion_s", "p95_completion_s", "p99_completion_s", "mean_queueing_s", "makespan_s"),
    *("utilization", "deadline_misses", "fairness", "policy", "jobs", "refused"),
}
"""Of the contract: others rely on them."""

ONE = "gpu: A100-SXM-80GB\ndomains:\n  - {name: east, nodes: 1, gpus_per_node: 2}\nlinks: []\n"
A = {"name": "a", "user": "x", "arrival_s": 0, "duration_s": 100, "devices": 2, "deadline_s": 100}
B = {"name": "b", "user": "y", "arrival_s": 10, "duration_s": 50, "devices": 1, "deadline_s": 100}
C = {"name": "c", "user": "y", "arrival_s": 20, "duration_s": 30, "devices": 1}
BOTH = [A, B, C]


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "one.yaml"
    path.write_text(ONE)
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Callable[..., Path]:
    def written(jobs: list[dict[str, object]]) -> Path:
        path = tmp_path / "jobs.json"
        path.write_text(json.dumps({"hippo_jobs": 1, "jobs": jobs}))
        return path

    return written


def test_a_queue_solved_by_hand(hippo, cluster, trace):
    """a holds both GPUs until 100; b and c then run side by side until 150 and 130."""
    document = hippo(
        "jobs", "replay", trace(BOTH), "--cluster", cluster, "--policy", "fifo", "--part", "0:1", "--json"
    ).document
    assert set(document) >= KEYS
    assert (document["policy"], document["jobs"], document["refused"]) == ("fifo", 3, 0)
    assert document["mean_completion_s"] == pytest.approx((100 + 140 + 110) / 3)
    assert document["p50_completion_s"] == pytest.approx(110)
    assert document["mean_queueing_s"] == pytest.approx((0 + 90 + 80) / 3)
    assert document["makespan_s"] == pytest.approx(150)
    assert document["utilization"] == pytest.approx((200 + 50 + 30) / 300)
    assert document["deadline_misses"] == 1
    assert document["fairness"] == pytest.approx(_jain(1.0, (50 / 140 + 30 / 110) / 2))


def _jain(*shares: float) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def test_stopping_costs_a_restart(hippo, cluster, trace):
    """srtf stops a for b and c (50 s from 10 on, c from 20 on), and goes on with it at 60, 7 s later."""
    words = ("jobs", "replay", trace(BOTH), "--cluster", cluster, "--policy", "srtf", "--restart-s", 7, "--json")
    document = hippo(*words).document
    assert document["preemptions"] == 1
    assert document["makespan_s"] == pytest.approx(60 + 7 + 90)


def test_the_rest_goes_on_without_a_job_that_is_too_large(hippo, cluster, trace):
    whale = {"name": "whale", "arrival_s": 5, "duration_s": 10, "devices": 3}
    answer = hippo("jobs", "replay", trace([*BOTH, whale]), "--cluster", cluster, "--policy", "fifo", "--json")
    document = answer.document
    assert answer.code == 0
    assert (document["jobs"], document["refused"]) == (3, 1)
    (refused,) = document["refused_jobs"]
    assert refused["job"] == "whale"
    assert "needs 3 devices at once" in refused["reason"]
    assert document["makespan_s"] == pytest.approx(150)


def test_the_table_counts_refused_jobs_beyond_the_first_reasons(hippo, cluster, trace):
    whales = [{"name": f"w{size}", "arrival_s": 5, "duration_s": 10, "devices": size} for size in range(3, 11)]
    answer = hippo("jobs", "replay", trace([*BOTH, *whales]), "--cluster", cluster, "--policy", "fifo")
    assert answer.out.count("refused 1 job:") == 5
    assert "refused 3 jobs more, for 3 other reasons" in answer.out


def test_nothing_can_run(hippo, cluster, trace):
    answer = hippo("jobs", "replay", trace([{**A, "devices": 3}]), "--cluster", cluster, "--policy", "fifo", "--json")
    assert answer.code == 3
    assert answer.document["jobs"] == 0
    assert answer.document["mean_completion_s"] is None
    assert "infeasible" in answer.err


def test_jobs_without_gpus(hippo, cluster, trace):
    alone = {"name": "d", "arrival_s": 0, "duration_s": 10, "devices": 4, "runs_on": ["cpu"]}
    words = ("jobs", "replay", trace([*BOTH, alone]), "--cluster", cluster, "--policy", "fifo", "--json")
    without, beside = hippo(*words), hippo(*words, "--cpus-per-node", 4)
    assert without.document["jobs"] == 3
    assert sum(without.document["left_out"].values()) == 1
    assert "--cpus-per-node" in without.err
    assert beside.document["jobs"] == 4
    only = hippo("jobs", "replay", trace([alone]), "--cluster", cluster, "--policy", "fifo", "--json")
    assert only.code == 3


def test_a_job_may_call_a_gpu_as_a_cluster_file_may(hippo, cluster, trace):
    jobs = [{**A, "runs_on": ["A100"]}, {**B, "runs_on": ["A100", "A100-SXM-80GB"]}, {**C, "runs_on": ["H100"]}]
    document = hippo("jobs", "replay", trace(jobs), "--cluster", cluster, "--policy", "fifo", "--json").document
    assert (document["jobs"], document["refused"]) == (2, 1)


def test_jobs_that_ask_for_gpus_do_not_run_on_cpus(hippo, cluster, trace, tmp_path):
    words = ("--cluster", cluster, "--policy", "fifo", "--json")
    without, beside = (hippo("jobs", "replay", trace(BOTH), *words, *more) for more in ((), ("--cpus-per-node", 64)))
    assert beside.document["makespan_s"] == without.document["makespan_s"] == pytest.approx(150)
    philly, mixed = tmp_path / "philly.csv", tmp_path / "mixed.yaml"
    philly.write_text("timestamp,duration,num_gpus\n" + "2017-10-09 07:00:00,100,2\n" * 2)
    gpu, cpu = ({"domain": "a", "kind": kind, "nodes": 1, "per_node": 2} for kind in ("npu", "cpu"))
    mixed.write_text(json.dumps({"agents": [cpu, gpu]}))
    assert hippo("jobs", "replay", philly, "--cluster", mixed, *words[2:]).document["makespan_s"] == pytest.approx(200)


def test_the_part_and_the_load_that_are_asked_for(hippo, cluster, trace):
    words = ("jobs", "replay", trace(BOTH), "--cluster", cluster, "--policy", "fifo", "--json")
    assert hippo(*words, "--from", 5).document["jobs"] == 2
    assert hippo(*words, "--to", 15).document["jobs"] == 2
    assert hippo(*words, "--part", ".9:1").document["jobs"] == 1
    stretched = hippo(*words, "--load", 0.5).document
    assert stretched["load"] == pytest.approx(0.5)
    assert stretched["makespan_s"] > 280  # 280 device-seconds at load .5 on 2 devices arrive over 280 s


@pytest.mark.parametrize("hopeless", [{"memory_gb": 500}, {"runs_on": ["npu"]}, {"devices": 3}])
def test_jobs_that_are_refused_do_not_count_in_the_load(hippo, cluster, trace, hopeless):
    """280 device-seconds over 20 s on 2 devices: load 7, whatever is refused besides."""
    more = {"name": "more", "arrival_s": 5, "duration_s": 1000, **hopeless}
    words = ("jobs", "replay", trace([*BOTH, more]), "--cluster", cluster, "--policy", "fifo", "--json")
    document = hippo(*words).document
    assert (document["refused"], document["load"]) == (1, pytest.approx(7.0))


def test_what_comes_before_the_part_is_the_past(hippo, cluster, trace):
    words = ("jobs", "replay", trace(BOTH), "--cluster", cluster, "--policy", "learned", "--from", 15, "--json")
    known, unknown = hippo(*words), hippo(*words, "--no-past")
    assert (known.document["past_jobs"], unknown.document["past_jobs"]) == (2, 0)
    assert "learned knows the 2 jobs" in known.err
    assert known.document["jobs"] == unknown.document["jobs"] == 1


def test_learned_decides_where_nobody_is_named(hippo, cluster, trace):
    document = hippo("jobs", "replay", trace([B, C]), "--cluster", cluster, "--compare", "--json").document
    assert document["policy"] == "learned"
    assert [row["policy"] for row in document["rows"]] == [
        "learned",
        *(name for name in JOB_POLICIES if name != "learned"),
    ]


def test_the_number_of_refused_jobs_stands_beside_their_list(hippo, cluster, trace):
    document = hippo("jobs", "replay", trace([B, {**C, "devices": 9}]), "--cluster", cluster, "--json").document
    assert (document["refused"], len(document["refused_jobs"])) == (1, 1)


def test_data_as_usual_for_the_kind_of_job(hippo, trace, tmp_path):
    """All lie in the domain that holds none of the GPUs' kind: 2 x 20 GB of training and 100 of preprocessing move."""
    place = tmp_path / "agents.yaml"
    far, near = (
        {"domain": name, "kind": name, "nodes": 1, "per_node": number} for name, number in (("n", 9), ("g", 2))
    )
    link = {"from": "n", "to": "g", "bandwidth_gbps": 80, "latency_ms": 0, "both": True}
    place.write_text(json.dumps({"agents": [far, near], "links": [link]}))
    jobs = [{**A, "runs_on": ["g"], "user": "u3"}, {**B, "runs_on": ["g"], "user": "u3", "kind": "preprocess"}]
    words = ("jobs", "replay", trace(jobs), "--cluster", place, "--policy", "fifo", "--json", "--data-gb")
    assert hippo(*words, "usual").document["moved_gb"] == 2 * 20 + 100
    assert hippo(*words, 1).document["moved_gb"] == 2 + 1


def test_deadlines_change_the_key_but_not_the_name(hippo, cluster, trace):
    answer = hippo("jobs", "replay", trace(BOTH), "--cluster", cluster, "--policy", "learned", "--json")
    assert answer.document["policy"] == "learned"
    assert "some jobs have deadlines" in answer.err


def test_two_queues_take_borders_and_promotion(hippo, cluster, trace):
    """Both want both GPUs. Past 20 device-seconds a stands behind b, and b behind a; of two borders each gets a turn in
    the second queue. Who is promoted once it has waited half as long as it ran comes back when the other
    leaves the first queue: turns of 10 s, of which b needs five."""
    jobs = [{**A, "deadline_s": None}, {**B, "devices": 2, "arrival_s": 0, "deadline_s": None}]
    words = ("jobs", "replay", trace(jobs), "--cluster", cluster, "--policy", "two_queue", "--restart-s", 0, "--json")

    def mean_s(*more: object) -> float:
        return hippo(*words, *more).document["mean_completion_s"]

    assert mean_s() == (100 + 150) / 2  # one queue up to 200,000
    assert mean_s("--borders", 20) == (110 + 150) / 2
    assert mean_s("--borders", "20,60") == (130 + 150) / 2
    assert mean_s("--borders", 20, "--promote-after", 0.5) == (150 + 100) / 2


@pytest.mark.parametrize(
    ("option", "value"),
    [("--borders", "7200,3250"), ("--borders", "0"), ("--borders", "many"), ("--promote-after", 0)],
)
def test_queues_that_are_none_are_refused(hippo, cluster, trace, option, value):
    answer = hippo("jobs", "replay", trace(BOTH), "--cluster", cluster, "--policy", "two_queue", option, value)
    assert (answer.code, option in answer.err) == (2, True)


def test_borders_need_queues(hippo, cluster, trace):
    answer = hippo("jobs", "replay", trace(BOTH), "--cluster", cluster, "--policy", "fifo", "--borders", "3600")
    assert answer.code == 2
    assert "two_queue" in answer.err


def test_the_table_of_several_policies(hippo, cluster, trace):
    answer = hippo("jobs", "replay", trace(BOTH), "--cluster", cluster, "--policy", "srtf,fifo")
    assert answer.out.index("srtf") < answer.out.index("fifo")
    assert "1 of 2" in answer.out
    assert "read 3 jobs" in answer.err
    assert "(format own)" in answer.err


def test_the_page(hippo, cluster, trace, tmp_path):
    words = ("jobs", "replay", trace(BOTH), "--cluster", cluster, "--policy", "srtf,fifo", "--out", tmp_path / "new")
    assert hippo(*words).code == 0
    page = (tmp_path / "new" / "jobs.html").read_text()
    assert "Policies side by side" in page
    document = json.loads((tmp_path / "new" / "jobs.json").read_text())
    assert document["policy"] == "srtf"
    rows = [json.loads(line) for line in (tmp_path / "new" / "replayed.jsonl").read_text().splitlines()]
    took_s = [row["finish_s"] - row["arrival_s"] for row in rows if row["finish_s"] is not None]
    assert len(took_s) == document["jobs"]
    assert sum(took_s) / len(took_s) == pytest.approx(document["mean_completion_s"], rel=1e-12)
    assert sum(row["stops"] for row in rows) == document["preemptions"]


def test_the_policies(hippo):
    told = hippo("jobs", "policies", "--json").document["policies"]
    assert [row["name"] for row in told] == [*JOB_POLICIES, *JOB_SCHEDULERS]
    assert {row["knows"] for row in told} == {"nothing", "estimates", "durations"}
    assert "srtf" in hippo("jobs", "policies").out


def test_alone_it_shows_its_help(hippo):
    answer = hippo("jobs")
    assert answer.code == 0
    assert "replay" in answer.out


def test_a_trace_is_drawn_and_replayed(hippo, cluster, tmp_path, data):
    like, out = data / "traces" / "gavel_msr.trace", tmp_path / "drawn.csv.gz"
    words = ("jobs", "generate", "--like", like, "--jobs", 300, "--out", out, "--deadlines", "--priorities")
    drawn = hippo(*words, "--kinds", "--data-gb", 5, "--cluster", cluster, "--seed", 3, "--json")
    assert drawn.document["jobs"] == 300
    assert drawn.document["ks"]["devices"] < 0.1
    again = hippo("jobs", "replay", out, "--cluster", cluster, "--policy", "fifo", "--json").document
    assert again["jobs"] + again["refused"] == 300
    assert again["deadline_jobs"] == 300


def test_jobs_without_gpus_are_not_drawn_as_jobs_on_gpus(hippo, trace, tmp_path):
    gpus = [{**C, "name": f"g{job}", "arrival_s": 90 * job} for job in range(60)]
    cores = [{**gpus[job], "name": f"c{job}", "devices": 64, "runs_on": ["cpu"]} for job in range(40)]
    answer = hippo("jobs", "generate", "--like", trace(gpus + cores), "--out", tmp_path / "drawn.csv", "--json")
    assert answer.document["jobs"] == 60
    assert answer.document["moments"]["mean devices"] == {"trace": 1, "drawn": 1}
    assert "left out 40 jobs: no GPU is asked for" in answer.err


def test_data_are_drawn_into_the_domains_of_a_file_of_agents(hippo, tmp_path, data):
    place, out = tmp_path / "agents.yaml", tmp_path / "drawn.csv"
    rows = [{"domain": name, "kind": "npu", "nodes": 1, "per_node": 8} for name in ("east", "west")]
    place.write_text(json.dumps({"agents": rows}))
    words = ("jobs", "generate", "--like", data / "traces" / "gavel_msr.trace", "--jobs", 60, "--out", out)
    assert hippo(*words, "--data-gb", 5, "--cluster", place).code == 0
    assert {line.split(",")[-1] for line in out.read_text().splitlines()} == {"data_at", "east", "west"}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--policy", "fifoo"), "unknown policy 'fifoo'"),
        (("--policy", ","), "unknown policy"),
        (("--part", "0.7"), None),
        (("--part", "1:0"), "--part: must be two rising shares"),
        (("--part", "a:b"), "--part"),
        (("--part", "0:1", "--from", 3), "two ways to choose a part"),
        (("--from", 3, "--to", 2), "must lie behind --from"),
        (("--from", 1000), "no job arrives in that part"),
        (("--load", 0), "--load"),
        (("--load", "nan"), "--load"),
        (("--load", "1e-300"), "--load: must be from 0.001 to 1000"),
        (("--span", "always"), "unknown choice 'always'"),
        (("--data", "never"), "unknown choice 'never'"),
        (("--format", "phily"), "unknown format 'phily'"),
        (("--format", "helios"), "looks like format own"),
        (("--restart-s", -1), "restart_s"),
        (("--mtbf-h", 0), "--mtbf-h"),
        (("--mtbf-h", 5, "--repair-h", "inf"), "--repair-h"),
        (("--cpus-per-node", -1), "--cpus-per-node"),
        (("--data-gb", -1), "--data-gb"),
        (("--data-gb", "1e300"), "--data-gb"),
        (("--data-gb", "some"), "give GB, for instance 50, or 'usual'"),
        (("--seed", -1), "--seed"),
        (("--mtbf-h", 10, "--seed", 2**64), "seed: no seed"),
        (("--weights", "no.npz"), "no.npz"),
    ],
)
def test_what_is_refused(hippo, refused, cluster, trace, more, told):
    words = ("jobs", "replay", trace(BOTH), "--cluster", cluster, "--json", *more)
    if told is None:
        assert hippo(*words).code == 0
    else:
        assert told in refused(*words)


def test_traces_that_are_refused(refused, cluster, trace, tmp_path):
    words = ("--cluster", cluster, "--policy", "fifo")
    assert "does not exist" in refused("jobs", "replay", tmp_path / "no.csv", *words)
    assert "again" in refused("jobs", "replay", trace([A, A]), *words)
    elastic = {**A, "duration_s": None, "model": "gpt2", "tokens": 1e9}
    agents = tmp_path / "agents.yaml"
    agents.write_text("agents:\n  - {domain: east, kind: npu, nodes: 1, per_node: 8}\n")
    asked = ("jobs", "replay", trace([elastic]), "--cluster", agents)
    assert "nobody can plan elastic jobs on it" in refused(*asked)
    assert "a negative duration" in refused("jobs", "replay", trace([{**A, "duration_s": -1}]), *words)
    assert "--out" in refused("jobs", "generate", "--like", trace(BOTH), "--out", tmp_path / "x.txt")
    assert "too little to fit" in refused("jobs", "generate", "--like", trace(BOTH), "--out", tmp_path / "x.csv")
    (tmp_path / "folder.csv").mkdir()
    assert "--out: is a folder" in refused("jobs", "generate", "--like", "absent", "--out", tmp_path / "folder.csv")
    assert not (tmp_path / "x.csv").exists()


def test_wrong_rows_may_be_passed_over(hippo, cluster, trace):
    words = ("jobs", "replay", trace([A, A, B]), "--cluster", cluster, "--policy", "fifo", "--skip-bad", "--json")
    document = hippo(*words).document
    assert document["jobs"] == 2
    assert sum(document["passed_over"].values()) == 1
