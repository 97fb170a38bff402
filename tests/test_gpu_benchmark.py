"""`hippo bench gpu`: one part's fault is its own. What the parts measure needs a GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from .scripts import script

gpu = script("benchmarks/gpu.py")
Row = dict[str, Any]


def good() -> Iterator[Row]:
    yield {"gb_s": 1.0}


def broken() -> Iterator[Row]:
    yield {"gb_s": 2.0}
    raise RuntimeError("no such kernel")


def long() -> Iterator[Row]:
    time.sleep(60.0)
    yield {}


def test_a_part_that_fails_or_takes_too_long_keeps_none_from_being_measured():
    found = list(gpu.rows({"broken": broken, "long": long, "good": good}, seconds=1))
    assert found == [
        {"part": "broken", "gb_s": 2.0},
        {"part": "broken", "failed": "RuntimeError: no such kernel"},
        {"part": "long", "failed": "TimeoutError: took more than 1 s"},
        {"part": "good", "gb_s": 1.0},
    ]


def test_its_plans_hold_every_layer_and_sequence_once():
    asked, plan = gpu.problem("gpt3-350m", 16), gpu.one_stage("gpt3-350m", 16, 4)
    (pipeline,) = plan.pipelines
    assert pipeline.num_micro_batches * plan.micro_batch == asked.workload.global_batch
    assert [stage.layers for stage in pipeline.stages] == [(0, len(asked.model.layers))]
