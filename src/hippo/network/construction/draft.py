"""Plans built choice by choice: domains one after the other with a claim on layers each, a recipe, a layout per domain.

An episode is one problem under one state of its links (a ``Site``). The upper agent adds a domain to either end of its
chain with a *claim* (its layers over what its GPUs' share would be) or stops; then it settles the recipe: sequences of
a wave, recomputation, sharding. The lower agent answers for every domain: (tp, dp, stages). Cut points follow from
claims and layouts: the slowest stage, over its claim, as fast as memory allows (``estimate.settle``); devices by
``planners.placement``, warm-ups by ``planners.run_ahead``; the ``fast`` engine plays the plan. What is out of memory or
joined by no link is masked. A runtime that orders waves itself gets plain 1F1B, and one with a single mesh the same
(tp, dp) in all domains, as part of the recipe: an order of another kind would leave its messages waiting for ever.

The reward of the upper agent is ``log(reference / step time)``, -``NOTHING_BUILT`` where no plan comes of it. That of
the lower agent for domain k adds what is its own::

    r_k = log(reference / step) - LAMBDA_1 Frag_k - LAMBDA_2 C_k / step - LAMBDA_3 max(0, slowest_k / pace - 1)

``Frag_k`` is ``layout_table.stranded_share``; C_k the seconds of a step that the domain's GPUs spend in exposed
communication inside (tensor parallel per wave, agreement of gradients); ``slowest_k`` its slowest
stage and ``pace`` what the rest of the chain allows per wave: compute that holds up everybody else.

Letters: K domains, S claims, R recipes, n domains of a chain, p stages of a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InfeasibleError, InputError
from hippo.network.construction.estimate import buffers, round_trips, settle, shared_layers, weigh_layouts
from hippo.network.construction.layout_table import LayoutTable, LinkPaces, layout_table, links_under
from hippo.plan.plan import Pipeline, Plan, Relay, ScheduleChoice
from hippo.planners.placement import PipelineSketch, StageSketch, place
from hippo.planners.run_ahead import ChainTimes, warm_ups
from hippo.problem.problem import Problem
from hippo.simulate.batch import step_times
from hippo.simulate.lower import lower
from hippo.simulate.routes import border_compression

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CLAIMS = (0.7, 0.85, 1.0, 1.15, 1.3)
"""Layers of a domain over its share of the chain's GPUs."""
PLAIN = CLAIMS.index(1.0)
LAMBDA_1, LAMBDA_2, LAMBDA_3 = 0.02, 0.2, 0.2
"""Weights of the lower reward: next to the step time, and enough to part layouts that are equally fast."""
NOTHING_BUILT = 1.5
"""What it costs to build no plan at all: as bad as 4.5 times the reference's step."""


@dataclass(frozen=True, eq=False)
class Site:
    """One problem under one state of its links and domains."""

    table: LayoutTable
    links: LinkPaces
    bandwidth_bytes_per_s: Floats  # (E,)
    latency_s: Floats  # (E,)
    slower: Floats  # (K,) factor on the length of operations
    lost: NDArray[np.bool_]  # (K,) domains that cannot be used


def site(problem: Problem, bandwidth_bytes_per_s: Floats, latency_s: Floats, compute: Floats | None = None) -> Site:
    """A problem under a state (E,), (E,) of the links and (K,) of the domains: the factor on the length of their
    operations, inf for a domain that is lost."""
    known = layout_table(problem)
    slower = np.ones(known.domains) if compute is None else np.asarray(compute, dtype=np.float64)
    bandwidth = np.asarray(bandwidth_bytes_per_s, dtype=np.float64)
    latency = np.asarray(latency_s, dtype=np.float64)
    lost = ~np.isfinite(slower)
    at, links = problem.cluster.domain_index, problem.cluster.links
    cut = np.array([lost[at[link.source]] or lost[at[link.destination]] for link in links], dtype=bool)
    bandwidth = np.where(cut, 0.0, bandwidth)
    joined = links_under(known, bandwidth, latency)
    return Site(known, joined, bandwidth, latency, np.where(lost, 1.0, slower), lost)


