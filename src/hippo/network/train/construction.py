"""How the constructing agents learn: drafts of random problems at random states of their links, played, compared.

Every site gets several drafts, each other's baseline: no reference is needed, and sites of any difficulty weigh alike.
The upper agent is paid for its draft with the lower agent's argmax answer, by the mean and by the best of a few
(``credited``): in use the best of a few drafts counts. The lower agent is paid for what the answer that it drew gained
over its argmax one to the same draft, plus what is its own (``construct.lower_rewards``): neither pays for the
other's draws. Updates are PPO's (``ppo.update``), one for each of the three networks.

Letters: N decisions, W drafts of an update, G drafts of a site.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import comb
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hippo.errors import HippoError
from hippo.learn.ppo import Batch, Evaluated, choice, minibatches, normalised, update
from hippo.learn.settings import Ppo
from hippo.network.construction.draft import NOTHING_BUILT, Draft, Site, build, lower_rewards, played, site
from hippo.network.construction.observe import Domains, Rows
from hippo.network.hi_ppo.constructor import Drafted, Taken, draft_all, key
from hippo.network.train.construction_networks import Builders
from hippo.network.train.export import Arrays, builders_arrays
from hippo.network.train.settings import HiPpoSettings
from hippo.network.worlds.generator import FAMILIES, make_world

Wide = NDArray[np.float64]
Track = Callable[[int, Mapping[str, float]], None]

MOST_DOMAINS = 16
WORST = 0.7  # rewards of a site spread no further than this below its best
LEAST_SPREAD, MOST_CREDIT = 0.02, 4.0


@dataclass(frozen=True)
class Construction:
    """How construction is learned."""

    families: tuple[str, ...] = tuple(FAMILIES)
    problems: int = 24  # of each family
    states: int = 4  # of each problem's links
    uneven: float = 0.8  # most standard deviation of the log by which links are drawn apart, in every second state
    first_seed: int = 10_000  # far from the worlds that the upper agent's dataset is made of
    sites: int = 24  # of an update
    drafts: int = 8  # of a site
    tries: int = 4  # the best of so many drafts counts beside their mean; 1: the mean alone
    updates: int = 100_000
    ppo: Ppo = field(
        default_factory=lambda: Ppo(
            learning_rate=6e-3, learning_rate_end=1e-4, entropy=0.003, passes=4, minibatch=256, target_kl=0.03
        )
    )


@dataclass(frozen=True, eq=False)
class Spot:
    """A site and the drafts that were played on it: equal ones are not played again."""

    site: Site
    known: dict[object, float] = field(default_factory=dict)

    def step_time_s(self, draft: Draft) -> float:
        """Step time of the draft's plan without an order of its own; inf: there is none."""
        name = key(draft)
        if name not in self.known:
            made = played(self.site, build(self.site, draft)) if draft.recipe >= 0 else None
            self.known[name] = np.inf if made is None else made.step_time_s
        return self.known[name]

    @property
    def best_s(self) -> float:
        """Step time of the best plan met here."""
        return min(self.known.values(), default=np.inf)


class TorchBrain:
    """Networks in training that answer as a served policy does."""

    def __init__(self, builders: Builders) -> None:
        self.builders = builders

    def construct(self, seen: Domains) -> NDArray[np.float32]:
        """(W, 2 K S + 1)"""
        with torch.no_grad():
            logits, _ = self.builders.constructor(*_tensors(seen)[:5])
        return np.asarray(logits.numpy())

    def recipe(self, seen: Rows) -> NDArray[np.float32]:
        """(W, M)"""
        with torch.no_grad():
            return np.asarray(self.builders.recipe(*_tensors(seen)[:2]).numpy())

    def arrange(self, seen: Rows) -> NDArray[np.float32]:
        """(n, M)"""
        with torch.no_grad():
            return np.asarray(self.builders.arrange(*_tensors(seen)[:2]).numpy())


def train_construct(
    config: HiPpoSettings, seed: int, minutes: float, track: Track, *, construction: Construction | None = None
) -> Arrays:
    """Networks of a policy file that construct, learned in so many minutes of wall clock (or ``construction.updates``):
    what ``network.train.export.save`` takes as ``others``.

    ``config``: its families are the worlds that are met. ``track``: called after every update with its number and
    figures.
    """
    plan = Construction() if construction is None else construction
    if config.worlds.families:
        plan = replace(plan, families=config.worlds.families)
    torch.manual_seed(seed)
    builders = Builders()
    learn(builders, list(sites(plan, seed)), plan, seed=seed, minutes=minutes, track=track)
    return builders_arrays(builders)


