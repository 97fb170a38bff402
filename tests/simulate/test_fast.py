"""The quick engine in small worlds solved by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.simulate.worlds import random_program

from hippo.schedule.schedule import order
from hippo.simulate import fast, reference
from hippo.simulate.abstract import PlannedLine, abstract_program, on_links, side_by_side
from hippo.simulate.program import Gather, Program, SyncGroup


def chain(name: str, p: int, m: int, **times: object) -> Program:
    return abstract_program(order(name, stages=p, micro_batches=m), **{"forward_s": 1.0, "backward_s": 2.0, **times})


def both(program: Program, **state: object) -> float:
    """Step time on which both engines agree."""
    step = fast.step_time(program, **state)
    assert reference.play(program, **state).step_time_s == pytest.approx(step, rel=1e-12)
    assert fast.play(program, **state).step_time_s == step
    return step


# ---------------------------------------------------------------------------------------------------- pipelines alone
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "cross-domain"])
@pytest.mark.parametrize(("p", "m"), [(1, 1), (1, 5), (4, 4), (4, 9), (8, 2)])
def test_equal_stages_take_one_slot_per_micro_batch_and_stage_but_one(name: str, p: int, m: int) -> None:
    assert both(chain(name, p, m)) == pytest.approx((m + p - 1) * (1.0 + 2.0))


@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 2), (4, 4, 4), (2, 6, 3)])
def test_interleaving_divides_the_bubble_by_the_chunks(p: int, m: int, v: int) -> None:
    program = abstract_program(order("interleaved", stages=p, micro_batches=m, chunks=v), forward_s=1.0, backward_s=2.0)
    assert both(program) == pytest.approx(3.0 * m + 3.0 * (p - 1) / v)


def test_a_fused_backward_holds_the_weight_gradient() -> None:
    assert both(chain("1f1b", 3, 4, backward_s=1.5, weight_s=0.5)) == pytest.approx((4 + 2) * 3.0)


def test_uneven_stages_wait_for_the_slowest() -> None:
    """GPipe is two flow shops: one wave through all stages, and the slowest stage for each further wave."""
    program = chain("gpipe", 3, 5, forward_s=(1.0, 3.0, 2.0), backward_s=(2.0, 4.0, 1.0))
    assert both(program) == pytest.approx((1 + 3 + 2) + 4 * 3 + (2 + 4 + 1) + 4 * 4)


def test_gpipe_pays_a_delay_once_each_way() -> None:
    assert both(chain("gpipe", 3, 4, delay_s=(0.5, 0.25))) == pytest.approx((4 + 2) * 3 + 2 * 0.75)


def test_one_f_one_b_pays_half_a_round_trip_for_each_micro_batch() -> None:
    """Two stages, F = 1, B = 2, one way 3: micro-batch 2 k + 1 leaves when the backward of 2 k - 1 has come home."""
    assert both(chain("1f1b", 2, 3, delay_s=3.0)) - both(chain("1f1b", 2, 1, delay_s=3.0)) == pytest.approx(2 * 6.0)


def test_running_ahead_hides_the_delay() -> None:
    ahead = abstract_program(
        order("1f1b", stages=2, micro_batches=12, live_limit=12), forward_s=1.0, backward_s=2.0, delay_s=3.0
    )
    assert both(ahead) == pytest.approx((12 + 1) * 3 + 2 * 3.0)


# -------------------------------------------------------------------------------------------------------------- links
def two_stages(
    m: int, lines: list[PlannedLine], *, down: list[int], up: list[int], num_bytes: float = 8.0, **more: float
) -> Program:
    """GPipe of two stages whose messages cross links."""
    return on_links(chain("gpipe", 2, m), lines, down=[down, []], up=[[], up], num_bytes=num_bytes, **more)


def test_a_link_that_is_slower_than_the_stages_queues() -> None:
    """Forwards leave at 1, 2, 3; the link takes 4 each: arrivals 5, 9, 13 plus 0.5. Then 3 B of 2 and 4 + 0.5 back."""
    program = two_stages(3, [PlannedLine(2.0, 0.5), PlannedLine(2.0, 0.5)], down=[0], up=[1])
    sent = fast.play(program)
    assert sent.message_start_s[:3] == pytest.approx([1, 5, 9])
    assert sent.message_end_s[:3] == pytest.approx([5.5, 9.5, 13.5])
    # Stage 1: F ends 6.5, 10.5, 14.5; B 16.5, 18.5, 20.5; back 21, 25, 29 (+ 4, first at 16.5: 20.5, 24.5, 28.5 + 0.5).
    assert both(program) == pytest.approx(28.5 + 0.5 + 2.0)


def test_both_ways_of_a_pair_are_links_of_their_own() -> None:
    """The same link for both ways would make gradients wait for activations; here nothing waits."""
    fastest = two_stages(1, [PlannedLine(8.0), PlannedLine(8.0)], down=[0], up=[1])
    assert both(fastest) == pytest.approx(1 + 1 + 1 + 2 + 1 + 2)


def test_two_replicas_share_one_link() -> None:
    """Messages of two equal replicas leave at the same instant: the lower rank first, the other 4 s later."""
    one = two_stages(1, [PlannedLine(2.0), PlannedLine(2.0)], down=[0], up=[1])
    alone, together = both(one), fast.play(side_by_side([one, one]))
    assert alone == pytest.approx(1 + 4 + 1 + 2 + 4 + 2)
    down = together.message_kind == 0
    assert together.message_rank[down].tolist() == [0, 2]
    assert together.message_start_s[down] == pytest.approx([1, 5])
    assert both(side_by_side([one, one])) == pytest.approx(alone + 4)


def test_the_total_of_replicas_on_a_link_bounds_the_step() -> None:
    pipeline = two_stages(6, [PlannedLine(2.0), PlannedLine(2.0)], down=[0], up=[1])
    assert both(side_by_side([pipeline] * 3)) >= 3 * 6 * 4


def test_a_relay_streams_and_uses_both_links() -> None:
    """4 s on the first link, 8 s on the second from the first byte in the middle on (1.5): 0.5 + 8 + 0.25 behind."""
    lines = [PlannedLine(2.0, 0.5), PlannedLine(1.0, 0.25), PlannedLine(100.0)]
    program = two_stages(1, lines, down=[0, 1], up=[2])
    played = fast.play(program)
    assert played.message_link.tolist() == [0, 1, 2]
    assert played.message_start_s[:2] == pytest.approx([1, 1.5])
    assert played.message_end_s[:2] == pytest.approx([5.5, 9.75])
    assert played.link_bytes == pytest.approx([8, 8, 8])
    assert both(program) == pytest.approx(9.75 + 1 + 2 + 0.08 + 2)


def test_a_relay_with_a_quick_second_link_waits_for_the_last_byte() -> None:
    lines = [PlannedLine(2.0, 0.5), PlannedLine(100.0, 0.25), PlannedLine(100.0)]
    assert fast.play(two_stages(1, lines, down=[0, 1], up=[2])).message_end_s[1] == pytest.approx(5.5 + 0.25)


def test_a_relayed_pair_and_a_direct_one_share_the_second_link() -> None:
    """Pipeline A sends 0 -> 1 directly; B relays over links 1 and 0: link 0 carries both, one after the other."""
    lines = [PlannedLine(2.0), PlannedLine(8.0), PlannedLine(1000.0)]
    direct = two_stages(1, lines, down=[0], up=[2])
    relayed = two_stages(1, lines, down=[1, 0], up=[2])
    played = fast.play(side_by_side([direct, relayed]))
    on_zero = (played.message_link == 0) & (played.message_kind == 0)
    assert played.message_start_s[on_zero] == pytest.approx([1, 5])
    assert played.message_rank[on_zero].tolist() == [0, 2]


def test_nodes_send_no_faster_than_their_cap() -> None:
    """8 bytes at 1 byte/s of the nodes: 8 s each, though the link takes 2; the link is free for others meanwhile."""
    program = two_stages(2, [PlannedLine(4.0), PlannedLine(4.0)], down=[0], up=[1], nic_bytes_per_s=1.0)
    played = fast.play(program)
    assert played.message_start_s[:2] == pytest.approx([1, 9])
    assert played.message_end_s[:2] == pytest.approx([9, 17])
    both(program)
    two = fast.play(side_by_side([two_stages(1, [PlannedLine(4.0)] * 2, down=[0], up=[1], nic_bytes_per_s=1.0)] * 2))
    assert two.message_start_s[two.message_kind == 0] == pytest.approx([1, 3])


def test_ranks_on_the_same_nodes_share_their_cap() -> None:
    """Two replicas, 8 bytes each, nodes of 1 byte/s: 8 s one after the other where they share a node, else at once."""
    one = two_stages(1, [PlannedLine(4.0)] * 2, down=[0], up=[1], nic_bytes_per_s=1.0)
    apart = side_by_side([one, one])
    together = replace(apart, rank_nodes=np.array([0, 1, 0, 2]))
    played = fast.play(together)
    assert played.message_start_s[played.message_kind == 0] == pytest.approx([1, 9])
    assert both(apart) == pytest.approx(1 + 2 + 8 + 1 + 2 + 8 + 2)  # the link is taken for 2 s by the first
    assert both(together) == pytest.approx(1 + 16 + 1 + 2 + 8 + 2)


def test_another_state_of_the_links() -> None:
    program = two_stages(1, [PlannedLine(2.0), PlannedLine(2.0)], down=[0], up=[1])
    assert both(program, bandwidth_bytes_per_s=np.array([4.0, 1.0])) == pytest.approx(1 + 2 + 1 + 2 + 8 + 2)
    assert both(program, latency_s=np.array([1.0, 3.0])) == pytest.approx(1 + 4 + 1 + 1 + 2 + 4 + 3 + 2)


def test_a_link_that_is_out_stops_the_step() -> None:
    program = two_stages(1, [PlannedLine(2.0), PlannedLine(2.0)], down=[0], up=[1])
    assert fast.step_time(program, bandwidth_bytes_per_s=np.array([0.0, 2.0])) == np.inf


def test_a_cap_per_node_moves_with_a_link_that_has_nothing_else() -> None:
    """At half its base the link's nodes send at half their cap; a link with a bandwidth of its own leaves the cap."""
    program = two_stages(1, [PlannedLine(1.0), PlannedLine(1000.0)], down=[0], up=[1], nic_bytes_per_s=1.0)
    halved = {"bandwidth_bytes_per_s": np.array([0.5, 1000.0])}
    marked = replace(program, link_per_node=np.array([True, False]))
    assert both(marked, **halved) - both(marked) == pytest.approx(8.0)
    wide = two_stages(1, [PlannedLine(4.0), PlannedLine(1000.0)], down=[0], up=[1], nic_bytes_per_s=1.0)
    assert both(wide, bandwidth_bytes_per_s=np.array([2.0, 1000.0])) == pytest.approx(both(wide))


