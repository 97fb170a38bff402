"""Measured kernels' time over roofline: what the tables say between and beyond their nodes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.cost.surfaces import NODES, document, product_slowdown


def test_a_node_is_met_and_halfway_is_the_mean_of_the_logarithms():
    table = document()["products"]["hopper"]["bf16"]
    at = (3 * NODES + 3) * NODES + 3  # 4096 in each direction
    here, next_k = table[at], table[at + 1]
    assert product_slowdown("hopper", "bf16", 4096, 4096, 4096) == pytest.approx(math.exp(here / 100))
    between = product_slowdown("hopper", "bf16", 4096, 4096, 4096 * math.sqrt(2))
    assert between == pytest.approx(math.exp((here + next_k) / 200))


@given(
    family=st.sampled_from(["ampere", "hopper", "blackwell", "blackwell-ultra", "ada", "somebody's"]),
    precision=st.sampled_from(["bf16", "fp16", "fp32", "fp8", "fp8-cs", "mxfp8", "nvfp4"]),
    shape=st.tuples(*[st.floats(1, 1e7)] * 3),
)
def test_no_kernel_is_quicker_than_the_roofline(family: str, precision: str, shape: tuple[float, float, float]):
    assert 1.0 <= product_slowdown(family, precision, *shape) < 1e4


def test_the_tables_say_where_they_are_from():
    assert document()["licence"] == "Apache-2.0"
    assert "aiconfigurator@" in document()["source"]
    assert {len(table) for kinds in document()["products"].values() for table in kinds.values()} == {NODES**3}
