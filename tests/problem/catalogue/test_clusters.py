"""Clusters of the catalogue: measured figures are the published ones, assumed ones say so and can be recomputed."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from hippo.errors import UnknownNameError
from hippo.problem.catalogue.clusters import CLUSTERS, cluster
from hippo.problem.cluster_yaml import cluster_from_document, cluster_to_document
from hippo.problem.gpus import GPUS

# Latitude and longitude of the cities, degrees.
CITIES = {
    "zhangjiakou": (40.77, 114.88),
    "wuhu": (31.35, 118.43),
    "guian": (26.40, 106.45),
    "zhongwei": (37.50, 105.19),
}


def distance_km(one: str, two: str) -> float:
    """Great-circle distance on a sphere of 6371 km (haversine)."""
    (p, a), (q, b) = (map(math.radians, CITIES[name]) for name in (one, two))
    half = math.sin((q - p) / 2) ** 2 + math.cos(p) * math.cos(q) * math.sin((b - a) / 2) ** 2
    return 2 * 6371 * math.asin(math.sqrt(half))


def test_names_whatever_their_case() -> None:
    assert set(CLUSTERS) == {"four-hubs", "three-aws-regions", "twelve-cloud-regions", "toy"}
    assert all(cluster(name.title()) is each and each.name == name for name, each in CLUSTERS.items())
    with pytest.raises(UnknownNameError, match="did you mean 'four-hubs'"):
        cluster("five-hubs")


@pytest.mark.parametrize("each", CLUSTERS.values(), ids=lambda each: each.name)
def test_every_figure_has_its_source(each) -> None:  # type: ignore[no-untyped-def]
    assert GPUS[each.gpu.name] == each.gpu
    assert each.gpu.source
    if each.name == "toy":
        assert each.source == "invented, with round numbers"
        return
    # Where from, and a word for every kind of figure: measured or assumed.
    assert re.search(r"huaxin\.phei\.com\.cn|skyplane-project/skyplane", each.source)
    assert "Assumed: " in each.source
    for kind in ("atency", "Gbit/s|throughput", "USD/GB|cost", "8 nodes of 8 A100-SXM-80GB"):
        assert re.search(kind, each.source), kind
    assert all((domain.nodes, domain.gpus_per_node) == (8, 8) for domain in each.domains)


@pytest.mark.parametrize("each", CLUSTERS.values(), ids=lambda each: each.name)
def test_a_cluster_survives_writing_and_reading(each) -> None:  # type: ignore[no-untyped-def]
    assert cluster_from_document(json.loads(json.dumps(cluster_to_document(each))), source="x", name="x") == each


def test_the_aws_regions_are_three_of_the_twelve() -> None:
    few, many = cluster("three-aws-regions"), cluster("twelve-cloud-regions")
    assert [domain.name for domain in few.domains] == ["aws-us-east-1", "aws-us-west-2", "aws-eu-central-1"]
    assert set(few.links) <= set(many.links)
    assert len(few.links) == 6
    assert set(few.domains) <= set(many.domains)


def test_the_cloud_regions_are_the_measured_ones(data: Path) -> None:
    measured = json.loads((data / "wan_regions.json").read_text())
    names = [region.replace(":", "-").removesuffix("-a") for region in measured["regions"]]
    found = cluster("twelve-cloud-regions")
    assert [domain.name for domain in found.domains] == names
    assert len(found.links) == 12 * 11
    for link in found.links:
        i, j = names.index(link.source), names.index(link.destination)
        assert link.per_node_bytes_per_s == pytest.approx(measured["bandwidth_gbps"][i][j] * 1e9 / 8)
        assert link.latency_s == pytest.approx(measured["rtt_ms"][i][j] / 2e3)
        assert link.price_usd_per_gb == measured["egress_usd_per_gb"][i][j]
        assert link.bandwidth_bytes_per_s is None


def test_the_hubs_follow_from_their_distances(data: Path) -> None:
    named = json.dumps(json.loads((data / "dongshuxisuan.json").read_text()), ensure_ascii=False).lower()
    found = cluster("four-hubs")
    assert all(domain.name.replace("guian", "gui'an") in named for domain in found.domains)
    assert len(found.links) == 12
    for link in found.links:
        assert link.bandwidth_bytes_per_s is not None
        assert 1.0 <= link.bandwidth_bytes_per_s * 8 / 1e9 <= 5.0
        distance = distance_km(link.source, link.destination)
        assert link.latency_s == pytest.approx(0.010 + 10e-6 * distance, rel=0.02)
        back = found.link(link.destination, link.source)
        assert back is not None
        assert (back.latency_s, back.bandwidth_bytes_per_s) == (link.latency_s, link.bandwidth_bytes_per_s)
        assert link.price_usd_per_gb == 0.02
    near = sorted(found.links, key=lambda link: distance_km(link.source, link.destination))
    assert near[0].bandwidth_bytes_per_s >= near[-1].bandwidth_bytes_per_s  # type: ignore[operator]
