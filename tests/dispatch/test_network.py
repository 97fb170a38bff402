"""The network against numpy, and its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hippo.dispatch.features import FEATURES
from hippo.dispatch.network import DispatchWeights, follower, packed, read, scores, shipped, unpacked
from hippo.errors import InputError

from .drawn_draws import random_weights
from .plain_play import plain_scores


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_numpy(seed: int) -> None:
    weights, rng = random_weights(seed, trust=1.5), np.random.default_rng(seed)
    seen = (rng.normal(size=FEATURES) * (rng.random(FEATURES) < 0.7)).astype(np.float32)
    found = np.zeros(4, np.float32)
    scores(weights, seen, 2, np.zeros(32, np.float32), np.zeros(32, np.float32), found)
    assert found == pytest.approx(plain_scores(weights, seen, 2), rel=1e-4, abs=1e-4)


def test_the_follower_scores_what_the_base_says() -> None:
    found = np.zeros(4, np.float32)
    scores(follower(2.0), np.ones(FEATURES, np.float32), 3, np.zeros(32, np.float32), np.zeros(32, np.float32), found)
    assert found.tolist() == [0, 0, 0, 2]


def test_files_keep_weights(tmp_path: Path) -> None:
    weights = random_weights(1)
    (tmp_path / "mine.npz").write_bytes(packed(weights))
    again = read(tmp_path / "mine.npz")
    assert all(np.array_equal(one, other) for one, other in zip(weights, again, strict=True))


def test_the_shipped_weights_are_learned_ones() -> None:
    weights = shipped()
    assert weights.first.shape == (FEATURES, len(weights.first_bias))
    assert np.abs(weights.last).max() > 0


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    content = packed(random_weights(1))
    for damaged in (b"", b"no policy", content[: len(content) // 2]):
        with pytest.raises(InputError, match="broken"):
            unpacked(damaged, "mine.npz")
    weights = random_weights(1)
    for first in (
        np.zeros((3, 32), np.float32),
        np.zeros((FEATURES, 0), np.float32),
        np.zeros((1, 2_000_000), np.float32),  # the second layer of such a network would fill any machine
        np.float32(1.0),
        weights.first.astype(np.float64),
        weights.first + 1j,
        weights.first.astype(str),
    ):
        with pytest.raises(InputError, match="of this version"):
            unpacked(packed(weights._replace(first=first)), "mine.npz")
    holed = DispatchWeights(*(each.copy() for each in random_weights(1)))
    holed.first[0, 0] = np.nan
    with pytest.raises(InputError, match="of this version"):
        unpacked(packed(holed), "mine.npz")
    with pytest.raises(InputError, match="does not exist"):
        read(tmp_path / "none.npz")
