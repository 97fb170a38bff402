"""``hippo train`` for the agents that share out a site: both learn together.

Every update depends on the seed and its number alone, so a resumed run is the same run; but where Ray's workers are cut
off (``run.cut_off``), on their speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hippo.files import write_whole
from hippo.jobs.joint.advice import NO_CHARGES, Charges
from hippo.jobs.joint.draws import DrawnScenes
from hippo.jobs.joint.env import COSTS
from hippo.jobs.joint.hi_ppo import lessons
from hippo.jobs.joint.hi_ppo.learner import SiteAgents, WorldLearner, WorldShare, charges_of, played
from hippo.jobs.joint.hi_ppo.limits import ascent_by_rule, over_limits
from hippo.jobs.joint.hi_ppo.policy import FORM
from hippo.jobs.joint.hi_ppo.scenes import drawn_scenes, named_cluster, planned
from hippo.jobs.joint.hi_ppo.settings import WorldLearning
from hippo.jobs.joint.hi_ppo.worlds import Scenes, WorldBatch, by_rule
from hippo.jobs.placement.offers import OfferTable
from hippo.learn.checkpoint import Checkpoint, earlier_run, must_match
from hippo.learn.distributed import Place, connected
from hippo.learn.on_ray import RayLearner
from hippo.learn.session import Learner, Outcome, Session
from hippo.machine import ray_cluster
from hippo.planners.base import Progress
from hippo.problem.cluster import Cluster

FREE = ("run.minutes", "run.updates", "run.checkpoint_every", "run.cut_off")
"""Settings that a resumed run may change."""
POLICY, CURVE = "world.npz", "curve.jsonl"
WORST = 3.0
"""What counts for such a world: times the rule's price."""


class WorldLooks:
    """The policy's best answers on worlds that are not learned from, held against the rule that advises it, at equal
    charges."""

    def __init__(self, scenes: DrawnScenes, count: int, settings: WorldLearning) -> None:
        self.scenes, self.count, self.settings = scenes, count, settings
        self.charges: Charges | None = None

    def __call__(self, policy: nn.Module) -> dict[str, float]:
        """Priced time with charges over the rule's, mean of the worlds; what is used over what limits allow."""
        assert isinstance(policy, SiteAgents)
        charges, limits = charges_of(policy, self.settings), self.settings.limits
        if charges != self.charges:
            asked = (replace(self.scenes.scene(number), charges=charges) for number in range(self.count))
            self.charges, self.rule_s = charges, np.array([by_rule(each).total_s for each in asked])
        batch = played(policy, self.scenes, self.count, charges=charges)
        paid_s = np.array([paid if env.done else np.inf for paid, env in zip(batch.paid, batch.envs, strict=True)])
        found = {"validation/of_rule": float(np.mean(np.minimum(WORST, paid_s / self.rule_s)))}
        if not limits.some or not batch.ended:
            return found
        over = over_limits(limits, batch.ended).tolist()
        return found | {f"validation/{name}": each for name, each in zip(COSTS, over, strict=True)}


def train(
    settings: WorldLearning,
    *,
    out: Path,
    resume: bool = False,
    workers: int = 0,
    progress: Progress = lambda phase, share: None,
    say: Callable[[str], None] = lambda words: None,
) -> dict[str, Any]:
    """Train both agents; writes policy, curve and checkpoints into ``out``. ``workers``: of a Ray cluster, 0: none.

    Returns
    -------
    dict
        ``policy``, ``curve`` (paths), ``updates``, ``seconds``, ``of_rule`` (priced time in the system over that of the
        rule that the agents begin as, both with what limits cost, on worlds that were not learned from; None: nobody
        looked), ``start`` (the same when PPO began), ``words`` (a sentence).

    Raises
    ------
    InputError
        No such cluster or model; ``resume`` without a checkpoint or with other settings.
    """
    torch.set_num_threads(1)
    begun(settings, out, resume=resume)  # before anything is planned
    cluster = named_cluster(settings)
    say(f"what the planner offers {len(settings.worlds.models)} kinds of training on {cluster.name}")
    table = planned(settings, cluster, progress=progress)
    with connected() as place:
        found = learned(
            settings,
            table,
            out,
            cluster=cluster,
            resume=resume,
            place=place,
            workers=workers,
            progress=progress,
            say=say,
        )
        if not place.first:
            return {}
    seen = (
        ""
        if found.best is None
        else (f"; {found.best:.4f} of the rule's priced time on other worlds (when PPO began {found.first:.4f})")
    )
    return {
        "policy": str(out / POLICY),
        "curve": str(out / CURVE),
        "updates": found.updates,
        "seconds": found.seconds,
        "of_rule": found.best,
        "start": found.first,
        "words": f"{found.updates} updates, {found.count:,} decisions, {found.seconds / 60:.1f} minutes{seen}\n"
        f"policy {out / POLICY}, curve {out / CURVE}",
    }


