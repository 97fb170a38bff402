"""Weights: as many as the model counts, the same whatever the cut and the tensor parallelism."""

from __future__ import annotations

import pytest
import torch

from hippo.problem.model import Model, gpt_model
from hippo.run.model.weights import TensorSplit, forms, initial, joined

from ..worlds import GPT2, LLAMA

MODELS = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "bloom": gpt_model(
        "b", layers=2, hidden=32, heads=4, vocab=61, seq=16, embedding_norm=True, learned_positions=False
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_forms_hold_what_the_model_counts(name: str):
    model: Model = MODELS[name]
    for index, layer in enumerate(model.layers):
        assert sum(torch.Size(form.shape).numel() for form in forms(model, index)) == layer.parameters


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_shares_of_a_team_make_the_whole(name: str, size: int):
    model = MODELS[name]
    for layer in range(model.num_layers):
        whole = initial(model, layer, seed=3, split=TensorSplit(parts=size), dtype=torch.float32)
        shares = [
            initial(model, layer, seed=3, split=TensorSplit(size, index, size), dtype=torch.float32)
            for index in range(size)
        ]
        for key, one in whole.items():
            assert torch.equal(joined(one.form, [share[key].value for share in shares]), one.value)


def test_another_seed_is_another_start():
    one, two = (initial(GPT2, 1, seed=seed, split=TensorSplit(), dtype=torch.float32)["up"].value for seed in (0, 1))
    assert not torch.equal(one, two)
