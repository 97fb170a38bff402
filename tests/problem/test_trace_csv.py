"""Network traces: a value holds until the next row of its link; every mistake names its line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.links import Trace
from hippo.problem.trace_csv import MAX_CELLS, trace_from_csv

HEADER = "time_s,src,dst,bandwidth_gbps,latency_ms\n"


def read(rows: str) -> Trace:
    return trace_from_csv(HEADER + rows, cluster("toy"), source="net.csv")


def test_values_hold_until_the_next_row_of_that_link() -> None:
    found = read("0,east,west,4,30\n60,west,east,2,25\n60,east,west,0,30\n120.5,east,west,8,20\n")
    assert found.time_s.tolist() == [0.0, 60.0, 120.5]
    # Links of toy: east->west, west->east; base 8 Gbit/s and 20 ms.
    assert (found.bandwidth_bytes_per_s / 1.25e8).tolist() == [[4.0, 8.0], [0.0, 2.0], [8.0, 2.0]]
    np.testing.assert_allclose(found.latency_s, [[0.03, 0.02], [0.03, 0.025], [0.02, 0.025]])
    bandwidth, _ = found.at(119.0)
    assert bandwidth.tolist() == [0.0, 2.5e8]


def test_a_link_with_only_a_cap_per_node_starts_with_all_nodes() -> None:
    regions = cluster("three-aws-regions")
    found = trace_from_csv(HEADER + "0,aws-us-east-1,aws-us-west-2,1,30\n", regions, source="net.csv")
    other = regions.link_index["aws-us-west-2", "aws-us-east-1"]
    assert found.bandwidth_bytes_per_s[0, other] == pytest.approx(8 * 4.347e9 / 8)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("", "net.csv: line 2: the trace holds no rows."),
        ("\n\n", "the trace holds no rows"),
        ("0,east,west,4\n", "net.csv: line 2: 4 fields (got '0,east,west,4'). To fix: write time_s,src,dst,"),
        (
            "0,east,west,4,30\n0,east,mars,4,30\n",
            "net.csv: line 3, dst: unknown domain 'mars'. To fix: use one of east,",
        ),
        ("0,east,east,4,30\n", "net.csv: line 2: the cluster has no such link (got 'east,east')."),
        ("0,east,west,nan,30\n", "net.csv: line 2, bandwidth_gbps: must be a finite number, not negative (got 'nan')."),
        ("0,east,west,-1,30\n", "line 2, bandwidth_gbps: must be a finite number, not negative (got '-1')."),
        ("0,east,west,1e400,30\n", "line 2, bandwidth_gbps: must be a finite number"),
        ("0,east,west,4,inf\n", "line 2, latency_ms: must be a finite number"),
        ("zero,east,west,4,30\n", "line 2, time_s: must be a finite number"),
        ("9,east,west,4,30\n3,west,east,4,30\n", "net.csv: line 3: time runs backwards, from 9 s (got '3')."),
        ("9,east,west,4,30\n9,east,west,5,30\n", "line 3: this link has two rows at one instant (got 'east,west')."),
        ('0,"east,west,4,30\n', "net.csv: line 2: not valid CSV"),
        ("0,east,west,4,30\0\n", "line 2"),
    ],
)
def test_mistakes_name_their_line(rows: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(rows)
    assert words in str(caught.value)


def test_the_header_is_exact() -> None:
    with pytest.raises(InputError, match=r"line 1: another header \(got 'time,src,dst,gbps,ms'\)"):
        trace_from_csv("time,src,dst,gbps,ms\n0,east,west,4,30\n", cluster("toy"), source="net.csv")
    with pytest.raises(InputError, match="another header"):
        trace_from_csv("", cluster("toy"), source="net.csv")


def test_a_trace_that_would_not_fit_is_refused() -> None:
    many = cluster("twelve-cloud-regions")
    link = many.links[0]
    wide = replace(many, links=many.links * 1000)  # 132,000 links: 152 instants are too many
    rows = "".join(f"{second},{link.source},{link.destination},4,30\n" for second in range(MAX_CELLS // 132_000 + 1))
    with pytest.raises(InputError, match="152 instants x 132000 links are too many"):
        trace_from_csv(HEADER + rows, wide, source="net.csv")
