"""Published rows predicted: the figures on the open rows, what is left open, the order of pairs, cuts, memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hippo.cost.calibration import CALIBRATION
from hippo.problem.catalogue.models import model
from hippo.problem.gpus import gpu
from hippo.problem.model import gpt_model
from hippo.problem.workload import Software
from hippo.score.cases import PublishedRun, load_cases
from hippo.score.published import (
    Prediction,
    ValidationReport,
    candidates,
    cluster_of,
    comparison_key,
    cut,
    errors,
    layout_of,
    predict,
    problem_of,
    validate,
)

CASE = PublishedRun(
    id="one",
    family="ours",
    model=gpt_model("small", layers=8, hidden=1024, heads=16, vocab=51200, seq=2048),
    gpu=gpu("A100"),
    gpus=16,
    dp=4,
    tp=2,
    pp=2,
    cp=1,
    ep=None,
    interleave=1,
    micro_batch=2,
    global_batch=64,
    seq=2048,
    recompute="full",
    sequence_parallel=False,
    precision="fp16",
    sharding="none",
    software=Software("unfused", overlap_dp=False, overlap_tp=False),
    node_bytes_per_s=None,
    fp32_gradients=False,
    measured_s=1.0,
    out_of_memory=False,
    memory_gb=None,
)


@pytest.fixture(scope="module")
def report(data: Path) -> ValidationReport:
    return validate(load_cases(data / "training_open.json"))


def test_step_times_of_the_open_rows(report: ValidationReport):
    """The figures asked, with `hippo bench cost_model` for the rest."""
    several = errors([row for row in report.rows if row.family != "vtrain-single"], dict.fromkeys(known(report), 0))
    assert several.n > 380
    assert (several.mape or 1.0) <= 0.08
    assert (several.median or 1.0) <= 0.06
    assert (report.overall.mape or 1.0) <= 0.14
    assert (report.overall.median or 1.0) <= 0.09
    assert report.overall.refused == 0


def known(report: ValidationReport) -> list[str]:
    return [row.id for row in report.rows]


def test_memory_of_the_bigscience_rows(report: ValidationReport, data: Path):
    cases = {case.id: case for case in load_cases(data / "training_open.json") if case.family == "bigscience"}
    ours = [(row, cases[row.id]) for row in report.rows if row.id in cases]
    gaps = [abs((row.predicted_memory_gb or 0.0) / case.memory_gb - 1) for row, case in ours if case.memory_gb]
    assert len(gaps) == 42
    assert sum(gaps) / len(gaps) <= 0.10
    assert [row.id for row, case in ours if row.out_of_memory] == [case.id for _, case in ours if case.out_of_memory]


def test_zero_3_of_its_time_is_slow_for_its_gathers(report: ValidationReport):
    """Megatron-LM SC'21, table 2: twice the GPUs with half the micro-batch take the same 66.7 s."""
    zero = {row.id: row for row in report.rows if row.id in ("T0011", "T0012")}
    assert len(zero) == 2
    for row in zero.values():
        assert abs(row.error or 1.0) < 0.45
    times = [row.predicted_s or 0.0 for row in zero.values()]
    assert times[1] > 0.8 * times[0]


def test_the_document_has_the_contracts_keys(report: ValidationReport):
    document = report.document()
    assert {"n", "mape", "median", "bias", "pairs_right"} <= set(document["overall"])  # type: ignore[call-overload]
    rows = document["rows"]
    assert isinstance(rows, list)
    keys = {"id", "measured_s", "predicted_s", "predicted_memory_gb", "out_of_memory", "refused"}
    assert all(keys <= set(row) for row in rows)


def test_a_row_that_says_everything_leaves_one_plan():
    (plan,) = candidates(CASE)
    assert layout_of(plan).tp == 2
    assert plan.pipelines[0].num_micro_batches == 8
    assert [stage.layers for stage in plan.pipelines[0].stages] == [(0, 5), (5, 10)]
    assert (plan.schedule.name, plan.recompute, plan.sequence_parallel) == ("1f1b", "full", False)


def test_what_a_row_leaves_open_is_enumerated():
    assert {plan.recompute for plan in candidates(replace(CASE, recompute=None))} == {"none", "selective", "full"}
    assert {plan.micro_batch for plan in candidates(replace(CASE, micro_batch=None))} == {1, 2, 4, 8, 16}
    assert {plan.interleave for plan in candidates(replace(CASE, interleave=None))} == {1, 2, 4}
    degrees = {(layout_of(plan).tp, len(plan.pipelines[0].stages)) for plan in candidates(replace(CASE, tp=None))}
    assert degrees == {(2, 2)}  # the number of GPUs leaves no other
    free = candidates(replace(CASE, tp=None, pp=None, dp=None))
    assert {layout_of(plan).tp for plan in free} == {1, 2, 4, 8}


def test_of_what_fits_the_least_recomputation_and_then_the_quickest_is_taken():
    prediction = predict(replace(CASE, recompute=None, micro_batch=None))
    assert prediction.plan is not None
    assert prediction.plan.recompute == "none"
    times = [
        predict(replace(CASE, recompute="none", micro_batch=plan.micro_batch)).predicted_s
        for plan in candidates(replace(CASE, recompute="none", micro_batch=None))
    ]
    assert prediction.predicted_s == min(each for each in times if each is not None)


