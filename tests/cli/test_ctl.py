"""``hippo ctl``: what its words ask of a run."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.run.worlds import GPT2, PLANS, pipelines, problem

from hippo.plan.codec import save_plan
from hippo.plan.plan import Plan
from hippo.run.control import Desk, listening
from hippo.run.job import RunJob, RunOptions
from hippo.run.journal import Journal
from hippo.run.network import RunNetwork
from hippo.run.run import RunStep
from hippo.run.scraping import serve_metrics

from .conftest import Hippo

MOVED = Plan(pipelines((4, [("a", 0, 5, 1, 1), ("b", 5, 6, 1, 1)])), 2)


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run that has made a step over links that are emulated."""
    monkeypatch.setattr(RunNetwork, "around", lambda cluster: RunNetwork())
    links = tuple(replace(link, bandwidth_bytes_per_s=1e6) for link in problem(GPT2).cluster.links)
    world = replace(problem(GPT2), cluster=replace(problem(GPT2).cluster, links=links))
    save_plan(world, MOVED, tmp_path / "moved.json")
    desk = Desk(RunJob(world, PLANS["stages"][1], RunOptions(steps=8)), Journal(tmp_path / "journal"))
    desk.made(RunStep(1, 0.5, 4.0))
    with listening(tmp_path / "run", lambda: desk):
        yield tmp_path / "run"


def test_a_move_beside_the_training_is_ordered_and_given_up(socket: Path, hippo: Hippo, refused: Callable[..., str]):
    moved = socket.with_name("moved.json")
    asked = hippo("ctl", socket, "plan", moved, "background").out
    assert "order 1 is accepted: 0.407 MB should move in 0.607 s, beside 1 step and 0.107 s in which training" in asked
    assert "order 2 is accepted" in hippo("ctl", socket, "give-up", "1").out
    assert "no such order is under way" in refused("ctl", socket, "give-up", "7")
    assert "unknown way 'by-ship'" in refused("ctl", socket, "plan", moved, "by-ship")
    assert "is one word too many" in refused("ctl", socket, "plan", moved, "stop", "now")
    assert "order 1 (another plan, beside the training) is accepted" in hippo("ctl", socket, "status").out


def test_a_move_by_stopping_is_told_so(socket: Path, hippo: Hippo):
    asked = hippo("ctl", socket, "plan", socket.with_name("moved.json"), "stop").out
    assert "order 1 is accepted: 0.305 MB should move in 0.320 s" in asked
    assert "while training stands still" in asked


def test_who_waits_for_an_order_that_is_given_up_hears_it_by_the_exit_code(tmp_path: Path, hippo: Hippo):
    asked = RunJob(problem(GPT2), PLANS["stages"][1], RunOptions(steps=8))
    desk = Desk(asked, Journal(tmp_path / "journal"))

    def gives_up() -> None:
        while not desk.status()["orders"]:
            time.sleep(0.01)
        desk.answer({"order": "give-up", "key": "two"})
        desk.due(1, asked)

    with listening(tmp_path / "run", lambda: desk):
        other = Thread(target=gives_up)
        other.start()
        answer = hippo("ctl", tmp_path / "run", "micro-batch", "1", "--wait")
        other.join()
    assert (answer.code, answer.out) == (1, "order 1 (micro-batch 1) is given up: order 2 asked for it\n")


def test_words_that_are_no_order(socket: Path, refused: Callable[..., str]):
    assert "ORDER: unknown order 'scheduel'" in refused("ctl", socket, "scheduel", "1f1b")
    moved = socket.with_name("moved.json")
    told = refused("ctl", socket, "plan", moved, "--after", "0")
    assert f"{moved}: after_step: has passed" in told
    for words in (("ctl", "", "status"), ("top", ""), ("run", moved, "--control", "")):
        assert "SOCKET: names no file" in refused(*words)


def test_words_that_move_a_link_are_checked(socket: Path, refused: Callable[..., str]):
    assert "takes two domains and two numbers" in refused("ctl", socket, "link", "a", "b", "1")
    assert "takes numbers for rate and latency" in refused("ctl", socket, "link", "a", "b", "fast", "1")
    assert "this run has none" in refused("ctl", socket, "link", "a", "b", "0.1", "20")


def test_a_run_at_a_glance(socket: Path, hippo: Hippo, refused: Callable[..., str]):
    hippo("ctl", socket, "micro-batch", "1")
    seen = hippo("top", socket).out
    assert "step 1 of 8, 0.500 s, loss 4" in seen
    assert "order 1 (micro-batch 1) is accepted" in seen
    assert 'hippo_run_step{model="tiny-gpt2"} 1.0' in hippo("ctl", socket, "metrics").out
    assert "takes nothing" in refused("ctl", socket, "metrics", "now")
    assert "--after: is of orders, and 'status' is none" in refused("ctl", socket, "status", "--after", "3")
    assert "--wait: is of orders, and 'link' is none" in refused("ctl", socket, "link", "a", "b", "1", "1", "--wait")
    assert "an order needs a key" in refused("ctl", socket, "micro-batch", "2", "--key", "")
    told = refused("ctl", socket, "schedule")
    assert told.endswith("'schedule' takes name, live_limit."), told
    assert "is out of range" in refused("top", socket, "--every", "0")
    assert "no run listens" in refused("top", socket.with_name("none"))


def test_prometheus_finds_a_run_at_an_address_until_it_is_over(socket: Path, refused: Callable[..., str]):
    told: SimpleQueue[str] = SimpleQueue()
    asked = Thread(target=serve_metrics, args=(socket, "127.0.0.1", 0), kwargs={"listens": told.put}, daemon=True)
    asked.start()
    address = told.get(timeout=20.0)
    with urllib.request.urlopen(address, timeout=20.0) as answer:
        families = {family.name for family in text_string_to_metric_families(answer.read().decode())}
    assert {"hippo_run_step", "hippo_run_step_seconds"} <= families
    with pytest.raises(urllib.error.HTTPError, match="404") as error:
        urllib.request.urlopen(address.replace("/metrics", "/"), timeout=20.0)
    error.value.close()
    port = address.rsplit(":", 1)[1].partition("/")[0]
    assert "--at: cannot listen: Address already in use" in refused("ctl", socket, "metrics", "--at", port)
    assert "--at: is no port" in refused("ctl", socket, "metrics", "--at", "here")
    assert "--at: is for metrics" in refused("ctl", socket, "status", "--at", port)
    socket.unlink()
    asked.join(timeout=20.0)
    assert not asked.is_alive()
    assert "no run listens" in refused("ctl", socket, "metrics", "--at", "0")
