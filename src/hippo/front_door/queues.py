"""A queue of jobs: a trace replayed on a site under one policy or several, and traces drawn after a trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo import first_use
from hippo.arguments import check_fields
from hippo.decide.wording import count
from hippo.errors import InfeasibleError, InputError, MissingExtraError, UnknownNameError
from hippo.jobs.account import ReplayAccount, played
from hippo.jobs.engine.shapes import shapes
from hippo.jobs.joint.moment import Scheduler
from hippo.jobs.learned.state import LearnedSetup
from hippo.jobs.learned.weights import read
from hippo.jobs.placement.data import with_data
from hippo.jobs.placement.offer_plans import offer_table
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.placement.slowdown import Slowdown, kinds_that_span
from hippo.jobs.placement.step_time import slowdown
from hippo.jobs.policies.learned import suited
from hippo.jobs.policies.policy import QueuePolicy
from hippo.jobs.settings import DATA, SPANS, Failures, ReplayRules
from hippo.jobs.site import DevicePool, JobSite
from hippo.jobs.site_file import is_planned, load_site
from hippo.jobs.traces.elastic import (
    FAMILIES,
    MODELS,
    ElasticDraw,
    elastic_workload,
    rough_tokens_per_s,
    summary,
    usual_trainings,
)
from hippo.jobs.traces.generate import TraceFit, distances, fitted, generated, moments
from hippo.jobs.traces.load import JobTrace, load_trace
from hippo.jobs.traces.mix import Mix, mixed
from hippo.jobs.traces.own import check_ending, write_jobs
from hippo.jobs.workload import JobWorkload
from hippo.planners.base import Progress
from hippo.planners.baselines.diloco import NOTES as LOCAL_SGD_NOTES
from hippo.problem.cluster import Cluster
from hippo.problem.gpus import ALIASES
from hippo.registry import JOB_POLICIES, JOB_SCHEDULERS, LIVE_SCHEDULERS, LOCAL_SGD, load, planner
from hippo.units import SECONDS_PER_HOUR

LEAST_LOAD, MOST_LOAD, MOST_CPUS = 0.001, 1000.0, 10_000
CPU = "cpu"
USUAL = "usual"  # volume of data: that of the kind of job
OWN = "own"  # form of traces in which a job without a kind of device may run on any
SPANNER = "exact"  # who plans jobs over several domains


@dataclass(frozen=True)
class JobsQuestion:
    """What is replayed where, by which rules."""

    trace: str | Path  # a file, packed or not; PAI: the folder
    cluster: str | Path  # cluster file, file of agents, or a catalogue name
    network: str | Path | None = None  # network trace; None: the links stand still
    format: str | None = None  # philly, helios, pai, gavel, swf, own; None: told by content
    begin: float | None = None  # jobs from this second of the trace on
    end: float | None = None  # and before this one
    part: str | None = None  # or a part of the trace's time as shares: 0.7:1 is the last 30 %
    load: float | None = None  # stretches the arrivals to this load of the site
    span: str = "must"  # jobs over several domains: never; must: only the too large; free
    data: str = "while"  # data move before a job runs, or meanwhile
    data_gb: str | None = None  # per device, for jobs whose trace tells none; usual: by kind
    cpus_per_node: int = 0  # for jobs without GPUs
    restart_s: float = 30.0  # that a resumption takes after a stop
    keep_running: bool = False  # nobody who decides stops or moves a running job
    mtbf_h: float | None = None  # between failures of one node; None: none fail
    repair_h: float = 1.0  # that a failed node is away
    no_past: bool = False  # policies that learn do not know the trace before the part
    weights: Path | None = None  # of ``learned``; None: the shipped ones
    borders: str | None = None  # of ``two_queue``, device-seconds: 3250,7200; None: its own
    promote_after: float | None = None  # times its service that a job waits under ``two_queue``; None: for ever
    allow_local_sgd: bool = False  # elastic jobs may average over domains every H steps
    online: Path | None = None  # folder for log and policies: the agents, learning while they serve, decide first
    skip_bad: bool = False  # passes over wrong rows, and counts them
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)


def replay_jobs(
    question: JobsQuestion,
    policies: Iterable[str] = (),
    *,
    everyone: bool = False,
    progress: Progress | None = None,
) -> ReplayAccount:
    """A job trace replayed under one policy after the other; ``everyone``: all others after those named.

    Jobs are gangs, all of their devices at once, under ``registry.JOB_POLICIES`` (default: ``learned``). Where some are
    elastic, ``registry.JOB_SCHEDULERS`` decide for all together (default: ``hi_ppo``). A job that no part of the site
    can hold is refused with the reason, the rest goes on (``account.refused``). Raises ``InputError`` for a trace, a
    site or a rule that is wrong, ``InfeasibleError`` where nothing is left to replay.
    """
    watch = progress or _unwatched
    _check(question)
    given = [name.strip() for name in policies]
    names = list(dict.fromkeys(name for name in given if name))
    for name in names or given:
        if name not in JOB_POLICIES and name not in JOB_SCHEDULERS:
            raise UnknownNameError("policy", name, (*JOB_POLICIES, *JOB_SCHEDULERS), source="--policy")
    account = _given(question, watch)
    if account.offers is not None:
        if question.online is not None:
            account = _live(account, question.online, watch)
        beside = names or everyone or question.online is None
        asked = _schedulers(names, everyone=everyone, local_sgd=question.allow_local_sgd) if beside else ()
        return _scheduled(account, asked, names, watch)
    if question.allow_local_sgd:
        problem, remedy = "is for elastic jobs, and this trace has none", "leave it out"
        raise InputError(problem, source="--allow-local-sgd", remedy=remedy)
    if question.online is not None:
        problem, remedy = "is for agents that share out elastic jobs, and this trace has none", "leave it out"
        raise InputError(problem, source="--online", value=str(question.online), remedy=remedy)
    if others := [name for name in names if name not in JOB_POLICIES]:
        problem, remedy = "schedules elastic jobs, and this trace has none", f"choose from {', '.join(JOB_POLICIES)}"
        raise InputError(problem, source="--policy", value=others[0], remedy=remedy)
    chosen = _with_queues(question, _policies(names or ["learned"], everyone=everyone))
    first_use.prepare_jobs(progress=watch)
    for place, each in enumerate(chosen):
        policy, told = suited(each, account.workload), []
        if policy is not each:
            told.append(f"some jobs have deadlines: {each.name} goes by the key for them, {policy.name}")
            policy = replace(policy, name=each.name)  # the name that was asked for
        if policy.learns and account.learner is not None and account.learner.past is not None:
            told.append(f"{policy.name} knows the {len(account.learner.past):,} jobs of the trace before this part")
        account = replace(account, remarks=(*account.remarks, *told))
        account = played(account, policy, watch=_far(watch, policy.name, place, len(chosen)))
    return account


def _scheduled(
    account: ReplayAccount, schedulers: tuple[Scheduler, ...], named: list[str], watch: Progress
) -> ReplayAccount:
    """The account with a play of each of them; of those that were not named, without those that lack a library."""
    for place, each in enumerate(schedulers):
        try:
            account = played(account, each, watch=_far(watch, each.name, place, len(schedulers)))
        except MissingExtraError as lack:
            if each.name in named:
                raise
            account = replace(account, remarks=(*account.remarks, f"left out {each.name}: {lack}"))
    return account


def _live(account: ReplayAccount, folder: Path, watch: Progress) -> ReplayAccount:
    """The account with a play of the agents that learn while they serve, and who served since when."""
    begin = load(LIVE_SCHEDULERS, "policy", "hi_ppo")
    with begin(account.site, account.offers, account.settings, folder) as scheduler:
        account = played(account, scheduler, watch=_far(watch, scheduler.name, 0, 1))
        scheduler.finish()
        served = scheduler.loop.log.served
    who = (
        f"from {time_s:,.0f} s on {f'version {version}' if version else 'the rule'} decided: {why}"
        for time_s, version, why in served
    )
    return replace(account, remarks=(*account.remarks, *who))


def _far(watch: Progress, name: str, begun: int, of: int) -> Callable[[int, int], None]:
    """Tells how far one play of several is."""
    watch(name, begun / of)
    return lambda done, jobs: watch(name, (begun + done / max(jobs, 1)) / of)


def check_allowed(names: Iterable[str], source: str, *, local_sgd: bool) -> None:
    """``InputError`` for who trains otherwise than the user allows."""
    if LOCAL_SGD in names and not local_sgd:
        problem, remedy = "changes the optimizer, and that was not allowed", "add --allow-local-sgd, or leave it out"
        raise InputError(problem, source=source, value=LOCAL_SGD, remedy=remedy)


def _schedulers(names: list[str], *, everyone: bool, local_sgd: bool) -> tuple[Scheduler, ...]:
    """Schedulers by name; ``everyone``: all the others behind them."""
    check_allowed(names, "--policy", local_sgd=local_sgd)
    if others := [name for name in names if name not in JOB_SCHEDULERS]:
        remedy = f"choose from {', '.join(JOB_SCHEDULERS)}"
        raise InputError(
            "ranks gangs, and this trace has elastic jobs", source="--policy", value=others[0], remedy=remedy
        )
    chosen = names or ["hi_ppo"]
    left = {*chosen, *(() if local_sgd else (LOCAL_SGD,))}
    more = [name for name in JOB_SCHEDULERS if name not in left] if everyone else []
    return tuple(load(JOB_SCHEDULERS, "policy", name) for name in (*chosen, *more))


def _unwatched(phase: str, share: float) -> None:
    """Nobody watches."""


def _check(asked: JobsQuestion) -> None:
    """``InputError`` for numbers out of range and options that contradict each other."""
    if asked.part is not None and (asked.begin is not None or asked.end is not None):
        raise InputError("two ways to choose a part", source="--part", value=asked.part, remedy="leave out one of them")
    for option, value in (("--from", asked.begin), ("--to", asked.end)):
        if value is not None and math.isnan(value):
            raise InputError("must be a number", source=option, value=value, remedy="give seconds of the trace")
    if asked.begin is not None and asked.end is not None and asked.end <= asked.begin:
        raise InputError("must lie behind --from", source="--to", value=asked.end, remedy="give a later time")
    if asked.load is not None and not LEAST_LOAD <= asked.load <= MOST_LOAD:
        problem, remedy = f"must be from {LEAST_LOAD:g} to {MOST_LOAD:g}", "give a share, for instance 0.7"
        raise InputError(problem, source="--load", value=asked.load, remedy=remedy)
    if not 0 <= asked.cpus_per_node <= MOST_CPUS:
        remedy = "give a number of cores, for instance 64"
        raise InputError(
            f"must be from 0 to {MOST_CPUS}", source="--cpus-per-node", value=asked.cpus_per_node, remedy=remedy
        )
    for option, hours in (("--mtbf-h", asked.mtbf_h), ("--repair-h", asked.repair_h)):
        if hours is not None and not 0 < hours < math.inf:
            raise InputError("must be above 0", source=option, value=hours, remedy="give hours, for instance 24")
    _rules(asked)


def _policies(chosen: list[str], *, everyone: bool) -> tuple[QueuePolicy, ...]:
    """Policies by name, each once; ``everyone``: all the others behind them."""
    found: list[QueuePolicy] = [load(JOB_POLICIES, "policy", name, source="--policy") for name in chosen]
    if any(policy.learns for policy in found) and not _trained():
        remedy = "train one with 'hippo train --config configs/algo/jobs.yaml', or name another policy"
        raise InputError(
            "this installation has no trained policy", source="--policy", value=",".join(chosen), remedy=remedy
        )
    others = [name for name in JOB_POLICIES if name not in chosen] if everyone else []
    more: list[QueuePolicy] = [load(JOB_POLICIES, "policy", name) for name in others]
    return (*found, *(policy for policy in more if _trained() or not policy.learns))


def _with_queues(asked: JobsQuestion, policies: tuple[QueuePolicy, ...]) -> tuple[QueuePolicy, ...]:
    """The policies, that with queues of attained service with the borders and the promotion that are asked for."""
    changes: dict[str, Any] = {}
    if asked.borders is not None:
        remedy = "give device-seconds above 0, each above the one before, for instance 3250,7200"
        try:
            changes["levels"] = tuple(float(each) for each in asked.borders.split(","))
        except ValueError:
            raise InputError("are no numbers", source="--borders", value=asked.borders, remedy=remedy) from None
        ends = (0.0, *changes["levels"], math.inf)
        if not all(low < high for low, high in pairwise(ends)):
            raise InputError("do not grow", source="--borders", value=asked.borders, remedy=remedy)
    if asked.promote_after is not None:
        if not asked.promote_after > 0:
            remedy = "give a number above 0, for instance 8"
            raise InputError("must be above 0", source="--promote-after", value=asked.promote_after, remedy=remedy)
        changes["promotes_after"] = asked.promote_after
    if not changes:
        return policies
    if not any(policy.key.level for policy in policies):
        given, remedy = "--borders" if asked.borders else "--promote-after", "add it to --policy, or leave this out"
        raise InputError("is for two_queue, which is not asked for", source=given, remedy=remedy)
    return tuple(replace(policy, **changes) if policy.key.level else policy for policy in policies)


def _trained() -> bool:
    """Whether the weights of the learned policy are there."""
    return (files("hippo.jobs.learned") / "jobs.npz").is_file()


def _given(asked: JobsQuestion, progress: Progress) -> ReplayAccount:
    """The workload on its site, ready to be played."""
    agents, cluster = load_site(asked.cluster, asked.network)
    site = _with_cpus(agents, asked.cpus_per_node)
    settings = _rules(asked)
    progress("reading the trace", 0.0)
    trace = load_trace(Path(asked.trace), form=asked.format, skip_bad=asked.skip_bad)
    learner = _learner(asked, trace)  # weights that are none are refused before anything is planned
    workload, left_out = _chosen(asked, trace, site)
    offers = None
    if workload.elastic.any():
        offers = _offers(asked, workload, agents, cluster, progress)
        workload = workload.timed(dict(zip(offers.kinds, offers.tokens_per_s.tolist(), strict=True)))
    planned = is_planned(agents, cluster)  # spans of other devices than the catalogue's GPUs nobody can plan
    flows = asked.network is not None or offers is not None
    gangs = workload.take(~workload.elastic)
    may = planned and asked.online is None  # what is learned on a live site knows gangs inside domains only
    spans = _slowdown(gangs, cluster, site, settings, progress, flows=flows) if may else None
    runs = _can_run(workload, site, settings, spans) | workload.elastic
    workload = _stretched(workload, site, asked.load, runs, offers)
    read = f"read {count(len(trace.workload), 'job')} of {Path(asked.trace).name} (format {trace.format})"
    return ReplayAccount(
        source=str(asked.trace),
        trace=trace,
        workload=workload,
        cluster=cluster,
        site=site,
        settings=settings,
        slowdown=spans,
        load=_offered_load(workload, site, runs, offers),
        offers=offers,
        left_out=left_out,
        learner=learner,
        remarks=(
            read,
            *trace.remarks,
            *(f"left out {count(number, 'job')}: {why}" for why, number in left_out.items()),
            *(LOCAL_SGD_NOTES[:2] if asked.allow_local_sgd else ()),
        ),
    )


def _with_cpus(site: JobSite, cores: int) -> JobSite:
    """The site with so many CPU cores in every node, as one more pool per domain."""
    if not cores:
        return site
    more = tuple(DevicePool(pool.domain, CPU, pool.nodes, cores) for pool in site.pools)
    return replace(site, pools=(*site.pools, *more))


def _rules(asked: JobsQuestion) -> ReplayRules:
    for option, value, known in (("--span", asked.span, SPANS), ("--data", asked.data, DATA)):
        if value not in known:
            raise UnknownNameError("choice", value, known, source=option)
    failures = None
    if asked.mtbf_h is not None:
        failures = Failures(asked.mtbf_h * SECONDS_PER_HOUR, repair_s=asked.repair_h * SECONDS_PER_HOUR)
    return ReplayRules(
        restart_s=asked.restart_s,
        span=asked.span,
        data=asked.data,
        failures=failures,
        seed=asked.seed,
        stops=not asked.keep_running,
    )


# --------------------------------------------------------------------------------------------------------- the workload
def _chosen(asked: JobsQuestion, trace: JobTrace, site: JobSite) -> tuple[JobWorkload, dict[str, int]]:
    """The part that is asked for; jobs that only want CPUs are left out where there are none."""
    workload, left_out = trace.workload, {}
    if asked.part is not None:
        workload = workload.part(*_shares(asked.part))
    elif asked.begin is not None or asked.end is not None:
        end_s = math.inf if asked.end is None else asked.end
        workload = workload.between(-math.inf if asked.begin is None else asked.begin, end_s)
    if not len(workload):
        span_s = float(trace.workload.arrival_s[-1])
        problem = "no job arrives in that part"
        raise InputError(problem, source=str(asked.trace), remedy=f"choose from 0 to {span_s:g} s")
    alone = _only_cpus(workload) if CPU not in site.kinds else None
    if alone is not None and alone.any():
        left_out["no GPU is asked for, and the site has no CPUs (give it some with --cpus-per-node)"] = int(alone.sum())
        workload = workload.take(~alone)
        if not len(workload):
            raise InfeasibleError(["All of these jobs take CPUs only; give the site some with --cpus-per-node."])
    workload = _known_by_alias(workload, site)
    if asked.cpus_per_node or trace.format != OWN:
        workload = _on_gpus(workload, site)
    if asked.data_gb is not None:
        workload = with_data(workload, site, _volume(asked.data_gb))
    return workload, left_out


def _volume(text: str) -> float | None:
    """GB per device; None: what is usual for the kind of job."""
    if text == USUAL:
        return None
    try:
        return float(text)
    except ValueError:
        remedy = f"give GB, for instance 50, or '{USUAL}'"
        raise InputError("not a volume", source="--data-gb", value=text, remedy=remedy) from None


def _known_by_alias(workload: JobWorkload, site: JobSite) -> JobWorkload:
    """Kinds of device that the site has under another name of the catalogue (``A100``), by the site's name."""
    other = {name: full for name, full in ALIASES.items() if full in site.kinds and name not in site.kinds}
    named = tuple(tuple(dict.fromkeys(other.get(kind, kind) for kind in kinds)) for kinds in workload.device_kinds)
    return replace(workload, device_kinds=named)


