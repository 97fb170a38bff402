"""The run-ahead schedule in worlds solved by hand."""

from __future__ import annotations

import pytest

from hippo.schedule.schedule import order
from hippo.simulate import fast
from hippo.simulate.abstract import abstract_program


def rows(name: str, **shape: int) -> list[str]:
    schedule = order(name, **shape)
    return [" ".join(f"{'FB'[kind]}{m}" for kind, _, m in schedule.rank(rank)) for rank in range(shape["stages"])]


def test_the_order_of_two_stages() -> None:
    assert rows("cross-domain", stages=2, micro_batches=5, live_limit=4) == [
        "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4",
        "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4",
    ]


def test_between_one_f_one_b_and_gpipe() -> None:
    shape = {"stages": 3, "micro_batches": 7}
    assert rows("cross-domain", **shape) == rows("1f1b", **shape)
    assert rows("cross-domain", **shape, live_limit=21) == rows("gpipe", **shape)
    assert order("cross-domain", **shape, live_limit=5).peak_live == (5, 4, 2)


def test_a_slow_border_is_hidden_where_one_f_one_b_pays_half_a_round_trip_per_micro_batch() -> None:
    """Stages of F = 1, B = 2 (t = 3), one way 3: 1F1B needs t + 3 = 6 per micro-batch, slack of 1 + 6/3 = 3 needs 3."""

    def seconds(name: str, m: int, live: int | None) -> float:
        schedule = order(name, stages=2, micro_batches=m, live_limit=live)
        return fast.step_time(abstract_program(schedule, forward_s=1.0, backward_s=2.0, delay_s=3.0))

    assert seconds("1f1b", 40, None) - seconds("1f1b", 20, None) == pytest.approx(20 * 6)
    assert seconds("1f1b", 40, 9) - seconds("1f1b", 20, 9) == pytest.approx(20 * 6)
    assert seconds("cross-domain", 40, 6) - seconds("cross-domain", 20, 6) == pytest.approx(20 * 3)
