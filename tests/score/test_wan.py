"""Rows over several places, made here in the form of ``geo_open.json``: read, placed, predicted, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hippo.cost.calibration import CALIBRATION
from hippo.cost.cost_model import CostModel
from hippo.errors import InputError
from hippo.score import wan
from hippo.score.cases import PublishedRun
from hippo.score.published import cut, load, predict, problem_of, reaching, validate
from hippo.simulate import fast
from hippo.simulate.lower import lower

ROW = {
    "id": "one",
    "case": 1,
    "method": "megatron_p4",
    "layers": 4,
    "hidden": 512,
    "heads": 8,
    "seq": 512,
    "micro_batch": 1,
    "global_batch": 16,
    "gpus": 8,
    "gpu_type": "V100-SXM2-16GB",
    "precision": "fp16",
    "recompute": "full (as counted)",
    "seconds_per_iter": [1.0],
    "mean_s": 1.0,
    "layout": "tp1 pp4 dp2",
}
SHUFFLED = ROW | {
    "id": "two",
    "method": "megatron_p4_nosched",
    "layout": "tp1 pp4 dp2 random placement",
    "seconds_per_iter": [1.5, 2.5],
    "mean_s": 2.0,
}
OURS = ROW | {"id": "three", "method": "ours_sched", "layout": "pp4 dp2 scheduled placement"}
TWO = {
    "regions": ["east", "west"],
    "gpus_per_region": 4,
    "delay_ms": [[1.0, 40.0], [40.0, 1.0]],
    "bw_gbps": [[5.0, 0.5], [0.5, 5.0]],
}
INSTANCES = {
    "blocks": "1 instance of 4 GPUs, then 4 of 1 GPU",
    "delay_ms_within": 0,
    "delay_ms_between": 0,
    "bw_gbps_within": 100.0,
    "bw_gbps_between": 1.25,
}


def read(folder: Path, *rows: dict[str, Any], cases: dict[str, Any] | None = None) -> tuple[PublishedRun, ...]:
    (folder / "geo_open.json").write_text(json.dumps({"source": "made", "rows": rows}))
    (folder / "wan_dtfm.json").write_text(json.dumps({"cases": {"1": TWO} if cases is None else cases}))
    found = load(folder / "geo_open.json")
    assert all(isinstance(case, PublishedRun) for case in found)
    return found  # type: ignore[return-value]


def test_what_joins_the_places_is_said_once_and_a_delay_passes_one_way(tmp_path: Path) -> None:
    (case,) = read(tmp_path, ROW)
    assert case.cluster is not None
    link = case.cluster.link("east", "west")
    assert link is not None
    assert (link.latency_s, link.per_node_bytes_per_s, link.bandwidth_bytes_per_s) == (0.04, 0.5e9 / 8, None)
    assert case.cluster.domain("east").inter_node_bytes_per_s == 5e9 / 8
    assert (case.family, case.runtime, case.schedule, case.apart) == ("geo-1", "megatron", "1f1b", False)


def test_instances_of_two_sizes_are_two_places(tmp_path: Path) -> None:
    (case,) = read(tmp_path, ROW, cases={"1": INSTANCES})
    assert case.cluster is not None
    sizes = [(each.nodes, each.gpus_per_node, each.inter_node_bytes_per_s) for each in case.cluster.domains]
    assert sizes == [(1, 4, 5e9 / 8), (4, 1, 1.25e9 / 8)]
    assert case.cluster.domains[0].intra_node_bytes_per_s == case.gpu.nvlink_bytes_per_s  # by the data sheet


def test_ranks_lie_in_order_or_shuffled_by_a_seed(tmp_path: Path) -> None:
    ordered, shuffled = read(tmp_path, ROW, SHUFFLED)
    assert ordered.model is not None
    stages = cut(ordered.model, 4)
    (plan,) = wan.plans(ordered, stages)
    assert [stage.domain for stage in plan.pipelines[0].stages] == ["east", "east", "west", "west"]
    assert plan.sync.all_reduce == "ring"
    drawn = list(wan.plans(shuffled, stages))
    assert len(drawn) == wan.DRAWS
    assert drawn == list(wan.plans(shuffled, stages))
    assert len(set(drawn)) > 1
    for plan in drawn[:5]:
        devices = [each for line in plan.pipelines for stage in line.stages for each in stage.devices]
        assert sorted(devices) == sorted(f"{name}/{node}/0" for name in ("east", "west") for node in range(4))


def test_a_scheduled_placement_hands_on_along_the_cheapest_tour(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    near = {("a", "c"), ("c", "b"), ("b", "d")}
    delay = [[1.0 if {(x, y), (y, x)} & near else 50.0 for y in names] for x in names]
    four = {"regions": names, "gpus_per_region": 2, "delay_ms": delay, "bw_gbps": [[1.0] * 4] * 4}
    (case,) = read(tmp_path, OURS, cases={"1": four})
    assert case.model is not None
    (plan,) = wan.plans(case, cut(case.model, 4))
    assert [stage.domain for stage in plan.pipelines[0].stages] in (["a", "c", "b", "d"], ["d", "b", "c", "a"])


def test_a_random_placement_is_the_mean_over_its_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wan, "DRAWS", 4)
    (case,) = read(tmp_path, SHUFFLED | {"global_batch": 256})
    predicted = predict(case).predicted_s
    assert predicted is not None
    assert case.model is not None
    problem = problem_of(case)
    cost = CostModel(problem, reaching(case, CALIBRATION))
    whole = [fast.step_time(lower(problem, plan, cost=cost)) for plan in wan.plans(case, cut(case.model, 4))]
    assert predicted == pytest.approx(float(np.mean(whole)), rel=0.01)


def test_rows_of_the_authors_own_system_are_shown_apart(tmp_path: Path) -> None:
    report = validate(read(tmp_path, ROW, OURS))
    assert report.overall.n == 1
    assert report.apart is not None
    assert report.together is not None
    assert (report.apart.n, report.together.n, set(report.families)) == (1, 2, {"geo-1", "geo-1-ours"})
    assert {"apart", "together"} <= set(report.document())


def test_what_a_row_lacks_refuses_it_and_a_column_that_nothing_reads_is_counted(tmp_path: Path) -> None:
    renamed = {key: value for key, value in ROW.items() if key != "mean_s"} | {"mean_ms": 1000.0}
    report = validate(read(tmp_path, renamed, ROW | {"case": 7}, ROW | {"mean_s": 0}, ROW | {"layout": "pp3 dp2"}))
    assert [row.refused for row in report.rows] == [
        "the row does not give mean_s",
        "wan_dtfm.json does not say what joins the 8 GPUs of case 7",
        "mean_s is not a positive number of seconds",
        "the layout does not divide the GPUs and the batch",
    ]
    assert report.unknown == {"mean_ms": 1}


def test_a_row_of_another_method_or_gpu_is_counted_and_named_and_the_others_are_read(tmp_path: Path) -> None:
    report = validate(read(tmp_path, ROW, ROW | {"method": "alpa"}, ROW | {"gpu_type": "Z9"}))
    assert [row.refused for row in report.rows] == [
        None,
        "method alpa is neither megatron nor ours",
        "gpu_type Z9 is not known",
    ]


def test_a_mean_in_another_unit_than_the_steps_that_it_is_of_is_counted_and_named(tmp_path: Path) -> None:
    report = validate(read(tmp_path, ROW | {"mean_s": 1000.0}, ROW | {"seconds_per_iter": ["1 s"]}))
    assert [row.refused for row in report.rows] == [
        "mean_s is not the mean of seconds_per_iter",
        "seconds_per_iter is no list of seconds",
    ]


def test_a_row_that_is_no_object(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"rows\[1\]: a row must be an object"):
        read(tmp_path, ROW, 3)  # type: ignore[arg-type]


def test_without_the_networks_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "geo_open.json").write_text(json.dumps({"rows": [ROW]}))
    with pytest.raises(InputError, match=r"the networks of these rows are missing.*put wan_dtfm.json beside geo_open"):
        load(tmp_path / "geo_open.json")
