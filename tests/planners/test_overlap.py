"""The exchange of experts beside another micro-batch's work: found where it is best, by brute force too, never below a
bound, and as long as its operations one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tests.planners.worlds import cluster, domain, problem

from hippo.decide.wording import described
from hippo.engine.fixed_order import play
from hippo.engine.program import NOTHING
from hippo.errors import InputError
from hippo.export.megatron import parallel_flags, program
from hippo.plan.check import check
from hippo.plan.codec import plan_from_document, plan_to_document
from hippo.plan.plan import Plan
from hippo.planners.base import Stop
from hippo.planners.brute.brute import Brute
from hippo.planners.brute.space import Space
from hippo.planners.by_hand import Degrees, one_layout
from hippo.planners.exact.search import Exact
from hippo.problem.model import Experts, gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Software
from hippo.score.judge import evaluate, fits, memory
from hippo.simulate.fast import network, step_time
from hippo.simulate.lower import lower
from hippo.simulate.packed import pack

LONG = Stop(600.0)


def mixture(gpus: int, memory_gb: float, experts: Experts, *, blocks: int = 2, batch: int = 16) -> Problem:
    """Long sequences on nodes of one GPU each, whose tokens go to several experts over the network."""
    model = gpt_model(
        "moe", layers=blocks, hidden=2048, heads=8, vocab=2048, seq=4096, gated=True, ffn=4096, experts=experts
    )
    where = cluster(domain("a", gpus, 1), memory_gb=memory_gb)
    return problem(where, model, batch=batch, seq=4096, runtime="megatron", expert_parallel=2)


@pytest.mark.parametrize(
    ("experts", "memory_gb", "sizes"),
    [(Experts(8, 4, 1024), 4.0, (1, 2)), (Experts(8, 4, 1024), 6.0, (2, 4)), (Experts(8, 6, 512), 6.0, (2, 4))],
)
def test_overlapped_it_is_best_with_smaller_micro_batches_and_without_it_is_worse(
    experts: Experts, memory_gb: float, sizes: tuple[int, int]
):
    """An exchange that is hidden has to have something beside it: several micro-batches, which then are smaller."""
    asked = mixture(2, memory_gb, experts)
    every, found = Brute(space=Space(most_chunks=2)).propose(asked, LONG), Exact().propose(asked, LONG)
    without = Brute(space=Space(most_chunks=2, overlap=False)).propose(asked, LONG)
    assert every.gap == 0.0
    assert every.score is not None
    assert found.score is not None
    assert without.score is not None
    assert found.plan is not None
    assert without.plan is not None
    assert found.plan.overlap_exchange
    assert (found.plan.micro_batch, without.plan.micro_batch) == sizes
    assert found.score.step_time_s == pytest.approx(every.score.step_time_s, rel=1e-9)
    assert found.lower_bound_s == pytest.approx(every.score.step_time_s, rel=1e-4)
    assert without.score.step_time_s > 1.05 * every.score.step_time_s


def test_no_layout_lies_below_the_bound():
    """Every layout with equal stages, plain and in chunks, overlapped or not."""
    asked, tried = mixture(4, 12.0, Experts(8, 4, 1024), blocks=6), 0
    found = Exact().propose(asked, LONG)
    assert found.lower_bound_s is not None
    for pp, chunks, size, again, beside in product(
        (1, 2), (1, 2, 3), (1, 2, 4), ("none", "selective", "layernorm+moe"), (False, True)
    ):
        try:
            degrees = Degrees(1, 4 // pp, pp, 1, 2, None, size, chunks, recompute=again, sharding="optimizer")
            plan = one_layout(asked, replace(degrees, overlap_exchange=beside))
        except InputError:
            continue
        if check(asked, plan) or not fits(asked, plan):
            continue
        tried += plan.overlap_exchange
        assert evaluate(asked, plan).step_time_s >= found.lower_bound_s * (1 - 1e-9)
    assert tried > 8


def test_a_step_of_one_stage_by_hand():
    """Of four micro-batches the first forward and the last backward have nothing beside them: of each pass a quarter of
    the exchange shows whole, of the rest ``exposed_ep``."""
    asked = mixture(4, 80.0, Experts(8, 4, 1024))
    plain = laid(asked, pp=1, chunks=1, size=1)
    beside = replace(plain, overlap_exchange=True)
    hidden = replace(asked, workload=replace(asked.workload, software=Software(overlap_ep=True)))
    for name in ("forward_s", "backward_s"):
        whole, shown, spread = (
            getattr(lower(where, plan), name)[0, 0]
            for where, plan in ((asked, plain), (hidden, plain), (asked, beside))
        )
        assert shown < 0.95 * whole
        assert spread == pytest.approx(0.25 * whole + 0.75 * shown)
    assert memory(asked, beside)[0].live_micro_batches == memory(asked, plain)[0].live_micro_batches + 1


@pytest.mark.parametrize(("pp", "chunks", "batch"), [(2, 2, 16), (2, 3, 32), (4, 2, 32), (1, 1, 16), (4, 3, 64)])
def test_operations_of_their_own_lengths_take_as_long(pp: int, chunks: int, batch: int):
    """Against every operation for itself: a forward before its rank's first backward and a backward after its last
    forward run beside nothing, all others beside another."""
    asked = mixture(8, 80.0, Experts(8, 4, 1024), blocks=pp * chunks * 2, batch=batch)
    plan = replace(laid(asked, pp=pp, chunks=chunks, size=1), overlap_exchange=True)
    told, open_ = lower(asked, plan), lower(asked, replace(plan, overlap_exchange=False))
    share = pp / plan.pipelines[0].num_micro_batches
    packed, lengths = pack(told), []
    starts, wide = told.order_start, told.forward_s.shape[1]
    for rank in range(pp):
        rows = told.order[starts[rank] : starts[rank + 1]]
        first, last = np.flatnonzero(rows[:, 0] == 1)[0], np.flatnonzero(rows[:, 0] == 0)[-1]
        for at, (kind, chunk, _) in enumerate(rows):
            alone = at < first if kind == 0 else at > last
            whole = pass_s(open_, rank, int(kind), int(chunk))
            spread = pass_s(told, rank, int(kind), int(chunk))
            shown = (spread - share * whole) / (1 - share)  # what is exposed at least, before some of it is open
            lengths.append(whole if alone else shown)
    assert wide == chunks
    state = network(told, None, None)._replace(seconds=np.array(lengths))
    apart = float(play(packed, state, NOTHING))
    assert step_time(told) == pytest.approx(apart, rel=0.02)
    assert step_time(told) < step_time(open_)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"recompute": "full"}, "recompute full"),
        ({"recompute": "layernorm+moe"}, "recompute layernorm+moe"),
        ({"expert_parallel": 1}, "nothing to exchange"),
        ({"precision": "fp32"}, "precision fp32"),
    ],
)
def test_what_keeps_an_exchange_from_running_beside_other_work_is_named(change: dict[str, object], told: str):
    asked = mixture(4, 80.0, Experts(8, 4, 1024))
    plan = replace(laid(asked, pp=1, chunks=1, size=1), overlap_exchange=True)
    assert check(asked, plan) == ()
    assert told in " ".join(each.message for each in check(asked, replace(plan, **change)))  # type: ignore[arg-type]
    deep = replace(laid(asked, pp=2, chunks=1, size=1), overlap_exchange=True)
    assert "several stages" in check(asked, deep)[0].message
    for runtime in ("hippo", "torch", "deepspeed", "ideal"):
        told = {each.where: each.message for each in check(replace(asked, runtime=runtime), plan)}
        assert told["overlap_exchange"] == f"{runtime} cannot express an exchange of experts beside another micro-batch"


def laid(asked: Problem, *, pp: int, chunks: int, size: int) -> Plan:
    degrees = Degrees(1, asked.cluster.gpus // pp, pp, 1, 2, None, size, chunks, sharding="optimizer")
    return one_layout(asked, degrees)


def pass_s(program: object, rank: int, kind: int, chunk: int) -> float:
    forward, backward, weight = (
        getattr(program, name)[rank, chunk] for name in ("forward_s", "backward_s", "weight_s")
    )
    return float(forward if kind == 0 else backward + weight)


def test_a_plan_keeps_it_in_its_file_and_tells_megatron():
    asked = mixture(4, 80.0, Experts(8, 4, 1024))
    plain = laid(asked, pp=1, chunks=1, size=1)
    plan = replace(plain, overlap_exchange=True)
    document = plan_to_document(asked, plan)
    assert plan_from_document(document, "a file")[1] == plan
    del document["overlap_exchange"]  # a file of before
    assert plan_from_document(document, "a file")[1] == plain
    flag = "--overlap-moe-expert-parallel-comm"
    assert flag in parallel_flags(asked, plan)
    assert flag not in parallel_flags(asked, plain)
    assert "exchange overlapped" in described(plan)
    queues = [program(asked, each).environment["CUDA_DEVICE_MAX_CONNECTIONS"] for each in (plan, plain)]
    assert queues == ["32", "1"]
