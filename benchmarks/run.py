"""Steps over an emulated WAN, measured: hippo's executor and schedules, torch's runtime, and what was predicted.

Four stages on three domains, 8 micro-batches, messages of 2 MiB, compute waits (F 60 ms, B 120 ms, half of it weight
gradient); links A to D of the facts, E: C with every link within 30 % of its rate, anew every half second. Medians of
the steps after the first, and their range. ``overlapped``: the timeline in which all that can overlap does. Arguments:
the settings to measure, all when left out (half an hour): ``python benchmarks/run.py CE``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from hippo.plan.codec import save_plan
from hippo.plan.plan import Compression, Pipeline, Plan, ScheduleChoice, Stage
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem
from hippo.problem.profile import Profile, ProfileRow
from hippo.problem.transport import GOODPUT
from hippo.problem.workload import Workload
from hippo.schedule.best import best
from hippo.schedule.schedule import letters_of
from hippo.simulate.fast import step_time
from hippo.simulate.lower import lower
from hippo.simulate.ordering import ordering
from hippo.units import bytes_per_s_from_gbps

WAVES, MESSAGE_BYTES, PASS_S = 8, 2 * 2**20, 0.06
STEPS = 8
PATIENCE_S = 300  # a busy machine starts processes slowly
TRACE_S, MOVES_EVERY_S = 600.0, 0.5
PLACES = ("a", "a", "b", "c")
PACKED = tuple(Compression(pair[0], pair[1], "fp8") for pair in ("ab", "ba", "bc", "cb"))
HIPPO = [sys.executable, "-c", "from hippo.cli.main import main; main()"]


@dataclass(frozen=True)
class Lines:
    """Links between neighbouring domains: (Mbit/s, round trip in ms) of a-b and b-c."""

    name: str
    ab: tuple[float, float]
    bc: tuple[float, float]
    moves: bool = False  # a new rate every half second


SETTINGS = (
    Lines("A", (1000, 20), (1000, 20)),
    Lines("B", (300, 100), (300, 100)),
    Lines("C", (100, 40), (100, 40)),
    Lines("D", (100, 40), (50, 100)),
    Lines("E", (100, 40), (100, 40), moves=True),
)

WHOLE = ("--order", "fixed", "--backward", "whole")
ROWS = (
    ("torch 1F1B", "1f1b", ("--runtime", "torch")),
    ("hippo 1F1B, as torch orders it", "1f1b", WHOLE),
    ("hippo 1F1B, gradients first", "1f1b", ()),
    ("hippo best, as ordered", "best", ("--order", "fixed")),
    ("hippo best, as a hint", "best", ()),
    ("hippo best, fp8 between domains", "packed", ("--order", "fixed")),
)
"""Name, plan (best: up to 8 live micro-batches, 1F1B: 4), words for ``hippo run``."""


def problem(lines: Lines) -> Problem:
    """The setting as a problem: one layer a stage, measured."""
    domains = tuple(Domain(name, 1, 2, 1e11, 1e11, 1e-6) for name in "abc")
    links = tuple(
        Link(*pair, bytes_per_s_from_gbps(rate / 1e3), rtt / 2e3, 0.0)
        for one, two, (rate, rtt) in (("a", "b", lines.ab), ("b", "c", lines.bc))
        for pair in ((one, two), (two, one))
    )
    device = gpu("A100-SXM-80GB")
    model = gpt_model("four-layers", layers=2, hidden=1024, heads=16, vocab=1024, seq=1024, tied=False)
    rows = tuple(
        ProfileRow(None, index, device.name, 1, 1, PASS_S, PASS_S, PASS_S, 1e3, 1e6, MESSAGE_BYTES)
        for index in range(model.num_layers)
    )
    profile = Profile("bf16", 16.0, rows)
    return Problem(model, Cluster(lines.name, device, domains, links), Workload(WAVES, 1024), profile=profile)


def one_f_one_b() -> Plan:
    """A layer a stage, 1F1B."""
    used: dict[str, int] = {}
    stages = []
    for layer, domain in enumerate(PLACES):
        device = used.setdefault(domain, 0)
        used[domain] += 1
        stages.append(Stage(domain, (layer, layer + 1), 1, 1, (f"{domain}/0/{device}",)))
    return Plan((Pipeline(tuple(stages), WAVES),), micro_batch=1)


def best_plan(lines: Lines, live: int) -> Plan:
    """The best order that hippo finds with at most ``live`` micro-batches in flight (1F1B: 4 on the first stage)."""
    plan = one_f_one_b()
    asked = ordering(problem(overlapped(lines)), plan)
    found = best(replace(asked, limit=(float(live),) * 4), time_limit_s=3.0)
    pipeline = replace(plan.pipelines[0], order=letters_of(found.schedule))
    return replace(plan, pipelines=(pipeline,), schedule=ScheduleChoice("best"))


def overlapped(lines: Lines) -> Lines:
    """The lines at what TCP can carry."""
    return replace(lines, ab=(lines.ab[0] * GOODPUT, lines.ab[1]), bc=(lines.bc[0] * GOODPUT, lines.bc[1]))


def timeline_s(lines: Lines, plan: Plan) -> float:
    """Seconds of a step when all that can overlap does, at the links' goodput."""
    return step_time(lower(problem(overlapped(lines)), plan))


