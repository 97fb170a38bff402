"""Layers to files and back, under any cut and tensor parallelism."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hippo.errors import InputError
from hippo.problem.model import Model
from hippo.run.model.stage import Part, StageSettings, sequences
from hippo.run.model.store import Snapshot, load
from hippo.run.model.weights import TensorSplit

from ..worlds import GPT2, LLAMA, SEQ

SETTINGS = StageSettings(2 * SEQ, dtype=torch.float64)


def trained(model: Model, settings: StageSettings = SETTINGS) -> Part:
    """The whole model after a step."""
    part = Part.new(model, [(0, model.num_layers)], settings)
    step(part, 1)
    return part


def step(part: Part, number: int) -> float:
    text = sequences(number, 0, 2, seq=SEQ, vocab=part.model.vocab)
    loss = float(part.forward((0, 0), None, text))
    part.backward((0, 0), None)
    part.weight((0, 0))
    part.finish(number)
    return loss


@pytest.mark.parametrize("model", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_what_was_saved_goes_on_as_if_nothing_had_been(model: Model, tmp_path: Path):
    part = trained(model)
    Snapshot(part).write(tmp_path)
    other = Part.new(model, [(0, model.num_layers)], replace(SETTINGS, seed=5))
    load(other, tmp_path)
    other = replace(other, settings=SETTINGS)
    assert [step(part, 2), step(part, 3)] == [step(other, 2), step(other, 3)]


@pytest.mark.parametrize("size", [2, 4])
def test_shares_of_a_team_are_joined_and_cut_anew(size: int, tmp_path: Path):
    part = trained(LLAMA)
    Snapshot(part).write(tmp_path)
    chunks = [(0, 3), (3, LLAMA.num_layers)]
    teams = [[Part.new(LLAMA, [cut], SETTINGS, TensorSplit(size, t, size)) for t in range(size)] for cut in chunks]
    again = tmp_path / "again"
    again.mkdir()
    for team in teams:
        for share in team:
            load(share, tmp_path)
            Snapshot(share).write(again)
    whole = Part.new(LLAMA, [(0, LLAMA.num_layers)], SETTINGS)
    load(whole, again)
    for layer, weights in part.weights.items():
        for name, one in weights.items():
            assert torch.equal(whole.weights[layer][name].value, one.value)
            assert torch.equal(whole.states[layer][name].second, part.states[layer][name].second)


def test_a_tied_head_on_another_stage_takes_the_embeddings_matrix(tmp_path: Path):
    part = trained(GPT2)
    Snapshot(part).write(tmp_path)
    head = Part.new(GPT2, [(4, 6)], SETTINGS)
    load(head, tmp_path)
    assert torch.equal(head.weights[5]["matrix"].value, part.weights[0]["matrix"].value)
    assert torch.equal(head.states[5]["matrix"].first, part.states[0]["matrix"].first)
    assert "matrix" not in torch.load(tmp_path / "layer-5.part-0-of-1.pt", weights_only=True)


def test_half_precision_keeps_its_master_copy(tmp_path: Path):
    settings = replace(SETTINGS, dtype=torch.bfloat16)
    part = trained(GPT2, settings)
    Snapshot(part).write(tmp_path)
    other = Part.new(GPT2, [(0, 6)], settings)
    load(other, tmp_path)
    assert other.states[1]["up"].master.dtype is torch.float32
    assert torch.equal(other.states[1]["up"].master, part.states[1]["up"].master)
    assert step(part, 2) == step(other, 2)


def test_broken_files_are_named(tmp_path: Path):
    part = trained(GPT2)
    Snapshot(part).write(tmp_path)
    file = tmp_path / "layer-2.part-0-of-1.pt"
    whole = file.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"not a checkpoint"):
        file.write_bytes(content)
        with pytest.raises(InputError, match="layer 2 cannot be read"):
            load(Part.new(GPT2, [(0, 6)], SETTINGS), tmp_path)
    file.unlink()
    with pytest.raises(InputError, match="layer 2 is missing"):
        load(Part.new(GPT2, [(0, 6)], SETTINGS), tmp_path)
