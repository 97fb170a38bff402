"""Emulated WANs that run: what a packet meets, what moves, what a command is told, and that nothing is left.

A link is never faster and never nearer than it was set, whatever the machine does, and not far from it; how near it
comes is for ``hippo bench emulator``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hippo.errors import InputError

from .conftest import UNPRIVILEGED

INSIDE = str(Path(__file__).with_name("inside.py"))
HIPPO = (sys.executable, "-c", "from hippo.cli.main import main; main()")


def measured(emulated, tmp_path: Path, *words: str, **options: object) -> dict[str, float]:
    """What ``inside.py`` measured."""
    outcome = emulated(sys.executable, INSIDE, str(tmp_path / "out.json"), *words, **options)
    assert outcome.exit_code == 0
    assert outcome.run.missed_frames == 0
    return json.loads((tmp_path / "out.json").read_text())


def test_rate_and_delay(emulated, tmp_path: Path):
    """Never above what was set; the best of three within a factor 3 of it: TCP is cold, the machine does other things.

    An emulator that is ten times too slow, or too far, fails in all three.
    """
    size, delay_s = 4_000_000, 0.02
    least_s = delay_s + size * 8 / 1e8 * 1518 / 1448
    came = []
    for _ in range(3):
        found = measured(emulated, tmp_path, "east", "west", str(size))
        assert found["round_trip_s"] >= 2 * delay_s
        assert found["seconds"] >= least_s
        came.append(max(found["round_trip_s"] / (2 * delay_s), found["seconds"] / least_s))
        if came[-1] < 3:
            return
    assert min(came) < 3, came


def test_bytes_are_counted_as_on_the_wire(emulated, tmp_path: Path):
    outcome = emulated(sys.executable, INSIDE, str(tmp_path / "out.json"), "east", "west", "1000000")
    link = next(link for link in outcome.run.links if (link.source, link.destination) == ("east", "west"))
    delivered = link.carried_bytes * 1448 / 1518
    assert 1e6 <= delivered < 1.5e6  # sent again is counted, too
    assert all(not link.carried_bytes for link in outcome.run.links if "far north" in (link.source, link.destination))


def test_a_link_moves_by_message_and_by_trace(emulated, tmp_path: Path):
    moved = measured(emulated, tmp_path, "east", "west", "1000", "0.1", "60")
    assert moved["round_trip_s"] >= 0.08
    trace = "time_s,src,dst,bandwidth_gbps,latency_ms\n1000,east,west,0.1,70\n2000,east,west,0.1,1\n"
    assert measured(emulated, tmp_path, "east", "west", "1000", trace=trace)["round_trip_s"] >= 0.09


def test_an_outage_lets_nothing_through(emulated, tmp_path: Path):
    assert measured(emulated, tmp_path, "east", "west", "1000", "0", "20")["error"] == "timed out"


def test_no_link_no_way(emulated, tmp_path: Path):
    assert "unreachable" in measured(emulated, tmp_path, "east", "far north", "1000")["error"]


def test_outside_the_domains_there_is_no_way(emulated):
    check = "import socket\nsocket.create_connection(('10.77.0.1', 9), 3)"
    refused = (
        f"try:\n exec({check!r})\nexcept OSError as e: assert e.errno == 101, e\nelse: raise SystemExit('reached')"
    )
    assert emulated(sys.executable, "-c", refused).exit_code == 0


def test_once_in_every_domain(emulated, tmp_path: Path):
    script = f'echo "$HIPPO_DOMAIN" > "{tmp_path}/$(ip -o -4 addr show wan0 | cut -d" " -f7 | cut -d/ -f1)"'
    assert emulated("bash", "-c", script, each=True).exit_code == 0
    assert (tmp_path / "10.77.0.3").read_text() == "far north\n"
    assert {path.name for path in tmp_path.glob("10.*")} == {"10.77.0.1", "10.77.0.2", "10.77.0.3"}


def test_a_command_of_hippo_needs_no_environment_switched_on(emulated, monkeypatch: pytest.MonkeyPatch):
    folders = [each for each in os.environ["PATH"].split(os.pathsep) if not (Path(each) / "hippo").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    assert emulated("hippo", "--version").exit_code == 0


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("sleep 100 & exit 0", 0)])
def test_the_exit_code_is_the_commands(emulated, script: str, code: int):
    assert emulated("bash", "-c", script).exit_code == code


def test_when_one_of_many_fails_the_others_are_ended(emulated):
    begun = time.monotonic()
    script = 'test "$HIPPO_DOMAIN" = west && exit 9; exec sleep 100'
    assert emulated("bash", "-c", script, each=True).exit_code == 9
    assert time.monotonic() - begun < 60


def test_the_unprivileged_way(namespaces: None, cluster_file: Path, tmp_path: Path):
    """Without root's rights, and with the document on stdout."""
    words = ["emulate", str(cluster_file), "--json", "--", sys.executable, INSIDE, str(tmp_path / "out.json")]
    command = [*UNPRIVILEGED, *HIPPO, *words, "west", "far north", "100000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["exit_code"] == 0
    assert {tuple(link)[:2] for link in document["run"]["links"]} == {("source", "destination")}
    assert json.loads((tmp_path / "out.json").read_text())["round_trip_s"] >= 0.01


# ------------------------------------------------------------------------------------------------------ nothing is left
def marked(mark: str) -> Iterator[int]:
    """Processes whose environment holds the mark, this one aside."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if mark.encode() in Path("/proc", name, "environ").read_bytes():
                    yield int(name)
            except OSError:
                continue


def interfaces() -> str:
    """What the machine shows of its network."""
    names = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return "\n".join(line.split(":")[1] for line in names.splitlines())


@pytest.mark.parametrize(
    ("prefix", "number", "wait_for"),  # processes that run when the signal comes: it starts, it is made, it runs
    [
        ((), signal.SIGKILL, 3),
        (UNPRIVILEGED, signal.SIGKILL, 7),
        ((), signal.SIGTERM, 3),
        ((), signal.SIGINT, 7),
        *(pytest.param((), signal.SIGKILL, count, marks=pytest.mark.slow) for count in (1, 2, 4, 7)),
        pytest.param(UNPRIVILEGED, signal.SIGKILL, 3, marks=pytest.mark.slow),
        pytest.param((), signal.SIGTERM, 7, marks=pytest.mark.slow),
        pytest.param((), signal.SIGINT, 3, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_left(namespaces: None, cluster_file: Path, tmp_path: Path, prefix, number, wait_for: int):
    mark = f"HIPPO_TEST_MARK={tmp_path.name}-{os.getpid()}"
    before = interfaces(), Path("/proc/self/mounts").read_text(), os.listdir("/run")
    script = "sleep 1000 & ip netns exec east sleep 1001 & sleep 1002"
    command = [*prefix, *HIPPO, "emulate", str(cluster_file), "--", "bash", "-c", script]
    environment = os.environ | dict([mark.split("=", 1)])
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, start_new_session=True, text=True) as outer:
        assert outer.stderr is not None
        until = time.monotonic() + 60
        while len(list(marked(mark))) < wait_for and time.monotonic() < until:
            time.sleep(0.01)
        outer.send_signal(number)
        said = outer.stderr.read()  # ends when the last process that could write has ended
        assert outer.wait(60) != 0
    until = time.monotonic() + 120
    while list(marked(mark)) and time.monotonic() < until:
        time.sleep(0.01)
    assert list(marked(mark)) == []
    assert "Traceback" not in said or wait_for == 1  # Python itself may still be starting
    assert (interfaces(), Path("/proc/self/mounts").read_text(), os.listdir("/run")) == before


# -------------------------------------------------------------------------------------------------------- what is wrong
def test_a_machine_that_grants_nothing(namespaces: None, cluster_file: Path):
    """User namespaces switched off, as some machines have them."""
    words = ["emulate", str(cluster_file), "--", "true"]
    setup = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    inner = ["unshare", "--user", "--map-user=1000", "--map-group=1000", *HIPPO, *words]
    # the limit holds below the namespace in which it is written, and no longer than that lasts
    limited = ["unshare", "--user", "--map-root-user", "bash", "-c", setup.replace("echo 0", "echo 1"), "-", *inner]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "grants no namespaces" in done.stderr
    assert "To fix: run as root" in done.stderr


def test_no_ip(cluster_file: Path, emulated, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="needs the program 'ip'.*install iproute2"):
        emulated("true")


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        (("no-such-program",), {}, "COMMAND: no such program"),
        ((), {}, "COMMAND: no command"),
        (("true",), {"backend": "ns3"}, "--backend: unknown backend"),
        (("true",), {"congestion": "carrier-pigeon"}, "--congestion: the kernel has no such"),
    ],
)
def test_wrong_input(emulated, command: tuple[str, ...], options: dict[str, str], message: str):
    with pytest.raises(InputError, match=message):
        emulated(*command, **options)


def test_a_program_that_cannot_run(emulated, tmp_path: Path):
    script = tmp_path / "broken"
    script.write_bytes(b"\x7fELF")
    script.chmod(0o755)
    with pytest.raises(InputError, match="cannot run it: Exec format error"):
        emulated(str(script))


def test_when_the_emulator_dies_the_command_is_ended(emulated):
    script = """
import os, time
assert b"hippo.emulate.sandbox" in open("/proc/1/cmdline", "rb").read()  # processes of our own, none of the machine's
for child in map(int, open("/proc/1/task/1/children").read().split()):
    if child != os.getpid():
        os.kill(child, 9)
time.sleep(100)
"""
    begun = time.monotonic()
    with pytest.raises(InputError, match="the emulator ended before the command did"):
        emulated(sys.executable, "-c", script)
    assert time.monotonic() - begun < 60
