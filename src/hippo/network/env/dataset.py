"""Worlds prepared for learning: what every configuration does and is forecast to do at every epoch, and hindsight.

A world is prepared once (about a second or two), after that a step in it is a look-up. A *dataset* holds worlds of any
size side by side in two flat arrays, so that one kernel runs through all of them and nothing is padded. What a run
knows at which epoch is what whoever follows the world comes to know: plans and levers at hand at the start, and those
found on the way (``discovered``).

Letters: W worlds, T epochs, C configurations, P places, E links, K domains, F preferences, N fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.dynamics.forecast import forecast_all
from hippo.errors import InfeasibleError, InputError
from hippo.files import write_whole
from hippo.machine import shared_out
from hippo.network.env.reward import SLACK, draw_weights, taste_of
from hippo.network.env.tables import DatasetArrays, Truth
from hippo.network.methods.receding_horizon import RecedingHorizon
from hippo.network.observation.observe import assemble
from hippo.network.observation.options import imbalance, weak_share
from hippo.network.observation.scene import (
    SAMPLED,
    Conditions,
    Scene,
    ages,
    figures,
    instants_met,
    log_net,
    rates,
    scalars,
)
from hippo.network.plans.candidates import fill
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import Rollout
from hippo.network.rules.renewal import Renewal, replan
from hippo.network.rules.view import Action, View
from hippo.network.worlds.generator import DrawnTerms, make_world
from hippo.network.worlds.hindsight import hindsight
from hippo.network.worlds.judge import scenario_of
from hippo.network.worlds.play import DEFAULT_FORECAST, steps, telemetry_of, usd_per_token
from hippo.network.worlds.world import World, check_engine, rollout
from hippo.planners.base import Progress

PREFERENCES = 3
"""Preferences that hindsight is worked out for in each problem's first world; the first is work alone, as in others."""
VERSION = 4


class Prepared(NamedTuple):
    """One world, ready to be run."""

    name: str
    family: str
    scene: Scene  # of every epoch
    truth: Truth


class Dataset(NamedTuple):
    """Worlds side by side; fields are those of ``Scene``, then those of ``Truth``."""

    floats: NDArray[np.float32]
    ints: NDArray[np.int64]
    offset: NDArray[np.int64]  # (W, N) where a field begins
    shape: NDArray[np.int64]  # (W, N, 3)
    names: NDArray[np.str_]  # (W,)
    families: NDArray[np.str_]  # (W,)

    @property
    def worlds(self) -> int:
        """W."""
        return len(self.offset)

    @property
    def domains(self) -> int:
        """Most domains of a world."""
        return int(self.shape[:, FIELDS.index("gpus"), 0].max())

    @property
    def links(self) -> int:
        """Most links of a world."""
        return int(self.shape[:, FIELDS.index("base"), 0].max())


FIELDS = (*Scene._fields, *(f"true_{name}" for name in Truth._fields))
_WHOLE_NUMBERS = ("place", "member", "first", "ends", "since", "true_best")


def prepare(
    world: World,
    cache: PlanCache,
    *,
    since: NDArray[np.int64] | None = None,
    forecast: str = DEFAULT_FORECAST,
    preferences: int = PREFERENCES,
    engine: str = "fast",
) -> Prepared:
    """Plays every configuration of the cache at every epoch, as it is (by ``engine``) and as it is forecast, and
    searches hindsight, which knows them all from the start. ``since`` (C,): from which epoch on a run knows them
    (default: the first).

    ``InputError``: the cache is empty.
    """
    if len(cache) == 0:
        raise InputError("no plan can run", source=world.name, remedy="give it more memory or links")
    price = usd_per_token(world, cache)
    known, told = figures(cache, price), telemetry_of(world)
    ahead = forecast_all(told, world.problem.cluster, world.epoch_s, method=forecast)
    seen = Conditions(ahead.bandwidth_bytes_per_s, ahead.latency_s, ahead.compute, ahead.sd)
    played = rates(cache, seen)
    believed = played.tokens[:, 0]  # (T, C)
    logs = log_net(believed, known.arrays["usd"], price, known.usual)
    base = known.arrays["base"]
    numbers = scalars(
        cache,
        epoch_s=world.epoch_s,
        restart_s=world.problem.rules.prices.stop_s,
        usd_per_token=price,
        usual=known.usual,
        epochs=world.epochs,
    )
    met = np.array([logs[instants_met(epoch)].sum(axis=0) / SAMPLED for epoch in range(world.epochs)])
    age = ages(told.bandwidth_bytes_per_s, base)
    left = np.arange(world.epochs, 0, -1)
    weights = draw_weights(preferences, np.random.default_rng((world.seed, 77)))
    scene = assemble(known.arrays, numbers, seen, played, age=age, met=met, left=left, weights=weights, since=since)
    true = rollout(world, cache, engine=engine)
    return Prepared(world.name, world.family, scene, _truth(world, scene, true, price, weights, believed))


