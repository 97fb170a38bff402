"""What actuators that run jobs have in common: where folders lie, a plan on the devices of a place, patience."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import gcd
from pathlib import Path
from threading import Lock
from typing import Any

from hippo.errors import InfeasibleError, InputError
from hippo.front_door.planning import plan
from hippo.jobs.placement.offer_plans import PLANNED_GBPS
from hippo.plan.codec import plan_to_document
from hippo.plan.plan import Plan, Stage
from hippo.planners.base import Stop
from hippo.problem.cluster import Cluster, Domain
from hippo.problem.load import load_cluster, load_problem
from hippo.serve.records import JobOrder
from hippo.units import bytes_per_s_from_gbps

FOLDER, CLUSTER = "HIPPO_RUNS", "HIPPO_RUNS_CLUSTER"
"""Environment variables: where the folders of runs lie, and the cluster file that their plans are made for."""
EFFORT = Stop(time_limit_s=1.0, gap=0.02)
_PLANNING = Lock()


def runs_folder(given: Path | None) -> Path:
    """Where the folders of jobs lie: as given, else as the environment says."""
    found = (given or Path(os.environ.get(FOLDER, "hippo-runs"))).resolve()
    found.mkdir(parents=True, exist_ok=True)
    return found


def runs_cluster(given: str | Path | None, actuator: str) -> Cluster:
    """The cluster of which domains jobs run; ``InputError``: nobody has said."""
    name = given or os.environ.get(CLUSTER, "")
    if not name:
        remedy = "name the cluster file that is served"
        raise InputError("is not set", source=CLUSTER, key=f"--actuator {actuator}", remedy=remedy)
    return load_cluster(name)


def renamed(variable: str, what: str) -> dict[str, str]:
    """What domains are called elsewhere, as an environment variable lists it; ``InputError``: it is no list."""
    given = [each for each in os.environ.get(variable, "").split(",") if each]
    if not all(each.count("=") == 1 for each in given):
        remedy = f"write DOMAIN={what},DOMAIN={what}"
        raise InputError("is no list", source=variable, value=os.environ[variable], remedy=remedy)
    return dict(each.split("=") for each in given)


def held_gpus(place: Mapping[str, Any]) -> dict[str, int]:
    """GPUs of each domain of a place."""
    return dict(zip(place["domains"], place["gpus"], strict=True))


def nodes_of(count: int, gpus_per_node: int) -> tuple[int, int]:
    """Nodes that hold so many GPUs together, and GPUs of each: parts of nodes, as large as share out what is held, if
    whole ones do not (12 GPUs of nodes of 8: three halves)."""
    size = count if count <= gpus_per_node else gcd(count, gpus_per_node)
    return count // size, size


def held_part(cluster: Cluster, place: Mapping[str, Any]) -> Cluster:
    """The devices of a place, and the links between its domains."""
    held = held_gpus(place)

    def part(domain: Domain) -> Domain:
        nodes, size = nodes_of(held[domain.name], domain.gpus_per_node)
        share = size / domain.gpus_per_node if nodes > 1 else 1.0  # of a node's network, where nodes are parts of it
        rate = domain.inter_node_bytes_per_s * share
        return replace(domain, nodes=nodes, gpus_per_node=size, inter_node_bytes_per_s=rate)

    domains = tuple(part(each) for each in cluster.domains if each.name in held)
    links = tuple(each for each in cluster.links if each.source in held and each.destination in held)
    return replace(cluster, domains=domains, links=links)


def renumbered(plan: Plan, before: Cluster, after: Cluster) -> Plan:
    """A plan on the same devices, as another cluster with nodes of other sizes names them: the first GPU of a domain is
    its first in both."""

    def named(device: str) -> str:
        domain, node, index = device.split("/")
        at = int(node) * before.domain(domain).gpus_per_node + int(index)
        return "/".join((domain, *map(str, divmod(at, after.domain(domain).gpus_per_node))))

    def moved(stage: Stage) -> Stage:
        return replace(stage, devices=tuple(map(named, stage.devices)))

    lines = (replace(line, stages=tuple(map(moved, line.stages))) for line in plan.pipelines)
    return replace(plan, pipelines=tuple(lines))


def plan_at(cluster: Cluster, order: JobOrder, *, parts: bool = False, **asked: Any) -> dict[str, Any]:
    """A plan file's document of an elastic job on the devices of its place. ``InfeasibleError``: it cannot use all.
    ``parts``: where it holds parts of nodes, these are the nodes that the document names, as an engine gives them."""
    spec, held = order.spec, held_gpus(order.place or {})
    part = held_part(cluster, order.place or {})
    asked = {"model": spec["model"], "global_batch": spec["batch"], "seq": spec["seq"], **asked}
    for gbps in (None, *PLANNED_GBPS[::-1]):  # on quicker links, where on these some domain would be left idle
        rate = None if gbps is None else bytes_per_s_from_gbps(gbps)
        told = tuple(each if rate is None else replace(each, bandwidth_bytes_per_s=rate) for each in part.links)
        there = replace(part, links=told)
        with _PLANNING:
            problem = load_problem(cluster=there, **asked)
            found = plan(problem, EFFORT, why=False).plan
        if found is not None and set(found.domains) == set(held):
            there = _in_parts(cluster, part) if parts else cluster
            return plan_to_document(replace(problem, cluster=there), renumbered(found, part, there))
    raise InfeasibleError([f"{order.job} cannot use all of {', '.join(held)}"])


def _in_parts(cluster: Cluster, part: Cluster) -> Cluster:
    """The cluster with nodes as small as those of the part, where that has several in a domain."""
    sizes = {each.name: each.gpus_per_node for each in part.domains if each.nodes > 1}
    domains = (
        replace(each, nodes=each.gpus // size, gpus_per_node=size) if (size := sizes.get(each.name)) else each
        for each in cluster.domains
    )
    return replace(cluster, domains=tuple(domains))


def until(what: Callable[[], bool], most_s: float, every_s: float = 0.05) -> bool:
    """Wait for something; False: it has not come about."""
    end_s = time.monotonic() + most_s
    while not what():
        if time.monotonic() > end_s:
            return False
        time.sleep(every_s)
    return True
