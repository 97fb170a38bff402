"""What the best sequence of moves would give if the network went as forecast, for every place a run may stand in.

The same dynamic programming as the receding horizon's (``hippo.network.rules.lookahead``), once per instant for all
places: in training it is done when a world is prepared, so that a decision is a look-up.

Letters: I instants, P places, C configurations, H horizons, E links, F preferences.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.network.observation.options import AHEAD, gains_of_tokens, tokens_of_usd
from hippo.network.observation.scene import EPOCH_S, RESTART_S, SHADOW_SHARE, TOKENS_PER_STEP, Scene
from hippo.network.rules.lookahead import first_gains, place_values, prospect_of, ways_between
from hippo.network.rules.worth import Ahead

MOST_EPOCHS = 64.0
"""Epochs ahead that count: beyond the last horizon nothing is forecast."""


def foresight(
    scene: Scene,
    epochs_left: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    standing: int | None = None,
) -> NDArray[np.float32]:
    """What every first move gives less what keeping gives, both followed by the best sequence, in tokens as these
    preferences (F, 3) count them, (F I, P, 2 P), preference after preference.

    Row: where the run stands; column ``2 p + mode``: to p by stopping (0) or in the background (1); -inf: impossible.
    On the diagonal, mode 0: what standing there gives, with the best sequence. A place of which no configuration is
    known yet gives nothing. ``epochs_left`` (I,). ``standing``: only that row and the diagonal are wanted (-1: only the
    diagonal).
    """
    places = len(scene.first) - 1
    found = np.zeros((len(weights) * len(epochs_left), places, 2 * places), np.float32)
    wanted = np.full(places, standing is None)
    if standing is not None and standing >= 0:
        wanted[standing] = True
    for taste, own in zip(weights, found.reshape(len(weights), len(epochs_left), places, 2 * places), strict=True):
        _all(scene, epochs_left, np.asarray(taste, dtype=np.float64), wanted, own)
    return found


@kernel
def _all(scene, epochs_left, weights, wanted, found):  # type: ignore[no-untyped-def]
    worths, per_usd = gains_of_tokens(scene, weights), tokens_of_usd(scene, weights)
    usd_per_byte = scene.usd_per_byte if per_usd > 0.0 else np.zeros_like(scene.usd_per_byte)
    ways = ways_between(scene.move_bytes, usd_per_byte)
    for instant in range(len(epochs_left)):
        look = _look(scene, instant, min(MOST_EPOCHS, epochs_left[instant]), worths, per_usd)
        _first(ways, prospect_of(look), wanted, found[instant])


@kernel
def _look(scene, instant, epochs_left, worths, per_usd):  # type: ignore[no-untyped-def]
    """One column per place: at each horizon what its best configuration does then; traffic of the best one now.

    What a token counts other than one is taken off as if it were egress; where egress counts nothing, moves are free.
    """
    places, price = len(scene.first) - 1, 1.0 / per_usd if per_usd > 0.0 else 1.0
    tokens, egress = np.zeros((len(AHEAD), places)), np.zeros((len(AHEAD), places))
    sent = np.zeros((places, scene.sent.shape[1]))
    for place in range(places):
        for horizon in range(len(AHEAD)):
            best, most = -1, -np.inf
            for at in range(scene.first[place], scene.first[place + 1]):
                each = scene.member[at]
                found = scene.tokens[instant, horizon, each] * worths[each]
                if scene.since[each] <= instant and found > most:
                    best, most = each, found
            if best >= 0:
                tokens[horizon, place] = scene.tokens[instant, horizon, best]
                egress[horizon, place] = tokens[horizon, place] * (1.0 - worths[best]) * price
                if horizon == 0:
                    sent[place] = scene.sent[best]
    return Ahead(
        scene.scalars[EPOCH_S],
        epochs_left,
        scene.scalars[RESTART_S],
        scene.scalars[SHADOW_SHARE],
        scene.scalars[TOKENS_PER_STEP],
        price,
        AHEAD,
        tokens,
        egress,
        scene.bandwidth[instant],
        sent,
        scene.usd_per_byte,
        np.arange(places),
        scene.move_bytes,
    )


@kernel
def _first(ways, prospect, wanted, gains):  # type: ignore[no-untyped-def]
    value, both = place_values(ways, prospect), np.zeros(2)
    for here in range(len(wanted)):
        for there in range(len(wanted)):
            if there != here and wanted[here]:
                first_gains(ways, prospect, value, here, there, both)
                gains[here, 2 * there], gains[here, 2 * there + 1] = both[0], both[1]
        gains[here, 2 * here] = value[0, here]
