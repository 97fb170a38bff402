"""Profiles overrule formulas: seconds, memory, what is handed on; a profile written from formulas changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.cost.cost_model import CostModel
from hippo.cost.measured import ENDLESS_S
from hippo.cost.stage import Layout
from hippo.plan.check import check
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem
from hippo.problem.profile import Profile, ProfileRow
from hippo.score.judge import evaluate

PLAIN = load_problem(model="gpt2", cluster="toy", global_batch=16)
N = PLAIN.model.num_layers


def row(costs: CostModel, layer: int, layout: Layout, *, factor: float = 1.0) -> ProfileRow:
    """What a perfect measurement of one layer would say, or one of a machine that is slower by ``factor``."""
    forward, backward, weight = costs.layer_seconds("east", layout)[layer] * factor
    memory = costs.memory("east", layer, layer + 1, layout, live=1.0)
    return ProfileRow(
        layer_kind=costs.problem.model.layers[layer].kind.value,
        layer_index=None,
        gpu="A100-SXM-80GB",
        tp=layout.tp,
        micro_batch=layout.micro_batch,
        forward_s=forward,
        backward_s=backward,
        weight_gradient_s=weight,
        parameter_bytes=memory.weights_bytes,
        activation_bytes=memory.activation_bytes,
        output_bytes=costs.stage("east", layer, layer + 1, layout).output_bytes,
    )


def profiled(*, factor: float = 1.0, tps: tuple[int, ...] = (1, 2), micro_batches: tuple[int, ...] = (1, 2)) -> Problem:
    """The problem with a profile of these layouts."""
    costs = CostModel(PLAIN)
    layouts = [Layout(tp, 1, size) for tp in tps for size in micro_batches]
    rows = [row(costs, layer, layout, factor=factor) for layout in layouts for layer in (0, 1, N - 1)]
    return replace(PLAIN, profile=Profile("bf16", 16.0, tuple(rows)))


def across(*, tp: int, micro_batch: int) -> Plan:
    """A pipeline over both domains."""
    stages = tuple(
        Stage(name, layers, tp, 1, tuple(f"{name}/0/{rank}" for rank in range(tp)))
        for name, layers in (("east", (0, 7)), ("west", (7, N)))
    )
    return Plan((Pipeline(stages, 16 // micro_batch),), micro_batch)


@pytest.mark.parametrize(("tp", "micro_batch"), [(1, 1), (1, 2), (2, 2)])
def test_a_profile_written_from_formulas_changes_nothing(tp: int, micro_batch: int) -> None:
    formula, measured = CostModel(PLAIN), CostModel(profiled())
    layout = Layout(tp, 1, micro_batch)
    np.testing.assert_allclose(measured.layer_seconds("east", layout), formula.layer_seconds("east", layout))
    for span in ((0, 5), (5, N), (0, N)):
        one, two = formula.stage("east", *span, layout), measured.stage("east", *span, layout)
        for field in ("forward_s", "backward_s", "weight_gradient_s", "output_bytes", "flops"):
            assert getattr(two, field) == pytest.approx(getattr(one, field)), field
        assert two.gradient_bytes == pytest.approx(one.gradient_bytes, rel=2e-2)  # norms count once per device
        kept, held = (costs.memory("east", *span, layout, live=2.0) for costs in (formula, measured))
        assert held.activation_bytes == pytest.approx(kept.activation_bytes)
        assert held.optimizer_bytes == pytest.approx(kept.optimizer_bytes, rel=1e-6)
    plan = across(tp=tp, micro_batch=micro_batch)
    assert evaluate(profiled(), plan).step_time_s == pytest.approx(evaluate(PLAIN, plan).step_time_s, rel=5e-3)


def test_a_slower_machine_takes_longer() -> None:
    plan = across(tp=1, micro_batch=2)
    stage = CostModel(PLAIN).stage("west", 7, N, Layout(1, 1, 2))
    computing = 8 * (stage.forward_s + stage.backward_s + stage.weight_gradient_s)
    assert evaluate(profiled(factor=100.0), plan).step_time_s > 100 * computing > evaluate(PLAIN, plan).step_time_s


def test_fully_sharded_parameters_are_gathered_on_top() -> None:
    formula, measured = CostModel(PLAIN), CostModel(profiled(factor=3.0))
    alone, whole = Layout(1, 8, 1), Layout(1, 8, 1, sharding="full")
    more = formula.layer_seconds("east", whole) - formula.layer_seconds("east", alone)
    found = measured.layer_seconds("east", whole) - measured.layer_seconds("east", alone)
    np.testing.assert_allclose(found, np.maximum(more, 0.0), atol=1e-12)


def test_what_was_not_measured_is_never_chosen() -> None:
    problem = profiled(tps=(1,), micro_batches=(2,))
    costs = CostModel(problem)
    assert costs.allowed_layouts() == {(1, 2)}
    for layout in (Layout(2, 1, 2), Layout(1, 1, 1), Layout(1, 1, 2, recompute="full"), Layout(1, 1, 2, cp=2)):
        assert costs.stage("east", 0, 3, layout).forward_s >= 3 * ENDLESS_S
    assert [violation.rule for violation in check(problem, across(tp=2, micro_batch=2))] == ["profile", "profile"]
    fp16 = replace(across(tp=1, micro_batch=2), precision="fp16")
    assert "profile" in {violation.rule for violation in check(problem, fp16)}


def test_sizes_without_rows_follow_those_with_rows() -> None:
    costs = CostModel(profiled(tps=(2,), micro_batches=(2,)))
    near, far = costs.stage("east", 0, 3, Layout(2, 1, 2)), costs.stage("east", 0, 3, Layout(1, 1, 1))
    assert far.output_bytes == pytest.approx(near.output_bytes / 2)
    assert far.gradient_bytes == pytest.approx(near.gradient_bytes)


def test_shares_of_an_activation_are_put_together() -> None:
    base = profiled(tps=(4,), micro_batches=(1,))
    assert base.profile is not None
    whole = CostModel(PLAIN).stage("east", 0, 3, Layout(4, 1, 1)).output_bytes
    for held, sent in ((whole, whole), (whole / 4, whole), (2 * whole, 2 * whole), (whole / 8, whole / 2)):
        rows = tuple(replace(each, output_bytes=held) for each in base.profile.rows)
        problem = replace(base, profile=replace(base.profile, rows=rows))
        assert CostModel(problem).stage("east", 0, 3, Layout(4, 1, 1)).output_bytes == pytest.approx(sent)


def test_the_row_of_one_layer_wins_over_that_of_its_kind() -> None:
    base, layout = profiled(tps=(1,), micro_batches=(1,)), Layout(1, 1, 1)
    assert base.profile is not None
    slow = replace(base.profile.rows[1], layer_kind=None, layer_index=5, forward_s=7.0)
    costs = CostModel(replace(base, profile=replace(base.profile, rows=(*base.profile.rows, slow))))
    seconds = costs.layer_seconds("east", layout)[:, 0]
    assert seconds[5] == 7.0
    assert seconds[4] == seconds[6] == pytest.approx(base.profile.rows[1].forward_s)
    kinds, position = costs.distinct
    assert len(kinds) == 4
    assert position[4] == position[6] != position[5]
    same = replace(slow, forward_s=base.profile.rows[1].forward_s)
    again = CostModel(replace(base, profile=replace(base.profile, rows=(*base.profile.rows, same))))
    assert len(again.distinct[0]) == 3


def test_rows_of_other_machines_are_passed_over() -> None:
    base = profiled(tps=(1,), micro_batches=(1,))
    assert base.profile is not None
    others = tuple(replace(each, gpu="H100-SXM-80GB", tp=2, forward_s=9.0) for each in base.profile.rows)
    costs = CostModel(replace(base, profile=replace(base.profile, rows=others + base.profile.rows)))
    assert costs.allowed_layouts() == {(1, 1)}
    assert costs.stage("east", 0, N, Layout(1, 1, 1)).forward_s < 1.0
