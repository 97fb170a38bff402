"""A store of an earlier form, one that was restored from a backup, and what actuators began after that was made; who
has ended is forgotten when the store has it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from alembic import command

from hippo.serve import backups, store
from hippo.serve import loop as loop_module
from hippo.serve import tables as t
from hippo.serve.backups import backup, restore
from hippo.serve.records import BEGIN, DONE, FAILED, OVER, STOP, JobOrder, Receipt, SeenJob
from hippo.serve.store import StoreError, engine_of, number_of

from .test_faults import GANG, Stubborn
from .worlds import Clock, Served, until, url

LONG = {**GANG, "devices": 32, "duration_s": 1e6}


class Ordered(Stubborn):
    """Remembers what ran of others when a job was begun; to look takes its time, and so does a stop."""

    def __init__(self, refusals: int = 0) -> None:
        super().__init__(refusals)
        self.looks_s, self.stops_s = 0.0, 0.0
        self.beside: dict[str, set[str]] = {}

    def carry_out(self, order: JobOrder) -> Receipt:
        if order.act == BEGIN:
            self.beside[order.job] = set(self.jobs)
        time.sleep(self.stops_s if order.act == STOP else 0.0)
        return super().carry_out(order)

    def seen(self) -> Sequence[SeenJob]:
        time.sleep(self.looks_s)
        return super().seen()


def restored(folder: Path, actuator: Stubborn, mode: str = "act") -> tuple[Served, str]:
    """A site on which a job runs that came after the backup."""
    served = Served.of(url(folder), Clock(), actuator, actuator="stubborn")
    served.turn()
    backup(served.store.url, folder / "backup.gz")
    name = served.submit(**LONG)
    until(served, lambda: name in actuator.jobs and not served.loop._open)
    served.close()
    (folder / "new").mkdir()
    restore(url(folder / "new"), folder / "backup.gz")
    return Served.of(url(folder / "new"), served.clock, actuator, actuator="stubborn", mode=mode), name


def told(served: Served) -> list[str]:
    asked = sql.select(t.EVENTS.c.told).where(t.EVENTS.c.kind == "service").order_by("number")
    return [each for each in served.store.read(lambda at: at.execute(asked).scalars().all()) if "backup that" in each]


@pytest.mark.parametrize(("looks_s", "stops_s"), [(0.0, 0.3), (0.3, 0.0)])
def test_what_was_begun_after_the_backup_is_stopped_before_anybody_begins(
    tmp_path: Path, looks_s: float, stops_s: float
):
    actuator = Ordered()
    actuator.looks_s, actuator.stops_s = looks_s, stops_s
    served, stray = restored(tmp_path, actuator)
    next_one = served.submit(**LONG)
    until(served, lambda: next_one in actuator.jobs and not served.loop._open)
    assert actuator.acts == [BEGIN, STOP, BEGIN]
    assert actuator.beside[next_one] == set()
    row = served.jobs()[stray]
    assert (row.state, row.why) == ("cancelled", "restored: begun after the backup")
    assert [stray in each for each in told(served)] == [True]
    assert [(each.job, each.act, each.state) for each in served.decisions()] == [
        (stray, STOP, "carried out"),
        (next_one, BEGIN, "carried out"),
    ]
    assert served.submit() > next_one  # numbers go on
    served.close()


def test_nobody_waits_for_ever_for_a_run_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loop_module, "STRAYS_S", 0.5)
    monkeypatch.setattr(loop_module, "STOP_AGAIN_S", 0.05)
    actuator = Ordered(3)
    served, stray = restored(tmp_path, actuator)
    next_one = served.submit(**LONG)
    until(served, lambda: next_one in actuator.jobs and stray not in actuator.jobs)
    assert actuator.acts.count(STOP) == 4
    assert len(told(served)) == 1
    assert "turns broken" not in served.loop.state.counts
    served.close()


def test_where_somebody_has_to_say_yes_it_is_told_and_runs_on(tmp_path: Path):
    actuator = Ordered()
    served, stray = restored(tmp_path, actuator, mode="advise")
    until(served, lambda: told(served))
    for _ in range(5):
        served.turn(1.0)
    assert len(told(served)) == 1
    assert actuator.acts == [BEGIN]
    assert stray not in served.jobs()
    served.loop.mode = "act"
    until(served, lambda: not actuator.jobs)
    assert served.jobs()[stray].state == "cancelled"
    served.close()


class Forgets(Stubborn):
    """Remembers what the store said of who was to be forgotten."""

    def __init__(self) -> None:
        super().__init__(0)
        self.served: Served | None = None
        self.forgotten: dict[str, str] = {}

    def forget(self, job: SeenJob) -> None:
        assert self.served is not None
        self.forgotten[job.job] = self.served.jobs()[job.job].state
        self.jobs.pop(job.job)
        raise RuntimeError("whatever breaks there")


@pytest.mark.parametrize("state", [DONE, FAILED])
def test_who_has_ended_is_forgotten_when_the_store_has_it(tmp_path: Path, state: str):
    """It ends while nobody serves it, and is said until the service that comes back has written that down."""
    actuator = Forgets()
    actuator.served = served = Served.of(url(tmp_path), Clock(), actuator, actuator="stubborn")
    name = served.submit(**{**GANG, "devices": 8})
    until(served, lambda: actuator.jobs and not served.loop._open)
    served.close()
    actuator.jobs[name] = SeenJob(name, actuator.jobs[name].key, state, told="why")
    actuator.served = again = Served.of(url(tmp_path), served.clock, actuator, actuator="stubborn")

    def over() -> bool:
        if (found := actuator.jobs.get(name)) is not None and state == FAILED:  # and whenever it is begun anew
            actuator.jobs[name] = SeenJob(name, found.key, FAILED, told="why")
        return name in actuator.forgotten

    until(again, over)
    assert actuator.forgotten[name] == state
    assert actuator.forgotten[name] in OVER
    assert actuator.acts == [BEGIN] * (loop_module.MOST_FAILURES if state == FAILED else 1)
    assert "turns broken" not in again.loop.state.counts
    again.close()


FORMS = ("first", "second", "third", "fourth", "fifth")


@pytest.mark.parametrize("form", FORMS)
def test_a_store_of_an_earlier_form_keeps_all_that_is_in_it(tmp_path: Path, form: str):
    """Its job runs on, and goes by the order that began it."""
    stubborn, clock = Ordered(), Clock()
    now = Served.of(url(tmp_path), clock, stubborn, actuator="stubborn")
    name = now.submit(**LONG)
    until(now, lambda: stubborn.jobs and not now.loop._open)
    now.close()
    found: dict[str, list[dict[str, Any]]] = {}
    engine = engine_of(url(tmp_path))
    with engine.connect() as at:
        for table in t.METADATA.sorted_tables:
            found[table.name] = [dict(row._mapping) for row in at.execute(sql.select(table))]
    engine.dispose()

    (home := tmp_path / "old").mkdir()
    engine, config = engine_of(url(home)), store._migrations()
    with engine.begin() as at:
        config.attributes["connection"] = at
        command.upgrade(config, form)
        there = sql.MetaData()
        there.reflect(at)
        before: dict[str, list[dict[str, Any]]] = {}
        for table, rows in found.items():
            if table in there.tables and table != "alembic_version":
                columns = there.tables[table].columns.keys()
                rows = [{key: row[key] for key in columns} for row in rows if row.get("name") != store.OWNER]
                before[table] = rows
                if rows:
                    at.execute(sql.insert(t.METADATA.tables[table]), rows)
                    backups._goes_on(at, t.METADATA.tables[table]) if "number" in columns else None
    engine.dispose()

    old = store.Store(url(home))
    for table, rows in before.items():
        read = old.read(lambda at, table=table: at.execute(sql.select(t.METADATA.tables[table])).all())
        kept = [dict(row._mapping) for row in read if getattr(row, "name", "") != store.OWNER]
        assert [{key: row[key] for key in each} for row, each in zip(kept, rows, strict=True)] == rows
    old.close()
    again = Served.of(url(home), clock, stubborn, actuator="stubborn")
    for _ in range(3):
        again.turn(1.0)
    assert again.jobs()[name].state == "running"
    assert again.submit() > name
    assert stubborn.acts == [BEGIN]
    again.close()


def test_a_backup_that_is_restored_again_later_gives_no_number_away_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The store that was made from it first is lost, too; actuators remember its orders."""
    actuator, clock = Ordered(), Clock()
    served = Served.of(url(tmp_path), clock, actuator, actuator="stubborn")
    served.submit(**LONG)
    served.turn()
    served.close()
    backup(url(tmp_path), tmp_path / "backup.gz")
    keys: list[set[str]] = []
    for at, home in enumerate((tmp_path / "one", tmp_path / "two")):
        home.mkdir()
        monkeypatch.setattr(backups.time, "time", lambda at=at: clock() + 60.0 * (1 + at))
        restore(url(home), tmp_path / "backup.gz")
        served = Served.of(url(home), Clock(clock() + 100.0 * (1 + at)), actuator, actuator="stubborn")
        for _ in range(3):
            served.submit(**{**GANG, "devices": 8})
        until(served, lambda served=served: len(served.decisions()) > 2 and not served.loop._open)
        orders = served.store.read(lambda at: at.execute(sql.select(t.ORDERS.c.key)).scalars().all())
        keys.append({each for each in orders if not each.startswith("o-1-")})
        served.close()
    assert len(keys[0]) > 2
    assert not keys[0] & keys[1]


def test_a_restore_that_is_cut_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    served = Served.of(url(tmp_path), Clock())
    served.submit()
    served.turn()
    served.close()
    backup(url(tmp_path), tmp_path / "backup.gz")
    (home := tmp_path / "new").mkdir()

    def full(at: Any) -> None:
        raise sql.exc.OperationalError("", {}, Exception("database or disk is full"))

    with monkeypatch.context() as patch:
        patch.setattr(backups, "_beyond", full)
        with pytest.raises(StoreError, match="disk is full"):
            restore(url(home), tmp_path / "backup.gz")
    restore(url(home), tmp_path / "backup.gz")
    again = Served.of(url(home), Clock(1_800_000_100.0))
    assert again.loop._restored
    assert number_of(again.submit()) > backups.LEAP
    again.close()
