"""``hippo schedule``: the best order of micro-batches in a pipeline, or that of a named method, and how good it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hippo.cli.options import LONGEST_S, Json, Seed, takes
from hippo.cli.output import INFEASIBLE, check_file, check_folder, mention, print_view, say, write_files
from hippo.cli.progress import Watch
from hippo.errors import InexpressibleError, InfeasibleError, InputError, UnknownNameError

if TYPE_CHECKING:
    from hippo.dispatch.noise.fluctuation import Fluctuation, MakespanSpread
    from hippo.schedule.problem import ScheduleProblem
    from hippo.schedule.problem_json import ProblemFile
    from hippo.schedule.sizes import Sized
    from hippo.schedule.solve import Answer


# ---------------------------------------------------------------------------------------------------- schedule problem
# The problems that ``hippo schedule`` is asked: from a file, or from options on the command line.

Found = TypeVar("Found")

OPTION_OF_KEY: Mapping[str, str] = {
    "p": "--stages",
    "m": "--micro-batches",
    **dict.fromkeys("fbw", "--times"),
    **dict.fromkeys(("comm", "comm_up"), "--links"),
    **dict.fromkeys(("transfer", "transfer_up"), "--transfers"),
    "K": "--memory",
    "reduction": "--reduction",
    "placement": "--placement",
    "chunks": "--chunks",
    "layers": "--layers",
}
"""Which option gives which key of a problem file."""


@dataclass(frozen=True)
class Described:
    """A problem file, or the problem itself in options."""

    problem: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="One problem, or a list of them (docs/contracts.md).")
    ] = None
    stages: Annotated[int | None, typer.Option(metavar="P", help="Pipeline stages, one per rank.")] = None
    micro_batches: Annotated[int | None, typer.Option(metavar="M", help="Micro-batches of one step.")] = None
    times: Annotated[
        str | None,
        typer.Option(
            metavar="F,B,W", help="Times of one micro-batch on a stage; per stage: F1,..,FP/B1,..,BP/W1,..,WP."
        ),
    ] = None
    links: Annotated[
        str | None,
        typer.Option(metavar="C1,..", help="One-way delay of each link, or one for all; DOWN/UP where they differ."),
    ] = None
    transfers: Annotated[
        str | None, typer.Option(metavar="T1,..", help="Time that a message occupies its link, in the same form.")
    ] = None
    memory: Annotated[
        str | None, typer.Option(metavar="K", help="Most live micro-batches on a rank, or one number per rank.")
    ] = None
    reduction: Annotated[
        str | None,
        typer.Option(
            metavar="R", help="Time after a rank's last operation to agree its gradients, or one number per rank."
        ),
    ] = None
    placement: Annotated[
        str | None, typer.Option(metavar="plain|looped|v|bidirectional", help="Which stages lie on which rank.")
    ] = None
    chunks: Annotated[int | None, typer.Option(metavar="V", help="Stages per rank, where there are several.")] = None
    layers: Annotated[
        int | None, typer.Option(metavar="N", help="Layers of the model, to be no fewer than stages.")
    ] = None

    def asked(self, placement: str) -> ProblemFile:
        """The problems, those of options laid out as ``placement`` unless they say otherwise.

        ``InputError`` names the file's key or the option.
        """
        return self._from_file() if self.problem is not None else self._from_options(placement)

    def _from_file(self) -> ProblemFile:
        from hippo.files import read_text
        from hippo.schedule.problem_json import problems_of_text

        assert self.problem is not None
        for name in ("stages", "micro_batches", "times", "links", "transfers"):
            if getattr(self, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise InputError(
                    "does not go with --problem",
                    source=option,
                    value=getattr(self, name),
                    remedy="write it in the file",
                )
        source, text = str(self.problem), read_text(self.problem, what="problem file")
        changes = self._extras()
        return _naming_options(lambda: problems_of_text(text, source=source, changes=changes), changes)

    def _from_options(self, placement: str) -> ProblemFile:
        from hippo.problem.table import Table
        from hippo.schedule.problem_json import ProblemFile, problem_of

        for name in ("stages", "micro_batches", "times"):
            if getattr(self, name) is None:
                option = f"--{name.replace('_', '-')}"
                remedy = "give --problem FILE, or --stages, --micro-batches and --times"
                raise InputError("is missing", source=option, remedy=remedy)
        times = _groups("--times", str(self.times))
        if len(times) == 1:
            times = [[each] for each in times[0]]
        if len(times) != 3:
            remedy = "give F,B,W, or F1,..,FP/B1,..,BP/W1,..,WP"
            raise InputError("does not give three times", source="--times", value=self.times, remedy=remedy)
        values = {"p": self.stages, "m": self.micro_batches, "placement": placement} | self._extras()
        values |= {key: _one_or_all(each) for key, each in zip("fbw", times, strict=True)}
        for key, option, text in (("comm", "--links", self.links), ("transfer", "--transfers", self.transfers)):
            if text is not None:
                values |= _both_ways(key, option, text)
        sized = _naming_options(lambda: problem_of(Table(values, "")), values)
        return ProblemFile((sized,), listed=False)

    def _extras(self) -> dict[str, object]:
        """Keys that options give, with or without a file."""
        extras: dict[str, object] = {"placement": self.placement, "chunks": self.chunks, "layers": self.layers}
        for key, option, text in (("K", "--memory", self.memory), ("reduction", "--reduction", self.reduction)):
            if text is not None:
                extras[key] = _one_or_all([number for group in _groups(option, text) for number in group])
        return {key: value for key, value in extras.items() if value is not None}


def _groups(option: str, text: str) -> list[list[float]]:
    """``1,2/3,4`` as lists of numbers."""
    return [[_number(option, word) for word in group.split(",")] for group in text.split("/")]


def _number(option: str, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        remedy = "write numbers with commas between them, for instance 1,1.05,0.75"
        raise InputError("is no number", source=option, value=word, remedy=remedy) from None


def _one_or_all(numbers: list[float]) -> object:
    return numbers[0] if len(numbers) == 1 else numbers


def _both_ways(key: str, option: str, text: str) -> dict[str, object]:
    """Delays down and up the ranks."""
    groups = _groups(option, text)
    if len(groups) > 2:
        raise InputError("has more than two directions", source=option, value=text, remedy="give DOWN, or DOWN/UP")
    return {name: _one_or_all(group) for name, group in zip((key, f"{key}_up"), groups, strict=False)}


def _naming_options(read: Callable[[], Found], given: Mapping[str, Any]) -> Found:
    """What ``read`` returns; a complaint about a key that an option gave names the option."""
    try:
        return read()
    except InputError as error:
        key = (error.key or "").rpartition(".")[2].partition("[")[0]
        if key not in given or key not in OPTION_OF_KEY:
            raise
        raise InputError(error.problem, source=OPTION_OF_KEY[key], value=error.value, remedy=error.remedy) from None


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """``1,2,4`` as whole numbers from 1 on, each once."""
    found = [number for group in _groups(option, text) for number in group]
    for number in found:
        if not (number.is_integer() and 1 <= number < 2**31):
            raise InputError("is no whole number from 1 on", source=option, value=number, remedy="give sizes, as 1,2,4")
    return tuple(dict.fromkeys(int(number) for number in found))


DEFAULT_SAMPLES, DEFAULT_FLUCTUATION = 1000, 0.2
MOST_SAMPLES = 1_000_000
MOST_LEARNED_OPERATIONS = 1_000_000  # that a policy decides on, some seconds

Extras = dict[str, Any]
"""Keys that options add to the document of an answer."""


@dataclass(frozen=True)
class Choice(Described):
    """The problem, the method, and what is made of its schedule."""

    method: Annotated[str, typer.Option(metavar="best|NAME", help="Who makes it; see 'hippo catalogue schedules'.")] = (
        "best"
    )
    hint: Annotated[bool, typer.Option("--hint", help="Ranks run what is ready; the method's order only advises.")] = (
        False
    )
    order: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv|.txt", help="Judge an order of your own: torch's CSV, or the text form."),
    ] = None
    micro_batch_sizes: Annotated[
        str | None, typer.Option(metavar="N1,N2,..", help="Samples per micro-batch to try; the best size answers.")
    ] = None
    compare: Annotated[bool, typer.Option("--compare", help="All methods side by side.")] = False
    fluctuation: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Play it with operations and messages that vary by this share."),
    ] = None
    samples: Annotated[int | None, typer.Option(metavar="N", help="Plays under such noise.")] = None
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="S", help="Seconds per problem, for best and optimal; usually 1 to 2."),
    ] = None
    seed: Seed = 0
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the order as CSV of torch.distributed.pipelining.")
    ] = None
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write schedule.html and trace.json there.")] = None
    json: Json = False


@dataclass(frozen=True)
class Outcome:
    """What came of one problem."""

    sized: Sized
    answer: Answer | InfeasibleError
    extras: Extras = field(default_factory=dict)


@takes(Choice)
def schedule(choice: Choice) -> None:
    """The best schedule of micro-batches, and how good it can be.

    The problem is a file (--problem), or --stages, --micro-batches, --times, --links and --memory. Times have any unit.
    """
    from hippo.schedule.solve import placement_of

    _check(choice)
    asked = choice.asked(placement_of(choice.method, "plain"))
    _check_alone(choice, asked)
    if asked.ignored:
        mention(f"{choice.problem}: passed over unknown keys: {', '.join(asked.ignored)}")
    outcomes = _outcomes(choice, asked)
    if choice.json:
        texts = [_text(_document(choice, outcome)) for outcome in outcomes]
        print("[\n" + ",\n".join(texts) + "\n]" if asked.listed else texts[0])
    else:
        _show(outcomes, listed=asked.listed)
    for outcome in outcomes:
        if not isinstance(outcome.answer, InfeasibleError):
            _write(choice, outcome.answer)
    _end(outcomes)


# -------------------------------------------------------------------------------------------------------------- options
def _check(choice: Choice) -> None:
    """``InputError`` for numbers out of range, before any work."""
    from hippo.schedule.solve import NAMES

    if choice.method not in NAMES:
        raise UnknownNameError("schedule method", choice.method, NAMES, source="--method")
    if choice.time_limit is not None and not 0 < choice.time_limit <= LONGEST_S:
        problem, remedy = f"must be above 0 and at most {LONGEST_S} seconds", "give a number of seconds, for instance 1"
        raise InputError(problem, source="--time-limit", value=choice.time_limit, remedy=remedy)
    if choice.fluctuation is not None and not 0 <= choice.fluctuation < 1:
        remedy = "give a share of the length, for instance 0.2"
        raise InputError("must be from 0 to below 1", source="--fluctuation", value=choice.fluctuation, remedy=remedy)
    if choice.samples is not None and not 1 <= choice.samples <= MOST_SAMPLES:
        remedy = "give a number of plays, for instance 1000"
        raise InputError(f"must be from 1 to {MOST_SAMPLES}", source="--samples", value=choice.samples, remedy=remedy)
    for option, given in (("--hint", choice.hint), ("--micro-batch-sizes", choice.micro_batch_sizes)):
        if choice.order is not None and given:
            raise InputError("does not go with --order", source=option, remedy="leave one of them out")
    if choice.out is not None:
        check_folder(choice.out)
    if choice.csv is not None:
        check_file(choice.csv, option="--csv")


def _check_alone(choice: Choice, asked: ProblemFile) -> None:
    """What is made of one schedule is not made of a list of them."""
    for option, given in (
        ("--csv", choice.csv),
        ("--out", choice.out),
        ("--order", choice.order),
        ("--compare", choice.compare or None),
    ):
        if given is not None and len(asked.problems) > 1:
            problem = f"takes one problem, the file holds {len(asked.problems)}"
            value = None if given is True else str(given)
            raise InputError(problem, source=option, value=value, remedy="give a file of one problem")


# ------------------------------------------------------------------------------------------------------------- answers
def _outcomes(choice: Choice, asked: ProblemFile) -> list[Outcome]:
    """One per problem, in their order."""
    from hippo.first_use import prepare_schedules
    from hippo.schedule.methods import LEARNED

    outcomes = []
    count = len(asked.problems)
    with Watch("scheduling") as watch:
        varies = choice.hint or choice.fluctuation is not None or choice.samples is not None
        placements = [sized.problem.placement for sized in asked.problems]
        prepare_schedules(placements, varies=varies or choice.method == LEARNED, progress=watch)
        for index, sized in enumerate(asked.problems):
            outcomes.append(_outcome(choice, sized, _part_of(watch, index, count)))
    return outcomes


def _part_of(watch: Watch, index: int, count: int) -> Callable[[str, float], None]:
    """Progress of one of several problems as that of the whole."""
    name = f"problem {index + 1} of {count}: " if count > 1 else ""
    return lambda phase, share: watch(f"{name}{phase}", (index + share) / count)


def _outcome(choice: Choice, sized: Sized, progress: Callable[[str, float], None]) -> Outcome:
    """The answer to one problem, and what options make of it."""
    try:
        answer, extras = _answer(choice, sized, progress)
        if choice.compare:
            extras["compare"] = _compared(choice, sized, progress)
        if choice.fluctuation is not None or choice.samples is not None:
            extras["fluctuation"] = _fluctuation(choice, answer)
        if choice.csv is not None:
            from hippo.schedule.torch_csv import torch_schedule

            csv = torch_schedule(answer.problem, answer.schedule)
            told = {"makespan": csv.makespan, "fused": csv.fused, "split": csv.split}
            extras["csv"] = {"file": str(choice.csv), **told}
    except InexpressibleError:
        raise
    except InfeasibleError as error:
        return Outcome(sized, error)
    return Outcome(sized, answer, extras)


def _answer(choice: Choice, sized: Sized, progress: Callable[[str, float], None]) -> tuple[Answer, Extras]:
    from hippo.schedule.solve import solve

    if choice.order is not None:
        return _judged(choice.order, sized), {}
    if choice.micro_batch_sizes is not None:
        return _best_size(choice, sized, progress)
    stop: Extras = {"time_limit_s": choice.time_limit, "seed": choice.seed, "progress": progress}
    return solve(sized.problem, choice.method, hint=choice.hint, **stop), {}


def _judged(path: Path, sized: Sized) -> Answer:
    """An order of the user's own."""
    from hippo.files import read_text
    from hippo.schedule.solve import judge
    from hippo.schedule.text import parse_schedule
    from hippo.schedule.torch_csv import parse_torch_csv

    text, source = read_text(path, what="order"), str(path)
    if path.suffix.lower() == ".csv":
        return judge(sized.problem, parse_torch_csv(text, sized.problem, source=source), source=source)
    return judge(sized.problem, parse_schedule(text, source=source), source=source)


