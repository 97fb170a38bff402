"""The figures of a world: work done while jobs come, links, interruptions, and free devices that jobs cannot use.

*Goodput*: device-seconds of work done until the last job came, each counted 1 + its job's priority times (negative ones
as 0), a second and device of the site; work of an elastic job is counted at its reference (``OfferTable.device_s``), so
1 is a site busy with jobs of priority 0 that are as quick for their devices as the reference. Lost work is not counted.

*Interruption*: seconds in which a job that has begun does not compute because it was stopped: from the end of a run to
when the next one computes (its processes restarted, its state there).

*Fragmentation*: of the devices that are free while somebody waits, the share that a job of the workload cannot use
where they lie, in the mean of its jobs (``Recorder``), weighted by free devices and time: the measure of Weng et al.,
Beware of Fragmentation (USENIX ATC 2023), with offers in place of single tasks. *Unwanted*: the same with those who
wait as the jobs; it is 1 under everybody who lets nobody wait for what it could use, however full the site is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.joint.record import Run, WorldRecord
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class WorldFigures:
    """More keys of ``hippo jobs replay --json`` where jobs are elastic; nan where there is nothing to measure."""

    goodput: float
    interruption_s: float  # mean of the jobs that ran
    fragmentation: float
    unwanted: float
    exchanged_gb: float  # by jobs that ran over several domains
    moves: int  # times that a job went on after a stop on other nodes, or under another offer


def world_figures(
    record: WorldRecord, ledger: Ledger, workload: JobWorkload, site: JobSite, offers: OfferTable
) -> WorldFigures:
    """The figures of a replay that was recorded."""
    lasts_s = record.work_until_s - float(workload.arrival_s[0]) if len(workload) else 0.0
    weight = (1.0 + np.maximum(workload.priority, 0)) * np.nan_to_num(offers.device_s(workload) / workload.duration_s)
    waited = record.waiting[:-1] > 0
    space = (np.diff(record.time_s) * record.free[:-1])[waited]
    usable, wanted = ((np.diff(record.time_s) * each[:-1])[waited] for each in (record.usable, record.wanted))
    stopped = interruptions_s(record, len(workload))[ledger.ran]
    crossed = ledger.link_gb.sum() - np.trace(ledger.link_gb)
    return WorldFigures(
        goodput=float(weight @ record.work_s) / (lasts_s * site.devices) if lasts_s > 0 else float("nan"),
        interruption_s=float(stopped.mean()) if len(stopped) else float("nan"),
        fragmentation=1.0 - float(usable.sum() / space.sum()) if space.sum() > 0 else float("nan"),
        unwanted=1.0 - float(wanted.sum() / space.sum()) if space.sum() > 0 else float("nan"),
        exchanged_gb=max(0.0, float(crossed - ledger.moved_gb.sum())),
        moves=sum(before.nodes != after.nodes or before.offer != after.offer for before, after in record.stops),
    )


def interruptions_s(record: WorldRecord, jobs: int) -> Floats:
    """(n,) seconds for which each job was interrupted."""
    found = np.zeros(jobs)
    for before, after in record.stops:
        found[after.job] += stopped_s(before, after)
    return found


def stopped_s(before: Run, after: Run) -> float:
    """Between two runs of a job: up to when it computes again, or stops again."""
    return (after.end_s if np.isnan(after.computes_s) else after.computes_s) - before.end_s
