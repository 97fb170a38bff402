"""The tables of the search hold what the cost model says, for every range of layers."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from tests.planners.least_play import field_of, random_world

from hippo.cost.stage import Layout
from hippo.planners.exact.field import Field
from hippo.planners.exact.tables import Tables, divisors


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
            ),
        )
        for each in field.layouts[0][::3]
    ]


@pytest.mark.parametrize("seed", [1, 3, 5, 8])
def test_tables_equal_the_cost_model(seed: int) -> None:
    field = field_of(random_world(seed))
    tables, layers = field.tables, field.problem.model.num_layers
    name = tables.examples[0].name
    for mine, its in some_layouts(field):
        table = field.table(mine)  # type: ignore[arg-type]
        for a, b in combinations(range(layers + 1), 2):
            cost = tables.model.stage(name, a, b, its)
            memory = tables.model.memory(name, a, b, its, live=1)
            total = cost.forward_s + cost.backward_s + cost.weight_gradient_s
            once = cost.sync_s + cost.optimizer_s + cost.fixed_s
            kept = memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes
            assert table.forward_s[b] - table.forward_s[a] == pytest.approx(cost.forward_s)
            assert table.total_s[b] - table.total_s[a] == pytest.approx(total)
            assert table.once_s[b] - table.once_s[a] + table.once_fixed_s == pytest.approx(once)
            assert table.kept_bytes[b] - table.kept_bytes[a] == pytest.approx(kept)
            assert table.activation_bytes[b] - table.activation_bytes[a] == pytest.approx(memory.activation_bytes)
            workspace = memory.workspace_bytes + memory.reserved_bytes
            assert max(table.workspace_bytes[a], table.workspace_bytes[b - 1]) <= workspace * (1 + 1e-9)
            share = cost.gradient_bytes / tables.gradient_bytes
            assert table.share[b] - table.share[a] == pytest.approx(share, rel=1e-6)


def test_packed_rows_follow_the_fields() -> None:
    field = field_of(random_world(1))
    table = field.table(field.layouts[0][0])
    size = field.problem.model.num_layers + 1
    assert table.packed.shape == (9, size)
    for row, own in ((0, table.forward_s), (1, table.total_s), (2, table.kept_bytes), (3, table.activation_bytes)):
        assert (table.packed[row] == own).all()
    assert (table.packed[5] == table.once_s).all()
    assert (table.packed[6] == table.once_fixed_s).all()
    assert (table.packed[7] == table.share).all()


def test_domains_of_one_size_and_fabric_are_of_one_kind() -> None:
    tables = Tables.of(next(world for world in map(random_world, range(40)) if len(world.cluster.domains) == 4))
    assert tables.kinds == (0, 0, 0, 0)
    assert [each.name for each in tables.examples] == ["a"]


def test_divisors() -> None:
    for number in range(1, 60):
        assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]
    assert np.prod(divisors(36)) == 36**4.5
