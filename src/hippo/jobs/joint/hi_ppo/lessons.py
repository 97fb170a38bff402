"""What other answers than the rule's would have saved: played ahead in many worlds, then learned by the upper agent.

Along the rule's play of a world some moments are halted. There a few answers are tried in copies of the world, which
keep the true future, each followed by the rule for ``hours``: whom the rule would begin next (or nobody), at other
places, and others in its stead. What all jobs pay meanwhile, and ``rest`` times what those that then run have still to
pay, less that of the rule's own answer, is what an answer saves. Answers are compared in one future (common random
numbers), but each change leads the rest of a world elsewhere, so single savings are mostly chance; over thousands of
moments a network learns what is left of them on average (one step of policy iteration: AggreVaTe, Ross and Bagnell
2014; roll-outs cut off and completed by a value: Bertsekas 2019). The rule is left where that is told to save more than
``margin``.

Letters: N moments, K domains, J jobs, P places, M parts, n jobs of a workload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hippo.jobs.engine import observe
from hippo.jobs.engine import world as c
from hippo.jobs.engine.observe import sight
from hippo.jobs.joint.copies import WorldCopy
from hippo.jobs.joint.env import JOBS, PLACES, WorldEnv, WorldScene, prices
from hippo.jobs.joint.hi_ppo.ahead import STANDING, played_until
from hippo.jobs.joint.hi_ppo.network import MomentsSeen, UpperNetwork
from hippo.jobs.joint.hi_ppo.settings import AheadTerms
from hippo.jobs.joint.hi_ppo.worlds import BESIDE, Scenes, by_rule
from hippo.jobs.joint.moment import MOST_PLACES
from hippo.jobs.joint.ranked import rank_room
from hippo.planners.base import Progress

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

HALTED, HALTED_AT_NOBODY = 0.5, 0.15
"""Shares of the moments at which answers are tried: where the rule begins a job, and where it begins nobody."""
OTHERS, FOOTPRINTS, BY_CHANCE = 2, 8, 2
"""Answers that are tried: other jobs, places of the rule's job of other sizes or parts, and places by chance."""
MOST = 10.0
"""Savings count at most so many times ``scale``."""
CLOSE = 2.0
"""Below so many times ``scale`` errors are squared, above they count as they are."""
BATCH = 256
RATE, DECAY = 2e-3, 1e-2
"""Of Adam, and of weights (Loshchilov and Hutter 2019)."""


Cost = Callable[[int, int, Ints, NDArray[np.float64]], float]
"""Of a job that begins under an offer in domains (M,), while jobs are held back until ``since`` (n,); in jobs."""


class Lessons(NamedTuple):
    """Moments at which answers were tried. Savings in jobs: what the rule pays for one of that world in the mean; nan:
    not tried."""

    site: Floats  # (N, SITE_NUMBERS)
    domains: Floats  # (N, K, DOMAIN_NUMBERS)
    links: Floats  # (N, K, K, LINK_NUMBERS)
    jobs: Floats  # (N, J, JOB_NUMBERS)
    places: Floats  # (N, P, PLACE_NUMBERS) of the job that was asked about
    where: Ints  # (N, P, M)
    slot: Ints  # (N,) whom the rule chooses, J: nobody
    asked: Ints  # (N,) the job that was asked about: the rule's, or another where that is nobody
    place: Ints  # (N,) where the rule would put it
    by_slot: Floats  # (N, J + 1) what others save, each where the rule would put it
    by_place: Floats  # (N, P) what other places save over the rule's


