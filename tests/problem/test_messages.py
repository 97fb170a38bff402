"""What a user reads after a mistake, as golden text: ``messages.txt`` beside this file.

Made by ``python -m tests.problem.test_messages > tests/problem/messages.txt`` and read by a person before it was kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from hippo.errors import InputError
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.catalogue.models import model
from hippo.problem.cluster_yaml import cluster_from_document
from hippo.problem.config_json import model_from_config
from hippo.problem.document import parse_json, parse_yaml
from hippo.problem.routing import routing_from_value
from hippo.problem.trace_csv import trace_from_csv

DOMAINS = "domains: [{name: a, nodes: 1, gpus_per_node: 8}, {name: b, nodes: 1, gpus_per_node: 8}]\n"
LINK = "links: [{from: a, to: b, bandwidth_gbps: 5, latency_ms: 20}]\n"
GOOD = "gpu: A100\n" + DOMAINS + LINK

CLUSTERS = [
    GOOD.replace("A100", "A1000"),
    GOOD.replace("gpu: A100\n", ""),
    GOOD.replace("A100", "{name: mine, memory_gb: 80}"),
    GOOD.replace("A100", "{like: A100, hbm_gbps: 2039}"),
    GOOD + "region: eu\n",
    GOOD.replace(DOMAINS, "domains: []\n"),
    GOOD.replace("name: b", "name: a"),
    GOOD.replace("name: b", "name: a/b"),
    GOOD.replace("name: b, nodes: 1", "name: b, nodes: 0"),
    GOOD.replace("name: b, nodes: 1", "name: b, nodes: 1000000"),
    GOOD.replace("name: b, nodes: 1", "name: b, gpus: 8"),
    GOOD.replace("nodes: 1", "nodes: 90000"),
    GOOD.replace("bandwidth_gbps: 5", "bandwith_gbps: 5"),
    GOOD.replace("bandwidth_gbps: 5", "bandwidth_gb: 5"),
    GOOD.replace("bandwidth_gbps: 5", "bandwidth_gbps: 5 Gbit/s"),
    GOOD.replace("bandwidth_gbps: 5", "bandwidth_gbps: -5"),
    GOOD.replace("bandwidth_gbps: 5", "bandwidth_gbps: 0"),
    GOOD.replace("bandwidth_gbps: 5", "bandwidth_gbps: .nan"),
    GOOD.replace("bandwidth_gbps: 5, ", ""),
    GOOD.replace("latency_ms: 20", "latency_s: 0.02"),
    GOOD.replace("latency_ms: 20", "rtt_ms: 40"),
    GOOD.replace("to: b", "to: c"),
    GOOD.replace("to: b", "to: a"),
    GOOD.replace("latency_ms: 20}", "latency_ms: 20, both: true}, {from: b, to: a, bandwidth_gbps: 1, latency_ms: 9}"),
    GOOD.replace("latency_ms: 20}", "latency_ms: 20, both: yes}"),
    GOOD + "dynamics: {swing: 1.5}\n",
    GOOD.replace("]\n", "\n"),
    GOOD + "gpu: H100\n",
    "just words\n",
    "",
]

SIZES = '"vocab_size": 1000, "hidden_size": 64, "num_attention_heads": 8, "intermediate_size": 128'
MODELS = [
    '{"model_type": "mamba2", "hidden_size": 64}',
    '{"hidden_size": 64}',
    '{"architectures": ["FalconForCausalLM"]}',
    '{"model_type": "llama4", "text_config": {"hidden_size": 64}}',
    '{"model_type": "mistral3", "text_config": {"hidden_size": 64}}',
    '{"model_type": "gpt_oss", "layer_types": ["full_attention"], "num_hidden_layers": 2, "num_local_experts": 8, '
    + SIZES
    + "}",
    '{"model_type": "llama", ' + SIZES + "}",
    '{"model_type": "llama", "num_hidden_layer": 2, ' + SIZES + "}",
    '{"model_type": "llama", "num_hidden_layers": 1000000, ' + SIZES + "}",
    '{"model_type": "llama", "num_hidden_layers": "32", ' + SIZES + "}",
    '{"model_type": "llama", "num_hidden_layers": 1e400, ' + SIZES + "}",
    '{"model_type": "llama", "num_hidden_layers": NaN, ' + SIZES + "}",
    '{"model_type": "llama", "num_hidden_layers": 2, "num_key_value_heads": 5, ' + SIZES + "}",
    '{"model_type": "mixtral", "num_hidden_layers": 2, ' + SIZES + "}",
    '{"model_type": "llama", "num_hidden_layers": 2, ' + SIZES,
    "[]",
]

TRACES = [
    "time,src,dst,gbps,ms\n",
    "time_s,src,dst,bandwidth_gbps,latency_ms\n",
    "time_s,src,dst,bandwidth_gbps,latency_ms\n0,east,west,NaN,20\n",
    "time_s,src,dst,bandwidth_gbps,latency_ms\n0,east,west,5,20\n0,east,west,4,20\n",
    "time_s,src,dst,bandwidth_gbps,latency_ms\n9,east,west,5,20\n3,east,west,4,20\n",
    "time_s,src,dst,bandwidth_gbps,latency_ms\n0,east,wset,5,20\n",
    "time_s,src,dst,bandwidth_gbps,latency_ms\n0,east,west,5\n",
]

ROUTINGS: list[tuple[str, object]] = [
    ("gpt2", 2.0),
    ("gpt2", [1, 2, 3]),
    ("mixtral-8x7b", [1, 1, 1, 1]),
    ("mixtral-8x7b", [3, -1, 1, 1, 1, 1, 1, 1]),
    ("mixtral-8x7b", [0, 0, 0, 0, 0, 0, 0, 0]),
    ("mixtral-8x7b", ["9", 1, 1, 1, 1, 1, 1, 1]),
    ("mixtral-8x7b", [9, 1, 1, 1, 1, 1, 1, 1]),
    ("mixtral-8x7b", "power:-1"),
    ("mixtral-8x7b", "power:steep"),
    ("mixtral-8x7b", "uneven"),
    ("mixtral-8x7b", 0.5),
    ("mixtral-8x7b", float("nan")),
    ("mixtral-8x7b", True),
    ("mixtral-8x7b", {"skew": 2.0}),
]


def messages() -> Iterator[str]:
    """The message of every case, in order."""
    for text in CLUSTERS:
        yield _message(lambda text=text: cluster_from_document(parse_yaml(text, "c.yaml"), source="c.yaml", name="c"))
    for text in MODELS:
        yield _message(
            lambda text=text: model_from_config(parse_json(text, "config.json"), source="config.json", name="m")
        )
    for text in TRACES:
        yield _message(lambda text=text: trace_from_csv(text, cluster("toy"), source="net.csv"))
    for name, value in ROUTINGS:
        yield _message(lambda name=name, value=value: routing_from_value(value, model(name), source="counts.json"))


def _message(read) -> str:  # type: ignore[no-untyped-def]
    try:
        read()
    except InputError as error:
        return str(error)
    return "accepted"


def test_the_messages_are_the_golden_ones() -> None:
    golden = Path(__file__).with_name("messages.txt").read_text(encoding="utf-8").splitlines()
    assert list(messages()) == golden
    assert "accepted" not in golden
    assert all("To fix: " in line for line in golden)


if __name__ == "__main__":
    sys.stdout.write("\n".join(messages()) + "\n")
