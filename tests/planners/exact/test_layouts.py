"""Layouts: all that divide, none that does not fit, none thrown away that could win."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from tests.planners.least_play import field_of, random_world
from tests.planners.tiny import domain, problem

from hippo.cost.stage import Layout
from hippo.planners.exact.layouts import (
    DomainLayout,
    LayerTables,
    Mode,
    all_layouts,
    layouts,
    shardings,
)
from hippo.planners.exact.space import Field
from hippo.planners.placement import room_for_lanes
from hippo.planners.recipe import FITTED, divisors, every_width
from hippo.problem.runtimes import runtime_of


def test_widths_divide_the_node_or_take_whole_small_nodes() -> None:
    assert every_width(problem((domain("a", 1, 4),)), domain("a", 1, 4)) == [1, 2, 4]
    assert every_width(problem((domain("a", 3, 2),)), domain("a", 3, 2)) == [1, 2, 4]  # 6 does not divide 4 heads
    assert every_width(problem((domain("a", 1, 8),)), domain("a", 1, 8)) == [1, 2, 4]


@pytest.mark.parametrize(("shape", "tp", "lanes"), [((2, 4), 2, 4), ((2, 4), 4, 2), ((4, 2), 4, 2), ((3, 2), 4, 1)])
def test_room_for_lanes(shape: tuple[int, int], tp: int, lanes: int) -> None:
    assert room_for_lanes(domain("a", *shape), tp, 1, wide=True) == lanes
    assert room_for_lanes(domain("a", *shape), tp, 2, wide=True) == lanes // 2


def test_a_single_lane_shards_nothing_and_runtimes_have_their_own() -> None:
    for runtime in ("any", "megatron", "torch", "deepspeed"):
        asked = problem((domain("a", 1, 4),), runtime=runtime)
        assert shardings(asked, 1) == ("none",)
        assert set(shardings(asked, 2)) <= set(runtime_of(runtime).shardings)
    assert shardings(problem((domain("a", 1, 4),), runtime="megatron"), 2) == ("none", "optimizer")
    assert shardings(problem((domain("a", 1, 4),), runtime="hippo"), 2) == ("none",)


@pytest.mark.parametrize("seed", range(8))
def test_only_beaten_layouts_are_dropped(seed: int) -> None:
    tables = LayerTables.of(random_world(seed))
    kept, every = layouts(tables, 0), list(all_layouts(tables, 0))
    batch, room = tables.problem.workload.global_batch, tables.examples[0].gpus
    assert len(set(every)) == len(every)
    for each in every:
        assert batch % each.wave == 0
        assert each.tp * each.dp * each.stages <= room
        if each in kept:
            continue
        assert each.mode.sharding == "none"
        shares = "optimizer" if "optimizer" in tables.problem.rules.shardings else "gradients"
        better = replace(each, mode=replace(each.mode, sharding=shares))
        assert better in kept
        one, other = (tables.table(0, it.tp, it.dp, it.mode).packed for it in (each, better))
        assert (np.diff(other[2:4]) <= np.diff(one[2:4]) + 1e-6).all()
        assert (np.diff(other[5]) <= np.diff(one[5]) + 1e-12).all()


def test_nodes_of_a_stage() -> None:
    mode = Mode(1, "none", "none")
    assert [DomainLayout(0, tp, dp, 1, mode).nodes(4) for tp, dp in ((1, 1), (2, 2), (4, 3), (2, 3))] == [1, 1, 3, 3]


def test_rows_of_the_field_are_the_layouts() -> None:
    field = field_of(random_world(1))
    rows = field.layout_rows(0)
    assert rows.wave.tolist() == [each.wave for each in field.layouts[0]]
    assert rows.stages.tolist() == [each.stages for each in field.layouts[0]]
    for at, layout in enumerate(field.layouts[0]):
        assert rows.total[at] == pytest.approx(field.table(layout).total_s[-1])
        assert rows.once[at] == pytest.approx(field.table(layout).once_s[1] + field.table(layout).once_fixed_s)


def some_layouts(field: Field) -> list[tuple[object, Layout]]:
    """Every third of the search's layouts, and what the cost model calls them."""
    precision = field.problem.workload.precision
    return [
        (
            each,
            Layout(
                each.tp,
                each.dp,
                each.mode.micro_batch,
                recompute=each.mode.recompute,
                sharding=each.mode.sharding,
                precision=precision,
                replicas=each.dp * each.mode.groups,
            ),
        )
        for each in field.layouts[0][::3]
    ]


