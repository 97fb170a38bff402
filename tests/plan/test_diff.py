"""Moves between plans, in a world solved by hand: GPT-2's 14 layers over three of the four hubs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.errors import InputError
from hippo.plan.diff import Move, diff
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.load import load_problem

PROBLEM = load_problem(model="gpt2", cluster="four-hubs", global_batch=16, runtime="ideal")
BLOCK = PROBLEM.model.layers[1].parameters
EMBEDDING = PROBLEM.model.layers[0].parameters


def chain(*stages: tuple[str, int, int]) -> Plan:
    """One pipeline of single-GPU stages: (domain, start, stop)."""
    made = tuple(Stage(name, (start, stop), 1, 1, (f"{name}/0/0",)) for name, start, stop in stages)
    return Plan((Pipeline(made, 16),), micro_batch=1)


def test_a_shifted_cut_moves_the_layers_between() -> None:
    before = chain(("zhangjiakou", 0, 7), ("wuhu", 7, 14))
    after = chain(("zhangjiakou", 0, 4), ("wuhu", 4, 14))
    found = diff(PROBLEM, before, after)
    assert found.moves == (Move((4, 7), "zhangjiakou", "wuhu", (("zhangjiakou", "wuhu"),), 3 * BLOCK * 16.0),)
    assert found.link_bytes == {("zhangjiakou", "wuhu"): 3 * BLOCK * 16.0}
    assert found.rearranged == ("zhangjiakou",)
    # 3 blocks x 7,087,872 parameters x 16 bytes over 5 Gbit/s, plus 21 ms
    assert found.seconds(PROBLEM.cluster) == pytest.approx(3 * 7_087_872 * 16 / 0.625e9 + 0.021)


def test_nothing_moves_between_equal_plans() -> None:
    plan = chain(("zhangjiakou", 0, 7), ("wuhu", 7, 14))
    found = diff(PROBLEM, plan, plan)
    assert (found.moves, found.num_bytes, found.rearranged) == ((), 0.0, ())
    assert found.seconds(PROBLEM.cluster) == 0.0


def test_the_state_s_size_is_the_problem_s() -> None:
    heavy = replace(PROBLEM, workload=replace(PROBLEM.workload, state_bytes_per_parameter=18.0))
    before, after = chain(("zhangjiakou", 0, 7), ("wuhu", 7, 14)), chain(("zhangjiakou", 0, 8), ("wuhu", 8, 14))
    assert diff(heavy, before, after).num_bytes == BLOCK * 18.0


def test_each_layer_comes_from_the_fastest_holder() -> None:
    # Replicas in zhangjiakou (2 Gbit/s to guian) and wuhu (4 Gbit/s to guian): guian asks wuhu.
    whole = (0, 14)
    before = Plan(
        tuple(Pipeline((Stage(name, whole, 1, 1, (f"{name}/0/0",)),), 8) for name in ("zhangjiakou", "wuhu")), 1
    )
    found = diff(PROBLEM, before, chain(("guian", 0, 14)))
    assert [(move.source, move.layers) for move in found.moves] == [("wuhu", (0, 14))]
    assert found.num_bytes == PROBLEM.model.parameters * 16.0


def test_a_tied_head_brings_the_embedding_s_matrix() -> None:
    before, after = chain(("zhangjiakou", 0, 14)), chain(("zhangjiakou", 0, 13), ("wuhu", 13, 14))
    norm, matrix = 2 * 768, 50257 * 768
    assert diff(PROBLEM, before, after).num_bytes == (norm + matrix) * 16.0
    back = diff(PROBLEM, after, before)
    assert back.num_bytes == norm * 16.0


def test_domains_without_a_link_relay_or_refuse() -> None:
    whole = cluster("four-hubs")
    links = tuple(link for link in whole.links if (link.source, link.destination) != ("wuhu", "zhongwei"))
    relayed = replace(PROBLEM, cluster=replace(whole, links=links))
    found = diff(relayed, chain(("wuhu", 0, 14)), chain(("zhongwei", 0, 14)))
    # Over zhangjiakou min(5, 4) beats over guian min(4, 3).
    assert found.moves[0].links == (("wuhu", "zhangjiakou"), ("zhangjiakou", "zhongwei"))
    assert set(found.link_bytes) == set(found.moves[0].links)
    alone = replace(PROBLEM, cluster=replace(whole, links=()))
    with pytest.raises(InputError, match="'zhongwei' needs layers that are only in wuhu, and no links lead there"):
        diff(alone, chain(("wuhu", 0, 14)), chain(("zhongwei", 0, 14)))


def test_interleaving_over_domains_is_refused() -> None:
    plan = replace(chain(("zhangjiakou", 0, 7), ("wuhu", 7, 14)), interleave=2)
    with pytest.raises(InputError, match="interleaves over domains"):
        diff(PROBLEM, plan, plan)
    assert EMBEDDING == (50257 + 1024) * 768
