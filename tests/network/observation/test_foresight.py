"""What the best sequence of moves would give: as the receding horizon finds it, for every place at once."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.dynamics.forecast import HORIZONS
from hippo.network.observation.foresight import foresight
from hippo.network.observation.scene import Scene
from hippo.network.rules.lookahead import best_start, first_moves
from hippo.network.rules.move import STILL
from hippo.network.rules.worth import Ahead, Now

from ..drawn import drawn_world


def look_of(scene: Scene, instant: int, left: float) -> Ahead:
    tokens = scene.tokens[instant].astype(np.float64)
    epoch_s, restart_s, shadow, per_step, price, *_ = (float(each) for each in scene.scalars)
    return Ahead(
        epoch_s,
        left,
        restart_s,
        shadow,
        per_step,
        price,
        np.array(HORIZONS),
        tokens,
        tokens * scene.usd,
        scene.bandwidth[instant].astype(np.float64),
        scene.sent.astype(np.float64),
        scene.usd_per_byte.astype(np.float64),
        scene.place,
        scene.move_bytes.astype(np.float64),
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_first_moves_are_those_of_the_receding_horizon(seed: int):
    scene = drawn_world(seed).scene
    places = len(scene.first) - 1
    for instant, left in ((0, 30.0), (20, 10.0)):
        found = foresight(scene, np.full(len(scene.tokens), left), np.array([(1.0, 0.0, 0.0)]))[instant]
        look = look_of(scene, instant, left)
        net = look.tokens_per_s[0] * (1.0 - scene.usd / look.usd_per_token)
        leads = np.array([np.where(scene.place == each, net, -np.inf).argmax() for each in range(places)])
        starts = best_start(look, leads)
        for here in range(places):
            gains = first_moves(look, Now(int(leads[here]), -1, STILL, 0.0), leads)
            moves = found[here].reshape(places, 2)
            others = np.arange(places) != here
            np.testing.assert_allclose(moves[others], gains[others], rtol=1e-3, atol=1e-4 * abs(starts).max())
            assert moves[here, 0] == pytest.approx(starts[here], rel=1e-3)
