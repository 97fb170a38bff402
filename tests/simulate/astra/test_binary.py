"""Finding and running the user's binary: what goes wrong is said in one sentence, within a bounded time."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

from hippo.errors import InputError
from hippo.simulate.astra.binary import NAMES, digest, find_binary, open_files, read_ticks, run

Script = Callable[[str], Path]


def test_an_absent_binary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HIPPO_ASTRA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="which hippo does not bring.* To fix: build ASTRA-sim's analytical backend"):
        find_binary()


def test_the_option_goes_before_the_variable_before_the_path(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    binary = script("exit 0")
    monkeypatch.delenv("HIPPO_ASTRA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert find_binary() == binary
    monkeypatch.setenv("HIPPO_ASTRA", "sh")
    assert find_binary().name != NAMES[0]
    assert find_binary(binary) == binary
    monkeypatch.setenv("HIPPO_ASTRA", str(tmp_path / "absent"))
    with pytest.raises(InputError, match="^HIPPO_ASTRA: is no program that can be run"):
        find_binary()


def test_what_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    for path in (tmp_path / "text", tmp_path, tmp_path / "absent"):
        with pytest.raises(InputError, match="^--astra-binary: is no program that can be run"):
            find_binary(path)
    (tmp_path / "text").chmod(0o755)
    with pytest.raises(InputError, match=r"cannot be started: Exec format error|exit code|did not finish"):
        run(find_binary(tmp_path / "text"), {}, 2)


def test_a_rank_without_its_line(script: Script) -> None:
    binary = script('echo "[w] [info] sys[0] finished, 5 cycles, exposed communication -3 cycles."')
    with pytest.raises(InputError, match=r"ASTRA-sim 1 of 2 ranks did not finish \(first: 1\)"):
        run(binary, {}, 2)


def test_a_run_that_hangs_is_ended_with_what_it_started(script: Script, tmp_path: Path) -> None:
    binary = script(f"(sleep 60; touch {tmp_path}/alive) & echo $! > {tmp_path}/child; wait")
    begun = monotonic()
    with pytest.raises(InputError, match="did not end within 3 s"):
        run(binary, {}, 2, timeout_s=3.0)  # time enough to start on a loaded machine
    assert monotonic() - begun < 30
    child, until = int((tmp_path / "child").read_text()), monotonic() + 30
    while not _gone(child) and monotonic() < until:  # it is told at once; a loaded machine lets it end a little later
        sleep(0.01)
    assert _gone(child)


def _gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody waits for has."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_run_that_fails_says_its_last_words(script: Script) -> None:
    binary = script('echo "first" >&2; echo "only support 1-dim topology" >&2; exit 255')
    with pytest.raises(InputError, match="ended with exit code 255: only support 1-dim topology"):
        run(binary, {}, 2)
    with pytest.raises(InputError, match="ended with exit code 1: it said nothing"):
        run(script("exit 1"), {}, 2)


def test_open_files_are_raised_and_put_back() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(before[0] + 10, before[1])
    with open_files(wanted):
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= wanted
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_more_open_files_than_the_system_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", forbid)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (512, 1024))
    with pytest.raises(InputError, match="ulimit -n: ASTRA-sim opens a file per rank, 2000 in all"), open_files(2000):
        pass


def test_ticks_of_all_parts_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "log.1.log").write_text("[t] [workload] [debug] issue,sys->id=1, tick=3, node->id=7, node->name=a\n")
    (tmp_path / "log.log").write_text("noise\n[t] callback,sys->id=1, tick=9, node->id=7, node->name=a, type=4\n")
    (tmp_path / "err.log").write_text("issue,sys->id=0, tick=1, node->id=1, never read\n")
    ticks = read_ticks(tmp_path, 2)
    assert ticks.issued == ({}, {7: 3})
    assert ticks.done == ({}, {7: 9})


def test_a_binary_is_known_by_its_digest(script: Script) -> None:
    one = digest(script("exit 0"))
    assert len(one) == 16
    assert digest(script("exit 1")) != one
