"""Measured pipelines with slow links, made here in the form of ``pipemorph_measured_pipelines.csv``."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from hippo.errors import InputError
from hippo.score import pipelines
from hippo.score.pipelines import MeasuredPipeline
from hippo.score.published import load, predict, validate

LOGGED = json.dumps({str(s): {"F": 10.0, "B": 11.0, "W": 9.0} for s in range(2)})
START = json.dumps({str(s): {"F": 10.0, "B": 10.0, "W": 10.0} for s in range(2)})
ROW = {
    "branch": "main",
    "experiment": "made",
    "model": "1B",
    "gpu": "H800",
    "method": "1F1B",
    "slow_links": "0_1",
    "delay_s": "0.05",
    "pp": "2",
    "tp": "1",
    "dp": "1",
    "micro_batch": "1",
    "global_batch": "4",
    "zb_mem_limit": "4",
    "healthy_ms_iters5to7": "300",
    "last5_mean_ms": "400",
    "last5_sd_ms": "2",
    "per_stage_FBW_ms": START,
    "planned_makespan_ms": "",
    "source": "made",
}


def read(folder: Path, *changes: dict[str, str]) -> tuple[MeasuredPipeline, ...]:
    rows = [ROW | change for change in changes]
    path = folder / "measured.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, dict.fromkeys(key for row in rows for key in row), restval="")
        writer.writeheader()
        writer.writerows(rows)
    return load(path)  # type: ignore[return-value]


def test_seconds_come_from_logged_rows_and_the_step_before_the_delay(tmp_path: Path) -> None:
    case, logged = read(tmp_path, {}, {"method": "ZB-CPU-ReSchedule", "per_stage_FBW_ms": LOGGED})
    assert case.shape == ((10.0, 10.0), (11.0, 11.0), (9.0, 9.0))  # 10 everywhere is the planner's start value
    assert (case.healthy_s, case.delays, case.micro_batches) == (0.3, (0.05,), 4)
    assert logged.key == case.key


def test_by_hand(tmp_path: Path) -> None:
    """Two stages, four micro-batches; F 20 ms and B with W 40 ms, so that the step of five turns lasts 300 ms."""
    cases = read(tmp_path, {"per_stage_FBW_ms": LOGGED}, {"slow_links": "", "delay_s": ""})
    slow, healthy = (predict(case).predicted_s for case in cases)
    assert healthy == pytest.approx(0.3)
    # Megatron-LM's calls: F0 goes 20-70, F1 and B0 meet when both ranks are ready, at 130, and cross until 180.
    # rank 0: F0 0-20 F1 70-90   |  B0 180-220 F2 220-240  |  B1 290-330 F3 330-350  |  B2 400-440   |  B3 510-550
    # rank 1: F0 70-90 B0 90-130 |  F1 180-200 B1 200-240  |  F2 290-310 B2 310-350  |  F3 400-420 B3 420-460
    assert slow == pytest.approx(0.55)


def test_a_delay_in_the_stream_queues_and_one_in_another_process_does_not(tmp_path: Path) -> None:
    changes = {"delay_s": "0.2", "global_batch": "8", "per_stage_FBW_ms": LOGGED}
    queues, late = read(tmp_path, changes | {"method": "ZB"}, changes | {"method": "ZB-CPU"})
    assert pipelines.step_seconds(queues) > 1.1 * pipelines.step_seconds(late)


FOUR = {
    "pp": "4",
    "method": "1F1B",
    "per_stage_FBW_ms": json.dumps({str(s): {"F": 10.0, "B": 11.0, "W": 9.0} for s in range(4)}),
}


def test_a_batched_send_to_stage_1_sleeps_where_the_link_behind_its_sender_is_slow(tmp_path: Path) -> None:
    """The injector reads rank 1 of the communicator of all stages as the stage behind."""
    last, first = read(tmp_path, FOUR | {"slow_links": "2_3"}, FOUR | {"slow_links": "0_1"})
    no_mistake = pipelines.METHODS["1F1B"]._replace(batched=False)
    seconds = [pipelines.step_seconds(case) for case in (last, first)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipelines, "METHODS", {"1F1B": no_mistake})
        plain = [pipelines.step_seconds(case) for case in (last, first)]
    assert seconds[0] > plain[0] + 3 * 0.05  # at every backward that stage 2 hands on but the first
    assert seconds[1] == pytest.approx(plain[1])


def test_a_message_by_cpu_takes_what_the_row_that_always_sends_so_takes_longer(tmp_path: Path) -> None:
    alike = {"per_stage_FBW_ms": LOGGED, "global_batch": "8"}
    gpu_only, always, slowed, unknown = read(
        tmp_path,
        alike | {"method": "ZB"},
        alike | {"method": "ALL-CPU", "slow_links": "", "healthy_ms_iters5to7": "330"},
        alike | {"method": "ZB-CPU", "delay_s": "0.001"},
        alike | {"method": "ZB-CPU", "delay_s": "0.001", "global_batch": "4"},
    )
    assert [gpu_only.by_cpu_ratio, always.by_cpu_ratio] == pytest.approx([1.1, 1.1])
    assert pipelines.step_seconds(always) == pytest.approx(0.33)
    assert 0.33 <= pipelines.step_seconds(slowed) < 0.34
    assert unknown.by_cpu_ratio == 1.0
    assert pipelines.step_seconds(unknown) < 0.304


def test_the_step_before_is_the_median_of_rows_that_then_ran_alike(tmp_path: Path) -> None:
    alike = {"per_stage_FBW_ms": LOGGED}
    steps = {"ZB": "300", "ZB-CPU": "310", "ZB-CPU-ReSchedule": "500", "1F1B": "400"}
    cases = read(tmp_path, *(alike | {"method": name, "healthy_ms_iters5to7": step} for name, step in steps.items()))
    assert [case.healthy_s for case in cases] == [0.31, 0.31, 0.31, 0.4]


def test_work_waits_behind_a_send_that_sleeps(tmp_path: Path) -> None:
    """A delay so short that the stream alone would hide a part of it."""
    (case,) = read(tmp_path, {"method": "ZB", "per_stage_FBW_ms": LOGGED, "delay_s": "0.005"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipelines, "METHODS", {"ZB": pipelines.METHODS["ZB"]._replace(one_queue=False)})
        hidden = pipelines.step_seconds(case)
    assert pipelines.step_seconds(case) > hidden


def test_pairs_are_methods_on_the_same_links_and_clear_by_three_deviations(tmp_path: Path) -> None:
    alike = {"per_stage_FBW_ms": LOGGED}
    report = validate(
        read(
            tmp_path,
            alike,
            alike | {"method": "ZB", "last5_mean_ms": "403"},
            alike | {"method": "ZB-CPU", "last5_mean_ms": "300"},
            alike | {"method": "ZB-CPU", "delay_s": "0.01"},
        )
    )
    assert (report.overall.n, report.overall.pairs, report.overall.clear_pairs) == (4, 3, 2)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"last5_mean_ms": ""}, "the row does not give last5_mean_ms"),
        ({"method": "DualPipe"}, "method DualPipe is not one of"),
        ({"slow_links": "0_2"}, "slow_links 0_2 joins no two neighbours"),
        ({"delay_s": "fast"}, "delay_s is not a number"),
        ({"delay_s": "-0.01"}, "delay_s is -0.01"),
        ({"delay_s": "50"}, "delay_s is 50, more than 1: are these milliseconds?"),
        ({"gpu": "Z9"}, "gpu Z9 is not known"),
        ({"global_batch": "1000000"}, "1000000 micro-batches over 2 stages"),
        ({"method": "ZB", "zb_mem_limit": "0.5"}, "the limit is 0.5"),
        ({"pp": "3"}, "no row of this model logs F, B and W of each stage"),
        ({"model": "9B"}, "no row of this model logs F, B and W of each stage"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_a_row_that_cannot_be_read_is_refused_with_its_reason(
    tmp_path: Path, change: dict[str, str], told: str
) -> None:
    good, wrong = read(tmp_path, {"per_stage_FBW_ms": LOGGED}, change)
    assert good.refusal is None
    assert told in (predict(wrong).refused or "")
    assert predict(wrong).predicted_s is None


def test_other_columns(tmp_path: Path) -> None:
    _, more = read(tmp_path, {"per_stage_FBW_ms": LOGGED}, {"last5_mean_s": "0.4"})
    assert validate((more,)).unknown == {"last5_mean_s": 1}
    path = tmp_path / "other.csv"
    path.write_text("method,pp\n1F1B,2\n")
    with pytest.raises(InputError, match="healthy_ms_iters5to7"):
        load(path)
