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
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

T = TypeVar("T")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]


def takes(options: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """A decorator: the body as a function that typer can read, one keyword per field of ``options``."""
    hints = get_type_hints(options, include_extras=True)
    parameters = [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(options)  # type: ignore[arg-type]
    ]

    def decorate(body: Callable[[T], None]) -> Callable[..., None]:
        def command(**values: Any) -> None:
            body(options(**values))

        command.__name__, command.__doc__ = body.__name__, body.__doc__
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = hints
        return command

    return decorate
