"""A wave leaves nothing behind: what autograd holds of it goes with it, whoever hears of its layers."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest

from hippo.problem.model import gpt_model
from hippo.run.model.stage import Part, StageSettings, sequences

MODEL = gpt_model("tiny", layers=2, hidden=16, heads=2, vocab=32, seq=8)


@pytest.mark.parametrize("ready", [None, lambda layer: None])
@pytest.mark.parametrize("recompute", [False, True])
def test_a_wave_that_is_over_is_held_by_nobody(ready: Callable[[int], None] | None, recompute: bool):
    part = Part.new(MODEL, [(0, MODEL.num_layers)], StageSettings(16, recompute=recompute))
    tokens = sequences(0, 0, 2, seq=8, vocab=32, seed=0)
    part.forward((0, 0), None, tokens)
    part.backward((0, 0), None)
    held = weakref.ref(part._kept[0, 0].ledger)
    part.weight((0, 0), ready)
    assert held() is None


def test_nor_is_one_that_is_given_up():
    part = Part.new(MODEL, [(0, MODEL.num_layers)], StageSettings(16))
    part.forward((0, 0), None, sequences(0, 0, 2, seq=8, vocab=32, seed=0))
    part.backward((0, 0), None)
    held = weakref.ref(part._kept[0, 0].ledger)
    part.give_up()
    assert held() is None
