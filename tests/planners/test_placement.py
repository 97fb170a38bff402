"""Placement on domains small enough to draw by hand."""

from __future__ import annotations

import pytest

from hippo.errors import InfeasibleError
from hippo.planners.placement import PipelineSketch, StageSketch, place
from hippo.problem.cluster import Cluster, Domain, Gpu

GPU = Gpu("toy", {"bf16": 1e14}, 8e10, 1e12, 3e11, 1.0)


def domain(name: str, nodes: int, gpus_per_node: int) -> Domain:
    return Domain(name, nodes, gpus_per_node, 3e11, 2.5e10, 5e-6)


CLUSTER = Cluster("toy", GPU, (domain("a", 2, 4), domain("b", 4, 2)), ())


def test_stages_fill_the_domain_node_by_node() -> None:
    sketch = PipelineSketch(
        (StageSketch("a", (0, 2), 2, 1), StageSketch("a", (2, 4), 2, 2), StageSketch("b", (4, 5), 1, 2)), 8
    )
    (pipeline,) = place(CLUSTER, [sketch])
    assert [stage.devices for stage in pipeline.stages] == [
        ("a/0/0", "a/0/1"),
        ("a/0/2", "a/0/3", "a/1/0", "a/1/1"),
        ("b/0/0", "b/0/1"),
    ]
    assert pipeline.num_micro_batches == 8
    assert pipeline.domains == ("a", "b")


def test_pipelines_in_one_domain_share_no_device() -> None:
    stages = (StageSketch("a", (0, 5), 4, 1),)
    first, second = place(CLUSTER, [PipelineSketch(stages, 4), PipelineSketch(stages, 4)])
    assert first.stages[0].devices == ("a/0/0", "a/0/1", "a/0/2", "a/0/3")
    assert second.stages[0].devices == ("a/1/0", "a/1/1", "a/1/2", "a/1/3")


def test_wide_groups_choose_first_and_never_straddle() -> None:
    sketch = PipelineSketch(
        (StageSketch("a", (0, 1), 1, 1), StageSketch("a", (1, 4), 4, 1), StageSketch("a", (4, 5), 3, 1)), 1
    )
    (pipeline,) = place(CLUSTER, [sketch])
    assert pipeline.stages[0].devices == ("a/1/3",)
    assert pipeline.stages[1].devices == tuple(f"a/0/{gpu}" for gpu in range(4))
    assert pipeline.stages[2].devices == ("a/1/0", "a/1/1", "a/1/2")


def test_a_group_wider_than_a_node_takes_nodes_in_a_row() -> None:
    (pipeline,) = place(CLUSTER, [PipelineSketch((StageSketch("b", (0, 5), 4, 2),), 1)])
    assert pipeline.stages[0].devices == tuple(f"b/{node}/{gpu}" for node in range(4) for gpu in range(2))


def test_too_many_groups_are_infeasible() -> None:
    stages = (StageSketch("a", (0, 5), 3, 2),)
    with pytest.raises(InfeasibleError, match="no room left"):
        place(CLUSTER, [PipelineSketch(stages, 1), PipelineSketch((StageSketch("a", (0, 5), 3, 1),), 1)])
