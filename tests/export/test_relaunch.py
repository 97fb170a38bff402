"""A run of torchtitan goes on under another plan: its checkpoint is held against the model, and all of it is loaded.

Checkpoints here are written and read by torch's own ``distributed.checkpoint``, named as torchtitan 0.3 names them: a
weight by its place in the whole model, a moment ``optimizer.state.WEIGHT.exp_avg``.
"""

from __future__ import annotations

import ast
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from tests.run.worlds import LLAMA, SEQ, pipelines, problem

from hippo.errors import InexpressibleError, InputError
from hippo.export import stored
from hippo.export.relaunch import relaunch
from hippo.plan.plan import Plan
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem

from .conftest import Asked

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # of one process, as it is meant
OLD = Plan(pipelines((4, [("a", 0, 3, 1, 1), ("b", 3, 6, 1, 1)])), 2)
NEW = Plan(pipelines((4, [("a", 0, 2, 2, 1), ("b", 2, 6, 2, 1)])), 2)
WIDER = Plan(pipelines((2, [("a", 0, 6, 2, 2)])), 2)
WEIGHTS = ("attention.wq.weight", "feed_forward.w1.weight", "attention_norm.weight")


def world() -> Problem:
    return replace(problem(LLAMA), runtime="torch")


def asked(plan: Plan) -> tuple[Problem, Plan]:
    return world(), plan


def names(blocks: range, *, first: bool = True, last: bool = True) -> list[str]:
    """Weights of a part of the model."""
    own = [f"layers.{block}.{name}" for block in blocks for name in WEIGHTS]
    return [*(["tok_embeddings.weight"] if first else []), *own, *(["norm.weight"] if last else [])]


def state(weights: list[str], *, moments: bool = True) -> dict[str, Any]:
    """As torchtitan hands it to torch: weights at the root, moments by weight; numbers by name."""

    def numbers(name: str) -> torch.Tensor:
        generator = torch.Generator().manual_seed(sum(map(ord, name)))
        return torch.randn(61 if name.startswith("tok") else 4, LLAMA.hidden, generator=generator)

    found: dict[str, Any] = {name: numbers(name) for name in weights}
    optimizer = {f"state.{name}.{key}": numbers(name + key) for name in weights for key in ("exp_avg", "exp_avg_sq")}
    groups = {f"param_groups.{name}.lr": 1e-3 for name in weights}
    return found | ({"optimizer": optimizer | groups} if moments else {}) | {"train_state": {"step": 7}}


def saved(place: Path, step: int, what: Mapping[str, Any]) -> Path:
    folder = place / f"step-{step}"
    dcp.save(dict(what), checkpoint_id=folder, no_dist=True)
    return folder


def loading(files: Mapping[str, str | bytes]) -> dict[str, Any]:
    """What the recipe says of its checkpoint, read as Python."""
    (recipe,) = (text for name, text in files.items() if name.endswith("hippo_recipe.py"))
    call = next(
        node
        for node in ast.walk(ast.parse(recipe))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "CheckpointManager.Config"
    )
    return {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg and each.arg != "interval"}


def test_the_new_launch_begins_from_all_of_the_newest_checkpoint(tmp_path: Path):
    saved(tmp_path, 7, state(names(range(4))))
    newest = saved(tmp_path, 20, state(names(range(4))))
    (tmp_path / "step-30").mkdir()  # was being written
    found = relaunch(asked(OLD), asked(NEW), "torchtitan", tmp_path)
    assert loading(found.files) == {
        "enable": True,
        "last_save_model_only": False,
        "initial_load_path": str(newest),
        "initial_load_model_only": False,
        "exclude_from_loading": [],
    }
    assert "Goes on after step 20" in " ".join(found.notes)


