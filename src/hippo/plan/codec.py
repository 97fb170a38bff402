"""Plan files: ``{"hippo_plan": 1, "problem": {...}, "pipelines": [...], ...}``; what was written is read the same.

The problem is embedded, so that a plan file can be explained, simulated and exported alone. Keys that do not apply may
be absent; unknown keys are refused. Whether the plan is a good one is asked elsewhere (``plan/check.py``).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hippo.errors import InputError
from hippo.files import json_text, read_text, write_whole
from hippo.plan.plan import (
    SYNC,
    Compression,
    Pipeline,
    Plan,
    Relay,
    ScheduleChoice,
    Stage,
    Sync,
)
from hippo.problem.cluster_yaml import PRECISIONS
from hippo.problem.codec import problem_from_document, problem_to_document
from hippo.problem.document import parse_json
from hippo.problem.problem import Problem
from hippo.problem.runtimes import ALL_REDUCE, MODULES, RECOMPUTE, SHARDING, is_recomputation
from hippo.problem.table import Table, open_table

VERSION = 1
STREAMED = ("fragments", "delay", "bits")

_TOP = (
    *("hippo_plan", "problem", "pipelines", "micro_batch", "precision", "recompute", "sharding", "sequence_parallel"),
    *("context_parallel", "expert_parallel", "expert_tensor_parallel", "overlap_exchange", "interleave", "schedule"),
    *("relays", "compression", "sync"),
)
_HINTS = {
    "version": "write hippo_plan: 1",
    "microbatch": "write micro_batch, in sequences",
    "micro_batch_size": "write micro_batch, in sequences",
    "num_micro_batches": "write num_micro_batches inside each pipeline",
    "stages": "write stages inside each pipeline",
    "global_batch": "the batch follows from num_micro_batches, micro_batch and dp; write it in problem.workload",
}


# -------------------------------------------------------------------------------------------------------------- writing
def plan_to_document(problem: Problem, plan: Plan) -> dict[str, Any]:
    """The plan file's document: JSON values only, every key written."""
    schedule: dict[str, Any] = {"name": plan.schedule.name}
    if plan.schedule.live_limit is not None:
        schedule["live_limit"] = plan.schedule.live_limit
    return {
        "hippo_plan": VERSION,
        "problem": problem_to_document(problem),
        "pipelines": [_pipeline_to_document(pipeline) for pipeline in plan.pipelines],
        "micro_batch": plan.micro_batch,
        "precision": plan.precision,
        "recompute": plan.recompute,
        "sharding": plan.sharding,
        "sequence_parallel": plan.sequence_parallel,
        "context_parallel": plan.context_parallel,
        "expert_parallel": plan.expert_parallel,
        "expert_tensor_parallel": plan.expert_tensor_parallel,
        "overlap_exchange": plan.overlap_exchange,
        "interleave": plan.interleave,
        "schedule": schedule,
        "relays": [{"from": relay.source, "to": relay.destination, "via": relay.via} for relay in plan.relays],
        "compression": [{"from": c.source, "to": c.destination, "kind": c.kind} for c in plan.compression],
        "sync": {"method": plan.sync.method, "every": plan.sync.every, "all_reduce": plan.sync.all_reduce}
        | {name: getattr(plan.sync, name) for name in STREAMED if getattr(plan.sync, name) != getattr(Sync(), name)},
    }


def _pipeline_to_document(pipeline: Pipeline) -> dict[str, Any]:
    stages = [
        {
            "domain": stage.domain,
            "layers": list(stage.layers),
            "tp": stage.tp,
            "dp": stage.dp,
            "devices": list(stage.devices),
        }
        for stage in pipeline.stages
    ]
    document = {"stages": stages, "num_micro_batches": pipeline.num_micro_batches}
    given = {"warm_up": list(pipeline.warm_up), "order": list(pipeline.order)}
    return document | {key: value for key, value in given.items() if value}


def save_plan(problem: Problem, plan: Plan, path: str | Path) -> None:
    """Write a plan file; it appears whole or not at all. ``InputError`` where it cannot be written."""
    write_whole(path, json_text(plan_to_document(problem, plan)))


# -------------------------------------------------------------------------------------------------------------- reading
def load_plan(path: str | Path) -> tuple[Problem, Plan]:
    """Problem and plan of a plan file, or of the saved answer of ``hippo plan --json``."""
    return plan_from_document(parse_json(read_text(path, what="plan file"), str(path)), source=str(path))


def plan_from_document(document: object, source: str) -> tuple[Problem, Plan]:
    """Problem and plan of a document; of an answer of ``hippo plan --json``, those under its key ``plan``.

    Raises
    ------
    InputError
        Another version, unknown or missing keys, wrong types or signs.
    """
    if isinstance(document, dict) and "hippo_plan" not in document and "plan" in document:
        if document["plan"] is None:
            remedy = "give an answer whose status is optimal or feasible"
            raise InputError("this answer holds no plan", source=source, key="plan", remedy=remedy)
        document = document["plan"]
    _check_version(document, source)
    table = open_table(document, source=source, known=_TOP, hints=_HINTS)
    asked = table.table("problem", known=None).values
    problem = problem_from_document(asked, source=source)
    plan = _plan(table, problem)
    if plan.compression and "allow_compression" not in asked:  # written before it had to be allowed
        problem = replace(problem, allow_compression=True)
    return problem, plan


