"""Draws the rules of the cross-domain schedule anew: which forty rules together leave the least gap to the bound?

    PYTHONPATH=src python benchmarks/_cross_domain_rules.py [problems] [rules] [seed]

Random problems, random changes of the rules in use, every rule played on every problem; then rules are taken one by
one, each time the one that lowers the mean gap most. Prints the gap of the rules in use and of the rules taken, on the
problems they were chosen on and on as many others, and the table. 330 problems and 1400 rules take some three minutes.
"""

from __future__ import annotations

import sys
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hippo.schedule.bound.lower_bound import lower_bound
from hippo.schedule.generators.cross_domain import (
    DOUBLE,
    FALLING,
    LONG,
    MANY,
    MOST,
    RULES,
    SLANTED,
    TRIP,
    Numbers,
    Player,
    Rule,
)
from hippo.schedule.problem import MicroBatchMemory, RankLink, ScheduleProblem

PROFILES = ((1, 1, 1), (1, 1.05, 0.75), (1, 0.991, 0.671), (1, 1.2, 0.9), (1, 1.6, 1.1), (1, 0.9, 0.5))
DELAYS = (0, 0.1, 0.3, 0.5, 1, 1, 2, 2, 3, 5, 5, 8)
NUMBERS = (
    (-1, -0.5, -0.25, 0, 0.01, 0.25, 0.5, 1, 2),
    (-0.5, 0, 0.01, 0.25, 0.5, 0.75, 1, 1.5, 3),
    (-5, -0.5, -0.1, 0, 0.25, 0.5, 1),
    (MOST, FALLING, DOUBLE, SLANTED, LONG, TRIP, TRIP + 1, TRIP + 2),
    (1, 2, 3, 4, 6, MANY),
)
"""What each number of a side may be."""
TAKEN = 40


def random_problem(rng: np.random.Generator) -> ScheduleProblem:
    """Profiles, links and limits as in the published problems and beyond."""
    p = int(rng.choice([2, 3, 4, 6, 8, 8, 12, 16, 16]))
    m = int(p * rng.choice([1, 2, 3, 4, 6, 8])) if rng.random() < 0.7 else int(rng.integers(2, 6 * p))
    forward = np.round(rng.uniform(0.8, 1.2, p), 2) if rng.random() < 0.25 else np.ones(p)
    f, b, w = (tuple((share * forward).tolist()) for share in PROFILES[rng.integers(len(PROFILES))])
    delays = np.full(p - 1, float(rng.choice(DELAYS)))
    if (kind := rng.random()) < 0.45:  # one slow link, in the middle more often than not
        slow = p // 2 - 1 if rng.random() < 0.6 else int(rng.integers(p - 1))
        delays[np.arange(p - 1) != slow] = 0.05
    elif kind < 0.6:
        delays = rng.choice([0.05, 0.5, 1.0, 3.0], p - 1)
    transfer = float(rng.choice([0.25, 0.5, 0.8])) if rng.random() < 0.2 else 0.0
    links = tuple(RankLink(float(delay), transfer if delay > 0.05 else 0.0) for delay in delays)
    limit = np.full(p, [np.inf, p, p, p, 1.5 * p, 2 * p, 2 * p, max(1, p // 2)][int(rng.integers(8))])
    if rng.random() < 0.1:
        limit = rng.integers(max(1, p // 2), 2 * p + 1, p)
    memory = (MicroBatchMemory(1.0, 0.6 if rng.random() < 0.15 else 0.0),) * p
    return ScheduleProblem(max(2, m), f, b, w, links, links, tuple(map(float, limit)), memory)


def changed(rule: Rule, rng: np.random.Generator) -> Rule:
    """Up to three numbers drawn anew, on one side or on both."""
    mirrored, before, behind = rule
    sides = [list(before), list(behind or before)]
    for _ in range(int(rng.integers(1, 4))):
        which = int(rng.integers(len(NUMBERS)))
        value = NUMBERS[which][int(rng.integers(len(NUMBERS[which])))]
        for side in sides if rng.random() < 0.4 else [sides[int(rng.integers(2))]]:
            side[which] = value
    before, behind = (cast(Numbers, tuple(side)) for side in sides)
    return mirrored, before, behind


def gaps(problems: list[ScheduleProblem], rules: list[Rule]) -> NDArray[np.float64]:
    """Makespan over the lower bound, less 1, (problems, rules)."""
    found = []
    for problem in problems:
        player, bound = Player(problem), lower_bound(problem)
        found.append(player.spans(rules, len(rules)) / bound - 1)
    return np.array(found)


def taken_one_by_one(gap: NDArray[np.float64], count: int) -> list[int]:
    """Each time the rule that lowers the mean over problems of the least gap most."""
    chosen: list[int] = []
    least = np.full(len(gap), 10.0)
    for _ in range(count):
        chosen.append(int(np.minimum(least[:, None], gap).mean(axis=0).argmin()))
        least = np.minimum(least, gap[:, chosen[-1]])
    return chosen


def main(problems: int, rules: int, seed: int) -> None:
    """Prints what the module says."""
    rng = np.random.default_rng(seed)
    drawn = [*RULES, *(changed(RULES[int(rng.integers(len(RULES)))], rng) for _ in range(rules - len(RULES)))]
    seen, others = ([random_problem(rng) for _ in range(problems)] for _ in range(2))
    gap = gaps(seen, drawn)
    chosen = taken_one_by_one(gap, TAKEN)
    today, after = gaps(others, list(RULES)), gaps(others, [drawn[each] for each in chosen])
    print("mean gap to the bound, %     chosen on   others")
    for name, on_seen, on_others in (("in use", gap[:, : len(RULES)], today), ("taken", gap[:, chosen], after)):
        print(f"{name:28} {100 * on_seen.min(axis=1).mean():9.3f} {100 * on_others.min(axis=1).mean():8.3f}")
    for each in chosen:
        print(drawn[each])


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(*(given + [330, 1400, 0][len(given) :]))
