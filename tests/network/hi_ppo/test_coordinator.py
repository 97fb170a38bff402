"""The coordinator on a pair of domains, with agents whose preferences the test writes down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from hippo.dynamics.forecast import Forecast, Telemetry
from hippo.errors import InfeasibleError
from hippo.network.hi_ppo import coordinator as hi
from hippo.network.hi_ppo import verification
from hippo.network.hi_ppo.coordinator import CoordinatorSettings, HiPpo
from hippo.network.hi_ppo.observation import Observed
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules import renewal
from hippo.network.rules.move import STREAMING
from hippo.network.rules.trigger import Thresholds
from hippo.network.rules.view import Action, How, View
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.cluster import Cluster, Domain, Gpu, Link
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload

KEEP, ACROSS, ALONE, LEVER = Action(), 0, 1, 2
ALWAYS = CoordinatorSettings(thresholds=Thresholds(every=1), fresh=False, construct=0)
USUAL = 2e8


def stage(domain: str, start: int, stop: int) -> Stage:
    return Stage(domain, (start, stop), 1, 1, (f"{domain}/0/0",))


@pytest.fixture
def cache(known: PlanCache) -> PlanCache:
    """A copy of its own for every test: methods add plans."""
    return known.copy()


@pytest.fixture(scope="module")
def known() -> PlanCache:
    """0: across a and b, 1: in a alone (on a link at ``USUAL`` the slower one), 2: as 0 with the schedule gpipe."""
    gpu = Gpu("A100-SXM-80GB", {"bf16": 312e12}, 80e9, 2.0e12, 300e9, 1.8, family="ampere")
    domains = tuple(Domain(name, 1, 1, 300e9, 25e9, 5e-6) for name in "ab")
    links = tuple(Link(*pair, USUAL, 0.0, 0.001) for pair in ("ab", "ba"))
    model = gpt_model("toy", layers=22, hidden=1024, heads=8, vocab=32000, seq=1024, gated=True)
    made = PlanCache(Problem(model, Cluster("pair", gpu, domains, links), Workload(global_batch=32, seq=1024)))
    split = Plan((Pipeline((stage("a", 0, 12), stage("b", 12, 24)), 32),), 1)
    alone = Plan((Pipeline((stage("a", 0, 24),), 32),), 1)
    gpipe = replace(split, schedule=replace(split.schedule, name="gpipe"))
    added = [made.add(plan, origin="hand", lever=lever) for plan, lever in ((split, ""), (alone, ""), (gpipe, "x"))]
    assert added == [ACROSS, ALONE, LEVER]
    return made


def view(cache: PlanCache, now: float = USUAL, later: float | None = None, **changes: object) -> View:
    states = np.repeat(np.array([now, now if later is None else later])[:, None], 2, axis=1)
    forecast = Forecast(np.array([0, 8]), states, np.zeros((2, 2)), np.ones((2, 2)), np.zeros((2, 2)))
    told = Telemetry(np.full((1, 2), USUAL), np.zeros((1, 2)), np.ones((1, 2)), np.ones((1, 2), dtype=bool))
    plain = View(cache, 4, 60.0, 100, told, forecast, running=ACROSS, restart_s=30.0, usd_per_token=1e-3)
    return replace(plain, **changes)


class Agents:
    """Options in the order in which they are liked; the first that the mask allows is likeliest."""

    def __init__(self, *liked: Action, wait: Callable[[], None] = lambda: None) -> None:
        self.liked, self.wait, self.asked = (*liked, KEEP), wait, 0
        self.graphs: tuple[str, ...] = ("global",)

    def see(self, view: View, *, quiet: float) -> Observed:
        return Observed(SimpleNamespace(option_mask=np.ones((1, len(self.liked)), dtype=bool)), self.liked)

    def act(self, observation: SimpleNamespace) -> SimpleNamespace:
        self.asked += 1
        self.wait()
        odds = 2.0 ** -np.arange(1, len(self.liked) + 1)
        return SimpleNamespace(log_probs=np.log(odds / odds.sum())[None])


def method(*liked: Action, settings: CoordinatorSettings = ALWAYS, **agents: object) -> HiPpo:
    who = Agents(*liked, **agents)
    return HiPpo(who, settings=settings, see=who.see, clock=lambda: 0.0)


def test_the_world_is_as_the_tests_need_it(cache: PlanCache) -> None:
    usual = [cache.score(index).step_time_s for index in (ACROSS, ALONE)]
    assert usual[0] < 0.8 * usual[1]  # across is better
    slow = view(cache, USUAL / 50)
    assert verification.step_now_s(slow, ACROSS) > 2 * verification.step_now_s(slow, ALONE)  # until the link collapses


def test_the_proposal_is_taken_when_it_holds(cache: PlanCache) -> None:
    hippo = method(Action(How.STOP, ALONE))
    assert hippo.decide(view(cache, USUAL / 50)) == Action(How.STOP, ALONE)
    assert hippo.account is not None
    assert hippo.account.outcome == hi.PROPOSED
    assert hippo.account.probability == pytest.approx(2 / 3)


def test_a_clear_loss_is_refused(cache: PlanCache) -> None:
    hippo = method(Action(How.STOP, ALONE))
    assert hippo.decide(view(cache)) == Action(How.SWITCH, LEVER)  # what the receding horizon does: gpipe is better
    assert hippo.account is not None
    assert hippo.account.outcome == hi.REFUSED
    verdict = hippo.account.verdict
    assert verdict is not None
    assert verdict.loss_tokens == pytest.approx(verdict.rival.net_tokens - verdict.proposal.net_tokens)


def test_without_verification_it_is_taken(cache: PlanCache) -> None:
    hippo = method(Action(How.STOP, ALONE), settings=replace(ALWAYS, verify=False))
    assert hippo.decide(view(cache)) == Action(How.STOP, ALONE)


def test_a_loss_that_the_network_may_undo_is_not_clear(cache: PlanCache) -> None:
    """One standard deviation (a factor of e^3 at most) brings the links back: then across is better again."""
    slow = view(cache, USUAL / 20, running=ALONE)
    assert method(Action(How.STOP, ACROSS)).decide(slow) == KEEP
    doubtful = replace(slow, forecast=replace(slow.forecast, sd=np.full((2, 2), 3.0)))
    assert method(Action(How.STOP, ACROSS)).decide(doubtful) == Action(How.STOP, ACROSS)


def test_a_lever_that_does_clearly_more_is_pulled(cache: PlanCache) -> None:
    """gpipe keeps more micro-batches in flight than 1f1b: a third more on the usual network, and free."""
    hippo = method()
    assert hippo.decide(view(cache)) == Action(How.SWITCH, LEVER)
    assert hippo.account is not None
    assert hippo.account.outcome == hi.OVERRULED
    assert hippo.account.verdict is not None
    more = cache.score(ACROSS).step_time_s / cache.score(LEVER).step_time_s - 1.0
    assert hippo.account.verdict.lever_share == pytest.approx(more, rel=1e-3)
    assert [reason.kind for reason in hippo.reasons(view(cache))] == ["overruled"]
    assert method().decide(view(cache, running=LEVER)) == KEEP


def test_to_keep_is_never_refused(cache: PlanCache) -> None:
    """A forecast that errs is no reason to move: whether to wait is the agents' to weigh."""
    hippo = method()
    assert hippo.decide(view(cache, USUAL / 50)) == KEEP
    assert hippo.account is not None
    assert hippo.account.outcome == hi.KEPT


