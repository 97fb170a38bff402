"""What happens once per installation: compiled loops are compiled before any time limit begins to run.

The first use of a planner on a machine would spend half a minute of its time limit on compiling, and then answer as if
it had searched. So a planner plans a few small problems first, unless a mark beside the compiled files says that this
was done with these sources. Nothing heavy is imported where the mark is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from hippo.registry import AUTO, JOB_SCHEDULERS, LOCAL_SGD, METHODS, USUAL, load, planner, planners

if TYPE_CHECKING:
    from hippo.network.worlds.world import World
    from hippo.planners.base import Planner, Progress
    from hippo.problem.problem import Problem
    from hippo.schedule.problem import ScheduleProblem

MARK = "prepared"
PLAIN = "plain"  # placement of stages
PATIENCE_S = 600.0  # for small problems on a slow machine
FRONT = "exact"  # whose shapes the front is searched over
PRICES_MOVES = "receding_horizon"  # asks what a move under way is worth
STEERS = "hi_ppo"  # who keeps plans right, where `serve` is told nothing else
SCHEDULES, DISPATCH, MOVING, TRAINING, JOBS, SERVING = (
    "schedules",
    "dispatch",
    "moving",
    "training",
    "jobs",
    "serving",
)  # in the names of their marks
WORDS = {
    "exact": ("`plan`", 35),
    SCHEDULES: ("`schedule`", 15),
    DISPATCH: ("times that vary", 15),
    MOVING: ("`watch`", 35),
    TRAINING: ("`train`", 20),
    JOBS: ("`jobs`", 20),
    SERVING: ("`serve`", 60),
}
"""Whom it is for, and seconds on two quiet cores."""
ABOUT_S = 5  # for another planner
EPOCHS = 24  # of a small moving world: long enough for a move, a lever and plans made anew


def prepare(asked: Sequence[Planner], *, progress: Progress | None = None) -> None:
    """Compiles what these planners and the explanation of their plans need; free where that was done before."""
    for each in asked:
        if each.name in AUTO:
            _once(each.name, progress)


def prepare_schedules(
    placements: Iterable[str] = (), *, varies: bool = False, progress: Progress | None = None
) -> None:
    """Compiles what ``hippo schedule`` needs for these placements; free where that was done before.

    ``varies``: also what is asked where times vary, dispatch by a hint and by what was learned.
    """
    for placement in dict.fromkeys((PLAIN, *placements)):
        _once(SCHEDULES if placement == PLAIN else f"{SCHEDULES}-{placement}", progress)
    if varies:
        _once(DISPATCH, progress)


def prepare_moving(method: str | None = None, *, trains: bool = False, progress: Progress | None = None) -> None:
    """Compiles what a method (none of ``METHODS``: each of them) and hindsight need; free where that was done before.

    ``trains``: also the environment.
    """
    prepare((planner(FRONT),), progress=progress)  # it fills their caches
    if method in METHODS:
        _once(f"{MOVING}-{method}", progress, part_of=MOVING)
    else:
        _once(MOVING, progress)
    if trains:
        _once(TRAINING, progress)


def prepare_jobs(*, progress: Progress | None = None) -> None:
    """Compiles what a replay of jobs needs, for all policies at once; free where that was done before."""
    _once(JOBS, progress)


def prepare_serving(method: str | None = None, *, progress: Progress | None = None) -> None:
    """Compiles what a queue that lives needs, and the method that keeps plans right (none of ``METHODS``: nobody does);
    free where that was done before."""
    _once(SERVING, progress)
    if method in METHODS:
        prepare_moving(method, progress=progress)


def purposes() -> dict[str, Callable[..., None]]:
    """What ``hippo prepare`` can be asked for: commands, and ``planners`` for the ways of planning beside ``exact``."""
    return {
        "plan": lambda **watch: prepare((planner(FRONT),), **watch),
        "schedule": partial(prepare_schedules, ("looped", "v", "bidirectional"), varies=True),
        "watch": prepare_moving,
        "train": partial(prepare_moving, trains=True),
        "jobs": prepare_jobs,
        "serve": partial(prepare_serving, STEERS),
        "planners": lambda **watch: prepare(planners(AUTO), **watch),
    }


def _parts(name: str) -> tuple[Callable[[], None], ...]:
    """What compiles all that a purpose needs, in two or more steps where there are two that share little."""
    if name == SCHEDULES:
        from hippo.schedule.best import warm_up_search

        return (partial(_schedule_something, PLAIN), warm_up_search)
    if name.startswith(SCHEDULES):
        return (partial(_schedule_something, name.rpartition("-")[2]),)
    if name == DISPATCH:
        return (_vary_something, _dispatch_something)
    if name.startswith(MOVING):
        return (partial(_move_something, (name.removeprefix(f"{MOVING}-"),) if name != MOVING else METHODS), _look_back)
    if name == TRAINING:
        return (_train_something,)
    if name == JOBS:
        return (_replay_something,)
    if name == SERVING:
        return (serve_something,)
    own = (lambda: _plan_something(planner(name)),)
    return (*own, _explain_something) if name == FRONT else own


def _once(name: str, progress: Progress | None, *, part_of: str | None = None) -> None:
    from hippo.compiling import folder

    kept = folder()
    mark = None if kept is None else kept / f"{MARK}-{name}"
    if mark is not None and (mark.exists() or mark.with_name(f"{MARK}-{part_of}").exists()):
        return
    parts = _parts(name)
    words, about_s = WORDS.get(part_of or name, (name, ABOUT_S))
    with _from_the_last(name) if len(parts) > 1 and mark is not None else nullcontext():
        for number, part in enumerate(parts):
            if progress is not None:
                progress(f"compiling for {words}, once, about {about_s} s", number / len(parts))
            part()
    if mark is not None:
        with suppress(OSError):  # nothing can be written: what was compiled has said so
            mark.touch()


@contextmanager
def _from_the_last(name: str) -> Iterator[None]:
    """A second process that goes through the parts from the last; what it cannot do is done without it."""
    if (os.cpu_count() or 1) < 2:
        yield
        return
    command = [sys.executable, "-c", f"from hippo.first_use import _parts\nfor part in _parts({name!r})[:0:-1]: part()"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    nobody = subprocess.DEVNULL
    helper = subprocess.Popen(command, env=environment, stdin=nobody, stdout=nobody, stderr=nobody)
    try:
        yield
    finally:
        helper.terminate()  # all parts are done, or the user has had enough
        helper.wait()


def _schedule_something(placement: str) -> None:
    """By every method of a placement, on a problem of a few operations."""
    from hippo.schedule.solve import solve

    solve(_small_problem(placement), "best", time_limit_s=0.1)


def _vary_something() -> None:
    """Schedules of every placement under fluctuation, as they stand and as a hint."""
    import numpy as np

    from hippo.dispatch.noise.fluctuation import Fluctuation, makespans
    from hippo.schedule.problem import PLACEMENTS
    from hippo.schedule.solve import solve

    rng = np.random.default_rng(0)
    for placement in PLACEMENTS:
        small = _small_problem(placement)
        answer = solve(small, "best", time_limit_s=0.1)
        solve(small, "best", time_limit_s=0.1, hint=True)
        for by_hint in (False, True):
            makespans(small, answer.schedule, Fluctuation(), samples=2, rng=rng, by_hint=by_hint)


def _small_problem(placement: str) -> ScheduleProblem:
    from hippo.schedule.problem import ScheduleProblem

    return ScheduleProblem.uniform(2, 3, (1.0, 1.0, 0.5), comm=0.5, live_limit=3).placed(placement)


def _dispatch_something() -> None:
    """What a small network orders, alone and under fluctuation."""
    from hippo.dispatch.noise.fluctuation import Fluctuation
    from hippo.dispatch.noise.learned_play import spread_learned
    from hippo.schedule.methods import LEARNED
    from hippo.schedule.solve import solve

    plain = _small_problem(PLAIN)
    solve(plain, LEARNED)
    spread_learned(plain, Fluctuation(), samples=2)


def _move_something(methods: Iterable[str]) -> None:
    """Methods in a small world."""
    from hippo.network.rules.worth import Now, ahead, worth
    from hippo.network.worlds import judge
    from hippo.network.worlds.play import play, steps

    world = _moving_world()
    setting = judge.scenario_of(world)
    for name in methods:
        play(world, setting.cache, load(METHODS, "method", name)(), setting.terms, forecasts=setting.forecasts)
        if name == PRICES_MOVES:
            kept = load(METHODS, "method", "static")()
            _, second, *_ = steps(world, setting.cache.copy(), kept, setting.terms, forecasts=setting.forecasts)
            worth(ahead(second.view), Now(second.view.running, -1, second.view.phase, 0.0))


def _look_back() -> None:
    """Hindsight of one that moves there, and every forecast."""
    from hippo.dynamics.forecast import FORECASTS
    from hippo.network.rules.view import Action, How, View
    from hippo.network.worlds import judge
    from hippo.network.worlds.play import foresee, play

    class Moving:
        """Whether a method moves is its own affair: this one does, to the first plan that lies elsewhere."""

        name = "moving"

        def begin(self, view: View) -> int:
            return 0

        def decide(self, view: View) -> Action:
            known = view.cache
            here = known.location(view.running)
            elsewhere = (each for each in range(len(known)) if known.location(each) != here)
            return Action(How.STOP, next(elsewhere)) if view.epoch == 1 else Action()

    world = _moving_world()
    setting = judge.scenario_of(world)
    judge.judge(setting, [play(world, setting.cache, Moving(), setting.terms, forecasts=setting.forecasts)])
    for name in FORECASTS:
        foresee(world, name)


def _train_something() -> None:
    """A few steps of the environment in a small world."""
    import numpy as np

    from hippo.network.env import dataset
    from hippo.network.env.env import Env
    from hippo.network.worlds import judge

    world = _moving_world()
    setting = judge.scenario_of(world)
    env = Env(dataset.dataset_of([dataset.prepare(world, setting.cache)]), 1)
    env.reset()
    env.step(np.zeros(1, np.int64))
    env.regrets()


def _replay_something() -> None:
    """Three jobs in two domains."""
    from hippo.jobs.engine.play import play
    from hippo.jobs.job import Job
    from hippo.jobs.policies.heuristics import FIFO
    from hippo.jobs.site import DevicePool, site
    from hippo.jobs.workload import JobWorkload

    jobs = [Job(str(number), float(number), 10.0, devices=2) for number in range(3)]
    play(JobWorkload.of(jobs), site([DevicePool("a", "gpu", 1, 2), DevicePool("b", "gpu", 1, 2)]), FIFO)


def serve_something() -> None:
    """Two gangs in two domains whose link moves: they come one after another, are late, fail and are cancelled."""
    import numpy as np

    from hippo.jobs.job import Job
    from hippo.jobs.joint.live import LinksNow, LiveWorld
    from hippo.jobs.placement.offers import OfferTable
    from hippo.jobs.site import DevicePool, site

    where = site([DevicePool("a", "gpu", 1, 2), DevicePool("b", "gpu", 1, 2)], 1e9)
    live = LiveWorld(where, load(JOB_SCHEDULERS, "policy", "srpt"), OfferTable.none())
    live.submit([Job("one", 0.0, 10.0, devices=2)])
    rate, late = (np.array(each) for each in (where.bandwidth_bytes_per_s, where.latency_s))
    for now_s, share in ((1.0, 1.0), (2.0, 0.5)):
        list(live.until(now_s))
        live.tell(links=[LinksNow(now_s + 0.5, rate * share, late)])
    live.submit([Job("two", 3.0, 10.0, devices=4)])
    list(live.until(4.0))
    seen = live.decide(5.0)
    assert seen is not None, "two jobs are there"
    for job in range(2):
        seen.places(job)
        seen.remaining_s(job)
    live.progress("one", 0.5, 6.0)
    live.outlast("one", 12.0, 7.0)
    live.fail("one", 8.0)
    live.cancel("two", 9.0)
    live.restore(live.packed(), live.jobs)
    live.decide(10.0)


def _moving_world() -> World:
    """Domains in a triangle; in the second half of the run the links of the first are slow."""
    import numpy as np

    from hippo.network.worlds.world import World
    from hippo.problem.links import base_bandwidth, base_latency

    problem = next(_problems())
    cluster = problem.cluster
    base, latency, first = base_bandwidth(cluster), base_latency(cluster), cluster.domains[0].name
    slow = np.where([first in (link.source, link.destination) for link in cluster.links], 0.1, 1.0)
    late = np.arange(EPOCHS)[:, None] >= EPOCHS // 2
    return World(
        name="first use",
        family="first use",
        problem=problem,
        epoch_s=600.0,
        bandwidth_bytes_per_s=np.where(late, slow * base, base),
        latency_s=np.tile(latency, (EPOCHS, 1)),
        compute=np.ones((EPOCHS, len(cluster.domains))),
        told=np.ones((EPOCHS, len(base)), dtype=bool),
    )


def _plan_something(asked: Planner) -> None:
    from hippo.decide import choose
    from hippo.decide.best_order import with_best_order
    from hippo.decide.pareto import pareto_front
    from hippo.planners.base import Stop
    from hippo.planners.exact.front import front_candidates

    stop, usual, local_sgd = Stop(PATIENCE_S), planners(USUAL), planner(LOCAL_SGD)
    for problem in _problems():
        choose.decide(problem, (asked,), stop, baseline=usual, local_sgd=local_sgd, order=with_best_order)
        if asked.name == FRONT:
            pareto_front(problem, (asked,), stop, search=front_candidates, baseline=usual)


def _explain_something() -> None:
    """What is said of a plan, whoever made it."""
    from hippo.decide import choose
    from hippo.planners.base import Stop

    usual, local_sgd = planners(USUAL), planner(LOCAL_SGD)
    for problem in _problems():
        choose.decide(problem, usual[:1], Stop(PATIENCE_S), baseline=usual, local_sgd=local_sgd)


def _problems() -> Iterator[Problem]:
    """Three small domains in a triangle, with and without local SGD; and one where it pays to cross."""
    from hippo.problem.cluster_yaml import cluster_from_document
    from hippo.problem.load import load_problem

    names = ("a", "b", "c")
    ends = ((one, other) for index, one in enumerate(names) for other in names[index + 1 :])
    speed = {"bandwidth_gbps": 5, "latency_ms": 10, "price_usd_per_gb": 0.02, "both": True}
    document = {
        "gpu": "A100-SXM-80GB",
        "domains": [{"name": name, "nodes": 2, "gpus_per_node": 4} for name in names],
        "links": [{"from": one, "to": other, **speed} for one, other in ends],
    }
    cluster = cluster_from_document(document, source="first use", name="first use")
    for allowed in (True, False):
        yield load_problem(model="gpt3-2.7b", cluster=cluster, global_batch=16, seq=512, allow_local_sgd=allowed)
    yield load_problem(model="llama-3-70b", cluster="four-hubs")
