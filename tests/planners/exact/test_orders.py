"""No order of forwards, backwards and weight gradients within memory beats the bounds that grant one.

Orders come from CP-SAT and from the generator that knows each link; plans are judged by memory and rules as any other.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations, product
from random import Random

import numpy as np
import pytest
from tests.planners.least_play import field_of, random_world
from tests.planners.tiny import A100, both, domain, model, problem

from hippo.errors import InfeasibleError, InputError
from hippo.plan.check import check
from hippo.plan.plan import Plan, ScheduleChoice
from hippo.planners.base import Stop
from hippo.planners.exact import mixed as exact_mixed
from hippo.planners.exact import search as exact
from hippo.planners.exact.candidates import Candidate, Tried
from hippo.planners.exact.families import LayoutFamily
from hippo.planners.exact.lineups import Mixes
from hippo.planners.exact.search import Exact
from hippo.planners.exact.space import EVERY, SINGLE, Field
from hippo.planners.exact.uniform import candidate, refine, shape_of, shapes
from hippo.planners.exact.ways import DomainWay, real_way
from hippo.planners.placement import PipelineSketch, StageSketch
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.schedule.methods import generate
from hippo.schedule.optimal import optimal
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.schedule import letters_of
from hippo.score.judge import fits
from hippo.simulate import fast
from hippo.simulate.lower import lower
from hippo.simulate.ordering import ordering

SAME = 1e-9
SOLVER_S = 0.1
MOST_STAGES, MOST_CUTS, MOST_WAYS = 4, 4, 2


def ordered_s(asked: Problem, sketch: Candidate, *, solved: bool = True) -> float:
    """Step time of the better of two orders made for the candidate; inf: it has no room, or no link."""
    try:
        plan = sketch.plan(asked)
        questions = [ordering(asked, plan, index) for index in range(len(plan.pipelines))]
        own = [letters_of(generate("cross-domain", each)) for each in questions]
        found = [with_orders(plan, own)]
        if solved:
            found.append(with_orders(plan, [solved_letters(each) for each in questions]))
    except (InfeasibleError, InputError):
        return np.inf
    assert all(fits(asked, each) for each in found), "an order that the ranks' memory does not hold"
    return min((fast.step_time(lower(asked, each)) for each in found if not check(asked, each)), default=np.inf)


def solved_letters(question: ScheduleProblem) -> tuple[str, ...]:
    schedule = optimal(question, time_limit_s=SOLVER_S, workers=1).schedule
    assert schedule is not None
    return letters_of(schedule)


def with_orders(plan: Plan, letters: list[tuple[str, ...]]) -> Plan:
    lines = (replace(line, warm_up=(), order=own) for line, own in zip(plan.pipelines, letters, strict=True))
    return replace(plan, pipelines=tuple(lines), schedule=ScheduleChoice("best"))


def real_ways(field: Field, kind: int, way: DomainWay, random: Random) -> list[DomainWay]:
    members, tied = field.members(kind), bool(field.tied_bytes)
    paths = [path for path in permutations(members, way.size) if way.span > 1 or list(path) == sorted(path)]
    groups = [tuple(path[i * way.span : (i + 1) * way.span] for i in range(way.groups)) for path in paths]
    found = [real_way(field.routes(way.senders), each, np.inf, tied=tied) for each in groups]
    sound = [replace(each, senders=way.senders) for each in found if each is not None]
    return sound if len(sound) <= MOST_WAYS else random.sample(sound, MOST_WAYS)


def bounds_and_ordered_plays(field: Field, random: Random, *, groups: bool) -> list[tuple[float, float, float]]:
    """Rough bound, refined bound and the best play of some shapes of single pipelines, or of ``groups`` of them."""
    found, layers = [], field.problem.model.num_layers
    ways = field.ideal_ways(0)
    rough, keys = shapes(field, 0, ways)
    few = [
        at
        for at, (_, way, q) in enumerate(keys.tolist())
        if 2 <= ways[way].span * q <= MOST_STAGES and (ways[way].groups > 1) == groups
    ]
    for at in random.sample(few, min(4, len(few))):
        layout, way, q = field.layouts[0][keys[at][0]], ways[keys[at][1]], int(keys[at][2])
        cuts = list(combinations(range(1, layers), way.span * q - 1))
        least = min(
            (
                ordered_s(field.problem, candidate(field, shape_of(field, layout, real, q), [0, *inner, layers], ()))
                for real in real_ways(field, 0, way, random)
                for inner in random.sample(cuts, min(MOST_CUTS, len(cuts)))
            ),
            default=np.inf,
        )
        if np.isfinite(least):
            found.append((float(rough[at]), refine(field, shape_of(field, layout, way, q), 1e14)[0], least))
    return found


@pytest.mark.parametrize("count", [8, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("groups", [False, True])
def test_no_order_beats_the_bounds_of_its_shape(groups: bool, count: int) -> None:
    tight = []
    for seed in range(count):
        asked = replace(random_world(seed), runtime="any")
        field = field_of(asked)
        field = replace(field, ordered=EVERY) if groups else field
        for rough, refined, least in bounds_and_ordered_plays(field, Random(seed), groups=groups):
            assert rough <= least * (1 + SAME), seed
            assert refined <= least * (1 + SAME), seed
            tight.append(max(rough, refined) / least)
    assert len(tight) > count / 2
    assert np.median(tight) > (0.2 if groups else 0.7)  # a bound of nothing would pass the lines above


def tied_over_three(bandwidth_bytes_per_s: float, batch: int) -> Problem:
    """Small waves, and ends that exchange a large matrix while the stage between them still works."""
    names = "abc"
    domains = tuple(Domain(name, 1, 1, 3e11, 2.5e10, 1e-5) for name in names)
    links = tuple(Link(a, b, bandwidth_bytes_per_s, 1e-4, 0.02) for a, b in permutations(names, 2))
    large = gpt_model("tied", layers=18, hidden=2048, heads=4, vocab=32768, seq=128, ffn=8192, gated=True, tied=True)
    return Problem(large, Cluster("tied", A100, domains, links), Workload(batch, 128))


def test_a_stage_between_tied_ends_does_not_wait_for_what_they_exchange() -> None:
    field = field_of(tied_over_three(3e8, 16))
    ways = field.ideal_ways(0)
    rough, keys = shapes(field, 0, ways)
    at, way, layout = next(
        (at, ways[key[1]], field.layouts[0][key[0]])
        for at, key in enumerate(keys.tolist())
        if (ways[key[1]].groups, ways[key[1]].span, field.layouts[0][key[0]].wave) == (1, 3, 1)
    )
    real = real_ways(field, 0, way, Random(0))[0]
    cuts = [0, 6, 14, field.problem.model.num_layers]
    played = ordered_s(field.problem, candidate(field, shape_of(field, layout, real, 1), cuts, ()), solved=False)
    refined = refine(field, shape_of(field, layout, way, 1), 1e14)[0]
    assert field.tail_s(way) > 0.4 * played
    assert rough[at] <= played
    assert 0.9 * played <= refined <= played


def test_tied_ends_in_one_domain_wait_for_its_network() -> None:
    """Two nodes, tied: the ends of two stages exchange a matrix over a slow network, and one stage need not."""
    slow = Domain("a", 2, 1, 3e11, 1e9, 1e-5)
    field = field_of(problem((slow,), of=model(2, tied=True)))
    layout = next(each for each in field.layouts[0] if each.stages == 2)
    assert field.ends_s(layout) >= field.tied_bytes / 1e9
    found = Exact().propose(field.problem, Stop(200.0))
    assert found.plan is not None
    assert len(found.plan.pipelines[0].stages) == 1


def unlike(seed: int) -> Problem:
    """Two domains of unlike size whose options are quick at unlike layers: slow networks for tensor parallelism."""
    random = Random(seed)
    domains = (domain("a", 1, 1), Domain("b", 1, 2, 3e11 * random.uniform(0.02, 1.0), 2.5e10, 1e-5))
    links = both("a", "b", 10 ** random.uniform(8, 10.5), 10 ** random.uniform(-4, -1.5))
    of = model(random.choice([1, 2]), hidden=random.choice([1024, 2048]), tied=random.random() < 0.5)
    return problem(domains, links, of=of, batch=random.choice([2, 4, 8]))


def mixed_plays(field: Field, family: LayoutFamily, random: Random) -> list[float]:
    """Some ordered pipelines of a family over both domains."""
    found, layers = [], field.problem.model.num_layers
    for order, options in product(permutations(range(2)), product(family.options, repeat=2)):
        if any(option.kind != field.tables.kinds[at] for option, at in zip(options, order, strict=True)):
            continue
        cut = random.randrange(1, layers)
        stages = tuple(
            StageSketch("ab"[at], part, option.tp, option.dp)
            for at, part, option in zip(order, ((0, cut), (cut, layers)), options, strict=True)
        )
        mode, micro_batch = options[0].mode, family.wave // stages[0].dp
        line = PipelineSketch(stages, family.waves)
        found.append(ordered_s(field.problem, Candidate((line,), micro_batch, mode.recompute, mode.sharding)))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_no_order_beats_the_bounds_of_its_family(seed: int) -> None:
    field, random = field_of(unlike(seed)), Random(seed)
    lineups, families = exact_mixed.Lineups.of(field), exact_mixed.families(field)
    for family in random.sample(families, min(6, len(families))):
        least = min(mixed_plays(field, family, random), default=np.inf)
        if np.isfinite(least):
            assert lineups.bounds(family)[2] <= least * (1 + SAME)
            assert lineups.fits(family, 2, least * (1 + SAME))


def toy_family(seconds: list[list[float]], stages: list[int], waves: int) -> LayoutFamily:
    """Options that take so long for each layer, all of it on the round trip."""
    prefix = np.concatenate([np.zeros((len(seconds), 1)), np.cumsum(seconds, axis=1)], axis=1)
    tables = np.zeros((len(seconds), 12, prefix.shape[1]))
    tables[:, 1], tables[:, 8] = prefix, prefix
    ones = np.ones(len(seconds))
    return LayoutFamily(
        1,
        waves,
        (),
        tables,
        ones,
        np.arange(len(seconds)),
        np.array(stages),
        0 * ones,
        np.ones(len(seconds), np.int64),
        prefix[0],
        0.0,
    )


TWO = Mixes(np.zeros(2, np.int64), np.array([2]), np.array([1]), np.arange(3)[None], np.arange(3))
"""Up to two domains of one class."""


def test_each_domain_may_take_the_layers_it_is_quick_at() -> None:
    """Layers of 1 and 9 s here, of 9 and 1 s there: a wave takes 2 s, not 10."""
    many = 1000
    bound = toy_family([[1.0, 9.0], [9.0, 1.0]], [1, 1], many).fluid(TWO)[2]
    assert bound <= many * 1.0 + 1.0
    alike = toy_family([[1.0, 3.0], [2.0, 6.0]], [1, 1], many).fluid(TWO)[2]  # no option is better than the first
    assert alike == pytest.approx(4.0 / (1 - (1 - 1 / many) ** 2))


def test_the_least_way_back_takes_each_layer_where_it_is_quick() -> None:
    """The domain with two GPUs is quick at blocks and slow at the embedding."""
    families = exact_mixed.families(field_of(unlike(3)))
    for family in families:
        layers = np.diff(family.tables[:, 8], axis=1).min(axis=0)
        assert family.rest[0] == pytest.approx(layers.sum())
        assert family.rest[-1] == 0.0
    assert any(family.rest[0] < 0.99 * family.tables[:, 8, -1].min() for family in families)


@pytest.mark.parametrize("runtime", ["megatron", "deepspeed"])
def test_runtimes_with_1f1b_alone_get_no_order(runtime: str) -> None:
    for seed in range(6):
        asked = replace(random_world(seed), runtime=runtime)
        found = Exact().propose(asked, Stop(200.0))
        assert not Field.of(asked, Tried(asked)).tables.split
        assert found.plan is None or not any(line.order for line in found.plan.pipelines)


def test_the_proof_is_made_again_for_replicas_that_get_orders_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of fused replicas do not hold for them."""
    asked = problem((domain("a"), domain("b")), both("a", "b", 5e10), of=model(2), batch=4)
    line = PipelineSketch((StageSketch("a", (0, 4), 1, 1),), 2, order=("FBWFBW",))
    late = Candidate((line, replace(line, stages=(StageSketch("b", (0, 4), 1, 1),))), 1, "none", "none")
    granted: list[str] = []

    def proven(_: Problem, tried: Tried, fields: list[Field]) -> dict[str, float]:
        granted.append(fields[0].ordered)
        return {"a test": 0.5 * tried.value}

    def polished(_: Problem, tried: Tried, __: list[Field]) -> None:
        tried.best["late"] = 0.9 * tried.value, late

    monkeypatch.setattr(exact, "_bounds", proven)
    monkeypatch.setattr(exact, "polish_best", polished)
    found = Exact().propose(asked, Stop(200.0))
    assert granted == [SINGLE, EVERY]
    assert found.plan is not None
    assert found.plan.schedule.name == "best"