def test_a_layout_that_does_not_divide_is_refused():
    assert "do not divide" in (predict(replace(CASE, dp=3)).refused or "")


def test_a_case_that_was_refused_stays_refused():
    prediction = predict(replace(CASE, refusal="no sizes", model=None))
    assert (prediction.refused, prediction.predicted_s) == ("no sizes", None)


def test_too_large_a_case_is_flagged():
    huge = replace(CASE, model=model("gpt3-175b"), gpus=8, dp=1, tp=8, pp=1, global_batch=2)
    prediction = predict(huge)
    assert prediction.out_of_memory
    assert (prediction.predicted_memory_gb or 0.0) > 350


def test_nodes_of_a_case():
    assert cluster_of(CASE).domains[0].gpus_per_node == 8
    assert cluster_of(replace(CASE, gpus=4)).domains[0].gpus_per_node == 4
    racks = cluster_of(replace(CASE, gpu=gpu("GB200"), gpus=128)).domains[0]
    assert (racks.nodes, racks.gpus_per_node) == (2, 64)
    assert cluster_of(replace(CASE, node_bytes_per_s=1e9)).domains[0].inter_node_bytes_per_s == 1e9


def test_fp32_gradients_weigh_more():
    workload = problem_of(replace(CASE, fp32_gradients=True)).workload
    assert (workload.state_bytes_per_parameter, workload.gradient_bytes_per_parameter) == (18.0, 4.0)


def test_cuts_of_megatron():
    """12 blocks over 4: three each, the embedding and the head on top. 10 over 4: both count as layers."""
    even, odd = (gpt_model("m", layers=n, hidden=64, heads=1, vocab=64, seq=64) for n in (12, 10))
    assert cut(even, 4) == [(0, 4), (4, 7), (7, 10), (10, 14)]
    assert cut(odd, 4) == [(0, 3), (3, 6), (6, 9), (9, 12)]


def row(name: str, measured: float, predicted: float, **changes: object) -> Prediction:
    (plan,) = candidates(replace(CASE, **changes))  # type: ignore[arg-type]
    return Prediction(name, "ours", measured, predicted, None, None, None, plan)


def test_errors_by_hand():
    found = errors([row("a", 1.0, 1.1), row("b", 2.0, 1.6), row("c", 4.0, 4.4)], {"a": 1, "b": 2, "c": 3})
    assert found.mape == pytest.approx((0.1 + 0.2 + 0.1) / 3)
    assert found.median == pytest.approx(0.1)
    assert found.bias == pytest.approx(0.0, abs=1e-12)
    assert (found.pairs_right, found.pairs) == (None, 0)


def test_pairs_in_order():
    """Three runs, one pair wrong; a fourth measures the first again: it makes two pairs more, and one repeat."""
    runs = [row("a", 1.0, 1.0), row("b", 2.0, 3.0, micro_batch=4), row("c", 3.0, 2.0, micro_batch=8)]
    keys = dict.fromkeys("abcd", "same")
    found = errors(runs, keys)
    assert (found.pairs, found.repeats) == (3, 0)
    assert found.pairs_right == pytest.approx(2 / 3)
    again = errors([*runs, row("d", 1.1, 1.0)], keys)
    assert (again.pairs, again.repeats) == (5, 1)
    assert again.pairs_right == pytest.approx(4 / 5)
    tied = errors([runs[0], row("b", 2.0, 1.0, micro_batch=4)], keys)
    assert (tied.pairs, tied.pairs_right) == (1, 0.0)


def test_rows_are_compared_when_model_and_batch_are_the_same():
    assert comparison_key(CASE) == comparison_key(replace(CASE, tp=4, gpus=32, precision="bf16"))
    assert comparison_key(CASE) != comparison_key(replace(CASE, global_batch=128))
    assert comparison_key(CASE) != comparison_key(replace(CASE, family="theirs"))
    wider = gpt_model("small", layers=8, hidden=1024, heads=8, vocab=51200, seq=2048)
    assert comparison_key(CASE) != comparison_key(replace(CASE, model=wider))


def test_nothing_predicted_has_no_errors():
    found = errors([replace(row("a", 1.0, 1.0), predicted_s=None, refused="why")], {"a": 1})
    assert (found.n, found.mape, found.refused) == (0, None, 1)


def test_a_calibration_can_be_given():
    slow = replace(CALIBRATION, step_overhead_s=CALIBRATION.step_overhead_s + 1.0)
    gap = (predict(CASE, calibration=slow).predicted_s or 0.0) - (predict(CASE).predicted_s or 0.0)
    assert gap == pytest.approx(1.0)


def test_interleaving_shrinks_the_bubble_and_keeps_more():
    """Two stages, 8 micro-batches: a bubble of 1/8 of a stage's work, with two chunks of half the depth 1/16."""
    one, two = (predict(replace(CASE, interleave=chunks)) for chunks in (1, 2))
    work = (one.predicted_s or 0.0) - (two.predicted_s or 0.0)
    assert 0.02 < work / (one.predicted_s or 1.0) < 0.08
    assert (two.predicted_memory_gb or 0.0) > (one.predicted_memory_gb or 0.0)


def test_more_micro_batches_fill_the_pipeline():
    """Time per sequence falls: 1 + 1/m of the work for two stages."""
    few, many = (predict(replace(CASE, global_batch=batch)).predicted_s or 0.0 for batch in (16, 256))
    assert few / 16 > 1.3 * many / 256
