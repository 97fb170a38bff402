"""``train`` from prepared worlds to a policy file, on worlds of random tables."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.learn.settings import Ppo
from hippo.learn.tracking import read_curve
from hippo.network.env import dataset
from hippo.network.env.dataset import load, save
from hippo.network.env.env import Env
from hippo.network.hi_ppo.serving import Policy
from hippo.network.observation.features import OPTION_FEATURES
from hippo.network.train.rollout import collect, decide
from hippo.network.train.settings import Ablation, GraphNetwork, HiPpoSettings, TrainingRun, TrainingWorlds
from hippo.network.train.train import _within, begun, effective, train
from hippo.network.train.upper_network import GlobalAgent, NetworkConfig
from hippo.network.train.worlds import RULES, Unmasked, Validation, datasets, played, seeds, shares
from hippo.problem.load import load_cluster

from ..drawn import drawn_dataset

SMALL = HiPpoSettings(
    ppo=Ppo(steps_per_update=64, passes=2, minibatch=32),
    network=GraphNetwork(hidden=8),
    worlds=TrainingWorlds(processes=1),
    run=TrainingRun(updates=2, minutes=0.0, construction_minutes=0.0, parallel=8, checkpoint_every=1, validate_every=1),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(drawn_dataset(6, seed=0), tmp_path / "bank.npz")
    save(drawn_dataset(3, seed=50), tmp_path / "validation.npz")
    return tmp_path


def test_it_ends_with_a_policy_that_is_served_without_torch(folder: Path):
    found = train(SMALL, out=folder)
    assert found["updates"] == 2
    assert 0.0 < found["of_hindsight"] <= 1.0
    assert [line["update"] for line in read_curve(folder / "curve.jsonl")] == [0, 1, 2]
    policy = Policy.load(folder / "hi_ppo.policy")
    seen = Env(load(folder / "validation.npz"), 4).reset()
    answer = policy.act(seen)
    assert answer.log_probs.shape == seen.option_mask.shape
    np.testing.assert_allclose(np.exp(answer.log_probs).sum(1), 1.0, rtol=1e-5)


def test_a_run_that_is_there_is_not_overwritten(folder: Path):
    (folder / "checkpoint.pt").write_bytes(b"")
    with pytest.raises(InputError, match="--resume"):
        train(SMALL, out=folder)


def test_nothing_is_prepared_for_a_run_that_is_not_there(tmp_path: Path):
    out = tmp_path / "none"
    with pytest.raises(InputError, match="no checkpoint"):
        train(SMALL, out=out, resume=True)
    assert not out.exists()


def test_nobody_beats_hindsight_and_masks_hold():
    dataset = drawn_dataset(5, seed=3)
    for rule in RULES.values():
        share = played(dataset, rule)
        assert (share <= 1.0 + 1e-6).all()
    looks = Validation(dataset)
    assert looks.of(RULES["worth"])["validation/of_hindsight"] == pytest.approx(looks.usual["validation/worth"])


def test_without_masks_everything_may_be_chosen():
    envs = Unmasked(Env(drawn_dataset(3, seed=0), 4))
    seen = envs.reset()
    assert seen.option_mask.all()
    assert envs.step(np.full(4, seen.option_mask.shape[1] - 1)).observation.option_mask.all()
    assert envs.restore(envs.state()).option_mask.all()


def test_shares_have_worlds_of_their_own_that_repeat_themselves():
    dataset = drawn_dataset(6, seed=0)
    first, second = shares(dataset, SMALL, range(2))
    assert not np.array_equal(first.seen.options, second.seen.options)
    again = shares(dataset, SMALL, [1])[0]
    np.testing.assert_array_equal(again.seen.options, second.seen.options)


def test_a_share_of_real_worlds_goes_on_from_its_state():
    from ..toy import toy_policy

    dataset, policy = drawn_dataset(6, seed=0), toy_policy()
    share = shares(dataset, SMALL, [0])[0]
    collect(policy, share, 5)
    state = share.state()
    ahead = collect(policy, share, 5)
    other = shares(dataset, SMALL, [5])[0]
    other.restore(state)
    again = collect(policy, other, 5)
    for one, two in zip(ahead[1:], again[1:], strict=True):
        np.testing.assert_array_equal(one, two)


def test_families_take_turns():
    assert seeds(("a", "b"), 3, 7) == [("a", 7), ("b", 7), ("a", 8)]


def test_what_is_left_out_is_left_out():
    found = effective(replace(SMALL, ablation=Ablation(no_gnn=True, no_multipliers=True)))
    assert found.network.encoder == "none"
    assert not found.multipliers.enabled


def test_it_begins_with_the_habits_of_a_planner():
    dataset = drawn_dataset(6, seed=1)
    seen = Env(dataset, 6).reset()
    policy = begun(GlobalAgent(NetworkConfig(hidden=8, worth_scale=1000.0)))
    chosen = decide(policy, seen, None)[0]
    worth = seen.options[..., OPTION_FEATURES.index("ahead")]
    worth = worth - np.log1p(0.1) * (seen.options[..., 2] + seen.options[..., 3])
    np.testing.assert_array_equal(chosen, np.where(seen.option_mask, worth, -np.inf).argmax(1))


def recorded(tmp_path: Path) -> Path:
    """A trace of four hubs over an hour, one link gone in its second half."""
    links = load_cluster("four-hubs").links
    rows = ["time_s,src,dst,bandwidth_gbps,latency_ms"]
    for time_s in range(0, 3600, 300):
        for at, link in enumerate(links):
            gbps = 0.5 if at == 0 and time_s >= 1800 else 4.0
            rows.append(f"{time_s},{link.source},{link.destination},{gbps},20")
    path = tmp_path / "net.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_recorded_traces_stand_beside_generated_worlds(folder: Path, tmp_path: Path):
    worlds = TrainingWorlds(processes=1, validation=0, traces=(f"gpt3-6.7b,four-hubs,{recorded(tmp_path)}",))
    dataset, _ = datasets(replace(SMALL, worlds=worlds), folder)
    assert dataset.worlds == 7
    assert (dataset.names[-1], dataset.families[-1]) == ("net", "trace")
    share = played(dataset, RULES["worth"])
    assert 0.5 < share[-1] <= 1.0 + 1e-6


@pytest.mark.parametrize("words", ["net.csv", "gpt3-6.7b,four-hubs,no-such.csv", "no-such,four-hubs,net.csv"])
def test_a_trace_that_cannot_be_read_is_told_first(folder: Path, words: str):
    worlds = TrainingWorlds(processes=1, validation=0, traces=(words,))
    with pytest.raises(InputError):
        datasets(replace(SMALL, worlds=worlds), folder / "nothing-made-yet")
    assert not (folder / "nothing-made-yet").exists()


def test_what_is_prepared_is_kept_for_who_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = dataset.make_dataset([("lasting", 4)], dataset.Preparation(preferences=1), kept=tmp_path)
    monkeypatch.setattr(dataset, "make_world", None)  # nothing can be prepared any more
    again = dataset.make_dataset([("lasting", 4)], dataset.Preparation(preferences=1), kept=tmp_path)
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))


def test_a_preparation_ends_with_the_minutes(tmp_path: Path):
    seen: list[str] = []
    watch = _within(1.0, time.monotonic() - 61.0, tmp_path, lambda phase, share: seen.append(phase))
    with pytest.raises(InputError, match="--minutes.*--resume"):
        watch("prepared 2 of 5 problems", 0.4)
    watch("prepared 5 of 5 problems", 1.0)  # what is done is done
    assert len(seen) == 2
