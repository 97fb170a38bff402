"""What the terminal shows, as rich renderables; printing is the command line's. Nothing a user wrote is read as markup.

Tables, reasons and the plan begin with a blank line, so that views printed one after the other stand apart. Colour
only underlines what words already say: green best or proven, red infeasible, dim remarks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hippo.cost.stage import StageCost, StageMemory
from hippo.decide.decision import Decision, PlannerRow
from hippo.decide.reasons import Reason
from hippo.decide.wording import between, count, joining, number, percent, seconds
from hippo.plan.plan import Plan
from hippo.planners.base import Status
from hippo.problem.problem import Problem
from hippo.report.fitted import Column, FittedTable, Trimmed, column
from hippo.report.panels.reasons import reason_groups
from hippo.report.text import (
    NOTHING,
    assumed_text,
    cpu_seconds,
    found_by,
    gap_sentence,
    gap_text,
    headline_figures,
    not_searched,
    pipeline_lines,
    question_line,
    ranked,
    settings,
    usd,
    versus,
)
from hippo.score.interval import LEVEL, assumed_span
from hippo.score.judge import Judged
from hippo.score.score import Score

ROOM_FOR_LABELS = 80
"""Narrower terminals show reasons as a plain list."""

_STATUS_STYLE = {Status.OPTIMAL: "green", Status.FEASIBLE: "", Status.INFEASIBLE: "red"}


# ------------------------------------------------------------------------------------------------------------ plan
def plan_view(decision: Decision) -> RenderableType:
    """Headline of a decision: the question, the figures, the plan in one line per pipeline, how certain it is."""
    parts: list[RenderableType] = [question_view(decision.problem), Text()]
    if decision.plan is None or decision.score is None:
        return Group(*parts, Text("No plan fits.", style="bold red"), rejected_view(decision.rejected))
    certain = gap_sentence(decision.problem, decision.gap, decision.lower_bound_s, decision.prover)
    found = found_by(decision.planner, decision.rows, decision.planning_s)
    parts += [
        figures_view(decision.problem, decision.plan, decision.score),
        *_remarks(assumed_text(decision.problem, domains=len(decision.plan.domains))),
        Text(certain, style="green" if decision.gap == 0 else ""),
        *_remarks(not_searched(decision.problem)),
        *([Text(decision.cut_short)] if decision.cut_short else []),
        Text(found, style="dim"),
        layout_view(decision.plan),
    ]
    return Trimmed(Group(*parts))


def _remarks(*told: str) -> list[RenderableType]:
    """Sentences that are there, a dim line each."""
    return [Text(each, style="dim") for each in told if each]


def question_view(problem: Problem, *, runtime: bool = True) -> RenderableType:
    """The model and the cluster, and below what is asked; ``runtime``: and what runs it."""
    title = Text.assemble((problem.model.name, "bold"), " on ", (problem.cluster.name, "bold"))
    return Trimmed(Group(title, Text(question_line(problem, runtime=runtime), style="dim")))


def figures_view(problem: Problem, plan: Plan, score: Score, *, in_one_place: bool = False) -> RenderableType:
    """The headline figures, a line each: name, value, remark; ``in_one_place``: as of ``interval_of``."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(justify="right", style="bold", no_wrap=True)
    grid.add_column(style="dim")
    for name, value, remark in headline_figures(problem, plan, score, in_one_place=in_one_place):
        grid.add_row(Text(name), Text(value), Text(remark))
    return Trimmed(grid)


def layout_view(plan: Plan) -> RenderableType:
    """The plan in one line per pipeline, and its settings."""
    lines = [Padding(Text(line), (0, 0, 0, 2)) for line in pipeline_lines(plan)]
    told = ", ".join(f"{name} {value}" for name, value in settings(plan))
    return Trimmed(Group(Text(), Text("Plan", style="bold"), *lines, Padding(Text(told, style="dim"), (0, 0, 0, 2))))


def rejected_view(rejected: Mapping[str, int]) -> RenderableType:
    """Candidates turned down, by cause, most frequent first."""
    if not rejected:
        return Group()
    rows = sorted(rejected.items(), key=lambda item: (-item[1], item[0]))
    causes = column("turned down because of", (cause for cause, _ in rows), right=False)
    return FittedTable((causes, column("candidates", (f"{times:,}" for _, times in rows))))


