"""What fills the fullest GPU of every stage, against the GPU's memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from hippo.cost.stage import StageMemory
from hippo.report.story import PlanStory
from hippo.report.text import stage_name

PARTS = ("weights", "gradients", "optimizer", "activations", "workspace", "reserved")


@dataclass(frozen=True)
class Bar:
    """One stage, or several alike in a row. GB = 1e9 bytes."""

    name: str
    count: int
    parts_gb: tuple[float, ...]  # in the order of PARTS
    live_micro_batches: float

    @property
    def total_gb(self) -> float:
        """Peak of the fullest GPU."""
        return sum(self.parts_gb)


@dataclass(frozen=True)
class MemoryChart:
    """Bars on a common scale that holds the fullest bar and the GPU."""

    bars: tuple[Bar, ...]
    gpu_gb: float
    scale_gb: float


def memory_chart(story: PlanStory) -> MemoryChart:
    """A bar per stage; stages in a row that are alike to the byte (other layers of one domain) share one."""
    gpu_gb = story.problem.cluster.gpu.memory_bytes / 1e9
    named = [(stage_name(stage), stage.domain, item) for stage, item in zip(story.stages, story.memory, strict=True)]
    groups = [list(group) for _, group in groupby(named, key=lambda entry: (entry[1], entry[2]))]
    bars = tuple(_bar([name for name, _, _ in group], group[0][2]) for group in groups)
    return MemoryChart(bars, gpu_gb, max([gpu_gb, *(bar.total_gb for bar in bars)]))


def _bar(names: list[str], item: StageMemory) -> Bar:
    parts = (
        item.weights_bytes,
        item.gradients_bytes,
        item.optimizer_bytes,
        item.activation_bytes * item.live_micro_batches,
        item.workspace_bytes,
        item.reserved_bytes,
    )
    name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more alike"
    return Bar(name, len(names), tuple(part / 1e9 for part in parts), item.live_micro_batches)
