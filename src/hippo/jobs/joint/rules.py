"""Schedulers by rule: what is published, and a queue and a planner glued together.

All see the same offers, links and prices, and may act at every moment. Where a paper leaves something open, what it is
here stands in its docstring.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hippo.errors import MissingExtraError
from hippo.jobs.engine import world as c
from hippo.jobs.joint.moment import JobPlace, Moment
from hippo.jobs.joint.ranked import (
    ARRIVED,
    ATTAINED,
    CHEAPEST,
    LEFT,
    PRICED,
    RankTerms,
    begin_best,
    decide_ranked,
    rank_room,
)

MOST_WORK = 0.2  # of the solver in a round, in its own seconds, which do not hang on the machine
NOTHING = 1.1  # what a job without devices costs in Sia's programme, where one on its least devices costs 1


# ---------------------------------------------------------------------------------------------------- one after another
@dataclass(frozen=True)
class Ranked:
    """Jobs in order of priority and rank; each begins where it costs least on what is free (``ranked``)."""

    name: str
    summary: str
    source: str = ""
    knows: str = "nothing"
    rank: int = ARRIVED
    by_priority: bool = True
    """Whether jobs of more priority go first, whatever their rank."""
    preempts: bool = False
    """For a job that does not fit, those that rank behind it stop, last first, if it then fits."""
    grows: bool = False
    """They stop for its best size, too, where that costs it less by ``margin`` than what is free."""
    ahead: float = 0.0
    """They must rank behind by more than this share of its rank (0 or more)."""
    margin: float = 1.0
    """A running job goes over to a place that costs it less by this share, its stop included; 1: never."""
    most_parts: int = c.MOST_PARTS
    """Domains that one job may span (1 to 4), but one for which the site has none that are large enough."""
    slack: float = 0.02
    """A place that costs more by so much is taken if it has fewer GPUs."""
    crowd: float = 0.0
    """What its GPUs cost those who wait counts so many times."""
    busy: float = 0.0
    """What they cost those who run counts so many times, who stand for those who are to come."""
    thrift: float = 0.0
    """What all of a job's GPUs cost, in its own prices, while its deadline is far."""
    urgency: float = 0.0
    """By how much a job's price rises as its deadline comes."""
    regions: bool = False
    """Each job waits for the domain where it would end first by what is left there."""
    levels: int = 1
    """Levels of weights of links, by GPU time per byte; 1: all alike."""
    times: float = 8.0
    """A level's weight over that of the one below."""
    place: int = CHEAPEST
    """Which place it is of those that have the size which a job takes and cost about as little."""
    patience: float = 1.0
    """Where nobody is stopped for it, a job that could begin waits for GPUs of one domain that are told to become free
    and cost it less by this share, the wait included; 1: never."""
    reserves: int = 0
    """Domains that are kept, where nobody is stopped for others, for the first who wait: from when they are told to
    have room there, for whoever ranks behind only what is left over."""
    egress: float = 0.0
    """What a dollar of egress costs, in seconds of a job of usual price."""
    unfairness: float = 0.0
    """What it costs in the same for each second in which owners lack as much as the whole site of an equal share."""
    stop: float = 0.0
    """What stopping a job costs others, in the same."""
    below: float = 0.0
    """What a GB of exchange costs, in the same, over a link that carries less than ``floor``."""
    floor: float = 0.0
    """Bytes a second."""
    learns: bool = False

    @property
    def terms(self) -> RankTerms:
        """For the kernel."""
        return RankTerms(**{name: getattr(self, name) for name in RankTerms._fields})

    def decide(self, moment: Moment) -> None:
        """Begin who can, by force if need be; look at those who run; weigh their flows."""
        decide_ranked(moment.world, moment.sight, self.terms, rank_room(moment.sight))


def begin(moment: Moment, job: int, most_parts: int = c.MOST_PARTS) -> bool:
    """Begin a job where it is quickest now, on the fewest GPUs that are within 2 % of it; False: nowhere."""
    terms, room = Ranked("", "", most_parts=most_parts).terms, rank_room(moment.sight)
    return bool(begin_best(moment.world, moment.sight, terms, room, job, -1))


