"""Plans of the agents' own: drafted choice by choice by a policy, built, played, best first. No torch.

The upper agent appends domains, then settles the recipe; the lower agent answers for all domains at once
(``lower_agent``); every draft of a batch takes its next choice at the same call of the policy.

Letters: W drafts, K domains, S claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hippo.network.construction.draft import CLAIMS, PLAIN, Built, Draft, Site, build, played, site
from hippo.network.construction.observe import ConstructionState, Domains, Rows, observe_domains, observe_recipes
from hippo.network.hi_ppo.lower_agent import Arranging, answer, pick
from hippo.network.plans.replan import Net, under
from hippo.plan.plan import Plan
from hippo.planners.orders import ordered
from hippo.problem.problem import Problem

Floats = NDArray[np.float32]
Masks = NDArray[np.bool_]
Wide = NDArray[np.float64]
Ints = NDArray[np.int64]

CONSTRUCT, RECIPE, ARRANGE = CONSTRUCTING = ("construct", "recipe", "arrange")
"""Networks of a policy file that draft plans."""
DOMAIN_INPUTS = ("nodes", "edges", "node_mask", "context", "joins", "stop")
ROW_INPUTS = ("rows", "context")
MOST_ORDERED = 4000  # operations of a plan that gets an order of its own in passing
GREED, SHY = 20.0, -0.125
"""Logit per unit of the closed form's ``best`` before anything was learned: a step 5 % slower is e times less likely;
and what a claim that is not in proportion counts less."""


class Brain(Arranging, Protocol):
    """Who chooses: logits of what a batch of drafts shows."""

    def construct(self, seen: Domains) -> Floats:
        """(W, 2 K S + 1)"""
        ...

    def recipe(self, seen: Rows) -> Floats:
        """(W, M)"""
        ...


@runtime_checkable
class Running(Protocol):
    """What is needed of a policy (``hippo.network.hi_ppo.serving.Policy``)."""

    def run(self, name: str, inputs: Mapping[str, NDArray[Any]]) -> tuple[Floats, ...]:
        """What one network answers."""
        ...


@dataclass(frozen=True, eq=False)
class Served:
    """A policy file's networks as a brain."""

    policy: Running

    def construct(self, seen: Domains) -> Floats:
        """(W, 2 K S + 1)"""
        count, size = seen.node_mask.shape
        joins = seen.candidates[:, :-1].reshape(count, size, 2, -1)
        parts = (*seen[:4], joins, seen.candidates[:, -1:])
        return self.policy.run(CONSTRUCT, dict(zip(DOMAIN_INPUTS, parts, strict=True)))[0]

    def recipe(self, seen: Rows) -> Floats:
        """(W, M)"""
        return self.policy.run(RECIPE, dict(zip(ROW_INPUTS, seen[:2], strict=True)))[0]

    def arrange(self, seen: Rows) -> Floats:
        """(n, M)"""
        return self.policy.run(ARRANGE, dict(zip(ROW_INPUTS, seen[:2], strict=True)))[0]


class ClosedForm:
    """What the networks are before they learn: the closed form's choice."""

    def construct(self, seen: Domains) -> Floats:
        """(W, 2 K S + 1)"""
        joins = np.repeat(seen.candidates[:, :-1, 0], len(CLAIMS), axis=1)
        joins = joins + np.tile(np.where(np.arange(len(CLAIMS)) == PLAIN, 0.0, SHY), 2 * seen.nodes.shape[1])
        return np.asarray(GREED * np.concatenate([joins, seen.candidates[:, -1:, 0]], axis=1), dtype=np.float32)

    def recipe(self, seen: Rows) -> Floats:
        """(W, M)"""
        return np.asarray(GREED * seen.rows[..., 0])

    def arrange(self, seen: Rows) -> Floats:
        """(n, M)"""
        return np.asarray(GREED * seen.rows[..., 0])


@dataclass(frozen=True, eq=False)
class Taken:
    """A decision of a draft: what was seen (one row of a batch), what was answered and how likely it was."""

    draft: int
    seen: Domains | Rows
    row: int
    action: int
    log_prob: float
    place: int = -1  # of the domain in the chain, for the lower agent


@dataclass(frozen=True, eq=False)
class Drafted:
    """Drafts of a batch and, where asked for, the decisions that made them."""

    drafts: tuple[Draft, ...]
    argmax: tuple[Draft, ...]  # the same choices of the upper agent, each with the lower agent's argmax answer
    domains: tuple[Taken, ...] = ()
    recipes: tuple[Taken, ...] = ()
    layouts: tuple[Taken, ...] = ()


