"""Versions of a run: its plans one after another, and which process takes which rank of each. No torch.

A process is a device of a domain for as long as plans use it: where a plan follows another, whoever sits on a device
that both use goes on, with the layers that both give it; others start or leave. A domain through which messages are
relayed and that has no stage has a *porter*, a process that does nothing but hand them on.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from hippo.files import json_text, write_whole
from hippo.run.job import RunJob
from hippo.run.work import Worker

MEMBERS = "members.json"


@dataclass(frozen=True)
class Version:
    """One plan of a run, as processes."""

    number: int  # 0: the plan that the run begins with
    job: RunJob
    members: tuple[int, ...]  # the process of each rank
    era: int = 0
    """Steps and versions that were given up before it: messages of theirs may be under way, so groups are made anew."""
    porters: Mapping[str, int] = field(default_factory=dict)
    """The process of each domain that only hands messages on."""

    @classmethod
    def first(cls, job: RunJob) -> Version:
        """Processes are numbered as the ranks of the first plan."""
        count = len(job.work.workers)
        return cls(0, job, tuple(range(count)), porters=_porters(job, {}, fresh=count))

    def following(self, job: RunJob, *, fresh: int) -> Version:
        """The next one; ``fresh``: a number above those of all processes so far."""
        there = {} if job.options.runtime == "torch" else {_seat(self.worker(each)): each for each in self.members}
        members = []
        for worker in job.work.workers:
            process = there.get(_seat(worker))
            if process is None:
                process, fresh = fresh, fresh + 1
            members.append(process)
        porters = _porters(job, self.porters, fresh=fresh)
        return Version(self.number + 1, job, tuple(members), self.era, porters)

    @property
    def everybody(self) -> tuple[int, ...]:
        """All processes: those that have a rank, and porters."""
        return (*self.members, *self.porters.values())

    @property
    def domains(self) -> Mapping[int, str]:
        """Of all processes."""
        own = zip(self.members, self.job.work.workers, strict=True)
        return {process: worker.domain for process, worker in own} | {one: at for at, one in self.porters.items()}

    def product_bytes(self, source: int, destination: int) -> float:
        """What the link from one process to another carries in a round trip; 0 inside a domain."""
        cluster, ends = self.job.problem.cluster, (self.domains[source], self.domains[destination])
        out, back = cluster.link(*ends), cluster.link(*reversed(ends))
        return 0.0 if out is None or back is None else out.rate_bytes_per_s(1) * (out.latency_s + back.latency_s)

    def without(self, lost: Collection[int]) -> Version:
        """As it is, with no porter that was lost."""
        left = {domain: process for domain, process in self.porters.items() if process not in lost}
        return replace(self, porters=left)

    def through(self, source: int, destination: int) -> int | None:
        """The process that hands on what a rank sends another through a third domain, whose ranks share the pairs;
        None: it goes directly."""
        work = self.job.work
        via = work.relays.get((work.workers[source].domain, work.workers[destination].domain))
        if via is None:
            return None
        ranks = [each.rank for each in work.workers if each.domain == via]
        return self.members[ranks[(source + destination) % len(ranks)]] if ranks else self.porters[via]

    def rank(self, process: int) -> int | None:
        """The rank that a process takes; None: it has none here."""
        return self.members.index(process) if process in self.members else None

    def worker(self, process: int) -> Worker:
        """The worker that a process is."""
        return self.job.work.workers[self.members.index(process)]

    def kept(self, new: Version) -> Mapping[int, int]:
        """Of ranks of a version that follows, those whose process is here: the rank that it takes here."""
        held = {process: rank for rank, process in enumerate(self.members)}
        return {rank: held[process] for rank, process in enumerate(new.members) if process in held}

    def write(self, folder: Path) -> None:
        """Leaves it where processes find it."""
        own = place(folder, self.number)
        own.mkdir(exist_ok=True)
        self.job.write(own)
        told = {"members": list(self.members), "era": self.era, "porters": dict(self.porters)}
        write_whole(own / MEMBERS, json_text(told))

    @classmethod
    def read(cls, folder: Path, number: int) -> Version:
        """The way back."""
        own = place(folder, number)
        told = json.loads((own / MEMBERS).read_text())
        return cls(number, RunJob.read(own), tuple(told["members"]), told["era"], told["porters"])


def place(folder: Path, number: int) -> Path:
    """Where a version lies in the folder of a run."""
    return folder / f"version-{number}"


def _porters(job: RunJob, there: Mapping[str, int], *, fresh: int) -> Mapping[str, int]:
    """Of a job, those that are there going on."""
    missing = dict.fromkeys(each.via for each in job.plan.relays if each.via not in job.plan.domains)
    numbers = count(fresh)
    return {domain: there[domain] if domain in there else next(numbers) for domain in missing}


def _seat(worker: Worker) -> tuple[str, str]:
    return worker.domain, worker.device