# -------------------------------------------------------------------------------------------------------- all at once
@dataclass(frozen=True)
class GoodputProgram:
    """Sia and Pollux: in rounds, an integer programme chooses a size and a domain for every job.

    It minimises the sum over jobs of 1 + priority times goodput ** ``power``, goodput relative to what a job has on its
    least GPUs, and ``NOTHING`` for who gets none (Sia, SOSP 2023, section 3.4, with the settings of its artifact); with
    a positive power it maximises that sum, as Pollux does with 1. What changes counts for less, the more so the less a
    job has run between its stops (Pollux, section 4.2.1). Jobs lie in one domain each: Sia's configurations. Every
    ``round_s`` seconds; who comes in between waits, unless nobody runs.
    """

    name: str = "goodput"
    summary: str = "an integer programme over sizes and domains, in rounds (Sia, Pollux)"
    source: str = "Jayaram Subramanya et al., Sia, SOSP 2023; Qiao et al., Pollux, OSDI 2021"
    knows: str = "nothing"
    preempts: bool = True
    learns: bool = False
    round_s: float = 600.0
    power: float = -0.5
    """Sia's fairness: the further below 0 the more it counts that all get something; not 0."""

    def decide(self, moment: Moment) -> None:
        """Gangs as they come; at the end of a round everyone."""
        for job in moment.waiting.tolist():
            if moment.world.mark[job, c.ELASTIC] == 0:
                moment.start(job)
        if not moment.round_is_over(self.round_s) and len(moment.running):
            return
        who = np.concatenate([moment.running, moment.waiting]) if moment.sight.stops else moment.waiting
        jobs = [job for job in who if moment.world.mark[job, c.ELASTIC]]
        configurations = [
            (int(job), offer, domain) for job in jobs for offer, domain in self._configurations(moment, int(job))
        ]
        if not configurations:
            return
        chosen = self._solve(moment, configurations)
        self._carry_out(moment, chosen, [int(job) for job in jobs])

    def _configurations(self, moment: Moment, job: int) -> list[tuple[int, int]]:
        """Offers of one part that the job may take, for each size the quickest, in each domain that is large enough."""
        offers, kind = moment.offers, int(moment.world.mark[job, c.ROW])
        gpus = offers.gpus[:, 0]
        fits = (offers.kind == kind) & (offers.parts == 1)
        fits &= (gpus >= moment.workload.least[job]) & (gpus <= moment.workload.most[job])
        best: dict[int, int] = {}
        for offer in np.flatnonzero(fits).tolist():
            size = int(gpus[offer])
            if size not in best or offers.rate[offer, 0, 0] > offers.rate[best[size], 0, 0]:
                best[size] = offer
        return [
            (offer, domain)
            for offer in best.values()
            for domain in range(len(moment.site.domains))
            if gpus[offer] <= moment.jobs_gpus(domain)
        ]

    def _solve(self, moment: Moment, configurations: list[tuple[int, int, int]]) -> dict[int, tuple[int, int]]:
        offers = moment.offers
        rate = np.array([offers.rate[offer, 0, 0] for _, offer, _ in configurations])
        jobs = [job for job, _, _ in configurations]
        least = {job: min(rate[at] for at, each in enumerate(jobs) if each == job) for job in set(jobs)}
        worth = np.zeros(len(configurations))
        for at, (job, offer, domain) in enumerate(configurations):
            gain = rate[at] / least[job]
            place = JobPlace(offer, (domain,), float(rate[at]), int(offers.gpus[offer, 0]))
            if moment.world.mark[job, c.STATUS] == c.RUNNING:
                here = moment.running_at(job)
                if (here.offer, here.domains) != (offer, (domain,)):
                    gain *= self._kept(moment, job, place)
            each = gain**self.power if self.power > 0.0 else NOTHING - max(gain, 1e-4) ** self.power
            worth[at] = each * (1.0 + float(moment.workload.priority[job]))
        try:
            from ortools.sat.python import cp_model
        except ImportError:
            raise MissingExtraError("OR-Tools", "solve", source=f"--policy {self.name}") from None
        model = cp_model.CpModel()
        taken = [model.new_bool_var("") for _ in configurations]
        for each in dict.fromkeys(jobs):
            model.add_at_most_one(var for var, job in zip(taken, jobs, strict=True) if job == each)
        for domain in range(len(moment.site.domains)):
            used = [
                int(offers.gpus[offer, 0]) * var
                for var, (_, offer, there) in zip(taken, configurations, strict=True)
                if there == domain
            ]
            model.add(sum(used) <= moment.jobs_gpus(domain))
        model.maximize(sum(int(1000.0 * value) * var for var, value in zip(taken, worth.tolist(), strict=True)))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers, solver.parameters.relative_gap_limit = 1, 0.01
        solver.parameters.max_deterministic_time = MOST_WORK
        if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return {}
        return {
            job: (offer, domain)
            for var, (job, offer, domain) in zip(taken, configurations, strict=True)
            if solver.boolean_value(var)
        }

    def _kept(self, moment: Moment, job: int, place: JobPlace) -> float:
        """Share of a job's time that would not be lost to stops, if it stopped once more."""
        stop_s, age_s = moment.stop_s(job, place), moment.now_s - float(moment.workload.arrival_s[job])
        lost_s = stop_s * int(moment.world.mark[job, c.STOPS])
        return max(0.0, age_s - lost_s) / (age_s + stop_s) if age_s > stop_s else 1.0

    def _carry_out(self, moment: Moment, chosen: dict[int, tuple[int, int]], jobs: list[int]) -> None:
        """Stop who changes, then begin; who finds no whole blocks where it was put begins where it is quickest."""
        for job in jobs:
            if moment.world.mark[job, c.STATUS] == c.RUNNING:
                here = moment.running_at(job)
                if chosen.get(job) != (here.offer, here.domains[0]):
                    moment.pause(job)
        for job, (offer, domain) in chosen.items():
            if moment.world.mark[job, c.STATUS] == c.WAITING:
                place = JobPlace(
                    offer, (domain,), float(moment.offers.rate[offer, 0, 0]), int(moment.offers.gpus[offer, 0])
                )
                if not moment.begin(job, place):
                    begin(moment, job, 1)


