"""Plans and figures as short plain text: what the terminal, the HTML report and the notebook view all write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from hippo.cost.calibration import uncalibrated
from hippo.decide import wording
from hippo.decide.decision import GIVEN, PlannerRow
from hippo.decide.wording import between, count, gb, interval_text, number, percent, seconds
from hippo.plan.plan import Pipeline, Plan, Stage, Sync
from hippo.problem.problem import Problem
from hippo.problem.routing import Routing
from hippo.problem.runtimes import RUNTIMES, not_run_here
from hippo.score.interval import assumed_span, interval_of
from hippo.score.score import Score

NOTHING = "–"
"""What stands where there is no figure."""

usd = wording.usd
"""Prices read alike here and in sentences."""

NOT_GOOD = 0.1
"""A gap from which on nothing is said to be proven of a plan but how far it may be from the best."""

LEAST_TOLD = 0.0005
"""Shares below this one would be printed as 0.0 %."""


def question_line(problem: Problem, *, runtime: bool = True) -> str:
    """What is asked, in one line: GPUs and domains, the batch, precision, uneven routing, the runtime unless several
    are told, what is allowed."""
    cluster, workload = problem.cluster, problem.workload
    parts = [
        f"{count(cluster.gpus, cluster.gpu.name + ' GPU')} in {count(len(cluster.domains), 'domain')}",
        f"{workload.global_batch:,} sequences of {workload.seq:,} tokens a step",
        workload.precision,
    ]
    if workload.routing != Routing():
        routing = workload.routing.document()
        parts.append("routing as counted" if isinstance(routing, list) else f"routing {routing}")
    dispatcher = workload.software.dispatcher
    assumed = " (assumed to take as long as deepep)" if dispatcher == "hybridep" else ""
    parts += [f"tokens by {dispatcher}{assumed}"] if dispatcher != "alltoall" else []
    parts += [runtime_text(problem)] if runtime else []
    parts += ["uniform cuts"] if problem.uniform_cuts else []
    parts += ["local SGD allowed"] if problem.allow_local_sgd else []
    parts += [compression_text(problem)] if problem.allow_compression else []
    doubt = uncalibrated(problem)
    return ", ".join(parts) if doubt is None else f"{', '.join(parts)}; {doubt}"


def runtime_text(problem: Problem) -> str:
    """Under which runtime the time holds."""
    if problem.runtime == "ideal":
        return f"ideal: {problem.rules.told}"
    part = not_run_here(problem.model, problem.workload.seq)
    return f"under {problem.rules.told}" + ("" if part is None else f" (hippo run cannot run {part})")


def compression_text(problem: Problem) -> str:
    """That what crosses domains may be compressed, and what a token trained so counts."""
    worth = problem.compression_worth
    return "compression allowed" + ("" if worth is None else f" (a token counts {worth:g})")


def pipeline_line(pipeline: Pipeline) -> str:
    """Where the layers of one pipeline lie: ``beijing [0-24) tp8 dp4 -> guizhou [24-82) pp2 tp8 dp4``.

    Stages in a row of one domain with the same degrees are told together (``pp`` counts them). A pipeline of
    interleaved stages deals its layers round robin; the ranges then only count them.
    """
    runs = groupby(pipeline.stages, key=lambda stage: (stage.domain, stage.tp, stage.dp))
    return " -> ".join(_run_text(list(stages)) for _, stages in runs)


def _run_text(stages: Sequence[Stage]) -> str:
    first, last = stages[0], stages[-1]
    degrees = f"pp{len(stages)} " if len(stages) > 1 else ""
    return f"{first.domain} [{first.layers[0]}-{last.layers[1]}) {degrees}tp{first.tp} dp{first.dp}"


def pipeline_lines(plan: Plan) -> tuple[str, ...]:
    """One line per distinct pipeline, with how many there are of it and how many micro-batches each works through."""
    lines = [f"{pipeline_line(pipeline)}, {_waves(pipeline)}" for pipeline in plan.pipelines]
    counts = {line: lines.count(line) for line in lines}
    return tuple(line if times == 1 else f"{times} x  {line}" for line, times in counts.items())


def _waves(pipeline: Pipeline) -> str:
    """``64 micro-batches``, and how many stages run ahead of their first backward where the plan says so."""
    told = micro_batches(pipeline.num_micro_batches)
    if not pipeline.run_ahead:
        return told
    least, most = min(pipeline.run_ahead), max(pipeline.run_ahead)
    return f"{told}, {most if least == most else f'{least} to {most}'} ahead"


def micro_batches(quantity: int) -> str:
    """``1 micro-batch``, ``64 micro-batches``."""
    return f"{quantity:,} micro-batch" if quantity == 1 else f"{quantity:,} micro-batches"


def settings(plan: Plan) -> tuple[tuple[str, str], ...]:
    """(name, value) of everything in the plan that is not a stage, what does not apply left out."""
    schedule = plan.schedule.name
    if plan.schedule.live_limit is not None:
        schedule += f", at most {micro_batches(plan.schedule.live_limit)} live"
    if any("W" in letters for pipeline in plan.pipelines for letters in pipeline.order):
        schedule += ": an order of its own, weight gradients where a stage would wait"
    rows = [
        ("micro-batch", count(plan.micro_batch, "sequence")),
        ("schedule", schedule if plan.interleave == 1 else f"{schedule}, {plan.interleave} chunks a stage"),
        ("recompute", plan.recompute),
        ("sharding", plan.sharding),
        ("precision", plan.precision),
        ("replicas agree", _agreement(plan)),
    ]
    degrees = (("context parallel", plan.context_parallel), ("expert parallel", plan.expert_parallel))
    rows += [(name, str(degree)) for name, degree in degrees if degree > 1]
    rows += [("expert tensor parallel", str(plan.expert_tensor_parallel))] if plan.expert_tensor_parallel else []
    rows += [("exchange of experts", "beside another micro-batch's work")] if plan.overlap_exchange else []
    rows += [("relay", f"{relay.source} -> {relay.destination} through {relay.via}") for relay in plan.relays]
    rows += [("compression", f"{pair.source} -> {pair.destination} as {pair.kind}") for pair in plan.compression]
    return tuple(rows)


def outer_text(sync: Sync) -> str:
    """``100 steps, in 8 fragments, 1 step late, in 4 bits``: what is usual is not said."""
    told = [count(sync.every, "step")]
    told += [f"in {sync.fragments} fragments"] if sync.fragments > 1 else []
    told += [f"{count(sync.delay, 'step')} late"] if sync.delay else []
    return ", ".join(told + ([f"in {sync.bits} bits"] if sync.bits else []))


def _agreement(plan: Plan) -> str:
    if plan.sync.method == "local_sgd":
        return f"local SGD, every {outer_text(plan.sync)}"
    held = ((layer, stage.domain) for line in plan.pipelines for stage in line.stages for layer in range(*stage.layers))
    spans = len(set(held)) > max(stage.layers[1] for line in plan.pipelines for stage in line.stages)
    ways = {"two-level": " on two levels", "ring": " around one ring"}
    return f"every step (all-reduce{ways[plan.sync.all_reduce] if spans else ''})"


def assumed_text(problem: Problem, *, domains: int) -> str:
    """What nobody measured of the runtime's time over that many domains, in a sentence; empty: nothing."""
    told = problem.rules.assumed if domains > 1 else ()
    return f"Assumed: {'; '.join(told)}." if told else ""


