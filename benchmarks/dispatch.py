"""Learned dispatch of micro-batches against fixed orders, hints, patient hints and hindsight, on the same draws.

Baselines: ZB-H1, ZB-H2, ZB-auto and the cross-domain generator, each in fixed order, as a hint, and as a hint with
patience (the best of .25 to 2). The best baseline of a row is chosen on the very draws that are reported, which
favours the baselines; learned dispatch is told how unsteady the steps before were. Intervals are of 95 %, of
differences play by play. Draws are new: none was trained or tuned on. No shape (ranks, micro-batches, memory) of these
tables is one that training draws (`env/generator.py`). On the drawn problems there stands beside it what the dispatcher
does without its network: it picks order and patience by the same trial plays, and follows them; and what one who knows
the draws would save at least: a tabu search over the times as drawn, from the quickest runs of everybody.
`--part look` is for choosing: shapes on which nothing is learned and nothing is judged. `--policy FILES` plays others
than the shipped policy, for instance one of each training seed. `--learn N ..` sets beside it what the policy that
ships does after so many updates of `hippo train --plan` on the problem itself, which is told the standard deviation of
the noise as a dispatcher is (`--told noise`: the noise itself), for each of `--seeds`; `--first N` plays the first N
problems alone, `--keep FILE` keeps what was learned, beside what it holds already. `--json` prints every row as a
document, `--exact-s S` adds CP-SAT with S seconds per play where p is 8 and m 32.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from _clairvoyant import clairvoyant, searched_run  # type: ignore[import-not-found]
from hippo.dispatch.dispatch import decision_seconds
from hippo.dispatch.env.generator import JUDGE, LOOK, side_of
from hippo.dispatch.network import DispatchWeights, follower, read, shipped
from hippo.dispatch.noise.fluctuation import Factors, Fluctuation, MakespanSpread, drawn
from hippo.dispatch.noise.fluctuation_grid import DELAYS, LEVELS, MID_LINK, TIMES, UNIFORM
from hippo.dispatch.noise.fluctuation_grid import pipeline as alike
from hippo.dispatch.noise.learned_play import spread_learned
from hippo.dispatch.noise.pipelines import Pipelines
from hippo.dispatch.noise.presets import PRESETS
from hippo.dispatch.noise.robust_order import HINT, robust_order
from hippo.dispatch.noise.timed_play import order_run, timed_hint, timed_learned
from hippo.dispatch.noise.trial import KINDS, ORDERS, ZERO_BUBBLE, FluctuationTrial, TriedOrder, order_for, trial
from hippo.dispatch.train.on_plan import PlanLearner
from hippo.dispatch.train.settings import Settings
from hippo.schedule.problem import RankLink, ScheduleProblem
from hippo.schedule.schedule import Schedule, split

SEEDS = (90_001, 90_002, 90_003, 90_004)  # of the draws
PLAYS, ASKED_PLAYS = 50, 200  # of each seed
DRAWN = 60  # problems
FORESEEN, STARTS, TABU_STEPS = (
    2,
    4,
    2000,
)  # plays of each seed that are searched with all draws known; from so many runs
SHOWN = {"zb-h1": "H1", "zb-h2": "H2", "zb-auto": "auto", "cross-domain": "cross"}
LEGEND = (
    "Mean makespans in F. H1, H2, auto: zero-bubble orders, cross: the cross-domain generator; each in fixed order, as "
    "a hint, as a patient hint. Floor: of each play, all draws known. 'of ..': what learned dispatch saves of the best "
    "such baseline, its name and patience. Seeds: on how many it is ahead of the best baseline. – does not fit."
)
NOISES = {
    "normal": Fluctuation(0.3),
    "uniform + ranks": Fluctuation(0.3, kind="uniform", rank_level=0.15),
    "slow ranks": Fluctuation(0.3, rank_level=0.2),
    "rare late": Fluctuation(0.3, abnormal_share=0.01, abnormal_factor=10.0),
}
"""At 30 %. In the second, ranks vary by half as much for a whole play."""


@dataclass(frozen=True)
class Case:
    """One row of a table."""

    part: str
    links: str
    memory: str
    noise: str
    problem: ScheduleProblem
    fluctuation: Fluctuation
    plays: int = PLAYS


def pipeline(
    layout: str, delay: float, live: int, *, ranks: int = 8, micro_batches: int = 32, uneven: bool = False
) -> ScheduleProblem:
    """A pipeline of the grid, ``mid`` for its slow link in the middle; ``uneven``: ranks differ by up to 30 %."""
    where = MID_LINK if layout == "mid" else UNIFORM
    problem = alike(where, delay, live, ranks=ranks, micro_batches=micro_batches)
    if not uneven:
        return problem
    pace = [1.0, 1.3, 0.8, 1.1, 0.9, 1.25, 0.75, 1.0]
    pace = (pace * ranks)[:ranks]
    forward, backward, weight = (tuple(each * slow for slow in pace) for each in TIMES)
    return replace(problem, forward=forward, backward=backward, weight=weight)


def grid() -> Iterator[Case]:
    """Fluctuation, delay, layout and memory, p 8, m 32."""
    for layout, delay in [("uniform", each) for each in DELAYS] + [("mid", each) for each in DELAYS[1:]]:
        for live in (8, 16):
            for level in LEVELS:
                problem, noise = pipeline(layout, delay, live), Fluctuation(level)
                yield Case("grid", f"{layout} {delay:g}", f"{live}", f"{level:.0%}", problem, noise)


def noises() -> Iterator[Case]:
    """Other kinds of noise, at 30 %."""
    for name, noise in list(NOISES.items())[1:]:
        for layout, delay in (("uniform", 0.1), ("uniform", 1.0), ("mid", 5.0)):
            for live in (8, 16):
                if (layout, delay) != ("mid", 5.0):  # those are asked for, with more plays
                    yield Case("noise", f"{layout} {delay:g}", f"{live}", name, pipeline(layout, delay, live), noise)


def asked() -> Iterator[Case]:
    """The rows that were asked for: one slow link in the middle, 30 %."""
    for live in (8, 16):
        for name, noise in NOISES.items():
            yield Case("asked", "mid 5", f"{live}", name, pipeline("mid", 5.0, live), noise, ASKED_PLAYS)


def sizes() -> Iterator[Case]:
    """Other sizes, and ranks that differ, at 30 %."""
    noise = NOISES["normal"]
    for layout, delay in (("uniform", 1.0), ("mid", 5.0)):
        for ranks, micro_batches, plays in ((4, 8, PLAYS), (16, 64, PLAYS // 2), (24, 72, PLAYS // 3)):
            for live in (ranks, 2 * ranks):
                problem = pipeline(layout, delay, live, ranks=ranks, micro_batches=micro_batches)
                links = f"p {ranks} m {micro_batches}, {layout} {delay:g}"
                yield Case("sizes", links, f"{live}", "30%", problem, noise, plays)
        for live in (8, 16):
            problem = pipeline(layout, delay, live, uneven=True)
            yield Case("sizes", f"unequal ranks, {layout} {delay:g}", f"{live}", "30%", problem, noise)


def unseen(part: str = "unseen", side: str = JUDGE) -> Iterator[Case]:
    """Those problems at 30 %, all four kinds of noise in turn."""
    for index, (links, memory, problem) in enumerate(drawn_problems(side)):
        name = list(NOISES)[index % len(NOISES)]
        yield Case(part, links, memory, name, problem, NOISES[name], PLAYS // 3)


def look() -> Iterator[Case]:
    """The same of shapes that are neither learned on nor judged: what a policy may be chosen by."""
    yield from unseen("look", LOOK)


def real() -> Iterator[Case]:
    """Those problems, all of them under each preset: as steps swing in published runs, and under stress."""
    for name, noise in PRESETS.items():
        for links, memory, problem in drawn_problems():
            yield Case("real", links, memory, name, problem, noise, PLAYS // 3)


def drawn_problems(side: str = JUDGE) -> Iterator[tuple[str, str, ScheduleProblem]]:
    """Name, memory and problem: drawn here, by other rules than training's, and of shapes that training never draws."""
    rng, index = random.Random(20_261_128), 0
    while index < DRAWN:
        p = rng.choice((3, 4, 6, 8, 10, 12))
        m = p * rng.choice((2, 3, 4)) + rng.randrange(3)
        times = (1.0, rng.uniform(0.7, 1.4), rng.uniform(0.3, 1.2))
        uneven = rng.choice((0.0, 0.2, 0.4))
        pace = [1 + uneven * rng.uniform(-1, 1) for _ in range(p)]
        delays = [rng.choice((0.0, 0.05, 0.3))] * (p - 1)
        for link in rng.sample(range(p - 1), k=min(p - 1, rng.choice((0, 1, 2, 3)))):
            delays[link] = rng.choice((0.5, 2.0, 8.0)) * rng.uniform(0.5, 1.5)
        limit = float(rng.choice((max(2, p // 2), p, p, max(2, round(1.5 * p)), 2 * p)))
        links = tuple(RankLink(each) for each in delays)
        forward, backward, weight = (tuple(each * slow for slow in pace) for each in times)
        problem = ScheduleProblem(m, forward, backward, weight, links, links, (limit,) * p)
        if side_of(problem) == side:
            yield f"drawn {index}, p {p} m {m}", f"{limit:g}", problem
            index += 1


PARTS = {
    "asked": ("Asked: p 8, m 32, one middle link of 5 F, 30 %", asked),
    "grid": ("p 8, m 32: fluctuation (normal) against delay", grid),
    "noise": ("p 8, m 32: other noise, 30 %", noises),
    "unseen": ("Problems drawn by other rules than those of training: times, links, memory; 30 %", unseen),
    "look": ("To choose a policy by: the same, of shapes on which nothing is learned or judged; 30 %", look),
    "real": ("The same problems under the noise of published runs, and under stress", real),
    "sizes": ("Other sizes, and ranks whose times differ by up to 30 %; 30 %, normal", sizes),
}


# -------------------------------------------------------------------------------------------------------------- a row
@dataclass(frozen=True, eq=False)
class Row:
    """A case and what came of it."""

    case: Case
    trial: FluctuationTrial
    unlearned: TriedOrder  # the same dispatcher without its network
    others: tuple[MakespanSpread, ...]  # of further policies
    foreseen: NDArray[np.float64]  # (n,) makespans with all draws known, of the first plays of each seed; n may be 0
    lessons: tuple[Lesson, ...]  # of the policy that went on learning on this very problem

    @property
    def fixed(self) -> TriedOrder:
        """The best fixed order."""
        return self.trial.best("fixed")

    @property
    def plain(self) -> TriedOrder:
        """The best hint without patience."""
        return self.trial.best("hint")

    @property
    def hint(self) -> TriedOrder:
        """The best hint with or without patience."""
        return self.trial.best("hint", "patient")

    def saved(self, other: TriedOrder) -> list[float]:
        """Share of a baseline's mean that each policy saves."""
        return [1 - each.mean / other.spread.mean for each in (self.trial.learned, *self.others)]

    def foresight(self) -> tuple[float, float, float]:
        """Shares of the best hint's mean that policies, one who knows the draws, and the floor save, on the plays that
        were searched."""
        learned = statistics.fmean(self.of_searched(each) for each in (self.trial.learned, *self.others))
        known = 1 - float(self.foreseen.mean()) / self._searched(self.hint.spread)
        return learned, known, self.of_searched(MakespanSpread(self.trial.floor))

    def of_searched(self, mine: MakespanSpread) -> float:
        """Share of the best hint's mean that is saved on the plays that were searched with all draws known."""
        return 1 - self._searched(mine) / self._searched(self.hint.spread)

    def _searched(self, played: MakespanSpread) -> float:
        seeds = max(1, len(self.foreseen) // FORESEEN)
        return float(played.makespans.reshape(seeds, -1)[:, :FORESEEN].mean())

    @property
    def zero_bubble(self) -> TriedOrder:
        """The best of the zero-bubble orders as their paper runs them."""
        return self.trial.best("fixed", orders=ZERO_BUBBLE)


@dataclass(frozen=True)
class Lesson:
    """A policy after so many updates on a problem, and what it was played."""

    told: str  # ``deviation``: the standard deviation of the noise, which a dispatcher is told; ``noise``: all of it
    seed: int
    updates: int
    cpu_s: float  # of learning, looking and trying
    learned: bool  # whether its trial kept it
    makespans: list[float]  # of the plays that all are judged on

    @property
    def spread(self) -> MakespanSpread:
        """Of those plays."""
        return MakespanSpread(np.array(self.makespans))


@dataclass(frozen=True)
class Lessons:
    """What is learned on each problem before it is played."""

    updates: tuple[int, ...]  # after each of which the policy is played
    told: str
    seeds: tuple[int, ...]
    keep: Path | None

    def of(self, case: Case) -> tuple[Lesson, ...]:
        """On one problem; those that are kept are not learned again."""
        known = self._kept(case)
        for seed in self.seeds:
            if not all((seed, each) in known for each in self.updates):
                for lesson in learned_on(case, self, seed):
                    known[seed, lesson.updates] = lesson
                    if self.keep is not None:
                        with self.keep.open("a") as stream:
                            stream.write(json.dumps({"problem": case.links, **asdict(lesson)}) + "\n")
        return tuple(known[seed, each] for seed in self.seeds for each in self.updates)

    def _kept(self, case: Case) -> dict[tuple[int, int], Lesson]:
        """By seed and updates."""
        found = {}
        lines = self.keep.read_text().splitlines() if self.keep is not None and self.keep.exists() else []
        for told in map(json.loads, lines):
            if told.pop("problem") == case.links and told["told"] == self.told:
                found[told["seed"], told["updates"]] = Lesson(**told)
        return found


def learned_on(case: Case, asked: Lessons, seed: int) -> Iterator[Lesson]:
    """As ``hippo train --plan`` would do it with so many updates. The draws of the judge have other seeds than all that
    learning, looking and trying draw."""
    settings = Settings().on_plan()
    settings = replace(settings, run=replace(settings.run, seed=seed, updates=max(asked.updates)))
    noise = Fluctuation(case.fluctuation.deviation) if asked.told == "deviation" else case.fluctuation
    torch.set_num_threads(1)
    began, spent = time.process_time(), 0.0
    learner, best = PlanLearner(shipped(), Pipelines((case.problem,), noise), settings), (-np.inf, shipped())
    for done in range(settings.run.updates):
        learner.learn(done / settings.run.updates)
        if (done + 1) % settings.run.validate_every == 0 or done + 1 in asked.updates:
            weights = learner.policy.weights()
            best = max(best, (learner.look(weights), weights), key=lambda each: each[0])
        if done + 1 in asked.updates:
            before = time.process_time()
            tried = learner.tried(best[1])
            cpu_s, found = time.process_time() - began - spent, played(case, tried.weights)
            spent += time.process_time() - before
            yield Lesson(asked.told, seed, done + 1, cpu_s, tried.learned, found.makespans.tolist())


def played(case: Case, weights: DispatchWeights) -> MakespanSpread:
    """On the plays that all are judged on."""
    moves = case.fluctuation.level > 0
    each = [
        spread_learned(
            case.problem, case.fluctuation, weights=weights, samples=case.plays if moves else 1, seed=seed
        ).makespans
        for seed in SEEDS[: None if moves else 1]
    ]
    return MakespanSpread(np.concatenate(each))


def measured(case: Case, policies: Sequence[DispatchWeights] = (), lessons: Lessons | None = None) -> Row:
    """Plays a case, with the policy that ships where none is given."""
    found = trial(case.problem, case.fluctuation, samples=case.plays, seeds=SEEDS, weights=(policies or (None,))[0])
    unlearned = TriedOrder("without the network", HINT, played(case, follower()))
    seeds = SEEDS[: len(found.learned.makespans)]
    known = foreseen(case, found, seeds) if case.part in ("unseen", "real", "look") else np.empty(0)
    others = tuple(played(case, each) for each in policies[1:])
    return Row(case, found, unlearned, others, known, () if lessons is None else lessons.of(case))


def foreseen(case: Case, found: FluctuationTrial, seeds: Sequence[int]) -> NDArray[np.float64]:
    """The shortest order that a search finds for each of the first plays of a seed, all draws known: from the quickest
    baselines on that very play. Nobody who decides while the play runs can do as well but by luck, and the best may be
    shorter still."""
    ends = []
    for number, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        factors = next(drawn(case.problem, case.fluctuation, samples=found.per_seed, rng=rng))
        for index in range(min(FORESEEN, found.per_seed)):
            play = number * found.per_seed + index
            quickest = sorted(found.baselines, key=lambda each: each.spread.makespans[play])[:STARTS]
            runs = [run_of(case.problem, each, factors, index) for each in quickest]
            spans = [searched_run(case.problem, factors, index, run, steps=TABU_STEPS) for run in runs]
            ends.append(min(*spans, found.learned.makespans[play]))
    return np.array(ends)


def run_of(problem: ScheduleProblem, tried: TriedOrder, factors: Factors, index: int) -> Schedule:
    """The order in which ranks ran in one play."""
    schedule, _ = order_for(problem, tried.order)
    if not tried.way.by_hint:
        return split(schedule)
    return order_run(timed_hint(problem, schedule, factors, index, patience=tried.way.patience), tried.order)


def signed(share: tuple[float, float]) -> str:
    """A share with its interval, in %."""
    return f"{round(100 * share[0], 1) + 0.0:+.1f} ±{100 * share[1]:.1f}"  # + 0: no -0.0


def named(baseline: TriedOrder) -> str:
    """An order and, where it has one, its patience."""
    return SHOWN[baseline.order] + (f" {baseline.way.patience:g}" if baseline.way.announces else "")


def cell(found: FluctuationTrial, order: str) -> str:
    """Fixed, hint, patient hint of one order."""
    means = [None if (one := found.of(order, kind)) is None else one.spread.mean for kind in KINDS]
    return " ".join(f"{'–':>5s}" if mean is None else f"{mean:5.1f}" for mean in means)


COLUMNS = ("learned", "floor", "above it %", "of fixed %", "of hint %", "of patient hint %", "seeds", "verdict")


def table(title: str, rows: Sequence[Row]) -> Table:
    """For the terminal."""
    shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    shown.add_column("links, K", no_wrap=True)
    shown.add_column("noise", justify="right", no_wrap=True)
    for name in SHOWN.values():
        shown.add_column(f"{name}: fixed, hint, patient", justify="right", min_width=17, max_width=17)
    for name in COLUMNS:
        shown.add_column(name, justify="right", no_wrap=True)
    last = None
    for row in rows:
        case, found = row.case, row.trial
        if last not in (None, case.links) and case.part not in ("unseen", "look", "real"):
            shown.add_section()
        last = case.links
        ahead, seeds = found.seeds_ahead(found.best())
        shown.add_row(
            f"{case.links}, K {case.memory}",
            case.noise,
            *(cell(found, order) for order in ORDERS),
            f"{found.learned.mean:.1f} ±{found.learned.error:.1f}",
            f"{found.floor.mean():.1f}",
            signed(found.above_floor)[1:],
            *(f"{signed(found.saved(each))} {named(each)}" for each in (found.best(kind) for kind in KINDS)),
            f"{ahead}/{seeds}",
            found.verdict,
        )
    return shown


def document(row: Row) -> dict[str, object]:
    """A row as JSON values."""
    case, found = row.case, row.trial
    return {
        "part": case.part,
        "links": case.links,
        "memory": case.memory,
        "noise": case.noise,
        "plays": len(found.learned.makespans),
        "learned": {"mean": found.learned.mean, "error": found.learned.error},
        "floor": float(found.floor.mean()),
        "above_floor": found.above_floor,
        "without the network": found.saved(row.unlearned),
        "baselines": [
            {
                "order": each.order,
                "way": each.way.name,
                "mean": each.spread.mean,
                "error": each.spread.error,
                "saved": found.saved(each),
            }
            for each in found.baselines
        ],
        "seeds_ahead": found.seeds_ahead(found.best()),
        "verdict": found.verdict,
    }


# ------------------------------------------------------------------------------------------------------------ sentences
def verdicts(everything: Sequence[Row]) -> Iterator[str]:
    """What the rows say together: where learned dispatch wins, the claim, and where a hint is the better baseline."""
    drawn_ones = [row for row in everything if row.case.part == "unseen"]
    look_ones = [row for row in everything if row.case.part == "look"]
    for told, mine in (("30 %, four kinds of noise", drawn_ones), ("30 %, to choose by", look_ones)):
        yield from over_problems(told, mine)
        yield from after_learning(mine)
    for name in PRESETS:
        yield from over_problems(name, [row for row in everything if (row.case.part, row.case.noise) == ("real", name)])
    rows = [row for row in everything if row.case.part not in ("unseen", "look", "real")]
    if not rows:
        return
    noisy = [row for row in rows if len(row.trial.learned.makespans) > 1]
    count = {name: sum(row.trial.verdict == name for row in noisy) for name in ("learned", "even", "hint", "fixed")}
    yield (
        f"Of {len(noisy)} rows with noise learned dispatch beats every baseline in {count['learned']}, intervals "
        f"apart; {count['even']} are even; a hint is better in {count['hint']}, a fixed order in {count['fixed']}."
    )
    yield from claim([row for row in noisy if row.case.noise not in ("10%", "20%")])
    apart = [row for row in noisy if row.hint.spread.minus(row.fixed.spread).interval[1] < 0]
    worse = [row for row in noisy if row.hint.spread.minus(row.fixed.spread).interval[0] > 0]
    yield (
        f"Among the baselines a hint (with or without patience) beats every fixed order in {len(apart)} rows, a fixed "
        f"order every hint in {len(worse)}: {listed(worse)}."
    )
    lost = [row for row in noisy if row.trial.verdict in ("hint", "fixed")]
    if lost:
        yield f"Learned dispatch loses at {listed(lost)}."


def over_problems(noise: str, rows: Sequence[Row]) -> Iterator[str]:
    """Of problems drawn here: the mean saving over problems, with its interval."""
    if not rows:
        return
    told, each_policy = [], []
    for against, saved in (
        ("the best fixed order", [row.saved(row.fixed) for row in rows]),
        ("the best hint", [row.saved(row.plain) for row in rows]),
        ("the best patient hint", [row.saved(row.trial.best("patient")) for row in rows]),
        ("the best hint of any kind", [row.saved(row.hint) for row in rows]),
        ("itself without the network", [row.saved(row.unlearned) for row in rows]),
    ):
        told.append(f"{over([statistics.fmean(each) for each in saved], rows)} of {against}")
        if against == "the best hint of any kind":
            each_policy = [f"{100 * statistics.fmean(mine):+.2f}" for mine in zip(*saved, strict=True)]
    count = {name: sum(row.trial.verdict == name for row in rows) for name in ("learned", "even", "hint", "fixed")}
    yield (
        f"{len(rows)} problems of shapes that training leaves out, {noise}: learned dispatch saves {', '.join(told)} "
        f"(95 %, over shapes); it beats every baseline in {count['learned']}, {count['even']} are even, a hint is "
        f"better in {count['hint']}, a fixed order in {count['fixed']}."
    )
    if len(each_policy) > 1:
        yield f"Each policy, of the best hint of any kind: {', '.join(each_policy)} %."
    learned, known, floor = (list(each) for each in zip(*(row.foresight() for row in rows), strict=True))
    yield (
        f"On {len(rows[0].foreseen)} plays of each, of the best hint of any kind: one who knows all draws saves at "
        f"least {over(known, rows)} (searched), at most {over(floor, rows)} (the floor); learned dispatch "
        f"{over(learned, rows)}, "
        f"{statistics.fmean(learned) / max(statistics.fmean(known), 1e-9):.0%} of the first."
    )


def over(shares: Sequence[float], rows: Sequence[Row]) -> str:
    """A mean over problems with its 95 % interval, in %. Shapes count as independent, not problems: of those of one
    ranks, micro-batches and memory the distances from the mean are added (a cluster-robust error)."""
    mean = statistics.fmean(shares)
    shapes: defaultdict[tuple[float, ...], float] = defaultdict(float)
    for share, row in zip(shares, rows, strict=True):
        problem = row.case.problem
        shapes[problem.ranks, problem.micro_batches, problem.limit[0]] += share - mean
    count = len(shapes)
    error = 1.96 * (sum(each**2 for each in shapes.values()) * count / (count - 1)) ** 0.5 / len(shares)
    return f"{100 * mean:+.2f} ±{100 * error:.2f} %"


def after_learning(rows: Sequence[Row]) -> Iterator[str]:
    """What learning on each problem beforehand brings, by how long, the mean over its seeds."""
    for told, updates in sorted({(each.told, each.updates) for row in rows for each in row.lessons}):
        mine = [[each for each in row.lessons if (each.told, each.updates) == (told, updates)] for row in rows]
        both = list(zip(mine, rows, strict=True))
        seeds = [[saved_by([lessons[at]], row.hint.spread) for lessons, row in both] for at in range(len(mine[0]))]
        sides = [side(lessons[0].spread, row.trial.best().spread) for lessons, row in both]
        cpu_s = [each.cpu_s for lessons in mine for each in lessons]
        kept = statistics.fmean(each.learned for lessons in mine for each in lessons)
        gains = (
            over([saved_by(lessons, row.fixed.spread) for lessons, row in both], rows),
            over([saved_by(lessons, row.hint.spread) for lessons, row in both], rows),
            over([saved_by(lessons, row.trial.learned) for lessons, row in both], rows),
        )
        known = statistics.fmean(row.foresight()[1] for row in rows)
        share = statistics.fmean(row.of_searched(each.spread) for lessons, row in both for each in lessons) / known
        yield (
            f"After {updates} updates on the very problem, told its {told} ({statistics.fmean(cpu_s):.1f} s of CPU, "
            f"{min(cpu_s):.1f} to {max(cpu_s):.1f}; its trial keeps the new policy in {kept:.0%}): {gains[0]} of the "
            f"best fixed order, {gains[1]} of the best hint of any kind (each seed "
            f"{', '.join(f'{100 * statistics.fmean(each):+.2f}' for each in seeds)}), {gains[2]} of the policy that "
            f"ships; with the first seed it beats every baseline in {sides.count(1)}, {sides.count(0)} are even, "
            f"{sides.count(-1)} are lost; {share:.0%} of hindsight's gain."
        )


def saved_by(lessons: Sequence[Lesson], other: MakespanSpread) -> float:
    """Share of another's mean, the mean over lessons."""
    return 1 - statistics.fmean(each.spread.mean for each in lessons) / other.mean


def side(mine: MakespanSpread, other: MakespanSpread) -> int:
    """1 where the whole interval says that it is quicker, -1 where slower."""
    low, high = other.minus(mine).interval
    return 1 if low > 0 else -1 if high < 0 else 0


def claim(rows: Sequence[Row]) -> Iterator[str]:
    """The claim of the documents, that PPO beats Zero Bubble at 30 %: against fixed orders, and against hints."""
    for against, chosen in (
        ("the best zero-bubble order in fixed order", [row.zero_bubble for row in rows]),
        (
            "the best zero-bubble order as a hint",
            [row.trial.best("hint", "patient", orders=ZERO_BUBBLE) for row in rows],
        ),
        ("the best hint of all", [row.hint for row in rows]),
    ):
        saved = [100 * row.trial.saved(each)[0] for row, each in zip(rows, chosen, strict=True)]
        sides = [row.trial.side(each) for row, each in zip(rows, chosen, strict=True)]
        yield (
            f"At 30 %, against {against}: learned dispatch is ahead in {sides.count(1)} of {len(rows)} rows, behind in "
            f"{sides.count(-1)}; median {statistics.median(saved):+.1f} %, from {min(saved):+.1f} to "
            f"{max(saved):+.1f} %."
        )


def listed(rows: Sequence[Row]) -> str:
    """Names of rows; none: 'nowhere'."""
    return "; ".join(f"{row.case.links} K {row.case.memory} {row.case.noise}" for row in rows) or "nowhere"


# ------------------------------------------------------------------------------------------------- hindsight, and time
def searched(rows: Sequence[Row]) -> Iterator[str]:
    """The order that ``robust_order`` searches for each asked noise, which is no baseline of the tables."""
    for row in rows:
        if row.case.noise not in ("normal", "uniform + ranks"):
            continue
        found = robust_order(row.case.problem, row.case.fluctuation, time_limit_s=1.0, seed=1)
        best = MakespanSpread(
            np.concatenate(
                [
                    found.winner.way.played(
                        row.case.problem, found.winner.schedule, row.case.fluctuation, samples=row.case.plays, seed=seed
                    ).makespans
                    for seed in SEEDS
                ]
            )
        )
        saved = row.trial.saved(TriedOrder("searched", HINT, best))
        yield (
            f"K {row.case.memory}, {row.case.noise}: {found.winner.name} (searched for this noise, 1 s) "
            f"{best.mean:.1f} ±{best.error:.1f}; learned dispatch saves {signed(saved)} % of it."
        )


def told_wrongly() -> Iterator[str]:
    """What it costs a dispatcher to believe that operations are steadier than they are: 30 %, normal."""
    for layout, delay, live in (("mid", 5.0, 8), ("mid", 5.0, 16), ("uniform", 1.0, 8), ("uniform", 0.1, 8)):
        problem, noise = pipeline(layout, delay, live), NOISES["normal"]
        means = {
            level: statistics.mean(
                spread_learned(problem, noise, samples=PLAYS, seed=seed, told=level).mean for seed in SEEDS
            )
            for level in LEVELS
        }
        shown = ", ".join(f"{mean:.1f} told {level:.0%}" for level, mean in means.items())
        yield f"{layout} {delay:g}, K {live}, times that move by 30 %: learned dispatch takes {shown}."


@dataclass(frozen=True, eq=False)
class Exact:
    """Plays whose optimum with all draws known was proved, or bounded."""

    name: str
    learned: MakespanSpread
    baseline: MakespanSpread
    optimum: MakespanSpread  # the shortest order found
    bound: MakespanSpread  # proved
    floor: MakespanSpread

    def told(self) -> str:
        """A line."""
        proved = int((self.optimum.makespans <= self.bound.makespans * 1.001).sum())
        above = [
            signed((each.minus(self.bound).mean / self.bound.mean, each.minus(self.bound).error / self.bound.mean))
            for each in (self.learned, self.baseline)
        ]
        slack = self.bound.mean / self.floor.mean - 1
        return (
            f"{self.name}, {len(self.bound.makespans)} plays, {proved} proved: learned {self.learned.mean:.1f}, "
            f"{above[0]} % above hindsight ({self.bound.mean:.1f}); best baseline {above[1]} %; the quick floor "
            f"({self.floor.mean:.1f}) lies {100 * slack:.1f} % below hindsight."
        )


def exact(name: str, problem: ScheduleProblem, noise: Fluctuation, *, plays: int, time_limit_s: float) -> Exact:
    """CP-SAT on each play; it starts from the shorter of what learned dispatch and the best baseline ran there."""
    seed = SEEDS[0]
    found = trial(problem, noise, samples=plays, seeds=(seed,))
    best = found.best("hint", "patient")
    hint, _ = order_for(problem, best.order)
    optimum, bound = [], []
    for factors in drawn(problem, noise, samples=plays, rng=np.random.default_rng(seed)):
        for index in range(len(factors.ranks)):
            learned = timed_learned(problem, shipped(), factors, index, level=noise.deviation)
            other = timed_hint(problem, hint, factors, index, patience=best.way.patience)
            start = order_run(min(learned, other, key=lambda each: each.makespan), "run")
            one = clairvoyant(problem, factors, index, start, time_limit_s=time_limit_s)
            optimum.append(one.makespan)
            bound.append(one.lower_bound)
    shown = (found.learned.makespans, found.best().spread.makespans, np.array(optimum), np.array(bound), found.floor)
    return Exact(name, *(MakespanSpread(each) for each in shown))


def hindsight(exact_s: float) -> Iterator[str]:
    """Small problems exactly; the asked ones where there is time."""
    for layout, delay in (("uniform", 1.0), ("mid", 5.0)):
        for live in (4, 8):
            problem = pipeline(layout, delay, live, ranks=4, micro_batches=8)
            name = f"p 4 m 8, {layout} {delay:g}, K {live}, 30 %"
            yield exact(name, problem, NOISES["normal"], plays=40, time_limit_s=2.0).told()
    problem = pipeline("mid", 5.0, 8, micro_batches=16)
    if exact_s > 0:
        name = f"p 8 m 16, mid 5, K 8, 30 %, {exact_s:g} s of CP-SAT a play"
        yield exact(name, problem, NOISES["normal"], plays=12, time_limit_s=exact_s).told()
    for live in (8, 16) if exact_s > 0 else ():
        name = f"p 8 m 32, mid 5, K {live}, 30 %, {exact_s:g} s of CP-SAT a play"
        yield exact(name, pipeline("mid", 5.0, live), NOISES["normal"], plays=12, time_limit_s=exact_s).told()


def decision_times() -> Iterator[str]:
    """Microseconds of one decision by the clock: median and least of 15 means over a whole play."""
    for ranks, micro_batches, live in ((4, 8, 4), (8, 32, 8), (8, 32, 16), (16, 64, 32)):
        problem = pipeline("mid", 5.0, live, ranks=ranks, micro_batches=micro_batches)
        spent = sorted(decision_seconds(problem, repeats=1600 // micro_batches) for _ in range(15))
        yield (
            f"A decision, p {ranks} m {micro_batches} K {live}: median {1e6 * statistics.median(spent):.2f} us, "
            f"from {1e6 * spent[0]:.2f} to {1e6 * spent[-1]:.2f} (asked: 20 us)."
        )


# ---------------------------------------------------------------------------------------------------------------- main
def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Prints the tables, then what they say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="every row as a document")
    parser.add_argument("--part", choices=PARTS, help="one table alone, without hindsight and times")
    parser.add_argument("--policy", nargs="+", default=[], metavar="FILE", help="in place of that which ships")
    parser.add_argument("--learn", type=int, nargs="+", default=[], metavar="UPDATES", help="on each problem first")
    parser.add_argument("--told", choices=("deviation", "noise"), default="deviation", help="to whoever learns")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of that learning")
    parser.add_argument("--first", type=int, metavar="N", help="the first N rows of a table alone")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="what was learned, a line each")
    parser.add_argument("--exact-s", type=float, default=0.0, help="CP-SAT seconds per play where p is 8 and m 32")
    given = parser.parse_args(arguments)
    began, policies = time.process_time(), [read(each) for each in given.policy]
    lessons = Lessons(tuple(given.learn), given.told, tuple(given.seeds), given.keep) if given.learn else None
    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 250)
    if not given.json:
        console.print(LEGEND, highlight=False)
    rows: list[Row] = []
    for name, (title, cases) in PARTS.items():
        if given.part == name or (given.part is None and name != "look"):
            mine = [measured(case, policies, lessons) for case in islice(cases(), given.first)]
            rows += mine
            if not given.json:
                console.print(table(title, mine))
    if given.json:
        print(json.dumps([document(row) for row in rows], indent=1))
        return rows
    asked_rows = [row for row in rows if row.case.part == "asked"]
    more = () if given.part else (*searched(asked_rows), *told_wrongly(), *hindsight(given.exact_s))
    for sentence in (*verdicts(rows), *more, *(() if given.part else decision_times())):
        console.print(sentence, highlight=False)
    console.print(f"{time.process_time() - began:.0f} s of CPU.", highlight=False)
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
