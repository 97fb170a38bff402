"""The agents of a site trained by workers of a Ray cluster of two nodes: what one process learns; who is slow is cut
off; who is lost is replaced.

Ray is an extra of its own (``pip install -e '.[learn,ray]'``); without it these are skipped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hippo.errors import InputError
from hippo.jobs.joint.hi_ppo import train
from hippo.jobs.joint.hi_ppo.settings import WorldLearning
from hippo.jobs.joint.hi_ppo.train import learned
from hippo.learn import on_ray
from hippo.problem.catalogue.clusters import cluster

from ....ray_nodes import NEEDS_RAY, two_nodes
from .test_agents import small, table

pytestmark = NEEDS_RAY


@pytest.fixture(scope="module")
def nodes() -> Iterator[None]:
    with two_nodes():
        yield


def configured(folder: Path, **run: object) -> WorldLearning:
    return small(folder, **{"cut_off": 0.0, **run})


def test_workers_learn_what_one_process_does(nodes: None, tmp_path: Path) -> None:
    settings = configured(tmp_path, shares=4)
    alone = learned(settings, table(), tmp_path / "alone", cluster=cluster("four-hubs"))
    many = learned(settings, table(), tmp_path / "many", cluster=cluster("four-hubs"), workers=4)
    assert (alone.updates, alone.count) == (many.updates, many.count)
    one, other = (torch.load(tmp_path / name / "checkpoint.pt", weights_only=True) for name in ("alone", "many"))
    for name, weight in one["policy"].items():
        torch.testing.assert_close(other["policy"][name], weight, rtol=1e-3, atol=1e-5)
    for mine, its in zip(one["shares"], other["shares"], strict=True):
        assert mine["worlds"]["number"] == its["worlds"]["number"]
        for answers, others in zip(mine["worlds"]["answers"], its["worlds"]["answers"], strict=True):
            assert torch.equal(answers, others)


def test_a_worker_that_is_killed_is_replaced_and_the_run_is_the_same(
    nodes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second process is killed while it rolls out in the second update."""
    settings, kept, said = configured(tmp_path), on_ray.RayLearner._asked, list[str]()

    def asked(self: Any, waiting: list[Any]) -> Any:
        if self.multipliers and self.multipliers[0] == 1 and not said and self.processes:
            os.kill(self.processes[1], signal.SIGKILL)
        return kept(self, waiting)

    alone = learned(settings, table(), tmp_path / "alone", cluster=cluster("four-hubs"))
    monkeypatch.setattr(on_ray.RayLearner, "_asked", asked)
    many = learned(settings, table(), tmp_path / "many", cluster=cluster("four-hubs"), workers=2, say=said.append)
    assert said == ["a worker was lost: all begin again from the end of the update before"]
    assert (alone.updates, alone.count) == (many.updates, many.count)
    for mine, its in zip(alone.policy.parameters(), many.policy.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-3, atol=1e-5)


def test_a_cluster_that_loses_all_workers_loses_nothing_that_was_learned(
    nodes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, kept = configured(tmp_path), on_ray.RayLearner._asked
    settings = replace(settings, run=replace(settings.run, checkpoint_every=100))

    def asked(self: Any, waiting: list[Any]) -> Any:
        if self.multipliers and self.multipliers[0] == 2 and self.processes:
            os.kill(self.processes[0], signal.SIGKILL)
        return kept(self, waiting)

    with monkeypatch.context() as patched:
        patched.setattr(on_ray.RayLearner, "_asked", asked)
        with pytest.raises(InputError, match="workers were lost 3 times over one update"):
            learned(settings, table(), tmp_path / "cut", cluster=cluster("four-hubs"), workers=2)
    more = replace(settings, run=replace(settings.run, checkpoint_every=1))
    rest = learned(more, table(), tmp_path / "cut", cluster=cluster("four-hubs"), resume=True, workers=1)
    alone = learned(settings, table(), tmp_path / "alone", cluster=cluster("four-hubs"))
    assert (rest.updates, rest.count) == (alone.updates, alone.count)
    for mine, its in zip(alone.policy.parameters(), rest.policy.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-3, atol=1e-5)


def slow_learner(*given: Any) -> Any:
    """As made, but the second process sleeps at every answer."""
    learner, place = train.share_learner(*given), given[-1]
    if place.rank:
        answer = learner.shares[0].batch.answer

        def late(action: Any) -> Any:
            import time

            time.sleep(0.5)
            return answer(action)

        learner.shares[0].batch.answer = late  # type: ignore[method-assign]
    return learner


def test_who_is_slow_gives_what_it_has_when_enough_are_done(
    nodes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = configured(tmp_path, cut_off=0.5)
    whole = learned(settings, table(), tmp_path / "alone", cluster=cluster("four-hubs"))
    monkeypatch.setattr(train, "share_learner", slow_learner)
    cut = learned(settings, table(), tmp_path / "cut", cluster=cluster("four-hubs"), workers=2)
    assert cut.updates == 3
    assert 0.6 * whole.count < cut.count < 0.9 * whole.count


def test_more_workers_than_cores_are_refused(nodes: None, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the Ray cluster has 4 cores for 8 workers"):
        learned(configured(tmp_path, shares=8), table(), tmp_path, cluster=cluster("four-hubs"), workers=8)