LONG_SEQUENCE = 32_768
"""Tokens from which on most would split a sequence over GPUs."""


def not_searched(problem: Problem) -> str:
    """What a plan might have that no planner looks for, where the model or its sequences call for it; else empty."""
    if problem.workload.seq < LONG_SEQUENCE or (problem.rules.context_parallel and problem.profile is None):
        return ""
    told = problem.rules.told if problem.profile is None else "the profile"
    able = " or ".join(name for name, rules in RUNTIMES.items() if rules.context_parallel and rules.name != "ideal")
    return f"Context parallelism is not searched: {told} has none (--runtime {able} has)."


def stage_name(stage: Stage) -> str:
    """``beijing, layers 0-23`` (the last layer named is inside)."""
    start, stop = stage.layers
    return f"{stage.domain}, " + (f"layer {start}" if stop - start == 1 else f"layers {start}-{stop - 1}")


def headline_figures(
    problem: Problem, plan: Plan, score: Score, *, in_one_place: bool = False
) -> tuple[tuple[str, str, str], ...]:
    """(name, value, remark) of the figures that head a report; ``in_one_place``: as of ``interval_of``."""
    egress = usd(score.egress_usd_per_step) + " egress" if score.egress_usd_per_step > 0 else "no egress"
    gpus = f"on {plan.gpus:,} of {problem.cluster.gpus:,} GPUs"
    memory = f"of {gb(problem.cluster.gpu.memory_bytes)} on the fullest GPU"
    all_domains = len(plan.domains) == len(problem.cluster.domains)
    spread = "all domains in use" if all_domains else f"{percent(score.utilization_all)} over all domains"
    tokens = f"{short_count(problem.workload.tokens_per_step)} tokens a step"
    found = interval_of(problem, plan, score.step_time_s, in_one_place=in_one_place)
    span = assumed_span(problem, plan)
    ends = () if span is None else (("as assumed", between(span.fast_s, span.slow_s), f"{span.fast}; {span.slow}"),)
    return (
        ("step time", seconds(score.step_time_s), tokens if found is None else f"({interval_text(found)}), {tokens}"),
        ("tokens/s", number(score.tokens_per_s), gpus),
        ("MFU", percent(score.mfu), "of the GPUs' peak"),
        ("domains busy", percent(score.utilization), spread),
        ("peak memory", f"{number(score.peak_memory_gb)} GB", memory),
        ("cost a step", usd(score.usd_per_step), egress),
        ("between domains", f"{number(score.cross_domain_gb_per_step)} GB", "sent each step"),
        *ends,
    )


