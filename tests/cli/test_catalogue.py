"""``hippo catalogue``: every name that it lists is one that loads."""

from __future__ import annotations

import pytest

from hippo.problem.load import load_cluster, load_model
from hippo.registry import planner
from hippo.schedule.solve import NAMES

LOADERS = {"models": load_model, "clusters": load_cluster, "planners": planner}


def test_the_document(hippo):
    document = hippo("catalogue", "--json").document
    assert set(document) == {"models", "clusters", "gpus", "planners", "schedules"}
    assert tuple(row["name"] for row in document["schedules"]) == NAMES
    for kind, loader in LOADERS.items():
        for row in document[kind]:
            assert loader(row["name"]).name == row["name"]


def test_figures_name_their_source(hippo):
    document = hippo("catalogue", "--json").document
    sourceless = [row["name"] for kind in ("models", "clusters", "gpus") for row in document[kind] if not row["source"]]
    assert sourceless == []


@pytest.mark.parametrize("kind", ["models", "clusters", "gpus", "planners", "schedules"])
def test_one_table(hippo, kind):
    answer = hippo("catalogue", kind)
    assert answer.code == 0
    assert kind in answer.out


def test_an_unknown_table(refused):
    assert "did you mean 'models'" in refused("catalogue", "model")


@pytest.mark.parametrize("file", ["cluster", "profile"])
def test_the_schema_of_a_file(hippo, file):
    assert hippo("catalogue", "schema", file).document["title"] == f"hippo {file}"


@pytest.mark.parametrize("words", [("schema", "clutser"), ("gpus", "cluster")])
def test_a_schema_that_does_not_exist(refused, words):
    assert "schema" in refused("catalogue", *words)


def test_a_schema_that_is_not_named(refused):
    assert "To fix: name one: cluster, profile." in refused("catalogue", "schema")


def test_the_first_line_says_something(hippo):
    assert hippo("catalogue").out.startswith("models\n")