def _best_size(choice: Choice, sized: Sized, progress: Callable[[str, float], None]) -> tuple[Answer, Extras]:
    """The micro-batch size with the shortest makespan."""
    from hippo.schedule.solve import Answer, compare_sizes

    assert choice.micro_batch_sizes is not None
    sizes = whole_numbers("--micro-batch-sizes", choice.micro_batch_sizes)
    stop: Extras = {"time_limit_s": choice.time_limit, "seed": choice.seed, "progress": progress}
    rows = compare_sizes(sized, sizes, choice.method, hint=choice.hint, **stop)
    feasible = [(size, answer) for size, answer in rows if isinstance(answer, Answer)]
    if not feasible:
        raise InfeasibleError([f"Micro-batches of {size}: {answer}" for size, answer in rows])
    best, answer = min(feasible, key=lambda row: row[1].makespan)
    return answer, {"micro_batch_size": best, "sizes": [{"micro_batch_size": size, **_row(row)} for size, row in rows]}


def _compared(choice: Choice, sized: Sized, progress: Callable[[str, float], None]) -> list[Extras]:
    """All methods side by side."""
    from hippo.schedule.solve import compare

    rows = compare(sized.problem, time_limit_s=choice.time_limit, seed=choice.seed, progress=progress)
    return [{"method": name, **_row(answer)} for name, answer in rows]


