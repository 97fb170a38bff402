"""The learning configuration: defaults, what it says, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from hippo.errors import InputError
from hippo.learn.settings import Ppo
from hippo.network.train.settings import HiPpoSettings, parse_settings
from hippo.problem.document import parse_yaml

ROOT = Path(__file__).parents[3]


def test_the_file_in_the_tree_says_the_defaults():
    file = ROOT / "configs/algo/hi_ppo.yaml"
    assert parse_settings(parse_yaml(file.read_text(), str(file))) == HiPpoSettings()


def test_what_is_not_said_has_its_default():
    found = parse_settings({"ppo": {"gamma": 0.9, "learning_rate": "1e-3"}, "run": {"seed": 7}})
    assert (found.ppo.gamma, found.ppo.learning_rate, found.run.seed) == (0.9, 1e-3, 7)
    assert found.network == HiPpoSettings().network


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"ppo": {"gama": 0.9}}, ["ppo.gama", "'gamma'"]),
        ({"ppo": {"gamma": 1.5}}, ["ppo.gamma", "from 0 to 1", "1.5"]),
        ({"ppo": {"gamma": float("nan")}}, ["ppo.gamma", "nan"]),
        ({"ppo": {"passes": 2.5}}, ["ppo.passes", "a whole number"]),
        ({"ppo": {"passes": True}}, ["ppo.passes", "a whole number"]),
        ({"ppo": 3}, ["ppo", "must be a mapping"]),
        ({"network": {"encoder": "gcn"}}, ["network.encoder", "gatv2, none, sage"]),
        ({"multipliers": {"limits": [1, 2]}}, ["multipliers.limits", "3 numbers"]),
        ({"multipliers": {"enabled": "yes please"}}, ["multipliers.enabled", "true or false"]),
        ({"worlds": {"families": [1]}}, ["worlds.families[0]", "a word"]),
        ([1], ["must be a mapping"]),
    ],
)
def test_a_wrong_value_is_refused_with_its_key_and_a_remedy(document: object, words: list[str]):
    with pytest.raises(InputError) as refused:
        parse_settings(document, source="mine.yaml")
    assert all(word in str(refused.value) for word in ["mine.yaml", "To fix:", *words])


def test_values_are_checked_when_made():
    with pytest.raises(InputError, match="clip"):
        Ppo(clip=-0.1)
