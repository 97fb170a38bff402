"""What links were measured to carry: what is nonsense, what is written, and what becomes of it.

Single points stay for a quarter of an hour; then their minute's mean, least and
most take their place, for thirty days. So long is kept how jobs went on, too, and the orders of jobs that are over;
events and decisions are kept for a year; plans, too, and longer where somebody goes by them, or would if a decision
that waits were approved.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from hippo.errors import InputError
from hippo.jobs.site import JobSite
from hippo.serve import tables as t
from hippo.serve.records import APPROVED, OVER, PROPOSED, LinkPoint, SeenJob
from hippo.units import gbps_from_bytes_per_s

NONSENSE = 8.0
"""A link cannot be measured to carry more than so many times what it is bought as."""
AHEAD_S = 60.0
"""By so much a machine's clock may be before the service's."""
POINTS_S, MINUTES_S, YEAR_S = 900.0, 30 * 86_400.0, 366 * 86_400.0
AT_ONCE = 20_000
"""Points that become minutes in one transaction: others wait for it."""
FORGOTTEN_AT_ONCE = 1000
COLUMNS = ("time_s", "source", "destination", "bytes_per_s", "latency_s", "by")
ADDED = sql.insert(t.POINTS)


def checked(site: JobSite, point: LinkPoint, key: str, now_s: float) -> LinkPoint:
    """A measurement that can be.

    Raises
    ------
    InputError
        No such domain or link, more than it can carry, a time that has not come, or one of which nothing is kept.
    """
    names, told = site.domains, {"source": "telemetry", "key": key}
    for end in (point.source, point.destination):
        if end not in names:
            remedy = f"name {', '.join(names[:20])}"
            raise InputError("no such domain", **told, value=end[:40], remedy=remedy)
    bought = site.bandwidth_bytes_per_s[names.index(point.source)][names.index(point.destination)]
    if point.source == point.destination or bought <= 0:
        raise InputError("the site has no such link", **told, remedy="leave it out")
    told["key"] = f"{key}.gbps"
    if not math.isfinite(point.bytes_per_s) or not 0 <= point.bytes_per_s <= NONSENSE * bought:
        value, remedy = gbps_from_bytes_per_s(point.bytes_per_s), "measure again; the unit is Gbit/s"
        raise InputError(f"is more than {NONSENSE:g} times what is bought", **told, value=value, remedy=remedy)
    if point.time_s > now_s + AHEAD_S:
        told["key"], remedy = f"{key}.time_s", "set that machine's clock, or leave time_s out"
        raise InputError(f"lies {point.time_s - now_s:.0f} s ahead", **told, remedy=remedy)
    if point.time_s < now_s - MINUTES_S:
        told["key"], remedy = f"{key}.time_s", "give seconds since 1970, or leave it out"
        raise InputError(f"lies {(now_s - point.time_s) / 86_400.0:.0f} days back, 30 are kept", **told, remedy=remedy)
    return point


def written(points: Sequence[LinkPoint]) -> Callable[[Connection], None]:
    """Writes them down."""
    rows = [{name: getattr(each, name) for name in COLUMNS} for each in points]

    def write(at: Connection) -> None:
        at.execute(ADDED, rows)

    return write


def lately(at: Connection, since_s: float) -> list[LinkPoint]:
    """Of each link what it carried in each minute since then, in the mean, as of its last point."""
    p, m = t.POINTS.c, t.MINUTES.c
    minute = sql.cast(sql.func.floor(p.time_s / 60.0), sql.BigInteger)
    asked = sql.select(sql.func.max(p.time_s), p.source, p.destination, sql.func.avg(p.bytes_per_s))
    young = asked.where(p.time_s >= since_s).group_by(minute, p.source, p.destination)
    old = sql.select(60.0 * m.minute, m.source, m.destination, m.mean_bytes_per_s).where(m.minute >= since_s / 60.0)
    rows = [*at.execute(old).all(), *at.execute(young).all()]
    return [LinkPoint(*row, by="the store") for row in rows]


def rolled(now_s: float, most: int = AT_ONCE) -> Callable[[Connection], int]:
    """Makes minutes of old points and forgets old minutes; how many points it looked at."""
    p, m = t.POINTS.c, t.MINUTES.c

    def write(at: Connection) -> int:
        _forget(at, now_s)
        numbers = sql.select(p.number).order_by(p.number).limit(most).subquery()
        last, count = at.execute(sql.select(sql.func.max(numbers.c.number), sql.func.count())).one()
        if not count:
            return 0
        old = sql.and_(p.number <= last, p.time_s < now_s - POINTS_S)
        minute = sql.cast(sql.func.floor(p.time_s / 60.0), sql.BigInteger)
        asked = sql.select(
            *(minute, p.source, p.destination, sql.func.count(), sql.func.avg(p.bytes_per_s)),
            *(sql.func.min(p.bytes_per_s), sql.func.max(p.bytes_per_s), sql.func.avg(p.latency_s)),
        )
        rows = at.execute(asked.where(old).group_by(minute, p.source, p.destination)).all()
        for row in rows:
            key = sql.and_(m.minute == row[0], m.source == row[1], m.destination == row[2])
            known = at.execute(sql.select(t.MINUTES).where(key)).first()
            whole = row if known is None else _together(known, row)
            if known is not None:
                at.execute(sql.delete(t.MINUTES).where(key))
            at.execute(sql.insert(t.MINUTES), dict(zip((each.name for each in m), whole, strict=True)))
        at.execute(sql.delete(t.POINTS).where(old))
        at.execute(sql.delete(t.MINUTES).where(m.minute < (now_s - MINUTES_S) / 60.0))
        at.execute(sql.delete(t.PROGRESS).where(t.PROGRESS.c.time_s < now_s - MINUTES_S))
        return int(count) if rows else 0

    return write


def _forget(at: Connection, now_s: float) -> None:
    """The oldest events, decisions and orders, some at a time; not those of who is not over, which are few."""
    there = sql.select(sql.literal("j") + sql.cast(t.JOBS.c.number, sql.String)).where(t.JOBS.c.state.not_in(OVER))
    for table, number, time_s, keep_s in (
        (t.EVENTS, t.EVENTS.c.number, t.EVENTS.c.time_s, YEAR_S),
        (t.DECISIONS, t.DECISIONS.c.number, t.DECISIONS.c.time_s, YEAR_S),
        (t.ORDERS, t.ORDERS.c.decision, t.ORDERS.c.answered_s, MINUTES_S),
    ):
        young = sql.select(number).where(time_s >= now_s - keep_s).order_by(number).limit(1)
        first = at.execute(young).scalar()  # numbers go up with time, so that nobody looks at what is behind it
        old = time_s < now_s - keep_s if first is None else sql.and_(number < first, time_s < now_s - keep_s)
        old = old if table is t.EVENTS else sql.and_(old, table.c.job.not_in(there))
        which = sql.select(number.label("number")).where(old).order_by(number).limit(FORGOTTEN_AT_ONCE).subquery()
        at.execute(sql.delete(table).where(number.in_(sql.select(which.c.number))))
    made = sql.select(t.PLANS.c.id).where(t.PLANS.c.made_s < now_s - YEAR_S).limit(FORGOTTEN_AT_ONCE)
    if aged := set(at.execute(made).scalars()):
        waits = t.DECISIONS.c.state.in_((PROPOSED, APPROVED))
        asked = [sql.select(t.JOBS.c.place).where(t.JOBS.c.state.not_in(OVER), t.JOBS.c.place.is_not(None))]
        ends = t.DECISIONS.c.before, t.DECISIONS.c.after
        asked += [sql.select(each).where(waits, each.is_not(None)) for each in ends]
        used = aged & {(json.loads(place) or {}).get("plan") for each in asked for place in at.execute(each).scalars()}
        at.execute(sql.update(t.PLANS).where(t.PLANS.c.id.in_(used)).values(made_s=now_s))
        at.execute(sql.delete(t.PLANS).where(t.PLANS.c.id.in_(aged - used)))


def _together(one: Sequence[Any], two: Sequence[Any]) -> tuple[Any, ...]:
    """Two parts of a minute of one link."""
    count = one[3] + two[3]
    late = [each for each in (one, two) if each[7] is not None]
    latency_s = sum(each[3] * each[7] for each in late) / sum(each[3] for each in late) if late else None
    mean = (one[3] * one[4] + two[3] * two[4]) / count
    return (*one[:3], count, mean, min(one[5], two[5]), max(one[6], two[6]), latency_s)


MOST_LOOKS = 400
"""Of one job that are kept: where there are more every second goes, so what is old is told more coarsely."""
LOOKED = sql.insert(t.PROGRESS)


def looked(job: str, time_s: float, seen: SeenJob) -> Callable[[Connection], None]:
    """Writes down how a run goes on."""
    row = {"job": job, "time_s": time_s, "share_done": seen.share_done, "step_s": seen.step_s, "loss": seen.loss}
    p = t.PROGRESS.c

    def write(at: Connection) -> None:
        at.execute(LOOKED, row)
        if at.execute(sql.select(sql.func.count()).where(p.job == job)).scalar_one() > MOST_LOOKS:
            times = at.execute(sql.select(p.time_s).where(p.job == job).order_by(p.time_s)).scalars().all()
            at.execute(sql.delete(t.PROGRESS).where(p.job == job, p.time_s.in_(times[1:-1:2])))

    return write


def history(at: Connection, source: str, destination: str, since_s: float) -> list[tuple[float, float, float, float]]:
    """Minutes of a link since then: when it began, mean, least and most bytes/s."""
    p, m = t.POINTS.c, t.MINUTES.c
    ends = sql.and_(m.source == source, m.destination == destination, m.minute >= since_s / 60.0)
    asked = sql.select(m.minute, m.points, m.mean_bytes_per_s, m.least_bytes_per_s, m.most_bytes_per_s)
    minute = sql.cast(sql.func.floor(p.time_s / 60.0), sql.BigInteger)
    rate = p.bytes_per_s
    young = sql.select(minute, sql.func.count(), sql.func.avg(rate), sql.func.min(rate), sql.func.max(rate))
    young = young.where(p.source == source, p.destination == destination, p.time_s >= since_s).group_by(minute)
    found: dict[int, tuple[Any, ...]] = {}
    for row in (*at.execute(asked.where(ends)).all(), *at.execute(young).all()):
        whole = (row[0], source, destination, *row[1:], None)
        found[row[0]] = whole if row[0] not in found else _together(found[row[0]], whole)
    return [(60.0 * each, *found[each][4:7]) for each in sorted(found)]
