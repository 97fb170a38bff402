"""What a run is said to take: the transport of its runtime, the order it keeps or does not keep, links that move."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.run.worlds import PLANS, problem

from hippo.emulate.emulation import VARIABLE, LinkChange
from hippo.problem.links import Trace
from hippo.problem.transport import CUBIC_KEPT, HIPPO
from hippo.run.job import RunJob, RunOptions
from hippo.run.network import RunNetwork, links_met
from hippo.run.predict import INSTANTS, predicted_along, predicted_each, predicted_s
from hippo.score.judge import judge
from hippo.simulate import fast
from hippo.simulate.transport.carried import carried


def job(name: str = "stages", **options: object) -> RunJob:
    """A stand-in run over links of 20 ms, as runs are unless they are told otherwise."""
    model, plan = PLANS[name]
    given = {"stand_in": True, **options}
    return RunJob(problem(model, latency_s=0.02), plan, RunOptions(**given))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["stages", "split backwards", "everything"])
def test_a_run_is_said_to_take_what_its_plan_was_said_to(name: str):
    """But for TCP's congestion control, where the plan's cluster does not say it."""
    asked = job(name)
    printed = judge(replace(asked.problem, runtime="hippo"), asked.plan)
    program = carried(printed.program, replace(HIPPO, congestion=CUBIC_KEPT))
    assert predicted_s(asked) == fast.step_time(program)


@pytest.mark.parametrize(
    ("name", "control"), [("two lanes a domain", "cubic"), ("two lanes a domain", "bbr"), ("everything", "cubic")]
)
def test_a_plan_that_is_told_the_congestion_control_prints_what_its_run_will(name: str, control: str):
    """Sums whose lanes share a link, links that bbr drains. Not what a flow does that messages leave idle (bbr)."""
    asked = job(name)
    unsaid = replace(asked.problem, runtime="hippo")
    told = replace(unsaid, cluster=replace(unsaid.cluster, congestion=control))
    printed = judge(told, asked.plan)
    run = predicted_s(replace(asked, problem=told), RunNetwork(congestion=control))
    assert printed.step_time_s == pytest.approx(run, rel=1e-6 if control == "cubic" else 0.01)
    assert printed.step_time_s > judge(unsaid, asked.plan).step_time_s * (1 - 1e-9)
    assert printed.score.egress_usd_per_step == judge(unsaid, asked.plan).score.egress_usd_per_step
    assert predicted_s(asked, RunNetwork(congestion=control)) == run


def test_gradients_that_leave_first_make_a_step_shorter_unless_told_to_wait():
    first, last = (predicted_s(job(backward=backward)) for backward in ("split", "whole"))
    assert first < last


def test_without_a_network_messages_cost_next_to_nothing():
    asked = job()
    assert predicted_s(asked, RunNetwork(emulated=False)) < 0.5 * predicted_s(asked)


@pytest.mark.parametrize("name", ["stages", "split backwards"])
def test_torch_waits_for_receivers_and_a_first_step_for_tcp(name: str):
    hippo = predicted_s(job(name))
    assert predicted_s(job(name, runtime="torch")) > hippo + 0.02
    assert predicted_s(job(name), cold=True) >= hippo


@pytest.mark.parametrize("backward", ["whole", "split"])
@pytest.mark.parametrize("name", ["stages", "split backwards", "everything"])
def test_stages_that_choose_are_played_choosing(name: str, backward: str):
    """Here the order of the schedule is as good as any, so choosing yields no worse a step."""
    fixed, free = (predicted_s(job(name, order=order, backward=backward)) for order in ("fixed", "auto"))
    assert free <= fixed * (1 + 1e-9)


def test_along_a_trace_a_step_may_begin_anywhere():
    asked = job()
    links = asked.problem.cluster.links
    rate = np.full((2, len(links)), links[0].bandwidth_bytes_per_s * HIPPO.goodput)
    late = np.full(rate.shape, 0.02 + HIPPO.overhead_s)
    still = Trace(np.array([0.0, 1.0]), rate, late)
    assert predicted_along(asked, RunNetwork(trace=still)) == pytest.approx(np.full(INSTANTS, predicted_s(asked)))
    slower = Trace(still.time_s, rate, late * np.array([[1.0], [10.0]]))
    found = predicted_along(asked, RunNetwork(trace=slower))
    assert found[0] == pytest.approx(predicted_s(asked))
    assert found[-1] > found[0]
    assert predicted_s(asked, RunNetwork(trace=slower)) == found.mean()


def test_the_network_around_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Nothing: the loopback. Else what ``hippo emulate`` left word of; ten times as fast, a trace takes a tenth."""
    cluster = job().problem.cluster
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not RunNetwork.around(cluster).emulated
    trace = tmp_path / "net.csv"
    trace.write_text("time_s,src,dst,bandwidth_gbps,latency_ms\n0,a,b,0.8,20\n50,a,b,0.4,20\n")
    told = {"cluster": "x", "control": "y", "domains": {}, "started_s": 0.0, "trace": str(trace), "speed": 10.0}
    (tmp_path / "emulation.json").write_text(json.dumps({**told, "congestion": "bbr", "backend": "userspace"}))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "emulation.json"))
    network = RunNetwork.around(cluster)
    assert (network.emulated, network.congestion) == (True, "bbr")
    assert network.trace is not None
    assert network.trace.time_s.tolist() == [0.0, 5.0]


