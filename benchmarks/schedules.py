"""Micro-batch schedules: gaps and times of `best`, against published problems, problems of our own, and every method.

Published: 60 problems (schedules_open.json) with the best makespan known, and table 5 of the zero-bubble paper. Own: as
many problems again from seed 2026, with other times, ranks that differ, several slow links, other limits and other
placements; and small ones whose optimum CP-SAT proves here. `best` has its usual limit by the clock. Times are CPU
seconds of this process, the median (and least) of several, compiled before. `python benchmarks/schedules.py --each`
adds a line per problem, `--json` prints these as JSON instead, `--long` (10 minutes) adds what more time would find.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf
from typing import Any

from _data import data  # type: ignore[import-not-found]
from hippo.dispatch.noise.fluctuation import Fluctuation, spread
from hippo.dispatch.noise.robust_order import robust_order
from hippo.engine.fixed_order import play
from hippo.engine.program import NOTHING
from hippo.errors import HippoError, InfeasibleError
from hippo.schedule.best import Best, best
from hippo.schedule.methods import METHODS, generate
from hippo.schedule.optimal import optimal
from hippo.schedule.problem import MicroBatchMemory, RankLink, ScheduleProblem
from hippo.schedule.problem_json import problems_of_text
from hippo.schedule.replay import makespan, packed, replay
from hippo.schedule.schedule import Schedule

LIMIT_S = None  # the usual one: 1.7 s for small problems, .95 s for others
SEED = 2026
PLACED = ("looped", "v", "bidirectional")
TIMES = ((1.0, 1.0, 1.0), (1.0, 1.05, 0.75), (1.0, 0.991, 0.671))
COLUMNS = {"1F1B": "1f1b", "ZB-H1": "zb-h1", "ZB-H2": "zb-h2", "ZB-1p": "zb-auto", "ZB-2p": "zb-auto"}


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    name: str
    asked: str
    measured: str


@dataclass(frozen=True)
class Solved:
    """One problem, what `best` made of it, and what it is measured against."""

    name: str
    problem: ScheduleProblem
    found: Best
    seconds: float  # by the clock, which a shared machine makes longer
    cpu_s: float  # of this process, the solver's threads too
    named: Mapping[str, float]  # makespans of the named methods that have a schedule for it
    reference: float = inf  # best makespan known; inf: none

    @property
    def gap(self) -> float:
        """Over the lower bound."""
        return self.found.makespan / self.found.lower_bound - 1

    @property
    def ratio(self) -> float:
        """Over the best known, less 1; below 0 it is better."""
        return self.found.makespan / self.reference - 1


def solved(name: str, problem: ScheduleProblem, reference: float = inf) -> Solved:
    """`best` with its time limit, and every named method of the placement."""
    began, cpu_began = time.perf_counter(), time.process_time()
    found = best(problem, time_limit_s=LIMIT_S)
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    return Solved(name, problem, found, seconds, cpu_s, named(problem), reference)


def named(problem: ScheduleProblem) -> dict[str, float]:
    """Makespans of the named methods that keep within the problem's memory."""
    spans = {}
    for name, method in METHODS.items():
        if method.placement == problem.placement:
            try:
                spans[name] = makespan(problem, generate(name, problem))
            except (InfeasibleError, ImportError):
                continue
    return spans


# ----------------------------------------------------------------------------------------------------------- problems
def published() -> dict[str, Any]:
    """The file of published problems."""
    found: dict[str, Any] = json.loads(data("schedules_open.json").read_text())
    return found


@cache
def open_answers() -> tuple[Solved, ...]:
    """All published problems, answered."""
    problems = problems_of_text(data("schedules_open.json").read_text(), source="schedules_open.json").problems
    rows = published()["problems"]
    return tuple(
        solved(row["id"], sized.problem, row["best_of_all"]) for sized, row in zip(problems, rows, strict=True)
    )