# --------------------------------------------------------------------------------------------------------- reasons
def reasons_view(sentences: Sequence[str], *, title: str = "Why") -> RenderableType:
    """Reasons as a list of sentences; wrapped lines hang under the first."""
    if not sentences:
        return Group()
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=1, no_wrap=True)
    grid.add_column(overflow="fold")
    for sentence in sentences:
        grid.add_row(Text("-", style="dim"), Text(sentence))
    return Trimmed(Group(Text(), Text(title, style="bold"), grid))


def why_view(reasons: Sequence[Reason]) -> RenderableType:
    """Reasons under what they are about: labels on the left where there is room, else a plain list."""
    return _Why(tuple(reason_groups(reasons)))


def times_view(decision: Decision) -> RenderableType:
    """How long the plan took and how long its reasons."""
    if not decision.reasons_s:
        return Group()
    took = f"Planning took {cpu_seconds(decision.planning_s)} of CPU, the reasons {cpu_seconds(decision.reasons_s)}."
    return Group(Text(), Text(took, style="dim"))


@dataclass(frozen=True)
class _Why:
    groups: tuple[tuple[str, tuple[str, ...]], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width < ROOM_FOR_LABELS:
            yield reasons_view([sentence for _, sentences in self.groups for sentence in sentences])
            return
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for label, sentences in self.groups:
            for index, sentence in enumerate(sentences):
                grid.add_row(Text(label if index == 0 else ""), Text(sentence))
        yield from (Text(), Text("Why", style="bold"), Trimmed(grid))


# ------------------------------------------------------------------------------------------------------ comparison
def comparison_view(rows: Sequence[PlannerRow], *, best: str | None = None) -> RenderableType:
    """Planners side by side, quickest step first, those without a plan last with the reason below.

    ``best`` names the row printed bold; the quickest when it is None.
    """
    ordered = ranked(rows)
    shown = [row for row in ordered if row.score is not None]
    quickest = min((row.score.step_time_s for row in shown if row.score), default=0.0)
    names = [row.planner for row in ordered]
    highlight = names.index(best) if best in names else (0 if shown else None)
    table = FittedTable(
        (
            column("planner", (row.planner for row in ordered), right=False),
            column("status", (_status(row) for row in ordered), rank=5, right=False),
            column("step time", (_of(row, lambda s: seconds(s.step_time_s)) for row in ordered)),
            *_interval_column([row.best for row in ordered], rank=9),
            column("vs best", (_of(row, lambda s: versus(s.step_time_s, quickest)) for row in ordered), rank=1),
            column("busy", (_of(row, lambda s: percent(s.utilization)) for row in ordered), rank=3),
            column("MFU", (_of(row, lambda s: percent(s.mfu)) for row in ordered), rank=7),
            column("GPUs", (NOTHING if row.plan is None else f"{row.plan.gpus:,}" for row in ordered), rank=6),
            column("price/step", (_of(row, lambda s: usd(s.usd_per_step)) for row in ordered), rank=2),
            column("egress/step", (_of(row, lambda s: usd(s.egress_usd_per_step)) for row in ordered), rank=3),
            column("memory", (_of(row, lambda s: f"{number(s.peak_memory_gb)} GB") for row in ordered), rank=4),
            column("gap", (gap_text(row.gap) if row.score else NOTHING for row in ordered), rank=5),
            column("planning", (cpu_seconds(row.planning_s) for row in ordered), rank=8),
        ),
        highlight=highlight,
    )
    return Group(table, _without_plan(ordered), _cut_short(ordered))


def runtimes_view(decisions: Sequence[Decision]) -> RenderableType:
    """The best plan of each runtime side by side, and below what nobody measured of their times."""
    scores = [decision.score for decision in decisions]

    def told(tell: Callable[[Score], str]) -> list[str]:
        return [NOTHING if score is None else tell(score) for score in scores]

    plans = [decision.plan for decision in decisions]
    table = FittedTable(
        (
            column("runtime", (decision.problem.runtime for decision in decisions), right=False),
            column("which is", (decision.problem.rules.told for decision in decisions), rank=4, right=False),
            column("step time", told(lambda score: seconds(score.step_time_s))),
            *_interval_column([decision.judged for decision in decisions], rank=7),
            column("as assumed", map(_span_cell, decisions), rank=8),
            column("gap", (gap_text(decision.gap) if decision.plan else NOTHING for decision in decisions), rank=5),
            column("domains", (NOTHING if plan is None else str(len(plan.domains)) for plan in plans)),
            column("GPUs", (NOTHING if plan is None else f"{plan.gpus:,}" for plan in plans), rank=2),
            column("price/step", told(lambda score: usd(score.usd_per_step)), rank=1),
            column("egress/step", told(lambda score: usd(score.egress_usd_per_step)), rank=3),
            column("plan", (NOTHING if plan is None else joining(plan) for plan in plans), rank=6, right=False),
        )
    )
    assumed = [f"{each.problem.runtime}: {one}" for each in decisions for one in each.problem.rules.assumed]
    cut = [f"{each.problem.runtime}: {each.cut_short}" for each in decisions if each.cut_short]
    return Group(table, reasons_view(assumed, title="Assumed"), reasons_view(cut, title="Not to the end"))


def _interval_column(rows: Sequence[Judged | None], *, rank: int) -> list[Column]:
    """Between what measured steps are expected to lie; no column where no step has an interval."""
    found = [None if best is None else best.interval for best in rows]
    told = [NOTHING if each is None else between(each.low_s, each.high_s) for each in found]
    return [column(percent(LEVEL), told, rank=rank)] if any(found) else []


def _span_cell(decision: Decision) -> str:
    found = None if decision.plan is None else assumed_span(decision.problem, decision.plan)
    return NOTHING if found is None else between(found.fast_s, found.slow_s)


def _of(row: PlannerRow, tell: Callable[[Score], str]) -> str:
    return NOTHING if row.score is None or row.plan is None else tell(row.score)


def _status(row: PlannerRow) -> Text:
    if row.dropped is not None:
        return Text("dropped", style="red")
    return Text(row.status.value, style=_STATUS_STYLE[row.status])


def _cut_short(rows: Sequence[PlannerRow]) -> RenderableType:
    return reasons_view([f"{row.planner}: {row.cut_short}" for row in rows if row.cut_short], title="Not to the end")


def _without_plan(rows: Sequence[PlannerRow]) -> RenderableType:
    told = [(row.planner, row.dropped or " ".join(row.notes)) for row in rows if row.score is None]
    return reasons_view([f"{name}: {why}" for name, why in told if why], title="Without a plan")


# ---------------------------------------------------------------------------------------------------------- pareto
NEAR = 0.01
"""Plans of a front as near as that to a row, in time and egress of its own and in utilisation of one, have none."""


def _apart(points: Sequence[tuple[Plan, Score]]) -> list[tuple[Plan, Score]]:
    """Of a front, quickest first, its ends (the quickest, the cheapest, the busiest) and the first of those that lie
    near each other."""

    def near(one: Score, two: Score) -> bool:
        return (
            abs(one.step_time_s - two.step_time_s) <= NEAR * two.step_time_s
            and abs(one.utilization - two.utilization) <= NEAR
            and abs(one.egress_usd_per_step - two.egress_usd_per_step) <= NEAR * two.egress_usd_per_step
        )

    scores = [score for _, score in points]
    cheapest = min(range(len(scores)), key=lambda at: scores[at].egress_usd_per_step, default=0)
    busiest = max(range(len(scores)), key=lambda at: scores[at].utilization, default=0)
    kept = {0, cheapest, busiest} if points else set[int]()
    for at, score in enumerate(scores):
        if not any(near(score, scores[other]) for other in kept):
            kept.add(at)
    return [points[at] for at in sorted(kept)]


def front_view(
    points: Sequence[tuple[Plan, Score]], *, hypervolume: float | None = None, cut_short: str = ""
) -> RenderableType:
    """Plans that none beats in step time, utilisation and egress together, quickest first, without those that
    a row is as good as for whoever chooses; ``cut_short``: a sentence where a limit ended the search."""
    ordered = _apart(sorted(points, key=lambda point: point[1].step_time_s))
    scores = [score for _, score in ordered]
    table = FittedTable(
        (
            column("step time", (seconds(score.step_time_s) for score in scores)),
            column("busy", (percent(score.utilization) for score in scores)),
            column("egress/step", (usd(score.egress_usd_per_step) for score in scores)),
            column("price/step", (usd(score.usd_per_step) for score in scores), rank=1),
            column("tokens/s", (number(score.tokens_per_s) for score in scores), rank=4),
            column("GPUs", (f"{plan.gpus:,}" for plan, _ in ordered), rank=2),
            column("plan", (Text("\n".join(pipeline_lines(plan))) for plan, _ in ordered), right=False, wraps=True),
        )
    )
    told = f"{count(len(points), 'plan')} on the front"
    if len(ordered) < len(points):
        told += f", {len(points) - len(ordered)} of them within {percent(NEAR)} of a row in all three (--json has them)"
    if hypervolume is not None:
        told += f", hypervolume {number(hypervolume)} of the box up to the baseline plan"
        if hypervolume == 0:
            told += ": none is better than it in time, utilisation and egress at once"
    return Trimmed(Group(table, Text(told, style="dim"), *([Text(cut_short)] if cut_short else [])))


# -------------------------------------------------------------------------------------------------------- simulate
def simulation_view(document: Mapping[str, object]) -> RenderableType:
    """A played plan: the ``simulate --json`` document (step time, its spread, per domain and per link)."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(justify="right", style="bold", no_wrap=True)
    grid.add_column(style="dim")
    names = (("step_time_s", "step time"), ("mean_s", "mean"), ("p50_s", "median"), ("p95_s", "95th percentile"))
    for key, name in names:
        value = document.get(key)
        if isinstance(value, int | float):
            grid.add_row(name, seconds(float(value)), _interval_remark(document) if key == "step_time_s" else "")
    span, ends = document.get("assumed_span_s"), document.get("assumed_span_of")
    if isinstance(span, list) and isinstance(ends, list):
        grid.add_row("as assumed", between(*map(float, span)), "; ".join(map(str, ends)))
    parts: list[RenderableType] = [grid]
    parts += _pairs(document.get("utilization"), "domain", "busy", percent)
    parts += _pairs(document.get("gb_per_step"), "link", "GB a step", number)
    parts += [_dispatched(document)] if "dispatch" in document else []
    return Trimmed(Group(*parts))


def _interval_remark(document: Mapping[str, object]) -> str:
    """``(90 %: 101 to 124 s if links fill)`` of a document with an interval; else empty."""
    ends, of = document.get("step_time_interval_s"), document.get("interval_of")
    if not isinstance(ends, list) or not isinstance(of, Mapping):
        return ""
    only_if = f" if {of['only_if']}" if of["only_if"] else ""
    return f"({percent(LEVEL)}: {between(*map(float, ends))}{only_if})"


def _dispatched(document: Mapping[str, Any]) -> RenderableType:
    """Pipelines played alone: by the dispatcher, and in the plan's order on the same draws."""
    from hippo.dispatch.guard import POLICY, SHIPPED, why_base

    rows = document["dispatch"]["pipelines"]
    bases = {row["pipelines"][0]: row["followed"] for row in rows if row.get("followed", POLICY) != POLICY}
    who = {SHIPPED if each == SHIPPED else "its base" for each in bases.values()}
    learned = f"by {' or '.join(sorted(who | ({'the policy'} if len(bases) < len(rows) else set())))}"
    runs = {"fixed": "in its order", "hint": "as a hint"}.get(document["dispatch"]["by"], learned)
    table = FittedTable(
        (
            column("pipeline", (", ".join(str(1 + each) for each in row["pipelines"]) for row in rows)),
            column(runs, (seconds(row["mean_s"]) for row in rows)),
            column("95 of 100 under", (seconds(row["p95_s"]) for row in rows), rank=1),
            column("plan's order kept", (seconds(row["in_order_mean_s"]) for row in rows)),
            column("95 of 100 under", (seconds(row["in_order_p95_s"]) for row in rows), rank=2),
            column("shortest possible", (seconds(row["floor_s"]) for row in rows), rank=3),
        ),
        title=f"{document['samples']:,} plays at +-{document['fluctuation']:.0%}, mean",
    )
    return Group(table, reasons_view([f"pipeline {1 + each}: {why_base(name)}" for each, name in bases.items()]))


def _pairs(values: object, what: str, header: str, tell: Callable[[float], str]) -> list[RenderableType]:
    if not isinstance(values, Mapping) or not values:
        return []
    figures = column(header, (tell(float(value)) for value in values.values()))
    return [FittedTable((column(what, map(str, values), right=False), figures))]


# -------------------------------------------------------------------------------------------------------- estimate
def stages_view(plan: Plan, costs: Sequence[StageCost]) -> RenderableType:
    """Seconds of every stage per micro-batch and per step, in pipeline order."""
    stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
    return FittedTable(
        (
            column("stage", (str(index) for index in range(1, len(costs) + 1))),
            column("domain", (stage.domain for stage in stages), rank=5, right=False),
            column("layers", (f"{stage.layers[0]}-{stage.layers[1] - 1}" for stage in stages), rank=6),
            column("forward", (seconds(cost.forward_s) for cost in costs)),
            column("backward", (seconds(cost.backward_s) for cost in costs)),
            column("weights", (seconds(cost.weight_gradient_s) for cost in costs)),
            column("of it comm.", (seconds(cost.tp_s) for cost in costs), rank=2),
            column("sync/step", (seconds(cost.sync_s) for cost in costs), rank=3),
            column("optimizer/step", (seconds(cost.optimizer_s) for cost in costs), rank=4),
        ),
        title="Time per micro-batch",
    )


def memory_view(plan: Plan, memory: Sequence[StageMemory], *, gpu_bytes: float) -> RenderableType:
    """Peak memory of every stage by what fills it, against one GPU's, in pipeline order."""
    stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
    peaks = [Text(_gb(item.peak_bytes), style="red" if item.peak_bytes > gpu_bytes else "bold") for item in memory]
    return FittedTable(
        (
            column("stage", (str(index) for index in range(1, len(memory) + 1))),
            column("domain", (stage.domain for stage in stages), rank=6, right=False),
            column("weights", (_gb(item.weights_bytes) for item in memory), rank=1),
            column("gradients", (_gb(item.gradients_bytes) for item in memory), rank=2),
            column("optimizer", (_gb(item.optimizer_bytes) for item in memory), rank=1),
            column("activations", (_gb(item.activation_bytes * item.live_micro_batches) for item in memory), rank=1),
            column("live", (f"{item.live_micro_batches:g}" for item in memory), rank=5),
            column("workspace", (_gb(item.workspace_bytes) for item in memory), rank=3),
            column("reserved", (_gb(item.reserved_bytes) for item in memory), rank=4),
            column("peak GB", peaks),
            column("of GPU", (percent(item.peak_bytes / gpu_bytes) for item in memory)),
        ),
        title="Peak memory of the fullest GPU of each stage, GB",
    )


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:,.1f}"


