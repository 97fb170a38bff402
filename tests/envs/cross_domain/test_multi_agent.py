"""Two clocks: the upper agent until the chain stands, then the lower agents all at once."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from hippo.envs.cross_domain.generator import make_world
from hippo.envs.cross_domain.multi_agent import UPPER, Construction, multi_agent_env
from hippo.errors import InputError


@pytest.fixture(scope="module")
def construction() -> Construction:
    return Construction([make_world("ou3", 1), make_world("ou3", 2)])


@pytest.mark.parametrize("seed", range(5))
def test_upper_and_lower_agents_take_turns_and_all_are_paid(construction: Construction, seed: int) -> None:
    rng, spaces = np.random.default_rng(seed), construction.observation_spaces
    seen, over, asked = construction.begin(seed), False, set()
    rewards: dict[str, float] = {}
    for _ in range(20):
        for name, each in seen.items():
            assert spaces[name].contains(each), name
        asked |= set(seen)
        assert (set(seen) == {UPPER}) or UPPER not in seen
        answers = {name: int(rng.choice(np.flatnonzero(each["mask"]))) for name, each in seen.items()}
        seen, rewards, over = construction.act(answers)
        if over:
            break
    assert over
    assert set(rewards) in ({UPPER}, asked)
    assert all(np.isfinite(each) and each < 1.0 for each in rewards.values())


def test_answers_that_are_not_allowed_count_as_the_first_that_is(construction: Construction) -> None:
    def rewards(answer: Callable[[Any], int]) -> list[dict[str, float]]:
        seen, over, gave = construction.begin(3), False, []
        while not over:
            seen, came, over = construction.act({name: answer(each["mask"]) for name, each in seen.items()})
            gave.append(came)
        return gave

    barred = rewards(lambda mask: len(mask) - 1)
    assert barred == rewards(lambda mask: len(mask) - 1 if mask[-1] else int(np.argmax(mask)))


def test_without_rllib_it_says_what_to_install() -> None:
    if find_spec("ray") is not None:
        pytest.skip("RLlib is installed")
    with pytest.raises(InputError, match="RLlib"):
        multi_agent_env([make_world("ou3", 1)])
