"""How true the emulated WAN is: goodput and round trip against what was set, rate steps, and what the emulator costs.

    hippo bench emulator
    python benchmarks/emulator.py [repeats] [cubic|bbr ...]

One TCP flow between two domains, this page's own sender and receiver. *Goodput*: payload that arrived in 5 s, after a
warm-up of 2 s, as a share of the set rate (1448 of 1518 bytes are payload: 95.4 % can be had). *Round trip*: 40 UDP
packets of 64 bytes on the idle link, less the set round trip. *CPU*: of the emulating process, per second of the flow.
*Late*: by how much frames left later than they should, on average; it shows how busy the machine is otherwise. Then
steps of the rate under one running flow, 3 s each: mean goodput, and time until 100 ms come within 10 % of what can be
had. Medians over the repeats, lowest and highest in brackets. Asked: goodput >= 94 % up to 1 Gbit/s, round trip at most
3 ms longer.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from hippo.emulate.emulate import emulate, setting_of
from hippo.emulate.emulation import Emulation, emulation
from hippo.errors import InputError
from hippo.problem.load import load_cluster

SETTINGS = ((20, 20), (20, 100), (100, 20), (100, 40), (100, 100), (1000, 20), (1000, 40), (1000, 100))
"""Mbit/s, round trip in ms."""
STEPS, STEPS_ROUND_TRIP_MS = (100, 70, 130, 30, 100), 40
CONTROLS = ("cubic", "bbr")
CEILING = 1448 / 1518
PORT, PINGS, WARM_UP_S, FLOW_S, STEP_S, BIN_S = 7000, 40, 2.0, 5.0, 3.0, 0.1
FOUND = "HIPPO_BENCH_FOUND"
CLUSTER = """
gpu: A100-SXM-80GB
domains: [{{name: east, nodes: 1, gpus_per_node: 8}}, {{name: west, nodes: 1, gpus_per_node: 8}}]
links: [{{from: east, to: west, bandwidth_gbps: {gbps}, latency_ms: {ms}, price_usd_per_gb: 0, both: true}}]
"""


# -------------------------------------------------------------------------------------------------------- the two ends
def say(line: str) -> None:
    """One line to whoever has started this process."""
    print(line, flush=True)


def answer(address: str) -> None:
    """Sends every packet back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.bind((address, PORT))
        say("ready")
        while True:
            end.sendto(*end.recvfrom(2048))


def ask(address: str) -> None:
    """Round trips in ms, one packet after the other."""
    trips = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.settimeout(2)
        for _ in range(PINGS):
            begun = time.monotonic()
            end.sendto(bytes(64), (address, PORT))
            end.recv(2048)
            trips.append(1e3 * (time.monotonic() - begun))
    say(json.dumps(trips))


def receive(address: str, seconds: str) -> None:
    """Bytes that came in each 100 ms, the first when the connection stands."""
    counts = [0] * round(float(seconds) / BIN_S)
    with socket.create_server((address, PORT)) as listener:
        say("ready")
        stream, _ = listener.accept()
        begun, space = time.monotonic(), bytearray(1 << 20)
        while (bin := int((time.monotonic() - begun) / BIN_S)) < len(counts):
            counts[bin] += stream.recv_into(space)
    say(json.dumps({"begun": begun, "counts": counts}))


def send(address: str) -> None:
    """As much as goes, until the far end has had enough."""
    with socket.create_connection((address, PORT)) as stream:
        try:
            while True:
                stream.sendall(bytes(1 << 20))
        except ConnectionError:
            return


# ---------------------------------------------------------------------------------------------------- inside the links
def pair(around: Emulation, far: Sequence[str], near: Sequence[str]) -> tuple[subprocess.Popen[str], ...]:
    """Starts the end in the west, waits until it is ready, and starts the one in the east."""
    address = around.domains["west"].address
    ends: list[subprocess.Popen[str]] = []
    for domain, (role, *rest) in (("west", far), ("east", near)):
        argv = around.command(domain, [sys.executable, __file__, role, address, *rest])
        ends.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        if domain == "west":
            read(ends[0])
    return tuple(ends)


def read(end: subprocess.Popen[str]) -> str:
    """The next line that a process says."""
    assert end.stdout is not None
    return end.stdout.readline()


def inside_flow(around: Emulation) -> dict[str, object]:
    """Round trips, then a flow."""
    far, near = pair(around, ["answer"], ["ask"])
    trips = json.loads(read(near))
    far.kill()
    far, near = pair(around, ["receive", str(WARM_UP_S + FLOW_S)], ["send"])
    counts = json.loads(read(far))["counts"][round(WARM_UP_S / BIN_S) :]
    near.kill()
    return {"round_trip_ms": median(trips), "mbit_per_s": 8e-6 * sum(counts) / FLOW_S}


