"""Pipelines over domains that are not alike: quickest cuts, and a search that is behind nobody."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import numpy as np
import pytest
from tests.planners.worlds import cluster, domain, gpt, problem

from hippo.decide.choose import judged
from hippo.decide.rivals import Knob
from hippo.planners.base import Stop
from hippo.planners.effort import Effort
from hippo.planners.exact.bounds import Floats, PacedLine, quickest_cuts, room_for
from hippo.planners.exact.candidates import Candidate, Tried
from hippo.planners.exact.chains import Chain, ChainSearch
from hippo.planners.exact.replan import DomainReplanner
from hippo.planners.exact.space import Field
from hippo.problem.catalogue.clusters import cluster as catalogued
from hippo.problem.catalogue.models import model as known_model
from hippo.problem.cluster import Cluster, Link
from hippo.problem.problem import Problem
from hippo.problem.runtimes import RUNTIMES
from hippo.problem.workload import Workload
from hippo.registry import AUTO, planner
from hippo.score.judge import judge
from hippo.units import bytes_per_s_from_gbps

STOP = Stop(10.0)
CAPPED_GBPS = 4.0
TOLERANCE = 0.001
QUICKER = 0.005  # steps this close count as equal everywhere


def test_what_a_chain_sends_is_capped_by_the_nodes_of_a_stage() -> None:
    """Two nodes a domain, a stage in one of them: links that cap each node carry no more than that one sends."""
    rate, names = bytes_per_s_from_gbps(CAPPED_GBPS), ("a", "b")
    where = cluster(*(domain(name, 2, 4) for name in names))
    links = tuple(Link(one, two, None, 1e-3, 0.02, rate) for one, two in (names, names[::-1]))
    asked = problem(replace(where, links=links), gpt(8, 2048), batch=64, seq=1024, runtime="megatron")
    field = Field.of(asked, Tried(asked))
    search = ChainSearch(field, 0.5)
    for layout in field.layouts[0]:
        paced = search.paced(Chain((0, 1), (layout, layout)))
        if paced is not None and layout.gpus <= 8:
            sent = asked.workload.global_batch * field.wave_bytes / (rate * layout.nodes(4))
            assert paced.step_s >= sent * (1 - layout.wave / asked.workload.global_batch)


def drawn(seed: int) -> Problem:
    """Two to four domains of 2 to 24 GPUs, links of 1 to 100 Gbit/s and 1 to 60 ms, little memory, any runtime."""
    random = Random(seed)
    domains = [domain(f"d{at}", random.choice((1, 2, 3)), random.choice((2, 4, 6, 8))) for at in range(2 + seed % 3)]
    where, links = cluster(*domains, memory_gb=random.choice((12, 24))), []
    for one, two in combinations([each.name for each in domains], 2):
        rate, late = bytes_per_s_from_gbps(10 ** random.uniform(0, 2)), random.uniform(1e-3, 6e-2)
        links += [Link(one, two, rate, late, 0.02), Link(two, one, rate, late, 0.02)]
    runtime = list(RUNTIMES)[seed % len(RUNTIMES)]
    batch = random.choice((24, 32, 64))
    return problem(replace(where, links=tuple(links)), gpt(12, 4096), batch=batch, seq=1024, runtime=runtime)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(each, marks=pytest.mark.slow) for each in range(4, 12))])
def test_no_baseline_is_better_than_the_search_on_unlike_domains(seed: int) -> None:
    asked = drawn(seed)
    mine = planner("exact").propose(asked, STOP)
    theirs = {name: judged(asked, planner(name).propose(asked, STOP)).score for name in AUTO if name != "exact"}
    known = {name: score.step_time_s for name, score in theirs.items() if score is not None}
    assert known
    assert mine.score is not None
    assert mine.score.step_time_s <= min(known.values()) * (1 + TOLERANCE), known


def slower_links(where: Cluster) -> Problem:
    """Two large domains and a small one under a model that one of them holds."""
    return problem(where, gpt(12, 4096), batch=32, seq=1024)


@pytest.mark.parametrize(
    "runtime", ["hippo", "megatron", *(pytest.param(each, marks=pytest.mark.slow) for each in ("torch", "deepspeed"))]
)
def test_a_quicker_link_never_gives_a_longer_step(runtime: str) -> None:
    where = cluster(domain("a", 1, 8), domain("b", 1, 8), domain("c", 1, 4), gbps=2.0, latency_s=0.01, memory_gb=24)
    asked = replace(slower_links(where), runtime=runtime)
    steps = [step_s(Knob("bandwidth", (0, 2)).changed(asked, factor)) for factor in (1.0, 2.0, 5.0, 6.0, 7.0, 20.0)]
    assert all(later <= earlier * (1 + QUICKER) for earlier, later in zip(steps, steps[1:], strict=False)), steps


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["hippo", "megatron", "torch", "deepspeed"])
def test_a_quicker_link_never_gives_a_longer_step_of_a_large_model(runtime: str) -> None:
    asked = Problem(known_model("llama-3-70b"), catalogued("four-hubs"), Workload(1024, 4096), runtime=runtime)
    for links in ((), (0, 1)):
        steps = [step_s(Knob("bandwidth", links).changed(asked, each)) for each in (1.0, 2.0, 4.0, 5.32, 6.0, 7.0)]
        assert all(later <= earlier * (1 + QUICKER) for earlier, later in zip(steps, steps[1:], strict=False)), steps


@pytest.mark.slow
def test_hubs_are_crossed_under_megatron_where_a_plan_by_hand_crosses_them() -> None:
    asked = Problem(known_model("llama-3-70b"), catalogued("four-hubs"), Workload(1024, 4096), runtime="megatron")
    assert step_s(asked) <= 131.3  # 8 stages cut at 12 27 41 42 43 56 69, tp 4, dp 4, micro-batch 2


def step_s(asked: Problem) -> float:
    """Step time of the search's plan."""
    found = planner("exact").propose(asked, STOP).score
    assert found is not None
    return found.step_time_s


