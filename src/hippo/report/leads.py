"""The sentence above each picture: what it shows, in figures of this plan."""

from __future__ import annotations

from collections.abc import Sequence

from hippo.decide.wording import count, gb, listed, number, percent, seconds
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.report.panels.memory import MemoryChart
from hippo.report.panels.network import Traffic
from hippo.report.panels.planners import PlannerEntry
from hippo.report.panels.timeline import RankShare
from hippo.report.story import PlanStory
from hippo.report.text import short_count, usd
from hippo.score.score import Score

COMPUTING = 3
"""The first kinds of a rank's shares (forward, backward, weight gradient) are computing."""


def sections(story: PlanStory, *, compared: bool, networked: bool) -> list[tuple[str, str]]:
    """(anchor, name) of the sections that this report has."""
    told = [
        ("why", "Why", bool(story.reasons)),
        ("step", "Step", True),
        ("layers", "Layers", True),
        ("network", "Network", networked),
        ("memory", "Memory", True),
        ("planners", "Planners", compared),
        ("front", "Front", bool(story.front)),
        ("inputs", "Given", True),
    ]
    return [(anchor, name) for anchor, name, there in told if there]


MOST_NAMED = 5
"""Domains that the answer names one by one; of more it tells how many there are."""


def answer(story: PlanStory) -> tuple[str, ...]:
    """Which domains to use, then what that gains over one domain alone (or over crossing), and what it costs."""
    used = tuple(dict.fromkeys(stage.domain for stage in story.stages))
    idle = [name for name in story.domain_order if name not in used]
    if not idle:
        where = f"Use all {len(used)} domains" if len(used) > 1 else f"Use {used[0]}"
    else:
        where = f"Use {_named(used)}; leave {_named(idle)} idle"
    score, other = story.score, _other_way(story, several=len(used) == 1)
    step = f"A step takes {seconds(score.step_time_s)}"
    if other is None:
        return f"{where}.", f"{step} and costs {usd(score.usd_per_step)}."
    plan, rival = other
    alone = (
        f"one domain alone ({plan.domains[0]}"
        if len(used) > 1
        else f"{len(plan.domains)} domains ({_named(plan.domains)}"
    )
    change = score.step_time_s / rival.step_time_s - 1
    less = f"{percent(abs(change))} {'less' if change < 0 else 'more'} than" if abs(change) >= 0.0005 else "as long as"
    return f"{where}.", f"{step}, {less} with {alone}, {seconds(rival.step_time_s)}), {_price(score, rival)}."


def _named(names: Sequence[str]) -> str:
    return listed(names) if len(names) <= MOST_NAMED else f"{len(names)} domains"


def _other_way(story: PlanStory, *, several: bool) -> tuple[Plan, Score] | None:
    """The quickest plan known that does what this one does not: crosses between domains, or stays in one."""
    rows = [(row.plan, row.score) for row in story.rows if row.plan is not None and row.score is not None]
    known = [*story.runners_up, *story.front, *story.beaten, *rows]
    others = [(plan, score) for plan, score in known if (len(plan.domains) > 1) is several]
    return min(others, key=lambda item: item[1].step_time_s, default=None)


def _price(score: Score, rival: Score) -> str:
    """The price of a step against that of another plan, in words."""
    if rival.usd_per_step <= 0 or abs(score.usd_per_step / rival.usd_per_step - 1) < 0.005:
        return f"at the same price, {usd(score.usd_per_step)} a step"
    ratio = score.usd_per_step / rival.usd_per_step
    prices = f"({usd(score.usd_per_step)} in place of {usd(rival.usd_per_step)})"
    if ratio >= 1.5:
        return f"at {number(ratio, 2)} times the price {prices}"
    return f"{percent(abs(ratio - 1))} {'dearer' if ratio > 1 else 'cheaper'} {prices}"


def layers(story: PlanStory) -> str:
    """How to read the lines that say where layers lie."""
    last = story.problem.model.num_layers - 1
    return (
        f"Layers count from 0, the embedding, over {count(last - 1, 'block')} to {last}, the head; "
        "[0-4) is layers 0 to 3. pp: stages one after the other; tp: GPUs that share each layer; "
        "dp: replicas that share the batch."
    )


def timeline(ranks: Sequence[RankShare]) -> str:
    """How much of the step the ranks compute, and what the rest is."""
    busy = [sum(rank.shares[:COMPUTING]) for rank in ranks]
    idle = sum(rank.idle_share for rank in ranks) / len(ranks)
    mean = sum(busy) / len(busy)
    span = f" (from {percent(min(busy))} to {percent(max(busy))})" if max(busy) - min(busy) > 0.005 else ""
    agree = max(0.0, 1.0 - mean - idle)
    parts = [f"{percent(agree)} goes into agreeing on gradients and the optimizer"] if agree >= 0.0005 else []
    parts += [f"{percent(idle)} is bubble or waiting for a message"] if idle >= 0.0005 else ["hardly any of it is idle"]
    return f"Ranks compute {percent(mean)} of the step on average{span}; {', '.join(parts)}."


