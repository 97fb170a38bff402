"""How two processes meet beside gloo: who listens leaves its address in a file of the run, never over the network."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hippo.files import json_text, write_whole

POLL_S = 0.01
SLOW_START_S = 60.0  # of a process that is to be met: more patience
HELLO_BYTES, HELLO_S = 20, 5.0  # token, number of the process; a stranger who says nothing holds nobody up for longer


class Listening:
    """Where other processes connect to; ``path``: the file that they look for."""

    def __init__(self, path: Path, most: int, patience_s: float) -> None:
        self._token = secrets.token_bytes(16)
        self._socket = socket.create_server((own_address(), 0), backlog=most)
        self._socket.settimeout(patience_s + SLOW_START_S)
        address, port = self._socket.getsockname()
        write_whole(path, json_text({"address": address, "port": port, "token": self._token.hex()}))

    def accept(self) -> tuple[socket.socket, int]:
        """The next that comes, and the number of its process; ``OSError``: nobody does."""
        while True:
            connection, _ = self._socket.accept()
            connection.settimeout(HELLO_S)
            hello = _read(connection, HELLO_BYTES)
            if hello[:16] == self._token:
                connection.settimeout(None)
                return connection, int.from_bytes(hello[16:], "big")
            connection.close()

    def close(self) -> None:
        """Nobody else can come."""
        self._socket.close()


def connected(
    path: Path, process: int, patience_s: float, unwanted: Callable[[], bool] = lambda: False
) -> socket.socket:
    """A connection of a process to whoever listens there; ``RuntimeError``: nobody does, or it is ``unwanted``."""
    until_s = time.monotonic() + patience_s + SLOW_START_S
    while not path.exists():
        if unwanted() or time.monotonic() > until_s:
            raise RuntimeError(f"nobody listens: {path.name} is missing")
        time.sleep(POLL_S)
    told: dict[str, Any] = json.loads(path.read_text())
    while True:
        try:
            connection = socket.create_connection((told["address"], told["port"]), timeout=patience_s)
            break
        except TimeoutError:  # the system's patience, two minutes where a link is dead
            if unwanted() or time.monotonic() > until_s:
                raise
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(bytes.fromhex(told["token"]) + process.to_bytes(4, "big"))
    return connection


def receive_into(connection: socket.socket, view: memoryview) -> None:
    """Fills the view; ``OSError``: the other side left."""
    while view:
        count = connection.recv_into(view)
        if not count:
            raise OSError("the other side left")
        view = view[count:]


def own_address() -> str:
    """IPv4 address of the interface that this process talks through."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asked = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(asking.fileno(), 0x8915, asked)[20:24])  # SIOCGIFADDR


def _read(connection: socket.socket, size: int) -> bytes:
    found = bytearray(size)
    try:
        receive_into(connection, memoryview(found))
    except OSError:
        return b""
    return bytes(found)
