"""What happened in a world, written down moment by moment for whoever wants to look at it: runs and what they held,
waits and why, links and what went over them, how much of what was free the workload's jobs could use.

Letters: n jobs, K domains, r runs, v waits, m moments, O offers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.engine import world as c
from hippo.jobs.figures import counted
from hippo.jobs.joint.moment import Moment

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DONE, PAUSED, EVICTED, FAILED = "done", "paused", "evicted", "failed"
"""How a run ends: by its work, the scheduler, other tenants, a broken node."""

TOO_FEW, SCATTERED, LEFT = "too few devices are free", "enough are free, but not together", "could begin, but is left"
"""Why a job waits."""


class Run(NamedTuple):
    """A stretch of time in which a job holds the same devices."""

    job: int
    offer: int  # -1: a gang
    begin_s: float
    computes_s: float  # when it is restarted, and data and state that it waits for are there; nan: it never was
    end_s: float
    ended: str  # DONE, ..
    for_job: int  # of one that is paused: who took most of its devices in that moment, itself if it moved; -1: nobody
    gpus: tuple[tuple[int, int], ...]  # domain, devices; the largest part first
    nodes: tuple[tuple[int, int], ...]  # node (counted through all pools), devices
    state_from: int  # domain from which its state came, -1: it had none, or was there
    state_gb: float  # that was sent; a job that stops before it computes gives the rest up
    state_usd: float


class Wait(NamedTuple):
    """A stretch of time in which a job waits for one reason."""

    job: int
    begin_s: float
    end_s: float
    why: str  # TOO_FEW, ..


class FarAway(NamedTuple):
    """A stretch of time in which a job serves clients that are farther than its bound."""

    job: int
    begin_s: float
    end_s: float


class Absence(NamedTuple):
    """A node's devices that no job could have for a while: it was broken, or other tenants used them."""

    node: int
    devices: int
    begin_s: float
    end_s: float
    broken: bool


class LinkState(NamedTuple):
    """What a directed link carries from a moment on, bytes/s."""

    time_s: float
    source: int
    destination: int
    capacity: float
    exchange: float  # of elastic jobs that run over several domains
    data: float
    state: float


@dataclass(frozen=True, eq=False)
class WorldRecord:
    """A replay of n jobs on K domains, each list in order of time of its ends."""

    runs: tuple[Run, ...]
    waits: tuple[Wait, ...]
    far: tuple[FarAway, ...]
    absences: tuple[Absence, ...]
    links: tuple[LinkState, ...]  # by when they begin; a link that never changes has one
    rates: tuple[tuple[float, int, float], ...]  # from when on, which job, work per second; 0: it does not compute
    time_s: Floats  # (m,)
    waiting: Ints  # (m,) jobs, from each moment to the next
    free: Ints  # (m,) devices that count (``figures.counted``) and are free while somebody waits
    usable: Floats  # (m,) of them by the jobs of the workload, in the mean of all; nan: nobody waits
    wanted: Floats  # (m,) of them by those who wait, in the mean of these
    work_s: Floats  # (n,) done when the last job came, as ``duration_s`` counts it; all at once: when the last ended
    work_until_s: float
    counts: Mapping[str, int]  # ``Moment.counts``

    @cached_property
    def stops(self) -> tuple[tuple[Run, Run], ...]:
        """Each run that was not its job's last, and the next, in order of time."""
        last, found = dict[int, Run](), []
        for run in sorted(self.runs, key=lambda each: each.begin_s):
            if run.job in last:
                found.append((last[run.job], run))
            last[run.job] = run
        return tuple(found)