def _on_gpus(workload: JobWorkload, site: JobSite) -> JobWorkload:
    """Jobs that name no kind of device asked for GPUs: they run on all that the site has but CPUs."""
    others = tuple(kind for kind in site.kinds if kind != CPU)
    if not others or CPU not in site.kinds:
        return workload
    return replace(workload, device_kinds=tuple(kinds or others for kinds in workload.device_kinds))


def _learner(asked: JobsQuestion, trace: JobTrace) -> LearnedSetup:
    """What a policy that learns begins with: weights, and the trace before the part."""
    past: JobWorkload | None = None
    if asked.part is not None:
        past = trace.workload.part(0.0, _shares(asked.part)[0])
    elif asked.begin is not None:
        past = trace.workload.between(-math.inf, asked.begin)
    known = None if asked.no_past or past is None or not len(past) else past
    return LearnedSetup(weights=None if asked.weights is None else read(asked.weights), past=known)


def _shares(text: str) -> tuple[float, float]:
    """``0.7:1`` as two shares."""
    first, _, last = text.partition(":")
    try:
        found = float(first or 0), float(last or 1)
    except ValueError:
        found = math.nan, math.nan
    if not 0 <= found[0] < found[1] <= 1:
        remedy = "write two shares, for instance 0.7:1"
        raise InputError("must be two rising shares of 0 to 1", source="--part", value=text, remedy=remedy)
    return found


