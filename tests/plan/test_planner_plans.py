"""Whoever proposes it: a plan passes every check, fits, and scores the same once it has been written and read.

Clusters are drawn with links missing, caps per node, odd node sizes and little memory; runtimes, objectives and
profiles in turn. The draws are the same in every run.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.strategies import clusters

from hippo.cost.cost_model import CostModel
from hippo.cost.stage import Layout
from hippo.files import json_text
from hippo.plan.check import check
from hippo.plan.codec import plan_from_document, plan_to_document
from hippo.planners.base import Proposal, Status, Stop
from hippo.problem.catalogue.models import MODELS
from hippo.problem.model import Experts, gpt_model
from hippo.problem.objective import objective_from_text
from hippo.problem.problem import Problem
from hippo.problem.profile import Profile, ProfileRow
from hippo.problem.workload import Workload
from hippo.registry import AUTO, planner
from hippo.score.judge import evaluate, fits
from hippo.score.score import Score

MIXTURE = gpt_model(
    "mixture", layers=6, hidden=256, heads=8, vocab=1000, seq=512, gated=True, experts=Experts(8, 2, 512)
)
MODEL_CHOICES = (MODELS["gpt2"], MODELS["qwen3-1.7b"], MODELS["gpt3-2.7b"], MIXTURE)


@st.composite
def questions(draw: st.DrawFn) -> Problem:
    """A small problem that a user could have asked."""
    model = draw(st.sampled_from(MODEL_CHOICES))
    cluster = draw(clusters(mesh=draw(st.booleans())))
    plain = Problem(
        model=model,
        cluster=replace(cluster, domains=cluster.domains[:3], links=_kept(cluster)),
        workload=Workload(global_batch=draw(st.sampled_from([6, 16, 64])), seq=min(model.max_seq, 1024)),
        objective=objective_from_text(draw(st.sampled_from(["time", "time", "cost", "0.5,0.3,0.2"]))),
        runtime=draw(st.sampled_from(["any", "any", "megatron", "torch", "deepspeed"])),
        uniform_cuts=draw(st.sampled_from([False, False, True])),
        allow_local_sgd=draw(st.booleans()),
    )
    return replace(plain, profile=profile_of(plain)) if draw(st.integers(0, 3)) == 0 else plain


def profile_of(problem: Problem) -> Profile:
    """A slow machine, measured at two widths and two micro-batches."""
    costs, domain, last = CostModel(problem), problem.cluster.domains[0].name, problem.model.num_layers - 1
    rows = []
    for layout in (Layout(tp, 1, size) for tp in (1, 2) for size in (1, 2)):
        seconds = 2.0 * costs.layer_seconds(domain, layout)
        for layer in (0, 1, last):
            memory = costs.memory(domain, layer, layer + 1, layout, live=1.0)
            kind, sent = problem.model.layers[layer].kind.value, costs.stage(domain, layer, layer + 1, layout)
            sizes = memory.weights_bytes, memory.activation_bytes, sent.output_bytes
            name, times = problem.cluster.gpu.name, map(float, seconds[layer])
            rows.append(ProfileRow(kind, None, name, layout.tp, layout.micro_batch, *times, *sizes))
    return Profile("bf16", 16.0, tuple(rows))


def _kept(cluster) -> tuple:  # type: ignore[no-untyped-def, type-arg]
    names = {domain.name for domain in cluster.domains[:3]}
    return tuple(link for link in cluster.links if {link.source, link.destination} <= names)


def same(one: Score, two: Score) -> bool:
    """Whether two scores agree in every figure but the reward, which needs a baseline."""
    names = [field.name for field in fields(Score) if field.name not in ("reward", "r_eff", "r_util", "r_cost")]
    return all(getattr(one, name) == pytest.approx(getattr(two, name), rel=1e-9) for name in names)


def judge(problem: Problem, proposal: Proposal) -> None:
    """What holds for every answer of every planner."""
    if proposal.plan is None:
        assert proposal.status is Status.INFEASIBLE
        return
    plan = proposal.plan
    assert proposal.status in (Status.FEASIBLE, Status.OPTIMAL)
    assert check(problem, plan) == ()
    assert fits(problem, plan)
    written = json.loads(json_text(plan_to_document(problem, plan)))
    same_problem, same_plan = plan_from_document(written, "plan.json")
    assert (same_problem, same_plan) == (problem, plan)
    score = evaluate(problem, plan)
    assert evaluate(same_problem, same_plan) == score
    assert proposal.score is None or same(proposal.score, score)
    assert proposal.gap is None or 0.0 <= proposal.gap <= 1.0
    assert plan.sync.method == "allreduce" or problem.allow_local_sgd


@pytest.mark.parametrize("name", AUTO)
@settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=questions())
def test_every_plan_of_every_planner_is_one(name: str, problem: Problem) -> None:
    judge(problem, planner(name).propose(problem, Stop(time_limit_s=1.0)))
