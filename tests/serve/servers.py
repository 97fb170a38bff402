"""Real servers that tests start: PostgreSQL, by an ordinary user."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ORDINARY = "nobody"


def found(name: str, *places: str) -> str | None:
    """Where a program lies; None: it is not installed."""
    return shutil.which(name) or shutil.which(name, path=":".join(places))


def has_postgresql() -> bool:
    """Whether it can be started here."""
    return None not in _postgresql()


def _postgresql() -> tuple[str | None, str | None]:
    places = [str(each) for each in sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    return found("initdb", *places), found("postgres", *places)


@contextmanager
def postgresql(*, sync: bool = True) -> Iterator[str]:
    """The folder of the socket behind which it answers; it refuses to run as root."""
    initdb, postgres = _postgresql()
    assert initdb is not None, "no PostgreSQL on this machine"
    assert postgres is not None, "no PostgreSQL on this machine"
    user = pwd.getpwnam(ORDINARY).pw_uid if os.getuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="hippo-pg-") as folder:  # short: sockets have short paths
        if user is not None:
            os.chown(folder, user, -1)
        data, how = f"{folder}/data", {"user": user, "cwd": folder}
        made = [initdb, "-D", data, "-A", "trust", "-U", "hippo", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, **how)  # type: ignore[call-overload]
        command = [postgres, "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", f"fsync={sync}"]
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
