"""The JSON schemas of cluster and profile files, against the readers: what one refuses the other refuses too.

A schema cannot say that a name exists, that names differ, or that sums stay small; these complaints of the readers are
listed, and all others must be the schema's as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hippo.errors import InputError
from hippo.problem import cluster_yaml
from hippo.problem.catalogue.clusters import CLUSTERS
from hippo.problem.cluster_yaml import cluster_from_document, cluster_to_document
from hippo.problem.document import parse_json, parse_yaml
from hippo.problem.profile import _ROW, profile_from_document

ROOT = Path(__file__).resolve().parents[2]
Read = Callable[[object], object]

GPU = {"name": "own", "peak_tflops": {"bf16": 300, "fp8": 600}, "memory_gb": 80, "hbm_gb_per_s": 2000}
GPU |= {"nvlink_gb_per_s": 300, "price_usd_per_hour": 2.5, "node_gbps": 400, "nvlink_domain": 8, "family": "ampere"}
DOMAINS = [
    {"name": "north", "nodes": 2, "gpus_per_node": 8, "intra_node_gbps": 2400, "inter_node_gbps": 800},
    {"name": "south", "nodes": 1, "gpus_per_node": 8, "inter_node_latency_us": 4.5},
]
LINK = {"from": "north", "to": "south", "bandwidth_gbps": 5, "per_node_gbps": 2, "latency_ms": 30}
LINK |= {"price_usd_per_gb": 0.02, "both": True}
DYNAMICS = {
    "swing": 0.3,
    "sigma": 0.1,
    "tau_s": 21600,
    "diurnal_peak_to_trough": 1.4,
    "outages_per_day": 1,
    "outage_s": 60,
}
CLUSTER = {"name": "c", "source": "s", "gpu": GPU, "domains": DOMAINS, "links": [LINK], "dynamics": DYNAMICS}
CLUSTER |= {"congestion": "bbr"}
LIKE = CLUSTER | {"gpu": {"like": "H100-SXM-80GB", "memory_gb": 94}, "links": None}
ROW = {"layer_kind": "block", "gpu": "A100-SXM-80GB", "tp": 2, "micro_batch": 1, "recompute": "none", "forward_s": 0.1}
ROW |= {
    "backward_s": 0.2,
    "weight_gradient_s": 0.1,
    "parameter_bytes": 1e8,
    "activation_bytes": 1e8,
    "output_bytes": 1e7,
}
BY_INDEX = {key: value for key, value in ROW.items() if key != "layer_kind"} | {"layer_index": 3}
PROFILE = {"precision": "bf16", "state_bytes_per_parameter": 16, "source": "s", "rows": [ROW, BY_INDEX]}

READERS: dict[str, Read] = {
    "cluster": lambda document: cluster_from_document(document, source="c", name="c"),
    "profile": lambda document: profile_from_document(document, source="p"),
}
DOCUMENTS = {"cluster": (CLUSTER, LIKE), "profile": (PROFILE,)}
VALUES = [None, True, 0, -1, 1, 3, 2.0, 0.5, 1e40, 10**12, "", "x", " x", "a/b", "north", "block", "bf16", [], {}, [1]]
BEYOND_A_SCHEMA = (
    *("unknown gpu", "unknown domain", "joins a domain to itself", "a second link", "names two domains"),
    *("GPUs together", "rows for one layer", "blanks around it"),
)


def schema(name: str) -> dict[str, Any]:
    return json.loads((files("hippo.problem") / "schemas" / f"{name}.json").read_text())  # type: ignore[no-any-return]


def complaint(read: Read, document: object) -> str | None:
    """What the reader says against a document; None: it takes it."""
    try:
        read(document)
    except InputError as error:
        return str(error)
    return None


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of everything inside a document."""
    keys = list(document) if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in keys:
        yield document, key
        yield from places(document[key])


@st.composite
def damaged(draw: st.DrawFn, name: str) -> Any:
    """A good document in which one or two things were replaced, removed or added."""
    document = deepcopy(draw(st.sampled_from(DOCUMENTS[name])))
    for _ in range(draw(st.integers(1, 2))):
        container, key = draw(st.sampled_from(list(places(document))))
        what = draw(st.sampled_from(["replace", "remove", "add"]))
        if what == "replace":
            container[key] = deepcopy(draw(st.sampled_from(VALUES)))
        elif what == "remove":
            del container[key]
        elif isinstance(container, dict):
            container["unheard_of"] = 1
        else:
            container.append(deepcopy(container[key]))
        if not list(places(document)):
            break
    return document


@pytest.mark.parametrize("name", READERS)
def test_each_schema_is_one(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
def test_the_clusters_of_the_catalogue_are_valid_written_out(cluster: Any) -> None:
    Draft202012Validator(schema("cluster")).validate(cluster_to_document(cluster))


@pytest.mark.parametrize("name", READERS)
def test_the_good_documents_of_this_test_are_valid(name: str) -> None:
    for document in DOCUMENTS[name]:
        Draft202012Validator(schema(name)).validate(document)
        assert complaint(READERS[name], document) is None


def test_the_files_that_ship_are_valid_and_name_their_schema() -> None:
    shipped = [path for path in sorted((ROOT / "examples").glob("*.yaml")) if "\ndomains:" in path.read_text()]
    assert shipped
    for path in shipped:
        text = path.read_text()
        Draft202012Validator(schema("cluster")).validate(parse_yaml(text, path.name))
        (named,) = [line.split("$schema=")[1] for line in text.splitlines() if "yaml-language-server" in line]
        assert (path.parent / named).resolve() == ROOT / "src" / "hippo" / "problem" / "schemas" / "cluster.json"


def test_the_examples_of_the_page_are_valid() -> None:
    page = (ROOT / "docs" / "contracts.md").read_text()
    yaml = page.split("### Cluster\n")[1].split("```yaml\n")[1].split("```")[0]
    measured = page.split("### Profile\n")[1].split("```json\n")[1].split("```")[0]
    Draft202012Validator(schema("cluster")).validate(parse_yaml(yaml, "page"))
    Draft202012Validator(schema("profile")).validate(parse_json(measured, "page"))


def test_a_schema_knows_the_keys_of_its_reader() -> None:
    cluster, profile = schema("cluster"), schema("profile")
    inside = cluster["$defs"]
    assert set(cluster["properties"]) == set(cluster_yaml._TOP)
    assert set(inside["domain"]["properties"]) == set(cluster_yaml._DOMAIN)
    assert set(inside["link"]["properties"]) == set(cluster_yaml._LINK)
    assert set(inside["gpu"]["properties"]) == set(cluster_yaml._GPU)
    assert set(inside["dynamics"]["properties"]) == set(cluster_yaml._DYNAMICS)
    assert set(profile["$defs"]["row"]["properties"]) == set(_ROW)
    assert tuple(profile["properties"]["precision"]["enum"]) == cluster_yaml.PRECISIONS


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_a_schema_and_its_reader_refuse_the_same(name: str, data: st.DataObject) -> None:
    document = data.draw(damaged(name))
    valid = Draft202012Validator(schema(name)).is_valid(document)
    said = complaint(READERS[name], document)
    if valid:
        assert said is None or any(words in said for words in BEYOND_A_SCHEMA), said
    else:
        assert said is not None, [error.message for error in Draft202012Validator(schema(name)).iter_errors(document)]
