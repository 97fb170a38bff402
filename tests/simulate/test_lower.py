"""From a plan to a program: what each number must be, from the cost model and the links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.simulate.conftest import PlanOf

from hippo.cost.cost_model import CostModel
from hippo.errors import InputError, UnknownNameError
from hippo.plan.plan import Compression, Relay, ScheduleChoice, Stage
from hippo.problem.problem import Problem
from hippo.problem.runtimes import Messages
from hippo.schedule.schedule import order
from hippo.simulate.abstract import abstract_program
from hippo.simulate.calls import calls
from hippo.simulate.costs import chunk_layers, cost_model, layout, shared_nodes
from hippo.simulate.lower import lower, reordered
from hippo.simulate.packed import destinations

BOUNDARY = 128 * 512 * 2  # bytes of one sequence's activations: tokens x hidden x bf16


def test_durations_are_those_of_the_cost_model(problem: Problem, plan_of: PlanOf) -> None:
    plan = plan_of(("a/0/0,1 0-3", "b/0/0,1 3-8"))
    program = lower(problem, plan)
    for rank, stage in enumerate(plan.pipelines[0].stages):
        cost = CostModel(problem).stage(stage.domain, *stage.layers, layout(plan, plan.pipelines[0], stage))
        times = (program.forward_s[rank, 0], program.backward_s[rank, 0], program.weight_s[rank, 0])
        assert times == (cost.forward_s, cost.backward_s, cost.weight_gradient_s)
        assert program.sync_s[rank] == cost.sync_s
        assert program.finish_s[rank] == cost.optimizer_s + cost.fixed_s


def test_all_lanes_share_the_link_between_domains(problem: Problem, plan_of: PlanOf) -> None:
    program = lower(problem, plan_of(("a/0/0,1 0-4", "b/0/0,1 4-8"), dp=2))
    links = problem.cluster.link_index
    assert program.down_route[0, 0].tolist() == [links["a", "b"], -1]
    assert program.up_route[1, 0].tolist() == [links["b", "a"], -1]
    assert program.down_bytes[0, 0] == program.up_bytes[1, 0] == 2 * BOUNDARY
    assert program.down_bytes[1, 0] == program.up_bytes[0, 0] == 0.0
    assert program.link_bandwidth_bytes_per_s.tolist() == [1e9, 2e9, 4e9, 1e9, 2e9, 4e9]


def test_inside_a_domain_a_message_is_a_delay(problem: Problem, plan_of: PlanOf) -> None:
    one_node = lower(problem, plan_of(("a/0/0,1 0-4", "a/0/2,3 4-8")))
    two_nodes = lower(problem, plan_of(("a/0/0,1 0-4", "a/1/0,1 4-8")))
    cost = cost_model(problem)
    assert one_node.down_delay_s[0, 0] == cost.p2p_seconds("a", BOUNDARY, same_node=True)
    assert two_nodes.down_delay_s[0, 0] == cost.p2p_seconds("a", BOUNDARY, same_node=False)
    assert two_nodes.up_delay_s[1, 0] == two_nodes.down_delay_s[0, 0] > one_node.down_delay_s[0, 0]
    assert (one_node.down_route == -1).all()


def test_a_relay_crosses_two_links(problem: Problem, plan_of: PlanOf) -> None:
    plan = plan_of(("a/0/0 0-4", "b/0/0 4-8"), relays=(Relay("a", "b", "c"),))
    program, links = lower(problem, plan), problem.cluster.link_index
    assert program.down_route[0, 0].tolist() == [links["a", "c"], links["c", "b"]]
    assert program.up_route[1, 0].tolist() == [links["b", "a"], -1]  # the way back has no relay


def test_compression_shrinks_what_is_sent(problem: Problem, plan_of: PlanOf) -> None:
    plan = plan_of(("a/0/0 0-4", "b/0/0 4-8"), compression=(Compression("a", "b", "fp8"),))
    program = lower(problem, plan)
    assert program.down_bytes[0, 0] == BOUNDARY / 2
    assert program.up_bytes[1, 0] == BOUNDARY
    with pytest.raises(UnknownNameError, match="fp8"):
        lower(problem, replace(plan, compression=(Compression("a", "b", "zip"),)))


def test_a_cap_per_node_counts_the_nodes_of_the_sender(problem: Problem, plan_of: PlanOf) -> None:
    capped = tuple(
        replace(link, bandwidth_bytes_per_s=None, per_node_bytes_per_s=5e8) for link in problem.cluster.links
    )
    capped_problem = replace(problem, cluster=replace(problem.cluster, links=capped))
    stages = ("a/0/0,1 0-4", "b/0/0,1 4-8")
    one = lower(capped_problem, plan_of(stages))
    assert one.down_nic_bytes_per_s[0, 0] == 5e8
    assert one.link_bandwidth_bytes_per_s[0] == 1e9  # both nodes of the domain together
    assert one.link_per_node is not None
    assert one.link_per_node.all()
    plan = plan_of(stages, dp=2)
    spread = replace(plan.pipelines[0].stages[0], devices=("a/0/0", "a/1/0"))
    wide = replace(plan, pipelines=(replace(plan.pipelines[0], stages=(spread, plan.pipelines[0].stages[1])),))
    assert lower(capped_problem, wide).down_nic_bytes_per_s[0, 0] == 1e9


def test_stages_with_nodes_in_common_share_their_caps(problem: Problem, plan_of: PlanOf) -> None:
    plan = plan_of(("a/0/0 0-4", "b/0/0 4-8"), ("a/0/1 0-4", "b/1/0 4-8"))
    assert lower(problem, plan).rank_nodes is None  # nothing is capped
    capped = tuple(replace(link, per_node_bytes_per_s=1e8) for link in problem.cluster.links)
    program = lower(replace(problem, cluster=replace(problem.cluster, links=capped)), plan)
    assert program.rank_nodes is not None
    assert program.rank_nodes.tolist() == [0, 1, 0, 3]


def test_nodes_may_be_shared_through_others() -> None:
    spread = [("a/0/0",), ("a/1/0",), ("b/0/0",), ("a/0/1", "a/1/1"), ("b/0/1",)]
    stages = [Stage(devices[0][0], (0, 1), 1, len(devices), devices) for devices in spread]
    assert shared_nodes(stages).tolist() == [0, 0, 2, 0, 2]


def test_chunks_are_dealt_round_robin(problem: Problem, plan_of: PlanOf) -> None:
    plan = plan_of(("a/0/0 0-4", "b/0/0 4-8"), interleave=2, schedule=ScheduleChoice("interleaved"))
    assert chunk_layers(plan.pipelines[0], 2) == [[(0, 2), (4, 6)], [(2, 4), (6, 8)]]
    program = lower(problem, plan)
    seconds = cost_model(problem).layer_seconds("a", layout(plan, plan.pipelines[0], plan.pipelines[0].stages[0]))
    assert program.forward_s[0].tolist() == pytest.approx([seconds[0:2, 0].sum(), seconds[4:6, 0].sum()])
    links = problem.cluster.link_index
    assert program.down_route[1, 0, 0] == links["b", "a"]  # the last stage hands on to the next chunk of the first
    assert program.down_route[1, 1, 0] == program.up_route[0, 0, 0] == -1  # the ends of the model
    assert program.up_route[0, 1, 0] == links["a", "b"]


def test_uneven_chunks_keep_the_count_of_each_stage(problem: Problem, plan_of: PlanOf) -> None:
    plan = plan_of(("a/0/0 0-3", "b/0/0 3-8"), interleave=2)
    ranges = chunk_layers(plan.pipelines[0], 2)
    assert ranges == [[(0, 2), (4, 5)], [(2, 4), (5, 8)]]


def test_stages_of_another_width_work_on_the_same_wave(problem: Problem, plan_of: PlanOf) -> None:
    plan = plan_of(("a/0/0,1 0-4", "b/0/0 4-8"), micro_batch=2)
    wide, narrow = plan.pipelines[0].stages
    wide = replace(wide, tp=1, dp=2)
    uneven = replace(plan, pipelines=(replace(plan.pipelines[0], stages=(wide, narrow)),))
    assert layout(uneven, uneven.pipelines[0], narrow).micro_batch == 4
    assert lower(problem, uneven).down_bytes[0, 0] == lower(problem, uneven).up_bytes[1, 0] == 4 * BOUNDARY
    three = replace(narrow, dp=3, devices=("b/0/0", "b/0/1", "b/0/2"))
    with pytest.raises(InputError, match="wave does not split"):
        lower(problem, replace(plan, pipelines=(replace(plan.pipelines[0], stages=(wide, three)),)))


def test_domains_without_a_link_cannot_be_neighbours(problem: Problem, plan_of: PlanOf) -> None:
    lone = replace(problem, cluster=replace(problem.cluster, links=problem.cluster.links[1:]))
    with pytest.raises(InputError, match="from 'a' to 'b'"):
        lower(lone, plan_of(("a/0/0 0-4", "b/0/0 4-8")))


def test_pipelines_are_numbered_through(problem: Problem, plan_of: PlanOf) -> None:
    program = lower(problem, plan_of(("a/0/0 0-4", "b/0/0 4-8"), ("c/0/0 0-8",)))
    assert program.rank_pipeline.tolist() == [0, 0, 1]
    assert program.rank_stage.tolist() == [0, 1, 0]
    assert program.rank_domain.tolist() == [0, 1, 2]
    assert program.order_start.tolist() == [0, 8, 16, 24]
    assert np.array_equal(program.order[16:], lower(problem, plan_of(("c/0/0 0-8",))).order)


def test_the_same_question_is_answered_once(problem: Problem, plan_of: PlanOf) -> None:
    plan = plan_of(("a/0/0 0-4", "b/0/0 4-8"))
    one, two = lower(problem, plan), lower(problem, plan, cost=CostModel(problem))
    assert np.array_equal(one.forward_s, two.forward_s)
    assert cost_model(problem) is cost_model(problem)
    assert cost_model(replace(problem)) is not cost_model(problem)


def test_another_order_of_the_same_stages(problem: Problem, plan_of: PlanOf) -> None:
    plan = plan_of(("a/0/0,1 0-3", "b/0/0,1 3-8"))
    waves = plan.pipelines[0].num_micro_batches
    ahead = replace(
        plan,
        pipelines=(replace(plan.pipelines[0], warm_up=(waves, 1)),),
        schedule=ScheduleChoice("cross-domain", waves),
    )
    known, wanted = reordered(lower(problem, plan), problem, ahead), lower(problem, ahead)
    assert not np.array_equal(lower(problem, plan).order, wanted.order)
    for name, value in vars(wanted).items():
        assert np.array_equal(np.asarray(getattr(known, name)), np.asarray(value)), name


def test_interleaved_calls_of_as_many_micro_batches_as_stages() -> None:
    """Megatron-LM, ``get_pp_rank_microbatches``: of four stages with two chunks the first runs all eight forwards as
    its warm-up, with a call behind the last; the third six, then two pairs, with a call for each message."""
    program = abstract_program(order("interleaved", stages=4, micro_batches=4, chunks=2), forward_s=1.0, backward_s=2.0)
    made = calls(replace(program, messages=Messages("coupled")), destinations(program))
    assert made is not None
    first, third = program.order_start[[0, 2]].tolist()
    assert made.awaited[first + 8] == made.send_call[first + 7]
    assert made.awaited[third + 6] == made.send_call[third + 5] != made.send_call[third + 6]
    assert made.awaited[third + 7] == made.send_call[third + 6] != made.send_call[third + 7]
    assert made.awaited[third + 8] == -1  # the gradient of the pair before is on its way meanwhile
    assert made.awaited[third + 10] == made.send_call[third + 7]


def test_hippos_gradients_leave_before_the_weights_are_done(problem: Problem, plan_of: PlanOf) -> None:
    """A fused backward is played as the executor runs it; where nothing runs it, as the schedule says."""
    plan = plan_of(("a/0/0 0-4", "b/0/0 4-8"))
    ideal, hippo = (lower(replace(problem, runtime=name), plan) for name in ("ideal", "hippo"))
    assert ideal.fused
    assert not hippo.fused
    assert "".join("FBW"[kind] for kind in hippo.order[hippo.order_start[1] :, 0]).startswith("FBWFBW")
