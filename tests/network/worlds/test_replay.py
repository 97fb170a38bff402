"""A trace replayed: what is told of it, and that work adds up."""

from __future__ import annotations

import numpy as np
import pytest
from tests.report.watched import (
    ACROSS,
    ALONE,
    EPOCH_S,
    EPOCHS,
    LEVER,
    TERMS,
    Scripted,
    make_book,
    make_story,
    make_world,
)

from hippo.errors import InfeasibleError
from hippo.network.rules.view import Action, How, View
from hippo.network.why.story import Story
from hippo.network.worlds.replay import Source, WatchedEpoch, replay


@pytest.fixture(scope="module")
def story() -> Story:
    return make_story()


def test_what_was_decided(story: Story) -> None:
    changes = [(told.epoch, told.kind, told.before, told.after) for told in story.decisions if told.changes]
    assert changes == [
        (0, "begun", -1, ACROSS),
        (3, "stop", ACROSS, ALONE),
        (8, "background", ALONE, ACROSS),
        (11, "lever", ACROSS, LEVER),
    ]


def test_why(story: Story) -> None:
    stop = next(told for told in story.decisions if told.kind == "stop")
    kinds = [reason.kind for reason in stop.reasons]
    assert kinds == ["link_moved", "fell_behind", "moved", "worth", "reward"]
    assert "a <-> b" in stop.sentences()[0]


def test_what_did_not_arrive_is_told_when_something_is_decided() -> None:
    cache = make_book()
    world = make_world(cache)
    world.told[3, 1] = False
    told = replay(world, cache, Scripted(), TERMS, Source("net.csv")).decisions
    stale = [reason for each in told if each.epoch == 3 for reason in each.reasons if reason.kind == "stale"]
    assert stale[0].subject == "b -> a"


def test_work_adds_up(story: Story) -> None:
    for track in story.tracks:
        net = track.tokens - track.egress_usd / story.usd_per_token
        assert track.net_tokens == pytest.approx(net)
        assert track.work == pytest.approx(net.sum())
    assert story.mine.work <= story.hindsight.work * (1 + 1e-9)
    assert story.keeping.work <= story.hindsight.work * (1 + 1e-9)
    assert story.mine.moves == 2
    assert story.mine.downtime_s.sum() > 0


def test_hindsight_is_played_as_it_was_searched(story: Story) -> None:
    """The path of the search, carried out epoch by epoch, gives the work that the search promised."""
    from hippo.network.worlds.hindsight import hindsight
    from hippo.network.worlds.world import rollout

    best = hindsight(rollout(make_world(story.cache), story.cache), story.usd_per_token)
    assert story.hindsight.work == pytest.approx(best.work)


def test_every_epoch_is_shown(story: Story) -> None:
    seen: list[WatchedEpoch] = []
    cache = make_book()
    replay(make_world(cache), cache, Scripted(), TERMS, Source("net.csv"), watcher=seen.append)
    assert [moment.epoch.view.epoch for moment in seen] == list(range(EPOCHS))
    assert seen[-1].net_tokens == pytest.approx(story.mine.work)
    assert seen[-1].keeping_net_tokens == pytest.approx(story.keeping.work)
    assert sum(moment.told is not None for moment in seen) == len(story.decisions)


def test_the_book_given_is_left_alone() -> None:
    cache = make_book()
    before = len(cache)
    replay(make_world(cache), cache, Scripted(), TERMS, Source("net.csv"))
    assert len(cache) == before


def test_the_document_is_json(story: Story) -> None:
    import json

    document = json.loads(json.dumps(story.document(), allow_nan=False))
    assert document["epochs"] == EPOCHS
    assert document["epoch_s"] == EPOCH_S
    assert set(document["work"]) == {"scripted", "keeping", "hindsight"}
    assert document["captured"] == story.captured


def test_who_has_thought_is_asked_again() -> None:
    class Thinker(Scripted):
        replanned = False

        def decide(self, view: View) -> Action:
            return Action(How.SWITCH, LEVER) if self.replanned and view.running != LEVER else Action()

        def replan(self, view: View) -> bool:
            self.replanned = view.epoch == 4
            return self.replanned

    cache = make_book()
    story = replay(make_world(cache), cache, Thinker(), TERMS, Source("net.csv"))
    assert [(told.epoch, told.kind) for told in story.decisions if told.changes] == [(0, "begun"), (4, "lever")]


def test_nothing_that_can_run_is_an_answer() -> None:
    class Stuck(Scripted):
        def begin(self, view: View) -> int:
            return -1

    cache = make_book()
    with pytest.raises(InfeasibleError, match="No plan can run"):
        replay(make_world(cache), cache, Stuck(), TERMS, Source("net.csv"))


def test_a_run_that_ends_with_nothing_to_run_says_so() -> None:
    cache = make_book()
    world = make_world(cache)
    assert not replay(world, cache, Scripted({}), TERMS, Source("net.csv")).stranded
    only = type(cache)(cache.problem)
    only.add(cache.configurations[ACROSS].plan, origin="hand")
    world.bandwidth_bytes_per_s[-1] = 0.0
    story = replay(world, only, Held(), TERMS, Source("net.csv"))
    stranded = story.stranded
    able = any(not (story.cache.bytes_per_step(index) > 0).any() for index in range(len(story.cache)))
    assert stranded is not able  # a plan in one domain, if planning found one, still runs
    assert np.isfinite(story.mine.work)


class Held(Scripted):
    """Keeps."""

    def decide(self, view: View) -> Action:
        return Action()
