"""The packed timeline tells what the played one holds."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest

from hippo.report.panels.timeline import KINDS, MIXED, TICKS, pack, rank_shares
from hippo.report.story import PlanStory


def starts_and_ends(rank: dict[str, list[int]]) -> tuple[list[int], list[int]]:
    """Undoes the packing."""
    ends = list(accumulate(gap + length for gap, length in zip(rank["gap"], rank["length"], strict=True)))
    return [end - length for end, length in zip(ends, rank["length"], strict=True)], ends


def test_operations_of_the_hand_played_step(small_story: PlanStory) -> None:
    first, second = pack(small_story)["ranks"]
    assert (first["name"], first["domain"], first["pipeline"]) == ("beijing, layers 0-11", "beijing", 1)
    assert first["kind"] == "001134"
    assert first["micro_batch"] == [0, 1, 0, 1, -1, -1]
    assert second["kind"] == "010134"
    start, end = starts_and_ends(first)
    assert [tick * 11 / TICKS for tick in start] == pytest.approx([0, 1, 5, 8, 10, 10.5], abs=1e-5)
    assert [tick * 11 / TICKS for tick in end] == pytest.approx([1, 2, 7, 10, 10.5, 11], abs=1e-5)


def test_messages_of_the_hand_played_step(small_story: PlanStory) -> None:
    there, back = pack(small_story)["links"]
    assert (there["from"], there["to"], there["kind"]) == ("beijing", "guizhou", "00")
    assert (back["from"], back["to"], back["kind"]) == ("guizhou", "beijing", "11")
    start = np.cumsum(there["start"])
    assert start * 11 / TICKS == pytest.approx([1.0, 2.0], abs=1e-5)
    assert there["mb"] == [250.0, 250.0]


def test_shares_of_the_hand_played_step(small_story: PlanStory) -> None:
    first, second = rank_shares(small_story)
    assert first.shares == pytest.approx([2 / 11, 4 / 11, 0, 0.5 / 11, 0.5 / 11])
    assert first.idle_share == pytest.approx(4 / 11)
    assert second.name == "guizhou, layers 12-23"


def test_large_schedules_are_told_in_blocks_that_lose_nothing(wide_story: PlanStory) -> None:
    packed = pack(wide_story, most_blocks=4000)
    assert packed["block"] == 9  # 64 x 513 operations over 4000
    ranks = packed["ranks"]
    assert sum(len(rank["gap"]) for rank in ranks) <= 4000
    assert {kind for rank in ranks for kind in rank["kind"]} == {str(MIXED)}
    timeline = wide_story.timeline
    for number in (0, 63):
        ticks = np.sum(ranks[number]["mixed"], axis=0)
        own = timeline.op_rank == number
        lengths = (timeline.op_end_s - timeline.op_start_s)[own]
        wanted = np.bincount(timeline.op_kind[own], lengths, len(KINDS)) / timeline.step_time_s * TICKS
        assert ticks == pytest.approx(wanted, abs=300)  # one tick of rounding an operation at most


def test_blocks_do_not_overlap(wide_story: PlanStory) -> None:
    for most in (4000, 60_000):
        for rank in pack(wide_story, most_blocks=most)["ranks"]:
            assert min(rank["gap"]) >= 0
            assert min(rank["length"]) > 0
            assert starts_and_ends(rank)[1][-1] <= TICKS


def test_many_messages_are_thinned_evenly(wide_story: PlanStory) -> None:
    links = pack(wide_story, most_blocks=120)["links"]
    assert [link["every"] for link in links] == [7, 7, 7]  # 256 messages on each of 3 links, 40 to draw on each
    assert all(len(link["start"]) <= 40 for link in links)
