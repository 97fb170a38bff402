"""A queue that is replayed, as the live site of an online loop; and the policy that the loop learns on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.jobs.engine import world as c
from hippo.jobs.env.env import CANDIDATE_FEATURES, MOST_CANDIDATES, F, Queue, QueueEnv, QueueObservation
from hippo.jobs.job import Job
from hippo.jobs.online.learner import JobHistory
from hippo.jobs.online.log import Ended, Left
from hippo.jobs.online.loop import LiveMoment, News
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload
from hippo.learn.weights import Form

Floats = NDArray[np.float64]
SCORES = Form("policy of an online loop", {"candidates": list(CANDIDATE_FEATURES)}, "give one that the loop wrote")


class Replayed:
    """``online.loop.LiveSite`` on a ``QueueEnv``: a workload is played once, moment by moment.

    ``begins_s``: where its clock stands in the loop's log; ``run``: what the names of its jobs begin with there.
    """

    def __init__(
        self,
        workload: JobWorkload,
        site: JobSite,
        settings: ReplayRules,
        *,
        candidates: int = MOST_CANDIDATES,
        force: bool = True,
    ) -> None:
        self.env = QueueEnv(Queue(lambda rng: workload, site, settings=settings, force=force), candidates=candidates)
        self.workload, self.begins_s, self.run = workload, 0.0, ""
        self._seen: QueueObservation | None = self.env.reset()
        self._reward, self._told_came, self._told = 0.0, 0, np.zeros(len(workload), np.bool_)

    def look(self) -> LiveMoment | None:
        """The next moment; None: every job has ended."""
        if self._seen is None:
            return None
        world = self.env.queue.world
        arrived = int(world.tally[c.ARRIVED])
        new, seen = self.rest(), self._seen
        had_s = self._attained_s(arrived)
        return LiveMoment(new.time_s, seen.flat(), seen.mask, new.reward, new.came, new.ended, had_s, new.left)

    def rest(self) -> News:
        """What has come about since the last moment that was answered; jobs that the site refuses have left."""
        world = self.env.queue.world
        arrived, now_s = int(world.tally[c.ARRIVED]), self.begins_s + self.env.queue.now_s
        came = tuple(self._job(job) for job in range(self._told_came, arrived))
        status = world.mark[:arrived, c.STATUS]
        done = np.flatnonzero((status == c.DONE) & ~self._told[:arrived])
        ended = tuple(
            Ended(
                self._name(job), self.begins_s + world.job[job, c.FINISH].item(), self.workload.duration_s[job].item()
            )
            for job in done.tolist()
        )
        refused = np.flatnonzero(status[self._told_came :] > c.DONE) + self._told_came
        left = tuple(Left(self._name(job), now_s) for job in refused.tolist())
        return News(now_s, self._reward, came, ended, left)

    def _name(self, job: int) -> str:
        return f"{self.run}{self.workload.name(job)}"

    def _job(self, job: int) -> Job:
        found = self.workload.job(job)
        deadline_s = None if found.deadline_s is None else found.deadline_s + self.begins_s
        arrival_s = found.arrival_s + self.begins_s
        return replace(found, name=self._name(job), arrival_s=arrival_s, deadline_s=deadline_s)

    def carry_out(self, action: int) -> None:
        """Start the candidate, or go on; what the moment told is not told again."""
        world = self.env.queue.world
        arrived = int(world.tally[c.ARRIVED])
        self._told_came, self._told[:arrived] = arrived, world.mark[:arrived, c.STATUS] == c.DONE
        came = self.env.step(action)
        self._reward, self._seen = came.reward, None if came.done else came.observation

    def _attained_s(self, arrived: int) -> dict[str, float]:
        """Work that jobs in the system have had."""
        world, now_s = self.env.queue.world, self.env.queue.now_s
        status = world.mark[:arrived, c.STATUS]
        there = np.flatnonzero((status == c.WAITING) | (status == c.RUNNING))
        row = world.job[there]
        since_s = np.maximum(row[:, c.READY], row[:, c.AS_OF])
        in_run = row[:, c.DONE_IN_RUN] + np.maximum(now_s - since_s, 0.0) * row[:, c.RATE]
        on = np.where(status[there] == c.RUNNING, in_run, 0.0)
        return dict(zip(map(self._name, there.tolist()), (row[:, c.WORKED] + on).tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Scores:
    """Chooses the candidate of the highest score, which is linear in its features; none only where nobody may start."""

    weights: Floats  # (F,)
    site: JobSite
    settings: ReplayRules
    candidates: int = MOST_CANDIDATES
    force: bool = True

    def probabilities(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> Floats:
        """(M + 1,) a softmax of the scores."""
        scores = observation[: self.candidates * F].reshape(self.candidates, F) @ self.weights
        logits = np.where(mask, np.append(scores, -50.0), -np.inf)
        chances = np.exp(logits - logits.max())
        return np.asarray(chances / chances.sum(), np.float64)

    def finishes(self, workload: JobWorkload) -> Floats:
        """(n,) when the jobs end; inf where the site refuses one."""
        queue = Queue(lambda rng: workload, self.site, settings=self.settings, force=self.force)
        env = QueueEnv(queue, candidates=self.candidates)
        seen, over = env.reset(), False
        while not over:
            answer = int(np.argmax(self.probabilities(seen.flat(), seen.mask)))
            seen, _, over = env.step(answer)
        done = queue.world.mark[:, c.STATUS] == c.DONE
        return np.where(done, queue.world.job[:, c.FINISH], np.inf)


_SEARCHED = np.isin(CANDIDATE_FEATURES, ("attained", "waited", "devices", "estimate", "user_duration", "size_duration"))


@dataclass(frozen=True, eq=False)
class ScoreLearner:
    """Improves the scores by search: draws around them, each replayed on recent history, the best elite averaged (the
    cross-entropy method of Rubinstein 1999). Small on purpose; ``hippo.jobs.train`` holds the policies that ship."""

    site: JobSite
    settings: ReplayRules
    candidates: int = MOST_CANDIDATES
    force: bool = True  # whether jobs are stopped for others
    draws: int = 8
    elite: int = 2
    rounds: int = 2
    spread: float = 8.0
    jobs: int = 400
    seed: int = 0

    def first(self) -> Floats:
        """Scores that follow Tiresias' two queues: first queue first, then who has waited longest."""
        weights = np.zeros(F)
        weights[CANDIDATE_FEATURES.index("level")] = -10.0
        weights[CANDIDATE_FEATURES.index("waited")] = 3.0
        return weights

    def policy(self, weights: Floats) -> Scores:
        """Of these scores."""
        return Scores(weights, self.site, self.settings, self.candidates, self.force)

    def update(self, weights: Floats, history: JobHistory) -> Floats:
        """Searched on the last ``jobs`` of the history."""
        rows = np.arange(max(0, len(history.workload) - self.jobs), len(history.workload))
        recent = history.workload.take(rows).part(0.0, 1.0)
        rng, centre, spread = np.random.default_rng([self.seed, len(history.workload)]), weights, self.spread
        for _ in range(self.rounds):
            tried = [centre, *(centre + spread * rng.normal(size=F) * _SEARCHED for _ in range(self.draws))]
            took = [float(np.mean(self.policy(each).finishes(recent) - recent.arrival_s)) for each in tried]
            centre = np.mean([tried[place] for place in np.argsort(took, kind="stable")[: self.elite]], axis=0)
            spread /= 2
        return centre

    def packed(self, weights: Floats) -> bytes:
        """The bytes of a file."""
        return SCORES.packed({"scores": weights})

    def unpacked(self, content: bytes, source: str) -> Floats:
        """Raises ``InputError`` when it is something else, or was made for other features."""
        weights: Floats = SCORES.unpacked(content, source)[0].get("scores", np.zeros(0)).astype(np.float64)
        if weights.shape != (F,) or not np.isfinite(weights).all():
            raise InputError(f"has scores of shape {weights.shape}, not {F}", source=source, remedy=SCORES.remedy)
        return weights
