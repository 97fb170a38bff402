"""``hippo simulate``: a plan played once, under noise, or along a network trace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hippo.cli.options import Json, Seed, takes
from hippo.cli.output import mention, print_document, print_view
from hippo.cli.plan_file import PlanFile, read_plan
from hippo.cli.progress import Watch
from hippo.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hippo.dynamics.robust import Spread
    from hippo.plan.plan import Plan
    from hippo.problem.problem import Problem
    from hippo.simulate.program import Program

IDEAL = "ideal"
DEFAULT_SAMPLES, DEFAULT_FLUCTUATION = 1000, 0.2
MOST_SAMPLES = 1_000_000
MOST_LEARNED_OPERATIONS = 1_000_000  # that a policy decides on where nobody says how many plays, some seconds


@dataclass(frozen=True)
class Choice:
    """Which plan, which engine, and what moves."""

    plan: PlanFile
    engine: Annotated[str, typer.Option(metavar="fast|reference|analytic|astra", help="What plays the plan.")] = "fast"
    fluctuation: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Standard deviation of every operation and message, share of its length."),
    ] = None
    samples: Annotated[int | None, typer.Option(metavar="N", help="Plays under such noise.")] = None
    dispatch: Annotated[
        str | None,
        typer.Option(
            metavar="fixed|hint|learned|FILE.npz", help="Its pipelines alone under noise, by that dispatcher or policy."
        ),
    ] = None
    trace: Annotated[Path | None, typer.Option(metavar="NET.csv", help="Network trace to play the plan along.")] = None
    transport: Annotated[
        str | None,
        typer.Option(metavar="ideal|hippo|megatron|torch|deepspeed", help="By whose runtime its messages go."),
    ] = None
    astra_binary: Annotated[
        str | None, typer.Option(metavar="PATH", help="ASTRA-sim's analytical binary, for --engine astra.")
    ] = None
    seed: Seed = 0
    json: Json = False


@takes(Choice)
def simulate(choice: Choice) -> None:
    """A plan played again: under noise, or along a network trace.

    Noise: --fluctuation and --samples, links in their base state. A trace: --trace, each state as long as it holds.
    The time is that under the plan's runtime. --transport: messages as another runtime sends them and TCP carries them,
    or as nothing does (ideal); along a trace a step then meets what moves while it runs.
    --dispatch: each pipeline alone, by its order, by that as a hint, or by a policy.
    --engine astra: ASTRA-sim plays it (its binary is yours to build), and is held against fast node by node.
    """
    from hippo.cost.calibration import uncalibrated

    _check(choice)
    asked, plan = read_plan(choice.plan)
    problem = asked
    if choice.transport is not None:
        problem = replace(problem, runtime=choice.transport)
    with Watch("simulating") as watch:
        if choice.dispatch is not None:
            from hippo.first_use import prepare_schedules

            prepare_schedules(varies=True, progress=watch)
        carrier = choice.transport or problem.rules.transport.name
        document: dict[str, Any] = {"engine": choice.engine, "runtime": problem.runtime, "transport": carrier}
        document["uncalibrated"] = uncalibrated(problem)
        document |= _base(problem, plan, choice)
        if choice.trace is not None:
            document |= _along(problem, plan, choice)
        elif choice.dispatch is not None:
            document |= _dispatched(problem, plan, choice)
        elif choice.samples is not None or choice.fluctuation is not None:
            document |= _under_noise(problem, plan, choice)
    if choice.json:
        print_document(document)
    else:
        from hippo.report.terminal import question_view, simulation_view

        print_view(question_view(problem))
        print_view("")
        print_view(simulation_view(document))
        if problem.runtime != asked.runtime:
            made = "no runtime (ideal)" if asked.runtime == "ideal" else asked.rules.told
            mention(f"the plan was made for {made}")
        if "astra" in document:
            mention(_against_fast(document["astra"]))
        if document.get("stalled_share"):
            share = document["stalled_share"]
            mention(f"the plan stands still for {share:.0%} of the time: a link that it needs is out")


def _check(choice: Choice) -> None:
    """``InputError`` for numbers out of range and for combinations that say nothing."""
    from hippo.problem.runtimes import name_of
    from hippo.registry import engine

    engine(choice.engine)
    if choice.transport is not None:
        name_of(choice.transport, source="--transport")
    if choice.astra_binary is not None and choice.engine != "astra":
        raise InputError(
            "names the binary of an engine that is not asked for", source="--astra-binary", remedy="add --engine astra"
        )
    _check_dispatch(choice)
    moves = (choice.fluctuation, choice.samples, choice.trace, choice.dispatch) != (None,) * 4
    if moves and choice.engine != "fast":
        remedy = "use --engine fast, or leave out --fluctuation, --samples, --dispatch and --trace"
        raise InputError("plays one step as it is", source="--engine", value=choice.engine, remedy=remedy)
    if choice.trace is not None and choice.samples is not None:
        remedy = "leave out --samples, or --trace"
        raise InputError(
            "plays once for each instant of the trace", source="--samples", value=choice.samples, remedy=remedy
        )
    if choice.fluctuation is not None and not 0 <= choice.fluctuation < 1:
        remedy = "give a share of the length, for instance 0.2"
        raise InputError("must be from 0 to below 1", source="--fluctuation", value=choice.fluctuation, remedy=remedy)
    if choice.samples is not None and not 1 <= choice.samples <= MOST_SAMPLES:
        remedy = "give a number of plays, for instance 1000"
        raise InputError(f"must be from 1 to {MOST_SAMPLES}", source="--samples", value=choice.samples, remedy=remedy)


def _check_dispatch(choice: Choice) -> None:
    """``InputError`` for an unknown dispatcher, and for what does not go with one."""
    from hippo.dispatch.noise.pipelines import check_dispatcher

    if choice.dispatch is None:
        return
    check_dispatcher(choice.dispatch)
    for option, given in (("--trace", choice.trace is not None), ("--transport", choice.transport is not None)):
        if given:
            raise InputError("does not go with --dispatch", source=option, remedy="leave one of them out")


def _base(problem: Problem, plan: Plan, choice: Choice) -> dict[str, object]:
    """Step time in the base state; per domain and per link what the plan makes of them."""
    from hippo.score.interval import assumed_span, interval_document, interval_of, span_document
    from hippo.score.judge import domain_utilization
    from hippo.simulate.lower import lower
    from hippo.simulate.timeline import busy_s, link_bytes
    from hippo.units import gb_from_bytes

    program = lower(problem, plan)
    step_time_s, more = _step_time(problem, plan, program, choice)
    sent = zip(problem.cluster.links, link_bytes(program), strict=True)
    known = choice.engine == "fast"
    return {
        "step_time_s": step_time_s,
        **interval_document(interval_of(problem, plan, step_time_s) if known else None),
        **span_document(assumed_span(problem, plan) if known else None),
        "utilization": domain_utilization(problem, plan, busy_s(program), step_time_s),
        "gb_per_step": {f"{link.source}->{link.destination}": gb_from_bytes(float(size)) for link, size in sent},
        **more,
    }


def _step_time(problem: Problem, plan: Plan, program: Program, choice: Choice) -> tuple[float, Mapping[str, object]]:
    """Seconds of the step by the engine, and what else it has to tell."""
    from hippo.registry import engine

    play = engine(choice.engine)
    if choice.engine == "analytic":
        return play(problem, plan), {}
    if choice.engine != "astra":
        return play(program).step_time_s, {}
    from hippo.simulate.astra.binary import find_binary
    from hippo.simulate.astra.compare import document
    from hippo.simulate.astra.play import played, state_of

    found = played(program, state_of(program, None, None), find_binary(choice.astra_binary))
    return found.step_time_s, {"astra": document(found)}


def _under_noise(problem: Problem, plan: Plan, choice: Choice) -> dict[str, object]:
    """Spread of the step time when every operation and message is longer or shorter by chance, links as they are."""
    import numpy as np

    from hippo.dynamics.robust import Spread
    from hippo.simulate.batch import step_times
    from hippo.simulate.lower import lower

    samples = DEFAULT_SAMPLES if choice.samples is None else choice.samples
    noise = DEFAULT_FLUCTUATION if choice.fluctuation is None else choice.fluctuation
    rng = np.random.default_rng(choice.seed)
    seconds = step_times(lower(problem, plan), noise=noise, samples=samples, rng=rng)
    return {"samples": samples, "fluctuation": noise, **_told(Spread(seconds))}


def _dispatched(problem: Problem, plan: Plan, choice: Choice) -> dict[str, object]:
    """Every pipeline alone by a dispatcher, and in the plan's order on the same draws. Seconds."""
    from hippo.dispatch.noise.fluctuation import Fluctuation
    from hippo.dispatch.noise.pipelines import dispatched

    assert choice.dispatch is not None
    level = DEFAULT_FLUCTUATION if choice.fluctuation is None else choice.fluctuation
    samples = DEFAULT_SAMPLES if choice.samples is None else choice.samples
    if choice.dispatch not in ("fixed", "hint") and choice.samples is None:
        operations = sum(3 * len(line.stages) * line.num_micro_batches for line in plan.pipelines)
        samples = max(10, min(samples, MOST_LEARNED_OPERATIONS // operations))
    played = dispatched(problem, plan, choice.dispatch, Fluctuation(level), samples=samples, seed=choice.seed)
    rows = [
        {
            "pipelines": list(each.pipelines),
            "mean_s": each.played.mean,
            "p50_s": each.played.p50,
            "p95_s": each.played.p95,
            "in_order_mean_s": each.planned.mean,
            "in_order_p95_s": each.planned.p95,
            "floor_s": each.floor_s,
            **({} if each.followed is None else {"followed": each.followed}),
        }
        for each in played
    ]
    return {"samples": samples, "fluctuation": level, "dispatch": {"by": choice.dispatch, "pipelines": rows}}


def _along(problem: Problem, plan: Plan, choice: Choice) -> dict[str, object]:
    """Spread of the step time over a trace: each instant counts as long as it holds."""
    import numpy as np

    from hippo.dynamics.network import shares_of_time
    from hippo.dynamics.robust import Spread
    from hippo.problem.load import load_trace
    from hippo.simulate.batch import step_times
    from hippo.simulate.lower import lower
    from hippo.simulate.transport.play import along

    assert choice.trace is not None
    trace, program = load_trace(choice.trace, problem.cluster), lower(problem, plan)
    share = shares_of_time(trace)
    noise = choice.fluctuation or 0.0
    if choice.transport is not None and problem.runtime != IDEAL and not noise:
        seconds = along(program, problem.rules.transport, trace)
    else:
        seconds = step_times(
            program,
            bandwidth_bytes_per_s=trace.bandwidth_bytes_per_s,
            latency_s=trace.latency_s,
            noise=noise,
            rng=np.random.default_rng(choice.seed),
        )
    return {"instants": len(seconds), "fluctuation": noise, **_told(Spread(seconds, share))}


def _against_fast(told: Mapping[str, object]) -> str:
    """The comparison with ``fast`` in a sentence or two."""
    text = (
        f"fast says {told['fast_step_time_s']:.6f} s, ASTRA-sim {told['difference']:+.6%} of it; of "
        f"{told['operations_compared']} operations and {told['messages_compared']} messages the farthest off is "
        f"{told['largest_difference_s']:.3g} s ({told['where']})"
    )
    return text if told["links_in_order"] else f"{text}; links did not serve in the order of arrival"


def _told(spread: Spread) -> dict[str, object]:
    """Keys of a spread; null where the plan stands still (a link that it needs is out)."""
    figures = {"mean_s": spread.mean_s, "p50_s": spread.p50_s, "p95_s": spread.p95_s}
    finite = {name: value if isfinite(value) else None for name, value in figures.items()}
    return {**finite, "stalled_share": spread.stopped_share}
