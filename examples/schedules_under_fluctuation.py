"""How much a better micro-batch schedule gains as fluctuation and communication delay grow.

    python examples/schedules_under_fluctuation.py

prints a table and writes ``out/schedules_under_fluctuation.html``: one file, opens offline. Some 80 s on one core.

A pipeline of p ranks and m micro-batches, F, B, W = 1, 1.05, 0.75, memory for p or 2 p micro-batches per rank. Its
links have the same delay each (``uniform``), or one link in the middle has it and the others 0.05 at most
(``mid-link``). Operations and messages vary normally. ``robust_order`` looks for the order with the least expected
makespan and says how to run it: in fixed order, as a hint, or as a hint with patience, where messages are announced.
It is held against 1F1B, ZB-H1, ZB-H2 and ZB-auto on the same 1000 plays, each run as its paper means it (a fixed
order) and as a hint, with patience where that is better: a gain over fixed orders alone would flatter.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup
from rich.console import Console
from rich.progress import track

from hippo.cli.output import check_folder, write_files
from hippo.dispatch.noise import fluctuation_grid as grid
from hippo.dispatch.noise.fluctuation import Fluctuation, MakespanSpread
from hippo.dispatch.noise.fluctuation_grid import DELAYS, LEVELS, TIMES, Case, cases
from hippo.dispatch.noise.hindsight import floors
from hippo.dispatch.noise.robust_order import FIXED, HINT, JudgedOrder, RobustOrder, Way, robust_order
from hippo.errors import InfeasibleError, InputError
from hippo.report.charts import Axis, Curve
from hippo.report.fitted import FittedTable
from hippo.report.fluctuation_html import CASE_HEAD, PagePart, case_cells, page_table, panels, terminal_table
from hippo.report.fluctuation_html import page as whole_page
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem

BASELINES = ("1f1b", "zb-h1", "zb-h2", "zb-auto")
SHOWN = {"1f1b": "1F1B", "zb-h1": "ZB-H1", "zb-h2": "ZB-H2", "zb-auto": "ZB-auto"}
COLOURS = {"1f1b": "var(--muted)", "zb-h1": "var(--d1)", "zb-h2": "var(--good)", "zb-auto": "var(--accent)"}
RUN = ("fixed", "hint")  # how a baseline is run
RUNS = (FIXED, HINT, Way("as a patient hint", True, 0.5))  # of the two hints the better one counts
BEST = {"fixed": "fixed order", "hint": "hint", "patient": "patient hint"}
BEST_COLOURS = {"fixed": "var(--d1)", "hint": "var(--accent)", "patient": "var(--good)"}


@dataclass(frozen=True)
class Size(grid.Size):
    """What every case has in common."""

    search_s: float = 0.7  # of ``robust_order``, per case

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.search_s > 0:
            raise InputError("must be above 0", key="search_s", value=self.search_s, remedy="give a number of seconds")


@dataclass(frozen=True, eq=False)
class Outcome:
    """Expected makespans of one case; all on the same plays."""

    case: Case
    found: RobustOrder
    best: dict[str, MakespanSpread]  # the best fixed order, hint and patient hint that ``robust_order`` found
    baselines: dict[tuple[str, str], MakespanSpread]  # by name and how it is run; those that fit into memory
    floor: float  # mean of what no order could be below, even if it knew the draws

    @property
    def winner(self) -> MakespanSpread:
        """Of the order that ``robust_order`` recommends, run as it says."""
        return self.best[self.recommended]

    @property
    def recommended(self) -> str:
        """How to run it."""
        return next(name for name in BEST if getattr(self.found, name) is self.found.winner)

    def gain(self, name: str, run: str) -> float | None:
        """Share of a baseline's expected time that the recommended order saves; None where it does not fit."""
        other = self.baselines.get((name, run))
        return None if other is None else 1 - self.winner.mean / other.mean