# -------------------------------------------------------------------------------------------------------- validate
def validation_view(document: Mapping[str, object]) -> RenderableType:
    """Errors per family and overall, and what was not read: the ``validate --json`` document."""
    families = document.get("families")
    named = list(families.items()) if isinstance(families, Mapping) else []
    beside = [(f"shown {name}", document[name]) for name in ("apart", "together") if name in document]
    chunks = document.get("chunks")
    several = [each for each in chunks.items() if not each[0].isdigit()] if isinstance(chunks, Mapping) else []
    rows = [*named, *several, *beside, ("overall", document.get("overall"))]
    figures = [(str(name), values) for name, values in rows if isinstance(values, Mapping)]
    table = FittedTable(
        (
            column("family", (name for name, _ in figures), right=False),
            column("rows", (_cell(values, "n", lambda n: f"{n:,.0f}") for _, values in figures)),
            column("refused", (_cell(values, "refused", lambda n: f"{n:,.0f}") for _, values in figures), rank=3),
            column("MAPE", (_cell(values, "mape", percent) for _, values in figures)),
            column("median", (_cell(values, "median", percent) for _, values in figures)),
            column("bias", (_cell(values, "bias", _signed) for _, values in figures), rank=2),
            column("worst", (_cell(values, "worst", _signed) for _, values in figures), rank=4),
            column("pairs right", (_cell(values, "pairs_right", percent) for _, values in figures), rank=1),
            column("clear ones", (_cell(values, "clear_pairs_right", percent) for _, values in figures), rank=5),
        ),
        title="Step time against published rows",
        highlight=len(figures) - 1 if figures else None,
    )
    memory = document.get("memory")
    peaks = [_peaks(memory)] if isinstance(memory, Mapping) and memory else []
    kernels = document.get("kernels")
    below = [_kernels_table(kernels)] if isinstance(kernels, list) and kernels else []
    return Group(table, *peaks, *below, *(Text(line) for line in unread(document)))