@dataclass(frozen=True)
class AveragedReplicas:
    """DiLoCo: a job trains in one domain, or a replica in each of several, alike, which average every H steps.

    Such offers are there where the user allows local SGD. The paper trains one job on what there is, and cuts no
    replica over domains (section 3), so only who fits in no domain is cut here; who comes first is first, by priority,
    begins where it would end first, and goes over to where that ends it sooner by ``margin``, its stop included.
    """

    name: str = "diloco"
    summary: str = "a replica of each job in one domain or several, which average every 500 steps (DiLoCo)"
    source: str = "Douillard et al., DiLoCo, arXiv 2311.08105"
    knows: str = "nothing"
    preempts: bool = False
    learns: bool = False
    margin: float = 0.1

    def decide(self, moment: Moment) -> None:
        """Begin who waits; look at those who run."""
        order = [(-int(moment.workload.priority[job]), job) for job in moment.waiting.tolist()]
        for _, job in sorted(order):
            if not moment.workload.elastic[job]:
                moment.start(job)
            elif (places := self._places(moment, job)) and places[0].rate > 0.0:
                moment.begin(job, places[0])
        for job in moment.running.tolist() if moment.sight.stops else ():
            world = moment.world
            if not moment.workload.elastic[job] or not world.job[job, c.READY] <= moment.now_s < world.job[job, c.ENDS]:
                continue
            left, stays = moment.remaining_s(job), moment.running_at(job).rate
            for place in self._places(moment, job)[:1]:
                goes_s = moment.stop_s(job, place) + left / max(place.rate, 1e-12)
                if goes_s < (1.0 - self.margin) * left / max(stays, 1e-12):
                    moment.resize(job, place)

    def _places(self, moment: Moment, job: int) -> list[JobPlace]:
        """In one domain, or over several as the paper does, the quickest first."""
        offers, jobs, found = moment.offers, moment.workload, moment.places(job)
        whole, size = (offers.parts == 1) | offers.local, offers.gpus.sum(axis=1)
        largest = max(pool.devices for pool in moment.site.pools)
        usable = whole & (offers.kind == moment.world.mark[job, c.ROW]) & (offers.gpus[:, 0] <= largest)
        if not (usable & (size >= jobs.least[job]) & (size <= jobs.most[job])).any():
            return found
        return [each for each in found if whole[each.offer]]