def begun(settings: WorldLearning, out: Path, *, resume: bool) -> Checkpoint | None:
    """The run to go on with, if it was made by these settings; None: a new one begins."""
    before = earlier_run(out, resume=resume)
    if before is not None:
        must_match(before, settings, free=FREE)
    return before


def learned(
    settings: WorldLearning,
    table: OfferTable,
    out: Path,
    *,
    cluster: Cluster,
    resume: bool = False,
    place: Place | None = None,
    workers: int = 0,
    progress: Progress = lambda phase, share: None,
    say: Callable[[str], None] = lambda words: None,
) -> Outcome:
    """A whole run over a table of offers. ``workers``: of a Ray cluster; 0: this process learns."""
    place = place or Place()
    before = begun(settings, out, resume=resume)
    began = time.monotonic()
    run = settings.run
    scenes, held = (drawn_scenes(settings, table, cluster=cluster, held_out=other) for other in (False, True))
    torch.manual_seed(run.seed)
    policy = SiteAgents(settings)
    if before is None and settings.limits.some:
        say("what the limits cost under the rule that advises the agents")
        given = settings.limits.start
        start = given if any(given) else ascent_by_rule(scenes, settings.limits).found
        policy.multipliers.copy_(torch.as_tensor(start))
    if settings.ahead.worlds and before is None:
        lessons.study(policy.upper, scenes, settings.ahead, seed=run.seed, progress=progress)
    make = partial(share_learner, policy, settings, scenes)
    Place(0, workers or 1).own(run.shares)  # can be dealt out
    with ExitStack() as stack:
        learner: Learner
        if workers:
            ray = stack.enter_context(ray_cluster(workers))
            learner = RayLearner(ray, make, workers=workers, policy=policy, cut_off=run.cut_off, say=say)
            stack.callback(learner.leave)
        else:
            learner = make(place)
        return _session(learner, settings, out, held, progress).run(before, prepared_s=time.monotonic() - began)


def drawn_batch(
    scenes: Scenes,
    settings: WorldLearning,
    worlds: int,
    first: int,
    step: int = 1,
    *,
    regret: bool = True,
    charges: Charges = NO_CHARGES,
) -> WorldBatch:
    """Worlds to learn in, side by side, as a configuration says."""
    return WorldBatch(
        scenes,
        worlds,
        len(scenes.domains),
        first,
        step,
        regret=regret,
        usd_per_job=settings.worlds.usd_per_job,
        charges=charges,
    )


def share_learner(policy: SiteAgents, settings: WorldLearning, scenes: Scenes, place: Place) -> WorldLearner:
    """The learner of one process, with its shares of the worlds."""
    run = settings.run
    every = max(1, run.parallel // run.shares)
    batch = partial(drawn_batch, scenes, settings, every, step=run.shares, charges=charges_of(policy, settings))
    shares = [WorldShare(batch(number), _generator(run.seed, number)) for number in place.own(run.shares)]
    return WorldLearner(policy, shares, settings, place)


def _session(learner: Learner, settings: WorldLearning, out: Path, held: DrawnScenes, progress: Progress) -> Session:
    count = settings.worlds.validation
    return Session(
        learner=learner,
        settings=settings,
        folder=out,
        words=_words,
        counted="decisions",
        look=WorldLooks(held, count, settings) if count and learner.place.first else None,
        best_by="validation/of_rule",
        least=True,
        write=lambda best: write_whole(out / POLICY, packed(best, settings)),
        free=FREE,
        progress=progress,
    )


def _generator(seed: int, number: int) -> np.random.Generator:
    return np.random.default_rng([seed, 1 + number])


def _words(figures: Mapping[str, float], notes: Mapping[str, Any]) -> str:
    """An update, for people."""
    best = "" if notes["best"] is None else f", best {notes['best']:.4f} of the rule at update {notes['best_update']}"
    now = f"{figures['of_rule']:.4f} of the rule's priced time where it learns, " if "of_rule" in figures else ""
    return f"{now}KL {figures['ppo/kl']:.3f}, {figures['decisions_per_cpu_s']:,.0f} decisions per CPU second{best}"


def packed(policy: nn.Module, settings: WorldLearning) -> bytes:
    """Both agents as they are served."""
    arrays = {name: array.numpy() for name, array in policy.state_dict().items()}
    return FORM.packed({**arrays, "upper.heads": np.array(settings.network.heads)}, settings=asdict(settings))
