"""A trainer and pools of replicas, played: when each step ends, and how old the weights are that its samples come from.

The rules, which ``tests/judges/rollouts.py`` plays once more with SimPy:

* Samples are numbered; step j takes those of group j. A replica that is free takes as many of the lowest group that has
  some left as it holds sequences, and generates them in ``batch_s``. It may do so where its weights are at most
  ``staleness`` steps behind those that will train them: version v for groups up to ``v + 1 + staleness`` (AReaL, arXiv
  2505.24298, section 5.1); else it waits for newer ones.
* Version j is there when step j ends. Every ``every`` versions one is pushed to each pool, over a link that carries one
  push after the other. A replica takes the newest that has arrived between two batches, and stands still for
  ``load_s``.
* Samples go back over the link of their pool, one batch after the other. A step begins when its samples are there and
  the step before has ended.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from heapq import heappop, heappush

ARRIVES, RETURNS, FREE = range(3)
"""Of events at one instant weights come first, then samples, and then replicas look for work."""

LEAST_STEPS = 120
MOST_BATCHES = 60_000


@dataclass(frozen=True)
class PoolTimes:
    """Replicas of one domain, and their ways from and to the trainer."""

    replicas: int
    push_s: float  # that a push takes its link
    push_delay_s: float  # until it has arrived, beyond that
    back_s: float  # that a full batch takes its link back
    back_delay_s: float


@dataclass(frozen=True)
class RolloutWorld:
    """Everything that is played."""

    samples: int  # of a step
    train_s: float  # of a step
    staleness: int
    every: int
    sequences: int  # of a replica at a time
    batch_s: float
    load_s: float
    pools: tuple[PoolTimes, ...]


@dataclass(frozen=True)
class RolloutTimes:
    """What came of it, in the long run."""

    step_time_s: float
    staleness_mean: float  # steps between the weights of a sample and those that it trains
    staleness_most: int
    samples: tuple[float, ...]  # of each pool in a step


def play(world: RolloutWorld) -> RolloutTimes:
    """Plays until the start no longer shows, and measures over a whole number of pushes."""
    every, batches = world.every, -(-world.samples // world.sequences)
    settled = -(-(2 * (world.staleness + 1) + 2 * every) // every) * every
    window = max(LEAST_STEPS, 12 * every)
    window = max(every, min(window, MOST_BATCHES // batches)) // every * every
    return _Play(world).until(settled, settled + window)


class _Play:
    """The state of one play. W pools."""

    def __init__(self, world: RolloutWorld) -> None:
        self.world = world
        self.events: list[tuple[float, int, int, int, int]] = []  # time, kind, number, pool or group, what
        self.numbered = 0
        pools = world.pools
        self.arrived = [0] * len(pools)  # newest version in the pool, (W,)
        self.push_free = [0.0] * len(pools)
        self.back_free = [0.0] * len(pools)
        self.waiting: list[list[int]] = [[] for _ in pools]  # replicas without work, by their version
        self.group, self.left = 1, world.samples
        self.here: dict[int, int] = defaultdict(int)  # samples of a group that have come back
        self.oldest: dict[int, int] = {}
        self.made: dict[int, list[float]] = defaultdict(lambda: [0.0] * len(pools))  # of a group by each pool
        self.lag: dict[int, float] = defaultdict(float)
        self.ended = [0.0]  # when each step ended
        self.full: dict[int, float] = {}  # when a group's last sample came back

    def until(self, settled: int, last: int) -> RolloutTimes:
        """Figures over steps ``settled`` to ``last``."""
        for pool, times in enumerate(self.world.pools):
            for _ in range(times.replicas):
                self._event(0.0, FREE, pool, 0)
        while len(self.ended) <= last:
            time, kind, _, where, what = heappop(self.events)
            if kind == ARRIVES:
                self.arrived[where] = max(self.arrived[where], what)
                woken, self.waiting[where] = self.waiting[where], []
                for version in woken:
                    self._event(time, FREE, where, version)
            elif kind == RETURNS:
                self._back(time, where, what)
            else:
                self._look(time, where, what)
        steps = range(settled + 1, last + 1)
        count = len(steps) * self.world.samples
        measured = (self.ended[last] - self.ended[settled]) / len(steps)
        return RolloutTimes(
            step_time_s=max(measured, least_step_s(self.world)),  # a window may end a batch early
            staleness_mean=sum(self.lag[step] for step in steps) / count,
            staleness_most=max(step - 1 - self.oldest[step] for step in steps),
            samples=tuple(
                sum(self.made[step][pool] for step in steps) / len(steps) for pool in range(len(self.arrived))
            ),
        )

    def _event(self, time: float, kind: int, where: int, what: int) -> None:
        self.numbered += 1
        heappush(self.events, (time, kind, self.numbered, where, what))

    def _look(self, time: float, pool: int, version: int) -> None:
        """A replica of a pool, with weights of a version, looks for work."""
        world, newest = self.world, self.arrived[pool]
        if newest > version:
            self._event(time + world.load_s, FREE, pool, newest)
            return
        if not self._may(version):
            self.waiting[pool].append(version)
            return
        group, taken = self.group, min(world.sequences, self.left)
        self.left -= taken
        if not self.left:
            self.group, self.left = group + 1, world.samples
        self.oldest[group] = min(self.oldest.get(group, version), version)
        self.made[group][pool] += taken
        self.lag[group] += taken * (group - 1 - version)
        done, times = time + world.batch_s, world.pools[pool]
        leaves = max(done, self.back_free[pool]) + times.back_s * taken / world.sequences
        self.back_free[pool] = leaves
        self._event(leaves + times.back_delay_s, RETURNS, group, taken)
        self._event(done, FREE, pool, version)

    def _may(self, version: int) -> bool:
        return self.group <= version + 1 + self.world.staleness

    def _back(self, time: float, group: int, taken: int) -> None:
        """Samples are back; steps whose samples are all there are made, one after the other."""
        self.here[group] += taken
        if self.here[group] < self.world.samples:
            return
        self.full[group] = time
        while (step := len(self.ended)) in self.full:
            self.ended.append(max(self.full[step], self.ended[-1]) + self.world.train_s)
            if step % self.world.every == 0:
                for pool, times in enumerate(self.world.pools):
                    self.push_free[pool] = max(self.ended[-1], self.push_free[pool]) + times.push_s
                    self._event(self.push_free[pool] + times.push_delay_s, ARRIVES, pool, step)


def least_step_s(world: RolloutWorld) -> float:
    """Seconds below which no step can be, however the pools take turns: of the trainer, of the samples that all
    replicas generate, of the quickest way round and of the quickest link."""
    rate = sum(pool.replicas for pool in world.pools) * world.sequences / world.batch_s
    ways = [(least_round_s(world, pool), pool.push_s / world.every) for pool in world.pools]
    around, link = (min(each) for each in zip(*ways, strict=True))
    return float(max(world.train_s, world.samples / rate, around, link))


def least_round_s(world: RolloutWorld, pool: PoolTimes) -> float:
    """Least seconds of a step if all weights came by way of this pool.

    Version v enables groups up to ``v + 1 + staleness``, the next push those after. So from the end of a pushed version
    to that of the first step that needs it lie a push, its load, a batch (the smallest that there is), its way back and
    a step; and as many steps in between as the next push is later.
    """
    size = (world.samples % world.sequences or world.sequences) / world.sequences
    around = pool.push_s + pool.push_delay_s + world.load_s + world.batch_s + pool.back_s * size + pool.back_delay_s
    ahead = world.staleness + 2 - world.every  # steps from a pushed version to the first that needs it
    pushes = -(-ahead // world.every)
    return (around + world.train_s) / (pushes * world.every)
