"""The bench of offers, in a small form: its joint plays and its rules are right where a hand can follow them."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
import simpy

from hippo.jobs.job import TrainingKind
from hippo.problem.cluster_yaml import cluster_from_document

from .scripts import script


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    module = script("benchmarks/offers.py")
    names = [{"name": name, "nodes": 1, "gpus_per_node": 2} for name in "abc"]
    small = cluster_from_document({"gpu": "A100-SXM-80GB", "domains": names, "links": []}, source="", name="three")
    kinds = (TrainingKind("gpt3-125m", 1024, 1024),)
    module.__dict__.update(KINDS=kinds, SIZES=(1, 2), STEPS=4, STATES=20, cluster=lambda _: small)
    return module


def test_a_job_alone_takes_the_step_of_its_plan(bench: ModuleType):
    for offer in bench.planned()[::3]:
        links = len(offer.hops)
        case = bench.Case((offer,), ((0, 1, 2),), 2e8, (0.3,))
        alone = offer.played(np.full((1, links), 2e8), np.full((1, links), bench.LATENCY_S))
        assert case.played(fair=True) == pytest.approx(alone)
        assert case.played(fair=False) == pytest.approx(alone)
        assert case.told(bench.level) == pytest.approx(alone, rel=0.1)


def test_messages_of_two_jobs_share_a_link_evenly_while_both_send(bench: ModuleType):
    """10 and 4 bytes from 0 s on, at one byte a second: the 4 are there at 8 s. 5 of the 10 are left at 9 s, when 3
    more come: these are there at 15 s, and the last 2 at 17 s."""
    env, ended = simpy.Environment(), {}
    link = bench.FairLink(env, 1.0)

    def send(begin_s: float, size: float):  # type: ignore[no-untyped-def]
        yield env.timeout(begin_s)
        yield link.carry(size)
        ended[size] = env.now

    for message in ((0.0, 10.0), (0.0, 4.0), (9.0, 3.0)):
        env.process(send(*message))
    env.run()
    assert ended == pytest.approx({4.0: 8.0, 3.0: 15.0, 10.0: 17.0})


def test_the_rules_by_hand(bench: ModuleType):
    """Of 10, where two others send 1 and 6: the first takes its 1, and the 9 that are left are shared by two."""
    sent, have = np.array([6.0, 1.0]), np.array([12.0, 4.0])
    assert bench.even(10.0, sent, have) == pytest.approx(10 / 3)
    assert bench.level(10.0, sent, have) == pytest.approx(4.5)
    assert bench.level(10.0, np.array([2.0, 1.0]), have) == pytest.approx(7.0)
    assert bench.time(10.0, sent, have) == pytest.approx(10 / 1.75)


def test_the_bench_prints_both_tables(bench: ModuleType, capsys: pytest.CaptureFixture[str]):
    bench.main(2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[2].strip() for line in lines if line.startswith("| fair")] == [*bench.RULES, "as if alone"]
    told = next(line for line in lines if "equal links, seconds over" in line)
    assert float(told.split("|")[3].strip(" %")) < 2.0  # mean error in percent
