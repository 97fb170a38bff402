"""Layers that move beside the training, and by stopping, over emulated links: what was predicted and what it took.

Stand-ins sleep in place of layers; messages, states and gradients are real. Each scenario trains under a plan, is asked
for another one and trains on. Printed: the share of the link that training leaves, steps before and while layers move,
how long the move took beside what was predicted and beside its bytes over the spare rate that was measured before it,
and how long training stood still. ``--scenarios`` names some, ``--ways`` stop or background; ``--out FILE`` keeps what
was found, beside what it holds already, and ``--table`` prints it again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hippo.emulate.emulate import emulate, setting_of
from hippo.emulate.emulation import emulation
from hippo.files import json_text
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.cluster import Cluster, Domain, Gpu, Link
from hippo.problem.load import load_trace
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem
from hippo.problem.profile import Profile, ProfileRow
from hippo.problem.transport import GOODPUT, IDEAL
from hippo.problem.workload import Workload
from hippo.run.change import Changed, PlanChange
from hippo.run.job import RunJob, RunOptions
from hippo.run.network import trained_bytes
from hippo.run.run import Emulated, run
from hippo.units import bytes_per_s_from_gbps, gbps_from_bytes_per_s

SEQ, WAVES = 64, 8
BEFORE, AFTER = 8, 3  # steps before the order, and after the move
FAR_S = 0.02
SECONDS = 240.0  # of a trace
WAYS = ("background", "stop")


@dataclass(frozen=True)
class Scenario:
    """One run: where stages lie, layers of each before and after, links, and how they move."""

    name: str
    stages: str  # domain of each
    before: tuple[int, ...]  # blocks of each stage
    after: tuple[int, ...]
    mbit_s: float = 100.0
    hidden: int = 256  # a block has 12 times its square parameters, 12 bytes of state each
    message_mb: float = 1.5
    block_s: float = 0.025  # forward of a block, of a micro-batch; backward and weight gradient take as long each
    swing: float = 0.0  # share of the rate
    every_s: float = 0.5
    congestion: str = "bbr"
    steps: int | None = None  # to train meanwhile, whatever is left then
    joins: str = ""  # a domain where a replica of all layers joins

    @property
    def problem(self) -> Problem:
        """Blocks that take what the scenario says, and links between all domains."""
        blocks = sum(self.before)
        model = gpt_model("blocks", layers=blocks, hidden=self.hidden, heads=4, vocab=64, seq=SEQ)

        def row(kind: str, share: float) -> ProfileRow:
            seconds = share * self.block_s
            return ProfileRow(kind, None, "stand-in", 1, 1, seconds, seconds, seconds, 1e3, 1e6, 1e6 * self.message_mb)

        rows = (row("embedding", 0.0), row("block", 1.0), row("head", 0.0))
        names = sorted({*self.stages, *self.joins})
        domains = tuple(Domain(name, 8, 1, 1e12, 1e12, 1e-4) for name in names)
        rate = bytes_per_s_from_gbps(self.mbit_s / 1e3)
        links = tuple(Link(one, two, rate, FAR_S, 0.0) for one in names for two in names if one != two)
        gpu = Gpu("stand-in", {"bf16": 1e15}, 1e12, 1e12, 1e12, 0.0)
        cluster = Cluster("moves", gpu, domains, links, congestion=self.congestion)
        return Problem(model, cluster, Workload(WAVES, SEQ, "bf16"), profile=Profile("bf16", 16.0, rows))

    def plan(self, blocks: Sequence[int]) -> Plan:
        """One pipeline with so many blocks a stage."""
        return Plan((self._pipeline(blocks, WAVES),), 1)

    def _pipeline(self, blocks: Sequence[int], waves: int) -> Pipeline:
        cuts = [0, *(1 + sum(blocks[: at + 1]) for at in range(len(blocks)))]
        cuts[-1] += 1
        stages = (
            Stage(domain, (cuts[at], cuts[at + 1]), 1, 1, (f"{domain}/{at}/0",))
            for at, domain in enumerate(self.stages)
        )
        return Pipeline(tuple(stages), waves)

    def plans(self) -> tuple[Plan, Plan]:
        """Before and after."""
        if not self.joins:
            return self.plan(self.before), self.plan(self.after)
        alone = self._pipeline(self.before, WAVES // 2)
        layers = (0, sum(self.before) + 2)
        joined = Pipeline((Stage(self.joins, layers, 1, 1, (f"{self.joins}/0/0",)),), WAVES // 2)
        return self.plan(self.before), Plan((alone, joined), 1)

    def trace(self, links: Sequence[Link]) -> str:
        """These links within the swing around their rate, anew every so often; the draws are the scenario's own."""
        rng = np.random.default_rng([7, *self.name.encode()])
        lines = ["time_s,src,dst,bandwidth_gbps,latency_ms"]
        for at in range(round(SECONDS / self.every_s)):
            for link in links:
                gbps = gbps_from_bytes_per_s(link.rate_bytes_per_s(1)) * rng.uniform(1 - self.swing, 1 + self.swing)
                lines.append(f"{at * self.every_s:g},{link.source},{link.destination},{gbps:.6f},{1e3 * FAR_S:g}")
        return "\n".join(lines) + "\n"

    def emulated(self, cluster: Cluster, command: Sequence[str], congestion: str) -> None:
        """Runs a command inside the cluster's links, moving where the scenario says so."""
        with tempfile.TemporaryDirectory() as folder:
            trace = None
            if self.swing:
                Path(folder, "net.csv").write_text(self.trace(cluster.links))
                trace = load_trace(Path(folder, "net.csv"), cluster.under(IDEAL))
            setting = setting_of(
                cluster,
                [sys.executable, "-m", *command],
                source=self.name,
                trace=trace,
                congestion=congestion,
                backend="userspace",
            )
            assert emulate(setting).exit_code == 0, f"{' '.join(command)} failed"


