"""The trace has the form that Perfetto reads: events of one track nest, tracks have names, messages have both ends."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from hippo.report.perfetto import trace
from hippo.report.story import PlanStory

Event = dict[str, Any]


def events_of(story: PlanStory) -> list[Event]:
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


METADATA = {
    "process_name": "name",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}


def check_form(document: dict[str, Any]) -> None:
    """Chrome's Trace Event Format: the keys and types that each phase needs, and both ends of every flow in a slice."""
    assert isinstance(document["traceEvents"], list)
    assert document["displayTimeUnit"] in ("ms", "ns")
    events: list[Event] = document["traceEvents"]
    for event in events:
        assert event["ph"] in "XMsfC"
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert list(event["args"]) == [METADATA[event["name"]]]
            continue
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] > 0
            assert isinstance(event.get("args", {}), dict)
        if event["ph"] == "C":
            assert event["args"]
            assert all(isinstance(value, int | float) and value >= 0 for value in event["args"].values())
    check_flows(events)


def check_flows(events: list[Event]) -> None:
    """Every flow has one start and one end, not before it, of one name and category, each where a slice starts."""
    slots = {(event["pid"], event["tid"], event["ts"]) for event in slices(events)}
    ends = {phase: {event["id"]: event for event in events if event["ph"] == phase} for phase in "sf"}
    assert ends["s"].keys() == ends["f"].keys()
    assert len(ends["s"]) + len(ends["f"]) == sum(event["ph"] in "sf" for event in events)
    for number, start in ends["s"].items():
        end = ends["f"][number]
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        assert start["ts"] <= end["ts"]
        assert end["bp"] == "e"  # ends in the slice around it, not in the next one
        assert {(event["pid"], event["tid"], event["ts"]) for event in (start, end)} <= slots


@pytest.mark.parametrize("size", ["small_story", "wide_story"])
def test_form(size: str, request: pytest.FixtureRequest) -> None:
    story = request.getfixturevalue(size)
    document = json.loads(trace(story))
    check_form(document)
    assert document["otherData"]["step_time_s"] == story.timeline.step_time_s
    assert all(e["ts"] + e["dur"] <= story.timeline.step_time_s * 1e6 + 1e-3 for e in slices(document["traceEvents"]))
    times = [event["ts"] for event in document["traceEvents"] if event["ph"] != "M"]
    assert times == sorted(times)


@pytest.mark.parametrize(
    "change",
    [
        {"ph": "X", "name": "F", "pid": 1, "tid": 1, "ts": 0.0},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"label": "x"}},
        {"ph": "s", "name": "message", "cat": "message", "id": 999, "pid": 1, "tid": 1, "ts": 0.0},
        {"ph": "C", "name": "rate", "pid": 1, "tid": 1, "ts": 0.0, "args": {"Gbit/s": "fast"}},
        {"ph": "Z", "name": "?", "pid": 1, "tid": 1},
    ],
)
def test_the_check_of_the_form_can_fail(small_story: PlanStory, change: Event) -> None:
    document = json.loads(trace(small_story))
    document["traceEvents"].append(change)
    with pytest.raises((AssertionError, KeyError)):
        check_form(document)


def test_counters_by_hand(small_story: PlanStory) -> None:
    events = events_of(small_story)
    there = [e for e in events if e["ph"] == "C" and e["name"] == "beijing -> guizhou, sending"]
    # Two messages of 2 Gbit each leave within 0.48 s, and arrive 20 ms later.
    assert [(e["ts"] / 1e6, e["args"]["Gbit/s"]) for e in there] == [(1.0, 4.167), (1.48, 0), (2.0, 4.167), (2.48, 0)]


def test_a_large_trace_stays_light(wide_story: PlanStory) -> None:
    text = trace(wide_story)
    assert len(text) < 120 * (len(wide_story.timeline.op_rank) + 5 * len(wide_story.timeline.message_link))


def test_operations_by_hand(small_story: PlanStory) -> None:
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


def test_messages_have_both_ends_and_their_link(small_story: PlanStory) -> None:
    events = events_of(small_story)
    threads = names(events, "thread_name")
    places = sorted(threads[e["pid"], e["tid"]] for e in slices(events) if e["name"] == "Activations 0")
    assert places == ["beijing -> guizhou", "beijing, layers 0-11: send", "guizhou, layers 12-23: receive"]
    starts = {e["id"] for e in events if e["ph"] == "s"}
    ends = {e["id"] for e in events if e["ph"] == "f"}
    assert starts == ends
    assert len(starts) == 4


def test_processes_are_domains_and_links(small_story: PlanStory) -> None:
    events = events_of(small_story)
    processes = names(events, "process_name")
    assert processes == {(1, 0): "beijing", (2, 0): "guizhou", (4, 0): "links between domains"}


def test_messages_on_their_way_together_get_tracks_of_their_own(wide_story: PlanStory) -> None:
    events = events_of(wide_story)
    threads = names(events, "thread_name").values()
    assert "north -> east" in threads
    assert "north -> east (2)" in threads  # each takes 2.1 s, one leaves every second
    assert "north -> east (4)" not in threads


def test_every_track_is_named(wide_story: PlanStory) -> None:
    events = events_of(wide_story)
    threads = names(events, "thread_name")
    assert {(e["pid"], e["tid"]) for e in slices(events)} == set(threads)
    assert len(set(threads.values())) == len(threads)
