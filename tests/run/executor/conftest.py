"""What tests of the executor share."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def both() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a connection on the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        two, _ = listener.accept()
        with one, two:
            yield one, two
