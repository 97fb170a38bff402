"""Random small worlds for the tests of this folder: several pipelines, shared links, relays, caps, groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hippo.schedule.schedule import order
from hippo.simulate.abstract import PlannedLine, abstract_program, on_links, side_by_side
from hippo.simulate.program import Gather, Program, SyncGroup

SCHEDULES = ("gpipe", "1f1b", "1f1b+", "interleaved")


def random_program(seed: int) -> Program:
    """A program of one to three pipelines on up to six shared links. Deterministic in the seed."""
    rng = np.random.default_rng(seed)
    num_links = int(rng.integers(1, 7))
    name, chunks = SCHEDULES[seed % 4], 1
    if name == "interleaved":
        chunks = int(rng.integers(2, 4))
    lines = [PlannedLine(float(rng.uniform(0.3, 4.0)), float(rng.uniform(0.01, 1.0))) for _ in range(num_links)]
    pipelines = [_pipeline(rng, name, chunks, lines) for _ in range(int(rng.integers(1, 4)))]
    program = side_by_side(pipelines)
    groups = tuple(_group(rng, len(program.rank_stage), num_links) for _ in range(int(rng.integers(0, 4))))
    ranks = len(program.rank_stage)
    program = replace(program, groups=groups, sync_s=rng.uniform(0, 1, ranks), finish_s=rng.uniform(0, 1, ranks))
    program = replace(program, link_per_node=rng.random(num_links) < 0.3)
    if seed % 3 == 0:
        program = replace(program, rank_nodes=rng.integers(0, 3, ranks))
    return replace(program, gather=_gather(rng, program)) if seed % 5 == 0 else program


def _pipeline(rng: np.random.Generator, name: str, chunks: int, lines: list[PlannedLine]) -> Program:
    p = int(rng.integers(2 if chunks > 1 else 1, 6))
    m = p * int(rng.integers(1, 4)) if chunks > 1 else int(rng.integers(1, 12))
    live = p + int(rng.integers(1, 6)) if name == "1f1b+" else None
    schedule = order(name.rstrip("+"), stages=p, micro_batches=m, chunks=chunks, live_limit=live)
    program = abstract_program(
        schedule,
        forward_s=rng.uniform(0.2, 2, p).tolist(),
        backward_s=rng.uniform(0.2, 3, p).tolist(),
        weight_s=rng.uniform(0, 1, p).tolist(),
        delay_s=rng.uniform(0, 1, p - 1).tolist(),
    )
    routes = [[_route(rng, len(lines)) for _ in range(p)] for _ in range(2)]
    nic = np.inf if rng.random() < 0.5 else float(rng.uniform(0.2, 2.0))
    return on_links(
        program, lines, down=routes[0], up=routes[1], num_bytes=float(rng.uniform(0.1, 3)), nic_bytes_per_s=nic
    )


def _route(rng: np.random.Generator, num_links: int) -> list[int]:
    hops = int(rng.choice([0, 1, 1, 2]))
    return rng.integers(0, num_links, hops).tolist()


def _group(rng: np.random.Generator, ranks: int, num_links: int) -> SyncGroup:
    members = sorted(set(rng.integers(0, ranks, int(rng.integers(1, 5))).tolist()))
    links = tuple(sorted(set(rng.integers(0, num_links, 3).tolist())))
    sizes = tuple(rng.uniform(0.1, 5, len(links)).tolist())
    caps = tuple(rng.uniform(0.2, 2, len(links)).tolist()) if rng.random() < 0.5 else ()
    return SyncGroup(
        tuple(members), links, sizes, float(2 * len(links)), float(rng.uniform(0, 1)), nic_bytes_per_s=caps
    )


def _gather(rng: np.random.Generator, program: Program) -> Gather:
    shape = program.forward_s.shape
    return Gather((0,), rng.uniform(0, 2, shape), rng.uniform(0, 4, shape), 1.0)
