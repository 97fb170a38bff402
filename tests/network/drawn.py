"""Worlds of random tables, made in milliseconds: for whoever needs observations and rewards, not plans."""

from __future__ import annotations

from typing import Any

import numpy as np

from hippo.dynamics.forecast import HORIZONS
from hippo.network.env.dataset import Dataset, Prepared, dataset_of
from hippo.network.env.reward import draw_weights, taste_of
from hippo.network.env.tables import Truth
from hippo.network.observation.foresight import foresight
from hippo.network.observation.scene import Scene
from hippo.network.rules.move import Rollout
from hippo.network.worlds.hindsight import hindsight

H = len(HORIZONS)


def drawn_world(seed: int, *, domains: int = 4, configurations: int = 9, places: int = 4, epochs: int = 30) -> Prepared:
    """A world whose every table is random, with hindsight worked out on it."""
    rng = np.random.default_rng(seed)
    ends = np.array([(a, b) for a in range(domains) for b in range(domains) if a != b])
    links, base = len(ends), np.full(len(ends), 1e9)
    place = np.sort(np.concatenate([np.arange(places), rng.integers(places, size=configurations - places)]))
    pace = rng.uniform(2e3, 1e4, configurations)
    wave = np.exp(0.4 * np.cumsum(rng.standard_normal((epochs, configurations)), axis=0) / np.sqrt(epochs))
    tokens = pace * np.minimum(1.5, wave) * (rng.random((epochs, configurations)) > 0.03)
    bandwidth = base * np.clip(1.0 + 0.3 * rng.standard_normal((epochs, links)), 0.0, None)
    moves = rng.choice([0.0, 2e10, 1e11, 3e11], size=(places, places, links), p=[0.7, 0.1, 0.1, 0.1])
    moves[np.arange(places), np.arange(places)] = 0.0
    sent = rng.choice([0.0, 1e9], size=(configurations, links), p=[0.7, 0.3])
    usd, price, usual = rng.uniform(0.0, 2e-7, configurations), 1e-6, float(pace.max())
    layers = rng.random((configurations, domains)) * (rng.random((configurations, domains)) < 0.6)
    layers[:, 0] += 0.1
    layers /= layers.sum(axis=1, keepdims=True)
    ahead = np.repeat(tokens[:, None], H, axis=1)
    ahead[:, 1:] = 0.5 * ahead[:, 1:] + 0.5 * pace
    arrays: dict[str, Any] = {
        "scalars": np.array([60.0, 30.0, 0.125, 1e6, price, usual, epochs]),
        "place": place,
        "member": np.arange(configurations),
        "first": np.searchsorted(place, np.arange(places + 1)),
        "ends": ends,
        "usd": usd,
        "busy": rng.uniform(0.5, 0.9, configurations) / pace,
        "base_tokens": pace,
        "constructed": np.zeros(configurations),
        "sent": sent,
        "usd_per_byte": np.full(links, 1e-11),
        "base": base,
        "move_bytes": moves,
        "layers": layers,
        "memory": layers,
        "domain_busy": layers / pace[:, None],
        "gpus": np.full(domains, 1.0 / domains),
        "tokens": ahead,
        "low": 0.9 * ahead[:, -1],
        "high": 1.05 * ahead[:, -1],
        "bandwidth": np.repeat(bandwidth[:, None], H, axis=1),
        "doubt": np.full((epochs, links), 0.2),
        "latency": np.full((epochs, links), 0.03),
        "age": np.zeros((epochs, links)),
        "load": np.ones((epochs, 2, domains)),
        "met": np.zeros((epochs, configurations)),
    }
    weights = draw_weights(2, np.random.default_rng((seed, 1)))
    arrays["ahead"] = np.zeros((1, 1, 1))
    arrays["since"] = np.zeros(configurations, dtype=np.int64)
    scene = Scene(**{name: _stored(array) for name, array in arrays.items()})
    scene = scene._replace(ahead=foresight(scene, np.arange(epochs, 0, -1.0), weights))
    rollout = _rollout(scene, tokens, bandwidth, arrays)
    best = np.argmax(tokens * (1.0 - usd / price), axis=1)
    return Prepared(f"drawn-{seed}", "drawn", scene, _truth(rollout, best, rng, weights, usual=usual, price=price))


def _rollout(scene: Scene, tokens: Any, bandwidth: Any, arrays: dict[str, Any]) -> Rollout:
    """The truth behind a scene, in the double precision in which it was drawn."""
    epoch_s, restart_s, shadow_share, tokens_per_step = (float(each) for each in arrays["scalars"][:4])
    return Rollout(
        epoch_s=epoch_s,
        restart_s=restart_s,
        shadow_share=shadow_share,
        tokens_per_step=tokens_per_step,
        tokens_per_s=tokens,
        egress_usd_per_s=tokens * arrays["usd"],
        utilization=np.minimum(1.0, tokens * arrays["busy"]),
        bandwidth_bytes_per_s=bandwidth,
        bytes_per_step=arrays["sent"],
        usd_per_byte=arrays["usd_per_byte"],
        place=scene.place,
        move_bytes=arrays["move_bytes"],
    )


def _truth(rollout: Rollout, best: Any, rng: np.random.Generator, weights: Any, *, usual: float, price: float) -> Truth:
    """What really happens on the rollout, with drawn costs and hindsight for two preferences."""
    shape = rollout.tokens_per_s.shape
    tastes = [taste_of(each, epoch_s=60.0, usual=usual, usd_per_token=price) for each in weights]
    return Truth(
        tokens=_stored(rollout.tokens_per_s),
        egress=_stored(rollout.egress_usd_per_s),
        utilization=_stored(rollout.utilization),
        bandwidth=_stored(rollout.bandwidth_bytes_per_s),
        weak=_stored(rng.random(shape)),
        uneven=_stored(rng.random(shape)),
        value=_stored(np.stack([hindsight(rollout, price, taste=taste).value for taste in tastes])),
        weights=_stored(weights),
        best=best,
    )


def drawn_dataset(worlds: int = 3, *, seed: int = 0, epochs: int = 30) -> Dataset:
    """Worlds of 2, 4, 7, 2, ... domains, so that one batch holds several sizes."""
    sizes = (2, 4, 7)
    return dataset_of([drawn_world(seed + each, domains=sizes[each % 3], epochs=epochs) for each in range(worlds)])


def _stored(array: Any) -> Any:
    return np.ascontiguousarray(array, dtype=np.int64 if np.asarray(array).dtype.kind == "i" else np.float32)
