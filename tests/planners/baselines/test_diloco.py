from __future__ import annotations

import pytest

from hippo.planners.baselines.diloco import NOTES, Diloco
from hippo.planners.baselines.single_domain import SingleDomain

from ..worlds import STOP, assert_sound, cluster, domain, gpt, problem

WHERE = cluster(domain("a", 1, 4), domain("b", 1, 4), gbps=1.0)


def test_it_competes_only_where_the_user_allows_it() -> None:
    answer = Diloco().propose(problem(WHERE), STOP)
    assert answer.plan is None
    assert answer.notes == ("The user has not allowed local SGD.",)


@pytest.mark.parametrize("runtime", ["megatron", "deepspeed"])
def test_runtimes_without_it_are_named(runtime: str) -> None:
    answer = Diloco().propose(problem(WHERE, allow_local_sgd=True, runtime=runtime), STOP)
    assert answer.notes == (f"{runtime} cannot express local SGD.",)


def test_a_replica_in_every_domain_and_an_average_every_500_steps() -> None:
    asked = problem(WHERE, allow_local_sgd=True, batch=64)
    answer = Diloco().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    assert [pipeline.domains for pipeline in answer.plan.pipelines] == [("a",), ("b",)]
    assert (answer.plan.sync.method, answer.plan.sync.every) == ("local_sgd", 500)


def test_the_published_penalty_is_stated() -> None:
    assert any("penalty" in note and "+0.2 %" in note and "Charles et al. 2025" in note for note in NOTES)
    assert any("counts none of it" in note for note in NOTES)


def test_a_step_takes_as_long_as_half_the_batch_in_one_domain_and_a_500th_of_an_average() -> None:
    asked = problem(WHERE, allow_local_sgd=True, batch=64)
    answer = Diloco().propose(asked, STOP)
    alone = SingleDomain().propose(problem(WHERE, batch=32), STOP)
    assert answer.score is not None
    assert alone.score is not None
    # 2 bytes a parameter there and back at 1 Gbit/s, at most
    average = 4 * asked.model.parameters / (1e9 / 8) / 500
    assert alone.score.step_time_s <= answer.score.step_time_s <= alone.score.step_time_s * 1.02 + average


def test_shares_follow_the_gpus() -> None:
    where = cluster(domain("a", 1, 4), domain("b", 3, 4))
    answer = Diloco().propose(problem(where, allow_local_sgd=True, batch=64), STOP)
    assert answer.plan is not None
    shares = [one.num_micro_batches * answer.plan.micro_batch * one.stages[0].dp for one in answer.plan.pipelines]
    assert shares == [16, 48]


def test_domains_too_small_for_a_replica_are_left_out() -> None:
    where = cluster(domain("a", 1, 1), domain("b", 1, 4), domain("c", 1, 4), memory_gb=4.0)
    asked = problem(where, gpt(8, 2048), allow_local_sgd=True)
    answer = Diloco().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    assert answer.plan.domains == ("b", "c")
    asked = problem(cluster(domain("a", 1, 1), domain("b", 1, 4), memory_gb=4.0), gpt(8, 2048), allow_local_sgd=True)
    assert Diloco().propose(asked, STOP).notes[0].startswith("Fewer than two domains hold a replica of small.")
