"""Draws what several data centres are asked to do: elastic training of language models among gangs, preparation and
serving.

No public trace tells models, tokens and sizes of elastic jobs, so all of it is drawn, family by family:

- *Arrivals.* Bursts of jobs by one user, the bursts in a Poisson process whose rate swings with the day; or, in place
  of both, the arrivals and users of a trace (``like``). They are stretched to the load that is asked for.
- *Sizes.* An elastic job needs devices for 16 bytes a parameter in ``ROOM`` of their memory, at least; it can use
  2 to 2^k times as many. Other jobs are gangs.
- *Work.* The time that a job takes on its most devices is log-normal, cut to 10 minutes and 3 days; its tokens are that
  time x its devices x tokens per second and device of the reference, which is taken to be the largest domain.
- *Ends.* Training fails or is cancelled before all is done as often as published (``ACME_ENDS``, ``PHILLY_ENDS``:
  cluster_summary.csv of Acme's trace, Hu et al., NSDI 2024, CC BY 4.0), larger jobs more often; each user has shares of
  his own, and half of the bursts end alike.
- *Data.* 4 bytes a token; for other jobs volumes by kind (``placement.data``); they lie in one domain a user, drawn in
  proportion to the domains' devices.

Letters: n jobs, B bursts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError, UnknownNameError
from hippo.jobs.job import KINDS, TrainingKind
from hippo.jobs.placement.data import GB_PER_DEVICE
from hippo.jobs.placement.models import training
from hippo.jobs.site import JobSite
from hippo.jobs.traces.generate import LAST_DIGIT, MOST_JOBS, TraceFit, generated
from hippo.jobs.traces.mix import GRACE_S, PRIORITIES
from hippo.jobs.traces.rows import CPU
from hippo.jobs.workload import JobWorkload
from hippo.problem.cluster import Cluster
from hippo.problem.load import load_model

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MODELS = ("llama-3.2-1b", "llama-3.2-3b", "llama-3-8b", "qwen2.5-14b", "qwen2.5-32b", "llama-3-70b")
"""What elastic jobs train where nobody says."""

SHORTEST_S, LONGEST_S = 600.0, 3 * 86400.0
ROOM = 0.6
"""Of a device's memory for states; activations take the rest."""

PEAK_SHARE = 0.5
"""Of a GPU's peak that training usually gets, where no plan says."""

SLACK = (1.3, 4.0)
"""Deadline: so many times the duration after the arrival, log-uniform."""

DAY_S = 86400.0
FOLLOW_S = 30.0
"""Mean time between jobs of a burst."""

TOKEN_BYTES = 4
USUAL_GANGS = ((0.35, 1), (0.2, 2), (0.2, 4), (0.17, 8), (0.06, 16), (0.02, 32))
PHILLY_GANGS = ((0.938, 1), (0.019, 2), (0.023, 4), (0.018, 8), (0.0015, 16), (0.0005, 32))
"""(share of the gangs that train, devices); the second as in Philly's trace."""


@dataclass(frozen=True)
class JobEnds:
    """How training ends: ``failed`` and ``cancelled`` are shares of the jobs, the rest does what was told. Whoever ends
    early does so after any share of it, with equal chance."""

    failed: float
    cancelled: float
    fails_large: float  # by how much the logit of failing grows with the score of the logarithm of its device-seconds
    cancelled_large: float  # the same of being cancelled
    users: float = 1.0  # deviation of users' logits, of either
    alike: float = 0.5  # share of the bursts whose jobs end alike


ACME_ENDS, PHILLY_ENDS = JobEnds(0.41, 0.07, 0.3, 3.0), JobEnds(0.30, 0.09, 1.0, 1.0)


@dataclass(frozen=True)
class JobFamily:
    """What jobs of a family are like."""

    elastic: float  # shares of the bursts; ``deploy`` is the rest
    gangs: float
    prepare: float
    hours: float  # median duration on the most devices
    spread: float  # deviation of its logarithm
    day: float = 0.0  # depth of the daily swing of arrivals, 0 to 1
    burst: float = 1.0  # mean jobs of a burst
    tilt: float = 0.3  # a model's chance goes with parameters ^ -tilt
    doublings: int = 3  # most devices / least devices is at most 2 ^ doublings
    reach: float = 0.5  # of the site's devices that one job may use
    deadlines: float = 0.3  # share of the jobs that end
    gang_sizes: tuple[tuple[float, int], ...] = USUAL_GANGS
    ends: JobEnds = ACME_ENDS