@pytest.mark.parametrize("name", ["sailor", "crosspipe", "dtfm", "even"])
@pytest.mark.parametrize("seed", [0, 1, 4])
def test_a_plan_taken_for_a_candidate_takes_as_long(name: str, seed: int) -> None:
    asked = drawn(seed)
    found = judged(asked, planner(name).propose(asked, STOP))
    assert found.plan is not None
    assert found.score is not None
    candidate = Candidate.of(asked, found.plan)
    assert candidate is not None
    assert judge(asked, candidate.plan(asked)).step_time_s == pytest.approx(found.score.step_time_s, rel=TOLERANCE)


@pytest.mark.parametrize("seed", [0, 4])
def test_a_search_that_begins_from_an_answer_finds_nothing_worse(seed: int) -> None:
    asked = drawn(seed)
    answer = judged(asked, planner("crosspipe").propose(asked, STOP))
    assert answer.plan is not None
    assert answer.score is not None
    (best_s, _), *_ = DomainReplanner.of(asked, answer.plan).plans(asked, Effort())
    assert best_s <= answer.score.step_time_s * (1 + TOLERANCE)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("ahead", [True, False])
def test_no_cuts_that_fit_have_a_better_pace_than_the_quickest(seed: int, ahead: bool) -> None:
    line, calls, behind = random_line(seed, ahead=ahead)
    stages, layers = len(line.part), line.tables.shape[2] - 1
    cuts = np.zeros(stages + 1, np.int64)
    fits = quickest_cuts(line, calls, behind, cuts)
    paces = []
    for inner in combinations(range(1, layers), stages - 1):
        pace = pace_of(line, calls, behind, (0, *inner, layers))
        paces += [pace] if pace is not None else []
    assert fits == bool(paces)
    if fits:
        assert pace_of(line, calls, behind, tuple(cuts.tolist())) == pytest.approx(min(paces), rel=1e-3)


def pace_of(line: PacedLine, calls: Floats, behind: Floats, cuts: tuple[int, ...]) -> float | None:
    """Least pace that the cuts keep with the memory for what is then under way; None: they do not fit."""
    pace = 0.0
    for i, (a, b) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
        table, deepest = line.tables[line.part[i]], len(line.part) - i
        pace = max(pace, table[1, b] - table[1, a] + calls[i])
        room = room_for(table, line.usable, a, b)
        if room >= line.waves:
            continue
        if room < deepest or (line.ahead and room == deepest and behind[i] > 0):
            return None
        if line.ahead and behind[i] > 0:
            pace = max(pace, behind[i] / (room - deepest))
    return float(pace)


def random_line(seed: int, *, ahead: bool) -> tuple[PacedLine, Floats, Floats]:
    """Two domains, two to four stages, six layers; seconds in which ranks wait, and round trips behind them."""
    random = np.random.default_rng(seed)
    stages, layers = int(random.integers(2, 5)), 6
    tables = np.zeros((2, 12, layers + 1))
    tables[:, 1, 1:] = np.cumsum(random.uniform(0.5, 2.0, (2, layers)), axis=1)
    tables[:, 2, 1:] = np.cumsum(random.uniform(0.5, 2.0, (2, layers)), axis=1)
    tables[:, 3, 1:] = np.cumsum(random.uniform(0.1, 0.5, (2, layers)), axis=1)
    part = np.sort(random.integers(0, 2, stages))
    calls = random.uniform(0.0, 1.0, stages)
    behind = np.sort(random.uniform(0.0, 3.0, stages))[::-1].copy()
    behind[-1] = 0.0
    usable, none = float(random.uniform(3.0, 12.0)), np.zeros(2)
    line = PacedLine(tables, part, none, none, 0.0, 8, ahead, usable, slowest=0.0, split=True)
    return line, calls, behind
