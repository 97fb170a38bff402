"""The text: the same for every cut of the batch, and there is something to learn in it."""

from __future__ import annotations

import torch

from hippo.run.model.stage import sequences


def test_a_sequence_is_the_same_in_any_company():
    many = sequences(3, 0, 8, seq=20, vocab=50)
    assert torch.equal(many[5:7], sequences(3, 5, 7, seq=20, vocab=50))
    assert not torch.equal(many, sequences(4, 0, 8, seq=20, vocab=50))
    assert int(many.max()) < 50
    assert many.shape == (8, 21)


def test_a_word_has_few_followers():
    text = sequences(0, 0, 50, seq=100, vocab=1000)
    followers: dict[int, set[int]] = {}
    for one, two in zip(text[:, :-1].flatten().tolist(), text[:, 1:].flatten().tolist(), strict=True):
        followers.setdefault(one, set()).add(two)
    assert max(map(len, followers.values())) <= 4
