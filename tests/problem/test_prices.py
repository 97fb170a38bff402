"""The price list of moves is what was measured: its figures are those of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from hippo.problem.prices import LIVE
from hippo.problem.runtimes import LEVERS, RUNTIMES, runtime_of
from hippo.problem.transport import GOODPUT
from hippo.units import bytes_per_s_from_gbps

PAGE = (Path(__file__).parents[2] / "results" / "runs.md").read_text()
NAMES = {"schedule": "order", "compress": "fp8"}
LINK_GBPS = 0.1  # of the moves there


def rows(title: str, columns: int) -> list[list[str]]:
    """Cells of the table below a title."""
    part = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")
    ]
    return [row for row in found[2:] if len(row) == columns]


def test_levers_cost_what_their_dearest_row_says() -> None:
    border: dict[str, list[float]] = {}
    lost: dict[str, list[float]] = {}
    for row in rows("Levers", 14):
        word = row[1].split()[0]
        name = NAMES.get(word, word)
        border.setdefault(name, []).append(float(row[4]) / 1e3)
        lost.setdefault(name, []).append(float(row[9].rstrip("%")) / 100)
    assert border.keys() == LIVE.levers.keys()
    for name, price in LIVE.levers.items():
        assert (price.border_s, price.lost) == pytest.approx((max(border[name]), max(lost[name])))


def test_a_stop_costs_what_the_worst_scenario_took_beyond_its_bytes() -> None:
    rate = bytes_per_s_from_gbps(LINK_GBPS) * GOODPUT
    stops = [row for row in rows("Moves beside the training", 14) if row[1] == "stop"]
    over = [float(row[8]) - float(row[6].split(",")[0]) * 1e6 / rate for row in stops]
    assert len(over) == 9
    assert round(max(over), 1) == LIVE.stop_s


def test_only_who_takes_orders_pulls_levers_live() -> None:
    live = {name: runtime_of(name).live_levers for name in (*RUNTIMES, "hippo:live")}
    assert live.pop("ideal") == LEVERS
    assert live.pop("hippo:live") == LEVERS
    assert set(live.values()) == {frozenset()}
    assert {runtime_of(name).prices.stop_s for name in RUNTIMES} == {30.0}
