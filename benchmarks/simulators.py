"""How quick the engines are: `fast` against SimPy with links, one pipeline alone, many plays at once, one candidate.

CPU seconds of this process, the least of many plays (for candidates, which differ, the median), compiled before. "Same
program" plays again what was played before (other states of the links, noise); a candidate is a plan that nobody has
seen: its memory, its program and its step time, as a planner judges it.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from hippo.plan.plan import Plan, ScheduleChoice
from hippo.planners.placement import PipelineSketch, StageSketch, place
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem
from hippo.schedule.schedule import order
from hippo.score.judge import fits
from hippo.simulate import analytic, batch, fast, reference
from hippo.simulate.abstract import PlannedLine, abstract_program, on_links
from hippo.simulate.lower import lower
from hippo.simulate.program import Program


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    name: str
    asked: str
    measured: str


def pipeline(stages: int, micro_batches: int, *, links: bool) -> Program:
    """1F1B, F = 10, B = 11 + 9; neighbours joined by links of their own (a slow pair in the middle), or by nothing."""
    schedule = order("1f1b", stages=stages, micro_batches=micro_batches)
    program = abstract_program(schedule, forward_s=10.0, backward_s=11.0, weight_s=9.0)
    if not links:
        return program
    lines = [PlannedLine(1.0, 0.001)] * (stages - 1)
    lines[stages // 2 - 1] = PlannedLine(1.0 / 9.0, 40.0)
    down = [*([link] for link in range(stages - 1)), []]
    up = [[], *([link] for link in range(stages - 1, 2 * (stages - 1)))]
    return on_links(program, lines * 2, down=down, up=up, num_bytes=3.0)


def shared(stages: int, micro_batches: int) -> Program:
    """The same where all messages one way share one link: the order of requests is only known while playing."""
    program = pipeline(stages, micro_batches, links=False)
    down, up = [[0]] * (stages - 1) + [[]], [[], *[[1]] * (stages - 1)]
    return on_links(program, [PlannedLine(1.0, 0.001)] * 2, down=down, up=up, num_bytes=3.0)


def cpu_seconds(play: Callable[[], object], *, plays: int, loops: int = 1) -> list[float]:
    """CPU seconds of one play, ``plays`` times, sorted."""
    play()
    found = []
    for _ in range(plays):
        begin = time.process_time()
        for _ in range(loops):
            play()
        found.append((time.process_time() - begin) / loops)
    return sorted(found)


def against_simpy() -> Iterator[Row]:
    """p 8, m 64: the clear engine and the quick one play the same program and agree."""
    for name, program in (("links", pipeline(8, 64, links=True)), ("shared links", shared(8, 64))):
        clear, quick = reference.play(program).step_time_s, fast.step_time(program)
        assert abs(clear - quick) <= 1e-9 * clear, (clear, quick)
        slow_s = cpu_seconds(partial(reference.play, program), plays=7)[0]
        fast_s = cpu_seconds(partial(fast.step_time, program), plays=41, loops=100)[0]
        yield Row(
            f"p 8, m 64, {name}: reference {slow_s * 1e3:.1f} ms, fast {fast_s * 1e6:.0f} us",
            ">= 230x",
            f"{slow_s / fast_s:.0f}x",
        )


def alone() -> Iterator[Row]:
    """p 16, m 128 without links, played again and again."""
    program = pipeline(16, 128, links=False)
    again = cpu_seconds(partial(fast.step_time, program), plays=41, loops=100)[0]
    yield Row("p 16, m 128, no links, same program", "<= 40 us", f"{again * 1e6:.0f} us")
    yield Row("  the same without the call from Python (batch of 1000)", "", f"{_per_play(program) * 1e6:.0f} us")


def _per_play(program: Program) -> float:
    return cpu_seconds(lambda: batch.step_times(program, samples=1000), plays=9)[0] / 1000


def many() -> Iterator[Row]:
    """Plays per CPU second under moving links and noise."""
    rng = np.random.default_rng(0)
    program = pipeline(8, 64, links=True)
    states = 10.0 * (1 + 0.3 * rng.uniform(-1, 1, (1000, len(program.link_latency_s))))
    moving = cpu_seconds(lambda: batch.step_times(program, bandwidth_bytes_per_s=states), plays=9)[0]
    noisy = cpu_seconds(lambda: batch.step_times(program, samples=1000, noise=0.2, rng=rng), plays=9)[0]
    yield Row("batch: p 8, m 64, links, 1000 states of them", "", f"{1000 / moving:,.0f} plays/s")
    yield Row("batch: p 8, m 64, links, noise on everything", "", f"{1000 / noisy:,.0f} plays/s")


def candidates() -> Iterator[Row]:
    """What a planner pays to judge one plan of GPT-3 175B over four hubs: memory, lower, play."""
    for stages, waves, asked in ((8, 128, ""), (32, 512, "<= 3 ms"), (32, 1024, "")):
        problem = load_problem(model="gpt-3-175b", cluster="four-hubs", global_batch=waves, seq=2048)
        rng = random.Random(0)
        plans = [_plan(problem, rng, stages, waves) for _ in range(202)]
        seconds = statistics.median(cpu_seconds(partial(_judge_next, problem, plans), plays=201))
        name = f"candidate: {stages} stages, {waves} micro-batches, new cuts and warm-up"
        yield Row(name, asked, f"{seconds * 1e3:.2f} ms")


def closeness() -> Iterator[Row]:
    """The closed form beside the played step, on plans of GPT-3 175B over four hubs."""
    rng, errors = random.Random(1), []
    for _ in range(200):
        stages, waves = rng.choice((4, 8, 16, 32)), rng.choice((16, 64, 256))
        problem = load_problem(model="gpt-3-175b", cluster="four-hubs", global_batch=waves, seq=2048)
        plan = _plan(problem, rng, stages, waves)
        played = fast.step_time(lower(problem, plan))
        errors.append(abs(analytic.step_time(problem, plan) / played - 1))
    errors.sort()
    text = f"{errors[99]:.1%} / {errors[189]:.1%} / {errors[-1]:.1%}"
    yield Row("analytic against fast, 200 plans: error, median / 95 % / worst", "", text)


def _judge_next(problem: Problem, plans: list[Plan]) -> float:
    plan = plans.pop()
    return fast.step_time(lower(problem, plan)) if fits(problem, plan) else float("inf")


def _plan(problem: Problem, rng: random.Random, stages: int, waves: int) -> Plan:
    """Even cuts, each moved by a layer at most, and a warm-up of its own."""
    layers, names = problem.model.num_layers, [domain.name for domain in problem.cluster.domains]
    cuts = [round(layers * s / stages) + (rng.choice((-1, 0, 1)) if 0 < s < stages else 0) for s in range(stages + 1)]
    sketches = tuple(StageSketch(names[s * len(names) // stages], (cuts[s], cuts[s + 1]), 8, 1) for s in range(stages))
    chosen = ScheduleChoice("cross-domain", rng.randint(stages, 2 * stages))
    return Plan(place(problem.cluster, (PipelineSketch(sketches, waves),)), 1, recompute="full", schedule=chosen)


def main() -> None:
    """Prints the table."""
    print(f"{'simulators':74s} {'asked':>8s} {'measured':>20s}")
    for part in (against_simpy, alone, many, candidates, closeness):
        for row in part():
            print(f"{row.name:74s} {row.asked:>8s} {row.measured:>20s}")


if __name__ == "__main__":
    main()
