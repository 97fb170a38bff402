"""Figures, links and plans as words: what reasons and summaries are written with."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite, isinf, log10

from hippo.plan.plan import Pipeline, Plan
from hippo.problem.problem import Problem
from hippo.problem.runtimes import tp_refusal
from hippo.score.interval import LEVEL, PrintedStep, StepInterval
from hippo.units import gbps_from_bytes_per_s

_SECONDS = ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (1e-6, "us", 1e6))


def number(value: float, digits: int = 3) -> str:
    """Three significant digits with thousands separated: ``31,200``, ``7.42``, ``0.00131``."""
    if value == 0 or isinf(value):
        return "0" if value == 0 else "unlimited"
    rounded = round(value, digits - 1 - floor(log10(abs(value))))
    places = digits - 1 - floor(log10(abs(rounded)))
    return f"{rounded:,.{max(places, 0)}f}" if places > 0 else f"{rounded:,.0f}"


def seconds(value: float, digits: int = 3) -> str:
    """Seconds in the unit that reads best: ``12.3 s``, ``45.0 ms``, ``17.0 us``."""
    for least, unit, factor in _SECONDS:
        if abs(value) >= least:
            return f"{number(value * factor, digits)} {unit}"
    return "0 s" if value == 0 else f"{number(value * 1e6)} us"


def duration(value_s: float) -> str:
    """A time span as one says it: ``45 s``, ``12 min``, ``3.2 h``, ``2.1 days``."""
    if not isfinite(value_s):
        return "for ever"
    for least, unit, size in ((172_800.0, "days", 86_400.0), (5_400.0, "h", 3_600.0), (120.0, "min", 60.0)):
        if value_s >= least:
            return f"{number(value_s / size, 2)} {unit}"
    return f"{value_s:.0f} s"


def between(low: float, high: float) -> str:
    """Two times with their unit, once where it is the same: ``101 to 124 s``."""
    first, last = seconds(low), seconds(high)
    return f"{first.rpartition(' ')[0] if first.split()[-1] == last.split()[-1] else first} to {last}"


def interval_text(found: StepInterval) -> str:
    """``90 %: 101 to 124 s``, and where nobody measured that they do ``if links fill``."""
    return f"{percent(LEVEL)}: {between(found.low_s, found.high_s)}{f' if {found.only_if}' if found.only_if else ''}"


def printed_text(step: PrintedStep) -> str:
    """``111 s (90 %: 101 to 124 s), 98 to 140 s as assumed``; what is not known is left out."""
    around = "" if step.interval is None else f" ({interval_text(step.interval)})"
    ends = "" if step.span is None else f", {between(step.span.fast_s, step.span.slow_s)} as assumed"
    return f"{seconds(step.step_time_s)}{around}{ends}"


def usd(amount: float) -> str:
    """US dollars: ``$1,234``, ``$13.10``, ``$0.02``, ``$0.0032``; below a cent three significant digits."""
    if amount == 0:
        return "$0"
    if abs(amount) < 0.1:
        return f"${number(amount).rstrip('0')}"
    return f"${amount:,.0f}" if abs(amount) >= 1000 else f"${amount:,.2f}"


def gbps(bytes_per_s: float) -> str:
    """A rate in Gbit/s."""
    return f"{number(gbps_from_bytes_per_s(bytes_per_s))} Gbit/s"


def percent(share: float) -> str:
    """A share in per cent: one decimal below ten, none above."""
    value = share * 100
    return f"{value:.1f} %" if abs(value) < 9.95 else f"{value:.0f} %"


def gb(num_bytes: float) -> str:
    """Bytes in GB (1e9)."""
    return f"{number(num_bytes / 1e9)} GB"


def capital(text: str) -> str:
    """The text with its first letter in upper case, the rest as it is."""
    return text[:1].upper() + text[1:]


def count(quantity: int, noun: str) -> str:
    """``1 domain``, ``3 domains``."""
    return f"{quantity:,} {noun}" if quantity == 1 else f"{quantity:,} {noun}s"


def listed(parts: Sequence[str], word: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return f" {word} ".join((", ".join(parts[:-1]), parts[-1])) if len(parts) > 1 else "".join(parts)


def unknown_plans(problem: Problem, prover: str) -> str:
    """Legal plans that no bound of ``prover`` covers although some planner may answer with them, as a sentence with a
    blank before it; empty: none such (``docs/planning.md`` lists its space whole)."""
    if prover != "exact":
        return ""
    several, rules, model = len(problem.cluster.domains) > 1, problem.rules, problem.model
    nodes = {domain.gpus_per_node for domain in problem.cluster.domains}
    odd = any(node % tp and tp_refusal(model, tp, rules) is None for node in nodes for tp in range(2, node))
    told = ["groups of unequal size"] if several else []
    told += [] if rules.uniform_tp_dp else ["unlike stages in a domain"]
    told += ["tensor parallelism that does not divide a node"] if odd else []
    return f" It knows no {listed(told, 'or')}." if told else ""


def joining(plan: Plan) -> str:
    """How the domains of the plan are joined, in a few words."""
    across = any(len(set(pipeline.domains)) > 1 for pipeline in plan.pipelines)
    replicated = len({pipeline.domains for pipeline in plan.pipelines}) > 1
    agree = "local SGD" if plan.sync.method == "local_sgd" else "data parallel"
    if len(plan.domains) == 1:
        return "one domain"
    if across and replicated:
        return f"{agree} between groups, pipeline inside each"
    return "pipeline across domains" if across else f"{agree} across domains"


Way = tuple[str, frozenset[str]]
"""How domains are joined (``joining``), and which."""


def way_of(plan: Plan) -> Way:
    """The way a plan joins domains: plans of one way are told as one, by the best of them."""
    return joining(plan), frozenset(plan.domains)


def described(plan: Plan) -> str:
    """The plan in one phrase: where, how joined, tp, dp, stages, cp and ep beyond 1, micro-batch."""
    where = " | ".join(dict.fromkeys(" -> ".join(pipeline.domains) for pipeline in plan.pipelines))
    extras = [f"micro-batch {plan.micro_batch}", f"{plan.schedule.name}", f"recompute {plan.recompute}"]
    if plan.sharding != "none":
        extras.append(f"sharding {plan.sharding}")
    if plan.overlap_exchange:
        extras.append("exchange overlapped")
    if plan.sync.method == "local_sgd":
        extras.append(f"agreeing every {plan.sync.every} steps")
    extras += [f"{relay.source} -> {relay.destination} through {relay.via}" for relay in plan.relays]
    return f"{joining(plan)}, {where}: {_degrees(plan)}, {', '.join(extras)}"


def _degrees(plan: Plan) -> str:
    parts = dict.fromkeys(_pipeline_degrees(pipeline) for pipeline in plan.pipelines)
    shared = (("cp", plan.context_parallel), ("ep", plan.expert_parallel))
    told = [f"{name} {degree}" for name, degree in shared if degree > 1]
    told += [f"etp {plan.expert_tensor_parallel}"] if plan.expert_tensor_parallel else []
    return ", ".join(["; ".join(parts), *told])


def _pipeline_degrees(pipeline: Pipeline) -> str:
    """``8 stages, tp 4, dp 2``, or the range where stages differ."""
    tp, dp = ({stage.tp for stage in pipeline.stages}, {stage.dp for stage in pipeline.stages})
    return f"{count(len(pipeline.stages), 'stage')}, tp {_span(tp)}, dp {_span(dp)}"


def _span(values: set[int]) -> str:
    return f"{min(values)}" if len(values) == 1 else f"{min(values)}-{max(values)}"
