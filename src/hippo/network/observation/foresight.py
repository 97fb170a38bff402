"""What the best sequence of moves would give if the network went as forecast, for every place a run may stand in.

The same dynamic programming as the receding horizon's (``hippo.network.rules.lookahead``), once per instant for all
places: in training it is done when a world is prepared, so that a decision is a look-up.

Letters: I instants, P places, C configurations, H horizons, E links, F preferences.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.network.observation.options import AHEAD, gains_of_tokens
from hippo.network.observation.scene import EPOCH_S, RESTART_S, SHADOW_SHARE, TOKENS_PER_STEP, Scene
from hippo.network.rules.lookahead import Looks, best_sequences, ways_between

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
    places, instants = len(scene.first) - 1, len(epochs_left)
    found = np.zeros((len(weights), instants, places, 2 * places))
    wanted = np.full(places, standing is None)
    if standing is not None and standing >= 0:
        wanted[standing] = True
    worths = np.empty(len(scene.usd))
    for taste, own in zip(weights, found, strict=True):
        per_usd = gains_of_tokens(scene.usd, scene.busy, scene.scalars, np.asarray(taste, dtype=np.float64), worths)
        ways = ways_between(scene.move_bytes, scene.usd_per_byte * np.float32(per_usd > 0.0))
        best_sequences(ways, _looks(scene, epochs_left, worths, per_usd), wanted, own)
    return found.reshape(-1, places, 2 * places).astype(np.float32)


def _looks(scene: Scene, epochs_left: NDArray[np.float64], worths: NDArray[np.float64], per_usd: float) -> Looks:
    """One column per place: at each horizon what its best configuration does then; traffic of the best one now.

    What a token counts other than one is taken off as if it were egress; where egress counts nothing, moves are free.
    """
    places, price = len(scene.first) - 1, 1.0 / per_usd if per_usd > 0.0 else 1.0
    tokens = np.zeros((len(epochs_left), len(AHEAD), places))
    egress, sent = np.zeros_like(tokens), np.zeros((len(epochs_left), places, scene.sent.shape[1]))
    for place in range(places):
        members = scene.member[scene.first[place] : scene.first[place + 1]]
        known = scene.since[members] <= np.arange(len(epochs_left))[:, None]
        offers = scene.tokens[: len(epochs_left), :, members]
        best = np.where(known[:, None], offers * worths[members], -np.inf).argmax(axis=2)
        some = known.any(axis=1)
        does = np.take_along_axis(offers, best[..., None], axis=2)[..., 0].astype(np.float64)
        tokens[some, :, place] = does[some]
        egress[some, :, place] = (does * (1.0 - worths[members][best]) * price)[some]
        sent[some, place] = scene.sent[members[best[some, 0]]]
    epoch_s, restart_s, shadow_share, tokens_per_step = (
        float(scene.scalars[each]) for each in (EPOCH_S, RESTART_S, SHADOW_SHARE, TOKENS_PER_STEP)
    )
    return Looks(
        epoch_s,
        restart_s,
        shadow_share,
        tokens_per_step,
        price,
        AHEAD,
        np.minimum(MOST_EPOCHS, epochs_left),
        tokens,
        egress,
        scene.bandwidth[: len(epochs_left)].astype(np.float64),
        sent,
    )
