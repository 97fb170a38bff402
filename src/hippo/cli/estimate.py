"""``hippo estimate``: one layout in one data centre: time, memory, MFU."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Annotated

import typer

from hippo.cli.options import (
    Dispatcher,
    GlobalBatch,
    Json,
    ModelName,
    Precision,
    ProfileFile,
    RoutingText,
    RuntimeName,
    Seq,
    takes,
)
from hippo.cli.output import finish, print_document, print_view, say
from hippo.cli.plan_file import refuse
from hippo.errors import InputError

if TYPE_CHECKING:
    from hippo.cost.stage import StageCost, StageMemory
    from hippo.plan.plan import Plan
    from hippo.planners.by_hand import Degrees
    from hippo.problem.problem import Problem
    from hippo.score.score import Score


@dataclass(frozen=True)
class Choice:
    """The model, the GPU, and the layout's degrees."""

    model: ModelName
    gpu: Annotated[str, typer.Option(metavar="NAME", help="GPU type; see 'hippo catalogue gpus'.")]
    tp: Annotated[int, typer.Option(help="Tensor-parallel degree.")] = 1
    dp: Annotated[int, typer.Option(help="Data-parallel degree.")] = 1
    pp: Annotated[int, typer.Option(help="Pipeline stages.")] = 1
    cp: Annotated[int, typer.Option(help="Context-parallel degree.")] = 1
    ep: Annotated[int, typer.Option(help="Expert-parallel degree.")] = 1
    etp: Annotated[
        int | None, typer.Option(help="Ranks that each expert is cut over.", show_default="as many as --tp")
    ] = None
    micro_batch: Annotated[int, typer.Option(help="Sequences per micro-batch and data-parallel rank.")] = 1
    interleave: Annotated[int, typer.Option(help="Model chunks per stage.")] = 1
    schedule: Annotated[
        str | None, typer.Option(metavar="NAME", help="gpipe, 1f1b or interleaved.", show_default="1f1b")
    ] = None
    recompute: Annotated[
        str,
        typer.Option(
            metavar="none|selective|full|full:N|MODULE+..",
            help="Activations computed again; full:4: four layers.",
        ),
    ] = "none"
    sharding: Annotated[
        str,
        typer.Option(
            metavar="none|optimizer|optimizer-across|gradients|full|hybrid", help="State divided among lanes."
        ),
    ] = "none"
    overlap_exchange: Annotated[bool, typer.Option(help="Experts' exchange beside another micro-batch's work.")] = False
    sequence_parallel: Annotated[bool, typer.Option(help="Sequence parallelism among tensor-parallel ranks.")] = True
    global_batch: GlobalBatch = 1024
    seq: Seq = None
    precision: Precision = None
    routing: RoutingText = "even"
    dispatcher: Dispatcher = "alltoall"
    runtime: RuntimeName = "ideal"
    profile: ProfileFile = None
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of a node.")] = 8
    node_gbps: Annotated[
        float | None,
        typer.Option(help="Network of a node, one direction, Gbit/s.", show_default="the GPU type's usual"),
    ] = None
    json: Json = False

    def degrees(self) -> Degrees:
        """The layout's degrees."""
        from hippo.planners.by_hand import Degrees

        return Degrees(**{field.name: getattr(self, field.name) for field in fields(Degrees)})

    def problem(self, gpus: int) -> Problem:
        """The model on one data centre of just enough nodes."""
        from hippo.planners.by_hand import site
        from hippo.problem.load import load_problem

        if not 1 <= self.gpus_per_node <= 1024:
            remedy = "give the number of GPUs in a node, for instance 8"
            raise InputError(
                "must be from 1 to 1024", source="--gpus-per-node", value=self.gpus_per_node, remedy=remedy
            )
        return load_problem(
            model=self.model,
            cluster=site(self.gpu, gpus, gpus_per_node=self.gpus_per_node, inter_node_gbps=self.node_gbps),
            global_batch=self.global_batch,
            seq=self.seq,
            precision=self.precision,
            routing=self.routing,
            dispatcher=self.dispatcher,
            runtime=self.runtime,
            profile=self.profile,
        )


