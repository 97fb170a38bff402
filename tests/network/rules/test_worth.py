"""Worths against the same answers played epoch by epoch under the same forecast (``outlook``), and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.network.online_world import view

from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.lookahead import best_start, first_moves
from hippo.network.rules.move import STILL, STOPPED, STREAMING
from hippo.network.rules.outlook import outlook
from hippo.network.rules.view import Action, How
from hippo.network.rules.worth import (
    BACKGROUND,
    DOWNTIME_S,
    DURATION_S,
    STOP,
    SWITCH,
    USD,
    Ahead,
    Now,
    ahead,
    relevered,
    worth,
)

HOWS = {STOP: How.STOP, BACKGROUND: How.BACKGROUND}


def by_hand(epochs_left: float = 100.0, **changed: object) -> Ahead:
    """Two places, one link of 10 bytes/s, moves of 600 bytes; the second place trains twice as much."""
    known = {
        "epoch_s": 10.0,
        "epochs_left": epochs_left,
        "restart_s": 5.0,
        "shadow_share": 0.1,
        "tokens_per_step": 100.0,
        "usd_per_token": 1.0,
        "horizons": np.array([0, 1, 4, 16, 64]),
        "tokens_per_s": np.tile([10.0, 20.0], (5, 1)),
        "egress_usd_per_s": np.tile([1.0, 1.0], (5, 1)),
        "bandwidth_bytes_per_s": np.full((5, 1), 10.0),
        "bytes_per_step": np.zeros((2, 1)),
        "usd_per_byte": np.array([0.5]),
        "place": np.array([0, 1]),
        "move_bytes": np.array([[[0.0], [600.0]], [[600.0], [0.0]]]),
    }
    return Ahead(**(known | changed))  # type: ignore[arg-type]


def test_a_stop_by_hand() -> None:
    found = worth(by_hand(), Now(0, -1, STILL, 0.0))
    assert found.move[1, STOP].tolist() == [60.0, 60.0, 300.0]
    assert found.keep.tolist() == [9.0 * 40, 9.0 * 160, 9.0 * 640, 9.0 * 1000]
    # six epochs of nothing, then 19 net tokens/s; of 300 USD so much has been paid as was sent
    assert found.net_tokens[1, STOP] == pytest.approx(
        [-200.0 - 360.0, 19.0 * 100 - 300.0 - 1440.0, 19.0 * 580 - 300.0 - 5760.0, 19.0 * 940 - 300.0 - 9000.0]
    )


def test_a_stream_by_hand() -> None:
    found = worth(by_hand(tokens_per_s=np.tile([0.0, 20.0], (5, 1))), Now(0, -1, STILL, 0.0))
    # nothing trains, so nothing is kept in step: 60 s of streaming, then the last tenth, 6 s
    assert found.move[1, BACKGROUND, DOWNTIME_S] == pytest.approx(6.0)
    assert found.move[1, BACKGROUND, DURATION_S] == pytest.approx(66.0)
    assert found.move[1, BACKGROUND, USD] == pytest.approx(0.5 * 660.0)


def test_a_move_that_never_arrives_is_impossible() -> None:
    assert (worth(by_hand(5.0), Now(0, -1, STILL, 0.0)).net_tokens[1] == -np.inf).all()
    no_way = np.array([[[0.0], [np.inf]], [[np.inf], [0.0]]])
    found = worth(by_hand(move_bytes=no_way), Now(0, -1, STILL, 0.0))
    assert (found.net_tokens[1, STOP:] == -np.inf).all()


def test_keeping_a_move_counts_what_has_arrived() -> None:
    under_way = worth(by_hand(), Now(0, 1, STOPPED, 0.5))
    assert under_way.keep[-1] == pytest.approx(19.0 * 970 - 150.0)
    assert under_way.cancel[-1] == pytest.approx(9.0 * 1000 - under_way.keep[-1])


def test_levers_of_a_place_are_free() -> None:
    one_place = by_hand(place=np.array([0, 0]), move_bytes=np.zeros((1, 1, 1)))
    found = worth(one_place, Now(0, -1, STILL, 0.0))
    assert found.net_tokens[1, SWITCH].tolist() == [400.0, 1600.0, 6400.0, 10000.0]
    assert (relevered(one_place).tokens_per_s == 20.0).all()


def test_to_begin_costs_nothing() -> None:
    found = worth(by_hand(), Now(-1, -1, STILL, 0.0))
    assert found.net_tokens[:, SWITCH, -1].tolist() == [9000.0, 19000.0]


@pytest.mark.parametrize("left", [30, 200])
@pytest.mark.parametrize("seed", range(3))
def test_worths_are_those_of_the_run_played_on(filled: PlanCache, seed: int, left: int) -> None:
    rng = np.random.default_rng(seed)
    share = np.exp(rng.normal(0.0, 0.4, (5, len(filled.problem.cluster.links))))
    seen = view(filled, share, left=left, epoch_s=600.0)
    found, known = worth(ahead(seen), Now(0, -1, STILL, 0.0)), outlook(seen, range(len(filled)))
    keep = known.play(Action())
    assert found.keep[-1] == pytest.approx(keep.net_tokens, rel=1e-6)
    for target, each in enumerate(filled.configurations):
        for mode, how in HOWS.items():
            if each.place == filled.configurations[0].place:
                continue
            played = known.play(Action(how, target))
            if np.isfinite(played.move_s) and np.isfinite(found.move[target, mode, DURATION_S]):
                net = played.net_tokens - keep.net_tokens
                assert found.net_tokens[target, mode, -1] == pytest.approx(net, abs=0.02 * keep.tokens)
                assert found.move[target, mode, DOWNTIME_S] == pytest.approx(played.downtime_s, rel=0.05, abs=30.0)


def test_a_move_under_way_is_worth_what_it_gives_played_on(filled: PlanCache) -> None:
    other = next(i for i, each in enumerate(filled.configurations) if each.place != filled.configurations[0].place)
    for phase, share in ((STOPPED, 1.0), (STREAMING, 60.0)):
        links = np.full((5, len(filled.problem.cluster.links)), share)
        seen = view(filled, links, running=0, target=other, phase=phase, arrived=0.4, epoch_s=600.0)
        found = worth(ahead(seen), Now(0, other, phase, 0.4))
        known = outlook(seen, (0, other))
        keep, cancel = known.play(Action()).net_tokens, known.play(Action(How.CANCEL)).net_tokens
        assert found.keep[-1] == pytest.approx(keep, rel=0.02)
        assert found.keep[-1] + found.cancel[-1] == pytest.approx(cancel, rel=1e-6)


# ------------------------------------------------------------------------------------------------- sequences of moves
LEADS = np.array([0, 1])


def test_a_lasting_change_is_worth_one_move() -> None:
    look = by_hand()
    gains = first_moves(look, Now(0, -1, STILL, 0.0), LEADS)
    waits = 19.0 * 930 - 300.0 + 9.0 * 10  # keeping for one epoch, then the same
    assert gains[1, 0] == pytest.approx(19.0 * 940 - 300.0 - waits)
    assert (gains[0] == -np.inf).all()


def test_an_excursion_counts_with_the_way_back() -> None:
    tokens = np.tile([10.0, 20.0], (5, 1))
    tokens[3:] = 10.0, 1.0  # from 16 epochs on the second place is poor
    look = by_hand(tokens_per_s=tokens, usd_per_byte=np.zeros(1), egress_usd_per_s=np.zeros((5, 2)))
    stays = worth(look, Now(0, -1, STILL, 0.0)).net_tokens[1, STOP, -1]
    gains = first_moves(look, Now(0, -1, STILL, 0.0), LEADS)
    assert stays < 0.0
    assert gains[1].max() > stays  # whoever goes may come back
    assert gains[1].max() < 0.0  # and still it does not pay


def test_the_best_start_is_the_best_place() -> None:
    found = best_start(by_hand(), LEADS)
    assert found.argmax() == 1
    assert found[1] == pytest.approx(19000.0)
