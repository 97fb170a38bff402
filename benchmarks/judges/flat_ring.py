"""Plans with ``--all-reduce ring`` in a second simulator of flat rings, against a plain grid and ``sailor``.

    python -m benchmarks.judges.flat_ring [--runtime NAME] [CASE ...]

Simulator, grid and cases: ``tests/judges/flat_ring.py``, ``grid.py`` (20 cases by a committed seed: GPT 350M to 70B on
one to five measured regions). Layer times and memory are the simulator's, for everyone (``--profile``). *Hippo* and
*sailor*: the grid's step time over the plan's, both in the simulator; above 1 is better than the grid. Asked
of hippo: 0.97 in each case, and 1.25 times ``sailor`` in the mean. *Own*: the same by hippo's own step
times; below 1 its search missed a plan.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from time import process_time

from tests.judges.flat_ring import Layout, Step, simulate
from tests.judges.flat_ring_files import cluster_document, model_document, profile_document, read_plan
from tests.judges.grid import Case, best, cases

from hippo.errors import InputError
from hippo.front_door.planning import plan
from hippo.plan.codec import plan_to_document
from hippo.plan.plan import Plan, Sync
from hippo.planners.base import Stop
from hippo.planners.placement import pipelines_of_lanes, place
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem
from hippo.problem.profile import profile_from_document
from hippo.score.judge import fits
from hippo.simulate import fast
from hippo.simulate.lower import lower

ASKED, ASKED_OF_SAILOR = 0.97, 1.25


@dataclass(frozen=True)
class Found:
    """Of one case."""

    grid_s: float
    hippo_s: float  # in the simulator
    own: float
    sailor_s: float  # inf: it found none, or none that the simulator knows
    planning_s: float  # of CPU
    layouts: tuple[str, str]  # hippo's and the grid's


def problem_of(case: Case, runtime: str) -> Problem:
    """The case as hippo is asked it."""
    asked = load_problem(
        model=model_document(case.model),
        cluster=cluster_document(case),
        global_batch=case.batch,
        seq=case.model.sequence,
        runtime=runtime,
        all_reduce="ring",
    )
    return replace(asked, profile=profile_from_document(profile_document(case), source=case.name))


def layout_of(problem: Problem, planner: str, case: Case) -> tuple[Layout, float]:
    """A planner's layout, and its step time by hippo; raises ``ValueError`` for a plan that the simulator does not
    know, or where there is none."""
    found = plan(problem, Stop(60.0), planner=planner, why=False)
    if found.plan is None:
        raise ValueError("no plan")
    told = plan_to_document(problem, found.plan)
    return read_plan(told, case.cluster, case.model), found.score.step_time_s if found.score else float("inf")


def plan_of(problem: Problem, case: Case, layout: Layout) -> Plan:
    """A layout of the grid as a plan of hippo's."""
    names, p = [region.name for region in case.cluster.regions], len(layout.layers)
    ends = [1 + sum(layout.layers[: s + 1]) for s in range(p)]
    cuts = (0, *ends[:-1], case.model.layers + 2)
    lanes = [tuple(names[row[lane][0]] for row in layout.units) for lane in range(len(layout.micro_batches))]
    sketches = pipelines_of_lanes(lanes, cuts, (layout.tp,) * p, layout.micro_batches[0], alike=True)
    sync = Sync(all_reduce="ring") if len(sketches) > 1 else Sync()
    return Plan(place(problem.cluster, sketches), layout.micro_batch, sync=sync)


def shown(layout: Layout, case: Case) -> str:
    """``tp 2 pp 4 dp 3 x 2: 12, 12`` GPUs of each region."""
    gpus = [0] * len(case.cluster.regions)
    for row in layout.units:
        for region, _ in row:
            gpus[region] += layout.tp
    p, d = len(layout.units), len(layout.micro_batches)
    return f"tp {layout.tp} pp {p} dp {d} x {layout.micro_batch}: {', '.join(map(str, gpus))}"


def judged(case: Case, runtime: str) -> Found:
    """A case, planned by hippo and by ``sailor`` and searched by the grid."""
    problem = problem_of(case, runtime)
    began = process_time()
    own, own_s = layout_of(problem, "auto", case)
    planning_s = process_time() - began
    grid, theirs = best(case)
    told = plan_of(problem, case, theirs)
    grid_own_s = fast.step_time(lower(problem, told)) if fits(problem, told) else float("inf")
    step = played(case, own)
    assert step.fits, f"{case.name}: {shown(own, case)} does not fit: {[each / 1e9 for each in step.memory_bytes]} GB"
    try:
        sailor_s = played(case, layout_of(problem, "sailor", case)[0]).step_s
    except (ValueError, InputError):
        sailor_s = float("inf")
    layouts = shown(own, case), shown(theirs, case)
    return Found(grid.step_s, step.step_s, grid_own_s / own_s, sailor_s, planning_s, layouts)


def played(case: Case, layout: Layout) -> Step:
    """A layout in the simulator."""
    return simulate(case.cluster, case.model, case.times(layout.tp, layout.micro_batch), layout)


def main(arguments: Sequence[str]) -> None:
    """Prints what the module says, a case a line as it is done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runtime", default="megatron", help="what the plans are for")
    parser.add_argument("cases", nargs="*", type=int, help="numbers of cases; all when left out")
    given = parser.parse_args(arguments)
    drawn = cases()
    print("| case | regions | grid s | hippo | sailor | own | CPU s | hippo's layout | the grid's |")
    print("|---|---|---|---|---|---|---|---|---|")
    behind, rivals = list[float](), list[float]()
    for case in (drawn[number] for number in given.cases or range(len(drawn))):
        found = judged(case, given.runtime)
        ours, theirs = found.grid_s / found.hippo_s, found.grid_s / found.sailor_s
        behind.append(ours)
        rivals += [ours / theirs] if theirs else []
        figures = f"{found.grid_s:.2f} | {ours:.3f} | {theirs:.3f} | {found.own:.3f} | {found.planning_s:.1f}"
        told = " | ".join(found.layouts)
        print(f"| {case.name} | {len(case.cluster.regions)} | {figures} | {told} |", flush=True)
    low = sum(each < ASKED for each in behind)
    print(f"\nhippo over grid: least {min(behind):.3f}, mean {fmean(behind):.3f}, {low} below {ASKED}", flush=True)
    if rivals:
        print(f"hippo over sailor: mean {fmean(rivals):.2f} of {len(rivals)} (asked {ASKED_OF_SAILOR})")


if __name__ == "__main__":
    main(sys.argv[1:])
