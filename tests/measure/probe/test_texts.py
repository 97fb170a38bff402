"""Cluster files and traces from samples: what is read back is what was seen."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.errors import InputError
from hippo.measure.probe.findings import (
    Findings,
    bare_cluster,
    cluster_text,
    document_of,
    files_of,
    measured_cluster,
    textfile,
    trace_text,
)
from hippo.measure.probe.sample import Sample, links_seen
from hippo.problem.cluster import Link
from hippo.problem.cluster_yaml import cluster_from_document
from hippo.problem.document import parse_yaml
from hippo.problem.trace_csv import trace_from_csv

from ...strategies import NAMES
from .worlds import HEADER

GBIT = 1.25e8  # bytes/s
TWO = bare_cluster(["east", "west"], gpu="A100-SXM-80GB", nodes=2, gpus_per_node=4)
EVEN = [
    Sample(100.0, "east", "west", 2 * GBIT, 0.040),
    Sample(100.0, "west", "east", 1 * GBIT, 0.041),
]


def read_back(base, samples):
    files = files_of(Findings(tuple(samples), ("how\nit was made",)), base)
    cluster = cluster_from_document(parse_yaml(files["cluster.yaml"], "own"), source="own", name="own")
    return cluster, trace_from_csv(files["network.csv"], cluster, source="own", complete=True), files


def test_directions_stay_apart():
    cluster, trace, files = read_back(TWO, EVEN)
    assert cluster.link("east", "west").bandwidth_bytes_per_s == 2 * GBIT
    assert cluster.link("west", "east").bandwidth_bytes_per_s == GBIT
    assert cluster.link("east", "west").latency_s == pytest.approx(0.020)
    assert cluster.link("west", "east").latency_s == pytest.approx(0.0205)
    assert trace.time_s.tolist() == [0.0]
    assert "how it was made" in files["cluster.yaml"]
    assert "# rate 2000 Mbit/s, round trip 40 ms, 1 sample" in files["cluster.yaml"]


def test_a_trace_by_hand():
    samples = [
        *EVEN,
        Sample(160.0, "east", "west", 0.0, None),  # nobody answered
        Sample(220.0, "east", "west", GBIT, None),  # latency holds
        Sample(280.0, "west", "east", None, 0.05),  # rate holds
        Sample(340.0, "west", "east", None, None),  # says nothing
    ]
    _, _, files = read_back(TWO, samples)
    assert files["network.csv"].splitlines() == [
        HEADER,
        "0,east,west,2,20",
        "0,west,east,1,20.5",
        "60,east,west,0,20",
        "120,east,west,1,20",
        "180,west,east,1,25",
    ]
    assert "no answer in 1 of them" in files["cluster.yaml"]


def test_a_link_that_comes_later_begins_with_its_median():
    late = Sample(160.0, "west", "east", GBIT, 0.04)
    _, trace, files = read_back(TWO, [EVEN[0], late])
    assert files["network.csv"].splitlines()[1:] == ["0,east,west,2,20", "0,west,east,1,20", "60,west,east,1,20"]
    assert trace.time_s.tolist() == [0, 60]


def test_a_link_that_never_answered_is_left_out():
    cluster, _, files = read_back(TWO, [EVEN[0], Sample(100.0, "west", "east", 0.0, None)])
    assert cluster.link("west", "east") is None
    assert "# west -> east: no rate seen: left out" in files["cluster.yaml"]


def test_prices_and_links_that_were_not_measured_stay():
    document = {"gpu": "A100-SXM-80GB", "domains": [{"name": n, "nodes": 2, "gpus_per_node": 4} for n in "abc"]}
    document["links"] = [
        {"from": "a", "to": "b", "bandwidth_gbps": 9, "per_node_gbps": 8, "latency_ms": 7, "price_usd_per_gb": 0.5},
        {"from": "b", "to": "a", "per_node_gbps": 5, "latency_ms": 7, "price_usd_per_gb": 0.6},
        {"from": "b", "to": "c", "bandwidth_gbps": 3, "latency_ms": 2},
    ]
    base = cluster_from_document(document, source="t", name="t")
    samples = [Sample(0.0, "a", "b", GBIT, 0.01), Sample(0.0, "b", "a", GBIT, None)]
    samples.append(Sample(0.0, "c", "b", GBIT, 0.01))
    cluster, trace, files = read_back(base, samples)
    there, back, other, new = cluster.links
    assert (there.bandwidth_bytes_per_s, there.per_node_bytes_per_s, there.price_usd_per_gb) == (GBIT, None, 0.5)
    assert (back.bandwidth_bytes_per_s, back.per_node_bytes_per_s, back.latency_s) == (None, GBIT, 0.007)
    assert other == base.links[2]
    assert new.price_usd_per_gb == 0
    assert "not in the cluster file given: its price is not known" in files["cluster.yaml"]
    assert "not measured: as in the cluster file given" in files["cluster.yaml"]
    assert trace.bandwidth_bytes_per_s[0].tolist() == [GBIT, 2 * GBIT, 3 * GBIT, GBIT]  # two nodes send together


def test_a_rate_without_any_latency_is_refused():
    with pytest.raises(InputError, match="east->west has a rate but no latency"):
        files_of(Findings((Sample(0.0, "east", "west", GBIT, None),), ()), TWO)


def test_two_samples_at_one_instant_are_refused():
    with pytest.raises(InputError, match="two samples at one instant"):
        files_of(Findings((*EVEN, EVEN[0]), ()), TWO)


def test_nothing_to_trace_is_refused():
    with pytest.raises(InputError, match="no link has a sample"):
        trace_text([], TWO)


def test_percentiles():
    samples = [Sample(float(n), "east", "west", (n + 1) * GBIT, 0.04) for n in range(101)]
    (link,) = document_of(Findings(tuple(samples), ()))["links"]
    assert {key: round(value, 6) for key, value in link["bandwidth_gbps"].items()} == {"p5": 6, "median": 51, "p95": 96}
    assert link["latency_ms"] == pytest.approx(20.0)
    assert (link["samples"], link["outages"]) == (101, 0)


def test_a_text_file_for_the_collector():
    text = textfile([*EVEN, Sample(100.0, 'a"b', "west", 0.0, None)])
    assert 'hippo_link_bits_per_second{src="east",dst="west"} 2e+09' in text
    assert 'hippo_link_bits_per_second{src="a\\"b",dst="west"} 0' in text
    assert 'hippo_link_round_trip_seconds{src="east",dst="west"} 0.04' in text


@given(
    st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True),
    st.none() | st.floats(0.01, 100.0),
    st.lists(
        st.tuples(st.integers(0, 5), st.none() | st.floats(1.0, 1e12), st.none() | st.floats(0.0, 1.0)), max_size=6
    ),
)
def test_whatever_was_seen_is_read_back(names, gbps, seen):
    base, pairs = bare_cluster(names, gpu="A100-SXM-80GB", nodes=2, gpus_per_node=4), list(permutations(names, 2))
    base = replace(base, links=tuple(Link(*pair, None, 0.01, 0.0, (gbps or 1.0) * GBIT) for pair in pairs))
    samples = {(time, pair): (rate, trip) for time, rate, trip in seen for pair in pairs[: time + 1]}
    found = [Sample(float(time), *pair, *figures) for (time, pair), figures in samples.items()]
    measured = measured_cluster(base, links_seen(found), source="s")
    text = cluster_text(measured, how=("line\nbreak # and more",))
    assert cluster_from_document(parse_yaml(text, "own"), source="own", name="own") == measured.cluster
    if found:
        trace_from_csv(trace_text(found, measured.cluster), measured.cluster, source="own", complete=True)
