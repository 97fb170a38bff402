"""The agents of a site on several processes: torchrun's two learn what one does with the same shares of the worlds."""

from __future__ import annotations

from multiprocessing import set_forkserver_preload
from pathlib import Path

import torch
import torch.multiprocessing as mp

from hippo.jobs.joint.hi_ppo.train import learned
from hippo.learn.distributed import Place, connected
from hippo.problem.catalogue.clusters import cluster

from ....ports import reserved_port
from .test_agents import small, table


def trained(folder: Path, place: Place) -> dict[str, torch.Tensor]:
    torch.set_num_threads(1)
    found = learned(small(folder), table(), folder, cluster=cluster("four-hubs"), place=place)
    return dict(found.policy.state_dict())


def one_of_two(rank: int, port: int, folder: str) -> None:
    import os

    os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with connected() as place:
        trained(Path(folder), place)


def test_two_processes_learn_what_one_does(tmp_path: Path) -> None:
    alone = trained(tmp_path / "alone", Place())
    with reserved_port() as port:
        set_forkserver_preload(["hippo.jobs.joint.hi_ppo.train", "torch._dynamo"])
        mp.start_processes(one_of_two, (port, str(tmp_path)), nprocs=2, start_method="forkserver")
    run = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    whole = torch.load(tmp_path / "alone" / "checkpoint.pt", weights_only=True)
    assert run["update"] == whole["update"] == 3
    assert len(run["shares"]) == 2
    for name, weight in whole["policy"].items():
        torch.testing.assert_close(run["policy"][name], weight, rtol=1e-3, atol=1e-5)
    assert alone.keys() == whole["policy"].keys()
    assert run["notes"]["decisions"] == whole["notes"]["decisions"]
    for mine, its in zip(run["shares"], whole["shares"], strict=True):
        assert mine["worlds"]["number"] == its["worlds"]["number"]
        for answers, others in zip(mine["worlds"]["answers"], its["worlds"]["answers"], strict=True):
            assert torch.equal(answers, others)
