"""The configuration of Hi-PPO: what ``configs/algo/hi_ppo.yaml`` may say, with a range for each number.

The defaults are what trained the shipped policy; the file repeats them, with the start they were tuned from. No torch
here: the command line reads a configuration before anything heavy is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hippo.errors import InputError
from hippo.learn.settings import Checked, Ppo, one_of, parse_as, within
from hippo.network.worlds.generator import DrawnTerms
from hippo.problem.runtimes import RUNTIMES


@dataclass(frozen=True)
class GraphNetwork(Checked):
    """The graph network of the upper agent."""

    encoder: str = one_of("sage", "sage", "gatv2", "none")
    layers: int = within(2, 1, 8)
    hidden: int = within(32, 4, 1024)
    heads: int = within(2, 1, 16)  # of gatv2
    worth_scale: float = within(8.0, 0.0, 100.0)  # logits start as this times the expected worth


@dataclass(frozen=True)
class Multipliers(Checked):
    """Dual ascent on the constraints: bandwidth floor, balance, latency (stability)."""

    enabled: bool = True
    start: float = within(0.0, 0.0, 1e6)
    rate: float = within(0.05, 0.0, 1e3)
    most: float = within(5.0, 0.0, 1e6)
    limits: tuple[float, float, float] = within((0.05, 0.25, 0.01), 0.0, 1e6)


@dataclass(frozen=True)
class TrainingWorlds(Checked):
    """The prepared worlds: made first, then kept in a file."""

    families: tuple[str, ...] = ()  # empty: all that the generator knows
    train: int = within(220, 1, 1_000_000)  # problems
    movements: int = within(3, 1, 1000)  # of the network of each training problem
    validation: int = within(99, 0, 1_000_000)  # other seeds of the train split: for looking, never for learning
    first_seed: int = within(0, 0, 2**31)
    processes: int = within(2, 1, 1024)
    engine: str = one_of("fast", "fast", "reference", "astra")
    """What plays the truth; reference: some hundred times slower; astra: the user's binary, thousands of times."""
    runtime: str = one_of("ideal", *RUNTIMES)  # what runs the plans of generated worlds
    allow_compression: bool = False  # everybody may send eight bits between domains
    compression_worth: float = within(0.0, 0.0, 1.0)  # of a token trained so; must be given with it
    traces: tuple[str, ...] = ()  # offline: "MODEL,CLUSTER,NET.csv" each, met beside the generated ones

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.allow_compression != (self.compression_worth > 0.0):
            remedy = "give both keys (or --allow-compression and --compression-worth), or neither"
            value = f"{self.allow_compression}, {self.compression_worth:g}"
            keys = "worlds.allow_compression, worlds.compression_worth"
            raise InputError("compression and what a token is worth go together", key=keys, value=value, remedy=remedy)

    @property
    def terms(self) -> DrawnTerms:
        """Under which the worlds' problems are asked."""
        return DrawnTerms(self.runtime, compression_worth=self.compression_worth or None)


@dataclass(frozen=True)
class TrainingRun(Checked):
    """How long, how wide, how often it looks up."""

    seed: int = within(0, 0, 2**31)
    minutes: float = within(45.0, 0.0, 1e6)  # of wall clock; 0: no limit
    construction_minutes: float = within(10.0, 0.0, 1e6)  # afterwards, for the agents that construct; 0: none
    updates: int = within(120, 1, 10_000_000)
    parallel: int = within(256, 1, 1_000_000)  # worlds that run at once, of all shares together
    shares: int = within(2, 1, 1024)  # independent halves of them: 2 processes then learn what 1 does
    checkpoint_every: int = within(10, 1, 1_000_000)
    validate_every: int = within(10, 1, 1_000_000)


@dataclass(frozen=True)
class Ablation(Checked):
    """What is left out, to see what it was worth."""

    no_gnn: bool = False  # options are scored by their own features alone
    no_forecast: bool = False  # every horizon is told as now
    flat: bool = False  # no construction, no lower agents
    no_multipliers: bool = False
    no_masks: bool = False  # whatever is chosen and cannot run counts as keeping


@dataclass(frozen=True)
class HiPpoSettings:
    """The whole configuration."""

    ppo: Ppo = field(default_factory=Ppo)
    network: GraphNetwork = field(default_factory=GraphNetwork)
    multipliers: Multipliers = field(default_factory=Multipliers)
    worlds: TrainingWorlds = field(default_factory=TrainingWorlds)
    run: TrainingRun = field(default_factory=TrainingRun)
    ablation: Ablation = field(default_factory=Ablation)


def parse_settings(document: Any, *, source: str | None = None) -> HiPpoSettings:
    """A configuration from nested mappings; ``InputError`` as of ``hippo.learn.settings.parse_as``."""
    found: HiPpoSettings = parse_as(HiPpoSettings, document, source)
    return found