def inside_steps(around: Emulation) -> dict[str, object]:
    """One flow, the rate moved under it: per step the mean, and the time until it is there (null: not within it)."""
    seconds = STEP_S * len(STEPS)
    far, near = pair(around, ["receive", str(seconds)], ["send"])
    begun = time.monotonic()
    moved = []
    for number, mbit in enumerate(STEPS[1:], 1):
        time.sleep(max(0.0, begun + number * STEP_S - time.monotonic()))
        around.set_link("east", "west", gbps=mbit / 1e3, latency_ms=STEPS_ROUND_TRIP_MS / 2)
        moved.append(time.monotonic())
    seen = json.loads(read(far))
    near.kill()
    rows = []
    for mbit, at in zip(STEPS[1:], moved, strict=True):
        # what leaves under the new rate arrives a one-way delay later
        first = round((at + STEPS_ROUND_TRIP_MS / 2e3 - seen["begun"]) / BIN_S)
        rates = [8e-6 * count / BIN_S for count in seen["counts"][first : first + round(STEP_S / BIN_S) - 1]]
        there = next((index for index, rate in enumerate(rates) if abs(rate / mbit / CEILING - 1) <= 0.1), None)
        rows.append({"mean": sum(rates) / len(rates), "there_s": None if there is None else there * BIN_S})
    return {"steps": rows}


# ----------------------------------------------------------------------------------------------------------- the table
def measured(mbit: int, round_trip_ms: float, control: str, role: str) -> dict[str, Any]:
    """One emulation: what was found inside, and what it cost."""
    with tempfile.TemporaryDirectory() as folder:
        cluster, found = Path(folder, "two.yaml"), Path(folder, "found.json")
        cluster.write_text(CLUSTER.format(gbps=mbit / 1e3, ms=round_trip_ms / 2))
        os.environ[FOUND] = str(found)
        command = [sys.executable, __file__, role]
        outcome = emulate(
            setting_of(
                load_cluster(str(cluster)), command, source=str(cluster), congestion=control, backend="userspace"
            )
        )
        assert outcome.exit_code == 0, f"{role} failed"
        run = outcome.run
        cost = {"cpu": run.cpu_s / (WARM_UP_S + FLOW_S), "late_ms": run.mean_late_ms, "missed": run.missed_frames}
        return {**json.loads(found.read_text()), **cost}


def spread(values: Sequence[float], form: str) -> str:
    """Median, lowest and highest."""
    middle = f"{median(values):{form}}"
    return middle if len(values) == 1 else f"{middle} ({min(values):{form}}-{max(values):{form}})"


def flows(control: str, repeats: int) -> None:
    """Goodput and round trip over the settings."""
    print(
        f"\n{control}: set Mbit/s, round trip ms | goodput % of rate | round trip +ms | CPU % of a core | late ms | "
        "missed"
    )
    for mbit, trip_ms in SETTINGS:
        rows = [measured(mbit, trip_ms, control, "flow") for _ in range(repeats)]
        goodput = spread([100 * row["mbit_per_s"] / mbit for row in rows], ".1f")
        longer = spread([row["round_trip_ms"] - trip_ms for row in rows], ".2f")
        cost = spread([100 * row["cpu"] for row in rows], ".1f"), spread([row["late_ms"] for row in rows], ".2f")
        print(
            " | ".join((f"{mbit:5d} {trip_ms:4d}", goodput, longer, *cost, f"{max(row['missed'] for row in rows):g}"))
        )
        sys.stdout.flush()


def steps(control: str, repeats: int) -> None:
    """The rate moved under a running flow."""
    print(f"\n{control}, {STEPS_ROUND_TRIP_MS} ms: step Mbit/s | mean goodput Mbit/s, and % of it | there after s")
    runs = [measured(STEPS[0], STEPS_ROUND_TRIP_MS, control, "steps")["steps"] for _ in range(repeats)]
    for number, (old, new) in enumerate(zip(STEPS[:-1], STEPS[1:], strict=True)):
        rows = [run[number] for run in runs]
        means = [row["mean"] for row in rows]
        there = [row["there_s"] for row in rows]
        said = spread([each for each in there if each is not None], ".1f") if any(t is not None for t in there) else "-"
        missing = f", {there.count(None)} of {repeats} not within {STEP_S:g} s" if None in there else ""
        share = spread([100 * mean / new for mean in means], ".0f")
        print(f"{old:4d} -> {new:4d} | {spread(means, '.1f')}, {share} | {said}{missing}")


def main(repeats: int, controls: Sequence[str]) -> None:
    """Prints what the module says."""
    print(f"load of the machine at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; repeats: {repeats}")
    try:
        for control in controls:
            flows(control, repeats)
            steps(control, repeats)
    except InputError as error:
        print(f"not on this machine: {error}")
    print(f"\nload at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {"answer": answer, "ask": ask, "receive": receive, "send": send}
    if len(sys.argv) > 1 and sys.argv[1] in roles:
        roles[sys.argv[1]](*sys.argv[2:])
    elif len(sys.argv) > 1 and sys.argv[1] in ("flow", "steps"):
        place = emulation()
        assert place is not None
        result = inside_flow(place) if sys.argv[1] == "flow" else inside_steps(place)
        Path(os.environ[FOUND]).write_text(json.dumps(result))
    else:
        given = sys.argv[1:]
        main(int(given[0]) if given else 1, given[1:] or CONTROLS)
