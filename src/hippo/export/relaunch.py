"""A run under somebody else's runtime goes on under another plan, from its own checkpoint: other cuts, tp, pp and
replicas.

What is done here: the checkpoint is held against the model (every block, every moment, whole files), and the new launch
is told to begin from all of it. No number has to be converted, as both runtimes cut what they load anew:

* torchtitan's checkpoints name every tensor by its layer in the whole model, moments of the optimizer too. (The moments
  of a fused projection lie whole beside its three weights, those of tied embeddings under one of two names:
  ``FusedQKVLinear`` and ``Decoder`` of torchtitan 0.3.) Where the number of data-parallel lanes changes, torchtitan
  cannot go on in its data set: that state is left out, and said.
* Megatron-LM's (``torch_dist``) stack the layers of the whole model, one tensor a kind of weight, or name each layer.
  Moments lie beside them in the same form where it was told ``--dist-ckpt-optim-fully-reshardable``, as every export
  tells it; else they are pieces of a flat buffer that fit the cuts under which they were written, and no other
  (``DistributedOptimizer.sharded_state_dict`` of Megatron Core 0.16).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from hippo.errors import InputError, UnknownNameError
from hippo.export import megatron, torchtitan
from hippo.export.base import Export
from hippo.export.stored import StoredState, newest, tracked
from hippo.export.torchrun import export_program
from hippo.plan.plan import Plan
from hippo.problem.model import Model
from hippo.problem.problem import Problem

OPTIMIZER, MOMENTS = "optimizer.state.", ("exp_avg", "exp_avg_sq")
DATA = "dataloader"
EMBEDDING, HEAD = "tok_embeddings.weight", "lm_head.weight"
_BLOCK = re.compile(r"layers\.(\d+)\.")
_TRAINED = re.compile(r".*\.(weight|bias|w\d_[A-Z]+)")  # the last: all experts of a block in one tensor
_APART = re.compile(r"(.*\.)w[qkv](\.\w+)")


class Relauncher(Protocol):
    """One function per runtime."""

    def __call__(self, old: Plan, problem: Problem, plan: Plan, checkpoint: Path) -> Export:
        """The launch under another plan; ``InputError`` for a checkpoint that does not fit."""
        ...


def relaunch(
    old: tuple[Problem, Plan], new: tuple[Problem, Plan], to: str, checkpoint: Path, *, source: str = "new"
) -> Export:
    """The files that let a run go on under another plan.

    Parameters
    ----------
    old, new
        The plan that ran, and the one to come, of one model and batch.
    to
        The runtime (``RELAUNCHERS``).
    checkpoint
        The folder in which the runtime left its checkpoints.
    source
        The file of the new plan, for messages.

    Raises
    ------
    InputError
        Another model or batch, a checkpoint that is broken or does not fit.
    InexpressibleError
        The runtime cannot run the new plan.
    """
    if to not in RELAUNCHERS:
        raise UnknownNameError("runtime", to[:60], RELAUNCHERS, source="--to")
    (before, then), (problem, plan) = old, new
    if before.model != problem.model or before.workload.seq != problem.workload.seq:
        remedy = "give two plans of one model and sequence length"
        raise InputError("is for another model", source=source, value=problem.model.name, remedy=remedy)
    if then.global_batch != plan.global_batch:
        remedy = "give two plans of one batch: a schedule of the learning rate counts steps of it"
        raise InputError("is for another batch", source=source, value=plan.global_batch, remedy=remedy)
    return RELAUNCHERS[to](then, problem, plan, checkpoint)


def _titan(old: Plan, problem: Problem, plan: Plan, checkpoint: Path) -> Export:
    found = newest(checkpoint)
    _check(found, problem.model)
    lanes = [sum(line.stages[0].dp for line in each.pipelines) for each in (old, plan)]
    dropped = (DATA,) if lanes[0] != lanes[1] else ()
    resume = torchtitan.Resume(str(found.folder), dropped)
    told = [f"Goes on after step {found.step} of {found.folder}: weights, both moments, the schedule of the rate."]
    if dropped:
        told.append(
            f"{lanes[0]} data-parallel lanes become {lanes[1]}: torchtitan cannot go on in its data set, which begins "
            "anew, at each restart of this launch too as long as its recipe names exclude_from_loading."
        )
    return export_program("torchrun", problem, plan, torchtitan.program(problem, plan, resume=resume, told=told))


def _check(found: StoredState, model: Model) -> None:
    """``InputError`` for a checkpoint of another model, or without what training needs to go on."""
    own = {name: shape for name, shape in found.shapes.items() if not name.startswith("optimizer.")}
    blocks = {int(match[1]) for name in own if (match := _BLOCK.match(name))}
    _check_model(found, model, blocks, own.get(EMBEDDING))
    lacking = [
        name
        for name, shape in _as_trained(found.shapes, tied=model.layers[-1].tied).items()
        if any(found.shapes.get(f"{OPTIMIZER}{name}.{moment}") != shape for moment in MOMENTS)
    ]
    if lacking:
        told = f"lacks moments of {len(lacking)} weights, such as {lacking[0]}"
        remedy = "give one that was saved whole (last_save_model_only=False), not for its weights alone"
        raise InputError(told, source=str(found.folder), remedy=remedy)


def _check_model(found: StoredState, model: Model, blocks: set[int], embedding: tuple[int, ...] | None) -> None:
    if blocks != set(range(model.num_blocks)):
        told = f"holds {len(blocks)} blocks, where {model.name} has {model.num_blocks}"
        raise InputError(told, source=str(found.folder), remedy="give the checkpoint of that model")
    if embedding is None or embedding[-1] != model.hidden:
        told = f"has embeddings {embedding}, where {model.name} is {model.hidden} wide"
        raise InputError(told, source=str(found.folder), remedy="give the checkpoint of that model")


def _as_trained(shapes: Mapping[str, tuple[int, ...]], *, tied: bool) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights under the names that the optimizer has for them."""
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        if name.startswith("optimizer.") or not _TRAINED.fullmatch(name) or (tied and name == HEAD):
            continue
        apart = _APART.fullmatch(name)
        fused = f"{apart[1]}wqkv{apart[2]}" if apart else ""
        if f"{OPTIMIZER}{fused}.{MOMENTS[0]}" in shapes:
            rows = found[fused][0] if fused in found else 0
            found[fused] = (rows + shape[0], *shape[1:])
        else:
            found[name] = shape
    return found


