"""The generator for slow links: golden orders of small worlds, published figures of list scheduling, any limit."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hippo.engine.events import board
from hippo.errors import InfeasibleError
from hippo.schedule.bound.lower_bound import lower_bound
from hippo.schedule.check import violations
from hippo.schedule.generators import cross_domain
from hippo.schedule.generators.cross_domain import FEW_WAVES, LIKELY, RULES, Player, _likely, policies
from hippo.schedule.methods import generate
from hippo.schedule.problem import MicroBatchMemory, RankLink, ScheduleProblem
from hippo.schedule.replay import makespan, replay
from hippo.schedule.search.policy import pipe, play_policy
from hippo.schedule.text import schedule_text

SPLIT = (1.0, 1.05, 0.75)
MIDDLE = [0.05] * 3 + [5.0] + [0.05] * 3

# Printed by ``schedule_text`` and read by hand: the makespans are those of the bound, so no order is shorter.
RUN_AHEAD = """\
cross-domain stages=2 micro_batches=4
F0 F1 F2 F3 B0 W0 B1 W1 B2 W2 B3 W3
F0 B0 F1 B1 F2 B2 F3 B3 W0 W1 W2 W3
"""
TWO_LIVE = """\
cross-domain stages=2 micro_batches=4
F0 F1 B0 W0 F2 B1 W1 F3 B2 W2 B3 W3
F0 B0 F1 B1 W0 W1 F2 B2 W2 F3 B3 W3
"""


@pytest.mark.parametrize(
    ("live_limit", "text", "ends"),
    [
        (None, RUN_AHEAD, 17),  # 0: 4 F; the first gradient is home at 1 + 3 + 2 + 3 = 9, then 4 B and W
        (2, TWO_LIVE, 25),  # 0: slots are free again at 11 and 14; F3 at 14 is home at 23, then B and W
    ],
)
def test_golden_orders_of_two_ranks(live_limit: int | None, text: str, ends: float) -> None:
    problem = ScheduleProblem.uniform(2, 4, comm=3, live_limit=live_limit)
    found = generate("cross-domain", problem)
    assert schedule_text(found) == text
    assert makespan(problem, found) == ends == pytest.approx(lower_bound(problem))


def test_weight_gradients_fill_the_waits_of_the_rank_behind_the_slow_link() -> None:
    """Three ranks, the second link slow, three live: rank 2 runs W0 to W2 from 10 to 13, F3 comes at 15."""
    problem = ScheduleProblem.uniform(3, 5, comm=[0, 2], live_limit=3)
    found = generate("cross-domain", problem)
    assert schedule_text(found).splitlines()[3] == "F0 B0 F1 B1 F2 B2 W0 W1 W2 F3 B3 W3 F4 B4 W4"
    assert replay(problem, found).start[-9:].tolist() == [10, 11, 12, 15, 16, 17, 18, 19, 20]


GREEDY_UNIFORM = {(0, 8): 56.9, (0.1, 8): 60.1, (1, 8): 84.3, (5, 8): 194.8}
OPTIMUM = {
    (0, 8): 53.9, (0.1, 8): 56.7, (1, 8): 81.9, (5, 8): 193.9,
    (0, 16): 51.8, (0.1, 16): 52.5, (1, 16): 61.9, (5, 16): 117.9,
}  # fmt: skip


@pytest.mark.parametrize(("comm", "live_limit"), sorted(OPTIMUM))
def test_equal_links_come_near_the_optimum(comm: float, live_limit: int) -> None:
    """p 8, m 16: the measured makespans of greedy list scheduling, and the optima that CP-SAT proved."""
    problem = ScheduleProblem.uniform(8, 16, SPLIT, comm=comm, live_limit=live_limit)
    found = makespan(problem, generate("cross-domain", problem))
    assert found <= GREEDY_UNIFORM.get((comm, live_limit), inf) + 1e-9
    assert OPTIMUM[comm, live_limit] - 1e-9 <= found <= 1.001 * OPTIMUM[comm, live_limit]


@pytest.mark.parametrize(
    ("live_limit", "greedy", "bound"), [(8, 264.4, 241.6), (16, 197.6, 192.9), (None, 191.5, 191.5)]
)
def test_one_slow_link_beats_greedy(live_limit: int | None, greedy: float, bound: float) -> None:
    """p 8, m 64, 5 F in the middle: one and two times p live, and no limit; 1F1B ends at 509.7, ZB-H1 at 478.2."""
    problem = ScheduleProblem.uniform(8, 64, SPLIT, comm=MIDDLE, live_limit=live_limit)
    found = makespan(problem, generate("cross-domain", problem))
    assert bound - 0.05 <= found <= greedy + 0.05
    if live_limit:
        assert found < greedy - 4


def test_never_behind_greedy_on_the_published_problems(data: Path) -> None:
    """None of them was looked at when the rules were chosen; the mean gap to the bound is that of the best known."""
    gaps = []
    for each in json.loads((data / "schedules_open.json").read_text())["problems"]:
        p, m, limit = each["p"], each["m"], each["K"] or inf
        times = [tuple(each[k]) if isinstance(each[k], list) else (float(each[k]),) * p for k in "fbw"]
        links = tuple(RankLink(latency=delay) for delay in each["comm"])
        problem = ScheduleProblem(m, times[0], times[1], times[2], links, links, (limit,) * p)
        found = makespan(problem, generate("cross-domain", problem))
        assert found <= (each["other"]["greedy"] or inf) + 2e-3, each["id"]
        assert found <= 1.03 * each["best_of_all"], each["id"]
        gaps.append(found / each["jps_bound"] - 1)
    assert sum(gaps) / len(gaps) < 0.0054


def test_policies_begin_with_the_one_of_the_schedule() -> None:
    problem = ScheduleProblem.uniform(4, 12, SPLIT, comm=[0.05, 2, 0.05], live_limit=4)
    found = policies(problem, 3)
    spans = []
    for mirrored, policy in found:
        kinds = np.zeros((4, 36), np.int8)
        made = pipe(problem, mirrored=mirrored)
        spans.append(play_policy(made, board(made), policy, kinds, inf))
    assert len(found) == 3
    assert spans == sorted(spans)
    assert spans[0] == pytest.approx(makespan(problem, generate("cross-domain", problem)))


# ------------------------------------------------------------------------------------------------------- any problem
def test_a_limit_below_one_micro_batch_names_the_one_that_does() -> None:
    problem = replace(
        ScheduleProblem.uniform(2, 3), memory=(MicroBatchMemory(1.0), MicroBatchMemory(3.0)), limit=(2.0, 2.0)
    )
    with pytest.raises(InfeasibleError, match=r"keeps 3 on rank 1, the limit is 2\. .*--memory 3\."):
        generate("cross-domain", problem)


TIMES = st.floats(0.2, 3.0)
LINKS = st.builds(RankLink, st.sampled_from([0.0, 0.1, 1.0, 7.0]), st.sampled_from([0.0, 0.0, 0.4, 2.0]))


@st.composite
def problems(draw: st.DrawFn) -> ScheduleProblem:
    p, m = draw(st.integers(1, 6)), draw(st.integers(1, 10))
    forward, backward, weight = (tuple(draw(st.lists(TIMES, min_size=p, max_size=p))) for _ in range(3))
    down, up = (tuple(draw(st.lists(LINKS, min_size=p - 1, max_size=p - 1))) for _ in range(2))
    memory = tuple(MicroBatchMemory(1.0, draw(st.sampled_from([0.0, 0.3, 1.0]))) for _ in range(p))
    limit = tuple(draw(st.lists(st.sampled_from([1.0, 1.5, 2.0, 5.0, inf]), min_size=p, max_size=p)))
    return ScheduleProblem(m, forward, backward, weight, down, up, limit, memory)


@settings(deadline=None)
@given(problems())
def test_every_problem_with_room_for_one_micro_batch_gets_a_sound_schedule(problem: ScheduleProblem) -> None:
    found = generate("cross-domain", problem)
    assert violations(problem, found) == ()
    assert makespan(problem, found) >= lower_bound(problem) * (1 - 1e-9)
    assert generate("cross-domain", problem).order.tolist() == found.order.tolist()


@pytest.mark.parametrize("seed", range(6))
def test_rules_given_up_are_not_among_the_likely(seed: int) -> None:
    rng, ranks = np.random.default_rng(seed), 4
    forward, backward, weight = (tuple(each) for each in rng.uniform(0.5, 2.0, (3, ranks)).tolist())
    links = tuple(RankLink(float(each)) for each in rng.uniform(0.0, 4.0, ranks - 1))
    problem = ScheduleProblem(200, forward, backward, weight, down=links, up=links, limit=(8.0,) * ranks)
    player = Player(replace(problem, micro_batches=FEW_WAVES * ranks))
    spans = player.spans(RULES, len(RULES)).tolist()
    assert (
        _likely(problem, RULES)
        == [rule for _, rule in sorted(zip(spans, RULES, strict=True), key=lambda each: each[0])][:LIKELY]
    )


@pytest.mark.parametrize("count", [1, 3])
def test_few_rules_order_many_micro_batches(count: int) -> None:
    problem = ScheduleProblem.uniform(2, 81, comm=1)
    rows, _ = cross_domain.generate(problem, rules=RULES[:count])
    assert len(rows) == 3 * 81 * 2
