"""Orders to a running job over emulated links: from order to effect, the time lost, steps beside predictions.

Stand-ins sleep in place of layers; messages are real. Each job trains, is asked for one lever after another and trains
on for some steps under each. Printed for every order: steps until it holds, how long training stood still at the border
(the worst run), what was lost in the step beside which processes made ready and in the first under the new plan, and
the mean step after it beside what the simulator says. Lost is what is above steps of the same kind: local SGD's are
compared with those that sum where they do, and its first round of H steps with later rounds. ``--jobs`` names some;
``--runs`` of each, of which medians are told, with the least and most lost in both together. bbr drains its pipe every
10 s, which makes single steps longer.

``--swing`` runs twelve other jobs over links that take a new rate within a third of theirs every three seconds: levers,
moves, a replica that joins and one that leaves, an order each. Printed: steps before and after beside what the
simulator says of each over the links as they were then, and what the order cost beside its forecast.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from benchmarks.moves import WAVES, Scenario

from hippo.emulate.emulation import emulation
from hippo.files import json_text
from hippo.plan.codec import plan_to_document
from hippo.plan.plan import Pipeline, Plan, Stage, Sync
from hippo.problem.problem import Problem
from hippo.problem.profile import Profile
from hippo.run.change import Changed, PlanChange
from hippo.run.handover import predicted_s as stopping_s
from hippo.run.job import RunJob, RunOptions
from hippo.run.network import RunNetwork
from hippo.run.orders import RunOrder, change_of
from hippo.run.predict import predicted_each
from hippo.run.run import Emulated, run

STEPS, TAIL = 10, 8  # under each plan before the next order; of these at last, whole rounds of local SGD
WORLD = Scenario("levers", "ab", (2, 2), (2, 2), hidden=128, message_mb=0.25, block_s=0.02)
THREE = replace(WORLD, name="relays", stages="acb", before=(2, 1, 1), after=(2, 1, 1))
SLOWER = 5.0


@dataclass(frozen=True)
class LeverJob:
    """A plan, and what is asked of it in turn."""

    name: str
    plan: Plan
    orders: tuple[tuple[str, Mapping[str, Any]], ...]
    world: Scenario = WORLD
    slow: str = ""  # two domains whose links carry a fifth

    @property
    def problem(self) -> Problem:
        """Blocks whose micro-batches of two take twice as long, between the domains of the world."""
        found = self.world.problem
        assert found.profile is not None
        rows = found.profile.rows
        twice = tuple(
            replace(
                one,
                micro_batch=2,
                forward_s=2 * one.forward_s,
                backward_s=2 * one.backward_s,
                weight_gradient_s=None if one.weight_gradient_s is None else 2 * one.weight_gradient_s,
                activation_bytes=2 * one.activation_bytes,
                output_bytes=2 * one.output_bytes,
            )
            for one in rows
        )
        local = self.plan.sync.method == "local_sgd"
        links = (
            replace(link, bandwidth_bytes_per_s=link.rate_bytes_per_s(1) / SLOWER)
            if {link.source, link.destination} == {*self.slow}
            else link
            for link in found.cluster.links
        )
        return replace(
            found,
            cluster=replace(found.cluster, links=tuple(links)),
            profile=Profile(found.profile.precision, found.profile.state_bytes_per_parameter, (*rows, *twice)),
            allow_compression=True,
            allow_local_sgd=local,
        )


def _pipeline(stages: Sequence[tuple[str, int, int]], waves: int, first: int = 0) -> Pipeline:
    return Pipeline(
        tuple(
            Stage(domain, (start, stop), 1, 1, (f"{domain}/{first + at}/0",))
            for at, (domain, start, stop) in enumerate(stages)
        ),
        waves,
    )


ALONE = (("a", 0, 6),), (("b", 0, 6),)
PAIRED = tuple(_pipeline(((domain, 0, 3), (domain, 3, 6)), WAVES // 4, 2 * at) for domain in "ab" for at in range(2))
JOBS = (
    LeverJob(
        "a pipeline over two domains",
        Plan((_pipeline((("a", 0, 3), ("b", 3, 6)), WAVES),), 1),
        (
            ("schedule", {"name": "zb-h1"}),
            ("schedule", {"name": "1f1b", "live_limit": 4}),
            ("schedule", {"name": "best"}),
            ("micro-batch", {"size": 2}),
            ("compress", {"source": "a", "destination": "b", "kind": "int8"}),
            ("micro-batch", {"size": 1}),
            ("compress", {"source": "a", "destination": "b", "kind": "none"}),
            ("schedule", {"name": "1f1b"}),
        ),
    ),
    LeverJob(
        "a pipeline over three domains",
        Plan((_pipeline((("a", 0, 3), ("c", 3, 4), ("b", 4, 6)), WAVES),), 1),
        (
            ("relay", {"source": "a", "destination": "c", "via": "b"}),
            ("relay", {"source": "a", "destination": "c", "via": "none"}),
        ),
        THREE,
        slow="ac",
    ),
    LeverJob(
        "replicas in two domains",
        Plan(tuple(_pipeline(stages, WAVES // 2) for stages in ALONE), 1),
        (("shares", {"waves": [5, 3]}), ("shares", {"waves": [4, 4]})),
    ),
    LeverJob(
        "four replicas in two domains",
        Plan(PAIRED, 1, sync=Sync(all_reduce="two-level")),
        (("all-reduce", {"way": "ring"}), ("all-reduce", {"way": "two-level"})),
    ),
    LeverJob(
        "four replicas, a ring first",
        Plan(PAIRED, 1, sync=Sync(all_reduce="ring")),
        (("all-reduce", {"way": "two-level"}), ("all-reduce", {"way": "ring"})),
    ),
    LeverJob(
        "local SGD",
        Plan(tuple(_pipeline(stages, WAVES // 2) for stages in ALONE), 1, sync=Sync(method="local_sgd", every=4)),
        (("every", {"steps": 2}), ("every", {"steps": 4})),
    ),
)


SWINGS = replace(WORLD, message_mb=1.0, swing=1 / 3, every_s=3.0)  # messages fill half of a link
MOVES = replace(SWINGS, before=(3, 2), after=(2, 3), hidden=480, message_mb=1.5, block_s=0.025)
JOINS = replace(SWINGS, stages="aa", hidden=200, block_s=0.05, joins="b")


def _swinging(name: str, of: str, kind: str, values: Mapping[str, Any]) -> LeverJob:
    """A job of those above, one order of its own, over links that swing."""
    (job,) = (each for each in JOBS if each.name == of)
    world = replace(job.world, name=name, swing=SWINGS.swing, every_s=SWINGS.every_s)
    world = world if job.slow else replace(world, message_mb=SWINGS.message_mb)
    return replace(job, name=name, world=world, orders=((kind, values),))


def _moving(name: str, world: Scenario, way: str, *, back: bool = False) -> LeverJob:
    """From the first plan of a world to the second, or back."""
    before, after = reversed(world.plans()) if back else world.plans()
    order = ("plan", {"plan": plan_to_document(world.problem, after), "way": way})
    return LeverJob(name, before, (order,), replace(world, name=name))


SWINGING = (
    _swinging("order", "a pipeline over two domains", "schedule", {"name": "best"}),
    _swinging("in flight", "a pipeline over two domains", "schedule", {"name": "1f1b", "live_limit": 4}),
    _swinging("micro-batch size", "a pipeline over two domains", "micro-batch", {"size": 2}),
    _swinging(
        "compression", "a pipeline over two domains", "compress", {"source": "a", "destination": "b", "kind": "int8"}
    ),
    _swinging("relay", "a pipeline over three domains", "relay", {"source": "a", "destination": "c", "via": "b"}),
    _swinging("shares", "replicas in two domains", "shares", {"waves": [5, 3]}),
    _swinging("two levels to a ring", "four replicas in two domains", "all-reduce", {"way": "ring"}),
    _swinging("H", "local SGD", "every", {"steps": 2}),
    _moving("move by stopping", MOVES, "stop"),
    _moving("move beside the training", MOVES, "background"),
    _moving("a replica joins", JOINS, "stop"),
    _moving("a replica leaves", JOINS, "stop", back=True),
)


@dataclass(frozen=True)
class LeverFound:
    """One order as it was; seconds."""

    job: str
    order: str
    run: int
    asked_at: int  # the last step before it was asked for
    after_step: int  # the last step under the plan before
    prepared_s: float
    stopped_s: float
    before_s: tuple[float, ...]  # steps under the plan before, without its first
    ready_s: float  # the step beside which processes made ready
    after_s: tuple[float, ...]  # steps under the new plan
    expected_before_s: tuple[float, ...]  # what the simulator says of these steps, over the links as they were then
    expected_after_s: tuple[float, ...]
    moved_s: tuple[float, float, float]  # of layers: forecast by mean rates, over the links as they were then, measured
    every: tuple[int, int] = (1, 1)  # steps from a sum to the next, under the plan before and the new one

    @property
    def first_lost(self) -> float:
        """Of a step, that the first under the new plan took longer than later ones; with local SGD, the first round
        than later whole rounds."""
        every = self.every[1]
        rounds = [sum(self.after_s[at : at + every]) for at in range(0, len(self.after_s) - every + 1, every)]
        usual = median(rounds[1:])
        return (rounds[0] - usual) / (usual / every)

    @property
    def ready_lost(self) -> float:
        """Of a step, that the one beside which processes made ready took longer than those before that sum where it
        does."""
        apart = self.after_step - self.asked_at - 1 + len(self.before_s)  # from the first of those before
        alike = [one for at, one in enumerate(self.before_s) if (apart - at) % self.every[0] == 0]
        return (self.ready_s - median(alike)) / mean(self.before_s[-TAIL:])


class InTurn:
    """One order after another, each after some steps under the one before."""

    def __init__(self, asked: LeverJob) -> None:
        self._asked, self._next_at = asked, STEPS
        self._left = list(asked.orders)
        self.found: list[tuple[str, int, Changed, int]] = []
        self._now = ("", 0)

    def due(self, done: int, now: RunJob) -> PlanChange | None:
        """The next order."""
        if done < self._next_at or not self._left:
            return None
        kind, values = self._left.pop(0)
        words = " ".join(str(each) for each in values.values() if not isinstance(each, dict))
        self._now = f"{kind} {words}", done
        return change_of(RunOrder(kind, values), now, done=done)

    def again(self, what: PlanChange) -> None:
        """It never is."""
        raise AssertionError(what.asked)

    def unwanted(self, what: PlanChange) -> str:
        """It is wanted."""
        return ""

    def changed(self, what: Changed, now: RunJob) -> None:
        """It has been made."""
        self.found.append((*self._now, what, _every(now.plan)))
        self._next_at = what.after_step + STEPS

    def gave_up(self, what: PlanChange, told: str) -> None:
        """It never is."""
        raise AssertionError(told)


def _every(plan: Plan) -> int:
    return plan.sync.every if plan.sync.method == "local_sgd" else 1


def inside(name: str, number: int, out: Path) -> None:
    """One run, inside its emulated links."""
    (asked,) = (each for each in (*JOBS, *SWINGING) if each.name == name)
    around = emulation()
    assert around is not None, "it runs inside its links"
    steps = STEPS * (len(asked.orders) + 1) + 4 * len(asked.orders)
    job = RunJob(asked.problem, asked.plan, RunOptions(steps=steps, stand_in=True, timeout_s=60.0))
    turns = InTurn(asked)
    result = run(job, place=Emulated(around), changes=turns)
    network = RunNetwork.around(job.problem.cluster)
    seconds = {step.number: step.seconds for step in result.steps}
    ended = {step.number: step.began_s + step.seconds - network.started_s for step in result.steps}
    expected: dict[int, float] = {}
    for each in result.stretches:
        found = predicted_each(each.job, network, [step.began_s for step in each.steps])
        expected.update(zip((step.number for step in each.steps), found.tolist(), strict=True))
    ends = [what.after_step for _, _, what, _ in turns.found]
    every = [_every(asked.plan), *(each for *_, each in turns.found)]
    assert len(ends) == len(asked.orders), "an order was not carried out"
    told = []
    for at, (order, asked_at, what, _) in enumerate(turns.found):
        first = 1 if at == 0 else ends[at - 1] + 1
        last = ends[at + 1] - 1 if at + 1 < len(ends) else result.steps[-1].number
        before, after = range(first + 1, asked_at + 1), range(what.after_step + 1, last + 1)
        told.append(
            LeverFound(
                job=name,
                order=order,
                run=number,
                asked_at=asked_at,
                after_step=what.after_step,
                prepared_s=what.prepared_s,
                stopped_s=what.stopped_s,
                before_s=tuple(seconds[step] for step in before),
                ready_s=seconds[what.after_step],
                after_s=tuple(seconds[step] for step in after),
                expected_before_s=tuple(expected[step] for step in before),
                expected_after_s=tuple(expected[step] for step in after),
                moved_s=(
                    what.predicted_s,
                    _as_links_were(asked, network, what, ended[what.after_step]),
                    what.measured_s,
                ),
                every=(every[at], every[at + 1]),
            )
        )
    out.write_text(json_text([asdict(each) for each in told]))


def _as_links_were(asked: LeverJob, network: RunNetwork, what: Changed, start_s: float) -> float:
    """The forecast of a move by stopping at the rates that its links had while it lasted; of others the forecast."""
    seconds, met = what.predicted_s, network.met
    if met is None or what.background or not what.wan_bytes:
        return seconds
    for _ in range(10):  # how long it lasts says which rates count, and they how long it lasts
        instants = np.linspace(start_s, start_s + seconds, 100)
        rates, waits = (np.mean(each, axis=0)[None] for each in zip(*map(met.at, instants), strict=True))
        then = replace(
            network, trace=None, met=replace(met, time_s=np.zeros(1), bandwidth_bytes_per_s=rates, latency_s=waits)
        )
        seconds = stopping_s(then.mean(asked.problem.cluster), what.wan_bytes, network.transport)
    return seconds


def measured(asked: LeverJob, number: int, congestion: str) -> list[LeverFound]:
    """One run, in an emulation of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        command = ["benchmarks.levers", "--inside", asked.name, "--runs", str(number), "--out", str(out)]
        asked.world.emulated(replace(asked.problem.cluster, congestion=congestion), command, congestion)
        found = json.loads(out.read_text())
    series = ("before_s", "after_s", "expected_before_s", "expected_after_s", "moved_s", "every")
    return [LeverFound(**{**one, **{key: tuple(one[key]) for key in series}}) for one in found]


