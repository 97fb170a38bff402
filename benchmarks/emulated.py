"""Printed against measured: plans that were drawn and written down before any of them ran, over emulated links.

    hippo bench emulated
    python benchmarks/emulated.py [runs] [name ...]    the plans of the folder benchmarks/emulated, or some of them
    python benchmarks/emulated.py table                what results/emulated.json holds: every run, as it was
    python benchmarks/emulated.py draw                 writes that folder from its seed

Sixteen plans for hippo's executor (``h..``): pipelines, replicas of 1, 2, 4 and 8 ranks a domain, both at once; two to
four domains, bbr and cubic, three over links that take a new rate within 30 % every half second. Six for torch's own
runtime (``t..``). Processes are stand-ins that wait as long as the plan says and send what it says. A run is four
steps, of which the first warms TCP up; its time is their median, the case's the median of the runs (three). *Run*: what
``hippo run`` says of it, *plan*: what ``hippo plan`` prints for that runtime, told the congestion control.
*Payload*: the link whose payload is farthest from the plan's; *wire*: what its bytes are made of. Asked: within 5 % of
*run* (10 % where links move or cubic loses), payload within 2 %.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hippo.emulate.emulate import emulate, setting_of
from hippo.emulate.setting import LinkTraffic
from hippo.errors import InputError
from hippo.files import json_text
from hippo.plan.codec import load_plan, save_plan
from hippo.plan.plan import Pipeline, Plan, ScheduleChoice, Stage, Sync
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
from hippo.problem.load import load_trace
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem
from hippo.problem.profile import Profile, ProfileRow
from hippo.problem.transport import IDEAL
from hippo.problem.workload import Workload
from hippo.score.judge import judge
from hippo.simulate.lower import lower
from hippo.simulate.timeline import link_bytes
from hippo.units import bytes_per_s_from_gbps

FOLDER = Path(__file__).parent / "emulated"
RECORD = Path(__file__).parents[1] / "results" / "emulated.json"
ROWS = Path(__file__).parents[1] / "data" / "emulated_runs.csv"
SEED, STEPS, RUNS, SEQ = 20261123, 4, 3, 128
PATIENCE_S = 300  # a busy machine starts processes slowly
TRACE_S, MOVES_EVERY_S = 300.0, 0.5
RATES_MBIT, ROUND_TRIPS_MS = (50, 80, 100, 150), (10, 20, 40, 60, 80)
RUN = (sys.executable, "-c", "from hippo.cli.main import main; main()", "run")


@dataclass(frozen=True)
class Case:
    """One plan: the domains of each pipeline's stages, and how it runs. What is not said here is drawn."""

    name: str
    pipelines: tuple[str, ...]
    congestion: str = "bbr"
    lanes: int = 1  # ranks of every stage
    all_reduce: str = "two-level"
    schedule: str = "1f1b"
    moves: bool = False

    @property
    def runtime(self) -> str:
        """Who runs it."""
        return "torch" if self.name[0] == "t" else "hippo"


CASES = (
    Case("h01", ("aabb",)),
    Case("h02", ("abc",)),
    Case("h03", ("abcd",), "cubic"),
    Case("h04", ("aab",), "cubic"),
    Case("h05", ("abc",), moves=True),
    Case("h06", ("a", "b"), all_reduce="ring"),
    Case("h07", ("a", "b", "c"), "cubic"),
    Case("h08", ("a", "b"), lanes=2),
    Case("h09", ("a", "b", "c"), lanes=2, all_reduce="ring"),
    Case("h10", ("a", "b"), "cubic", lanes=4),
    Case("h11", ("a", "b", "c", "d"), lanes=4),
    Case("h12", ("a", "b"), lanes=8),
    Case("h13", ("ab", "cd"), moves=True),
    Case("h14", ("aa", "bb"), lanes=2),
    Case("h15", ("ab", "cc"), "cubic", lanes=2, all_reduce="ring"),
    Case("h16", ("aa", "bb"), moves=True),
    Case("t01", ("ab",), schedule="gpipe"),
    Case("t02", ("abc",)),
    Case("t03", ("aabb",), "cubic"),
    Case("t04", ("abc",), schedule="zb-h1"),
    Case("t05", ("abcd",), schedule="zb-h1"),
    Case("t06", ("ab", "cd"), all_reduce="ring"),
)


