"""Moving networks: a trace replayed decision by decision, and methods held against perfect hindsight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib.resources import files
from os import times
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any

from hippo import first_use
from hippo.arguments import check_fields
from hippo.dynamics.forecast import FORECASTS
from hippo.errors import InputError, UnknownNameError
from hippo.network.evaluate.entrants import Entrant, StaticLevers, compete, held, hi_ppo, named
from hippo.network.evaluate.evidence import evidence, figures_asked
from hippo.network.evaluate.figures import world_document
from hippo.network.evaluate.suite import MAIN, Suite, play_suite, tasks
from hippo.network.methods.settings import searched
from hippo.network.rules.view import Method
from hippo.network.why.story import Story
from hippo.network.worlds.generator import FAMILIES, DrawnTerms, world_from_trace
from hippo.network.worlds.judge import scenario_of
from hippo.network.worlds.replay import Source, Watcher, replay
from hippo.network.worlds.world import World
from hippo.planners.base import Progress, Stop
from hippo.problem.load import load_trace
from hippo.problem.problem import Problem, check_agrees, check_compresses, check_worth
from hippo.problem.runtimes import runtime_of
from hippo.registry import METHODS, PLANNERS, USUAL, load, planner, planners

OURS, STATIC, HINDSIGHT = "hi_ppo", "static", "hindsight"
PLANNING = Stop(time_limit_s=5.0)  # for a planner whose plan is held fixed
SHORTEST_EPOCH_S, LONGEST_EPOCH_S = 1.0, 86_400.0


# ---------------------------------------------------------------------------------------------------------------- watch
def watch(
    problem: Problem,
    trace: str | Path,
    *,
    method: str | Method = OURS,
    epoch_s: float | None = None,
    watcher: Callable[[World], Watcher] | None = None,
    progress: Progress | None = None,
) -> Story:
    """A network trace (CSV) replayed: what a method decided at each epoch and why, beside keeping and hindsight. Where
    what crosses domains may be compressed, the same run without that stands beside it.

    ``method``: a name, or what ``method_named`` makes of one; ``epoch_s``: seconds between decisions, None: the trace's
    own; ``watcher``: asked for whom to show each epoch while the run goes on. Raises ``InputError`` for an unknown
    method or a trace that does not fit the cluster, ``InfeasibleError`` where no plan runs at the start.
    """
    decider = method_named(method) if isinstance(method, str) else method
    if decider.name == "diloco" and not problem.allow_local_sgd:
        raise InputError("trains every domain alone", source="--method", value="diloco", remedy="add --allow-local-sgd")
    plain = None
    if problem.compresses:
        need_worth(problem.allow_compression, problem.compression_worth)
        plain = watch(_uncompressed(problem), trace, method=deepcopy(decider), epoch_s=epoch_s, progress=progress)
    world, begin_s = _world(problem, trace, epoch_s)
    first_use.prepare_moving(decider.name, progress=progress)
    aim = problem.objective
    setting = scenario_of(world, weights=(aim.w_eff, aim.w_util, aim.w_cost), watch=progress)
    shown = None if watcher is None else watcher(world)
    told = replay(world, setting.cache, decider, setting.terms, Source(str(trace), begin_s), watcher=shown)
    return replace(told, plain=plain)


def method_named(
    name: str, *, policy: str | Path | None = None, adapt: bool = False, source: str = "--method"
) -> Method:
    """Who decides. For ``hi_ppo`` alone: the file of its policy (None: the one that ships), and whether its preferences
    follow the network's state. ``InputError``: no such name, or a policy that is missing or cannot be read."""
    kind: Any = load(METHODS, "method", name, source=source)
    if name != OURS:
        if policy is not None:
            remedy = f"leave out --policy, or use --method {OURS}"
            raise InputError(f"only {OURS} takes a policy", source="--policy", value=str(policy), remedy=remedy)
        if adapt:
            raise InputError(f"only {OURS} adapts its preferences", source="--adapt", remedy="leave it out")
        found: Method = kind()
        return found
    from hippo.network.hi_ppo.coordinator import CoordinatorSettings
    from hippo.network.hi_ppo.serving import SHIPPED, Policy

    if policy is None and not SHIPPED.exists():
        remedy = "train one with 'hippo train' and name it with --policy, or use --method receding_horizon"
        raise InputError("this installation has no trained policy", source=str(SHIPPED), remedy=remedy)
    trained = None if policy is None else Policy.load(Path(policy))
    chosen: Method = kind(trained, settings=CoordinatorSettings(adapt=adapt))
    return chosen


