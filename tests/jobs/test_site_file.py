"""Files of agents: devices of any kind, checked key by key."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.jobs.site_file import is_planned, load_site, site_from_document

MIXED = """
name: mixed
agents:
  - {domain: east, kind: A100, nodes: 10, per_node: 8}
  - {domain: east, kind: cpu, nodes: 4, per_node: 64, speed: 0.02, memory_gb: 8}
  - {domain: west, kind: npu, nodes: 2, per_node: 8, speed: 0.5}
links:
  - {from: east, to: west, bandwidth_gbps: 8, latency_ms: 20, both: true}
"""


def test_a_file_of_agents_is_a_site(tmp_path: Path):
    file = tmp_path / "mixed.yaml"
    file.write_text(MIXED)
    site, cluster = load_site(str(file))
    assert [(pool.domain, pool.kind, pool.devices, pool.speed, pool.memory_gb) for pool in site.pools] == [
        ("east", "A100-SXM-80GB", 80, 1.0, 80.0),
        ("east", "cpu", 256, 0.02, 8.0),
        ("west", "npu", 16, 0.5, math.inf),
    ]
    assert site.bandwidth_bytes_per_s == ((math.inf, 1e9), (1e9, math.inf))
    assert site.latency_s[0][1] == pytest.approx(0.02)
    assert (site.name, cluster.name, [domain.name for domain in cluster.domains]) == (
        "mixed",
        "mixed",
        ["east", "west"],
    )
    assert not is_planned(site, cluster)


def test_a_cluster_by_name_is_a_site_too():
    site, cluster = load_site("toy")
    assert site.devices == cluster.gpus == 16
    assert is_planned(site, cluster)


NET = "time_s,src,dst,bandwidth_gbps,latency_ms\n0,east,west,4,20\n0,west,east,2,20\n60,east,west,0,20\n"


@pytest.mark.parametrize("cluster", ["toy", "mixed.yaml"])
def test_links_move_as_a_network_trace_says(tmp_path: Path, cluster: str):
    (tmp_path / "mixed.yaml").write_text(MIXED)
    (tmp_path / "net.csv").write_text(NET)
    site, _ = load_site(tmp_path / cluster if cluster != "toy" else cluster, tmp_path / "net.csv")
    assert site.history is not None
    assert [site.history.at(time_s)[0, 1] for time_s in (0, 59, 60)] == [5e8, 5e8, 0]
    assert site.history.at(1e9)[1, 0] == 2.5e8
    assert site.bandwidth_bytes_per_s[0][1] == 1e9


def test_the_network_of_the_examples_moves():
    examples = Path(__file__).parents[2] / "examples"
    site, _ = load_site(examples / "four-by-eighty.yaml", examples / "four-by-eighty-moving.csv")
    assert site.history is not None
    carried = site.history.bandwidth_bytes_per_s[:, ~np.eye(4, dtype=bool)]
    assert carried[0].min() > 0
    assert (carried == 0).any()
    assert carried.std(axis=0).min() > 0.1e9


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (NET.replace("0,west,east,2,20\n", ""), "no value at the trace's first time, 0 s, for west,east"),
        (NET + "60,east,south,1,1\n", "line 5, dst: unknown domain 'south'"),
        (NET.replace("60,east,west,0", "60,east,west,-1"), "line 4, bandwidth_gbps: must be a finite number"),
    ],
)
def test_a_network_that_does_not_suit_the_site_is_refused(tmp_path: Path, network: str, told: str):
    (tmp_path / "net.csv").write_text(network)
    with pytest.raises(InputError, match=told):
        load_site("toy", tmp_path / "net.csv")


LINE = {"domain": "a", "kind": "gpu", "nodes": 1, "per_node": 1}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"agents": []}, "agents: is empty"),
        ({"agents": [{**LINE, "nodes": 0}]}, "agents[0].nodes"),
        ({"agents": [{**LINE, "speed": -1}]}, "agents[0].speed"),
        ({"agents": [{**LINE, "speed": "fast"}]}, "must be a number"),
        ({"agents": [{**LINE, "gpus_per_node": 8}]}, "write nodes and per_node"),
        ({"agents": [{key: LINE[key] for key in ("domain", "kind", "nodes")}]}, "per_node: is missing"),
        ({"agents": [LINE, LINE]}, "has this kind already"),
        ({"agents": [LINE], "domains": []}, "unknown key 'domains'"),
        ({"agents": [LINE], "links": [{"from": "a", "to": "b", "bandwidth_gbps": 1, "latency_ms": 1}]}, "links[0].to"),
        ({"agents": "gpu"}, "must be a list"),
    ],
)
def test_what_is_wrong_is_named(document: object, words: str):
    with pytest.raises(InputError) as caught:
        site_from_document(document, source="agents.yaml", name="agents")
    assert words in str(caught.value)
    assert "agents.yaml" in str(caught.value)