FAMILIES: Mapping[str, JobFamily] = MappingProxyType(
    {
        "mixed": JobFamily(0.55, 0.2, 0.15, hours=2.0, spread=1.4, day=0.5, burst=2.0),
        "steady": JobFamily(0.7, 0.15, 0.1, hours=3.0, spread=1.0),
        "bursty": JobFamily(0.6, 0.2, 0.1, hours=1.5, spread=1.4, day=0.8, burst=5.0),
        "large": JobFamily(0.85, 0.05, 0.05, hours=8.0, spread=1.0, tilt=-0.3, doublings=4, reach=1.0),
        "philly-like": JobFamily(
            *(0.3, 0.6, 0.07),
            hours=0.5,
            spread=2.0,
            day=0.5,
            burst=4.0,
            tilt=0.8,
            gang_sizes=PHILLY_GANGS,
            ends=PHILLY_ENDS,
        ),
    }
)


@dataclass(frozen=True)
class ElasticDraw:
    """What is drawn."""

    family: str = "mixed"  # of ``FAMILIES``
    jobs: int = 60
    load: float = 0.9  # device-seconds that arrive per second over the site's devices
    models: tuple[str, ...] = MODELS  # of elastic jobs: catalogue names or paths
    users: int = 8
    like: TraceFit | None = None  # whose arrivals and users are drawn

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise UnknownNameError("family of jobs", self.family, FAMILIES, source="--elastic")
        if not 1 <= self.jobs <= MOST_JOBS:
            remedy = f"give a number from 1 to {MOST_JOBS:,}"
            raise InputError("no such number of jobs", source="--jobs", value=self.jobs, remedy=remedy)
        if not 0.001 <= self.load <= 1000:
            remedy = "give a share, for instance 0.9"
            raise InputError("must be from 0.001 to 1000", source="--load", value=self.load, remedy=remedy)
        if not self.models:
            remedy = "name one of 'hippo catalogue models', or leave it out"
            raise InputError("no model is named", source="--models", remedy=remedy)
        assert self.users >= 1


def usual_trainings(models: tuple[str, ...]) -> tuple[TrainingKind, ...]:
    """What elastic jobs of these models train: sequences a step and tokens a sequence as usual for their size."""
    wanted = [training(1, name) for name in dict.fromkeys(models)]
    return tuple(TrainingKind(each.model, each.global_batch, each.seq) for each in wanted)


def rough_tokens_per_s(cluster: Cluster, trainings: tuple[TrainingKind, ...]) -> dict[TrainingKind, float]:
    """Tokens a second in the largest domain at ``PEAK_SHARE`` of its peak, 6 FLOPs a parameter and token: no plan."""
    gpus = max(domain.gpus for domain in cluster.domains)
    flops = PEAK_SHARE * cluster.gpu.peak_flops.get("bf16", max(cluster.gpu.peak_flops.values())) * gpus
    return {each: flops / (6.0 * load_model(each.model).active_parameters) for each in trainings}


