from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.jobs.placement.step_time import joined, part, parts, rung, signature
from hippo.problem.cluster import Cluster

from ...strategies import clusters
from .worlds import cluster


@pytest.mark.parametrize(
    ("devices", "nodes", "per_node"),
    [(1, 1, 1), (5, 1, 5), (8, 1, 8), (16, 2, 8), (12, 2, 6), (20, 4, 5), (24, 3, 8), (9, 3, 3), (160, 20, 8)],
)
def test_a_part_takes_the_fewest_equal_nodes(devices: int, nodes: int, per_node: int):
    taken = part(cluster("a").domains[0], devices)
    assert (taken.nodes, taken.gpus_per_node) == (nodes, per_node)


def test_sizes_in_between_are_planned_at_the_nearest():
    sizes = (1, 2, 3, 4, 5, 6, 7, 10, 20, 80, 100)
    assert [rung(devices) for devices in sizes] == [1, 2, 3, 4, 6, 6, 8, 12, 24, 96, 96]


def test_a_chain_is_joined_and_its_ends_alone_are_not():
    chain = cluster("abc", joined="abc")
    assert joined(chain)
    assert not joined(parts(chain, "ac", 8))
    one_way = replace(chain, links=tuple(link for link in chain.links if link.source < link.destination))
    assert not joined(one_way)


@given(clusters(), st.data())
def test_names_and_order_do_not_count(world: Cluster, data: st.DataObject):
    order = data.draw(st.sampled_from(list(permutations(range(len(world.domains))))))
    new = {domain.name: f"site {index}" for index, domain in enumerate(world.domains)}
    domains = tuple(replace(world.domains[index], name=new[world.domains[index].name]) for index in order)
    links = tuple(replace(each, source=new[each.source], destination=new[each.destination]) for each in world.links)
    assert signature(replace(world, domains=domains, links=links[::-1])) == signature(world)


@given(clusters())
def test_what_differs_has_another_signature(world: Cluster):
    for index, link in enumerate(world.links):
        slower = (*world.links[:index], replace(link, latency_s=link.latency_s + 1.0), *world.links[index + 1 :])
        assert signature(replace(world, links=slower)) != signature(world)
