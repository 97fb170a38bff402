"""The queue of jobs: completion under every policy on later parts of the Philly trace, deadlines, speed, other traces.

Windows are of the last 30 % of the trace's time, none of which was learned from (training: the first 55 %; looking:
up to 70 %). 4 domains of 80 GPUs, restart 30 s. "past" is the trace before the window, which whoever runs a cluster
has; "no past" starts from nothing. Intervals: 95 %, bootstrap over days of arrival, the same days for both policies.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from _continual import continual  # type: ignore[import-not-found]
from _data import data  # type: ignore[import-not-found]
from _deadlines import deadlines  # type: ignore[import-not-found]
from hippo.jobs.engine.play import play
from hippo.jobs.learned.state import LearnedSetup
from hippo.jobs.learned.weights import KeyWeights, shipped
from hippo.jobs.ledger import Ledger
from hippo.jobs.policies.heuristics import TWO_QUEUE
from hippo.jobs.policies.learned import LEARNED
from hippo.jobs.policies.policy import QueuePolicy
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, JobSite, site
from hippo.jobs.traces.generate import fitted, generated
from hippo.jobs.traces.load import load_trace
from hippo.jobs.traces.mix import Mix, mixed
from hippo.jobs.workload import JobWorkload
from hippo.registry import JOB_POLICIES, load

SITE = site([DevicePool(f"domain-{k}", "gpu", 10, 8) for k in range(4)])
LOADS = (None, 1.0, 0.85, 0.7)  # None: as it is
WINDOWS = ((0.7, 0.8), (0.8, 0.9), (0.9, 1.0))
BLIND = ("fifo", "backfill", "fair", "two_queue", "max_min")
DRAWS = 2000
DAY_S = 86_400.0

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Entrant:
    """A policy and, of the learned ones, whose weights and past."""

    name: str
    policy: QueuePolicy
    weights: KeyWeights | None = None
    remembers: bool = False


def entrants() -> list[Entrant]:
    """Everyone who is compared, the clairvoyant last."""
    found = [Entrant(name, load(JOB_POLICIES, "policy", name)) for name in BLIND]
    levels = tuple(np.geomspace(60.0, 3e7, 28).tolist())
    found.append(Entrant("las, 28 levels", replace(TWO_QUEUE, name="las", levels=levels, promotes_after=1e18)))
    found.append(Entrant("gittins, one distribution", LEARNED, one_distribution()))
    found.append(Entrant("learned, no past", LEARNED))
    found.append(Entrant("learned", LEARNED, remembers=True))
    return [*found, *(Entrant(f"{name} (clairvoyant)", load(JOB_POLICIES, "policy", name)) for name in ("sjf", "srtf"))]


def one_distribution() -> KeyWeights:
    """The Gittins rank of the prior alone, times devices: nothing is learned (Tiresias with a known distribution)."""
    from hippo.jobs.learned.weights import untrained

    plain = untrained()
    return plain._replace(prior=shipped().prior, pseudo=np.full(len(plain.pseudo), 1e12))


def replayed(
    each: Entrant, workload: JobWorkload, past: JobWorkload | None, where: JobSite, rules: ReplayRules
) -> Ledger:
    """A replay; only who remembers is told the past."""
    return play(
        workload, where, each.policy, rules, learner=LearnedSetup(each.weights, past if each.remembers else None)
    )


def completion_s(ledger: Ledger, workload: JobWorkload) -> Floats:
    """(n,) from arrival to end, nan where refused."""
    return ledger.finish_s - workload.arrival_s


def ratio(own: Floats, other: Floats, workload: JobWorkload, rng: np.random.Generator) -> tuple[float, float, float]:
    """Ratio of two means, and its 95 % interval over days of arrival (drawn with replacement)."""
    both = np.isfinite(own) & np.isfinite(other)
    day = np.unique((workload.arrival_s[both] // DAY_S).astype(int), return_inverse=True)[1]
    days = day.max() + 1
    sums = np.stack([np.bincount(day, each[both], minlength=days) for each in (own, other)])
    drawn = rng.integers(0, days, (DRAWS, days))
    ratios = sums[0][drawn].sum(1) / sums[1][drawn].sum(1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(sums[0].sum() / sums[1].sum()), float(low), float(high)


def completion(trace: JobWorkload) -> None:
    """Mean completion of everyone, per load on the whole of the last 30 %, and per tenth as it is."""
    print("mean completion, 4 x 80 GPUs, philly_open.csv, last 30 % of its time")
    for load_ in LOADS:
        _table(trace, 0.7, 1.0, load_, entrants())
    print("by tenth of the trace's time, as it is (learned: with its past)")
    short = [each for each in entrants() if each.name in ("fifo", "two_queue", "fair", "learned", "srtf (clairvoyant)")]
    for first, last in WINDOWS:
        _table(trace, first, last, None, short)


def _table(trace: JobWorkload, first: float, last: float, load_: float | None, who: list[Entrant]) -> None:
    window, past = trace.part(first, last), trace.part(0.0, first)
    found = window.load(SITE)
    window = window if load_ is None else window.stretched(found / load_)
    print(f"\n{first:.0%} to {last:.0%}, {len(window):,} jobs, load {found if load_ is None else load_:.2f}")
    print(f"  {'policy':28s} {'mean, h':>8s} {'p95, h':>8s} {'of FIFO':>8s} {'of SRTF':>8s}  95 % of SRTF    stops")
    times, stops = {}, {}
    for each in who:
        ledger = replayed(each, window, past, SITE, ReplayRules())
        times[each.name], stops[each.name] = completion_s(ledger, window), int(ledger.preemptions.sum())
    rng = np.random.default_rng(0)
    for name, own in times.items():
        of_srtf, low, high = ratio(own, times["srtf (clairvoyant)"], window, rng)
        print(
            f"  {name:28s} {np.nanmean(own) / 3600:8.2f} {np.nanquantile(own, 0.95) / 3600:8.2f}"
            f" {np.nanmean(own) / np.nanmean(times['fifo']):8.3f} {of_srtf:8.3f}  {low:.3f} .. {high:.3f}"
            f" {stops[name]:8,d}"
        )
    _against(times, window, rng)


def _against(times: Mapping[str, Floats], window: JobWorkload, rng: np.random.Generator) -> None:
    """The learned policy against the best of those that know nothing and learn nothing."""
    blind = [name for name in times if "learned" not in name and "clairvoyant" not in name]
    best = min(blind, key=lambda name: float(np.nanmean(times[name])))
    for name in (name for name in times if "learned" in name):
        found, low, high = ratio(times[name], times[best], window, rng)
        print(f"  {name} over {best}: {found:.3f} ({low:.3f} .. {high:.3f})")


def elsewhere(trace: JobWorkload) -> None:
    """Traces that were not learned from in any part, other users, and other rules; no past."""
    print("\nelsewhere: mean completion over SRTF's (all without a past)")
    names = ("fifo", "fair", "two_queue", "las, 28 levels", "gittins, one distribution", "learned, no past")
    who = [each for each in entrants() if each.name in (*names, "srtf (clairvoyant)")]
    short = ("fifo", "fair", "two_q.", "las", "gittins", "learned")
    print(f"  {'jobs':34s}" + "".join(f"{name:>9s}" for name in short) + "   95 % of learned")
    for name, workload, rules in _others(trace):
        times = {each.name: completion_s(replayed(each, workload, None, SITE, rules), workload) for each in who}
        rng = np.random.default_rng(0)
        found = [ratio(times[each], times["srtf (clairvoyant)"], workload, rng) for each in names]
        print(
            f"  {name:34s}"
            + "".join(f"{each[0]:9.3f}" for each in found)
            + f"   {found[-1][1]:.3f} .. {found[-1][2]:.3f}"
        )


def _others(trace: JobWorkload) -> Iterator[tuple[str, JobWorkload, ReplayRules]]:
    gavel = load_trace(data("traces/gavel_msr.trace")).workload
    rules = ReplayRules()
    for load_ in (1.0, 0.7):
        yield f"gavel_msr.trace, load {load_}", gavel.stretched(gavel.load(SITE) / load_), rules
    like = fitted(trace.part(0.7, 1.0))
    for seed in range(3):
        drawn = generated(like, 6000, np.random.default_rng(seed))
        drawn = replace(drawn, users=tuple(f"new-{user}" for user in drawn.users))
        yield f"generated, seed {seed}, load 1", drawn.stretched(drawn.load(SITE)), rules
    window = trace.part(0.85, 1.0)
    window = window.stretched(window.load(SITE))
    yield "85 % to 100 %, load 1", window, rules
    yield "the same, restart 300 s", window, ReplayRules(restart_s=300.0)
    moved = mixed(window, Mix(data_gb=50.0, domains=SITE.domains), np.random.default_rng(0))
    yield "the same, data of 50 GB to move", moved, rules


def speed(trace: JobWorkload) -> None:
    """Events per second, and seconds for the whole file."""
    print(f"\nspeed: all {len(trace):,} jobs of philly_open.csv, compiled beforehand")
    print(f"  {'policy':14s} {'seconds':>8s} {'events':>11s} {'events/s':>11s}")
    head = trace.part(0.0, 0.02)
    for name in JOB_POLICIES:
        policy: QueuePolicy = load(JOB_POLICIES, "policy", name)
        play(head, SITE, policy)
        began = time.process_time()
        ledger = play(trace, SITE, policy)
        took = time.process_time() - began
        print(f"  {name:14s} {took:8.2f} {ledger.events:11,d} {ledger.events / took:11,.0f}")


def main() -> None:
    """Prints the tables."""
    trace = load_trace(data("traces/philly_open.csv.gz")).workload
    completion(trace)
    elsewhere(trace)
    speed(trace)
    print("\ndeadline misses (results/deadlines.md)", *deadlines(trace), sep="\n")
    print("\ncontinual learning, one seed (results/online.md; more: python benchmarks/_continual.py)")
    continual(seeds=1)


if __name__ == "__main__":
    main()
