"""The worlds that a configuration draws: its cluster with the offers that the planner makes there."""

from __future__ import annotations

from hippo.errors import InputError
from hippo.jobs.joint.draws import DrawnScenes, WorldTerms, repeated
from hippo.jobs.joint.hi_ppo.settings import WorldLearning
from hippo.jobs.placement.offer_plans import offer_table
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.site import JobSite
from hippo.jobs.traces.elastic import usual_trainings
from hippo.planners.base import Progress
from hippo.problem.cluster import Cluster
from hippo.problem.load import load_cluster

HELD_OUT = 1_000_000_007
"""Added to the seed: worlds to look at, of other numbers than those that are learned from."""


def named_cluster(settings: WorldLearning) -> Cluster:
    """The cluster of a configuration; ``InputError`` where there is none of that name."""
    try:
        return load_cluster(settings.worlds.cluster)
    except InputError as error:
        key, value = "worlds.cluster", settings.worlds.cluster
        raise InputError(error.problem, key=key, value=value, remedy=error.remedy) from None


def planned(settings: WorldLearning, cluster: Cluster, *, progress: Progress | None = None) -> OfferTable:
    """What the planner offers the models of a configuration: minutes, the first time."""
    return offer_table(cluster, usual_trainings(settings.worlds.models), progress=progress)


def drawn_scenes(
    settings: WorldLearning,
    table: OfferTable | None = None,
    *,
    cluster: Cluster | None = None,
    held_out: bool = False,
) -> DrawnScenes:
    """Worlds to learn in, or, ``held_out``, others to look at. ``table``, ``cluster``: None: as configured."""
    drawn, seed = settings.worlds, settings.run.seed
    cluster = named_cluster(settings) if cluster is None else cluster
    *smaller, site = (JobSite.of(repeated(cluster, count)) for count in sorted(drawn.domains) or [len(cluster.domains)])
    terms = WorldTerms(
        site,
        drawn.families,
        drawn.jobs,
        drawn.loads,
        moving=drawn.moving,
        failing=drawn.failing,
        tenants=drawn.tenants,
        stops=drawn.stops,
        preferences=drawn.preferences,
        smaller=smaller,
        curriculum=0 if held_out else drawn.curriculum,
    )
    table = planned(settings, cluster) if table is None else table
    return DrawnScenes(terms, table, seed + HELD_OUT * held_out)
