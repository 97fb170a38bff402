from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.jobs.job import TrainingKind
from hippo.jobs.placement import offer_plans
from hippo.jobs.placement.offer_plans import (
    CLOSE,
    PLANNED_GBPS,
    STOP,
    _lean,
    _Offer,
    _Shape,
    _worth_their_size,
    offer_table,
    planned_offers,
)
from hippo.jobs.placement.offers import OfferTable
from hippo.plan.plan import Sync
from hippo.planners.base import Progress, Proposal, Stop
from hippo.planners.exact.search import Exact
from hippo.problem.cluster import Cluster
from hippo.problem.cluster_yaml import cluster_from_document
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, judge
from hippo.simulate.timeline import link_bytes
from hippo.units import bytes_per_s_from_gbps

KIND = TrainingKind("gpt3-125m", 1024, 1024)
GRID = len(offer_plans.LATENCY_MS), len(offer_plans.BANDWIDTH_GBPS)


def site(domains: int, nodes: int = 1, per_node: int = 2) -> Cluster:
    names = [{"name": name, "nodes": nodes, "gpus_per_node": per_node} for name in "abcd"[:domains]]
    document = {"gpu": "A100-SXM-80GB", "domains": names, "links": []}
    return cluster_from_document(document, source="a test", name="a test")


class Noting:
    """The exact planner, which notes what it was asked."""

    name = "exact"

    def __init__(self) -> None:
        self.asked: list[Problem] = []

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        self.asked.append(problem)
        return Exact().propose(problem, stop)


@pytest.fixture(scope="module")
def planned() -> tuple[OfferTable, list[Problem]]:
    planner = Noting()
    return planned_offers(site(3), KIND, planner=planner)[0], planner.asked


def rows(table: OfferTable, *gpus: int) -> list[int]:
    padded = [*gpus, *(0,) * (4 - len(gpus))]
    return [row for row, sizes in enumerate(table.gpus.tolist()) if sizes == padded]


def test_the_reference_is_the_planners_step_on_the_largest_domain(planned: tuple[OfferTable, list[Problem]]):
    table, _ = planned
    alone = load_problem(model=KIND.model, cluster=site(1), global_batch=KIND.batch, seq=KIND.seq)
    score = Exact().propose(alone, STOP).score
    assert score is not None
    assert table.tokens_per_s[0] == pytest.approx(KIND.batch * KIND.seq / score.step_time_s, rel=CLOSE)
    (largest,) = rows(table, 2)
    assert (table.rate[largest] == 1.0).all()
    assert table.state_bytes[0] == pytest.approx(16 * alone.model.parameters)


def test_no_plan_made_for_links_of_the_grid_is_quicker_than_the_table(planned: tuple[OfferTable, list[Problem]]):
    table, _ = planned
    given = {"both": True, "price_usd_per_gb": 0, "from": "a", "to": "b"}
    for gbps, latency_ms in ((20.0, 2), (3.0, 20), (0.8, 60)):
        domains = [{"name": name, "nodes": 1, "gpus_per_node": 2} for name in "ab"]
        links = [{**given, "bandwidth_gbps": gbps, "latency_ms": latency_ms}]
        two = cluster_from_document({"gpu": "A100-SXM-80GB", "domains": domains, "links": links}, source="", name="two")
        found = Exact().propose(load_problem(model=KIND.model, cluster=two, global_batch=1024, seq=1024), STOP).score
        assert found is not None
        offers = np.array([*rows(table, 2, 2), *rows(table, 2)])  # the planner may leave one domain idle
        asked = np.full(len(offers), bytes_per_s_from_gbps(gbps)), np.full(len(offers), latency_ms / 1e3)
        rate = KIND.batch * KIND.seq / found.step_time_s / table.tokens_per_s[0]
        assert table.rate_at(offers, *asked).max() >= 0.98 * rate


