"""What is proposed: pipelines of stages on devices, a micro-batch schedule, and how replicas agree. Nothing is timed.

Semantics that every reader shares:

* A pipeline holds the model once per data-parallel lane of its first stage. It works through ``num_micro_batches``
  waves; a wave is ``micro_batch * dp`` sequences, dp being that of the pipeline's first stage.
* A stage with another dp works on the same wave: each of its ranks takes ``wave / dp`` sequences (an integer).
* Sequences per step: sum over pipelines of ``num_micro_batches * micro_batch * dp``; equals the global batch.
* ``devices`` of a stage are ordered with tp fastest, then cp, then dp: rank r = (d * cp + c) * tp + t.
* Several pipelines are replicas of the model: they agree once per step (``allreduce``) or every H (``local_sgd``).
* With ``interleave`` v > 1 each stage holds v chunks of its layer count / v consecutive layers, looped over the
  stages; the stage's ``layers`` then only count its layers (layers dealt round robin, chunk c of stage s is virtual
  stage c * p + s).
"""

from __future__ import annotations

from dataclasses import dataclass

from hippo.problem.outer_step import OuterStep

SYNC = ("allreduce", "local_sgd")
WITH_ORDER = "best"  # the schedule whose order stands in the plan


@dataclass(frozen=True)
class Stage:
    """Consecutive layers on one group of devices of one domain."""

    domain: str
    layers: tuple[int, int]  # [start, stop)
    tp: int
    dp: int
    devices: tuple[str, ...]  # tp * cp * dp of them, tp fastest

    @property
    def num_layers(self) -> int:
        """Layers of the stage."""
        return self.layers[1] - self.layers[0]


@dataclass(frozen=True)
class Pipeline:
    """Stages that together hold the model once per lane, and the number of waves they work through per step."""

    stages: tuple[Stage, ...]
    num_micro_batches: int
    warm_up: tuple[int, ...] = ()
    """Waves each stage runs forward before its first backward, with the schedule ``cross-domain``; empty: its own."""
    order: tuple[str, ...] = ()
    """Operations of each stage as letters in the order they run, with the schedule ``best``: F forward, B backward, W
    weight gradient, each kind through the waves in order; without any W a B means both. Empty: the schedule's own."""

    @property
    def run_ahead(self) -> tuple[int, ...]:
        """Waves each stage runs forward before its first backward, where the plan says so; else empty."""
        return self.warm_up or tuple(letters.index("B") for letters in self.order)

    @property
    def domains(self) -> tuple[str, ...]:
        """Domains in the order the activations visit them, without repeats in a row."""
        names = [stage.domain for stage in self.stages]
        return tuple(name for index, name in enumerate(names) if index == 0 or names[index - 1] != name)


@dataclass(frozen=True)
class ScheduleChoice:
    """Name of the micro-batch schedule and, where it takes one, the most micro-batches live per rank."""

    name: str = "1f1b"
    live_limit: int | None = None


@dataclass(frozen=True)
class Relay:
    """Traffic of the pair (source, destination) goes through a third domain; both links are shared as ever."""

    source: str
    destination: str
    via: str


@dataclass(frozen=True)
class Compression:
    """Traffic of the pair is sent compressed, for instance ``fp8`` activations."""

    source: str
    destination: str
    kind: str


@dataclass(frozen=True)
class Sync:
    """How replicas agree: gradients summed every step, or parameters averaged every ``every`` steps (local SGD).

    ``all_reduce`` is the way of a sum over n data-parallel ranks in K domains. ``two-level``: reduce-scatter inside
    each domain, each rank's shard over the domains in parallel, gather inside; a domain sends 2 (K - 1) / K of the
    bytes. ``ring``: one flat ring through all ranks, domain after domain; a domain sends 2 (n - 1) / n of them.
    """

    method: str = "allreduce"
    every: int = 1
    all_reduce: str = "two-level"
    fragments: int = 1  # local SGD: averaged one after the other, evenly over ``every`` steps (Streaming DiLoCo)
    delay: int = 0  # local SGD: steps between the beginning of an average and its use
    bits: int = 0  # local SGD: of a parameter on its way; 0: as gradients

    @classmethod
    def outer(cls, step: OuterStep) -> Sync:
        """Local SGD with such an outer step."""
        return cls("local_sgd", step.every, fragments=step.fragments, delay=step.delay, bits=step.bits)

    def sent_share(self, bytes_per_parameter: float) -> float:
        """Of what gradients of all parameters take, sent per step in the mean."""
        return (self.bits / 8 / bytes_per_parameter if self.bits else 1.0) / self.every

    def awaited_share(self, bytes_per_parameter: float) -> float:
        """Of it, what a step waits for at least: nothing where averages may be late."""
        return 0.0 if self.delay else self.sent_share(bytes_per_parameter)


@dataclass(frozen=True)
class Plan:
    """One way to train the model. A value: made, compared, printed, never mutated."""

    pipelines: tuple[Pipeline, ...]
    micro_batch: int  # sequences per micro-batch and data-parallel rank of a pipeline's first stage
    precision: str = "bf16"
    recompute: str = "none"
    sharding: str = "none"
    """``none``; ``optimizer`` (ZeRO-1), ``gradients`` (ZeRO-2) and ``hybrid`` (ZeRO-3) over the lanes of a stage;
    ``optimizer-across`` (ZeRO-1) and ``full`` (ZeRO-3) over all replicas, those in other domains too."""
    sequence_parallel: bool = True
    context_parallel: int = 1
    expert_parallel: int = 1
    expert_tensor_parallel: int | None = None  # ranks that an expert is cut over; None: the tp of its stage
    overlap_exchange: bool = False
    """Whether forwards and backwards are merged between a rank's first backward and its last forward, so that the
    exchange of experts of one micro-batch runs beside the work of the other; elsewhere it does not."""
    interleave: int = 1
    schedule: ScheduleChoice = ScheduleChoice()
    relays: tuple[Relay, ...] = ()
    compression: tuple[Compression, ...] = ()
    sync: Sync = Sync()

    def __repr__(self) -> str:
        stages = sum(len(line.stages) for line in self.pipelines)
        told = f"{len(self.pipelines)} pipelines, {stages} stages, {self.gpus} GPUs of {', '.join(self.domains)[:150]}"
        return f"Plan({told}, schedule={self.schedule.name!r}, micro_batch={self.micro_batch})"

    @property
    def domains(self) -> tuple[str, ...]:
        """Domains in use, in order of first appearance."""
        return tuple(dict.fromkeys(stage.domain for pipeline in self.pipelines for stage in pipeline.stages))

    @property
    def gpus(self) -> int:
        """GPUs in use."""
        return sum(len(stage.devices) for pipeline in self.pipelines for stage in pipeline.stages)

    @property
    def operations(self) -> int:
        """Forwards, backwards and weight gradients of all stages and waves."""
        return sum(3 * self.interleave * len(line.stages) * line.num_micro_batches for line in self.pipelines)

    @property
    def global_batch(self) -> int:
        """Sequences per step."""
        return sum(p.num_micro_batches * self.micro_batch * p.stages[0].dp for p in self.pipelines)
