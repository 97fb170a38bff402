"""Training of learned dispatch: the configuration, the same network twice, updates that help, runs that go on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from hippo.cli.main import run
from hippo.dispatch.base import base_of
from hippo.dispatch.env.generator import LEARN, LOOK, DispatchWorld, side_of
from hippo.dispatch.env.rollout import roll_out
from hippo.dispatch.features import FEATURES
from hippo.dispatch.network import DispatchWeights, follower, packed, read, scores
from hippo.dispatch.noise.fluctuation import Fluctuation, drawn
from hippo.dispatch.noise.learned_play import spread_learned
from hippo.dispatch.train.learner import batch_of, learn, lost
from hippo.dispatch.train.look import look_of
from hippo.dispatch.train.policy import DispatchPolicy, SeenChoices
from hippo.dispatch.train.settings import DispatchPpo, NetworkSettings, RunSettings, Settings, Worlds, parse_settings
from hippo.dispatch.train.train import _against, bank, train
from hippo.errors import InputError
from hippo.learn.checkpoint import load
from hippo.schedule.problem import ScheduleProblem

ROOT = Path(__file__).parents[3]
SMALL = DispatchWorld(
    ScheduleProblem.uniform(3, 6, (1.0, 1.05, 0.75), comm=[0.1, 2.0], live_limit=3), Fluctuation(0.3, rank_level=0.1)
)
TINY = Settings(
    worlds=Worlds(most_ranks=3, train=2, each_update=2, draws=2, plays=2, validation=1, validation_draws=4),
    run=RunSettings(updates=4, validate_every=2, checkpoint_every=2),
)

torch.set_num_threads(1)


def test_the_file_says_the_defaults() -> None:
    document = yaml.safe_load((ROOT / "configs/algo/dispatch.yaml").read_text())
    assert document.pop("learner") == "dispatch"
    assert parse_settings(document) == Settings()


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InputError, match="share"):
        parse_settings({"worlds": {"share": 2.0}})
    with pytest.raises(InputError, match="each_update"):
        parse_settings({"worlds": {"each_updates": 2}})


def test_what_is_learned_on_what_is_looked_at_and_what_is_judged_are_of_other_shapes() -> None:
    looked = {side_of(world.problem) for world in look_of(TINY).worlds}
    learned = {side_of(world.problem) for seed in range(5) for world in bank(replace(TINY, run=RunSettings(seed=seed)))}
    assert (learned, looked) == ({LEARN}, {LOOK})


@pytest.mark.parametrize("key", ["gamma", "gae_lambda", "value", "steps_per_update"])
def test_keys_without_effect_are_refused(key: str) -> None:
    with pytest.raises(InputError, match=key):
        parse_settings({"ppo": {key: 1}})


@pytest.mark.parametrize(("key", "value"), [("hidden", 64), ("trust", 1.0)])
def test_a_start_brings_its_own_network(tmp_path: Path, key: str, value: float) -> None:
    start = tmp_path / "start.npz"
    start.write_bytes(packed(follower()))
    settings = replace(TINY, network=replace(NetworkSettings(start=str(start)), **{key: value}))
    with pytest.raises(InputError, match=rf"network\.{key}"):
        train(settings, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_entropy_is_annealed_to_its_end() -> None:
    """An update at the end of a run is one of a run that has the last values throughout."""
    annealed = DispatchPpo(learning_rate=1e-2, learning_rate_end=1e-3, entropy=0.5, entropy_end=0.0, minibatch=64)
    begin, middle, end = (annealed.between(done) for done in (0.0, 0.5, 1.0))
    assert (begin, end) == ((1e-2, 0.5), (1e-3, 0.0))
    assert middle == pytest.approx((5.5e-3, 0.25))
    for done, (rate, entropy) in ((0.0, begin), (1.0, end)):
        kept = replace(annealed, learning_rate=rate, learning_rate_end=rate, entropy=entropy, entropy_end=entropy)
        assert after_one_update(annealed, done) == after_one_update(kept, 0.0)
    assert after_one_update(replace(annealed, entropy_end=0.5), 1.0) != after_one_update(annealed, 1.0)


def after_one_update(ppo: DispatchPpo, done: float) -> bytes:
    """The policy as it is written."""
    policy = untrained(5)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1.0)
    learn(policy, optimizer, [SMALL], replace(TINY, ppo=ppo), np.random.default_rng(2), done=done)
    return packed(policy.weights())


def untrained(seed: int) -> DispatchPolicy:
    torch.manual_seed(seed)
    policy = DispatchPolicy(follower(1.5))
    torch.nn.init.normal_(policy.last.weight)
    return policy


def test_torch_and_kernel_score_alike() -> None:
    policy, rng = untrained(1), np.random.default_rng(1)
    seen, says = rng.normal(size=(20, FEATURES)).astype(np.float32), rng.integers(4, size=20)
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(says), 4).float()
    with torch.no_grad():
        found = policy.scores(SeenChoices(torch.from_numpy(seen), torch.ones(20, 4).bool(), one_hot)).numpy()
    for row in range(20):
        own = np.zeros(4, np.float32)
        scores(policy.weights(), seen[row], says[row], np.zeros(32, np.float32), np.zeros(32, np.float32), own)
        assert own == pytest.approx(found[row], abs=1e-4)


def test_weights_come_back_from_torch() -> None:
    weights = untrained(2).weights()
    again = DispatchPolicy(weights).weights()
    assert all(np.array_equal(one, other) for one, other in zip(weights, again, strict=True))


def test_log_probabilities_are_those_of_the_roll_out() -> None:
    policy = untrained(3)
    factors = next(drawn(SMALL.problem, SMALL.fluctuation, samples=2, rng=np.random.default_rng(3)))
    rng = np.random.default_rng(5)
    rolled = roll_out(
        SMALL.problem,
        base_of(SMALL.problem, SMALL.fluctuation.deviation),
        policy.weights(),
        factors,
        plays=2,
        share=0.5,
        rng=rng,
    )
    batch = batch_of([rolled])
    with torch.no_grad():
        now = policy.evaluate(batch.observation, batch.action)
    assert now.log_prob.numpy() == pytest.approx(batch.log_prob.numpy(), abs=1e-4)
    assert float(batch.advantage.mean()) == pytest.approx(0.0, abs=1e-5)


def test_what_is_lost_already_is_no_merit() -> None:
    """Rewards that the lags tell in full leave nothing; rewards that have nothing to do with them stay."""
    rng = np.random.default_rng(0)
    lags = np.concatenate([rng.normal(size=(4000, 4)), rng.random((4000, 1))], axis=1)
    told, untold = lags[:, 1] * (1 - lags[:, 4]), rng.normal(size=4000)
    assert np.abs(told - lost(lags, told)).mean() < 0.02
    assert np.corrcoef(untold - lost(lags, untold), untold)[0, 1] > 0.99


def test_learning_undoes_a_bad_habit() -> None:
    """A network that prefers W over everything learns within 16 updates that this is slow: each of eight seeds made up
    for all but 2 % of it, some for a while only."""
    weights = DispatchWeights(*(each.copy() for each in follower(0.0)))
    weights.last_bias[2] = 1.5
    torch.manual_seed(0)
    policy = DispatchPolicy(weights)
    settings = replace(TINY, ppo=DispatchPpo(learning_rate=2e-2, passes=4, minibatch=512, entropy=0.0, target_kl=0.0))
    settings = replace(settings, worlds=replace(TINY.worlds, draws=16, plays=8, share=0.5))
    optimizer = torch.optim.Adam(policy.parameters(), lr=2e-2)

    def played() -> float:
        now = policy.weights()
        return spread_learned(SMALL.problem, SMALL.fluctuation, weights=now, samples=64, guarded=False).mean

    before, after = played(), []
    for number in range(16):
        learn(policy, optimizer, [SMALL], settings, np.random.default_rng(number))
        after += [played()] if number in (7, 11, 15) else []
    usual = spread_learned(SMALL.problem, SMALL.fluctuation, weights=follower(), samples=64).mean
    assert before > 1.02 * usual
    assert before - min(after) > 0.75 * (before - usual)


@pytest.mark.parametrize("draws", [2, 130])
def test_an_update_plays_all_draws_that_were_asked_for(draws: int) -> None:
    """However many: they come in parts of 64."""
    settings = replace(TINY, worlds=replace(TINY.worlds, draws=draws, plays=2))
    policy = untrained(6)
    told = learn(policy, torch.optim.Adam(policy.parameters()), [SMALL], settings, np.random.default_rng(0))
    assert told.plays == 2 * draws


def test_a_resumed_run_is_the_same_run(tmp_path: Path) -> None:
    train(TINY, out=tmp_path / "whole")
    half = replace(TINY, run=replace(TINY.run, updates=4, minutes=1e-6))
    train(half, out=tmp_path / "parts")  # one update, then the time is over
    with pytest.raises(InputError, match="holds a run already"):
        train(TINY, out=tmp_path / "parts")
    said: list[str] = []
    with pytest.raises(InputError, match="run.seed"):
        train(replace(TINY, run=replace(TINY.run, seed=1)), out=tmp_path / "parts", resume=True, say=said.append)
    assert said == []
    train(TINY, out=tmp_path / "parts", resume=True)
    one, other = (load(tmp_path / name).policy for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert np.isfinite(read(tmp_path / "parts" / "dispatch.npz").first).all()
    curve = [json.loads(line) for line in (tmp_path / "parts" / "curve.jsonl").read_text().splitlines()]
    assert [line["update"] for line in curve] == [1, 2, 3, 4]


def test_a_gain_below_nothing_is_longer() -> None:
    assert [_against(gain) for gain in (1.234, 0.0, -3.9)] == ["1.23 % shorter", "0.00 % shorter", "3.90 % longer"]


def test_hippo_train_takes_the_learner_from_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "learner: dispatch\nrun: {updates: 1}\n"
        "worlds: {most_ranks: 3, train: 1, each_update: 1, draws: 1, plays: 2, validation: 1, "
        "validation_draws: 2}\n"
    )
    assert run(["train", "--config", str(file), "--out", str(tmp_path / "out")]) == 0
    assert "policy" in capsys.readouterr().out
    assert (tmp_path / "out" / "dispatch.npz").exists()
    for learner in ("dispach", "[dispatch]", ""):
        file.write_text(f"learner: {learner}\n")
        assert run(["train", "--config", str(file), "--out", str(tmp_path / "other")]) == 2
        said = capsys.readouterr().err
        assert f"{file}: unknown learner" in said
        assert "use one of dispatch" in said
