"""The grid of pipelines: who is in it, and what their links and memory are."""

from __future__ import annotations

import pytest

from hippo.dispatch.noise.fluctuation_grid import DELAYS, LEVELS, MID_LINK, UNIFORM, Case, Size, cases
from hippo.errors import InputError


def test_every_layout_memory_delay_and_level_is_one_case() -> None:
    found = cases()
    assert len(found) == len({*found}) == 2 * (4 + 3) * 4
    assert {(each.delay, each.level) for each in found if each.layout == UNIFORM} == {
        (delay, level) for delay in DELAYS for level in LEVELS
    }
    assert min(each.delay for each in found if each.layout == MID_LINK) > 0  # without any it is uniform
    assert len(cases((0.0, 1.0), (0.3,))) == 2 * (2 + 1)


@pytest.mark.parametrize(
    ("layout", "delay", "delays"),
    [
        (UNIFORM, 5.0, [5.0] * 5),
        (MID_LINK, 5.0, [0.05, 0.05, 5.0, 0.05, 0.05]),
        (MID_LINK, 0.01, [0.01] * 5),  # the others are never slower than the one in the middle
    ],
)
def test_links_and_memory(layout: str, delay: float, delays: list[float]) -> None:
    found = Case(layout, 2, delay, 0.3).problem(Size(6, 12))
    assert [link.latency for link in found.down] == [link.latency for link in found.up] == delays
    assert (found.ranks, found.micro_batches, set(found.limit)) == (6, 12, {12.0})


@pytest.mark.parametrize("wrong", [{"ranks": 1}, {"micro_batches": 0}, {"samples": 1}, {"seed": -1}])
def test_numbers_that_no_case_is_played_with(wrong: dict[str, int]) -> None:
    ((key, value),) = wrong.items()
    with pytest.raises(InputError, match=rf"{key}: must be from .* \(got {value}\)"):
        Size(**wrong)