@takes(Choice)
def estimate(choice: Choice) -> None:
    """One layout in one data centre: time, memory, MFU."""
    from hippo.plan.check import check
    from hippo.planners.by_hand import one_layout

    degrees = choice.degrees()
    problem = choice.problem(degrees.gpus)
    plan = one_layout(problem, degrees)
    refuse(check(problem, plan), source="the options")
    figures = _figures(problem, plan)
    reasons = _shortfall(choice, degrees, figures)
    if choice.json:
        print_document({**figures.document(problem, plan), "reasons": reasons})
    else:
        _show(problem, plan, figures)
        for reason in reasons:
            say(reason)
    finish(feasible=figures.fit)


@dataclass(frozen=True)
class Figures:
    """Score of a layout, time and memory of each stage in pipeline order, and what a plan may use of one GPU."""

    score: Score
    costs: tuple[StageCost, ...]
    memories: tuple[StageMemory, ...]
    usable_bytes: float

    @property
    def fit(self) -> bool:
        """Whether every stage fits."""
        return self.missing_bytes <= 0

    @property
    def missing_bytes(self) -> float:
        """Bytes that the fullest GPU lacks."""
        return max(memory.peak_bytes for memory in self.memories) - self.usable_bytes

    def document(self, problem: Problem, plan: Plan) -> dict[str, object]:
        """The ``estimate --json`` document."""
        from hippo.cost.calibration import uncalibrated
        from hippo.problem.problem import told_runtime
        from hippo.score.interval import interval_document, interval_of

        found = interval_of(problem, plan, self.score.step_time_s, in_one_place=True)
        return {
            "status": "feasible" if self.fit else "infeasible",
            "model": problem.model.name,
            "gpu": problem.cluster.gpu.name,
            "gpus": problem.cluster.gpus,
            "score": asdict(self.score),
            **interval_document(found),
            "fits": self.fit,
            "usable_bytes": self.usable_bytes,
            "missing_bytes": max(self.missing_bytes, 0.0),
            "stages": [asdict(cost) for cost in self.costs],
            "memory": [{**asdict(memory), "peak_bytes": memory.peak_bytes} for memory in self.memories],
            "uncalibrated": uncalibrated(problem),
            **told_runtime(problem),
        }


def _figures(problem: Problem, plan: Plan) -> Figures:
    from hippo.score.judge import evaluate, memory
    from hippo.simulate.costs import cost_model, layout

    cost = cost_model(problem)
    (pipeline,) = plan.pipelines
    costs = tuple(cost.stage(stage.domain, *stage.layers, layout(plan, pipeline, stage)) for stage in pipeline.stages)
    return Figures(evaluate(problem, plan), costs, memory(problem, plan), cost.usable_memory_bytes())


def _show(problem: Problem, plan: Plan, figures: Figures) -> None:
    from hippo.report.terminal import figures_view, memory_view, question_view, stages_view

    print_view(question_view(problem))
    print_view(figures_view(problem, plan, figures.score, in_one_place=True))
    print_view(stages_view(plan, figures.costs))
    print_view(memory_view(plan, figures.memories, gpu_bytes=figures.usable_bytes))


def _shortfall(choice: Choice, degrees: Degrees, figures: Figures) -> list[str]:
    """What is missing and the nearest change that fits, in sentences; nothing where the layout fits."""
    from hippo.planners.by_hand import as_options, nearest_change
    from hippo.units import gb_from_bytes

    if figures.fit:
        return []
    usable, missing = gb_from_bytes(figures.usable_bytes), gb_from_bytes(figures.missing_bytes)
    sentences = [
        f"infeasible: the fullest GPU needs {missing:.1f} GB more than the {usable:.1f} GB that a plan may use."
    ]
    nearest = nearest_change(degrees, lambda other: _fits(choice, other))
    if nearest is None:
        return [*sentences, "No layout on up to 64 times the GPUs fits."]
    return [*sentences, f"Nearest that fits, on {nearest.gpus} GPUs: {as_options(nearest, degrees)}."]


def _fits(choice: Choice, degrees: Degrees) -> bool:
    from hippo.plan.check import check
    from hippo.planners.by_hand import one_layout
    from hippo.score.judge import fits

    problem = choice.problem(degrees.gpus)
    try:
        plan = one_layout(problem, degrees)
    except InputError:  # the batch or the blocks are not dealt evenly so
        return False
    return not check(problem, plan) and fits(problem, plan)