def _truth(
    world: World, scene: Scene, true: Rollout, price: float, weights: NDArray[np.float64], believed: NDArray[np.float64]
) -> Truth:
    usual = float(scene.scalars[5])
    tastes = [taste_of(each, epoch_s=world.epoch_s, usual=usual, usd_per_token=price) for each in weights]
    values = [hindsight(true, price, taste=taste).value for taste in tastes]
    weak, uneven = np.zeros(true.tokens_per_s.shape, np.float32), np.zeros(true.tokens_per_s.shape, np.float32)
    _constraints(
        scene, np.float32(world.bandwidth_bytes_per_s), np.float32(np.minimum(world.compute, 10.0)), weak, uneven
    )
    per_usd = 1.0 / price if price > 0 else 0.0
    unknown = scene.since > np.arange(world.epochs)[:, None]
    best = np.argmax(np.where(unknown, -np.inf, believed * (1.0 - per_usd * scene.usd)), axis=1)
    return Truth(
        tokens=_single(true.tokens_per_s),
        egress=_single(true.egress_usd_per_s),
        utilization=_single(true.utilization),
        bandwidth=_single(true.bandwidth_bytes_per_s),
        weak=weak,
        uneven=np.maximum(0.0, uneven - np.float32(SLACK)),
        value=_single(np.stack(values)),
        weights=_single(weights),
        best=best.astype(np.int64),
    )


