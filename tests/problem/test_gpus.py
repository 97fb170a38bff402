"""GPU types against the collected facts, and every spelling of the published rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hippo.errors import UnknownNameError
from hippo.problem.gpus import ALIASES, GPUS, gpu

FACTS = {
    "bf16_dense_tflops": lambda card: card.peak_flops["bf16"] / 1e12,
    "mem_gb": lambda card: card.memory_bytes / 1e9,
    "hbm_gbps": lambda card: card.hbm_bytes_per_s / 1e9,
    "nvlink_gbps_bidir": lambda card: 2 * card.nvlink_bytes_per_s / 1e9,
}


@pytest.mark.parametrize("spelling", ["h100-sxm", "H100 SXM5", "NVIDIA H100-SXM-80GB", "h100", " H100-80gb "])
def test_a_name_has_many_spellings(spelling: str):
    assert gpu(spelling).name == "H100-SXM-80GB"


def test_an_unknown_type_may_be_described():
    with pytest.raises(UnknownNameError, match=r"unknown gpu 'TPU v4'.*or write a mapping of its figures"):
        gpu("TPU v4")


def test_every_figure_that_the_facts_are_sure_of(data: Path):
    compared = 0
    for fact in json.loads((data / "gpu_facts.json").read_text()):
        if fact["gpu"].startswith("Ascend"):  # its sources contradict each other: not in the catalogue
            continue
        card = gpu(fact["gpu"])
        for key, of in FACTS.items():
            if isinstance(fact[key], int | float):
                assert of(card) == pytest.approx(fact[key]), (fact["gpu"], key)
                compared += 1
    assert compared >= 20


def test_every_spelling_of_the_published_rows_is_known(data: Path):
    spellings = {row["gpu_type"] for row in json.loads((data / "training_open.json").read_text())}
    assert len(spellings) > 10
    for name in spellings:
        assert gpu(name).name in GPUS


@pytest.mark.parametrize("name", sorted(GPUS))
def test_figures_are_plausible(name: str):
    card = GPUS[name]
    assert card.name == name
    assert card.source
    assert card.price_usd_per_hour > 0
    assert card.family
    assert card.node_bytes_per_s is not None
    assert card.nvlink_bytes_per_s * card.nvlink_domain >= card.node_bytes_per_s  # NVLink outruns the network
    assert card.peak_flops["fp32"] < card.peak_flops["bf16"] < card.hbm_bytes_per_s * 1000
    assert card.peak_flops.get("fp8", card.peak_flops["bf16"]) >= card.peak_flops["bf16"]


def test_aliases_lead_to_gpus_and_hide_none():
    assert set(ALIASES.values()) <= set(GPUS)
    assert not set(ALIASES) & set(GPUS)
    assert gpu("H100") is GPUS["H100-SXM-80GB"]


def test_an_unknown_gpu_is_refused_with_the_known_ones():
    with pytest.raises(UnknownNameError, match="A100-SXM-80GB"):
        gpu("A1000")
