"""A version is prepared beside the step that was asked for last, and overtakes nothing else."""

from __future__ import annotations

import json
import subprocess
import sys

PROCESS = """
from pathlib import Path
from hippo.run.process import LauncherLine

line = LauncherLine(Path("nowhere"))
line.beside = lambda order: line.say(beside=order["prepare"])
line.say(listens=True)
while "stop" not in (order := line.orders.get()):
    line.say(taken=order)
line.say(ended=True)
"""


def test_a_version_is_prepared_beside_a_step_and_in_turn_with_all_else():
    asked = [
        *({"prepare": 1}, {"hand": 1}, {"go": 1}, {"prepare": 2}, {"update": 1}, {"prepare": 3}),
        *({"forget": 3}, {"prepare": 4}, {"go": 2}, {"abort": 2}, {"prepare": 5}, {"stop": True}),
    ]
    with subprocess.Popen(
        [sys.executable, "-c", PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert "listens" in process.stdout.readline()
        process.stdin.write("".join(json.dumps(each) + "\n" for each in asked))
        process.stdin.flush()
        told = []
        while "ended" not in (line := json.loads(process.stdout.readline())):
            told.append(line)
    assert [line for line in told if "beside" in line] == [{"beside": 2}]
    assert [line["taken"] for line in told if "taken" in line] == [
        each for each in asked[:-1] if each != {"prepare": 2}
    ]


WAITS = """
import sys, time
from pathlib import Path
from hippo.run import process
from hippo.run.process import LauncherLine

process.BEAT_EVERY_S = 0.05
came = [float(each) for each in sys.argv[1:]]
line = LauncherLine(Path("nowhere"))
line.heard_s = lambda: time.monotonic() if came.pop(0) else 0.0
line.beat("waits for sums")
time.sleep(60.0)
"""


def test_who_waits_while_messages_come_says_that_something_moves():
    with subprocess.Popen(
        [sys.executable, "-c", WAITS, "0", "1", "1", "0", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = [json.loads(process.stdout.readline())["beat"] for _ in range(6)]
        process.kill()
    assert told == ["waits for sums", "waits for sums", "", "", "waits for sums", ""]
