from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.errors import InputError
from hippo.jobs.placement.models import TABLE, Training, problem, smaller, training
from hippo.jobs.placement.step_time import part
from hippo.planners.base import Status, Stop
from hippo.planners.exact.search import Exact
from hippo.problem.catalogue.models import MODELS
from hippo.problem.gpus import GPUS

from .worlds import cluster

BY_NAME = {gpu.name: gpu for gpu in GPUS.values()}

CARDS = [("V100-SXM2-16GB", 32), pytest.param("A100-SXM-80GB", 80, marks=pytest.mark.slow)]
"""The second has more room for the same."""


def fits(wanted: Training, gpu_name: str, memory_gb: float, devices: int) -> bool:
    """Whether the exact search finds any plan on so many devices of one domain."""
    world = cluster("a")
    gpu = replace(BY_NAME[gpu_name], memory_bytes=memory_gb * 1e9)
    alone = replace(world, gpu=gpu, domains=(part(world.domains[0], devices),))
    return Exact().propose(problem(wanted, alone), Stop(5.0, 0.5)).status is not Status.INFEASIBLE


@pytest.mark.parametrize("row", [row for row in TABLE if row.devices], ids=lambda row: f"{row.devices}")
@pytest.mark.parametrize(("gpu", "memory_gb"), CARDS)
def test_every_model_fits_into_its_devices(row: Training, gpu: str, memory_gb: float):
    assert fits(row, gpu, memory_gb, row.devices)


def test_a_small_card_holds_the_next_smaller_model():
    first, second = training(1), smaller(training(1))
    assert second is not None
    assert not fits(first, "V100-SXM2-16GB", 16, 1)
    assert fits(second, "V100-SXM2-16GB", 16, 1)


def test_models_grow_with_the_job():
    sizes = [MODELS[row.model].parameters for row in TABLE]
    assert sizes == sorted(sizes)
    assert [training(devices).devices for devices in (1, 3, 8, 63, 64, 100_000)] == [1, 2, 8, 32, 64, 512]


def test_states_take_half_of_a_32_gb_card():
    """16 bytes per parameter, spread over the devices."""
    gb = {row.devices: 16 * MODELS[row.model].parameters / row.devices / 1e9 for row in TABLE if row.devices}
    assert max(gb.values()) == pytest.approx(19.8, abs=0.1)
    assert min(gb.values()) == pytest.approx(10.9, abs=0.1)


def test_a_named_model_is_trained_with_the_batch_of_its_size():
    named = training(4, "gpt3-6.7b")
    assert (named.model, named.global_batch, named.seq) == ("gpt3-6.7b", 384, 2048)  # as llama-3-8b, its own positions


def test_nothing_is_smaller_than_the_smallest():
    assert smaller(TABLE[0]) is None


def test_a_model_that_nobody_knows_is_refused():
    with pytest.raises(InputError, match="unknown model 'llama-9'"):
        training(4, "llama-9")
