"""What every test may use."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side: threads of torch would wait for each other

ROOT = Path(__file__).resolve().parents[1]
OF_TERMINALS = (
    "FORCE_COLOR",
    "NO_COLOR",
    "PY_COLORS",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
    "COLUMNS",
    "LINES",
    "TERMINAL_WIDTH",
)

# How long an example takes says nothing of its property: a machine under load must fail none. Examples are the same in
# every run, so that a change is judged by what it changed; `make test-all` draws others each time.
settings.register_profile(
    "exploring",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=False,
    max_examples=300,
)
settings.register_profile("hippo", settings.get_profile("exploring"), derandomize=True, database=None, max_examples=10)
settings.load_profile("hippo")


gc.disable()  # what is collected stays: to look for garbage in it takes a third of the time


def pytest_collection_finish() -> None:
    """What has been collected stays to the end, and is not looked through again; garbage of the tests is."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()


def pytest_sessionstart() -> None:
    """What the user's terminal wishes is no wish of the tests; a test that has one sets it.

    Nor do the tests ignore signals because they were started in the background: what they start would ignore them too.
    """
    for name in OF_TERMINALS:
        os.environ.pop(name, None)
    for number, usual in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around the terminal's own: after its last line
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """The last line of a run says what was skipped, and why."""
    yield
    if (terminal := session.config.pluginmanager.get_plugin("terminalreporter")) is not None:
        terminal.write_line(skipped(terminal.stats.get("skipped", [])))


def skipped(reports: Sequence[pytest.TestReport | pytest.CollectReport]) -> str:
    """How many tests were skipped, counted by reason."""
    if not reports:
        return "nothing skipped"
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)
        for report in reports
    )
    told = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
    return f"{len(reports)} skipped: {told}"


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of the published figures and traces (``data/README.md``)."""
    return ROOT / "data"


def granted() -> str:
    """Why no namespaces can be had here; empty: they can."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return "'ip' or 'unshare' is not installed"
    tried = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "ip", "link", "add", "name", "a", "type", "veth"],
        capture_output=True,
        text=True,
        check=False,
    )
    return tried.stderr.strip() if tried.returncode else ""


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skips where the machine grants no namespaces."""
    if reason := granted():
        pytest.skip(f"no emulated WAN on this machine: {reason}")
