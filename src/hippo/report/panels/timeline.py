"""The played step, packed for drawing: operations of every rank, messages of every link that carries something.

Time is told in *ticks*: integers, ``TICKS`` to a step (a millionth of a step is finer than any screen). A rank's
operations are packed as gap before, length, kind and micro-batch, one after the other. Schedules with more than
``MOST_BLOCKS`` operations are told in blocks of several operations of one rank, each with the ticks of every kind in
it, so that the file stays small and nothing is left out of the sums.

Letters: N operations, G ranks, K kinds (``KINDS``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.plan.plan import Stage
from hippo.report.story import PlanStory
from hippo.report.text import stage_name
from hippo.simulate.timeline import Timeline

TICKS = 1_000_000
MOST_BLOCKS = 60_000
KINDS = ("Forward", "Backward", "Weight gradient", "Synchronise", "Optimizer")
MIXED = 5
"""Kind of a block that holds several operations."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RankShare:
    """What one rank does in a step, in shares of the step; what is left is idle (bubble and waiting)."""

    name: str
    domain: str
    busy_s: tuple[float, ...]  # (K,) seconds of each kind
    shares: tuple[float, ...]  # (K,)

    @property
    def idle_share(self) -> float:
        """Bubble and waiting."""
        return max(0.0, 1.0 - sum(self.shares))


def rank_names(story: PlanStory) -> tuple[str, ...]:
    """One name per rank; pipelines are numbered where there are several."""
    several = len(story.plan.pipelines) > 1
    names = [stage_name(stage) for stage in story.stages]
    if not several:
        return tuple(names)
    return tuple(f"{name} (pipeline {pipeline})" for name, pipeline in zip(names, _numbers(story), strict=True))


def _numbers(story: PlanStory) -> list[int]:
    return [number for number, pipeline in enumerate(story.plan.pipelines, 1) for _ in pipeline.stages]


def rank_shares(story: PlanStory) -> tuple[RankShare, ...]:
    """Where every rank's time goes, in the order of the ranks."""
    timeline = story.timeline
    busy = np.zeros((len(story.stages), len(KINDS)))
    np.add.at(busy, (timeline.op_rank, timeline.op_kind), timeline.op_end_s - timeline.op_start_s)
    shares = busy / timeline.step_time_s
    return tuple(
        RankShare(name, stage.domain, tuple(busy[rank].tolist()), tuple(shares[rank].tolist()))
        for rank, (name, stage) in enumerate(zip(rank_names(story), story.stages, strict=True))
    )


def pack(story: PlanStory, *, most_blocks: int = MOST_BLOCKS) -> dict[str, object]:
    """The document that ``step.js`` draws: ``step_s``, ``ticks``, ``kinds``, ``ranks``, ``links``."""
    timeline = story.timeline
    size = max(1, -(-len(timeline.op_rank) // most_blocks))
    ranks, colours = [], story.domain_colours
    for rank, (stage, pipeline) in enumerate(zip(story.stages, _numbers(story), strict=True)):
        packed = _pack_rank(timeline, rank, size)
        names = {"name": stage_name(stage), "short": f"{stage.domain} {_layers(stage)}"}
        place = {"domain": stage.domain, "colour": colours[stage.domain], "pipeline": pipeline}
        ranks.append({**names, **place, **packed})
    return {
        "step_s": timeline.step_time_s,
        "ticks": TICKS,
        "kinds": list(KINDS),
        "block": size,
        "ranks": ranks,
        "links": _pack_links(story, most_blocks),
    }


def _layers(stage: Stage) -> str:
    start, stop = stage.layers
    return f"{start}" if stop - start == 1 else f"{start}-{stop - 1}"


def _pack_rank(timeline: Timeline, rank: int, size: int) -> dict[str, object]:
    """Operations of one rank in the order they start, in blocks of ``size``."""
    own = np.flatnonzero(timeline.op_rank == rank)
    own = own[np.argsort(timeline.op_start_s[own], kind="stable")]
    start, end = _ticks(timeline, timeline.op_start_s[own]), _ticks(timeline, timeline.op_end_s[own])
    kind, micro_batch = timeline.op_kind[own], timeline.op_micro_batch[own]
    if size == 1:
        mixed: list[list[int]] = []
    else:
        mixed = _mixed(start, end, kind, size)
        first = np.arange(0, len(own), size)
        last = np.minimum(first + size, len(own)) - 1
        start, end, micro_batch = start[first], end[last], micro_batch[first]
        kind = np.full(len(first), MIXED)
    gaps = start - np.concatenate(([0], end[:-1]))
    return {
        "kind": "".join(map(str, kind.tolist())),
        "gap": gaps.tolist(),
        "length": (end - start).tolist(),
        "micro_batch": micro_batch.tolist(),
        "mixed": mixed,
    }


def _mixed(start: Ints, end: Ints, kind: Ints, size: int) -> list[list[int]]:
    """Ticks of every kind in each block: (blocks, K)."""
    ticks = np.zeros((-(-len(start) // size), len(KINDS)), dtype=np.int64)
    np.add.at(ticks, (np.arange(len(start)) // size, kind), end - start)
    return ticks.tolist()


def _pack_links(story: PlanStory, most: int) -> list[dict[str, object]]:
    """Messages of each link that carries any, earliest first; of too many, every n-th stands for all."""
    timeline, links = story.timeline, story.problem.cluster.links
    packed: list[dict[str, object]] = []
    ids, first = np.unique(
        timeline.message_link[np.argsort(timeline.message_start_s, kind="stable")], return_index=True
    )
    used = ids[np.argsort(first)].tolist()
    for link in used:
        own = np.flatnonzero(timeline.message_link == link)
        own = own[np.argsort(timeline.message_start_s[own], kind="stable")]
        step = max(1, -(-len(own) * len(used) // most))
        own = own[::step]
        start = _ticks(timeline, timeline.message_start_s[own])
        packed.append(
            {
                "from": links[link].source,
                "to": links[link].destination,
                "every": step,
                "start": np.diff(start, prepend=0).tolist(),
                "length": (_ticks(timeline, timeline.message_end_s[own]) - start).tolist(),
                "kind": "".join(map(str, timeline.message_kind[own].tolist())),
                "micro_batch": timeline.message_micro_batch[own].tolist(),
                "mb": np.round(timeline.message_bytes[own] / 1e6, 3).tolist(),
            }
        )
    return packed


def _ticks(timeline: Timeline, seconds: Floats) -> Ints:
    return np.rint(seconds / timeline.step_time_s * TICKS).astype(np.int64)