def gap_text(gap: float | None) -> str:
    """A proven gap in a table cell; nothing proven is a dash."""
    if gap is None:
        return NOTHING
    return "0 %" if gap <= 0 else percent(gap) if gap >= LEAST_TOLD else f"< {percent(0.001)}"


def gap_sentence(
    problem: Problem, gap: float | None, lower_bound_s: float | None, prover: str = "", lead: str = ""
) -> str:
    """How far the optimum can be, who proved it (``lead``: a word before the name), and of
    which plans that says nothing."""
    if gap is None:
        return "Nothing is proven about the distance to the optimum."
    return _proof(gap, lower_bound_s, lead + prover if prover else "the planner") + wording.unknown_plans(
        problem, prover
    )


def _proof(gap: float, lower_bound_s: float | None, who: str) -> str:
    if gap <= 0:
        return f"Proven by {who}: no plan that it knows is quicker, by the cost model."
    if gap >= NOT_GOOD and lower_bound_s:
        found_s = lower_bound_s / (1.0 - gap)
        return f"At least {seconds(lower_bound_s)} by {who}'s bound, this plan {seconds(found_s)}: not proven good."
    bound = f" (none takes less than {seconds(lower_bound_s)})" if lower_bound_s else ""
    near = f"within {percent(gap)} of" if gap >= LEAST_TOLD else f"less than {percent(0.001)} from"
    return f"Proven by {who} to be {near} the best plan that it knows{bound}."


def ranked(rows: Sequence[PlannerRow]) -> list[PlannerRow]:
    """Rows with a score first, quickest first; ties and the rest in the order given."""
    return sorted(rows, key=lambda row: row.score.step_time_s if row.score else float("inf"))


def found_by(planner: str, rows: Sequence[PlannerRow], planning_s: float, reasons_s: float = 0.0) -> str:
    """Who found the plan and how long that took; of several planners, the time of all together too, and of reasons."""
    own_s = next((row.planning_s for row in rows if row.planner == planner), planning_s)
    asked = sum(1 for row in rows if row.planning_s > 0)
    together = f"; {asked} planners took {cpu_seconds(planning_s)} together" if asked > 1 else ""
    reasons = f"; its reasons took {cpu_seconds(reasons_s)}" if reasons_s > 0 else ""
    found = "Plan as given" if planner == GIVEN else f"Found by {planner} in {cpu_seconds(own_s)} of CPU"
    return f"{found}{together}{reasons}."


def arrows(text: str) -> str:
    """The same words with arrows as they are printed: ``a → b``, ``a ↔ b``."""
    return text.replace("<->", "↔").replace("->", "→")


def unbroken(text: str) -> str:
    """The same words with every number and its unit kept on one line (no-break spaces)."""
    return _NUMBER_AND_UNIT.sub("\u00a0", text)


_NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(?:%|s|ms|us|GB|MB|Gbit/s|tokens/s|USD|GPUs?|x)(?![\w/]))")


def short_count(quantity: float) -> str:
    """A large number in thousands, millions, billions or trillions: ``70.6 B``."""
    for least, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if quantity >= least:
            return f"{number(quantity / least)} {letter}"
    return number(quantity)


def cpu_seconds(value: float) -> str:
    """Planning time in a table cell: seconds with two decimals, so that a column lines up."""
    return f"{value:,.2f} s"


def versus(value: float, best: float) -> str:
    """``best`` for the best one, else how much more it is: ``+23 %`` or, from twice as much, ``x 3.4``."""
    if best <= 0 or value <= best * (1 + 5e-4):
        return "best"
    ratio = value / best
    return f"+{percent(ratio - 1)}" if ratio < 2 else f"x {number(ratio)}"
