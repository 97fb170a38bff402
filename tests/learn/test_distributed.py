"""Two processes with half the worlds each learn what one process learns with all, up to the order of sums."""

from __future__ import annotations

import copy
from multiprocessing import set_forkserver_preload
from pathlib import Path
from threading import Barrier, Thread

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp

from hippo.errors import InputError
from hippo.learn.distributed import Place, Ring, connected
from hippo.learn.ppo import Alone, Batch, Evaluated, Together, choice, minibatches, normalised, update
from hippo.learn.session import Session
from hippo.learn.settings import Ppo
from hippo.network.train.learner import UpperLearner
from hippo.network.train.rollout import Share
from hippo.network.train.settings import HiPpoSettings, TrainingRun
from hippo.network.train.train import words

from ..network.toy import ToyEnvs, toy_policy
from ..ports import reserved_port

SETTINGS = HiPpoSettings(
    ppo=Ppo(steps_per_update=128, passes=3, minibatch=32, learning_rate=0.01),
    run=TrainingRun(updates=3, minutes=0.0, shares=2),
)
WITHOUT_EFFECT = "score.2.bias"
"""It shifts all scores alike: its gradient is rounding and nothing else, which Adam enlarges to whole steps."""


def trained(folder: Path, place: Place) -> dict[str, torch.Tensor]:
    torch.set_num_threads(1)
    shares = [Share(ToyEnvs(8, 10 + each), np.random.default_rng(each)) for each in place.own(2)]
    learner = UpperLearner(toy_policy(), shares, SETTINGS, place)
    return dict(Session(learner, SETTINGS, folder, words).run().policy.state_dict())


def one_of_two(rank: int, port: int, folder: str) -> None:
    import os

    os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with connected() as place:
        torch.save(trained(Path(folder), place), Path(folder) / f"weights-{rank}.pt")


def test_two_processes_learn_what_one_does(tmp_path: Path):
    alone = trained(tmp_path / "alone", Place())
    with reserved_port() as port:
        set_forkserver_preload(["hippo.network.train.train", "torch._dynamo"])  # read once, not by each of the two
        mp.start_processes(one_of_two, (port, str(tmp_path)), nprocs=2, start_method="forkserver")
    first, second = (torch.load(tmp_path / f"weights-{rank}.pt") for rank in range(2))
    start = toy_policy().state_dict()
    for name, weight in alone.items():
        assert torch.equal(first[name], second[name])
        if name != WITHOUT_EFFECT:
            torch.testing.assert_close(first[name], weight, rtol=1e-4, atol=1e-5)
    assert any((alone[name] - start[name]).abs().max() > 0.01 for name in alone)
    shares = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["shares"]
    assert len(shares) == 2


class InThreads(Ring):
    """Two threads in the place of two processes."""

    barrier, told = Barrier(2), dict[int, torch.Tensor]()

    def summed(self, value: torch.Tensor) -> torch.Tensor:
        self.told[self.rank] = value
        self.barrier.wait()
        found = self.told[0] + self.told[1]
        self.barrier.wait()
        return found


@pytest.mark.parametrize("held", [10, 40], ids=["unequal", "nothing at all"])
def test_processes_that_hold_unequally_many_decisions_weigh_each_alike(held: int):
    """As where a roll-out was cut off: one has 30 or 0 of 40 decisions, and both end where one with all 40 does."""
    ppo = Ppo(passes=2, minibatch=8, learning_rate=0.01, target_kl=0.0)
    generator = torch.Generator().manual_seed(0)
    seen, returns = torch.randn(40, 3, generator=generator), torch.randn(40, 1, generator=generator)
    action = torch.randint(2, (40,), generator=generator)
    end: dict[object, dict[str, torch.Tensor]] = {}
    torch.manual_seed(1)
    start = torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)

    def learn(who: object, place: slice, shares: list[int], together: Together) -> None:
        policy, value = copy.deepcopy(start)  # made before: threads would draw from one generator

        def evaluate(seen: torch.Tensor, action: torch.Tensor) -> Evaluated:
            log_probs, chaos = choice(policy(seen), torch.ones(len(seen), 2, dtype=torch.bool))
            return Evaluated(log_probs.gather(1, action[:, None])[:, 0], chaos, value(seen))

        learned = torch.nn.ModuleList([policy, value])
        batch = Batch(
            seen[place],
            action[place],
            torch.full((40,), -0.7)[place],
            normalised(returns[place, 0], together),
            returns[place],
        )
        rngs = [np.random.default_rng(each) for each in ([0, 1] if len(shares) == 2 else [who])]
        order = minibatches(shares, ppo, rngs, count=5)
        update(
            evaluate,
            torch.optim.Adam(learned.parameters(), lr=0.01),
            batch,
            settings=ppo,
            order=order,
            together=together,
        )
        end[who] = learned.state_dict()

    learn("alone", slice(None), [held, 40 - held], Alone())
    parts = ((0, slice(0, held), [held]), (1, slice(held, 40), [40 - held]))
    threads = [Thread(target=learn, args=(*each, InThreads(each[0], 2))) for each in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, weight in end["alone"].items():
        torch.testing.assert_close(end[0][name], weight, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(end[1][name], weight, rtol=1e-4, atol=1e-6)


def test_shares_that_cannot_be_dealt_out_are_refused():
    assert list(Place(1, 2).own(4)) == [2, 3]
    with pytest.raises(InputError, match=r"run\.shares"):
        Place(0, 2).own(3)