def _only_cpus(workload: JobWorkload) -> NDArray[np.bool_]:
    """(n,) which jobs run on CPUs and nothing else."""
    return np.array([kinds == (CPU,) for kinds in workload.device_kinds], np.bool_)[workload.runs_on]


def _can_run(workload: JobWorkload, site: JobSite, settings: ReplayRules, spans: Slowdown | None) -> NDArray[np.bool_]:
    """(n,) which jobs the engine will not refuse."""
    refused = shapes(workload, site, settings, spans or Slowdown.none(len(site.domains))).refused
    found = np.ones(len(workload), np.bool_)
    found[[job for job, _ in refused]] = False
    return found


def _offers(
    asked: JobsQuestion, workload: JobWorkload, site: JobSite, cluster: Cluster, progress: Progress
) -> OfferTable:
    """Sizes and shapes of the elastic jobs, planned on the cluster."""
    if not is_planned(site, cluster):
        remedy = "take a cluster of GPUs of the catalogue, or a trace without elastic jobs"
        raise InputError(
            "nobody can plan elastic jobs on it", source="--cluster", value=str(asked.cluster), remedy=remedy
        )
    first_use.prepare((planner(SPANNER),), progress=progress)
    return offer_table(cluster, workload.trainings, local_sgd=asked.allow_local_sgd, progress=progress)


