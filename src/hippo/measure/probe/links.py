"""Samples of all links made into figures of each: medians, percentiles, how many, how often nobody answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hippo.measure.probe.sample import Sample


@dataclass(frozen=True)
class Spread:
    """Percentiles of what was seen."""

    p5: float
    median: float
    p95: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None: nothing was seen."""
        if not values:
            return None
        p5, p50, p95 = (float(value) for value in np.percentile(values, (5, 50, 95)))
        return cls(p5, p50, p95, len(values))


@dataclass(frozen=True)
class LinkSeen:
    """A directed link over all samples. Outages count apart, not as slow."""

    source: str
    destination: str
    rate_bytes_per_s: Spread | None
    round_trip_s: Spread | None
    outages: int
    samples: int


def links_seen(samples: Iterable[Sample]) -> Mapping[tuple[str, str], LinkSeen]:
    """Every link that has samples, in the order in which they appear."""
    by_pair: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        by_pair.setdefault(sample.pair, []).append(sample)
    return {pair: _seen(pair, own) for pair, own in by_pair.items()}


def _seen(pair: tuple[str, str], own: Sequence[Sample]) -> LinkSeen:
    return LinkSeen(
        *pair,
        rate_bytes_per_s=Spread.of([sample.rate_bytes_per_s for sample in own if sample.rate_bytes_per_s]),
        round_trip_s=Spread.of([sample.round_trip_s for sample in own if sample.round_trip_s is not None]),
        outages=sum(sample.rate_bytes_per_s == 0 for sample in own),
        samples=len(own),
    )