def draft_all(
    brain: Brain,
    sites: Sequence[Site],
    rng: np.random.Generator,
    *,
    greedy: Masks | None = None,
    size: int | None = None,
) -> Drafted:
    """One draft for every site. ``greedy``: which take the argmax choice every time; ``size``: domains that
    observations are padded to."""
    drafts = [ConstructionState(each) for each in sites]
    sure = np.zeros(len(sites), dtype=bool) if greedy is None else np.asarray(greedy)
    domains = _choose_domains(brain, drafts, rng, sure, size)
    seen = observe_recipes(drafts)
    actions, log_probs = pick(brain.recipe(seen), seen.mask, rng, sure)
    recipes = [Taken(w, seen, w, int(a), float(p)) for w, (a, p) in enumerate(zip(actions, log_probs, strict=True))]
    fits = []
    for w, draft in enumerate(drafts):
        if len(draft.told):
            draft.choose_recipe(int(actions[w]))
            fits.append(w)
    layouts, argmax = [], [draft.draft for draft in drafts]
    answers = answer(brain, [drafts[w] for w in fits], rng, sure[fits])
    for w, given in zip(fits, answers, strict=True):
        drafts[w].rows = given.rows
        argmax[w] = replace(drafts[w].draft, rows=given.argmax)
        layouts += [
            Taken(w, given.seen, at, int(a), float(p), at)
            for at, (a, p) in enumerate(zip(given.actions, given.log_probs, strict=True))
        ]
    recipes = [taken for taken in recipes if taken.draft in set(fits)]
    made = tuple(draft.draft for draft in drafts)
    return Drafted(made, tuple(argmax), tuple(domains), tuple(recipes), tuple(layouts))


def _choose_domains(
    brain: Brain, drafts: Sequence[ConstructionState], rng: np.random.Generator, sure: Masks, size: int | None
) -> list[Taken]:
    """Appends domains to every draft until each has stopped."""
    taken: list[Taken] = []
    open_ones = list(range(len(drafts)))
    while open_ones:
        seen = observe_domains([drafts[w] for w in open_ones], size=size)
        actions, log_probs = pick(brain.construct(seen), seen.mask, rng, sure[open_ones])
        going = []
        stop = seen.mask.shape[1] - 1
        for row, (w, action) in enumerate(zip(open_ones, actions.tolist(), strict=True)):
            if seen.mask[row].sum() > 1:
                taken.append(Taken(w, seen, row, action, float(log_probs[row])))
            if action != stop:
                drafts[w].add(action)
                going.append(w)
        open_ones = going
    return taken


def construct(
    policy: Running | Brain,
    problem: Problem,
    bandwidth_bytes_per_s: Wide,
    latency_s: Wide,
    *,
    tries: int = 4,
    compute: Wide | None = None,
    seed: int = 0,
    orders: bool = True,
) -> list[Plan]:
    """Plans that the policy constructs under a state (E,), (E,) of the links, quickest first; empty: none came of it.

    ``policy``: a served one with the networks ``CONSTRUCTING``, or whoever else chooses (``ClosedForm``). ``tries``:
    drafts, as ``tried`` makes them. ``compute`` (K,): factor on the length of each domain's operations. ``orders``:
    whether each plan also gets an order of operations of its own where that is quicker (``planners.orders``).
    """
    brain = Served(policy) if isinstance(policy, Running) else policy
    where = site(problem, bandwidth_bytes_per_s, latency_s, compute)
    found: dict[Plan, float] = {}
    for draft in _distinct(tried(brain, where, tries, seed)):
        made = finished(where, draft, orders=orders)
        if made is not None:
            found[made.plan] = made.step_time_s
    return sorted(found, key=lambda plan: found[plan])


def tried(brain: Brain, where: Site, tries: int, seed: int) -> list[Draft]:
    """So many drafts of one site: the policy's argmax, the closed form's argmax, then draws of the policy.

    On networks unlike those it learned from a policy may be worse than the closed form; the second draft sees to that.
    """
    own = tries if isinstance(brain, ClosedForm) else max(1, tries - 1)
    found = list(draft_all(brain, [where] * own, np.random.default_rng(seed), greedy=np.arange(own) == 0).drafts)
    if own < tries:
        found[1:1] = draft_all(ClosedForm(), [where], np.random.default_rng(seed), greedy=np.ones(1, dtype=bool)).drafts
    return found


def finished(where: Site, draft: Draft, *, orders: bool) -> Built | None:
    """The plan of a draft as it was played; None: none came of it."""
    if draft.recipe < 0:
        return None
    made = played(where, build(where, draft))
    if made is None or not orders or where.table.problem.rules.schedules is not None:
        return made
    (line,) = made.plan.pipelines
    if len(line.stages) * line.num_micro_batches * 3 > MOST_ORDERED or len(line.stages) == 1:
        return made
    state = Net(where.bandwidth_bytes_per_s, where.latency_s)
    own = ordered(under(where.table.problem, state), made.plan)
    better = None if own is None else played(where, [own])
    return made if better is None or better.step_time_s >= made.step_time_s else better


def _distinct(drafts: Sequence[Draft]) -> list[Draft]:
    known = {key(draft): draft for draft in reversed(drafts)}
    return list(reversed(known.values()))


def key(draft: Draft) -> tuple[bytes, bytes, int, bytes]:
    """Equal for equal drafts."""
    return draft.chain.tobytes(), draft.claims.tobytes(), draft.recipe, draft.rows.tobytes()