def need_worth(allow_compression: bool, compression_worth: float | None) -> None:
    """``InputError`` where what crosses domains may be compressed and nobody said what a token trained so is worth:
    that is not published for training over links, and nothing is taken for granted."""
    if allow_compression and compression_worth is None:
        remedy = "give the share of a token that you count one trained so for, for instance from the loss of such a run"
        raise InputError("is needed with --allow-compression", source="--compression-worth", remedy=remedy)


def drawn_terms(
    *, runtime: str = "hippo", allow_local_sgd: bool = False, allow_compression: bool, compression_worth: float | None
) -> DrawnTerms:
    """The terms of drawn worlds, checked as those of a problem are; ``auto`` is hippo's executor, as drawn models are
    dense."""
    runtime = "hippo" if runtime == "auto" else runtime
    check_compresses(runtime_of(runtime), allow_compression)
    check_agrees(runtime_of(runtime), allow_local_sgd=allow_local_sgd)
    check_worth(allow_compression, compression_worth)
    need_worth(allow_compression, compression_worth)
    return DrawnTerms(runtime, allow_local_sgd, compression_worth)


def _uncompressed(problem: Problem) -> Problem:
    """The same question where nothing is compressed."""
    return replace(problem, allow_compression=False, compression_worth=None)


def _world(problem: Problem, trace: str | Path, epoch_s: float | None) -> tuple[World, float]:
    """The trace cut into epochs, and the time it begins at; every link must have a value there."""
    if epoch_s is not None and not SHORTEST_EPOCH_S <= epoch_s <= LONGEST_EPOCH_S:
        told = f"must be from {SHORTEST_EPOCH_S:g} to {LONGEST_EPOCH_S:g} seconds"
        raise InputError(told, source="--epoch", value=epoch_s, remedy="give seconds, for instance 60")
    need_worth(problem.allow_compression, problem.compression_worth)
    moves = load_trace(trace, problem.cluster, complete=True)
    return world_from_trace(problem, moves, epoch_s=epoch_s, name=Path(trace).stem), float(moves.time_s[0])