def lessons_of(scene: WorldScene, rng: np.random.Generator, terms: AheadTerms) -> Lessons | None:
    """A world's; None: nothing could be tried."""
    price, rule = prices(scene), scene.advisor()
    env, seen = (
        WorldEnv(scene, price),
        sight(
            scene.workload,
            scene.site,
            scene.offers,
            jobs=1,
            places=MOST_PLACES,
            price=price.copy(),
            stops=scene.settings.stops,
        ),
    )
    job_s, trial, rows = by_rule(scene).total_s / len(price), WorldCopy.of(env.world), list[Lessons]()
    room = rank_room(seen)

    def cost(job: int, offer: int, where: Ints, since: NDArray[np.float64]) -> float:
        found = np.zeros(2 + STANDING)
        until_s = env.world.clock[c.NOW] + terms.hours * 3600.0
        trial.restore()
        played_until(trial.copy, seen, rule.terms, room, np.array([job, offer]), where, since, price, until_s, found)
        return float(found[1] + terms.rest * found[3]) / job_s

    while not env.done:
        slot, place = env.advised()
        if rng.random() < (HALTED if slot >= 0 else HALTED_AT_NOBODY):
            row = _moment(env, slot, rng, cost)
            if row is not None:
                rows.append(row)
            if slot >= 0:
                _, place = env.advised()
        shape = -1
        if slot >= 0:
            env.places(slot)
            shape = 0 if env.shapes(slot, place) else -1
        env.answer(slot, place, shape)
    return joined(rows) if rows else None


def _moment(env: WorldEnv, slot: int, rng: np.random.Generator, cost: Cost) -> Lessons | None:
    """What answers save at a moment; None: there is no other."""
    world, seen, now = env.world, env.sight, env.world.clock[c.NOW]
    site, domains, links, jobs = (each.copy() for each in (seen.site, seen.domains, seen.links, seen.jobs))
    of, waits = seen.job.copy(), jobs[:, 0] > 0.0
    others = np.flatnonzero(seen.may & waits & (np.arange(JOBS) != slot))
    others = np.sort(rng.permutation(others)[: OTHERS + (slot < 0)])
    if not len(others) and slot < 0:
        return None
    passed = np.full(len(env.price), -np.inf)
    known = np.flatnonzero(world.mark[: world.tally[c.ARRIVED], c.STATUS] == c.WAITING)
    later = np.nextafter(now, np.inf)
    passed[known[env.rule.room.passed[known] >= now]] = later
    by_slot, by_place = np.full(JOBS + 1, np.nan, np.float32), np.full(PLACES, np.nan, np.float32)
    places, where = np.zeros_like(seen.places), np.full_like(seen.where, -1)
    asked, own = (slot if slot >= 0 else int(others[0])), 0
    for each in dict.fromkeys([asked, *others.tolist()]):
        count = env.places(each)
        if not count:
            continue
        usual = int(seen.places[:count, observe.ADVISED_PLACE].argmax())
        tried = [usual]
        if each == asked:
            places[:count], where[:count], own = seen.places[:count], seen.where[:count], usual
            tried += _footprints(env, count, usual, rng)
        paid = [cost(int(of[each]), int(seen.offer[at]), seen.where[at].copy(), passed) for at in tried]
        by_slot[each] = paid[0]
        if each == asked:
            by_place[tried] = paid
    if world.tally[c.N_RUNNING] or slot < 0:
        nobody = np.full(len(env.price), -np.inf)
        nobody[known] = later
        by_slot[JOBS] = cost(-1, -1, np.full(c.MOST_PARTS, -1), nobody)
    chosen = slot if slot >= 0 else JOBS
    by_slot, by_place = by_slot[chosen] - by_slot, by_place[own] - by_place
    noted = (site, domains, links, jobs, places, where, chosen, asked, own, by_slot, by_place)
    return Lessons._make(np.array(each)[None] for each in noted)


def _footprints(env: WorldEnv, count: int, usual: int, rng: np.random.Generator) -> list[int]:
    """Places of a job beside the rule's: the quickest of each size and number of parts, and some by chance."""
    seen, best = env.sight, dict[tuple[int, int], int]()
    free = [at for at in range(count) if at != usual and seen.offer[at] >= 0]
    for at in free:
        form = int(seen.total[seen.offer[at]]), int((seen.where[at] >= 0).sum())
        if form not in best or seen.rate[at] > seen.rate[best[form]]:
            best[form] = at
    rest = [at for at in free if at not in best.values()]
    found = [*best.values(), *rng.permutation(rest)[:BY_CHANCE].astype(int).tolist()]
    return [int(at) for at in rng.permutation(found)[:FOOTPRINTS]]


