"""The browser of the tests, played by a shell script: a start that hangs or crashes is ended and tried once more."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from . import chromium
from .chromium import ChromiumError, opened
from .processes import started

Acts = Callable[[str], Path]

COUNTED = 'echo "$@" >> calls; start=$(wc -l < calls)\n'
HANGS = "sleep 1000 & echo $! >> children; echo it hangs >&2; wait"


@pytest.fixture
def acts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Acts:
    """``acts(script)`` puts a script in the browser's place; it knows the number of its start."""

    def script(text: str) -> Path:
        browser = tmp_path / "browser"
        browser.write_text(f"#!/bin/sh\ncd {tmp_path}\n{COUNTED}{text}\n")
        browser.chmod(0o755)
        monkeypatch.setattr(chromium, "CHROMIUM", str(browser))
        return tmp_path / "page.html"

    return script


@contextmanager
def waited_for(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process of which the wait is over once it says that it hangs: no clock decides whether it came so far."""
    with started(command, **options) as process:
        usual = process.wait

        def wait(limit_s: float | None = None) -> int:
            while limit_s is not None and process.poll() is None:
                if "it hangs" in Path(options["stderr"].name).read_text():
                    raise subprocess.TimeoutExpired(command, limit_s)
                time.sleep(0.005)
            return usual()

        process.wait = wait  # type: ignore[method-assign]
        yield process


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chromium, "started", waited_for)


def calls(page: Path) -> list[list[str]]:
    return [line.split() for line in (page.parent / "calls").read_text().splitlines()]


def left(page: Path) -> list[str]:
    """Children that do not end within seconds."""
    numbers, until = (page.parent / "children").read_text().split(), time.monotonic() + 60
    while any(map(runs, numbers)) and time.monotonic() < until:
        time.sleep(0.01)
    return [number for number in numbers if runs(number)]


def runs(number: str) -> bool:
    """One that nobody has asked after yet (Z) has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{number}/stat").read_text().split(") ")[1][0] != "Z"
    return False


def test_what_it_prints_comes_back(acts: Acts) -> None:
    page = acts("echo '<html>'; echo noise >&2")
    assert opened(page, "--dump-dom") == "<html>\n"
    (words,) = calls(page)
    assert words[-2:] == ["--dump-dom", page.as_uri()]
    assert {*chromium.QUIET} < {*words}


@pytest.mark.usefixtures("hanging")
def test_a_start_that_hangs_is_ended_with_its_children_and_tried_with_a_fresh_profile(acts: Acts) -> None:
    page = acts(f"if [ $start = 1 ]; then {HANGS}; fi; echo '<html>'")
    assert opened(page) == "<html>\n"
    profiles = [word for words in calls(page) for word in words if word.startswith("--user-data-dir=")]
    assert len(profiles) == len({*profiles}) == 2
    assert left(page) == []
    assert not any(Path(each.partition("=")[2]).parent.exists() for each in profiles)


def test_a_child_that_keeps_the_output_open_holds_nobody_up(acts: Acts) -> None:
    page = acts("sleep 1000 & echo $! >> children; echo '<html>'")
    assert opened(page) == "<html>\n"
    assert len(calls(page)) == 1
    assert left(page) == []


def test_a_start_that_crashes_is_tried_again(acts: Acts) -> None:
    assert opened(acts("[ $start = 2 ] && echo '<html>' || exit 7")) == "<html>\n"


def test_the_limit_is_of_the_clock(acts: Acts) -> None:
    with pytest.raises(ChromiumError) as error:
        opened(acts("sleep 1000"), limit_s=0.2)
    assert str(error.value).count("hung for 0.2 s") == 2


@pytest.mark.usefixtures("hanging")
@pytest.mark.parametrize(
    ("script", "told"),
    [(f"{HANGS}", "hung for 60 s\nit hangs"), ("echo it broke >&2; exit 7", "ended with 7\nit broke")],
)
def test_after_two_starts_its_own_words_are_told(acts: Acts, script: str, told: str) -> None:
    page = acts(script)
    with pytest.raises(ChromiumError) as error:
        opened(page)
    assert str(error.value).count(told) == len(calls(page)) == 2