def cuts(story: PlanStory) -> str:
    """How many stages in how many domains, and how often the model crosses between them."""
    plan = story.plan
    crossings = max(len(pipeline.domains) - 1 for pipeline in plan.pipelines)
    stages = sum(len(pipeline.stages) for pipeline in plan.pipelines)
    crossed = "no cut crosses a border" if crossings == 0 else f"{count(crossings, 'cut')} between domains"
    where = ", ".join(plan.domains)
    pipelines = f" in {count(len(plan.pipelines), 'pipeline')}" if len(plan.pipelines) > 1 else ""
    total = f"{count(story.problem.model.num_layers, 'layer')} (embedding and head included)"
    return f"{total} on {count(stages, 'stage')}{pipelines}, in {where}; {crossed}."


def traffic(flows: Traffic, score: Score) -> str:
    """What crosses in a step, what it costs, and the link nearest to its limit."""
    busiest = flows.busiest
    if busiest is None:
        return "Nothing crosses between domains."
    egress = usd(score.egress_usd_per_step)
    return (
        f"{number(flows.total_gb)} GB cross between domains each step, for {egress} of egress. The busiest link, "
        f"{busiest.source} → {busiest.destination}, is in use for {percent(busiest.share)} of the step."
    )


def memory(chart: MemoryChart) -> str:
    """The fullest stage against the GPU."""
    fullest = max(chart.bars, key=lambda bar: bar.total_gb)
    free = chart.gpu_gb - fullest.total_gb
    left = f"{number(free)} GB stay free" if free >= 0 else f"{number(-free)} GB too much"
    return f"The fullest, {fullest.name}, peaks at {number(fullest.total_gb)} of {number(chart.gpu_gb)} GB: {left}."


def planners(rows: Sequence[PlannerEntry]) -> str:
    """Who won, by how much over the next, and how many found nothing."""
    found = [entry for entry in rows if entry.row.score is not None]
    if not found:
        return "No planner found a plan that fits."
    lead = f"{found[0].row.planner} is quickest"
    others = [entry for entry in found[1:] if entry.versus != "best"]
    if others:
        lead += f"; the next that differs, {others[0].row.planner}, takes {_longer(others[0].versus)}"
    without = len(rows) - len(found)
    tail = f" {count(without, 'planner')} found no plan." if without else ""
    return f"{lead}.{tail} All plans are scored by the same judge."


def _longer(versus: str) -> str:
    return f"{versus[2:]} times as long" if versus.startswith("x ") else f"{versus[1:]} longer"


def front(story: PlanStory) -> str:
    """What the ends of the front cost."""
    if not story.front:
        return ""
    scores = [score for _, score in story.front]
    quickest = min(scores, key=lambda score: score.step_time_s)
    cheapest = min(scores, key=lambda score: score.egress_usd_per_step)
    if len(scores) == 1:
        return (
            f"{_looked_at(story)}one is best in step time, utilisation and egress at once: there is nothing to trade."
        )
    most, least = (usd(score.egress_usd_per_step) for score in (quickest, cheapest))
    return (
        f"{_looked_at(story)}{len(scores)} are beaten by no other in all three: from "
        f"{seconds(quickest.step_time_s)} a step with {most} of egress to {seconds(cheapest.step_time_s)} with {least}."
    )


def _looked_at(story: PlanStory) -> str:
    return f"Of {count(len(story.front) + len(story.beaten), 'plan')} that were looked at, "


def inputs(problem: Problem) -> list[tuple[str, str]]:
    """(name, value) of model, workload and objective."""
    model, workload, gpu = problem.model, problem.workload, problem.cluster.gpu
    active = "" if model.active_parameters == model.parameters else f" ({short_count(model.active_parameters)} active)"
    goal = problem.objective
    weights = (
        f" ({number(goal.w_eff)}, {number(goal.w_util)}, {number(goal.w_cost)})" if goal.name == "weighted" else ""
    )
    return [
        ("Model", model.name),
        ("Parameters", f"{short_count(model.parameters)}{active}"),
        ("Layers", f"{model.num_blocks} blocks, embedding and head"),
        ("Global batch", f"{workload.global_batch:,} sequences of {workload.seq:,} tokens"),
        ("Precision", workload.precision),
        ("Objective", goal.name + weights),
        ("Runtime", problem.runtime),
        ("GPU memory", gb(gpu.memory_bytes)),
    ]
