"""Worlds of many jobs: drawn, played by every scheduler, and what their figures say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hippo import first_use
from hippo.arguments import check_fields
from hippo.errors import InputError, UnknownNameError
from hippo.front_door.queues import SPANNER, check_allowed
from hippo.jobs.joint.evaluate.evidence import evidence
from hippo.jobs.joint.evaluate.suite import BOUNDS, WorldMethod, WorldSuite, play_worlds
from hippo.jobs.joint.evaluate.worlds import LOADS, NETWORKS, WorldGrid, WorldGround
from hippo.jobs.joint.settings import searched
from hippo.jobs.placement.offer_plans import offer_table
from hippo.jobs.traces.elastic import FAMILIES, usual_trainings
from hippo.jobs.traces.generate import MOST_JOBS, fitted
from hippo.jobs.traces.load import load_trace
from hippo.planners.base import Progress
from hippo.problem.load import load_cluster
from hippo.registry import JOB_SCHEDULERS, LOCAL_SGD, load, planner

OURS, VERIFIED = "hi_ppo", "hi_ppo_verified"
"""The trained agents, bare, and with what they say verified by simulation."""
STOPS = ("yes", "no")
MOST_DOMAINS = 64
MODELS = ("llama-3.2-3b", "qwen3-8b", "qwen2.5-14b", "llama-1-65b")
"""Of elastic jobs in worlds to be judged on; none is in ``configs/algo/world.yaml``, nor is the site."""


@dataclass(frozen=True, eq=False)
class WorldsRun:
    """What worlds came to: the document of ``hippo evaluate --world --json``, a row per world, method and policy, and a
    row per world and job."""

    document: dict[str, Any]
    rows: list[dict[str, Any]]
    jobs: list[dict[str, Any]]


@dataclass(frozen=True)
class WorldsChoice:
    """Which worlds are drawn, and who plays them."""

    methods: tuple[str, ...] | None = None  # None: all
    policies: tuple[str | Path, ...] = ()  # files of trained agents; they play as hi_ppo and hi_ppo_verified
    families: tuple[str, ...] | None = None  # of jobs; None: all
    loads: tuple[float, ...] = LOADS  # device-seconds that arrive per second over the site's devices
    networks: tuple[str, ...] = tuple(NETWORKS)
    domains: tuple[int, ...] = (4,)
    stops: tuple[str, ...] = STOPS  # whether running jobs may be stopped
    jobs: int | None = None  # of a world; None: 15 a domain
    seeds: int = 20  # worlds of each family, load and number of domains; networks in turn
    seed: int = 2000  # the first of them
    cluster: str = "three-aws-regions"  # name or file, whose domains are repeated
    models: tuple[str, ...] = MODELS  # that elastic jobs train
    like: str | Path | None = None  # trace after which jobs come and whose users ask; None: as the family says
    allow_local_sgd: bool = False  # elastic jobs may average over domains every H steps
    bounds: tuple[str, ...] = BOUNDS[:1]  # the search takes 100 plays and more of each world

    def __post_init__(self) -> None:
        check_fields(self)
        named = (
            ("family of jobs", "--families", self.families or (), FAMILIES),
            ("network", "--networks", self.networks, NETWORKS),
            ("method", "--methods", self.methods or (), JOB_SCHEDULERS),
            ("bound", "--bounds", self.bounds, BOUNDS),
            ("answer", "--stops", self.stops, STOPS),
        )
        for kind, source, words, known in named:
            for word in words:
                if word not in known:
                    raise UnknownNameError(kind, word[:60], known, source=source)
        check_allowed(self.methods or (), "--methods", local_sgd=self.allow_local_sgd)
        for source, values, least, most in (
            ("--domains", self.domains, 2, MOST_DOMAINS),
            ("--loads", self.loads, 0.001, 1000.0),
            ("--jobs", () if self.jobs is None else (self.jobs,), 2, MOST_JOBS),
            ("--seeds", (self.seeds,), 1, 1_000_000),
        ):
            if wrong := [each for each in values if not least <= each <= most]:
                problem, remedy = f"must be from {least:g} to {most:g}", "write another number"
                raise InputError(problem, source=source, value=wrong[0], remedy=remedy)
        for source, given in (
            ("--loads", self.loads),
            ("--networks", self.networks),
            ("--domains", self.domains),
            ("--stops", self.stops),
        ):
            if not given:
                raise InputError("names nothing", source=source, remedy="name one or more, or leave it out")

    @property
    def grid(self) -> WorldGrid:
        """The worlds."""
        families = tuple(FAMILIES) if self.families is None else self.families
        numbers = {"jobs": self.jobs, "seeds": self.seeds, "first_seed": self.seed}
        stops = tuple(each == STOPS[0] for each in self.stops)
        return WorldGrid(families, self.loads, self.networks, self.domains, stops, **numbers)  # type: ignore[arg-type]


def evaluate_worlds(
    choice: WorldsChoice | None = None, *, processes: int = 1, ray: bool = False, progress: Progress | None = None
) -> WorldsRun:
    """Drawn worlds of many jobs, played by every scheduler. ``ray``: by so many workers of a Ray cluster in place of
    processes.

    What the jobs can run under is planned first (a minute or two a model; kept). Raises ``InputError`` for a name that
    does not exist, a policy that cannot be read, or a model that fits nowhere.
    """
    asked = choice or WorldsChoice()
    methods, cluster = methods_of(asked), load_cluster(asked.cluster)
    like = None
    if asked.like is not None:
        trace = load_trace(Path(asked.like))
        like = fitted(trace.workload, begin_s=trace.begin_s)
    first_use.prepare((planner(SPANNER),), progress=progress)
    offers = offer_table(cluster, usual_trainings(asked.models), local_sgd=asked.allow_local_sgd, progress=progress)
    rules = tuple(load(JOB_SCHEDULERS, "policy", name) for name in competing(asked))
    suite = WorldSuite(WorldGround(asked.cluster, offers, like), methods, asked.bounds, rules)
    rows, jobs = play_worlds(suite, asked.grid.draws(), processes=processes, ray=ray, watch=progress)
    files = {"policies": [str(each) for each in asked.policies], "like": str(asked.like) if asked.like else None}
    about = {**asdict(asked), **files, "settings": searched()}
    return WorldsRun({"suite": about, **evidence(rows)}, rows, jobs)


def competing(choice: WorldsChoice) -> tuple[str, ...]:
    """All who train as the user allows."""
    return tuple(name for name in JOB_SCHEDULERS if choice.allow_local_sgd or name != LOCAL_SGD)


def methods_of(choice: WorldsChoice) -> Sequence[WorldMethod]:
    """Who plays: by name; policies that are named play in place of the one that ships."""
    names = tuple(dict.fromkeys(choice.methods or competing(choice)))
    ours = [each for each in names if each in (OURS, VERIFIED)]
    if choice.policies and not ours:
        remedy = f"add {OURS} to --methods, or leave --policy out"
        raise InputError(f"only {OURS} takes a policy", source="--policy", value=choice.policies[0], remedy=remedy)
    learned = [_learned(name, file) for name in ours for file in choice.policies]
    rest = [each for each in names if not (choice.policies and each in ours)]
    return (*learned, *(WorldMethod(each, load(JOB_SCHEDULERS, "policy", each)) for each in rest))


def _learned(name: str, file: str | Path) -> WorldMethod:
    """The agents of a file, by one of the two names."""
    from hippo.jobs.joint.hi_ppo.policy import Agents, HiPpoScheduler
    from hippo.jobs.joint.hi_ppo.verified import VerifiedScheduler

    path = Path(file)
    try:
        content = path.read_bytes()
    except OSError as error:
        remedy = "name the file that hippo train --config world wrote"
        problem = f"policy cannot be read: {error.strerror}"
        raise InputError(problem, source="--policy", value=str(path), remedy=remedy) from None
    bare = HiPpoScheduler(agents=Agents.unpacked(content, str(path)))
    return WorldMethod(name, bare if name == OURS else VerifiedScheduler(policy=bare), str(path))