def test_nothing_due_nobody_asked(cache: PlanCache) -> None:
    hippo = method(Action(How.STOP, ALONE), settings=replace(ALWAYS, thresholds=Thresholds(every=5)))
    hippo.decide(view(cache, running=LEVER))
    assert hippo.decide(view(cache, running=LEVER, epoch=5)) == KEEP
    assert hippo.account is not None
    assert hippo.account.outcome == hi.QUIET
    assert hippo.policy.asked == 1


# ------------------------------------------------------------------------------------------------ lost links, deadlines
def test_what_needs_a_lost_link_is_passed_over(cache: PlanCache) -> None:
    hippo = method(Action(How.SWITCH, LEVER), Action(How.STOP, ACROSS), Action(How.SWITCH, ALONE))
    down = view(cache, 0.0, running=ALONE)
    assert hippo.decide(down) in (KEEP, Action(How.SWITCH, ALONE))
    assert hippo.account is not None
    assert hippo.account.barred == (Action(How.SWITCH, LEVER), Action(How.STOP, ACROSS))


def test_a_move_over_a_lost_link_is_not_allowed(cache: PlanCache) -> None:
    down = view(cache, 0.0)
    assert not verification.allowed(down, Action(How.STOP, ALONE))  # b holds layers that would have to cross
    assert verification.allowed(down, KEEP)
    assert verification.allowed(view(cache), Action(How.STOP, ALONE))


