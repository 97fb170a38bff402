"""Progress: nothing for what is quick, a line for what is not, a bar in a terminal; stdout is never touched."""

from __future__ import annotations

import io
import time

import pytest

from hippo.cli import output, progress
from hippo.cli.progress import Watch


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_S", 0.02)
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", 0.0)


def wait_until(done, limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not done() and time.monotonic() < end:
        time.sleep(0.005)
    assert done()


def test_quick_work_says_nothing(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_S", 60.0)
    with Watch("planning") as watch:
        watch("cuts", 0.5)
    assert capsys.readouterr() == ("", "")


def test_work_that_never_reports_is_seen_too(capfd):
    with Watch("planning") as watch:
        wait_until(lambda: watch._said_at_s > 0)
    assert capfd.readouterr() == ("", "hippo: planning ...\n")


def test_phases_and_shares(capfd):
    with Watch("planning") as watch:
        wait_until(lambda: watch._said_at_s > 0)
        watch("cuts", 0.5)
        watch("widths", 7.0)
    lines = capfd.readouterr().err.splitlines()
    assert lines[1:] == ["hippo: planning: cuts, 50% done ...", "hippo: planning: widths, 100% done ..."]


def test_a_bar_in_a_terminal(monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with Watch("planning") as watch:
        wait_until(lambda: watch._bar is not None)
        watch("cuts", 0.5)
        watch._bar.refresh()
    assert "planning: cuts" in terminal.getvalue()
    assert capsys.readouterr().out == ""


def test_a_failure_inside_passes_and_stops_the_timer():
    with pytest.raises(ValueError, match="mine"), Watch("planning") as watch:
        raise ValueError("mine")
    assert not watch._timer.is_alive()


def test_quiet_work_says_nothing_however_long_it_takes(capsys, monkeypatch):
    monkeypatch.setattr(output, "_loudness", output.Loudness.QUIET)
    with Watch("planning") as watch:
        watch("cuts", 0.5)
        time.sleep(5 * progress.PATIENCE_S)
        watch("widths", 0.9)
        output.mention("wrote a file")
    assert capsys.readouterr() == ("", "")


def test_verbose_work_says_each_phase_once_and_at_once(capsys, monkeypatch):
    monkeypatch.setattr(output, "_loudness", output.Loudness.VERBOSE)
    with Watch("planning") as watch:
        for phase in ("cuts", "cuts", "widths"):
            watch(phase, 0.5)
    lines = [line.partition(" (after")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["hippo: planning ...", "hippo: planning: cuts", "hippo: planning: widths"]
