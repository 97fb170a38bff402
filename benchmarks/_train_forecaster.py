"""Learns the recurrent forecast anew and writes ``src/hippo/dynamics/gru.npz``; some minutes on one core.

Run from the source tree: ``python benchmarks/_train_forecaster.py``. Only the train split of the worlds is read.
Loss: negative log likelihood of a normal distribution whose error is weighted by its own deviation to the power of one
half, so that what is hard to foretell does not drown in what is easy (Seitzer et al. 2022, beta-NLL, arXiv 2203.09168).
B series of a batch, T instants, H = ``gru.LEARNED`` horizons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hippo.dynamics import gru
from hippo.files import write_whole
from hippo.network.worlds.generator import FAMILIES, make_world
from hippo.network.worlds.world import World
from hippo.problem.links import base_bandwidth

Floats = NDArray[np.float64]
BETA = 0.5


@dataclass(frozen=True)
class Learning:
    """How the weights are learned."""

    seeds: int = 40  # worlds of each family
    units: int = 32
    epochs: int = 12
    batch: int = 128
    rate: float = 4e-3
    seed: int = 0


class Series(NamedTuple):
    """Padded series of many worlds."""

    read: torch.Tensor  # (N, T, FEATURES)
    change: torch.Tensor  # (N, T, H) from the last known value to that at the horizon
    counts: torch.Tensor  # (N, T, H) 1 where there is something to foretell


class Unit(torch.nn.Module):
    """The cell and its read-out, as ``gru.run`` computes them."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.cell = torch.nn.GRU(gru.FEATURES, units, batch_first=True)
        self.out = torch.nn.Linear(units + gru.FEATURES, 2 * len(gru.LEARNED))
        with torch.no_grad():
            self.out.weight.mul_(0.1)
            for at in range(len(gru.LEARNED)):  # begins as the Kalman forecast
                self.out.weight[at, units + gru.OWN + at] = 1.0
            self.out.bias[len(gru.LEARNED) :] = -2.0

    def forward(self, read: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Change of mean and log of the standard deviation, each (B, T, H)."""
        seen, _ = self.cell(read)
        out = self.out(torch.cat([seen, read], dim=2))
        low, high = float(np.log(gru.LEAST_SD)), float(np.log(gru.LARGEST_SD))
        return out[..., : len(gru.LEARNED)], torch.clamp(out[..., len(gru.LEARNED) :], low, high)

    def weights(self) -> gru.Weights:
        """For inference without torch."""
        kept = self.state_dict()
        names = (
            "cell.weight_ih_l0",
            "cell.bias_ih_l0",
            "cell.weight_hh_l0",
            "cell.bias_hh_l0",
            "out.weight",
            "out.bias",
        )
        return gru.Weights(*(kept[name].numpy().astype(np.float64) for name in names))


def histories(world: World) -> tuple[Floats, Floats]:
    """What is told of a world and what is true, each (T, E + K): log ratios of links to their base, and minus the log
    of the domains' load; NaN: not told, or out."""
    base = base_bandwidth(world.problem.cluster)
    ratio = world.bandwidth_bytes_per_s / base
    true = np.where(ratio > 0, np.log(np.maximum(ratio, 1e-3)), np.nan)
    load = -np.log(world.compute)
    told = np.where(world.told, true, np.nan)
    return np.concatenate([told, load], axis=1), np.concatenate([true, load], axis=1)


def series(worlds: Sequence[World]) -> Series:
    """What there is to read and to foretell in these worlds."""
    longest = max(world.epochs for world in worlds)
    reads, changes, counts = [], [], []
    for world in worlds:
        told, true = histories(world)
        read = gru.features(told, world.epoch_s)
        change = np.full((*told.shape, len(gru.LEARNED)), np.nan)
        for at, ahead in enumerate(gru.LEARNED):
            change[:-ahead, :, at] = np.clip(true[ahead:], gru.LOWEST, gru.HIGHEST) - read[:-ahead, :, 0]
        pad = ((0, longest - world.epochs), (0, 0), (0, 0))
        reads.append(np.pad(read, pad))
        changes.append(np.pad(np.nan_to_num(change), pad))
        counts.append(np.pad(~np.isnan(change), pad))
    joined = (np.concatenate(each, axis=1).swapaxes(0, 1) for each in (reads, changes, counts))
    return Series(*(torch.from_numpy(np.ascontiguousarray(each, dtype=np.float32)) for each in joined))


def loss_of(unit: Unit, batch: Series) -> torch.Tensor:
    """Mean over everything there is to foretell."""
    mean, log_sd = unit(batch.read)
    error = (batch.change - mean) ** 2 * torch.exp(-2.0 * log_sd)
    each = (0.5 * error + log_sd) * torch.exp(2.0 * BETA * log_sd).detach()
    mean_of_all: torch.Tensor = (each * batch.counts).sum() / batch.counts.sum().clamp(min=1.0)
    return mean_of_all


def learn(
    learning: Learning, *, families: Sequence[str] = tuple(FAMILIES), watch: Callable[[int, float], None] | None = None
) -> gru.Weights:
    """Weights learned on the train split of these families; ``watch`` is told epoch and loss. Deterministic by seed."""
    torch.set_num_threads(1)
    torch.manual_seed(learning.seed)
    worlds = [make_world(family, seed) for family in families for seed in range(learning.seeds)]
    data, unit = series(worlds), Unit(learning.units)
    per_epoch = -(-len(data.read) // learning.batch)
    adam = torch.optim.Adam(unit.parameters(), lr=learning.rate)
    slower = torch.optim.lr_scheduler.OneCycleLR(adam, learning.rate, total_steps=per_epoch * learning.epochs)
    for epoch in range(learning.epochs):
        total = 0.0
        for chosen in torch.split(torch.randperm(len(data.read)), learning.batch):
            loss = loss_of(unit, Series(*(each[chosen] for each in data)))
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(unit.parameters(), 1.0)
            adam.step()
            slower.step()
            total += float(loss.detach()) / per_epoch
        if watch is not None:
            watch(epoch, total)
    return unit.weights()


def save(weights: gru.Weights, path: Path) -> None:
    """Writes weights, in single precision, as the package ships them."""
    write_whole(path, gru.FORM.packed({name: each.astype(np.float32) for name, each in weights._asdict().items()}))


if __name__ == "__main__":
    target = Path(gru.__file__).with_name(gru.WEIGHTS)
    save(learn(Learning(), watch=lambda epoch, loss: print(f"{epoch:3d} {loss:9.5f} {process_time():6.0f} s")), target)
    print(f"{target.name}: {target.stat().st_size} bytes")