@dataclass(frozen=True)
class Measured:
    """One row: seconds of the steps after the first, and what the simulator said of them."""

    seconds: tuple[float, ...]
    predicted_s: float

    @property
    def median_s(self) -> float:
        """The middle one."""
        return median(self.seconds)


def measured(lines: Lines, plan: Plan, options: Sequence[str] = ()) -> Measured:
    """``hippo run`` of a plan over the lines."""
    with tempfile.TemporaryDirectory() as folder:
        path, trace = Path(folder) / "plan.json", Path(folder) / "net.csv"
        save_plan(problem(lines), plan, path)
        words = ["run", str(path), "--emulate", "--stand-in", "--congestion", "bbr", "--steps", str(STEPS), "--json"]
        words += ["--timeout", str(PATIENCE_S), *options]
        if lines.moves:
            trace.write_text(moving(lines))
            words += ["--trace", str(trace)]
        done = subprocess.run([*HIPPO, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    told = json.loads(done.stdout)
    return Measured(tuple(told["measured_step_s"][1:]), told["predicted_step_s"])


def moving(lines: Lines) -> str:
    """A trace of the lines, long enough for processes that start slowly."""
    rng = np.random.default_rng(0)
    rows = ["time_s,src,dst,bandwidth_gbps,latency_ms"]
    for instant in range(round(TRACE_S / MOVES_EVERY_S)):
        for one, two, (rate, rtt) in (("a", "b", lines.ab), ("b", "c", lines.bc)):
            for pair in ((one, two), (two, one)):
                gbps = rate / 1e3 * rng.uniform(0.7, 1.3)
                rows.append(f"{instant * MOVES_EVERY_S:g},{pair[0]},{pair[1]},{gbps:.6f},{rtt / 2:g}")
    return "\n".join(rows) + "\n"


def row(name: str, found: Measured, ideal_s: float, torch_s: float) -> str:
    """One line of the table."""
    middle = found.median_s
    return (
        f"  {name:31s} {middle:8.3f} {min(found.seconds):8.3f} {max(found.seconds):8.3f} {ideal_s:10.3f} "
        f"{100 * (middle / ideal_s - 1):+7.1f} {found.predicted_s:9.3f} {100 * (found.predicted_s / middle - 1):+7.1f} "
        f"{middle / torch_s:8.2f}"
    )


def main() -> None:
    """Prints a table for each setting."""
    for lines in SETTINGS if len(sys.argv) < 2 else [one for one in SETTINGS if one.name in sys.argv[1]]:
        rates = ", ".join(f"{rate:g} Mbit/s {rtt:g} ms" for rate, rtt in dict.fromkeys((lines.ab, lines.bc)))
        print(f"{lines.name}: {rates}{', moving' if lines.moves else ''}")
        titles = f"{'median s':>8s} {'min':>8s} {'max':>8s} {'overlapped':>10s} {'off %':>7s} {'predicted':>9s}"
        print(f"  {'':31s} {titles} {'error %':>7s} {'of torch':>8s}")
        ordered = best_plan(lines, 8)
        plans = {"1f1b": one_f_one_b(), "best": ordered, "packed": replace(ordered, compression=PACKED)}
        torch_s = 0.0
        for name, kind, options in ROWS:
            found = measured(lines, plans[kind], options)
            torch_s = torch_s or found.median_s
            print(row(name, found, timeline_s(lines, plans[kind]), torch_s), flush=True)


if __name__ == "__main__":
    main()
