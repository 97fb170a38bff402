"""The schedule problem of a pipeline of a plan: what a method of ``schedule.methods`` is asked, in seconds.

Every link is granted to the pipeline as a whole: traffic of other pipelines and of the agreement is left out, and the
second link of a relay costs its latency and no room. The agreement inside a rank's domain follows its last operation,
on the network (``Program.sync_s``); that between domains, and the optimizer, come after it and are left out. What a
schedule is worth is told by playing the plan.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf

import numpy as np

from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.schedule.problem import RankLink, ScheduleProblem
from hippo.simulate.costs import cost_model, costs
from hippo.simulate.lower import lower
from hippo.simulate.program import Program

LEAST_S = 1e-12  # a pass that costs nothing still has its place in the order


def ordering(problem: Problem, plan: Plan, index: int = 0) -> ScheduleProblem:
    """Pipeline ``index`` of a plan with one chunk per rank; the limit counts micro-batches that its memory holds.

    Raises ``InputError`` as ``lower`` does.
    """
    program, pipeline = lower(problem, plan), plan.pipelines[index]
    ranks = np.flatnonzero(program.rank_pipeline == index)
    usable = cost_model(problem).usable_memory_bytes()
    kept = costs(problem).memories(plan, pipeline)
    rooms = [(usable - each.peak_bytes) / each.activation_bytes if each.activation_bytes else inf for each in kept]
    times = (program.forward_s, program.backward_s, program.weight_s)
    forward, backward, weight = (tuple(np.maximum(each[ranks, 0], LEAST_S).tolist()) for each in times)
    return ScheduleProblem(
        micro_batches=pipeline.num_micro_batches,
        forward=forward,
        backward=backward,
        weight=weight,
        down=tuple(_link(program, "down", int(rank)) for rank in ranks[:-1]),
        up=tuple(_link(program, "up", int(rank)) for rank in ranks[1:]),
        limit=tuple(max(room, LEAST_S) for room in rooms),
        reduction=tuple(program.sync_s[ranks].tolist()),
    )


def ordering_key(problem: ScheduleProblem) -> Hashable:
    """Equal for pipelines that ask the same: replicas over like links are ordered once."""
    times, links = (problem.forward, problem.backward, problem.weight, problem.reduction), (problem.down, problem.up)
    return (problem.micro_batches, *times, *links, problem.limit)


def _link(program: Program, side: str, rank: int) -> RankLink:
    """What one wave takes from a rank to its neighbour: over the WAN, or as a delay inside the domain."""
    first, second = getattr(program, f"{side}_route")[rank, 0]
    if first < 0:
        return RankLink(latency=float(getattr(program, f"{side}_delay_s")[rank, 0]))
    size, nic = (float(getattr(program, f"{side}_{what}")[rank, 0]) for what in ("bytes", "nic_bytes_per_s"))
    transfer = size / min(nic, float(program.link_bandwidth_bytes_per_s[first]))
    latency = float(program.link_latency_s[first])
    if second >= 0:
        relayed = size / float(program.link_bandwidth_bytes_per_s[second])
        latency += float(program.link_latency_s[second]) + max(0.0, relayed - transfer)
    return RankLink(latency, transfer)
