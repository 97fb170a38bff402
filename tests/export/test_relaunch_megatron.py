"""A run of Megatron-LM goes on under another plan: which checkpoints its new launch can begin from.

The small checkpoints here have the names and shapes that Megatron Core 0.16.1 wrote of a GPT of four blocks, plain and
with a distributed optimizer; the slow test trains with the real package, where it is installed.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from tests.run.worlds import pipelines, problem
from torch.distributed.checkpoint.planner import SavePlan

from hippo.errors import InputError
from hippo.export.base import Export
from hippo.export.relaunch import relaunch
from hippo.plan.plan import Plan
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem

from .conftest import Asked

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # of one process, as it is meant
MODEL = gpt_model("small", layers=4, hidden=32, heads=4, vocab=64, seq=16)
OLD = Plan(pipelines((2, [("a", 0, 6, 1, 1)])), 2)
CUT = Plan(pipelines((2, [("a", 0, 4, 1, 1), ("b", 4, 6, 1, 1)])), 2)
SPLIT = Plan(pipelines((2, [("a", 0, 2, 2, 1), ("b", 2, 6, 2, 1)])), 2)
LANES = Plan(pipelines((1, [("a", 0, 6, 1, 2)])), 2)
STACKED = {
    "self_attention.linear_qkv.weight": (96, 32),
    "self_attention.linear_qkv.layer_norm_weight": (32,),
    "self_attention.linear_proj.bias": (32,),
    "mlp.linear_fc1.weight": (128, 32),
    "mlp.linear_fc2.weight": (32, 128),
}
KINDS = "exp_avg", "exp_avg_sq"
ENDS = {"embedding.word_embeddings.weight": (128, 32), "decoder.final_layernorm.weight": (32,)}


def world() -> Problem:
    return replace(problem(MODEL), runtime="megatron")


def weights(blocks: int = 4, *, numbered: bool = False) -> dict[str, Any]:
    """Weights as Megatron Core names them: a stack of all blocks, or each block for itself."""
    found = {name: torch.zeros(shape) for name, shape in ENDS.items()}
    bias = "mlp.router.expert_bias"  # is set by rule
    found[f"decoder.layers.0.{bias}" if numbered else f"decoder.layers.{bias}"] = torch.zeros(blocks, 8)
    for name, shape in STACKED.items():
        if numbered:
            found |= {f"decoder.layers.{block}.{name}": torch.zeros(shape) for block in range(blocks)}
        else:
            found[f"decoder.layers.{name}"] = torch.zeros(blocks, *shape)
    return found


def whole(own: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """With both moments of every weight, and what has none."""
    moments = {
        f"{prefix}optimizer.state.{kind}.{name}": each
        for name, each in own.items()
        if not name.endswith("expert_bias")
        for kind in KINDS
    }
    return {**own, **moments, "iteration": 3}


def saved(place: Path, what: Mapping[str, Any], iteration: int = 3) -> Path:
    folder = place / f"iter_{iteration:07d}"
    dcp.save(dict(what), checkpoint_id=folder, no_dist=True)
    index = pickle.loads((folder / ".metadata").read_bytes())
    index.all_local_plans = [SavePlan([])]  # Megatron Core leaves its plans there, for the next time that it saves
    (folder / ".metadata").write_bytes(pickle.dumps(index))
    (place / "latest_checkpointed_iteration.txt").write_text(str(iteration))
    return folder


def gone_on(place: Path, new: Plan, old: Plan = OLD) -> Export:
    return relaunch((world(), old), (world(), new), "megatron", place)


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("prefix", ["", "chained_0."])
def test_a_launch_under_other_cuts_begins_from_the_checkpoint(numbered: bool, prefix: str, tmp_path: Path):
    saved(tmp_path, whole(weights(numbered=numbered), prefix))
    found = gone_on(tmp_path, SPLIT)
    (script,) = (str(text) for name, text in found.files.items() if name.endswith("program.sh"))
    assert f"export CHECKPOINTS={tmp_path}" in script
    assert '--load "$CHECKPOINTS"' in script
    assert "--pipeline-model-parallel-layout 'Et|t*3L'" in script
    assert any(note.startswith(f"Goes on after iteration 3 of {tmp_path}") for note in found.notes)
    assert any("random numbers" in note for note in found.notes)
    assert "folder that checkpoints are written to" not in str(found.files["README.md"])


def test_pieces_of_a_flat_buffer_follow_lanes_and_nothing_else(tmp_path: Path):
    flat = {"optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_0.bucket_idx_0.exp_avg": torch.zeros(99)}
    saved(tmp_path, {**weights(), **flat})
    assert not any("random numbers" in note for note in gone_on(tmp_path, LANES).notes)
    for other in (CUT, SPLIT):
        with pytest.raises(InputError, match="in pieces that fit no other cuts, tp or pp") as error:
            gone_on(tmp_path, other)
        assert "--dist-ckpt-optim-fully-reshardable" in str(error.value)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (whole(weights(3)), "holds 3 blocks, where small has 4"),
        ({}, "holds 0 blocks"),
        (weights(), "lacks moments of 7 weights, such as"),
        (whole({**weights(), "embedding.word_embeddings.weight": torch.zeros(128, 16)}), "where small is 32 wide"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(what: dict[str, Any], told: str, tmp_path: Path):
    saved(tmp_path, {**what, "iteration": 3})
    with pytest.raises(InputError, match=told):
        gone_on(tmp_path, CUT)


def test_an_optimizer_that_is_named_otherwise_is_refused(tmp_path: Path):
    saved(tmp_path, whole(weights()))
    with pytest.raises(InputError, match="give a plan with sharding none"):
        gone_on(tmp_path, replace(LANES, sharding="optimizer"))


def test_only_what_megatron_itself_would_begin_from_is_taken(tmp_path: Path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        gone_on(tmp_path / "none", CUT)
    folder = saved(tmp_path, whole(weights()))
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    for told in ("4", "release", ""):
        tracker.write_text(told)
        with pytest.raises(InputError, match="holds no whole checkpoint"):
            gone_on(tmp_path, CUT)
    tracker.write_text("3")
    (data,) = folder.glob("*.distcp")
    data.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(InputError, match="write the number of a whole one into"):
        gone_on(tmp_path, CUT)


MEGATRON = """
import json, warnings
warnings.simplefilter("ignore")
from contextlib import nullcontext
from pathlib import Path
import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

