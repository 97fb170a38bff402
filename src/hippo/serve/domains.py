"""How many GPUs of domains can be used: what is nonsense, what is kept, and what becomes of it in the queue.

What was told last holds, whoever told it, until somebody tells otherwise. The last word of each source is kept, so that
one that says the same again after a restart says nothing new.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from sqlalchemy.engine import Connection

from hippo.errors import InputError
from hippo.jobs.site import JobSite
from hippo.serve.store import keep, kept, note
from hippo.serve.telemetry import AHEAD_S

DOMAINS = "domains"
"""Name of what the store keeps."""


@dataclass(frozen=True)
class DomainNow:
    """GPUs of a domain that jobs can use from a time on."""

    time_s: float
    domain: str
    gpus: int
    by: str = ""


def gpus_of(site: JobSite) -> dict[str, int]:
    """GPUs of each domain as they were bought, one kind each."""
    return {pool.domain: pool.devices for pool in site.pools}


def checked_domain(site: JobSite, told: DomainNow, key: str, now_s: float, device: str = "") -> DomainNow:
    """What can be. ``InputError``: no such domain, none of that kind, more than it has, a time that has not come."""
    where, pools = {"source": "telemetry", "key": key}, {pool.domain: pool for pool in site.pools}
    if told.domain not in pools:
        remedy = f"name {', '.join(list(pools)[:20])}"
        raise InputError("no such domain", **where, value=told.domain[:40], remedy=remedy)
    pool = pools[told.domain]
    if device and device != pool.kind:
        where["key"], remedy = f"{key}.device", f"write {pool.kind}, or leave it out"
        raise InputError(f"{told.domain} has none of these", **where, value=device[:40], remedy=remedy)
    if not 0 <= told.gpus <= pool.devices:
        where["key"], remedy = f"{key}.gpus", f"count what is in the cluster file: 0 to {pool.devices}"
        raise InputError(f"{told.domain} has {pool.devices}", **where, value=told.gpus, remedy=remedy)
    if told.time_s > now_s + AHEAD_S:
        where["key"], remedy = f"{key}.time_s", "set that machine's clock, or leave time_s out"
        raise InputError(f"lies {told.time_s - now_s:.0f} s ahead", **where, remedy=remedy)
    return replace(told, time_s=min(told.time_s, now_s))  # else a clock that is before would outlast others' words


def younger(known: Iterable[DomainNow], told: Iterable[DomainNow]) -> list[DomainNow]:
    """The last word of each source about each domain, the oldest first."""
    found: dict[tuple[str, str], DomainNow] = {}
    for each in sorted((*known, *told), key=lambda each: each.time_s):
        found.pop((each.domain, each.by), None)
        found[each.domain, each.by] = each
    return list(found.values())


def holding(words: Iterable[DomainNow]) -> dict[str, DomainNow]:
    """Of each domain the last of these words."""
    return {each.domain: each for each in words}


def kept_words(at: Connection) -> list[DomainNow]:
    """The last word of each source about each domain, the oldest first."""
    return [DomainNow(**each) for each in json.loads(kept(at, DOMAINS) or b"[]")]


def domains_written(site: JobSite, told: Sequence[DomainNow], now_s: float) -> Callable[[Connection], None]:
    """Keeps it; an event for each domain of which another number can be used than before."""
    whole = gpus_of(site)

    def write(at: Connection) -> None:
        words = younger(known := kept_words(at), told)
        before = whole | {name: each.gpus for name, each in holding(known).items()}
        for name, each in holding(words).items():
            if each.gpus != before[name]:
                note(at, now_s, "domain", name, who=each.by, told=f"{each.gpus} of {whole[name]} GPUs can be used")
        keep(at, DOMAINS, json.dumps([asdict(each) for each in words]).encode(), now_s)

    return write
