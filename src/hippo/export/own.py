"""A program of the user's own: any plan, launched in its places; ``ranks.json`` tells each rank its part."""

from __future__ import annotations

from hippo.export.program import Blank, LaunchedProgram
from hippo.export.ranks import PLAN, RankOrder, rank_order
from hippo.files import json_text
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem


def program(problem: Problem, plan: Plan) -> LaunchedProgram:
    """Whatever ``$TRAIN`` holds, once per rank."""
    placed = rank_order(plan, (PLAN,))
    return LaunchedProgram(
        name="your own program",
        runtime="hippo",
        words=('${TRAIN:?your training program and its arguments, for instance "train.py --config run.yaml"}',),
        placed=placed,
        files={"ranks.json": json_text(rank_map(plan, placed))},
        blanks=(Blank("TRAIN", "your training program; ranks.json says what part of the plan each rank has"),),
    )


def rank_map(plan: Plan, placed: RankOrder) -> list[dict[str, object]]:
    """Per rank: its domain, device, pipeline, stage, lane, and layers."""
    return [
        {
            "rank": each.rank,
            "domain": each.node.rpartition("/")[0],
            "device": each.device,
            "pipeline": each.pipeline,
            "stage": each.stage,
            "lane": each.lane,
            "context": each.context,
            "tensor": each.tensor,
            "layers": list(plan.pipelines[each.pipeline].stages[each.stage].layers),
        }
        for each in placed.ranks
    ]
