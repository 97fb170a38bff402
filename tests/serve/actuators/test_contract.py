"""What every actuator keeps to, held against the engines themselves; in memory it is quick, and
Kueue's are a server that plays it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serve.servers import until

from hippo.serve.actuators.base import ActuatorError
from hippo.serve.records import BEGIN, DONE, FAILED, RESIZE, RUNNING, STOP, SeenJob

from .sites import QUICK, SITES, LosesAnswers, ServedBy


@pytest.fixture(
    params=[each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in SITES], scope="module"
)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBy]:
    with SITES[request.param](tmp_path_factory.mktemp(request.param)) as made:
        yield made
        made.actuator.close()


@pytest.fixture
def site(engine: ServedBy) -> Iterator[ServedBy]:
    """Nobody is there."""
    yield engine
    engine.actuator.carry_out(engine.order(STOP, 99_999))
    shutil.rmtree(engine.folder / "j1", ignore_errors=True)
    global _NUMBER
    _NUMBER += 100


_NUMBER = 0


def number(at: int) -> int:
    """Of an order: no two tests share a key."""
    return _NUMBER + at


def seen(site: ServedBy) -> SeenJob | None:
    return next((each for each in site.actuator.seen() if each.job == "j1"), None)


def test_a_job_begins_once_however_often_it_is_ordered(site: ServedBy):
    first = site.order(BEGIN, number(1), "oslo", "lyon")
    assert site.actuator.carry_out(first).ok
    found = seen(site)
    assert found is not None
    assert (found.key, found.state) == (first.key, RUNNING)
    until(lambda: site.begun() > 0)
    time.sleep(1.0)  # its second node may note it later
    begun = site.begun()
    assert site.actuator.carry_out(first).ok
    time.sleep(0.5)
    assert site.begun() == begun


def test_an_answer_that_is_lost_is_asked_for_again(site: ServedBy):
    first = site.order(BEGIN, number(1), "oslo")
    with pytest.raises(ActuatorError):
        LosesAnswers(site.actuator).carry_out(first)
    until(lambda: site.begun() > 0)
    assert site.actuator.carry_out(first).ok
    time.sleep(0.5)
    assert site.begun() == 1


def test_a_service_killed_before_the_act_does_it_and_after_it_does_not_again(site: ServedBy):
    first = site.order(BEGIN, number(1), "oslo")
    site.again()  # intended, not told
    assert site.actuator.carry_out(first).ok
    until(lambda: site.begun() > 0)
    (site.folder / "j1" / "state.json").unlink()  # as if the act had not been noted
    site.again()
    assert site.actuator.carry_out(first).ok
    time.sleep(0.5)
    assert site.begun() == 1
    found = seen(site)
    assert found is not None
    assert (found.key, found.state) == (first.key, RUNNING)


def test_a_job_goes_elsewhere(site: ServedBy):
    assert site.actuator.carry_out(site.order(BEGIN, number(1), "oslo")).ok
    until(lambda: site.begun() > 0)
    second = site.order(RESIZE, number(2), "lyon")
    answer = site.actuator.carry_out(second)
    assert answer.ok, answer.told
    found = seen(site)
    assert found is not None
    assert (found.key, found.state) == (second.key, RUNNING)
    assert site.actuator.carry_out(second).ok
    if not site.moves:
        until(lambda: site.begun() == 2)


def test_a_job_is_cancelled(site: ServedBy):
    assert site.actuator.carry_out(site.order(BEGIN, number(1), "oslo")).ok
    stop = site.order(STOP, number(2))
    assert site.actuator.carry_out(stop).ok
    assert site.actuator.carry_out(stop).ok
    site.again()
    found = seen(site)
    assert found is None or found.state != RUNNING


def test_a_job_ends(site: ServedBy):
    assert site.actuator.carry_out(site.order(BEGIN, number(1), "oslo", lasts_s=1.0)).ok
    until(lambda: (found := seen(site)) is not None and found.state == DONE)
    found = seen(site)
    assert found is not None
    assert found.share_done == 1.0


def test_what_cannot_run_is_refused_or_fails_with_the_reason(site: ServedBy):
    answer = site.actuator.carry_out(site.order(BEGIN, number(1), "oslo", lasts_s=0.5, code=3))
    if not answer.ok:
        assert answer.told
        return
    until(lambda: (found := seen(site)) is not None and found.state == FAILED)
    found = seen(site)
    assert found is not None
    assert "3" in found.told


def test_folders_outlive_the_actuator(site: ServedBy, tmp_path: Path):
    first = site.order(BEGIN, number(1), "oslo")
    assert site.actuator.carry_out(first).ok
    site.actuator.close()
    site.again()
    found = seen(site)
    assert found is not None
    assert (found.key, found.state) == (first.key, RUNNING)