# ------------------------------------------------------------------------------------------------------- Megatron-LM
STACK, WORDS = "decoder.layers.", "embedding.word_embeddings.weight"
FLAT = "optimizer.distributed."
_OF_OPTIMIZER = re.compile(r"(chained_\d+\.)?optimizer\.")
_LEARNED = re.compile(r"(?!.*expert_bias).*(weight|bias)\d*")  # a router's bias is set by rule, and has no moments


def _megatron(old: Plan, problem: Problem, plan: Plan, checkpoint: Path) -> Export:
    found, model = tracked(checkpoint), problem.model
    own = {name: shape for name, shape in found.shapes.items() if not _OF_OPTIMIZER.match(name)}
    blocks: set[int] = set()
    for name, shape in own.items():
        if name.startswith(STACK):
            number = name.removeprefix(STACK).split(".", 1)[0]
            blocks |= {int(number)} if number.isdecimal() else set(range(shape[0]))
    _check_model(found, model, blocks, own.get(WORDS))
    source = str(found.folder)
    if (old.sharding == "none") != (plan.sharding == "none"):
        told = f"has an optimizer as of sharding '{old.sharding}', which Megatron-LM names otherwise"
        raise InputError(told, source=source, value=plan.sharding, remedy=f"give a plan with sharding {old.sharding}")
    if any(name.startswith(FLAT) for name in found.shapes):
        if _cuts(old) != _cuts(plan):
            told = "holds the optimizer's state in pieces that fit no other cuts, tp or pp"
            remedy = "go on under the old plan with --dist-ckpt-optim-fully-reshardable, save once, and relaunch then"
            raise InputError(told, source=source, remedy=remedy)
    else:
        state = {_OF_OPTIMIZER.sub("", name): shape for name, shape in found.shapes.items() if name not in own}
        learned = {name: shape for name, shape in own.items() if _LEARNED.fullmatch(name)}
        lacking = [
            name
            for name, shape in learned.items()
            if any(state.get(f"state.{moment}.{name}") != shape for moment in MOMENTS)
        ]
        if lacking:
            told = f"lacks moments of {len(lacking)} weights, such as {lacking[0]}"
            remedy = "give one that was saved with its optimizer (no --no-save-optim)"
            raise InputError(told, source=source, remedy=remedy)
    said = [
        f"Goes on after iteration {found.step} of {checkpoint}: weights, both moments, the schedule of the rate, the "
        "place in the data set. Restarts go on from what this launch saves there."
    ]
    if _cuts(old) != _cuts(plan):
        said.append("States of random numbers fit no other tp or pp: Megatron-LM begins them anew, so dropout differs.")
    launch = megatron.program(problem, plan)
    launch = replace(
        launch,
        blanks=tuple(blank for blank in launch.blanks if blank.name != megatron.CHECKPOINTS),
        environment={**launch.environment, megatron.CHECKPOINTS: str(checkpoint.resolve())},
        notes=(*said, *launch.notes),
    )
    return export_program("torchrun", problem, plan, launch)


def _cuts(plan: Plan) -> tuple[object, ...]:
    """All of a plan that says which rank of a replica holds which numbers."""
    stages = tuple((stage.layers, stage.tp) for stage in plan.pipelines[0].stages)
    return stages, plan.interleave, plan.expert_parallel, plan.expert_tensor_parallel


RELAUNCHERS: Mapping[str, Relauncher] = MappingProxyType({"torchtitan": _titan, "megatron": _megatron})
"""By the name of the runtime."""
