"""The frame: help, version, usage errors, exit codes, broken streams."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hippo.cli import main
from hippo.errors import InfeasibleError, InputError

HIPPO = Path(sys.executable).parent / "hippo"
NAMES = [name for name in main.COMMANDS if name not in ("jobs", "store")]  # whose commands are below it


def test_help_names_every_command(hippo):
    answer = hippo("--help")
    assert answer.code == 0
    assert [name for name in NAMES if f"\n  {name} " not in answer.out] == []
    assert "..." not in answer.out.split("Commands:")[1]  # each says its purpose in one line


@pytest.mark.parametrize(("name", "summary"), main.COMMANDS.items())
def test_a_command_says_of_itself_what_the_table_says_of_it(hippo, name, summary):
    assert hippo(name, "--help").out.split("\n\n")[1].strip().splitlines()[0] == summary


def test_nothing_asked_shows_the_help(hippo):
    assert hippo() == hippo("--help")


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_and_json(hippo, name):
    answer = hippo(name, "--help")
    assert answer.code == 0
    assert "--json" in answer.out


def test_version(hippo):
    answer = hippo("--version")
    assert answer.code == 0
    assert answer.out.startswith("hippo 0.")


def test_help_may_be_asked_for_as_a_command(hippo):
    assert hippo("help", "plan") == hippo("plan", "--help")
    assert hippo("help") == hippo("--help")


def test_options_of_other_tools_are_understood(hippo):
    ours = ("--global-batch", "64", "--seq=512", "--micro-batch", "2", "--tp", "2", "--pp", "2", "--dp", "2")
    theirs = ("--global-batch-size", "64", "--seq-length=512", "--micro-batch-size", "2")
    theirs += ("--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2", "--data-parallel-size", "2")
    estimate = ("estimate", "--model", "gpt2-medium", "--gpu", "h100-sxm", "--json")
    answer = hippo(*estimate, *theirs)
    assert answer.code == 0
    assert answer.document == hippo(*estimate, *ours).document


def test_unknown_command(refused):
    assert "No such command 'plam'. Did you mean 'plan'? To fix: " in refused("plam")


def test_unknown_option(refused):
    assert "--modle" in refused("plan", "--modle", "llama-3-8b")


def test_missing_option(refused):
    assert "--cluster" in refused("plan", "--model", "llama-3-8b")


def test_missing_argument(refused):
    assert "PLAN" in refused("simulate")


@pytest.mark.parametrize(("option", "value"), [("--global-batch", "many"), ("--time-limit", "soon"), ("--seed", "1.5")])
def test_a_value_of_the_wrong_kind(refused, option, value):
    message = refused("plan", "--model", "llama-3-8b", "--cluster", "toy", option, value)
    assert option in message
    assert value in message


def compiling(error: BaseException) -> SystemError:
    """What an exception while a kernel is compiled looks like to its caller."""
    made = SystemError("<Kernel 'play'> returned a result with an exception set")
    made.__cause__ = error
    return made


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            InputError("is wrong", source="a.yaml", key="gpu", remedy="mend it"),
            2,
            "a.yaml: gpu: is wrong. To fix: mend it.",
        ),
        (InfeasibleError(["12 GB missing."]), 3, "infeasible: 12 GB missing."),
        (KeyboardInterrupt(), 130, "interrupted"),
        (compiling(KeyboardInterrupt()), 130, "interrupted"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
    ],
)
def test_errors_become_exit_codes(hippo, monkeypatch, error, code, said):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(main, "app", fail)
    monkeypatch.setattr(main, "silence_stdout", lambda: None)
    answer = hippo("plan")
    assert answer.code == code
    assert said in answer.err


def process(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HIPPO, *arguments], stdin=subprocess.DEVNULL, text=True, check=False, **options)


def test_a_reader_that_leaves_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)  # as `| head` does, but surely before the first word
    done = process("catalogue", "gpus", "--json", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is played by a device that only Linux has")
def test_a_full_disk_behind_stdout():
    with open("/dev/full", "w") as full:
        done = process("catalogue", "gpus", "--json", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_interruption(tmp_path):
    begun = tmp_path / "begun"  # interrupted while it plans: an import may swallow the signal
    slow = (
        "import signal, time, pathlib, hippo.front_door.planning as d, hippo.cli.main as m\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # shells let what runs in the background ignore it
        f"d.plan = lambda *a, **k: (pathlib.Path({str(begun)!r}).touch(), time.sleep(60))\n"
        "m.main()"
    )
    arguments = [sys.executable, "-c", slow, "plan", "--model", "llama-3-8b", "--cluster", "toy"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == "hippo: planning ...\n"  # after one second
        while not begun.exists():
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert (child.returncode, out, err) == (130, "", "hippo: interrupted\n")


def test_a_fault_of_our_own_is_one_line():
    script = "import hippo.cli.main as m; m.app = lambda *a, **k: 1 / 0; m.main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr
    shown = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HIPPO_TRACE": "1"},
    )
    assert "Traceback" in shown.stderr
