"""Small plans that differ in everything that a run must not be changed by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count, permutations

from hippo.plan.plan import Pipeline, Plan, Relay, ScheduleChoice, Stage
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
from hippo.problem.model import Model, gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload

SEQ = 16
GPT2 = gpt_model("tiny-gpt2", layers=4, hidden=32, heads=4, vocab=61, seq=SEQ)
LLAMA = gpt_model("tiny-llama", layers=4, hidden=32, heads=4, kv_heads=2, vocab=61, seq=SEQ, gated=True)


def problem(model: Model = GPT2, *, batch: int = 8, latency_s: float = 0.0, names: str = "ab") -> Problem:
    """Two domains, or as many as have names, of 16 devices."""
    domains = tuple(Domain(name, 2, 8, 1e11, 1e11, 1e-6) for name in names)
    links = tuple(Link(one, two, 1e8, latency_s, 0.0) for one, two in permutations(names, 2))
    cluster = Cluster("two", gpu("A100-SXM-80GB"), domains, links)
    return Problem(model, cluster, Workload(batch, SEQ, "bf16"))


def pipelines(*given: tuple[int, list[tuple[str, int, int, int, int]]]) -> tuple[Pipeline, ...]:
    """Pipelines of (waves, stages), a stage as (domain, first layer, last layer + 1, tp, dp); devices in turn."""
    free = {name: count() for name in "abc"}
    return tuple(
        Pipeline(
            tuple(
                Stage(d, (start, stop), tp, dp, tuple(_device(d, next(free[d])) for _ in range(tp * dp)))
                for d, start, stop, tp, dp in stages
            ),
            waves,
        )
        for waves, stages in given
    )


def _device(domain: str, index: int) -> str:
    return f"{domain}/{index // 8}/{index % 8}"


SPREAD = Plan(pipelines((2, [("a", 0, 3, 1, 1), ("c", 3, 6, 1, 1)]), (2, [("c", 0, 3, 1, 1), ("b", 3, 6, 1, 1)])), 2)
"""Over three domains."""


def relaying(plan: Plan, *ways: str) -> Plan:
    """What goes from the first domain of a way to the second goes through the third."""
    return replace(plan, relays=tuple(Relay(*way) for way in ways))


ONE_HEAD = gpt_model("tiny", layers=2, hidden=32, heads=4, kv_heads=1, vocab=61, seq=SEQ, gated=True)
SPLIT = ScheduleChoice("zb-h1")
TWINS = Plan(pipelines((2, [("a", 0, 6, 1, 1)]), (2, [("b", 0, 6, 1, 1)])), 2)
"""Of GPT2: two replicas, a process each."""
PLANS: Mapping[str, tuple[Model, Plan]] = {
    "stages": (GPT2, Plan(pipelines((4, [("a", 0, 3, 1, 1), ("b", 3, 6, 1, 1)])), 2)),
    "split backwards": (
        LLAMA,
        Plan(pipelines((8, [("a", 0, 2, 1, 1), ("a", 2, 4, 1, 1), ("b", 4, 6, 1, 1)])), 1, schedule=SPLIT),
    ),
    "tensor parallel": (GPT2, Plan(pipelines((4, [("a", 0, 3, 2, 1), ("b", 3, 6, 1, 1)])), 2)),
    "few key-value heads": (ONE_HEAD, Plan(pipelines((4, [("a", 0, 4, 2, 1)])), 2)),
    "unlike dp": (
        GPT2,
        Plan(pipelines((2, [("a", 0, 2, 1, 4), ("a", 2, 3, 1, 2), ("b", 3, 6, 1, 1)])), 1, schedule=SPLIT),
    ),
    "unlike shares": (
        GPT2,
        Plan(pipelines((3, [("a", 0, 2, 1, 1), ("a", 2, 6, 2, 1)]), (5, [("b", 0, 6, 1, 1)])), 1),
    ),
    "two lanes a domain": (GPT2, Plan(pipelines((2, [("a", 0, 6, 1, 2)]), (2, [("b", 0, 6, 1, 2)])), 1)),
    "unlike lanes": (
        GPT2,
        Plan(pipelines((2, [("a", 0, 6, 1, 2)]), (4, [("b", 0, 3, 1, 1), ("b", 3, 6, 1, 1)])), 1),
    ),
    "everything": (
        LLAMA,
        Plan(
            pipelines((1, [("a", 0, 4, 2, 2), ("b", 4, 6, 1, 1)]), (6, [("b", 0, 3, 1, 1), ("a", 3, 6, 1, 1)])),
            1,
            recompute="full",
            schedule=SPLIT,
        ),
    ),
    "chunks": (
        GPT2,
        Plan(
            pipelines((4, [("a", 0, 3, 1, 1), ("b", 3, 6, 1, 1)])),
            2,
            interleave=2,
            schedule=ScheduleChoice("interleaved"),
        ),
    ),
}
"""By name: a model and a plan for it, eight sequences a step."""
