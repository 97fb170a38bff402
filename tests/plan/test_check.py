"""A valid plan passes; each broken rule is named, placed and said in a sentence."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tests.strategies import planned

from hippo.plan.check import MOST, REMEDIES, check
from hippo.plan.plan import Compression, Pipeline, Plan, Relay, ScheduleChoice, Stage, Sync
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.load import load_problem
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.problem.profile import Profile, ProfileRow
from hippo.problem.runtimes import RUNTIMES


def devices(domain: str, start: int, count: int) -> tuple[str, ...]:
    """``count`` devices of a domain of 8-GPU nodes, from its ``start``-th on."""
    return tuple(f"{domain}/{index // 8}/{index % 8}" for index in range(start, start + count))


def problem(**given: Any) -> Problem:
    """GPT-2 (14 layers) over the four hubs, 16 sequences per step."""
    return load_problem(model="gpt2", cluster="four-hubs", global_batch=16, **{"runtime": "ideal", **given})


def pipeline(*, east: str = "zhangjiakou", west: str = "zhongwei", first: int = 0, waves: int = 4) -> Pipeline:
    """Two stages of tp 2, dp 2 in two domains."""
    return Pipeline(
        (
            Stage(east, (0, 7), 2, 2, devices(east, first, 4)),
            Stage(west, (7, 14), 2, 2, devices(west, first, 4)),
        ),
        waves,
    )


def plan() -> Plan:
    return Plan((pipeline(),), micro_batch=2)


def two() -> Plan:
    """Two replicas over the same two domains."""
    return Plan((pipeline(waves=2), pipeline(first=4, waves=2)), micro_batch=2)


@given(planned())
def test_generated_plans_pass(pair: tuple[Problem, Plan]) -> None:
    assert check(*pair) == ()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_uniform_plan_passes_every_runtime(runtime: str) -> None:
    assert check(problem(runtime=runtime, uniform_cuts=True), plan()) == ()
    assert check(problem(runtime=runtime, uniform_cuts=True), replace(two(), sync=Sync(all_reduce="ring"))) == ()


@pytest.mark.parametrize(("runtime", "sharding"), [("megatron", "optimizer"), ("torch", "hybrid")])
def test_sums_on_two_levels_need_a_sharding_that_the_runtime_has_them_with(runtime: str, sharding: str) -> None:
    told = texts(problem(runtime=runtime), two())
    assert told == [f"sync.all_reduce: {runtime} sums on two levels with sharding {sharding} alone, not none"]
    assert texts(problem(runtime=runtime), replace(two(), sharding=sharding)) == []


def test_a_runtime_without_two_levels_says_so() -> None:
    told = texts(problem(runtime="deepspeed"), two())
    assert told == ["sync.all_reduce: deepspeed sums over one flat ring, not on two levels"]


def test_sums_go_as_they_were_asked_for() -> None:
    told = texts(problem(all_reduce="ring"), two())
    assert told == ["sync.all_reduce: sums go two-level, not ring (--all-reduce)"]
    assert texts(problem(all_reduce="ring"), replace(two(), sync=Sync(all_reduce="ring"))) == []


def test_a_runtime_that_sends_nothing_on_says_so() -> None:
    relayed = replace(plan(), relays=(Relay("zhangjiakou", "zhongwei", "wuhu"),))
    assert "relays: torch sends nothing through a third domain" in texts(problem(runtime="torch"), relayed)
    assert not texts(problem(runtime="hippo"), relayed)


def stage(plan: Plan, index: int, **changes: Any) -> Plan:
    """The plan with one stage of its first pipeline changed."""
    first = plan.pipelines[0]
    stages = tuple(replace(s, **changes) if i == index else s for i, s in enumerate(first.stages))
    return replace(plan, pipelines=(replace(first, stages=stages), *plan.pipelines[1:]))


BROKEN: list[tuple[Callable[[], Plan], str]] = [
    (lambda: replace(plan(), pipelines=()), "pipelines: a plan needs a pipeline, and every pipeline a stage"),
    (lambda: replace(plan(), micro_batch=0), "micro_batch: 0 is not positive"),
    (lambda: stage(plan(), 0, tp=0), "pipelines[0].stages[0]: tp 0 and dp 2 must be positive"),
    (
        lambda: stage(plan(), 1, layers=(8, 14)),
        "pipelines[0].stages[1].layers: starts at 8, not 7: layer 7 is on no stage",
    ),
    (
        lambda: stage(plan(), 1, layers=(6, 14)),
        "pipelines[0].stages[1].layers: starts at 6, not 7: layer 6 is on two stages",
    ),
    (lambda: stage(plan(), 1, layers=(7, 13)), "pipelines[0].stages[1].layers: ends at 13; the model has 14 layers"),
    (lambda: stage(plan(), 1, layers=(7, 7)), "pipelines[0].stages[1].layers: [7, 7) holds no layer"),
    (
        lambda: stage(plan(), 0, domain="mars"),
        "pipelines[0].stages[0].domain: unknown domain 'mars' (the cluster has zhangjiakou, wuhu, guian, zhongwei)",
    ),
    (
        lambda: stage(plan(), 0, devices=devices("zhangjiakou", 0, 3)),
        "pipelines[0].stages[0].devices: 3 devices, but tp 2 x cp 1 x dp 2 = 4",
    ),
    (
        lambda: stage(plan(), 0, devices=devices("zhangjiakou", 61, 4)),
        "pipelines[0].stages[0].devices: 'zhangjiakou/8/0' is no device of domain 'zhangjiakou' (8 nodes of 8 GPUs)",
    ),
    (
        lambda: stage(plan(), 0, devices=devices("wuhu", 0, 4)),
        "pipelines[0].stages[0].devices: 'wuhu/0/0' is no device of domain 'zhangjiakou' (8 nodes of 8 GPUs)",
    ),
    (
        lambda: replace(two(), pipelines=(two().pipelines[0], two().pipelines[0])),
        "pipelines[1].stages[0].devices: 'zhangjiakou/0/0' is also used by pipelines[0].stages[0]",
    ),
    (
        lambda: replace(plan(), pipelines=(pipeline(waves=5),)),
        "pipelines: num_micro_batches x micro_batch x dp: 5 x 2 x 2 = 20, not 16, the global batch",
    ),
    (
        lambda: stage(plan(), 1, dp=3, devices=devices("zhongwei", 0, 6)),
        "pipelines[0].stages[1].dp: dp 3 does not divide a wave of 4 sequences",
    ),
    (
        lambda: stage(plan(), 1, tp=5, dp=1, devices=devices("zhongwei", 0, 5)),
        "pipelines[0].stages[1].tp: tp 5 does not divide the 12 attention heads",
    ),
    (lambda: replace(plan(), expert_parallel=2), "expert_parallel: 2, but gpt2 has no experts"),
    (lambda: replace(plan(), expert_tensor_parallel=1), "expert_tensor_parallel: 1, but gpt2 has no experts"),
    (
        lambda: replace(plan(), precision="fp8"),
        "precision: A100-SXM-80GB has no rate for fp8, only for bf16, fp16, tf32, fp32",
    ),
    (lambda: replace(plan(), interleave=2), "interleave: schedule '1f1b' has one chunk per rank, interleave is 2"),
    (
        lambda: replace(plan(), interleave=8, schedule=ScheduleChoice("interleaved")),
        "pipelines[0].stages[0].layers: 7 layers cannot be split into 8 chunks",
    ),
    (
        lambda: replace(two(), sync=Sync("local_sgd", 8)),
        "sync.method: local SGD changes the optimizer and was not allowed (--allow-local-sgd)",
    ),
    (
        lambda: replace(two(), sync=Sync("allreduce", 8)),
        "sync.every: replicas that sum gradients agree every step, not every 8",
    ),
    (
        lambda: replace(plan(), relays=(Relay("wuhu", "guian", "wuhu"),)),
        "relays[0]: from, to and via must be three domains",
    ),
    (
        lambda: replace(plan(), relays=(Relay("wuhu", "guian", "mars"),)),
        "relays[0]: there is no link from 'wuhu' to 'mars'",
    ),
    (
        lambda: replace(plan(), relays=(Relay("wuhu", "guian", "zhongwei"),) * 2),
        "relays[1]: a second relay from 'wuhu' to 'guian'",
    ),
    (
        lambda: replace(plan(), compression=(Compression("mars", "wuhu", "fp8"),)),
        "compression[0]: unknown domain 'mars'",
    ),
]


@pytest.mark.parametrize(("broken", "words"), BROKEN)
def test_every_broken_rule_is_said(broken: Callable[[], Plan], words: str) -> None:
    assert words in [str(violation) for violation in check(problem(), broken())]


def test_degrees_that_split_the_sequence() -> None:
    short = problem(seq=1022)
    wide = stage(stage(plan(), 0, tp=4, dp=1), 1, tp=4, dp=1)
    wide = replace(wide, pipelines=(replace(wide.pipelines[0], num_micro_batches=8),))
    assert texts(short, wide) == ["sequence_parallel: tp 4 x cp 1 does not divide the sequence of 1022 tokens"]
    assert texts(short, replace(wide, sequence_parallel=False)) == []


def test_the_state_of_linear_attention_is_not_split() -> None:
    lone = Plan((Pipeline((Stage("zhangjiakou", (0, 50), 2, 4, devices("zhangjiakou", 0, 8)),), 4),), micro_batch=1)
    world = load_problem(model="qwen3-next-80b-a3b", cluster="four-hubs", global_batch=16, runtime="ideal")
    assert texts(world, lone) == []
    halved = replace(lone.pipelines[0].stages[0], dp=2)
    (said,) = texts(world, replace(lone, pipelines=(Pipeline((halved,), 8),), context_parallel=2))
    assert "how linear attention hands its state on between ranks is not modelled" in said
    wide = replace(lone.pipelines[0].stages[0], tp=32, dp=1, devices=devices("zhangjiakou", 0, 32))
    wide_plan = replace(lone, pipelines=(Pipeline((wide,), 16),))
    assert "tp 32 does not divide" in texts(world, wide_plan)[0]


def texts(problem: Problem, plan: Plan) -> list[str]:
    return [str(violation) for violation in check(problem, plan)]


def test_links_between_stages_both_ways_or_a_relay() -> None:
    whole = cluster("four-hubs")
    cut = replace(
        whole, links=tuple(link for link in whole.links if (link.source, link.destination) != ("wuhu", "guian"))
    )
    world = replace(problem(), cluster=cut)
    crossing = Plan((pipeline(east="wuhu", west="guian"),), micro_batch=2)
    message = "the stages send from 'wuhu' to 'guian', but neither a link nor a relay joins them"
    assert texts(world, crossing)[0] == f"pipelines[0].stages: {message}"
    assert texts(world, replace(crossing, relays=(Relay("wuhu", "guian", "zhongwei"),))) == []


def test_replicas_need_a_ring() -> None:
    whole = cluster("four-hubs")
    names = ("zhangjiakou", "wuhu", "guian")
    one_way = [("zhangjiakou", "wuhu"), ("wuhu", "guian"), ("guian", "zhangjiakou")]
    replicas = Plan(
        tuple(Pipeline((Stage(name, (0, 14), 1, 1, devices(name, 0, 1)),), 4) for name in names), micro_batch=1
    )
    world = replace(problem(), workload=replace(problem().workload, global_batch=12))

    def joined_by(pairs: list[tuple[str, str]]) -> Problem:
        links = tuple(link for link in whole.links if (link.source, link.destination) in pairs)
        return replace(world, cluster=replace(whole, links=links))

    assert texts(joined_by(one_way), replicas) == []
    assert texts(joined_by(one_way[:2]), replicas) == [
        "pipelines: guian, wuhu, zhangjiakou share weights but cannot agree: no ring of links or relays joins them"
    ]


def test_a_tied_matrix_is_agreed_on_by_both_ends() -> None:
    whole, names = cluster("four-hubs"), ("zhangjiakou", "wuhu", "guian")
    ends = [(0, 4), (4, 9), (9, 14)]
    stages = tuple(Stage(name, span, 1, 1, devices(name, 0, 1)) for name, span in zip(names, ends, strict=True))
    line = tuple(link for link in whole.links if {link.source, link.destination} != {"zhangjiakou", "guian"})
    world = problem()
    world = replace(world, cluster=replace(whole, links=line), workload=replace(world.workload, global_batch=4))
    chain = Plan((Pipeline(stages, 4),), micro_batch=1)
    assert world.model.tied
    assert texts(world, chain) == [
        "pipelines: guian, zhangjiakou share weights but cannot agree: no ring of links or relays joins them"
    ]
    relays = (Relay("zhangjiakou", "guian", "wuhu"), Relay("guian", "zhangjiakou", "wuhu"))
    assert texts(world, replace(chain, relays=relays)) == []
    last = replace(world.model.layers[-1], tied=False)
    untied = replace(world.model, layers=(*world.model.layers[:-1], last))
    assert texts(replace(world, model=untied), chain) == []


def test_fully_sharded_replicas_gather_from_everyone() -> None:
    whole, world = cluster("four-hubs"), problem()
    names = ("zhangjiakou", "wuhu", "guian", "zhongwei")
    spans = ((0, 7), (7, 14))
    pipelines = tuple(
        Pipeline(tuple(Stage(name, span, 1, 1, devices(name, 0, 1)) for name, span in zip(pair, spans, strict=True)), 2)
        for pair in (names[:2], names[2:])
    )
    joined = [{"zhangjiakou", "wuhu"}, {"guian", "zhongwei"}, {"zhangjiakou", "guian"}, {"wuhu", "zhongwei"}]
    links = tuple(link for link in whole.links if {link.source, link.destination} in joined[:3])
    world = replace(world, cluster=replace(whole, links=links), workload=replace(world.workload, global_batch=4))
    plan = Plan(pipelines, micro_batch=1, sharding="full")
    assert [violation.rule for violation in check(world, plan)] == ["sync links"]
    square = tuple(link for link in whole.links if {link.source, link.destination} in joined)
    assert texts(replace(world, cluster=replace(whole, links=square)), plan) == []


def test_the_bandwidth_floor_bars_slow_cuts() -> None:
    floor = replace(problem(), objective=Objective(bandwidth_floor_bytes_per_s=4.5e9 / 8))
    message = "the link from 'zhangjiakou' to 'zhongwei' is slower than the bandwidth floor"
    assert f"pipelines[0].stages: {message}" in texts(floor, plan())
    assert texts(floor, Plan((pipeline(west="wuhu"),), micro_batch=2)) == []


def test_a_profile_allows_only_what_it_measured() -> None:
    rows = [
        ProfileRow(kind, None, "A100-SXM-80GB", 2, 2, 0.1, 0.2, None, 1.0, 1.0, 1.0)
        for kind in ("embedding", "block", "head")
    ]
    measured = replace(problem(), profile=Profile("bf16", 16.0, tuple(rows)))
    assert texts(measured, plan()) == []
    wider = replace(plan(), micro_batch=4, pipelines=(pipeline(waves=2),), recompute="full")
    assert "the profile has no rows for tp 2, micro_batch 4, recompute full" in texts(measured, wider)[0]


def test_uniform_cuts_deal_blocks_evenly() -> None:
    uneven = stage(stage(plan(), 0, layers=(0, 6)), 1, layers=(6, 14))
    assert texts(problem(uniform_cuts=True), uneven) == [
        "pipelines[0].stages: stages hold different numbers of blocks (--uniform-cuts)"
    ]


RUNTIMES: list[tuple[str, Plan, str]] = [
    ("megatron", replace(plan(), schedule=ScheduleChoice("gpipe")), "megatron cannot express schedule 'gpipe'"),
    ("megatron", replace(plan(), schedule=ScheduleChoice("1f1b", 5)), "megatron cannot express live limit 5"),
    ("megatron", replace(plan(), sharding="full"), "megatron cannot express sharding 'full'"),
    ("torch", replace(plan(), sharding="optimizer"), "torch cannot express sharding 'optimizer'"),
    ("hippo", replace(plan(), sharding="optimizer"), "hippo cannot express sharding 'optimizer', only none"),
    ("deepspeed", replace(plan(), sharding="full"), "deepspeed cannot express sharding 'full' beside a pipeline"),
    ("deepspeed", replace(plan(), recompute="selective"), "deepspeed cannot express recompute 'selective'"),
    ("hippo", replace(plan(), recompute="full:1"), "hippo cannot express recompute 'full:1', only full or none"),
    ("torch", replace(plan(), compression=(Compression("wuhu", "guian", "fp8"),)), "torch cannot compress activations"),
    (
        "torch",
        stage(plan(), 0, tp=4, dp=1),
        "torch has one tp and dp for all stages, not tp 2 dp 2, tp 4 dp 1",
    ),
    (
        "megatron",
        replace(two(), pipelines=(pipeline(waves=1), pipeline(first=4, waves=3))),
        "megatron deals every replica equally many micro-batches",
    ),
]


@pytest.mark.parametrize(("runtime", "beyond", "words"), RUNTIMES)
def test_what_a_runtime_cannot_express(runtime: str, beyond: Plan, words: str) -> None:
    free = problem(runtime="any", allow_compression=True)
    free = replace(free, workload=replace(free.workload, global_batch=beyond.global_batch))
    assert check(free, beyond) == ()
    assert any(words in text for text in texts(replace(free, runtime=runtime), beyond))


def test_replicas_are_cut_alike_where_one_program_runs_them() -> None:
    other = stage(replace(two(), pipelines=two().pipelines[::-1]), 0, layers=(0, 5))
    other = replace(stage(other, 1, layers=(5, 14)), sync=Sync(all_reduce="ring"))
    assert check(problem(), other) == ()
    assert texts(problem(runtime="torch"), other) == [
        "pipelines[1].stages: torch cuts every replica at the same layers"
    ]


def test_interleaving_in_rounds() -> None:
    chunked = replace(plan(), interleave=2, schedule=ScheduleChoice("interleaved"))
    assert check(problem(runtime="megatron"), chunked) == ()
    odd = replace(chunked, micro_batch=1, pipelines=(pipeline(waves=3),))
    world = problem(runtime="megatron")
    world = replace(world, workload=replace(world.workload, global_batch=6))
    assert "interleaves in rounds: the micro-batches must be a multiple of 2" in texts(world, odd)[0]


def test_chunks_of_a_single_stage_are_nothing_to_interleave() -> None:
    alone = Plan((Pipeline((Stage("zhangjiakou", (0, 14), 1, 1, devices("zhangjiakou", 0, 1)),), 16),), micro_batch=1)
    alone = replace(alone, interleave=2, schedule=ScheduleChoice("interleaved"))
    assert "interleave: megatron interleaves chunks of several stages, not of one" in texts(
        problem(runtime="megatron"), alone
    )


def test_key_value_heads_may_be_repeated_only_where_the_runtime_can() -> None:
    wide = Plan((Pipeline((Stage("zhangjiakou", (0, 34), 16, 1, devices("zhangjiakou", 0, 16)),), 16),), micro_batch=1)
    world = load_problem(model="llama-3-8b", cluster="four-hubs", global_batch=16)
    assert check(world, wide) == ()
    assert "tp 16 does not divide the 8 key-value heads" in texts(replace(world, runtime="megatron"), wide)[0]


def test_there_are_never_too_many_violations() -> None:
    doubled = stage(plan(), 0, tp=12, dp=500, devices=("zhangjiakou/0/0",) * 6000)
    assert len(check(problem(), doubled)) == MOST


@pytest.mark.parametrize(
    ("warm_up", "schedule", "said"),
    [
        ((3, 2), "cross-domain", None),
        ((3,), "cross-domain", "1 numbers for 2 stages"),
        ((2, 3), "cross-domain", "must not rise from stage to stage, nor exceed num_micro_batches"),
        ((5, 1), "cross-domain", "must not rise from stage to stage, nor exceed num_micro_batches"),
        ((3, 2), "1f1b", "the schedule '1f1b' takes no warm-up of its own"),
    ],
)
def test_warm_up_runs_down_the_pipeline(warm_up: tuple[int, ...], schedule: str, said: str | None) -> None:
    warm = replace(plan(), pipelines=(replace(pipeline(), warm_up=warm_up),), schedule=ScheduleChoice(schedule))
    assert texts(problem(), warm) == ([] if said is None else [f"pipelines[0].warm_up: {said}"])


def test_every_rule_has_its_remedy() -> None:
    source = Path(inspect.getfile(check)).read_text(encoding="utf-8")
    rules = set(re.findall(r'Violation\(\s*"([^"]+)"', source)) | {"expert parallel"}
    assert rules == set(REMEDIES)
    (first, *_) = check(problem(), replace(plan(), micro_batch=0))
    assert first.remedy == "write a whole number of at least 1"
