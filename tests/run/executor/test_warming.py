"""New connections that are used before they are needed: turns by hand, who waits, and what is left of the ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from hippo.run.executor import warming
from hippo.run.executor.channels import Meeting
from hippo.run.executor.spare import PeerFlow
from hippo.run.executor.warming import AHEAD_BYTES, FIRST_BYTES, MOST_BYTES, QuietLink, take_turns, turns

PRODUCT = 500_000.0  # 100 Mbit/s, 40 ms there and back
PAIR, VIA = "pair-0-0-1", "via-2-pair-0-0-1"


def test_each_turn_sends_what_a_fresh_flow_may_and_all_are_about_a_product() -> None:
    assert turns(PRODUCT) == (14_480, 28_960, 57_920, 115_840, 231_680)
    assert turns(0.0) == turns(FIRST_BYTES / 2) == ()
    for product in (1e5, PRODUCT, 2.5e6, 4e6):
        window = FIRST_BYTES
        for size in turns(product):
            assert size <= window, "slow start would hold it back for a round trip"
            window *= 2  # as all of it was acknowledged
        assert 2 / 3 <= window / product <= 4 / 3
        assert 2 / 3 <= sum(turns(product)) / product <= 4 / 3
    assert sum(turns(1e12)) < 1.5 * MOST_BYTES


class Told:
    """Connections of a place, of which the next look tells."""

    def __init__(self, *outstanding: int) -> None:
        self.left = list(outstanding)

    def to(self, address: str) -> list[PeerFlow]:
        """One of them."""
        return [PeerFlow((1, 2), self.left.pop(0) if len(self.left) > 1 else self.left[0], 0, 0.0, 0.0)]

    def close(self) -> None:
        """Nothing is held."""


def test_a_turn_waits_for_what_trains_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(warming.time, "sleep", slept.append)
    quiet = QuietLink("127.0.0.1", PRODUCT)
    quiet.close()
    quiet._connections = Told(400_000, 200_000, 100_000)  # type: ignore[assignment]
    quiet.wait()
    assert len(slept) == 2, "until less than a quarter of the product is under way"
    quiet._connections = Told(400_000)  # type: ignore[assignment]
    quiet.wait()
    assert sum(slept) == pytest.approx(warming.PATIENCE_S, abs=2 * warming.LOOK_S)
    quiet.wait()
    assert sum(slept) == pytest.approx(warming.PATIENCE_S, abs=2 * warming.LOOK_S), "of all turns together"


def test_where_the_kernel_tells_nothing_turns_follow_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise OSError

    monkeypatch.setattr(warming, "Connections", refused)
    made: list[int] = []
    monkeypatch.setattr(warming.time, "sleep", lambda seconds: made.append(-1))
    take_turns("127.0.0.1", PRODUCT, made.append, lambda: made.append(0))
    assert made == [part for size in turns(PRODUCT) for part in (AHEAD_BYTES, -1, size - AHEAD_BYTES, 0)]


@pytest.mark.parametrize(("name", "ends"), [(PAIR, (0, 1)), (VIA, (0, 2, 1))])
def test_ways_that_were_warmed_carry_messages_as_others_do(name: str, ends: Sequence[int], tmp_path: Path) -> None:
    def warmth(way: str, one: int, other: int) -> float:
        return PRODUCT if way == name else 0.0

    def met(process: int) -> Meeting:
        meeting = Meeting(tmp_path, process)
        found = meeting.groups({name: ends, f"{name}-cold": ends}, warmth)
        assert found == meeting.groups({name: ends, f"{name}-cold": ends}, warmth), "they are made once"
        return meeting

    with ThreadPoolExecutor(len(ends)) as pool:
        meetings = dict(zip(ends, pool.map(met, ends), strict=True))
    senders = {process: process != ends[-1] for process in ends}
    assert {process: each.warmed_bytes for process, each in meetings.items()} == {
        process: sum(turns(PRODUCT)) * sends for process, sends in senders.items()
    }
    failed: list[BaseException] = []
    sent, came = (meetings[process].channel(name, failed=failed.append) for process in (ends[0], ends[-1]))
    into, heard = [torch.zeros(3), torch.zeros(3)], [False, False]
    for at in range(2):
        came.receive(into[at], at, _note(heard, at))
        sent.send(torch.arange(3.0) + at, at)
    while not all(heard):
        assert not failed
    assert [each.tolist() for each in into] == [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]
    for each in meetings.values():
        each.close()


def _note(heard: list[Any], at: int) -> Callable[[], None]:
    return lambda: heard.__setitem__(at, True)


def test_what_is_not_warmed_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL makes its connections itself."""
    meeting = Meeting(tmp_path, 0, talks_on="cuda")
    monkeypatch.setattr(meeting, "_new", lambda name, processes, product: name)
    assert meeting.groups({PAIR: (0, 1)}, lambda name, one, other: PRODUCT) == {PAIR: PAIR}
    assert meeting.warmed_bytes == 0
