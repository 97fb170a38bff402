from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.jobs.job import TrainingKind
from hippo.jobs.placement.offers import Floats, OfferTable

KIND = TrainingKind("gpt3-125m", 64, 1024)
BANDWIDTH = np.array([1e8, 4e8, 1.6e9])
LATENCY = np.array([0.01, 0.05])


def step_s(bandwidth: Floats, latency: Floats) -> Floats:
    """1 s of work for all, or a byte count of 1e9 with ten latencies behind it, whichever is longer."""
    return np.maximum(1.0, 1e9 / bandwidth + 10 * latency)


def table() -> OfferTable:
    """Four GPUs in one domain, and two in each of two: 2 s a step for 1 s of work, or what the link needs."""
    seconds = step_s(BANDWIDTH[None], LATENCY[:, None])
    return OfferTable(
        kinds=(KIND,),
        kind=np.array([0, 0]),
        parts=np.array([1, 2]),
        gpus=np.array([[4, 0, 0, 0], [2, 2, 0, 0]]),
        block=np.array([4, 2]),
        ring=np.array([False, False]),
        layout=np.array([[4, 1, 1], [2, 1, 2]]),
        rate=np.stack([np.ones((2, 3)), 1.0 / seconds]),
        hop_bytes=np.array([0.0, 1e9]),
        memory_left=np.array([0.5, 0.4]),
        inside_comm=np.array([0.1, 0.0]),
        bandwidth_bytes_per_s=BANDWIDTH,
        latency_s=LATENCY,
        tokens_per_s=np.array([1e5]),
        state_bytes=np.array([2e9]),
    )


def at(bandwidth: list[float], latency: list[float], offer: int = 1) -> Floats:
    return table().rate_at(np.full(len(bandwidth), offer), np.array(bandwidth), np.array(latency))


def test_what_the_link_limits_is_told_exactly_between_the_points_of_the_grid():
    bandwidth, latency = [1.3e8, 2e8, 3.9e8], [0.01, 0.02, 0.05]
    assert at(bandwidth, latency) == pytest.approx(1.0 / step_s(np.array(bandwidth), np.array(latency)))


def test_where_another_limit_begins_the_rate_is_told_too_low_never_too_high():
    """Between 2.5 s and 1 s a step, seconds per byte halfway: 1.75 s; played 1.663 s."""
    halfway = 2 / (1 / 4e8 + 1 / 1.6e9)
    told = at([halfway], [0.01])[0]
    assert told == pytest.approx(2 / (step_s(np.array([4e8]), np.array([0.01]))[0] + 1.0))
    assert told < 1.0 / step_s(np.array([halfway]), np.array([0.01]))[0]


def test_beyond_the_grid_more_bandwidth_gives_nothing_and_less_takes_in_proportion():
    assert at([1e12, 5e7, 0.0], [0.01] * 3).tolist() == pytest.approx([1.0, 0.5 / step_s(BANDWIDTH[:1], 0.01)[0], 0.0])


def test_latencies_are_held_inside_the_grid():
    assert at([2e8, 2e8], [0.0, 9.0]) == pytest.approx(at([2e8, 2e8], [0.01, 0.05]))


def test_one_part_asks_for_no_link():
    assert at([0.0, 1e9], [9.0, 0.0], offer=0).tolist() == [1.0, 1.0]


def test_a_table_that_holds_passes():
    table().check()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"parts": np.array([1, 3])}, "as many sizes"),
        ({"gpus": np.array([[4, 0, 0, 0], [2, 4, 0, 0]])}, "most GPUs first"),
        ({"block": np.array([3, 2])}, "share out"),
        ({"rate": table().rate[:, :, ::-1]}, "never slower"),
        ({"rate": table().rate[:, ::-1]}, "never quicker"),
        ({"rate": table().rate - 1.0}, "above 0"),
        ({"hop_bytes": np.zeros(2)}, "cross hops"),
        ({"state_share": np.full((2, 4), 0.5)}, "holds some of the state"),
        ({"state_share": np.array([[2.0, 0, 0, 0], [1.0, 1, 0, 0]])}, "more than all"),
        ({"ring": np.array([False, True])}, "three parts"),
        ({"layout": np.ones((1, 3), np.int64)}, "lengths differ"),
        ({"kinds": (KIND, KIND), "tokens_per_s": np.ones(2), "state_bytes": np.ones(2)}, "without an offer"),
        ({"latency_s": LATENCY[::-1]}, "ascend"),
    ],
)
def test_a_table_that_says_what_cannot_be_is_refused(change: dict[str, object], told: str):
    with pytest.raises(AssertionError, match=told):
        replace(table(), **change).check()  # type: ignore[arg-type]


def test_parts_hold_the_state_in_proportion_to_their_devices_where_nobody_says():
    assert table().state_share.tolist() == [[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]


def test_tables_are_joined_kind_after_kind():
    other = replace(table(), kinds=(KIND._replace(batch=128),), tokens_per_s=np.array([2e5]), raised=0.01)
    both = OfferTable.joined([table(), other])
    both.check()
    assert both.kind.tolist() == [0, 0, 1, 1]
    assert [kind.batch for kind in both.kinds] == [64, 128]
    assert both.tokens_per_s.tolist() == [1e5, 2e5]
    assert both.raised == 0.01
    assert len(both) == 4
