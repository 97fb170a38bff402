"""What a decision about a job was weighed against: every place that it could have had, with what a step would take; and
why a job waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hippo.jobs.engine import world as c
from hippo.jobs.joint.moment import Moment
from hippo.serve.records import BEGIN, STOP, StoredJob
from hippo.serve.site import JobChange, ServedSite

MOST = 5


def reasons(site: ServedSite, moment: Moment, change: JobChange, pace: float = 1.0) -> dict[str, Any]:
    """Why, as data: the cause in a sentence, and the alternatives, quickest first.

    ``pace``: what the job's steps take of what the table of offers says; all steps are told so, as predictions are.
    """
    there = (*moment.running.tolist(), *moment.waiting.tolist())
    row = next((job for job in there if moment.workload.name(job) == change.job), None)
    found: dict[str, Any] = {"cause": _cause(site, moment, change, pace), "free_gpus": moment.free_gpus}
    found["waiting"] = int(len(moment.waiting))
    if row is None or moment.world.mark[row, c.ELASTIC] == 0:
        return found
    now = _held(change.after)
    places = [_at_pace(site.described(moment, place), pace) for place in moment.places(row)[: MOST + 1]]
    found["alternatives"] = [each for each in places if _held(each) != now][:MOST]
    found["left_s"] = moment.remaining_s(row)
    return found


def waits(site: ServedSite, job: StoredJob) -> str:
    """Why a job waits, as things stand; empty: nothing has been decided yet."""
    moment = site.live.moment
    if moment is None:
        return ""
    needs = int(job.spec.get("least") or job.spec.get("devices") or job.spec.get("most") or 0)
    free = Counter[str]()
    for pool, row in zip(site.live.site.pools, moment.world.pool, strict=True):
        free[pool.domain] += int(row[c.POOL_FREE])
    if (count := free.total()) < needs:
        return f"needs {needs} GPUs, and {count} {'is' if count == 1 else 'are'} free"
    told = ", ".join(f"{name} {count}" for name, count in free.items() if count)
    return f"needs {needs} GPUs; free are {told}: others go first, or it has no place among these"


def _held(place: Mapping[str, Any] | None) -> list[tuple[str, int]]:
    """GPUs of each domain, in whichever order it has them."""
    return sorted(zip((place or {}).get("domains", ()), (place or {}).get("gpus", ()), strict=True))


def _at_pace(place: dict[str, Any], pace: float) -> dict[str, Any]:
    return place if place["step_s"] is None else {**place, "step_s": pace * place["step_s"]}


def _cause(site: ServedSite, moment: Moment, change: JobChange, pace: float) -> str:
    if change.act == BEGIN:
        domains = " and ".join((change.after or {}).get("domains", []))
        return f"there is room in {domains}"
    before, after = change.before or {}, change.after or {}
    gone = site.lost(before.get("domains", []), moment)
    if change.act == STOP or gone:
        return gone or "others go first"
    narrow = _narrowest(site, moment, before.get("domains", []))
    then, now = site.step_s(moment, change.job, before), after.get("step_s")
    quicker = f": a step would take {pace * then:.3g} s, and takes {pace * now:.3g} s there" if then and now else ""
    if narrow:
        return f"{narrow}{quicker}"
    return f"it is quicker in {' and '.join(after.get('domains', []))}{quicker}"


def _narrowest(site: ServedSite, moment: Moment, domains: list[str]) -> str:
    """The link between a job's domains that carries least of what it was bought as; empty: all carry most of it."""
    names, carries = site.live.site.domains, moment.world.links.capacity
    worst, least = "", 0.7
    for one in domains:
        for two in domains:
            a, b = names.index(one), names.index(two)
            bought = site.live.site.bandwidth_bytes_per_s[a][b]
            left = carries[a, b] / bought if a != b and bought > 0 else 1.0
            if left < least:
                worst, least = f"the link from {one} to {two} carries {100 * left:.0f} % of what is bought", left
    return worst
