"""A cheaper plan about as quick as the quickest: never dearer, never slower than said, after a search alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.planners.tiny import random_problem
from tests.planners.worlds import cluster, domain, problem

from hippo.planners.answers import answer_of
from hippo.planners.base import Stop
from hippo.planners.exact.search import Exact
from hippo.planners.exact.space import remembered, searched
from hippo.planners.exact.thrift import EQUAL, cheapest
from hippo.problem.load import load_problem
from hippo.problem.model import gpt_model
from hippo.score.judge import flaw

STOP = Stop(600.0)


@pytest.mark.parametrize("seed", range(8))
def test_it_is_about_as_quick_and_no_dearer(seed: int) -> None:
    asked = random_problem(seed)
    quick, cheap = Exact().propose(asked, STOP).score, cheapest(asked, STOP)
    if quick is None:
        assert cheap is None
        return
    assert cheap is not None
    assert flaw(asked, cheap) is None
    assert cheap.step_time_s <= (1 + EQUAL) * quick.step_time_s
    assert cheap.score.usd_per_step <= quick.usd_per_step


def test_gpus_that_gain_next_to_nothing_are_left_out() -> None:
    """Sixteen stages of five and six layers take as long as twelve of six and seven: the links set the pace."""
    asked = load_problem(model="llama-3-70b", cluster="four-hubs", runtime="ideal")
    quick, cheap = Exact().propose(asked, STOP), cheapest(asked, STOP)
    assert quick.plan is not None
    assert cheap is not None
    assert (quick.plan.gpus, cheap.plan.gpus) == (128, 96)


def test_the_cheapest_is_looked_for_among_all_degrees() -> None:
    """The last search is of other degrees than the best plan's."""
    small = gpt_model("long", layers=2, hidden=1024, heads=8, vocab=2048, seq=16_384, gated=True)
    asked = problem(cluster(domain("a", 1, 4)), small, batch=1, seq=16_384, runtime="megatron")
    quick, cheap = answer_of(Exact(), asked, STOP), cheapest(asked, STOP)
    assert quick.plan is not None
    assert quick.score is not None
    assert quick.plan.context_parallel > 1
    assert cheap is not None
    assert flaw(asked, cheap) is None
    assert cheap.step_time_s <= (1 + EQUAL) * quick.score.step_time_s
    assert cheap.score.usd_per_step <= quick.score.usd_per_step
    one = remembered(replace(asked, context_parallel=quick.plan.context_parallel))
    assert one is not None
    assert one.tried.least == pytest.approx(quick.score.step_time_s)
    Exact().propose(asked, STOP)  # asked anew, what was known of other degrees is forgotten
    assert searched(asked) == [remembered(asked)]


def test_nothing_is_known_where_nobody_searched() -> None:
    assert cheapest(random_problem(0), STOP) is None


def test_nothing_is_cheaper_where_all_that_was_played_is_slower_than_what_is_known() -> None:
    asked = random_problem(1)
    quick = Exact().propose(asked, STOP).score
    assert quick is not None
    Exact().propose(asked, Stop(600.0, below=0.97 * quick.step_time_s))
    assert cheapest(asked, STOP) is None
