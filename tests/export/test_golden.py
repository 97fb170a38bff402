"""Texts that a person can read: the example plan for every target.

Made by ``python -m tests.export.test_golden`` (from the project's root), looked through, and kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import pytest

from hippo.export.base import Wishes
from hippo.registry import exporter

from .examples import example

GOLDEN = Path(__file__).with_name("golden")
KEPT = {
    "megatron": ("README.md", "program.sh", "launch.sh"),
    "deepspeed": ("README.md", "ds_config.json", "hostfile", "cut_pipeline.py"),
    "torchtitan": ("README.md", "hippo_recipe.py", "program.sh"),
    "torchrun": ("README.md",),
    "slurm": ("README.md", "job.sbatch"),
    "skypilot": ("README.md", "hippo.sky.yaml"),
    "ray": ("README.md", "ray_launch.py"),
    "jobset": ("README.md", "jobset-dc-a.yaml", "kueue-manager.yaml", "kueue-worker-dc-b.yaml"),
}
PLACES = {"skypilot": {"dc-a": "gcp/us-central1", "dc-b": "aws/eu-west-1"}}


def texts() -> Iterator[tuple[str, str]]:
    problem, plan = example()
    for target, names in KEPT.items():
        found = exporter(target)(problem, plan, Wishes(places=MappingProxyType(PLACES.get(target, {}))))
        for name in names:
            shown = f"{name}.txt" if name.endswith(".py") else name  # no code of the tests
            yield f"{target}/{shown}", _untimed(str(found.files[name]))


def _untimed(text: str) -> str:
    """Without times and prices of a step, the plan that one domain would do with, and what a runtime assumes: those are
    the simulator's, a planner's and the runtime's to say."""
    text = re.sub(r"\S+ m?s and \$\S+ a step", ".. a step", text)
    text = re.sub(r"\(one domain, .*?; `", "(..; `", text)
    return re.sub(r"Assumed: .*\n\n", "", text)


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return dict(texts())


@pytest.mark.parametrize("name", sorted(str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*") if path.is_file()))
def test_the_example_for_every_target(name: str, written: dict[str, str]):
    assert written[name] == (GOLDEN / name).read_text()


def test_no_text_is_missing(written: dict[str, str]):
    assert {name for name in written if not (GOLDEN / name).exists()} == set()


if __name__ == "__main__":
    for name, text in texts():
        (GOLDEN / name).parent.mkdir(parents=True, exist_ok=True)
        (GOLDEN / name).write_text(text)
