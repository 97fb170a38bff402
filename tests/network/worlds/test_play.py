"""A method plays a world: what it is shown, what its answers do, and what they may not be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from hippo.dynamics.forecast import Forecasts
from hippo.errors import InfeasibleError
from hippo.network.plans.levers import either
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import DOWNTIME_S, EGRESS_USD, MOVED_BYTES, STILL, STREAMING, TOKENS
from hippo.network.rules.view import Action, How, View
from hippo.network.worlds.asking import Terms
from hippo.network.worlds.play import foresee, play, usd_per_token
from hippo.network.worlds.world import World, rollout
from hippo.planners.base import Stop
from hippo.planners.baselines.single_domain import SingleDomain
from hippo.planners.exact.search import Exact
from hippo.problem.links import base_latency
from hippo.problem.load import load_problem

ACROSS, ALONE, PRESSED = 0, 1, 2  # configurations: over two hubs, in one, the first with fp8 on its hops
EPOCHS, EPOCH_S = 40, 240.0


@dataclass
class Scripted:
    """Answers by epoch; keeps otherwise."""

    answers: dict[int, Action] = field(default_factory=dict)
    first: int = ACROSS
    name: str = "scripted"
    meets: Callable[[View], object] = lambda view: None

    def begin(self, view: View) -> int:
        self.meets(view)
        return self.first

    def decide(self, view: View) -> Action:
        self.meets(view)
        return self.answers.get(view.epoch, Action())


@pytest.fixture(scope="module")
def known() -> PlanCache:
    problem = load_problem(model="gpt3-175b", cluster="four-hubs", global_batch=64, runtime="ideal")
    best, alone = (each.propose(problem, Stop(60.0)).plan for each in (Exact(), SingleDomain()))
    problem = replace(problem, allow_compression=True, compression_worth=0.985)
    assert best is not None
    assert alone is not None
    cache = PlanCache(problem)
    _, pressed = either(problem, best)
    assert cache.add(best, origin="exact") == ACROSS
    assert cache.add(alone, origin="single_domain") == ALONE
    assert cache.add(pressed, origin="exact", lever="fp8") == PRESSED
    return cache


@pytest.fixture(scope="module")
def still(known: PlanCache) -> World:
    cluster = known.problem.cluster
    bandwidth = np.array([link.rate_bytes_per_s(cluster.domain(link.source).nodes) for link in cluster.links])
    return World(
        name="still",
        family="still",
        problem=known.problem,
        epoch_s=EPOCH_S,
        bandwidth_bytes_per_s=np.tile(bandwidth, (EPOCHS, 1)),
        latency_s=np.tile(base_latency(cluster), (EPOCHS, 1)),
        compute=np.ones((EPOCHS, len(cluster.domains))),
        told=np.ones((EPOCHS, len(bandwidth)), dtype=bool),
    )


def unchanging(world: World) -> Forecasts:
    return foresee(world, "persistence")


def test_to_keep_trains_what_the_course_says(known: PlanCache, still: World) -> None:
    run = play(still, known, Scripted(), Terms(1e-6), forecasts=unchanging(still))
    told = rollout(still, known)
    assert run.gave[:, TOKENS] == pytest.approx(told.tokens_per_s[:, ACROSS] * EPOCH_S)
    assert run.step_time_s == pytest.approx(known.score(ACROSS).step_time_s)
    assert run.utilization == pytest.approx(known.score(ACROSS).utilization)
    assert (run.moves, run.moved_bytes, run.downtime_share) == (0, 0.0, 0.0)
    assert run.work == pytest.approx(run.gave[:, TOKENS].sum() - run.gave[:, EGRESS_USD].sum() / 1e-6)


def test_where_gpus_cost_nothing_egress_does_not_count(known: PlanCache, still: World) -> None:
    run = play(still, known, Scripted(), Terms(0.0), forecasts=unchanging(still))
    assert run.work == run.gave[:, TOKENS].sum()


def test_a_lever_acts_in_the_epoch_in_which_it_is_pulled(known: PlanCache, still: World) -> None:
    run = play(still, known, Scripted({7: Action(How.SWITCH, PRESSED)}), Terms(1e-6), forecasts=unchanging(still))
    assert run.running.tolist() == [ACROSS] * 7 + [PRESSED] * (EPOCHS - 7)
    assert run.gave[:, DOWNTIME_S].sum() == 0.0


@dataclass
class Thinker(Scripted):
    """Pulls the lever once it has replanned: ``asked`` tells of which epochs, and how often it was asked.

    It answers in 1 ms and thinks for 20, by a clock of its own."""

    asked: list[int] = field(default_factory=list)
    works_s: float = 0.02
    spent_s: float = 0.0

    def begin(self, view: View) -> int:
        self.spent_s += 0.001
        return super().begin(view)

    def decide(self, view: View) -> Action:
        self.spent_s += 0.001
        self.asked.append(view.epoch)
        return Action(How.SWITCH, PRESSED) if self.asked.count(view.epoch) == 2 else Action()

    def replan(self, view: View) -> bool:
        if view.epoch not in (0, 7):
            return False
        self.spent_s += self.works_s
        return True


def test_who_has_thought_may_answer_again_and_the_thought_counts(
    known: PlanCache, still: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = Thinker()
    monkeypatch.setattr("hippo.network.worlds.asking.process_time", lambda: method.spent_s)
    run = play(still, known, method, Terms(1e-6), forecasts=unchanging(still))
    assert run.running.tolist() == [ACROSS] * 7 + [PRESSED] * (EPOCHS - 7)
    assert method.asked == sorted([*range(1, EPOCHS), 7])
    assert run.actions[7] == Action(How.SWITCH, PRESSED)
    assert run.replanning_s[[0, 1, 7]] == pytest.approx([0.02, 0.0, 0.02])
    # the answer that counts came after the replanned; where a run begins nothing is asked again
    assert run.decision_s[[0, 1, 7]] == pytest.approx([0.001, 0.001, 0.022])


def test_stop_and_copy_costs_what_the_links_need(known: PlanCache, still: World) -> None:
    run = play(still, known, Scripted({1: Action(How.STOP, ALONE)}), Terms(1e-6), forecasts=unchanging(still))
    sent = known.move_bytes(0, 1)
    assert run.gave[:, DOWNTIME_S].sum() == pytest.approx((sent / still.bandwidth_bytes_per_s[0]).max())
    assert run.moved_bytes == pytest.approx(sent.sum())
    assert run.running[-1] == ALONE
    assert run.moves == 1


def test_a_background_move_is_seen_to_arrive_and_can_be_given_up(known: PlanCache, still: World) -> None:
    world = replace(still, epoch_s=10.0, bandwidth_bytes_per_s=still.bandwidth_bytes_per_s * 20)
    arrived: list[float] = []
    answers = {2: Action(How.BACKGROUND, ALONE), 5: Action(How.CANCEL)}
    method = Scripted(answers, meets=lambda view: arrived.append(view.arrived))
    run = play(world, known, method, Terms(1e-6), forecasts=unchanging(world))
    assert run.phase[:7].tolist() == [STILL, STILL, STREAMING, STREAMING, STREAMING, STILL, STILL]
    assert arrived[2] == 0.0
    assert 0.0 < arrived[3] < arrived[4] < arrived[5] < 1.0
    assert run.running[-1] == ACROSS
    assert run.gave[5:, MOVED_BYTES].sum() == 0.0


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        ({1: Action(How.SWITCH, ALONE)}, "another place"),
        ({1: Action(How.STOP, PRESSED)}, "the place where it runs"),
        ({1: Action(How.CANCEL)}, "no move to cancel"),
        ({1: Action(How.STOP, 99)}, "no configuration 99"),
        ({1: Action(How.BACKGROUND, ALONE), 2: Action(How.SWITCH, PRESSED)}, "while a move is under way"),
    ],
)
def test_an_answer_against_the_rules_is_a_fault(
    known: PlanCache, still: World, answers: dict[int, Action], fault: str
) -> None:
    with pytest.raises(AssertionError, match=fault):
        play(still, known, Scripted(answers), Terms(1e-6), forecasts=unchanging(still))


def test_a_method_that_knows_nothing_to_begin_with_is_an_answer(known: PlanCache, still: World) -> None:
    with pytest.raises(InfeasibleError):
        play(still, known, Scripted(first=-1), Terms(1e-6), forecasts=unchanging(still))


def test_a_method_sees_no_future_and_is_told_of_gaps(known: PlanCache, still: World) -> None:
    rng = np.random.default_rng(0)
    moving = still.bandwidth_bytes_per_s * rng.uniform(0.5, 1.0, still.told.shape)
    told = rng.random(still.told.shape) < 0.7
    world = replace(still, bandwidth_bytes_per_s=moving, told=told)

    def meets(view: View) -> None:
        seen = view.telemetry
        assert len(seen.fresh) == view.epoch + 1
        assert (seen.fresh == told[: view.epoch + 1]).all()
        assert (seen.bandwidth_bytes_per_s[seen.fresh] == moving[: view.epoch + 1][seen.fresh]).all()
        stale = ~seen.fresh[1:]
        assert (seen.bandwidth_bytes_per_s[1:][stale] == seen.bandwidth_bytes_per_s[:-1][stale]).all()
        assert view.epochs_left == EPOCHS - view.epoch

    play(world, known, Scripted(meets=meets), Terms(1e-6), forecasts=unchanging(world))


def test_what_a_method_proposes_is_its_own(known: PlanCache, still: World) -> None:
    """A plan found on the way is played as if it had been known from the start, and nobody else profits."""
    cache = PlanCache(known.problem)
    cache.add(known.configurations[ACROSS].plan, origin="exact")

    @dataclass
    class Inventive(Scripted):
        def decide(self, view: View) -> Action:
            if view.epoch != 3:
                return Action()
            target = view.cache.add(known.configurations[ALONE].plan, origin="inventive")
            assert target is not None
            return Action(How.STOP, target)

    one = play(still, cache, Inventive(), Terms(1e-6), forecasts=unchanging(still))
    other = play(still, known, Scripted({3: Action(How.STOP, ALONE)}), Terms(1e-6), forecasts=unchanging(still))
    assert len(cache) == 1
    assert len(one.cache) == 2
    assert (one.gave == other.gave).all()


def test_a_token_is_worth_the_rent_of_the_time_it_takes_at_the_start(known: PlanCache, still: World) -> None:
    quickest = min(known.score(index).step_time_s for index in (ACROSS, ALONE))  # levers do not count
    assert usd_per_token(still, known) == pytest.approx(known.rent_usd_per_s * quickest / known.tokens_per_step)
