"""The suite of the loop and of the addresses once more, on a real PostgreSQL that an ordinary user starts."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .worlds import SERVER

TOOLS = [shutil.which(name) or shutil.which(name, path="/usr/lib/postgresql/15/bin") for name in ("initdb", "postgres")]
ORDINARY = "nobody"


@pytest.fixture
def server() -> Iterator[str]:
    """The folder of the socket behind which it answers; PostgreSQL refuses to run as root."""
    initdb, postgres = TOOLS
    if initdb is None or postgres is None:
        pytest.skip("no PostgreSQL on this machine")
    user = pwd.getpwnam(ORDINARY).pw_uid if os.getuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="hippo-pg-") as folder:  # short: sockets have short paths
        if user is not None:
            os.chown(folder, user, -1)
        data, how = f"{folder}/data", {"user": user, "cwd": folder}
        made = [initdb, "-D", data, "-A", "trust", "-U", "hippo", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, **how)  # type: ignore[call-overload]
        command = [postgres, "-D", data, "-k", folder, "-c", "listen_addresses="]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, **how) as process:  # type: ignore[call-overload]
            end_s = time.monotonic() + 30.0
            while not Path(folder, ".s.PGSQL.5432").exists():
                assert process.poll() is None
                assert time.monotonic() < end_s
                time.sleep(0.05)
            try:
                yield folder
            finally:
                process.terminate()
                process.wait(20.0)


@pytest.mark.slow
def test_the_same_suite_on_postgresql(server: str):
    here = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    command += [str(here / "test_loop.py"), str(here / "test_api.py")]
    environment = {**os.environ, SERVER: server}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stdout[-3000:]
    assert " passed" in found.stdout
