"""Orders run by torch's own runtime: losses and gradients are those of the model in one piece."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from hippo.schedule.methods import METHODS, generate
from hippo.schedule.problem import ScheduleProblem, chains
from hippo.schedule.torch_csv import torch_schedule

RANKS, MICRO_BATCHES, WIDTH, SAMPLES = 2, 6, 8, 12


def layers(count: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)]


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(SAMPLES, WIDTH, generator=generator), torch.randn(SAMPLES, WIDTH, generator=generator)


def run_rank(rank: int, folder: str, stages_of_rank: list[list[int]]) -> None:
    """One process: its stages, one step by the CSV, its gradients into a file."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    mine, count = stages_of_rank[rank], sum(map(len, stages_of_rank))
    modules = layers(count)
    stages = [PipelineStage(modules[index], index, count, torch.device("cpu")) for index in mine]
    runtime = _PipelineScheduleRuntime(stages, MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    runtime._load_csv(f"{folder}/order.csv")
    inputs, targets = batch()
    losses: list[torch.Tensor] = []
    last = {"target": targets, "losses": losses} if count - 1 in mine else {}
    runtime.step(*([inputs] if 0 in mine else []), **last)
    gradients = {index: [each.grad for each in modules[index].parameters()] for index in mine}
    torch.save((gradients, [float(loss.detach()) for loss in losses]), f"{folder}/rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-h2", "interleaved", "zb-v", "cross-domain"])
def test_losses_and_gradients(tmp_path: Path, name: str) -> None:
    problem = ScheduleProblem.uniform(RANKS, MICRO_BATCHES, (1.0, 1.05, 0.75), comm=0.5)
    problem = problem.placed(METHODS[name].placement)
    (tmp_path / "order.csv").write_text(torch_schedule(problem, generate(name, problem)).text)
    chain = chains(problem)[0]
    stages = [[i for i, slot in enumerate(chain) if slot // problem.chunks == rank] for rank in range(RANKS)]
    processes.spawn(run_rank, (str(tmp_path), stages), RANKS)

    whole, (inputs, targets) = layers(len(chain)), batch()
    pieces = zip(inputs.chunk(MICRO_BATCHES), targets.chunk(MICRO_BATCHES), strict=True)
    losses = [nn.functional.mse_loss(nn.Sequential(*whole)(piece), target) for piece, target in pieces]
    (sum(losses) / MICRO_BATCHES).backward()  # torch divides by the number of micro-batches
    seen: list[float] = []
    for rank in range(RANKS):
        gradients, of_rank = torch.load(tmp_path / f"rank{rank}.pt")
        seen += of_rank
        for index, found in gradients.items():
            for gradient, each in zip(found, whole[index].parameters(), strict=True):
                torch.testing.assert_close(gradient, each.grad)
    assert seen == pytest.approx([float(loss.detach()) for loss in losses])
