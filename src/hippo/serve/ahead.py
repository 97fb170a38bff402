"""How long a job would wait: the queue as it stands with the job in it, played ahead, again and again, each time with
work that is left drawn anew around what was told, as nobody knows how long jobs really take.

Training that was never submitted here is planned for the question alone: what the queue decides by stays as it is.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from hippo.errors import HippoError, InputError
from hippo.jobs.engine import world as c
from hippo.jobs.job import Job, TrainingKind
from hippo.jobs.joint.live import LiveWorld
from hippo.jobs.joint.rules import SRPT
from hippo.jobs.placement.offers import OfferTable
from hippo.serve.loop import ServeLoop

DRAWS = 40
SPREAD = 0.5
"""Of the logarithm of work over what was told."""
LONGEST_S = 30 * 86400.0
INSIDE = (5.0, 95.0)
"""Percentiles between which nine of ten draws lie."""


PATIENCE_S = 5.0
"""A question waits so long for a plan, and is then to be asked again."""
MOST_KINDS, MOST_PLANNED, MOST_ASKED = 32, 4, 16
"""Kinds of training that are known for questions alone; of these, under way at once; questions that wait."""


class TooManyError(InputError):
    """Others are being answered: ask again."""


class WhatIfs:
    """Answers questions one after another, beside the loop and other requests; what training can run under that nobody
    submitted is planned for them, one kind after another, and kept."""

    def __init__(self, loop: ServeLoop) -> None:
        self.loop = loop
        self._planner, self._player = (ThreadPoolExecutor(1, thread_name_prefix=each) for each in ("kinds", "what-ifs"))
        self._found: dict[TrainingKind, Future[OfferTable]] = {}  # asked for last, last
        self._asked = 0

    async def wait(self, job: Job) -> dict[str, Any] | None:
        """What ``expected_wait`` says; None: what such a job can run under is being found out still.

        Raises
        ------
        InputError
            It can run under nothing, or could never run here.
        TooManyError
            Too many others ask, or are being planned.
        """
        if self._asked >= MOST_ASKED:
            raise TooManyError("too many questions wait", source="whatif", remedy="ask again later")
        self._asked += 1
        try:
            table, kind = None, TrainingKind(job.model, job.batch, job.seq)
            if job.least > 0 and self.loop.site.lacks(kind) and (table := await self._planned(kind)) is None:
                return None
            return await asyncio.wrap_future(self._player.submit(expected_wait, self.loop, job, table))
        finally:
            self._asked -= 1

    async def _planned(self, kind: TrainingKind) -> OfferTable | None:
        found = self._found.pop(kind, None) or self._begun(kind)
        self._found[kind] = found
        waits = asyncio.wrap_future(found)
        waits.add_done_callback(lambda each: each.cancelled() or each.exception())  # who asked may have gone
        if not (await asyncio.wait([waits], timeout=PATIENCE_S))[0]:
            return None
        try:
            return found.result()
        except Exception as error:
            self._found.pop(kind, None)  # it is tried anew when it is asked for again
            if isinstance(error, HippoError) and not isinstance(error, InputError):
                raise TooManyError("its planning was cut off", source="whatif", remedy="ask again later") from error
            raise

    def _begun(self, kind: TrainingKind) -> Future[OfferTable]:
        if sum(not each.done() for each in self._found.values()) >= MOST_PLANNED:
            told, remedy = "too many kinds of training are being planned for questions", "ask again later"
            raise TooManyError(told, source="job", key="model", value=kind.model, remedy=remedy)
        known = [each for each, future in self._found.items() if future.done()]
        for each in known[: len(self._found) - MOST_KINDS + 1] if len(self._found) >= MOST_KINDS else ():
            del self._found[each]
        return self._planner.submit(self.loop.site.planned, kind)

    def close(self) -> None:
        """Answer no more."""
        for each in (self._planner, self._player):
            each.shutdown(wait=False, cancel_futures=True)


def expected_wait(loop: ServeLoop, job: Job, table: OfferTable | None = None, *, seed: int = 0) -> dict[str, Any]:
    """Seconds until a job that came now would begin: the median and where nine of ten draws lie.

    ``table``: of the job's own kind, where the queue does not know it. Raises ``InputError``: it can never run here.
    """
    with loop.lock:
        live, site = loop.site.live, loop.site
        now_s = max(live.now_s if live.moment is not None else 0.0, loop.now_s() - site.epoch_s)
        packed = live.packed() if live.moment is not None else None
        jobs, known = list(live.jobs), site.offers
    knows = table is None or table.kinds[0] in known.kinds
    offers = known if knows or table is None else OfferTable.joined([*([known] if len(known.kinds) else []), table])
    (timed,) = site.timed([replace(job, arrival_s=now_s)], offers)
    if why := site.why_never(timed, offers):
        raise InputError(why, source="job", remedy="ask for less")
    draws = (np.random.default_rng([seed, draw]) for draw in range(DRAWS))
    found = [_wait_s(loop, timed, packed, jobs, (known, offers), each) for each in draws]
    low, mid, high = (float(np.percentile(found, each)) for each in (INSIDE[0], 50.0, INSIDE[1]))
    return {
        "expected_wait_s": mid,
        "interval_s": [low, high],
        "interval_covers": 0.9,
        "draws": DRAWS,
        "ahead": "the rule srpt, work drawn around what was told, nobody else coming",
    }


def _wait_s(
    loop: ServeLoop,
    job: Job,
    packed: bytes | None,
    jobs: list[Job],
    offers: tuple[OfferTable, OfferTable],
    rng: np.random.Generator,
) -> float:
    """In one draw; ``offers``: those that the packed queue goes by, and those with the job's own."""
    site = loop.site
    trial = LiveWorld(site.live.site, SRPT, offers[0], site.rules, site.live.slowdown)
    if packed is not None:
        trial.restore(packed, jobs)
        assert trial.moment is not None
        left = trial.moment.world.job[:, c.LEFT]
        left *= np.exp(SPREAD * rng.standard_normal(len(left)))
        for each in trial.moment.running.tolist():
            work = trial.moment.world.job[each]
            share = float(work[c.LEFT] / work[c.DURATION])
            trial.progress(trial.moment.workload.name(each), share, job.arrival_s)
    trial.offers = offers[1]
    trial.submit([job])
    site.heed(job.arrival_s + site.epoch_s, stops=False, trial=trial)
    for moment in trial.until(job.arrival_s + LONGEST_S):
        row = next((at for at, each in enumerate(trial.jobs) if each.name == job.name), None)
        if row is not None and np.isfinite(moment.world.job[row, c.FIRST]):
            return float(moment.world.job[row, c.FIRST]) - job.arrival_s
    return LONGEST_S
