"""``hippo plan --rollouts``: against every placement and period played, and against SimPy."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from random import Random

import pytest
from tests.judges.rollouts import mean_step_s, vectors
from tests.planners import tiny

from hippo.cost.money import egress_usd, rent_usd_per_s
from hippo.errors import InfeasibleError
from hippo.planners.base import Stop
from hippo.planners.effort import Effort
from hippo.planners.rollouts import NEAR, RolloutAnswer, Trainer, plan_rollouts, trainers_of
from hippo.problem.cluster import Domain, Link
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.problem.rollouts import RolloutReplica, Rollouts, WeightPushes
from hippo.simulate.rollouts import PoolTimes, RolloutWorld, play

STOP = Stop(time_limit_s=1000.0)
SEEDS, LONG = range(20), (9, 11, 12)  # the last have thousands of placements and periods


def drawn(seed: int) -> tuple[Problem, Rollouts]:
    """One to three domains of up to three nodes of two GPUs, unlike links, replicas of one or two GPUs."""
    random = Random(seed)
    names = "abc"[: random.choice([1, 2, 2, 3])]
    domains = tuple(tiny.domain(name, random.randint(2 if len(names) == 1 else 1, 3), 2) for name in names)
    links = [
        Link(one, two, 10 ** random.uniform(7.5, 9.5), random.uniform(0.001, 0.08), random.choice([0.0, 0.02, 0.09]))
        for one, two in product(names, names)
        if one != two
    ]
    problem = tiny.problem(domains, tuple(links), batch=random.choice([4, 8, 16]))
    problem = replace(problem, objective=Objective(random.choice(["time", "time", "cost"])))
    every = tuple(sorted(random.sample([1, 2, 3], 2)))
    pushes = WeightPushes(every=every, delta_share=random.choice([0.03, 0.3]))
    replica = RolloutReplica(
        random.choice([1, 2]), 10 ** random.uniform(3.5, 5.0), random.choice([1, 2, 4]), random.choice([0.0, 0.2])
    )
    asked = Rollouts(replica, random.choice([128, 512]), random.randint(every[0] - 1, 4), pushes)
    return problem, asked


def world_of(problem: Problem, asked: Rollouts, trainer: Trainer, counts: tuple[int, ...], push: tuple[str, int]):
    """What all take, written down anew, and the dollars of a step's pushes and of a sample's way back."""
    kind, every = push
    sent = problem.model.parameters * asked.pushes.bits / 8
    sent *= 1.0 if kind == "whole" else 1.0 - (1.0 - asked.pushes.delta_share) ** every
    sample = asked.bytes_per_token * problem.workload.seq
    batch = asked.replica.sequences * sample
    pools, pushed, back = [], 0.0, []
    for domain, count in zip(problem.cluster.domains, counts, strict=True):
        if not count:
            continue
        if domain.name == trainer.domain:
            rate, late = trainer.nodes * domain.inter_node_bytes_per_s, domain.inter_node_latency_s
            pools.append(PoolTimes(count, sent / rate, late, batch / rate, late))
            back.append(0.0)
            continue
        out, home = (
            problem.cluster.link(*pair) for pair in ((trainer.domain, domain.name), (domain.name, trainer.domain))
        )
        assert out is not None
        assert home is not None
        speeds = [link.bandwidth_bytes_per_s * link.goodput for link in (out, home)]  # type: ignore[operator]
        pools.append(PoolTimes(count, sent / speeds[0], out.delay_s, batch / speeds[1], home.delay_s))
        pushed += egress_usd(sent / every, out.price_usd_per_gb)
        back.append(egress_usd(sample, home.price_usd_per_gb))
    world = RolloutWorld(
        problem.workload.global_batch, trainer.step_time_s, asked.staleness, every, asked.replica.sequences,
        asked.replica.sequences * asked.generated_tokens / asked.replica.tokens_per_s, asked.replica.load_s,
        tuple(pools),
    )  # fmt: skip
    return world, pushed, back


def room(problem: Problem, asked: Rollouts, domain: Domain, trainer: Trainer) -> int:
    free = domain.nodes - (trainer.nodes if domain.name == trainer.domain else 0)
    return free * (domain.gpus_per_node // asked.replica.gpus)


def everything(problem: Problem, asked: Rollouts) -> list[tuple[float, float]]:
    """Step time and dollars of every placement, period and kind of push."""
    found = []
    for trainer in trainers_of(problem, asked, Effort(), None):
        most = [room(problem, asked, domain, trainer) for domain in problem.cluster.domains]
        for counts, kind, every in product(vectors(most), asked.pushes.kinds, asked.pushes.every):
            if every > asked.staleness + 1:
                continue
            world, pushed, back = world_of(problem, asked, trainer, counts, (kind, every))
            times = play(world)
            gpus = trainer.plan.gpus + sum(counts) * asked.replica.gpus
            dollars = rent_usd_per_s(problem.cluster.gpu, gpus) * times.step_time_s + pushed
            dollars += sum(samples * price for samples, price in zip(times.samples, back, strict=True))
            found.append((times.step_time_s, dollars))
    return found


@cache
def answered(seed: int) -> RolloutAnswer:
    return plan_rollouts(*drawn(seed), STOP)


@pytest.mark.parametrize("seed", [pytest.param(each, marks=[pytest.mark.slow] * (each in LONG)) for each in SEEDS])
def test_as_good_as_every_placement_and_period_played(seed: int):
    problem, asked = drawn(seed)
    answer, known = answered(seed), everything(problem, asked)
    assert answer.step == 1
    assert not answer.cut_short
    if problem.objective.name == "cost":
        best = min(dollars for _, dollars in known)
    else:
        enough = min(seconds for seconds, _ in known) * (1 + NEAR)
        best = min(dollars for seconds, dollars in known if seconds <= enough)
        assert answer.best.step_time_s <= enough
    assert answer.best.usd_per_step == pytest.approx(best, rel=1e-9)
    assert answer.played <= answer.candidates == len(known)


def played_again(answer: RolloutAnswer) -> float:
    """The step of an answer by SimPy."""
    problem, best = answer.problem, answer.best
    counts = {pool.domain: pool.replicas for pool in best.plan.pools}
    trainer = Trainer(best.plan.home, best.nodes, best.plan.trainer, best.train_s)
    each = tuple(counts.get(domain.name, 0) for domain in problem.cluster.domains)
    world, _, _ = world_of(problem, answer.rollouts, trainer, each, (best.plan.push, best.plan.every))
    return mean_step_s(world)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_answers_step_is_that_of_simpy(seed: int):
    answer = answered(seed)
    assert answer.best.step_time_s == pytest.approx(played_again(answer), rel=0.01)


def test_a_trainer_that_fills_its_domain_leaves_the_others_to_generate():
    """One domain of one node each: whoever trains cannot generate beside it."""
    problem = tiny.problem((tiny.domain("a", 1, 2), tiny.domain("b", 1, 2)), tiny.both("a", "b", 1e9))
    asked = Rollouts(RolloutReplica(2, 1e5, 4), 128, 1)
    best = plan_rollouts(problem, asked, STOP).best
    assert [pool.domain for pool in best.plan.pools] == ["b" if best.plan.home == "a" else "a"]


def test_deltas_where_links_are_slow_and_sentences_that_say_so():
    problem = tiny.problem((tiny.domain("a", 1, 2), tiny.domain("b", 1, 2)), tiny.both("a", "b", 5e7))
    asked = Rollouts(RolloutReplica(2, 1e5, 4), 128, 1)
    answer = plan_rollouts(problem, asked, STOP)
    assert answer.best.plan.push == "delta"
    assert answer.others["whole pushes"].binds == "pushes"
    assert answer.others["whole pushes"].step_time_s > answer.best.step_time_s
    assert "every number of replicas" in answer.covers


def test_no_room_is_an_answer_with_a_way_out():
    problem = tiny.problem((tiny.domain("a", 1, 2),))
    with pytest.raises(InfeasibleError, match="No replica of 2 GPUs has room beside a trainer.*Nearest way out"):
        plan_rollouts(problem, Rollouts(RolloutReplica(2, 1e5, 4), 128, 1), STOP)


def test_no_domain_that_holds_the_trainer():
    problem = tiny.problem((tiny.domain("a", 1, 2),), memory_bytes=1e9)
    with pytest.raises(InfeasibleError, match=r"No domain holds the trainer of small alone \(a\)"):
        plan_rollouts(problem, Rollouts(RolloutReplica(1, 1e5, 4), 128, 1), STOP)


def test_large_worlds_go_in_steps_and_say_so():
    links = (*tiny.both("a", "b", 1e9), *tiny.both("a", "c", 1e9), *tiny.both("b", "c", 1e9))
    problem = tiny.problem(tuple(tiny.domain(name, 20, 2) for name in "abc"), links)
    asked = Rollouts(RolloutReplica(1, 2e4, 4), 128, 1, WeightPushes(("delta",), (1,)), trainers=("a",))
    answer = plan_rollouts(problem, asked, Stop(2.0))
    assert answer.step > 1
    assert f"steps of {answer.step}" in answer.covers
    assert answer.document()["status"] == "feasible"
