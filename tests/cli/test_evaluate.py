"""``hippo evaluate``: the document others rely on, hindsight above everybody, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

HEADER = "time_s,src,dst,bandwidth_gbps,latency_ms\n"
METHOD = {
    *("reward", "work", "of_hindsight", "captured", "step_time_s", "utilization", "egress_usd", "moves"),
    *("decision_ms_p50", "decision_ms_p99", "epochs"),
}
EPOCH = {"time_s", "plan", "moved_bytes", "downtime_s", "tokens", "egress_usd"}
ASKED = ("--model", "llama-3-8b", "--cluster", "toy", "--global-batch", 64)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """The toy's link, first at rest, then at a tenth; begins at 600 s."""
    rows = [
        f"{600 + 300 * epoch},{pair},{8.0 if epoch < 6 else 0.8},20"
        for epoch in range(12)
        for pair in ("east,west", "west,east")
    ]
    path = tmp_path / "net.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return path


def test_the_document(hippo, trace):
    methods = ("static", "receding_horizon", "single_domain", "hindsight")
    document = hippo("evaluate", *ASKED, "--trace", trace, "--methods", ",".join(methods), "--json").document
    assert tuple(document["methods"]) == methods
    best = document["methods"]["hindsight"]["work"]
    for told in document["methods"].values():
        assert set(told) >= METHOD
        assert told["work"] <= best * (1 + 1e-9)
        assert told["of_hindsight"] == pytest.approx(told["work"] / best)
        assert [set(epoch) for epoch in told["epochs"]] == [EPOCH] * 12
        assert told["epochs"][0]["time_s"] == 600.0
        assert all(0 <= epoch["plan"] < len(document["plans"]) for epoch in told["epochs"])
        tokens = sum(epoch["tokens"] for epoch in told["epochs"])
        egress = sum(epoch["egress_usd"] for epoch in told["epochs"])
        assert told["egress_usd"] == pytest.approx(egress)
        assert told["work"] == pytest.approx(tokens - egress / document["world"]["usd_per_token"])
    first = document["plans"][0]
    assert first["pipelines"]
    assert first["step_time_interval_s"][0] < first["step_time_s"] < first["step_time_interval_s"][1]
    assert first["assumed_span_s"] is None  # hippo's executor assumes nothing
    for told in document["methods"].values():
        low, high = told["step_time_interval_s"]
        assert low < told["step_time_s"] < high
    assert document["kpis"]["baseline"] == "even"
    assert set(document["kpis"]) == {"baseline", *methods}


def test_both_ends_of_what_is_assumed_are_told(hippo, trace):
    said = hippo("evaluate", *ASKED, "--trace", trace, "--methods", "even", "--runtime", "megatron").out
    assert "as assumed, a step of the plan that ran longest takes" in said


def test_only_who_was_asked_is_told(hippo, trace):
    document = hippo("evaluate", *ASKED, "--trace", trace, "--methods", "receding_horizon", "--json").document
    assert set(document["methods"]) == {"receding_horizon"}
    assert document["methods"]["receding_horizon"]["of_hindsight"] <= 1.0


def test_a_planner_without_a_plan_is_left_out(hippo, trace):
    answer = hippo("evaluate", *ASKED, "--trace", trace, "--methods", "diloco,hindsight", "--json")
    assert set(answer.document["methods"]) == {"hindsight"}  # local SGD is not allowed here
    assert "diloco has no plan" in answer.err


