"""Worlds prepared for learning: what every configuration does and is forecast to do at every epoch, and hindsight.

A world is prepared once (about a second or two), after that a step in it is a look-up. A *bank* holds worlds of any
size side by side in two flat arrays, so that one kernel runs through all of them and nothing is padded.

Letters: W worlds, T epochs, C configurations, P places, E links, K domains, F preferences, N fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hippo.decide.online.candidates import fill
from hippo.decide.online.configuration import Book
from hippo.decide.online.forecast import forecast_all
from hippo.decide.online.levers import pull
from hippo.dynamics.links import base_bandwidth, base_latency
from hippo.envs.cross_domain.describe import imbalance, weak_share
from hippo.envs.cross_domain.generator import make_world
from hippo.envs.cross_domain.hindsight import hindsight
from hippo.envs.cross_domain.observe import assemble
from hippo.envs.cross_domain.play import DEFAULT_FORECAST, telemetry_of, usd_per_token
from hippo.envs.cross_domain.reward import SLACK, draw_weights, taste_of
from hippo.envs.cross_domain.scene import SAMPLED, Scene, Seen, ages, figures, instants_met, log_net, rates, scalars
from hippo.envs.cross_domain.tables import Tables, Truth
from hippo.envs.cross_domain.world import RESTART_S, World, course
from hippo.errors import InputError
from hippo.planners.base import Progress
from hippo.problem.problem import Problem
from hippo.simulate.compiling import ENTRY
from hippo.simulate.moving import Course

PREFERENCES = 3
"""Preferences that hindsight is worked out for in each world; the first is work alone."""
LEVERED, MOST_WEAK, MOST_CONFIGURATIONS = 8, 6, 96
"""Places whose levers are also pulled with links weak, links that are, configurations of a world at most."""
WEAK_LEFT = 0.3
VERSION = 2


class Prepared(NamedTuple):
    """One world, ready to be run."""

    name: str
    family: str
    scene: Scene  # of every epoch
    truth: Truth


class Bank(NamedTuple):
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
_WHOLE_NUMBERS = ("place", "member", "first", "ends", "true_best")


def prepare(
    world: World,
    book: Book,
    *,
    forecast: str = DEFAULT_FORECAST,
    preferences: int = PREFERENCES,
    engine: str = "fast",
) -> Prepared:
    """Plays every configuration of the book at every epoch, as it is (by ``engine``) and as it is forecast, and
    searches hindsight.

    ``InputError``: the book is empty.
    """
    if len(book) == 0:
        raise InputError("no plan can run", source=world.name, remedy="give it more memory or links")
    price = usd_per_token(world, book)
    known, told = figures(book, price), telemetry_of(world)
    ahead = forecast_all(told, world.problem.cluster, world.epoch_s, method=forecast)
    seen = Seen(ahead.bandwidth_bytes_per_s, ahead.latency_s, ahead.compute, ahead.sd)
    played = rates(book, seen)
    believed = played.tokens[:, 0]  # (T, C)
    logs = log_net(believed, known.arrays["usd"], price, known.usual)
    base = known.arrays["base"]
    numbers = scalars(
        book,
        epoch_s=world.epoch_s,
        restart_s=RESTART_S,
        usd_per_token=price,
        usual=known.usual,
        epochs=world.epochs,
    )
    met = np.array([logs[instants_met(epoch)].sum(axis=0) / SAMPLED for epoch in range(world.epochs)])
    age = ages(told.bandwidth_bytes_per_s, base)
    left = np.arange(world.epochs, 0, -1)
    scene = assemble(known.arrays, numbers, seen, played, age=age, met=met, left=left)
    rng = np.random.default_rng((world.seed, 77))
    true = course(world, book, engine=engine)
    return Prepared(
        world.name, world.family, scene, _truth(world, scene, true, price, draw_weights(preferences, rng), believed)
    )


def _truth(
    world: World, scene: Scene, true: Course, price: float, weights: NDArray[np.float64], believed: NDArray[np.float64]
) -> Truth:
    usual = float(scene.scalars[5])
    tastes = [taste_of(each, epoch_s=world.epoch_s, usual=usual, usd_per_token=price) for each in weights]
    values = [hindsight(true, price, taste=taste).value for taste in tastes]
    weak, uneven = np.zeros(true.tokens_per_s.shape, np.float32), np.zeros(true.tokens_per_s.shape, np.float32)
    _constraints(
        scene, np.float32(world.bandwidth_bytes_per_s), np.float32(np.minimum(world.compute, 10.0)), weak, uneven
    )
    per_usd = 1.0 / price if price > 0 else 0.0
    best = np.argmax(believed * (1.0 - per_usd * scene.usd), axis=1)
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


@njit(**ENTRY)
def _constraints(scene, bandwidth, compute, weak, uneven):  # type: ignore[no-untyped-def]
    for epoch in range(len(weak)):
        for each in range(weak.shape[1]):
            weak[epoch, each] = weak_share(scene, bandwidth[epoch], each)
            uneven[epoch, each] = imbalance(scene, compute[epoch], each)


def bank_of(prepared: Sequence[Prepared]) -> Bank:
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
    return Bank(
        np.concatenate(floats),
        np.concatenate(ints),
        offset,
        shape,
        np.array([each.name for each in prepared]),
        np.array([each.family for each in prepared]),
    )


def joined(one: Bank, other: Bank) -> Bank:
    """The worlds of two banks, those of ``one`` first."""
    shift = np.array([len(one.ints) if name in _WHOLE_NUMBERS else len(one.floats) for name in FIELDS])
    return Bank(
        np.concatenate([one.floats, other.floats]),
        np.concatenate([one.ints, other.ints]),
        np.concatenate([one.offset, other.offset + shift]),
        np.concatenate([one.shape, other.shape]),
        np.concatenate([one.names, other.names]),
        np.concatenate([one.families, other.families]),
    )


def save(bank: Bank, path: Path) -> None:
    """Writes a bank as .npz."""
    with path.open("wb") as file:
        np.savez(file, version=VERSION, **bank._asdict())


def load(path: Path) -> Bank:
    """Reads a bank; ``InputError``: no such file, or not one of this version."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            if int(stored["version"]) == VERSION and stored["offset"].shape[1] == len(FIELDS):
                return Bank(*(stored[name] for name in Bank._fields))
    except (OSError, KeyError, ValueError):
        pass
    raise InputError("not a bank of worlds of this version", source=str(path), remedy="make it anew")


