"""The service's page under load, in Chromium's own trace: 500 jobs, 64 domains, ten events a second; the longest task
of its main thread, and when something is painted first.

    python -m benchmarks.page [--seconds S] [--jobs N] [--domains K]
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import yaml
from benchmarks.service import started

PORT = 8476
PAINT_S, LONGEST_MS = 1.0, 100.0
"""First paint, and the longest task."""
CATEGORIES = "toplevel,loading,devtools.timeline,blink.user_timing,rail"


def site(folder: Path, domains: int) -> Path:
    """A ring of domains, each linked to its next two."""
    names = [f"d{at:02d}" for at in range(domains)]
    ends = [(one, names[(at + far) % domains]) for at, one in enumerate(names) for far in (1, 2)]
    links = [{"from": a, "to": b, "bandwidth_gbps": 10, "latency_ms": 10, "both": True} for a, b in ends]
    told = {"gpu": "A100", "domains": [{"name": name, "nodes": 1, "gpus_per_node": 8} for name in names]}
    path = folder / "site.yaml"
    path.write_text(yaml.safe_dump({"name": "ring", **told, "links": links}))
    return path


def traced(folder: Path, url: str, seconds: float, http: httpx.Client) -> list[dict[str, Any]]:
    """Events of the trace while the page is open and things come about."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("page: Chromium is not installed. To fix: apt-get install chromium")
    path = folder / "trace.json"
    words = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    words += ["--window-size=1400,1000", "--remote-debugging-port=0", f"--trace-startup={CATEGORIES}"]
    words += [
        "--trace-startup-format=json",
        f"--trace-startup-file={path}",
        f"--trace-startup-duration={round(seconds)}",
    ]
    process = subprocess.Popen([chromium, *words, url], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        end_s, number = time.monotonic() + seconds + 5.0, 0
        while time.monotonic() < end_s and not path.exists():
            began_s = time.monotonic()
            for _ in range(10):
                alert = {"status": "firing", "labels": {"alertname": f"e{number}"}}
                http.post("/v1/alerts", json={"version": "4", "alerts": [alert]}).raise_for_status()
                number += 1
                time.sleep(max(0.0, 0.1 - (time.monotonic() - began_s) % 0.1))
        while time.monotonic() < end_s + 20.0 and not path.exists():
            time.sleep(0.2)
        time.sleep(2.0)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20.0)
    return list(json.loads(path.read_text())["traceEvents"])


def figures(events: list[dict[str, Any]], url: str) -> dict[str, float]:
    """Of the renderer that showed the page."""
    mains = {
        (each["pid"], each["tid"])
        for each in events
        if each.get("name") == "thread_name" and each["args"]["name"] == "CrRendererMain"
    }
    begin = {
        each["pid"]: each["ts"]
        for each in events
        if each["name"] == "navigationStart" and url.split("#")[0] in json.dumps(each.get("args", {}))
    }
    (process, at) = max(begin.items(), key=lambda pair: pair[1])
    tasks = [
        (each["dur"] / 1e3, each["ts"])
        for each in events
        if (each["pid"], each["tid"]) in mains and each["pid"] == process and each.get("ph") == "X"
        if each["name"].endswith(("RunTask", "DoWork"))
    ]
    paints = [
        each["ts"]
        for each in events
        if each["name"] == "firstContentfulPaint" and each["pid"] == process and each["ts"] > at
    ]
    late = [took for took, when in tasks if when > at]
    return {
        "paint_s": (min(paints) - at) / 1e6 if paints else float("nan"),
        "tasks": len(late),
        "longest_ms": max(late),
        "above_50_ms": sum(took > 50.0 for took in late),
    }


def main() -> int:
    """Prints figures; 1: it is slower than it may be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--domains", type=int, default=64)
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="hippo-page-") as name:
        folder = Path(name)
        process, _ = started(folder, PORT, cluster=site(folder, asked.domains))
        base = f"http://127.0.0.1:{PORT}"
        try:
            with httpx.Client(base_url=base, trust_env=False, timeout=30.0) as http:
                token = (folder / "store.db.token").read_text().strip()
                http.headers["Authorization"] = f"Bearer {token}"
                for number in range(asked.jobs):
                    job = {"devices": 8, "duration_s": 36_000.0}
                    http.post("/v1/jobs", json=job, headers={"Idempotency-Key": f"j{number}"}).raise_for_status()
                url = f"{base}/#token={token}"
                found = figures(traced(folder, url, asked.seconds, http), url)
        finally:
            process.terminate()
            process.wait(20.0)
    told = (
        f"first paint after {found['paint_s']:.2f} s; longest task {found['longest_ms']:.0f} ms of {found['tasks']:.0f}"
    )
    sys.stdout.write(f"{told}, {found['above_50_ms']:.0f} above 50 ms\n")
    return int(not (found["paint_s"] <= PAINT_S and found["longest_ms"] <= LONGEST_MS))  # nothing painted is slow, too


if __name__ == "__main__":
    sys.exit(main())
