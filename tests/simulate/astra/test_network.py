"""Plans on ASTRA-sim's own network: traces by hand, played by its rules and, where HIPPO_ASTRA names it, by itself."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.simulate.astra.player import nodes
from tests.simulate.conftest import PlanOf

from hippo.errors import InputError
from hippo.plan.plan import Plan, ScheduleChoice, Sync
from hippo.problem.problem import Problem
from hippo.simulate import fast
from hippo.simulate.astra.binary import NAMES
from hippo.simulate.astra.chakra import ALL_REDUCE, COLLECTIVE, COMP, RECV, SEND, ChakraNode, trace
from hippo.simulate.astra.configuration import GROUPS, NETWORK, PREFIX
from hippo.simulate.astra.network import Tree, second_opinion, step_time_s
from hippo.simulate.lower import lower
from hippo.simulate.packed import durations
from hippo.simulate.program import BACKWARD, FORWARD

BOUNDARY = 128 * 512 * 2  # bytes of one sequence's activations: tokens x hidden x bf16
ACROSS = ("a/0/0,1 0-4", "b/0/0,1 4-8")


@pytest.fixture
def nested(problem: Problem) -> Problem:
    """a from b and c: 1e9 B/s and 10 ms; b and c from each other: 2e9 and 20 ms."""
    return linked(problem, far=(1e9, 0.01), near=(2e9, 0.02))


def linked(problem: Problem, *, far: tuple[float, float], near: tuple[float, float]) -> Problem:
    """Links of two kinds: those of domain a, and those between b and c."""
    links = []
    for link in problem.cluster.links:
        rate, latency = far if "a" in (link.source, link.destination) else near
        links.append(replace(link, bandwidth_bytes_per_s=rate, latency_s=latency))
    return replace(problem, cluster=replace(problem.cluster, links=tuple(links)))


@pytest.fixture
def unaware(player: Path) -> Path:
    """The stand-in for ASTRA-sim, with the unaware binary beside the aware one."""
    player.with_name(NAMES[1]).symlink_to(player)
    return player


def comp(number: int, name: str, seconds: float, *after: int) -> ChakraNode:
    work = round(seconds * 1e9) * 1000 + 500
    return ChakraNode(number, name, COMP, after, (("is_cpu_op", False), ("num_ops", work), ("tensor_size", 1)))


def test_two_stages_by_hand(nested: Problem, plan_of: PlanOf) -> None:
    """One wave over two domains: what each stage runs, what it sends, how large that is."""
    plan = plan_of(ACROSS, waves=1)
    program, files = lower(nested, plan), second_opinion(nested, plan)
    seconds, finish = durations(program), program.finish_s
    size, gpu = ("comm_size", BOUNDARY), ("is_cpu_op", False)
    down = (gpu, ("comm_dst", 1), ("comm_src", 0), size, ("comm_tag", 1))
    there = (gpu, ("comm_src", 0), ("comm_dst", 1), size, ("comm_tag", 1))
    up = (gpu, ("comm_dst", 0), ("comm_src", 1), size, ("comm_tag", 2))
    back = (gpu, ("comm_src", 1), ("comm_dst", 0), size, ("comm_tag", 2))
    assert program.sync_s.tolist() == [0.0, 0.0]
    assert files[f"{PREFIX}.0.et"] == trace(
        [
            comp(1, "F0.0", seconds[FORWARD, 0, 0]),
            comp(2, "B0.0", seconds[BACKWARD, 0, 0], 1, 4),
            ChakraNode(3, "send F0.0 of 0", SEND, (1,), down),
            ChakraNode(4, "receive B0.0 of 1", RECV, (), back),
            comp(5, "optimizer", finish[0], 2),
        ]
    )
    assert files[f"{PREFIX}.1.et"] == trace(
        [
            comp(1, "F0.0", seconds[FORWARD, 1, 0], 3),
            comp(2, "B0.0", seconds[BACKWARD, 1, 0], 1),
            ChakraNode(3, "receive F0.0 of 0", RECV, (), there),
            ChakraNode(4, "send B0.0 of 1", SEND, (2,), up),
            comp(5, "optimizer", finish[1], 2),
        ]
    )
    assert files[NETWORK].decode() == (
        "topology: [ FullyConnected, FullyConnected, FullyConnected ]\n"
        "npus_count: [ 2, 2, 2 ]\n"
        f"bandwidth: [ {1e9 / 2**30}, {2e9 / 2**30}, {5e10 / 2**30} ]  # GiB/s\n"
        "latency: [ 10000000.0, 20000000.0, 5000.0 ]  # ns\n"
    )
    assert sum(name.startswith(PREFIX) for name in files) == 8  # the others idle


def test_the_tree_of_domains(nested: Problem, plan_of: PlanOf) -> None:
    tree = Tree.of(nested.cluster, lower(nested, plan_of(ACROSS)))
    assert tree == Tree(((1e9, 0.01), (2e9, 0.02)), (2, 2), ((0, 0), (1, 0), (1, 1)))
    alike = linked(nested, far=(1e9, 0.01), near=(1e9, 0.01))
    assert Tree.of(alike.cluster, lower(alike, plan_of(ACROSS))) == Tree(((1e9, 0.01),), (3,), ((0,), (1,), (2,)))


def test_one_wave_takes_what_its_messages_take(nested: Problem, plan_of: PlanOf, unaware: Path) -> None:
    """Over either kind of link; and so it does for ``fast``, for nothing waits."""
    for stages, link_s in ((ACROSS, 0.01 + BOUNDARY / 1e9), (("b/0/0,1 0-4", "c/0/0,1 4-8"), 0.02 + BOUNDARY / 2e9)):
        plan = plan_of(stages, waves=1)
        program = lower(nested, plan)
        by_hand = durations(program)[:2].sum() + 2 * link_s + program.finish_s[0]
        assert step_time_s(nested, plan, unaware) == pytest.approx(by_hand, abs=1e-7)
        assert fast.step_time(program) == pytest.approx(by_hand, abs=1e-7)


@pytest.mark.parametrize("follow", [False, True])
def test_without_latency_a_link_is_a_queue_for_both(
    problem: Problem, plan_of: PlanOf, unaware: Path, follow: bool
) -> None:
    """Slow links: messages queue; one SEND at a time is then first come, first served."""
    slow = linked(problem, far=(1e7, 0.0), near=(1e7, 0.0))
    plan = plan_of(ACROSS, waves=6)
    expected = fast.step_time(lower(slow, plan))
    assert expected > 6 * BOUNDARY / 1e7
    assert step_time_s(slow, plan, unaware, follow=follow) == pytest.approx(expected, rel=1e-3)


def test_over_a_latency_an_npu_waits_for_arrivals_unless_its_gpus_take_turns(
    nested: Problem, plan_of: PlanOf, unaware: Path
) -> None:
    plan = plan_of(ACROSS, waves=8, schedule=ScheduleChoice("gpipe"))
    quick, slow = (step_time_s(nested, plan, unaware, follow=follow) for follow in (True, False))
    assert slow > 2 * 8 * 0.01
    assert 2 * 4 * 0.01 < quick < 0.7 * slow
    assert fast.step_time(lower(nested, plan)) < quick  # two GPUs are fewer than the messages that the link holds


def test_inside_a_domain_messages_cross_the_fabric(nested: Problem, plan_of: PlanOf, unaware: Path) -> None:
    plan = plan_of(("a/0/0,1 0-4", "a/1/0,1 4-8"), waves=1)
    program = lower(nested, plan)
    by_hand = durations(program)[:2].sum() + 2 * (5e-6 + BOUNDARY / 5e10) + program.finish_s[0]
    assert step_time_s(nested, plan, unaware) == pytest.approx(by_hand, abs=1e-7)


def replicas(plan_of: PlanOf) -> Plan:
    return plan_of(("a/0/0,1 0-8",), ("b/0/0,1 0-8",), waves=1)


def test_replicas_sum_by_a_collective(nested: Problem, plan_of: PlanOf) -> None:
    """Two domains: of n bytes, each hop of the ring carries n."""
    program, files = lower(nested, replicas(plan_of)), second_opinion(nested, replicas(plan_of))
    assert json.loads(files[GROUPS]) == {"1": [0, 1]}
    (summed,) = program.groups
    for npu in (0, 1):
        (found,) = [each for each in nodes(files[f"{PREFIX}.{npu}.et"]).values() if each["type"] == COLLECTIVE]
        assert (found["comm_type"], found["pg_name"]) == (ALL_REDUCE, b"1")
        assert found["comm_size"] == round(summed.link_bytes[0])


def test_parameters_gathered_over_the_wan_are_collectives_of_every_pass(nested: Problem, plan_of: PlanOf) -> None:
    plan = replace(replicas(plan_of), sharding="full")
    gather, files = lower(nested, plan).gather, second_opinion(nested, plan)
    assert gather is not None
    found = [each for each in nodes(files[f"{PREFIX}.0.et"]).values() if each["type"] == COLLECTIVE]
    each = round(gather.forward_bytes[0, 0])
    assert [node["comm_size"] for node in found] == [each, each, 2 * each]  # all-gather twice, reduce-scatter


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sync": Sync("local_sgd", every=4)}, "every few steps"),
        ({"links": "unequal"}, "one link per dimension"),
        ({"links": "capped"}, "caps of single nodes"),
    ],
)
def test_what_it_cannot_say_is_refused(
    problem: Problem, nested: Problem, plan_of: PlanOf, change: dict[str, object], told: str
) -> None:
    plan, where = plan_of(ACROSS), nested
    if change.get("links") == "unequal":
        where = problem
    elif change.get("links") == "capped":
        capped = tuple(replace(link, per_node_bytes_per_s=5e8) for link in nested.cluster.links)
        where = replace(nested, cluster=replace(nested.cluster, links=capped))
    else:
        plan = replace(replicas(plan_of), **change)
    with pytest.raises(InputError, match=told):
        second_opinion(where, plan)


def test_the_unaware_binary_is_asked_for(nested: Problem, plan_of: PlanOf, player: Path) -> None:
    with pytest.raises(InputError, match=r"tools/astra\.sh"):
        step_time_s(nested, plan_of(ACROSS), player)


# ------------------------------------------------------------------------------------------------------- the real one
@pytest.fixture
def real() -> Path:
    """The user's ASTRA-sim."""
    named = os.environ.get("HIPPO_ASTRA")
    if not named or not Path(named).with_name(NAMES[1]).is_file():
        pytest.skip("HIPPO_ASTRA names no ASTRA-sim with its congestion-unaware binary (tools/astra.sh)")
    return Path(named)