def test_pipelines_and_replicas_both_come_up(planned: tuple[OfferTable, list[Problem]]):
    """On a slow link replicas, which send little, and on a quicker one a pipeline, which does not wait for a sum."""
    table, _ = planned
    pair = rows(table, 1, 1)
    assert {int(table.layout[row, 2]) for row in pair} == {1, 2}
    slow, quick = (max(pair, key=lambda row: table.rate[row, 1, column]) for column in (2, 7))
    assert (table.layout[slow, 2], table.layout[quick, 2]) == (1, 2)
    assert table.hop_bytes[slow] < table.hop_bytes[quick]
    assert table.state_share[slow].tolist() == [1.0, 1.0, 0.0, 0.0]  # a replica is all of the model
    assert table.state_share[quick].sum() == pytest.approx(1.0)


def test_parts_are_joined_by_equal_links_and_nodes_are_shared(planned: tuple[OfferTable, list[Problem]]):
    _, asked = planned
    nodes = {(part.gpus_per_node, part.inter_node_bytes_per_s) for each in asked for part in each.cluster.domains}
    whole = site(1).domains[0].inter_node_bytes_per_s
    assert nodes == {(2, whole), (1, whole / 2)}
    rates = {link.bandwidth_bytes_per_s for each in asked for link in each.cluster.links}
    assert rates == {bytes_per_s_from_gbps(gbps) for gbps in PLANNED_GBPS}


def test_no_part_is_larger_than_the_domains_that_would_hold_it():
    larger = replace(site(1, nodes=2).domains[0], name="larger")
    table = planned_offers(replace(site(2), domains=(*site(2).domains, larger)), KIND)[0]
    assert rows(table, 4)
    assert rows(table, 4, 2)
    assert not rows(table, 4, 4)
    assert set(table.parts.tolist()) <= {1, 2, 3}


def test_offers_of_a_mixture_have_its_experts_apart_where_that_is_quicker(tmp_path: Path):
    """Its plans are Megatron-LM's, as hippo's executor has no experts."""
    config = tmp_path / "moe" / "config.json"
    config.parent.mkdir()
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 4, "vocab_size": 2048}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 1}
    config.write_text(json.dumps({"model_type": "mixtral", "max_position_embeddings": 512, **sizes, **heads}))
    kind, where = TrainingKind(str(config), 16, 512), site(2, per_node=4)
    table, judged = planned_offers(where, kind, sizes=(4,))
    assert {each.problem.runtime for each in judged} == {"megatron"}
    assert {each.plan.expert_parallel for each in judged} <= {2, 4}

    class Together(Noting):
        def propose(self, problem: Problem, *given: Any, **more: Any) -> Proposal:
            return super().propose(replace(problem, expert_parallel=1), *given, **more)

    assert table.tokens_per_s[0] > 1.05 * planned_offers(where, kind, sizes=(4,), planner=Together())[0].tokens_per_s[0]


def test_sizes_may_be_named():
    table = planned_offers(site(1, nodes=2), KIND, sizes=(2, 4, 64))[0]
    assert set(table.gpus[:, 0].tolist()) == {2, 4}


def test_all_of_a_domain_is_asked_where_the_ladder_ends_below_it():
    """Five nodes of two, between eight and twelve GPUs."""
    planner = Noting()
    planned_offers(site(1, nodes=5), KIND, planner=planner)
    assert {problem.cluster.gpus for problem in planner.asked} == {1, 2, 3, 4, 6, 8, 10}


@pytest.mark.parametrize("model", ["gpt3-175b", "llama-3-70b"])
def test_a_model_that_fits_nowhere_is_refused_in_one_sentence(model: str):
    with pytest.raises(InputError, match="fits on no devices of these domains") as told:
        offer_table(site(1), [TrainingKind(model, 64, 1024)])
    assert model in str(told.value)


def test_a_model_that_nobody_knows_is_refused():
    with pytest.raises(InputError, match="llama-9"):
        offer_table(site(1), [TrainingKind("llama-9", 64, 1024)])


def test_no_kinds_are_refused():
    with pytest.raises(InputError, match="no kind of training"):
        offer_table(site(1), [])


# ----------------------------------------------------------------------------------------------------- which are kept
def offer(gpus: tuple[int, ...], block: int, seconds: float | Callable[[int], float], **given: object) -> _Offer:
    columns = [seconds(column) if callable(seconds) else seconds for column in range(GRID[1])]
    played = np.tile(columns, (GRID[0], 1))
    return replace(
        _Offer(_Shape(gpus, block), cast(Judged, None), False, (1, 1, 1), played, 0.0, 0.0, 0.0, ()), **given
    )  # type: ignore[arg-type]


