"""The log: what it takes is there again, killed or not; damage and a second loop are told."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hippo.errors import InputError
from hippo.jobs.job import Job
from hippo.jobs.online.log import Ended, Left, Log, Transition

SHAPE, ACTIONS = (2, 3), 4


def a_log(path: Path) -> Log:
    return Log(path, shape=SHAPE, actions=ACTIONS)


def transition(number: int) -> Transition:
    seen = np.full(SHAPE, number, np.float32)
    return Transition(float(number), number % 3, seen, np.arange(ACTIONS) <= number % 4, number % 4, 1 / (number + 1))


def test_what_was_decided_is_there_again(tmp_path: Path) -> None:
    with a_log(tmp_path / "log.db") as log:
        assert log.decided([transition(1), transition(2)]) == range(1, 3)
        assert log.decided([transition(3)]) == range(3, 4)
        log.happened(outcomes=[(2, -1.5, 9.0)])
    with a_log(tmp_path / "log.db") as log:
        assert log.decisions == 3
        found = log.transitions()
        assert [(each.time_s, each.policy, each.action) for each in found] == [(1.0, 1, 1), (2.0, 2, 2), (3.0, 0, 3)]
        assert [(each.outcome, each.outcome_s) for each in found] == [(None, None), (-1.5, 9.0), (None, None)]
        for number, each in enumerate(found, 1):
            np.testing.assert_array_equal(each.observation, transition(number).observation)
            np.testing.assert_array_equal(each.mask, transition(number).mask)
        assert log.transitions(last=1)[0].time_s == 3.0
        assert log.decided([transition(4)]) == range(4, 5)


@settings(max_examples=15)
@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 12))
def test_the_last_jobs_come_back_in_order_of_arrival(arrivals: list[int], last: int) -> None:
    jobs = [Job(f"job {number}", float(at), 5.0, runs_on=("a", "b")) for number, at in enumerate(arrivals)]
    ordered = sorted(jobs, key=lambda job: job.arrival_s)
    with tempfile.TemporaryDirectory() as folder, a_log(Path(folder) / "log.db") as log:
        log.happened(came=jobs)
        assert [each.job for each in log.jobs(last)] == ordered[-last:]


def test_jobs_come_and_end_and_come_once(tmp_path: Path) -> None:
    job = Job("one", 3.0, 10.0, user="u", deadline_s=50.0, data_gb=2.0, data_at="here")
    with a_log(tmp_path / "log.db") as log:
        log.happened(came=[job])
        log.happened(came=[job], ended=[Ended("one", 20.0, 10.0)])
        (known,) = log.jobs()
    assert (known.job, known.finish_s, known.ran_s) == (job, 20.0, 10.0)


def test_a_job_that_left_is_gone_and_has_not_ended(tmp_path: Path) -> None:
    jobs = [Job(name, 1.0, 10.0) for name in ("ended", "cancelled", "there")]
    with a_log(tmp_path / "log.db") as log:
        log.happened(came=jobs, ended=[Ended("ended", 20.0, 10.0)])
        log.happened(left=[Left("ended", 30.0), Left("cancelled", 30.0)])
        found = {each.job.name: (each.finish_s, each.ran_s) for each in log.jobs()}
    assert found == {"ended": (20.0, 10.0), "cancelled": (30.0, None), "there": (None, None)}


def test_who_served_is_noted(tmp_path: Path) -> None:
    with a_log(tmp_path / "log.db") as log:
        log.serve(1, 0.0, "shipped", ("policy-1.npz", "ab"))
        log.serve(0, 5.0, "worse than the guard")
    with a_log(tmp_path / "log.db") as log:
        assert log.versions == ((1, "policy-1.npz", "ab"),)
        assert log.served == ((0.0, 1, "shipped"), (5.0, 0, "worse than the guard"))


WRITES = """
import sys
import numpy as np
from hippo.jobs.online.log import Log, Transition
with Log(sys.argv[1], shape=(2, 3), actions=4, durable=sys.argv[2]) as log:
    while True:
        number = log.decisions + 1
        seen = np.full((2, 3), number, np.float32)
        log.decided([Transition(float(number), 1, seen, np.ones(4, bool), number % 4, 0.5)])
        print(number, flush=True)