SCENARIOS = (
    Scenario("still", "ab", (3, 2), (2, 3), hidden=480),
    Scenario("swings", "ab", (3, 2), (2, 3), hidden=480, swing=0.3),
    Scenario("long", "ab", (3, 2), (2, 3), hidden=530, swing=0.3),
    Scenario("busier", "ab", (3, 2), (2, 3), hidden=480, message_mb=2.2, swing=0.3),
    Scenario("narrow", "ab", (3, 2), (2, 3), hidden=360, message_mb=3.2, block_s=0.015, swing=0.3),
    Scenario("upwards", "ab", (2, 3), (3, 2), hidden=480, swing=0.3),
    Scenario("slow swings", "ab", (3, 2), (2, 3), hidden=480, swing=0.3, every_s=4.0),
    Scenario("three domains", "abc", (3, 2, 2), (2, 2, 3), hidden=600, swing=0.3),
    Scenario("a replica joins", "aa", (2, 2), (2, 2), hidden=200, block_s=0.05, swing=0.3, joins="b"),
    Scenario("a replica joins, still", "aa", (2, 2), (2, 2), hidden=200, block_s=0.05, joins="b"),
    Scenario("crowded", "ab", (3, 2), (2, 3), hidden=420, message_mb=5.4, block_s=0.0125),
    Scenario("crowded, swings", "ab", (3, 2), (2, 3), hidden=420, message_mb=5.4, block_s=0.0125, swing=0.3),
    Scenario("cubic", "ab", (3, 2), (2, 3), hidden=480, swing=0.3, congestion="cubic"),
)


class EnoughSeen(Exception):
    """The steps after the move, too."""


class Once:
    """One move after so many steps; the steps before, while it lasts, and after."""

    def __init__(self, plan: Plan, *, background: bool, steps: int | None) -> None:
        after = None if steps is None or not background else BEFORE + steps
        self._change: PlanChange | None = PlanChange(plan, after, background=background)
        self.changed_to: Changed | None = None
        self.asked_at = 0

    def due(self, done: int, now: RunJob) -> PlanChange | None:
        """After the steps before."""
        if done < BEFORE:
            return None
        found, self._change = self._change, None
        self.asked_at = self.asked_at or done
        return found

    def again(self, what: PlanChange) -> None:
        """It comes next."""
        self._change = what

    def unwanted(self, what: PlanChange) -> str:
        """It is wanted."""
        return ""

    def changed(self, what: Changed, now: RunJob) -> None:
        """It has been made."""
        self.changed_to = what

    def gave_up(self, what: PlanChange, told: str) -> None:
        """It never is."""
        raise AssertionError(told)


@dataclass(frozen=True)
class Found:
    """A move as it was. Seconds; bytes of payload."""

    scenario: str
    way: str
    step_s: tuple[float, ...]  # all of them
    asked_at: int  # the last step before it was asked for
    after_step: int  # the last step under the plan before
    predicted_s: float
    measured_s: float
    predicted_stopped_s: float
    stopped_s: float
    sent_bytes: float  # over the link that carries most
    state_bytes: float  # of these, of the layers
    trained_bytes: float  # over that link in a step
    link_bytes_per_s: float  # that it carries

    @property
    def before_s(self) -> float:
        """A step before the move."""
        return float(np.mean(self.step_s[1 : self.asked_at]))

    @property
    def meanwhile_s(self) -> float:
        """A step while it lasts."""
        return float(np.mean(self.step_s[self.asked_at : self.after_step]))

    @property
    def spare_bytes_per_s(self) -> float:
        """That training left before the move."""
        return self.link_bytes_per_s - self.trained_bytes / float(np.mean(self.step_s[1 : self.asked_at]))


