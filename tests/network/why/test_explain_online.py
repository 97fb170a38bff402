"""Reasons of decisions on a pair of domains, as text a person can read (explain_online.txt, by `situations` below)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hippo.decide.reasons import Reason
from hippo.dynamics.forecast import Forecast, Telemetry
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import STREAMING
from hippo.network.rules.trigger import seen
from hippo.network.rules.view import Action, How, View
from hippo.network.why import reasons as why
from hippo.network.why.explain import answer_words, changes, cuts, explain, placement
from hippo.plan.plan import Compression, Plan, Relay, ScheduleChoice
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload

GOLDEN = Path(__file__).parent / "explain_online.txt"
HORIZONS = np.array([0, 4, 64])


@pytest.fixture
def cache(worlds: type) -> PlanCache:
    """0: across a and b, 1: in a alone, 2: as 0 with the schedule gpipe."""
    made = PlanCache(Problem(worlds.model(), worlds.cluster(bandwidth=2e7), Workload(global_batch=4, seq=100)))
    across = worlds.across_plan()
    for plan, lever in ((across, ""), (worlds.alone_plan(), ""), (gpipe(across), "schedule")):
        made.add(plan, origin="exact", lever=lever)
    return made


def gpipe(plan: Plan) -> Plan:
    return replace(plan, schedule=ScheduleChoice("gpipe"))


def view(cache: PlanCache, now: float = 2e7, later: float = 2e7, **changes: object) -> View:
    """Both links at ``now`` bytes/s, ``later`` at the forecast's end."""
    states = np.repeat(np.array([now, later, later])[:, None], 2, axis=1)
    forecast = Forecast(HORIZONS, states, np.full((3, 2), 0.03), np.ones((3, 2)), np.full((3, 2), 0.2))
    told = Telemetry(states[:1], np.full((1, 2), 0.03), np.ones((1, 2)), np.ones((1, 2), dtype=bool))
    plain = View(cache, 9, 60.0, 100, told, forecast, running=0, restart_s=30.0, usd_per_token=1e-6)
    return replace(plain, **changes)


def situations(cache: PlanCache) -> Iterator[tuple[str, tuple[Reason, ...]]]:
    """A name and the reasons of every sort of decision."""
    calm = view(cache)
    before = seen(replace(calm, epoch=8))
    slow, down = view(cache, 2e6, 1e7), view(cache, 0.0, 0.0)
    yield "the run begins", explain(view(cache, running=-1), Action(How.SWITCH, 0), last=None)
    yield "a link collapses, a move by stopping", explain(slow, Action(How.STOP, 1), last=before)
    yield "the same in the background", explain(slow, Action(How.BACKGROUND, 1), last=before)
    yield "the same, a lever", explain(slow, Action(How.SWITCH, 2), last=before)
    kept = why.Kept(answer_words(slow, Action(How.STOP, 1)), -0.031)
    yield "the same, kept", explain(slow, Action(), last=before, told=(kept,))
    refused = why.Refused(answer_words(slow, Action(How.STOP, 1)), 0.61, 0.042, 5.1e6, 1.2e6)
    yield "the same, the proposal refused", explain(slow, Action(), last=before, told=(refused,))
    yield "both links are lost, waiting", explain(down, Action(), last=before)
    barred = why.Barred(answer_words(down, Action(How.SWITCH, 2)), 1)
    yield "both links are lost, a way out", explain(down, Action(How.STOP, 1), last=before, told=(barred,))
    yield "back again", explain(calm, Action(), last=seen(down))
    moving = view(cache, running=1, target=0, phase=STREAMING, arrived=0.4)
    yield "a move is given up", explain(moving, Action(How.CANCEL), last=seen(moving))
    loaded = view(cache)
    loaded.forecast.compute[0, 1] = 1.12
    yield "load in b", explain(loaded, Action(), last=before)
    silent = np.array([[True, True], [True, True], [False, True]])
    stale = replace(calm, telemetry=replace(calm.telemetry, fresh=silent))
    yield "telemetry is missing", explain(stale, Action(), last=before)
    late = why.Late("between domains", 1.31, 1.0, True)
    weighed = why.Weighed("0.5, 0 and 0.5", 0.4, 0.0, 0.6)
    yield "late", explain(calm, Action(), last=before, told=(weighed, late))


def test_golden(cache: PlanCache) -> None:
    lines = []
    for name, reasons in situations(cache):
        lines += [f"# {name}", *(f"{reason.kind}: {reason.sentence()}" for reason in reasons), ""]
    text = "\n".join(lines)
    assert text == GOLDEN.read_text()


def test_a_worth_says_what_keeping_costs(cache: PlanCache) -> None:
    slow = view(cache, 2e6, 2e6)
    reasons = explain(slow, Action(How.STOP, 1), last=seen(view(cache)))
    worth = next(reason for reason in reasons if isinstance(reason, why.ExpectedWork))
    kept = cache.tokens_per_step / float(
        cache.step_time_s(0, np.full((1, 2), 2e6), np.full((1, 2), 0.03))[0]
    )  # tokens/s of what runs, on the slow network
    steps = kept * 6000.0 / cache.tokens_per_step
    egress = steps * cache.egress_usd_per_step(0) / 1e-6
    assert worth.keeping_net_tokens == pytest.approx(kept * 6000.0 - egress)
    assert worth.ahead_s == 6000.0


def test_what_is_expected_of_a_link_ends_with_the_run(cache: PlanCache) -> None:
    def moved(epochs_left: int) -> why.LinkMoved:
        reasons = explain(view(cache, 2e6, 1e7, epochs_left=epochs_left), Action(), last=seen(view(cache)))
        return next(reason for reason in reasons if isinstance(reason, why.LinkMoved))

    assert [moved(left).expected_in_s for left in (65, 64, 5, 4)] == [64 * 60.0, 240.0, 240.0, 0.0]
    assert "expected in" in moved(5).sentence()
    assert "expected in" not in moved(1).sentence()


def test_every_reason_has_figures_for_json(cache: PlanCache) -> None:
    for _, reasons in situations(cache):
        for reason in reasons:
            document = reason.document()
            assert document["sentence"].endswith(".")
            assert document["kind"]


def test_changes_are_named_both_ways(worlds: type) -> None:
    plan = worlds.across_plan()
    pulled = replace(plan, relays=(Relay("a", "b", "c"),), compression=(Compression("a", "b", "fp8"),), micro_batch=2)
    assert changes(plan, pulled) == (
        "a -> b through c",
        "a -> b compressed as fp8",
        "sequences a micro-batch 1 become 2",
    )
    assert changes(pulled, plan)[:2] == ("a -> b direct again", "a -> b as it is, no longer fp8")
    assert changes(plan, plan) == ()


def test_cuts_and_placement(worlds: type) -> None:
    plan = worlds.across_plan()
    assert cuts(plan) == (3,)
    assert cuts(worlds.alone_plan()) == ()
    twice = replace(plan, pipelines=(*plan.pipelines, *worlds.alone_plan().pipelines))
    assert placement(twice) == "a [0-3) -> b [3-6) | a [0-6)"