def elastic_workload(
    draw: ElasticDraw, rng: np.random.Generator, site: JobSite, tokens_per_s: Mapping[TrainingKind, float]
) -> JobWorkload:
    """Jobs for a site; the elastic ones have tokens, and no duration yet (``JobWorkload.timed`` sets it).

    ``tokens_per_s``: at the reference, of ``usual_trainings``; models without one are not drawn. ``InputError`` where
    no model is left.
    """
    family, n = FAMILIES[draw.family], draw.jobs
    pools = tuple(pool for pool in site.pools if pool.kind != CPU)
    devices = {name: sum(pool.devices for pool in pools if pool.domain == name) for name in site.domains}
    there, largest = sum(devices.values()), max(devices.values())
    if not there:
        raise InputError("has no devices but CPUs", source=site.name or "site", remedy="give it some to train on")
    cap = 2 ** int(np.log2(max(1.0, family.reach * there)))

    # bursts: jobs of one user who asks for the same again and again
    length = rng.geometric(1.0 / family.burst, n)
    burst = np.repeat(np.arange(n), length)[:n]
    share = 1.0 / np.arange(1, draw.users + 1)
    user = rng.choice(draw.users, n, p=share / share.sum())[burst]
    shares = np.array([family.elastic, family.gangs, family.prepare])
    what = rng.choice(4, n, p=np.append(shares, 1.0 - shares.sum()))[burst]
    elastic = what == 0

    # elastic jobs: model, least and most devices
    memory_gb = min(min(pool.memory_gb for pool in pools), 80.0)
    known = [each for each in usual_trainings(draw.models) if tokens_per_s.get(each, 0.0) > 0]
    parameters = np.array([load_model(each.model).parameters for each in known], np.float64)
    need = np.exp2(np.ceil(np.log2(np.maximum(1.0, 16e-9 * parameters / (ROOM * memory_gb))))).astype(np.int64)
    fits = need <= cap
    if not fits.any():
        problem = "none of these models can be trained there"
        remedy = "name smaller models, or a larger cluster"
        raise InputError(problem, source="--models", value=",".join(draw.models), remedy=remedy)
    known, parameters, need = [each for each, fit in zip(known, fits, strict=True) if fit], parameters[fits], need[fits]
    chance = parameters**-family.tilt
    model = rng.choice(len(known), n, p=chance / chance.sum())[burst]
    least = np.minimum(need[model] * rng.integers(1, 3, n)[burst], cap)
    most = np.minimum(least * 2 ** rng.integers(1, family.doublings + 1, n)[burst], cap)

    # the others: gangs that one domain holds
    chances, sizes = np.array(family.gang_sizes).T
    gang = rng.choice(sizes.astype(np.int64), n, p=chances / chances.sum())[burst]
    small = 2 ** rng.integers(0, 4, n)[burst]
    gang = np.minimum(np.where(what == 1, gang, small), largest)

    # work: how long each takes on its most devices
    middle = np.log(3600.0 * family.hours) + np.where(what == 3, np.log(4.0), 0.0)  # who serves stays
    normal = NormalDist()
    ends = [[normal.cdf((np.log(end) - mu) / family.spread) for end in (SHORTEST_S, LONGEST_S)] for mu in middle]
    low, high = np.array(ends).T
    score = np.array([normal.inv_cdf(each) for each in np.clip(low + (high - low) * rng.random(n), 1e-12, 1 - 1e-12)])
    length_s = np.round(np.clip(np.exp(middle + family.spread * score), SHORTEST_S, LONGEST_S))
    rate = np.array([tokens_per_s[each] for each in known])[model] / largest
    tokens = np.where(elastic, np.ceil(length_s * most * rate / 1e6) * 1e6, 0.0)
    size = np.where(elastic, most, gang)
    done = np.where(what < 2, _ends(family.ends, length_s * size, user, burst, rng), 1.0)
    told_s, length_s = length_s, np.maximum(1.0, np.round(length_s * done, LAST_DIGIT))

    # arrivals, over as long as the load says
    span_s = float(length_s @ size) / (sum(pool.devices * pool.speed for pool in pools) * draw.load)
    users = tuple(f"user-{number}" for number in range(draw.users))
    if draw.like is None:
        arrival_s = _arrivals(family, burst, span_s, rng)
    else:
        pattern = generated(draw.like, n, rng)
        arrival_s, user, users = pattern.arrival_s, pattern.user, pattern.users
    arrival_s = arrival_s - arrival_s.min()
    arrival_s = np.round(arrival_s * (span_s / max(float(arrival_s.max()), 1e-9)), LAST_DIGIT)

    # what else a job has
    values, weights = [each[1] for each in PRIORITIES], [each[0] for each in PRIORITIES]
    priority = np.where(what == 3, max(values), rng.choice(values, n, p=weights))
    slack = np.exp(rng.uniform(math.log(SLACK[0]), math.log(SLACK[1]), n))
    promised = (rng.random(n) < family.deadlines) & (what != 3)
    kind = np.array([KINDS.index(word) for word in ("train", "train", "preprocess", "deploy")])[what]
    volume = np.array([GB_PER_DEVICE[word] for word in KINDS])[kind] * size
    home = rng.choice(len(site.domains), len(users), p=np.array(list(devices.values())) / there)
    columns: dict[str, Any] = {
        "arrival_s": arrival_s,
        "duration_s": np.where(elastic, np.nan, length_s),
        "devices": size,
        "kind": kind,
        "user": user,
        "priority": priority,
        "deadline_s": np.where(promised, np.round(arrival_s + slack * told_s + GRACE_S), np.inf),
        "data_gb": np.round(np.where(elastic, TOKEN_BYTES * 1e-9 * tokens, volume), 3),
        "data_at": home[user],
        "model": np.where(elastic, model + 1, 0),
        "batch": np.where(elastic, np.array([each.batch for each in known])[model], 0),
        "seq": np.where(elastic, np.array([each.seq for each in known])[model], 0),
        "tokens": tokens,
        "ends_after": np.where(elastic & (done < 1.0), np.maximum(1.0, np.round(tokens * done)), 0.0),
        "estimate_s": np.where(~elastic & (done < 1.0), told_s, np.nan),
        "least": np.where(elastic, least, 0),
        "most": np.where(elastic, most, 0),
    }
    number = np.argsort(np.argsort(arrival_s, kind="stable"))
    names = [f"{('llm', 'gang', 'prepare', 'serve')[each]}-{place}" for place, each in zip(number, what, strict=True)]
    models = ("", *(each.model for each in known))
    return JobWorkload.of_columns(columns, names=names, users=users, domains=site.domains, models=models)


