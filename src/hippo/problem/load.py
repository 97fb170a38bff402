"""From what a user names to a ``Problem``: files or catalogue names in, one checked value out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from hippo.errors import InputError, UnknownNameError
from hippo.files import MAX_TABLE_BYTES, read_text
from hippo.problem.catalogue import clusters, models
from hippo.problem.cluster import Cluster, Gpu
from hippo.problem.cluster_yaml import cluster_from_document
from hippo.problem.config_json import model_from_config
from hippo.problem.document import parse_json, parse_yaml
from hippo.problem.links import Trace
from hippo.problem.model import Model
from hippo.problem.objective import objective_from_text
from hippo.problem.outer_step import OuterStep, outer_step_from_text
from hippo.problem.problem import Problem, check_agrees, check_compresses
from hippo.problem.profile import Profile, check_profile, profile_from_document
from hippo.problem.routing import Routing, routing_from_value
from hippo.problem.runtimes import ALL_REDUCE, name_of, runtime_of, usual_runtime
from hippo.problem.trace_csv import trace_from_csv
from hippo.problem.workload import Workload, check_dispatcher_of

DEFAULT_SEQ = 4096
MAX_SEQ = 1 << 24
MAX_BATCH = 1_048_576
MOST_PLANNED = 256
"""Domains that one job is planned over: a site that is served may have more."""

_Found = TypeVar("_Found", Model, Cluster)


def load_problem(
    *,
    model: str | Path | Mapping[str, Any] | Model,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    objective: str = "time",
    global_batch: int = 1024,
    seq: int | None = None,
    precision: str | None = None,
    runtime: str = "auto",
    profile: str | Path | None = None,
    uniform_cuts: bool = False,
    allow_local_sgd: bool = False,
    allow_compression: bool = False,
    compression_worth: float | None = None,
    all_reduce: str = "auto",
    outer_step: str | None = None,
    routing: str | float | Path = "even",
    dispatcher: str = "alltoall",
    balance_delta: float | None = None,
    bandwidth_floor_gbps: float | None = None,
) -> Problem:
    """The problem that these files and names describe.

    Parameters
    ----------
    model, cluster
        A name of the catalogue, a file (``config.json`` or the folder that holds it; cluster YAML), a mapping of the
        same form as that file, or the value.
    objective
        ``time``, ``cost`` or three weights ``W1,W2,W3``.
    global_batch, seq
        Sequences per optimizer step; tokens per sequence (None: 4096, or the model's longest where that is less).
    precision
        None: the profile's, else bf16, else what the GPU has.
    runtime
        What runs the plan (``runtimes.RUNTIMES``): its limits are kept and its time is told. ``ideal``: none does;
        ``auto``: hippo's executor, or for a model that it cannot run Megatron-LM (torch with ``allow_local_sgd``).
    profile
        JSON of measured layers, which overrule formulas.
    uniform_cuts
        Only plans whose stages hold equally many blocks (differing by one where they do not divide).
    allow_local_sgd
        Whether plans may let replicas agree every H steps only, which changes the optimizer.
    allow_compression, compression_worth
        Whether plans may send activations and their gradients between domains in eight bits, which changes what is
        trained; what a token trained so is worth against one that is not (0 to 1), needed where work is counted.
    all_reduce
        How replicas of several domains sum: ``two-level``, ``ring``, or ``auto``: what sends less of what there is.
    outer_step
        Of local SGD: steps between two averages, fragments, steps late, bits (``"100,8,1,4"``).
    routing, dispatcher
        Of mixtures: how unevenly tokens go to experts (``even``; a number: the fullest rank's over the mean;
        ``power:A``; a JSON file with the tokens that each expert got) and what brings them there (``alltoall``,
        ``deepep``, ``hybridep``).
    balance_delta, bandwidth_floor_gbps
        Constraints: most relative spread of the domains' compute; slowest link that may be cut across.

    Raises
    ------
    InputError
        Anything that is wrong, with its file, key, value and remedy.
    """
    the_model, the_cluster = load_model(model), load_cluster(cluster)
    if (count := len(the_cluster.domains)) > MOST_PLANNED:
        told, remedy = f"has more than {MOST_PLANNED} domains, over which no job is planned", "leave some out"
        raise InputError(told, source=str(the_cluster.name), key="domains", value=count, remedy=remedy)
    measured = None if profile is None else load_profile(profile)
    if measured is not None:
        check_profile(measured, the_model, the_cluster.gpu, source=str(profile))
    work = _workload(the_model, the_cluster.gpu, measured, batch=global_batch, seq=seq, precision=precision)
    check_dispatcher_of(the_model, dispatcher, source="--dispatcher")
    software = replace(work.software, dispatcher=dispatcher)
    work = replace(work, software=software, routing=_routing(routing, the_model))
    usual = usual_runtime(the_model, work.seq, local_sgd=allow_local_sgd)
    runtime = usual if runtime == "auto" else name_of(runtime)
    if all_reduce not in ("auto", *ALL_REDUCE):
        raise UnknownNameError("all-reduce", str(all_reduce)[:60], ("auto", *ALL_REDUCE), source="--all-reduce")
    check_compresses(runtime_of(runtime), allow_compression)
    check_agrees(runtime_of(runtime), allow_local_sgd=allow_local_sgd, all_reduce=all_reduce)
    if outer_step is not None and not allow_local_sgd:
        raise InputError("is local SGD's", source="--outer-step", value=outer_step, remedy="add --allow-local-sgd")
    return Problem(
        model=the_model,
        cluster=the_cluster,
        workload=work,
        objective=objective_from_text(
            objective, balance_delta=balance_delta, bandwidth_floor_gbps=bandwidth_floor_gbps
        ),
        profile=measured,
        runtime=runtime,
        uniform_cuts=uniform_cuts,
        allow_local_sgd=allow_local_sgd,
        allow_compression=allow_compression,
        compression_worth=compression_worth,
        all_reduce=all_reduce,
        outer_step=OuterStep() if outer_step is None else outer_step_from_text(outer_step),
    )


def load_model(given: str | Path | Mapping[str, Any] | Model) -> Model:
    """A model of the catalogue, of a ``config.json`` (a folder stands for the one in it) or of such a mapping."""
    if isinstance(given, Model):
        return given
    if isinstance(given, Mapping):
        return model_from_config(dict(given), source="model", name=str(given.get("name_or_path") or "model"))
    if isinstance(given, Path):
        return _read_model(given)
    return _named_or_read(given, models.MODELS, models.ALIASES, _read_model, what="model")


def load_cluster(given: str | Path | Mapping[str, Any] | Cluster) -> Cluster:
    """A cluster of the catalogue, of a YAML file or of a mapping of its form."""
    if isinstance(given, Cluster):
        return given
    if isinstance(given, Mapping):
        return cluster_from_document(dict(given), source="cluster", name="cluster")
    if isinstance(given, Path):
        return _read_cluster(given)
    return _named_or_read(given, clusters.CLUSTERS, {}, _read_cluster, what="cluster")


def load_trace(path: str | Path, cluster: Cluster, *, complete: bool = False) -> Trace:
    """The network trace of a CSV file over the links of ``cluster``; ``complete``: each has a value from the start."""
    text = read_text(path, what="trace", limit_bytes=MAX_TABLE_BYTES)
    return trace_from_csv(text, cluster, source=str(path), complete=complete)


def load_profile(path: str | Path) -> Profile:
    """The measured layers of a JSON file."""
    return profile_from_document(parse_json(read_text(path, what="profile"), str(path)), source=str(path))


# ------------------------------------------------------------------------------------------------------- names or files
def _named_or_read(
    text: str,
    known: Mapping[str, _Found],
    aliases: Mapping[str, str],
    read: Callable[[Path], _Found],
    *,
    what: str,
) -> _Found:
    """A name of the table wins over a file of that name, not over a path; what is neither is an unknown name."""
    key = text.strip().lower()
    found, path = known.get(aliases.get(key, key)), Path(text)
    if found is not None and not (os.sep in text and os.path.exists(path)):
        return found
    if not key:
        raise InputError("is empty", source=f"--{what}", value=text, remedy="give a name of the catalogue or a file")
    hub = what == "model" and re.fullmatch(r"[\w-]+/[\w.-]+", text) and path.suffix.lower() != ".json"
    if hub and not os.path.exists(path):  # meta-llama/Llama-3.3-70B-Instruct
        other = ", or give the path of its config.json"
        name = path.name[:60].lower()
        raise UnknownNameError(what, name, known, source=f"--{what}", other=other, close=_nearest(name, known, aliases))
    if os.sep in text or path.suffix.lower() in (".json", ".yaml", ".yml") or os.path.exists(path):
        return read(path)
    raise UnknownNameError(what, text[:60], known, source=f"--{what}")


_VARIANT = re.compile(r"-(instruct|chat|base|thinking|it|pt|hf|fp8|bf16|original|v0\.\d|\d+k|\d{4})(?=-|$)")
"""What names on a hub say of weights: their model has the layers of the one without it."""


def _nearest(name: str, known: Iterable[str], aliases: Mapping[str, str]) -> list[str]:
    """Names of the table that a name on a hub may mean: of its model, else the closest in spelling."""
    plain = _VARIANT.sub("", name)
    spelt = {**aliases, **{each: each for each in known}}
    close = [plain] if plain in spelt else get_close_matches(plain, sorted(spelt), n=3)
    return list(dict.fromkeys(spelt[each] for each in close))


def _read_model(path: Path) -> Model:
    file = path / "config.json" if os.path.isdir(path) else path
    generic = file.stem.lower() in ("config", "")
    name = file.absolute().parent.name if generic else file.stem
    document = parse_json(read_text(file, what="model file"), str(file))
    return model_from_config(document, source=str(file), name=name or "model")


def _read_cluster(path: Path) -> Cluster:
    text = read_text(path, what="cluster file")
    document: Any = parse_json(text, str(path)) if path.suffix.lower() == ".json" else parse_yaml(text, str(path))
    return cluster_from_document(document, source=str(path), name=path.stem)


# ------------------------------------------------------------------------------------------------------------- workload
def _workload(
    model: Model, gpu: Gpu, profile: Profile | None, *, batch: int, seq: int | None, precision: str | None
) -> Workload:
    """Defaults filled in, every figure checked against the model and the GPU."""
    _whole("--global-batch", batch, MAX_BATCH)
    seq = min(DEFAULT_SEQ, model.max_seq) if seq is None else seq
    learned = model.layers[0].positions
    _whole("--seq", seq, MAX_SEQ)
    if learned and seq > learned:
        problem = f"exceeds the {learned} learned positions of {model.name}"
        raise InputError(problem, source="--seq", value=seq, remedy=f"write at most {learned}")
    precision = _precision(gpu, profile, precision)
    state = 16.0 if profile is None else profile.state_bytes_per_parameter
    return Workload(
        global_batch=batch,
        seq=seq,
        precision=precision,
        state_bytes_per_parameter=state,
        gradient_bytes_per_parameter=4.0 if precision == "fp32" else 2.0,
    )


def _routing(given: str | float | Path, model: Model) -> Routing:
    """A word, a number or a power law; anything else is the path of a file of counts, in which a list stands."""
    text = str(given).strip()
    value: str | float = text
    with suppress(ValueError):
        value = float(text)
    if not isinstance(value, str) or value == "even" or value.startswith("power:"):
        return routing_from_value(value, model, source="--routing")
    if os.sep not in text and not Path(text).suffix and not os.path.exists(text):
        return routing_from_value(text, model, source="--routing")  # refused, as no such word
    counts = parse_json(read_text(text, what="file of tokens that each expert got"), text)
    if not isinstance(counts, list):
        remedy = "write a JSON list, a number for each expert of the model"
        raise InputError("is no list of counts", source=text, value=counts, remedy=remedy)
    return routing_from_value(counts, model, source=text)


def _precision(gpu: Gpu, profile: Profile | None, wanted: str | None) -> str:
    """What the user asks for, if the GPU has it and the profile was measured in it; else the profile's, bf16, fp16."""
    usable = [name for name in gpu.peak_flops if name != "tf32"]
    if wanted is None:
        wanted = profile.precision if profile else next((p for p in ("bf16", "fp16", *usable) if p in usable), "bf16")
    if wanted not in usable:
        raise UnknownNameError(f"precision of {gpu.name}", str(wanted)[:60], usable, source="--precision")
    if profile and profile.precision != wanted:
        problem = f"the profile is measured in {profile.precision}"
        remedy = f"ask for {profile.precision}, or profile in {wanted}"
        raise InputError(problem, source="--precision", value=wanted, remedy=remedy)
    return wanted


def _whole(option: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        problem = "must be a positive whole number"
        raise InputError(problem, source=option, value=value, remedy=f"write a number from 1 to {most}")
