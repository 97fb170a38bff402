"""Reinforcement learning over regions in the terminal: who trains, who generates, what is pushed, what binds."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hippo.decide.wording import count, gb, number, seconds
from hippo.planners.rollouts import RolloutAnswer, RolloutFound
from hippo.report.fitted import FittedTable, Trimmed, column
from hippo.report.terminal import question_view
from hippo.report.text import pipeline_lines, usd, versus

BINDS = {
    "training": "The trainer sets the pace: replicas wait for it.",
    "generation": "The replicas set the pace: the trainer waits for samples.",
    "pushes": "Pushes set the pace: replicas wait for weights that are new enough.",
}


def rollouts_view(answer: RolloutAnswer) -> RenderableType:
    """The answer, its pools, and the best of each other kind."""
    best, problem = answer.best, answer.problem
    samples = problem.workload.global_batch
    gpus = best.plan.replicas * answer.rollouts.replica.gpus
    told = [
        f"A step of {count(samples, 'sample')} every {seconds(best.step_time_s)}, {usd(best.usd_per_step)} a step "
        f"({usd(best.egress_usd_per_step)} of it for what links carry).",
        f"{best.plan.home} trains on {count(best.plan.trainer.gpus, 'GPU')}, {seconds(best.train_s)} a step; "
        f"{count(best.plan.replicas, 'replica')} on {count(gpus, 'GPU')} generate.",
        f"{_push(best)}; the weights behind a sample are {number(best.times.staleness_mean, 2)} steps old in the mean, "
        f"at most {best.times.staleness_most} of {answer.rollouts.staleness} allowed.",
        BINDS[best.binds],
    ]
    plan = [Padding(Text(line), (0, 0, 0, 2)) for line in pipeline_lines(best.plan.trainer)]
    remarks = [answer.covers, *([answer.cut_short] if answer.cut_short else [])]
    parts = [question_view(problem), Text(), *map(Text, told), *plan, *(Text(each, style="dim") for each in remarks)]
    return Group(Trimmed(Group(*parts)), _pools(best), _others(answer))


def _push(found: RolloutFound) -> str:
    often = "every step" if found.plan.every == 1 else f"every {count(found.plan.every, 'step')}"
    what = "All weights" if found.plan.push == "whole" else "What changed"
    return f"{what}, {gb(found.push_bytes)}, {'go' if found.plan.push == 'whole' else 'goes'} to each pool {often}"


def _pools(best: RolloutFound) -> RenderableType:
    pools = best.plan.pools
    return FittedTable(
        (
            column("pool", (pool.domain for pool in pools), right=False),
            column("replicas", (f"{pool.replicas:,}" for pool in pools)),
            column("samples a step", (number(each) for each in best.times.samples)),
            column("push", (seconds(each) for each in best.push_s)),
        )
    )


def _others(answer: RolloutAnswer) -> RenderableType:
    rows = [("this answer", answer.best), *answer.others.items()]
    return FittedTable(
        (
            column("what", (words for words, _ in rows), right=False),
            column("step", (seconds(found.step_time_s) for _, found in rows)),
            column("vs best", (versus(found.step_time_s, answer.best.step_time_s) for _, found in rows), rank=1),
            column("USD a step", (usd(found.usd_per_step) for _, found in rows)),
            column("trainer", (found.plan.home for _, found in rows), rank=4, right=False),
            column("replicas", (f"{found.plan.replicas:,}" for _, found in rows), rank=3),
            column("pushes", (f"{found.plan.push}/{found.plan.every}" for _, found in rows), rank=2, right=False),
            column("binds", (found.binds for _, found in rows), rank=5, right=False),
        ),
        highlight=0,
    )
