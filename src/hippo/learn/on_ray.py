"""A learner whose shares of the worlds are played by workers of a Ray cluster.

Workers make roll-outs and gradients, and average gradients among themselves over gloo, as DD-PPO does (Wijmans et al.
2020); this process keeps what they come to after every update, looks at other worlds and writes checkpoints. Whoever is
slow is cut off (``distributed.CutRollOuts``). Where a worker is lost all are made anew from the end of the update
before, and the update is done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hippo.learn.distributed import CutRollOuts, Place, Ring, WholeRollOuts
from hippo.learn.session import Learned, Learner, WorkersLostError

Make = Callable[[Place], Learner]
LOST_MOST = 3
"""Times that workers may be lost over one update."""
PATIENCE_S = 120.0
"""Until lost workers are replaced; a cluster that has lost a node may have no room for them."""


@dataclass(frozen=True, eq=False)
class LearnerState:
    """All that the next update depends on."""

    policy: dict[str, Any]
    optimizer: dict[str, Any]
    multipliers: Sequence[float]
    shares: list[Any]  # of all workers, in their order


@dataclass(frozen=True, eq=False)
class WorkerTurn:
    """What a worker has to tell after an update."""

    learned: Learned
    shares: list[Any]
    held: LearnerState | None  # of the first worker, without shares


class RayWorker:
    """One process of the cluster: a learner with its shares of the worlds."""

    def __init__(self) -> None:
        torch.set_num_threads(1)

    def address(self) -> tuple[str, int]:
        """Where the others find this one."""
        import socket

        import ray

        with socket.socket() as free:
            free.bind(("", 0))
            return ray.util.get_node_ip_address(), int(free.getsockname()[1])

    def join(
        self, make: Make, rank: int, size: int, address: tuple[str, int], cut_off: float, held: LearnerState
    ) -> int:
        """Meet the others, and begin where the run is; process id."""
        import os

        place = Place()
        if size > 1:
            patience = timedelta(seconds=PATIENCE_S)
            store = dist.TCPStore(*address, size, is_master=rank == 0, timeout=patience)  # type: ignore[attr-defined]
            dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
            cut = CutRollOuts(store, size, cut_off) if cut_off > 0 else WholeRollOuts()
            place = Place(rank, size, Ring(rank, size), cut)
        self.learner = make(place)
        self.learner.policy.load_state_dict(held.policy)
        if held.shares:
            self.learner.optimizer.load_state_dict(held.optimizer)
            mine = [held.shares[each] for each in place.own(len(held.shares))]
            self.learner.restore(held.multipliers, mine)
        return os.getpid()

    def learn(self, done: float) -> WorkerTurn:
        """An update."""
        told = self.learner.learn(done)
        multipliers, shares = self.learner.state()
        held = None
        if self.learner.place.first:
            policy, optimizer = self.learner.policy.state_dict(), self.learner.optimizer.state_dict()
            held = LearnerState(policy, optimizer, multipliers, [])
        return WorkerTurn(told, shares, held)

    def alive(self) -> bool:
        """Whether this process answers."""
        return True


class RayLearner:
    """What ``session.Session`` drives: ``workers`` actors of the cluster, each with the learner that ``make`` makes.

    ``policy``: as the run begins; later as it stands. ``cut_off``: share of the workers that are done
    with their roll-outs when the others are cut off; 0: nobody is.
    """

    place = Place()

    def __init__(
        self,
        ray: Any,
        make: Make,
        *,
        workers: int,
        policy: nn.Module,
        cut_off: float = 0.0,
        say: Callable[[str], None] = lambda words: None,
    ) -> None:
        self.ray, self.make, self.workers, self.cut_off, self.say = ray, make, workers, cut_off, say
        self.policy = policy
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(policy.parameters())  # holds what the workers' say
        self.multipliers: Sequence[float] = []
        self.shares: list[Any] = []  # as the last update left them; none: as they are made
        self.crew: list[Any] = []
        self.processes: list[int] = []  # of the crew

    def learn(self, done: float) -> Learned:
        """One update of all workers; if one is lost, once more from where it began."""
        began = time.process_time()
        for _ in range(LOST_MOST):
            if not self.crew:
                self._hire()
            came = self._asked([worker.learn.remote(done) for worker in self.crew])
            if came is not None:
                return self._kept(came, time.process_time() - began)
            self.say("a worker was lost: all begin again from the end of the update before")
            self.leave()
        problem = f"workers were lost {LOST_MOST} times over one update"
        raise WorkersLostError(problem, source="--ray", remedy="look at the cluster's nodes, then go on with --resume")

    def state(self) -> tuple[Sequence[float], list[Any]]:
        """For a checkpoint."""
        return self.multipliers, self.shares

    def restore(self, multipliers: Sequence[float], shares: Sequence[Any]) -> None:
        """From a checkpoint."""
        self.multipliers, self.shares = multipliers, list(shares)

    def leave(self) -> None:
        """End all workers."""
        for worker in self.crew:
            self.ray.kill(worker)
        self.crew, self.processes = [], []

    def _hire(self) -> None:
        """Workers, told where the run is."""
        actor = self.ray.remote(num_cpus=1, max_concurrency=2)(RayWorker)
        self.crew = [actor.remote() for _ in range(self.workers)]
        first = self.crew[0].address.remote()
        here = [first, *(each.alive.remote() for each in self.crew[1:])]
        if self.ray.wait(here, num_returns=self.workers, timeout=PATIENCE_S)[1]:
            self.leave()
            problem = f"the Ray cluster has no room for {self.workers} workers any more"
            remedy = "mend it, or go on with --resume and fewer --workers"
            raise WorkersLostError(problem, source="--ray", remedy=remedy)
        address = self.ray.get(first)
        held = LearnerState(self.policy.state_dict(), self.optimizer.state_dict(), self.multipliers, self.shares)
        told = self.ray.put(held)
        joined = [
            each.join.remote(self.make, rank, self.workers, address, self.cut_off, told)
            for rank, each in enumerate(self.crew)
        ]
        self.processes = self._asked(joined) or []

    def _asked(self, waiting: list[Any]) -> list[Any] | None:
        """What all workers say; None: one of them is lost."""
        left = list(waiting)
        while left:
            (done, *_), left = self.ray.wait(left, num_returns=1)
            try:
                self.ray.get(done)
            except self.ray.exceptions.RayTaskError as error:  # its own fault, or of a peer that it lost
                if self._complete():
                    raise error.as_instanceof_cause() from None
                return None
            except self.ray.exceptions.RayError:
                return None
        return list(self.ray.get(waiting))

    def _complete(self) -> bool:
        """Whether every worker answers."""
        try:
            self.ray.get([each.alive.remote() for each in self.crew], timeout=PATIENCE_S)
        except self.ray.exceptions.RayError:
            return False
        return True

    def _kept(self, came: list[WorkerTurn], own_s: float) -> Learned:
        first = came[0]
        assert first.held is not None
        self.policy.load_state_dict(first.held.policy)
        self.optimizer.load_state_dict(first.held.optimizer)
        self.multipliers, self.shares = first.held.multipliers, [share for each in came for share in each.shares]
        cpu_s = own_s + sum(each.learned.cpu_s for each in came)
        return Learned(first.learned.figures, first.learned.count, cpu_s)
