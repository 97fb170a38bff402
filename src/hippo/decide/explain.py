"""Why this plan: puts the reasons together, for a plan that was chosen or for one that somebody wrote by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hippo.decide.decision import Baseline
from hippo.decide.experts import experts_inside
from hippo.decide.pace import binding, bottleneck, capacities, link_thresholds, sensitivity
from hippo.decide.reasons import Degree, Gap, LocalSgd, MemoryHeadroom, Reason, Rejected, RewardParts
from hippo.decide.rivals import Alternatives, idle_domains, left_out, runner_up_reasons
from hippo.decide.wording import described, unknown_plans
from hippo.planners.base import DegreesTried, Proposal
from hippo.problem.runtimes import ACROSS
from hippo.score.judge import Judged, memory
from hippo.simulate.costs import cost_model


@dataclass(frozen=True)
class Context:
    """What is known beside the plan: who proposed it, what it proved, what else was found."""

    planner: str
    gap: float | None = None
    lower_bound_s: float | None = None
    prover: str = ""  # whose bound the gap rests on, where it is not the planner's own
    notes: tuple[str, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)
    others: Alternatives | None = None  # what else was possible; None: nothing else was looked for
    baseline: Baseline | None = None
    local_sgd: Proposal | None = None  # what local SGD gives where it is not allowed,
    local_sgd_searched: bool = False  # with the effort of the answer,
    local_sgd_left: bool = False  # or cut short
    degrees: tuple[DegreesTried, ...] = ()  # what others of context and expert parallelism give


def explain(game: Judged, context: Context) -> tuple[Reason, ...]:
    """Reasons for a plan, most telling first. Costs some hundred plays of the step at most."""
    return reasons_of(game, memory_headroom(game), context)


def reasons_of(game: Judged, headroom: MemoryHeadroom, context: Context) -> tuple[Reason, ...]:
    """The same where ``headroom`` is known."""
    binds = binding(game, 1 - max(headroom.peak_bytes) / headroom.usable_bytes)
    reasons: list[Reason] = [binds, bottleneck(game, binds)]
    reasons += link_thresholds(game)
    reasons += capacities(game)
    reasons += experts_inside(game)
    prover = context.prover or context.planner
    covers = "" if context.gap is None else unknown_plans(game.problem, prover).strip()
    notes = tuple(filter(None, (covers, *context.notes)))
    reasons.append(Gap(prover, context.gap, context.lower_bound_s, notes))
    reasons += [Degree(f"{each.kind} parallelism", each.degree, each.slower) for each in context.degrees]
    others = Alternatives(game, ()) if context.others is None else context.others
    reasons += runner_up_reasons(others, game)
    reasons += idle_domains(others, game)
    reasons.append(headroom)
    reasons += sensitivity(game)
    reasons += _reward(game, context.baseline)
    reasons += _local_sgd(game, context)
    reasons += left_out(others, context.local_sgd_left)
    reasons += _rejected(context)
    return tuple(reasons)


def memory_headroom(game: Judged) -> MemoryHeadroom:
    """Peak bytes of the fullest GPU of every stage against what a plan may use."""
    plan, peaks = game.plan, tuple(float(stage.peak_bytes) for stage in game.memory)
    stages = [(p, s, stage) for p, pipeline in enumerate(plan.pipelines) for s, stage in enumerate(pipeline.stages)]
    fullest = max(range(len(peaks)), key=lambda index: (peaks[index], -index))
    p, s, stage = stages[fullest]
    of = f" of pipeline {p + 1}" if len(plan.pipelines) > 1 else ""
    name = f"stage {s + 1}{of} in {stage.domain}"
    reserved = float(game.memory[fullest].reserved_bytes)
    usable, inside = cost_model(game.problem).usable_memory_bytes(), None
    if plan.sharding == ACROSS and len(plan.pipelines) > 1:
        inside = max(stage.peak_bytes for stage in memory(game.problem, replace(plan, sharding="optimizer")))
    return MemoryHeadroom(name, peaks, usable, reserved, inside)


def _reward(game: Judged, baseline: Baseline | None) -> list[Reason]:
    if baseline is None:
        return []
    weights, score, base = game.problem.objective, game.score, baseline.score
    return [
        RewardParts(
            subject=f"the plan of {baseline.planner}",
            r_eff=score.r_eff,
            r_util=score.r_util,
            r_cost=score.r_cost,
            w_eff=weights.w_eff,
            w_util=weights.w_util,
            w_cost=weights.w_cost,
            reward=score.reward,
            baseline_step_time_s=base.step_time_s,
            baseline_egress_usd_per_step=base.egress_usd_per_step,
            baseline_usd_per_step=base.usd_per_step,
        )
    ]


def _local_sgd(game: Judged, context: Context) -> list[Reason]:
    proposal = context.local_sgd
    if proposal is None or proposal.plan is None or proposal.score is None or game.problem.allow_local_sgd:
        return []
    score, faster = proposal.score, 1 - proposal.score.step_time_s / game.step_time_s
    penalty = " ".join(note for note in proposal.notes if "penalty" in note)
    figures = proposal.plan.sync.every, score.step_time_s, faster, penalty, context.local_sgd_searched
    return [LocalSgd(described(proposal.plan), *figures)]


def _rejected(context: Context) -> list[Reason]:
    if not context.rejected:
        return []
    ordered = sorted(context.rejected.items(), key=lambda item: (-item[1], item[0]))
    return [Rejected(context.planner, tuple(ordered))]