# ------------------------------------------------------------------------------------------------------------ measure
def measure(case: Case, size: Size) -> Outcome:
    """Search, then everybody on the same fresh plays."""
    problem, moves = case.problem(size), Fluctuation(case.level)
    found = robust_order(problem, moves, time_limit_s=size.search_s, seed=size.seed)
    fresh = size.seed + 1_000_003
    best = {name: _played(problem, getattr(found, name), moves, size.samples, fresh) for name in BEST}
    baselines = {}
    for name in BASELINES:
        try:
            schedule = generate(name, problem)
        except InfeasibleError:
            continue
        fixed, *hints = (way.played(problem, schedule, moves, samples=size.samples, seed=fresh) for way in RUNS)
        baselines[name, "fixed"], baselines[name, "hint"] = fixed, min(hints, key=lambda each: each.mean)
    floor = floors(problem, moves, samples=size.samples, rng=np.random.default_rng(fresh)).mean()
    return Outcome(case, found, best, baselines, float(floor))


def _played(
    problem: ScheduleProblem, order: JudgedOrder, moves: Fluctuation, samples: int, seed: int
) -> MakespanSpread:
    return order.way.played(problem, order.schedule, moves, samples=samples, seed=seed)


# ----------------------------------------------------------------------------------------------------------- sentences
def where_fixed_is_as_good(outcomes: Sequence[Outcome]) -> str:
    """How often which way of running is recommended, and what plain dispatch costs where it is worse."""
    moving = [each for each in outcomes if each.case.level > 0]
    count = {name: sum(each.recommended == name for each in moving) for name in BEST}
    lost = [each.best["hint"].mean / each.best["fixed"].mean - 1 for each in moving]
    worse = [each for each, more in zip(moving, lost, strict=True) if more > 0]
    small = sum(each.case.memory == 1 for each in worse)
    return (
        f"Of {len(moving)} cases with fluctuation {count['fixed']} are best run in fixed order, {count['hint']} as a "
        f"hint and {count['patient']} as a patient hint. Without patience a hint is worse than a fixed order in "
        f"{len(worse)} of them, {small} with memory for p micro-batches only, by up to {_percent(max(lost))} %."
    )


def where_it_gains(outcomes: Sequence[Outcome]) -> str:
    """Least and most gain over the best baseline, run either way, in a sentence."""
    told = []
    for run, shown in (("fixed", "in fixed order"), ("hint", "as a hint, with patience where that is better")):
        shares = [1 - each.winner.mean / least for each in outcomes if (least := _least(each, run)) is not None]
        low, middle, high = (_percent(float(each)) for each in np.percentile(shares, (0, 50, 100)))
        told.append(f"{low} to {high} % (median {middle} %) when that is run {shown}")
    return f"Against whichever baseline is best in a case, the recommended order saves {' and '.join(told)}."


def _least(outcome: Outcome, run: str) -> float | None:
    means = [each.mean for (_, its_run), each in outcome.baselines.items() if its_run == run]
    return min(means, default=None)


# --------------------------------------------------------------------------------------------------------------- table
HEAD = (*CASE_HEAD, *(f"best {name}" for name in BEST.values()), "recommended", *SHOWN.values())
KEPT = ("links", "memory", "delay", "noise", "recommended", "ZB-H1", "ZB-auto")


def rows(outcomes: Sequence[Outcome]) -> Iterator[list[str]]:
    """Cells of the table, one row a case."""
    for each in outcomes:
        cells = case_cells(each.case, each.floor)
        cells += [f"{each.best[way].mean:.1f} ±{each.best[way].error:.1f}" for way in BEST]
        cells += [BEST[each.recommended]]
        for name in BASELINES:
            cells.append(" / ".join(_percent(each.gain(name, run)) for run in RUN))
        yield cells


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{round(100 * share, 1) + 0.0:.1f}"  # + 0: no -0.0


def table(outcomes: Sequence[Outcome]) -> FittedTable:
    """For the terminal."""
    title = "Time saved by the recommended order, % of the expected makespan of: fixed order / as a hint"
    return terminal_table(title, HEAD, rows(outcomes), KEPT)


# ---------------------------------------------------------------------------------------------------------------- page
def gains(outcomes: Sequence[Outcome]) -> Markup:
    """Time saved against fluctuation, a panel for each pipeline; solid: baseline in fixed order, dashed: as a hint."""

    def lines(here: Sequence[Outcome]) -> list[Curve]:
        drawn = []
        for name in BASELINES:
            for run, shown in (("fixed", "fixed order"), ("hint", "as a hint")):
                saved = [(100 * each.case.level, each.gain(name, run)) for each in here]
                points = [(level, 100 * gain) for level, gain in saved if gain is not None]
                drawn.append(Curve(f"{SHOWN[name]}, {shown}", points, COLOURS[name], dashed=run == "hint"))
        return drawn

    return panels(outcomes, lines, Axis("", "{:.3g} %".format, zero=True))


