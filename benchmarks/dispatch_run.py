"""Dispatch in the running pipeline: fixed order, hint and policy in real processes, simulated on the same draws.

8 processes that sleep in place of layers, 32 micro-batches, F B W = 1 1.05 0.75 with F = 20 ms, two domains 5 F apart
(links are played on the loopback), memory for 8 and 16 micro-batches. The baselines are the best fixed order and the
best hint with its patience, chosen by the simulator on the very draws that are run, which favours them. Steps are
paired: the draws of a seed and a step are those of everybody, who run in turns, seed after seed. The first step of each
run is left out. `--learn N`: one more way, the policy after N updates of `hippo train --plan` on this very pipeline,
which is told the standard deviation of the noise. `--known N`: no processes; what a tabu search of N steps, from the
fixed orders and the three quickest runs, finds for each draw that it knows whole. `--seeds`, `--steps`, `--noise` and
`--live` make it shorter.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from hippo.dispatch.network import shipped
from hippo.dispatch.noise.fluctuation import Factors, Fluctuation, MakespanSpread, play
from hippo.dispatch.noise.fluctuation_grid import NEAR, TIMES
from hippo.dispatch.noise.hindsight import floors_of
from hippo.dispatch.noise.pipelines import Pipelines, problems_of
from hippo.dispatch.noise.presets import fluctuation_of
from hippo.dispatch.noise.timed_play import order_run, timed_hint, timed_learned
from hippo.dispatch.noise.trial import ORDERS, order_for
from hippo.dispatch.train.on_plan import train_on_plan
from hippo.dispatch.train.settings import Settings
from hippo.plan.plan import WITH_ORDER, Pipeline, Plan, ScheduleChoice, Stage
from hippo.problem.cluster import Cluster, Domain, Gpu, Link
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem
from hippo.problem.profile import Profile, ProfileRow
from hippo.problem.workload import Workload
from hippo.run.dispatching import noise_of, problem_of
from hippo.run.job import RunJob, RunOptions
from hippo.run.predict import dispatched_each
from hippo.run.run import run
from hippo.schedule.schedule import Schedule, letters_of, split

from ._clairvoyant import searched_run

Floats = NDArray[np.float64]

RANKS, WAVES, F_S, FAR = 8, 32, 0.02, 5.0  # FAR: between the domains, in F
LIVE = (8, 16)
NOISE = ("20 %", "30 %", "restless")
PATIENCES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
SEEDS, STEPS = 5, 6


def job_of(live: int, options: RunOptions) -> RunJob:
    """Two domains of 4 stages of a block each, whose memory holds so many micro-batches."""
    model, half = gpt_model("blocks", layers=RANKS, hidden=64, heads=4, vocab=64, seq=16), RANKS // 2

    def row(kind: str, share: float) -> ProfileRow:
        forward, backward, weight = (share * F_S * each for each in TIMES)
        return ProfileRow(kind, None, "stand-in", 1, 1, forward, backward, weight, 1e3, share * 1e9, 1e3)

    rows = (row("embedding", 0.0), row("block", 1.0), row("head", 0.0))
    domains = tuple(Domain(name, half, 1, 1e12, 1e12, NEAR * F_S) for name in "ab")
    links = tuple(Link(one, two, 1e12, FAR * F_S, 0.0) for one, two in ("ab", "ba"))
    cuts = [0, *range(2, RANKS + 1), RANKS + 2]
    stages = (
        Stage("ab"[rank // half], (cuts[rank], cuts[rank + 1]), 1, 1, (f"{'ab'[rank // half]}/{rank % half}/0",))
        for rank in range(RANKS)
    )
    plan = Plan((Pipeline(tuple(stages), WAVES),), 1, schedule=ScheduleChoice("zb-h1"))

    def job(memory: float) -> RunJob:
        gpu = Gpu("stand-in", {"bf16": 1e15}, memory, 1e12, 1e12, 0.0)
        profile = Profile("bf16", 16.0, rows)
        return RunJob(
            Problem(model, Cluster("two", gpu, domains, links), Workload(WAVES, 16, "bf16"), profile=profile),
            plan,
            options,
        )

    one, two = (min(problem_of(job(memory), 0).limit) for memory in (1e12, 2e12))  # it grows evenly with the memory
    return job(1e12 + (live + 0.5 - one) * 1e12 / (two - one))


def ordered(job: RunJob, schedule: Schedule) -> RunJob:
    """The job with another order."""
    (pipeline,) = job.plan.pipelines
    pipeline = replace(pipeline, order=letters_of(split(schedule)))
    return replace(job, plan=replace(job.plan, pipelines=(pipeline,), schedule=ScheduleChoice(WITH_ORDER)))


@dataclass(frozen=True, eq=False)
class Way:
    """One way to run the pipeline, and its steps in F, (seeds x steps,)."""

    name: str
    job: RunJob
    simulated: Floats
    measured: Floats = field(default_factory=lambda: np.empty(0))
    decision_us: float = 0.0

    def of(self, seed: int) -> RunJob:
        """With the draws of a seed."""
        return replace(self.job, options=replace(self.job.options, seed=seed))


@dataclass(frozen=True)
class Trial:
    """One cell: memory, noise, and how much is run."""

    live: int
    noise: str
    seeds: int
    steps: int

    @property
    def numbers(self) -> range:
        """Steps that count."""
        return range(2, self.steps + 1)

    def draws(self) -> Factors:
        """Of all seeds and steps."""
        found = []
        for seed in range(self.seeds):
            noise = noise_of(job_of(self.live, RunOptions(stand_in=True, noise=self.noise, seed=seed)), 0)
            assert noise is not None
            found += [noise.of(number) for number in self.numbers]
        return Factors(*(np.stack(each) for each in zip(*found, strict=True)))

    def ways(self, updates: int, folder: Path) -> list[Way]:
        """The best fixed order, the best hint, the policy, and the one that learned here first, if it is asked for."""
        options = RunOptions(steps=self.steps, stand_in=True, noise=self.noise, play_links=True)
        job = job_of(self.live, options)
        problem, draws = problem_of(job, 0), self.draws()
        tried: list[tuple[float, str, Schedule, float]] = []
        for name in ORDERS:
            schedule, fits = order_for(problem, name)
            if fits:
                tried.append((float(play(problem, split(schedule), draws).mean()), name, schedule, -1.0))
            for patience in PATIENCES:
                seconds = play(problem, schedule, draws, by_hint=True, patience=patience)
                tried.append((float(seconds.mean()), name, schedule, patience))
        _, name, schedule, _ = min((each for each in tried if each[3] < 0), key=lambda each: each[0])
        _, hinted, hint, patience = min((each for each in tried if each[3] >= 0), key=lambda each: each[0])
        asked = replace(options, dispatch="hint", patience=patience)
        policies = {"learned": "learned"}
        if updates:
            policies["learned here"] = self._learned_here(job, updates, folder / f"{self.live} {self.noise}")
        return [
            self._way(f"fixed {name}", ordered(job, schedule)),
            self._way(f"hint {hinted} {patience:g}", replace(ordered(job, hint), options=asked)),
            *(self._way(who, replace(job, options=replace(options, dispatch=file))) for who, file in policies.items()),
        ]

    def _learned_here(self, job: RunJob, updates: int, out: Path) -> str:
        """The file of a policy that has learned on the pipeline, on draws that no run has."""
        settings = Settings().on_plan()
        settings = replace(settings, run=replace(settings.run, seed=1_000 + self.live, updates=updates))
        told = Fluctuation(fluctuation_of(self.noise).deviation)
        pipelines = Pipelines(problems_of(job.problem, job.plan, source="bench"), told)
        found = train_on_plan(settings, pipelines, out=out)
        print(found["words"].splitlines()[1], flush=True)
        return str(found["policy"])

    def _way(self, name: str, job: RunJob) -> Way:
        way = Way(name, job, np.empty(0))
        steps = [dispatched_each(way.of(seed), self.numbers) for seed in range(self.seeds)]
        return replace(way, simulated=np.concatenate(steps) / F_S)

    def measured(self, ways: Sequence[Way]) -> list[Way]:
        """With what real processes took, everybody in turn with each seed."""
        seconds: list[list[float]] = [[] for _ in ways]
        asked: list[list[float]] = [[] for _ in ways]
        for seed in range(self.seeds):
            for number, way in enumerate(ways):
                steps = run(way.of(seed)).steps[1:]
                seconds[number] += [step.seconds / F_S for step in steps]
                asked[number] += [1e6 * cpu_s / count for step in steps for count, cpu_s in step.asked]
        return [
            replace(way, measured=np.array(took), decision_us=median(cost))
            for way, took, cost in zip(ways, seconds, asked, strict=True)
        ]

    def known(self, ways: Sequence[Way], steps: int) -> str:
        """What one who knows every draw is found to take, which is no less than the least, and saves of each way."""
        problem, draws = problem_of(ways[0].job, 0), self.draws()
        orders, level = [order_for(problem, name) for name in ORDERS], fluctuation_of(self.noise).deviation

        def least(index: int) -> float:
            runs = [timed_learned(problem, shipped(), draws, index, level=level)]
            runs += [timed_hint(problem, hint, draws, index, patience=each) for hint, _ in orders for each in PATIENCES]
            quick = sorted(runs, key=lambda each: each.makespan)[:3]
            starts = [order_run(each, "run") for each in quick] + [split(order) for order, fits in orders if fits]
            return min(searched_run(problem, draws, index, start, steps=steps) for start in starts)

        best = np.array([least(index) for index in range(len(draws.operations))])
        found = MakespanSpread(best / F_S)
        floor = floors_of(problem, draws).mean() / F_S
        lines = [f"memory for {self.live}, noise {self.noise}: {len(best)} draws, known found {found.mean:.1f}"]
        for way in ways:
            own = MakespanSpread(way.simulated)
            saves = own.minus(found)
            told = f"{100 * saves.mean / own.mean:+5.2f} +-{100 * saves.error / own.mean:4.2f} %"
            lines.append(f"  of {way.name:24s} {own.mean:7.1f}  {told}  at most {100 * (1 - floor / own.mean):5.2f} %")
        return "\n".join(lines)

    def told(self, ways: Sequence[Way]) -> str:
        """A row for each way."""
        floor = floors_of(problem_of(ways[0].job, 0), self.draws()) / F_S
        lines = [f"memory for {self.live}, noise {self.noise}: {len(floor)} steps, seeds 0 to {self.seeds - 1}"]
        policies = [way for way in ways if way.name.startswith("learned")]
        for way in ways:
            real, played = MakespanSpread(way.measured), MakespanSpread(way.simulated)
            line = f"  {way.name:24s} {real.mean:7.1f} +-{real.error:4.1f}  simulated {played.mean:7.1f}"
            line += f"  off {100 * (real.mean / played.mean - 1):+5.2f} %  decision {way.decision_us:5.1f} us"
            lines.append(line)
            for policy in policies[policies.index(way) + 1 :] if way in policies else policies:
                saves = []
                for name, mine, own in (("real", policy.measured, real), ("simulated", policy.simulated, played)):
                    less = own.minus(MakespanSpread(mine))
                    saves.append(f"{100 * less.mean / own.mean:+5.2f} +-{100 * less.error / own.mean:4.2f} % {name}")
                lines.append(f"    {policy.name} saves {', '.join(saves)}")
        gains = [100 * (1 - floor.mean() / way.simulated.mean()) for way in ways]
        lines.append(
            f"  no order is below {floor.mean():.1f}: hindsight gains at most "
            + ", ".join(f"{each:.1f}" for each in gains)
            + " %"
        )
        return "\n".join(lines)


def main() -> None:
    """Prints the cells."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS, help="of each run; the first does not count")
    parser.add_argument("--noise", nargs="*", default=NOISE)
    parser.add_argument("--live", type=int, nargs="*", default=LIVE, help="micro-batches that memory holds")
    parser.add_argument("--learn", type=int, default=0, metavar="UPDATES", help="on the pipeline first, one more way")
    parser.add_argument("--known", type=int, default=0, metavar="STEPS", help="of the search that knows each draw")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for live in given.live:
            for noise in given.noise:
                trial = Trial(live, noise, given.seeds, given.steps)
                ways = trial.ways(given.learn, Path(folder))
                print(trial.known(ways, given.known) if given.known else trial.told(trial.measured(ways)), flush=True)


if __name__ == "__main__":
    main()