def test_a_larger_block_stays_only_where_it_is_quicker():
    small, as_quick, quicker = offer((8,), 1, 1.0), offer((8,), 2, 0.996), offer((8,), 4, 0.98)
    assert list(_lean([quicker, as_quick, small], {})) == [small, quicker]


def test_each_offer_is_the_best_somewhere():
    falls, flat = offer((4, 4), 4, lambda column: 10.0 - column), offer((4, 4), 4, 5.0)
    never = offer((4, 4), 4, lambda column: 5.2 - 0.01 * column)
    assert set(_lean([falls, flat, never], {})) == {falls, flat}


def test_several_parts_stay_only_where_they_beat_the_largest_alone():
    slow, quick = offer((4, 4), 4, 3.0), offer((8, 8), 8, 1.0)
    assert list(_lean([slow, quick], {(4, 4): 2.0, (8, 4): 1.6, (8, 8): 1.5})) == [quick]


def test_a_chain_and_a_ring_ask_for_other_links_and_both_stay():
    chain, ring = offer((4, 4, 4), 4, 1.0), offer((4, 4, 4), 4, 2.0, ring=True)
    assert set(_lean([chain, ring], {})) == {chain, ring}


@pytest.mark.parametrize(("seconds", "stays"), [(1 / 3, True), (1 / 2.5, False)])
def test_three_halves_of_a_size_stay_where_they_do_as_much_as_the_sizes_beside_them(seconds: float, stays: bool):
    beside = [offer((16,), 8, 1 / 2), offer((32,), 8, 1 / 4)]
    between = offer((24,), 8, seconds)
    assert (between in list(_worth_their_size([*beside, between]))) == stays


# -------------------------------------------------------------------------------------------------- kept on the disk
def test_the_second_time_nobody_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(offer_plans, "folder", lambda: tmp_path / "kernels")
    told: list[float] = []
    first = offer_table(site(2), [KIND], progress=lambda _, share: told.append(share))
    assert told == sorted(told)
    assert told[0] == 0.0 < told[-1] < 1.0
    with monkeypatch.context() as context:
        context.setattr(offer_plans, "Exact", None)
        second = offer_table(site(2), [KIND])
    assert second.kinds == first.kinds
    assert np.array_equal(second.rate, first.rate)
    assert second.raised == first.raised
    (file,) = (tmp_path / "offers").iterdir()
    file.write_bytes(file.read_bytes()[:200])
    assert np.array_equal(offer_table(site(2), [KIND]).rate, first.rate)  # what is damaged is planned anew


def test_other_questions_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(offer_plans, "folder", lambda: tmp_path / "kernels")
    for kind in (KIND, KIND._replace(batch=512)):
        for domains in (1, 2):
            offer_table(site(domains), [kind], sizes=(1,))
    assert len(list((tmp_path / "offers").iterdir())) == 4


def test_replicas_that_average_every_500_steps_send_a_500th(planned: tuple[OfferTable, list[Problem]]):
    """Of what the same plan sends that sums every step; so on the slowest link, where a 500th still takes its
    time, they do most of what each does alone."""
    table, judged = planned_offers(site(3), KIND, local_sgd=True)
    plain = planned[0]
    own = [row for row in range(len(table)) if table.local[row]]
    assert [tuple(table.gpus[row].tolist()) for row in own] == [(1, 1, 0, 0), (2, 2, 0, 0), (1, 1, 1, 0), (2, 2, 2, 0)]
    assert not plain.local.any()
    assert np.array_equal(plain.rate, table.rate[~table.local])
    assert (table.state_share[own] == (table.gpus[own] > 0)).all()
    for row in own:
        found = judged[row]
        each_step = judge(found.problem, replace(found.plan, sync=Sync()))
        assert link_bytes(found.program) * 500 == pytest.approx(link_bytes(each_step.program))
        (alone,) = rows(table, int(table.gpus[row, 0]))
        assert table.rate[row, -1, 0] > 0.85 * table.parts[row] * table.rate[alone, 0, 0]
