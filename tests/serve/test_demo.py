"""``hippo serve --demo``: within three minutes a link collapses, the first job's layers move, and it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hippo.errors import HippoError
from hippo.front_door.service import Client


@pytest.mark.slow
def test_a_link_collapses_layers_move_and_a_service_that_is_killed_comes_back(tmp_path: Path):
    folder = tmp_path / "demo"
    command = [sys.executable, "-m", "hippo", "serve", "--demo", str(folder), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = next(each for each in process.stderr if "the page:" in each)
            url, _, token = line.split()[-1].partition("/#token=")
            with Client(url, token) as service:
                moved = _until(lambda: _moved(service), 180.0)
                assert moved["why"]["cause"].startswith("the link from")
                os.kill(int((folder / "pid").read_text()), signal.SIGKILL)
                before = json.loads((folder / "runs" / "j1" / "state.json").read_text())
                step = _until(lambda: service.job("j1"), 60.0)["share_done"]
                job = _until(lambda: (found := service.job("j1"))["share_done"] > step and found, 60.0)
                assert job["state"] == "running"
                assert json.loads((folder / "runs" / "j1" / "state.json").read_text())["pid"] == before["pid"]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60.0)


def _moved(service: Client) -> dict | None:
    for each in service.why("j1"):
        if each["act"] == "resize" and each["state"] == "carried out":
            return each
    return None


def _until(what, most_s: float):
    end_s = time.monotonic() + most_s
    while time.monotonic() < end_s:
        try:
            if found := what():
                return found
        except HippoError:
            pass
        time.sleep(0.3)
    raise AssertionError("it never came about")