def test_begin_takes_the_best_that_can_run(cache: PlanCache) -> None:
    first = view(cache, 0.0, running=-1)
    assert method(Action(How.SWITCH, ACROSS), Action(How.SWITCH, ALONE)).begin(first) == ALONE


def test_nothing_can_run_is_an_answer(cache: PlanCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hi.RecedingHorizon, "begin", lambda self, view: -1)  # no plan in one domain is made
    only = PlanCache(cache.problem)
    only.add(cache.configurations[ACROSS].plan, origin="hand")
    with pytest.raises(InfeasibleError, match="No plan can run"):
        method(Action(How.SWITCH, 0)).begin(view(only, 0.0, running=-1))


def test_too_late_keeps(cache: PlanCache) -> None:
    now = [0.0]

    def wait() -> None:
        now[0] += 1.5

    who = Agents(Action(How.STOP, ALONE), wait=wait)
    hippo = HiPpo(who, settings=ALWAYS, see=who.see, clock=lambda: now[0])
    assert hippo.decide(view(cache, USUAL / 50)) == KEEP
    assert hippo.account is not None
    assert (hippo.account.outcome, hippo.account.late) == (hi.LATE, "between domains")
    assert hippo.account.times.total_s == pytest.approx(1.5)


def test_the_agents_own_plans_join_the_book(cache: PlanCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are constructed when the network has moved far, and not again before it does so again, and not too soon."""
    asked: list[int] = []

    def construct(policy: object, problem: Problem, *state: object, **more: int) -> list[Plan]:
        asked.append(more["tries"])
        return [replace(cache.configurations[ACROSS].plan, recompute="full")]

    monkeypatch.setattr(hi, "construct", construct)
    who = Agents()
    who.networks = hi.CONSTRUCTING
    hippo = HiPpo(who, settings=replace(ALWAYS, construct=3), see=who.see)
    hippo.begin(view(cache, running=-1))
    for epoch, now in ((5, 0.95 * USUAL), (6, USUAL / 2), (16, USUAL / 2), (29, USUAL / 2)):
        hippo.decide(view(cache, now, epoch=epoch))
        assert asked == ([3, 3] if epoch > 16 else [3])
        hippo.replan(view(cache, now, epoch=epoch))
    assert asked == [3, 3]
    assert [each.origin for each in cache.configurations if each.origin == "constructed"] == ["constructed"]


def test_a_slow_construction_makes_no_decision_late(cache: PlanCache, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def construct(*_: object, **__: object) -> list[Plan]:
        now[0] += 0.5
        return []

    monkeypatch.setattr(hi, "construct", construct)
    who = Agents(Action(How.STOP, ALONE))
    who.networks = hi.CONSTRUCTING
    hippo = HiPpo(who, settings=replace(ALWAYS, construct=2), see=who.see, clock=lambda: now[0])
    hippo.begin(view(cache, running=-1))
    slow = view(cache, USUAL / 50)
    assert hippo.decide(slow) == Action(How.STOP, ALONE)
    assert [reason.sentence() for reason in hippo.reasons(slow) if reason.kind == "late"] == [
        "To arrange a plan (inside a domain) took 250 ms, more than 100 ms."
    ]
    hippo.decide(replace(slow, epoch=9))
    assert not [reason for reason in hippo.reasons(slow) if reason.kind == "late"]


def test_a_move_waits_for_plans_that_are_about_to_be_made(cache: PlanCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "replan", lambda *_: None)
    settings = replace(ALWAYS, thresholds=Thresholds(every=99), fresh=True)
    hippo = method(Action(How.STOP, ALONE), settings=settings)
    hippo.begin(view(cache, running=-1))
    slow = view(cache, USUAL / 50, epoch=20)
    assert hippo.decide(slow) == KEEP
    assert hippo.account is not None
    assert hippo.account.outcome == hi.AWAITED
    assert hippo.replan(slow)
    assert hippo.decide(slow) == Action(How.STOP, ALONE)
    assert [reason.sentence() for reason in hippo.reasons(slow)] == [
        "The network has moved far: plans and levers were made for it first, and nothing better was found."
    ]
    assert not hippo.replan(slow)  # plans for it are known now


def test_what_is_found_makes_the_answer_be_given_again(cache: PlanCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def replan(view: View, running: int) -> None:
        view.cache.add(replace(view.cache.configurations[running].plan, recompute="full"), origin="anew")

    monkeypatch.setattr(renewal, "replan", replan)
    hippo = method(Action(How.SWITCH, ACROSS), settings=replace(ALWAYS, thresholds=Thresholds(every=99), fresh=True))
    hippo.begin(view(cache, running=-1))
    halved = view(cache, USUAL / 2, epoch=20)
    hippo.decide(halved)
    known = len(cache)
    assert hippo.replan(halved)
    assert len(cache) == known + 1
    hippo.decide(halved)
    assert hippo.account is not None
    assert hippo.account.due.found
    assert hippo.account.due.links  # what made it due at first is not forgotten
    assert hippo.account.renewed == 1
    assert not hippo.replan(halved)
    hippo.decide(replace(halved, epoch=21))
    assert not hippo.account.due


def test_a_lever_that_does_more_is_pulled_between_decisions(cache: PlanCache) -> None:
    settings = replace(ALWAYS, thresholds=Thresholds(every=99))
    hippo = method(settings=settings)
    hippo.begin(view(cache, running=-1))
    hippo.decide(view(cache, running=ACROSS, epoch=5))
    later = view(cache, running=ACROSS, epoch=6)
    assert hippo.decide(later) == Action(How.SWITCH, LEVER)
    assert hippo.account is not None
    assert hippo.account.outcome == hi.LEVERED
    gain = cache.score(ACROSS).step_time_s / cache.score(LEVER).step_time_s - 1.0
    assert hippo.account.gain_share == pytest.approx(gain, rel=0.05)
    assert "costs nothing, can be taken back" in hippo.reasons(later)[0].sentence()
    assert hippo.decide(view(cache, running=LEVER, epoch=7)) == KEEP
    assert hippo.account.outcome == hi.QUIET
    bound = method(settings=replace(settings, levers=False))
    bound.begin(view(cache, running=-1))
    bound.decide(view(cache, running=ACROSS, epoch=5))
    assert bound.decide(later) == KEEP


def test_degraded_goes_where_it_can_run(cache: PlanCache) -> None:
    """The link from a to b is down for good, the way back is up: b's layers can come home."""
    rates = np.array([[0.0, USUAL], [0.0, USUAL]])
    broken = view(cache)
    broken = replace(broken, forecast=replace(broken.forecast, bandwidth_bytes_per_s=rates))
    assert verification.degraded(broken) == Action(How.STOP, ALONE)
    assert verification.degraded(view(cache)) == KEEP
    assert verification.degraded(view(cache, 0.0, running=ACROSS, target=ALONE, phase=STREAMING)) == KEEP


def test_stranded_agents_are_led_out(cache: PlanCache) -> None:
    rates = np.array([[0.0, USUAL], [0.0, USUAL]])
    broken = view(cache)
    broken = replace(broken, forecast=replace(broken.forecast, bandwidth_bytes_per_s=rates))
    hippo = method()
    assert hippo.decide(broken) == Action(How.STOP, ALONE)
    assert hippo.account is not None
    assert hippo.account.outcome == hi.STRANDED


# --------------------------------------------------------------------------------------------------------- preferences
def test_egress_weighs_more_when_links_are_scarce(cache: PlanCache) -> None:
    calm, scarce = view(cache, weights=(0.5, 0.2, 0.3)), view(cache, USUAL / 4, weights=(0.5, 0.2, 0.3))
    assert hi.adapted(calm) == pytest.approx((0.5, 0.2, 0.3))
    w_eff, w_util, w_cost = hi.adapted(scarce)
    assert w_eff + w_util + w_cost == pytest.approx(1.0)
    raised = 0.3 * (1 + 2.0 * 0.75)
    assert w_cost == pytest.approx(raised / (0.7 + raised))
    assert w_eff / w_util == pytest.approx(2.5)


def test_value_under_preferences(cache: PlanCache) -> None:
    ahead = verification.outlook(view(cache), [])
    expected = ahead.play(KEEP)
    assert verification.value(view(cache), expected) == expected.net_tokens
    lean, usual = view(cache, weights=(0.5, 0.5, 0.0)), verification.usual_work(view(cache)) * 100
    assert verification.value(lean, expected) < usual  # the quickest plan is not the busiest
    alone = view(cache, running=ALONE, weights=(0.0, 1.0, 0.0))  # in one domain nothing is waited for
    assert verification.value(alone, verification.outlook(alone, []).play(KEEP)) > verification.value(
        replace(lean, weights=alone.weights), expected
    )


def test_a_start_that_misses_the_preference_is_corrected(cache: PlanCache) -> None:
    """Alone in a domain the GPUs are busiest; across, training is quickest. Under work alone the agents decide."""
    start = view(cache, running=-1)
    busy = replace(start, weights=(0.1, 0.9, 0.0))
    hippo = method(Action(How.STOP, ACROSS))
    assert hippo.begin(start) == ACROSS
    begun = hippo.begin(busy)
    assert cache.configurations[begun].plan.domains == ("a",)
    assert hippo.account is not None
    assert (hippo.account.outcome, hippo.account.proposal.target) == (hi.REFUSED, ACROSS)
    assert method(Action(How.STOP, ACROSS), settings=replace(ALWAYS, verify=False)).begin(busy) == ACROSS


def test_a_start_that_meets_the_preference_holds(cache: PlanCache) -> None:
    busy = view(cache, running=-1, weights=(0.1, 0.9, 0.0))
    wanted = method().begin(busy)
    hippo = method(Action(How.SWITCH, wanted))
    assert hippo.begin(busy) == wanted
    assert hippo.account is not None
    assert hippo.account.outcome == hi.PROPOSED


def test_a_run_follows_a_preference_that_changes(cache: PlanCache) -> None:
    busy = view(cache, weights=(0.0, 1.0, 0.0))
    answer = method().decide(busy)
    assert answer.how in (How.STOP, How.BACKGROUND)
    assert len(cache.configurations[answer.target].plan.domains) == 1
    assert method().decide(view(cache, running=LEVER)) == KEEP
