"""Rules on worlds where their papers say what happens, and what holds for all of them."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hippo.jobs.engine import world as c
from hippo.jobs.engine.play import play
from hippo.jobs.job import Job
from hippo.jobs.joint import rules
from hippo.jobs.joint.moment import Moment, Scheduler
from hippo.jobs.joint.play import opened, play_jointly, step
from hippo.jobs.joint.ranked import ARRIVED, ATTAINED, CHEAPEST, FIRST, FULLEST, GRADIENT, LEFT, PRICED
from hippo.jobs.joint.rules import Ranked
from hippo.jobs.joint.settings import SRPT
from hippo.jobs.learned.state import LearnedSetup
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.policies.heuristics import FIFO
from hippo.jobs.policies.learned import LEARNED
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, site
from hippo.jobs.workload import JobWorkload
from hippo.registry import JOB_SCHEDULERS, load

from .clear_rank import Clear
from .test_against_twin import drawn
from .test_play import KIND, TWO, offers, train

EVERYONE: tuple[Scheduler, ...] = tuple(load(JOB_SCHEDULERS, "policy", name) for name in JOB_SCHEDULERS)


# ------------------------------------------------------------------------------------------------------ all of them
@pytest.mark.parametrize("scheduler", EVERYONE, ids=lambda each: each.name)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), domains=st.integers(2, 4), jobs=st.integers(3, 12))
def test_nobody_who_fits_alone_waits_on_an_empty_site(scheduler: Scheduler, seed: int, domains: int, jobs: int):
    made = drawn(seed, domains, jobs)
    world = opened(made.workload, made.site, made.rules, offers=made.offers, tenants=made.tenants).world
    moment = Moment.of(world, made.workload, made.site, made.offers)
    while step(world):
        scheduler.decide(moment)
        if not len(moment.running):
            for job in moment.waiting.tolist():
                assert not moment.places(job, 1) if made.workload.elastic[job] else not moment.start(job)


@pytest.mark.parametrize("scheduler", EVERYONE, ids=lambda each: each.name)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), domains=st.integers(2, 4), jobs=st.integers(3, 12))
def test_nobody_is_stopped_where_running_jobs_may_not_be(scheduler: Scheduler, seed: int, domains: int, jobs: int):
    made = drawn(seed, domains, jobs)
    rules_ = replace(made.rules, stops=False, failures=None)
    ledger = play_jointly(made.workload, made.site, scheduler, rules_, offers=made.offers)
    assert not ledger.preemptions.any()


def test_what_was_told_decides_who_goes_first_and_what_is_true_when_it_ends():
    """Two jobs for the whole site: one is told 100 s and ends after 90, the other 80 and takes 80."""
    jobs = [
        Job("long", 0.0, 90.0, devices=4, estimate_s=100.0),
        Job("short", 0.0, 80.0, devices=4, estimate_s=80.0),
    ]
    alone = site([DevicePool("d0", "gpu", 1, 4)])
    ledger = play_jointly(JobWorkload.of(jobs), alone, rules.SRPT, offers=offers())
    ends = dict(zip(("long", "short"), ledger.finish_s.tolist(), strict=True))
    assert ends == {"short": 80.0, "long": 170.0}
    told_less = [replace(jobs[0], estimate_s=60.0), jobs[1]]
    ledger = play_jointly(JobWorkload.of(told_less), alone, rules.SRPT, offers=offers())
    assert dict(zip(("long", "short"), ledger.finish_s.tolist(), strict=True)) == {"long": 90.0, "short": 170.0}


@pytest.mark.parametrize("first_s", [10.0, 1000.0])
@pytest.mark.parametrize("stops", [True, False])
def test_of_gangs_that_tell_nothing_the_past_decides_and_not_what_is_true(first_s: float, stops: bool):
    """Three jobs for the whole site; jobs of ``brief`` ended after 10 s a hundred times, those of ``long`` after a day.
    Whoever of the two that wait is quicker in truth, ``brief`` goes first; where they tell durations, the quicker."""
    ended = [Job(f"{who}-{k}", 300.0 * k, s, 4, user=who) for k in range(100) for who, s in USUAL.items()]
    other_s = 1010.0 - first_s
    now = JobWorkload.of(
        [Job("runs", 0.0, 100.0, 4), Job("l", 1.0, other_s, 4, user="long"), Job("b", 2.0, first_s, 4, user="brief")]
    )
    alone, rest = site([DevicePool("d0", "gpu", 1, 4)]), {"offers": OfferTable.none()}
    settings_ = ReplayRules(restart_s=0.0, stops=stops)
    learner = LearnedSetup(past=JobWorkload.of(ended))
    untold = play_jointly(now, alone, SRPT, settings_, **rest, learner=learner).first_start_s.tolist()
    assert untold[2] < untold[1]
    told = play_jointly(now, alone, SRPT, settings_, **rest).first_start_s.tolist()
    assert (told[2] < told[1]) == (first_s < other_s)
    said = replace(now, estimate_s=now.duration_s)
    again = play_jointly(said, alone, SRPT, settings_, **rest, learner=learner).first_start_s.tolist()
    assert again == told


USUAL = {"brief": 10.0, "long": 86400.0}


def test_where_nothing_is_told_srpt_does_about_as_the_learned_policy():
    """Gangs alone: both rank by the same index, looked at at other moments; first come, first served takes longer."""
    rng, count = np.random.default_rng(5), 400
    durations = np.exp(rng.normal(5.5, 2.0, count)) + 1.0
    sizes, users = rng.choice([1, 2, 4, 8], count, p=[0.6, 0.15, 0.15, 0.1]), rng.integers(0, 6, count)
    arrivals = np.sort(rng.uniform(0.0, float((durations * sizes).sum()) / 32 / 1.2, count))
    rows = zip(arrivals.tolist(), durations.tolist(), sizes.tolist(), users.tolist(), strict=True)
    jobs = JobWorkload.of([Job(f"j{k}", a, s, d, user=f"u{u}") for k, (a, s, d, u) in enumerate(rows)])
    there = site([DevicePool(f"d{k}", "gpu", 2, 8) for k in range(2)])
    took = {
        name: float((ledger.finish_s - jobs.arrival_s).mean())
        for name, ledger in {
            "srpt": play_jointly(jobs, there, SRPT, offers=OfferTable.none(), learner=LearnedSetup()),
            "learned": play(jobs, there, LEARNED),
            "fifo": play(jobs, there, FIFO),
        }.items()
    }
    assert took["srpt"] == pytest.approx(took["learned"], rel=0.05)
    assert took["srpt"] < 0.7 * took["fifo"]


@pytest.mark.parametrize("scheduler", EVERYONE, ids=lambda each: each.name)
def test_it_says_what_it_is(scheduler: Scheduler):
    assert load(JOB_SCHEDULERS, "policy", scheduler.name) is scheduler
    assert scheduler.summary
    assert scheduler.source or scheduler.name in ("separate", "shortest")
    assert scheduler.knows in ("nothing", "durations")


RULES = st.builds(
    Ranked,
    name=st.just("drawn"),
    summary=st.just(""),
    rank=st.sampled_from([ARRIVED, ATTAINED, LEFT, PRICED]),
    by_priority=st.booleans(),
    preempts=st.booleans(),
    grows=st.booleans(),
    ahead=st.sampled_from([0.0, 0.3]),
    margin=st.sampled_from([0.1, 0.3, 1.0]),
    most_parts=st.integers(1, 4),
    slack=st.sampled_from([0.0, 0.02, 0.2]),
    crowd=st.sampled_from([0.0, 1.0]),
    busy=st.sampled_from([0.0, 0.3]),
    thrift=st.sampled_from([0.0, 1.0]),
    urgency=st.sampled_from([0.0, 4.0]),
    place=st.sampled_from([CHEAPEST, FIRST, FULLEST, GRADIENT]),
    patience=st.sampled_from([0.0, 0.2, 1.0]),
    reserves=st.sampled_from([0, 1, 4]),
    egress=st.sampled_from([0.0, 3.0, 1000.0]),
    unfairness=st.sampled_from([0.0, 2.0, 100.0]),
    stop=st.sampled_from([0.0, 20.0]),
    below=st.sampled_from([0.0, 3.0]),
    floor=st.sampled_from([6e8, 1e18]),
)


@given(
    rule=RULES,
    seed=st.integers(0, 2**32 - 1),
    domains=st.integers(2, 4),
    jobs=st.integers(3, 12),
    stops=st.booleans(),
)
def test_the_compiled_rule_does_what_the_clear_one_does(rule: Ranked, seed: int, domains: int, jobs: int, stops: bool):
    world = drawn(seed, domains, jobs)
    rest, terms = {"offers": world.offers, "tenants": world.tenants}, replace(world.rules, stops=stops)
    quick, clear = (play_jointly(world.workload, world.site, each, terms, **rest) for each in (rule, Clear(rule)))
    np.testing.assert_allclose(quick.finish_s, clear.finish_s, rtol=1e-9)
    assert quick.preemptions.tolist() == clear.preemptions.tolist()


# --------------------------------------------------------------------------------------------------- worlds by hand
def sized(rate: dict[tuple[int, ...], float], hop_gb: float = 1.0) -> OfferTable:
    """Offers of whole GPUs by the GPUs of their parts; those of two parts as quick wherever links give 1 GB/s."""
    table, count = offers(), len(rate)
    parts = np.array([len(gpus) for gpus in rate])
    found = replace(
        table,
        kind=np.zeros(count, np.int64),
        parts=parts,
        gpus=np.array([gpus + (0,) * (4 - len(gpus)) for gpus in rate]),
        block=np.ones(count, np.int64),
        ring=np.zeros(count, np.bool_),
        layout=np.ones((count, 3), np.int64),
        rate=np.stack([np.full((2, 2), [0.1 * each if len(gpus) > 1 else each, each]) for gpus, each in rate.items()]),
        hop_bytes=np.where(parts > 1, hop_gb * 1e9, 0.0),
        memory_left=np.zeros(count),
        inside_comm=np.zeros(count),
        state_share=np.empty(0),
        local=np.empty(0, np.bool_),
    )
    found.check()
    return found


def job(name: str, work_s: float, arrival_s: float = 0.0, least: int = 1, most: int = 4, **more: object) -> Job:
    terms = {"model": KIND.model, "batch": KIND.batch, "seq": KIND.seq, "tokens": 1.0, "least": least, "most": most}
    return Job(name, arrival_s, work_s, devices=most, **terms, **more)  # type: ignore[arg-type]


def ended(scheduler: Scheduler, jobs: list[Job], table: OfferTable) -> Ledger:
    return play_jointly(JobWorkload.of(jobs), TWO, scheduler, offers=table)


LINEAR = sized({(1,): 0.25, (2,): 0.5, (4,): 1.0})
CONCAVE = sized({(1,): 0.5, (2,): 0.8, (4,): 1.0})


def test_mast_takes_a_job_to_the_region_where_it_ends_first_its_data_included():
    """50 GB take 50 s to the other domain, the work 20."""
    one = job("a", 20, data_gb=50, data_at="d1")
    assert ended(rules.MAST, [one], LINEAR).finish_s.tolist() == [20]


def test_mast_never_spans_regions():
    """On one GPU of each region and three busy ones a broad job waits for 100 s."""
    busy = [job("a", 75, least=3, most=3), job("b", 75, least=3, most=3)]
    table = sized({(3,): 0.75, (2,): 0.5, (1, 1): 0.5, (4,): 1.0})
    broad = job("c", 50, least=2, most=2)
    assert ended(rules.MAST, [*busy, broad], table).first_start_s.tolist() == [0, 0, 100]
    assert ended(rules.SAILOR, [*busy, broad], table).first_start_s.tolist() == [0, 0, 0]


def test_mast_stops_a_job_for_one_of_more_priority_alone():
    """Both regions are full when b and c come; c, of more priority, goes first, b waits."""
    jobs = [job(name, 100, least=4) for name in ("a", "a2")]
    jobs += [job("b", 10, arrival_s=1.0, least=4), job("c", 10, arrival_s=2.0, least=4, priority=1)]
    ledger = ended(rules.MAST, jobs, LINEAR)
    assert (ledger.first_start_s[3], ledger.preemptions.sum()) == (2, 1)
    assert ledger.first_start_s[2] > 2


def test_who_fits_in_no_region_spans_them():
    """Six GPUs lie in no region: it would wait for ever, in worlds whose nodes fail and are repaired without end."""
    assert ended(rules.MAST, [job("a", 10, least=6, most=6)], sized({(3, 3): 1.0})).finish_s.tolist() == [10]


@pytest.mark.parametrize(
    "scheduler", [replace(rules.SEPARATE, most_parts=2), Clear(replace(rules.SAILOR, most_parts=2))]
)
def test_who_fits_in_no_two_regions_spans_three(scheduler: Scheduler):
    """Regions of four, one and one: two parts of two lie nowhere, though one of them would."""
    regions = site([DevicePool(f"d{at}", "gpu", 1, gpus) for at, gpus in enumerate((4, 1, 1))], 1e9)
    table, jobs = sized({(2, 2): 1.0, (2, 1, 1): 0.5}), JobWorkload.of([job("a", 10, least=4, most=4)])
    assert play_jointly(jobs, regions, scheduler, offers=table).finish_s.tolist() == [20]


def test_sailor_saves_gpus_that_crosspipe_uses():
    """All eight GPUs are a hundredth quicker than four."""
    table = sized({(4,): 1.0, (4, 4): 1.01})
    assert ended(rules.SAILOR, [job("a", 101, most=8)], table).finish_s.tolist() == [101]
    assert ended(rules.CROSSPIPE, [job("a", 101, most=8)], table).finish_s.tolist() == pytest.approx([100])


def test_sailor_plans_anew_when_room_comes():
    """At 25 s b has 200 s of its work left; four GPUs do it in 50 s and its 30 s of restart, one in 200 s."""
    jobs = [job("a", 1000, least=4), job("b", 75 / 4, least=3, most=3), job("c", 225 / 4)]
    table = sized({(1,): 0.25, (3,): 0.75, (4,): 1.0})
    assert ended(rules.SAILOR, jobs, table).finish_s.tolist() == pytest.approx([1000, 25, 25 + 30 + 50])


def test_crux_gives_links_to_who_works_most_per_byte():
    """Both span; a does ten times the work per byte, so its part of the links is the larger one."""
    table = sized({(2, 2): 1.0, (1, 1): 0.5})
    table = replace(table, hop_bytes=np.array([1e9, 1e10]))
    jobs = [job("a", 80, least=4), job("b", 10, least=2, most=2)]
    fair = ended(rules.SRPT, jobs, table).finish_s
    weighed = ended(rules.CRUX, jobs, table).finish_s
    assert weighed[0] < fair[0]


def test_hyperion_sends_a_job_where_least_is_left():
    """a leaves 400 GPU seconds in its domain, b 40: c waits 10 s for b's, though a GPU of a's is free."""
    jobs = [job("a", 75, least=3, most=3), job("b", 10, least=4), job("c", 100)]
    table = sized({(1,): 0.25, (3,): 0.75, (4,): 1.0})
    assert ended(rules.HYPERION, jobs, table).first_start_s.tolist() == [0, 0, 10]
    assert ended(rules.MAST, jobs, table).first_start_s.tolist() == [0, 0, 0]


def test_sla_morl_stops_a_job_for_one_whose_deadline_comes():
    """Alike but for the deadline, c goes first once it is near, though it came last."""
    jobs = [job("a", 4000, least=4), job("b", 4000, least=4), job("c", 4000, arrival_s=1.0, least=4, deadline_s=4100.0)]
    assert ended(rules.SLA_MORL, jobs, LINEAR).finish_s[2] == 4001
    assert ended(replace(rules.SLA_MORL, urgency=0.0), jobs, LINEAR).finish_s[2] == 8000


def test_the_shortest_goes_first():
    jobs = [job("a", 100, least=4), job("b", 100, least=4), job("c", 10, arrival_s=50.0, least=4)]
    assert ended(rules.SHORTEST, jobs, LINEAR).finish_s[2] == 60


def test_srpt_gives_the_first_its_size_by_force():
    """a leaves one GPU free in each domain; b, worth more, has all four of one, and a goes on beside it afterwards."""
    jobs = [job("a", 3000, least=3, most=3), job("a2", 3000, least=3, most=3), job("b", 100, arrival_s=10.0)]
    table = sized({(1,): 0.25, (3,): 0.75, (4,): 1.0})
    assert ended(rules.SRPT, jobs, table).finish_s[2] == 110
    assert ended(replace(rules.SRPT, grows=False), jobs, table).finish_s[2] == 410


def test_srpt_shares_gpus_in_a_crowd_where_more_gpus_help_less_and_less():
    """Eight jobs on eight GPUs that do half of the work of four each: all begin at once."""
    crowd = [job(str(number), 100) for number in range(8)]
    alone = ended(rules.SRPT, crowd[:1], CONCAVE)
    assert alone.finish_s.tolist() == [100]
    calm = ended(replace(rules.SRPT, margin=1.0), crowd, CONCAVE)
    greedy = ended(replace(rules.SRPT, crowd=0.0, margin=1.0), crowd, CONCAVE)
    assert calm.finish_s.mean() < 0.9 * greedy.finish_s.mean()


def kept(rule: Scheduler, jobs: list[Job], table: OfferTable) -> list[float]:
    """When each begins where running jobs are kept."""
    rules_ = ReplayRules(stops=False)
    return play_jointly(JobWorkload.of(jobs), TWO, rule, rules_, offers=table).first_start_s.tolist()


def test_a_patient_job_waits_for_gpus_that_are_told_to_become_free():
    """One GPU is free when c comes, on which it takes 400 s; in 9 s four are free, on which it takes 100."""
    jobs = [job("x", 750, least=3, most=3), job("a", 10, least=4), job("c", 100, arrival_s=1.0)]
    table = sized({(1,): 0.25, (3,): 0.75, (4,): 1.0})
    assert kept(rules.SRPT, jobs, table)[2] == 1
    assert kept(replace(rules.SRPT, patience=0.7), jobs, table)[2] == 10
    assert kept(replace(rules.SRPT, patience=0.8), jobs, table)[2] == 1


def test_a_domain_is_kept_for_who_waits_and_others_end_before():
    """Four GPUs of a domain are told to be free at 10 s: b waits for them, s would hold one for 100 s, t for 4."""
    table = sized({(1,): 1.0, (3,): 1.0, (4,): 1.0})
    jobs = [job("x", 1000, least=4), job("a", 10, least=3, most=3), job("b", 20, arrival_s=1.0, least=4)]
    jobs += [job(name, work_s, arrival_s=at, most=1) for name, work_s, at in (("s", 100, 2.0), ("t", 4, 3.0))]
    fifo = Ranked("fifo", "")
    assert kept(fifo, jobs, table)[2:] == [102, 2, 10]
    assert kept(replace(fifo, reserves=1), jobs, table)[2:] == [10, 30, 3]


def test_placements_that_keep_a_domain_whole_leave_room_for_a_large_job():
    """Two GPUs of the second domain are taken. The next small job goes there, or breaks the first one up."""
    table = sized({(2,): 1.0, (4,): 1.0})
    jobs = [job("a", 1000, least=2, most=2, data_gb=2000, data_at="d1"), job("s", 100, arrival_s=1.0, least=2, most=2)]
    jobs.append(job("large", 10, arrival_s=2.0, least=4))
    begins = {place: kept(replace(rules.SRPT, place=place), jobs, table)[2] for place in (FIRST, FULLEST, GRADIENT)}
    assert begins == {FIRST: 101, FULLEST: 2, GRADIENT: 2}


def test_goodput_begins_who_comes_within_a_round_when_nobody_runs():
    jobs = [job("a", 10), job("b", 10, arrival_s=50.0)]
    assert ended(rules.GOODPUT, jobs, LINEAR).first_start_s.tolist() == [0, 50]


def test_goodput_shares_out_by_its_power():
    """Three GPUs and one do 3.4 times what one does, two and two 3.2 times; Sia takes these, who sums goodput those."""
    jobs = [job("a", 100, least=1, most=3), job("b", 100, least=1, most=3)]
    table = sized({(1,): 0.5, (2,): 0.8, (3,): 1.2})
    alone = site([DevicePool("d0", "gpu", 1, 4)])
    held = {}
    for power in (-0.5, 1.0):
        ledger = play_jointly(JobWorkload.of(jobs), alone, replace(rules.GOODPUT, power=power), offers=table)
        held[power] = sorted(ledger.finish_s.tolist())
    assert held[1.0][0] == pytest.approx(100 / 1.2)  # one has three, the other one
    assert held[-0.5] == pytest.approx([125, 125])


def test_only_who_makes_room_is_stopped():
    """c needs four GPUs: a gives them; g ranks last, but h, which ranks before c, holds the others of its domain."""
    jobs = [job("a", 1000, least=4), Job("g", 0.0, 5000, devices=2), Job("h", 0.0, 9000, devices=2, priority=1)]
    ledger = ended(rules.SHORTEST, [*jobs, job("c", 50, arrival_s=0.5, least=4)], LINEAR)
    assert ledger.preemptions.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(("price", "ends_s"), [(68.0, 51.0), (70.0, 120.0)])
def test_a_price_of_egress_above_what_it_saves_keeps_a_job_at_home(price: float, ends_s: float):
    """Its 50 GB lie where another job runs for 99 s still; the other domain is free, $1 and 50 s away: 69 s saved."""
    rule = replace(rules.SRPT, preempts=False, crowd=0.0, patience=0.0, egress=price)
    jobs = [job("a", 100, least=4, data_gb=200, data_at="d0"), job("b", 20, 1.0, least=4, data_gb=50, data_at="d0")]
    assert ended(rule, jobs, LINEAR).finish_s.tolist() == [100, ends_s]


@pytest.mark.parametrize(("price", "stops"), [(69.0, 1), (71.0, 0)])
def test_a_stop_that_does_not_pay_for_itself_is_not_made(price: float, stops: int):
    """20 s of work need not wait for 90 s, which wait for 20 s: 70 s saved."""
    jobs = [job("a", 100, least=4), job("b", 100, least=4), job("c", 20, 10.0, least=4)]
    assert ended(replace(rules.SRPT, stop=price), jobs, LINEAR).preemptions.sum() == stops


@pytest.mark.parametrize(("price", "first"), [(0.2, "x"), (0.5, "y")])
def test_who_lacks_gpus_goes_first_where_that_is_paid_for(price: float, first: str):
    """x has his half of the site, y nothing: 4 of 8 GPUs. What y waits for costs 1 + price / 2, and is 14 s to 12."""
    jobs = [job("x1", 100, least=4, user="x"), job("x2", 12, 1.0, least=4, user="x")]
    jobs.append(job("y1", 14, 1.0, least=4, user="y"))
    found = ended(replace(rules.SRPT, preempts=False, unfairness=price), jobs, LINEAR)
    assert found.first_start_s.tolist() == ([0, 1, 13] if first == "x" else [0, 15, 1])


@pytest.mark.parametrize(("price", "ends_s"), [(0.4, 20.0), (0.6, 40.0)])
def test_a_price_below_the_floor_keeps_a_job_off_slow_links(price: float, ends_s: float):
    """On two GPUs of each domain it ends 20 s earlier and sends 40 GB over a link of 1 GB/s."""
    table = sized({(2,): 0.5, (2, 2): 1.0})
    found = [
        ended(replace(rules.SRPT, below=price, floor=floor), [job("a", 20)], table).finish_s for floor in (2e9, 0.5e9)
    ]
    assert found[0] == pytest.approx([ends_s])
    assert found[1] == pytest.approx([20.0])  # the link carries more than that


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), domains=st.integers(2, 4), jobs=st.integers(3, 12))
def test_who_stops_makes_room_for_somebody_who_waited(seed: int, domains: int, jobs: int):
    made = drawn(seed, domains, jobs)
    world = opened(made.workload, made.site, made.rules, offers=made.offers, tenants=made.tenants).world
    moment = Moment.of(world, made.workload, made.site, made.offers)
    rule = replace(rules.SHORTEST, margin=1.0)  # nobody goes over to another place
    while step(world):
        waited, stops = moment.waiting, world.mark[:, c.STOPS].copy()
        rule.decide(moment)
        assert (world.mark[:, c.STOPS] == stops).all() or np.isin(waited, moment.running).any()


def test_every_field_of_a_rule_but_what_it_is_called_goes_to_the_kernel():
    said = {"name", "summary", "source", "knows", "learns"}
    assert {each.name for each in fields(Ranked)} - said == set(rules.SRPT.terms._fields)
    assert rules.SRPT.most_parts == c.MOST_PARTS


def test_diloco_trains_replicas_over_domains_where_the_link_carries_nothing_else():
    """The cut over both domains sends 10 GB a second of work over 1 GB/s, its replicas a 500th of that."""
    cut = offers(10.0)
    both = replace(
        OfferTable.joined((cut, cut)),
        kinds=cut.kinds,
        kind=np.zeros(4, np.int64),
        **dict.fromkeys(("tokens_per_s", "state_bytes"), np.ones(1)),
    )
    local = np.array([False, False, False, True])
    gpus, rate = both.gpus.copy(), both.rate.copy()
    gpus[3, :2], rate[3] = 4, 1.9
    table = replace(both, gpus=gpus, rate=rate, local=local, hop_bytes=np.array([0.0, 1e10, 0.0, 2e7]))
    table = replace(table, state_share=np.where(local[:, None], gpus > 0, gpus / gpus.sum(axis=1, keepdims=True)))
    table.check()
    large = replace(train("a", 190.0), devices=8, most=8)
    where = {}
    for rule in (rules.DILOCO, rules.CROSSPIPE):
        for allowed in (table, cut):
            ledger = play_jointly(JobWorkload.of([large]), TWO, rule, offers=allowed)
            where[rule.name, allowed is table] = float(ledger.finish_s[0])
    assert where == pytest.approx(
        {("diloco", True): 100.0, ("diloco", False): 190.0, ("crosspipe", True): 100.0, ("crosspipe", False): 190.0}
    )


def test_diloco_cuts_nobody_whom_a_domain_holds():
    """The cut is quicker, and crosspipe takes it; on a site of domains of two GPUs there is no choice."""
    cut = replace(offers(0.1), rate=np.stack([np.full((2, 2), 0.5), np.full((2, 2), [0.1, 1.0])]))
    job = train("a", 100.0)
    small = site([DevicePool("d0", "gpu", 1, 2), DevicePool("d1", "gpu", 1, 2)], 1e9)
    found = [
        float(play_jointly(JobWorkload.of([job]), there, rule, offers=cut).finish_s[0])
        for rule, there in ((rules.DILOCO, TWO), (rules.CROSSPIPE, TWO), (rules.DILOCO, small))
    ]
    assert found == pytest.approx([200.0, 100.0, 100.0])
