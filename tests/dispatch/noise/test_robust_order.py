"""The order that is best on average: legal, never worse than what it started from, and honest about the other way."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.dispatch.noise.fluctuation import Fluctuation
from hippo.dispatch.noise.robust_order import HINT, robust_order
from hippo.errors import InfeasibleError, InputError
from hippo.schedule.check import violations
from hippo.schedule.methods import generate
from hippo.schedule.problem import MicroBatchMemory, ScheduleProblem
from hippo.schedule.search.clock import Clock

MID = [0.05, 0.05, 0.05, 5.0, 0.05, 0.05, 0.05]


def mid(live: int = 16) -> ScheduleProblem:
    return ScheduleProblem.uniform(8, 32, (1.0, 1.05, 0.75), comm=MID, live_limit=live)


def test_across_a_slow_link_under_fluctuation_dispatch_wins() -> None:
    found = robust_order(mid(), Fluctuation(0.2), time_limit_s=0.6)
    assert found.winner in (found.hint, found.patient)
    assert found.why.startswith(found.winner.name)
    assert found.hint.spread.mean < found.fixed.spread.mean
    h2 = HINT.played(mid(), generate("zb-h2", mid()), Fluctuation(0.2), samples=1000, seed=9)
    assert found.winner.spread.mean < h2.mean - 1  # 109.9 is not the best that can be done


def test_in_a_data_centre_with_little_memory_a_hint_needs_patience() -> None:
    problem = ScheduleProblem.uniform(8, 32, (1.0, 1.05, 0.75), comm=0.1, live_limit=8)
    found = robust_order(problem, Fluctuation(0.2, "uniform", 0.1), time_limit_s=0.3)
    assert found.hint.spread.mean > found.fixed.spread.mean + 0.5  # it starts a W just before a B arrives
    assert found.patient.spread.mean < found.fixed.spread.mean
    assert found.winner is found.patient
    assert "the best in fixed order takes +" in found.why


def test_without_fluctuation_it_is_as_good_as_the_best_schedule_and_fixed() -> None:
    problem = ScheduleProblem.uniform(4, 8, (1.0, 1.05, 0.75), comm=1.0, live_limit=8)
    found = robust_order(problem, Fluctuation(0.0), time_limit_s=0.5)
    assert found.winner is found.fixed
    assert found.winner.spread.mean == pytest.approx(29.3)  # the optimum, facts on pipelines, section 7
    assert found.winner.spread.error == pytest.approx(0)


@pytest.mark.parametrize("placement", ["plain", "looped", "v", "bidirectional"])
def test_every_schedule_of_every_placement_is_legal_and_within_memory(placement: str) -> None:
    memory = (MicroBatchMemory(2.0, 1.0),) * 4
    problem = ScheduleProblem.uniform(4, 8, (1.0, 1.2, 0.8), comm=[0.1, 2.0, 0.1])
    problem = ScheduleProblem(
        8, problem.forward, problem.backward, problem.weight, problem.down, problem.up, (20.0,) * 4, memory
    ).placed(placement)
    found = robust_order(problem, Fluctuation(0.2), time_limit_s=0.3)
    for each in (found.winner, found.fixed, found.hint, found.patient, *found.tried):
        assert not violations(problem, each.schedule)
        assert np.isfinite(each.spread.makespans).all()


def test_equal_seeds_give_equal_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the tries end before the clock does, which stands still here."""
    monkeypatch.setattr(Clock, "spent_s", 0.0)
    problem = ScheduleProblem.uniform(3, 6, (1.0, 1.1, 0.7), comm=1.0, live_limit=4)
    one, two = (robust_order(problem, Fluctuation(0.2), time_limit_s=0.1, seed=3) for _ in range(2))
    assert one.winner.schedule.order.tolist() == two.winner.schedule.order.tolist()
    assert one.winner.spread.mean == two.winner.spread.mean
    assert one.why == two.why


def test_bad_questions() -> None:
    with pytest.raises(InputError, match="time_limit_s"):
        robust_order(mid(), Fluctuation(), time_limit_s=0)
    small = ScheduleProblem(2, (1.0,), (1.0,), (1.0,), (), (), (0.5,))
    with pytest.raises(InfeasibleError, match="0.5"):
        robust_order(small, Fluctuation(), time_limit_s=0.1)
