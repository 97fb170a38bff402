"""Runs inside an emulated WAN: one connection between two domains, its round trip, and one transfer.

    inside.py OUT.json SRC DST BYTES [GBPS MS]

With GBPS and MS the link is moved first. Writes {"round_trip_s", "seconds"}, or {"error"}.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

from hippo.emulate.emulation import emulation

PORT = 7000


def say(line: str) -> None:
    """One line to whoever has started this."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def serve(address: str) -> None:
    """Answers one byte with one byte, then says when all the others had come."""
    with socket.create_server((address, PORT)) as listener:
        say("ready")
        listener.settimeout(10)
        stream, _ = listener.accept()
        stream.sendall(stream.recv(1))
        count = 0
        while some := stream.recv(1 << 20):
            count += len(some)
        say(json.dumps({"bytes": count, "at": time.monotonic()}))


def send(address: str, size: int) -> None:
    """Connects (one round trip), asks and is answered (another), sends."""
    with socket.create_connection((address, PORT), timeout=4) as stream:
        begun = time.monotonic()
        stream.sendall(b"?")
        stream.recv(1)
        answered = time.monotonic()
        stream.sendall(bytes(size))
    say(json.dumps({"round_trip_s": answered - begun, "at": answered}))


def main(out: str, source: str, destination: str, size: str, *move: str) -> None:
    """Both ends as processes of their own."""
    around = emulation()
    assert around is not None
    if move:
        around.set_link(source, destination, gbps=float(move[0]), latency_ms=float(move[1]))
    address = around.domains[destination].address
    here = [sys.executable, __file__]
    with subprocess.Popen(
        around.command(destination, [*here, "serve", address]), stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        server.stdout.readline()
        done = subprocess.run(
            around.command(source, [*here, "send", address, size]), capture_output=True, text=True, check=False
        )
        if done.returncode:
            server.kill()
            told = {"error": done.stderr.strip().splitlines()[-1].rpartition(": ")[2]}
        else:
            sent, came = json.loads(done.stdout), json.loads(server.stdout.readline())
            assert came["bytes"] == int(size)
            told = {"round_trip_s": sent["round_trip_s"], "seconds": came["at"] - sent["at"]}
    with open(out, "w") as stream:
        json.dump(told, stream)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    elif sys.argv[1] == "send":
        send(sys.argv[2], int(sys.argv[3]))
    else:
        main(*sys.argv[1:])
