"""Names to objects: each table maps a name to ``"module:attribute"``, loaded when asked for.

A table that fails lists its names. Nothing is imported until then: a planner costs nothing to those who use another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hippo.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from hippo.export.base import Exporter
    from hippo.jobs.policies.policy import QueuePolicy
    from hippo.planners.base import Planner

PLANNERS: Mapping[str, str] = {
    "exact": "hippo.planners.exact.search:Exact",
    "brute": "hippo.planners.brute.brute:Brute",
    "single_domain": "hippo.planners.baselines.single_domain:SingleDomain",
    "even": "hippo.planners.baselines.even:Even",
    "zero": "hippo.planners.baselines.zero:Zero",
    "alpa": "hippo.planners.baselines.alpa:Alpa",
    "mast": "hippo.planners.baselines.mast:Mast",
    "sailor": "hippo.planners.baselines.sailor:Sailor",
    "crosspipe": "hippo.planners.baselines.crosspipe:CrossPipe",
    "diloco": "hippo.planners.baselines.diloco:Diloco",
    "dtfm": "hippo.planners.baselines.dtfm:Dtfm",
    "ray": "hippo.planners.baselines.ray:Ray",
}
"""Who proposes a plan: objects with the one method of ``planners.base.Planner``."""

AUTO = tuple(name for name in PLANNERS if name != "brute")
"""Who competes when nobody is named: all but the judge of small problems, in this order while time is left."""

EVERYONE = "auto"
"""The word for all of them, where names are written with commas."""

USUAL = ("even", "single_domain")
"""Whose plan rewards are measured against: the first of them that finds one."""

LOCAL_SGD = "diloco"
"""Who is asked what local SGD would give, and, as a scheduler, competes only where it is allowed."""

ENGINES: Mapping[str, str] = {
    "fast": "hippo.simulate.fast:play",
    "reference": "hippo.simulate.reference:play",
    "analytic": "hippo.simulate.analytic:step_time",
    "astra": "hippo.simulate.astra.play:play",
}
"""What plays a plan. ``analytic`` answers with a step time alone, the others with a timeline; ``astra`` needs the
user's ASTRA-sim."""

METHODS: Mapping[str, str] = {
    "hi_ppo": "hippo.network.hi_ppo.coordinator:HiPpo",
    "static": "hippo.network.methods.static:Static",
    "robust_static": "hippo.network.methods.robust_static:RobustStatic",
    "greedy": "hippo.network.methods.greedy:Greedy",
    "hysteresis": "hippo.network.methods.settings:hysteresis",
    "receding_horizon": "hippo.network.methods.settings:receding_horizon",
    "mast": "hippo.network.methods.settings:MAST",
    "sailor": "hippo.network.methods.settings:SAILOR",
    "crosspipe": "hippo.network.methods.settings:CROSSPIPE",
    "diloco": "hippo.network.methods.settings:DILOCO",
    "flat_ppo": "hippo.network.hi_ppo.flat_ppo:FlatPpo",
}
"""Who keeps the plan right while the network moves: what makes objects with the two methods of
``hippo.network.rules.view.Method``; under the name of a planner, that planner in motion. ``hindsight`` is no method: it
knows the future (``hippo.network.worlds.hindsight``)."""

TRAINING: Mapping[str, str] = {
    "hi_ppo": "hippo.network.train.train:train",
    "dispatch": "hippo.dispatch.train.train:train",
    "jobs": "hippo.jobs.train.train:train",
    "world": "hippo.jobs.joint.hi_ppo.train:train",
}
"""What ``hippo train`` runs, by the ``learner`` of its configuration. By name, because it alone needs torch."""

LEARNING: Mapping[str, str] = {
    "hi_ppo": "hippo.network.train.settings:parse_settings",
    "dispatch": "hippo.dispatch.train.settings:parse_settings",
    "jobs": "hippo.jobs.train.settings:parse_settings",
    "world": "hippo.jobs.joint.hi_ppo.settings:parse_settings",
}
"""What makes settings of a learner's configuration."""

JOB_POLICIES: Mapping[str, str] = {
    "fifo": "hippo.jobs.policies.heuristics:FIFO",
    "backfill": "hippo.jobs.policies.heuristics:BACKFILL",
    "sjf": "hippo.jobs.policies.heuristics:SJF",
    "srtf": "hippo.jobs.policies.heuristics:SRTF",
    "fair": "hippo.jobs.policies.heuristics:FAIR",
    "two_queue": "hippo.jobs.policies.heuristics:TWO_QUEUE",
    "max_min": "hippo.jobs.policies.heuristics:MAX_MIN",
    "deadline": "hippo.jobs.policies.heuristics:DEADLINE",
    "least_slack": "hippo.jobs.policies.heuristics:LEAST_SLACK",
    "learned": "hippo.jobs.policies.learned:LEARNED",
}
"""Who goes first in a queue of jobs: values of ``jobs.policies.policy.QueuePolicy``."""

