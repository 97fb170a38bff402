"""``import hippo``: its names, listed; one sentence from a question to an answer."""

from __future__ import annotations

import json
import subprocess
import sys
from inspect import getdoc, isfunction, signature
from pathlib import Path

import pytest

import hippo

NAMES = [
    "Checkpoints",
    "Client",
    "Decision",
    "Estimate",
    "Front",
    "HippoError",
    "InfeasibleError",
    "InputError",
    "JobsDrawing",
    "JobsQuestion",
    "Plan",
    "Problem",
    "RunOptions",
    "Score",
    "Status",
    "Stop",
    "SuiteChoice",
    "compare",
    "estimate",
    "evaluate",
    "evaluate_suite",
    "explain",
    "export",
    "generate_jobs",
    "load_plan",
    "pareto",
    "plan",
    "plan_rollouts",
    "problem",
    "replay_jobs",
    "run",
    "save_plan",
    "schedule",
    "simulate",
    "validate",
    "watch",
]


STOP = hippo.Stop(time_limit_s=100)
"""Searches end by themselves, in a second or so."""


def run(program: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_public_names_are_these():
    assert hippo.__all__ == NAMES == sorted(hippo.__all__)
    assert set(NAMES) <= set(dir(hippo))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there_and_says_what_it_is(name):
    value = getattr(hippo, name)
    assert getdoc(value)
    if isfunction(value):
        assert "self" not in signature(value).parameters


def test_what_is_not_there_lists_what_is():
    with pytest.raises(AttributeError, match=r"no attribute 'plans'.*compare, estimate"):
        _ = hippo.plans


def test_packages_inside_do_not_hide_the_functions():
    program = (
        "import hippo.plan.plan, hippo.problem.problem, hippo.simulate.program\n"
        "from hippo.plan.plan import Plan\n"
        "print(callable(hippo.plan), callable(hippo.problem), callable(hippo.simulate), hippo.Plan is Plan)"
    )
    assert run(program) == "True True True True"


def test_importing_loads_nothing_of_its_own():
    program = "import hippo, sys\nprint([name for name in sys.modules if name.startswith('hippo.')])"
    assert run(program) == "[]"


def test_a_stop_needs_no_simulator():
    program = "import hippo, sys\nhippo.Stop(time_limit_s=1)\nprint('numba' in sys.modules)"
    assert run(program) == "False"


@pytest.fixture(scope="module")
def toy() -> hippo.Problem:
    return hippo.problem(model="gpt2", cluster="toy", global_batch=64, seq=512)


@pytest.fixture(scope="module")
def decision(toy) -> hippo.Decision:
    return hippo.plan(toy, STOP, seed=0)


def test_one_sentence(toy, decision):
    assert decision.status in (hippo.Status.OPTIMAL, hippo.Status.FEASIBLE)
    assert decision.problem == toy
    assert decision.summary().startswith(decision.headline())
    assert decision.baseline is not None


def test_the_same_question_gets_the_same_answer(toy, decision):
    again = hippo.plan(toy, STOP, seed=0)
    assert (again.plan, again.score, again.reasons) == (decision.plan, decision.score, decision.reasons)


def test_a_notebook_shows_the_decision(decision):
    html = decision._repr_html_()
    assert "<" in html
    assert "gpt2" in html


def test_planners_side_by_side(toy, decision):
    compared = hippo.compare(toy, STOP, planner="exact,even,single_domain")
    assert [row.planner for row in compared.rows] == ["exact", "even", "single_domain"]
    assert compared.score.step_time_s == pytest.approx(decision.score.step_time_s, rel=1e-6)


def test_everyone_may_stand_beside_the_plan(toy, decision):
    beside = hippo.plan(toy, STOP, planner="exact,even", everyone=True)
    assert [row.planner for row in beside.rows] == ["exact", "even"]
    assert beside.score.step_time_s == pytest.approx(decision.score.step_time_s, rel=1e-6)


def test_weights_are_weighed_over_the_front(toy):
    question = hippo.problem(model="gpt2", cluster="toy", global_batch=64, seq=512, objective="0,0,1")
    answer = hippo.plan(question, STOP)
    assert answer.score.egress_usd_per_step == 0
    assert "It weighed" in answer.summary()


def test_a_plan_goes_to_a_file_and_back_and_is_explained(toy, decision, tmp_path):
    hippo.save_plan(toy, decision.plan, tmp_path / "plan.json")
    problem, plan = hippo.load_plan(tmp_path / "plan.json")
    assert (problem, plan) == (toy, decision.plan)
    explained = hippo.explain(problem, plan, STOP)
    kinds = {reason.kind for reason in explained.reasons}
    assert {"binding_constraint", "bottleneck", "memory", "better"} <= kinds
    assert explained.score == decision.score


def test_a_plan_is_played(toy, decision):
    played = hippo.simulate(toy, decision.plan)
    judged = hippo.simulate(toy, decision.plan, engine="reference")
    assert played.step_time_s == pytest.approx(decision.score.step_time_s)
    assert judged.step_time_s == pytest.approx(played.step_time_s)
    with pytest.raises(hippo.InputError, match="no timeline"):
        hippo.simulate(toy, decision.plan, engine="analytic")


def test_one_layout_by_hand():
    found = hippo.estimate(model="gpt3-175b", gpu="A100-SXM-80GB", tp=8, pp=8, dp=2, global_batch=128, seq=2048)
    assert found.plan.gpus == 128
    assert found.score.step_time_s > 0
    assert len(found.memory) == 8
    assert found.fits == all(stage.peak_bytes <= 80e9 for stage in found.memory)


def test_the_front_of_plans_that_none_beats(toy):
    front = hippo.pareto(toy, STOP)
    figures = [(s.step_time_s, -s.utilization, s.egress_usd_per_step) for _, s in front.points]
    assert figures == sorted(figures)
    assert front.hypervolume >= 0


def test_wrong_names_are_refused_with_those_that_exist(toy):
    with pytest.raises(hippo.InputError, match="exact"):
        hippo.plan(toy, planner="exakt")
    with pytest.raises(hippo.InputError, match="four-hubs"):
        hippo.problem(model="gpt2", cluster="four-hub")


TWO = {
    "gpu": "H100",
    "domains": [{"name": "a", "nodes": 1, "gpus_per_node": 8}, {"name": "b", "nodes": 1, "gpus_per_node": 8}],
    "links": [{"from": "a", "to": "b", "bandwidth_gbps": 10, "latency_ms": 5, "both": True}],
}


def test_a_cluster_may_be_a_mapping_or_a_path(tmp_path):
    mapped = hippo.problem(model="gpt2", cluster=TWO)
    (tmp_path / "cluster.yaml").write_text(json.dumps(TWO))
    read = hippo.problem(model="gpt2", cluster=tmp_path / "cluster.yaml")
    assert read.cluster.links == mapped.cluster.links
    assert mapped.cluster.gpus == 16
    with pytest.raises(hippo.InputError, match=r"^cluster: must be a string, a path, a mapping with .* \(got 8\)\."):
        hippo.problem(model="gpt2", cluster=8)


def test_small_changes_make_another_problem():
    problem = hippo.problem(model="gpt2", cluster=TWO)
    quick = problem.with_link("a", "b", bandwidth_gbps=40, latency_ms=1)
    assert [(link.bandwidth_bytes_per_s, link.latency_s) for link in quick.cluster.links] == [(5e9, 0.001)] * 2
    one_way = problem.with_link("b", "a", bandwidth_gbps=40, both=False)
    assert [link.bandwidth_bytes_per_s for link in one_way.cluster.links] == [1.25e9, 5e9]
    assert problem.cluster.links[0].bandwidth_bytes_per_s == 1.25e9
    assert problem.with_workload(global_batch=8, seq=128).workload.tokens_per_step == 1024
    with pytest.raises(hippo.InputError, match="unknown domain 'c'"):
        problem.with_link("a", "c", bandwidth_gbps=1)
    with pytest.raises(hippo.InputError, match=r"bandwidth_gbps: is out of range \(got -1\)"):
        problem.with_link("a", "b", bandwidth_gbps=-1)
    with pytest.raises(hippo.InputError, match="global_batch: must be a positive whole number"):
        problem.with_workload(global_batch=0)


def test_errors_name_arguments(toy):
    with pytest.raises(hippo.InputError, match=r"^global_batch: must be a positive whole number"):
        hippo.problem(model="gpt2", cluster="toy", global_batch=0)
    with pytest.raises(hippo.InputError, match=r"^stop: must be a Stop \(got 10\)\. To fix: write hippo\.Stop"):
        hippo.plan(toy, 10)
    with pytest.raises(hippo.InputError, match=r"^problem: must be a Problem \(got 'toy'\)"):
        hippo.plan("toy")
    with pytest.raises(hippo.InputError, match=r"^Stop: time_limit_s: must be a number of at least 0 \(got -1\)"):
        hippo.Stop(time_limit_s=-1)
    with pytest.raises(hippo.InputError, match=r"^problem: must be a Problem \(got 'plan.json'\)"):
        hippo.save_plan("plan.json", toy, None)
    with pytest.raises(hippo.InputError, match=r"^tensor: is no argument of estimate"):
        hippo.estimate(model="gpt2", gpu="A100-SXM-80GB", tensor=8)


def test_answers_are_short_to_print_and_tables_to_look_at(toy, decision):
    timeline = hippo.simulate(toy, decision.plan)
    front = hippo.pareto(toy, STOP)
    for value in (toy, decision, decision.plan, decision.score, timeline, front):
        assert len(repr(value)) < 300
        assert "gpt2" in repr(value) or type(value).__name__ in repr(value)
    for value, said in ((decision.score, "step_time_s"), (timeline, "busy_share"), (front, "usd_per_step")):
        assert f"{said}</t" in value._repr_html_()


def test_rows_make_a_data_frame(toy, decision):
    beside = hippo.compare(toy, STOP, planner="even,single_domain")
    assert [row["planner"] for row in beside.records()] == ["even", "single_domain"]
    assert all(row["step_time_s"] > 0 for row in beside.records())
    first = hippo.simulate(toy, decision.plan).records()[0]
    assert first["kind"] == "F"
    assert first["start_s"] < first["end_s"]
    assert decision.to_dict() == decision.document()
    for point in hippo.pareto(toy, STOP).points:
        assert point.score.step_time_s > 0
    for other in decision.runners_up:
        assert other.plan.gpus <= toy.cluster.gpus


def test_the_order_of_one_pipeline():
    described = {"p": 2, "m": 4, "f": [1, 1], "b": [1, 1], "w": [1, 1]}
    answer = hippo.schedule(described, "1f1b")
    assert answer.makespan >= answer.lower_bound > 0
    with pytest.raises(hippo.InputError, match="^method: unknown schedule method"):
        hippo.schedule(described, "1f2b")


def test_a_plan_is_exported(tmp_path):
    found = hippo.estimate(model="gpt2", gpu="A100-SXM-80GB", dp=8, global_batch=64, seq=512)
    written = hippo.export(found.problem, found.plan, "torchrun", out=tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} >= set(written.files)
    with pytest.raises(hippo.InputError, match="^to: unknown target"):
        hippo.export(found.problem, found.plan, "torchrum")


def test_published_runs_are_held_against_predictions(tmp_path):
    cases = json.loads((Path(__file__).resolve().parents[2] / "data" / "training_open.json").read_text())
    (tmp_path / "few.json").write_text(json.dumps(cases[::10]))
    found = hippo.validate(tmp_path / "few.json")
    assert len(found.rows) == len(cases[::10]) > 40
    assert 40 < found.document()["overall"]["n"] <= len(found.rows)  # some layouts are refused
    broken = tmp_path / "cases.json"
    broken.write_text("[{}]")
    with pytest.raises(hippo.InputError, match="cases.json"):
        hippo.validate(broken)
