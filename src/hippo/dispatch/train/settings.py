"""The configuration of learned dispatch: what ``configs/algo/dispatch.yaml`` may say, with a range for each number.

No torch here: the command line reads a configuration before anything heavy is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from hippo.learn.settings import Checked, Ppo, parse_as, within


@dataclass(frozen=True)
class DispatchPpo(Checked):
    """One update; the keys of ``hippo.learn.settings.Ppo`` that have a use here. A play pays at its end, there is no
    critic, and an update takes all decisions of its plays: so no discount, no value, no steps."""

    learning_rate: float = within(2e-3, 1e-7, 1.0)
    learning_rate_end: float = within(2e-4, 0.0, 1.0)
    clip: float = within(0.2, 0.0, 1.0)
    entropy: float = within(0.01, 0.0, 1.0)
    entropy_end: float = within(0.01, 0.0, 1.0)  # reached linearly at the end of the run
    max_grad_norm: float = within(1.0, 1e-6, 1e6)
    target_kl: float = within(0.02, 0.0, 10.0)  # 0: never stop early
    passes: int = within(2, 1, 1000)
    minibatch: int = within(2048, 1, 10_000_000)

    @property
    def whole(self) -> Ppo:
        """As ``hippo.learn.ppo`` takes it."""
        return Ppo(**{each.name: getattr(self, each.name) for each in fields(self)})

    def of_plan(self, plan: PlanSettings) -> Ppo:
        """The same with what learning on a plan has of its own: a minibatch is all there is, and nothing ends early."""
        rates = {name: getattr(plan, name) for name in ("learning_rate", "entropy", "passes")}
        return replace(self.whole, target_kl=0.0, **rates)

    def between(self, done: float) -> tuple[float, float]:
        """Learning rate and weight of the entropy, when that share of a run lies behind."""
        rate = (1 - done) * self.learning_rate + done * self.learning_rate_end
        return rate, (1 - done) * self.entropy + done * self.entropy_end


@dataclass(frozen=True)
class NetworkSettings(Checked):
    """The network that ships."""

    start: str = ""  # file of weights to begin with; empty: those of a network that follows the base hint

    hidden: int = within(32, 4, 256)  # units of each of two layers; those of ``start``, where that is given
    trust: float = within(3.0, 0.0, 100.0)  # score at first of what the base hint would do; ``start`` has its own


@dataclass(frozen=True)
class Worlds(Checked):
    """What is learned on, and what is looked at."""

    most_ranks: int = within(16, 2, 256)
    train: int = within(160, 1, 100_000)  # drawn once
    each_update: int = within(8, 1, 10_000)
    draws: int = within(8, 1, 10_000)  # of each world and update
    plays: int = within(8, 1, 10_000)  # of each draw
    share: float = within(0.3, 0.001, 1.0)  # of the decisions that are drawn; the others are best choices
    validation: int = within(24, 1, 100_000)  # worlds of shapes that are not learned on
    validation_draws: int = within(128, 1, 100_000)


@dataclass(frozen=True)
class PlanSettings(Checked):
    """Learning on the pipelines of one plan; ``ppo.clip`` and ``ppo.max_grad_norm`` hold here too."""

    temperature: float = within(6.0, 0.01, 1e3)  # scores are divided by it at first: choices once settled are tried
    learning_rate: float = within(2e-3, 1e-7, 1.0)
    entropy: float = within(0.01, 0.0, 1.0)
    passes: int = within(3, 1, 1000)
    remember: float = within(0.9, 0.0, 0.9999)  # share that the mean of weights keeps at an update
    draws: int = within(32, 1, 10_000)  # of each update
    decisions: int = within(16, 1, 10_000)  # of each draw, in which every choice is played to the end
    updates: int = within(100, 1, 10_000_000)
    minutes: float = within(2.0, 0.0, 1e6)  # of wall clock; 0: no limit
    look_every: int = within(10, 1, 1_000_000)
    look_draws: int = within(256, 1, 100_000)  # the best policy of all looks is tried in the end
    trial_draws: int = within(512, 2, 100_000)  # fresh ones: it is kept where it is quicker on these, interval apart


@dataclass(frozen=True)
class RunSettings(Checked):
    """How long, how often it looks up."""

    seed: int = within(0, 0, 2**31)
    minutes: float = within(60.0, 0.0, 1e6)  # of wall clock; 0: no limit
    updates: int = within(600, 1, 10_000_000)
    checkpoint_every: int = within(20, 1, 1_000_000)
    validate_every: int = within(20, 1, 1_000_000)


@dataclass(frozen=True)
class Settings:
    """The whole configuration."""

    ppo: DispatchPpo = field(default_factory=DispatchPpo)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    worlds: Worlds = field(default_factory=Worlds)
    plan: PlanSettings = field(default_factory=PlanSettings)
    run: RunSettings = field(default_factory=RunSettings)

    def on_plan(self) -> Settings:
        """The run as it is on a plan: so many updates, minutes, looks."""
        plan = self.plan
        return replace(
            self,
            run=replace(self.run, updates=plan.updates, minutes=plan.minutes, validate_every=plan.look_every),
        )


def parse_settings(document: Any, *, source: str | None = None) -> Settings:
    """A configuration from nested mappings; ``InputError`` as of ``hippo.learn.settings.parse_as``."""
    found: Settings = parse_as(Settings, document, source)
    return found
