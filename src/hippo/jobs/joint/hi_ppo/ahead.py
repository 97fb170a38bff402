"""Learning from answers that are played ahead: at some moments several answers are tried in copies of the world, each
followed by the rule to the end, and the policy learns to prefer what then costs least.

The copies keep the world's own future (arrivals, ends of jobs, failures, links), which no policy is shown: over many
worlds what is learned is what pays on average. One policy iteration over the rule, whose answers are always among those
tried (AggreVaTe: Ross and Bagnell 2014); what is tried else is the policy's choice, and the policy is moved from what
it said by how much each answer saves, as a search with the policy as its prior does (Gumbel MuZero: Danihelka et al.
2022, equation 10, without a tree). Differences between answers in one future vary far less than returns.

Letters: W worlds, M answers that are tried, N moments, J jobs, P places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hippo.compiling import kernel
from hippo.jobs.engine import observe
from hippo.jobs.engine import world as c
from hippo.jobs.engine.observe import Sight, sight
from hippo.jobs.joint.advice import Advisor
from hippo.jobs.joint.copies import WorldCopy
from hippo.jobs.joint.env import JOBS, PLACES, WorldEnv, carry_out, egress_usd, priced
from hippo.jobs.joint.hi_ppo.learner import SiteAgents, WorldShare, decide, drawn, keep, room, tensors
from hippo.jobs.joint.hi_ppo.network import MomentsSeen
from hippo.jobs.joint.hi_ppo.settings import WorldLearning
from hippo.jobs.joint.hi_ppo.worlds import Sights, WorldBatch
from hippo.jobs.joint.play import step
from hippo.jobs.joint.ranked import decide_ranked
from hippo.learn.ppo import choice, take
from hippo.planners.base import Progress

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


TRIES = 7
"""Answers at one moment: the rule's, the policy's draw, nobody, the policy's first job at its two best places, its
second job, and one by chance."""
OWN = 0.9
"""Weight of what the policy said before; the rest is spread evenly."""
MOST = 4.0
"""Savings count at most so many times their mean."""


@dataclass(frozen=True, eq=False)
class Branch:
    """One world, and its copy in which answers are tried."""

    env: WorldEnv
    trial: WorldCopy
    sight: Sight
    rule: Advisor

    @classmethod
    def of(cls, env: WorldEnv) -> Branch:
        """Of a world."""
        scene = env.scene
        seen = sight(
            *(scene.workload, scene.site, scene.offers),
            jobs=JOBS,
            places=PLACES,
            price=env.price,
            stops=scene.settings.stops,
            egress_weight=scene.egress_weight,
        )
        return cls(env, WorldCopy.of(env.world), seen, scene.advisor())

    def cost(self, slot: int, place: int, decay: float, usd_s: float = 0.0) -> float:
        """Priced seconds from now on if this is answered and the rule answers all that comes, discounted by ``decay`` a
        second; by the preferences of the scene, where a USD of egress counts as ``usd_s`` of them."""
        self.trial.restore()
        weight = self.env.scene.egress_weight
        taste = np.array([1.0 - weight, weight * usd_s])
        return float(_ahead(self.trial.copy, self.sight, self.rule, slot, place, decay, taste))


@kernel(lean=True)
def _ahead(w, s, rule, slot, place, decay, taste):  # type: ignore[no-untyped-def]
    begin, cost, usd = w.clock[c.NOW], 0.0, egress_usd(w)
    if slot >= 0:
        observe.look(w, s)
        observe.places(w, s, slot)
        carry_out(w, s, slot, place, -1)
        decide_ranked(w, rule.sight, rule.terms, rule.room)
    while True:
        before, weight, pays = w.clock[c.NOW], np.exp(-decay * (w.clock[c.NOW] - begin)), priced(w, s.price)
        if not step(w):
            return cost
        cost += weight * (taste[0] * pays * (w.clock[c.NOW] - before) - taste[1] * usd)
        usd = egress_usd(w)
        cost += weight * taste[1] * usd
        decide_ranked(w, rule.sight, rule.terms, rule.room)


def improve(policy: SiteAgents, share: WorldShare, settings: WorldLearning, progress: Progress) -> None:
    """Rounds of trying and learning; ``share``: worlds whose rewards are told beside the rule's."""
    own, batch, rng = settings.ahead, share.batch, share.rng
    optimizer = torch.optim.Adam(policy.upper.parameters(), lr=own.learning_rate, eps=1e-5)
    branches: list[Branch | None] = [None] * batch.worlds
    lessons: list[Lesson] = []
    decay = -float(np.log(settings.ppo.gamma)) / settings.worlds.epoch_s
    for number in range(own.rounds):
        seen, action, cost = tried(policy, share, branches, own.moments, own.every, decay)
        lesson, words = _lesson(policy, seen, action, cost)
        lessons = [*lessons[1 - own.kept :], lesson] if own.kept > 1 else [lesson]
        _learn(policy, optimizer, lessons, rng)
        progress(f"played ahead {number + 1}/{own.rounds}, {words}", (number + 1) / own.rounds)


