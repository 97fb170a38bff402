"""What ``hippo jobs replay`` asks: the trace, the part of it, the site, and the rules."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hippo.cli.options import Seed
from hippo.cli.progress import Watch
from hippo.errors import InfeasibleError, InputError, UnknownNameError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hippo.jobs.account import ReplayAccount
    from hippo.jobs.learned.state import LearnedSetup
    from hippo.jobs.placement.slowdown import Slowdown
    from hippo.jobs.policies.policy import QueuePolicy
    from hippo.jobs.settings import Failures, ReplayRules
    from hippo.jobs.site import JobSite
    from hippo.jobs.traces.load import JobTrace
    from hippo.jobs.workload import JobWorkload
    from hippo.problem.cluster import Cluster

TraceFile = Annotated[Path, typer.Argument(metavar="TRACE", help="Job trace (a file, packed or not; PAI: the folder).")]
Form = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="philly|helios|pai|gavel|swf|own", help="Form of the trace.", show_default="told by content"
    ),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Pass over wrong rows, and count them.")]
LEAST_LOAD, MOST_LOAD, MOST_CPUS = 0.001, 1000.0, 10_000
CPU = "cpu"
USUAL = "usual"  # volume of data: that of the kind of job
OWN = "own"  # form of traces in which a job without a kind of device may run on any
SPANNER = "exact"  # who plans jobs over several domains


@dataclass(frozen=True)
class Question:
    """Trace, site and rules."""

    trace: TraceFile
    cluster: Annotated[
        str, typer.Option(metavar="CLUSTER.yaml|NAME", help="Cluster file, file of agents, or a catalogue name.")
    ]
    format: Form = None
    begin: Annotated[float | None, typer.Option("--from", metavar="S", help="Jobs from this time of the trace on.")] = (
        None
    )
    end: Annotated[float | None, typer.Option("--to", metavar="S", help="Jobs before this time.")] = None
    part: Annotated[
        str | None, typer.Option(metavar="A:B", help="Part of the trace's time, as shares: .7:1 is the last 30 %.")
    ] = None
    load: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Stretch the arrivals to this load of the site.")
    ] = None
    span: Annotated[
        str, typer.Option(metavar="never|must|free", help="Jobs over several domains: must = only the too large.")
    ] = "must"
    data: Annotated[str, typer.Option(metavar="before|while", help="Data move before a job runs, or meanwhile.")] = (
        "while"
    )
    data_gb: Annotated[
        str | None,
        typer.Option(metavar="GB|usual", help="Data per device, for jobs whose trace tells none; usual: by kind."),
    ] = None
    cpus_per_node: Annotated[int, typer.Option(metavar="N", help="CPU cores per node, for jobs without GPUs.")] = 0
    restart_s: Annotated[float, typer.Option(metavar="S", help="Time that a resumption takes after a stop.")] = 30.0
    mtbf_h: Annotated[
        float | None, typer.Option(metavar="H", help="Hours between failures of one node; left out: none fail.")
    ] = None
    repair_h: Annotated[float, typer.Option(metavar="H", help="Hours that a failed node is away.")] = 1.0
    no_past: Annotated[
        bool, typer.Option("--no-past", help="Policies that learn do not know the trace before the part.")
    ] = False
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Weights of learned.", show_default="the shipped ones")
    ] = None
    skip_bad: SkipBad = False
    seed: Seed = 0


def check_options(wanted: Question) -> None:
    """``InputError`` for numbers out of range and options that contradict each other."""
    if wanted.part is not None and (wanted.begin is not None or wanted.end is not None):
        raise InputError(
            "two ways to choose a part", source="--part", value=wanted.part, remedy="leave out one of them"
        )
    for option, value in (("--from", wanted.begin), ("--to", wanted.end)):
        if value is not None and math.isnan(value):
            raise InputError("must be a number", source=option, value=value, remedy="give seconds of the trace")
    if wanted.begin is not None and wanted.end is not None and wanted.end <= wanted.begin:
        raise InputError("must lie behind --from", source="--to", value=wanted.end, remedy="give a later time")
    if wanted.load is not None and not LEAST_LOAD <= wanted.load <= MOST_LOAD:
        problem, remedy = f"must be from {LEAST_LOAD:g} to {MOST_LOAD:g}", "give a share, for instance 0.7"
        raise InputError(problem, source="--load", value=wanted.load, remedy=remedy)
    if not 0 <= wanted.cpus_per_node <= MOST_CPUS:
        remedy = "give a number of cores, for instance 64"
        raise InputError(
            f"must be from 0 to {MOST_CPUS}", source="--cpus-per-node", value=wanted.cpus_per_node, remedy=remedy
        )
    for option, hours in (("--mtbf-h", wanted.mtbf_h), ("--repair-h", wanted.repair_h)):
        if hours is not None and not 0 < hours < math.inf:
            raise InputError("must be above 0", source=option, value=hours, remedy="give hours, for instance 24")
    _rules(wanted)


def policies_named(names: str, *, everyone: bool) -> tuple[QueuePolicy, ...]:
    """Policies by name, parted by commas, each once; ``everyone``: all the others behind them."""
    from hippo.registry import JOB_POLICIES, load

    chosen = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not chosen:
        raise UnknownNameError("policy", names, JOB_POLICIES, source="--policy")
    found: list[QueuePolicy] = [load(JOB_POLICIES, "policy", name, source="--policy") for name in chosen]
    if any(policy.learns for policy in found) and not _trained():
        remedy = "train one with 'hippo train --config configs/algo/jobs.yaml', or name another policy"
        raise InputError("this installation has no trained policy", source="--policy", value=names, remedy=remedy)
    others = [name for name in JOB_POLICIES if name not in chosen] if everyone else []
    more: list[QueuePolicy] = [load(JOB_POLICIES, "policy", name) for name in others]
    return (*found, *(policy for policy in more if _trained() or not policy.learns))


def _trained() -> bool:
    """Whether the weights of the learned policy are there."""
    from importlib.resources import files

    return (files("hippo.jobs.learned") / "jobs.npz").is_file()


def asked(wanted: Question) -> ReplayAccount:
    """The workload on its site, ready to be played."""
    from hippo.decide.wording import count
    from hippo.jobs.account import ReplayAccount
    from hippo.jobs.site_file import is_planned, load_site
    from hippo.jobs.traces.load import load_trace

    agents, cluster = load_site(wanted.cluster)
    site = with_cpus(agents, wanted.cpus_per_node)
    settings = _rules(wanted)
    with Watch("reading the trace"):
        trace = load_trace(wanted.trace, form=wanted.format, skip_bad=wanted.skip_bad)
    workload, left_out = _chosen(wanted, trace, site)
    with Watch("planning jobs that span domains") as progress:
        planned = is_planned(agents, cluster)  # spans of other devices than the catalogue's GPUs nobody can plan
        slowdown = _slowdown(workload, cluster, site, settings, progress) if planned else None
    runs = _can_run(workload, site, settings, slowdown)
    workload = _stretched(workload, site, wanted.load, runs)
    read = f"read {count(len(trace.workload), 'job')} of {wanted.trace.name} (format {trace.format})"
    return ReplayAccount(
        source=str(wanted.trace),
        trace=trace,
        workload=workload,
        cluster=cluster,
        site=site,
        settings=settings,
        slowdown=slowdown,
        load=offered_load(workload, site, runs),
        left_out=left_out,
        learner=_learner(wanted, trace),
        remarks=(
            read,
            *trace.remarks,
            *(f"left out {count(number, 'job')}: {why}" for why, number in left_out.items()),
        ),
    )


def with_cpus(site: JobSite, cores: int) -> JobSite:
    """The site with so many CPU cores in every node, as one more pool per domain."""
    from hippo.jobs.site import DevicePool

    if not cores:
        return site
    more = tuple(DevicePool(pool.domain, CPU, pool.nodes, cores) for pool in site.pools)
    return replace(site, pools=(*site.pools, *more))


def _rules(wanted: Question) -> ReplayRules:
    from hippo.jobs.settings import DATA, SPANS, ReplayRules

    for option, value, known in (("--span", wanted.span, SPANS), ("--data", wanted.data, DATA)):
        if value not in known:
            raise UnknownNameError("choice", value, known, source=option)
    return ReplayRules(
        restart_s=wanted.restart_s, span=wanted.span, data=wanted.data, failures=_failures(wanted), seed=wanted.seed
    )


def _failures(wanted: Question) -> Failures | None:
    from hippo.jobs.settings import Failures
    from hippo.units import SECONDS_PER_HOUR

    if wanted.mtbf_h is None:
        return None
    return Failures(wanted.mtbf_h * SECONDS_PER_HOUR, repair_s=wanted.repair_h * SECONDS_PER_HOUR)


# --------------------------------------------------------------------------------------------------------- the workload
def _chosen(wanted: Question, trace: JobTrace, site: JobSite) -> tuple[JobWorkload, dict[str, int]]:
    """The part that is asked for; jobs that only want CPUs are left out where there are none."""
    from hippo.jobs.placement.data import with_data

    workload, left_out = trace.workload, {}
    if wanted.part is not None:
        workload = workload.part(*_shares(wanted.part))
    elif wanted.begin is not None or wanted.end is not None:
        end_s = math.inf if wanted.end is None else wanted.end
        workload = workload.between(-math.inf if wanted.begin is None else wanted.begin, end_s)
    if not len(workload):
        span_s = float(trace.workload.arrival_s[-1])
        problem = "no job arrives in that part"
        raise InputError(problem, source=str(wanted.trace), remedy=f"choose from 0 to {span_s:g} s")
    alone = only_cpus(workload) if CPU not in site.kinds else None
    if alone is not None and alone.any():
        left_out["no GPU is asked for, and the site has no CPUs (give it some with --cpus-per-node)"] = int(alone.sum())
        workload = workload.take(~alone)
        if not len(workload):
            raise InfeasibleError(["All of these jobs take CPUs only; give the site some with --cpus-per-node."])
    workload = _known_by_alias(workload, site)
    if wanted.cpus_per_node or trace.format != OWN:
        workload = _on_gpus(workload, site)
    if wanted.data_gb is not None:
        workload = with_data(workload, site, _volume(wanted.data_gb))
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
    from hippo.problem.gpus import ALIASES

    other = {name: full for name, full in ALIASES.items() if full in site.kinds and name not in site.kinds}
    named = tuple(tuple(dict.fromkeys(other.get(kind, kind) for kind in kinds)) for kinds in workload.device_kinds)
    return replace(workload, device_kinds=named)


def _on_gpus(workload: JobWorkload, site: JobSite) -> JobWorkload:
    """Jobs that name no kind of device asked for GPUs: they run on all that the site has but CPUs."""
    others = tuple(kind for kind in site.kinds if kind != CPU)
    if not others or CPU not in site.kinds:
        return workload
    return replace(workload, device_kinds=tuple(kinds or others for kinds in workload.device_kinds))


def _learner(wanted: Question, trace: JobTrace) -> LearnedSetup:
    """What a policy that learns begins with: weights, and the trace before the part."""
    from hippo.jobs.learned.state import LearnedSetup
    from hippo.jobs.learned.weights import read

    past: JobWorkload | None = None
    if wanted.part is not None:
        past = trace.workload.part(0.0, _shares(wanted.part)[0])
    elif wanted.begin is not None:
        past = trace.workload.between(-math.inf, wanted.begin)
    known = None if wanted.no_past or past is None or not len(past) else past
    return LearnedSetup(weights=None if wanted.weights is None else read(wanted.weights), past=known)


def _shares(text: str) -> tuple[float, float]:
    """``.7:1`` as two shares."""
    first, _, last = text.partition(":")
    try:
        found = float(first or 0), float(last or 1)
    except ValueError:
        found = math.nan, math.nan
    if not 0 <= found[0] < found[1] <= 1:
        remedy = "write two shares, for instance .7:1"
        raise InputError("must be two rising shares of 0 to 1", source="--part", value=text, remedy=remedy)
    return found


def only_cpus(workload: JobWorkload) -> NDArray[np.bool_]:
    """(n,) which jobs run on CPUs and nothing else."""
    import numpy as np

    return np.array([kinds == (CPU,) for kinds in workload.device_kinds], np.bool_)[workload.runs_on]


def _can_run(
    workload: JobWorkload, site: JobSite, settings: ReplayRules, slowdown: Slowdown | None
) -> NDArray[np.bool_]:
    """(n,) which jobs the engine will not refuse."""
    import numpy as np

    from hippo.jobs.engine.shapes import shapes
    from hippo.jobs.placement.slowdown import Slowdown

    refused = shapes(workload, site, settings, slowdown or Slowdown.none(len(site.domains))).refused
    found = np.ones(len(workload), np.bool_)
    found[[job for job, _ in refused]] = False
    return found


def _stretched(workload: JobWorkload, site: JobSite, load: float | None, runs: NDArray[np.bool_]) -> JobWorkload:
    """Arrivals as far apart as the load asks; jobs that the site cannot hold (not in ``runs``) do not count."""
    if load is None:
        return workload
    found = offered_load(workload, site, runs)
    if not 0 < found < math.inf:
        remedy = "leave out --load: the jobs arrive at one instant, or none can run"
        raise InputError("cannot be reached", source="--load", value=load, remedy=remedy)
    return workload.stretched(found / load)


def offered_load(workload: JobWorkload, site: JobSite, runs: NDArray[np.bool_]) -> float:
    """Work that arrives over what the site can do, of the jobs that run (n,), on devices that are no CPUs (on all
    devices where there is nothing else)."""
    from hippo.jobs.site import JobSite

    pools = tuple(pool for pool in site.pools if pool.kind != CPU) or site.pools
    plain = JobSite(pools, site.bandwidth_bytes_per_s, site.latency_s, site.name)
    counted = runs if pools == site.pools else runs & ~only_cpus(workload)
    if not counted.any():
        return 0.0
    span_s = float(workload.arrival_s[-1] - workload.arrival_s[0])
    work = float((workload.duration_s * workload.devices)[counted].sum()) / plain.capacity
    return work / span_s if span_s > 0 else math.inf


def _slowdown(
    workload: JobWorkload, cluster: Cluster, site: JobSite, settings: ReplayRules, progress: Watch
) -> Slowdown | None:
    """What spanning costs the kinds of jobs that may do so; None: nobody does."""
    from hippo.first_use import prepare
    from hippo.jobs.placement.slowdown import kinds_that_span
    from hippo.jobs.placement.step_time import slowdown
    from hippo.registry import planner

    kinds = kinds_that_span(workload, site, settings.span)
    if not kinds:
        return None
    prepare((planner(SPANNER),), progress=progress)
    return slowdown(cluster, kinds, progress=progress)
