from __future__ import annotations

from hippo.planners.baselines.ray import Ray, _packed, _spread

from ..worlds import STOP, assert_sound, cluster, domain, gpt, problem

WHERE = cluster(domain("a", 2, 4), domain("b", 2, 4), gbps=0.1)


def test_placement_groups() -> None:
    asked = problem(WHERE)
    assert list(_packed(asked)) == [(("a", 4),), (("a", 8),), (("a", 8), ("b", 8))]  # STRICT_PACK, PACK, PACK
    assert _spread(asked) == (("a", 2), ("b", 2))  # SPREAD: a worker on every node


def test_plain_data_parallelism_packed_where_the_link_is_slow() -> None:
    asked = problem(WHERE, batch=64)
    answer = Ray().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    assert answer.plan.domains == ("a",)
    (stage,) = answer.plan.pipelines[0].stages
    assert (stage.tp, stage.dp) == (1, 8)
    assert answer.plan.sharding in ("none", "full")


def test_spread_takes_one_gpu_of_every_node() -> None:
    # GPUs in nodes of one: spreading is packing all, and all domains are used when the link is fast.
    where = cluster(domain("a", 4, 1), domain("b", 4, 1), gbps=4000.0, latency_s=1e-5)
    asked = problem(where, batch=64)
    answer = Ray().propose(asked, STOP)
    assert answer.plan is not None
    devices = {device for pipeline in answer.plan.pipelines for stage in pipeline.stages for device in stage.devices}
    assert devices == {f"{name}/{node}/0" for name in "ab" for node in range(4)}


def test_nothing_but_ddp_and_fsdp() -> None:
    asked = problem(cluster(domain("a", 1, 4), memory_gb=1.0), gpt(8, 2048))
    answer = Ray().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is None
    assert "neither DDP nor FSDP" in answer.notes[0]
