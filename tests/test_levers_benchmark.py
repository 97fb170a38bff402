"""What a lever costs, from steps as they were."""

from __future__ import annotations

import pytest
from benchmarks.levers import SWINGING, LeverFound, swing_row


def found(before: tuple[float, ...], ready: float, after: tuple[float, ...], every: tuple[int, int]) -> LeverFound:
    expected = (1.0,) * len(before), (2.0,) * len(after)
    return LeverFound("job", "order", 0, 8, 9, 0.0, 0.25, before, ready, after, *expected, (4.0, 4.8, 5.0), every)


def test_a_first_step_is_held_against_the_later_ones() -> None:
    one = found((1.0, 1.0, 1.0), 1.1, (2.5, 2.0, 2.0, 2.0), (1, 1))
    assert one.first_lost == pytest.approx(0.25)
    assert one.ready_lost == pytest.approx(0.1)


def test_a_first_round_of_local_sgd_is_held_against_later_rounds_wherever_its_sum_lies() -> None:
    for lost, after in ((0.0, (3.0, 1.0) * 3), (0.0, (1.0, 3.0) * 3), (0.5, (4.0, 1.0, 3.0, 1.0, 3.0, 1.0))):
        assert found((1.0,), 1.0, after, (1, 2)).first_lost == pytest.approx(lost)
    short = found((1.0,), 1.0, (1.0, 3.0, 1.0, 3.0, 9.0), (1, 2))  # a round that was not ended says nothing
    assert short.first_lost == 0.0


def test_a_step_beside_which_processes_made_ready_is_held_against_those_that_sum_as_it_does() -> None:
    for ready, before in ((3.0, (1.0, 3.0, 1.0)), (1.0, (3.0, 1.0, 3.0)), (1.0, (1.0, 3.0, 1.0, 3.0))):
        assert found(before, ready, (1.0, 1.0), (2, 1)).ready_lost == 0.0
    assert found((1.0, 3.0), 1.2, (1.0, 1.0), (2, 1)).ready_lost == pytest.approx(0.1)


def test_steps_over_links_that_swing_stand_beside_their_own_forecasts() -> None:
    """Before: 1.0 and 1.2 in place of 1; after, without the first: 2.2 and 1.8 in place of 2; layers took 5 s of 4."""
    cells = [each.strip() for each in swing_row(found((1.0, 1.2), 1.0, (3.1, 2.2, 1.8), (1, 1))).split("|")]
    assert cells[3:8] == ["+1", "1.100", "1.000", "+10.0%", "+20%"]
    assert cells[8:12] == ["2.000", "2.000", "+0.0%", "+10%"]
    assert cells[12:17] == ["5.00", "4.00", "+25.0%", "4.80", "+4.2%"]
    assert cells[17:20] == ["0.2500", "22.73%", "+100.0%"]


def test_twelve_orders_over_links_within_a_third_of_their_rates() -> None:
    assert len({job.name for job in SWINGING}) == 12
    for job in SWINGING:
        links = {(each.source, each.destination): each for each in job.problem.cluster.links}
        rates: dict[tuple[str, str], list[float]] = {pair: [] for pair in links}
        for line in job.world.trace(tuple(links.values())).splitlines()[1:]:
            _, source, destination, gbps, _ = line.split(",")
            rates[source, destination].append(1.25e8 * float(gbps) / links[source, destination].bandwidth_bytes_per_s)
        for seen in rates.values():
            assert len(seen) == 80
            assert 2 / 3 - 1e-3 < min(seen) < 0.8 < 1.2 < max(seen) < 4 / 3 + 1e-3
