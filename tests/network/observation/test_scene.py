"""What the tables of a decision say of the past."""

from __future__ import annotations

import numpy as np

from hippo.network.observation.scene import ages


def test_an_excursion_is_as_old_as_the_epochs_that_it_has_lasted() -> None:
    share = np.array([[1.0, 0.5], [0.6, 0.5], [0.2, 0.69], [0.7, 0.1], [0.0, 2.0]])  # of the base: weak below 0.7
    found = ages(share * [10.0, 4.0], np.array([10.0, 4.0]))
    assert found.tolist() == [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [0.0, 4.0], [1.0, 0.0]]
