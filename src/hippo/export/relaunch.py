"""A run of torchtitan goes on under another plan, from its own checkpoint: other cuts, tp, pp and replicas.

torchtitan's checkpoints name every tensor by its layer in the whole model, moments of the optimizer too, and are cut
anew as they are loaded; so no number has to be converted. (The moments of a fused projection lie whole beside its three
weights, those of tied embeddings under one of two names: ``FusedQKVLinear`` and ``Decoder`` of torchtitan 0.3.) What is
done here: the checkpoint is held against the model (every block, every moment, whole files), and the new launch is told
to begin from all of it. Where the number of data-parallel lanes changes, torchtitan cannot go on in its data set: that
state is left out, and said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from hippo.errors import InputError, UnknownNameError
from hippo.export import torchtitan
from hippo.export.base import Export
from hippo.export.stored import StoredState, newest
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
    if blocks != set(range(model.num_blocks)):
        told = f"holds {len(blocks)} blocks, where {model.name} has {model.num_blocks}"
        raise InputError(told, source=str(found.folder), remedy="give the checkpoint of that model")
    embedding = own.get(EMBEDDING)
    if embedding is None or embedding[-1] != model.hidden:
        told = f"has embeddings {embedding}, where {model.name} is {model.hidden} wide"
        raise InputError(told, source=str(found.folder), remedy="give the checkpoint of that model")
    lacking = [
        name
        for name, shape in _as_trained(found.shapes, tied=model.layers[-1].tied).items()
        if any(found.shapes.get(f"{OPTIMIZER}{name}.{moment}") != shape for moment in MOMENTS)
    ]
    if lacking:
        told = f"lacks moments of {len(lacking)} weights, such as {lacking[0]}"
        remedy = "give one that was saved whole (last_save_model_only=False), not for its weights alone"
        raise InputError(told, source=str(found.folder), remedy=remedy)


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


RELAUNCHERS: Mapping[str, Relauncher] = MappingProxyType({"torchtitan": _titan})
"""By the name of the runtime."""
