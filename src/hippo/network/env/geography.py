"""Networks drawn for learning: where domains lie, how quick and how far their links are. K domains.

Training networks lie at random on a plane of continents; test networks are other draws, the measured matrix of twelve
cloud regions, or the four hubs of the catalogue, so that no network is met in both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.problem.catalogue.clusters import CLUSTERS

Floats = NDArray[np.float64]
ACCESS_S, S_PER_KM = 0.004, 10e-6
"""One-way latency: access and switching, then fibre of twice the great-circle distance (as in the catalogue)."""
WIDTH_KM, HEIGHT_KM = 6000.0, 3000.0


@dataclass(frozen=True, eq=False)
class Geography:
    """Names, relative bandwidth (mean 1 over the links) and one-way latency of each directed pair; 0: no link."""

    names: tuple[str, ...]
    quickness: Floats  # (K, K)
    latency_s: Floats  # (K, K)


def plane(count: int, rng: np.random.Generator, *, uneven: float) -> Geography:
    """Domains at random on a plane; the nearer the quicker, with ``uneven`` as standard deviation of the log."""
    at = rng.uniform(size=(count, 2)) * (WIDTH_KM, HEIGHT_KM)
    km = np.linalg.norm(at[:, None] - at[None], axis=-1) + 200.0
    noise = rng.standard_normal((count, count)) * uneven
    noise = np.where(rng.random() < 0.5, (noise + noise.T) / np.sqrt(2.0), noise)  # both directions alike, or not
    quickness = _scaled((km / km.mean()) ** (-0.3) * np.exp(noise))
    return Geography(tuple(f"site-{index}" for index in range(count)), quickness, ACCESS_S + S_PER_KM * km)


def measured(count: int, rng: np.random.Generator) -> Geography:
    """``count`` domains of a catalogue cluster with measured or published links: four hubs, or twelve cloud regions
    (again with other neighbours where more than twelve are asked for)."""
    hubs = count <= 4 and rng.random() < 0.4
    whole = CLUSTERS["four-hubs" if hubs else "twelve-cloud-regions"]
    chosen = np.concatenate([rng.permutation(len(whole.domains)) for _ in range(2)])[:count]
    quickness, latency = np.zeros((count, count)), np.zeros((count, count))
    for row, source in enumerate(chosen):
        for column, destination in enumerate(chosen):
            link = whole.link(whole.domains[source].name, whole.domains[destination].name)
            if row == column or link is None:  # the same region twice: two sites of it
                quickness[row, column], latency[row, column] = 6e8, ACCESS_S
                continue
            quickness[row, column] = link.rate_bytes_per_s(1)
            latency[row, column] = link.latency_s
    names = tuple(f"{whole.domains[each].name}{'' if at < 12 else '-b'}" for at, each in enumerate(chosen))
    return Geography(names, _scaled(quickness), np.maximum(latency, 1e-3))


def thinned(found: Geography, rng: np.random.Generator, *, most: float) -> Geography:
    """The same without some of its slower pairs (up to a share ``most``); a ring of links always stays."""
    count = len(found.names)
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count) if (b - a) % count not in (1, count - 1)]
    pairs.sort(key=lambda pair: found.quickness[pair] + found.quickness[pair[::-1]])
    gone = pairs[: int(rng.uniform(0.0, most) * len(pairs))]
    quickness = found.quickness.copy()
    for a, b in gone:
        quickness[a, b] = quickness[b, a] = 0.0
    return Geography(found.names, _scaled(quickness), found.latency_s)


def _scaled(quickness: Floats) -> Floats:
    found = quickness.copy()
    np.fill_diagonal(found, 0.0)
    scaled: Floats = found / found[found > 0].mean()
    return scaled
