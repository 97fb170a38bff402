"""The trained agents as a scheduler: what ``network`` computes, in numpy, on what the agents see.

Letters: J jobs, P places, V shapes, K domains, M parts, H units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.engine import observe
from hippo.jobs.engine import world as c
from hippo.jobs.engine.observe import Sight, sight
from hippo.jobs.joint import advice
from hippo.jobs.joint.advice import Advisor, Charges, advisor
from hippo.jobs.joint.env import COSTS, JOBS, MOST_ANSWERS, PLACES, carry_out
from hippo.jobs.joint.hi_ppo.settings import START, Limits
from hippo.jobs.joint.moment import Moment
from hippo.jobs.joint.ranked import decide_ranked
from hippo.learn.serving import linear, relu
from hippo.learn.settings import parse_as
from hippo.learn.weights import Form

Floats = NDArray[np.float32]
Network = Mapping[str, Floats]

FORM = Form(
    "policy for the jobs of a site",
    {
        "numbers": [
            observe.SITE_NUMBERS,
            observe.DOMAIN_NUMBERS,
            observe.LINK_NUMBERS,
            observe.JOB_NUMBERS,
            observe.PLACE_NUMBERS,
            observe.SHAPE_NUMBERS,
        ]
    },
    "train one: hippo train --config world",
)
SHIPPED = "world.npz"
MULTIPLIERS = "multipliers"
"""Of the limits, in a file."""


# -------------------------------------------------------------------------------------------------------------- network
def _two(network: Network, name: str, values: Floats) -> Floats:
    return linear(network, f"{name}.2", relu(linear(network, f"{name}.0", values)))


def think(network: Network, seen: Sight) -> tuple[Floats, Floats, Floats, Floats]:
    """Domains (K + 1, H), jobs (J, H), the whole moment (2 H,) and whom a rule would choose (J + 1,); see
    ``UpperNetwork.think``."""
    nodes, links = relu(linear(network, "domain_in", seen.domains * network["sees_domains"])), seen.links
    links = links * network["sees_links"]
    edges = np.concatenate([links, links.swapaxes(0, 1)], axis=-1)
    layer = 0
    while f"update.{layer}.weight" in network:
        sent = linear(network, f"message_node.{layer}", nodes)[None] + linear(network, f"message_edge.{layer}", edges)
        heard = relu(sent).mean(axis=1)
        nodes = relu(linear(network, f"update.{layer}", np.concatenate([nodes, heard], axis=-1)))
        layer += 1
    there = seen.jobs[:, -1] > 0
    site, jobs = seen.site * network["sees_site"], seen.jobs * network["sees_jobs"]
    advised = np.append(jobs[:, observe.ADVISED_JOB], site[observe.ADVISED_NOBODY])
    wide = np.broadcast_to(site, (len(jobs), len(site)))
    rows = _two(network, "job_in", np.concatenate([jobs, wide], axis=-1))
    rows = rows + _attention(network, rows, there)
    rows = (rows + _two(network, "job_next", rows)) * there[:, None]
    around = np.concatenate([nodes.mean(axis=0), rows.sum(axis=0) / max(1, int(there.sum()))])
    return np.concatenate([nodes, np.zeros_like(nodes[:1])]), rows, around, advised


def _attention(network: Network, rows: Floats, there: NDArray[np.bool_]) -> Floats:
    """Attention of all jobs to those that are there (Vaswani et al. 2017), as ``torch.nn.MultiheadAttention``."""
    hidden, heads = rows.shape[1], int(network["heads"])
    made = rows @ network["attention.in_proj_weight"].T + network["attention.in_proj_bias"]
    asked, keys, values = (each.reshape(len(rows), heads, -1).swapaxes(0, 1) for each in np.split(made, 3, axis=1))
    scores = asked @ keys.swapaxes(1, 2) / np.float32(np.sqrt(hidden / heads))
    if there.any():
        scores = np.where(there[None, None], scores, np.float32(-np.inf))
    shares = np.exp(scores - scores.max(axis=2, keepdims=True))
    mixed = (shares / shares.sum(axis=2, keepdims=True)) @ values
    return linear(network, "attention.out_proj", mixed.swapaxes(0, 1).reshape(len(rows), -1))


def whom(network: Network, rows: Floats, around: Floats, advised: Floats) -> Floats:
    """Logits (J + 1,) of jobs, the last: nobody."""
    jobs = relu(linear(network, "job_own", rows) + linear(network, "job_around", around[None]))
    said = np.append(linear(network, "job_out", jobs)[:, 0], _two(network, "none_out", around[None])[0, 0])
    follows = network["follows"]
    found: Floats = said + advised * np.append(np.full(len(rows), follows[0]), follows[1])
    return found


def whither(network: Network, nodes: Floats, job: Floats, around: Floats, places: Floats, where: Any) -> Floats:
    """Logits (P,) of places."""
    parts = linear(network, "place_parts", nodes)[where].sum(axis=1)
    common = linear(network, "place_job", np.concatenate([job, around])[None])
    places = places * network["sees_places"]
    inner = relu(linear(network, "place_own", places) + common + parts)
    found: Floats = _two(network, "place_out", inner)[:, 0] + network["follows"][2] * places[:, observe.ADVISED_PLACE]
    return found


def how(network: Network, shapes: Floats) -> Floats:
    """Logits (V,) of shapes."""
    inner = relu(linear(network, "out.2", relu(linear(network, "out.0", shapes))))
    start = np.float32(START) * (20.0 * (shapes[:, 0] - 1.0) - 0.5 * shapes[:, 6])
    found: Floats = linear(network, "out.4", inner)[:, 0] + start
    return found


# --------------------------------------------------------------------------------------------------------------- policy
class Eyes(NamedTuple):
    """What is seen of a world, and the rule that advises there."""

    sight: Sight
    rule: Advisor

    def begin(self, moment: Moment) -> None:
        """A pass of the rule begins: it has passed nobody over at this time, even if it was asked before, in a copy."""
        passed = self.rule.room.passed
        passed[passed >= moment.now_s] = -np.inf
        self.rule.room.lacked[0] = -np.inf

    def look(self, moment: Moment) -> int:
        """Write down what is seen now; returns how many jobs are shown."""
        return int(advice.look(moment.world, self.sight, self.rule))


Answer = tuple[int, int, int]
"""Slot, place and shape (-1: none)."""


@dataclass(frozen=True, eq=False)
class Agents:
    """Both networks' arrays."""

    upper: Network
    lower: Network
    stops: bool = True  # have learned where running jobs may be stopped, too
    limits: Limits = Limits()  # that they keep to
    multipliers: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(COSTS)))

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], made: Mapping[str, Any] | None = None) -> Agents:
        """From the arrays of a file, named ``upper.`` and ``lower.``, and how they were made."""
        parts: dict[str, dict[str, Floats]] = {"upper": {}, "lower": {}}
        multipliers = arrays.get(MULTIPLIERS, np.zeros(len(COSTS)))
        for name, array in arrays.items():
            agent, _, own = name.partition(".")
            if name != MULTIPLIERS:
                parts[agent][own] = array
        learned = (made or {}).get("settings", {})
        stops, limits = learned.get("worlds", {}).get("stops", 1.0) > 0.0, parse_as(Limits, learned.get("limits", {}))
        return cls(parts["upper"], parts["lower"], stops, limits, multipliers)

    @property
    def charges(self) -> Charges:
        """What the rule that advises them pays to keep to their limits."""
        return self.limits.charges(self.multipliers.tolist())

    @classmethod
    def unpacked(cls, content: bytes, source: str) -> Agents:
        """From the bytes of a file; ``InputError`` as of ``Form.unpacked``."""
        return cls.of(*FORM.unpacked(content, source))

    def answer(self, moment: Moment, eyes: Eyes, rng: np.random.Generator | None = None) -> Answer | None:
        """Slot, place and shape that are likeliest, or drawn as they are likely; None: nobody."""
        found = self.place(moment, eyes, rng)
        return found and (*found, self.shape(moment, eyes, *found, rng))

    def place(self, moment: Moment, eyes: Eyes, rng: np.random.Generator | None) -> tuple[int, int] | None:
        """The upper agent's: slot and place."""
        seen = eyes.sight
        nodes, rows, around, advised = think(self.upper, seen)
        scores = whom(self.upper, rows, around, advised)
        scores[:-1] = np.where(seen.may, scores[:-1], -np.inf)
        if seen.may.any() and not moment.world.tally[c.N_RUNNING]:
            scores[-1] = -np.inf  # nobody has to begin something where nobody runs
        slot = _taken(scores, rng)
        if slot == len(seen.job):
            return None
        count = int(advice.places(moment.world, seen, eyes.rule, slot))
        if not count:
            return None
        where = seen.where[:count]
        return slot, _taken(whither(self.upper, nodes, rows[slot], around, seen.places[:count], where), rng)

    def shape(self, moment: Moment, eyes: Eyes, slot: int, place: int, rng: np.random.Generator | None) -> int:
        """The lower agent's, -1: there is none to choose."""
        seen = eyes.sight
        count = int(observe.shapes(moment.world, seen, slot, place))
        return _taken(how(self.lower, seen.shapes[:count]), rng) if count else -1


