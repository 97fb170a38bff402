"""Schedulers by rule: what is published, and a queue and a planner glued together.

All see the same offers, links and prices, and may act at every moment. Where a paper leaves something open, what it is
here stands in its docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hippo.errors import MissingExtraError
from hippo.jobs.engine import world as c
from hippo.jobs.joint.moment import JobPlace, Moment

MOST_WORK = 0.2  # of the solver in a round, in its own seconds, which do not hang on the machine

Rank = Callable[[Moment, int], float]


# --------------------------------------------------------------------------------------------------------------- ranks
def by_arrival(moment: Moment, job: int) -> float:
    """First come, first served."""
    return float(moment.workload.arrival_s[job])


def by_attained(moment: Moment, job: int) -> float:
    """Least GPU time had, in powers of four: Tiresias' queues, with more of them."""
    gpu_s = moment.attained_s(job) * float(moment.workload.devices[job])
    return float(np.floor(np.log(max(gpu_s, 1000.0)) / np.log(4.0)))


def by_remaining(moment: Moment, job: int) -> float:
    """Least GPU time left at the job's quickest: who tells its tokens tells that."""
    return moment.remaining_s(job) * float(moment.workload.devices[job])


# ---------------------------------------------------------------------------------------------------- one after another
@dataclass(frozen=True)
class Ranked:
    """Jobs in order of priority and rank; each begins where it is quickest on what is free.

    ``preempts``: for a job that does not fit, those that rank behind it stop, last first, if it then fits.
    ``replans``: a running job goes over to a place that ends it sooner by a tenth, its stop included.
    """

    name: str
    summary: str
    rank: Rank
    source: str = ""
    knows: str = "nothing"
    preempts: bool = False
    replans: bool = False
    most_parts: int = c.MOST_PARTS
    learns: bool = False

    def decide(self, moment: Moment) -> None:
        """Begin who can, by force if need be; then look at those who run."""
        for job in self._ordered(moment, moment.waiting.tolist()):
            if not begin(moment, job, self.most_parts) and self.preempts:
                self._by_force(moment, job)
        if self.replans:
            for job in self._ordered(moment, moment.running.tolist()):
                self._replan(moment, job)

    def _ordered(self, moment: Moment, jobs: list[int]) -> list[int]:
        return sorted(jobs, key=lambda job: self._key(moment, job))

    def _key(self, moment: Moment, job: int) -> tuple[float, float, int]:
        return -float(moment.workload.priority[job]), self.rank(moment, job), job

    def _by_force(self, moment: Moment, job: int) -> None:
        """Stop jobs that rank behind, last first, until this one fits; nobody if it would not fit even then."""
        mine = self._key(moment, job)[:2]
        behind = [each for each in self._ordered(moment, moment.running.tolist()) if self._key(moment, each)[:2] > mine]
        held = sum(int(moment.world.mark[each, c.HOLDS]) for each in behind)
        least = int(moment.world.mark[job, c.LEAST]) or int(moment.workload.devices[job])
        if held + moment.free_gpus < least:
            return
        for each in reversed(behind):
            moment.pause(each)
            if begin(moment, job, self.most_parts):
                break
        for each in behind:  # who was stopped for nothing goes on
            if moment.world.mark[each, c.STATUS] == c.WAITING:
                begin(moment, each, self.most_parts)

    def _replan(self, moment: Moment, job: int) -> None:
        if moment.world.mark[job, c.ELASTIC] == 0:
            return
        here, left = moment.running_at(job), moment.remaining_s(job)
        best: tuple[float, JobPlace] | None = None
        for place in moment.places(job, self.most_parts):
            ends = moment.stop_s(job, place) + left / place.rate
            if best is None or ends < best[0]:
                best = ends, place
        if best is not None and best[0] < 0.9 * left / max(here.rate, 1e-12):
            moment.resize(job, best[1])


def begin(moment: Moment, job: int, most_parts: int = c.MOST_PARTS) -> bool:
    """Begin a job where it is quickest now, on the fewest GPUs that are within 2 % of it; False: nowhere."""
    if moment.world.mark[job, c.ELASTIC] == 0:
        return moment.start(job)
    places = moment.places(job, most_parts)
    close = [each for each in places if each.rate >= 0.98 * places[0].rate]
    return bool(close) and moment.begin(job, min(close, key=lambda each: (each.gpus, -round(each.rate, 9), each.free)))


# -------------------------------------------------------------------------------------------------------- all at once
@dataclass(frozen=True)
class GoodputProgram:
    """Sia and Pollux: in rounds, an integer programme chooses a size and a domain for every job.

    It maximises the sum of priorities times goodput, relative to what a job has on its least GPUs (Sia, SOSP 2023,
    section 3.4), with the share of a round that a change costs taken off. Jobs lie in one domain each: Sia's
    configurations. Every ``round_s`` seconds; who comes in between waits.
    """

    name: str = "goodput"
    summary: str = "an integer programme over sizes and domains, in rounds (Sia, Pollux)"
    source: str = "Jayaram Subramanya et al., Sia, SOSP 2023; Qiao et al., Pollux, OSDI 2021"
    knows: str = "nothing"
    preempts: bool = True
    learns: bool = False
    round_s: float = 600.0

    def decide(self, moment: Moment) -> None:
        """Gangs as they come; at the end of a round everyone."""
        for job in moment.waiting.tolist():
            if moment.world.mark[job, c.ELASTIC] == 0:
                moment.start(job)
        if not moment.round_is_over(self.round_s):
            return
        jobs = [job for job in np.concatenate([moment.running, moment.waiting]) if moment.world.mark[job, c.ELASTIC]]
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
            stays = moment.world.mark[job, c.STATUS] == c.RUNNING and moment.running_at(job).offer == offer
            stays = stays and moment.running_at(job).domains == (domain,)
            if not stays:
                gain *= max(0.0, 1.0 - moment.stop_s(job, place) / self.round_s)
            worth[at] = gain * (1.0 + float(moment.workload.priority[job]))
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


SEPARATE = Ranked(
    "separate", "a queue that knows nothing (Tiresias), each job planned on what is free", by_attained, preempts=True
)
MAST = Ranked(
    "mast", "whole jobs to regions, first come first served, data moved there (MAST)", by_arrival, most_parts=1
)
SAILOR = Ranked("sailor", "each job re-planned on what is free at every change (Sailor)", by_arrival, replans=True)
SHORTEST = Ranked(
    "shortest",
    "least GPU time left first, who ranks behind stops",
    by_remaining,
    knows="durations",
    preempts=True,
    replans=True,
)
GOODPUT = GoodputProgram()