def _single(array: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.ascontiguousarray(array, dtype=np.float32)


@kernel
def _constraints(scene, bandwidth, compute, weak, uneven):  # type: ignore[no-untyped-def]
    for epoch in range(len(weak)):
        for each in range(weak.shape[1]):
            weak[epoch, each] = weak_share(scene, bandwidth[epoch], each)
            uneven[epoch, each] = imbalance(scene, compute[epoch], each)


def dataset_of(prepared: Sequence[Prepared]) -> Dataset:
    """Worlds side by side."""
    floats: list[NDArray[Any]] = []
    ints: list[NDArray[Any]] = []
    offset = np.zeros((len(prepared), len(FIELDS)), dtype=np.int64)
    shape = np.ones((len(prepared), len(FIELDS), 3), dtype=np.int64)
    reached = {"f": 0, "i": 0}
    for world, each in enumerate(prepared):
        arrays: list[NDArray[Any]] = [*each.scene, *each.truth]
        for field, array in enumerate(arrays):
            kind = array.dtype.kind
            offset[world, field] = reached[kind]
            shape[world, field, : array.ndim] = array.shape
            reached[kind] += array.size
            (floats if kind == "f" else ints).append(array.ravel())
    return Dataset(
        np.concatenate(floats),
        np.concatenate(ints),
        offset,
        shape,
        np.array([each.name for each in prepared]),
        np.array([each.family for each in prepared]),
    )


def joined(datasets: Sequence[Dataset]) -> Dataset:
    """The worlds of all of them, in their order."""
    whole = np.array([name in _WHOLE_NUMBERS for name in FIELDS])
    ints = np.cumsum([0, *(len(each.ints) for each in datasets)])
    floats = np.cumsum([0, *(len(each.floats) for each in datasets)])
    offset = [each.offset + np.where(whole, ints[place], floats[place]) for place, each in enumerate(datasets)]
    columns = {name: np.concatenate([getattr(each, name) for each in datasets]) for name in Dataset._fields}
    return Dataset(**{**columns, "offset": np.concatenate(offset)})


def save(dataset: Dataset, path: Path) -> None:
    """Writes a dataset as .npz, whole or not at all."""
    stream = BytesIO()
    np.savez(stream, version=VERSION, **dataset._asdict())
    write_whole(path, stream.getvalue())


def load(path: Path) -> Dataset:
    """Reads a dataset; ``InputError``: no such file, or not one of this version."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            if int(stored["version"]) == VERSION and stored["offset"].shape[1] == len(FIELDS):
                return Dataset(*(stored[name] for name in Dataset._fields))
    except (OSError, KeyError, ValueError):
        pass
    raise InputError("not a dataset of worlds of this version", source=str(path), remedy="make it anew")


@dataclass(frozen=True)
class Preparation:
    """How worlds are prepared. ``UnknownNameError`` for another engine than those of worlds, ``InputError`` where its
    binary is missing."""

    split: str = "train"
    movements: int = 1  # of the network of each problem
    forecast: str = DEFAULT_FORECAST
    preferences: int = PREFERENCES
    engine: str = "fast"
    terms: DrawnTerms = DrawnTerms()

    def __post_init__(self) -> None:
        check_engine(self.engine)


def make_dataset(
    wanted: Iterable[tuple[str, int]],
    how: Preparation = Preparation(),
    *,
    processes: int = 1,
    watch: Progress | None = None,
    kept: Path | None = None,
) -> Dataset:
    """Prepares the worlds of these (family, seed); those without any plan are left out. Order as given, so the number
    of processes changes nothing.

    ``kept``: a folder where every problem lies once it is prepared, so that whoever was interrupted can go on.
    """
    problems = list(wanted)
    found: dict[int, Dataset | None] = {}
    for place, each in shared_out(partial(_prepared, how=how, kept=kept), problems, processes):
        found[place] = each
        if watch is not None:
            watch(f"prepared {len(found)} of {len(problems)} problems", len(found) / len(problems))
    in_order = [each for place in range(len(problems)) if (each := found[place]) is not None]
    if not in_order:
        raise InputError("no world has a plan", source="dataset", remedy="choose other families or seeds")
    return joined(in_order)


def _prepared(problem: tuple[str, int], how: Preparation, kept: Path | None) -> Dataset | None:
    """Every movement of one problem; None: it has no plan."""
    family, seed = problem
    file = None if kept is None else kept / f"{family}-{seed}-{crc32(repr((VERSION, how)).encode()):08x}.npz"
    if file is not None and file.exists():
        return load(file)
    found, cache = [], None
    for movement in range(how.movements):
        world = make_world(family, seed, split=how.split, movement=movement, terms=how.terms)
        if cache is None:
            cache = PlanCache(world.problem)
            fill(cache)
        own, since = discovered(world, cache)
        if len(own):
            preferences = 1 if movement else how.preferences
            found.append(
                prepare(world, own, since=since, forecast=how.forecast, preferences=preferences, engine=how.engine)
            )
    dataset = dataset_of(found) if found else None
    if file is not None and dataset is not None:
        save(dataset, file)
    return dataset


def tables(dataset: Dataset) -> DatasetArrays:
    """What kernels take."""
    return DatasetArrays(dataset.floats, dataset.ints, dataset.offset, dataset.shape)


class _Follower:
    """Stays where the receding horizon begins, and makes plans anew when it would."""

    name = "follower"

    def __init__(self) -> None:
        self._renewal = Renewal()

    def begin(self, view: View) -> int:
        """Where the receding horizon begins."""
        self._renewal.begin(view)
        return RecedingHorizon().begin(view)

    def decide(self, view: View) -> Action:
        """Keep."""
        if self._renewal.due(view):
            replan(view, view.running)
        return Action()


def discovered(world: World, cache: PlanCache | None = None) -> tuple[PlanCache, NDArray[np.int64]]:
    """A cache with everything that was found along the world, and from which epoch on each was known, (C,).

    ``cache``: one that is filled for this problem; it stays as it is. Some seconds; deterministic. Empty where no plan
    can run.
    """
    try:
        setting = scenario_of(world, cache=None if cache is None else cache.copy(share=True))
        own, since = setting.cache.copy(share=True), list[int]()
        for at, _ in enumerate(steps(world, own, _Follower(), setting.terms, forecasts=setting.forecasts)):
            since += [at] * (len(own) - len(since))
    except InfeasibleError:
        return PlanCache(world.problem), np.zeros(0, dtype=np.int64)
    return own, np.array(since, dtype=np.int64)
