"""Every kind of wrong input ends with exit code 2 and one message that names file, key, value and remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hippo.plan.codec import save_plan
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.load import load_problem
from hippo.problem.runtimes import RUNTIMES

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
    ("command", "options", "said"),
    [
        ("plan", ["--runtime", "megatron"], "Megatron-LM cannot compress what crosses domains"),
        ("watch", ["--trace", "net.csv"], "--compression-worth: is needed with --allow-compression"),
        ("evaluate", ["--trace", "net.csv"], "--compression-worth: is needed with --allow-compression"),
        ("watch", ["--trace", "net.csv", "--compression-worth", "1.2"], "--compression-worth: is out of range"),
    ],
)
def test_compression_that_nobody_can_price_or_run(refused, command, options, said):
    assert said in refused(command, "--model", "llama-3-8b", "--cluster", "toy", "--allow-compression", *options)


@pytest.mark.parametrize(
    ("runtime", "option", "said"),
    [
        ("megatron", ["--allow-local-sgd"], "Megatron-LM agrees every step and has no local SGD"),
        ("deepspeed", ["--allow-local-sgd"], "or ask for --runtime hippo or torch or ideal"),
        ("deepspeed", ["--all-reduce", "two-level"], "DeepSpeed cannot sum on two levels"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "compare"])
def test_ways_to_agree_that_the_runtime_does_not_have(refused, command, runtime, option, said):
    assert said in refused(command, "--model", "llama-3-8b", "--cluster", "toy", "--runtime", runtime, *option)


@pytest.mark.parametrize("runtime", list(RUNTIMES))
def test_ways_to_agree_that_go_with_every_runtime(runtime):
    for way in ("auto", "ring"):
        asked = load_problem(model="llama-3-8b", cluster="toy", runtime=runtime, all_reduce=way)
        assert asked.all_reduce == way
    if runtime not in ("megatron", "deepspeed"):
        assert load_problem(model="llama-3-8b", cluster="toy", runtime=runtime, allow_local_sgd=True).allow_local_sgd


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


GARBAGE = {
    "empty": b"",
    "binary": bytes(range(256)) * 20,
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "Latin-1": '{"a": "é"}'.encode("latin-1"),
    "NUL": b"\x00",
    "null": b"null",
    "number": b"3",
    "list": b"[1, 2]",
    "deep list": b"[" * 100_000,
    "deep mapping": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "one long word": b"a" * 1_000_000,
    "endless digits": b'{"a": ' + b"9" * 10_000 + b"}",
    "truncated": b'{"a": [1, 2',
    "twice": b'{"a": 1, "a": 2}',
    "bomb": b"a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n",
    "folder": None,
}


@pytest.fixture(scope="module")
def sound_plan(tmp_path_factory) -> str:
    """A plan file that is in order, made without any planner."""
    problem = load_problem(model="gpt2", cluster="toy", global_batch=8)
    stages = (Stage("east", (0, 7), 1, 1, ("east/0/0",)), Stage("west", (7, 14), 1, 1, ("west/0/0",)))
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    save_plan(problem, Plan((Pipeline(stages, 8),), micro_batch=1), path)
    return str(path)


@pytest.mark.parametrize("kind", ["model", "cluster", "profile", "trace", "simulate", "explain", "validate"])
@pytest.mark.parametrize("name", GARBAGE)
def test_files_of_the_wrong_kind(refused, tmp_path, sound_plan, kind, name):
    suffix = {"cluster": "yaml", "trace": "csv"}.get(kind, "json")
    path = tmp_path / f"file.{suffix}"
    content = GARBAGE[name]
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    plan = ["plan", "--planner", "single_domain", "--model", "llama-3-8b", "--cluster", "toy"]
    command = {
        "model": ["plan", "--planner", "single_domain", "--model", path, "--cluster", "toy"],
        "cluster": [*plan[:-1], path],
        "profile": [*plan, "--profile", path],
        "trace": ["simulate", sound_plan, "--trace", path],
    }.get(kind, [kind, path])
    message = refused(*command)
    assert str(path) in message
    assert "\n" not in message.strip()
    assert len(message) < 1000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schedule": {"name": "1f2b"}}, "plan.json: schedule.name: unknown schedule '1f2b'"),
        ({"compression": [{"from": "east", "to": "west", "kind": "zip"}]}, "compression[0].kind: unknown compression"),
        ({"micro_batch": float("nan")}, "plan.json: micro_batch: NaN is not a finite number"),
        ({"micro_batch": 10**9}, "= 8000000000, not 8"),
        ({"hippo_plan": 2}, "(got 2)"),
        ({"nodes": 5}, "plan.json: nodes: unknown key 'nodes' (got 5)"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("command", ["simulate", "explain"])
def test_a_wrong_plan(refused, tmp_path, sound_plan, command, change, said):
    document = json.loads(Path(sound_plan).read_text()) | change
    message = refused(command, written(tmp_path, "plan.json", document))
    assert said in message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpus": 10**12}, "[0].gpus"),
        ({"global_batch": 10**12}, "[0].global_batch"),
        ({"model": {"name": "m", "layers": 10**6, "hidden": 64, "heads": 8, "seq": 64}}, "[0].model.layers"),
        ({"model": {"name": "m", "layers": 2, "hidden": 64, "heads": 65, "seq": 64}}, "is more than hidden (64)"),
        ({"measured": {"seconds_per_iter": float("nan")}}, "[0].measured.seconds_per_iter: NaN"),
        (
            {"measured": {"second_per_iter": 3}},
            "[0].measured.second_per_iter: unknown key, close to 'seconds_per_iter'",
        ),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_wrong_case(refused, data, tmp_path, change, said):
    row = json.loads((data / "training_open.json").read_text())[0]
    message = refused("validate", written(tmp_path, "cases.json", [row | change]))
    assert "cases.json" in message
    assert said in message
