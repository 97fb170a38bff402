"""A replay small enough to know every figure: two domains, a link that collapses and comes back, answers by script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.view import Action, How, View
from hippo.network.why.story import Story
from hippo.network.worlds.asking import Terms
from hippo.network.worlds.replay import Source, replay
from hippo.network.worlds.world import World
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.cluster import Cluster, Domain, Gpu, Link
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload

ACROSS, ALONE, LEVER = 0, 1, 2
USUAL, EPOCHS, EPOCH_S = 2e8, 12, 60.0
SCRIPT = {3: Action(How.STOP, ALONE), 8: Action(How.BACKGROUND, ACROSS), 11: Action(How.SWITCH, LEVER)}
TERMS = Terms(1e-9)


class Scripted:
    """Begins across both domains and answers by epoch."""

    name = "scripted"

    def __init__(self, script: Mapping[int, Action] = SCRIPT) -> None:
        self.script = script

    def begin(self, view: View) -> int:
        return ACROSS

    def decide(self, view: View) -> Action:
        return self.script.get(view.epoch, Action())


def stage(domain: str, start: int, stop: int) -> Stage:
    return Stage(domain, (start, stop), 1, 1, (f"{domain}/0/0",))


def make_book(names: tuple[str, str] = ("a", "b"), *, model: str = "toy") -> PlanCache:
    """0: across both domains, 1: in the first alone (the slower one), 2: as 0 with another schedule."""
    gpu = Gpu("A100-SXM-80GB", {"bf16": 312e12}, 80e9, 2.0e12, 300e9, 1.8, family="ampere")
    domains = tuple(Domain(name, 1, 1, 300e9, 25e9, 5e-6) for name in names)
    first, second = names
    links = (Link(first, second, USUAL, 0.0, 0.001), Link(second, first, USUAL, 0.0, 0.001))
    toy = gpt_model(model, layers=22, hidden=1024, heads=8, vocab=32000, seq=1024, gated=True)
    made = PlanCache(Problem(toy, Cluster("pair", gpu, domains, links), Workload(global_batch=32, seq=1024)))
    split = Plan((Pipeline((stage(first, 0, 12), stage(second, 12, 24)), 32),), 1)
    alone = Plan((Pipeline((stage(first, 0, 24),), 32),), 1)
    gpipe = replace(split, schedule=replace(split.schedule, name="gpipe"))
    for plan, lever in ((split, ""), (alone, ""), (gpipe, "schedule")):
        assert made.add(plan, origin="hand", lever=lever) is not None
    return made


def make_world(cache: PlanCache) -> World:
    """Both links at a tenth in epochs 3 to 7; one value of the first link never arrives."""
    bandwidth = np.full((EPOCHS, 2), USUAL)
    bandwidth[3:8] /= 10
    told = np.ones((EPOCHS, 2), dtype=bool)
    told[5, 0] = False
    ones = np.ones((EPOCHS, 2))
    return World("small", "hand", cache.problem, EPOCH_S, bandwidth, np.zeros((EPOCHS, 2)), ones, told)


def make_story(names: tuple[str, str] = ("a", "b"), *, model: str = "toy") -> Story:
    cache = make_book(names, model=model)
    return replay(make_world(cache), cache, Scripted(), TERMS, Source("net.csv", 0.0))