def _row(answer: Answer | InfeasibleError) -> Extras:
    """The figures of an answer without its order; null and the reason where there is none."""
    from hippo.schedule.solve import answer_document

    if isinstance(answer, InfeasibleError):
        return {"makespan": None, "infeasible": str(answer)}
    whole = answer_document(answer)
    names = ("makespan", "lower_bound", "gap", "bubble_rate", "bubble_full", "peak_live", "placement", "seconds")
    return {name: whole[name] for name in names}


def _fluctuation(choice: Choice, answer: Answer) -> Extras:
    """Expected makespan, median and 95th percentile: as a fixed order, as a hint, and by learned dispatch."""
    from hippo.dispatch.noise.fluctuation import Fluctuation, spread
    from hippo.schedule.methods import LEARNED, POLICIES

    level = DEFAULT_FLUCTUATION if choice.fluctuation is None else choice.fluctuation
    samples = DEFAULT_SAMPLES if choice.samples is None else choice.samples
    problem, moves = answer.problem, Fluctuation(level)
    played = {
        name: spread(problem, answer.schedule, moves, samples=samples, seed=choice.seed, by_hint=by_hint)
        for name, by_hint in (("fixed", False), ("hint", True))
    }
    found = {"level": level, "samples": samples} | {name: _spread(each) for name, each in played.items()}
    learned = (
        _by_policy(problem, moves, played, seed=choice.seed)
        if problem.placement == POLICIES[LEARNED].placement
        else None
    )
    return found | {"learned": learned}