def test_a_table_for_people_and_a_file(hippo, trace, tmp_path):
    answer = hippo("evaluate", *ASKED, "--trace", trace, "--methods", "static,hindsight", "--out", tmp_path / "out")
    assert answer.code == 0
    assert "hindsight" in answer.out
    assert "90 %" in answer.out
    assert (tmp_path / "out" / "evaluation.json").exists()
    assert "Work done so far" in (tmp_path / "out" / "evaluation.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "llama-3-8b"), "--cluster"),
        (("--methods", "nobody", "--seeds", 1), "nobody"),
        (("--families", "nothing"), "nothing"),
        (("--forecast", "tea-leaves"), "tea-leaves"),
        (("--methods", "even"), "planners"),
        (("--objective", "cost"), "--objective: only of a network of yours"),
        (("--epoch", 60), "--epoch: only of a network of yours"),
        (("--methods", "static", "--policy", "no.policy"), "only hi_ppo takes a policy"),
        (("--policy", "no.policy"), "no.policy: Hi-PPO policy does not exist"),
    ],
)
def test_what_is_refused(refused, arguments, words):
    assert words in refused("evaluate", *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--epoch", 0), "--epoch"),
        (("--seeds", 3), "--seeds: only of the standard suite"),
        (("--ray",), "--ray: "),
        (("--families", "ou3"), "--families: only of the standard suite"),
        (("--methods", "sailor,nobody"), "unknown method 'nobody'"),
        (("--methods", ","), "names no method"),
        (("--methods", "static", "--policy", "no.policy"), "only hi_ppo takes a policy"),
        (("--forecast", "tea-leaves"), "--forecast"),
    ],
)
def test_what_is_refused_on_one_network(refused, trace, arguments, words):
    assert words in refused("evaluate", *ASKED, "--trace", trace, *arguments)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("0,east,west,8,20\n", "west"),  # no value for the way back
        ("0,east,west,-1,20\n0,west,east,8,20\n", "not negative"),
        ("0,east,moon,8,20\n0,west,east,8,20\n", "moon"),
        ("5,east,west,8,20\n5,west,east,8,20\n0,east,west,8,20\n", "backwards"),
        ("", "no rows"),
        ("0,east,west,8,20\n0,west,east,8,20\n60,east,west,8,20\n120,east,west,8,20\n9e9,east,west,8,20\n", "epochs"),
    ],
)
def test_a_bad_trace(refused, tmp_path, row, words):
    path = tmp_path / "bad.csv"
    path.write_text(HEADER + row)
    assert words in refused("evaluate", *ASKED, "--trace", path, "--methods", "static")


def test_with_compression_the_table_without_it_comes_first(hippo, trace, tmp_path):
    question = ("evaluate", *ASKED, "--trace", trace, "--methods", "static,hindsight")
    allowed = ("--allow-compression", "--compression-worth", 1, "--out", tmp_path)
    plain, both = (hippo(*question, *more, "--json").document for more in ((), allowed))
    without = both["without_compression"]["methods"]["static"]
    assert without["work"] == plain["methods"]["static"]["work"]
    assert both["compression_worth"] == 1.0
    page = (tmp_path / "evaluation.html").read_text()
    assert page.index("Without compression") < page.index("Methods side by side")
    told = hippo(*question, *allowed).out
    assert told.index("under hippo's executor".capitalize()) < told.index("Without compression")
    assert told.index("Without compression") < told.index("With compression between domains")


def test_another_table_is_no_trace(refused, tmp_path):
    path = tmp_path / "sales.csv"
    path.write_text("day,shop,sum\n1,east,8\n")
    assert "another header" in refused("evaluate", *ASKED, "--trace", path, "--methods", "static")


def test_a_folder_is_no_policy(refused, trace, tmp_path):
    assert "cannot read" in refused("evaluate", *ASKED, "--trace", trace, "--methods", "hi_ppo", "--policy", tmp_path)


def test_a_policy_that_is_none(refused, trace, tmp_path):
    path = tmp_path / "no.policy"
    path.write_text("nothing of the kind")
    assert "no.policy" in refused("evaluate", *ASKED, "--trace", trace, "--methods", "hi_ppo", "--policy", path)


def test_a_problem_without_a_plan_is_an_answer(hippo, trace):
    answer = hippo("evaluate", "--model", "gpt3-175b", "--cluster", "toy", "--trace", trace, "--methods", "static")
    assert answer.code == 3
    assert "no plan" in answer.err


