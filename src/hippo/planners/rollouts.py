"""Who trains, who generates, and how often weights are pushed: the best of all placements and periods.

A trainer is the best plan of one domain, on all of its nodes or on a half, a quarter, an eighth of them. Beside it
every number of replicas in every domain, every kind and period of pushes is a candidate. Each has a bound in closed
form (``simulate.rollouts.least_step_s``); candidates are played in the order of their bounds until none that is left
can be better, so the answer is the best of all of them: ``tests/judges/rollouts.py`` plays every one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf, prod

import numpy as np
from numpy.typing import NDArray

from hippo.cost.calibration import uncalibrated
from hippo.cost.money import egress_usd, rent_usd_per_s
from hippo.errors import InfeasibleError
from hippo.plan.codec import plan_to_document
from hippo.plan.plan import Plan
from hippo.plan.rollouts import RolloutPlan, RolloutPool
from hippo.planners.answers import answer_of
from hippo.planners.base import Progress, Stop
from hippo.planners.effort import Effort
from hippo.planners.exact.search import Exact
from hippo.problem.cluster import Domain, Link
from hippo.problem.problem import Problem, told_runtime
from hippo.problem.rollouts import Rollouts
from hippo.score.judge import evaluate
from hippo.simulate.rollouts import PoolTimes, RolloutTimes, RolloutWorld, least_round_s, play
from hippo.units import gb_from_bytes

NEAR = 0.005
"""Of plans within this share of the quickest the cheapest answers, as everywhere in hippo."""

PARTS = (1, 2, 4, 8)
"""A trainer has all nodes of its domain, or these parts of them."""

MOST_VECTORS = 20_000
"""Numbers of replicas per domain that are tried with one trainer; beyond that they go in steps."""

BATCH_S = 4e-6
"""Work of one batch that is played."""

TRAINER_SHARE = 0.5
"""Of the limit that the plans of trainers may take."""


@dataclass(frozen=True)
class Trainer:
    """The best plan of one domain on so many of its nodes."""

    domain: str
    nodes: int
    plan: Plan
    step_time_s: float


@dataclass(frozen=True)
class RolloutFound:
    """A plan, what it does, and what it costs."""

    plan: RolloutPlan
    times: RolloutTimes
    train_s: float
    nodes: int  # of the trainer
    push_bytes: float  # of one push to one pool
    push_s: tuple[float, ...]  # of each pool, with the way
    usd_per_step: float
    egress_usd_per_step: float
    binds: str  # training, generation, pushes

    @property
    def step_time_s(self) -> float:
        """In the long run."""
        return self.times.step_time_s

    def document(self) -> dict[str, object]:
        """Its keys in ``plan --rollouts --json``."""
        pools = [
            {"domain": pool.domain, "replicas": pool.replicas, "samples_per_step": samples, "push_s": seconds}
            for pool, samples, seconds in zip(self.plan.pools, self.times.samples, self.push_s, strict=True)
        ]
        return {
            "trainer": {
                "domain": self.plan.home,
                "nodes": self.nodes,
                "gpus": self.plan.trainer.gpus,
                "step_time_s": self.train_s,
            },
            "pools": pools,
            "push": {"kind": self.plan.push, "every": self.plan.every, "gb": gb_from_bytes(self.push_bytes)},
            "step_time_s": self.step_time_s,
            "staleness": {"mean": self.times.staleness_mean, "most": self.times.staleness_most},
            "usd_per_step": self.usd_per_step,
            "egress_usd_per_step": self.egress_usd_per_step,
            "binds": self.binds,
        }


@dataclass(frozen=True)
class RolloutAnswer:
    """The best plan, the best of other kinds, and what was looked at."""

    problem: Problem
    rollouts: Rollouts
    best: RolloutFound
    others: Mapping[str, RolloutFound]  # in words: what was to be otherwise, and the best of that kind
    played: int
    candidates: int
    step: int  # replicas between two numbers that were tried; 1: every number
    cut_short: str = ""

    @property
    def covers(self) -> str:
        """What the best is the best of, in a sentence."""
        numbers = "every number of replicas" if self.step == 1 else f"numbers of replicas in steps of {self.step}"
        return (
            f"Best of {self.candidates:,} candidates ({self.played} played, the others worse by their bounds): a "
            f"trainer in one domain on all, a half, a quarter or an eighth of its nodes, {numbers} in every domain, "
            "every kind and period of pushes that is allowed."
        )

    def trainer(self) -> Problem:
        """The question that the trainer's plan answers: the model in its domain alone."""
        return _alone(self.problem, self.problem.cluster.domain(self.best.plan.home))

    def document(self) -> dict[str, object]:
        """The ``plan --rollouts --json`` document."""
        return {
            "status": "feasible" if self.cut_short or self.step > 1 else "optimal",
            **self.best.document(),
            "plan": plan_to_document(self.trainer(), self.best.plan.trainer),
            "others": {words: found.document() for words, found in self.others.items()},
            "covers": self.covers,
            "cut_short": self.cut_short or None,
            "uncalibrated": uncalibrated(self.problem),
            **told_runtime(self.problem),
        }


