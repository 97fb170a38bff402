"""``hippo simulate``: a plan played once, under noise, or along a network trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hippo.cli.options import Json, Seed, takes
from hippo.cli.output import print_document, print_view
from hippo.cli.plan_file import PlanFile, read_plan
from hippo.cli.progress import Watch
from hippo.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hippo.plan.plan import Plan
    from hippo.problem.problem import Problem

    Floats = NDArray[np.float64]

DEFAULT_SAMPLES, DEFAULT_FLUCTUATION = 1000, 0.2
MOST_SAMPLES = 1_000_000


@dataclass(frozen=True)
class Choice:
    """Which plan, which engine, and what moves."""

    plan: PlanFile
    engine: Annotated[str, typer.Option(metavar="fast|reference|analytic", help="What plays the plan.")] = "fast"
    fluctuation: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Standard deviation of every operation and message, share of its length."),
    ] = None
    samples: Annotated[int | None, typer.Option(metavar="N", help="Plays under such noise.")] = None
    trace: Annotated[Path | None, typer.Option(metavar="NET.csv", help="Network trace to play the plan along.")] = None
    seed: Seed = 0
    json: Json = False


@takes(Choice)
def simulate(choice: Choice) -> None:
    """A plan played once, and under noise (--fluctuation, --samples) or along a network trace (--trace)."""
    _check(choice)
    problem, plan = read_plan(choice.plan)
    with Watch("simulating"):
        document = {"engine": choice.engine, **_base(problem, plan, choice.engine)}
        if choice.trace is not None:
            document |= _along(problem, plan, choice)
        elif choice.samples is not None or choice.fluctuation is not None:
            document |= _under_noise(problem, plan, choice)
    if choice.json:
        print_document(document)
    else:
        from hippo.report.terminal import simulation_view

        print_view(simulation_view(document))


def _check(choice: Choice) -> None:
    """``InputError`` for numbers out of range and for combinations that say nothing."""
    from hippo.registry import engine

    engine(choice.engine)
    moves = choice.fluctuation is not None or choice.samples is not None or choice.trace is not None
    if moves and choice.engine != "fast":
        remedy = "use --engine fast, or leave out --fluctuation, --samples and --trace"
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


def _base(problem: Problem, plan: Plan, name: str) -> dict[str, object]:
    """Step time in the base state; per domain and per link what the plan makes of them."""
    from hippo.registry import engine
    from hippo.score.evaluate import domain_utilization
    from hippo.simulate.lower import lower
    from hippo.simulate.timeline import busy_s, link_bytes
    from hippo.units import gb_from_bytes

    program = lower(problem, plan)
    step_time_s = engine(name)(problem, plan) if name == "analytic" else engine(name)(program).step_time_s
    sent = zip(problem.cluster.links, link_bytes(program), strict=True)
    return {
        "step_time_s": step_time_s,
        "utilization": domain_utilization(problem, plan, busy_s(program), step_time_s),
        "gb_per_step": {f"{link.source}->{link.destination}": gb_from_bytes(float(size)) for link, size in sent},
    }


def _under_noise(problem: Problem, plan: Plan, choice: Choice) -> dict[str, object]:
    """Spread of the step time when every operation and message is longer or shorter by chance."""
    import numpy as np

    from hippo.simulate.batch import step_times
    from hippo.simulate.lower import lower

    samples = DEFAULT_SAMPLES if choice.samples is None else choice.samples
    noise = DEFAULT_FLUCTUATION if choice.fluctuation is None else choice.fluctuation
    rng = np.random.default_rng(choice.seed)
    seconds = step_times(lower(problem, plan), noise=noise, samples=samples, rng=rng)
    return {"samples": samples, "fluctuation": noise, **_spread(seconds, np.ones(samples))}


def _along(problem: Problem, plan: Plan, choice: Choice) -> dict[str, object]:
    """Spread of the step time over a trace: each instant counts as long as it holds (the last one as the median)."""
    import numpy as np

    from hippo.problem.load import load_trace
    from hippo.simulate.batch import step_times
    from hippo.simulate.lower import lower

    assert choice.trace is not None
    trace = load_trace(choice.trace, problem.cluster)
    seconds = step_times(
        lower(problem, plan),
        bandwidth_bytes_per_s=trace.bandwidth_bytes_per_s,
        latency_s=trace.latency_s,
        noise=choice.fluctuation or 0.0,
        rng=np.random.default_rng(choice.seed),
    )
    holds_s = np.diff(trace.time_s)
    holds_s = np.append(holds_s, np.median(holds_s) if len(holds_s) else 1.0)
    return {"instants": len(seconds), "fluctuation": choice.fluctuation or 0.0, **_spread(seconds, holds_s)}


def _spread(seconds: Floats, weights: Floats) -> dict[str, object]:
    """Weighted mean, median and 95th percentile of the steps that end, and the share of those that do not (outages)."""
    import numpy as np

    ends = np.isfinite(seconds)
    document: dict[str, object] = {"stalled_share": float(weights[~ends].sum() / weights.sum())}
    if not ends.any():
        return document | {"mean_s": None, "p50_s": None, "p95_s": None}
    order = np.argsort(seconds[ends], kind="stable")
    ordered, share = seconds[ends][order], np.cumsum(weights[ends][order]) / weights[ends].sum()
    p50, p95 = (float(ordered[np.searchsorted(share, level * (1 - 1e-12))]) for level in (0.5, 0.95))
    mean = float(np.average(seconds[ends], weights=weights[ends]))
    return document | {"mean_s": mean, "p50_s": p50, "p95_s": p95}