"""


@pytest.mark.parametrize("durable", ["full", "normal"])
def test_a_killed_process_loses_nothing_that_it_gave_out(tmp_path: Path, durable: str) -> None:
    path, given_out = tmp_path / "log.db", 0
    for _ in range(2):
        writer = subprocess.Popen([sys.executable, "-c", WRITES, str(path), durable], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        with writer:
            for _ in range(40):
                given_out = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
            rest = writer.stdout.read().split("\n")[:-1]
        given_out = int(rest[-1]) if rest else given_out
        with a_log(path) as log:
            found = log.transitions()
        assert [each.time_s for each in found[:given_out]] == list(range(1, given_out + 1))
        assert len(found) - given_out in (0, 1), "committed, but killed before it was given out"
        assert all((each.observation == each.time_s).all() for each in found)


def test_a_second_loop_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with a_log(tmp_path / "log.db") as log:
        with pytest.raises(InputError, match=f"another loop writes this log .process {os.getpid()}"):
            a_log(tmp_path / "log.db")
        assert log.decided([transition(1)]) == range(1, 2)
    with a_log(tmp_path / "log.db") as again:
        assert again.decisions == 1


@pytest.mark.parametrize("damage", ["text", "middle", "one byte"])
def test_a_damaged_log_is_put_aside_whole(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "log.db"
    with a_log(path) as log:
        log.decided([transition(number) for number in range(1, 200)])
    whole = path.read_bytes()
    content = {"text": b"no database at all", "middle": _torn(whole), "one byte": whole[:1]}[damage]
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"damaged .*log\.db\.damaged-1.*start again"):
        a_log(path)
    assert (tmp_path / "log.db.damaged-1").read_bytes() == content
    with a_log(path) as log:
        assert log.decisions == 0
    path.write_bytes(content)
    with pytest.raises(InputError, match="damaged-2"):
        a_log(path)


def _torn(content: bytes) -> bytes:
    half = len(content) // 2
    return content[:half] + b"\xff" * 4096 + content[half + 4096 :]


def test_a_log_of_other_observations_is_refused(tmp_path: Path) -> None:
    a_log(tmp_path / "log.db").close()
    with pytest.raises(InputError, match="another shape"):
        Log(tmp_path / "log.db", shape=(2, 4), actions=ACTIONS)
    with pytest.raises(InputError, match="another actions"):
        Log(tmp_path / "log.db", shape=SHAPE, actions=5)


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        a_log(tmp_path / "file" / "log.db")


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        a_log(tmp_path)


@pytest.mark.parametrize("table", ["jobs (x)", "about (x)", "songs (key, value)"])
def test_an_sqlite_file_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path, table: str) -> None:
    base = sqlite3.connect(tmp_path / "other.db")
    base.execute(f"CREATE TABLE {table}")
    base.commit()
    base.close()
    content = (tmp_path / "other.db").read_bytes()
    with pytest.raises(InputError, match="no log of an online loop: an SQLite file with the tables"):
        a_log(tmp_path / "other.db")
    assert (tmp_path / "other.db").read_bytes() == content


def test_an_empty_log_is_new_unless_policies_lie_beside_it(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"")
    a_log(tmp_path / "log.db").close()
    (tmp_path / "log.db").write_bytes(b"")
    (tmp_path / "policy-1.npz").write_bytes(b"")
    with pytest.raises(InputError, match="only 0 bytes are left"):
        a_log(tmp_path / "log.db")
    with a_log(tmp_path / "log.db") as log:
        assert log.decisions == 0


def test_a_damaged_decision_is_told(tmp_path: Path) -> None:
    with a_log(tmp_path / "log.db") as log:
        log.decided([transition(1)])
        log._base.execute("UPDATE transitions SET observation = x'00'")
        with pytest.raises(InputError, match=r"decision of 1\.0 s is damaged: 1 and 4 bytes"):
            log.transitions()


def test_a_reader_sees_what_is_there_while_a_loop_writes(tmp_path: Path) -> None:
    with a_log(tmp_path / "log.db") as log:
        log.decided([transition(1)])
        reader = sqlite3.connect(tmp_path / "log.db")
        assert reader.execute("SELECT count(*) FROM transitions").fetchone() == (1,)
        reader.close()
