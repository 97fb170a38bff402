"""What is asked of ``hippo profile`` and what it answers, as data; no torch."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from hippo.problem.cluster import Gpu
from hippo.problem.model import Model
from hippo.problem.profile import Profile, ProfileRow

PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(frozen=True)
class Asked:
    """What is to be profiled."""

    model: Model
    widths: tuple[int, ...]  # tensor-parallel
    micro_batches: tuple[int, ...]
    seq: int
    budget_s: float  # per layer and shape
    precision: str | None = None  # None: bf16 on a GPU, fp32 on a CPU
    gpu: str | None = None  # name that the rows carry; None: the device's own
    threads: int = 1  # of a CPU


@dataclass(frozen=True)
class Shape:
    """What is timed, besides the layer."""

    tp: int
    micro_batch: int
    seq: int


@dataclass(frozen=True)
class Times:
    """Seconds of one pass of one micro-batch over the repeats."""

    median_s: float
    least_s: float
    most_s: float

    @classmethod
    def of(cls, seconds: list[float]) -> Times:
        """Median and range."""
        return cls(median(seconds), min(seconds), max(seconds))


@dataclass(frozen=True)
class LayerTimes:
    """What one layer takes at one shape; bytes of one device, of one micro-batch where they depend on it."""

    forward: Times
    backward: Times  # input gradient
    weight: Times  # weight gradient, added to the sum
    repeats: int
    parameter_bytes: float
    activation_bytes: float  # kept from the forward to the backward pass, the layer's input included
    output_bytes: float
    peak_bytes: float  # weights, gradient sums and one micro-batch at its worst


@dataclass(frozen=True)
class Measured:
    """One row of the profile with its spread."""

    row: ProfileRow
    times: LayerTimes


@dataclass(frozen=True)
class Answer:
    """A profiled device."""

    profile: Profile
    gpu: Gpu
    rows: tuple[Measured, ...]