@dataclass(frozen=True, eq=False)
class Draft:
    """What was chosen: a chain of domains with claims, the recipe, and a row of the table per domain."""

    chain: Ints  # (n,)
    claims: Floats  # (n,)
    recipe: int
    rows: Ints  # (n,)


@dataclass(frozen=True, eq=False)
class Built:
    """A plan as it was played."""

    plan: Plan
    step_time_s: float


def build(where: Site, draft: Draft) -> list[Plan]:
    """Plans of a draft, one per warm-up worth a play, deepest first; empty: its layers do not fit."""
    arrays = where.table.arrays
    stages = int(arrays.stages[draft.rows].sum())
    cuts = np.zeros(stages + 1, np.int64)
    choice = where.table.choices[draft.recipe]
    if not settle(
        arrays, where.links, where.slower, draft.chain, draft.claims, draft.rows, choice.wave, buffers(arrays), cuts
    ):
        return []
    at = np.repeat(np.arange(len(draft.chain)), arrays.stages[draft.rows])
    names = [domain.name for domain in where.table.problem.cluster.domains]
    sketched = tuple(
        StageSketch(
            names[draft.chain[i]],
            (int(cuts[stage]), int(cuts[stage + 1])),
            int(arrays.tp[draft.rows[i]]),
            int(arrays.dp[draft.rows[i]]),
        )
        for stage, i in enumerate(at)
    )
    waves = arrays.batch // choice.wave
    ahead = warm_ups(_chain_of(where, draft, cuts, at)) if where.table.problem.rules.live_limit else [()]
    try:
        problem = where.table.problem
        placed = place(problem.cluster, [PipelineSketch(sketched, waves)], cp=problem.context_parallel)
    except InfeasibleError:
        return []
    return [_plan(where, draft, placed, warm_up) for warm_up in ahead]


def played(where: Site, plans: Sequence[Plan]) -> Built | None:
    """The quickest of the plans under the site's state; None: there is none that it can run."""
    known, best = where.table, None
    for plan in plans:
        try:
            program = lower(known.problem, plan, cost=known.tables.model)
        except InputError:
            continue
        (step,) = step_times(
            program,
            bandwidth_bytes_per_s=where.bandwidth_bytes_per_s[None],
            latency_s=where.latency_s[None],
            compute=None if (where.slower == 1.0).all() else where.slower[None],
        )
        if np.isfinite(step) and (best is None or step < best.step_time_s):
            best = Built(plan, float(step))
    return best


def lower_rewards(where: Site, draft: Draft, step_time_s: float) -> Floats:
    """What is the lower agent's own of each domain's reward, (n,): fragmentation, communication, compute."""
    arrays, choice = where.table.arrays, where.table.choices[draft.recipe]
    cuts, layers = first_cuts(where, draft.chain, draft.claims), len(arrays.work) - 1
    found = np.zeros(len(draft.chain))
    for i, row in enumerate(draft.rows):
        share = (cuts[i + 1] - cuts[i]) / layers
        waves = arrays.batch / choice.wave
        inside = share * (waves * arrays.inside_s[row] + arrays.agree_s[row])
        figures = layouts_weighed(where, draft, i, (int(row), int(row) + 1))[0]
        held_up = max(0.0, figures[1] / max(figures[5], 1e-12) - 1.0) if len(draft.chain) > 1 else 0.0
        found[i] = -LAMBDA_1 * arrays.stranded[row] - LAMBDA_2 * inside / step_time_s - LAMBDA_3 * min(held_up, 2.0)
    return found


def layouts_weighed(where: Site, draft: Draft, place: int, rows: tuple[int, int]) -> Floats:
    """``estimate.weigh_layouts`` of rows [low, high) for the domain at ``place`` of a draft, (high - low, 6)."""
    arrays = where.table.arrays
    low, high = rows
    found = np.empty((high - low, 6))
    cuts = first_cuts(where, draft.chain, draft.claims)
    wave = where.table.choices[draft.recipe].wave
    weigh_layouts(
        arrays, where.links, where.slower, draft.chain, cuts, draft.rows, wave, place, low, high, buffers(arrays), found
    )
    return found