class OnCpu(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)

class Tracker:
    def fork(self, *names):
        return nullcontext()

def go(rank, asked):
    tp, pp, layout, load, save, steps, place = asked
    torch.set_num_threads(1)
    store = dist.FileStore(place, tp * pp)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=tp * pp)
    torch.cuda.current_device, torch.cuda.synchronize = lambda: torch.device("cpu"), lambda *_: None
    import megatron.core.tensor_parallel as tensor_parallel
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig
    from megatron.core.optimizer.optimizer import FP32Optimizer
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer import TransformerConfig

    OnCpu().__enter__()
    tensor_parallel.get_cuda_rng_tracker = lambda *_, **__: Tracker()
    parallel_state.initialize_model_parallel(tp, pp)
    config = TransformerConfig(
        num_layers=4, hidden_size=32, num_attention_heads=4, ffn_hidden_size=128, use_cpu_initialization=True,
        hidden_dropout=0.0, attention_dropout=0.0, pipeline_dtype=torch.float32, tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp, pipeline_model_parallel_layout=layout,
    )
    torch.manual_seed(len(load))
    model = GPTModel(
        config, get_gpt_layer_local_spec(), vocab_size=64, max_sequence_length=16,
        pre_process=parallel_state.is_pipeline_first_stage(), post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=False,
    )
    weights = list(model.parameters())
    group = {"wd_mult": 1.0, "lr_mult": 1.0, "is_expert_parallel": False, "is_decoupled_lr": False}
    adam = torch.optim.AdamW([{"params": weights, **group}], lr=3e-3)

    def rooms(*_):
        for weight in weights:
            if not adam.state[weight]:
                adam.state[weight] = {key: torch.zeros_like(weight) for key in ("exp_avg", "exp_avg_sq")}
                adam.state[weight]["step"] = torch.zeros(())

    optimizer = FP32Optimizer(adam, OptimizerConfig(optimizer="adam", lr=3e-3, clip_grad=0.0), rooms)

    def state(loading, step):
        own = model.sharded_state_dict()
        return {"model": own, "optimizer": optimizer.sharded_state_dict(own, is_loading=loading), "iteration": step}

    first, losses = 0, []
    if load:
        got = dist_checkpointing.load(state(True, 0), load)
        model.load_state_dict(got["model"])
        optimizer.load_state_dict(got["optimizer"])
        first = got["iteration"]

    def forward(batches, part):
        batch = next(batches)
        hidden = torch.ones(16, 16).tril() < 0.5
        out = part(batch[:, :-1], torch.arange(16)[None].expand(2, 16), hidden[None, None], labels=batch[:, 1:])
        return out, lambda loss: (loss.mean(), {"loss": loss.mean().item()})

    for step in range(first, first + steps):
        adam.zero_grad()
        tokens = torch.randint(0, 64, (4, 17), generator=torch.Generator().manual_seed(step % 2))
        told = get_forward_backward_func()(
            forward_step_func=forward, data_iterator=iter([tokens[:2], tokens[2:]]), model=model, num_microbatches=2,
            seq_length=16, micro_batch_size=2, forward_only=False,
        )
        adam.step()
        losses += [sum(each["loss"] for each in told) / 2] if told else []
        if save and step == 2:
            Path(save).mkdir(parents=True)
            dist_checkpointing.save(state(False, 3), save)
    if rank == tp * pp - 1:
        Path(place + ".json").write_text(json.dumps(losses))
    dist.barrier()

"""


@pytest.mark.slow  # seven processes load torch and Megatron Core
def test_losses_of_megatron_are_those_of_a_run_that_never_stopped(tmp_path: Path, ask: Asked):
    """Its own model, checkpoint, pipeline and tensor parallelism: one process trains and saves; others, under the
    layout that the new launch says, go on. (Its fp32 optimizer; the distributed one has no CPU.)"""
    (tmp_path / "train.py").write_text(MEGATRON)

    def losses(name: str, ranks: int, *asked: object) -> list[float]:
        words = [*asked, str(tmp_path / name)]
        run = f"import torch.multiprocessing, train\ntorch.multiprocessing.spawn(train.go, ({words},), {ranks})"
        done = ask("megatron", tmp_path, run)
        assert done.returncode == 0, done.stderr
        found: list[float] = json.loads((tmp_path / f"{name}.json").read_text())
        return found

    place = tmp_path / "saved"
    folder = place / "iter_0000003"
    never_stopped = losses("whole", 1, 1, 1, None, "", str(folder), 6)
    assert never_stopped[5] < never_stopped[1] - 0.1  # it learns
    (place / "latest_checkpointed_iteration.txt").write_text("3")
    for at, new in enumerate((CUT, SPLIT)):
        words = next(str(text) for name, text in gone_on(place, new).files.items() if name.endswith("program.sh"))
        layout = words.split("--pipeline-model-parallel-layout '")[1].split("'")[0]
        tp = new.pipelines[0].stages[0].tp
        assert losses(f"again{at}", 2 * tp, tp, 2, layout, str(folder), "", 3) == pytest.approx(
            never_stopped[3:], rel=1e-6
        )
