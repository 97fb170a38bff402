"""Who goes first of those that rank first and fill the site."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from hippo.jobs.engine import world as c
from hippo.jobs.engine.opening import open_world
from hippo.jobs.engine.play import play, run
from hippo.jobs.engine.world import QueueWorld
from hippo.jobs.learned.state import KeyMemory, LearnedSetup
from hippo.jobs.learned.weights import untrained
from hippo.jobs.policies.heuristics import TWO_QUEUE
from hippo.jobs.policies.learned import LEARNED
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, site
from hippo.jobs.workload import JobWorkload

SITE = site([DevicePool("a", "gpu", 1, 4), DevicePool("b", "gpu", 1, 4)])
PLAIN = LearnedSetup(weights=untrained())
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]


def drawn(seed: int, jobs: int = 200) -> JobWorkload:
    """Short and long jobs of 1, 2 and 4 devices, at a load of about .9."""
    rng = np.random.default_rng(seed)
    columns = {
        "duration_s": rng.lognormal(7.0, 1.5, jobs),
        "devices": 2 ** rng.integers(0, 3, jobs),
        "user": rng.integers(0, 3, jobs),
        "arrival_s": np.cumsum(rng.exponential(1.0, jobs)),
    }
    found = JobWorkload.of_columns(columns, users=("u", "v", "w"))
    return found.stretched(found.load(SITE) / 0.9)


def front(known: KeyMemory) -> list[int]:
    """By hand: jobs in order of rank, up to the first for which no room is left; that may be half a domain too many."""
    jobs = known.active[: known.wanting[0]].tolist()
    jobs.sort(key=lambda job: (known.order[job], job))
    held, found = 0, []
    for job in jobs:
        devices = int(known.devices[job])
        if held + devices > SITE.devices and (held >= SITE.devices or devices < 2):
            break
        held += devices
        found.append(job)
    return found


def in_front(known: KeyMemory) -> NDArray[np.int64]:
    """Whom the kernels hold to be in the front; there under numbers turned round."""
    return known.front.shape[1] - 1 - known.front[0, : known.front_size[0]]


def opened(workload: JobWorkload) -> QueueWorld:
    return open_world(workload, SITE, LEARNED, ReplayRules(), learner=PLAIN).world


@pytest.mark.parametrize("seed", SEEDS)
def test_the_front_is_what_fits_in_order_of_rank_at_every_instant(seed: int) -> None:
    world, waited, instants = opened(drawn(seed)), 0, 0
    known = world.learned
    while run(world, 1):
        instants += 1
        jobs = known.active[: known.wanting[0]]
        assert sorted(front(known)) == sorted(in_front(known))
        waited += int(known.front_size[0] < len(jobs))
        first, after = (jobs[np.isin(jobs, in_front(known)) == each] for each in (True, False))
        assert (world.job[first, c.KEY] < 0).all()
        np.testing.assert_array_equal(world.job[after, c.KEY], known.order[after])
        # powers of two, placed largest first, leave no gaps: either all run, or all devices do
        runs = world.mark[jobs, c.STATUS] == c.RUNNING
        held = int(known.devices[jobs[runs]].sum())
        assert (world.mark[first, c.STATUS] == c.RUNNING).all() or held == SITE.devices
    assert waited > instants / 10  # the site was full often enough for that to say something


def test_larger_gangs_of_the_front_stand_before_smaller_ones() -> None:
    world = opened(drawn(0))
    known = world.learned
    mixed = 0
    while run(world, 1):
        first = in_front(known)
        order = first[np.argsort(world.job[first, c.KEY])]
        assert (np.diff(known.devices[order]) <= 0).all()
        mixed += int(len(np.unique(known.devices[order])) > 1)
    assert mixed > 0


def test_a_gang_as_large_as_a_domain_does_not_starve() -> None:
    """Streams of quick single jobs keep some job of a better rank in each domain, nearly always."""
    rng = np.random.default_rng(5)
    columns = {
        "arrival_s": np.concatenate([np.sort(rng.uniform(0.0, 200_000.0, 600)), [1000.0]]),
        "duration_s": np.concatenate([rng.exponential(1500.0, 600), [5000.0]]),
        "devices": np.concatenate([np.ones(600, np.int64), [4]]),
        "user": np.zeros(601, np.int64),
    }
    order = np.argsort(columns["arrival_s"], kind="stable")
    workload = JobWorkload.of_columns({name: each[order] for name, each in columns.items()}, users=("u",))
    gang = int(np.flatnonzero(workload.devices == 4)[0])
    took_s = play(workload, SITE, LEARNED, ReplayRules(), learner=PLAIN).finish_s - workload.arrival_s
    assert workload.load(SITE) < 0.7
    assert took_s[gang] < 4 * 5000.0


@pytest.mark.parametrize("seed", SEEDS)
def test_where_gangs_fill_domains_it_is_no_worse_than_two_queues(seed: int) -> None:
    """Before, gangs starved here and it was worse."""
    rng = np.random.default_rng([seed, 9])
    where = site([DevicePool(f"domain-{k}", "gpu", 1, 4) for k in range(4)])
    columns = {
        "arrival_s": np.cumsum(rng.exponential(1.0, 1500)),
        "duration_s": np.exp(rng.uniform(np.log(1e3), np.log(2e6), 1500)),
        "devices": rng.choice([1, 2, 4], 1500, p=[0.6, 0.2, 0.2]),
        "user": rng.integers(0, 3, 1500),
    }
    found = JobWorkload.of_columns(columns, users=("u", "v", "w"))
    workload = found.stretched(found.load(where) / 0.9)
    own, guard = (
        (play(workload, where, policy, ReplayRules(), learner=PLAIN).finish_s - workload.arrival_s).mean()
        for policy in (LEARNED, TWO_QUEUE)
    )
    assert own < guard


MIXED = site([DevicePool("a", "fast", 1, 4), *(DevicePool(f"b{k}", "slow", 1, 4) for k in range(7))])
SIZES = site([DevicePool("large", "gpu", 1, 8), DevicePool("b", "gpu", 1, 4)])
KINDS = (("fast",), ("slow",), ())


def scarce(seed: int, jobs: int = 300) -> JobWorkload:
    """As many jobs for the one domain of fast devices as load it by .9, and for the seven others by .5."""
    rng = np.random.default_rng([seed, 4])
    runs_on = (rng.random(jobs) < 0.5).astype(np.int64)
    columns = {
        "duration_s": rng.lognormal(7.5, 1.5, jobs) + 10.0,
        "devices": 2 ** rng.choice(3, jobs, p=[0.6, 0.2, 0.2]),
        "user": rng.integers(0, 3, jobs),
        "runs_on": runs_on,
        "arrival_s": rng.exponential(1.0, jobs),
    }
    for kind, (devices, load) in enumerate(((4, 0.9), (28, 0.5))):
        own = runs_on == kind
        work_s = (columns["duration_s"] * columns["devices"])[own].sum() / devices / load
        gaps = np.cumsum(columns["arrival_s"][own])
        columns["arrival_s"][own] = work_s * gaps / gaps[-1]
    return JobWorkload.of_columns(columns, users=("u", "v", "w"), device_kinds=KINDS)


def fits(known: KeyMemory, jobs: list[int], devices: int, large: float) -> set[int]:
    """By hand: in order of rank, up to the first for which no room is left."""
    held, found = 0, set()
    for job in sorted(jobs, key=lambda job: (known.order[job], job)):
        wants = int(known.devices[job])
        if held + wants > devices and (held >= devices or wants < large):
            break
        held += wants
        found.add(job)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_jobs_of_unlike_kinds_have_fronts_of_their_own(seed: int) -> None:
    """A third may use all; these share a front with everybody, and the others' must fit on their devices, too."""
    workload = scarce(seed)
    kind = np.where(np.arange(len(workload)) % 3 == 0, 2, workload.runs_on)
    workload = replace(workload.stretched(0.5), runs_on=kind)
    world = open_world(workload, MIXED, LEARNED, ReplayRules(), learner=PLAIN).world
    known, narrowed = world.learned, 0
    while run(world, 1):
        jobs = known.active[: known.wanting[0]].tolist()
        of_all = fits(known, jobs, 32, 2)
        of_kind = [
            fits(known, [job for job in jobs if kind[job] == each], devices, 2) for each, devices in ((0, 4), (1, 28))
        ]
        expected = {job for job in of_all if kind[job] == 2 or job in of_kind[kind[job]]}
        assert {job for job in jobs if world.job[job, c.KEY] < 0} == expected
        narrowed += int(expected < of_all)
    assert narrowed > 20