def tried(
    policy: SiteAgents, share: WorldShare, branches: list[Branch | None], moments: int, every: int, decay: float
) -> tuple[MomentsSeen, Ints, Floats]:
    """Try answers at so many moments of each world, ``every`` answers apart: what was seen (N M, ..), the answers
    (N, M, 3), and what each costs (N, M), in times of what the rule pays for a job; nan: it stands there already."""
    batch, rng = share.batch, share.rng
    seen = room(batch, moments * TRIES)
    actions, costs = np.zeros((moments, TRIES, batch.worlds, 3), np.int64), []
    for moment in range(moments):
        for _ in range(every):
            _go_on(policy, batch, rng)
        slot, place = _answers(policy, share, seen, moment)
        actions[moment, ..., 0], actions[moment, ..., 1] = slot, place
        costs.append(_costs(batch, branches, slot, place, decay))
    rows = MomentsSeen(
        *(
            each.reshape(moments, TRIES, batch.worlds, *each.shape[2:]).transpose(1, 2).flatten(0, 2)
            for each in tensors(seen)
        )
    )
    return rows, actions.transpose(0, 2, 1, 3).reshape(-1, TRIES, 3), np.concatenate(costs)


def _go_on(policy: SiteAgents, batch: WorldBatch, rng: np.random.Generator) -> None:
    """An answer in each world: the policy's in half of them, the rule's in the others."""
    action = decide(policy, batch, rng).action
    rule = batch.by_rule()
    by_rule = rng.random(batch.worlds) < 0.5
    action[by_rule, :2], action[by_rule, 2] = rule[by_rule], 0
    batch.ask(action[:, 0])
    batch.hand_down(action[:, 0], action[:, 1])
    batch.answer(action)


@torch.no_grad()
def _answers(policy: SiteAgents, share: WorldShare, seen: Sights, moment: int) -> tuple[Ints, Ints]:
    """Slots and places (M, W) to try; writes down what was seen of each."""
    batch, rng = share.batch, share.rng
    rule = batch.by_rule()
    sights = tensors(batch.sights)
    thought = policy.upper.think(sights)
    whom = choice(policy.upper.whom(thought), sights.may)[0].numpy()
    best = np.argsort(-whom[:, :-1], axis=1)
    chance = np.where(batch.sights.may[:, :-1], rng.random(whom[:, :-1].shape), -1.0).argmax(1)
    slots = [rule[:, 0], drawn(whom, rng), np.full(batch.worlds, JOBS), best[:, 0], best[:, 0], best[:, 1], chance]
    places = []
    for number, slot in enumerate(slots):
        batch.ask(slot)
        keep(seen, batch, moment * TRIES + number)
        whither = choice(policy.upper.whither(thought, torch.from_numpy(slot), sights), sights.may_place)[0].numpy()
        order = np.argsort(-whither, axis=1)
        if number == 0:
            place = rule[:, 1]
        elif number in (1, 6):
            place = drawn(whither, rng)
        else:
            place = order[:, 1] if number == 4 else order[:, 0]
        places.append(np.where(slot < JOBS, place, 0))
    return np.array(slots), np.array(places)


