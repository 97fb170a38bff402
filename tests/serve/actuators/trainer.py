"""What a user of torchtitan or Megatron-LM starts through Slurm or Ray, made small: the launch is written by hippo, for
the first plan or from the checkpoint of the plan before; training is one process on a CPU, whose checkpoints are that
runtime's by name and place.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn

HIDDEN, VOCAB, BLOCKS, EVERY = 32, 61, 4, 5
IN_MEGATRON = (
    ("tok_embeddings", "embedding.word_embeddings"),
    ("attention.wq", "self_attention.linear_qkv"),
    ("feed_forward.w1", "mlp.linear_fc1"),
    ("lm_head", "output_layer"),
    ("layers.", "decoder.layers."),
)
LAST = "latest_checkpointed_iteration.txt"


class Block(nn.Module):
    """Weights under torchtitan's names."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.feed_forward = nn.Module(), nn.Module()
        self.attention.wq = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.feed_forward.w1 = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.feed_forward.w1(torch.tanh(self.attention.wq(x)))


def model() -> nn.Module:
    torch.manual_seed(0)
    found = nn.Module()
    found.tok_embeddings = nn.Embedding(VOCAB, HIDDEN)
    found.layers = nn.ModuleList(Block() for _ in range(BLOCKS))
    found.norm = nn.LayerNorm(HIDDEN, bias=False)
    found.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)
    return found


def loss_of(found: nn.Module, step: int) -> torch.Tensor:
    tokens = torch.randint(VOCAB, (8, 17), generator=torch.Generator().manual_seed(step))
    x = found.tok_embeddings(tokens[:, :-1])
    for block in found.layers:
        x = block(x)
    logits = found.lm_head(found.norm(x))
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def named(name: str, to: str) -> str:
    """A weight as the runtime names it."""
    if to == "torchtitan":
        return name
    for ours, theirs in IN_MEGATRON:
        name = name.replace(ours, theirs)
    return "decoder.final_layernorm.weight" if name == "norm.weight" else name


def state_of(found: nn.Module, optimizer: torch.optim.Optimizer, step: int, to: str) -> dict[str, Any]:
    weights = {named(name, to): weight for name, weight in found.named_parameters()}
    moments = {
        f"state.{name}.{key}" if to == "torchtitan" else f"optimizer.state.{key}.{name}": optimizer.state[weight][key]
        for name, weight in weights.items()
        for key in ("exp_avg", "exp_avg_sq")
    }
    if to == "torchtitan":
        return weights | {"optimizer": moments, "train_state": {"step": step}}
    return weights | moments | {"iteration": step}


def save(state: dict[str, Any], home: Path, step: int, to: str) -> None:
    place = home / "checkpoint"
    dcp.save(state, checkpoint_id=place / (f"step-{step}" if to == "torchtitan" else f"iter_{step:07d}"), no_dist=True)
    if to == "megatron":
        (place / "last.part").write_text(str(step))
        os.replace(place / "last.part", place / LAST)


def train(steps: int, home: Path, begin_at: Path | None = None, pause_s: float = 0.0, to: str = "torchtitan") -> None:
    found = model()
    optimizer = torch.optim.AdamW(found.parameters(), lr=1e-2)
    loss_of(found, 0).backward()
    rates = [each["lr"] for each in optimizer.param_groups]
    for each in optimizer.param_groups:
        each["lr"] = 0.0
        each["weight_decay"] = 0.0
    optimizer.step()  # makes the moments, which a load fills, and moves nothing
    for each, rate in zip(optimizer.param_groups, rates, strict=True):
        each["lr"] = rate
    first = 0
    if begin_at is not None:
        dcp.load(state_of(found, optimizer, 0, to), checkpoint_id=begin_at, no_dist=True)
        first = int(re.split("[-_]", begin_at.name)[1])
    for each in optimizer.state.values():  # torch counts steps beside its moments, which torchtitan keeps in its groups
        each["step"] = torch.tensor(float(first + 1))
    for step in range(first, steps):
        optimizer.zero_grad()
        loss = loss_of(found, step)
        loss.backward()
        optimizer.step()
        with open(home / "losses.jsonl", "a") as out:
            out.write(json.dumps({"step": step, "loss": loss.item(), "first": first}) + "\n")
        told = {"share_done": (step + 1) / steps, "step_s": max(pause_s, 1e-3), "loss": loss.item()}
        (home / "progress.part").write_text(json.dumps(told))
        os.replace(home / "progress.part", home / "progress.json")
        if (step + 1) % EVERY == 0:
            save(state_of(found, optimizer, step + 1, to), home, step + 1, to)
        time.sleep(pause_s)


def launched(home: Path, to: str) -> Path | None:
    """Writes the launch; the checkpoint from which it begins."""
    plan, before = os.environ["HIPPO_PLAN"], os.environ.get("HIPPO_PLAN_BEFORE")
    hippo = [sys.executable, "-m", "hippo"]
    if before is None:
        words = [*hippo, "export", plan, "--to", to, "--out", str(home / "launch"), "--force"]
    else:
        words = [*hippo, "relaunch", before, plan, "--to", to, "--checkpoint", str(home / "checkpoint")]
        words += ["--out", str(home / "again"), "--force"]
    subprocess.run([*words, "--json"], check=True, stdout=subprocess.DEVNULL)
    if before is None:
        return None
    if to == "megatron":
        script = next((home / "again").rglob("program.sh")).read_text()
        assert '--load "$CHECKPOINTS"' in script
        (place,) = re.findall(r"export CHECKPOINTS=(\S+)", script)
        return Path(place) / f"iter_{int((Path(place) / LAST).read_text()):07d}"
    recipe = next((home / "again").rglob("hippo_recipe.py")).read_text()
    call = next(
        node
        for node in ast.walk(ast.parse(recipe))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "CheckpointManager.Config"
    )
    return Path(next(ast.literal_eval(each.value) for each in call.keywords if each.arg == "initial_load_path"))


if __name__ == "__main__":
    if os.environ.get("SLURM_PROCID", "0") == "0":
        torch.set_num_threads(1)
        own, runtime = Path(os.environ["HIPPO_HOME"]), sys.argv[3]
        train(int(sys.argv[1]), own, launched(own, runtime), float(sys.argv[2]), runtime)