def test_gangs_that_only_the_largest_domain_suits_go_first_on_its_devices_alone() -> None:
    rng = np.random.default_rng(8)
    columns = {
        "arrival_s": np.cumsum(rng.exponential(1.0, 200)),
        "duration_s": rng.lognormal(7.0, 1.5, 200),
        "devices": 2 ** rng.integers(0, 4, 200),
    }
    workload = JobWorkload.of_columns(columns)
    workload = workload.stretched(workload.load(SIZES) / 1.1)
    world = open_world(workload, SIZES, LEARNED, ReplayRules(), learner=PLAIN).world
    known, narrowed = world.learned, 0
    while run(world, 1):
        jobs = known.active[: known.wanting[0]].tolist()
        of_all, of_large = fits(known, jobs, 12, 4), fits(known, [job for job in jobs if known.devices[job] == 8], 8, 4)
        expected = {job for job in of_all if known.devices[job] < 8 or job in of_large}
        assert {job for job in jobs if world.job[job, c.KEY] < 0} == expected
        narrowed += int(expected < of_all)
    assert narrowed > 20


@pytest.mark.parametrize("seed", range(3))
def test_small_jobs_do_not_wait_for_all_gangs_where_devices_of_their_kind_are_few(seed: int) -> None:
    """With one front for the site all of them stood in it, and any gang went before every small job."""
    workload = scarce(seed, 1000)
    few = workload.runs_on == 0
    own, guard = (
        (play(workload, MIXED, policy, ReplayRules(), learner=PLAIN).finish_s - workload.arrival_s)[few].mean()
        for policy in (LEARNED, TWO_QUEUE)
    )
    assert own < guard
