"""A short batch of kills finds nothing, and finds what is wrong where the loop is made to forget."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from benchmarks import kills

from hippo.problem.load import load_cluster
from hippo.serve.loop import ServeLoop
from hippo.serve.records import STEERED, JobOrder, Receipt
from hippo.serve.store import Store


@dataclass
class Site:
    """A store with its client, to be killed."""

    folder: Path

    def __post_init__(self) -> None:
        kills.warmed()
        self.client, self.store = kills.Client(0), f"sqlite:///{self.folder / 'store.db'}"
        self.client.token = kills.first(self.store, self.folder)
        self.client.pairs = [(each.source, each.destination) for each in load_cluster("four-hubs").links]

    def found(self, steps: list[str]) -> list[str]:
        kills.batch(self.store, self.folder, steps, 0, self.client)
        return self.client.wrong


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("most", [3, pytest.param(len(kills.STEPS), marks=pytest.mark.slow)])
def test_nothing_is_lost_or_done_twice(site: Site, most: int):
    steps = list(kills.STEPS)
    random.Random(0).shuffle(steps)
    assert not site.found(steps[:most])
    assert len(site.client.jobs) >= min(most, 5)
    assert len(site.client.decisions) >= min(most, 5)


@pytest.mark.slow
def test_a_loop_that_hands_orders_on_before_they_are_written_is_found_out(site: Site, monkeypatch: pytest.MonkeyPatch):
    whole, written = ServeLoop._order, ServeLoop._written

    def early(self: ServeLoop, *args: Any) -> None:
        whole(self, *args)
        due, self._due = self._due, []
        for order, actuator in due:
            self._hand(order, actuator)

    def late(self: ServeLoop) -> bool:
        time.sleep(0.1)
        return written(self)

    monkeypatch.setattr(ServeLoop, "_order", early)
    monkeypatch.setattr(ServeLoop, "_written", late)
    assert site.found(["carried out, not answered"] * 6)


@pytest.mark.slow
def test_a_store_that_answers_and_has_not_written_is_found_out(site: Site, monkeypatch: pytest.MonkeyPatch):
    whole, turn = Store._write_together, count()

    def lies(self: Store, asked: list[Any]) -> None:
        begins = self.engine.begin
        try:
            if next(turn) % 3 == 2:
                self.engine.begin = lambda: _Undone(begins())  # type: ignore[method-assign,assignment]
            whole(self, asked)
        finally:
            self.engine.begin = begins  # type: ignore[method-assign]

    monkeypatch.setattr(Store, "_write_together", lies)
    assert site.found(["carried out, not answered"] * 4)


@pytest.mark.slow
def test_a_loop_that_does_not_learn_what_runs_is_found_out(site: Site, monkeypatch: pytest.MonkeyPatch):
    """Where nobody is ever told under which plan a job runs after a lever, the next lever is for another plan."""
    whole = ServeLoop._took_answer

    def forgets(self: ServeLoop, order: JobOrder, receipt: Receipt, now_s: float) -> None:
        whole(self, order, replace(receipt, plan=None) if order.act in STEERED else receipt, now_s)

    monkeypatch.setattr(ServeLoop, "_took_answer", forgets)
    monkeypatch.setattr(kills, "CHANGED", 1.0)
    batches = (site.found([kills.INSTANT] * 6) for _ in range(6))  # a busy machine changes few plans in one of them
    assert any("believed to run" in each for found in batches for each in found)


class _Undone:
    """A transaction that is undone, and says that it was done."""

    def __init__(self, whole: Any) -> None:
        self.whole = whole

    def __enter__(self) -> Any:
        self.connection = self.whole.__enter__()
        return self.connection

    def __exit__(self, *told: Any) -> Any:
        self.connection.get_transaction().rollback()
        return self.whole.__exit__(*told)
