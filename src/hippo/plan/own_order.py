"""Whether the order that a plan writes out for a pipeline is one: every wave once, each kind after what it needs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from hippo.plan.plan import Pipeline, Plan

WITH_ORDER = "best"  # the schedule whose order stands in the plan


def order_flaws(plan: Plan, pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """Where in ``Pipeline.order`` something is wrong (``""`` or ``"[stage]"``), and a sentence.

    Whether stages wait for each other in a circle is told when the order is made a schedule.
    """
    given, waves, name = pipeline.order, pipeline.num_micro_batches, plan.schedule.name
    if bool(given) != (name == WITH_ORDER):
        yield "", "is missing" if not given else f"the schedule '{name}' has an order of its own"
        return
    if given and (len(given) != len(pipeline.stages) or plan.interleave > 1):
        yield "", f"{len(given)} texts for {len(pipeline.stages)} stages with one chunk each"
        return
    kinds = "FBW" if any("W" in each for each in given) else "FB"
    for stage, letters in enumerate(given):
        if any(letters.count(kind) != waves for kind in kinds):
            yield f"[{stage}]", f"{', '.join(f'{letters.count(kind)} {kind}' for kind in kinds)} for {waves} waves"
        elif not _in_turn(letters, kinds):
            yield f"[{stage}]", "a B before its F, or a W before its B"


def _in_turn(letters: str, kinds: str) -> bool:
    """Whether no B comes before its F, and no W before its B; there are as many of each of ``kinds``."""
    given = np.frombuffer(letters.encode(), dtype=np.uint8)
    places = [np.flatnonzero(given == ord(kind)) for kind in kinds]
    return all(bool((one < two).all()) for one, two in pairwise(places))
