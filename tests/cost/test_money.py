"""Rent and egress by hand."""

from __future__ import annotations

import pytest

from hippo.cost.money import egress_usd, rent_usd_per_s
from hippo.problem.gpus import gpu


def test_an_hour_of_a_gpu_costs_its_price():
    card = gpu("A100-SXM-80GB")
    assert 3600 * rent_usd_per_s(card, 10) == pytest.approx(10 * card.price_usd_per_hour)


def test_a_gigabyte_costs_its_price():
    assert egress_usd(5e9, 0.02) == pytest.approx(0.10)
    assert egress_usd(0.0, 0.02) == 0.0
