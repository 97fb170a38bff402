"""What breaks for a moment, and what must not come of it: turns, threads, reads of the store, words of an actuator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from hippo.serve.jobs import let_go, take_in
from hippo.serve.records import JobOrder, Receipt, SeenJob
from hippo.serve.store import Store, StoreError, keep

from .servers import until as beside
from .test_faults import GANG, Stubborn
from .worlds import Clock, Served, offers, until, url


def breaks(served: Served, step: str) -> None:
    """The next turn does, at one of its steps."""
    whole = getattr(served.loop, step)

    def once(*_: Any) -> Any:
        setattr(served.loop, step, whole)
        raise MemoryError

    setattr(served.loop, step, once)


def broken(served: Served) -> None:
    """A turn, as the loop's thread makes it."""
    with pytest.raises(MemoryError):
        served.turn()
    served.loop._broke = True


@pytest.mark.parametrize("how", ["done", "cancelled"])
def test_who_ended_in_a_turn_that_breaks_does_not_come_back(tmp_path: Path, how: str):
    served = Served.of(url(tmp_path), Clock())
    name = served.submit(**{**GANG, "devices": 8})
    until(served, lambda: served.jobs()[name].state == "running" and not served.loop._open)
    if how == "cancelled":
        served.store.write(let_go(name, "me", served.clock())).result()
        served.loop.cancel(name)
    else:
        served.clock.now_s += 1e6
    breaks(served, "_take_approved")
    broken(served)
    for _ in range(3):
        served.turn(1.0)
    job = served.jobs()[name]
    assert (job.state, job.why) == (how, "" if how == "done" else "cancelled")
    served.close()


def test_who_came_in_a_turn_that_breaks_is_begun_whatever_the_store_does_then(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock())
    name, read = served.submit(**{**GANG, "devices": 8}), served.store.read

    def fails(function: Any) -> Any:
        served.store.read = read  # type: ignore[method-assign]
        raise StoreError("the store cannot be read: too many clients")

    breaks(served, "_ready")
    broken(served)
    served.store.read = fails  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        served.turn()
    until(served, lambda: served.jobs()[name].state == "running")
    assert [each.act for each in served.decisions()] == ["begin"]
    served.close()


def test_who_is_taken_in_while_it_is_read_who_there_is_comes_once(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock())
    served.loop._broke, stored = True, served.loop._stored
    names: list[str] = []

    def meanwhile() -> Any:
        names.append(served.submit(**{**GANG, "devices": 8}))
        return stored()

    served.loop._stored = meanwhile  # type: ignore[method-assign]
    served.turn()
    served.loop._stored = stored  # type: ignore[method-assign]
    until(served, lambda: served.jobs()[names[0]].state == "running")
    assert [each.name for each in served.loop.site.live.jobs] == names
    served.close()


def test_orders_that_find_no_thread_are_told_when_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    start, left = Thread.start, [3]

    def some(self: Thread) -> None:
        if self.name.startswith("begin"):
            if left[0] == 0:
                raise RuntimeError("can't start new thread")
            left[0] -= 1
        start(self)

    stubborn = Stubborn(0)
    served = Served.of(url(tmp_path), Clock(), stubborn, actuator="stubborn")
    names = [served.submit(**{**GANG, "devices": 8}) for _ in range(6)]
    monkeypatch.setattr(Thread, "start", some)
    served.turn()
    until(served, lambda: len(stubborn.jobs) == 3)
    assert "can't start new thread" in served.loop.workers["stubborn"].trouble
    left[0] = 100
    until(served, lambda: not served.loop._open)
    assert sorted(stubborn.jobs) == sorted(names)
    assert not served.loop.workers["stubborn"].trouble
    served.close()


def test_what_an_actuator_cannot_mean_is_no_word_of_it(tmp_path: Path):
    class Odd(Stubborn):
        odd = True

        def carry_out(self, order: JobOrder) -> Receipt:
            return replace(super().carry_out(order), plan=[1, 2] if self.odd else None)  # type: ignore[arg-type]

        def seen(self) -> Sequence[SeenJob]:
            found = super().seen()
            return [replace(each, key=None) for each in found] if self.odd else found  # type: ignore[arg-type]

    odd = Odd(0)
    served = Served.of(url(tmp_path), Clock(), odd, actuator="stubborn")
    name = served.submit(**{**GANG, "devices": 8})
    until(served, lambda: "by the order None" in served.loop.workers["stubborn"].fault)
    assert any("a plan that is list" in each for each in served.loop.workers["stubborn"]._unanswered.values())
    odd.odd = False
    until(served, lambda: served.jobs()[name].state == "running" and not served.loop._open)
    assert not served.loop.state.counts["turns broken"]
    served.close()


def test_a_job_of_before_that_is_nested_too_deep_is_refused_alone(tmp_path: Path):
    served, deep = Served.of(url(tmp_path), Clock()), dict[str, Any]()
    for _ in range(900):
        deep = {"a": deep}
    for key, run in (("deep", deep), ("flat", {"command": ["true"]})):
        spec = {"devices": 8, "duration_s": 100.0, "run": run}
        served.loop.come(*served.store.write(take_in(spec, key, "me", served.clock())).result())
    until(served, lambda: len(served.decisions()) == 1)
    assert {each.key: each.state for each in served.jobs().values()} == {"deep": "refused", "flat": "running"}
    served.close()


def test_who_ends_while_others_are_put_back_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The queue was of another version; the last of a training's plans comes in a turn in which a gang ends."""
    from hippo.serve.site import ServedSite

    clock = Clock()
    served = Served.of(url(tmp_path), clock)
    gang, training = served.submit(**{**GANG, "devices": 8, "duration_s": 100.0}), served.submit(tokens=1e12)
    until(served, lambda: not served.loop._open and len(served.decisions()) == 2)
    served.close()
    store = Store(url(tmp_path))
    store.write(lambda at: keep(at, "queue", b"of another version", 0.0)).result()
    store.close()
    lacks = ServedSite.lacks
    monkeypatch.setattr(ServedSite, "lacks", lambda self, kind: True)
    monkeypatch.setattr(ServedSite, "planned", lambda self, kind: offers())
    again = Served.of(url(tmp_path), clock)
    ready = again.loop._ready
    again.loop._ready = lambda job: "planning" if job.least else ready(job)  # type: ignore[method-assign]
    again.turn(1.0)
    assert {name: each.state for name, each in again.jobs().items()} == {gang: "running", training: "planning"}
    monkeypatch.setattr(ServedSite, "lacks", lacks)
    again.loop._ready = ready  # type: ignore[method-assign]
    again.turn(200.0)
    until(again, lambda: again.jobs()[training].state == "running")
    assert again.jobs()[gang].state == "done"
    again.close()


def test_the_loop_goes_on_after_a_turn_that_breaks_and_loses_nobody(tmp_path: Path):
    """By its own thread: the turn takes a job and breaks, the next one begins it."""
    served = Served.of(url(tmp_path), Clock())
    breaks(served, "_ready")
    name = served.submit(**{**GANG, "devices": 8})
    served.loop.start()
    beside(lambda: served.jobs()[name].state == "running")
    assert served.loop.state.counts["turns broken"] == 1
    assert [each.act for each in served.decisions()] == ["begin"]
    served.close()
