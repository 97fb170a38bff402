"""Layers of each stage and how many of them are computed again: optima of an integer program that others publish.

``data/published/hyperparallel_ilp_cases.json``: six unit tests of the fast tuner of MindSpore's hyper-parallel (HiGHS).
The program, as its sources state it (``pipeline_conductor/math_model.py``, ``micro.py``). Of stage s of P, with x dense
and y sparse blocks of which u and v are computed again whole:

    f = y + layer_ratio x (+ head_loss on the last stage)
    b = backward_ratio f + recompute_ratio v + layer_ratio u
    (P - s) (act_mem (y - v) + re_comp_mem v + act_mem0 (x - u) + re_comp_mem0 u)
        + layer_mem012 x + layer_mem y <= mem_lim of the stage

Dense blocks come first, one stage at most holds both sorts, none is empty, and none holds more than 20 of a sort. Order
of operations: 1F1B without time for messages. Objective: the makespan of M micro-batches where M // P < 6; else that of
5 P + M % P of them, and M // P - 5 times the longest time on any stage between the first forwards of the last two
groups of P micro-batches. Each group is P forwards and P backwards on every stage, so that time is P max (f + b) at
least; a plan whose own times are no longer attains it (``Found.attained``).

A stage's f does not depend on what is computed again, and less of it is never worse: so each stage takes the least that
fits its blocks, and what is left to search are the blocks of each stage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from hippo.engine.program import FORWARD
from hippo.schedule.problem import RankLink, ScheduleProblem
from hippo.schedule.replay import replay
from hippo.schedule.schedule import order

FILE = Path(__file__).parents[2] / "data" / "published" / "hyperparallel_ilp_cases.json"
DENSE, SPARSE = 3, 59
"""Of the 62 blocks that the names tell: DeepSeek-V3's 61 and the one that predicts a further token; ``layer_mem012`` is
that of blocks 0, 1 and 2."""
TOLD: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"test_micro64_dp16_tp4_pp16_vp1_ep8": (16, 64), "test512_8k": (16, 960), "test512_4k": (4, 60)}
)
"""Stages and micro-batches of the cases whose names, or those of their settings, tell them; the other three settings
(768die4k_gp, 512_8k_no_swap, 512_8k_swap) are not published, and no number says how many blocks, stages, chunks and
micro-batches they have."""
MOST = 20
GROUPS = 5
Floats = NDArray[np.float64]
Option = tuple[float, float, int, int]
"""Forward and backward of a stage; dense and sparse blocks computed again."""


@dataclass(frozen=True)
class Asked:
    """A case with what its name tells."""

    name: str
    stages: int
    micro_batches: int
    numbers: Mapping[str, float]

    @property
    def played(self) -> int:
        """Micro-batches of the makespan."""
        return self.micro_batches - self.repeated * self.stages

    @property
    def repeated(self) -> int:
        """Groups that are counted and not played."""
        groups = self.micro_batches // self.stages
        return groups - GROUPS if groups > GROUPS else 0

    @cached_property
    def options(self) -> tuple[dict[tuple[int, int], Option], ...]:
        """Of each stage: dense and sparse blocks, and the least work with which they fit."""
        return tuple(self._options(stage) for stage in range(self.stages))

    def _options(self, stage: int) -> dict[tuple[int, int], Option]:
        n, last = self.numbers, stage == self.stages - 1
        limit = n["mem_lim_last"] if last else n["mem_lim_others"] if stage else n["mem_lim_stage0"]
        live, found = min(self.stages - stage, self.micro_batches), dict[tuple[int, int], Option]()
        for x, y in product(range(DENSE + 1), range(MOST + 1)):
            forward = y + n["layer_ratio"] * x + n["head_loss"] * last
            room = (limit - n["layer_mem012"] * x - n["layer_mem"] * y) / live
            for u, v in product(range(x + 1), range(y + 1)):
                kept = n["act_mem"] * (y - v) + n["re_comp_mem"] * v + n["act_mem0"] * (x - u) + n["re_comp_mem0"] * u
                backward = n["backward_ratio"] * forward + n["recompute_ratio"] * v + n["layer_ratio"] * u
                if kept <= room and ((x, y) not in found or backward < found[x, y][1]):
                    found[x, y] = forward, backward, u, v
        return found

    def splits(self, cap: float) -> Iterator[tuple[tuple[int, int], ...]]:
        """Blocks of every stage; left out are only splits whose objective is above ``cap``.

        A stage's micro-batches come after one forward of each stage before it, and one backward of each follows them.
        """
        times = self.played + self.repeated * self.stages
        allowed = [
            {held: one[0] + one[1] for held, one in options.items() if times * (one[0] + one[1]) <= cap}
            for options in self.options
        ]
        most = [max((y for _, y in each), default=0) for each in allowed]

        def onward(held: tuple[tuple[int, int], ...], before: float) -> Iterator[tuple[tuple[int, int], ...]]:
            stage, dense = len(held), DENSE - sum(x for x, _ in held)
            sparse = SPARSE - sum(y for _, y in held)
            if stage == self.stages:
                yield from [held] * (not dense and not sparse)
                return
            for (x, y), own in allowed[stage].items():
                fits = (0 < x <= dense and (not y or x == dense)) if dense else (x == 0 and y > 0)
                if fits and 0 <= sparse - y <= sum(most[stage + 1 :]) and before + times * own <= cap:
                    yield from onward((*held, (x, y)), before + own)

        return onward((), 0.0)


@dataclass(frozen=True)
class Found:
    """The best of a case."""

    objective: float
    held: tuple[tuple[int, int], ...]  # dense and sparse blocks of each stage
    again: tuple[tuple[int, int], ...]  # of them computed again
    splits: int  # that were looked at
    engine: float  # the objective by hippo's engine
    attained: bool  # whether no stage's own times between the last two groups are longer than counted


def cases() -> dict[str, Mapping[str, float]]:
    """Numbers of each case by its name."""
    return {case["name"]: case for case in json.loads(FILE.read_text())["cases"]}


def asked(name: str) -> Asked:
    """A case that is determined."""
    return Asked(name, *TOLD[name], cases()[name])


def optimum(case: Asked, cap: float) -> Found | None:
    """The split of the least objective, by looking at every one that may be at most ``cap``; None: all are above."""
    splits = list(case.splits(cap))
    if not splits:
        return None
    rows = [[options[held] for options, held in zip(case.options, split, strict=True)] for split in splits]
    forward, backward = (np.array([[each[at] for each in row] for row in rows]).T for at in (0, 1))
    longest = case.repeated * case.stages * (forward + backward).max(axis=0)
    objective = makespans(forward, backward, case.played) + longest
    best = int(objective.argmin())
    if objective[best] > cap:
        return None
    again = tuple((u, v) for _, _, u, v in rows[best])
    makespan, apart = _by_engine(forward[:, best], backward[:, best], case)
    attained = bool(apart * case.repeated <= longest[best] + 1e-6)
    engine = makespan + float(longest[best])
    return Found(float(objective[best]), splits[best], again, len(splits), engine, attained)


def makespans(forward: Floats, backward: Floats, micro_batches: int) -> Floats:
    """(n,) makespans of 1F1B, of stages' seconds (P, n): the longest path, an operation after the other."""
    p, n = forward.shape
    done = np.zeros((2, p, micro_batches, n))
    free, at = np.zeros((p, n)), np.zeros((p, 2), dtype=int)
    while at.sum() < 2 * p * micro_batches:
        for s in range(p):
            for _ in range(2 * micro_batches):
                ahead = at[s, 0] < min(p - s - 1, micro_batches) or at[s, 0] - at[s, 1] < p - s
                back = int(not (ahead and at[s, 0] < micro_batches))
                wave, source = at[s, back], s + 1 if back else s - 1
                if wave == micro_batches or (0 <= source < p and at[source, back] <= wave):
                    break
                ready = done[back, source, wave] if 0 <= source < p else free[s]
                free[s] = done[back, s, wave] = np.maximum(free[s], ready) + (backward if back else forward)[s]
                at[s, back] += 1
    return np.asarray(done[1, 0, -1])


def _by_engine(forward: Floats, backward: Floats, case: Asked) -> tuple[float, float]:
    """The makespan as hippo's engine plays it, and the longest time between the first forwards of the last two groups
    of micro-batches."""
    p, m = len(forward), case.played
    half, links = tuple((backward / 2).tolist()), (RankLink(),) * (p - 1)
    problem = ScheduleProblem(m, tuple(forward.tolist()), half, half, links, links, (float("inf"),) * p)
    played = replay(problem, order("1f1b", stages=p, micro_batches=m))
    rows, apart = played.schedule.order, 0.0
    if m >= 2 * p:
        first, second = (played.start[(rows[:, 0] == FORWARD) & (rows[:, 2] == m - back * p)] for back in (2, 1))
        apart = float((second - first).max())
    return played.makespan, apart
