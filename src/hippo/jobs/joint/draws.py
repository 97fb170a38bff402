"""Draws worlds to learn in and to be judged on: jobs of a family, a site, links that move, nodes that fail, others who
use devices too. A world has a number, and equal numbers make equal worlds.

Letters: K domains, T instants, A events of other tenants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.dynamics.processes import daily_factor, links_up, swing_path
from hippo.jobs.joint.env import WorldScene
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.settings import Failures, ReplayRules, Tenants
from hippo.jobs.site import JobSite, LinkHistory
from hippo.jobs.traces.elastic import ElasticDraw, elastic_workload
from hippo.problem.cluster import Cluster, Domain, Dynamics, Link

STEP_S = 900.0
"""Between two states of the links."""
MOST_STATES = 500
MTBF_DAYS = (5.0, 30.0)
"""Of a node, log-uniform between."""
TENANT_S = 4 * 3600.0
"""Mean time for which others hold devices."""


@dataclass(frozen=True, eq=False)
class WorldTerms:
    """What worlds are drawn from. ``site``: domains and links as they are bought, ``smaller``: other sites that are
    drawn as often, the smallest first; a world has a half to all of the nodes and a third to three times the bandwidth
    of each pair."""

    site: JobSite
    families: Sequence[str]
    jobs: int
    loads: Sequence[float]
    moving: float = 1.0  # shares of the worlds
    failing: float = 1.0
    tenants: float = 1.0
    stops: float = 1.0  # running jobs may be stopped
    preferences: float = 0.0  # who asks prefers something between time and egress, evenly drawn; else time alone
    smaller: Sequence[JobSite] = ()
    curriculum: int = 0
    """Worlds of lower numbers take sites and loads from the beginning of their lists, the more the higher they are
    (Bengio et al. 2009)."""


@dataclass(frozen=True, eq=False)
class DrawnScenes:
    """Worlds by number. ``offers``: of the models that elastic jobs train."""

    terms: WorldTerms
    offers: OfferTable
    seed: int

    @property
    def domains(self) -> tuple[str, ...]:
        """Of the world that has most."""
        return self.terms.site.domains

    def scene(self, number: int) -> WorldScene:
        """World ``number``."""
        terms = self.terms
        rng = np.random.default_rng([self.seed, number])
        family = terms.families[int(rng.integers(len(terms.families)))]
        loads, sites = (self._begun(each, number) for each in (terms.loads, (*terms.smaller, terms.site)))
        load = loads[int(rng.integers(len(loads)))]
        still = _varied(sites[int(rng.integers(len(sites)))] if len(sites) > 1 else sites[0], rng)
        models = tuple(dict.fromkeys(kind.model for kind in self.offers.kinds))
        pace = dict(zip(self.offers.kinds, self.offers.tokens_per_s.tolist(), strict=True))
        draw = ElasticDraw(family, terms.jobs, load, models)
        workload = elastic_workload(draw, rng, still, pace).timed(pace)
        span_s = 2.0 * float(workload.arrival_s[-1]) + 86400.0
        moves, fails, shared, stops = rng.random(4) < (terms.moving, terms.failing, terms.tenants, terms.stops)
        site = _moving(still, span_s, rng) if moves else still
        mtbf_s = 86400.0 * float(np.exp(rng.uniform(*np.log(MTBF_DAYS))))
        rules = ReplayRules(
            failures=Failures(mtbf_s) if fails else None, seed=int(rng.integers(2**31)), stops=bool(stops)
        )
        tenants = _tenants(site, span_s, rng) if shared else None
        weight = float(rng.random()) if rng.random() < terms.preferences else 0.0
        return WorldScene(workload, site, self.offers, rules, tenants, weight)

    def _begun(self, all_of_them: Sequence[Any], number: int) -> Sequence[Any]:
        """Those of a list that the curriculum has come to."""
        if number >= self.terms.curriculum:
            return all_of_them
        return all_of_them[: 1 + number * len(all_of_them) // self.terms.curriculum]


def _varied(site: JobSite, rng: np.random.Generator) -> JobSite:
    """Fewer nodes, other links."""
    k = len(site.domains)
    pools = tuple(replace(pool, nodes=int(rng.integers(-(-pool.nodes // 2), pool.nodes + 1))) for pool in site.pools)
    factor = np.exp(rng.uniform(-np.log(3.0), np.log(3.0), (k, k)))
    factor = np.tril(factor) + np.tril(factor, -1).T
    return replace(site, pools=pools, bandwidth_bytes_per_s=_rows(np.array(site.bandwidth_bytes_per_s) * factor))


def _rows(table: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in table.tolist())


def _moving(site: JobSite, span_s: float, rng: np.random.Generator) -> JobSite:
    """The site with links that swing, follow the day, and are out now and then."""
    k, rate = len(site.domains), np.array(site.bandwidth_bytes_per_s)
    time_s = np.linspace(0.0, span_s, min(MOST_STATES, 2 + int(span_s / STEP_S)))
    dynamics = Dynamics(
        swing=0.9,
        sigma=float(rng.uniform(0.1, 0.4)),
        tau_s=float(np.exp(rng.uniform(np.log(1800.0), np.log(6 * 3600.0)))),
        diurnal_peak_to_trough=float(rng.uniform(1.0, 2.0)),
        outages_per_day=float(rng.choice([0.0, 0.5, 2.0])),
        outage_s=1800.0,
    )
    factor = 1.0 + swing_path(dynamics, time_s, k * k, rng)
    factor *= daily_factor(time_s, dynamics.diurnal_peak_to_trough, rng.uniform(0.0, 86400.0, k * k))
    factor *= links_up(dynamics, time_s, k * k, rng)
    carried = np.repeat(rate[None], len(time_s), axis=0)
    apart = ~np.eye(k, dtype=bool)
    carried[:-1, apart] *= factor.reshape(-1, k, k)[:-1, apart].clip(0.0)  # at last all are up, for ever
    return replace(site, history=LinkHistory(time_s, carried))


def _tenants(site: JobSite, span_s: float, rng: np.random.Generator) -> Tenants:
    """Others who take some devices of a node and give them back; a few nodes are theirs far more often than others."""
    nodes, most = sum(pool.nodes for pool in site.pools), min(pool.per_node for pool in site.pools)
    favour = rng.dirichlet(np.full(nodes, 0.3))
    count = int(np.clip(rng.poisson(nodes * span_s / 86400.0 * rng.uniform(0.1, 0.6)), 1, 4000))
    begin = rng.uniform(0.0, span_s, count)
    node, size = rng.choice(nodes, count, p=favour), rng.integers(1, most + 1, count)
    end = begin + rng.exponential(TENANT_S, count)
    time_s = np.concatenate([begin, end])
    order = np.argsort(time_s, kind="stable")
    return Tenants(time_s[order], np.tile(node, 2)[order], np.concatenate([size, -size])[order])


def repeated(cluster: Cluster, domains: int) -> Cluster:
    """A cluster with so many domains: its own in turn. Copies are linked as those they are copies of; two copies of one
    domain by a link as the quickest that it has."""
    own = cluster.domains
    if domains == len(own):
        return cluster
    links = {(link.source, link.destination): link for link in cluster.links}
    copies: list[tuple[Domain, Domain]] = []  # the copy, of which
    for at in range(domains):
        of, number = own[at % len(own)], at // len(own)
        copies.append((replace(of, name=f"{of.name}-{number + 1}") if number else of, of))
    found: list[Link] = []
    for (here, of), (there, to) in product(copies, copies):
        if here is there:
            continue
        link = links.get((of.name, to.name))
        if of is to:
            having = [each for each in cluster.links if each.source == of.name]
            link = max(having, key=lambda each: (each.bandwidth_bytes_per_s or np.inf, -each.latency_s), default=None)
        if link is not None:
            found.append(replace(link, source=here.name, destination=there.name))
    name = f"{cluster.name}, {domains} domains"
    return replace(cluster, name=name, domains=tuple(copy for copy, _ in copies), links=tuple(found))
