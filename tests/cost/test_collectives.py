"""Collectives on a fabric without losses, by hand: inside a node, between nodes, several groups on one network."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.cost.calibration import CALIBRATION
from hippo.cost.collectives import CollectiveGroup, all_gather_s, all_reduce_s, ring_latency, token_exchange_s

from .worlds import FABRIC, PERFECT, exact

GB = 1e9


def test_all_reduce_on_a_ring_inside_a_node():
    """Each of 8 ranks sends 2 x 7/8 of the bytes over its NVLink of 300 GB/s."""
    assert all_reduce_s(GB, CollectiveGroup(8), FABRIC, PERFECT) == pytest.approx(2 * 7 / 8 / 300)


def test_all_gather_between_nodes_is_bound_by_the_nodes_network():
    """32 ranks on 4 nodes: 3/4 of the bytes enter each node at 200 GB/s; inside it 7/8 pass at 300 GB/s."""
    assert all_gather_s(GB, CollectiveGroup(32), FABRIC, PERFECT) == pytest.approx(0.75 / 200)


def test_groups_that_share_a_node_share_its_network():
    """tp 8: the 8 groups of one rank per node each get 25 GB/s. tp 4: two ranks of a group per node, 4 groups."""
    assert all_gather_s(GB, CollectiveGroup(4, stride=8), FABRIC, PERFECT) == pytest.approx(0.75 / 25)
    assert all_gather_s(GB, CollectiveGroup(8, stride=4), FABRIC, PERFECT) == pytest.approx(0.75 / 50)


def test_start_up_of_rings():
    calibration = exact(latency_intra_s=10e-6, hop_latency_s=1e-6)
    assert ring_latency(CollectiveGroup(8), FABRIC, calibration) == pytest.approx(10e-6)
    assert ring_latency(CollectiveGroup(32), FABRIC, calibration) == pytest.approx(42e-6)


def test_tokens_cross_the_network_once_per_node():
    """Two nodes, two copies: 3 of 4 tokens have an expert on the other node; 25 GB/s per rank. One copy: half."""
    for copies, crossing in ((1, 0.5), (2, 0.75)):
        seconds = token_exchange_s(GB, copies, CollectiveGroup(16), FABRIC, PERFECT, once=True)
        assert seconds == pytest.approx(crossing / 25)


def test_copies_that_go_alone_cross_each_by_itself():
    """Two nodes, two copies, half of each on the other node."""
    seconds = token_exchange_s(GB, 2, CollectiveGroup(16), FABRIC, PERFECT, once=False)
    assert seconds == pytest.approx(2 * 0.5 / 25)


def test_tokens_inside_one_node():
    """Two copies of which 7/8 leave their rank; both on one rank of 8 in 1 of 8 cases, and sent there once."""
    alone = token_exchange_s(GB, 2, CollectiveGroup(8), FABRIC, PERFECT, once=False)
    assert alone == pytest.approx(2 * 7 / 8 / 300)
    once = token_exchange_s(GB, 2, CollectiveGroup(8), FABRIC, PERFECT, once=True)
    assert once == pytest.approx((2 - 1 / 8) * 7 / 8 / 300)


@given(
    num_bytes=st.floats(1, 1e12),
    more=st.floats(1, 10),
    size=st.sampled_from([1, 2, 4, 8, 16, 32, 64]),
    stride=st.sampled_from([1, 2, 4, 8]),
)
def test_more_bytes_never_take_less_time(num_bytes: float, more: float, size: int, stride: int):
    group = CollectiveGroup(size, stride)
    for collective in (all_gather_s, all_reduce_s):
        little, much = (collective(each, group, FABRIC, CALIBRATION) for each in (num_bytes, num_bytes * more))
        assert 0 <= little <= much
        assert (little == 0) == (size == 1)
    for once in (True, False):
        exchanged = [token_exchange_s(num_bytes, copies, group, FABRIC, CALIBRATION, once=once) for copies in (1, 2, 8)]
        assert exchanged == sorted(exchanged)