def names_runtime(document: object) -> bool:
    """Whether a document that could be read says under which runtime its times hold: older ones do not."""
    assert isinstance(document, dict)
    return "runtime" in (document if "hippo_plan" in document else document["plan"])["problem"]


def _check_version(document: object, source: str) -> None:
    if not isinstance(document, dict) or "hippo_plan" not in document:
        remedy = "give a file that `hippo plan --out DIR` wrote (plan.json)"
        raise InputError("is not a plan file: it has no key 'hippo_plan'", source=source, remedy=remedy)
    version = document["hippo_plan"]
    if version != VERSION or isinstance(version, bool):
        remedy = f"make the plan anew; this hippo reads version {VERSION}"
        raise InputError(
            "unknown version of the plan file", source=source, key="hippo_plan", value=version, remedy=remedy
        )


def _recompute(table: Table) -> str:
    """A kind of recomputation, modules joined by ``+``, or ``full:`` and a number of blocks."""
    value = table.text("recompute", default="none")
    known = (*RECOMPUTE, "full:N", *MODULES)
    return value if is_recomputation(value) else str(table.choice("recompute", known, default="none"))


def _plan(table: Table, problem: Problem) -> Plan:
    known = ("stages", "num_micro_batches", "warm_up", "order")
    pipelines = tuple(_pipeline(row) for row in table.tables("pipelines", known=known, most=100_000))
    if not pipelines:
        table.refuse("pipelines", "is empty", "describe at least one pipeline")
    return Plan(
        pipelines=pipelines,
        micro_batch=table.integer("micro_batch"),
        precision=table.choice("precision", PRECISIONS, default="bf16"),
        recompute=_recompute(table),
        sharding=table.choice("sharding", SHARDING, default="none"),
        sequence_parallel=table.flag("sequence_parallel", default=True),
        context_parallel=table.integer("context_parallel", default=1),
        expert_parallel=table.integer("expert_parallel", default=1),
        expert_tensor_parallel=table.integer("expert_tensor_parallel", default=None),
        overlap_exchange=table.flag("overlap_exchange", default=False),
        interleave=table.integer("interleave", default=1),
        schedule=_schedule(table),
        relays=tuple(
            Relay(row.text("from"), row.text("to"), row.text("via"))
            for row in table.tables("relays", known=("from", "to", "via"), default=())
        ),
        compression=tuple(
            Compression(row.text("from"), row.text("to"), row.text("kind"))
            for row in table.tables("compression", known=("from", "to", "kind"), default=())
        ),
        sync=_sync(table, problem.all_reduce_with(table.choice("sharding", SHARDING, default="none"))),
    )


def _pipeline(row: Table) -> Pipeline:
    known = ("domain", "layers", "tp", "dp", "devices")
    stages = tuple(_stage(stage) for stage in row.tables("stages", known=known, most=100_000))
    if not stages:
        row.refuse("stages", "is empty", "describe at least one stage")
    return Pipeline(stages, row.integer("num_micro_batches"), _warm_up(row), _order(row))


def _warm_up(row: Table) -> tuple[int, ...]:
    values = row.items("warm_up", most=100_000) if row.has("warm_up") else ()
    whole = tuple(value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 0)
    if len(whole) != len(values):
        row.refuse("warm_up", "must be a list of positive integers", "write one number of waves per stage")
    return whole


def _order(row: Table) -> tuple[str, ...]:
    values = row.items("order", most=100_000) if row.has("order") else ()
    letters = tuple(value for value in values if isinstance(value, str) and value and not set(value) - set("FBW"))
    if len(letters) != len(values):
        row.refuse("order", "must be a list of letters F, B and W", "write one text per stage, for instance 'FFBWBW'")
    return letters


def _stage(row: Table) -> Stage:
    layers = row.items("layers", most=1_000_000)
    whole = [layer for layer in layers if isinstance(layer, int) and not isinstance(layer, bool)]
    if len(layers) != 2 or len(whole) != 2 or not 0 <= whole[0] < whole[1] <= 1_000_000:
        row.refuse("layers", "is not a range of layers", "write [start, stop] with 0 <= start < stop")
    devices = row.items("devices")
    if not all(isinstance(device, str) for device in devices):
        row.refuse("devices", "must be a list of names", "write them as 'domain/node/gpu'")
    return Stage(
        domain=row.text("domain"),
        layers=(whole[0], whole[1]),
        tp=row.integer("tp"),
        dp=row.integer("dp"),
        devices=tuple(device for device in devices if isinstance(device, str)),
    )


def _schedule(table: Table) -> ScheduleChoice:
    if not table.has("schedule"):
        return ScheduleChoice()
    row = table.table("schedule", known=("name", "live_limit"))
    return ScheduleChoice(row.text("name", default="1f1b"), row.integer("live_limit", default=None))


def _sync(table: Table, usual: str) -> Sync:
    """``usual``: how sums go where the file does not say it: as the problem's runtime has it."""
    if not table.has("sync"):
        return Sync(all_reduce=usual)
    row = table.table("sync", known=("method", "every", "all_reduce", *STREAMED))
    return Sync(
        row.choice("method", SYNC, default="allreduce"),
        row.integer("every", default=1),
        row.choice("all_reduce", ALL_REDUCE, default=usual),
        row.integer("fragments", default=1),
        row.integer("delay", default=0, least=0),
        row.integer("bits", default=0, least=0),
    )