def _stretched(
    workload: JobWorkload, site: JobSite, load: float | None, runs: NDArray[np.bool_], offers: OfferTable | None
) -> JobWorkload:
    """Arrivals as far apart as the load asks; jobs that the site cannot hold (not in ``runs``) do not count."""
    if load is None:
        return workload
    found = _offered_load(workload, site, runs, offers)
    if not 0 < found < math.inf:
        remedy = "leave out --load: the jobs arrive at one instant, or none can run"
        raise InputError("cannot be reached", source="--load", value=load, remedy=remedy)
    return workload.stretched(found / load)


def _offered_load(workload: JobWorkload, site: JobSite, runs: NDArray[np.bool_], offers: OfferTable | None) -> float:
    """Work that arrives over what the site can do, of the jobs that run (n,), on devices that are no CPUs (on all
    devices where there is nothing else)."""
    pools = tuple(pool for pool in site.pools if pool.kind != CPU) or site.pools
    counted = runs if pools == site.pools else runs & ~_only_cpus(workload)
    if not counted.any():
        return 0.0
    span_s = float(workload.arrival_s[-1] - workload.arrival_s[0])
    device_s = workload.duration_s * workload.devices if offers is None else offers.device_s(workload)
    work = float(device_s[counted].sum()) / sum(pool.devices * pool.speed for pool in pools)
    return work / span_s if span_s > 0 else math.inf


