"""The player of messages against timelines that were worked out by hand, one for each runtime.

Forwards take 1 s, backwards 1 s for the input and 1 s for the weights, the slow border 10 s each way unless said.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from .message_rules import Border, Orders, Pipeline, gpipe, one_f_one_b
from .messages import GLOO, NCCL, SOCKETS, Transport, play

SLOW, NEAR = Border(delay_s=(10.0, 10.0)), Border()


def _pipeline(orders: Orders, *borders: Border) -> Pipeline:
    return Pipeline(orders, ({"F": 1.0, "B": 1.0, "W": 1.0},) * len(orders), borders)


TWO = _pipeline(one_f_one_b(2, 2), SLOW)
SPLIT = _pipeline(
    (
        (("F", 0), ("F", 1), ("B", 0), ("W", 0), ("B", 1), ("W", 1)),
        (("F", 0), ("B", 0), ("F", 1), ("B", 1), ("W", 0), ("W", 1)),
    ),
    SLOW,
)


@pytest.mark.parametrize("runtime", ["ideal", "hippo", "megatron", "megatron-zb", "torch", "torch-csv", "deepspeed"])
def test_no_delay_no_difference(runtime: str) -> None:
    """1F1B takes (micro-batches + ranks - 1) turns of 3 s."""
    assert play(_pipeline(one_f_one_b(4, 6), NEAR, NEAR, NEAR), runtime).step_s == 27.0


@pytest.mark.parametrize("runtime", ["ideal", "hippo"])
def test_nobody_waits_for_a_send(runtime: str) -> None:
    # rank 0: F0 0-1  F1 1-2                              BW0 24-26  BW1 27-29
    # rank 1:                F0 11-12  BW0 12-14  F1 14-15  BW1 15-17
    played = play(TWO, runtime)
    assert played.step_s == 29.0
    assert played.operations[1, "F", 1] == (14.0, 15.0)
    assert played.messages[0, 1, 0] == (14.0, 24.0)


def test_megatron_waits_for_both_ways() -> None:
    # rank 0: F0 0-1, its send until 11, F1 11-12, waits; rank 1: F0 11-12, BW0 12-14; F1 and B0 cross 14-24
    # rank 0: BW0 24-26; rank 1: F1 24-25, BW1 25-27; B1 27-37; rank 0: BW1 37-39: two micro-batches and a warm-up, 3 d
    played = play(TWO, "megatron")
    assert played.step_s == 39.0
    assert played.messages[0, 0, 1] == played.messages[0, 1, 0] == (14.0, 24.0)


def test_megatron_pays_at_a_first_border_that_ideal_hides() -> None:
    """Three ranks, four micro-batches, 6 s at the first border: megatron counts 6 calls there, ideal hides 2 of 6."""
    # ideal: rank 0: F 0-3, BW0 19-21, F3 21-22, BW1 22-24; F3 arrives at 28, comes back at 40: BW3 40-42 (18 + 4 d)
    # megatron, rank 0: F0 0-1 F1 7-8 F2 14-15 | BW0 23-25 F3 25-26 | BW1 32-34 | BW2 41-43 | BW3 49-51
    #           rank 1: F0 7-8 F1 14-15 BW0 15-17 | F2 23-24 BW1 24-26 | F3 32-33 BW2 33-35 | BW3 41-43
    pipeline = _pipeline(one_f_one_b(3, 4), Border(delay_s=(6.0, 6.0)), NEAR)
    assert play(pipeline, "ideal").step_s == 42.0
    played = play(pipeline, "megatron")
    assert played.step_s == 51.0
    assert [played.operations[0, "BW", micro] for micro in range(4)] == [(23, 25), (32, 34), (41, 43), (49, 51)]
    assert played.operations[1, "BW", 3] == (41.0, 43.0)


@pytest.mark.parametrize("border", [0, 3, 6])
def test_megatron_costs_a_delay_a_call(border: int) -> None:
    """Per delay: each warm-up, steady and drain call of the rank before the border, micro-batches + warm-up in all."""

    def step(delay_s: float) -> float:
        borders = [Border((delay_s, delay_s)) if at == border else NEAR for at in range(7)]
        return play(_pipeline(one_f_one_b(8, 24), *borders), "megatron").step_s

    assert step(120.0) - step(100.0) == pytest.approx(20.0 * (24 + 7 - border))


def test_zero_bubble_sends_in_turn() -> None:
    # Placed by the plan without delays. rank 0: F0 {S F0} F1 {S F1, R B0} B0 {R B1} W0 B1 W1
    #                                   rank 1: {R F0} {R F1} F0 B0 {S B0} F1 B1 {S B1} W0 W1
    # F0 1-11, F1 11-21 (the stream of rank 0), B0 21-31 (of rank 1), B1 32-42 (rank 0 has asked at 32)
    played = play(SPLIT, "megatron-zb")
    assert [played.messages[0, way, micro] for way in (0, 1) for micro in (0, 1)] == [
        (1.0, 11.0),
        (11.0, 21.0),
        (21.0, 31.0),
        (32.0, 42.0),
    ]
    assert played.operations[1, "B", 0] == (12.0, 13.0)
    assert played.operations[0, "W", 0] == (32.0, 33.0)
    assert (played.step_s, play(SPLIT, "ideal").step_s) == (44.0, 27.0)


def test_zero_bubble_costs_two_delays_a_micro_batch() -> None:
    ahead = 2  # of the first rank, twice that of 1F1B: the ideal player needs 2 d for 3 micro-batches
    first = [("F", micro) for micro in range(ahead)]
    for micro in range(12):
        first += [("F", micro + ahead)] if micro + ahead < 12 else []
        first += [("B", micro), ("W", micro)]
    last = [(kind, micro) for micro in range(12) for kind in "FBW"]

    def step(delay_s: float, runtime: str) -> float:
        return play(_pipeline((tuple(first), tuple(last)), Border((delay_s, delay_s))), runtime).step_s

    assert step(120.0, "megatron-zb") - step(100.0, "megatron-zb") == pytest.approx(20.0 * 2 * 12)
    assert step(120.0, "ideal") - step(100.0, "ideal") == pytest.approx(20.0 * 2 * 12 / 3)


def test_torch_asks_late() -> None:
    # rank 1 asks for F0 at 0: F0 10-20, F0 20-21, BW0 21-23, asks for F1 at 23: rank 0 hears at 33, F1 33-43
    # rank 0 asked for B0 at 10, when F0 had gone: B0 23-33, BW0 33-35, asks for B1 at 35; rank 1: F1 43-44, BW1 44-46
    # B1 46-56, BW1 56-58
    played = play(TWO, "torch")
    assert played.step_s == 58.0
    assert played.messages == {(0, 0, 0): (10, 20), (0, 0, 1): (33, 43), (0, 1, 0): (23, 33), (0, 1, 1): (46, 56)}


def test_torch_reads_a_schedule() -> None:
    # rank 0: F0 S F1 S, R B0, BW0, R B1, BW1; rank 1: R F0, F0, R F1, BW0, S, F1, BW1, S: asks for F1 at 21, not 23
    # F0 10-20, F1 31-41, B0 23-33 (asked at 2), rank 0 asks for B1 at 35: B1 45-55, BW1 55-57
    played = play(TWO, "torch-csv")
    assert played.step_s == 57.0
    assert played.messages == {(0, 0, 0): (10, 20), (0, 0, 1): (31, 41), (0, 1, 0): (23, 33), (0, 1, 1): (45, 55)}
    assert play(SPLIT, "torch").step_s == play(SPLIT, "torch-csv").step_s


def test_torch_gpipe() -> None:
    # F0 10-20, F0 20-21, asks for F1 at 21: F1 31-41, F1 41-42, BW0 42-44, BW1 44-46; rank 0 has sent all at 31 and
    # asks for B0: 44-54, BW0 54-56, asks for B1: 66-76, BW1 76-78
    assert play(replace(TWO, orders=gpipe(2, 2)), "torch").step_s == 78.0


def test_deepspeed_calls_one_after_another() -> None:
    # rank 0: F0 0-1, sends it until 11, F1 11-12, waits for B0; rank 1: F0 11-12, BW0 12-14, B0 14-24, then F1 24-34
    # rank 0: BW0 34-36; rank 1: F1 34-35, BW1 35-37; B1 37-47, BW1 47-49
    played = play(TWO, "deepspeed")
    assert played.step_s == 49.0
    assert played.messages == {(0, 0, 0): (1, 11), (0, 0, 1): (24, 34), (0, 1, 0): (14, 24), (0, 1, 1): (37, 47)}


def test_a_way_carries_one_message_at_a_time() -> None:
    """Three forwards of 1 s each leave at 1, 2, 3 s and take 4 s on the way, then 10 s; so 1-5-15, 5-9-19, 9-13-23."""
    pipeline = _pipeline(gpipe(2, 3), Border(delay_s=(10.0, 10.0), transfer_s=(4.0, 4.0)))
    found = play(pipeline, "ideal").messages
    assert [found[0, 0, micro] for micro in range(3)] == [(1.0, 15.0), (5.0, 19.0), (9.0, 23.0)]


def test_both_ways_may_share_a_link() -> None:
    """F2 is under way 9-13 when B0, made at 6, would leave."""
    border = Border(transfer_s=(4.0, 4.0))
    orders = (gpipe(2, 3)[0], one_f_one_b(2, 3)[1])
    apart, shared = (play(_pipeline(orders, replace(border, shared=both)), "ideal").messages for both in (False, True))
    assert (apart[0, 0, 0], apart[0, 1, 0]) == ((1.0, 5.0), (8.0, 12.0))
    assert shared[0, 1, 0] == (13.0, 17.0)


def test_a_window_bounds_what_is_in_flight() -> None:
    """8 s of sending, 2 s of it in flight, a round trip of 20 s: four windows, each waits for the first of the last."""
    border = Border(delay_s=(10.0, 10.0), transfer_s=(8.0, 8.0), window_s=2.0)
    played = play(_pipeline(one_f_one_b(2, 1), border), "hippo")
    assert played.messages[0, 0, 0] == pytest.approx((1.0, 1.0 + 3 * 20.25 + 2.0 + 10.0))
    wide = replace(border, window_s=100.0)
    assert play(_pipeline(one_f_one_b(2, 1), wide), "hippo").messages[0, 0, 0] == pytest.approx((1.0, 19.0))


@pytest.mark.parametrize(
    ("rate_mbit_s", "round_trip_s", "runtime", "transport", "seconds"),
    [
        ((1000, 1000), (0.02, 0.02), "torch", GLOO, 2.755),
        ((300, 300), (0.1, 0.1), "torch", GLOO, 5.122),
        ((100, 100), (0.04, 0.04), "torch", GLOO, 7.623),
        ((100, 50), (0.04, 0.1), "torch", GLOO, 10.389),
        ((300, 300), (0.1, 0.1), "gpipe", GLOO, 4.637),
        ((100, 50), (0.04, 0.1), "hippo", SOCKETS, 5.980),
    ],
)
def test_agrees_with_another_model_of_gloo(
    rate_mbit_s: tuple[int, int], round_trip_s: tuple[float, float], runtime: str, transport: Transport, seconds: float
) -> None:
    """Four stages of 60 and 120 ms, two of them in one domain, 8 micro-batches of 2 MiB, links at 95.4 % of their rate:
    what an earlier model printed, which was within 7 % of gloo's steps (torch) and 6 % (receives posted ahead)."""
    wan = [
        Border((trip / 2, trip / 2), (2**24 / (954e3 * rate),) * 2)
        for rate, trip in zip(rate_mbit_s, round_trip_s, strict=True)
    ]
    orders = gpipe(4, 8) if runtime == "gpipe" else one_f_one_b(4, 8)
    pipeline = Pipeline(orders, ({"F": 0.06, "B": 0.08, "W": 0.04},) * 4, (NEAR, *wan))
    step_s = play(pipeline, "torch" if runtime == "gpipe" else runtime, transport=transport).step_s
    assert step_s == pytest.approx(seconds, rel=0.02)


def test_what_cannot_be_played_is_refused() -> None:
    with pytest.raises(ValueError, match="1F1B with whole backwards only"):
        play(SPLIT, "megatron")
    with pytest.raises(ValueError, match="wait for each other"):
        play(_pipeline(((("BW", 0), ("F", 0)), (("F", 0), ("BW", 0))), SLOW), "torch")
    with pytest.raises(RuntimeError, match=r"ranks \[0, 1\] wait for each other"):
        play(_pipeline(((("BW", 0), ("F", 0)), (("F", 0), ("BW", 0))), SLOW), "ideal")


def test_torch_on_nccl_has_one_stream() -> None:
    # rank 0: F0 0-1, S 1-11, F1 1-2 but waits for the send of F0: then {S F1, R B0} at 11; rank 1: F0 11-12, BW0 12-14
    # F1 and B0 cross 14-24; BW0 24-26; rank 1: F1 24-25, BW1 25-27; B1 27-37; BW1 37-39: as megatron
    assert play(TWO, "torch", transport=NCCL).step_s == 39.0
