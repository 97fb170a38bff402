"""One job alone on a moving network of ``hippo evaluate``: the engine of many jobs does the work that ``network`` says.

The load of others on the GPUs, which those networks move too, is held at none; plans lie in one domain or in two whose
links are about alike both ways, as an offer knows the slowest of its links only (results/status.md, "One world").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from hippo.jobs.job import Job, TrainingKind
from hippo.jobs.joint.moment import JobPlace, Moment
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.placement.offers import MOST_PARTS, OfferTable
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload
from hippo.network.plans.candidates import fill
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import TOKENS
from hippo.network.rules.view import Action, How, View
from hippo.network.worlds.asking import Terms
from hippo.network.worlds.generator import make_world, trace_of
from hippo.network.worlds.play import MethodRun, play
from hippo.network.worlds.world import World
from hippo.problem.links import Trace
from hippo.problem.prices import RELAUNCHED

GRID = 60  # bandwidths at which steps are played
MOVES_AT = 40  # epoch


@dataclass(frozen=True)
class OneMove:
    """Begins with a plan, and goes over to another one later, if that is another."""

    first: int
    then: int
    how: How
    moves_at: int = MOVES_AT
    name = "one move"

    def begin(self, view: View) -> int:
        return self.first

    def decide(self, view: View) -> Action:
        moves = view.epoch == self.moves_at and self.then != self.first
        return Action(self.how, self.then) if moves else Action()


@cache
def drawn(family: str, quicker: float = 1.0) -> tuple[World, PlanCache]:
    """A test network on which GPUs belong to the job alone, its links so many times as quick, and plans for it."""
    world = make_world(family, 0, split="test")
    carries = quicker * world.bandwidth_bytes_per_s
    world = replace(world, compute=np.ones_like(world.compute), bandwidth_bytes_per_s=carries)
    plans = PlanCache(world.problem)
    fill(plans)
    return world, plans


def in_network(world: World, plans: PlanCache, first: int, then: int, how: How, *, cut: int = 1) -> MethodRun:
    """``cut``: into how many epochs each is cut, all with its state."""
    columns = ("bandwidth_bytes_per_s", "latency_s", "compute", "told")
    finer = {name: np.repeat(getattr(world, name), cut, axis=0) for name in columns}
    finely = replace(world, epoch_s=world.epoch_s / cut, **finer)
    return play(finely, plans, OneMove(first, then, how, MOVES_AT * cut), Terms(usd_per_token=0.0))


def tokens_among_jobs(world: World, plans: PlanCache, first: int, then: int, how: How) -> float:
    """Of the same as decisions of a scheduler with one elastic job, until the last epoch ends."""
    links = trace_of(world)
    end_s = world.epochs * world.epoch_s
    stays = (np.concatenate([each, each[-1:]]) for each in (links.bandwidth_bytes_per_s, links.latency_s))
    site = JobSite.of(world.problem.cluster, Trace(np.append(links.time_s, end_s), *stays))
    kind = TrainingKind(world.problem.model.name, world.problem.workload.global_batch, world.problem.workload.seq)
    rows = [offer(world, plans, index) for index in (first, then)]
    parts = np.array([len(row.domains) for row in rows])
    table = OfferTable(
        kinds=(kind,),
        kind=np.zeros(2, np.int64),
        parts=parts,
        gpus=np.array([row.gpus + (0,) * (MOST_PARTS - len(row.gpus)) for row in rows]),
        block=np.ones(2, np.int64),
        ring=np.zeros(2, np.bool_),
        layout=np.ones((2, 3), np.int64),
        rate=np.stack([row.steps_per_s for row in rows]),
        hop_bytes=np.array([row.hop_bytes for row in rows]),
        memory_left=np.zeros(2),
        inside_comm=np.zeros(2),
        bandwidth_bytes_per_s=bandwidths(world),
        latency_s=latencies(world),
        tokens_per_s=np.array([plans.tokens_per_step]),
        state_bytes=np.array([16.0 * sum(layer.parameters for layer in world.problem.model.layers)]),
        state_share=np.array([row.held + (0.0,) * (MOST_PARTS - len(row.held)) for row in rows]),
    )
    most = int(table.gpus.sum(axis=1).max())
    terms = {"model": kind.model, "batch": kind.batch, "seq": kind.seq, "tokens": 1.0, "least": 1, "most": most}
    jobs = JobWorkload.of([Job("one", 0.0, 1e12, devices=most, **terms)])
    places = [JobPlace(at, row.domains, 0.0, sum(row.gpus)) for at, row in enumerate(rows)]
    if first == then:
        places = places[:1]
    scheduler = Following(places, MOVES_AT * world.epoch_s, end_s, how)
    with pytest.raises(_Ended) as ended:
        play_jointly(jobs, site, scheduler, ReplayRules(restart_s=RELAUNCHED.stop_s), offers=table)
    return float(ended.value.args[0]) * plans.tokens_per_step


class _Ended(Exception):
    """Of the run, with the steps that it made."""


@dataclass(frozen=True)
class Following:
    """Does what ``OneMove`` does."""

    places: list[JobPlace]
    moves_s: float
    end_s: float
    how: How
    name = "following"

    def decide(self, moment: Moment) -> None:
        if moment.now_s == 0.0:
            assert moment.begin(0, self.places[0])
        elif moment.now_s == self.moves_s and len(self.places) > 1:
            go = moment.move if self.how is How.BACKGROUND else moment.resize
            assert go(0, self.places[1])
        elif moment.now_s == self.end_s:
            raise _Ended(moment.attained_s(0))


@dataclass(frozen=True)
class PlayedOffer:
    """A plan as an offer."""

    domains: tuple[int, ...]  # most GPUs first
    gpus: tuple[int, ...]
    held: tuple[float, ...]  # share of the state
    steps_per_s: np.ndarray  # (L, G)
    hop_bytes: float


def offer(world: World, plans: PlanCache, index: int) -> PlayedOffer:
    cluster, plan = world.problem.cluster, plans.configurations[index].plan
    parameters = np.array([float(layer.parameters) for layer in world.problem.model.layers])
    gpus, held = np.zeros(len(cluster.domains), np.int64), np.zeros((len(cluster.domains), len(parameters)), np.bool_)
    for line in plan.pipelines:
        for stage in line.stages:
            at = cluster.domain_index[stage.domain]
            gpus[at] += len(stage.devices)
            held[at, slice(*stage.layers)] = True
    domains = sorted(np.flatnonzero(gpus).tolist(), key=lambda at: -gpus[at])
    assert len(domains) <= 2, "the slowest of more links says too little"
    grid, late = bandwidths(world), latencies(world)
    states = (np.repeat(each, len(cluster.links)).reshape(-1, len(cluster.links)) for each in (grid, late))
    bandwidth, latency = states
    seconds = [plans.step_time_s(index, bandwidth, np.repeat(row[None], len(grid), axis=0)) for row in latency]
    return PlayedOffer(
        tuple(domains),
        tuple(gpus[domains].tolist()),
        tuple((held[domains] @ parameters / parameters.sum()).tolist()),
        1.0 / np.array(seconds),
        float(plans.bytes_per_step(index).max()),
    )


def bandwidths(world: World) -> np.ndarray:
    """(G,) from the slowest to the quickest that comes."""
    carried = world.bandwidth_bytes_per_s[world.bandwidth_bytes_per_s > 0]
    return np.geomspace(carried.min(), carried.max(), GRID)


def latencies(world: World) -> np.ndarray:
    return np.linspace(world.latency_s.min(), world.latency_s.max() + 1e-3, 8)


def numbers(plans: PlanCache, sets: tuple[tuple[int, ...], ...]) -> list[int]:
    """The first plan over each set of domains."""
    over = [tuple(np.flatnonzero(plans.domains_used(index)).tolist()) for index in range(len(plans))]
    plain = [index for index, each in enumerate(plans.configurations) if not each.lever]
    return [next(index for index in plain if over[index] == each) for each in sets]


@pytest.mark.parametrize(
    ("family", "sets"),
    [
        ("transient", ((0,),)),
        ("transient", ((0,), (1,))),
        pytest.param("day", ((2, 4),), marks=pytest.mark.slow),
        pytest.param("day", ((0,), (2, 4)), marks=pytest.mark.slow),
        ("link_bound", ((0, 1),)),
    ],
)
def test_one_job_does_the_work_of_a_plan_on_a_moving_network(family: str, sets: tuple[tuple[int, ...], ...]):
    """Kept, or after a stop to copy its state to another place."""
    world, plans = drawn(family)
    first, then = (2 * numbers(plans, sets))[:2]
    expected = in_network(world, plans, first, then, How.STOP).gave[:, TOKENS].sum()
    assert tokens_among_jobs(world, plans, first, then, How.STOP) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("family", "sets", "quicker"),
    [pytest.param("day", ((0,), (2, 4)), 16.0, marks=pytest.mark.slow), ("halving", ((0,), (3,)), 8.0)],
)
def test_a_move_in_the_background_arrives_as_on_a_moving_network(
    family: str, sets: tuple[tuple[int, ...], ...], quicker: float
):
    """Gradients are those of what has come, all the time; there, of what had come when an epoch began."""
    world, plans = drawn(family, quicker)
    first, then = numbers(plans, sets)
    run = in_network(world, plans, first, then, How.BACKGROUND, cut=60)
    assert (run.running == then).any()
    expected = run.gave[:, TOKENS].sum()
    assert tokens_among_jobs(world, plans, first, then, How.BACKGROUND) == pytest.approx(expected, rel=1e-3)
