"""The worlds that a policy learns in, and those on which it is looked at: datasets made once, shares, and looks.

Training worlds are the first seeds of every family in turn; validation worlds are other seeds of the same split, from
``VALIDATION`` on. The test split is never opened here. Letters: W worlds, M options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from hippo.errors import InputError, UnknownNameError
from hippo.network.env.dataset import (
    FIELDS,
    Dataset,
    Preparation,
    Prepared,
    dataset_of,
    discovered,
    joined,
    load,
    make_dataset,
    prepare,
    save,
)
from hippo.network.env.env import DecisionRules, Env, TimeStep
from hippo.network.observation.features import OPTION_FEATURES, Observation
from hippo.network.train.rollout import Share, decide
from hippo.network.train.settings import HiPpoSettings
from hippo.network.worlds.generator import FAMILIES, DrawnTerms, world_from_trace
from hippo.network.worlds.world import World
from hippo.planners.base import Progress
from hippo.problem.load import load_problem, load_trace

RECORDED_BATCH = 256  # sequences of a step in the worlds of recorded traces
VALIDATION = 5000
"""First seed of the worlds that are looked at."""

TRAIN_FILE, VALIDATION_FILE = "bank.npz", "validation.npz"
GAIN_NOW, WORTH_REST = OPTION_FEATURES.index("gain_now"), OPTION_FEATURES.index("worth_rest")

Choose = Callable[[Observation], NDArray[np.int64]]


def datasets(
    settings: HiPpoSettings, folder: Path, *, progress: Progress | None = None
) -> tuple[Dataset, Dataset | None]:
    """Training and validation worlds: read from the folder where they are, else made and kept there.

    Raises
    ------
    InputError
        A family that the generator does not know; a file that is no dataset of this version; a recorded trace, its
        model or its cluster that cannot be read.
    """
    worlds = settings.worlds
    families = worlds.families or tuple(FAMILIES)
    for name in families:
        if name not in FAMILIES:
            raise UnknownNameError("family of networks", name, FAMILIES, key="worlds.families")
    recorded = [
        _recorded(words, worlds.terms) for words in worlds.traces
    ]  # read first: a mistake is told before the long work
    train = _dataset(
        folder / TRAIN_FILE, seeds(families, worlds.train, worlds.first_seed), worlds.movements, settings, progress
    )
    if recorded:
        forecast = "persistence" if settings.ablation.no_forecast else "kalman"
        train = joined([train, dataset_of([_met(each, forecast) for each in recorded])])
    if worlds.validation == 0:
        return train, None
    looked_at = seeds(families, worlds.validation, VALIDATION)
    return train, _dataset(folder / VALIDATION_FILE, looked_at, 1, settings, progress)


def preparing(folder: Path) -> Path:
    """Where problems lie that are prepared, while others are not yet."""
    return folder / "preparing"


def _recorded(words: str, terms: DrawnTerms) -> World:
    """The world of a recorded trace, written as ``MODEL,CLUSTER,NET.csv``."""
    parts = [part.strip() for part in words.split(",")]
    if len(parts) != 3:
        remedy = "write MODEL,CLUSTER,NET.csv"
        raise InputError("not a recorded trace", key="worlds.traces", value=words, remedy=remedy)
    problem = terms.of(load_problem(model=parts[0], cluster=parts[1], global_batch=RECORDED_BATCH))
    trace = load_trace(parts[2], problem.cluster, complete=True)
    return world_from_trace(problem, trace, name=Path(parts[2]).stem)


def _met(world: World, forecast: str) -> Prepared:
    """A recorded world with what is found along it."""
    cache, since = discovered(world)
    return prepare(world, cache, since=since, forecast=forecast)


def seeds(families: Sequence[str], count: int, first: int) -> list[tuple[str, int]]:
    """``count`` worlds: every family in turn, seed after seed."""
    return [(families[each % len(families)], first + each // len(families)) for each in range(count)]


def _dataset(
    path: Path, wanted: list[tuple[str, int]], movements: int, settings: HiPpoSettings, progress: Progress | None
) -> Dataset:
    if not path.exists():
        forecast = "persistence" if settings.ablation.no_forecast else "kalman"
        worlds = settings.worlds
        how = Preparation(movements=movements, forecast=forecast, engine=worlds.engine, terms=worlds.terms)
        kept = preparing(path.parent)
        save(make_dataset(wanted, how, processes=worlds.processes, watch=progress, kept=kept), path)
        rmtree(kept, ignore_errors=True)
    return load(path)


class Unmasked:
    """Worlds in which every option may be chosen; what cannot run counts as keeping (ablation)."""

    def __init__(self, env: Env) -> None:
        self.env = env

    def reset(self) -> Observation:
        """As of ``Env``."""
        return _unmasked(self.env.reset())

    def step(self, actions: NDArray[np.int64]) -> TimeStep:
        """As of ``Env``."""
        came = self.env.step(actions)
        return came._replace(observation=_unmasked(came.observation))

    def state(self) -> dict[str, Any]:
        """As of ``Env``."""
        return self.env.state()

    def restore(self, state: dict[str, Any]) -> Observation:
        """As of ``Env``."""
        return _unmasked(self.env.restore(state))


def _unmasked(observation: Observation) -> Observation:
    return observation._replace(option_mask=np.ones_like(observation.option_mask))


def shares(dataset: Dataset, settings: HiPpoSettings, own: Sequence[int]) -> list[Share]:
    """The shares of the worlds that a process runs, each with random numbers of its own."""
    run, found = settings.run, []
    for each in own:
        numbers = np.random.SeedSequence((run.seed, each)).generate_state(2)
        size = max(1, run.parallel // run.shares)
        env = Env(dataset, size, seed=int(numbers[0]), rules=DecisionRules(gamma=max(settings.ppo.gamma, 1e-6)))
        envs = Unmasked(env) if settings.ablation.no_masks else env
        found.append(Share(envs, np.random.default_rng(numbers[1])))
    return found


def played(dataset: Dataset, choose: Choose) -> NDArray[np.float64]:
    """Share of perfect hindsight's work in every world of a dataset, (W,), work alone counted."""
    env = Env(dataset, dataset.worlds)
    seen = env.reset_in(np.arange(dataset.worlds), np.zeros(dataset.worlds, np.int64))
    work, over = np.zeros(dataset.worlds), np.zeros(dataset.worlds, bool)
    while not over.all():
        came = env.step(choose(seen))
        work += np.where(over, 0.0, came.work)
        over |= came.done
        seen = came.observation
    return work / most_work(dataset)