def inside(name: str, way: str, out: Path) -> None:
    """One run, inside its emulated links."""
    (scenario,) = (each for each in SCENARIOS if each.name == name)
    around = emulation()
    assert around is not None, "it runs inside its links"
    before, after = scenario.plans()
    job = RunJob(scenario.problem, before, RunOptions(steps=60, stand_in=True, timeout_s=60.0))
    changes = Once(after, background=way == "background", steps=scenario.steps)

    steps: list[float] = []

    def watch(step: Any) -> None:
        steps.append(step.seconds)
        done = changes.changed_to
        if done is not None and step.number >= done.after_step + AFTER:
            raise EnoughSeen

    with suppress(EnoughSeen):
        run(job, place=Emulated(around), watch=watch, changes=changes)
    found = changes.changed_to
    assert found is not None, f"{name} {way}: the move never came to its end: {steps}"
    trained = trained_bytes(job)
    pair = max(found.wan_bytes, key=lambda each: found.wan_bytes[each])
    rate = bytes_per_s_from_gbps(scenario.mbit_s / 1e3) * GOODPUT
    told = Found(
        scenario=name,
        way=way,
        step_s=tuple(steps),
        asked_at=changes.asked_at,
        after_step=found.after_step,
        predicted_s=found.predicted_s,
        measured_s=found.measured_s,
        predicted_stopped_s=found.predicted_stopped_s,
        stopped_s=found.stopped_s,
        sent_bytes=found.sent_bytes * found.wan_bytes[pair] / sum(found.wan_bytes.values()),
        state_bytes=found.wan_bytes[pair],
        trained_bytes=trained.get(pair, 0.0),
        link_bytes_per_s=rate,
    )
    out.write_text(json_text(asdict(told)))


def measured(scenario: Scenario, way: str) -> Found:
    """One run, in an emulation of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        command = ["benchmarks.moves", "--inside", scenario.name, "--ways", way, "--out", str(out)]
        scenario.emulated(scenario.problem.cluster, command, scenario.congestion)
        return read(json.loads(out.read_text()))


def read(told: Mapping[str, Any]) -> Found:
    """The way back."""
    return Found(**{**told, "step_s": tuple(told["step_s"])})


def row(found: Found) -> str:
    """A line of the table."""
    ideal_s = found.sent_bytes / (found.spare_bytes_per_s if found.way == "background" else found.link_bytes_per_s)
    leaves = found.spare_bytes_per_s / found.link_bytes_per_s
    meanwhile = f"{found.meanwhile_s / found.before_s:.3f}" if found.after_step > found.asked_at else ""
    cells = (
        found.scenario,
        found.way,
        f"{leaves:.0%}",
        f"{found.before_s:.2f}",
        meanwhile,
        f"{found.after_step - found.asked_at}",
        f"{found.state_bytes / 1e6:.1f}, {found.sent_bytes / 1e6:.1f}",
        f"{found.predicted_s:.2f}",
        f"{found.measured_s:.2f}",
        f"{found.measured_s / found.predicted_s - 1:+.1%}",
        f"{found.measured_s / ideal_s:.2f}",
        f"{found.predicted_stopped_s:.2f}",
        f"{found.stopped_s:.2f}",
        f"{found.stopped_s / found.before_s:.2f}",
    )
    return f"| {' | '.join(cells)} |"


TITLES = (
    "scenario | way | training leaves | step s | while it moves, of before | steps meanwhile | state, sent MB | "
    "predicted s | measured s | off | of bytes / spare | predicted standstill s | stood still s | of a step"
)


def table(every: Sequence[Found]) -> None:
    """Prints all of it."""
    print(f"| {TITLES} |\n{'|---' * 14}|")
    for found in every:
        print(row(found), flush=True)


def main() -> None:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", nargs="*", default=[each.name for each in SCENARIOS])
    parser.add_argument("--ways", nargs="*", default=list(WAYS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        inside(asked.inside, asked.ways[0], asked.out)
        return
    out: Path | None = asked.out
    every = [read(each) for each in json.loads(out.read_text())] if out is not None and out.exists() else []
    if not asked.table:
        for scenario in (each for each in SCENARIOS if each.name in asked.scenarios):
            for way in asked.ways:
                found = measured(scenario, way)
                every = [each for each in every if (each.scenario, each.way) != (scenario.name, way)] + [found]
                if out is not None:
                    out.write_text(json_text([asdict(each) for each in every]))
    table(every)


if __name__ == "__main__":
    main()
