"""Ray: the script on a local cluster of two invented nodes with labels, where Ray is installed."""

from __future__ import annotations

from .conftest import Asked, Written, exported
from .examples import example

RUN = """
import os, runpy
import ray
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0, "include_dashboard": False})
try:
    for region in ("dc-b", "dc-a"):  # the plan's first domain starts last
        cluster.add_node(num_cpus=2, num_gpus=8, labels={"ray.io/region": os.environ.get("WRONG", region)})
    ray.init(address=cluster.address, log_to_driver=False)
    runpy.run_path("ray_launch.py", run_name="__main__")
except SystemExit as ending:
    print("ended", ending.code)
finally:
    ray.shutdown()
    cluster.shutdown()
"""
GPUS = "0,1,2,3,4,5,6,7"
STAND_IN = """\
#!/usr/bin/env bash
echo "$1 $2 $MASTER_PORT $(tr -cd , <<< "$CUDA_VISIBLE_DEVICES" | wc -c) $TRAIN" > "$FOLDER/$1"
"""


def test_a_bundle_per_host_in_the_order_of_ranks():
    text = str(exported("ray", *example()).files["ray_launch.py"])
    compile(text, "ray_launch.py", "exec")
    assert text.index('("dc-a", "dc-a", 0, 8),') < text.index('("dc-b", "dc-b", 0, 8),')
    assert 'bundle_label_selector=[{"ray.io/region": region}' in text


def test_ray_starts_every_host_in_its_domain(written: Written, ask: Asked):
    folder = written("ray")
    (folder / "launch.sh").write_text(STAND_IN.replace("$FOLDER", str(folder)))
    answer = ask("ray", folder, RUN, TRAIN="passed on", HIPPO_WAIT_S=60, CUDA_VISIBLE_DEVICES=GPUS)
    assert answer.stdout.splitlines()[-1:] == ["ended 0"], answer.stdout + answer.stderr[-2000:]
    for domain in ("dc-a", "dc-b"):
        assert (folder / domain).read_text() == f"{domain} 0 29500 7 passed on\n"


def test_ray_finds_no_host_in_another_region(written: Written, ask: Asked):
    answer = ask("ray", written("ray"), RUN, WRONG="elsewhere", HIPPO_WAIT_S=3, CUDA_VISIBLE_DEVICES=GPUS)
    assert "no free host for every bundle within 3 s" in answer.stdout, answer.stderr[-2000:]