def _peaks(memory: Mapping[str, Any]) -> RenderableType:
    """Errors of peak memory by family and overall, and what is said of runs that had enough or had not."""
    rows = [*memory["families"].items(), ("overall", memory)]
    table = FittedTable(
        (
            column("family", (name for name, _ in rows), right=False),
            column("rows", (_cell(values, "n", lambda n: f"{n:,.0f}") for _, values in rows)),
            column("refused", (_cell(values, "refused", lambda n: f"{n:,.0f}") for _, values in rows), rank=3),
            column("mean error", (_cell(values, "mape", percent) for _, values in rows)),
            column("90th pct.", (_cell(values, "p90", percent) for _, values in rows), rank=2),
            column("bias", (_cell(values, "bias", _signed) for _, values in rows), rank=4),
            column("worst", (_cell(values, "worst", _signed) for _, values in rows), rank=5),
            column("ran, called out", (f"{values['called_out']} of {values['ran']}" for _, values in rows), rank=1),
        ),
        title="Peak memory against published rows",
        highlight=len(rows) - 1,
    )
    told = (
        f"of {memory['ran']:,} runs that had enough memory {memory['called_out']:,} are said to have had too little; "
        f"of {memory['out_of_memory']:,} that ran out {memory['out_of_memory_seen']:,} were seen; "
        f"of {memory['four_times']:,} that took 60 % of a GPU or more {memory['four_times_seen']:,} are said to run "
        "out with four times the micro-batch"
    )
    return Group(table, Text(told))