@dataclass(eq=False)
class Recorder:
    """Makes a record of one replay: told of every moment before and after the scheduler's decisions."""

    runs: list[Run] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    far: list[FarAway] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)
    links: list[LinkState] = field(default_factory=list)
    rates: list[tuple[float, int, float]] = field(default_factory=list)
    free: list[tuple[float, int, int, float, float]] = field(default_factory=list)
    work_s: Floats = field(default_factory=lambda: np.zeros(0))
    work_until_s: float = np.nan
    counts: Mapping[str, int] = field(default_factory=dict)
    _running: dict[int, tuple[int, Run]] = field(default_factory=dict)  # job -> stops before it, the run so far
    _failed: dict[int, int] = field(default_factory=dict)  # how often, when its run began
    _moved_gb: dict[int, float] = field(default_factory=dict)  # of a job, when its run had begun
    _unsent_gb: dict[int, float] = field(default_factory=dict)  # of its state, at this moment
    _waiting: dict[int, Wait] = field(default_factory=dict)
    _far: dict[int, float] = field(default_factory=dict)  # since when
    _away: dict[tuple[int, bool], Absence] = field(default_factory=dict)
    _rate: dict[int, float] = field(default_factory=dict)
    _flow: Floats = field(default_factory=lambda: np.zeros(0))  # (4, K, K)
    _wanted: _Wanted | None = None

    def came(self, moment: Moment) -> None:
        """What has happened by itself at a moment."""
        self._close(moment, decided=False)
        self._note_far(moment)
        world, links = moment.world, moment.world.links
        self._unsent_gb = {}
        for transfer in links.active[: links.tally[c.TRANSFERS]].tolist():
            row, sent = links.transfer[transfer], links.bytes[transfer]
            if row[c.SENT_WHAT] == c.STATE and row[c.SENT_PHASE] == c.SENDING and sent[c.BYTES_RATE] < np.inf:
                left = sent[c.BYTES_LEFT] - sent[c.BYTES_RATE] * (moment.now_s - sent[c.BYTES_AS_OF])
                job = int(row[c.SENT_FOR])
                self._unsent_gb[job] = self._unsent_gb.get(job, 0.0) + 1e-9 * max(0.0, float(left))
        first_s, last_s = world.job[[0, -1], c.ARRIVAL].tolist()
        if np.isnan(self.work_until_s) and moment.now_s >= last_s > first_s:
            self._note_work(moment)

    def decided(self, moment: Moment) -> None:
        """What the scheduler has made of it."""
        closed = self._close(moment, decided=True)
        opened = self._open(moment)
        for at, run in closed:
            self.runs[at] = run._replace(for_job=_taker(run, opened))
        self._note_far(moment)
        self._note_waits(moment)
        self._note_absences(moment)
        self._note_rates(moment)
        self._note_links(moment)

    def ended(self, moment: Moment) -> None:
        """Nothing is to come any more."""
        self._close(moment, decided=False)
        for wait in self._waiting.values():
            self.waits.append(wait._replace(end_s=moment.now_s))
        self.far += [FarAway(job, begin_s, moment.now_s) for job, begin_s in self._far.items()]
        for away in self._away.values():
            self.absences.append(away._replace(end_s=moment.now_s))
        if np.isnan(self.work_until_s):
            self._note_work(moment)
        self.counts = dict(moment.counts)

    def record(self) -> WorldRecord:
        """All of it, of a replay that has ended."""
        time_s, waiting, free, usable, wanted = zip(*self.free, strict=True) if self.free else ((), (), (), (), ())
        return WorldRecord(
            tuple(each for each in self.runs if each.end_s > each.begin_s),
            tuple(each for each in self.waits if each.end_s > each.begin_s),
            tuple(each for each in self.far if each.end_s > each.begin_s),
            tuple(each for each in self.absences if each.end_s > each.begin_s),
            tuple(self.links),
            tuple(self.rates),
            np.array(time_s, np.float64),
            np.array(waiting, np.int64),
            np.array(free, np.int64),
            np.array(usable, np.float64),
            np.array(wanted, np.float64),
            self.work_s,
            self.work_until_s,
            self.counts,
        )

    def _note_work(self, moment: Moment) -> None:
        self.work_until_s = moment.now_s
        world, jobs = moment.world, range(len(moment.workload))
        done = world.mark[:, c.STATUS] == c.DONE
        all_of = world.job[:, c.DURATION]  # also of one that only waits for its data to end
        self.work_s = np.where(done, all_of, np.minimum(all_of, [moment.attained_s(job) for job in jobs]))

    # ------------------------------------------------------------------------------------------------------------ runs
    def _close(self, moment: Moment, *, decided: bool) -> list[tuple[int, Run]]:
        """Runs that have ended since this was last asked, and where they stand."""
        world, found = moment.world, []
        for job, (stops, run) in list(self._running.items()):
            mark = world.mark[job]
            if mark[c.STATUS] == c.RUNNING and mark[c.STOPS] + mark[c.FAILED] == stops:
                ready = float(world.job[job, c.READY])
                if ready < np.inf and run.computes_s != ready:
                    self._running[job] = stops, run._replace(computes_s=ready)
                continue
            if decided:
                ended = PAUSED
            elif mark[c.STATUS] == c.DONE:
                ended = DONE
            else:
                ended = FAILED if self._failed[job] != mark[c.FAILED] else EVICTED
            computes_s = run.computes_s if run.computes_s <= moment.now_s else np.nan
            run = run._replace(end_s=moment.now_s, ended=ended, computes_s=computes_s)
            if np.isnan(computes_s) and run.state_gb > 0.0:
                unsent_gb = self._unsent_gb.get(job, 0.0) if decided else self._moved_gb[job] - world.job[job, c.MOVED]
                sent = 1.0 - unsent_gb / run.state_gb
                run = run._replace(state_gb=sent * run.state_gb, state_usd=sent * run.state_usd)
            del self._running[job]
            found.append((len(self.runs), run))
            self.runs.append(run)
        return found

    def _open(self, moment: Moment) -> list[Run]:
        """Runs that begin now."""
        world, found = moment.world, []
        for job in moment.running.tolist():
            if job in self._running:
                continue
            mark, offer = world.mark[job], -1
            nodes, piece = dict[int, int](), int(mark[c.PIECE])
            while piece >= 0:
                node = int(world.piece[piece, c.PIECE_BIN])
                nodes[node] = nodes.get(node, 0) + int(world.piece[piece, c.PIECE_DEVICES])
                piece = int(world.piece[piece, c.PIECE_OF_JOB])
            held = dict[int, int]()
            for node, devices in nodes.items():
                domain = int(world.pool[world.bin[node, c.BIN_POOL], c.POOL_DOMAIN])
                held[domain] = held.get(domain, 0) + devices
            state_from, state_gb, state_usd = -1, 0.0, 0.0
            if mark[c.ELASTIC] == 1:
                offer = int(mark[c.OFFER])
                parts = world.part[job, : moment.offers.parts[offer]].tolist()
                held = {domain: held[domain] for domain in parts}
                if (at := int(mark[c.STATE_AT])) >= 0:
                    size_gb = 1e-9 * float(moment.offers.state_bytes[mark[c.ROW]])
                    far = [
                        (size_gb * float(share), float(world.links.usd_per_byte[at, domain]) * 1e9)
                        for share, domain in zip(moment.offers.state_share[offer], parts, strict=False)
                        if domain != at
                    ]
                    state_from = at if far else -1
                    state_gb, state_usd = sum(gb for gb, _ in far), sum(gb * usd for gb, usd in far)
            ready = float(world.job[job, c.READY])
            run = Run(
                *(job, offer, moment.now_s, ready, np.nan, "", -1),
                *(tuple(held.items()), tuple(sorted(nodes.items())), state_from, state_gb, state_usd),
            )
            self._running[job] = int(mark[c.STOPS] + mark[c.FAILED]), run
            self._failed[job], self._moved_gb[job] = int(mark[c.FAILED]), float(world.job[job, c.MOVED])
            found.append(run)
        return found

    # ----------------------------------------------------------------------------------------------------------- waits
    def _note_far(self, moment: Moment) -> None:
        world = moment.world
        for job in world.serving.tolist():
            begin_s = max(world.job[job, c.LATE_SINCE].item(), world.job[job, c.READY].item())
            if world.mark[job, c.STATUS] != c.RUNNING:
                begin_s = np.inf
            if job in self._far and begin_s == np.inf:
                self.far.append(FarAway(job, self._far.pop(job), moment.now_s))
            elif begin_s < np.inf:
                self._far.setdefault(job, begin_s)

    def _note_waits(self, moment: Moment) -> None:
        """Why each job waits, and how much of what is free they can use."""
        world, waiting = moment.world, moment.waiting.tolist()
        if self._wanted is None:
            self._wanted = _Wanted(moment)
        if waiting:
            free, of_want, mean = self._wanted.usable()
            by_who_waits = float(of_want[self._wanted.of_job[waiting]].mean())
            self.free.append((moment.now_s, len(waiting), free, mean, by_who_waits))
        else:
            self.free.append((moment.now_s, 0, 0, np.nan, np.nan))
        still = dict[int, Wait]()
        for job in waiting:
            could = of_want[self._wanted.of_job[job]]
            least = int(world.mark[job, c.LEAST]) or int(world.mark[job, c.DEVICES])
            why = LEFT if could > 0 else TOO_FEW if free < least else SCATTERED
            before = self._waiting.pop(job, None)
            if before is not None and before.why == why:
                still[job] = before
                continue
            if before is not None:
                self.waits.append(before._replace(end_s=moment.now_s))
            still[job] = Wait(job, moment.now_s, np.nan, why)
        for wait in self._waiting.values():
            self.waits.append(wait._replace(end_s=moment.now_s))
        self._waiting = still

    def _note_absences(self, moment: Moment) -> None:
        """Nodes that are broken, devices that other tenants have."""
        node = moment.world.bin
        now = {
            (each, False): int(node[each, c.BIN_TENANTS]) for each in np.flatnonzero(node[:, c.BIN_TENANTS]).tolist()
        }
        now |= {(each, True): int(node[each, c.BIN_SIZE]) for each in np.flatnonzero(node[:, c.BIN_UP] == 0).tolist()}
        for key, away in list(self._away.items()):
            if now.get(key) != away.devices:
                self.absences.append(away._replace(end_s=moment.now_s))
                del self._away[key]
        for key, devices in now.items():
            if key not in self._away:
                self._away[key] = Absence(key[0], devices, moment.now_s, np.nan, key[1])

    # ------------------------------------------------------------------------------------------------- rates and links
    def _note_rates(self, moment: Moment) -> None:
        world, now_s = moment.world, moment.now_s
        rates = {
            job: float(world.job[job, c.RATE])
            for job in moment.running.tolist()
            if world.job[job, c.READY] <= now_s and world.job[job, c.LEFT] > 0.0
        }
        for job in self._rate.keys() | rates.keys():
            if (rate := rates.get(job, 0.0)) != self._rate.get(job, 0.0):
                self.rates.append((now_s, job, rate))
        self._rate = rates

    def _note_links(self, moment: Moment) -> None:
        """Rows for the links on which something has changed."""
        world, links = moment.world, moment.world.links
        flow = np.zeros((4, *links.capacity.shape))
        flow[0] = links.capacity
        for job in links.spanning[: links.tally[c.SPANNING]].tolist():
            offer = int(world.mark[job, c.OFFER])
            _, parts, _, ring = world.offers.form[offer].tolist()
            sent = float(world.job[job, c.RATE] * world.offers.hop_bytes[offer])
            for hop in range(parts if ring else parts - 1):
                here, there = int(world.part[job, hop]), int(world.part[job, (hop + 1) % parts])
                flow[1, here, there] += sent
                flow[1, there, here] += sent if ring != c.ONE_WAY else 0.0
        active = links.active[: links.tally[c.TRANSFERS]]
        row, rate = links.transfer[active], links.bytes[active, c.BYTES_RATE]
        for kind, what in ((2, c.DATA), (3, c.STATE)):
            sends = (row[:, c.SENT_WHAT] == what) & (row[:, c.SENT_PHASE] == c.SENDING)
            sends &= np.isfinite(rate)  # what takes no time
            np.add.at(flow[kind], (row[sends, c.SENT_FROM], row[sends, c.SENT_TO]), rate[sends])
        if not len(self._flow):
            self._flow = np.full_like(flow, np.nan)
            self._flow[:, ~np.isfinite(links.capacity)] = flow[:, ~np.isfinite(links.capacity)]
        for here, there in np.argwhere((flow != self._flow).any(axis=0)).tolist():
            self.links.append(LinkState(moment.now_s, here, there, *flow[:, here, there].tolist()))
        self._flow = flow