def joined(lessons: Iterable[Lessons]) -> Lessons:
    """One after another."""
    return Lessons(*(np.concatenate(each) for each in zip(*lessons, strict=True)))


# ------------------------------------------------------------------------------------------------------------- learning
def _moments(lessons: Lessons, rows: Ints) -> MomentsSeen:
    """As the network sees them."""
    count = len(rows)
    some = [torch.from_numpy(each[rows]) for each in lessons[:6]]
    return MomentsSeen._make(
        [
            *some[:4],
            torch.ones(count, JOBS + 1, dtype=torch.bool),
            *some[4:],
            torch.ones(count, PLACES, dtype=torch.bool),
            torch.zeros(count, observe.SHAPES, observe.SHAPE_NUMBERS),
            torch.ones(count, observe.SHAPES, dtype=torch.bool),
            torch.zeros(count, BESIDE),
        ]
    )


def _told(network: UpperNetwork, lessons: Lessons, rows: Ints) -> tuple[torch.Tensor, torch.Tensor]:
    """What the network says that answers save over the rule's, by slot (N, J + 1) and by place (N, P), in ``scale``."""
    seen = _moments(lessons, rows)
    thought, at = network.think(seen), torch.arange(len(rows))
    whom = network.whom(thought)
    whither = network.whither(thought, torch.from_numpy(lessons.asked[rows]), seen)
    slot, place = (torch.from_numpy(each[rows]) for each in (lessons.slot, lessons.place))
    return whom - whom[at, slot][:, None], whither - whither[at, place][:, None]


def learn(network: UpperNetwork, lessons: Lessons, terms: AheadTerms, rng: np.random.Generator) -> list[float]:
    """Let scores of answers differ by what they save; then the rule's own gets ``margin`` on top and all are made
    ``sharp``. Returns the mean loss of each epoch."""
    goals = [
        torch.from_numpy(np.nan_to_num(each / terms.scale).clip(-MOST, MOST)).float()
        for each in (lessons.by_slot, lessons.by_place)
    ]
    tried = [torch.from_numpy(~np.isnan(each)) for each in (lessons.by_slot, lessons.by_place)]
    network.follows.data.zero_()
    learned = [each for each in network.parameters() if each is not network.follows]
    optimizer = torch.optim.AdamW(learned, lr=RATE, weight_decay=DECAY)
    count = max(1, len(lessons.slot) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, terms.epochs * count)
    losses = []
    for _ in range(terms.epochs):
        total = 0.0
        for rows in np.array_split(rng.permutation(len(lessons.slot)), count):
            told = _told(network, lessons, rows)
            each = [
                nn.functional.smooth_l1_loss(one[mask[rows]], goal[rows][mask[rows]], reduction="sum", beta=CLOSE)
                for one, goal, mask in zip(told, goals, tried, strict=True)
            ]
            loss = sum(each) / len(rows)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[union-attr]
            nn.utils.clip_grad_norm_(learned, 1.0)
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) / count  # type: ignore[union-attr]
        losses.append(total)
    with torch.no_grad():
        for last in (network.job_out, network.none_out[-1], network.place_out[-1]):
            last.weight.mul_(terms.sharp)  # type: ignore[operator]
            last.bias.mul_(terms.sharp)  # type: ignore[operator]
        network.follows.fill_(terms.sharp * terms.margin / terms.scale)
    return losses


def study(
    network: UpperNetwork,
    scenes: Scenes,
    terms: AheadTerms,
    *,
    seed: int,
    progress: Progress = lambda phase, share: None,
) -> int:
    """Try answers in worlds 0, 1, .. and learn what they save; returns at how many moments."""
    every = list[Lessons]()
    for number in range(terms.worlds):
        found = lessons_of(scenes.scene(number), np.random.default_rng([seed, number, 2]), terms)
        every += [found] if found is not None else []
        progress(f"answers played ahead, world {number + 1}/{terms.worlds}", (number + 1) / terms.worlds)
    if not every:
        return 0
    lessons = joined(every)
    learn(network, lessons, terms, np.random.default_rng([seed, 3]))
    return len(lessons.slot)