# ------------------------------------------------------------------------------------------------------------- evaluate
def evaluate(
    problem: Problem,
    trace: str | Path,
    methods: Iterable[str] | None = None,
    *,
    policy: str | Path | None = None,
    forecast: str = "kalman",
    epoch_s: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """How near methods come to perfect hindsight along a trace: the document of ``hippo evaluate --json``. Where what
    crosses domains may be compressed, ``without_compression`` is the same document without that.

    ``methods``: names of methods, and of planners whose plan is then kept unless they are methods, too; None: every
    method. Those that have no plan for the problem are left out. Raises ``InputError`` for names that nobody has, a
    policy or a trace that is wrong, ``InfeasibleError`` where no plan runs at the start.
    """
    _check_forecast(forecast)
    asked = methods_named(methods)
    _check_policy(policy, asked)
    if problem.compresses:
        need_worth(problem.allow_compression, problem.compression_worth)
        told: dict[str, Any] = {"policy": policy, "forecast": forecast, "epoch_s": epoch_s, "seed": seed}
        plain = evaluate(_uncompressed(problem), trace, asked, **told, progress=progress)
    world, begin_s = _world(problem, trace, epoch_s)
    first_use.prepare_moving(progress=progress)
    base, kept = _baseline(problem, seed)
    entrants = []
    for name in dict.fromkeys((*asked, STATIC)):
        kept_plan = held(problem, [planner(name)], PLANNING, seed=seed) if name in PLANNERS else []
        if name not in METHODS:
            entrants += kept_plan
        elif kept_plan or name not in PLANNERS:  # a planner in motion has a plan for the network at rest
            entrants.append(_entrant(name, policy))
    extra = [] if base in {each.name for each in entrants} else kept
    aim = problem.objective
    setting = scenario_of(world, forecast=forecast, weights=(aim.w_eff, aim.w_util, aim.w_cost), watch=progress)
    judged = compete(setting, [*entrants, *extra], watch=progress)
    found = world_document(judged, [name for name in asked if name in judged.runs], baseline=base, begin_s=begin_s)
    return found | ({"without_compression": plain} if problem.compresses else {})


def methods_named(methods: Iterable[str] | None) -> list[str]:
    """The methods (and planners) asked for, in order; all methods, hindsight last, where none is named. What is both is
    the method: the planner in motion."""
    if methods is None:
        return [*METHODS, HINDSIGHT]
    found = [name.strip() for name in methods if name.strip()]
    if not found:
        raise InputError("names no method", source="--methods", remedy=f"write {','.join(METHODS)}")
    for name in found:
        if name not in (*METHODS, *PLANNERS, HINDSIGHT):
            raise UnknownNameError("method", name[:60], (*METHODS, HINDSIGHT), source="--methods")
    return list(dict.fromkeys(found))


def _check_forecast(name: str) -> None:
    if name not in FORECASTS:
        raise UnknownNameError("forecast", name[:60], FORECASTS, source="--forecast")


def _check_policy(policy: str | Path | None, asked: Sequence[str]) -> None:
    """``InputError`` before any work for a policy that cannot be read, or that nobody would follow."""
    if OURS in asked:
        hi_ppo(None if policy is None else str(policy))
    elif policy is not None:
        remedy = f"leave out --policy, or name {OURS} among --methods"
        raise InputError(f"only {OURS} takes a policy", source="--policy", value=str(policy), remedy=remedy)


def _entrant(name: str, policy: str | Path | None) -> Entrant:
    """A method; any process can make its own."""
    if name != OURS:
        return Entrant(name, load(METHODS, "method", name))
    return Entrant(name, partial(hi_ppo, None if policy is None else str(policy)))


def _baseline(problem: Problem, seed: int) -> tuple[str, list[Entrant]]:
    """Whose kept plan rewards are measured against: the first of the usual that finds one, else ``static``."""
    for name in USUAL:
        found = held(problem, [planner(name)], PLANNING, seed=seed)
        if found:
            return name, found
    return STATIC, []


# --------------------------------------------------------------------------------------------------- the standard suite
@dataclass(frozen=True)
class SuiteRun:
    """What the suite came to: the document of ``hippo evaluate --json``, and a row per world and method."""

    document: dict[str, Any]
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class SuiteChoice:
    """Which part of the suite, and who competes."""

    methods: tuple[str, ...] | None = None  # None: all
    policy: str | Path | None = None  # of hi_ppo; None: the one that ships
    families: tuple[str, ...] | None = None  # of networks; None: all, and what is not about families
    parts: tuple[str, ...] | None = None  # of ``PARTS``; None: all, or with families those that are about families
    seeds: int = 20  # worlds of each family
    seed: int = 0  # the first of them
    forecast: str = "kalman"
    terms: DrawnTerms = DrawnTerms("hippo")  # under which the worlds' problems are asked

    def __post_init__(self) -> None:
        check_fields(self)


def evaluate_suite(
    choice: SuiteChoice | None = None, *, processes: int = 1, ray: bool = False, progress: Progress | None = None
) -> SuiteRun:
    """The standard suite: drawn worlds of every family, all methods, ablations and kept plans. It takes hours.
    ``ray``: by so many workers of a Ray cluster in place of processes.

    Raises ``InputError`` for a family, a method or a policy that does not exist.
    """
    suite, began = suite_of(choice or SuiteChoice()), _clocks()
    first_use.prepare_moving(progress=progress)
    rows = play_suite(suite, processes=processes, ray=ray, watch=progress)
    found = evidence(rows, ours=suite.ours, ablations=[each.name for each in suite.ablations])
    asked = figures_asked(found, ours=suite.ours)
    others = ("entrants", "ablations", "planners")
    told = {each.name: getattr(suite, each.name) for each in fields(Suite) if each.name not in others}
    cpu_s, wall_s = (now - before for now, before in zip(_clocks(), began, strict=True))
    about = {
        **told,
        "families": list(suite.families),
        "preference": list(suite.preference),
        "terms": asdict(suite.terms),
        "options": _options(choice or SuiteChoice()),
        "settings": searched(),
        "methods": [each.name for each in suite.entrants],
        "processes": processes,
        "tasks": len(tasks(suite)),
        "cpu_s": cpu_s,
        "wall_s": wall_s,
    }
    return SuiteRun({"suite": about, "figures": asked, **found}, rows)


def _options(choice: SuiteChoice) -> str:
    """How ``hippo evaluate`` is told to play no other suite than this."""
    terms, usual = choice.terms, SuiteChoice()
    told = {name: getattr(choice, name) for name in ("methods", "families", "parts", "seeds", "seed", "forecast")}
    told = {name: value for name, value in told.items() if value != getattr(usual, name)}
    told |= {"runtime": terms.runtime} if terms.runtime != usual.terms.runtime else {}
    words = [f" --{name} {value if not isinstance(value, tuple) else ','.join(value)}" for name, value in told.items()]
    words += [" --allow-local-sgd"] if terms.allow_local_sgd else []
    if terms.compression_worth is not None:
        words.append(f" --allow-compression --compression-worth {terms.compression_worth:g}")
    return "".join(words)


def suite_of(choice: SuiteChoice) -> Suite:
    """The suite that is asked for."""
    _check_forecast(choice.forecast)
    families = MAIN if choice.families is None else choice.families
    for family in families:
        if family not in FAMILIES:
            raise UnknownNameError("family of networks", family[:60], FAMILIES, source="--families")
    asked = [name for name in dict.fromkeys((*methods_named(choice.methods), STATIC)) if name != HINDSIGHT]
    if any(name in PLANNERS and name not in METHODS for name in asked):
        remedy = "leave them out: the suite holds the plans of all planners fixed"
        raise InputError("plans of planners are no methods of the suite", source="--methods", remedy=remedy)
    _check_policy(choice.policy, asked)
    suite = Suite(
        (*(_entrant(name, choice.policy) for name in asked), Entrant(StaticLevers.name, StaticLevers)),
        ablations=ablations(choice.policy) if OURS in asked else (),
        planners=planners(name for name in PLANNERS if name not in ("exact", "brute")),
        families=families,
        seeds=choice.seeds,
        first_seed=choice.seed,
        forecast=choice.forecast,
        terms=choice.terms,
        ours=OURS if OURS in asked else asked[0],
    )
    if choice.families is not None and choice.parts is None:  # these are not about families
        suite = replace(suite, large=0, movement=0, load=0, fronts=0)
    for part in choice.parts or ():
        if part not in PARTS:
            raise UnknownNameError("part of the suite", part[:60], PARTS, source="--parts")
    few = [name for part, name in PARTS.items() if choice.parts is None or part in choice.parts]
    counts: dict[str, Any] = {
        name: min(getattr(suite, name), suite.seeds) if name in few else 0 for name in PARTS.values()
    }
    return replace(suite, **counts)


PARTS: Mapping[str, str] = MappingProxyType(
    {
        "main": "seeds",
        "held": "held",
        "ablations": "ablated",
        "times": "timed",
        "large": "large",
        "movement": "movement",
        "swings": "swings",
        "load": "load",
        "front": "fronts",
    }
)
"""Parts of the suite, and how many worlds of each are played (``Suite``); ``held``, ``ablations`` and ``times`` are on
worlds of ``main``, ``swings`` on those of ``movement``."""


def ablations(policy: str | Path | None = None) -> tuple[Entrant, ...]:
    """Variants of Hi-PPO without one of its parts: settings of the coordinator, and policies that were trained without
    it (``network/hi_ppo/policies/no_*.policy``), as far as they are shipped."""
    usual = None if policy is None else str(policy)
    off: dict[str, dict[str, Any]] = {
        "no_verification": {"verify": False},
        "no_fresh_plans": {"fresh": False},
        "no_free_levers": {"levers": False},
        "flat": {"construct": 0},
    }
    found = [Entrant(name, partial(named, name, usual, **settings)) for name, settings in off.items()]
    policies = Path(str(files("hippo.network.hi_ppo"))) / "policies"
    trained = {file.stem: str(file) for file in sorted(policies.glob("no_*.policy"))}
    blind = trained.pop("no_forecast", usual)
    found.append(Entrant("no_forecast", partial(named, "no_forecast", blind), forecast="persistence"))
    return (*found, *(Entrant(name, partial(named, name, file)) for name, file in trained.items()))


def _clocks() -> tuple[float, float]:
    """CPU seconds of this process and of those that it has started and seen end, and seconds by the clock."""
    return sum(times()[:4]), perf_counter()
