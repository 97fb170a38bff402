"""TCP flows that share an emulated link, step after step: how much longer the last takes, measured and as it is played.

    hippo bench sharing
    python benchmarks/sharing.py [steps]

This page's own senders and receivers, no torch: n flows of equal bytes begin together, every step 1.3 of what the link
alone would need after the one before, one way or both ways at once. *Measured*: mean of the steps after the first until
the last byte is there, less the way, over the seconds of the link alone. *Played*:
``hippo.simulate.transport.sharing`` and the mean share of bbr's drains, as sums of replicas take it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from socket import create_connection, create_server, socket
from statistics import mean

from hippo.emulate.emulate import emulate, setting_of
from hippo.emulate.emulation import emulation
from hippo.errors import InputError
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
from hippo.problem.transport import CONGESTIONS, DRAINED_EVERY_S, GOODPUT, queue_limit_bytes
from hippo.simulate.transport.sharing import SharedLink, stretch

RATE_BYTES_PER_S, SEND_S, PERIOD, PORT = 12.5e6, 4.6, 1.3, 7000
ROWS = tuple(
    (control, flows, ways, trip_s)
    for control in CONGESTIONS
    for trip_s in (0.02, 0.08)
    for flows, ways in ((1, 2), (2, 2), (4, 1), (4, 2), (8, 2))
)
"""Control, flows, ways, round trip."""


# -------------------------------------------------------------------------------------------------------- the two ends
def receive(address: str, port: str, flows: str, size: str, steps: str) -> None:
    """Says when the last byte of each step was there."""
    ended = [[0.0] * int(flows) for _ in range(int(steps))]
    with create_server((address, int(port))) as listener:
        print("ready", flush=True)
        streams = [listener.accept()[0] for _ in range(int(flows))]
    over = threading.Barrier(int(flows), action=lambda: streams[0].sendall(b"."))

    def take(at: int) -> None:
        space = bytearray(1 << 20)
        for step in range(int(steps)):
            left = int(size)
            while left:
                left -= streams[at].recv_into(space, min(left, len(space)))
            ended[step][at] = time.monotonic()
            over.wait()

    _side_by_side([threading.Thread(target=take, args=(at,)) for at in range(int(flows))])
    print(json.dumps([max(each) for each in ended]), flush=True)


def send(address: str, port: str, flows: str, size: str, steps: str, start_s: str) -> None:
    """Says when each step began."""
    streams: list[socket] = [create_connection((address, int(port))) for _ in range(int(flows))]
    data, began = bytes(int(size)), []
    for step in range(int(steps)):
        time.sleep(max(0.0, float(start_s) + step * PERIOD * SEND_S - time.monotonic()))
        began.append(time.monotonic())
        each_time = Random(step).sample(streams, len(streams))
        _side_by_side([threading.Thread(target=each.sendall, args=(data,)) for each in each_time])
        streams[0].recv(1)
    print(json.dumps(began), flush=True)


def _side_by_side(threads: list[threading.Thread]) -> None:
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def inside(found: str, ways: str, *words: str) -> None:
    """Both ends of each way; writes the seconds of every step."""
    around = emulation()
    assert around is not None
    pairs = (("east", "west", PORT), ("west", "east", PORT + 1))[: int(ways)]
    ends: list[list[subprocess.Popen[str]]] = [[], []]
    start_s = 0.0
    for role in ("receive", "send"):
        for one, two, port in pairs:
            argv = [sys.executable, __file__, role, around.place(two).address, str(port), *words]
            argv = around.command(one if role == "send" else two, argv + ([str(start_s)] if start_s else []))
            ends[role == "send"].append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
            if role == "receive":
                _line(ends[0][-1])
        start_s = time.monotonic() + 1.0
    lasted = []
    for far, near in zip(*ends, strict=True):
        began, ended = json.loads(_line(near)), json.loads(_line(far))
        lasted.append([there - here for here, there in zip(began, ended, strict=True)])
    Path(found).write_text(json.dumps(lasted))


def _line(end: subprocess.Popen[str]) -> str:
    assert end.stdout is not None
    return end.stdout.readline()


# ----------------------------------------------------------------------------------------------------------- the table
def measured(control: str, flows: int, ways: int, trip_s: float, steps: int) -> tuple[float, float]:
    """What the link needs times so much, and the share of frames' bytes that were dropped."""
    links = tuple(Link(*pair, RATE_BYTES_PER_S, trip_s / 2, 0.0) for pair in (("east", "west"), ("west", "east")))
    domains = tuple(Domain(name, 1, 8, 1e11, 1e11, 1e-6) for name in ("east", "west"))
    cluster = Cluster("two", gpu("A100-SXM-80GB"), domains, links)
    size = round(SEND_S * RATE_BYTES_PER_S * GOODPUT / flows)
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "found.json")
        command = [sys.executable, __file__, "inside", str(found), *map(str, (ways, flows, size, steps))]
        outcome = emulate(setting_of(cluster, command, source="two", congestion=control, backend="userspace"))
        assert outcome.exit_code == 0, "the ends failed"
        lasted: list[list[float]] = json.loads(found.read_text())
    lost = sum(link.dropped_bytes for link in outcome.run.links) / sum(link.carried_bytes for link in outcome.run.links)
    return mean(mean(each[1:]) - trip_s / 2 for each in lasted) / SEND_S, lost


def played(control: str, flows: int, ways: int, trip_s: float) -> float:
    """The same, played."""
    queue_s = queue_limit_bytes(RATE_BYTES_PER_S, trip_s / 2) / RATE_BYTES_PER_S
    link = SharedLink(RATE_BYTES_PER_S * GOODPUT, trip_s, queue_s, loaded_back=ways == 2)
    drain_s = CONGESTIONS[control].drain_s
    return stretch(flows, SEND_S, link, control) * (1 + (drain_s + trip_s if drain_s else 0.0) / DRAINED_EVERY_S)


def main(steps: int) -> None:
    """Prints what the module says."""
    print(f"| control | round trip ms | flows | ways | measured, mean of {steps - 1} | played | off | dropped % |")
    print("|---|---|---|---|---|---|---|---|")
    for row in ROWS:
        control, flows, ways, trip_s = row
        try:
            found, lost = measured(*row, steps)
        except InputError as error:
            print(f"not on this machine: {error}")
            return
        said = played(*row)
        figures = f"{found:.3f} | {said:.3f} | {said / found - 1:+.1%} | {100 * lost:.1f}"
        print(f"| {control} | {1e3 * trip_s:g} | {flows} | {ways} | {figures} |", flush=True)


if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {"inside": inside, "receive": receive, "send": send}
    if len(sys.argv) > 1 and sys.argv[1] in roles:
        roles[sys.argv[1]](*sys.argv[2:])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