def _by_policy(
    problem: ScheduleProblem, moves: Fluctuation, played: Mapping[str, MakespanSpread], *, seed: int
) -> Extras:
    """The policy on the first of the same plays, as many as it has time for; what it saves on those is paired."""
    from hippo.dispatch.guard import followed
    from hippo.dispatch.noise.fluctuation import MakespanSpread
    from hippo.dispatch.noise.learned_play import spread_learned

    most = MOST_LEARNED_OPERATIONS // (3 * problem.ranks * problem.micro_batches)
    count = max(1, min(len(played["fixed"].makespans), most))
    found, saves = spread_learned(problem, moves, samples=count, seed=seed), {}
    for name, each in played.items():
        same = MakespanSpread(each.makespans[:count])
        less = same.minus(found)
        saves[name] = {"share": less.mean / same.mean, "error": less.error / same.mean}
    return _spread(found) | {"samples": count, "followed": followed(problem, level=moves.deviation), "saves": saves}


def _spread(seen: MakespanSpread) -> Extras:
    return {"mean": seen.mean, "p50": seen.p50, "p95": seen.p95}


# --------------------------------------------------------------------------------------------------------------- files
def _write(choice: Choice, answer: Answer) -> None:
    """Writes the order for torch's runtime, and says what it is worth there; the report and the trace of a schedule."""
    if choice.csv is not None:
        from hippo.files import write_whole
        from hippo.schedule.torch_csv import torch_schedule

        csv = torch_schedule(answer.problem, answer.schedule)
        write_whole(choice.csv, csv.text)
        how = f"{csv.fused} fused and {csv.split} split backwards, makespan {csv.makespan:.6g} there"
        mention(f"wrote {choice.csv}: {how}")
    if choice.out is not None:
        from hippo.report.schedule_html import schedule_html
        from hippo.report.schedule_trace import schedule_trace

        files = {"schedule.html": schedule_html(answer), "trace.json": schedule_trace(answer.replay)}
        write_files(choice.out, files)


