"""How near `hippo probe` comes to what an emulated link was set to: rate and round trip (minutes).

    hippo bench probe
    python benchmarks/probe.py [ROUNDS]

Each setting is one `hippo emulate` with `hippo probe` inside, several rounds, both directions; cubic and bbr. Medians
over rounds and directions, least and most in brackets. Asked: within 3 % of the rate, 3 ms of the round trip.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

SETTINGS = ((20, 20), (100, 40), (300, 100), (1000, 40), (1000, 100))
"""Mbit/s, round trip in ms."""
CONTROLS = ("cubic", "bbr")
ROUNDS, SECONDS_OF_A_ROUND = 3, 26
HIPPO = [sys.executable, "-c", "from hippo.cli.main import main; main()"]
CLUSTER = """
gpu: A100-SXM-80GB
domains: [{{name: east, nodes: 1, gpus_per_node: 8}}, {{name: west, nodes: 1, gpus_per_node: 8}}]
links: [{{from: east, to: west, bandwidth_gbps: {gbps}, latency_ms: {ms}, price_usd_per_gb: 0, both: true}}]
"""


def main() -> None:
    """Prints the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    print(
        f"{'set Mbit/s, ms':>15s} {'control':>8s} {'rate, % of set':>26s} {'round trip, ms more':>28s} {'rounds':>7s}"
    )
    for mbit, trip_ms in SETTINGS:
        for control in CONTROLS:
            found = probed(mbit, trip_ms, control, rounds)
            if isinstance(found, str):
                print(f"No emulated WAN here: {found}")
                return
            rates, trips = found
            shares, more = [rate / mbit for rate in rates], [trip - trip_ms for trip in trips]
            rate = f"{median(shares):.1%} ({min(shares):.1%} - {max(shares):.1%})"
            trip = f"{median(more):+.2f} ({min(more):+.2f} - {max(more):+.2f})"
            print(f"{mbit:8d}, {trip_ms:5d} {control:>8s} {rate:>26s} {trip:>28s} {len(rates) // 2:7d}", flush=True)


def probed(mbit: int, trip_ms: int, control: str, rounds: int) -> tuple[list[float], list[float]] | str:
    """Mbit/s and ms of every sample; or why there are none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster = folder / "set.yaml"
        cluster.write_text(CLUSTER.format(gbps=mbit / 1e3, ms=trip_ms / 2))
        every = ["--every", str(SECONDS_OF_A_ROUND), "--for", str(SECONDS_OF_A_ROUND * (rounds - 1) + 1)]
        inside = [*HIPPO, "probe", *every, "--out", str(folder / "found")]
        words = [*HIPPO, "emulate", "--congestion", control, str(cluster), "--", *inside]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
        lines = (folder / "found" / "network.csv").read_text().splitlines()[1:]
    rows = [line.split(",") for line in lines]
    return [float(row[3]) * 1e3 for row in rows], [float(row[4]) * 2 for row in rows]


if __name__ == "__main__":
    main()
