"""``hippo estimate``: one layout in one data centre: time, memory, MFU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from hippo.cli.options import Json, takes
from hippo.errors import InputError

if TYPE_CHECKING:
    from hippo.planners.by_hand import Degrees
    from hippo.problem.problem import Problem


@dataclass(frozen=True)
class Choice:
    """The model, the GPU, and the layout's degrees."""

    model: Annotated[
        str, typer.Option(metavar="CONFIG.json|NAME", help="Hugging Face config.json, or a catalogue name.")
    ]
    gpu: Annotated[str, typer.Option(metavar="NAME", help="GPU type; see 'hippo catalogue gpus'.")]
    tp: Annotated[int, typer.Option(help="Tensor-parallel degree.")] = 1
    dp: Annotated[int, typer.Option(help="Data-parallel degree.")] = 1
    pp: Annotated[int, typer.Option(help="Pipeline stages.")] = 1
    cp: Annotated[int, typer.Option(help="Context-parallel degree.")] = 1
    ep: Annotated[int, typer.Option(help="Expert-parallel degree.")] = 1
    micro_batch: Annotated[int, typer.Option(help="Sequences per micro-batch and data-parallel rank.")] = 1
    interleave: Annotated[int, typer.Option(help="Model chunks per stage.")] = 1
    schedule: Annotated[
        str | None, typer.Option(metavar="NAME", help="gpipe, 1f1b or interleaved.", show_default="1f1b")
    ] = None
    recompute: Annotated[str, typer.Option(metavar="none|selective|full", help="Activations computed again.")] = "none"
    sharding: Annotated[
        str, typer.Option(metavar="none|optimizer|gradients|full|hybrid", help="State divided among lanes.")
    ] = "none"
    sequence_parallel: Annotated[bool, typer.Option(help="Sequence parallelism among tensor-parallel ranks.")] = True
    global_batch: Annotated[int, typer.Option(metavar="N", help="Sequences per optimizer step.")] = 1024
    seq: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens per sequence.", show_default="4096, or the model's most")
    ] = None
    precision: Annotated[
        str | None,
        typer.Option(metavar="bf16|fp16|fp8|fp32", help="Number format of the training.", show_default="bf16"),
    ] = None
    profile: Annotated[
        str | None, typer.Option(metavar="FILE", help="Measured layers (JSON), which overrule formulas.")
    ] = None
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of a node.")] = 8
    node_gbps: Annotated[
        float | None,
        typer.Option(help="Network of a node, one direction, Gbit/s.", show_default="the GPU type's usual"),
    ] = None
    json: Json = False

    def degrees(self) -> Degrees:
        """The layout's degrees."""
        from dataclasses import fields

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
            profile=self.profile,
        )


@takes(Choice)
def estimate(choice: Choice) -> None:
    """One layout in one data centre: time, memory, MFU."""
    from hippo.cost.cost_model import CostModel
    from hippo.plan.check import check
    from hippo.planners.by_hand import one_layout
    from hippo.score.evaluate import evaluate, memory, stage_costs

    degrees = choice.degrees()
    problem = choice.problem(degrees.gpus)
    plan = one_layout(problem, degrees)
    refuse_violations(check(problem, plan), source="the options")
    score, costs, memories = evaluate(problem, plan), stage_costs(problem, plan), memory(problem, plan)
    usable = CostModel(problem).usable_memory_bytes()
    fits = all(item.peak_bytes <= usable for item in memories)
