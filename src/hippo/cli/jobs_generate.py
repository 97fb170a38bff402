"""``hippo jobs generate``: a trace of any length drawn after a trace, in hippo's own form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hippo.cli.jobs_question import Form, SkipBad, only_cpus
from hippo.cli.options import Json, Seed, takes
from hippo.cli.output import mention, print_document, print_view
from hippo.cli.progress import Watch
from hippo.errors import InputError

if TYPE_CHECKING:
    from hippo.jobs.workload import JobWorkload


@dataclass(frozen=True)
class Drawing:
    """After which trace, how many jobs, and what is drawn on top."""

    like: Annotated[Path, typer.Option(metavar="TRACE", help="Job trace that the generator is fitted to.")]
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write: .json or .csv, with .gz packed.")]
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Jobs to draw.", show_default="the trace's")] = None
    format: Form = None
    deadlines: Annotated[bool, typer.Option("--deadlines", help="Draw deadlines: slack 1.2, 2 or 10.")] = False
    priorities: Annotated[bool, typer.Option("--priorities", help="Draw priorities 0, 1 and 2.")] = False
    kinds: Annotated[bool, typer.Option("--kinds", help="Draw what jobs do: train, preprocess, predict, deploy.")] = (
        False
    )
    data_gb: Annotated[float, typer.Option(metavar="GB", help="Draw data of this mean; needs --cluster.")] = 0.0
    cluster: Annotated[str | None, typer.Option(metavar="CLUSTER.yaml|NAME", help="Whose domains hold the data.")] = (
        None
    )
    skip_bad: SkipBad = False
    seed: Seed = 0
    json: Json = False


@takes(Drawing)
def generate(drawing: Drawing) -> None:
    """A job trace of any length, drawn after a trace.

    Fitted: bursts by hour of the week and how uneven hours are, users, sizes, durations by size. How far what was drawn
    is from the trace is printed as Kolmogorov-Smirnov distances.
    """
    from hippo.jobs.traces.mix import Mix
    from hippo.jobs.traces.own import check_ending

    check_ending(drawing.out)
    if drawing.jobs is not None and drawing.jobs < 1:
        raise InputError("must be 1 or more", source="--jobs", value=drawing.jobs, remedy="give a number of jobs")
    mix = Mix(drawing.deadlines, drawing.priorities, drawing.kinds, drawing.data_gb, _domains(drawing.cluster))
    with Watch("drawing jobs") as progress:
        document = _drawn(drawing, mix, progress)
    mention(f"wrote {document['jobs']:,} jobs to {drawing.out}")
    if drawing.json:
        print_document(document)
    else:
        from hippo.report.fitted import names_view

        print_view(names_view("figures", [{"name": name, **pair} for name, pair in document["moments"].items()]))
        far = [{"name": name, "distance": value} for name, value in document["ks"].items()]
        print_view(names_view("KS distances", far))


def _domains(cluster: str | None) -> tuple[str, ...]:
    from hippo.jobs.site_file import load_site

    return () if cluster is None else load_site(cluster)[0].domains


def _on_gpus(workload: JobWorkload) -> JobWorkload:
    """The jobs without those on CPUs alone: drawn jobs name no kind of device, so cores would become GPUs."""
    from hippo.decide.wording import count

    alone = only_cpus(workload)
    if not alone.any():
        return workload
    mention(f"left out {count(int(alone.sum()), 'job')}: no GPU is asked for, and drawn jobs are jobs on GPUs")
    return workload.take(~alone)


def _drawn(drawing: Drawing, mix: Any, progress: Watch) -> dict[str, Any]:
    """Reads, fits, draws and writes; the document of ``--json``."""
    import numpy as np

    from hippo.jobs.traces.generate import distances, fitted, generated, moments
    from hippo.jobs.traces.load import load_trace
    from hippo.jobs.traces.mix import mixed
    from hippo.jobs.traces.own import write_jobs

    progress("reading the trace", 0.0)
    trace = load_trace(drawing.like, form=drawing.format, skip_bad=drawing.skip_bad)
    for remark in trace.remarks:
        mention(remark)
    like = _on_gpus(trace.workload)
    fit = fitted(like, begin_s=trace.begin_s)
    progress("drawing", 0.3)
    rng = np.random.default_rng(drawing.seed)
    number = len(like) if drawing.jobs is None else drawing.jobs
    workload = mixed(generated(fit, number, rng), mix, rng)
    progress("writing", 0.5)
    write_jobs(drawing.out, workload)
    told, drawn = moments(like), moments(workload)
    far = distances(like, workload)
    return {
        "like": str(drawing.like),
        "format": trace.format,
        "jobs": len(workload),
        "seed": drawing.seed,
        "out": str(drawing.out),
        "moments": {name: {"trace": told[name], "drawn": drawn[name]} for name in told},
        "ks": far,
    }