def first_cuts(where: Site, chain: Ints, claims: Floats) -> Ints:
    """Cut points (n + 1,) between domains before layouts are known."""
    cuts = np.zeros(len(chain) + 1, np.int64)
    shared_layers(where.table.arrays, chain, claims, len(chain), cuts)
    return cuts


def _chain_of(where: Site, draft: Draft, cuts: Ints, at: Ints) -> ChainTimes:
    """Stages as ``run_ahead`` takes them."""
    arrays, links = where.table.arrays, where.links
    rows, domains = draft.rows[at], draft.chain[at]
    x, y, start, stop = arrays.timing[rows], arrays.holding[rows], cuts[:-1], cuts[1:]
    slower = where.slower[domains]
    seconds = (arrays.seconds[x, stop] - arrays.seconds[x, start]) * slower
    forward = (arrays.forward_s[x, stop] - arrays.forward_s[x, start]) * slower
    wave = where.table.choices[draft.recipe].wave
    wave_bytes = wave * arrays.border_bytes
    delays = np.zeros(len(at))
    inside = np.flatnonzero(at[1:] == at[:-1]) + 1
    delays[inside] = 2.0 * arrays.hop_s[rows[inside]]
    room, between = buffers(arrays), len(draft.chain) - 1
    slowest = wave_bytes * round_trips(arrays, links, draft.chain, len(draft.chain), room)[0]
    delays[np.flatnonzero(at[1:] != at[:-1]) + 1] = wave_bytes * room.trips[:between, 0] + room.trips[:between, 1]
    passing = np.array([arrays.passing[row, low:high].max() for row, low, high in zip(x, start, stop, strict=True)])
    kept = arrays.kept[y, stop] - arrays.kept[y, start] + passing
    waves = np.floor((arrays.usable_bytes - kept) / (arrays.leaves[x, stop] - arrays.leaves[x, start]))
    return ChainTimes(forward, seconds, delays, waves, int(arrays.batch // wave), float(slowest))


def _plan(where: Site, draft: Draft, placed: Sequence[Pipeline], warm_up: tuple[int, ...]) -> Plan:
    problem, choice = where.table.problem, where.table.choices[draft.recipe]
    (line,) = placed
    names = [domain.name for domain in problem.cluster.domains]
    room = buffers(where.table.arrays)
    round_trips(where.table.arrays, where.links, draft.chain, len(draft.chain), room)
    borders = [pair for a, b in zip(draft.chain, draft.chain[1:], strict=False) for pair in ((a, b), (b, a))]
    relays = tuple(
        Relay(names[a], names[b], names[where.links.via[a, b]])
        for (a, b), through in zip(borders, room.relayed[: len(draft.chain) - 1].ravel(), strict=True)
        if through
    )
    ends = (draft.chain[0], draft.chain[-1])
    for a, b in (ends, ends[::-1]) if where.table.arrays.tied_bytes and len(draft.chain) > 1 else ():
        if where.links.via[a, b] >= 0 and not any(
            (relay.source, relay.destination) == (names[a], names[b]) for relay in relays
        ):
            relays += (Relay(names[a], names[b], names[where.links.via[a, b]]),)
    widest = int(where.table.arrays.dp[draft.rows].max())
    return Plan(
        (replace(line, warm_up=warm_up),),
        choice.wave // int(where.table.arrays.dp[draft.rows[0]]),
        sequence_parallel=problem.rules.sequence_parallel,
        context_parallel=problem.context_parallel,
        expert_parallel=problem.expert_parallel,
        expert_tensor_parallel=problem.expert_tensor_parallel,
        precision=problem.workload.precision,
        recompute=choice.recompute,
        sharding=choice.sharding if widest > 1 else "none",
        schedule=ScheduleChoice("cross-domain", max(warm_up)) if warm_up else ScheduleChoice(),
        relays=relays,
        compression=border_compression(problem, placed),
    )