def test_where_lanes_change_the_data_set_begins_anew_and_that_is_said(tmp_path: Path):
    saved(tmp_path, 7, state(names(range(4))))
    found = relaunch(asked(OLD), asked(WIDER), "torchtitan", tmp_path)
    assert loading(found.files)["exclude_from_loading"] == ["dataloader"]
    assert "1 data-parallel lanes become 2" in " ".join(found.notes)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (state(names(range(3))), "holds 3 blocks, where tiny-llama has 4"),
        (state(names(range(4), first=False)), "has embeddings None"),
        (state(names(range(4)), moments=False), "lacks moments of 14 weights, such as"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(what: dict[str, Any], told: str, tmp_path: Path):
    saved(tmp_path, 7, what)
    with pytest.raises(InputError, match=told) as error:
        relaunch(asked(OLD), asked(NEW), "torchtitan", tmp_path)
    assert "To fix: give" in str(error.value)


def fused(*, rows: int) -> dict[str, Any]:
    """Query, key and value of each block are four rows each, trained as one projection of so many."""
    found = state(names(range(4)))
    optimizer = found["optimizer"]
    for name in [name for name in found if name.endswith("attention.wq.weight")]:
        block = name.removesuffix("wq.weight")
        found |= {f"{block}{each}.weight": torch.zeros(4, LLAMA.hidden) for each in ("wk", "wv")}
        for moment in ("exp_avg", "exp_avg_sq"):
            del optimizer[f"state.{name}.{moment}"]
            optimizer[f"state.{block}wqkv.weight.{moment}"] = torch.zeros(rows, LLAMA.hidden)
    return found


def test_a_fused_projection_has_its_moments_under_one_name(tmp_path: Path):
    saved(tmp_path, 7, fused(rows=12))
    relaunch(asked(OLD), asked(NEW), "torchtitan", tmp_path)
    saved(tmp_path, 8, fused(rows=8))
    with pytest.raises(InputError, match=r"lacks moments of 4 weights, such as layers.0.attention.wqkv.weight"):
        relaunch(asked(OLD), asked(NEW), "torchtitan", tmp_path)


def test_tied_embeddings_have_their_moments_under_one_name(tmp_path: Path):
    saved(tmp_path, 7, state(names(range(4))) | {"lm_head.weight": torch.zeros(61, LLAMA.hidden)})
    with pytest.raises(InputError, match=r"lacks moments of 1 weights, such as lm_head.weight"):
        relaunch(asked(OLD), asked(NEW), "torchtitan", tmp_path)
    tied = replace(world(), model=replace(LLAMA, layers=(*LLAMA.layers[:-1], replace(LLAMA.layers[-1], tied=True))))
    relaunch((tied, OLD), (tied, WIDER), "torchtitan", tmp_path)
    with pytest.raises(InexpressibleError, match="torchtitan refuses tied embeddings in a pipeline of several stages"):
        relaunch((tied, OLD), (tied, NEW), "torchtitan", tmp_path)


def test_other_questions_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match="holds no whole checkpoint"):
        relaunch(asked(OLD), asked(NEW), "torchtitan", tmp_path)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        relaunch(asked(OLD), asked(NEW), "torchtitan", tmp_path / "none")
    with pytest.raises(InputError, match="unknown runtime 'deepspeed'"):
        relaunch(asked(OLD), asked(NEW), "deepspeed", tmp_path)
    with pytest.raises(InputError, match="is for another batch"):
        relaunch(asked(OLD), asked(replace(NEW, micro_batch=1)), "torchtitan", tmp_path)
    with pytest.raises(InputError, match="is for another model"):
        relaunch((problem(), OLD), asked(NEW), "torchtitan", tmp_path)


def test_files_that_are_cut_off_and_an_index_that_would_run_something_are_refused(tmp_path: Path):
    folder = saved(tmp_path, 7, state(names(range(4))))
    (data,) = folder.glob("*.distcp")
    data.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(InputError, match="bytes of the"):
        stored.newest(tmp_path)
    data.unlink()
    with pytest.raises(InputError, match="has 0 bytes of the"):
        stored.newest(tmp_path)
    (folder / ".metadata").write_bytes(pickle.dumps(subprocess.run))
    with pytest.raises(InputError, match="is no index of a checkpoint: it names subprocess.run"):
        stored.newest(tmp_path)
    (folder / ".metadata").write_bytes(b"")
    with pytest.raises(InputError, match="is no index of a checkpoint"):
        stored.newest(tmp_path)


STAGE = """
import sys
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from tests.export.test_relaunch import names, state
rank, folder, store = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
dcp.save(state(names(range(2)) if rank == 0 else names(range(2, 4), first=False)), checkpoint_id=folder)
dist.destroy_process_group()
"""


