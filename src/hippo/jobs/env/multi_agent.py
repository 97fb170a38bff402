"""The queue as agents that pull jobs: one agent per pool of devices, on RLlib's ``MultiAgentEnv``.

An agent is asked whenever a job that waits could start on devices of its own: free ones, or ones held by jobs that rank
behind it in Tiresias' two queues. It takes one of at most M such jobs, or none. Agents who are asked at the same moment
answer together; if two want the same job, the first pool gets it and the other is asked again. Who answers "none" is
not asked again before the next instant. Agents with nothing to choose are absent. A job that is larger than every pool
belongs to no agent: it starts by itself, in order of arrival, where several domains have room.

All work for one reward: minus the job-seconds spent in the system, scaled so that an episode in which nobody waits
pays -1. An agent is told what has been paid since its last answer when it is asked next, and what is left at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.jobs.engine import world as c
from hippo.jobs.engine.play import ledger
from hippo.jobs.env import moment
from hippo.jobs.env.env import LARGEST, MOST_CANDIDATES, C, F, Queue
from hippo.jobs.ledger import Ledger
from hippo.jobs.workload import JobWorkload
from hippo.learn.turns import ALLOWED, OBSERVED, Seen, rllib_env


class Pullers:
    """The queue in turns (``learn.turns.Turns``).

    ``queue``: what it plays on; ``candidates``: M; ``seed``: of the workloads until ``begin`` is given one.
    """

    def __init__(self, queue: Queue, *, candidates: int = MOST_CANDIDATES, seed: int = 0) -> None:
        if candidates < 2:
            remedy = "write 2 or more"
            raise InputError("too few", source="environment", key="candidates", value=candidates, remedy=remedy)
        self.queue, self.size, pools = queue, candidates, queue.site.pools
        self.names = tuple(f"{index}_{pool.domain}_{pool.kind}" for index, pool in enumerate(pools))
        seen = spaces.Box(-LARGEST, LARGEST, (self.size * F + C,), np.float32)
        space = spaces.Dict({OBSERVED: seen, ALLOWED: spaces.Box(0.0, 1.0, (self.size + 1,), np.float32)})
        self.observation_spaces = dict.fromkeys(self.names, space)
        self.action_spaces = {name: spaces.Discrete(self.size + 1) for name in self.names}
        self.rng = np.random.default_rng(seed)
        self._who = moment.asked(range(len(pools)), candidates)

    def reset(self, seed: int | None = None, workload: JobWorkload | None = None) -> Seen:
        """The first moment of a workload (None: one that is drawn)."""
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.queue.open(self.queue.draw(self.rng) if workload is None else workload)
        self._owed = np.zeros(len(self.names))
        self._who.counts[:], self._who.within[:] = 0, False
        return self._turn(np.full(len(self.names), -1, np.int64))

    def step(self, answers: Mapping[str, int]) -> tuple[Seen, dict[str, float], bool]:
        """Answers of those who were asked; what is seen next, rewards, whether the episode is over.

        A masked answer counts as the first that is allowed, because RLlib's check of environments answers at random.
        """
        jobs = np.full(len(self.names), -1, np.int64)
        for pool in np.flatnonzero(self._who.counts):
            answer = int(answers[self.names[pool]])
            if answer >= self._who.counts[pool] and (answer != self.size or not self.queue.may_wait):
                answer = 0
            jobs[pool] = -1 if answer == self.size else self._who.found[pool, answer]
        seen = self._turn(jobs)
        over = bool(self.queue.at[moment.OVER])
        told = self.names if over else tuple(seen)
        rewards = {name: float(self._owed[self.names.index(name)]) for name in told}
        self._owed[[self.names.index(name) for name in told]] = 0.0
        return seen, rewards, over

    def ledger(self) -> Ledger:
        """The account of an episode that is over."""
        return ledger(self.queue.opening, "agents")

    def _turn(self, jobs: NDArray[np.int64]) -> Seen:
        self._owed += self.queue.turn(self._who, jobs)
        return {self.names[pool]: self._as_seen(int(pool)) for pool in np.flatnonzero(self._who.counts)}

    def _as_seen(self, pool: int) -> dict[str, NDArray[np.float32]]:
        found = self.queue.seen(self._who, pool)
        found.mask[self.size] = self.queue.may_wait
        return {OBSERVED: found.flat(), ALLOWED: found.mask.astype(np.float32)}

    @property
    def figures(self) -> dict[str, float]:
        """Of an episode that is over."""
        return {"mean_completion_s": self.mean_completion_s}

    @property
    def mean_completion_s(self) -> float:
        """Of the jobs of an episode that is over."""
        done = self.queue.world.mark[:, c.STATUS] == c.DONE
        return float((self.queue.world.job[done, c.FINISH] - self.queue.workload.arrival_s[done]).mean())


def multi_agent_env(queue: Queue, **choices: Any) -> Any:
    """A ``ray.rllib.env.MultiAgentEnv``; ``choices`` as ``Pullers`` takes them.

    Raises
    ------
    InputError
        RLlib is not installed.
    """
    return rllib_env(Pullers(queue, **choices), flat=False)
