"""The trace has the form that Perfetto reads: events of one track nest, tracks have names, messages have both ends."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from hippo.report.perfetto import trace
from hippo.report.story import Story

Event = dict[str, Any]


def events_of(story: Story) -> list[Event]:
    events: list[Event] = json.loads(trace(story))["traceEvents"]
    return events


def slices(events: list[Event]) -> list[Event]:
    return [event for event in events if event["ph"] == "X"]


def names(events: list[Event], what: str) -> dict[tuple[int, int], str]:
    found = [event for event in events if event["ph"] == "M" and event["name"] == what]
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in found}


def check_nesting(events: list[Event]) -> None:
    """On every track each event lies inside the one that is open, or starts when nothing is open."""
    tracks = defaultdict(list)
    for event in slices(events):
        start = round(event["ts"] * 1000)
        tracks[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
    for track, spans in tracks.items():
        open_until: list[int] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1], f"events of track {track} overlap"
            open_until.append(end)


@pytest.mark.parametrize("size", ["small_story", "wide_story"])
def test_events_of_a_track_nest(size: str, request: pytest.FixtureRequest) -> None:
    check_nesting(events_of(request.getfixturevalue(size)))


def test_the_check_of_nesting_can_fail() -> None:
    overlapping = [{"ph": "X", "pid": 1, "tid": 1, "ts": ts, "dur": 2.0} for ts in (0.0, 1.0)]
    with pytest.raises(AssertionError, match="overlap"):
        check_nesting(overlapping)


def test_form(small_story: Story) -> None:
    document = json.loads(trace(small_story))
    assert document["otherData"] == {"model": "toy-4b", "cluster": "hand-made", "step_time_s": 11.0}
    for event in document["traceEvents"]:
        assert {"ph", "name", "pid", "tid"} <= event.keys()
        assert event["ph"] in "XMsf"
        if event["ph"] == "X":
            assert event["dur"] > 0
            assert 0 <= event["ts"] <= 11e6
            assert isinstance(event["args"], dict)


def test_operations_by_hand(small_story: Story) -> None:
    events = events_of(small_story)
    threads = names(events, "thread_name")
    computing = [e for e in slices(events) if threads[e["pid"], e["tid"]] == "beijing, layers 0-11: compute"]
    assert [(e["name"], e["ts"] / 1e6, e["dur"] / 1e6) for e in computing] == [
        ("Forward 0", 0.0, 1.0),
        ("Forward 1", 1.0, 1.0),
        ("Backward 0", 5.0, 2.0),
        ("Backward 1", 8.0, 2.0),
        ("Synchronise", 10.0, 0.5),
        ("Optimizer", 10.5, 0.5),
    ]


def test_messages_have_both_ends_and_their_link(small_story: Story) -> None:
    events = events_of(small_story)
    threads = names(events, "thread_name")
    places = sorted(threads[e["pid"], e["tid"]] for e in slices(events) if e["name"] == "Activations 0")
    assert places == ["beijing -> guizhou", "beijing, layers 0-11: send", "guizhou, layers 12-23: receive"]
    starts = {e["id"] for e in events if e["ph"] == "s"}
    ends = {e["id"] for e in events if e["ph"] == "f"}
    assert starts == ends
    assert len(starts) == 4


def test_processes_are_domains_and_links(small_story: Story) -> None:
    events = events_of(small_story)
    processes = names(events, "process_name")
    assert processes == {(1, 0): "beijing", (2, 0): "guizhou", (4, 0): "links between domains"}


def test_messages_on_their_way_together_get_tracks_of_their_own(wide_story: Story) -> None:
    events = events_of(wide_story)
    threads = names(events, "thread_name").values()
    assert "north -> east" in threads
    assert "north -> east (2)" in threads  # each takes 2.1 s, one leaves every second
    assert "north -> east (4)" not in threads


def test_every_track_is_named(wide_story: Story) -> None:
    events = events_of(wide_story)
    threads = names(events, "thread_name")
    assert {(e["pid"], e["tid"]) for e in slices(events)} == set(threads)
    assert len(set(threads.values())) == len(threads)