def drawn(count: int) -> Iterator[ScheduleProblem]:
    """Problems of our own: what the published ones are not."""
    rng = random.Random(SEED)
    for _ in range(count):
        p = rng.choice((3, 4, 6, 8, 12, 16))
        m = p * rng.choice((1, 2, 3, 4)) + rng.randrange(3)
        f, b, w = rng.choice(TIMES) if rng.random() < 0.5 else (1.0, rng.uniform(0.7, 1.4), rng.uniform(0.3, 1.2))
        uneven = rng.choice((0.0, 0.0, 0.2, 0.5))
        speed = [1 + uneven * rng.uniform(-1, 1) for _ in range(p)]
        near, slow = rng.choice((0.0, 0.05, 0.3)), rng.choice((0.0, 0.5, 2.0, 8.0))
        comm = [near] * (p - 1)
        for link in rng.sample(range(p - 1), k=min(p - 1, rng.choice((1, 2, 3)))):
            comm[link] = slow * rng.uniform(0.5, 1.5)
        links = tuple(RankLink(each) for each in comm)
        limit = rng.choice((inf, p, p, max(2, round(1.5 * p)), 2 * p, max(2, p // 2)))
        forward, backward, weight = (tuple(each * rate for rate in speed) for each in (f, b, w))
        yield ScheduleProblem(m, forward, backward, weight, links, links, (float(limit),) * p)


@cache
def own_answers() -> tuple[Solved, ...]:
    """Problems of our own, answered."""
    return tuple(solved(f"own {index}", problem) for index, problem in enumerate(drawn(60)))


@cache
def placed_answers() -> tuple[Solved, ...]:
    """Every sixth of them laid out otherwise, where that fits."""
    found = []
    for index, problem in enumerate(drawn(60)):
        if index % 6 == 0:
            for placement in PLACED:
                try:
                    found.append(solved(f"own {index}, {placement}", problem.placed(placement)))
                except InfeasibleError:
                    continue
    return tuple(found)


@cache
def proved_answers() -> tuple[Solved, ...]:
    """Small problems of our own whose optimum is proved here, within 20 s each."""
    rng, found = random.Random(SEED), []
    small = [each for each in drawn(400) if each.ranks <= 6 and each.micro_batches <= 12]
    for index, problem in enumerate(rng.sample(small, k=20)):
        answer = solved(f"small {index}", problem)
        proof = optimal(problem, time_limit_s=20.0, hint=answer.found.schedule)
        if proof.proved:
            found.append(replace(answer, reference=proof.makespan))
    return tuple(found)


# ------------------------------------------------------------------------------------------------------------- figures
def table_5() -> Iterator[Row]:
    """Bubble rates of the zero-bubble paper, 4 digits."""
    equal, wrong = 0, []
    for row in json.loads(data("zb_table5.json").read_text())["rows"]:
        for column, method in COLUMNS.items():
            rate = f"{bubble_rate(row, column, method):.4f}"
            printed = f"{row['printed_bubble_rate'][column]:.4f}"
            equal += rate == printed
            wrong += [f"{row['model']} m {row['m']} {column} {rate} for {printed}"] if rate != printed else []
    total = equal + len(wrong)
    yield Row("ZB paper, table 5: bubble rates equal to the printed 4 digits", f"{total}", f"{equal}")
    yield from (Row(f"  not equal: {each}", "", "") for each in wrong)


def bubble_rate(row: Mapping[str, Any], column: str, method: str) -> float:
    """One cell: memory counts bytes per token, given back at B and at W (docs/schedules.md)."""
    p, attention = row["p"], 5.0 * row["heads"] * row["seq"]
    taken = 34.0 * row["hidden"] + attention
    limit = {"ZB-1p": p * taken, "ZB-2p": 2 * p * taken}.get(column, inf)
    problem = ScheduleProblem.uniform(p, row["m"], (row["f_ms"], row["b_ms"], row["w_ms"]), comm=row["comm_ms"])
    problem = replace(
        problem, memory=(MicroBatchMemory(taken, 2.0 * row["hidden"] + attention),) * p, limit=(limit,) * p
    )
    return replay(problem, generate(method, problem)).bubble_rate


def gaps() -> Iterator[Row]:
    """How far `best` is from the bound, and from the best known."""
    answers = open_answers()
    yield Row(f"gap of best to the bound, {len(answers)} published problems: mean", "<= .70 %", mean_gap(answers))
    yield Row("  max", "", f"{max(each.gap for each in answers):.2%}")
    worst = max(answers, key=lambda each: each.ratio)
    within = sum(each.ratio <= 0.01 for each in answers)
    shorter = sum(each.ratio < -1e-4 for each in answers)
    yield Row("  within 1 % of the best known (best_of_all)", f"{len(answers)}", f"{within}")
    yield Row("  worst against the best known", "<= 1 %", f"{worst.ratio:+.2%} ({worst.name})")
    yield Row("  shorter than the best known", "", f"{shorter}")
    yield Row("  longest time by the clock (CPU)", "", longest(answers))
    own = own_answers()
    yield Row(f"the same, {len(own)} own problems (seed {SEED}): mean", "", mean_gap(own))
    yield Row("  max", "", f"{max(each.gap for each in own):.2%}")
    yield Row("  best simple method instead of best: mean", "", mean_simple(own))
    yield Row("  and on the published problems: mean", "", mean_simple(answers))


def mean_gap(answers: Iterable[Solved]) -> str:
    """Of the answers, over the bound."""
    return f"{statistics.fmean(each.gap for each in answers):.2%}"


def mean_simple(answers: Iterable[Solved]) -> str:
    """Gap of the shortest named method, where one keeps within memory."""
    gaps_ = [min(each.named.values()) / each.found.lower_bound - 1 for each in answers if each.named]
    return f"{statistics.fmean(gaps_):.2%}, max {max(gaps_):.0%}"


def longest(answers: Iterable[Solved]) -> str:
    """Of the slowest problem."""
    slowest = max(answers, key=lambda each: each.seconds)
    return f"{slowest.seconds:.2f} s ({slowest.cpu_s:.2f} s)"


def never_worse() -> Iterator[Row]:
    """`best` against every named method on every problem of the same placement."""
    answers = (*open_answers(), *own_answers(), *placed_answers())
    pairs = [(each, name, span) for each in answers for name, span in each.named.items()]
    worse = [(each, name) for each, name, span in pairs if each.found.makespan > span * (1 + 1e-9)]
    title = f"best longer than a named method, {len(answers)} problems, {len(pairs)} pairs"
    yield Row(title, "0", f"{len(worse)}")
    yield from (Row(f"  {each.name}: {name}", "", "") for each, name in worse)


def proved() -> Iterator[Row]:
    """`best` where the optimum is proved."""
    optimum = {row["id"]: row["cpsat_optimum"] for row in published()["problems"]}
    known = [replace(each, reference=optimum[each.name]) for each in open_answers() if optimum[each.name] is not None]
    for title, answers in (("published", known), ("own small", list(proved_answers()))):
        worst = max(answers, key=lambda each: each.ratio)
        title = f"{len(answers)} {title} problems with a proved optimum: worst above it"
        yield Row(title, "<= 1 %", f"{worst.ratio:+.2%} ({worst.name})")
        yield Row("  longest time by the clock (CPU)", "<= 2 s", longest(answers))


def longer() -> Iterator[Row]:
    """`best` as users get it against 12 s and another seed, on own problems whose gap is above .3 %."""
    ratios = []
    for answer in own_answers():
        if answer.gap > 0.003:
            again = best(answer.problem, time_limit_s=12.0, seed=1)
            ratios.append((max(1.0, answer.found.makespan / again.makespan) - 1, answer.name))
    within = sum(ratio <= 0.01 for ratio, _ in ratios)
    yield Row(f"{len(ratios)} own problems not proved: within 1 % of 12 s of best", f"{len(ratios)}", f"{within}")
    yield Row("  worst", "<= 1 %", f"{max(ratios)[0]:.2%} ({max(ratios)[1]})")


# --------------------------------------------------------------------------------------------------------------- times
def large(placement: str = "plain", *, comm: float | None = None, limit: int | None = 32) -> ScheduleProblem:
    """p 16, m 128, one slow link in the middle unless ``comm`` is the delay of all."""
    delays = [0.05] * 7 + [5.0] + [0.05] * 7 if comm is None else comm
    return ScheduleProblem.uniform(16, 128, TIMES[1], comm=delays, live_limit=limit).placed(placement)


def cpu_seconds(run: Callable[[], object], *, runs: int, loops: int = 1) -> tuple[float, float]:
    """CPU seconds of one run: median and least."""
    run()
    found = []
    for _ in range(runs):
        began = time.process_time()
        for _ in range(loops):
            run()
        found.append((time.process_time() - began) / loops)
    return statistics.median(found), min(found)


def told(spent: tuple[float, float], factor: float, unit: str) -> str:
    """Median and least."""
    return f"{spent[0] * factor:.3g} {unit} (least {spent[1] * factor:.3g})"


def generation() -> Iterator[Row]:
    """CPU seconds of one schedule at p 16 m 128; the problem's tables are built anew, the checker is in it."""
    for name, method in METHODS.items():
        times = []
        for comm in (None, 0.1):
            problem = large(method.placement, comm=comm, limit=None if name in ("gpipe", "zb-h2") else 32)
            try:
                times.append(cpu_seconds(partial(generated, name, problem), runs=7))
            except (HippoError, ImportError) as refused:
                yield Row(f"  {name}: {str(refused)[:60]}", "", "")
        if times:
            yield Row(f"generation, p 16 m 128: {name}", "<= 20 ms", told(max(times), 1e3, "ms"))
    for title, problem in (
        ("slow link, K 32", large()),
        ("slow link, K 16", large(limit=16)),
        ("delay 1, K 16", large(comm=1.0, limit=16)),
    ):
        spent = cpu_seconds(partial(best, replace(problem), time_limit_s=LIMIT_S), runs=3)
        yield Row(f"generation, p 16 m 128: best, {title}", "<= 1 s", told(spent, 1, "s"))


def generated(name: str, problem: ScheduleProblem) -> Schedule:
    """The schedule of a method, nothing remembered of the problem."""
    return generate(name, replace(problem))


def playing() -> Iterator[Row]:
    """Replay and fluctuation at p 16 m 128."""
    problem = large()
    schedule = generate("zb-auto", problem)
    program = packed(problem, schedule, again=True)
    again = cpu_seconds(lambda: play(program, problem.network, NOTHING), runs=41, loops=100)
    yield Row("replay of one schedule, p 16 m 128: its sequence known (again)", "<= 20 us", told(again, 1e6, "us"))
    alone = cpu_seconds(lambda: makespan(problem, schedule), runs=41, loops=100)
    yield Row("  sequence and makespan (never seen before)", "", told(alone, 1e6, "us"))
    whole = cpu_seconds(lambda: replay(problem, schedule), runs=41, loops=100)
    yield Row("  with the times of all operations", "", told(whole, 1e6, "us"))
    for title, by_hint, asked in (("fixed order", False, "<= .5 s"), ("by hint", True, "")):
        spent = cpu_seconds(partial(spread, problem, schedule, Fluctuation(0.2), by_hint=by_hint), runs=5)
        yield Row(f"1000 fluctuation samples, {title}", asked, told(spent, 1, "s"))


def fluctuation() -> Iterator[Row]:
    """Mean makespan when times move by up to 20 % each way, ranks by 10 % for a whole play."""
    problem = ScheduleProblem.uniform(8, 32, TIMES[1], comm=[0.05] * 3 + [5.0] + [0.05] * 3, live_limit=16)
    moves = Fluctuation(0.2, kind="uniform", rank_level=0.1)
    known = {"zb-auto": "(194.7)", "zb-h2": "(110.4 as hint)"}
    for name in ("zb-auto", "zb-h2", "cross-domain"):
        schedule = generate(name, problem)
        fixed, hint = (spread(problem, schedule, moves, seed=SEED, by_hint=by_hint) for by_hint in (False, True))
        both = f"{fixed.mean:.1f} / {hint.mean:.1f}"
        yield Row(f"+-20 %, p 8 m 32, slow link, K 16: {name}, fixed / as hint {known.get(name, '')}", "", both)
    found = robust_order(problem, moves, seed=SEED)
    for title, judged in (("", found.winner), ("best fixed order: ", found.fixed), ("best hint: ", found.hint)):
        fresh = judged.way.played(problem, judged.schedule, moves, samples=4000, seed=SEED)
        asked = "<= 109" if judged is found.winner else ""
        yield Row(f"  {title}{judged.name}: mean", asked, f"{fresh.mean:.2f} +- {fresh.error:.2f}")
        yield Row("    95th percentile", "", f"{fresh.p95:.1f}")


# --------------------------------------------------------------------------------------------------------------- print
def each_problem() -> Iterator[dict[str, object]]:
    """All answers, one document each."""
    for answer in (*open_answers(), *own_answers(), *placed_answers(), *proved_answers()):
        schedule: Schedule = answer.found.schedule
        yield {
            "problem": answer.name,
            "ranks": answer.problem.ranks,
            "micro_batches": answer.problem.micro_batches,
            "placement": answer.problem.placement,
            "makespan": answer.found.makespan,
            "lower_bound": answer.found.lower_bound,
            "gap": answer.gap,
            "above_best_known": None if answer.reference == inf else answer.ratio,
            "found_by": schedule.name,
            "seconds": answer.seconds,
            "cpu_s": answer.cpu_s,
            "best_named": min(answer.named.values(), default=None),
        }


def main(arguments: Sequence[str]) -> None:
    """Prints the table; a line per problem, or all as JSON, when asked."""
    best(ScheduleProblem.uniform(4, 8, comm=1.0, live_limit=4), time_limit_s=LIMIT_S)  # kernels are compiled
    if "--json" in arguments:
        print(json.dumps(list(each_problem()), indent=1))
        return
    print(f"{'micro-batch schedules':84s} {'asked':>9s} {'measured':>24s}")
    parts = (table_5, gaps, never_worse, proved, generation, playing, fluctuation)
    for part in (*parts, longer) if "--long" in arguments else parts:
        for row in part():
            print(f"{row.name:84s} {row.asked:>9s} {row.measured:>24s}", flush=True)
    if "--each" in arguments:
        for one in each_problem():
            print(
                ", ".join(
                    f"{key} {value:.6g}" if isinstance(value, float) else f"{key} {value}" for key, value in one.items()
                )
            )


if __name__ == "__main__":
    main(sys.argv[1:])
