"""The options that ``plan``, ``compare`` and ``pareto`` share, and the problem they describe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from hippo.cli.options import (
    AllowCompression,
    AllowLocalSgd,
    AllReduce,
    Dispatcher,
    GlobalBatch,
    Json,
    ModelName,
    OuterStepText,
    PlannedRuntime,
    Planner,
    Precision,
    ProfileFile,
    RoutingText,
    Seed,
    Seq,
    TimeLimit,
    stop_after,
)
from hippo.cli.output import check_folder, mention
from hippo.cli.progress import Watch

if TYPE_CHECKING:
    from hippo.problem.problem import Problem

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Question:
    """A model, a cluster, what is wanted, and how long to look for it."""

    model: ModelName
    cluster: Annotated[str, typer.Option(metavar="CLUSTER.yaml|NAME", help="Cluster file, or a catalogue name.")]
    planner: Planner = "auto"
    objective: Annotated[
        str,
        typer.Option(metavar="time|cost|W1,W2,W3", help="What is best: step time, money, or weights of the reward."),
    ] = "time"
    global_batch: GlobalBatch = 1024
    seq: Seq = None
    precision: Precision = None
    routing: RoutingText = "even"
    dispatcher: Dispatcher = "alltoall"
    runtime: PlannedRuntime = "auto"
    all_reduce: AllReduce = "auto"
    profile: ProfileFile = None
    uniform_cuts: Annotated[bool, typer.Option("--uniform-cuts", help="Cut into equal numbers of blocks only.")] = False
    allow_local_sgd: AllowLocalSgd = False
    outer_step: OuterStepText = None
    allow_compression: AllowCompression = False
    balance_delta: Annotated[
        float | None, typer.Option(metavar="D", help="Most (longest - shortest) / mean of the domains' compute times.")
    ] = None
    bandwidth_floor: Annotated[
        float | None, typer.Option(metavar="GBPS", help="Cut only across links of at least this many Gbit/s.")
    ] = None
    time_limit: TimeLimit = 10.0
    seed: Seed = 0
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write plan.json, report.html and trace.json there.")
    ] = None
    json: Json = False

    def problem(self) -> Problem:
        """Everything a planner may look at; ``InputError`` names the option or the file's key that is wrong."""
        from hippo.problem.load import load_problem

        return load_problem(
            model=self.model,
            cluster=self.cluster,
            objective=self.objective,
            global_batch=self.global_batch,
            seq=self.seq,
            precision=self.precision,
            routing=self.routing,
            dispatcher=self.dispatcher,
            runtime=self.runtime,
            all_reduce=self.all_reduce,
            profile=self.profile,
            uniform_cuts=self.uniform_cuts,
            allow_local_sgd=self.allow_local_sgd,
            outer_step=self.outer_step,
            allow_compression=self.allow_compression,
            balance_delta=self.balance_delta,
            bandwidth_floor_gbps=self.bandwidth_floor,
        )

    def answer(self, verb: Callable[..., Answer], title: str) -> Answer:
        """What a verb of the front door (``plan``, ``compare``) says, with progress under ``title`` on stderr."""
        if self.out is not None:
            check_folder(self.out)
        problem, stop = self.problem(), stop_after(self.time_limit)
        if problem.workload.seq > problem.model.max_seq:
            mention(
                f"sequences of {problem.workload.seq:,} tokens: {problem.model.name} has a context of "
                f"{problem.model.max_seq:,}"
            )
        with Watch(title) as watch:
            return verb(problem, stop, planner=self.planner, seed=self.seed, progress=watch)