TITLES = (
    "job | order | border | made ready s | stood still ms | of a step | step before s | "
    "lost making ready | lost in the first | lost in all | least, most | step after s | predicted s | off"
)


def row(runs: Sequence[LeverFound]) -> str:
    """A line of the table: medians over runs, the worst standstill."""

    def mid(value: Any) -> float:
        return float(median(value(one) for one in runs))

    before, after = mid(lambda one: mean(one.before_s[-TAIL:])), mid(lambda one: mean(one.after_s[-TAIL:]))
    still = max(one.stopped_s for one in runs)
    predicted = mid(lambda one: mean(one.expected_after_s[-TAIL:]))
    cells = (
        runs[0].job,
        runs[0].order,
        "+" + ", +".join(sorted({str(one.after_step - one.asked_at) for one in runs})),
        f"{mid(lambda one: one.prepared_s):.2f}",
        f"{1e3 * still:.1f}",
        f"{max(one.stopped_s / mean(one.before_s[-TAIL:]) for one in runs):.2%}",
        f"{before:.3f}",
        f"{mid(lambda one: one.ready_lost):+.1%}",
        f"{mid(lambda one: one.first_lost):+.1%}",
        *_told([one.ready_lost + one.first_lost for one in runs]),
        f"{after:.3f}",
        f"{predicted:.3f}",
        f"{after / predicted - 1:+.1%}",
    )
    return f"| {' | '.join(cells)} |"