JOB_SCHEDULERS: Mapping[str, str] = {
    "separate": "hippo.jobs.joint.settings:SEPARATE",
    "mast": "hippo.jobs.joint.settings:MAST",
    "sailor": "hippo.jobs.joint.settings:SAILOR",
    "crosspipe": "hippo.jobs.joint.settings:CROSSPIPE",
    "diloco": "hippo.jobs.joint.settings:DILOCO",
    "goodput": "hippo.jobs.joint.settings:GOODPUT",
    "crux": "hippo.jobs.joint.settings:CRUX",
    "hyperion": "hippo.jobs.joint.settings:HYPERION",
    "sla_morl": "hippo.jobs.joint.settings:SLA_MORL",
    "shortest": "hippo.jobs.joint.settings:SHORTEST",
    "srpt": "hippo.jobs.joint.settings:SRPT",
    "first_fit": "hippo.jobs.joint.settings:FIRST_FIT",
    "best_fit": "hippo.jobs.joint.settings:BEST_FIT",
    "fgd": "hippo.jobs.joint.settings:FGD",
    "receding_horizon": "hippo.jobs.joint.settings:RECEDING_HORIZON",
    "hi_ppo": "hippo.jobs.joint.hi_ppo.policy:HI_PPO",
    "hi_ppo_verified": "hippo.jobs.joint.hi_ppo.verified:HI_PPO_VERIFIED",
}
"""Who decides for elastic jobs, sizes, places and shapes together: values of ``jobs.joint.moment.Scheduler``."""

LIVE_SCHEDULERS: Mapping[str, str] = {"hi_ppo": "hippo.jobs.joint.hi_ppo.online:live_agents"}
"""What makes such a scheduler that learns while it serves. By name, because learning alone needs torch."""

ACTUATORS: Mapping[str, str] = {
    "paper": "hippo.serve.actuators.paper:Paper",
    "own": "hippo.serve.actuators.own:Own",
    "slurm": "hippo.serve.actuators.slurm:slurm",
    "ray": "hippo.serve.actuators.ray_jobs:ray",
    "kueue": "hippo.serve.actuators.kueue:Kueue",
}
"""Who carries out what ``hippo serve`` decides: what makes one of the form ``serve.actuators.base.Actuator``."""

EXPORTERS: Mapping[str, str] = {
    "megatron": "hippo.export.megatron:export",
    "deepspeed": "hippo.export.deepspeed:export",
    "torchtitan": "hippo.export.torchtitan:export",
    "torchft": "hippo.export.torchft:export",
    "maxtext": "hippo.export.maxtext:export",
    "torchrun": "hippo.export.torchrun:export",
    "slurm": "hippo.export.slurm:export",
    "skypilot": "hippo.export.skypilot:export",
    "ray": "hippo.export.ray:export",
    "jobset": "hippo.export.jobset:export",
    "chakra": "hippo.export.chakra:export",
}
"""What ``hippo export --to`` writes for: functions of the form ``export.base.Exporter``."""


def load(table: Mapping[str, str], kind: str, name: str, *, source: str | None = None) -> Any:
    """The object of that name; ``UnknownNameError`` (with ``kind`` and ``source`` in its words) lists the table."""
    if name not in table:
        raise UnknownNameError(kind, name, table, source=source)
    module, attribute = table[name].split(":")
    return getattr(import_module(module), attribute)


def planner(name: str) -> Planner:
    """A planner by name; ``UnknownNameError`` lists them, and the word for all that compete."""
    if name == EVERYONE:
        raise InputError(
            f"'{EVERYONE}' stands for all that compete, not for one", source="--planner", remedy="write it alone"
        )
    if name not in PLANNERS:
        raise UnknownNameError("planner", name, (*PLANNERS, EVERYONE), source="--planner")
    found: Planner = load(PLANNERS, "planner", name)()
    return found


def planners(names: Iterable[str]) -> tuple[Planner, ...]:
    """Planners by name, in the order given."""
    return tuple(planner(name) for name in names)


def engine(name: str) -> Any:
    """The function that plays a plan, by name; ``UnknownNameError`` lists them."""
    return load(ENGINES, "simulation engine", name, source="--engine")


def exporter(name: str) -> Exporter:
    """The function that writes for a target, by name; ``UnknownNameError`` lists them."""
    found: Exporter = load(EXPORTERS, "target", name, source="--to")
    return found


def job_policy(name: str) -> QueuePolicy:
    """A policy of the job queue by name; ``UnknownNameError`` lists them."""
    found: QueuePolicy = load(JOB_POLICIES, "job policy", name, source="--policy")
    return found
