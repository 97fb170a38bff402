"""Answers: the keys that others rely on, figures by hand, and that anyone can replay the order."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from hippo.errors import InfeasibleError, InputError, UnknownNameError
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.schedule import Schedule
from hippo.schedule.solve import (
    NAMES,
    Answer,
    answer_document,
    compare,
    infeasible_document,
    judge,
    order_document,
    solve,
)
from hippo.schedule.text import parse_schedule

from .orders import scheduled

TWO = ScheduleProblem.uniform(2, 4, live_limit=2)
"""Optimum 13, 1F1B 15 (data/schedules_open.json, "check_yourself")."""

CONTRACT = {"id", "makespan", "lower_bound", "gap", "bubble_rate", "peak_live", "method", "seconds", "order"}


@pytest.mark.parametrize(("method", "makespan"), [("1f1b", 15.0), ("zb-h1", 13.0), ("best", 13.0)])
def test_published_figures(method, makespan):
    answer = solve(TWO, method, time_limit_s=0.2)
    assert answer.makespan == pytest.approx(makespan)
    assert answer.lower_bound == pytest.approx(13.0)
    assert answer.gap == pytest.approx(makespan / 13.0 - 1)


def test_best_never_answers_with_a_fused_backward():
    """One rank down the line nothing waits for a gradient, so 1F1B is as good as any; split it is no longer."""
    for problem in (ScheduleProblem.uniform(1, 3), ScheduleProblem.uniform(3, 4, live_limit=1)):
        document = answer_document(solve(problem, "best", time_limit_s=0.1))
        assert document["fused"] is False
        assert {letter for row in document["order"] for letter, _, _ in row} == set("FBW")


def test_optimal():
    pytest.importorskip("ortools")
    answer = solve(TWO, "optimal", time_limit_s=2.0)
    assert answer.makespan == pytest.approx(13.0)
    assert answer.gap == pytest.approx(0.0, abs=1e-9)


def test_the_document_has_the_contracts_keys():
    document = answer_document(solve(TWO, "1f1b"), "mine")
    assert set(document) >= CONTRACT
    assert (document["id"], document["method"], document["fused"]) == ("mine", "1f1b", True)
    assert document["peak_live"] == 2.0
    assert document["peak_live_by_rank"] == [2.0, 1.0]
    assert document["bubble_rate"] == pytest.approx(1 - 12 / 15)
    assert document["bubble_full"] == pytest.approx(1 - 12 / 15)
    assert json.loads(json.dumps(document)) == document


def test_both_bubble_rates():
    """ZB-H2, p 8, m 24, F = B = W, no delay: 0 of the longest stage, .0886 of all ranks (the facts, section 1)."""
    document = answer_document(solve(ScheduleProblem.uniform(8, 24), "zb-h2"))
    assert document["bubble_rate"] == pytest.approx(0.0, abs=1e-12)
    assert document["bubble_full"] == pytest.approx(0.0886, abs=5e-5)


def test_a_fused_backward_is_written_as_both():
    order = answer_document(solve(TWO, "1f1b"))["order"]
    assert order[1][:6] == [["F", 0, 0], ["B", 0, 0], ["W", 0, 0], ["F", 0, 1], ["B", 0, 1], ["W", 0, 1]]


def played(problem: ScheduleProblem, order: list[list[list[object]]], *, fused: bool) -> float:
    """The makespan of a document's order, from the definitions alone: each operation when rank and input are there."""
    end: dict[tuple[str, int, int], float] = {}
    tables, v = problem.tables, problem.chunks
    source = {(k, int(tables.onward[k, s])): s for k in (0, 1) for s in range(problem.ranks * v)}
    free_port: dict[int, float] = {}
    arrival: dict[tuple[int, int, int], float] = {}
    free, todo = [0.0] * problem.ranks, [list(row) for row in order]
    while any(todo):
        for rank, row in enumerate(todo):
            while row:
                letter, chunk, micro_batch = row[0]
                kind, slot = "FBW".index(letter), rank * v + chunk
                sender = source.get((kind, slot)) if kind < 2 else None
                if sender is not None and (kind, slot, micro_batch) not in arrival:
                    break
                ready = arrival.get((kind, slot, micro_batch), 0.0)
                if kind == 1 and sender is None:
                    ready = end["F", slot, micro_batch]
                free[rank] = max(free[rank], ready) + tables.duration[kind, slot]
                end[letter, slot, micro_batch] = free[rank]
                row.pop(0)
                done = free[rank] + (tables.duration[2, slot] if fused and kind == 1 else 0.0)
                if kind < 2 and tables.onward[kind, slot] >= 0:
                    port = int(tables.port[kind, slot])
                    if port >= 0:
                        done = free_port[port] = max(done, free_port.get(port, 0.0)) + tables.transfer[kind, slot]
                    arrival[kind, int(tables.onward[kind, slot]), micro_batch] = done + tables.delay[kind, slot]
    return max(end + rest for end, rest in zip(free, problem.reduction or (0.0,) * problem.ranks, strict=True))