def make_bank(
    wanted: Iterable[tuple[str, int]],
    *,
    split: str = "train",
    forecast: str = DEFAULT_FORECAST,
    preferences: int = PREFERENCES,
    engine: str = "fast",
    processes: int = 1,
    watch: Progress | None = None,
) -> Bank:
    """Prepares the worlds of these (family, seed); worlds without any plan are left out. Order as given, so the number
    of processes changes nothing."""
    tasks = [(family, seed, split, forecast, preferences, engine) for family, seed in wanted]
    found: list[Prepared | None] = []
    if processes == 1:
        for task in tasks:
            found.append(_prepared(task))
            _say(watch, len(found), len(tasks))
    else:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            for each in pool.map(_prepared, tasks):
                found.append(each)
                _say(watch, len(found), len(tasks))
    kept = [each for each in found if each is not None]
    if not kept:
        raise InputError("no world has a plan", source="bank", remedy="choose other families or seeds")
    return bank_of(kept)


def _prepared(task: tuple[str, int, str, str, int, str]) -> Prepared | None:
    family, seed, split, forecast, preferences, engine = task
    world = make_world(family, seed, split=split)
    book = stocked(world.problem)
    if len(book) == 0:
        return None
    return prepare(world, book, forecast=forecast, preferences=preferences, engine=engine)


def stocked(problem: Problem) -> Book:
    """A book of the plans worth knowing, and of what their levers give in the base state and with each used pair of
    links weak; about two seconds. Deterministic; empty where no plan can run."""
    book = Book(problem)
    fill(book)
    base, latency = base_bandwidth(problem.cluster), base_latency(problem.cluster)
    for place in range(book.places):
        index = book.of_place(place)[0]
        used = np.flatnonzero(book.bytes_per_step(index) > 0)
        states = [base]
        if place < LEVERED:
            states += [np.where(np.arange(len(base)) == link, WEAK_LEFT * base, base) for link in used[:MOST_WEAK]]
        for state in states:
            if len(book) < MOST_CONFIGURATIONS:
                pull(book, index, state, latency)
    return book


def _say(watch: Progress | None, done: int, of: int) -> None:
    if watch is not None:
        watch(f"prepared {done} of {of} worlds", done / of)


def tables(bank: Bank) -> Tables:
    """What kernels take."""
    return Tables(bank.floats, bank.ints, bank.offset, bank.shape)