def _slowdown(
    workload: JobWorkload, cluster: Cluster, site: JobSite, settings: ReplayRules, progress: Progress, *, flows: bool
) -> Slowdown | None:
    """What spanning costs the kinds of jobs that may do so, and with ``flows`` what they send; None: nobody does."""
    kinds = kinds_that_span(workload, site, settings.span)
    if not kinds:
        return None
    first_use.prepare((planner(SPANNER),), progress=progress)
    return slowdown(cluster, kinds, exchanges=flows, progress=progress)


# ------------------------------------------------------------------------------------------------------------- generate
@dataclass(frozen=True)
class JobsDrawing:
    """After which trace or as which family jobs are drawn, how many, and what is drawn on top."""

    like: str | Path | None  # None: with a family, whose arrivals are drawn too
    out: str | Path  # .json or .csv, with .gz packed
    jobs: int | None = None  # None: as many as the trace has
    format: str | None = None  # of the trace; None: told by content
    deadlines: bool = False  # slack 1.2, 2 or 10
    priorities: bool = False  # 0, 1 and 2
    kinds: bool = False  # what jobs do: train, preprocess, predict, deploy
    data_gb: float = 0.0  # of this mean; needs a cluster
    cluster: str | Path | None = None  # whose domains hold the data; that the load of a family is for
    elastic: str | None = None  # family: elastic training among gangs, preparation and serving
    models: str | None = None  # of a family's elastic jobs, parted by commas; None: six from 1B to 70B
    load: float | None = None  # that a family's jobs are for the cluster; None: 0.9
    skip_bad: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)


