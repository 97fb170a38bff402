"""Which layers lie where, and what crosses each cut: one strip per distinct pipeline.

With interleaving every stage holds several chunks, dealt round robin; the strip shows the chunks in the order the
activations visit them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hippo.plan.plan import Pipeline
from hippo.report.story import PlanStory


@dataclass(frozen=True)
class StageBlock:
    """Consecutive layers [start, stop) on one stage."""

    stage: int  # position in its pipeline, from 1 as in the reasons
    domain: str
    start: int
    stop: int
    tp: int
    dp: int
    gpus: int
    ahead: int | None = None  # micro-batches it runs forward before its first backward, where the plan says so

    @property
    def label(self) -> str:
        """Layers, the last one named inside."""
        return f"{self.start}" if self.stop - self.start == 1 else f"{self.start}–{self.stop - 1}"


@dataclass(frozen=True)
class Cut:
    """Where the model passes to another stage, and what that carries."""

    layer: int
    source: str
    destination: str
    mb_per_micro_batch: float  # activations of one wave, all lanes; gradients take the other way
    through: str | None  # domain that relays it

    @property
    def crosses(self) -> bool:
        """Whether it passes to another domain."""
        return self.source != self.destination


@dataclass(frozen=True)
class Strip:
    """One pipeline, and how many of the plan's pipelines look like it."""

    count: int
    num_layers: int
    blocks: tuple[StageBlock, ...]
    bands: tuple[tuple[str, int, int], ...]  # (domain, start, stop) of blocks in a row of one domain
    cuts: tuple[Cut, ...]
    num_micro_batches: int


def strips(story: PlanStory) -> tuple[Strip, ...]:
    """A strip per distinct pipeline (same domains, layers, degrees), in order of first appearance."""
    found: dict[tuple[object, ...], tuple[int, Strip]] = {}
    first_rank = 0
    for pipeline in story.plan.pipelines:
        blocks = _blocks(pipeline, story.plan.interleave)
        key = (*blocks, pipeline.num_micro_batches)
        times = found[key][0] + 1 if key in found else 1
        strip = found[key][1] if key in found else _strip(story, pipeline, blocks, first_rank)
        found[key] = (times, strip)
        first_rank += len(pipeline.stages)
    return tuple(_counted(strip, times) for times, strip in found.values())


def _counted(strip: Strip, times: int) -> Strip:
    return Strip(times, strip.num_layers, strip.blocks, strip.bands, strip.cuts, strip.num_micro_batches)


def _blocks(pipeline: Pipeline, chunks: int) -> tuple[StageBlock, ...]:
    """Chunks in the order activations visit them: chunk by chunk, stage by stage."""
    blocks, start = [], 0
    for _ in range(chunks):
        for index, stage in enumerate(pipeline.stages):
            stop = start + stage.num_layers // chunks
            ahead = pipeline.run_ahead[index] if pipeline.run_ahead else None
            blocks.append(
                StageBlock(index + 1, stage.domain, start, stop, stage.tp, stage.dp, len(stage.devices), ahead)
            )
            start = stop
    return tuple(blocks)


def _strip(story: PlanStory, pipeline: Pipeline, blocks: tuple[StageBlock, ...], first_rank: int) -> Strip:
    program, size = story.program, len(pipeline.stages)
    relays = {(relay.source, relay.destination): relay.via for relay in story.plan.relays}
    cuts = []
    for position, (left, right) in enumerate(pairwise(blocks)):
        sent = float(program.down_bytes[first_rank + left.stage - 1, position // size]) / 1e6
        cuts.append(Cut(left.stop, left.domain, right.domain, sent, relays.get((left.domain, right.domain))))
    return Strip(1, blocks[-1].stop, blocks, _bands(blocks), tuple(cuts), pipeline.num_micro_batches)


def _bands(blocks: tuple[StageBlock, ...]) -> tuple[tuple[str, int, int], ...]:
    bands: list[tuple[str, int, int]] = []
    for block in blocks:
        if bands and bands[-1][0] == block.domain:
            bands[-1] = (block.domain, bands[-1][1], block.stop)
        else:
            bands.append((block.domain, block.start, block.stop))
    return tuple(bands)
