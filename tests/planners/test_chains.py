"""Chains of regions against every assignment of stages to regions."""

from __future__ import annotations

from itertools import groupby, product

import numpy as np
import pytest

from hippo.planners.chains import Chain, best_chain
from hippo.problem.cluster import Cluster

from .worlds import cluster, domain


def random_chain(seed: int) -> Chain:
    rng = np.random.default_rng(seed)
    names = "abcd"[: int(rng.integers(2, 5))]
    pairs = [(a, b) for a in names for b in names if a < b]
    rates = {pair: float(rng.choice([0.0, 0.5, 1.0, 5.0])) for pair in pairs}
    where = cluster(*(domain(name, 1, int(rng.integers(1, 9))) for name in names), others=rates)
    stages = int(rng.integers(1, 6))
    gpus = tuple(int(count) for count in rng.integers(1, 4, stages))
    seconds = tuple(float(one) for one in rng.uniform(0.1, 1.0, stages))
    return Chain(where, gpus, seconds, int(rng.integers(1, 9)), float(rng.uniform(1e6, 1e9)))


def allowed(where: Cluster, chain: Chain, regions: tuple[str, ...]) -> bool:
    visits = [name for name, _ in groupby(regions)]
    used = {
        name: sum(gpus for gpus, region in zip(chain.gpus, regions, strict=True) if region == name) for name in visits
    }
    return len(set(visits)) == len(visits) and all(used[name] <= where.domain(name).gpus for name in visits)


@pytest.mark.parametrize("seed", range(60))
def test_no_assignment_of_stages_to_regions_is_faster(seed: int) -> None:
    chain = random_chain(seed)
    names = [one.name for one in chain.cluster.domains]
    choices = [one for one in product(names, repeat=len(chain.gpus)) if allowed(chain.cluster, chain, one)]
    least = min((chain.seconds(one) for one in choices), default=float("inf"))
    found = best_chain(chain, limit=float("inf"), late=lambda: False)
    assert (float("inf") if found is None else chain.seconds(found)) == pytest.approx(least)
    assert found is None or allowed(chain.cluster, chain, found)


def test_the_estimate_is_the_papers() -> None:
    # Two stages, one border: 1 GB at 8 Gbit/s and 20 ms, there and back, is 2.04 s on top of the first stage's 3 s.
    where = cluster(domain("a", 1, 1), domain("b", 1, 1), gbps=8.0)
    chain = Chain(where, (1, 1), (3.0, 4.0), 10, 1e9)
    assert chain.transfer_s("a", "b") == pytest.approx(2.04)
    assert chain.seconds(("a", "b")) == pytest.approx(5.04 * 10 + 5.04 + 4.0)


def test_nothing_below_the_limit_is_nothing() -> None:
    chain = random_chain(1)
    assert best_chain(chain, limit=0.0, late=lambda: False) is None