@pytest.mark.slow  # torch's own promise, on which the command rests
def test_what_two_stages_saved_is_loaded_under_another_cut(tmp_path: Path):
    """Two processes, a stage each, write one checkpoint; one that has all layers reads it bit for bit."""
    folder, store = tmp_path / "step-7", tmp_path / "store"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [[sys.executable, "-W", "ignore", "-c", STAGE, str(rank), str(folder), str(store)] for rank in range(2)]
    stages = [subprocess.Popen(each, env=environment) for each in words]
    assert [stage.wait(120.0) for stage in stages] == [0, 0]
    relaunch(asked(OLD), asked(NEW), "torchtitan", tmp_path)
    expected = state([*names(range(2), last=True), *names(range(2, 4), first=False, last=False)])
    into = {name: torch.zeros_like(value) for name, value in expected.items() if isinstance(value, torch.Tensor)}
    moments = {name: torch.zeros_like(value) for name, value in expected["optimizer"].items() if name[:5] == "state"}
    dcp.load({**into, "optimizer": moments}, checkpoint_id=folder, no_dist=True)
    assert all(torch.equal(into[name], expected[name]) for name in into)
    assert all(torch.equal(moments[name], expected["optimizer"][name]) for name in moments)


TITAN = """
import json, sys
import torch
import torch.distributed.checkpoint as dcp
from torchtitan.components.checkpointer.base import ModelWrapper
from torchtitan.components.optimizer import default_adamw
from torchtitan.models.llama3 import model_registry

class Plain(torch.nn.Module):  # in place of flex attention, which wants masks; no weights are in either
    def forward(self, *given, **rest):
        q, k, v = (each.transpose(1, 2) for each in given)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

def part(start, stop, seed):
    torch.manual_seed(seed)
    config = model_registry("debugmodel").model
    model = config.build()
    model.init_states()
    for block in range(len(config.layers)):
        model.layers[str(block)].attention.inner_attention = Plain()
        if not start <= block < stop:
            del model.layers[str(block)]
    if start > 0:
        model.tok_embeddings = None
    if stop < len(config.layers):
        model.norm = model.lm_head = None
    return model

def train(parts, optimizer, steps):
    losses = []
    for step in steps:
        tokens = torch.randint(0, 2048, (2, 17), generator=torch.Generator().manual_seed(step))
        output = tokens[:, :-1]
        for each in parts:
            output = each(output)
        loss = torch.nn.functional.cross_entropy(output.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

what, folder, cuts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
parts = [part(*cut, seed=len(what) + at) for at, cut in enumerate(cuts)]
optimizer = default_adamw(lr=1e-3).build(model_parts=parts)
model = ModelWrapper(parts)
if what == "save":
    train(parts, optimizer, range(3))
    dcp.save(model.state_dict() | {"optimizer": optimizer.state_dict()}, checkpoint_id=folder, no_dist=True)
else:
    weights, moments = model.state_dict(), optimizer.state_dict()
    dcp.load(weights | {"optimizer": moments}, checkpoint_id=folder, no_dist=True)
    model.load_state_dict(weights)
    optimizer.load_state_dict(moments)
print(json.dumps(train(parts, optimizer, range(3, 6))))
"""


def test_losses_of_torchtitan_are_those_of_a_run_that_never_stopped(tmp_path: Path, ask: Asked):
    """Its own model, optimizer and names: stages of 2 and 4 blocks train and save, stages of 3, 2 and 1 go on."""

    def losses(what: str, folder: Path, cuts: str) -> list[float]:
        done = ask("torchtitan", tmp_path, f"import sys; sys.argv[1:] = {[what, str(folder), cuts]!r}\n{TITAN}")
        assert done.returncode == 0, done.stderr
        return [float(each) for each in json.loads(done.stdout.splitlines()[-1])]

    whole = losses("save", tmp_path / "saved" / "step-3", "[[0, 2], [2, 6]]")
    model = gpt_model("debug", layers=6, hidden=256, heads=16, vocab=2048, seq=SEQ, gated=True)
    asked_of = replace(problem(model), runtime="torch")
    old = Plan(pipelines((4, [("a", 0, 3, 1, 1), ("b", 3, 8, 1, 1)])), 2)
    new = Plan(pipelines((4, [("a", 0, 4, 1, 1), ("a", 4, 6, 1, 1), ("b", 6, 8, 1, 1)])), 2)
    found = relaunch((asked_of, old), (asked_of, new), "torchtitan", tmp_path / "saved")
    folder = Path(loading(found.files)["initial_load_path"])
    assert losses("go on", folder, "[[0, 3], [3, 5], [5, 6]]") == pytest.approx(whole, rel=1e-6)
