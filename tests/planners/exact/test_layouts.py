"""Layouts: all that divide, none that does not fit, none thrown away that could win."""

from __future__ import annotations

import numpy as np
import pytest
from tests.planners.least_play import field_of, random_world
from tests.planners.tiny import domain, problem

from hippo.plan.runtimes import runtime_rules
from hippo.planners.exact.layouts import Layout, all_layouts, layouts, room_for_lanes, shardings, tensor_widths
from hippo.planners.exact.tables import Mode, Tables


def test_tensor_widths_divide_the_node_or_take_whole_small_nodes() -> None:
    assert tensor_widths(problem((domain("a", 1, 4),)), domain("a", 1, 4)) == [1, 2, 4]
    assert tensor_widths(problem((domain("a", 3, 2),)), domain("a", 3, 2)) == [1, 2, 4]  # 6 does not divide 4 heads
    assert tensor_widths(problem((domain("a", 1, 8),)), domain("a", 1, 8)) == [1, 2, 4]


@pytest.mark.parametrize(("shape", "tp", "lanes"), [((2, 4), 2, 4), ((2, 4), 4, 2), ((4, 2), 4, 2), ((3, 2), 4, 1)])
def test_room_for_lanes(shape: tuple[int, int], tp: int, lanes: int) -> None:
    assert room_for_lanes(domain("a", *shape), tp) == lanes


def test_a_single_lane_shards_nothing_and_runtimes_have_their_own() -> None:
    for runtime in ("any", "megatron", "torch", "deepspeed"):
        asked = problem((domain("a", 1, 4),), runtime=runtime)
        assert shardings(asked, 1) == ("none",)
        assert set(shardings(asked, 2)) <= set(runtime_rules(runtime).shardings)
    assert shardings(problem((domain("a", 1, 4),), runtime="megatron"), 2) == ("none", "optimizer")


@pytest.mark.parametrize("seed", range(8))
def test_only_beaten_layouts_are_dropped(seed: int) -> None:
    tables = Tables.of(random_world(seed))
    kept, every = layouts(tables, 0), list(all_layouts(tables, 0))
    batch, room = tables.problem.workload.global_batch, tables.examples[0].gpus
    assert len(set(every)) == len(every)
    for each in every:
        assert batch % each.wave == 0
        assert each.tp * each.dp * each.stages <= room
        if each in kept:
            continue
        better = Layout(
            each.kind, each.tp, each.dp, each.stages, Mode(each.mode.micro_batch, each.mode.recompute, "optimizer")
        )
        assert better in kept
        one, other = (tables.table(0, it.tp, it.dp, it.mode).packed for it in (each, better))
        assert (np.diff(other[2:4]) <= np.diff(one[2:4]) + 1e-6).all()
        assert (np.diff(other[5]) <= np.diff(one[5]) + 1e-12).all()


def test_nodes_of_a_stage() -> None:
    mode = Mode(1, "none", "none")
    assert [Layout(0, tp, dp, 1, mode).nodes(4) for tp, dp in ((1, 1), (2, 2), (4, 3), (2, 3))] == [1, 1, 3, 3]


def test_rows_of_the_field_are_the_layouts() -> None:
    field = field_of(random_world(1))
    rows = field.layout_rows(0)
    assert rows.wave.tolist() == [each.wave for each in field.layouts[0]]
    assert rows.stages.tolist() == [each.stages for each in field.layouts[0]]
    for at, layout in enumerate(field.layouts[0]):
        assert rows.total[at] == pytest.approx(field.table(layout).total_s[-1])
        assert rows.once[at] == pytest.approx(field.table(layout).once_s[1] + field.table(layout).once_fixed_s)