def _ends(ends: JobEnds, device_s: Floats, user: Ints, burst: Ints, rng: np.random.Generator) -> Floats:
    """(n,) share of its work after which each job ends; 1: it does all."""
    n, users = len(user), int(user.max()) + 1
    alike = (rng.random(n) < ends.alike)[burst]
    fate, when = rng.random((2, n)), rng.random((2, n))
    fate, when = np.where(alike, fate[0][burst], fate[1]), np.where(alike, when[0][burst], when[1])
    score = np.log(device_s)
    score = (score - score.mean()) / max(1e-9, score.std())
    own = ends.users * rng.standard_normal((2, users))[:, user]
    cancelled = _shares(ends.cancelled, own[0] + ends.cancelled_large * score)
    failed = _shares(ends.failed / (1.0 - ends.cancelled), own[1] + ends.fails_large * score) * (1.0 - cancelled)
    share: Floats = np.where(fate < failed + cancelled, when, 1.0)
    return share


def _shares(mean: float, score: Floats) -> Floats:
    """(n,) logistic in a score, of that mean."""
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        found: Floats = 1.0 / (1.0 + np.exp(-(middle + score)))
        low, high = (middle, high) if found.mean() < mean else (low, middle)
    return found


def _arrivals(family: JobFamily, burst: Ints, span_s: float, rng: np.random.Generator) -> Floats:
    """(n,) arrivals of jobs by their burst: a Poisson process over the span, given how many bursts there are."""
    grid_s = np.linspace(0.0, span_s, 1 + max(48, int(48 * span_s / DAY_S)))
    rate = 1.0 + family.day * np.sin(2.0 * np.pi * grid_s / DAY_S)
    upto = np.concatenate(([0.0], np.cumsum(0.5 * (rate[1:] + rate[:-1]))))
    begin_s = np.interp(rng.random(len(burst)) * upto[-1], upto, grid_s)
    first = np.diff(burst, prepend=-1) > 0
    since_s = np.cumsum(np.where(first, 0.0, rng.exponential(FOLLOW_S, len(burst))))
    arrival_s: Floats = begin_s[burst] + since_s - since_s[first][burst]
    return arrival_s


def summary(workload: JobWorkload) -> dict[str, float]:
    """A few figures of what was drawn."""
    elastic = workload.elastic
    days = max(float(workload.arrival_s[-1]), 1.0) / DAY_S
    return {
        "days": days,
        "elastic jobs": int(elastic.sum()),
        **{f"{kind}, gangs": int((~elastic & (workload.kind == place)).sum()) for place, kind in enumerate(KINDS)},
        "users": len(np.unique(workload.user)),
        "with a deadline": int(np.isfinite(workload.deadline_s).sum()),
        "most devices, elastic, median": float(np.median(workload.most[elastic])) if elastic.any() else 0.0,
        "tokens, in all": float(workload.tokens.sum()),
        "data, GB, in all": float(workload.data_gb.sum()),
    }