def test_steps_are_predicted_over_links_as_they_were_when_each_began():
    """By hand: at 10 s the link from a to b falls to a thousandth, at 20 s it is as before."""
    asked = job()
    cluster = replace(asked.problem.cluster, congestion="").under(HIPPO)
    usual = next(link for link in cluster.links if link.source == "a")
    gbps, latency_ms = usual.rate_bytes_per_s(2) / usual.goodput / 1.25e8, 1e3 * usual.latency_s
    changes = (
        LinkChange(110.0, "a", "b", gbps / 1000, latency_ms),
        LinkChange(120.0, "a", "b", gbps, latency_ms),
    )
    met = links_met(cluster, None, changes, started_s=100.0)
    assert met.time_s.tolist() == [0.0, 10.0, 20.0]
    at = cluster.links.index(usual)
    assert met.bandwidth_bytes_per_s[:, at] / usual.rate_bytes_per_s(2) == pytest.approx([1.0, 0.001, 1.0])
    assert (met.bandwidth_bytes_per_s[:, 1 - at] == met.bandwidth_bytes_per_s[0, 1 - at]).all()
    network = RunNetwork(met=met, started_s=100.0)
    found = predicted_each(asked, network, [101.0, 111.0, 121.0])
    assert found[0] == found[2] == pytest.approx(predicted_s(asked))
    assert found[1] > 1.5 * found[0]
    assert predicted_each(asked, RunNetwork(), [1.0, 2.0]).tolist() == [predicted_s(asked)] * 2


def test_what_a_trace_moves_again_is_no_longer_as_it_was_set_by_hand():
    cluster = replace(job().problem.cluster, congestion="").under(HIPPO)
    rate = np.array([[8.0, 8.0], [4.0, 8.0], [2.0, 8.0]])
    trace = Trace(np.array([0.0, 10.0, 20.0]), rate, np.full(rate.shape, 0.02))
    one, two = ((link.source, link.destination) for link in cluster.links)
    changes = (LinkChange(12.0, *one, 0.0, 20.0), LinkChange(13.0, *two, 0.0, 20.0))
    met = links_met(cluster, trace, changes, started_s=0.0)
    assert met.time_s.tolist() == [0.0, 10.0, 12.0, 13.0, 20.0]
    assert met.bandwidth_bytes_per_s.T.tolist() == [[8.0, 4.0, 0.0, 0.0, 2.0], [8.0, 8.0, 8.0, 0.0, 0.0]]