def generate_jobs(drawing: JobsDrawing, *, progress: Progress | None = None) -> dict[str, Any]:
    """Draws a job trace of any length after a trace or as a family, and writes it: the document of ``hippo jobs
    generate --json``.

    Fitted: bursts by hour of the week and how uneven hours are, users, sizes, durations by size; ``ks``: how far what
    was drawn is from the trace. Raises ``InputError`` for a trace that is wrong or a file that cannot be written.
    """
    watch, out = progress or _unwatched, Path(drawing.out)
    check_ending(out)
    _check_drawing(drawing)
    domains = () if drawing.cluster is None else load_site(drawing.cluster)[0].domains
    if drawing.like is None:
        return _elastic(drawing, None, [], watch)
    mix = Mix(drawing.deadlines, drawing.priorities, drawing.kinds, drawing.data_gb, domains)
    watch("reading the trace", 0.0)
    trace = load_trace(Path(drawing.like), form=drawing.format, skip_bad=drawing.skip_bad)
    like, remarks = trace.workload, list(trace.remarks)
    alone = _only_cpus(like)
    if alone.any():  # drawn jobs name no kind of device, so cores would become GPUs
        left_out = f"left out {count(int(alone.sum()), 'job')}: no GPU is asked for, and drawn jobs are jobs on GPUs"
        like, remarks = like.take(~alone), [*remarks, left_out]
    fit = fitted(like, begin_s=trace.begin_s)
    if drawing.elastic is not None:
        return _elastic(drawing, fit, remarks, watch)
    watch("drawing", 0.3)
    rng = np.random.default_rng(drawing.seed)
    workload = mixed(generated(fit, len(like) if drawing.jobs is None else drawing.jobs, rng), mix, rng)
    watch("writing", 0.5)
    write_jobs(out, workload)
    told, drawn = moments(like), moments(workload)
    return {
        "like": str(drawing.like),
        "format": trace.format,
        "jobs": len(workload),
        "seed": drawing.seed,
        "out": str(out),
        "remarks": remarks,
        "moments": {name: {"trace": told[name], "drawn": drawn[name]} for name in told},
        "ks": distances(like, workload),
    }