def _taken(scores: Floats, rng: np.random.Generator | None) -> int:
    """The likeliest, or one drawn."""
    if rng is None:
        return int(scores.argmax())
    return int((scores + rng.gumbel(size=len(scores))).argmax())


@cache
def shipped() -> Agents:
    """The agents that ship."""
    content = (files("hippo.jobs.joint.hi_ppo") / SHIPPED).read_bytes()
    return Agents.unpacked(content, SHIPPED)


@dataclass(frozen=True, eq=False)
class HiPpoScheduler:
    """The policy, bare: whatever it says is done; but where running jobs may be stopped and it never learned there, or
    nobody runs after all that it says, the rule that advises it decides."""

    name: str = "hi_ppo"
    summary: str = (
        "an upper agent chooses jobs and places, lower ones shapes and devices; ships as the rule it begins with"
    )
    source: str = "docs/theory.md, Agents that share out a site"
    knows: str = "durations"
    preempts: bool = True
    learns: bool = True
    agents: Agents | None = None  # None: those that ship
    egress_weight: float = 0.0  # of egress, 0 to 1; the rest is time's
    watched: list[tuple[Sight, Eyes]] = field(default_factory=list, repr=False)  # the world that was last seen

    def decide(self, moment: Moment) -> None:
        """One answer after another, until nobody is chosen."""
        if self.has_learned(moment):
            for _ in self.answers(moment):
                pass
        if not self.has_learned(moment) or not moment.world.tally[c.N_RUNNING]:
            rule = self.eyes(moment).rule
            decide_ranked(moment.world, rule.sight, rule.terms, rule.room)

    def has_learned(self, moment: Moment) -> bool:
        """Whether the agents know sites like this one."""
        return (self.agents or shipped()).stops or not moment.sight.stops

    def answers(self, moment: Moment, rng: np.random.Generator | None = None) -> Iterator[Answer]:
        """What the agents say at a moment, each done before it is told; ``rng``: drawn as they think it likely."""
        agents, eyes = self.agents or shipped(), self.eyes(moment)
        eyes.begin(moment)
        for _ in range(MOST_ANSWERS):
            if eyes.look(moment) == 0:
                break
            found = agents.answer(moment, eyes, rng)
            if found is None:
                break
            carry_out(moment.world, eyes.sight, *found)
            yield found

    def repeat(self, moment: Moment, answers: Sequence[Answer]) -> None:
        """Do what was said at a moment's copy, and remember what then is seen."""
        world, eyes = moment.world, self.eyes(moment)
        eyes.begin(moment)
        for slot, place, shape in answers:
            eyes.look(moment)
            advice.places(world, eyes.sight, eyes.rule, slot)
            if shape >= 0:
                observe.shapes(world, eyes.sight, slot, place)
            carry_out(world, eyes.sight, slot, place, shape)
        eyes.look(moment)

    def eyes(self, moment: Moment) -> Eyes:
        """Room for what is seen of a moment, or of a copy of it."""
        charges, stops = (self.agents or shipped()).charges, moment.sight.stops
        ask = partial(advisor, moment.workload, moment.site, moment.offers, stops=stops, charges=charges)
        if not self.watched or self.watched[0][0] is not moment.sight:
            own = sight(
                moment.workload,
                moment.site,
                moment.offers,
                jobs=JOBS,
                places=PLACES,
                price=moment.sight.price,
                stops=moment.sight.stops,
                egress_weight=self.egress_weight,
                past=moment.sight.past,
            )
            self.watched[:] = [(moment.sight, Eyes(own, ask(egress_weight=self.egress_weight)))]
        found = self.watched[0][1]
        if found.rule.charges != charges:  # whoever watched before pays others
            found = found._replace(rule=ask(egress_weight=self.egress_weight))
            self.watched[:] = [(moment.sight, found)]
        return found


HI_PPO = HiPpoScheduler()
