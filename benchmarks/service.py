"""What ``hippo serve`` bears on this machine: reads, submissions and measurements a second with their tails, with
100,000 jobs in the store and the loop going round; and how soon it is back after kill -9.

    hippo bench service [--jobs N] [--seconds S]

The generator is this process (one thread of asyncio, 32 requests under way); its CPU share is told, as it takes its
part of the same cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import sqlalchemy as sql
from sqlalchemy.engine import Connection

from hippo.serve import tables as t
from hippo.serve.store import Store

ABREAST = 32
SITE = Path(__file__).parents[1] / "examples" / "four-by-eighty.yaml"
JOB = {"devices": 4096, "duration_s": 60.0}  # of a site of 320: refused by the loop, so that its queue stays short


def filled(url: str, jobs: int) -> None:
    """A store with so many jobs that are over."""
    store = Store(url)
    body = json.dumps(JOB)
    for begin in range(0, jobs, 5000):
        rows = [
            {"key": f"old-{at}", "body_sha256": "", "spec": body, "owner": "old", "state": "done", "submitted_s": 1.0}
            | {"why": "", "share_done": 1.0, "cancels": False, "ended_s": 2.0}
            for at in range(begin, min(jobs, begin + 5000))
        ]
        store.write(partial(_insert, rows=rows)).result()
    store.close()


def _insert(at: Connection, rows: list[dict[str, Any]]) -> None:
    at.execute(sql.insert(t.JOBS), rows)


def started(folder: Path, port: int) -> tuple[subprocess.Popen[bytes], float]:
    """The service, and the seconds until it was ready."""
    words = [
        "serve",
        "--cluster",
        str(SITE),
        "--store",
        f"sqlite:///{folder / 'store.db'}",
        "--mode",
        "act",
        "--policy",
        "srpt",
        "--port",
    ]
    began_s = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "hippo", *words, str(port), "-q"], cwd=folder)
    while True:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200:
                return process, time.monotonic() - began_s
        except httpx.HTTPError:
            time.sleep(0.02)


async def load(seconds: float, ask: Callable[[int], Awaitable[httpx.Response]], units: int = 1) -> dict[str, float]:
    """Ask again and again; rate and tails."""
    took, number, end_s = list[float](), 0, time.monotonic() + seconds
    wrong, cpu_s = 0, time.process_time()

    async def go_on() -> None:
        nonlocal number, wrong
        while time.monotonic() < end_s:
            number += 1
            began_s = time.perf_counter()
            answer = await ask(number)
            took.append(time.perf_counter() - began_s)
            wrong += answer.status_code >= 400

    await asyncio.gather(*(go_on() for _ in range(ABREAST)))
    p50, p99 = (1e3 * float(np.percentile(took, each)) for each in (50, 99))
    share = (time.process_time() - cpu_s) / seconds
    rate = units * len(took) / seconds
    return {"per_s": rate, "p50_ms": p50, "p99_ms": p99, "wrong": wrong, "generator_cpu": share}


async def measured(port: int, token: str, jobs: int, seconds: float) -> dict[str, dict[str, float]]:
    """All three loads, one after another."""
    rng = np.random.default_rng(0)
    limits = httpx.Limits(max_connections=ABREAST)
    headers = {"Authorization": f"Bearer {token}"}
    points = [
        {"from": one, "to": two, "gbps": 1.0 + 0.1 * at}
        for at, (one, two) in enumerate([("north", "east"), ("east", "south"), ("south", "west"), ("west", "north")])
    ] * 50
    base = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=base, headers=headers, limits=limits, trust_env=False, timeout=60) as http:

        async def read(number: int) -> httpx.Response:
            kind, at = number % 5, int(rng.integers(1, jobs))
            if kind < 3:
                return await http.get(f"/v1/jobs/j{at}")
            return await http.get(f"/v1/jobs?after=j{at}&limit=20" if kind == 3 else "/v1/decisions?limit=20")

        async def submit(number: int) -> httpx.Response:
            return await http.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": f"new-{os.getpid()}-{number}"})

        async def push(number: int) -> httpx.Response:
            return await http.post("/v1/telemetry", json={"links": points})

        return {
            "reads": await load(seconds, read),
            "submissions": await load(seconds, submit),
            "points": await load(seconds, push, len(points)),
        }


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--port", type=int, default=8479)
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="hippo-bench-service-") as name:
        folder = Path(name)
        filled(f"sqlite:///{folder / 'store.db'}", asked.jobs)
        process, first_s = started(folder, asked.port)
        token = (folder / "store.db.token").read_text().strip()
        found: dict[str, Any] = asyncio.run(measured(asked.port, token, asked.jobs, asked.seconds))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process, again_s = started(folder, asked.port)
        process.terminate()
        process.wait(30.0)
    for what, row in found.items():
        told = f"{row['per_s']:8.0f}/s  p50 {row['p50_ms']:6.1f} ms  p99 {row['p99_ms']:6.1f} ms"
        sys.stdout.write(
            f"{what:12} {told}  answers >= 400: {row['wrong']}  generator {row['generator_cpu']:.2f} cores\n"
        )
    sys.stdout.write(
        f"ready after  {first_s:.1f} s at first, {again_s:.1f} s after kill -9, {asked.jobs} jobs stored\n"
    )


if __name__ == "__main__":
    main()
