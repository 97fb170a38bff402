"""Whether `hippo serve` keeps its memory while it serves: jobs that come and end, links that move, reads, a stream of
events, what-ifs, for half an hour; the mean of the last third against that of minutes 5 to 15 (of thirty).

    python -m benchmarks.soak [--minutes M]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from benchmarks.service import SITE, Request, load, started, wire

JOB = {"devices": 8, "duration_s": 20.0}
LOOKS = ("/v1/jobs?limit=50", "/v1/decisions?limit=50", "/v1/links", "/v1/state", "/metrics")
MOST = 0.05
"""By so much memory may differ."""
SIDES = ("north", "east", "south", "west")


def resident_mb(pid: int) -> float:
    """Of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def watched(pid: int, seconds: float, every_s: float = 2.0) -> list[float]:
    """Resident MB, every so often."""
    found, end_s = list[float](), time.monotonic() + seconds
    while time.monotonic() < end_s:
        found.append(resident_mb(pid))
        await asyncio.sleep(every_s)
    return found


async def streamed(port: int, token: str, seconds: float) -> int:
    """Events that come, over a connection that is left and opened again every minute."""
    came, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(wire(token, "/v1/events"))
        with suppress(TimeoutError):
            async with asyncio.timeout(min(60.0, end_s - time.monotonic())):
                while line := await reader.readline():
                    came += line.startswith(b"data:")
        writer.close()
    return came


async def soaked(
    port: int, token: str, pid: int, seconds: float
) -> tuple[list[float], dict[str, dict[str, float]], int]:
    """All at once."""
    rng, number = np.random.default_rng(0), count()
    ends = [(one, two) for one in SIDES for two in SIDES if one != two]

    def read(at: int) -> Request:
        return (LOOKS[at % len(LOOKS)],)

    def submit(at: int) -> Request:
        return "/v1/jobs", JOB, f"soak-{os.getpid()}-{next(number)}"

    def push(at: int) -> Request:
        gbps = rng.uniform(0.5, 1.5, len(ends)).tolist()
        return "/v1/telemetry", {
            "links": [{"from": a, "to": b, "gbps": g} for (a, b), g in zip(ends, gbps, strict=True)]
        }

    def whatif(at: int) -> Request:
        return "/v1/whatif", {**JOB, "duration_s": float(rng.uniform(10.0, 100.0))}

    asked = partial(load, port, token, seconds)
    loads = {"reads": (read, 20.0), "submissions": (submit, 2.0), "pushes": (push, 5.0), "what-ifs": (whatif, 0.5)}
    tasks = {what: asyncio.create_task(asked(make, rate=rate, abreast=1)) for what, (make, rate) in loads.items()}
    came = asyncio.create_task(streamed(port, token, seconds))
    memory = await watched(pid, seconds)
    return memory, {what: await each for what, each in tasks.items()}, await came


def early_and_late(memory: Sequence[float]) -> tuple[float, float]:
    """Mean MB of minutes 5 to 15 of thirty, and of the last ten, of values at equal distances."""
    at = np.linspace(0.0, 1.0, len(memory))
    values = np.array(memory)
    return float(values[(at >= 5 / 30) & (at < 0.5)].mean()), float(values[at >= 2 / 3].mean())


def kept(memory: Sequence[float], told: Mapping[str, Mapping[str, float]], events: int) -> bool:
    """Whether memory has stayed where it was, everything was answered, and events came."""
    early, late = early_and_late(memory)
    return abs(late / early - 1.0) <= MOST and not any(row["wrong"] for row in told.values()) and events > 0


def main() -> int:
    """Prints what was kept; 1: memory grew by more than ``MOST``, or something was answered wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--port", type=int, default=8478)
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="hippo-soak-") as name:
        folder = Path(name)
        process, _ = started(folder, asked.port)
        try:
            token = (folder / "store.db.token").read_text().strip()
            seconds = 60.0 * asked.minutes
            memory, told, came = asyncio.run(soaked(asked.port, token, process.pid, seconds))
        finally:
            process.terminate()
            process.wait(30.0)
        size_mb = (folder / "store.db").stat().st_size / 1e6
    early, late = early_and_late(memory)
    for what, row in told.items():
        sys.stdout.write(
            f"{what:12} {row['per_s']:6.1f}/s  p99 {row['p99_ms']:7.1f} ms  answers >= 400: {row['wrong']}\n"
        )
    sys.stdout.write(f"{came} events; store {size_mb:.0f} MB; of {SITE.name}\n")
    every = max(1, len(memory) // 15)
    sys.stdout.write("resident MB: " + " ".join(f"{mb:.0f}" for mb in memory[::every]) + "\n")
    sys.stdout.write(
        f"minutes 5 to 15 {early:.1f} MB, the last third {late:.1f} MB: {100 * (late / early - 1):+.1f} %\n"
    )
    return int(not kept(memory, told, came))


if __name__ == "__main__":
    sys.exit(main())
