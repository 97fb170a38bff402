"""SkyPilot: documents by our own reading, and by SkyPilot's own loader where it is installed."""

from __future__ import annotations

import json
from types import MappingProxyType

import yaml

from .conftest import Asked, Written, exported
from .examples import example

PLACES = MappingProxyType({"dc-a": "gcp/us-central1", "dc-b": "aws/eu-west-1"})
READ = """
import json, sys, yaml
from sky import task
documents = list(yaml.safe_load_all(open("hippo.sky.yaml")))
def read(document):
    try:
        found = task.Task.from_yaml_config(document)
        return [found.name, found.num_nodes, sorted(str(each.infra.to_str()) for each in found.resources)]
    except Exception as error:
        return f"refused: {error}"
broken = {**documents[1], "resources": {"acelerators": "H100:8"}}
from sky.utils import dag_utils
try:
    dag = dag_utils.load_chain_dag_from_yaml("hippo.sky.yaml") if not hasattr(dag_utils, "load_dag_from_yaml") \\
        else dag_utils.load_dag_from_yaml("hippo.sky.yaml")
    group = [dag.name, [each.name for each in dag.tasks]]
except Exception as error:
    group = f"refused: {error}"
print(json.dumps({"tasks": [read(each) for each in documents[1:]], "broken": read(broken), "group": group}))
"""


def test_a_task_per_domain_in_the_order_of_ranks():
    group, first, second = yaml.safe_load_all(str(exported("skypilot", *example()).files["hippo.sky.yaml"]))
    assert group == {"name": "hippo-llama-3-8b", "execution": "parallel", "inter_connection": False}
    assert (first["name"], first["num_nodes"], first["resources"]["accelerators"]) == ("dc-a", 1, "H100:8")
    assert first["resources"]["ports"] == 29500
    assert "ports" not in second["resources"]
    assert second["run"] == 'bash launch.sh dc-b "$SKYPILOT_NODE_RANK"\n'
    assert "MASTER_ADDR" in second["envs"]


def test_skypilot_takes_the_example(written: Written, ask: Asked):
    answer = ask("sky", written("skypilot", places=PLACES), READ)
    assert answer.returncode == 0, answer.stderr[-2000:]
    told = json.loads(answer.stdout.splitlines()[-1])
    assert told["tasks"] == [["dc-a", 1, ["gcp/us-central1"]], ["dc-b", 1, ["aws/eu-west-1"]]]
    assert told["group"] == ["hippo-llama-3-8b", ["dc-a", "dc-b"]]
    assert "accelerators" in told["broken"]
    assert told["broken"].startswith("refused")
