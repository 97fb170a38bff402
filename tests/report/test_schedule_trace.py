"""A schedule's trace: golden for a tiny one; slices of a track never overlap, arrows have both ends."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from hippo.report.schedule_marks import longest_way, memory_over_time, messages
from hippo.report.schedule_trace import schedule_trace
from hippo.schedule.methods import generate
from hippo.schedule.problem import RankLink, ScheduleProblem
from hippo.schedule.replay import Replay, replay

Event = dict[str, Any]


def played(method: str, problem: ScheduleProblem) -> Replay:
    return replay(problem, generate(method, problem))


def events(found: Replay) -> list[Event]:
    told: list[Event] = json.loads(schedule_trace(found))["traceEvents"]
    return told


TINY = [
    "process 1: ranks (zb-h1)",
    "track 1/1: rank 0",
    "track 1/2: rank 1",
    "process 2: links",
    "track 2/1: rank 0 -> rank 1",
    "track 2/2: rank 1 -> rank 0",
    "1/1 0 to 1000: Forward 0",
    "1/1 0: memory 1.0",
    "1/1 999.999: s 0",
    "2/1 1000 to 1500: Activations 0",
    "2/1 1000: t 0",
    "1/2 1500 to 2500: Forward 0",
    "1/2 1500: memory 1.0",
    "1/2 1500: f 0",
    "1/2 2500 to 3500: Backward 0",
    "1/2 3499.999: s 1",
    "1/2 3500 to 4500: Weight gradient 0",
    "2/2 3500 to 4000: Gradients of activations 0",
    "2/2 3500: t 1",
    "1/1 4000 to 5000: Backward 0",
    "1/1 4000: f 1",
    "1/2 4500: memory 0.0",
    "1/1 5000 to 6000: Weight gradient 0",
    "1/1 6000: memory 0.0",
]


def line(event: Event) -> str:
    """An event as text; times in us."""
    place = f"{event['pid']}/{event['tid']}"
    if event["ph"] == "M":
        what = f"process {event['pid']}" if event["name"] == "process_name" else f"track {place}"
        return f"{what}: {event['args']['name']}"
    if event["ph"] == "X":
        return f"{place} {event['ts']:g} to {event['ts'] + event['dur']:g}: {event['name']}"
    if event["ph"] == "C":
        return f"{place} {event['ts']:g}: memory {event['args']['held']}"
    return f"{place} {event['ts']}: {event['ph']} {event['id']}".replace(".0:", ":")


def test_a_tiny_trace() -> None:
    """p 2, m 1, all times 1, delay .5: one unit is a millisecond."""
    found = events(played("zb-h1", ScheduleProblem.uniform(2, 1, comm=0.5)))
    assert [line(event) for event in found if not event["name"].endswith("sort_index")] == TINY


WORLDS = {
    "plain": ("zb-h1", ScheduleProblem.uniform(4, 9, (1.0, 1.05, 0.75), comm=[0.1, 5.0, 0.0])),
    "fused": ("1f1b", ScheduleProblem.uniform(4, 9, comm=0.5)),
    "looped": ("interleaved", ScheduleProblem.uniform(4, 8, comm=0.5).placed("looped")),
    "v": ("zb-v", ScheduleProblem.uniform(4, 8, comm=0.5).placed("v")),
    "bidirectional": ("dualpipe", ScheduleProblem.uniform(4, 8, comm=0.5).placed("bidirectional")),
    "sending": ("1f1b", replace(ScheduleProblem.uniform(2, 6), down=(RankLink(1.0, 2.0),), up=(RankLink(0.0, 0.5),))),
    "reducing": ("zb-h1", replace(ScheduleProblem.uniform(4, 9, comm=0.5), reduction=(0.0, 30.0, 0.5, 2.0))),
    "quick": ("zb-h1", ScheduleProblem.uniform(3, 5, (1e-7, 2e-7, 1e-7), comm=5e-8)),
}


@pytest.fixture(scope="module", params=WORLDS)
def world(request: pytest.FixtureRequest) -> Replay:
    return played(*WORLDS[request.param])


def test_slices_of_a_track_do_not_overlap(world: Replay) -> None:
    tracks = defaultdict(list)
    for event in events(world):
        if event["ph"] == "X":
            assert event["dur"] > 0
            tracks[event["pid"], event["tid"]].append((round(event["ts"] * 1000), round(event["dur"] * 1000)))
    assert sum(map(len, tracks.values())) >= len(world.schedule.order)
    for spans in tracks.values():
        spans.sort()
        assert all(start + length <= after for (start, length), (after, _) in zip(spans, spans[1:], strict=False))


def test_arrows_go_from_the_sender_to_the_receiver(world: Replay) -> None:
    ends: dict[int, list[Event]] = defaultdict(list)
    for event in events(world):
        if event["ph"] in "stf":
            ends[event["id"]].append(event)
    sent = messages(world)
    assert len(ends) == len(sent)
    for index, found in ends.items():
        assert [event["ph"] for event in found] in (["s", "t", "f"], ["s", "f"])
        assert (found[0]["tid"] - 1, found[-1]["tid"] - 1) == (sent[index].sender, sent[index].receiver)


def test_no_operation_starts_before_its_message_has_arrived(world: Replay) -> None:
    """Two ways to the same arrivals: the replay's kernel, and the messages drawn here."""
    waits = {arrow["id"]: arrow["ts"] for arrow in events(world) if arrow["ph"] == "f"}
    scale = float(json.loads(schedule_trace(world))["otherData"]["one_unit_of_time_is_shown_as"].split()[0]) * 1000
    for index, message in enumerate(messages(world)):
        assert message.arrives * scale <= waits[index] + 0.001


def test_memory_begins_and_ends_with_nothing(world: Replay) -> None:
    for rank in range(world.problem.ranks):
        at, held = memory_over_time(world, rank)
        assert (at[1:] > at[:-1]).all()
        assert held[-1] == 0
        assert (held >= 0).all()


def test_the_longest_way_is_as_long_as_the_schedule(world: Replay) -> None:
    way = longest_way(world)
    told = sum(way.computing) + sum(time for _, time in way.travelling) + way.agreeing
    assert told == pytest.approx(world.makespan)
    assert world.end[way.operations[-1]] + way.agreeing == world.makespan
    assert world.start[way.operations[0]] == 0


def test_the_reduction_follows_the_last_operation() -> None:
    """p 2, m 1, all times 1, delay .5: rank 1 ends at 3.5 (F from 1.5, B, W) and agrees for 2, rank 0 at once."""
    found = events(played("zb-h1", replace(ScheduleProblem.uniform(2, 1, comm=0.5), reduction=(0.0, 2.0))))
    assert [line(event) for event in found if event["name"] == "Reduction of gradients"] == [
        "1/2 4500 to 6500: Reduction of gradients"
    ]


def test_a_longest_way_by_hand() -> None:
    """p 2, m 1, delay 3: F, message, F, B, message, B, W."""
    way = longest_way(played("zb-h1", ScheduleProblem.uniform(2, 1, comm=3.0)))
    assert way.computing == (2.0, 2.0, 1.0)
    assert way.travelling == (((0, 1), 6.0),)
    assert way.crossings == 2


def test_one_message_at_a_time_on_a_link() -> None:
    sent = [each for each in messages(played(*WORLDS["sending"])) if each.sender == 0]
    assert [(each.leaves, each.arrives) for each in sent[:2]] == [(1.0, 4.0), (3.0, 6.0)]
