"""Every kind of wrong input ends with exit code 2 and one message that names file, key, value and remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CLUSTER = {
    "gpu": "A100-SXM-80GB",
    "domains": [
        {"name": "a", "nodes": 1, "gpus_per_node": 8},
        {"name": "b", "nodes": 1, "gpus_per_node": 8},
    ],
    "links": [{"from": "a", "to": "b", "bandwidth_gbps": 5, "latency_ms": 10, "price_usd_per_gb": 0.02, "both": True}],
}
MODEL = {
    "model_type": "llama",
    "num_hidden_layers": 8,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
}


def written(folder: Path, name: str, document: object) -> str:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def changed(path: tuple[object, ...], value: object) -> dict:
    """The good cluster with one value changed (``...``: taken away)."""
    document = json.loads(json.dumps(CLUSTER))
    place = document
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


def plan_of(refused, *, model: str, cluster: str) -> str:
    return refused("plan", "--model", model, "--cluster", cluster, "--planner", "single_domain")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("domians",), [], "domians"),
        (("links", 0, "bandwidth_mbps"), 5000, "bandwidth_gbps"),
        (("links", 0, "bandwidth_gbps"), "5 Gbit/s", "5 Gbit/s"),
        (("links", 0, "bandwidth_gbps"), -5, "-5"),
        (("links", 0, "latency_ms"), -1, "-1"),
        (("links", 0, "price_usd_per_gb"), -0.02, "-0.02"),
        (("links", 0, "latency_ms"), float("nan"), "latency_ms"),
        (("links", 0, "to"), "c", "c"),
        (("links", 0, "to"), "a", "a"),
        (("domains", 0, "nodes"), 0, "nodes"),
        (("domains", 0, "gpus_per_node"), 0, "gpus_per_node"),
        (("domains", 1, "name"), "a", "a"),
        (("domains",), [], "domains"),
        (("gpu",), "A100-80", "A100-80"),
        (("gpu",), ..., "gpu"),
    ],
    ids=lambda value: json.dumps(value) if not isinstance(value, type(...)) else "missing",
)
def test_a_wrong_cluster(refused, tmp_path, path, value, said):
    file = written(tmp_path, "net.yaml", changed(path, value))
    message = plan_of(refused, model="llama-3-8b", cluster=file)
    assert file in message
    assert said in message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "perceiver"}, "perceiver"),
        ({"num_hidden_layers": 1_000_000}, "1000000"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"hidden_size": float("nan")}, "NaN"),
        ({"hidden_size": "512"}, "512"),
        ({"num_attention_heads": -8}, "-8"),
        ({"vocab_size": None}, "vocab_size"),
    ],
    ids=json.dumps,
)
def test_a_wrong_model(refused, tmp_path, change, said):
    file = written(tmp_path, "config.json", MODEL | change)
    message = plan_of(refused, model=file, cluster="toy")
    assert file in message
    assert said in message


@pytest.mark.parametrize("text", ["", "{", '{"model_type": "llama", ', "[1, 2]", "null", "\x00"], ids=repr)
def test_a_file_that_is_no_model(refused, tmp_path, text):
    file = written(tmp_path, "config.json", text)
    assert file in plan_of(refused, model=file, cluster="toy")


@pytest.mark.parametrize("text", ["", "gpu: [", "- a\n- b", "gpu: A100\ngpu: H100", "a: &x [*x]"], ids=repr)
def test_a_file_that_is_no_cluster(refused, tmp_path, text):
    file = written(tmp_path, "net.yaml", text)
    assert file in plan_of(refused, model="llama-3-8b", cluster=file)


def test_a_file_that_is_not_there(refused, tmp_path):
    file = str(tmp_path / "net.yaml")
    assert file in plan_of(refused, model="llama-3-8b", cluster=file)


@pytest.mark.parametrize(
    ("option", "value", "close"),
    [
        ("--model", "lama-3-8b", "llama-3-8b"),
        ("--cluster", "four-hub", "four-hubs"),
        ("--planner", "exakt", "exact"),
        ("--runtime", "megatrn", "megatron"),
        ("--precision", "bf61", "bf16"),
    ],
)
def test_an_unknown_name_lists_close_ones(refused, option, value, close):
    options = {"--model": "llama-3-8b", "--cluster": "toy", "--planner": "single_domain"} | {option: value}
    message = refused("plan", *(word for pair in options.items() for word in pair))
    assert value in message
    assert f"did you mean '{close}'" in message


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--global-batch", "0"),
        ("--global-batch", "-4"),
        ("--seq", "0"),
        ("--seq", "99999999999"),
        ("--time-limit", "0"),
        ("--time-limit", "-1"),
        ("--time-limit", "nan"),
        ("--time-limit", "inf"),
        ("--objective", "speed"),
        ("--objective", "1,2"),
        ("--objective", "1,nan,0"),
        ("--objective", "0,0,0"),
        ("--objective", "-1,0,1"),
        ("--balance-delta", "nan"),
        ("--bandwidth-floor", "-1"),
    ],
)
def test_a_value_out_of_range(refused, option, value):
    message = refused("plan", "--model", "llama-3-8b", "--cluster", "toy", "--planner", "single_domain", option, value)
    assert option.strip("-").split("-")[0] in message
    assert value.split(".")[0].lstrip("-") in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "JSON"),
        ('{"hippo_plan": 1', "JSON"),
        ('{"hippo_plan": 2}', "hippo_plan"),
        ('{"hippo_plan": 1, "pipeline": []}', "pipeline"),
        ("[]", "hippo_plan"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "simulate"])
def test_a_file_that_is_no_plan(refused, tmp_path, command, text, said):
    file = written(tmp_path, "plan.json", text)
    message = refused(command, file)
    assert file in message
    assert said in message


def test_a_profile_of_another_gpu(refused, tmp_path):
    row = {"layer_kind": "block", "gpu": "H100-SXM-80GB", "tp": 1, "micro_batch": 1, "forward_s": 1, "backward_s": 2}
    row |= {"parameter_bytes": 1, "activation_bytes": 1, "output_bytes": 1}
    rows = [row | {"layer_kind": kind} for kind in ("embedding", "block", "head")]
    file = written(tmp_path, "profile.json", {"precision": "bf16", "state_bytes_per_parameter": 16, "rows": rows})
    message = refused("plan", "--model", "llama-3-8b", "--cluster", "toy", "--profile", file)
    assert file in message
    assert "H100-SXM-80GB" in message
