"""Clusters from YAML: units converted once, mistakes answered with the right key."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from tests.strategies import clusters

from hippo.errors import InputError
from hippo.files import json_text
from hippo.problem.cluster import Cluster, Link
from hippo.problem.cluster_yaml import cluster_from_document, cluster_to_document
from hippo.problem.document import parse_yaml
from hippo.problem.gpus import gpu

SMALL = """
gpu: A100-SXM-80GB
domains:
  - {name: east, nodes: 2, gpus_per_node: 8}
  - {name: west, nodes: 1, gpus_per_node: 4, intra_node_gbps: 256, inter_node_gbps: 100, inter_node_latency_us: 20}
links:
  - {from: east, to: west, bandwidth_gbps: 4, latency_ms: 25, price_usd_per_gb: 0.02, both: true}
"""


def read(text: str) -> Cluster:
    return cluster_from_document(parse_yaml(text, "c.yaml"), source="c.yaml", name="c")


@pytest.mark.parametrize(("family", "meant"), [("hoper", "hopper"), ("Hopper", "hopper"), ("ampre", "ampere")])
def test_a_misspelt_gpu_family_is_refused_with_the_known_ones(family: str, meant: str) -> None:
    own = f"gpu: {{like: A100, family: {family}}}"
    with pytest.raises(InputError) as caught:
        read(SMALL.replace("gpu: A100-SXM-80GB", own))
    said = f"c.yaml: gpu.family: unknown GPU family '{family}'. To fix: did you mean '{meant}'"
    assert str(caught.value).startswith(said)
    assert "use one of ada, ampere, ascend, blackwell, blackwell-ultra, cdna3, hopper, tpu, volta" in str(caught.value)


@pytest.mark.parametrize("family", ["cdna4", "rdna3", "turing", "trainium2", "tpu-v5p", "hopper"])
def test_a_gpu_of_ones_own_may_be_of_any_family(family: str) -> None:
    assert read(SMALL.replace("gpu: A100-SXM-80GB", f"gpu: {{like: A100, family: {family}}}")).gpu.family == family


def test_units_are_converted_and_defaults_filled() -> None:
    found = read(SMALL)
    east, west = found.domains
    assert (found.name, found.source, found.gpu, found.gpus) == ("c", "c.yaml", gpu("A100-SXM-80GB"), 20)
    assert (east.intra_node_bytes_per_s, east.inter_node_bytes_per_s) == (300e9, 200e9)
    assert east.inter_node_latency_s == pytest.approx(5e-6)
    assert (west.intra_node_bytes_per_s, west.inter_node_bytes_per_s) == (32e9, 12.5e9)
    assert west.inter_node_latency_s == pytest.approx(20e-6)
    assert found.links == (Link("east", "west", 5e8, 0.025, 0.02), Link("west", "east", 5e8, 0.025, 0.02))


def test_either_bandwidth_may_stand_alone_and_links_may_be_empty() -> None:
    capped = read(SMALL.replace("bandwidth_gbps: 4", "per_node_gbps: 5"))
    assert capped.links[0].bandwidth_bytes_per_s is None
    assert capped.links[0].rate_bytes_per_s(2) == 2 * 5e9 / 8
    alone = read("gpu: H100\ndomains: [{name: a, nodes: 1, gpus_per_node: 8}]")
    assert alone.links == ()
    assert alone.gpu.name == "H100-SXM-80GB"


def test_a_gpu_may_be_described_or_likened() -> None:
    own = """
gpu: {name: mine, peak_tflops: {bf16: 100, fp8: 200}, memory_gb: 64, hbm_gb_per_s: 1600, nvlink_gb_per_s: 196,
      price_usd_per_hour: 1.5, node_gbps: 200}
domains: [{name: a, nodes: 1, gpus_per_node: 8}]
"""
    mine = read(own).gpu
    assert dict(mine.peak_flops) == {"bf16": 1e14, "fp8": 2e14}
    assert (mine.memory_bytes, mine.nvlink_bytes_per_s, mine.node_bytes_per_s) == (64e9, 196e9, 25e9)
    cheap = read("gpu: {like: H100, price_usd_per_hour: 2}\ndomains: [{name: a, nodes: 1, gpus_per_node: 8}]").gpu
    assert cheap.price_usd_per_hour == 2.0
    assert (cheap.name, cheap.peak_flops) == ("H100-SXM-80GB", gpu("H100").peak_flops)


def test_dynamics() -> None:
    found = read(SMALL + "dynamics: {swing: 0.2, outages_per_day: 1}\n").dynamics
    assert (found.swing, found.outages_per_day, found.sigma) == (0.2, 1.0, 0.1)


@given(clusters())
def test_a_cluster_is_read_as_it_was_written(cluster: Cluster) -> None:
    document = json.loads(json_text(cluster_to_document(cluster)))
    assert cluster_from_document(document, source="c.yaml", name="c") == cluster


def document() -> dict[str, Any]:
    found = parse_yaml(SMALL, "c.yaml")
    assert isinstance(found, dict)
    return found


BAD_VALUES = [math.nan, math.inf, -math.inf, -1, 0, "4", "4 Gbps", True, [4], {"a": 4}, None, 10**400, 1e300]


@pytest.mark.parametrize("value", BAD_VALUES, ids=repr)
@pytest.mark.parametrize("key", ["bandwidth_gbps", "nodes", "gpus_per_node", "inter_node_gbps", "latency_ms"])
def test_numbers_that_are_none_are_refused(key: str, value: object) -> None:
    edited = document()
    row = edited["links"][0] if key in edited["links"][0] else edited["domains"][1]
    row[key] = value
    optional = value is None and key == "inter_node_gbps"
    if optional or (key == "latency_ms" and value == 0 and value is not False and not isinstance(value, str)):
        cluster_from_document(edited, source="c.yaml", name="c")
        return
    with pytest.raises(InputError, match=key) as caught:
        cluster_from_document(edited, source="c.yaml", name="c")
    assert "c.yaml" in str(caught.value)
    assert "To fix: " in str(caught.value)
    assert len(str(caught.value)) < 600
