"""Worlds to be judged on: jobs of a family at a load, on a site, over links that stand still, move, or fail with nodes.

Unlike those that agents learn from (``joint.draws``): the movements are others, nobody else uses the devices, and who
evaluates takes another site and other models. A world is drawn from its numbers alone: equal draws, equal worlds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from hippo.dynamics.movements import HOUR_S, draw_movement
from hippo.jobs.joint.draws import repeated
from hippo.jobs.joint.env import WorldScene
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.settings import Failures, ReplayRules
from hippo.jobs.site import JobSite, LinkHistory
from hippo.jobs.traces.elastic import FAMILIES, ElasticDraw, elastic_workload
from hippo.jobs.traces.generate import TraceFit
from hippo.problem.cluster import Cluster
from hippo.problem.links import base_bandwidth
from hippo.problem.load import load_cluster

LOADS = (0.7, 1.0, 1.2)
NETWORKS: Mapping[str, tuple[str, ...]] = {"still": (), "moving": ("regimes",), "failing": ("lasting", "outage")}
"""Movements on top of one another; where networks fail, nodes do, too."""
HOURS, EVERY_S = 240.0, 300.0  # of a network that moves
FAILURES = Failures(mtbf_s=5 * 86400.0)  # of a node
JOBS_PER_DOMAIN = 15


@dataclass(frozen=True)
class WorldDraw:
    """What a world is drawn from."""

    family: str  # of ``FAMILIES``
    load: float
    network: str  # of ``NETWORKS``
    domains: int
    jobs: int
    seed: int
    stops_allowed: bool = True  # whether running jobs may be stopped

    @property
    def name(self) -> str:
        """For people."""
        kept = "" if self.stops_allowed else "no stops "
        return f"{self.family} {self.load:g} {self.network} {kept}{self.domains} domains {self.seed}"


@dataclass(frozen=True)
class WorldGrid:
    """Which worlds are drawn: ``seeds`` of each family, load and number of domains, networks in turn; each as it is
    where running jobs may be stopped, and where they may not."""

    families: Sequence[str] = tuple(FAMILIES)
    loads: Sequence[float] = LOADS
    networks: Sequence[str] = tuple(NETWORKS)
    domains: Sequence[int] = (4,)
    stops: Sequence[bool] = (True, False)
    jobs: int | None = None  # None: ``JOBS_PER_DOMAIN``
    seeds: int = 1
    first_seed: int = 2_000

    def draws(self) -> list[WorldDraw]:
        """All of them; each has a seed of its own."""
        several = [range(self.seeds), *(range(len(each)) for each in (self.domains, self.loads, self.families))]
        return [
            WorldDraw(
                self.families[family],
                self.loads[load],
                self.networks[(number + many + load + family) % len(self.networks)],
                self.domains[many],
                self.jobs or JOBS_PER_DOMAIN * self.domains[many],
                self.first_seed + at,
                stops,
            )
            for stops in self.stops
            for at, (number, many, load, family) in enumerate(product(*several))
        ]


@dataclass(frozen=True, eq=False)
class WorldGround:
    """Where worlds are drawn: a cluster (name or file), whose domains are repeated where a world has more, and what its
    devices offer the models that elastic jobs train; a trace, after which jobs come."""

    cluster: str
    offers: OfferTable
    like: TraceFit | None = None  # None: as the family says

    def scene(self, draw: WorldDraw) -> WorldScene:
        """A world."""
        rng, offers = np.random.default_rng(draw.seed), self.offers
        cluster = repeated(load_cluster(self.cluster), draw.domains)
        site, rates = JobSite.of(cluster), dict(zip(offers.kinds, offers.tokens_per_s.tolist(), strict=True))
        models = tuple(dict.fromkeys(kind.model for kind in offers.kinds))
        asked = ElasticDraw(draw.family, draw.jobs, draw.load, models, like=self.like)
        workload = elastic_workload(asked, rng, site, rates).timed(rates)
        movements = NETWORKS[draw.network]
        if movements:
            site = replace(site, history=_history(cluster, movements, rng))
        failures = FAILURES if draw.network == "failing" else None
        return WorldScene(
            workload, site, offers, ReplayRules(failures=failures, seed=draw.seed, stops=draw.stops_allowed)
        )


def _history(cluster: Cluster, movements: tuple[str, ...], rng: np.random.Generator) -> LinkHistory:
    """Movements on top of one another; an instant stands where some link changed by more than a tenth."""
    time_s = np.arange(0.0, HOURS * HOUR_S, EVERY_S)
    factor = np.prod([draw_movement(name, cluster, time_s, rng).bandwidth for name in movements], axis=0)
    links, place = factor * base_bandwidth(cluster), {domain.name: at for at, domain in enumerate(cluster.domains)}
    links[-1] = base_bandwidth(cluster)  # for ever: all are up
    instants, shown = [0], links[0]
    for at in range(1, len(links)):
        if (np.abs(links[at] - shown) > 0.1 * shown).any():
            instants.append(at)
            shown = links[at]
    table = np.where(np.eye(len(place)), np.inf, np.zeros((len(instants), len(place), len(place))))
    for number, link in enumerate(cluster.links):
        table[:, place[link.source], place[link.destination]] = links[instants, number]
    return LinkHistory(time_s[instants], table)