def plan_rollouts(
    problem: Problem, rollouts: Rollouts, stop: Stop, *, progress: Progress | None = None
) -> RolloutAnswer:
    """The best placement of trainer and replicas and the best pushes, by the problem's objective (time or cost).

    Raises ``InfeasibleError`` where no domain holds the trainer, or none has room for a replica beside it.
    """
    effort = Effort.of(stop)
    trainers = trainers_of(problem, rollouts, effort, progress)
    choices = [_Choices.of(problem, rollouts, each) for each in trainers]
    search = _PlacementSearch(problem, rollouts, effort, tuple(each for each in choices if len(each.counts)))
    best = search.best()
    if best is None:
        least = rollouts.replica.gpus
        raise InfeasibleError(
            [
                f"No replica of {least} GPUs has room beside a trainer, or is reached by links both ways.",
                _way_out(rollouts),
            ]
        )
    others = {
        words: found
        for words, keep in _otherwise(problem, best)
        if (found := search.best(keep, quick=True)) is not None
    }
    count = sum(len(choices.counts) for choices in search.choices) * len(search.pushes)
    step = max(choices.step for choices in search.choices)
    return RolloutAnswer(problem, rollouts, best, others, len(search.known), count, step, effort.cut)


def _way_out(rollouts: Rollouts) -> str:
    given = [word for word, held in (("trainers", rollouts.trainers), ("pools", rollouts.pools)) if held]
    return (
        f"Nearest way out: allow more under {' and '.join(given)}." if given else "Nearest way out: smaller replicas."
    )


