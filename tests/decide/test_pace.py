"""Two stages of 1 s forward and 2 s backward, four micro-batches, a message of so many seconds between them."""

from __future__ import annotations

import pytest

from hippo.decide.pace import (
    binding,
    bottleneck,
    capacities,
    gpu_tokens_per_s,
    link_busy_share,
    link_rate_bytes_per_s,
    link_thresholds,
    sensitivity,
)


def test_what_binds_is_what_would_help_if_it_were_better(worlds):
    """Of 62 s, 50 are messages and 12 computing: one forward and backward of each stage, and three of the first's."""
    game = worlds.across(send_s=10.0)
    assert game.step_time_s == pytest.approx(62.0)
    reason = binding(game, 0.5)
    assert reason.subject == "bandwidth"
    assert reason.bandwidth_gain_share == pytest.approx(5 / 62)
    assert reason.compute_gain_share == pytest.approx(1.2 / 62)
    assert reason.latency_gain_share == 0.0


def test_a_share_of_waiting_alone_does_not_bind(worlds):
    """Waiting takes 8 of 20 s, but the stages would gain most."""
    game = worlds.across(send_s=1.0)
    reason = binding(game, 0.5)
    assert reason.subject == "compute"
    assert reason.compute_gain_share > reason.bandwidth_gain_share > 0


def test_free_links_leave_compute_and_bubble(worlds):
    reason = binding(worlds.across(send_s=0.0), 0.5)
    # 15 s: four micro-batches of 3 s on the busiest stage, and fill and drain of one micro-batch on the other
    assert reason.subject == "compute"
    assert reason.compute_share == pytest.approx(12 / 15)
    assert reason.bubble_share == pytest.approx(3 / 15)
    assert reason.bandwidth_share == reason.latency_share == pytest.approx(0.0)
    assert "bandwidth" not in reason.sentence()  # what takes nothing is not said


@pytest.mark.parametrize(("send_s", "latency_s"), [(0.5, 0.0), (0.0, 0.5), (4.0, 0.0), (0.3, 2.0), (10.0, 1.0)])
def test_the_waterfall_adds_up_to_the_step(worlds, send_s, latency_s):
    reason = binding(worlds.across(send_s=send_s, latency_s=latency_s), 0.5)
    shares = (reason.compute_share, reason.bubble_share, reason.bandwidth_share, reason.latency_share)
    assert sum(shares) + reason.synchronisation_share == pytest.approx(1.0)
    assert min(shares) >= -1e-9


def test_a_slow_link_binds_and_is_the_bottleneck(worlds):
    game = worlds.across(send_s=10.0)
    # each way sends its 40 s one after the other; the last gradient must wait for the last activation
    assert binding(game, 0.5).subject == "bandwidth"
    reason = bottleneck(game, binding(game, 0.5))
    assert reason.subject == "the link a <-> b"
    assert reason.slower_share == pytest.approx(5 / 62)  # 40 s there, 10 s back: 50 of the 62 s are messages
    assert reason.busy_share == pytest.approx(40 / game.step_time_s)


def test_a_slow_stage_is_the_bottleneck(worlds):
    game = worlds.across(send_s=0.01, forward=(1.0, 2.0))
    reason = bottleneck(game, binding(game, 0.5))
    assert reason.subject == "stage 2 (layers 3-5 in b)"
    assert reason.slower_share == pytest.approx(0.1 * 24 / 27, rel=0.01)  # 24 of about 27 s are its own


def test_a_step_bound_by_latency_says_so(worlds):
    game = worlds.across(send_s=1e-6, latency_s=20.0)
    reason = binding(game, 0.5)
    assert reason.subject == "latency"
    thresholds = link_thresholds(game)
    assert {item.quantity for item in thresholds if item.crossed} == {"latency"}


def test_what_a_link_gives_and_how_busy_it_is(worlds):
    game = worlds.across(send_s=0.5, latency_s=0.25)
    assert link_rate_bytes_per_s(game, 0) == pytest.approx(1e9)
    assert link_busy_share(game, 0) == pytest.approx(4 * 0.5 / game.step_time_s)


def test_tokens_carried_against_tokens_computed(worlds):
    game = worlds.across(send_s=10.0)
    used, everything = gpu_tokens_per_s(game)
    assert used == pytest.approx(400 / 15)  # four sequences of 100 tokens in the 15 s without links
    assert everything == pytest.approx(used)  # both GPUs are in use
    first = capacities(game)[0]
    assert first.link_tokens_per_s == pytest.approx(100 / 10.0)  # a sequence takes the link 10 s
    assert first.in_use
    assert "the GPUs wait" in first.sentence()


def test_one_domain_alone_names_the_widest_way_out(worlds):
    (exit_,) = capacities(worlds.alone())
    assert not exit_.in_use
    assert exit_.subject == "the link a -> b"
    assert exit_.link_tokens_per_s == pytest.approx(1e9 / (2 * 256))  # B / (2 h)


def test_bandwidth_threshold_lies_where_the_link_stops_to_cost(worlds):
    game = worlds.across(send_s=10.0)
    threshold = next(item for item in link_thresholds(game) if item.quantity == "bandwidth")
    assert threshold.crossed
    assert threshold.threshold > threshold.actual == pytest.approx(1e9)
    # 15 s without the link and 4 s a message while one takes 3 s or less: 5 % more are 3/16 s a message, 10 s today
    assert threshold.threshold == pytest.approx(1e9 * 10 / (0.75 / 4), rel=0.01)
    assert "no more than 5.0 %" in threshold.sentence()


def test_a_link_with_room_tells_how_far_it_may_fall(worlds):
    game = worlds.across(send_s=0.01)
    (threshold,) = link_thresholds(game)
    assert not threshold.crossed
    assert threshold.threshold < threshold.actual
    assert "only below" in threshold.sentence()


def test_sensitivity_has_the_right_signs(worlds):
    (slow,) = sensitivity(worlds.across(send_s=10.0))
    assert slow.links == ("the link a <-> b",)
    assert slow.slower_share == pytest.approx((50 * (1 / 0.7 - 1) / 62,))  # 50 of the 62 s are messages
    assert slow.faster_share == pytest.approx((50 * (1 - 1 / 1.3) / 62,))
    (quick,) = sensitivity(worlds.across(send_s=1e-6))
    assert "without moving the step time" in quick.sentence()
    assert sensitivity(worlds.alone()) == ()


def test_of_a_pair_of_links_the_tighter_way_is_told(worlds):
    assert len(capacities(worlds.across(send_s=10.0))) == 1
    assert len([item for item in link_thresholds(worlds.across(send_s=10.0)) if item.quantity == "bandwidth"]) == 1
