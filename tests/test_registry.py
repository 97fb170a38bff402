"""Names to objects: every name loads and bears its own name; a wrong one lists the table."""

from __future__ import annotations

import pytest

from hippo import registry
from hippo.errors import InputError, UnknownNameError


@pytest.mark.parametrize("name", registry.PLANNERS)
def test_every_planner_loads_and_bears_its_name(name):
    planner = registry.planner(name)
    assert planner.name == name
    assert callable(planner.propose)


@pytest.mark.parametrize("name", registry.ENGINES)
def test_every_engine_loads(name):
    assert callable(registry.engine(name))


def test_those_who_compete_are_known():
    assert set(registry.AUTO) | {"brute"} == set(registry.PLANNERS)
    assert registry.AUTO[0] == "exact"
    assert {*registry.USUAL, registry.LOCAL_SGD} <= set(registry.AUTO)


def test_an_unknown_planner_lists_the_table():
    with pytest.raises(UnknownNameError, match="did you mean 'sailor'") as caught:
        registry.planner("sailer")
    assert all(name in str(caught.value) for name in (*registry.PLANNERS, "auto"))


def test_everyone_is_not_one_planner():
    with pytest.raises(InputError, match="^--planner: 'auto' stands for all that compete.* To fix: write it alone"):
        registry.planners(["auto", "even"])