def most_work(dataset: Dataset) -> NDArray[np.float64]:
    """What perfect hindsight does in every world, epochs of usual work."""
    from hippo.network.env.dataset import tables
    from hippo.network.env.tables import truth_in

    held = tables(dataset)
    return np.array([truth_in(held, world).value[0, 0].max() for world in range(dataset.worlds)], dtype=np.float64)


def keeping(seen: Observation) -> NDArray[np.int64]:
    """Begin with what does most now, then keep: ``static``."""
    first = np.where(seen.option_mask[:, 1:], seen.options[:, 1:, GAIN_NOW], -np.inf).argmax(1) + 1
    return np.where(seen.option_mask[:, 0], 0, first)


def worth(seen: Observation) -> NDArray[np.int64]:
    """The option of most expected worth: a receding horizon over the rest of the run, without a margin."""
    return np.asarray(np.where(seen.option_mask, seen.options[..., WORTH_REST], -np.inf).argmax(1))


class Validation:
    """A look at a policy: mean share of hindsight over the worlds of a dataset, the same of each family and of
    networks of like size (``SIZES``), and of two who learn nothing (``usual``)."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.usual = {f"validation/{name}": float(played(dataset, rule).mean()) for name, rule in RULES.items()}

    def __call__(self, policy: nn.Module) -> dict[str, float]:
        """Its favourite options, all worlds once."""
        return self.of(lambda seen: np.asarray(decide(policy, seen, None)[0]))

    def of(self, choose: Choose) -> dict[str, float]:
        """The same of any rule."""
        found = played(self.dataset, choose)
        by_family = {
            f"validation/family/{name}": float(found[self.dataset.families == name].mean())
            for name in np.unique(self.dataset.families)
        }
        domains = self.dataset.shape[:, FIELDS.index("gpus"), 0]
        by_size = {
            f"validation/domains/{low}-{high}": float(found[(domains >= low) & (domains <= high)].mean())
            for low, high in SIZES
            if ((domains >= low) & (domains <= high)).any()
        }
        return {"validation/of_hindsight": float(found.mean()), **self.usual, **by_family, **by_size}


SIZES = ((2, 4), (5, 8), (9, 16))
"""Numbers of domains, the least and the most, that are looked at together."""

RULES = {"keeping": keeping, "worth": worth}
"""Who learns nothing."""
