"""Judges of ``hippo plan --rollouts``: the world with SimPy, and every placement and period played.

The rules are those of ``simulate/rollouts.py``'s first page; nothing of its code is used here. Processes of SimPy are
the trainer, each replica and each message; links are resources that serve one message after the other.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import simpy

from hippo.simulate.rollouts import RolloutWorld


@dataclass
class _Board:
    """What everybody sees: which samples are still to be taken, and which weights have arrived where."""

    world: RolloutWorld
    env: simpy.Environment
    group: int = 1
    left: int = 0
    newest: list[int] = field(default_factory=list)
    news: list[simpy.Event] = field(default_factory=list)
    back: dict[int, int] = field(default_factory=dict)
    complete: dict[int, simpy.Event] = field(default_factory=dict)

    def completed(self, group: int) -> simpy.Event:
        return self.complete.setdefault(group, self.env.event())


def step_times(world: RolloutWorld, steps: int) -> list[float]:
    """When each of so many steps ends."""
    env = simpy.Environment()
    board = _Board(world, env, left=world.samples)
    outward = [simpy.Resource(env) for _ in world.pools]
    homeward = [simpy.Resource(env) for _ in world.pools]
    board.newest = [0] * len(world.pools)
    board.news = [env.event() for _ in world.pools]
    ended: list[float] = []

    def push(pool: int, version: int) -> Generator[Any, Any, None]:
        with outward[pool].request() as turn:
            yield turn
            yield env.timeout(world.pools[pool].push_s)
        yield env.timeout(world.pools[pool].push_delay_s)
        board.newest[pool] = version
        told, board.news[pool] = board.news[pool], env.event()
        told.succeed()

    def send(pool: int, group: int, taken: int) -> Generator[Any, Any, None]:
        with homeward[pool].request() as turn:
            yield turn
            yield env.timeout(world.pools[pool].back_s * taken / world.sequences)
        yield env.timeout(world.pools[pool].back_delay_s)
        board.back[group] = board.back.get(group, 0) + taken
        if board.back[group] == world.samples:
            board.completed(group).succeed()

    def replica(pool: int) -> Generator[Any, Any, None]:
        version = 0
        while True:
            if board.newest[pool] > version:
                version = board.newest[pool]
                yield env.timeout(world.load_s)
                continue
            if board.group - 1 - world.staleness > version:
                yield board.news[pool]
                continue
            group, taken = board.group, min(board.left, world.sequences)
            board.left -= taken
            if board.left == 0:
                board.group, board.left = group + 1, world.samples
            yield env.timeout(world.batch_s)
            env.process(send(pool, group, taken))

    def trainer() -> Generator[Any, Any, None]:
        for step in range(1, steps + 1):
            yield board.completed(step)
            yield env.timeout(world.train_s)
            ended.append(env.now)
            if step % world.every == 0:
                for pool in range(len(world.pools)):
                    env.process(push(pool, step))

    for pool, times in enumerate(world.pools):
        for _ in range(times.replicas):
            env.process(replica(pool))
    env.run(until=env.process(trainer()))
    return ended


def mean_step_s(world: RolloutWorld) -> float:
    """Seconds of a step in the long run."""
    settled = 20 * world.every + 4 * world.staleness
    ended = step_times(world, settled + 120 * world.every)
    return (ended[-1] - ended[settled - 1]) / (len(ended) - settled)


def vectors(most: list[int]) -> Iterator[tuple[int, ...]]:
    """Every number of replicas in each domain, but none in all."""
    return (each for each in product(*(range(one + 1) for one in most)) if any(each))
