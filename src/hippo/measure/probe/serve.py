"""``hippo probe --serve``: answers those who measure; a thread per connection."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from threading import BoundedSemaphore, Thread

from hippo.errors import InputError
from hippo.measure.probe.ask import PathMeasured, measure
from hippo.measure.probe.wire import (
    PING_BYTES,
    NoAnswer,
    ProbeEffort,
    counted,
    effort_from_document,
    hang_up,
    poured,
    receive_line,
    send_line,
)

MOST_CONNECTIONS = 128  # at once; further ones are hung up on
_LOOK_S = 0.2
_HELLO_WITHIN_S = 5.0


@contextmanager
def listening(port: int, *, bind: str = "") -> Iterator[socket.socket]:
    """A socket that takes connections; port 0: a free one. ``InputError``: taken, not allowed, no such address."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            own.bind((bind, port))
            own.listen(MOST_CONNECTIONS)
        except (OSError, OverflowError) as error:
            raise _refusal(error, port, bind) from None
        yield own


def _refusal(error: OSError | OverflowError, port: int, bind: str) -> InputError:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return InputError("the port is taken", source="--port", value=port, remedy="give another one, or end its user")
    if number in (errno.EACCES, errno.EPERM):
        return InputError("no right to this port", source="--port", value=port, remedy="give one from 1024 to 65535")
    remedy = "give an address of this machine, or leave --bind out"
    return InputError(
        f"cannot listen: {getattr(error, 'strerror', None) or error}", source="--bind", value=bind, remedy=remedy
    )


def serve(own: socket.socket, *, until_s: float = float("inf"), stop: Callable[[], bool] = lambda: False) -> None:
    """Answers until the instant ``until_s`` of the monotonic clock, or until ``stop()``."""
    places = BoundedSemaphore(MOST_CONNECTIONS)
    own.settimeout(_LOOK_S)
    while time.monotonic() < until_s and not stop():
        try:
            peer, _ = own.accept()
        except TimeoutError:
            continue
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED):
                time.sleep(_LOOK_S)
                continue
            raise
        if not places.acquire(blocking=False):
            hang_up(peer)
            continue
        Thread(target=_answered, args=(peer, places), daemon=True).start()


def _answered(peer: socket.socket, places: BoundedSemaphore) -> None:
    """One connection from hello to end; whatever a peer does ends here."""
    try:
        with closing(peer):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _answer(peer)
    except NoAnswer as error:
        with suppress(OSError):
            send_line(peer, {"error": str(error)})
    except OSError:
        pass  # gone
    finally:
        places.release()


def _answer(peer: socket.socket) -> None:
    try:
        hello = receive_line(peer, until_s=time.monotonic() + _HELLO_WITHIN_S)
        ask, effort = hello.get("ask"), effort_from_document(hello.get("effort"))
        if ask not in _ANSWERS:
            raise NoAnswer(f"asks for {ask!r:.40}, not one of {', '.join(map(str, _ANSWERS))}")
    except NoAnswer as error:
        send_line(peer, {"error": str(error)})
        return
    if ask == "measure":
        send_line(peer, _told(hello, effort))
        return
    send_line(peer, {})
    _ANSWERS[ask](peer, effort)


def _echo(peer: socket.socket, effort: ProbeEffort) -> None:
    peer.settimeout(effort.patience_s)
    for _ in range(effort.trips * PING_BYTES):
        got = peer.recv(PING_BYTES)
        if not got:
            return
        peer.sendall(got)


def _receive(peer: socket.socket, effort: ProbeEffort) -> None:
    try:
        came = counted(peer, effort)
    except NoAnswer as error:
        send_line(peer, {"error": str(error)})
        return
    send_line(peer, {"bytes": came.num_bytes, "seconds": came.seconds})
    _until_gone(peer, effort)


def _send(peer: socket.socket, effort: ProbeEffort) -> None:
    poured(peer, effort)
    hang_up(peer)


def _until_gone(peer: socket.socket, effort: ProbeEffort) -> None:
    """Reads what is still under way, so that the last line is not lost to a reset."""
    until_s = time.monotonic() + effort.patience_s
    with suppress(OSError):
        while time.monotonic() < until_s and peer.recv(1 << 20):
            pass


def _told(hello: dict[str, object], effort: ProbeEffort) -> dict[str, object]:
    """The link from here to another server, for one who asks from elsewhere."""
    host, port = hello.get("host"), hello.get("port")
    if not isinstance(host, str) or not isinstance(port, int) or not 0 < port < 65536:
        return {"error": "names no host and port"}
    try:
        return {"measured": _document(measure(host, port, effort))}
    except NoAnswer as error:
        return {"error": str(error)}


def _document(measured: PathMeasured) -> dict[str, object]:
    return asdict(measured)


_ANSWERS: dict[object, Callable[[socket.socket, ProbeEffort], None]] = {
    "echo": _echo,
    "receive": _receive,
    "send": _send,
    "measure": lambda peer, effort: None,
}