SEPARATE = Ranked(
    "separate",
    "a queue that knows nothing (Tiresias), each job planned on what is free",
    rank=ATTAINED,
    preempts=True,
)
MAST = Ranked(
    "mast",
    "whole jobs to regions by priority, then first come first served, data moved there (MAST)",
    source="Choudhury et al., MAST, OSDI 2024",
    preempts=True,
    ahead=np.inf,
    most_parts=1,
)
"""Every region is tried for every job, with the time that its data take to come; jobs stay where they are, but for one
of more priority."""
SAILOR = Ranked(
    "sailor",
    "each job re-planned on what is free at every change (Sailor)",
    source="Strati et al., Sailor, SOSP 2025",
    margin=0.1,
)
"""Sailor plans one job on what there is, anew when that changes; who comes first is first here."""
CROSSPIPE = Ranked(
    "crosspipe",
    "each job cut over domains as their links allow, re-planned at every change (CrossPipe)",
    source="Chen et al., CrossPipe, ATC 2025, arXiv 2507.00217",
    margin=0.1,
    slack=0.0,
)
"""CrossPipe schedules one pipeline around the latency and bandwidth of links: the offers' step times know them. As the
quickest place of a footprint is seen, some of its jobs are replicas over domains, which the paper leaves to others."""
HYPERION = Ranked(
    "hyperion",
    "a region for each job by what is left there, then the quickest shape inside (Hyperion's form)",
    source="Ma et al., Hyperion, arXiv 2511.14450",
    knows="durations",
    regions=True,
)
"""Hyperion serves inference over tiers of devices: it partitions a model ahead of time (here the offers do) and then
sends each task where queue over capacity is least. So the upper rule knows of each domain its devices and the GPU time
that is left there, the lower one what is free. Only its form can be had for training: regions are chosen anew at every
moment, a job that runs stays; gangs go where the engine puts them."""
SLA_MORL = Ranked(
    "sla_morl",
    "time, cost and deadlines, weighed job by job by how near its deadline is (SLA-MORL's form)",
    source="Mostafa et al., SLA-MORL, arXiv 2508.03509",
    knows="durations",
    rank=PRICED,
    by_priority=False,
    preempts=True,
    grows=True,
    margin=0.1,
    thrift=1.0,
    urgency=4.0,
)
"""SLA-MORL's reward is a weighted sum whose weights go from cost to time as a job's state goes from kept to broken;
what it learns is left out. Weights go with the slack of each job; without a deadline a job is never pressed."""
SHORTEST = Ranked(
    "shortest",
    "least GPU time left first, who ranks behind stops",
    source="Schrage and Miller, 1966",
    knows="durations",
    rank=LEFT,
    preempts=True,
    margin=0.1,
)
SRPT = Ranked(
    "srpt",
    "most price per GPU time left first, at its best size",
    source="Schrage and Miller, 1966; Berg et al., heSRPT, 2020",
    knows="durations",
    rank=PRICED,
    by_priority=False,
    preempts=True,
    grows=True,
    ahead=1.0,
    margin=0.1,
    crowd=1.0,
)
"""Smith's rule over GPU time left, as in SRPT: who ranks first gets the size that costs it least, whoever has the GPUs.
Sizes go by what GPUs cost those who wait; heSRPT's optimum is for one law of speedup and any share of the servers."""
CRUX = replace(
    SRPT,
    name="crux",
    summary="as srpt; links go to the jobs with most GPU work per byte (Crux)",
    source="Cao et al., Crux, SIGCOMM 2024",
    levels=4,
)
"""Crux ranks flows by GPU intensity, work of GPUs over time on the contested link, and compresses ranks to the few
priorities that switches have, so as to hurt least; it stands on top of any scheduler, here of ``srpt``. Levels hold as
many jobs each and are weights, as links know no strict priority; paths are given."""
GOODPUT = GoodputProgram()
DILOCO = AveragedReplicas()