# ------------------------------------------------------------------------------------------------------------- drawing
def drawn(case: Case, rng: np.random.Generator) -> tuple[Problem, Plan]:
    """A case's links, model, seconds and messages."""
    names = sorted(set("".join(case.pipelines)))
    crosses = any(len(set(line)) > 1 for line in case.pipelines)
    domains = tuple(Domain(name, 2, 8, 1e11, 1e11, 1e-6) for name in names)
    links = []
    for one, two in combinations(names, 2):
        rate = bytes_per_s_from_gbps(float(rng.choice(RATES_MBIT)) / 1e3)
        latency_s = float(rng.choice(ROUND_TRIPS_MS)) / 2e3
        links += [Link(*pair, rate, latency_s, 0.0) for pair in ((one, two), (two, one))]
    device = gpu("A100-SXM-80GB")
    stages = max(len(line) for line in case.pipelines)
    hidden, blocks = int(rng.choice((256, 384, 512))), int(rng.integers(max(4, stages), 11))
    model = gpt_model(f"drawn {case.name}", layers=blocks, hidden=hidden, heads=8, vocab=2000, seq=SEQ, tied=False)
    seconds, waves = float(rng.uniform(0.01, 0.03)), int(rng.integers(stages + 2, 11))
    message_bytes = float(rng.uniform(0.3e6, 2e6)) if crosses else 1e5
    rows = tuple(
        ProfileRow(None, at, device.name, 1, 1, seconds, seconds, share * seconds, 1e6, 1e6, message_bytes)
        for at, share in enumerate(rng.uniform(0.6, 1.0, model.num_layers).tolist())
    )
    free = {name: count() for name in names}
    plan = Plan(
        tuple(_pipeline(line, case, model.num_layers, waves, free) for line in case.pipelines),
        micro_batch=1,
        schedule=ScheduleChoice(case.schedule),
        sync=Sync(all_reduce=case.all_reduce),
    )
    batch = waves * case.lanes * len(case.pipelines)
    cluster = Cluster(case.name, device, domains, tuple(links))
    workload = Workload(batch, SEQ, "bf16")
    return Problem(model, cluster, workload, profile=Profile("bf16", 16.0, rows), runtime=case.runtime), plan


def _pipeline(line: str, case: Case, layers: int, waves: int, free: dict[str, Any]) -> Pipeline:
    cuts = np.linspace(0, layers, len(line) + 1).round().astype(int).tolist()
    stages = []
    for place, domain in enumerate(line):
        devices = tuple(f"{domain}/{at // 8}/{at % 8}" for at in (next(free[domain]) for _ in range(case.lanes)))
        stages.append(Stage(domain, (cuts[place], cuts[place + 1]), 1, case.lanes, devices))
    return Pipeline(tuple(stages), waves)


def moving(cluster: Cluster, seed: int) -> str:
    """A trace of the links: each within 30 % of its rate, anew every half second."""
    rng, rows = np.random.default_rng(seed), ["time_s,src,dst,bandwidth_gbps,latency_ms"]
    for instant in range(round(TRACE_S / MOVES_EVERY_S)):
        for link in cluster.links:
            assert link.bandwidth_bytes_per_s is not None
            gbps = link.bandwidth_bytes_per_s / bytes_per_s_from_gbps(1.0) * rng.uniform(0.7, 1.3)
            where = f"{instant * MOVES_EVERY_S:g},{link.source},{link.destination}"
            rows.append(f"{where},{gbps:.6f},{1e3 * link.latency_s:g}")
    return "\n".join(rows) + "\n"


def draw() -> None:
    """Writes every plan; a case has a generator of its own, so that one more changes no other."""
    for index, case in enumerate(CASES):
        save_plan(*drawn(case, np.random.default_rng([SEED, index])), FOLDER / f"{case.name}.json")


# ----------------------------------------------------------------------------------------------------------- measuring
@dataclass(frozen=True)
class Found:
    """What a run took, was said to take, and sent."""

    load: float  # of the machine, where it ended
    steps_s: tuple[float, ...]
    predicted_s: float
    links: tuple[LinkTraffic, ...]

    @property
    def step_s(self) -> float:
        """The middle one of the steps after the first."""
        return median(self.steps_s[1:])


def measured(case: Case, problem: Problem) -> Found:
    """One run."""
    path = FOLDER / f"{case.name}.json"
    with tempfile.TemporaryDirectory() as folder:
        out, trace = Path(folder, "out.json"), None
        command = [*RUN, str(path), "--stand-in", "--steps", str(STEPS), "--runtime", case.runtime]
        command += ["--lanes"] if case.runtime == "hippo" else []
        command += ["--timeout", str(PATIENCE_S), "--quiet", "--json"]
        if case.moves:
            Path(folder, "net.csv").write_text(moving(problem.cluster, SEED))
            trace = load_trace(Path(folder, "net.csv"), problem.cluster.under(IDEAL))
        setting = setting_of(
            problem.cluster, command, source=str(path), trace=trace, congestion=case.congestion, backend="userspace"
        )
        with out.open("w") as stream:
            outcome = emulate(setting, stdout=stream.fileno())
        assert outcome.exit_code == 0, f"{case.name} failed"
        told: dict[str, Any] = json.loads(out.read_text())
    load = round(os.getloadavg()[0], 1)
    return Found(load, tuple(told["measured_step_s"]), told["predicted_step_s"], outcome.run.links)


