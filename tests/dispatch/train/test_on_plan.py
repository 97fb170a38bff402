"""Learning on one plan: advantages are what choices are worth, a run goes on, and what is not better is not kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hippo.cli.main import run
from hippo.dispatch.base import base_of
from hippo.dispatch.env.branches import branch_out
from hippo.dispatch.network import follower, packed, read, shipped
from hippo.dispatch.noise.fluctuation import Fluctuation, drawn
from hippo.dispatch.noise.learned_play import spread_learned
from hippo.dispatch.noise.pipelines import Pipelines
from hippo.dispatch.train.on_plan import PlanLearner, batch_of, train_on_plan
from hippo.dispatch.train.policy import DispatchPolicy
from hippo.dispatch.train.settings import PlanSettings, Settings
from hippo.errors import InfeasibleError, InputError
from hippo.learn.checkpoint import load
from hippo.schedule.problem import ScheduleProblem

from ..drawn_draws import lazy_weights, random_weights

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "examples/two-domains.json")
PROBLEM = ScheduleProblem.uniform(3, 6, (1.0, 1.05, 0.75), comm=[0.1, 2.0], live_limit=3)
PIPELINES = Pipelines((PROBLEM,), Fluctuation(0.3))
TINY = Settings(plan=PlanSettings(draws=4, decisions=4, updates=4, look_every=2, look_draws=8, trial_draws=8)).on_plan()
SAID = "plan: {draws: 2, decisions: 2, updates: 1, look_draws: 2, trial_draws: 2}\n"

torch.set_num_threads(1)


def test_the_advantage_of_a_choice_is_its_gain_above_the_policys_mean() -> None:
    weights = random_weights(1, trust=1.0)
    factors = next(drawn(PROBLEM, Fluctuation(0.3), samples=4, rng=np.random.default_rng(2)))
    base = base_of(PROBLEM, 0.3)
    rows = branch_out(PROBLEM, base, weights, factors, decisions=8, rng=np.random.default_rng(3))
    batch = batch_of(rows)
    assert len(batch.action) == rows.mask.sum()
    with torch.no_grad():
        now = DispatchPolicy(weights).evaluate(batch.observation, batch.action)
    assert now.log_prob.numpy() == pytest.approx(batch.log_prob.numpy(), abs=1e-4)
    at, pull = 0, []
    for number, mask in enumerate(rows.mask):
        (choices,) = np.nonzero(mask)
        chances = np.exp(rows.scores[number, choices].astype(float))
        chances /= chances.sum()
        gains = 100 * (1 - rows.makespans[number, choices] / rows.reference[number])
        pull.append(chances * (gains - chances @ gains))
        at += len(choices)
    found, asked = batch.advantage.numpy(), np.concatenate(pull)
    assert at == len(found)
    assert found == pytest.approx(asked * (found @ asked) / (asked @ asked), abs=1e-4)
    assert found @ asked > 0


def test_a_policy_that_was_settled_begins_with_the_same_best_choices() -> None:
    learner = PlanLearner(shipped(), PIPELINES, TINY)
    assert learner.look(learner.policy.weights()) == pytest.approx(0.0, abs=1e-9)


def test_where_the_policy_is_not_trusted_its_base_is_begun_with() -> None:
    learner = PlanLearner(lazy_weights(), PIPELINES, TINY)
    assert learner.look(learner.policy.weights()) == pytest.approx(0.0, abs=1e-9)
    assert learner.look(lazy_weights()) < -1


def test_what_is_not_better_on_fresh_plays_is_not_kept() -> None:
    learner = PlanLearner(shipped(), PIPELINES, TINY)
    same = learner.tried(shipped())
    assert (same.learned, same.gain.mean, same.weights) == (False, 0.0, learner.start)
    assert not learner.tried(lazy_weights()).learned  # the guard follows its base then


def test_a_resumed_run_is_the_same_run_and_of_the_same_plan(tmp_path: Path) -> None:
    train_on_plan(TINY, PIPELINES, out=tmp_path / "whole")
    parts = tmp_path / "parts"
    train_on_plan(replace(TINY, run=replace(TINY.run, minutes=1e-6)), PIPELINES, out=parts)  # one update
    with pytest.raises(InputError, match="holds a run already"):
        train_on_plan(TINY, PIPELINES, out=parts)
    with pytest.raises(InputError, match=r"given\.noise"):
        train_on_plan(TINY, Pipelines((PROBLEM,), Fluctuation(0.2)), out=parts, resume=True)
    other = replace(PROBLEM, micro_batches=7)
    with pytest.raises(InputError, match=r"given\.plan"):
        train_on_plan(TINY, Pipelines((other,), Fluctuation(0.3)), out=parts, resume=True)
    train_on_plan(TINY, PIPELINES, out=parts, resume=True)
    one, two = (load(tmp_path / name) for name in ("whole", "parts"))
    assert all(torch.equal(one.policy[name], two.policy[name]) for name in one.policy)
    assert (tmp_path / "whole/dispatch.npz").read_bytes() == (parts / "dispatch.npz").read_bytes()
    curve = [json.loads(line) for line in (parts / "curve.jsonl").read_text().splitlines()]
    assert [line["update"] for line in curve] == [1, 2, 3, 4]


def test_a_pipeline_without_room_for_a_micro_batch_has_no_answer(tmp_path: Path) -> None:
    narrow = replace(PROBLEM, limit=(0.5,) * 3)
    with pytest.raises(InfeasibleError):
        train_on_plan(TINY, Pipelines((narrow,), Fluctuation(0.3)), out=tmp_path)


def test_more_than_fits_is_refused(tmp_path: Path) -> None:
    large = replace(TINY, plan=replace(TINY.plan, draws=10_000, decisions=10_000))
    with pytest.raises(InputError, match=r"plan\.(draws|decisions): makes training need"):
        train_on_plan(large, PIPELINES, out=tmp_path)


def test_the_command_learns_on_a_plan_and_others_play_its_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, out = tmp_path / "mine.yaml", tmp_path / "out"
    config.write_text(f"learner: dispatch\n{SAID}")
    asked = ["train", "--config", str(config), "--plan", EXAMPLE, "--noise", "30 %", "--out", str(out), "--json"]
    assert run(asked) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["learned"] or answer["policy"] == str(out / "dispatch.npz")
    kept = read(out / "dispatch.npz")
    assert answer["learned"] or packed(kept) == packed(shipped())
    for file in (out / "dispatch.npz", tmp_path / "lazy.npz"):
        if not file.exists():
            file.write_bytes(packed(lazy_weights()))
        assert run(["simulate", EXAMPLE, "--dispatch", str(file), "--samples", "3", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["dispatch"]["by"] == str(file)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--config", "dispatch", "--noise", "0.2"], "--noise: only with --plan (got '0.2'). To fix: add --plan"),
        (["--config", "jobs", "--plan", EXAMPLE], "--plan: only of dispatch (got 'jobs')"),
        (["--config", "dispatch", "--plan", EXAMPLE, "--noise", "wild"], "--noise: level: is no noise (got 'wild')"),
        (["--config", "dispatch", "--plan", EXAMPLE, "--noise", "2"], "--noise: level: must lie between 0 and 1"),
        (
            ["--config", "dispatch", "--plan", EXAMPLE, "--noise", "0"],
            "--noise: times do not move: there is nothing to",
        ),
        (["--config", "dispatch", "--plan", "nowhere.json"], "nowhere.json"),
        (["--config", "dispach", "--plan", EXAMPLE], "did you mean 'dispatch'? use one of dispatch, hi_ppo"),
    ],
)
def test_what_is_refused(words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", *words, "--out", str(tmp_path / "out")]) == 2
    assert told in (said := capsys.readouterr().err)
    assert "To fix:" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda plan: plan.update(interleave=2, schedule={"name": "interleaved"}), "interleave"),
        (lambda plan: plan["pipelines"].clear(), "pipelines"),
    ],
)
def test_a_plan_that_nobody_dispatches_is_refused(
    change: Callable[[dict], None], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(Path(EXAMPLE).read_text())
    change(document.get("plan", document))
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(document))
    assert run(["train", "--config", "dispatch", "--plan", str(file), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert str(file) in said
    assert told in said


def test_without_torch_the_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("hippo.dispatch.train.train")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run(["train", "--config", "dispatch", "--plan", EXAMPLE, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "torch" in said
    assert "learn" in said


@pytest.mark.slow
def test_learning_on_a_problem_shortens_its_plays() -> None:
    """From a network that follows the hint: 40 updates save more than 1 % of it on plays that nobody learned on."""
    problem = ScheduleProblem.uniform(8, 16, (1.0, 1.05, 0.75), comm=[0.05] * 3 + [5.0] + [0.05] * 3, live_limit=16)
    settings = replace(Settings(), plan=replace(PlanSettings(), updates=40)).on_plan()
    learner = PlanLearner(follower(), Pipelines((problem,), Fluctuation(0.3)), settings)
    for done in range(40):
        learner.learn(done / 40)
    tried = learner.tried(learner.policy.weights())
    assert tried.learned
    usual, found = (
        spread_learned(problem, Fluctuation(0.3), weights=each, samples=200, seed=5)
        for each in (follower(), tried.weights)
    )
    assert usual.minus(found).interval[0] / usual.mean > 0.005