@settings(deadline=None)
@given(scheduled())
def test_anyone_can_replay_the_order(pair: tuple[ScheduleProblem, Schedule]):
    problem, schedule = pair
    answer = judge(problem, schedule, source="mine")
    document = answer_document(answer)
    assert played(problem, document["order"], fused=document["fused"]) == pytest.approx(answer.makespan)
    assert answer.makespan >= answer.lower_bound * (1 - 1e-9)


@settings(deadline=None)
@given(scheduled())
def test_every_rank_of_the_document_runs_everything_once(pair: tuple[ScheduleProblem, Schedule]):
    problem, schedule = pair
    for rank, row in enumerate(order_document(schedule)):
        assert len({tuple(each) for each in row}) == len(row)
        slots = range(rank * problem.chunks, (rank + 1) * problem.chunks)
        assert len(row) == 3 * sum(int(problem.tables.passes[slot]) for slot in slots)


def test_as_a_hint():
    answer = solve(TWO, "1f1b", hint=True)
    assert answer.hint
    assert not answer.schedule.fused
    assert answer.makespan < 15.0  # W may wait: only a fixed order has to run it at once


def test_a_hint_that_needs_more_than_the_limit():
    with pytest.raises(InfeasibleError):
        solve(TWO, "gpipe")
    assert max(answer_document(solve(TWO, "gpipe", hint=True))["peak_live_by_rank"]) <= 2.0


@pytest.mark.parametrize("method", ["best", "1f1b", "gpipe", "zb-auto"])
def test_memory_under_what_one_micro_batch_needs(method):
    with pytest.raises(InfeasibleError, match="--memory 1"):
        solve(ScheduleProblem.uniform(2, 4, live_limit=0.5), method)


def test_another_placement():
    with pytest.raises(InfeasibleError, match="--placement v"):
        solve(TWO, "zb-v")


def test_an_unknown_method():
    with pytest.raises(UnknownNameError, match="zb-h1"):
        solve(TWO, "zb-h3")


def test_an_order_of_ones_own():
    text = "mine stages=2 micro_batches=2\nF0 F1 B0 W0 B1 W1\nF0 B0 W0 F1 B1 W1\n"
    problem = ScheduleProblem.uniform(2, 2)
    answer = judge(problem, parse_schedule(text, source="mine"), source="mine")
    assert (answer.method, answer.makespan) == ("given", 8.0)
    stuck = text.replace("F0 F1 B0 W0 B1 W1", "F1 B1 W1 F0 B0 W0", 1)
    with pytest.raises(InputError, match="wait for each other: rank 0 at B1, rank 1 at F0"):
        judge(problem, parse_schedule(stuck, source="mine"), source="mine")
    with pytest.raises(InfeasibleError, match="keeps 2, the limit is 1.*--memory 2"):
        judge(ScheduleProblem.uniform(2, 2, live_limit=1), parse_schedule(text, source="mine"), source="mine")


def test_side_by_side():
    rows = dict(compare(TWO, ("1f1b", "gpipe", "zb-h1")))
    assert isinstance(rows["1f1b"], Answer)
    assert isinstance(rows["gpipe"], InfeasibleError)
    assert rows["zb-h1"].makespan < rows["1f1b"].makespan


def test_an_infeasible_problem_in_a_list():
    document = infeasible_document(InfeasibleError(["Too little."]), "best", 7)
    assert document == {"id": 7, "makespan": None, "infeasible": "Too little.", "method": "best"}


def test_names():
    assert {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-auto", "zb-v", "v-half", "v-min"} <= set(NAMES)
    assert {"dualpipe", "cross-domain", "learned", "optimal", "best"} <= set(NAMES)


def test_the_order_of_a_policy_is_a_schedule_like_any():
    """``judge`` checks that it is one, within memory; the bound holds for it too."""
    problem = ScheduleProblem.uniform(4, 8, (1.0, 1.05, 0.75), comm=[0.05, 5.0, 0.05], live_limit=4)
    answer = solve(problem, "learned")
    assert judge(problem, answer.schedule, source="learned").makespan == answer.makespan >= answer.lower_bound
    assert "policy" in answer.why
    assert solve(problem, "learned", hint=True).hint


@pytest.mark.parametrize("placement", ["looped", "v", "bidirectional"])
def test_a_policy_is_for_one_chunk_per_rank(placement: str):
    problem = ScheduleProblem.uniform(2, 4).placed(placement)
    with pytest.raises(InfeasibleError, match="--placement plain"):
        solve(problem, "learned")
    ((_, answer),) = compare(problem, ["learned"])  # side by side it is laid out as it needs
    assert isinstance(answer, Answer)
    assert answer.problem.placement == "plain"