# ---------------------------------------------------------------------------------------------------------------- said
def _document(choice: Choice, outcome: Outcome) -> Extras:
    from hippo.schedule.solve import answer_document, infeasible_document

    if isinstance(outcome.answer, InfeasibleError):
        return infeasible_document(outcome.answer, choice.method, outcome.sized.ident)
    return {**answer_document(outcome.answer, outcome.sized.ident), **outcome.extras}


def _text(document: Extras) -> str:
    """A document with its order, if it has one, one line per rank: else each operation would fill five."""
    order = document.pop("order", None)
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)
    if order is None:
        return text
    ranks = ",\n    ".join(json.dumps(rank) for rank in order)
    return f'{text[:-2]},\n  "order": [\n    {ranks}\n  ]\n}}'


def _show(outcomes: Sequence[Outcome], *, listed: bool) -> None:
    from hippo.report.schedule_terminal import answer_view, answers_view

    if listed:
        print_view(answers_view([(outcome.sized, outcome.answer) for outcome in outcomes]))
    elif not isinstance(outcomes[0].answer, InfeasibleError):
        print_view(answer_view(outcomes[0].answer, outcomes[0].extras))


def _end(outcomes: Sequence[Outcome]) -> None:
    """Exit code 3 when a problem has no schedule, with the reasons on stderr."""
    reasons = [(outcome.sized.ident, outcome.answer) for outcome in outcomes]
    infeasible = [(ident, answer) for ident, answer in reasons if isinstance(answer, InfeasibleError)]
    for ident, answer in infeasible:
        say(f"infeasible: {'' if ident is None else f'{ident}: '}{answer}")
    if infeasible:
        raise typer.Exit(INFEASIBLE)