def _taker(paused: Run, opened: list[Run]) -> int:
    """Who of those that begin holds most of the devices of one that was paused; itself where it goes on elsewhere."""
    if any(each.job == paused.job for each in opened):
        return paused.job
    nodes, best, most = dict(paused.nodes), -1, 0
    for each in opened:
        taken = sum(min(devices, nodes.get(node, 0)) for node, devices in each.nodes)
        if taken > most:
            best, most = each.job, taken
    return best


class _Wanted:
    """Which free devices the jobs of a workload could use: those in domains where a part of them could run now.

    An offer can run where as many domains have room for its parts; then it can use every domain that has room for its
    smallest part, there what lies in whole blocks. A gang can use a pool that has room for all of it.
    """

    def __init__(self, moment: Moment) -> None:
        self.world, self.offers = moment.world, moment.offers
        world, offers, mark = moment.world, moment.offers, moment.world.mark
        self.counts = counted(moment.workload, moment.site)
        self.sizes = np.unique(np.append(offers.block, 1))
        self.size = np.searchsorted(self.sizes, offers.block)  # (O,)
        self.blocks = offers.gpus // offers.block[:, None]  # (O, M)
        terms = mark[:, [c.SHAPE, c.ELASTIC, c.ROW, c.LEAST, c.DEVICES]].copy()
        terms[terms[:, 1] == 0, 2] = -1  # rows of gangs say how they span, which nobody does here
        wants, of_job = np.unique(terms, axis=0, return_inverse=True)
        self.of_job = of_job.reshape(-1)
        self.weight = np.bincount(self.of_job[mark[:, c.STATUS] != c.REFUSED], minlength=len(wants)).astype(np.float64)
        shape, elastic, kind, least, self.most = wants.T
        self.elastic = elastic == 1
        total = offers.gpus.sum(axis=1)
        self.may = (world.partly if self.elastic.any() else world.allowed)[shape] & self.counts  # (w, P)
        self.may[~self.elastic] = (world.allowed[shape] & self.counts)[~self.elastic]
        self.fits = (kind[:, None] == offers.kind) & (least[:, None] <= total) & (total <= self.most[:, None])  # (w, O)

    def usable(self) -> tuple[int, Floats, float]:
        """Free devices that count; how many of them a job of each want (w,) could use; the mean over all jobs."""
        world = self.world
        up = np.where(world.bin[:, c.BIN_UP] == 1, world.bin[:, c.BIN_FREE], 0)
        room = np.zeros((len(world.pool), len(self.sizes)), np.int64)
        for at, size in enumerate(self.sizes.tolist()):
            np.add.at(room[:, at], world.bin[:, c.BIN_POOL], up // size)
        free, found = room[:, 0], np.zeros((len(self.may), len(room)))
        for may in np.unique(self.may[self.elastic], axis=0):  # elastic jobs that may use the same pools
            alike = self.elastic & (self.may == may).all(axis=1)
            there = np.where(may[:, None], room[:, self.size], 0)  # (P, O) blocks
            holds = there[:, :, None] >= np.maximum(self.blocks, 1)  # (P, O, M)
            enough = (holds.sum(axis=0) > np.arange(c.MOST_PARTS)) | (self.blocks == 0)  # (O, M), parts by size
            last = holds[:, np.arange(len(self.offers)), self.offers.parts - 1]
            value = np.where(last & enough.all(axis=1), there * self.offers.block, 0)  # (P, O)
            now = value.any(axis=0)
            found[alike] = np.where(self.fits[alike][:, None, now], value[:, now], 0).max(axis=2, initial=0)
        gang = ~self.elastic
        found[gang] = np.where(self.may[gang] & (free >= self.most[gang][:, None]), free, 0)
        of_want: Floats = found.sum(axis=1)
        mean = float(self.weight @ of_want / self.weight.sum()) if self.weight.any() else 0.0
        return int(free[self.counts].sum()), of_want, mean
