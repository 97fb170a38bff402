"""``hippo schedule``: the best order of micro-batches in a pipeline, or that of a named method, and how good it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from hippo.cli.exit_codes import INFEASIBLE
from hippo.cli.options import Json, Seed, takes
from hippo.cli.output import print_view, say
from hippo.cli.progress import Watch
from hippo.cli.schedule_problem import Described
from hippo.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from hippo.pipeline.problem_json import ProblemFile
    from hippo.pipeline.sizes import Sized
    from hippo.pipeline.solve import Answer

LONGEST_S = 86_400


@dataclass(frozen=True)
class Choice(Described):
    """The problem, the method, and what is made of its schedule."""

    method: Annotated[str, typer.Option(metavar="best|NAME", help="Who makes the schedule.")] = "best"
    hint: Annotated[bool, typer.Option("--hint", help="Ranks run what is ready; the method's order only advises.")] = (
        False
    )
    time_limit: Annotated[float, typer.Option(metavar="S", help="Seconds per problem, for best and optimal.")] = 1.0
    seed: Seed = 0
    json: Json = False


@takes(Choice)
def schedule(choice: Choice) -> None:
    """The best schedule of micro-batches, and how good it can be.

    A problem from --problem, or from --stages, --micro-batches, --times, --links and --memory.
    """
    from hippo.pipeline.solve import NAMES

    if choice.method not in NAMES:
        from hippo.errors import UnknownNameError

        raise UnknownNameError("schedule method", choice.method, NAMES, source="--method")
    if not 0 < choice.time_limit <= LONGEST_S:
        raise InputError(f"must be above 0 and at most {LONGEST_S} seconds", source="--time-limit",
                         value=choice.time_limit, remedy="give a number of seconds, for instance 1")  # fmt: skip
    asked = choice.asked(_placement(choice.method))
    if asked.ignored:
        say(f"{choice.problem}: passed over unknown keys: {', '.join(asked.ignored)}")
    answers = _answers(choice, asked)
    if choice.json:
        _print_documents(asked, answers, choice.method)
    else:
        _show(answers)
    if any(isinstance(answer, InfeasibleError) for answer in answers):
        raise typer.Exit(INFEASIBLE)


def _placement(method: str) -> str:
    """How a method lays the model out; plain where it may be any."""
    from hippo.pipeline.methods import METHODS

    return METHODS[method].placement if method in METHODS else "plain"


def _answers(choice: Choice, asked: ProblemFile) -> list[Answer | InfeasibleError]:
    """One answer per problem, in their order."""
    answers: list[Answer | InfeasibleError] = []
    with Watch("scheduling") as watch:
        for index, sized in enumerate(asked.problems):
            watch(f"problem {index + 1} of {len(asked.problems)}" if asked.listed else "", index / len(asked.problems))
            answers.append(_answer(choice, sized))
    return answers


def _answer(choice: Choice, sized: Sized) -> Answer | InfeasibleError:
    from hippo.pipeline.solve import solve

    try:
        return solve(sized.problem, choice.method, time_limit_s=choice.time_limit, seed=choice.seed, hint=choice.hint)
    except InfeasibleError as error:
        return error


def _print_documents(asked: ProblemFile, answers: Sequence[Answer | InfeasibleError], method: str) -> None:
    """One object, or a list in the order of the file."""
    from hippo.pipeline.solve import answer_document, infeasible_document

    texts = []
    for sized, answer in zip(asked.problems, answers, strict=True):
        if isinstance(answer, InfeasibleError):
            texts.append(_text(infeasible_document(answer, method, sized.ident)))
        else:
            texts.append(_text(answer_document(answer, sized.ident)))
    print("[\n" + ",\n".join(texts) + "\n]" if asked.listed else texts[0])


def _text(document: dict[str, object]) -> str:
    """A document with its order, if it has one, one line per rank: else each operation would fill five."""
    order = document.pop("order", None)
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)
    if not isinstance(order, list):
        return text
    ranks = ",\n    ".join(json.dumps(rank) for rank in order)
    return f'{text[:-2]},\n  "order": [\n    {ranks}\n  ]\n}}'


def _show(answers: Sequence[Answer | InfeasibleError]) -> None:
    from hippo.report.schedule_terminal import answer_view, answers_view

    if len(answers) > 1:
        print_view(answers_view(answers))
        return
    for answer in answers:
        if isinstance(answer, InfeasibleError):
            say(f"infeasible: {answer}")
        else:
            print_view(answer_view(answer))