def _told(lost: Sequence[float]) -> tuple[str, str]:
    return f"{median(lost):+.1%}", f"{min(lost):+.1%}, {max(lost):+.1%}"


SWING_TITLES = (
    "scenario | run | border | steps before: s | predicted | off | worst step | steps after: s | predicted | off | "
    "worst step | layers moved in s | predicted | off | as links were | off | stood still s | of a step | "
    "first step above its forecast"
)


def swing_row(one: LeverFound) -> str:
    """A line of the table over links that swing; the first step after an order is held against its own forecast."""
    forecast, then, moved = one.moved_s
    step = mean(one.before_s)
    cells = (
        one.job,
        f"{one.run}",
        f"+{one.after_step - one.asked_at}",
        *_beside(one.before_s, one.expected_before_s),
        *_beside(one.after_s[one.every[1] :], one.expected_after_s[one.every[1] :]),
        *((f"{moved:.2f}", *_off(moved, forecast), *_off(moved, then)) if forecast else ("",) * 5),
        f"{one.stopped_s:.4f}",
        f"{one.stopped_s / step:.2%}",
        f"{(one.after_s[0] - one.expected_after_s[0]) / step:+.1%}",
    )
    return f"| {' | '.join(cells)} |"


def _beside(measured_s: Sequence[float], expected_s: Sequence[float]) -> tuple[str, str, str, str]:
    """Mean steps, measured and predicted, how far off, and the single step that is farthest off."""
    found, told = mean(measured_s), mean(expected_s)
    worst = max((one / other - 1 for one, other in zip(measured_s, expected_s, strict=True)), key=abs)
    return f"{found:.3f}", f"{told:.3f}", f"{found / told - 1:+.1%}", f"{worst:+.0%}"


def _off(measured_s: float, expected_s: float) -> tuple[str, str]:
    """What was predicted, and how far off it was."""
    return f"{expected_s:.2f}", f"{measured_s / expected_s - 1:+.1%}"


def main() -> None:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swing", action="store_true")
    parser.add_argument("--jobs", nargs="*", default=[])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--congestion", choices=("cubic", "bbr"), default="cubic")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        inside(asked.inside, asked.runs, asked.out)
        return
    jobs = [each for each in (SWINGING if asked.swing else JOBS) if not asked.jobs or each.name in asked.jobs]
    titles = SWING_TITLES if asked.swing else TITLES
    print(f"| {titles} |\n{'|---' * (titles.count('|') + 1)}|")
    for job in jobs:
        runs = [measured(job, number, asked.congestion) for number in range(asked.runs)]
        for orders in zip(*runs, strict=True):
            for line in map(swing_row, orders) if asked.swing else (row(orders),):
                print(line, flush=True)


if __name__ == "__main__":
    main()
