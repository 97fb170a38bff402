"""Whatever a file holds, a loader answers with a value or with ``InputError``, soon and in a short message."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hippo.errors import InputError
from hippo.files import json_text
from hippo.plan.check import check
from hippo.plan.codec import load_plan, plan_from_document, plan_to_document
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.cluster_yaml import cluster_from_document, cluster_to_document
from hippo.problem.config_json import model_from_config
from hippo.problem.load import load_cluster, load_model, load_problem, load_profile, load_trace
from hippo.problem.profile import check_profile, profile_from_document
from hippo.problem.trace_csv import trace_from_csv
from hippo.score.cases import load_cases

Loader = Callable[[Path], object]
LOADERS: dict[str, Loader] = {
    "config.json": lambda path: load_model(str(path)),
    "cluster.yaml": lambda path: load_cluster(str(path)),
    "cluster.json": lambda path: load_cluster(str(path)),
    "net.csv": lambda path: load_trace(path, cluster("toy")),
    "profile.json": load_profile,
    "plan.json": load_plan,
    "cases.json": load_cases,
}

CONFIG: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "vocab_size": 1000,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 512,
}
NEXT: dict[str, Any] = {
    **CONFIG,
    "model_type": "qwen3_next",
    "num_experts": 8,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "mlp_only_layers": [1],
}
LLAMA4: dict[str, Any] = {
    "model_type": "llama4",
    "text_config": {**CONFIG, "model_type": "llama4_text", "num_local_experts": 8, "no_rope_layers": [1, 0, 1]}
    | {"moe_layers": [0, 2], "attention_chunk_size": 64},
}
PROFILE: dict[str, Any] = {
    "precision": "bf16",
    "rows": [
        {"layer_kind": kind, "gpu": "A100", "tp": 1, "micro_batch": 1, "forward_s": 0.1, "backward_s": 0.2}
        | {"parameter_bytes": 1.0, "activation_bytes": 1.0, "output_bytes": 1.0}
        for kind in ("embedding", "block", "head")
    ],
}
CLUSTER = cluster_to_document(cluster("toy"))
TRACE = "time_s,src,dst,bandwidth_gbps,latency_ms\n0,east,west,4,30\n60,west,east,2,25\n"


def plan_document() -> dict[str, Any]:
    problem = load_problem(model="gpt2", cluster="toy", global_batch=8)
    stages = (Stage("east", (0, 7), 1, 1, ("east/0/0",)), Stage("west", (7, 14), 1, 1, ("west/0/0",)))
    return plan_to_document(problem, Plan((Pipeline(stages, 8),), micro_batch=1))


def read_config(document: object) -> object:
    return model_from_config(document, source="config.json", name="m").parameters


def read_profile(document: object) -> object:
    profile = profile_from_document(document, source="profile.json")
    check_profile(profile, load_model("gpt2"), cluster("toy").gpu, source="profile.json")
    return profile


def read_plan(document: object) -> object:
    problem, plan = plan_from_document(document, "plan.json")
    return check(problem, plan)


READERS: dict[str, tuple[object, Callable[[object], object]]] = {
    "config": (CONFIG, read_config),
    "config with linear attention": (NEXT, read_config),
    "config of text and images": (LLAMA4, read_config),
    "cluster": (CLUSTER, lambda document: cluster_from_document(document, source="c.yaml", name="c")),
    "profile": (PROFILE, read_profile),
    "plan": (plan_document(), read_plan),
}


def answers(read: Callable[[], object]) -> None:
    """``read`` returns or raises ``InputError`` with a message of a readable length."""
    message = "a value"
    try:
        read()
    except InputError as error:
        message = str(error)
    assert 0 < len(message) < 2500, message[:300]


@pytest.mark.parametrize("name", LOADERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    answers(lambda: LOADERS[name](path))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
STRANGE = [
    *(None, True, -1, 0, 10**6, 10**9, 10**400, 1e400, 1e-400, 0.5, float("nan"), "", "4096", "bf16", "east/0/0"),
    *([], {}, [[]], [{}], {"name": "east"}, "a/b", "\ud800", "x" * 10_000),
]


def places(document: object) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    found: list[tuple[Any, Any]] = []
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        found.append((document, key))
        found.extend(places(value))
    return found


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_mutated_documents(name: str, data: st.DataObject) -> None:
    valid, read = READERS[name]
    document = copy.deepcopy(valid)
    for _ in range(data.draw(st.integers(1, 3))):
        spots = places(document)
        container, key = spots[data.draw(st.integers(0, len(spots) - 1))]
        action = data.draw(st.sampled_from(["replace", "delete", "rename", "double"]))
        if action == "replace":
            container[key] = copy.deepcopy(data.draw(st.sampled_from(STRANGE) | json_values))
        elif action == "delete":
            del container[key]
        elif action == "rename" and isinstance(container, dict):
            container[f"{key}_"] = container.pop(key)
        elif action == "double" and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        if not places(document):
            break
    answers(lambda: read(document))


@pytest.mark.parametrize("name", ["config.json", "cluster.yaml", "cluster.json", "profile.json", "plan.json"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_cut_and_spliced_texts(name: str, data: st.DataObject, tmp_path: Path) -> None:
    valid = {"config.json": CONFIG, "profile.json": PROFILE, "plan.json": READERS["plan"][0]}.get(name, CLUSTER)
    text = json_text(valid)
    start, stop = sorted((data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))))
    piece = data.draw(st.sampled_from(["", "1e400", "NaN", "]", "{", '"', "null", ",", "\t", "9" * 5000, "[" * 2000]))
    path = tmp_path / name
    path.write_text(text[:start] + piece + text[stop:])
    answers(lambda: LOADERS[name](path))


@given(data=st.data())
def test_mutated_traces(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(TRACE)))
    piece = data.draw(st.text(max_size=5) | st.sampled_from(["nan", "1e400", "-", ",", "\n", '"', "\0", "\r"]))
    text = TRACE[:at] + piece + TRACE[data.draw(st.integers(at, len(TRACE))) :]
    answers(lambda: trace_from_csv(text, cluster("toy"), source="net.csv"))


def test_a_valid_document_is_a_value() -> None:
    for name, (valid, read) in READERS.items():
        first, again = (read(json.loads(json.dumps(valid))) for _ in range(2))
        assert first is not None, name
        assert first == again, name