def row(case: Case, found: Sequence[Found]) -> str:
    """A line of the table."""
    problem, plan = load_plan(FOLDER / f"{case.name}.json")
    step_s, predicted_s = (median(getattr(one, name) for one in found) for name in ("step_s", "predicted_s"))
    told = replace(problem, cluster=replace(problem.cluster, congestion=case.congestion))
    plan_s = judge(told, plan).step_time_s
    asked = link_bytes(lower(problem, plan))
    used = [
        ((traffic.payload_bytes or 0) / STEPS / asked[at] - 1, traffic)
        for one in found
        for at, traffic in enumerate(one.links)
        if asked[at] > 0
    ]
    worst, link = max(used, key=lambda each: abs(each[0]))
    parts = [100 * (part or 0) / link.carried_bytes for part in (link.header_bytes, link.repeated_bytes)]
    spread = f"{min(one.step_s for one in found):.3f} to {max(one.step_s for one in found):.3f}"
    said = [f"{each:.3f} | {each / step_s - 1:+.1%}" for each in (predicted_s, plan_s)]
    dropped = 100 * max(one.dropped_bytes / max(1, one.carried_bytes) for _, one in used)
    figures = (f"{step_s:.3f}", spread, *said, f"{worst:+.2%}", f"{parts[0]:.1f}, {parts[1]:.2f}", f"{dropped:.1f}")
    return f"| {case.name} | {_ways(case)} | {_how(case)} | {len(found)} | {' | '.join(figures)} |"


def table(found: Mapping[str, Sequence[Found]]) -> None:
    """Prints what was found."""
    titles = "measured s | range | run s | off | plan s | off | payload | headers, carried again % | dropped %"
    print(f"| plan | stages x ranks | how | runs | {titles} |\n{'|---' * 13}|")
    for case in CASES:
        if found.get(case.name):
            print(row(case, found[case.name]), flush=True)


def write_rows(found: Mapping[str, Sequence[Found]]) -> None:
    """What ``hippo validate`` and intervals read: every plan, measured, as it is printed now where nobody says
    the congestion control, as the run said."""
    with ROWS.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("id", "runtime", "links", "measured_s", "printed_s", "run_s"))
        for case in CASES:
            problem, plan = load_plan(FOLDER / f"{case.name}.json")
            measured_s, run_s = (
                median(getattr(one, of) for one in found[case.name]) for of in ("step_s", "predicted_s")
            )
            seconds = (measured_s, judge(problem, plan).step_time_s, run_s)
            links = ", ".join((_ways(case), _how(case)))
            out.writerow((case.name, case.runtime, links, *(f"{each:.3f}" for each in seconds)))


def _ways(case: Case) -> str:
    return f"{' '.join(case.pipelines)} x {case.lanes}"


def _how(case: Case) -> str:
    return f"{case.congestion}{', moving' if case.moves else ''}, {case.all_reduce}, {case.schedule}"


def recorded() -> dict[str, list[Found]]:
    """Every run of the record."""
    document = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return {
        name: [Found(**{**one, "links": tuple(LinkTraffic(**link) for link in one["links"])}) for one in runs]
        for name, runs in document.items()
    }


def main(runs: int, names: Sequence[str]) -> None:
    """Runs every case once, then all again; goes on from the record, so that it may be interrupted."""
    found = recorded()
    for number in range(runs):
        for case in CASES:
            if (names and case.name not in names) or len(found.setdefault(case.name, [])) > number:
                continue
            try:
                found[case.name].append(measured(case, load_plan(FOLDER / f"{case.name}.json")[0]))
            except InputError as error:
                print(f"not on this machine: {error}")
                return
            told = {name: [asdict(one) for one in each] for name, each in found.items() if each}
            RECORD.write_text(json_text(told))
    table(found)


if __name__ == "__main__":
    given = sys.argv[1:]
    if given == ["draw"]:
        draw()
    elif given == ["table"]:
        table(recorded())
        write_rows(recorded())
    else:
        wanted = [word for word in given if not word.isdecimal()]
        main(next((int(word) for word in given if word.isdecimal()), RUNS), wanted)