def _kernels_table(kernels: list[dict[str, object]]) -> RenderableType:
    """Errors of measured kernels by sort, GPU and group, where there are any."""
    told = [each for each in kernels if each["n"]]
    return FittedTable(
        (
            column("kernels", (str(each["kind"]) for each in told), right=False),
            column("GPU", (str(each["gpu"]) for each in told), right=False),
            column("group", (str(each["group"]) for each in told), right=False),
            column("rows", (_cell(each, "n", lambda n: f"{n:,.0f}") for each in told)),
            column("median error", (_cell(each, "median", percent) for each in told)),
            column("bias", (_cell(each, "bias", _signed) for each in told), rank=2),
            column("by table", (_cell(each, "by_table", percent) for each in told), rank=1),
            column("left out", (_cell(each, "left_out", lambda n: f"{n:,.0f}") for each in told), rank=3),
        ),
        title="Measured kernels",
    )


def unread(document: Mapping[str, object]) -> list[str]:
    """Sentences on what of the files was refused, not read, or not there: the ``validate --json`` document."""
    rows, unknown, skipped = document.get("rows"), document.get("unknown_columns"), document.get("skipped_files")
    refused = Counter(str(row["refused"]) for row in rows if row.get("refused")) if isinstance(rows, list) else {}
    lines = [f"refused, {count(times, 'row')}: {reason}" for reason, times in refused.items()]
    if isinstance(unknown, Mapping):
        lines += [f"not read, {count(int(times), 'row')}: column {key}" for key, times in unknown.items()]
    if isinstance(skipped, list):
        lines += [f"skipped, not there: {path}" for path in skipped]
    kernels, left = document.get("kernels"), Counter[str]()
    for each in kernels if isinstance(kernels, list) else ():
        if each["left_out"]:
            left[f"{each['kind']} on {each['gpu']}: {each['why']}"] += each["left_out"]
    return lines + [f"kernels left out, {count(times, 'row')}: {reason}" for reason, times in left.items()]


def _cell(values: Mapping[str, object], key: str, tell: Callable[[float], str]) -> str:
    value = values.get(key)
    return tell(float(value)) if isinstance(value, int | float) and isfinite(value) else NOTHING


def _signed(share: float) -> str:
    return ("+" if share >= 0 else "-") + percent(abs(share))