@pytest.mark.parametrize("follow", [False, True])
def test_the_real_one_plays_by_the_same_rules(
    nested: Problem, plan_of: PlanOf, unaware: Path, real: Path, follow: bool
) -> None:
    plan = plan_of(ACROSS, waves=8)
    expected = step_time_s(nested, plan, unaware, follow=follow)
    assert step_time_s(nested, plan, real, follow=follow) == pytest.approx(expected, abs=1e-7)


def test_its_ring_of_three(problem: Problem, plan_of: PlanOf, real: Path) -> None:
    """Four turns, each a third of the bytes and a latency."""
    alike = linked(problem, far=(1e9, 0.01), near=(1e9, 0.01))
    plan = plan_of(*((f"{domain}/0/0,1 0-8",) for domain in "abc"), waves=1)
    program = lower(alike, plan)
    (summed,) = program.groups
    ends = durations(program)[:2, 0].sum() + program.sync_s[0] + program.finish_s[0]
    by_hand = ends + 4 * (0.01 + summed.link_bytes[0] / 4 / 1e9)  # the ring's hops carry 4/3 of what is summed
    assert step_time_s(alike, plan, real) == pytest.approx(by_hand, rel=1e-3)


def test_its_passes_that_gather(nested: Problem, plan_of: PlanOf, real: Path) -> None:
    """A pass lasts as long as what it gathers: forward one turn, backward two."""
    plan = replace(replicas(plan_of), sharding="full")
    program = lower(nested, plan)
    assert program.gather is not None
    turn = 0.01 + program.gather.forward_bytes[0, 0] / 1e9
    passes = durations(program)[:2, 0, 0]
    assert passes.max() < turn
    by_hand = 3 * turn + program.sync_s[0] + program.finish_s[0]
    assert step_time_s(nested, plan, real) == pytest.approx(by_hand, rel=1e-3)


def test_its_ring_of_two(nested: Problem, plan_of: PlanOf, real: Path) -> None:
    """Two turns, each half of the bytes and a latency."""
    program = lower(nested, replicas(plan_of))
    (summed,) = program.groups
    ends = durations(program)[:2, 0].sum() + program.sync_s[0] + program.finish_s[0]
    by_hand = ends + 2 * (0.01 + summed.link_bytes[0] / 2 / 1e9)
    assert step_time_s(nested, replicas(plan_of), real) == pytest.approx(by_hand, rel=1e-3)
