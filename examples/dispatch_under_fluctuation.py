"""Learned dispatch against fixed orders, hints and hindsight, as fluctuation and delay grow.

    python examples/dispatch_under_fluctuation.py

prints a table and writes ``out/dispatch.html``: one file, opens offline. Some 30 s on one core.

A pipeline of p ranks and m micro-batches, F, B, W = 1, 1.05, 0.75, memory for p or 2 p micro-batches per rank; its
links have the same delay each (``uniform``), or one in the middle has it and the others 0.05 at most (``mid-link``).
Operations and messages vary normally. ZB-H1, ZB-H2, ZB-auto and the cross-domain generator run in fixed order, as hints
and as patient hints; the policy that ships decides for itself, and is told how unsteady the steps before were. All on
the same plays; of each kind the best baseline is shown, chosen on those very plays. The picture below shows one of
them: that whose saving is the median one.
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
from hippo.dispatch.network import shipped
from hippo.dispatch.noise import fluctuation_grid as grid
from hippo.dispatch.noise.fluctuation import Fluctuation, drawn
from hippo.dispatch.noise.fluctuation_grid import DELAYS, LEVELS, MID_LINK, TIMES, Case, cases
from hippo.dispatch.noise.timed_play import TimedPlay, timed_hint, timed_learned
from hippo.dispatch.noise.trial import ZERO_BUBBLE, FluctuationTrial, TriedOrder, order_for, trial
from hippo.errors import InputError
from hippo.report.charts import Axis, Curve
from hippo.report.fitted import FittedTable
from hippo.report.fluctuation_html import (
    CASE_HEAD,
    PagePart,
    case_cells,
    habits,
    page_table,
    panels,
    plays_chart,
    terminal_table,
)
from hippo.report.fluctuation_html import page as whole_page
from hippo.schedule.problem import ScheduleProblem

NAMES = {"zb-h1": "ZB-H1", "zb-h2": "ZB-H2", "zb-auto": "ZB-auto", "cross-domain": "cross-domain"}
SHORT = {"zb-h1": "H1", "zb-h2": "H2", "zb-auto": "auto", "cross-domain": "cross"}
LINES = {
    "zero bubble": ("best zero-bubble order, fixed", "var(--muted)"),
    "fixed": ("best fixed order", "var(--d1)"),
    "hint": ("best hint", "var(--accent)"),
    "patient": ("best patient hint", "var(--d3)"),
    "learned": ("learned dispatch", "var(--good)"),
}


@dataclass(frozen=True)
class Size(grid.Size):
    """What every case has in common."""

    samples: int = 120
    seed: int = 70_001


@dataclass(frozen=True, eq=False)
class Outcome:
    """What everybody took in one case."""

    case: Case
    trial: FluctuationTrial

    def baseline(self, line: str) -> TriedOrder:
        """Whom a line of the charts shows (``LINES``)."""
        if line == "zero bubble":
            return self.trial.best("fixed", orders=ZERO_BUBBLE)
        return self.trial.best(line)

    def mean(self, line: str) -> float:
        """Expected makespan of that line."""
        return self.trial.learned.mean if line == "learned" else self.baseline(line).spread.mean

    def above_floor(self, line: str) -> float:
        """The same as a share above the mean floor."""
        return self.mean(line) / float(self.trial.floor.mean()) - 1


# ------------------------------------------------------------------------------------------------------------ measure
def measure(case: Case, size: Size) -> Outcome:
    """Everybody on the same plays."""
    problem = case.problem(size)
    return Outcome(case, trial(problem, Fluctuation(case.level), samples=size.samples, seeds=(size.seed,)))


# ----------------------------------------------------------------------------------------------------------- sentences
def verdict(outcomes: Sequence[Outcome]) -> str:
    """Where learned dispatch wins, in a sentence or two."""
    moving = [each for each in outcomes if each.case.level > 0]
    count = {name: sum(each.trial.verdict == name for each in moving) for name in ("learned", "even", "hint", "fixed")}
    return (
        f"Of {len(moving)} cases with fluctuation learned dispatch beats every baseline in {count['learned']} (95 % "
        f"intervals of differences play by play); {count['even']} are even, in {count['hint']} a hint is better, in "
        f"{count['fixed']} a fixed order."
    )


def claim(outcomes: Sequence[Outcome]) -> str:
    """Whether PPO beats zero bubble where times move most: against fixed orders, and against hints."""
    level = max(each.case.level for each in outcomes)
    noisy = [each for each in outcomes if each.case.level == level]
    told = []
    for against, kinds in (("in fixed order, as its paper runs it", ("fixed",)), ("as a hint", ("hint", "patient"))):
        rivals = [(each.trial, each.trial.best(*kinds, orders=ZERO_BUBBLE)) for each in noisy]
        sides = [found.side(rival) for found, rival in rivals]
        saved = [100 * found.saved(rival)[0] for found, rival in rivals]
        low, middle, high = np.round(np.percentile(saved, (0, 50, 100)), 1)
        told.append(
            f"{against}: ahead in {sides.count(1)} of {len(noisy)} cases, behind in {sides.count(-1)}; it saves "
            f"{low + 0.0:.1f} to {high + 0.0:.1f} % (median {middle + 0.0:.1f})"
        )
    return f"At {level:.0%} against the best zero-bubble order {told[0]}. Against the best of them {told[1]}."


# --------------------------------------------------------------------------------------------------------------- table
HEAD = (*CASE_HEAD, *LINES, "saves of fixed", "of hint", "of patient", "verdict")
KEPT = ("links", "memory", "delay", "noise", "learned", "of hint", "verdict")


def rows(outcomes: Sequence[Outcome]) -> Iterator[list[str]]:
    """Cells of the table, one row a case."""
    for each in outcomes:
        found = each.trial
        cells = case_cells(each.case, float(found.floor.mean()))
        for line in LINES:
            if line == "learned":
                cells.append(f"{found.learned.mean:.1f} ±{found.learned.error:.1f}")
            else:
                who = each.baseline(line)
                patience = f" {who.way.patience:g}" if who.way.announces else ""
                cells.append(f"{who.spread.mean:.1f} {SHORT[who.order]}{patience}")
        for kind in ("fixed", "hint", "patient"):
            share, error = found.saved(found.best(kind))
            cells.append(f"{round(100 * share, 1) + 0.0:+.1f} ±{100 * error:.1f} %")  # + 0: no -0.0
        yield [*cells, found.verdict]


def table(outcomes: Sequence[Outcome]) -> FittedTable:
    """For the terminal."""
    title = "Expected makespans, and what learned dispatch saves"
    return terminal_table(title, HEAD, rows(outcomes), KEPT)


# -------------------------------------------------------------------------------------------------------------- charts
def makespans(outcomes: Sequence[Outcome]) -> Markup:
    """Expected makespan against fluctuation, a panel for each pipeline, and the floor below."""

    def lines(here: Sequence[Outcome]) -> list[Curve]:
        floor = [(100 * each.case.level, float(each.trial.floor.mean())) for each in here]
        most = 1.25 * max(mean for _, mean in floor)  # a line far above the floor would flatten the others
        drawn = [Curve("floor, all draws known", floor, "var(--ink)", dashed=True)]
        for line, (name, colour) in LINES.items():
            means = [(100 * each.case.level, each.mean(line)) for each in here]
            if line != "zero bubble" or max(mean for _, mean in means) < most:
                drawn.append(Curve(name, means, colour, strong=line == "learned"))
        return drawn

    return panels(outcomes, lines, Axis(""))


def gaps(outcomes: Sequence[Outcome]) -> Markup:
    """Expected makespan above the floor, in %."""

    def lines(here: Sequence[Outcome]) -> list[Curve]:
        drawn = []
        for line, (name, colour) in LINES.items():
            if line != "zero bubble":
                above = [(100 * each.case.level, 100 * each.above_floor(line)) for each in here]
                drawn.append(Curve(name, above, colour, strong=line == "learned"))
        return drawn

    return panels(outcomes, lines, Axis("", "{:.3g} %".format, zero=True))


# ---------------------------------------------------------------------------------------------------------------- pair
@dataclass(frozen=True, eq=False)
class Pair:
    """One play run both ways, and how both ways behave over all plays."""

    case: Case
    baseline: TriedOrder  # the best hint of the case, with or without patience
    problem: ScheduleProblem
    plays: tuple[TimedPlay, TimedPlay]  # by that hint, by the policy
    habits: tuple[dict[str, float], dict[str, float]]  # likewise, means of all plays
    of: int  # plays, of which this has the median saving

    @property
    def saved(self) -> float:
        """Share of the makespan that the policy saves on this play."""
        return 1 - self.plays[1].makespan / self.plays[0].makespan

    @property
    def labels(self) -> tuple[str, str]:
        """Who runs above, who below."""
        patience = f" with patience {self.baseline.way.patience:g}" if self.baseline.way.announces else ""
        return f"{NAMES[self.baseline.order]} as a hint{patience}", "learned dispatch"


def pair(outcome: Outcome, size: Size) -> Pair:
    """The play whose saving is the median one, so that it is neither lucky nor unlucky."""
    baseline, problem = outcome.trial.best("hint", "patient"), outcome.trial.problem
    schedule, _ = order_for(problem, baseline.order)
    noise = Fluctuation(outcome.case.level)
    draws = drawn(problem, noise, samples=size.samples, rng=np.random.default_rng(size.seed))
    both = [
        (
            timed_hint(problem, schedule, factors, index, patience=baseline.way.patience),
            timed_learned(problem, shipped(), factors, index, level=noise.deviation),
        )
        for factors in draws
        for index in range(len(factors.ranks))
    ]
    saved = [1 - learned.makespan / hint.makespan for hint, learned in both]
    shown = both[int(np.argsort(saved)[len(saved) // 2])]
    means = []
    for plays in zip(*both, strict=True):
        each = [habits(problem, play) for play in plays]
        means.append({name: float(np.mean([one[name] for one in each])) for name in each[0]})
    return Pair(outcome.case, baseline, problem, shown, (means[0], means[1]), len(both))


def differences(shown: Pair) -> list[tuple[str, ...]]:
    """What the two ways do differently: name, then hint and learned on this play, then on all."""
    this = [habits(shown.problem, play) for play in shown.plays]
    return [(name, *(f"{each[name]:.2f}" for each in (*this, *shown.habits))) for name in this[0]]


def pair_chart(shown: Pair) -> Markup:
    """Both plays, one above the other."""
    titles = [f"{label}: {play.makespan:.1f}" for label, play in zip(shown.labels, shown.plays, strict=True)]
    return plays_chart(shown.problem, shown.plays, titles, unit="F")


def told_pair(shown: Pair) -> str:
    """Which play the picture shows."""
    case = shown.case
    return (
        f"{case.layout}, delay {case.delay:g}, memory for {case.memory} p, {case.level:.0%}: of {shown.of} plays the "
        f"one with the median saving, {100 * shown.saved:+.1f} % of {shown.labels[0]}."
    )


# ---------------------------------------------------------------------------------------------------------------- page
def page(outcomes: Sequence[Outcome], shown: Pair, size: Size) -> str:
    """The whole page."""
    question = (
        f"p = {size.ranks} ranks, {size.micro_batches} micro-batches, F, B, W = {', '.join(map(str, TIMES))}, memory "
        "for p or 2 p of them per rank. Delays in units of F, on every link (uniform) or on one in the middle, the "
        "others 0.05 at most (mid-link). Operations and messages vary normally; the fluctuation (noise) is their "
        f"standard deviation, which the policy is told, as from the steps before. {size.samples} plays, the same for "
        "everybody."
    )
    sections = (
        PagePart(
            "makespan",
            "Expected makespan",
            "Makespan",
            "In units of F. The floor is the mean of a bound for each play with all draws known: no order can be below "
            "it, and with memory for p micro-batches none may come near. Scales differ; the zero-bubble orders in "
            "fixed order are left out of panels where they would flatten the rest.",
            makespans(outcomes),
        ),
        PagePart("gaps", "Above hindsight", "Hindsight", "The same as a share above that floor.", gaps(outcomes)),
        PagePart(
            "play",
            "One play, run both ways",
            "One play",
            f"{told_pair(shown)} The same draws above and below. A rank that starves has nothing that could run; one "
            "that waits by choice could run something and waits for what it expects.",
            pair_chart(shown),
        ),
        PagePart(
            "habits",
            "What the two do differently",
            "Habits",
            "Times in units of F.",
            page_table(_head_of_differences(shown), differences(shown)),
        ),
        PagePart(
            "figures",
            "Every figure",
            "Figures",
            "Expected makespans; of each kind of baseline the best one: H1, H2, auto (zero bubble) or cross (the "
            "cross-domain generator), and its patience. Then what learned dispatch saves of it, with the half width of "
            "the 95 % interval of differences play by play.",
            page_table(HEAD, rows(outcomes), marked=True),
        ),
    )
    return whole_page("Learned dispatch under fluctuation", question, (verdict(outcomes), claim(outcomes)), sections)


def _head_of_differences(shown: Pair) -> tuple[str, ...]:
    hint, learned = shown.labels
    return "in F", f"{hint}: this play", learned, f"{hint}: mean of {shown.of} plays", learned


def main(arguments: Sequence[str] | None = None) -> tuple[Outcome, ...]:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=Size.ranks)
    parser.add_argument("--micro-batches", type=int, default=Size.micro_batches)
    parser.add_argument("--samples", type=int, default=Size.samples, help="plays of each way")
    parser.add_argument("--seed", type=int, default=Size.seed)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the page")
    given = vars(parser.parse_args(arguments))
    folder, console = given.pop("out"), Console()
    size = Size(**given)
    check_folder(folder)
    outcomes = tuple(
        measure(case, size) for case in track(cases(DELAYS, LEVELS), "Playing", console=Console(stderr=True))
    )
    hardest = max(outcomes, key=lambda each: (each.case.layout == MID_LINK, each.case.delay, each.case.level))
    shown = pair(hardest, size)
    target = folder / "dispatch.html"
    write_files(folder, {target.name: page(outcomes, shown, size)})
    console.print(table(outcomes))
    for sentence in (verdict(outcomes), claim(outcomes), f"Written: {target}"):
        console.print(sentence, highlight=False)
    return outcomes


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
