"""The learning configuration of the agents that share out a site, ``configs/algo/world.yaml``.

The documents' own file (``ppo`` with ``lr``, ``clip_range`` .., and ``gnn``) loads as it stands: ``DOCUMENTS`` says
what its keys are called here. No torch here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from hippo.jobs.joint.advice import Charges
from hippo.jobs.traces.elastic import FAMILIES
from hippo.learn.settings import Checked, Ppo, one_of, parse_as, within

DOCUMENTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "ppo": MappingProxyType(
            {
                "lr": "learning_rate",
                "clip_range": "clip",
                "entropy_coef": "entropy",
                "value_coef": "value",
                "num_steps": "steps_per_update",
                "update_epochs": "passes",
                "minibatch_size": "minibatch",
            }
        ),
        "gnn": MappingProxyType(
            {
                "type": "encoder",
                "num_layers": "layers",
                "hidden_dim": "hidden",
                "out_dim": "out",
                "aggregation": "gather",
            }
        ),
    }
)
"""Keys of the documents' file by section, and what they are called here; a rate or an entropy that is given alone stays
to the end."""


START = 2.0
"""How strongly the lower agent begins as the rule that it is to improve: the quickest shape, in the fullest nodes."""


@dataclass(frozen=True)
class AgentNetwork(Checked):
    """The networks of both agents."""

    encoder: str = one_of("sage", "sage", "GraphSAGE", "none")
    gather: str = one_of("mean", "mean")  # of messages
    layers: int = within(2, 1, 8)
    hidden: int = within(32, 4, 1024)
    out: int = within(0, 0, 1024)  # of the graph network, 0: as hidden
    heads: int = within(2, 1, 16)  # of the attention over jobs
    follows: float = within(4.0, 0.0, 100.0)  # log odds of what the rule says over anything else, as learning begins


@dataclass(frozen=True)
class LowerTerms(Checked):
    """What the lower agent is rewarded for."""

    fragmentation: float = within(1.0, 0.0, 1e3)  # lambda 1: share of the domain that is free, but in broken nodes
    inside: float = within(1.0, 0.0, 1e3)  # lambda 2: share of the step that is communication inside
    shared: float = within(1.0, 0.0, 1e3)  # of what the upper agent's advantage says of the whole answer

    def reward(self, shapes: Any) -> Any:
        """(..,) minus what each shape (.., SHAPE_NUMBERS) costs its domain: free devices that lie in broken nodes, and
        communication inside."""
        return -self.fragmentation * shapes[..., 12] - self.inside * shapes[..., 5]


@dataclass(frozen=True)
class DrawnWorlds(Checked):
    """The worlds to learn in, drawn one after another."""

    cluster: str = (
        "examples/four-by-eighty.yaml"  # name or file: domains, whose nodes and links vary from world to world
    )
    models: tuple[str, ...] = ("llama-3.2-1b", "llama-3-8b", "qwen2.5-32b", "llama-3-70b")  # that elastic jobs train
    families: tuple[str, ...] = tuple(FAMILIES)
    jobs: int = within(100, 2, 100_000)  # of one world
    loads: tuple[float, ...] = within((0.8, 1.0, 1.3), 0.01, 100.0)
    moving: float = within(0.7, 0.0, 1.0)  # share of the worlds whose links move
    failing: float = within(0.5, 0.0, 1.0)  # share in which nodes fail
    tenants: float = within(0.5, 0.0, 1.0)  # share in which others use devices, too
    stops: float = within(0.0, 0.0, 1.0)  # share in which running jobs may be stopped
    domains: tuple[int, ...] = within((), 2, 64)  # of a world, the cluster's in turn; none named: as the cluster has
    preferences: float = within(0.0, 0.0, 1.0)  # share with preferences between time and egress, evenly drawn
    usd_per_job: float = within(1000.0, 1e-6, 1e9)  # egress of a job that counts as its time does
    curriculum: int = within(0, 0, 100_000_000)  # worlds in which loads and numbers of domains come one after another
    epoch_s: float = within(300.0, 1.0, 1e6)  # unit of the discount
    validation: int = within(24, 0, 100_000)  # other numbers: looked at, never learned from


MEAN, SQUARE = 0.5, 0.9
"""How much of what came before stays in the means of the ascent."""
BEGIN, LEAST = 0.05, 1e-4
"""Of a multiplier: where the ascent begins, and what counts as nothing."""


class Ascending(NamedTuple):
    """Where a dual ascent of multipliers stands, (4,) each."""

    value: Any
    mean: Any  # of what is used beyond limits
    square: Any
    step: int

    @classmethod
    def at(cls, value: Any) -> Ascending:
        """Begins there."""
        return cls(np.array(value, np.float64), np.zeros(len(value)), np.zeros(len(value)), 0)


@dataclass(frozen=True)
class Limits(Checked):
    """What the agents, and the rule that advises them, have to keep to, in the mean of all worlds; 0: no limit.

    Each limit has a multiplier, which ascends while more is used (dual ascent). At its limit a site pays as much for
    what it uses as for so many more jobs of usual price (stops: each job as much as for so many hours of its time).
    """

    egress_usd_per_hour: float = within(0.0, 0.0, 1e12)
    unfairness: float = within(0.0, 0.0, 1e12)  # share of the site that owners lack of an equal share, in the mean
    stops_per_job: float = within(0.0, 0.0, 1e12)
    floor_gbit_per_s: float = within(0.0, 0.0, 1e6)  # of a link over which jobs exchange
    below_gb_per_hour: float = within(0.0, 0.0, 1e12)  # that go over others; 0: each of them costs ``big_m``
    big_m: float = within(0.01, 0.0, 1e9)  # in hours of a job of usual price
    start: tuple[float, float, float, float] = within((0.0,) * 4, 0.0, 1e9)  # as learning begins; all 0: by the rule
    by_rule: int = within(40, 0, 100_000)  # steps of the ascent under the rule alone, before anything is learned
    worlds: int = within(64, 1, 1_000_000)  # that end from step to step; of each as many by the likeliest answers
    rate: float = within(1.0, 0.0, 1e3)  # of its first step; of the n-th over the root of n
    most: float = within(1000.0, 0.0, 1e9)  # of a multiplier

    @property
    def each(self) -> tuple[float, float, float, float]:
        """In the order of ``env.COSTS``; inf: none."""
        below = self.below_gb_per_hour if self.floor_gbit_per_s else 0.0
        return self.egress_usd_per_hour or inf, self.unfairness or inf, self.stops_per_job or inf, below or inf

    @property
    def some(self) -> bool:
        """Whether anything has a multiplier."""
        return min(self.each) < inf

    def charges(self, multipliers: Sequence[float]) -> Charges:
        """What is paid under multipliers in the order of ``env.COSTS``."""
        egress, unfairness, stop, below = (
            3600.0 * float(each) / limit for each, limit in zip(multipliers, self.each, strict=True)
        )
        if self.each[3] == inf:
            below = 3600.0 * self.big_m if self.floor_gbit_per_s else 0.0
        return Charges(egress, unfairness / 3600.0, stop, below, 1.25e8 * self.floor_gbit_per_s)

    def over(self, used: Any, hours: float, jobs: float) -> Any:
        """(4,) what worlds used, in the order of ``env.COSTS``, over what limits allow in so many hours and jobs."""
        return used / (self.each * np.array([hours, 3600.0 * hours, jobs, hours]))

    def ascended(self, now: Ascending, over: Any) -> Ascending:
        """Multipliers after a step of dual ascent in their logarithms, ``mu <- mu exp(rate m / sqrt(n v))`` for the
        n-th step, where m and v are means of what is used beyond the limit and of its square, of late (Adam: Kingma and
        Ba 2015): limits differ by orders of magnitude in their prices and in how much use falls with them. ``over``
        (4,): used over allowed; limits that are none stay at 0."""
        step, beyond, bound = now.step + 1, np.asarray(over) - 1.0, np.isfinite(self.each)
        mean = MEAN * now.mean + (1.0 - MEAN) * beyond
        square = SQUARE * now.square + (1.0 - SQUARE) * beyond**2
        told = mean / (1.0 - MEAN**step) / (np.sqrt(square / (1.0 - SQUARE**step)) + 1e-9)
        value = np.where(bound, np.maximum(now.value, LEAST) * np.exp(self.rate / step**0.5 * told), 0.0)
        return Ascending(np.minimum(value, self.most), mean, square, step)


@dataclass(frozen=True)
class WorldRun(Checked):
    """How long, how wide, how often it looks up."""

    seed: int = within(0, 0, 2**31)
    minutes: float = within(0.0, 0.0, 1e6)  # of wall clock; 0: no limit
    updates: int = within(20, 0, 10_000_000)
    value_updates: int = within(3, 0, 1000)  # first, in which only values are learned
    upper_every: int = within(1, 1, 10_000)  # updates of the lower agent to one of the upper one (N)
    parallel: int = within(128, 1, 1_000_000)  # worlds that run at once, of all shares together
    shares: int = within(2, 1, 1024)
    cut_off: float = within(0.6, 0.0, 1.0)  # of Ray's workers: once so many are done the others end theirs; 0: never
    checkpoint_every: int = within(10, 1, 1_000_000)
    validate_every: int = within(10, 1, 1_000_000)


@dataclass(frozen=True)
class WorldAblation(Checked):
    """What is left out, to see what it was worth."""

    no_gnn: bool = False
    no_lower: bool = False  # the quickest shape, in the fullest nodes
    no_hierarchy: bool = False  # one agent: answers are learned as one, by one reward
    no_memory: bool = False  # of domains, links and what users asked for
    no_forecast: bool = False
    no_advice: bool = False  # of the rule: from nothing


def _ppo() -> Ppo:
    return Ppo(
        learning_rate=2e-3,
        learning_rate_end=2e-4,
        gamma=0.997,
        gae_lambda=0.97,
        clip=0.2,
        entropy=0.0005,
        entropy_end=0.0,
        value=0.5,
        max_grad_norm=0.5,
        target_kl=0.02,
        steps_per_update=16384,
        passes=3,
        minibatch=1024,
    )


@dataclass(frozen=True)
class AheadTerms(Checked):
    """What is learned before PPO from answers that are played ahead (``lessons``); 0 worlds: nothing."""

    worlds: int = within(0, 0, 100_000)
    hours: float = within(12.0, 0.1, 1e4)  # for which an answer is played ahead
    rest: float = within(0.2, 0.0, 10.0)  # what counts of what those who then run are still to pay
    epochs: int = within(20, 1, 10_000)
    scale: float = within(0.5, 1e-6, 1e6)  # of savings, in jobs
    margin: float = within(0.05, 0.0, 1e6)  # an answer must save more than so many jobs for the rule to be left
    sharp: float = within(20.0, 1e-3, 1e6)  # log odds of an answer that saves ``scale``, as PPO begins


@dataclass(frozen=True)
class WorldLearning:
    """The whole configuration."""

    ahead: AheadTerms = field(default_factory=AheadTerms)
    ppo: Ppo = field(default_factory=_ppo)
    network: AgentNetwork = field(default_factory=AgentNetwork)
    lower: LowerTerms = field(default_factory=LowerTerms)
    worlds: DrawnWorlds = field(default_factory=DrawnWorlds)
    limits: Limits = field(default_factory=Limits)
    run: WorldRun = field(default_factory=WorldRun)
    ablation: WorldAblation = field(default_factory=WorldAblation)


def parse_settings(document: Any, *, source: str | None = None) -> WorldLearning:
    """A configuration from nested mappings, the documents' names among them; ``InputError`` for an unknown key, a value
    of the wrong kind or out of range."""
    found: WorldLearning = parse_as(WorldLearning, _renamed(document), source)
    return found


def _renamed(document: Any) -> Any:
    """The documents' keys by the names they have here."""
    if not isinstance(document, Mapping):
        return document
    found: dict[str, Any] = {}
    for section, content in document.items():
        names = DOCUMENTS.get(section)
        if names and isinstance(content, Mapping):
            content = {names.get(key, key): value for key, value in content.items()}
            for key in ("learning_rate", "entropy"):
                if names.get({"learning_rate": "lr", "entropy": "entropy_coef"}[key]) and key in content:
                    content.setdefault(f"{key}_end", content[key])
        found["network" if section == "gnn" else section] = content
    return found