# -------------------------------------------------------------------------------------------------- agreement, closing
def test_synchronisation_and_optimizer_follow_the_last_backward() -> None:
    program = replace(chain("1f1b", 2, 2), sync_s=np.array([0.5, 0.0]), finish_s=np.array([0.25, 3.0]))
    played = fast.play(program)
    assert both(program) == pytest.approx(max(9 + 0.5 + 0.25, 7 + 3.0))
    assert played.op_end_s[played.op_kind == 3] == pytest.approx([9.5, 7.0])


def test_a_group_waits_for_its_last_member_and_for_the_ring() -> None:
    """Two single-stage replicas of 3 and 6 s; 4 bytes each way at 1 byte/s; 2 rounds of the longest latency, 0.5."""
    lines = [PlannedLine(1.0, 0.25), PlannedLine(2.0, 0.5)]
    slow, quick = (
        abstract_program(order("1f1b", stages=1, micro_batches=m), forward_s=1.0, backward_s=2.0) for m in (2, 1)
    )
    one = on_links(slow, lines, down=[[]], up=[[]], num_bytes=0.0)
    two = on_links(quick, lines, down=[[]], up=[[]], num_bytes=0.0)
    group = SyncGroup((0, 1), (0, 1), (4.0, 4.0), hops=2.0, local_s=0.75)
    program = side_by_side([one, two], (group,))
    assert both(program) == pytest.approx(6 + 0.75 + 4 + 2 * 0.5)
    assert fast.play(program).link_bytes == pytest.approx([4, 4])