def test_a_policy_trained_without_a_part_is_an_ablation_by_itself(tmp_path, monkeypatch):
    import importlib.resources as resources
    from shutil import copy

    from hippo.front_door import networks

    own = Path(str(resources.files("hippo.network.hi_ppo")))
    (tmp_path / "policies").mkdir()
    for name in ("no_gnn", "no_masks", "no_forecast"):
        copy(own / "hi_ppo.policy", tmp_path / "policies" / f"{name}.policy")
    monkeypatch.setattr(networks, "files", lambda package: tmp_path)
    found = {each.name: each for each in networks.ablations()}
    assert list(found) == [
        *("no_verification", "no_fresh_plans", "no_free_levers", "flat", "no_forecast", "no_gnn", "no_masks")
    ]
    assert found["no_gnn"].make().name == "no_gnn"
    assert found["no_gnn"].make.args[1] == str(tmp_path / "policies" / "no_gnn.policy")
    assert found["no_forecast"].forecast == "persistence"
    assert found["no_forecast"].make.args[1] == str(tmp_path / "policies" / "no_forecast.policy")


# -------------------------------------------------------------------------------------------------- worlds of many jobs
DRAWN = ("--cluster", "toy", "--models", "gpt2", "--jobs", 8, "--seeds", 1, "--families", "mixed")
WORLDS = ("evaluate", "--world", *DRAWN)


def test_worlds_are_played_by_everybody_asked_and_written_down(hippo, tmp_path):
    asked = (*WORLDS, "--methods", "separate,srpt", "--loads", "1,1.2", "--stops", "yes", "--processes", 1)
    document = hippo(*asked, "--out", tmp_path, "--write", tmp_path, "--json").document
    assert set(document["methods"]) == {"separate", "srpt"}
    assert document["worlds"] == 2
    rows = [json.loads(line) for line in (tmp_path / "worlds.jsonl").read_text().splitlines()]
    assert [(row["load"], row["method"]) for row in rows] == [
        (load, name) for load in (1.0, 1.2) for name in ("separate", "srpt")
    ]
    costs = [row["priced_s"] for row in rows]
    told = document["ratios"]["srpt"]["separate"]["priced_s"]["mean"]
    assert told == pytest.approx((costs[1] / costs[0] + costs[3] / costs[2]) / 2)
    assert len((tmp_path / "jobs.jsonl").read_text().splitlines()) == 16
    assert "| separate |" in (tmp_path / "worlds.md").read_text()
    for row in rows:
        assert row["of_bound"] == pytest.approx(row["bound_priced_s"] / row["priced_s"])
        assert row["of_bound"] <= 1.0 + 1e-9
    bounded = hippo(*asked, "--bounds", "relaxation,search").out
    assert "separate" in bounded
    assert "the best found with hindsight costs" in bounded
    assert hippo(*asked, "--bounds", "none", "--json").document["methods"]["srpt"]["of_bound"] is None
    both = hippo(*asked[:-4], "--bounds", "none", "--processes", 1, "--json").document
    assert both["worlds"] == 4
    assert both["stopping"]["yes"]["methods"]["srpt"]["priced_s"] == document["methods"]["srpt"]["priced_s"]
    assert both["stopping"]["no"]["methods"]["srpt"]["stops"]["mean"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--methods", "nobody"), "unknown method 'nobody'"),
        (("--policy", "no.npz"), "no.npz"),
        (("--methods", "srpt", "--policy", "no.npz"), "only hi_ppo takes a policy"),
        (("--loads", "much"), "--loads"),
        (("--stops", "perhaps"), "--stops"),
        (("--loads", "0"), "--loads"),
        (("--domains", "1"), "--domains"),
        (("--domains", "4,x"), "--domains"),
        (("--networks", "shaking"), "unknown network 'shaking'"),
        (("--families", "nothing"), "unknown family of jobs 'nothing'"),
        (("--jobs", 1), "--jobs"),
        (("--bounds", "sky"), "unknown bound 'sky'"),
        (("--like", "no-trace.csv"), "no-trace.csv"),
        (("--cluster", "nowhere"), "nowhere"),
        (("--models", "no-model"), "no-model"),
        (("--trace", "net.csv"), "--trace: not of worlds of many jobs"),
        (("--epoch", 60), "--epoch: not of worlds of many jobs"),
    ],
)
def test_what_is_refused_of_worlds(refused, arguments, words):
    assert words in refused(*WORLDS, *arguments)


def test_options_of_worlds_are_of_worlds_alone(refused):
    assert "--loads: only of worlds of many jobs" in refused("evaluate", "--loads", "1")
    assert "only worlds (--world) take several" in refused("evaluate", "--policy", "a", "--policy", "b")
