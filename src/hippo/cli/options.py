"""Options as data: a command's options are the fields of one frozen dataclass, and its body takes one of those.

    @dataclass(frozen=True)
    class Options:
        plan: Annotated[Path, typer.Argument(help="plan file")]
        seed: Annotated[int, typer.Option(help="seed")] = 0

    @takes(Options)
    def simulate(options: Options) -> None: ...

So that commands with the same arguments share one class, and no function has a dozen parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from hippo.cli.output import Loudness, set_loudness
from hippo.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from hippo.planners.base import Stop

T = TypeVar("T", bound="DataclassInstance")
LONGEST_S = 86_400

ModelName = Annotated[
    str, typer.Option("--model", metavar="CONFIG.json|NAME", help="Hugging Face config.json, or a catalogue name.")
]
GlobalBatch = Annotated[int, typer.Option(metavar="N", help="Sequences per optimizer step.")]
Seq = Annotated[
    int | None, typer.Option(metavar="N", help="Tokens per sequence.", show_default="4096, or the model's most")
]
Precision = Annotated[
    str | None, typer.Option(metavar="bf16|fp16|fp8|fp32", help="Number format of the training.", show_default="bf16")
]
RuntimeName = Annotated[
    str,
    typer.Option(metavar="hippo|megatron|torch|deepspeed|ideal", help="What will run it; ideal: nothing does."),
]
PlannedRuntime = Annotated[
    str,
    typer.Option(
        metavar="auto|hippo|megatron|torch|deepspeed|ideal",
        help="What will run it; auto: hippo, or Megatron-LM for models that it cannot run; ideal: nothing does.",
    ),
]
RoutingText = Annotated[
    str,
    typer.Option("--routing", metavar="even|SKEW|power:A|FILE", help="How unevenly tokens go to a mixture's experts."),
]
Dispatcher = Annotated[
    str, typer.Option(metavar="alltoall|deepep|hybridep", help="What brings tokens to a mixture's experts.")
]
AllReduce = Annotated[
    str, typer.Option(metavar="auto|ring|two-level", help="How replicas of several domains sum their gradients.")
]
AllowLocalSgd = Annotated[
    bool, typer.Option("--allow-local-sgd", help="Let plans compete that average parameters every H steps.")
]
OuterStepText = Annotated[
    str | None,
    typer.Option("--outer-step", metavar="H[,P[,D[,BITS]]]", help="Of local SGD: period, fragments, delay, bits."),
]
AllowCompression = Annotated[
    bool, typer.Option("--allow-compression", help="Let everybody send eight bits between domains.")
]
CompressionWorth = Annotated[
    float | None,
    typer.Option(metavar="X", help="What a token trained with compression is worth (0 to 1), needed with it."),
]
ProfileFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Measured layers (JSON), which overrule formulas.")
]
Planner = Annotated[str, typer.Option(metavar="auto|NAME", help="Who plans; see 'hippo catalogue planners'.")]
TimeLimit = Annotated[
    float, typer.Option(metavar="S", help="Seconds of work that planning may do, counted, not timed.")
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of whatever is random.")]
ServiceUrl = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The service.", show_default="HIPPO_URL, or http://127.0.0.1:8470"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]

LOUDNESS = {
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Only the answer: no progress, no remarks.")],
    "verbose": Annotated[bool, typer.Option("--verbose", "-v", help="Say what is compiled, searched and chosen.")],
}
"""Options of every command."""


def takes(options: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """A decorator: the body as a function that typer can read, one keyword per field of ``options``, and how loud."""
    hints = get_type_hints(options, include_extras=True)
    parameters = [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(options)
    ]
    parameters += [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=option) for name, option in LOUDNESS.items()
    ]

    def decorate(body: Callable[[T], None]) -> Callable[..., None]:
        def command(*, quiet: bool, verbose: bool, **values: Any) -> None:
            if quiet and verbose:
                raise InputError("does not go with --verbose", source="--quiet", remedy="leave out one of them")
            set_loudness(Loudness.QUIET if quiet else Loudness.VERBOSE if verbose else Loudness.USUAL)
            body(options(**values))

        command.__name__, command.__doc__ = body.__name__, body.__doc__
        # typer reads this attribute, which the type of functions does not know
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {**hints, **LOUDNESS}
        return command

    return decorate


def stop_after(time_limit_s: float) -> Stop:
    """The stopping rule of ``--time-limit``."""
    from hippo.planners.base import Stop

    if not 0 < time_limit_s <= LONGEST_S:
        problem = f"must be above 0 and at most {LONGEST_S} seconds"
        remedy = "give a number of seconds, for instance 10"
        raise InputError(problem, source="--time-limit", value=time_limit_s, remedy=remedy)
    return Stop(time_limit_s=time_limit_s)
