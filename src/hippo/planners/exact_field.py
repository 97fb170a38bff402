"""What the parts of the exact search share: tables, routes, paths, the judge, and what tied embeddings cost.

Letters: K domains, n domains of a path.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hippo.plan.plan import Relay
from hippo.plan.runtimes import RuntimeRules, runtime_rules
from hippo.planners.exact_judge import Judge
from hippo.planners.exact_layouts import Layout, layouts
from hippo.planners.exact_links import Routes, border_pairs, paths, slowest_pair
from hippo.planners.exact_tables import Tables
from hippo.problem.problem import Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Path:
    """Domains that a pipeline visits in order, and what its borders cost. ``domains`` is empty for a bound over paths."""

    domains: tuple[int, ...]
    pace: Floats  # (n,) seconds per byte of the border before each domain, there and back; 0 for the first
    latency_s: Floats  # (n,) there and back
    slowest: float  # seconds per byte of the slowest border, one way
    tail_s: float  # tied embeddings: first and last domain agree at the end of the step
    relays: tuple[Relay, ...] = ()

    def delays(self, wave_bytes: float) -> Floats:
        """(n,) round-trip seconds of one wave over the border before each domain."""
        return self.pace * wave_bytes + self.latency_s


@dataclass(frozen=True, eq=False)
class Field:
    """One problem, prepared."""

    problem: Problem
    tables: Tables
    routes: Routes
    judge: Judge
    _cache: dict[object, object] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, problem: Problem, judge: Judge) -> Field:
        """Tables and routes of the problem."""
        floor = problem.objective.bandwidth_floor_bytes_per_s
        return cls(problem, Tables.of(problem), Routes.of(problem.cluster, floor_bytes_per_s=floor), judge)

    @cached_property
    def rules(self) -> RuntimeRules:
        """Limits of the runtime."""
        return runtime_rules(self.problem.runtime)

    @cached_property
    def layouts(self) -> tuple[list[Layout], ...]:
        """Layouts of every kind of domain."""
        return tuple(layouts(self.tables, kind) for kind in range(len(self.tables.examples)))

    @property
    def domains(self) -> int:
        """K."""
        return len(self.problem.cluster.domains)

    @property
    def wave_bytes(self) -> float:
        """Bytes one sequence sends over a border, each way."""
        return self.tables.wave_bytes_per_sequence

    @cached_property
    def tied_bytes(self) -> float:
        """What first and last domain of a pipeline exchange when the head shares the embedding's matrix."""
        model = self.problem.model
        return model.vocab * model.hidden * self.problem.workload.gradient_bytes_per_parameter if model.tied else 0.0

    @cached_property
    def slowest_pair(self) -> Floats:
        """(K + 1,) least slowest border of any n domains, seconds per byte."""
        return slowest_pair(self.routes.pair_pace)

    def path(self, domains: tuple[int, ...], ceiling: float) -> Path:
        """The path over these domains, relayed where a border would be slower than ``ceiling`` seconds per byte."""
        routes, pairs = self.routes, border_pairs(domains)
        relayed = routes.relayed(ceiling)
        pace = np.where(relayed, routes.seconds_per_byte, routes.direct_seconds_per_byte)
        latency = np.where(relayed, routes.latency_s, routes.direct_latency_s)
        there = [(pace[a, b], latency[a, b]) for a, b in pairs[0::2]]
        back = [(pace[a, b], latency[a, b]) for a, b in pairs[1::2]]
        sums = [(p + q, s + t) for (p, s), (q, t) in zip(there, back, strict=True)]
        ends = [(domains[0], domains[-1]), (domains[-1], domains[0])] if self.tied_bytes and len(domains) > 1 else []
        tail = max((self.tied_bytes * pace[e] for e in ends), default=0.0)
        return Path(
            domains,
            np.array([0.0, *(each for each, _ in sums)]),
            np.array([0.0, *(each for _, each in sums)]),
            max((p for p, _ in (*there, *back)), default=0.0),
            tail + 2 * max((latency[e] for e in ends), default=0.0),
            routes.relays(pairs + ends, ceiling),
        )

    def best_paths(self, among: tuple[int, ...]) -> dict[int, tuple[Path, ...]]:
        """For every number of domains the paths worth trying: over the fastest borders, and the nearest of all."""
        index = np.ix_(among, among)
        pace = self.routes.pair_pace[index]
        bound = slowest_pair(pace)
        found: dict[int, dict[tuple[int, ...], Path]] = {n: {} for n in range(1, len(among) + 1)}
        steps = np.unique(pace[np.isfinite(pace)])
        for n in range(2, len(among) + 1):
            for ceiling in (*steps[steps >= bound[n] * (1 - 1e-12)][:4], np.inf):
                runs = self._paths(among, float(ceiling))
                for length, each in enumerate(runs, start=1):
                    if each is not None:
                        found[length].setdefault(each.domains, each)
                if runs[n - 1] is not None:
                    break
        for each in self._paths(among, np.inf):
            if each is not None:
                found[len(each.domains)].setdefault(each.domains, each)
        return {n: tuple(sorted(ways.values(), key=lambda way: way.slowest)) for n, ways in found.items() if ways}

    def _paths(self, among: tuple[int, ...], ceiling: float) -> list[Path | None]:
        key = ("paths", among, ceiling)
        if key not in self._cache:
            index = np.ix_(among, among)
            wave = self.wave_bytes * max(1, self.problem.workload.global_batch // 64)
            pace = self.routes.pair_pace[index]
            runs = paths(pace, self.routes.round_trip_s(wave, ceiling)[index], ceiling * (1 + 1e-12))
            self._cache[key] = [
                None if each is None else self.path(tuple(among[i] for i in each), ceiling) for each in runs
            ]
        return self._cache[key]  # type: ignore[return-value]