def as_part(layout: Layout, recompute: str) -> Layout:
    """The layout with this in place of a number of blocks that is not known yet."""
    return replace(layout, recompute=recompute) if layout.recompute == FITTED else layout


@pytest.mark.parametrize("seed", [1, 3, 5, 8])
def test_tables_equal_the_cost_model(seed: int) -> None:
    field = field_of(random_world(seed))
    tables, layers = field.tables, field.problem.model.num_layers
    name = tables.examples[0].name
    for mine, its in some_layouts(field):
        table = field.table(mine)  # type: ignore[arg-type]
        for a, b in combinations(range(layers + 1), 2):
            cost = tables.model.stage(name, a, b, as_part(its, "none"))
            memory = tables.model.memory(name, a, b, as_part(its, "full"), live=1)
            total = cost.forward_s + cost.backward_s + cost.weight_gradient_s
            once = cost.sync_s + cost.optimizer_s + cost.fixed_s
            kept = memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes
            assert table.forward_s[b] - table.forward_s[a] == pytest.approx(cost.forward_s)
            assert table.total_s[b] - table.total_s[a] == pytest.approx(total)
            assert table.once_s[b] - table.once_s[a] + table.once_fixed_s == pytest.approx(once)
            assert table.kept_bytes[b] - table.kept_bytes[a] == pytest.approx(kept)
            assert table.activation_bytes[b] - table.activation_bytes[a] == pytest.approx(memory.activation_bytes)
            if its.recompute == FITTED:
                whole = tables.model.stage(name, a, b, as_part(its, "full"))
                again = whole.forward_s + whole.backward_s + whole.weight_gradient_s - total
                assert table.again_s[b] - table.again_s[a] == pytest.approx(again, abs=1e-12)
                left = tables.model.memory(name, a, b, as_part(its, "none"), live=1)
                spare = left.activation_bytes - memory.activation_bytes
                assert table.spare_bytes[b] - table.spare_bytes[a] == pytest.approx(spare, abs=1.0)
                if a < layers - 1 and b > 1:
                    assert table.again_bytes <= (memory.workspace_bytes + memory.reserved_bytes) * (1 + 1e-9)
                memory = left
            workspace = memory.workspace_bytes + memory.reserved_bytes
            assert max(table.workspace_bytes[a], table.workspace_bytes[b - 1]) <= workspace * (1 + 1e-9)
            apart = field.tied_bytes if a == 0 and not field.rules.copies_tied else 0.0  # summed beside the layers
            share = (cost.gradient_bytes - apart) / tables.gradient_bytes
            assert table.share[b] - table.share[a] == pytest.approx(share, rel=1e-6)


def test_packed_rows_follow_the_fields() -> None:
    field = field_of(random_world(1))
    table = field.table(field.layouts[0][0])
    size = field.problem.model.num_layers + 1
    assert table.packed.shape == (12, size)
    for row, own in ((0, table.forward_s), (1, table.total_s), (2, table.kept_bytes), (3, table.activation_bytes)):
        assert (table.packed[row] == own).all()
    assert (table.packed[5] == table.once_s).all()
    assert (table.packed[6] == table.once_fixed_s).all()
    assert (table.packed[7] == table.share).all()


def test_domains_of_one_size_and_fabric_are_of_one_kind() -> None:
    tables = LayerTables.of(next(world for world in map(random_world, range(40)) if len(world.cluster.domains) == 4))
    assert tables.kinds == (0, 0, 0, 0)
    assert [each.name for each in tables.examples] == ["a"]


def test_divisors() -> None:
    for number in range(1, 60):
        assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]
    assert np.prod(divisors(36)) == 36**4.5
