"""The flat rival: what it sees, what it answers, what it refuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.network.hi_ppo import flat_ppo
from hippo.network.hi_ppo.flat_ppo import FORM, MOST_DOMAINS, WIDTH, FlatPpo, flat, flat_mask
from hippo.network.observation.features import CONTEXT, EDGES, MOST_OPTIONS, NODES, OPTIONS, Observation
from hippo.network.plans.candidates import fill
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import STREAMING
from hippo.network.rules.trigger import Thresholds
from hippo.network.rules.view import Action, How, View
from hippo.network.worlds.asking import Terms
from hippo.network.worlds.generator import make_world
from hippo.network.worlds.play import steps, usd_per_token


def observation(domains: int, options: int, worlds: int = 1) -> Observation:
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray:
        return rng.random((worlds, *shape)).astype(np.float32)

    return Observation(
        drawn(domains, NODES),
        drawn(domains, domains, EDGES),
        np.ones((worlds, domains), bool),
        drawn(CONTEXT),
        drawn(options, OPTIONS),
        drawn(options, domains),
        drawn(options, domains, domains),
        np.ones((worlds, options), bool),
    )


@pytest.mark.parametrize(
    ("domains", "options"), [(2, 3), (MOST_DOMAINS, MOST_OPTIONS), (MOST_DOMAINS + 3, MOST_OPTIONS)]
)
def test_every_network_has_the_same_width(domains: int, options: int):
    seen = observation(domains, options, worlds=2)
    found = flat(seen)
    assert found.shape == (2, WIDTH)
    np.testing.assert_array_equal(found[:, :CONTEXT], seen.context)
    second = found[:, CONTEXT + OPTIONS : CONTEXT + 2 * OPTIONS]
    np.testing.assert_array_equal(second, seen.options[:, 1])
    assert flat_mask(seen).sum() == 2 * options


def likes_the_first_feature(width: int = WIDTH) -> bytes:
    """Layers that score an option by its first feature: small numbers, which the hyperbolic tangent hardly changes."""
    pick, small = np.zeros((MOST_OPTIONS, width), np.float32), np.float32(1e-3)
    pick[np.arange(MOST_OPTIONS), CONTEXT + OPTIONS * np.arange(MOST_OPTIONS)] = small
    nothing, same = np.zeros(MOST_OPTIONS, np.float32), np.eye(MOST_OPTIONS, dtype=np.float32)
    return FORM.packed({"0.weight": pick, "0.bias": nothing, "1.weight": same, "1.bias": nothing})


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flat") / "flat.policy"
    path.write_bytes(likes_the_first_feature())
    return path


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision is due whatever the view shows."""
    monkeypatch.setattr(flat_ppo, "standing", lambda view: None)
    monkeypatch.setattr(flat_ppo, "seen", lambda view, now: None)
    monkeypatch.setattr(flat_ppo, "due", lambda view, last, thresholds, now: True)


@pytest.mark.usefixtures("always")
def test_it_takes_the_likeliest_option_that_may_be_chosen(file: Path):
    seen = observation(3, 4)
    seen.options[0, :, 0] = [0.1, 0.9, 0.5, 0.2]
    answers = tuple(Action(How.SWITCH, index) for index in range(4))
    method = FlatPpo(file, see=lambda view, quiet: (seen, answers))
    while_it_moves = SimpleNamespace(phase=STREAMING, epoch=3)
    assert method.decide(while_it_moves) == answers[1]  # type: ignore[arg-type]
    seen.option_mask[0, 1] = False
    assert method.decide(while_it_moves) == answers[2]  # type: ignore[arg-type]


@pytest.mark.usefixtures("always")
def test_it_sees_how_long_nothing_was_changed_as_in_training(file: Path):
    seen, quiet = observation(3, 2), list[float]()
    answers = (Action(How.KEEP), Action(How.SWITCH, 1))

    def see(view: object, *, quiet: float, told: list[float] = quiet):
        told.append(quiet)
        return seen, answers

    method = FlatPpo(file, see=see)
    for epoch, liked in ((2, 0), (5, 1), (5, 1), (7, 0)):  # in epoch 5 it is asked twice
        seen.options[0, :, 0] = np.eye(2)[liked]
        method.decide(SimpleNamespace(epoch=epoch))  # type: ignore[arg-type]
    assert quiet == [2.0, 5.0, 5.0, 2.0]


def test_it_is_asked_when_its_environment_would_ask_it(file: Path):
    world, asked = make_world("lasting", 4), list[int]()
    cache = PlanCache(world.problem)
    fill(cache)

    class Watched(FlatPpo):
        def _act(self, view: View) -> Action:
            asked.append(view.epoch)
            return Action(How.SWITCH, 0) if view.running < 0 else Action()

    terms = Terms(usd_per_token=usd_per_token(world, cache))
    method = Watched(file, see=lambda view, quiet: (observation(3, 1), (Action(),)))
    epochs = [step.view.epoch for step in steps(world, cache, method, terms)]
    assert asked[0] == 0
    assert 2 < len(asked) < 0.5 * len(epochs)
    assert max(later - sooner for sooner, later in zip(asked, asked[1:], strict=False)) <= Thresholds().every


def test_what_is_no_flat_policy_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="To fix"):
        FlatPpo(tmp_path / "missing.policy")
    (tmp_path / "broken.policy").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="is no flat PPO policy"):
        FlatPpo(tmp_path / "broken.policy")


def test_another_width_is_refused(tmp_path: Path):
    (tmp_path / "other.policy").write_bytes(likes_the_first_feature(WIDTH + 1))
    with pytest.raises(InputError, match="is no flat PPO policy of this version"):
        FlatPpo(tmp_path / "other.policy")