def sites(plan: Construction, seed: int, *, split: str = "train") -> Iterator[Spot]:
    """Problems of every family at random epochs of their worlds; in every second state links are drawn further apart,
    each by a factor of its own, so that networks of any unevenness are met."""
    rng = np.random.default_rng((seed, 77))
    for number in range(plan.problems):
        for family in plan.families:
            try:
                world = make_world(family, plan.first_seed + number, split=split)
            except HippoError:
                continue
            for at, epoch in enumerate(rng.integers(world.epochs, size=plan.states).tolist()):
                rates = world.bandwidth_bytes_per_s[epoch]
                apart = rng.uniform(0.0, plan.uneven) * rng.standard_normal(len(rates)) * (at % 2)
                rates = rates * np.exp(apart) if split == "train" else rates
                yield Spot(site(world.problem, rates, world.latency_s[epoch], world.compute[epoch]))


def learn(
    builders: Builders,
    grounds: Sequence[Spot],
    plan: Construction,
    *,
    seed: int,
    minutes: float,
    track: Track | None = None,
    optimizers: Mapping[str, torch.optim.Optimizer] | None = None,
) -> None:
    """Teaches the networks on these sites until the time or the updates are over."""
    torch.set_num_threads(1)
    rng, began = np.random.default_rng((seed, 99)), time.monotonic()
    optimizers = optimizers_of(builders, plan) if optimizers is None else optimizers
    weights = np.array([table.site.table.domains for table in grounds], dtype=np.float64)  # more to choose from
    for number in range(1, plan.updates + 1):
        spent = (time.monotonic() - began) / 60
        if minutes and spent >= minutes:
            return
        left = 1.0 - max(spent / minutes if minutes else 0.0, (number - 1) / plan.updates)
        rate = plan.ppo.learning_rate_end + left * (plan.ppo.learning_rate - plan.ppo.learning_rate_end)
        for optimizer in optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = rate
        picked = rng.choice(len(grounds), size=min(plan.sites, len(grounds)), replace=False, p=weights / weights.sum())
        chosen = [grounds[at] for at in picked]
        figures = one_update(builders, optimizers, chosen, plan, rng)
        if track is not None:
            track(number, figures | {"minutes": (time.monotonic() - began) / 60})


def optimizers_of(builders: Builders, plan: Construction) -> dict[str, torch.optim.Optimizer]:
    """One for each network."""
    return {
        name: torch.optim.Adam(net.parameters(), lr=plan.ppo.learning_rate) for name, net in builders.named_children()
    }