def test_groups_on_one_link_queue() -> None:
    lines = [PlannedLine(1.0)]
    one = on_links(chain("1f1b", 2, 1), lines, down=[[], []], up=[[], []], num_bytes=0.0)
    groups = tuple(SyncGroup((rank, rank + 2), (0,), (5.0,), hops=0.0) for rank in range(2))
    played = fast.play(side_by_side([one, one], groups))
    agreed = played.message_kind == 3
    assert played.message_start_s[agreed] == pytest.approx(
        [4, 9]
    )  # the last stage's group first: its backward ends at 4
    assert both(side_by_side([one, one], groups)) == pytest.approx(14)


def test_a_pass_lasts_as_long_as_its_parameters_take_to_come() -> None:
    program = on_links(chain("1f1b", 1, 2), [PlannedLine(2.0, 0.5)], down=[[]], up=[[]], num_bytes=0.0)
    gather = Gather((0,), np.array([[6.0]]), np.array([[2.0]]), rounds=1.0)
    assert both(replace(program, gather=gather)) == pytest.approx(2 * (3.5 + 2.0))
    played = fast.play(replace(program, gather=gather))
    assert played.rank_busy_s == pytest.approx([6.0])  # waiting is not computing


def test_an_order_that_deadlocks_is_our_fault() -> None:
    program = chain("1f1b", 2, 2)
    turned = np.concatenate([program.order[:4][::-1], program.order[4:]])
    with pytest.raises(AssertionError, match="deadlock"):
        fast.step_time(replace(program, order=turned))