def _check_drawing(drawing: JobsDrawing) -> None:
    """``InputError`` for options that do not go together."""
    stray = ("deadlines", "priorities", "kinds", "data_gb") if drawing.elastic else ("models", "load")
    given = next((name for name in stray if getattr(drawing, name)), None)
    if given is not None:
        option = f"--{given.replace('_', '-')}"
        problem = "is drawn with --elastic anyway" if drawing.elastic else "is for --elastic, which is not asked for"
        raise InputError(problem, source=option, value=getattr(drawing, given), remedy="leave it out")
    if drawing.elastic and drawing.cluster is None:
        raise InputError("nobody says for which site", source="--elastic", remedy="add --cluster")
    if not drawing.elastic and drawing.like is None:
        remedy = f"add --like TRACE, or --elastic {'|'.join(FAMILIES)}"
        raise InputError("neither a trace nor a family", source="--like", remedy=remedy)
    if drawing.jobs is not None and drawing.jobs < 1:
        raise InputError("must be 1 or more", source="--jobs", value=drawing.jobs, remedy="give a number of jobs")


def _elastic(drawing: JobsDrawing, like: TraceFit | None, remarks: list[str], watch: Progress) -> dict[str, Any]:
    """A family's jobs, written, and the document."""
    assert drawing.cluster is not None
    assert drawing.elastic is not None
    site, cluster = load_site(drawing.cluster)
    given = ElasticDraw(drawing.elastic, like=like)
    models = MODELS if drawing.models is None else tuple(filter(None, map(str.strip, drawing.models.split(","))))
    asked = replace(
        given,
        models=models,
        jobs=given.jobs if drawing.jobs is None else drawing.jobs,
        load=given.load if drawing.load is None else drawing.load,
    )
    watch("drawing", 0.3)
    rates = rough_tokens_per_s(cluster, usual_trainings(models))
    workload = elastic_workload(asked, np.random.default_rng(drawing.seed), site, rates)
    watch("writing", 0.8)
    write_jobs(drawing.out, workload)
    small = [f"left out {model}: too large for a job there" for model in models if model not in workload.models]
    return {
        "like": None if drawing.like is None else str(drawing.like),
        "family": asked.family,
        "load": asked.load,
        "jobs": len(workload),
        "seed": drawing.seed,
        "out": str(drawing.out),
        "remarks": [*remarks, *small],
        "moments": {name: {"drawn": value} for name, value in summary(workload).items()},
        "ks": {},
    }