def above_floor(outcomes: Sequence[Outcome]) -> Markup:
    """Expected makespan above the floor: what of it dispatch can save, and where it cannot."""

    def lines(here: Sequence[Outcome]) -> list[Curve]:
        def above(means: Sequence[float]) -> list[tuple[float, float]]:
            pairs = zip(means, here, strict=True)
            return [(100 * each.case.level, 100 * (mean / each.floor - 1)) for mean, each in pairs]

        drawn = [
            Curve(f"best {shown}", above([each.best[name].mean for each in here]), BEST_COLOURS[name])
            for name, shown in BEST.items()
        ]
        for run, shown in (("fixed", "fixed order"), ("hint", "as a hint")):
            colour = BEST_COLOURS["fixed" if run == "fixed" else "patient"]
            means = [_least(each, run) or np.nan for each in here]
            drawn.append(Curve(f"best baseline, {shown}", above(means), colour, dashed=True))
        return drawn

    return panels(outcomes, lines, Axis("", "{:.3g} %".format, zero=True))


def page(outcomes: Sequence[Outcome], size: Size) -> str:
    """The whole page."""
    question = (
        f"p = {size.ranks} ranks, {size.micro_batches} micro-batches, F, B, W = {', '.join(map(str, TIMES))}, memory "
        "for p or 2 p of them per rank. Delays in units of F, on every link (uniform) or on one in the middle, the "
        "others 0.05 at most (mid-link). Operations and messages vary normally; the fluctuation (noise) is their "
        f"standard deviation. {size.samples} plays of each schedule, all on the same draws."
    )
    sections = (
        PagePart(
            "gains",
            "Time saved by the recommended order",
            "Time saved",
            "Share of each baseline's expected makespan; solid: the baseline in fixed order, dashed: as a hint to "
            "dispatch, with patience where that is better. ZB-H2 needs memory for 2 p micro-batches. Scales differ.",
            gains(outcomes),
        ),
        PagePart(
            "ways",
            "Fixed order or hint",
            "Fixed or hint",
            "Expected makespan above the mean of a floor that no order can pass, even if it knew all draws beforehand. "
            "Solid: the best orders found for this fluctuation, run in fixed order, as a hint (an idle rank runs what "
            "is ready and comes first), and as a patient hint (it waits a little for what comes first and is "
            "announced); dashed: the best of the four baselines. Where the fixed order lies below the hint, it is "
            "better than plain dispatch. Scales differ.",
            above_floor(outcomes),
        ),
        PagePart(
            "figures",
            "Every figure",
            "Figures",
            "Expected makespans with the half width of their 95 % interval, in units of F. Under each baseline: the "
            "share of its time saved, in %, against its fixed order / against it as a hint.",
            page_table(HEAD, rows(outcomes)),
        ),
    )
    said = (where_it_gains(outcomes), where_fixed_is_as_good(outcomes))
    return whole_page("Micro-batch schedules under fluctuation", question, said, sections)


def main(arguments: Sequence[str] | None = None) -> tuple[Outcome, ...]:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=Size.ranks)
    parser.add_argument("--micro-batches", type=int, default=Size.micro_batches)
    parser.add_argument("--samples", type=int, default=Size.samples, help="plays of each schedule")
    parser.add_argument("--search-s", type=float, default=Size.search_s, help="seconds of search per case")
    parser.add_argument("--seed", type=int, default=Size.seed)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the page")
    given = vars(parser.parse_args(arguments))
    folder, console = given.pop("out"), Console()
    size = Size(**given)
    check_folder(folder)
    outcomes = tuple(
        measure(case, size) for case in track(cases(DELAYS, LEVELS), "Playing", console=Console(stderr=True))
    )
    target = folder / "schedules_under_fluctuation.html"
    write_files(folder, {target.name: page(outcomes, size)})
    console.print(table(outcomes))
    for sentence in (where_it_gains(outcomes), where_fixed_is_as_good(outcomes), f"Written: {target}"):
        console.print(sentence, highlight=False)
    return outcomes


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