def one_update(
    builders: Builders,
    optimizers: Mapping[str, torch.optim.Optimizer],
    chosen: Sequence[Spot],
    plan: Construction,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Drafts on the chosen sites, their rewards, and one update of each network; figures for the curve."""
    owners = [table for table in chosen for _ in range(plan.drafts)]
    drafted = draft_all(TorchBrain(builders), [table.site for table in owners], rng, size=MOST_DOMAINS)
    steps = np.array([each.step_time_s(draft) for each, draft in zip(owners, drafted.drafts, strict=True)])
    usual = np.array([each.step_time_s(draft) for each, draft in zip(owners, drafted.argmax, strict=True)])
    best = np.array([each.best_s for each in owners])
    rewards = _rewards(usual, best)
    groups = rewards.reshape(len(chosen), plan.drafts)
    upper = credited(groups, plan.tries).ravel()
    lower = _lower_credits(owners, drafted, _rewards(steps, best) - rewards, np.where(np.isfinite(usual), usual, best))
    parts = {
        "constructor": (drafted.domains, _of(drafted.domains, upper)),
        "recipe": (drafted.recipes, _of(drafted.recipes, upper)),
        "arrange": (drafted.layouts, lower),
    }
    kl = {
        name: _taught(getattr(builders, name), optimizers[name], decisions, credit, rewards, plan, rng)
        for name, (decisions, credit) in parts.items()
    }
    return {
        "reward": float(rewards.mean()),
        "built": float(np.isfinite(usual).mean()),
        "best_of_group": float(groups.max(axis=1).mean()),
        "domains": float(np.mean([len(draft.chain) for draft in drafted.drafts])),
        **{f"kl_{name}": value for name, value in kl.items()},
    }


def credited(rewards: Wide, tries: int) -> Wide:
    """Advantages (sites, G) of the drafts of each site from their rewards (sites, G), on one scale for all sites.

    Two parts, each with the site's other drafts for a baseline: the draft's reward less their mean, and what it adds to
    the best of ``tries`` drafts (the mean over all choices of ``tries - 1`` others). The policy gradient is that of the
    mean reward plus that of the expected best of ``tries``. Divided by the site's spread, at least ``LEAST_SPREAD``: a
    site where a draft failed does not drown those where drafts differ by per cents.
    """
    count = rewards.shape[1]
    found = (rewards - rewards.mean(axis=1, keepdims=True)) * count / max(1, count - 1)
    if 1 < tries <= count:
        order = np.argsort(rewards, axis=1)
        rising = np.take_along_axis(rewards, order, axis=1)
        # in ``weight[j]`` of the choices rank j is the best of the others, as long as j lies below the draft itself
        weight = np.array([comb(rank, tries - 2) for rank in range(count)]) / comb(count - 1, tries - 1)
        part = rising * weight
        adds = rising * (np.cumsum(weight) - weight) - (np.cumsum(part, axis=1) - part)
        more = np.empty_like(rewards)
        np.put_along_axis(more, order, tries * adds, axis=1)
        found = found + more
    spread = np.maximum(rewards.std(axis=1, keepdims=True), LEAST_SPREAD)
    return np.asarray(np.clip(found / spread, -MOST_CREDIT, MOST_CREDIT))


def _rewards(steps: Wide, best: Wide) -> Wide:
    """``log(best / step)`` (W,), cut; ``-NOTHING_BUILT`` where nothing was built."""
    built = np.isfinite(steps)
    found = np.full(len(steps), -NOTHING_BUILT)
    found[built] = np.maximum(np.log(best[built] / steps[built]), -WORST)
    return found


def _lower_credits(owners: Sequence[Spot], drafted: Drafted, gained: Wide, usual: Wide) -> Wide:
    """Advantages of the lower agent's decisions (N,): what the draft as drawn ``gained`` (W,) over the lower agent's
    argmax answer to the same chain and recipe, and the same of what is its own. ``usual`` (W,): step times of the
    argmax answers."""
    own: dict[int, Wide] = {}
    for w in {taken.draft for taken in drafted.layouts}:
        drawn, argmax = drafted.drafts[w], drafted.argmax[w]
        own[w] = np.zeros(len(drawn.chain))
        if not np.array_equal(drawn.rows, argmax.rows) and np.isfinite(usual[w]):
            here, there = (lower_rewards(owners[w].site, each, float(usual[w])) for each in (drawn, argmax))
            own[w] = np.clip(here - there, -WORST, WORST)
    return np.array([gained[taken.draft] + own[taken.draft][taken.place] for taken in drafted.layouts])


def _taught(
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    decisions: Sequence[Taken],
    credit: Wide,
    rewards: Wide,
    plan: Construction,
    rng: np.random.Generator,
) -> float:
    """One PPO update of a network from the decisions it took and the advantage of each, (N,); the KL divergence that it
    moved."""
    decisions = list(decisions)
    if len(decisions) < 2:
        return 0.0
    of = np.array([taken.draft for taken in decisions])
    batch = Batch(
        _gathered(decisions),
        torch.tensor([taken.action for taken in decisions]),
        torch.tensor([taken.log_prob for taken in decisions], dtype=torch.float32),
        normalised(torch.tensor(credit, dtype=torch.float32)),
        torch.tensor(rewards[of], dtype=torch.float32).unsqueeze(-1),
    )
    order = minibatches([len(decisions)], plan.ppo, [rng])
    return update(_judged(network), optimizer, batch, settings=plan.ppo, order=order).kl


def _judged(network: torch.nn.Module) -> Callable[[Any, Tensor], Evaluated]:
    """How likely actions are now, as ``ppo`` asks; only the constructor has a value."""

    def evaluate(seen: Any, action: Tensor) -> Evaluated:
        given = network(*seen[:-1])
        logits, value = given if isinstance(given, tuple) else (given, given[:, 0].detach() * 0.0)
        log_probs, entropy = choice(logits, seen.mask)
        return Evaluated(log_probs.gather(1, action[:, None])[:, 0], entropy, value[:, None])

    return evaluate


def _of(decisions: Sequence[Taken], credit: Wide) -> Wide:
    """The credit (W,) of each decision's draft, (N,)."""
    return credit[[taken.draft for taken in decisions]]


def _gathered(decisions: Sequence[Taken]) -> Any:
    """One batch of tensors of what the decisions saw."""
    kind: Any = type(decisions[0].seen)
    parts: dict[int, tuple[Any, list[int]]] = {}
    order: dict[int, list[int]] = {}
    for at, taken in enumerate(decisions):
        parts.setdefault(id(taken.seen), (taken.seen, []))[1].append(taken.row)
        order.setdefault(id(taken.seen), []).append(at)
    back = np.argsort(np.concatenate([order[name] for name in parts]), kind="stable")
    columns = zip(*([column[rows] for column in seen] for seen, rows in parts.values()), strict=True)
    return kind(*(torch.from_numpy(np.concatenate(column)[back]) for column in columns))


def step_times(builders: Builders, spots: Sequence[Spot]) -> Wide:
    """Step times, (sites,), of the plans that the policy is surest of; inf: none came of it."""
    sure = np.ones(len(spots), dtype=bool)
    drafted = draft_all(TorchBrain(builders), [spot.site for spot in spots], np.random.default_rng(0), greedy=sure)
    return np.array([spot.step_time_s(draft) for spot, draft in zip(spots, drafted.drafts, strict=True)])


def _tensors(seen: Any) -> list[Tensor]:
    return [torch.from_numpy(np.ascontiguousarray(column)) for column in seen]
