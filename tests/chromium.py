"""A headless Chromium for tests and pictures: one that hangs or crashes is ended whole and started once more.

What it writes goes to files, not to pipes: a child of the browser may keep a pipe open long after the browser ended.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from .processes import started

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
"""The first of ``NAMES`` on the PATH; None: there is none."""

QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=4000",
)
LIMIT_S = 60.0  # of one start
_STARTS = 2


class ChromiumError(Exception):
    """The browser did not do what it was asked, twice."""


def opened(page: Path, *options: str, limit_s: float = LIMIT_S) -> str:
    """What the browser writes on stdout when it opens the page; every start has a profile of its own.

    Raises
    ------
    ChromiumError
        It hung or failed at every start; the message ends with what it wrote on stderr.
    """
    assert CHROMIUM is not None, f"none of {', '.join(NAMES)} is on the PATH"
    told = []
    for _ in range(_STARTS):
        with TemporaryDirectory(prefix="hippo-chromium-", ignore_cleanup_errors=True) as folder:
            profile = f"--user-data-dir={Path(folder) / 'profile'}"
            code, out, err = _run([CHROMIUM, *QUIET, profile, *options, page.as_uri()], Path(folder), limit_s)
        if code == 0:
            return out
        told.append(f"{f'hung for {limit_s:g} s' if code is None else f'ended with {code}'}\n{err}")
    raise ChromiumError(f"{CHROMIUM} on {page}: " + "\n".join(told))


def _run(command: list[str], folder: Path, limit_s: float) -> tuple[int | None, str, str]:
    """Exit code (None: it hung), stdout and stderr of a command; nothing of its process group is left."""
    said = folder / "stdout", folder / "stderr"
    with (
        said[0].open("wb") as out,
        said[1].open("wb") as err,
        started(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err) as browser,
    ):
        try:
            code = browser.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
    text = tuple(each.read_text(encoding="utf-8", errors="replace") for each in said)
    return code, text[0], text[1]
