"""The options that ``plan``, ``compare`` and ``pareto`` share, and the problem they describe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hippo.cli.options import Json
from hippo.cli.output import check_folder
from hippo.cli.progress import Watch
from hippo.errors import InputError

if TYPE_CHECKING:
    from hippo.decide.decision import Decision
    from hippo.planners.base import Planner, Stop
    from hippo.problem.problem import Problem


@dataclass(frozen=True)
class Question:
    """A model, a cluster, what is wanted, and how long to look for it."""

    model: Annotated[
        str, typer.Option(metavar="CONFIG.json|NAME", help="Hugging Face config.json, or a catalogue name.")
    ]
    cluster: Annotated[str, typer.Option(metavar="CLUSTER.yaml|NAME", help="Cluster file, or a catalogue name.")]
    planner: Annotated[str, typer.Option(metavar="auto|NAME", help="Who plans; see 'hippo catalogue planners'.")] = (
        "auto"
    )
    objective: Annotated[
        str,
        typer.Option(metavar="time|cost|W1,W2,W3", help="What is best: step time, money, or weights of the reward."),
    ] = "time"
    global_batch: Annotated[int, typer.Option(metavar="N", help="Sequences per optimizer step.")] = 1024
    seq: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens per sequence.", show_default="4096, or the model's most")
    ] = None
    precision: Annotated[
        str | None,
        typer.Option(metavar="bf16|fp16|fp8|fp32", help="Number format of the training.", show_default="bf16"),
    ] = None
    runtime: Annotated[
        str, typer.Option(metavar="any|megatron|torch|deepspeed", help="Keep to what this runtime can express.")
    ] = "any"
    profile: Annotated[
        str | None, typer.Option(metavar="FILE", help="Measured layers (JSON), which overrule formulas.")
    ] = None
    uniform_cuts: Annotated[bool, typer.Option("--uniform-cuts", help="Cut into equal numbers of blocks only.")] = False
    allow_local_sgd: Annotated[
        bool, typer.Option("--allow-local-sgd", help="Let plans compete that average parameters every H steps.")
    ] = False
    balance_delta: Annotated[
        float | None, typer.Option(metavar="D", help="Most (longest - shortest) / mean of the domains' compute times.")
    ] = None
    bandwidth_floor: Annotated[
        float | None, typer.Option(metavar="GBPS", help="Cut only across links of at least this many Gbit/s.")
    ] = None
    time_limit: Annotated[float, typer.Option(metavar="S", help="Seconds that planning may take.")] = 10.0
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of whatever is random.")] = 0
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
            runtime=self.runtime,
            profile=self.profile,
            uniform_cuts=self.uniform_cuts,
            allow_local_sgd=self.allow_local_sgd,
            balance_delta=self.balance_delta,
            bandwidth_floor_gbps=self.bandwidth_floor,
        )

    def planners(self) -> tuple[Planner, ...]:
        """Those that --planner names (several with commas), or all that compete when nobody is named."""
        from hippo.registry import AUTO, planners

        return planners(AUTO if self.planner == "auto" else [name.strip() for name in self.planner.split(",")])

    def stop(self) -> Stop:
        """When to stop looking."""
        from hippo.planners.base import Stop

        if not 0 < self.time_limit <= 86_400:
            raise InputError(
                "must be above 0 and at most 86400 seconds",
                source="--time-limit",
                value=self.time_limit,
                remedy="give a number of seconds, for instance 10",
            )
        return Stop(time_limit_s=self.time_limit)

    def answer(self, verb: Callable[..., Decision], title: str) -> Decision:
        """What ``decide.choose.decide`` or ``compare`` says, with progress under ``title`` on stderr."""
        from hippo.registry import LOCAL_SGD, USUAL, planner, planners

        if self.out is not None:
            check_folder(self.out)
        problem, stop, asked = self.problem(), self.stop(), self.planners()
        usual, local_sgd = planners(USUAL), planner(LOCAL_SGD)
        with Watch(title) as watch:
            return verb(problem, asked, stop, baseline=usual, local_sgd=local_sgd, seed=self.seed, progress=watch)
