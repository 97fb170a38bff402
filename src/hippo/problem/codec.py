"""The problem as a document, so that a plan file stands alone. Reading what was written gives an equal value.

The cluster has the form of the cluster file, the profile that of the profile file; model, workload and objective hold
the fields of their types. Equal layers in a row are written once, with their ``count``. Model and cluster may also be
given by their catalogue names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from itertools import groupby
from types import MappingProxyType
from typing import Any, TypeVar

from hippo.errors import UnknownNameError
from hippo.problem.catalogue.clusters import CLUSTERS
from hippo.problem.catalogue.models import MODELS
from hippo.problem.cluster_yaml import PRECISIONS, cluster_from_document, cluster_to_document
from hippo.problem.config_json import MAX_BLOCKS
from hippo.problem.model import (
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    LayerKind,
    LinearAttention,
    Model,
)
from hippo.problem.objective import OBJECTIVES, Objective
from hippo.problem.outer_step import OuterStep
from hippo.problem.problem import Problem
from hippo.problem.profile import profile_from_document, profile_to_document
from hippo.problem.routing import routing_from_value
from hippo.problem.runtimes import ALL_REDUCE, OTHER_NAMES, RUNTIMES, TAKING_ORDERS
from hippo.problem.table import Table, open_table
from hippo.problem.workload import Software, Workload, check_dispatcher_of

_PROBLEM = tuple(field.name for field in fields(Problem))
_MODEL = tuple(field.name for field in fields(Model))
_Record = TypeVar("_Record")


# -------------------------------------------------------------------------------------------------------------- writing
def problem_to_document(problem: Problem) -> dict[str, object]:
    """The document of a problem: JSON values only."""
    document: dict[str, object] = {
        "model": _model_to_document(problem.model),
        "cluster": cluster_to_document(problem.cluster),
        "workload": {**_plain(problem.workload), "routing": problem.workload.routing.document()},
        "objective": _plain(problem.objective),
        "runtime": problem.runtime,
        "uniform_cuts": problem.uniform_cuts,
        "allow_local_sgd": problem.allow_local_sgd,
        "all_reduce": problem.all_reduce,
    }
    if problem.allow_compression:
        document["allow_compression"] = True
    if problem.outer_step != OuterStep():
        document["outer_step"] = _plain(problem.outer_step)
    if problem.compression_worth is not None:
        document["compression_worth"] = problem.compression_worth
    if problem.profile is not None:
        document["profile"] = profile_to_document(problem.profile)
    return document


def _model_to_document(model: Model) -> dict[str, object]:
    layers = [{"count": len(list(same)), **_sparse(layer)} for layer, same in groupby(model.layers)]
    sizes = {name: getattr(model, name) for name in ("name", "hidden", "vocab", "max_seq", "source")}
    return {**sizes, "layers": layers}


def _plain(record: Any) -> dict[str, Any]:
    """Fields of a dataclass that are not None; nested ones and enumerations as plain values."""
    document: dict[str, Any] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        plain = value.value if isinstance(value, Enum) else value
        if plain is not None:
            document[field.name] = _plain(plain) if is_dataclass(plain) else plain
    return document


def _sparse(record: Any) -> dict[str, Any]:
    """The same without the fields that hold their default."""
    usual = {field.name: field.default for field in fields(record)}
    document: dict[str, Any] = {}
    for name, plain in _plain(record).items():
        value = getattr(record, name)
        if value != usual[name]:
            document[name] = _sparse(value) if is_dataclass(value) else plain
    return document


# -------------------------------------------------------------------------------------------------------------- reading
def problem_from_document(document: object, *, source: str, place: str = "problem") -> Problem:
    """The problem of a document; ``InputError`` names what is wrong with it."""
    table = open_table(document, source=source, place=place, known=_PROBLEM)
    cluster = _named(table, "cluster", CLUSTERS) or cluster_from_document(
        table.table("cluster", known=None).values, source=f"{source}: {place}.cluster", name="cluster"
    )
    profile = None
    if table.has("profile"):
        profile = profile_from_document(table.values["profile"], source=f"{source}: {place}.profile")
    model = _named(table, "model", MODELS) or _model(table.table("model", known=_MODEL))
    return Problem(
        model=model,
        cluster=cluster,
        workload=_workload(table, model),
        objective=_objective(table) if table.has("objective") else Objective(),
        profile=profile,
        runtime=table.choice("runtime", (*RUNTIMES, *TAKING_ORDERS, *OTHER_NAMES), default="ideal"),
        uniform_cuts=table.flag("uniform_cuts", default=False),
        allow_local_sgd=table.flag("allow_local_sgd", default=False),
        allow_compression=table.flag("allow_compression", default=False),
        compression_worth=table.number("compression_worth", default=None),
        all_reduce=table.choice("all_reduce", ("auto", *ALL_REDUCE), default="auto"),
        outer_step=_outer_step(table),
    )


def _outer_step(table: Table) -> OuterStep:
    if not table.has("outer_step"):
        return OuterStep()
    row, usual = table.table("outer_step", known=[field.name for field in fields(OuterStep)]), OuterStep()
    return OuterStep(*(row.integer(each.name, default=getattr(usual, each.name), least=0) for each in fields(usual)))


def _named(table: Table, key: str, known: Mapping[str, _Record]) -> _Record | None:
    """What the catalogue holds under a name that stands in place of a description."""
    if not isinstance(table.values.get(key), str):
        return None
    name = table.text(key)
    if name not in known:
        raise UnknownNameError(key, name[:60], known, source=table.source, key=table.key(key))
    return known[name]


def _objective(table: Table) -> Objective:
    row = _open(table, "objective", Objective)
    row.choice("name", OBJECTIVES, default="time")
    return _record(row, Objective)


def _workload(table: Table, model: Model) -> Workload:
    """``routing_skew``, a number, is how files of before tell ``routing``."""
    row = table.table("workload", known=(*(field.name for field in fields(Workload)), "routing_skew"))
    row.choice("precision", PRECISIONS, default="bf16")
    for key in ("global_batch", "seq"):
        row.integer(key, default=1)
    software = _record(_open(row, "software", Software), Software) if row.has("software") else Software()
    check_dispatcher_of(model, software.dispatcher, source=row.source, key=row.key("software.dispatcher"))
    told = "routing_skew" if row.has("routing_skew") and not row.has("routing") else "routing"
    given = row.values[told] if row.has(told) else "even"
    routing = routing_from_value(given, model, source=row.source, key=row.key(told))
    return _record(row, Workload, software=software, routing=routing)


def _model(table: Table) -> Model:
    rows = table.tables("layers", known=("count", *(f.name for f in fields(Layer))), most=MAX_BLOCKS + 2)
    counts = [row.integer("count", default=1, most=MAX_BLOCKS) for row in rows]
    if sum(counts) > MAX_BLOCKS + 2:
        table.refuse("layers", f"hold {sum(counts)} layers", f"describe at most {MAX_BLOCKS + 2}", value=sum(counts))
    layers = tuple(layer for row, count in zip(rows, counts, strict=True) for layer in (_layer(row),) * count)
    model = _record(table, Model, layers=layers)
    kinds = [layer.kind for layer in layers]
    if kinds != [LayerKind.EMBEDDING, *[LayerKind.BLOCK] * (len(layers) - 2), LayerKind.HEAD] or len(layers) < 3:
        table.refuse("layers", "are not an embedding, blocks and a head", "list them in this order", value=len(layers))
    if any(layer.hidden != model.hidden for layer in layers):
        table.refuse("hidden", "is not the hidden size of every layer", "write the same size in all of them")
    return model


def _layer(row: Table) -> Layer:
    kind = LayerKind(row.choice("kind", tuple(kind.value for kind in LayerKind)))
    attention = _attention(row) if row.has("attention") else None
    feed_forward = _feed_forward(row) if row.has("feed_forward") else None
    if kind is LayerKind.BLOCK and attention is None and feed_forward is None:
        row.refuse("kind", "is block, without attention and feed_forward", "write both of them, or one")
    row.integer("hidden", most=1 << 24)
    return _record(row, Layer, kind=kind, attention=attention, feed_forward=feed_forward)


def _attention(row: Table) -> Attention:
    inner = _open(row, "attention", Attention)
    latent = _record(_open(inner, "latent", LatentAttention), LatentAttention) if inner.has("latent") else None
    linear = _record(_open(inner, "linear", LinearAttention), LinearAttention) if inner.has("linear") else None
    heads, groups = inner.integer("heads", most=1 << 20), inner.integer("kv_heads", most=1 << 20)
    if heads % groups:
        inner.refuse("kv_heads", f"does not divide heads ({heads})", f"write a divisor of {heads}")
    if inner.has("window"):
        inner.integer("window")
    return _record(inner, Attention, latent=latent, linear=linear)


def _feed_forward(row: Table) -> FeedForward:
    inner = _open(row, "feed_forward", FeedForward)
    experts = None
    if inner.has("experts"):
        mixture = _open(inner, "experts", Experts)
        count = mixture.integer("count", most=1 << 20)
        mixture.integer("per_token", most=count)
        experts = _record(mixture, Experts)
    return _record(inner, FeedForward, experts=experts)


def _open(table: Table, key: str, record: type) -> Table:
    return table.table(key, known=tuple(field.name for field in fields(record)))


# How a field of each type is read; the key is the annotation, the default the field's own.
_READ: Mapping[str, Callable[[Table, str, dict[str, Any]], Any]] = MappingProxyType(
    {
        "int": lambda table, name, extra: table.integer(name, least=0, **extra),
        "int | None": lambda table, name, extra: table.integer(name, least=0, **extra),
        "float": lambda table, name, extra: table.number(name, least=0.0, **extra),
        "float | None": lambda table, name, extra: table.number(name, least=0.0, **extra),
        "bool": lambda table, name, extra: table.flag(name, **extra),
        "str": lambda table, name, extra: table.text(name, **extra),
    }
)


def _record(table: Table, record: Callable[..., _Record], **given: object) -> _Record:
    """A dataclass whose plain fields are read from the table; ``given`` holds the others."""
    values = dict(given)
    for field in fields(record):  # type: ignore[arg-type]
        if field.name in values:
            continue
        optional = field.default is not MISSING
        if "None" in str(field.type) and not optional:
            values[field.name] = _READ[str(field.type)](table, field.name, {"default": None})
        else:
            extra = {"default": field.default} if optional else {}
            values[field.name] = _READ[str(field.type)](table, field.name, extra)
    return record(**values)
