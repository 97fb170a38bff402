"""The recurrent forecast: numpy and torch agree, and learning teaches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.scripts import script  # noqa: E402

from hippo.dynamics import gru  # noqa: E402
from hippo.network.worlds.generator import make_world  # noqa: E402

made = script("benchmarks/_train_forecaster.py")
SMALL = made.Learning(seeds=2, units=8, epochs=2, batch=32)


def test_numpy_says_what_torch_says() -> None:
    torch.manual_seed(0)
    unit, world = made.Unit(16), make_world("transient", 0)
    told, _ = made.histories(world)
    mean, sd = gru.run(unit.weights(), told, np.array(gru.LEARNED), world.epoch_s)
    read = torch.from_numpy(gru.features(told, world.epoch_s).swapaxes(0, 1).astype(np.float32))
    change, log_sd = unit(read)
    assert mean - read[:, :, 0].numpy().T[:, None] == pytest.approx(
        change.detach().numpy().transpose(1, 2, 0), abs=1e-5
    )
    assert sd == pytest.approx(np.exp(log_sd.detach().numpy().transpose(1, 2, 0)), rel=1e-4)


def test_nothing_is_asked_for_beyond_the_end_and_where_a_link_is_out() -> None:
    world = make_world("outage", 0)
    found, (_, true) = made.series([world]), made.histories(world)
    for at, ahead in enumerate(gru.LEARNED):
        assert not found.counts[:, -ahead:, at].any()
        asked = found.counts[:, :-ahead, at].numpy().T.astype(bool)
        assert (asked == ~np.isnan(true[ahead:])).all()


def test_learning_lowers_the_loss_and_repeats_itself() -> None:
    data = made.series([make_world("regimes", 50)])
    losses: list[float] = []
    weights = made.learn(SMALL, families=("regimes",), watch=lambda _, loss: losses.append(loss))
    assert losses[-1] < losses[0]
    again = made.learn(SMALL, families=("regimes",))
    assert all(np.array_equal(one, other) for one, other in zip(weights, again, strict=True))
    assert torch.isfinite(made.loss_of(made.Unit(8), made.Series(*data)))


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    weights = made.Unit(4).weights()
    made.save(weights, tmp_path / "some.npz")
    stored, _ = gru.FORM.read(tmp_path / "some.npz")
    assert all(stored[name] == pytest.approx(each, rel=1e-6) for name, each in weights._asdict().items())


def test_the_shipped_weights_are_small_and_fit_the_features() -> None:
    weights = gru.shipped()
    assert sum(each.size for each in weights) < 20_000
    assert weights.input_weight.shape[1] == gru.FEATURES
    assert weights.out_bias.shape == (2 * len(gru.LEARNED),)
