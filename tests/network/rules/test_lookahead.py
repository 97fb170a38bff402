"""Sequences of moves against a plain version of the same rules, on networks drawn at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from hippo.network.rules.lookahead import LATEST, best_start, first_moves
from hippo.network.rules.move import STILL
from hippo.network.rules.worth import EDGES, Ahead, Now

HORIZONS = np.array([0, 1, 4, 16, 64])
ORDERED = (178, 179, 182, 233, 349, 365, 382)
"""Seeds where it matters which place is tried first."""


def drawn(seed: int, *, places: int = 6, links: int = 5) -> Ahead:
    """Places and links at random: links that are down, ways that are none, egress that eats what is trained, restarts
    that take nothing, places that overtake each other."""
    rng = np.random.default_rng(seed)
    tokens = rng.uniform(0.0, 10.0, (5, places)) * (rng.random((5, places)) > 0.1)
    moves = rng.choice([0.0, 30.0, 300.0, 3000.0], size=(places, places, links), p=[0.5, 0.2, 0.2, 0.1])
    moves[rng.random((places, places)) < 0.1] = np.inf
    moves[np.arange(places), np.arange(places)] = 0.0
    return Ahead(
        epoch_s=10.0,
        epochs_left=float(rng.choice([1.0, 3.0, 7.5, 30.0, 64.0, 200.0])),
        restart_s=float(rng.choice([0.0, 2.0, 25.0])),
        shadow_share=0.125,
        tokens_per_step=10.0,
        usd_per_token=float(rng.choice([0.0, 0.3])),
        horizons=HORIZONS,
        tokens_per_s=tokens,
        egress_usd_per_s=tokens * rng.uniform(0.0, 0.4, places) * (rng.random() < 0.5),
        bandwidth_bytes_per_s=rng.uniform(0.0, 30.0, (5, links)) * (rng.random((5, links)) > 0.1),
        bytes_per_step=rng.choice([0.0, 5.0, 30.0], size=(places, links)),
        usd_per_byte=rng.choice([0.0, 0.005], size=links),
        place=np.arange(places),
        move_bytes=moves,
    )


@dataclass
class Plain:
    """The same rules, one thing after the other."""

    look: Ahead

    def __post_init__(self) -> None:
        look, left = self.look, self.look.epochs_left
        self.edges = np.append(EDGES[left > EDGES], left)
        self.price = 1.0 / look.usd_per_token if look.usd_per_token > 0 else 0.0
        begin = self.edges[:-1]
        middle = 0.5 * (begin + np.maximum(self.edges[1:] - 1.0, begin))
        self.seconds = np.diff(self.edges) * look.epoch_s
        self.tokens = self.at(look.tokens_per_s, middle)
        self.bandwidth = self.at(look.bandwidth_bytes_per_s, middle)
        self.net = self.sums(self.tokens - self.price * self.at(look.egress_usd_per_s, middle))
        self.steps, self.carried = self.sums(self.tokens / look.tokens_per_step), self.sums(self.bandwidth)
        self.value = np.zeros(self.net.shape)

    def at(self, rows: np.ndarray, epochs: np.ndarray) -> np.ndarray:
        return np.stack([np.interp(epochs, HORIZONS, each) for each in rows.T], axis=1)

    def sums(self, per_second: np.ndarray) -> np.ndarray:
        return np.concatenate([np.zeros((1, per_second.shape[1])), np.cumsum(per_second * self.seconds[:, None], 0)])

    def up_to(self, summed: np.ndarray, epochs: float) -> float:
        return float(np.interp(epochs, self.edges, summed))

    def stopped(self, begin: float, needed: np.ndarray) -> float:
        end = begin + self.look.restart_s / self.look.epoch_s
        for link in np.flatnonzero(needed):
            carried = self.carried[:, link]
            wanted = self.up_to(carried, begin) + needed[link]
            if wanted > carried[-1]:
                return np.inf
            cell = int(np.argmax(carried[1:] >= wanted))
            share = (wanted - carried[cell]) / (carried[cell + 1] - carried[cell])
            end = max(end, self.edges[cell] + share * (self.edges[cell + 1] - self.edges[cell]))
        return end if end <= self.edges[-1] else np.inf

    def streamed(self, cell: int, here: int, link: int, needed: float) -> float:
        """Epochs ahead at which a link has streamed what it needs, by the solution of d left / dt = -(idle - pull
        sent), where sent = needed - left and pull is what a byte that has arrived takes per second."""
        left = needed
        for now in range(cell, len(self.seconds)):
            rate = self.tokens[now, here] / self.look.tokens_per_step
            pull = self.look.shadow_share * rate
            idle = self.bandwidth[now, link] - self.look.bytes_per_step[here, link] * rate - pull * (needed - left)
            if idle <= 0.0:
                continue
            most = idle / pull if pull > 0.0 else np.inf  # that this can bring, however long
            sent = most * -np.expm1(-pull * self.seconds[now]) if pull > 0.0 else idle * self.seconds[now]
            if sent >= left:
                takes = -np.log1p(-left / most) / pull if pull > 0.0 else left / idle
                return float(self.edges[now] + takes / self.look.epoch_s)
            left -= sent
        return np.inf

    def moved(self, cell: int, here: int, there: int, *, background: bool) -> float:
        """Net tokens from a cell on if a move begins with it; -inf: it does not arrive within the run."""
        needed, begin = self.look.move_bytes[here, there], self.edges[cell]
        usd, halts = float(needed @ self.look.usd_per_byte) if np.isfinite(needed).all() else np.inf, begin
        if usd == np.inf:
            return -np.inf
        if background:
            arrivals = [self.streamed(cell, here, int(link), needed[link]) for link in np.flatnonzero(needed)]
            halts = max(arrivals, default=begin)
            if halts >= self.edges[-1]:
                return -np.inf
            made = self.up_to(self.steps[:, here], halts) - self.steps[cell, here]
            usd *= 1.0 + self.look.shadow_share * (1.0 + 0.5 * made)
            needed = needed * self.look.shadow_share
        end = self.stopped(halts, needed)
        if end == np.inf:
            return -np.inf
        after = max(cell, int(np.searchsorted(self.edges, end)) - 1)
        trained = self.up_to(self.net[:, here], halts) - self.net[cell, here]
        arrived = self.net[after + 1, there] - self.up_to(self.net[:, there], end) + self.value[after + 1, there]
        return float(trained + arrived - self.price * usd)

    def stays(self, cell: int, place: int) -> float:
        return float(self.net[cell + 1, place] - self.net[cell, place] + self.value[cell + 1, place])

    def solve(self) -> None:
        """Fills ``value``."""
        places = range(self.net.shape[1])
        for cell in range(len(self.edges) - 2, -1, -1):
            stays = [self.stays(cell, place) for place in places]
            for here in places:
                best = stays[here]
                for there in places:
                    if there != here and stays[there] > best and self.edges[cell] < LATEST:
                        best = max(best, *(self.moved(cell, here, there, background=kind) for kind in (False, True)))
                self.value[cell, here] = best


@pytest.mark.parametrize("seed", [*range(50), *ORDERED])
def test_moves_are_worth_what_the_plain_rules_say(seed: int) -> None:
    look = drawn(seed)
    plain, places = Plain(look), len(look.move_bytes)
    plain.solve()
    leads, scale = np.arange(places), 1e-9 * np.abs(plain.value).max()
    np.testing.assert_allclose(best_start(look, leads), plain.value[0], rtol=1e-9, atol=scale)
    for here in range(places):
        moves = [[plain.moved(0, here, to, background=kind) for kind in (False, True)] for to in range(places)]
        expected = np.array(moves)
        expected -= plain.stays(0, here)
        expected[here] = -np.inf
        found = first_moves(look, Now(here, -1, STILL, 0.0), leads)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=scale)