# ------------------------------------------------------------------------------------------------------------ trainers
def trainers_of(problem: Problem, rollouts: Rollouts, effort: Effort, progress: Progress | None) -> tuple[Trainer, ...]:
    """The best plan of every domain that may train, on so many of its nodes; like domains are planned once."""
    domains = [each for each in problem.cluster.domains if not rollouts.trainers or each.name in rollouts.trainers]
    sizes = [(each, -(-each.nodes // part)) for each in domains for part in PARTS]
    asked = list(dict.fromkeys(sizes))
    known: dict[Domain, Plan | None] = {}
    found: list[Trainer] = []
    for at, (domain, nodes) in enumerate(asked):
        if progress is not None:
            progress("planning the trainer", at / len(asked))
        alike = replace(domain, name="", nodes=nodes)
        alone = _alone(problem, replace(domain, nodes=nodes))
        if alike not in known:
            left = TRAINER_SHARE * effort.limit_s / len(asked)
            proposal = answer_of(Exact(), alone, Stop(left))
            effort.spend(proposal.work_s)
            known[alike] = proposal.plan
        plan = known[alike]
        if plan is not None:
            plan = _moved(plan, domain.name)
            found.append(Trainer(domain.name, nodes, plan, evaluate(alone, plan).step_time_s))
    if not found:
        names = ", ".join(each.name for each in domains)
        raise InfeasibleError(
            [
                f"No domain holds the trainer of {problem.model.name} alone ({names}).",
                "Nearest way out: a larger domain.",
            ]
        )
    return tuple(found)


def _alone(problem: Problem, domain: Domain) -> Problem:
    """The same with that domain alone."""
    return replace(problem, cluster=replace(problem.cluster, domains=(domain,), links=()), allow_local_sgd=False)


def _moved(plan: Plan, domain: str) -> Plan:
    """The same plan in a domain of another name."""
    pipelines = tuple(
        replace(
            pipeline,
            stages=tuple(
                replace(
                    stage, domain=domain, devices=tuple(f"{domain}/{each.split('/', 1)[1]}" for each in stage.devices)
                )
                for stage in pipeline.stages
            ),
        )
        for pipeline in plan.pipelines
    )
    return replace(plan, pipelines=pipelines)


# ---------------------------------------------------------------------------------------------------------- candidates
@dataclass(frozen=True, eq=False)
class _Choices:
    """Numbers of replicas beside one trainer: V candidates over the W domains that can be reached."""

    trainer: Trainer
    domains: tuple[str, ...]  # (W,)
    counts: NDArray[np.int64]  # (V, W), at least one replica each
    step: int

    @classmethod
    def of(cls, problem: Problem, rollouts: Rollouts, trainer: Trainer) -> _Choices:
        """Of every domain that the trainer reaches and that reaches it."""
        names, most = [], []
        for domain in problem.cluster.domains:
            home = domain.name == trainer.domain
            room = rollouts.most_replicas(problem, domain.name, taken_nodes=trainer.nodes if home else 0)
            reached = home or all(_ways(problem, trainer.domain, domain.name))
            if room and reached:
                names.append(domain.name)
                most.append(room)
        step = 1
        while prod(-(-each // step) + 1 for each in most) > MOST_VECTORS:
            step += 1
        numbers = [sorted({*range(0, each, step), each}) for each in most]
        rows = [each for each in product(*numbers) if any(each)]
        return cls(trainer, tuple(names), np.array(rows, dtype=np.int64).reshape(len(rows), len(names)), step)


def _ways(problem: Problem, one: str, two: str) -> tuple[Link | None, Link | None]:
    return problem.cluster.link(one, two), problem.cluster.link(two, one)


Push = tuple[str, int]
Key = tuple[int, int, int]  # choices, push, row of the counts
Keep = tuple[
    str, str, str, int
]  # words of what may be: trainer's domain, only domain of pools, kind, period; "" and 0: any


@dataclass(eq=False)
class _PlacementSearch:
    problem: Problem
    rollouts: Rollouts
    effort: Effort
    choices: tuple[_Choices, ...]

    def __post_init__(self) -> None:
        asked = self.rollouts.pushes
        able = [each for each in asked.every if each <= self.rollouts.staleness + 1]
        self.pushes: list[Push] = [(kind, every) for kind in asked.kinds for every in able]
        self.known: dict[Key, RolloutFound] = {}

    def best(self, keep: Keep = ("", "", "", 0), *, quick: bool = False) -> RolloutFound | None:
        """The best candidate; ``quick``: the quickest of those kept, without a look at its price."""
        least, price, keys = self._bounds(keep)
        if not len(keys):
            return None
        if self.problem.objective.name == "cost":
            return self._least(price, keys, lambda found: found.usd_per_step, np.argsort(price, kind="stable"))
        # Of equal bounds first those with more replicas, which are likelier to reach it.
        order = np.lexsort((-price, least))
        quickest = self._least(least, keys, lambda found: found.step_time_s, order)
        if quick or quickest is None:
            return quickest
        enough = quickest.step_time_s * (1 + NEAR)
        near = np.flatnonzero(least <= enough)
        order = near[np.argsort(price[near], kind="stable")]
        found = self._least(
            price, keys, lambda found: found.usd_per_step if found.step_time_s <= enough else inf, order
        )
        return found or quickest

    def _least(self, bound, keys, worth, order) -> RolloutFound | None:  # type: ignore[no-untyped-def]
        """The candidate of least worth: played by their bounds until no bound is below the least found."""
        best, least = None, inf
        for row in order.tolist():
            if bound[row] >= least or (best is not None and self.effort.over()):
                break
            found = self.found(tuple(keys[row].tolist()))
            if worth(found) < least:
                best, least = found, worth(found)
        return best

    def _bounds(self, keep: Keep) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Least seconds and least dollars of a step of every candidate kept, (C,) each, and their keys (C, 3)."""
        least, price, keys = [], [], []
        for at, choices in enumerate(self.choices):
            home, only, _, _ = keep
            if home and choices.trainer.domain != home:
                continue
            counts, places = choices.counts, np.arange(len(choices.counts))
            if only:
                inside = np.array([name == only for name in choices.domains])
                places = np.flatnonzero((counts[:, ~inside] == 0).all(axis=1))
            for number, (kind, every) in enumerate(self.pushes):
                if keep[2] not in ("", kind) or keep[3] not in (0, every) or not len(places):
                    continue
                seconds, dollars = self._of(choices, kind, every)
                least.append(seconds[places])
                price.append(dollars[places])
                keys.append(np.stack([np.full(len(places), at), np.full(len(places), number), places], axis=1))
        if not keys:
            return np.zeros(0), np.zeros(0), np.zeros((0, 3), dtype=np.int64)
        return np.concatenate(least), np.concatenate(price), np.concatenate(keys)

    def _of(self, choices: _Choices, kind: str, every: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """``simulate.rollouts.least_step_s`` of all rows at once, (V,), and the dollars of a step as short as that,
        without what samples cost on their way back."""
        rolls, gpu = self.rollouts, self.problem.cluster.gpu
        world = self._world(choices, np.ones(len(choices.domains), dtype=np.int64), kind, every)
        counts, used = choices.counts, choices.counts > 0
        rate = counts.sum(axis=1) * world.sequences / world.batch_s
        seconds = np.maximum(world.samples / rate, world.train_s)
        for ways in (
            [least_round_s(world, pool) for pool in world.pools],
            [pool.push_s / every for pool in world.pools],
        ):
            seconds = np.maximum(seconds, np.where(used, np.array(ways), inf).min(axis=1))
        rent = np.array([rent_usd_per_s(gpu, each) for each in (choices.trainer.plan.gpus, rolls.replica.gpus)])
        pushed = np.array([self._push_usd(choices.trainer.domain, name, kind, every) for name in choices.domains])
        dollars = seconds * (rent[0] + rent[1] * counts.sum(axis=1)) + used @ pushed
        return seconds, dollars

    def _push_bytes(self, kind: str, every: int) -> float:
        asked = self.rollouts.pushes
        return self.problem.model.parameters * asked.bits / 8 * asked.share(kind, every)

    def _push_usd(self, home: str, name: str, kind: str, every: int) -> float:
        """Dollars a step of what is pushed to a domain."""
        link = self.problem.cluster.link(home, name)
        return 0.0 if link is None else egress_usd(self._push_bytes(kind, every) / every, link.price_usd_per_gb)

    def _world(
        self, choices: _Choices, counts: Sequence[int] | NDArray[np.int64], kind: str, every: int
    ) -> RolloutWorld:
        rolls, trainer = self.rollouts, choices.trainer
        pools = tuple(
            self._pool(trainer, name, int(count), self._push_bytes(kind, every))
            for name, count in zip(choices.domains, counts, strict=True)
            if count
        )
        samples = self.problem.workload.global_batch
        return RolloutWorld(
            samples, trainer.step_time_s, rolls.staleness, every, rolls.replica.sequences, rolls.batch_s,
            rolls.replica.load_s, pools,
        )  # fmt: skip

    def _pool(self, trainer: Trainer, name: str, count: int, num_bytes: float) -> PoolTimes:
        """A pool's ways: the link each way, or the fabric of the trainer's own domain."""
        domain, rolls = self.problem.cluster.domain(name), self.rollouts
        back = rolls.replica.sequences * rolls.bytes_per_token * self.problem.workload.seq
        if name == trainer.domain:
            rate, delay = trainer.nodes * domain.inter_node_bytes_per_s, domain.inter_node_latency_s
            return PoolTimes(count, num_bytes / rate, delay, back / rate, delay)
        out, home = _ways(self.problem, trainer.domain, name)
        assert out is not None
        assert home is not None
        pushed = num_bytes / out.rate_bytes_per_s(trainer.nodes)
        nodes = max(1, min(domain.nodes, -(-count * rolls.replica.gpus // domain.gpus_per_node)))
        return PoolTimes(count, pushed, out.delay_s, back / home.rate_bytes_per_s(nodes), home.delay_s)

    def found(self, key: Key) -> RolloutFound:
        """A candidate, played once."""
        if key not in self.known:
            at, number, row = key
            choices, (kind, every) = self.choices[at], self.pushes[number]
            self.known[key] = self._played(choices, choices.counts[row].tolist(), kind, every)
        return self.known[key]

    def _played(self, choices: _Choices, counts: Sequence[int], kind: str, every: int) -> RolloutFound:
        rolls, problem, trainer = self.rollouts, self.problem, choices.trainer
        world = self._world(choices, counts, kind, every)
        times = play(world)
        self.effort.spend(BATCH_S * 140 * (-(-world.samples // world.sequences) + sum(counts) / every))
        pools = tuple(RolloutPool(name, count) for name, count in zip(choices.domains, counts, strict=True) if count)
        plan = RolloutPlan(trainer.plan, pools, kind, every)
        egress = 0.0
        for pool, samples in zip(pools, times.samples, strict=True):
            out, home = _ways(problem, trainer.domain, pool.domain)
            if out is None or home is None:
                continue
            sent = samples * rolls.bytes_per_token * problem.workload.seq
            egress += self._push_usd(trainer.domain, pool.domain, kind, every) + egress_usd(sent, home.price_usd_per_gb)
        gpus = trainer.plan.gpus + plan.replicas * rolls.replica.gpus
        rent = rent_usd_per_s(problem.cluster.gpu, gpus) * times.step_time_s
        push_s = tuple(pool.push_s + pool.push_delay_s for pool in world.pools)
        return RolloutFound(
            plan, times, trainer.step_time_s, trainer.nodes, self._push_bytes(kind, every), push_s, rent + egress,
            egress,
            _binds(world, times),
        )  # fmt: skip


def _binds(world: RolloutWorld, times: RolloutTimes) -> str:
    """What sets the pace: the trainer where it hardly waits; else the replicas where weights that come at once would
    hardly help; else the pushes."""
    if times.step_time_s <= 1.01 * world.train_s:
        return "training"
    at_once = replace(world, pools=tuple(replace(pool, push_s=0.0, push_delay_s=0.0) for pool in world.pools))
    return "generation" if play(at_once).step_time_s >= 0.98 * times.step_time_s else "pushes"


def _otherwise(problem: Problem, best: RolloutFound) -> Iterator[tuple[str, Keep]]:
    """What could have been otherwise, in words."""
    home = best.plan.home
    for domain in problem.cluster.domains:
        if domain.name != home:
            yield f"trainer in {domain.name}", (domain.name, "", "", 0)
        yield f"everything in {domain.name}", (domain.name, domain.name, "", 0)
    yield "whole pushes", ("", "", "whole", 0)
    yield "delta pushes", ("", "", "delta", 0)
    yield "a push every step", ("", "", "", 1)