def test_later_plays_follow_the_first() -> None:
    """The first play notes nothing, the second notes the sequence, the third follows it."""
    program = on_links(
        chain("1f1b", 4, 6),
        [PlannedLine(2.0, 0.1)] * 6,
        down=[[0], [1], [2], []],
        up=[[], [3], [4], [5]],
        num_bytes=3.0,
    )
    steps = {fast.step_time(program) for _ in range(5)}
    assert len(steps) == 1
    slower = fast.step_time(program, bandwidth_bytes_per_s=np.full(6, 1.0))
    fresh = replace(program, finish_s=program.finish_s.copy())
    assert slower == fast.step_time(fresh, bandwidth_bytes_per_s=np.full(6, 1.0)) > steps.pop()


@pytest.mark.parametrize("seed", range(40))
def test_outages_anywhere_give_a_time_or_none_at_all(seed: int) -> None:
    """With some links out the step lasts for ever or as long as before the outage of links it does not need."""
    program, rng = random_program(seed), np.random.default_rng(seed)
    out = program.link_bandwidth_bytes_per_s * (rng.random(len(program.link_latency_s)) < 0.7)
    step = fast.step_time(program, bandwidth_bytes_per_s=out)
    needed = fast.play(program).link_bytes > 0
    if program.gather is not None:
        needed[list(program.gather.links)] = True
    assert step == (np.inf if (needed & (out == 0)).any() else fast.step_time(program))
