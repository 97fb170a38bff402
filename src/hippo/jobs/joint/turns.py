"""The agents of a site in turns: ``upper`` chooses a job (or nobody: time goes on), then a place for it; then the lower
agent of the first domain of that place chooses the shape and the nodes, and what was chosen is carried out.

No time passes between the three. What they see is what ``engine.observe`` writes, as live: the site, domains, links and
jobs; the places of the job that was chosen; the shapes of the place that was chosen. Rewards: of ``upper`` what the
jobs in the system cost until it is asked again, beside what the rule pays meanwhile in the same world, in shares of
what that pays for a job (``WorldBatch``); of a lower agent what its shape costs its domain (``LowerTerms``), at once.

Letters: K domains, J jobs, P places, V shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hippo.jobs.engine.observe import (
    DOMAIN_NUMBERS,
    JOB_NUMBERS,
    LINK_NUMBERS,
    PLACE_NUMBERS,
    SHAPE_NUMBERS,
    SHAPES,
    SITE_NUMBERS,
)
from hippo.jobs.joint.env import JOBS, PLACES
from hippo.jobs.joint.hi_ppo.settings import LowerTerms
from hippo.jobs.joint.hi_ppo.worlds import Scenes, WorldBatch
from hippo.learn.turns import ALLOWED, OBSERVED, Seen, allowed

UPPER, LOWER = "upper", "lower"
JOB, PLACE, SHAPE = range(3)
"""What is asked."""
ANSWERS = max(JOBS + 1, PLACES)
"""Of the upper agent; of a job the last but ``JOBS`` means nobody."""
LARGEST = 1e4
"""Of a number that is seen; none comes near."""
UPPER_SEES = ("asked", "site", "domains", "links", "jobs", "chosen", "places", "where")
LOWER_SEES = ("domain", "shapes")


def sight_spaces(domains: int) -> dict[str, spaces.Space[Any]]:
    """What is seen of a site with so many domains, by name."""
    shapes = {
        "asked": (3,),  # 1: a job, a place, a shape
        "site": (SITE_NUMBERS,),
        "domains": (domains, DOMAIN_NUMBERS),
        "links": (domains, domains, LINK_NUMBERS),  # from, to
        "jobs": (JOBS, JOB_NUMBERS),
        "chosen": (JOBS,),  # 1: the job that was chosen
        "places": (PLACES, PLACE_NUMBERS),  # of the job that was chosen; zero before
        "where": (PLACES, domains),  # 1: a part of the place lies there
        "domain": (DOMAIN_NUMBERS,),  # of who chooses the shape; zero before
        "shapes": (SHAPES, SHAPE_NUMBERS),  # of the place that was chosen; zero before
    }
    return {name: spaces.Box(-LARGEST, LARGEST, shape, np.float32) for name, shape in shapes.items()}


class SiteTurns:
    """Episodes of worlds by number: ``first``, then every ``step``-th, so that processes play worlds of their own.

    ``regret``: rewards beside the rule's; False: minus priced seconds.
    """

    def __init__(
        self,
        scenes: Scenes,
        *,
        first: int = 0,
        step: int = 1,
        regret: bool = True,
        lower: LowerTerms | None = None,
    ) -> None:
        self.scenes, self.number, self.pace, self.regret = scenes, first, step, regret
        self.lower, self.domains = lower or LowerTerms(), scenes.domains
        self.names = (UPPER, *(f"{LOWER}_{domain}" for domain in self.domains))
        self.sight_spaces = sight_spaces(len(self.domains))
        self.observation_spaces = {name: self._space(name) for name in self.names}
        self.action_spaces = {name: spaces.Discrete(ANSWERS if name == UPPER else SHAPES) for name in self.names}
        self.asked, self.slot, self.place = JOB, np.full(1, JOBS), np.zeros(1, np.int64)

    def _space(self, name: str) -> spaces.Dict:
        sees, many = (UPPER_SEES, ANSWERS) if name == UPPER else (LOWER_SEES, SHAPES)
        observed = spaces.Dict({part: self.sight_spaces[part] for part in sees})
        return spaces.Dict({OBSERVED: observed, ALLOWED: spaces.Box(0.0, 1.0, (many,), np.float32)})

    @property
    def figures(self) -> dict[str, float]:
        """Of an episode that is over: priced seconds, and their share of what the rule pays in the same world."""
        found = {"priced_s": float(self.batch.paid[0])}
        return found | ({"of_rule": self.batch.ended[0].of_rule} if self.regret and self.batch.ended else {})

    def reset(self, seed: int | None = None) -> Seen:
        """The next world, or world number ``seed``."""
        self.number = self.number if seed is None else seed
        count = len(self.domains)
        self.batch = WorldBatch(self.scenes, 1, count, self.number, self.pace, regret=self.regret, endless=False)
        self.number += self.pace
        self.asked = JOB
        return self._seen()

    def step(self, answers: Mapping[str, int]) -> tuple[Seen, dict[str, float], bool]:
        """The answer of who was asked; who is asked next, rewards, whether the episode is over."""
        sights, answer = self.batch.sights, allowed(self.mask, int(answers[self.who]))
        if self.asked == JOB:
            self.slot[0], self.place[0] = answer, 0
            self.batch.ask(self.slot)
            if sights.may_place.any():
                self.asked = PLACE
                return self._seen(), {UPPER: 0.0}, False
        elif self.asked == PLACE:
            self.place[0] = answer
            self.batch.hand_down(self.slot, self.place)
            if sights.may_shape.any():
                self.asked = SHAPE
                return self._seen(), {UPPER: 0.0}, False
        shape, own = 0, {}
        if self.asked == SHAPE:
            shape, own = answer, {self.who: float(self.lower.reward(sights.shapes[0, answer]))}
        else:
            self.batch.hand_down(np.full(1, JOBS), self.place)  # nobody chooses a shape
        reward, _, done = self.batch.answer(np.array([[self.slot[0], self.place[0], shape]]))
        self.asked = JOB
        return {} if done[0] else self._seen(), own | {UPPER: float(reward[0])}, bool(done[0])

    @property
    def who(self) -> str:
        """Who is asked."""
        if self.asked != SHAPE:
            return UPPER
        return self.names[1 + int(self.batch.sights.where[0, self.place[0], 0])]

    @property
    def mask(self) -> NDArray[np.bool_]:
        """What may be answered by who is asked."""
        sights = self.batch.sights
        if self.asked == SHAPE:
            now: NDArray[np.bool_] = sights.may_shape[0]
            return now
        now = sights.may[0] if self.asked == JOB else sights.may_place[0]
        return np.append(now, np.zeros(ANSWERS - len(now), np.bool_))

    def sight(self) -> dict[str, NDArray[Any]]:
        """All that is seen now; zeros where nothing was asked about."""
        found = {name: np.zeros(each.shape or (), np.float32) for name, each in self.sight_spaces.items()}
        sights = self.batch.sights
        found["asked"][self.asked] = 1.0
        for name in ("site", "domains", "links", "jobs"):
            found[name][:] = getattr(sights, name)[0]
        if self.asked != JOB:
            found["chosen"][self.slot[0]] = 1.0
            found["places"][:] = sights.places[0]
            place, part = np.nonzero(sights.where[0] >= 0)
            found["where"][place, sights.where[0, place, part]] = 1.0
        if self.asked == SHAPE:
            found["domain"][:] = sights.domains[0, sights.where[0, self.place[0], 0]]
            found["shapes"][:] = sights.shapes[0]
        return found

    def _seen(self) -> Seen:
        sees, found = UPPER_SEES if self.asked != SHAPE else LOWER_SEES, self.sight()
        observed = {name: found[name] for name in sees}
        return {self.who: {OBSERVED: observed, ALLOWED: self.mask.astype(np.float32)}}