def _costs(batch: WorldBatch, branches: list[Branch | None], slots: Ints, places: Ints, decay: float) -> Floats:
    """(W, M) what each distinct answer that may be given costs."""
    found = np.full((batch.worlds, TRIES), np.nan)
    for each, env in enumerate(batch.envs):
        branch = branches[each]
        if branch is None or branch.env is not env:
            branch = branches[each] = Branch.of(env)
        curve, known = batch.curve[each], set()
        assert curve is not None
        for number in range(TRIES):
            slot, place = int(slots[number, each]), int(places[number, each])
            if slot < JOBS and (not env.sight.may[slot] or place >= env.places(slot)):
                continue
            if (slot, place) in known:
                continue
            known.add((slot, place))
            job_s = curve.total_s / len(env.price)
            priced = branch.cost(-1 if slot == JOBS else slot, place, decay, job_s / batch.usd_per_job)
            found[each, number] = priced / job_s
    return found


class Lesson(NamedTuple):
    """Moments at which answers were tried, and what the policy should say of them."""

    seen: MomentsSeen  # (N M, ..)
    action: Tensor  # (N M, 3)
    there: Tensor  # (N, M) which answers were tried
    goal: Tensor  # (N, M) their probabilities


def _lesson(policy: SiteAgents, seen: MomentsSeen, action: Ints, cost: Floats) -> tuple[Lesson, str]:
    """What is to be learned from answers that were tried, and a word on it."""
    some = np.flatnonzero((~np.isnan(cost)).sum(1) > 1)
    rows = torch.from_numpy((some[:, None] * TRIES + np.arange(TRIES)).reshape(-1))
    seen, actions, cost = take(seen, rows), torch.from_numpy(action[some].reshape(-1, 3)), cost[some]
    there = torch.from_numpy(~np.isnan(cost))
    saves = np.nanmean(cost, axis=1, keepdims=True) - cost
    usual = float(np.nanmean(np.abs(saves)))
    with torch.no_grad():
        before = _likely(policy, seen, actions, there)
        even = there / there.sum(1, keepdim=True)
        goal = torch.log(OWN * before.exp() + (1.0 - OWN) * even)
        goal = goal + torch.from_numpy(np.nan_to_num(saves / max(1e-12, usual)).clip(-MOST, MOST)).float()
        goal = goal.masked_fill(~there, -np.inf).softmax(1)
    said = float(((before.exp().numpy() * np.nan_to_num(saves)).sum(1) - np.nan_to_num(saves[:, 0])).mean())
    best = float(np.mean(cost[:, 0] - np.nanmin(cost, 1)))
    return Lesson(seen, actions, there, goal), f"over the rule {said:+.3f} jobs an answer (best {best:+.3f})"


def _learn(
    policy: SiteAgents, optimizer: torch.optim.Optimizer, lessons: Sequence[Lesson], rng: np.random.Generator
) -> None:
    """Move the policy to what it should say, once through all lessons."""
    seen = MomentsSeen(*(torch.cat(parts) for parts in zip(*(each.seen for each in lessons), strict=True)))
    action = torch.cat([each.action for each in lessons])
    there, goal = torch.cat([each.there for each in lessons]), torch.cat([each.goal for each in lessons])
    for part in torch.split(torch.from_numpy(rng.permutation(len(goal))), 128):
        inside = (part[:, None] * TRIES + torch.arange(TRIES)).reshape(-1)
        now = _likely(policy, take(seen, inside), action[inside], there[part])
        loss = -(goal[part] * now.masked_fill(~there[part], 0.0)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(policy.upper.parameters(), 0.5)
        optimizer.step()


def _likely(policy: SiteAgents, seen: MomentsSeen, action: Tensor, there: Tensor) -> Tensor:
    """(N, M) log probabilities among the answers that were tried."""
    found = policy.upper.evaluate(seen, action).log_prob.reshape(there.shape)
    return found.masked_fill(~there, -1e9).log_softmax(1)
