from __future__ import annotations

from dataclasses import replace
from itertools import combinations, islice, permutations

import numpy as np
import pytest

from hippo.plan.plan import ScheduleChoice
from hippo.planners.baselines.crosspipe import NORM, AcrossDomains, CrossPipe, CrossPipeSearch, best_chains
from hippo.planners.recipe import Recipe
from hippo.score.judge import evaluate, memory
from hippo.simulate.costs import cost_model

from ..worlds import STOP, assert_sound, cluster, domain, gpt, problem

WHERE = cluster(domain("a", 1, 4), domain("b", 1, 4), gbps=10.0)


def search(asked) -> CrossPipeSearch:
    return CrossPipeSearch(cost_model(asked), lambda missing: None)


def test_domains_come_in_the_order_whose_slowest_link_is_fastest() -> None:
    where = cluster(
        *(domain(name, 1, 2) for name in "abcd"),
        others={("a", "c"): 20.0, ("c", "b"): 20.0, ("b", "d"): 20.0},
        gbps=1.0,
        memory_gb=3.0,
    )
    asked = problem(where, gpt(12, 2048), batch=32)
    answer = CrossPipe().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    assert "".join(answer.plan.domains) in ("acbd", "dbca")


def test_data_parallelism_stays_inside_a_domain_and_one_pipeline_crosses() -> None:
    asked = problem(WHERE, batch=64)
    answer = CrossPipe().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    (pipeline,) = answer.plan.pipelines
    assert len(pipeline.domains) == 2
    assert len({stage.dp for stage in pipeline.stages}) == 1


def pipeline_of_two(waves: int = 16) -> AcrossDomains:
    return AcrossDomains(("a", "b"), 1, 4, Recipe(1), waves, 0.0, (0, 5, 10))


def test_the_closed_form_of_two_stages() -> None:
    # Pace: stage, link, or a round trip that k = 1 forward ahead leaves open; then one wave there and back, sync once.
    asked = problem(WHERE, batch=64)
    one, costs = pipeline_of_two(), cost_model(asked)
    layout = one.recipe.layout(asked, tp=1, dp=4, stages=2)
    stages = [costs.stage(name, *span, layout) for name, span in (("a", (0, 5)), ("b", (5, 10)))]
    each = [stage.forward_s + stage.backward_s + stage.weight_gradient_s for stage in stages]
    sent_s = 4 * stages[0].output_bytes / (10e9 / 8)
    round_s = 2 * (0.02 + sent_s)
    once = max(stage.sync_s + stage.optimizer_s + stage.fixed_s for stage in stages)
    spans = search(asked)._spans(one)
    assert spans == pytest.approx(each)
    ahead = replace(one, recipe=replace(one.recipe, schedule=ScheduleChoice("cross-domain", 4)))
    for candidate, k in ((one, 1.0), (ahead, 2.0)):
        pace = max(max(each), sent_s, (2 * max(each) + round_s) / (k + 1))
        assert search(asked)._seconds(candidate, spans) == pytest.approx(15 * pace + sum(each) + round_s + once)


def test_forwards_run_ahead_as_far_as_hides_the_delay_or_memory_allows() -> None:
    for memory_gb in (80.0, 2.2):
        where = cluster(domain("a", 1, 4), domain("b", 1, 4), gbps=10.0, latency_s=0.1, memory_gb=memory_gb)
        asked = problem(where, gpt(8, 1024), batch=256)
        plans = list(islice(search(asked).candidates(), 3))
        for candidate in plans:
            plan = candidate.plan(asked)
            peak = max(stage.peak_bytes for stage in memory(asked, plan))
            assert peak <= cost_model(asked).usable_memory_bytes()
        limits = [one.recipe.schedule.live_limit or 0 for one in plans]
        assert max(limits) > plans[0].stages if memory_gb == 80.0 else True


def test_running_ahead_hides_latency() -> None:
    where = cluster(domain("a", 1, 4), domain("b", 1, 4), gbps=100.0, latency_s=0.1)
    asked = problem(where, gpt(8, 1024), batch=256)
    ahead = CrossPipe().propose(asked, STOP)
    plain = CrossPipe().propose(replace(asked, runtime="megatron"), STOP)
    assert_sound(asked, ahead)
    assert_sound(replace(asked, runtime="megatron"), plain)
    assert ahead.score is not None
    assert plain.score is not None
    assert ahead.score.step_time_s < plain.score.step_time_s
    assert plain.plan is not None
    assert plain.plan.schedule == ScheduleChoice("1f1b")


def test_ranking_follows_the_judge_on_a_small_world() -> None:
    """The closed form's favourite is within a fifth of the best of all it would try."""
    asked = problem(WHERE, batch=32)
    candidates = list(search(asked).candidates())
    played = [evaluate(asked, one.plan(asked)).step_time_s for one in candidates]
    assert min(played[:16]) <= min(played) * 1.2
    assert [one.seconds for one in candidates] == sorted(one.seconds for one in candidates)


def test_chains_are_best_by_a_wave_there_and_back() -> None:
    where = cluster(*(domain(name, 1, 2) for name in "abc"), others={("a", "b"): 1.0}, gbps=10.0)
    chains = [tuple(one.name for one in chain) for chain in search(problem(where))._chains()]
    assert any(chain in chains for chain in permutations("acb") if chain[1] == "c")
    assert not any(len(chain) == 3 and chain[1] != "c" for chain in chains)


def test_one_domain_or_no_link_is_no_place_for_it() -> None:
    for where in (cluster(domain("a", 1, 4)), cluster(domain("a", 1, 4), domain("b", 1, 4), others={("a", "b"): 0.0})):
        asked = problem(where)
        answer = CrossPipe().propose(asked, STOP)
        assert_sound(asked, answer)
        assert answer.plan is None
        assert "two or more linked domains" in answer.notes[0]


def worth(seconds: np.ndarray, chain: tuple[int, ...]) -> float:
    return float(sum(seconds[a, b] ** NORM for a, b in zip(chain, chain[1:], strict=False)))


@pytest.mark.parametrize("seed", range(10))
def test_the_best_chain_of_each_length_is_first(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seconds = rng.uniform(1, 5, (5, 5))
    seconds = (seconds + seconds.T) / 2
    chains = best_chains(seconds, keep=2)
    for size in range(2, 6):
        ours = [chain for chain in chains if len(chain) == size]
        sets = {
            frozenset(some): min(worth(seconds, one) for one in permutations(some))
            for some in combinations(range(5), size)
        }
        assert [worth(seconds, one) for one in ours] == pytest.approx(sorted(sets.values())[:2])


def test_domains_without_a_link_are_not_neighbours() -> None:
    seconds = np.array([[0.0, 1.0, np.inf], [1.0, 0.0, 1.0], [np.inf, 1.0, 0.0]])
    assert set(best_chains(seconds, keep=3)) >= {(0, 1, 2)} or set(best_chains(seconds, keep=3)) >= {(2, 1, 0)}
    assert not any(
        {0, 2} == set(pair) for chain in best_chains(seconds, keep=3) for pair in zip(chain, chain[1:], strict=False)
    )


def test_many_domains_are_thinned_out() -> None:
    seconds = np.full((15, 15), 1.0)
    seconds[:, 14] = seconds[14, :] = 100.0
    assert not any(14 in chain for chain in best_chains(seconds, keep=1))
