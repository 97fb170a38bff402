"""What looks of actuators cost: by the jobs that are not over, however many ever were."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
from tests.serve.worlds import Clock, Served, until, url

from hippo.files import write_files
from hippo.serve import demo
from hippo.serve.actuators.base import Actuator
from hippo.serve.actuators.batch import BatchActuator, BatchJob
from hippo.serve.actuators.own import KeptRun, Own
from hippo.serve.records import DONE, FAILED, RUNNING, STOP, JobOrder, SeenJob

from .sites import MemoryEngine

ENDED = 5000


def own(folder: Path) -> Own:
    return Own(folder / "runs", folder / "demo.yaml")


def batch(folder: Path) -> BatchActuator:
    return BatchActuator(MemoryEngine(), folder / "runs", folder / "demo.yaml")


def ended(made: Actuator, home: Path) -> None:
    """A job that is over, as the actuator leaves its folder."""
    home.mkdir()
    key = f"o-1-{home.name}-of-a-store"
    state = asdict(KeptRun(key, key, 10, 1, over=DONE)) if isinstance(made, Own) else {"key": key}
    (home / "state.json").write_text(json.dumps(state))
    (home / f"exit-{key}").write_text("0")


def says_nothing(served: Served, actuator: str) -> bool:
    return served.loop.workers[actuator].seen == ()


@pytest.mark.parametrize("make", [own, batch])
def test_a_look_reads_nothing_of_jobs_that_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Own | BatchActuator]
):
    """Weeks of jobs: all are said once, and read no more when the service has heard it; a restart hears all again."""
    write_files(tmp_path, demo.files())
    made = make(tmp_path)
    for at in range(ENDED):
        ended(made, made.folder / f"j{at + 100}")
    counts, read, stat = Counter[str](), Path.read_text, Path.stat

    def counted(path: Path) -> str:
        counts["reads"] += 1
        return read(path)

    def asked(path: Path, **more: bool) -> object:
        counts["stats"] += 1
        return stat(path, **more)

    for turn in range(2):
        served = Served.of(url(tmp_path), Clock(), made, actuator=made.name)
        until(served, partial(says_nothing, served, made.name))
        with monkeypatch.context() as patched:
            patched.setattr(Path, "read_text", counted)
            patched.setattr(Path, "stat", asked)
            assert made.seen() == ()
            assert not counts
            ended(made, made.folder / f"j{turn}")  # which is not told from a new one
            (found,) = made.seen()
            assert (found.job, found.state) == (f"j{turn}", DONE)
            assert 0 < counts["reads"] <= 2 * 3  # the service may look beside
        served.close()
        made = make(tmp_path)
        counts.clear()
        assert len(made.seen()) == ENDED + turn + 1


@pytest.mark.parametrize("make", [own, batch])
def test_who_is_forgotten_is_seen_again_once_it_is_ordered(tmp_path: Path, make: Callable[[Path], Own | BatchActuator]):
    write_files(tmp_path, demo.files())
    made = make(tmp_path)
    ended(made, made.folder / "j1")
    (found,) = made.seen()
    made.forget(found)
    assert made.seen() == ()
    assert made.carry_out(JobOrder("o-2-j1-of-a-store", STOP, "j1", {})).ok
    (found,) = made.seen()
    assert found.key == "o-2-j1-of-a-store"


def test_who_is_forgotten_is_seen_again_where_its_engine_begins_it_anew(tmp_path: Path):
    """As Kueue does with what it had evicted."""
    write_files(tmp_path, demo.files())
    made, engine = batch(tmp_path), MemoryEngine()
    made.engine, key = engine, "o-1-j1-store"
    (made.folder / "j1").mkdir()
    (made.folder / "j1" / "state.json").write_text(json.dumps({"key": key}))
    for state, said in ((FAILED, FAILED), (RUNNING, RUNNING), (FAILED, None)):
        engine.known = {name: BatchJob("1", name, state, "why") for name in (key, "a-stranger-j1")}
        assert [each.state for each in made.seen()] == [said] * (said is not None)
        made.forget(SeenJob("j1", key, FAILED))
