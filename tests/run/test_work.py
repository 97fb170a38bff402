"""What each process does: every sequence once, messages that fit on both sides, layers agreed by all who hold them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given

from hippo.engine.program import BACKWARD, FORWARD
from hippo.plan.check import check
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.run.stand_in import times
from hippo.run.work import Work

from ..strategies import planned
from .worlds import GPT2, LLAMA, PLANS, pipelines, problem


def fits(work: Work) -> None:
    """What holds for every plan."""
    plan = work.plan
    for p, pipeline in enumerate(plan.pipelines):
        for s in range(len(pipeline.stages)):
            lanes = [worker for worker in work.workers if (worker.pipeline, worker.stage) == (p, s) and worker.leads]
            held = [
                i
                for worker in lanes
                for w in range(pipeline.num_micro_batches)
                for i in range(*work.sequences(worker, w))
            ]
            before = sum(one.num_micro_batches * work.wave(one) for one in plan.pipelines[:p])
            assert sorted(held) == list(range(before, before + pipeline.num_micro_batches * work.wave(pipeline)))
    for one in work.transfers:
        for rank in (one.source, one.destination):
            start, stop = work.share(work.workers[rank])
            assert start <= one.start < one.start + one.count <= stop


@pytest.mark.parametrize("name", PLANS)
def test_the_worlds_are_plans(name: str):
    model, plan = PLANS[name]
    assert check(problem(model), plan) == ()


@given(planned())
def test_every_wave_is_covered_once_on_every_stage(pair: tuple[Problem, Plan]):
    question, plan = pair
    fits(Work(question.model, plan))


@pytest.mark.parametrize("name", PLANS)
def test_what_comes_in_is_a_stages_share_once(name: str):
    model, plan = PLANS[name]
    work = Work(model, plan)
    fits(work)
    for worker in work.workers:
        for kind in (FORWARD, BACKWARD):
            for chunk in range(plan.interleave):
                got = [
                    t
                    for t in work.transfers
                    if (t.destination, t.kind, t.destination_chunk) == (worker.rank, kind, chunk)
                ]
                covered = sorted(i for t in got for i in range(t.start, t.start + t.count))
                assert covered in ([], list(range(*work.share(worker))))
                first, last = work.chunks(worker)[chunk][0] == 0, work.chunks(worker)[chunk][1] == model.num_layers
                wanted = worker.leads and not (first if kind == FORWARD else last)
                assert bool(covered) == wanted


@pytest.mark.parametrize("name", PLANS)
def test_arrivals_are_all_messages_in_the_order_of_their_sender(name: str):
    model, plan = PLANS[name]
    work = Work(model, plan)
    for worker in work.workers:
        waves = plan.pipelines[worker.pipeline].num_micro_batches
        arrivals = work.arrivals(worker)
        incoming = [one for one in work.transfers if one.destination == worker.rank]
        assert Counter(one for one, _ in arrivals) == dict.fromkeys(incoming, waves)
        for source in {one.source for one in incoming}:
            made = work.operations(work.workers[source])
            places = [made.index((t.kind, t.source_chunk, wave)) for t, wave in arrivals if t.source == source]
            assert places == sorted(places)


@pytest.mark.parametrize("name", PLANS)
def test_every_part_of_every_layer_is_agreed_by_all_who_hold_it(name: str):
    model, plan = PLANS[name]
    work = Work(model, plan)
    for layer in range(model.num_layers):
        for part in range(work.parts):
            holders = work.holders(layer, part)
            for rank in holders:
                worker = work.workers[rank]
                assert any(start <= layer < stop for start, stop in work.chunks(worker))
            found = [a.ranks for a in work.agreements if a.part == part and a.layers[0] <= layer < a.layers[1]]
            assert found == ([holders] if len(holders) > 1 else [])


def test_ends_that_share_a_matrix():
    tied = Work(GPT2, PLANS["unlike shares"][1])
    assert tied.tied == (0, 1, 3)
    assert Work(LLAMA, PLANS["everything"][1]).tied == ()
    alone = Plan(pipelines((8, [("a", 0, 6, 1, 1)])), 1)
    assert Work(GPT2, alone).tied == ()


def test_a_stand_in_is_a_stage_and_its_bytes_are_the_plans():
    model, plan = PLANS["unlike dp"]
    question = problem(model)
    work = Work(model, plan, whole_stages=True)
    assert [worker.stage for worker in work.workers] == [0, 1, 2]
    found = times(question, work)
    whole = 4 * 16 * 32 * 2  # sequences of a wave, tokens, hidden, bytes
    assert found[1].down_bytes == (whole,)
    assert found[2].received_bytes == (whole, 0)
    assert found[2].up_bytes == (whole,)
    assert found[0].down_bytes[0] > 0  # inside the domain: cut short, never nothing


def test_lanes_that_stand_in_share_what_a_stage_sends():
    model, plan = PLANS["unlike dp"]
    question = problem(model)
    stages, lanes = (Work(model, plan, whole_stages=True, lanes=more) for more in (False, True))
    assert [(worker.stage, worker.lane) for worker in lanes.workers] == [(0, lane) for lane in range(4)] + [
        (1, 0),
        (1, 1),
        (2, 0),
    ]
    whole, parts = times(question, stages), times(question, lanes)
    for worker, each in zip(lanes.workers, parts, strict=True):
        stage = whole[stages.rank(worker.pipeline, worker.stage)]
        assert (each.forward_s, each.weight_s, each.sync_s) == (stage.forward_s, stage.weight_s, stage.sync_s)
    for kind in (FORWARD, BACKWARD):
        sent = [
            sum(size for one, size in found[0].message_bytes.items() if (one.kind, one.source_chunk) == (kind, 0))
            for found in (whole, parts)
        ]
        assert sent[0] == sent[1]
