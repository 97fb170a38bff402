"""A request to end goes through whatever would catch an exception on the way."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import typer

from hippo.cli.ending import REQUESTS, ended_cleanly


@pytest.mark.parametrize("number", REQUESTS)
def test_nothing_on_the_way_catches_it(number, capsys):
    before, left = signal.getsignal(number), []

    def work():
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        except Exception:
            left.append("caught")
        finally:
            left.append("left")

    with pytest.raises(typer.Exit) as ended, ended_cleanly():
        work()
    assert ended.value.exit_code == 128 + number
    assert left == ["left"]
    assert signal.getsignal(number) == before
    assert capsys.readouterr().err.startswith("hippo: ended: ")


def test_a_thread_that_has_begun_is_not_forgotten(monkeypatch, capsys):
    """The request comes while ``Thread.start`` waits; the thread then found that nobody knew it, with a traceback."""
    begin = threading._start_new_thread
    may, done = threading.Event(), threading.Event()

    def asked_meanwhile(body, words):
        begin(lambda *given: (may.wait(10), body(*given)), words)
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(10)

    monkeypatch.setattr(threading, "_start_new_thread", asked_meanwhile)
    with pytest.raises(typer.Exit), ended_cleanly():
        threading.Thread(target=done.set, daemon=True).start()
    may.set()
    assert done.wait(10)


def test_who_asks_again_does_not_break_off_the_cleaning():
    before, left = signal.getsignal(signal.SIGINT), []

    def work():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        finally:
            for number in (signal.SIGINT, *REQUESTS, signal.SIGINT):
                os.kill(os.getpid(), number)
            left.append("clean")

    with pytest.raises(KeyboardInterrupt), ended_cleanly():
        work()
    assert left == ["clean"]
    assert signal.getsignal(signal.SIGINT) == before
