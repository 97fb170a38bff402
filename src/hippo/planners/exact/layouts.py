"""The layouts of the exact search: every (tp, dp, micro-batch, recompute, sharding) worth trying in a domain.

Dropped are only layouts that another one beats in every number the cost model gives: seconds, bytes, once per step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.plan.plan import RECOMPUTE
from hippo.plan.runtimes import runtime_rules, tp_refusal
from hippo.planners.exact.tables import Mode, Tables, divisors
from hippo.problem.cluster import Domain
from hippo.problem.problem import Problem

Floats = NDArray[np.float64]
WIDEST = 8  # GPUs of a tensor-parallel group of whole small nodes
SHARDING = ("none", "optimizer", "gradients", "hybrid")
"""``gradients`` only for pipelines of one stage (DeepSpeed: ZeRO-2 excludes pipelines); ``full`` in one domain is
``hybrid``."""


@dataclass(frozen=True)
class Layout:
    """One way to lie in a domain of one kind, with room for ``stages`` stages."""

    kind: int
    tp: int
    dp: int
    stages: int
    mode: Mode

    def nodes(self, gpus_per_node: int) -> int:
        """Most nodes that a stage lies on."""
        gpus = self.tp * self.dp
        aligned = gpus % gpus_per_node == 0 or gpus_per_node % gpus == 0
        return -(-gpus // gpus_per_node) + (0 if aligned else 1)

    @property
    def wave(self) -> int:
        """Sequences of one wave."""
        return self.mode.micro_batch * self.dp


def tensor_widths(problem: Problem, domain: Domain) -> list[int]:
    """tp degrees that divide what they split: divisors of a node's GPUs; of small nodes also several whole ones."""
    rules, node = runtime_rules(problem.runtime), domain.gpus_per_node
    wide = [node * nodes for nodes in range(2, min(domain.nodes, WIDEST // node) + 1)]
    fitting = [tp for tp in (*divisors(node), *wide) if tp_refusal(problem.model, tp, rules) is None]
    return [tp for tp in fitting if problem.workload.seq % tp == 0]


def room_for_lanes(domain: Domain, tp: int) -> int:
    """Tensor-parallel groups of that width that a domain has room for."""
    per_node = domain.gpus_per_node // tp
    return domain.nodes * per_node if per_node else domain.nodes // (tp // domain.gpus_per_node)


def shardings(problem: Problem, dp: int) -> tuple[str, ...]:
    """What ``dp`` lanes may shard; a single lane has nothing to."""
    return tuple(name for name in SHARDING if name in runtime_rules(problem.runtime).shardings) if dp > 1 else ("none",)


def layouts(tables: Tables, kind: int) -> list[Layout]:
    """Layouts of a domain of this kind that nothing beats and of which at least one layer fits."""
    return [each for each in all_layouts(tables, kind) if not _beaten(tables, each)]


def all_layouts(tables: Tables, kind: int) -> Iterator[Layout]:
    """Every layout of which one layer fits a GPU."""
    problem, domain = tables.problem, tables.examples[kind]
    batch, layers = problem.workload.global_batch, problem.model.num_layers
    allowed = tables.model.allowed_layouts()
    for tp in tensor_widths(problem, domain):
        room = room_for_lanes(domain, tp)
        for micro_batch in divisors(batch):
            if allowed is not None and (tp, micro_batch) not in allowed:
                continue
            modes = [Mode(micro_batch, recompute, "none") for recompute in _recompute(tables, kind, tp, micro_batch)]
            for dp in divisors(batch // micro_batch):
                if dp > room:
                    break
                for mode in modes:
                    for sharding in shardings(problem, dp):
                        stages = 1 if sharding == "gradients" else min(room // dp, layers)
                        yield Layout(kind, tp, dp, stages, Mode(micro_batch, mode.recompute, sharding))


def _recompute(tables: Tables, kind: int, tp: int, micro_batch: int) -> list[str]:
    """Degrees of recomputation that fit one micro-batch of one layer and that no other degree beats."""
    kept: list[tuple[str, float, float]] = []
    allowed = runtime_rules(tables.problem.runtime).recompute
    degrees = RECOMPUTE if tables.problem.profile is None else tables.profiled_recompute(tp, micro_batch)
    for recompute in (degree for degree in degrees if degree in allowed):
        mode = Mode(micro_batch, recompute, "none")
        seconds = float(tables.times(kind, tp, 1, mode)[1][-1])
        held = tables.activation(kind, tp, mode)
        if np.diff(held).min() > tables.usable_bytes:
            continue
        if not any(seconds >= s * (1 - 1e-12) and held[-1] >= b * (1 - 1e-12) for _, s, b in kept):
            kept = [(n, s, b) for n, s, b in kept if not (seconds <= s and held[-1] <= b)]
            kept.append((recompute, seconds, float(held[-1])))
    return [name for name, _, _ in kept]


def _beaten(tables: Tables, layout: Layout) -> bool:
    """Whether a sharded optimizer is better in everything than a replicated one here."""
    if layout.mode.sharding != "none" or "optimizer" not in shardings(tables.problem, layout.dp):
        return False
    where = layout.kind, layout.tp, layout.dp
    mine, its = tables.once(*where, "none"), tables.once(*where, "optimizer")
    once = np.diff(its[0]) <= np.diff(mine[0]) + 1e-15
    kept = np.diff(tables.kept(*where, "optimizer")) <= np.diff(tables.kept(*where, "none")) + 1e-6
    return bool(once.all() and kept.all() and its[1] <= mine[1] + 1e-12)
