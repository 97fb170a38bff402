"""What a user of torchtitan starts through Slurm or Ray, made small: the launch is written by hippo, for the first plan
or from the checkpoint of the plan before; training is one process on a CPU, whose checkpoints are torchtitan's by name.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn

HIDDEN, VOCAB, BLOCKS, EVERY = 32, 61, 4, 5


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


def state_of(found: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> dict[str, Any]:
    moments = {
        f"state.{name}.{key}": optimizer.state[weight][key]
        for name, weight in found.named_parameters()
        for key in ("exp_avg", "exp_avg_sq")
    }
    return dict(found.named_parameters()) | {"optimizer": moments, "train_state": {"step": step}}


def train(steps: int, home: Path, begin_at: Path | None = None, pause_s: float = 0.0) -> None:
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
        state = state_of(found, optimizer, 0)
        dcp.load(state, checkpoint_id=begin_at, no_dist=True)
        first = int(begin_at.name.removeprefix("step-"))
    for each in optimizer.state.values():  # torch counts steps beside its moments, which torchtitan keeps in its groups
        each["step"] = torch.tensor(float(first + 1))
    for step in range(first, steps):
        optimizer.zero_grad()
        loss = loss_of(found, step)
        loss.backward()
        optimizer.step()
        with open(home / "losses.jsonl", "a") as out:
            out.write(json.dumps({"step": step, "loss": loss.item()}) + "\n")
        told = {"share_done": (step + 1) / steps, "step_s": max(pause_s, 1e-3), "loss": loss.item()}
        (home / "progress.part").write_text(json.dumps(told))
        os.replace(home / "progress.part", home / "progress.json")
        if (step + 1) % EVERY == 0:
            dcp.save(
                state_of(found, optimizer, step + 1),
                checkpoint_id=home / "checkpoint" / f"step-{step + 1}",
                no_dist=True,
            )
        time.sleep(pause_s)


def launched(home: Path) -> Path | None:
    """Writes the launch; the checkpoint from which its recipe begins."""
    plan, before = os.environ["HIPPO_PLAN"], os.environ.get("HIPPO_PLAN_BEFORE")
    hippo = [sys.executable, "-m", "hippo"]
    if before is None:
        words = [*hippo, "export", plan, "--to", "torchtitan", "--out", str(home / "launch"), "--force"]
    else:
        words = [*hippo, "relaunch", before, plan, "--to", "torchtitan", "--checkpoint", str(home / "checkpoint")]
        words += ["--out", str(home / "again"), "--force"]
    subprocess.run([*words, "--json"], check=True, stdout=subprocess.DEVNULL)
    if before is None:
        return None
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
        own = Path(os.environ["HIPPO_HOME"])
        train(int(sys.argv[1]), own, launched(own), float(sys.argv[2]))
