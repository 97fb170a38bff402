from __future__ import annotations

from dataclasses import replace

from hippo.planners.baselines.mast import Mast
from hippo.planners.baselines.single_domain import SingleDomain

from ..worlds import STOP, assert_sound, cluster, domain, gpt, problem


def test_the_best_bid_of_all_regions_wins() -> None:
    slow = replace(domain("slow", 2, 4), inter_node_bytes_per_s=1e8, inter_node_latency_s=1e-2)
    fast = domain("fast", 2, 4)
    asked = problem(cluster(slow, domain("small", 1, 4), fast), batch=64)
    answer = Mast().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    assert answer.score is not None
    assert answer.plan.domains == ("fast",)
    bids = [Mast().propose(problem(cluster(one), batch=64), STOP) for one in (slow, fast, domain("small", 1, 4))]
    assert answer.score.step_time_s == min(bid.score.step_time_s for bid in bids if bid.score is not None)


def test_the_layout_inside_is_the_best_of_the_region() -> None:
    asked = problem(cluster(domain("a", 2, 4), memory_gb=7.0), gpt(8, 2048))
    answer, alone = (each.propose(asked, STOP) for each in (Mast(), SingleDomain()))
    assert answer.plan is not None
    assert answer.plan == alone.plan


def test_a_job_too_large_for_any_region_is_turned_down() -> None:
    asked = problem(cluster(domain("a", 1, 2), domain("b", 1, 2), memory_gb=4.0), gpt(8, 2048))
    answer = Mast().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is None
    assert answer.notes[0].startswith("No region holds small.")
