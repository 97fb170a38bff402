"""A service as it is started: its store, its loop, its port; and as it ends: requests are answered, the turn is
finished, the store given back; jobs go on."""

from __future__ import annotations

import errno
import resource
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import uvicorn

from hippo import first_use
from hippo.arguments import check_fields
from hippo.errors import InputError, UnknownNameError
from hippo.front_door.networks import LONGEST_EPOCH_S, SHORTEST_EPOCH_S
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import JobSite
from hippo.problem.cluster import Cluster
from hippo.registry import ACTUATORS, JOB_SCHEDULERS, LIVE_SCHEDULERS, METHODS, load
from hippo.serve.access import Access, first_token
from hippo.serve.actuators.base import Actuator
from hippo.serve.api import application
from hippo.serve.logs import EventLog, log_to
from hippo.serve.loop import CLOCK, LoopTerms, ServeLoop
from hippo.serve.pull import Puller, PullTerms
from hippo.serve.records import MODES
from hippo.serve.site import ServedSite
from hippo.serve.steering import OFF, Steering, SteeringTerms
from hippo.serve.store import Store, keep, kept

LOCAL = ("127.0.0.1", "::1", "localhost")
SWITCH_S = 0.001
"""After so long a thread of Python gives way to another: requests need not wait for the loop's longer sums."""
GUARD = "srpt"
"""The rule that decides where a policy breaks or is late."""


@dataclass(frozen=True)
class ServiceTerms:
    """What is served, where, and who decides."""

    store: str = "sqlite:///hippo.db"
    mode: str = "observe"
    policy: str = "hi_ppo"
    actuators: tuple[str, ...] = ("paper",)  # the first carries out what names none
    host: str = "127.0.0.1"
    port: int = 8470
    certificate: str = ""  # TLS: files
    key: str = ""
    stale_s: float = 60.0
    restart_s: float = 30.0  # that a job loses when it is moved
    cluster_file: str = ""  # that is looked at now and then
    pull: PullTerms | None = None  # a Prometheus that knows the links
    keeps_running: bool = False  # nobody stops or moves a job that runs but failures and people
    online: str = ""  # folder for log and policies of agents that learn while they serve
    steering: str = SteeringTerms.method  # who decides about plans of running jobs; none: nobody
    epoch_s: float = SteeringTerms.epoch_s  # how often
    log: str = ""  # file into which is logged; -: stderr; empty: nobody logs

    def __post_init__(self) -> None:
        check_fields(self)
        if self.mode not in MODES:
            raise UnknownNameError("mode", self.mode[:40], MODES, source="--mode")
        if self.policy not in JOB_SCHEDULERS:
            raise UnknownNameError("policy", self.policy[:40], JOB_SCHEDULERS, source="--policy")
        for name in self.actuators:
            if name not in ACTUATORS:
                raise UnknownNameError("actuator", name[:40], ACTUATORS, source="--actuator")
        if self.steering not in (*METHODS, OFF):
            raise UnknownNameError("method", self.steering[:40], (*METHODS, OFF), source="--steering")
        if not SHORTEST_EPOCH_S <= self.epoch_s <= LONGEST_EPOCH_S:
            told = f"must be from {SHORTEST_EPOCH_S:g} to {LONGEST_EPOCH_S:g} seconds"
            raise InputError(told, source="--epoch", value=self.epoch_s, remedy="give seconds, for instance 300")
        if not self.actuators:
            raise InputError("names nothing", source="--actuator", remedy=f"name one of {', '.join(ACTUATORS)}")
        if self.online:
            self._check_online()
        if not 0 <= self.port < 65536:
            raise InputError("is no port", source="--port", value=self.port, remedy="write a number up to 65535")
        if bool(self.certificate) != bool(self.key):
            given, other = ("--tls-cert", "--tls-key") if self.certificate else ("--tls-key", "--tls-cert")
            raise InputError(f"needs {other} too", source=given, remedy=f"give {other}, or leave {given} out")

    def _check_online(self) -> None:
        if self.policy not in LIVE_SCHEDULERS:
            remedy = f"name {', '.join(LIVE_SCHEDULERS)}, or leave --policy out"
            raise InputError("does not learn while it serves", source="--policy", value=self.policy, remedy=remedy)
        if self.mode != "act":
            remedy = "add --mode act, or leave --online out"
            raise InputError("learns from what it does", source="--online", value=self.mode, remedy=remedy)
        if not self.keeps_running:
            remedy = "add --keep-running, or leave --online out"
            raise InputError("decides where running jobs are kept", source="--online", remedy=remedy)


@dataclass(eq=False)
class ServiceClock:
    """Seconds since 1970 that never go back and never jump: the machine's when the service begins, not before what the
    store has seen, then counted."""

    begin_s: float
    _from_s: float = field(default_factory=time.monotonic)

    def __call__(self) -> float:
        """Now."""
        return self.begin_s + time.monotonic() - self._from_s


@dataclass(eq=False)
class Service:
    """A service that has been made and not been started."""

    terms: ServiceTerms
    store: Store
    loop: ServeLoop
    access: Access
    listening: socket.socket
    token_file: Path | None
    puller: Puller | None = None
    ends: Sequence[Callable[[], None]] = ()  # what else is given back

    @property
    def address(self) -> str:
        """Where it listens."""
        kind = "https" if self.terms.certificate else "http"
        host, port = self.listening.getsockname()[:2]
        return f"{kind}://{f'[{host}]' if ':' in host else host}:{port}"

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        terms: ServiceTerms,
        *,
        actuators: Sequence[Actuator] | None = None,
        listening: socket.socket | None = None,
        tell: Callable[[str], None] = lambda told: None,
    ) -> Service:
        """Opens the store and the port; ``actuators`` and ``listening``: in place of those that are named.

        Raises
        ------
        InputError
            A store that cannot be opened, a port that is taken, no token where others may come, a folder of agents that
            another service uses or that is of another site or store.
        """
        listening = port_of(terms) if listening is None else listening
        ends: list[Callable[[], None]] = []
        try:
            store = Store(terms.store)
        except BaseException:
            listening.close()
            raise
        try:
            seen = store.read(lambda at: kept(at, CLOCK))
            before_s, epoch_s = (float(each) for each in seen.decode().split()) if seen else (0.0, time.time())
            clock = ServiceClock(max(time.time(), before_s))
            if not seen:
                store.write(lambda at: keep(at, CLOCK, f"{epoch_s!r} {epoch_s!r}".encode(), epoch_s)).result()
            beside = _token_file(store)
            token_file = first_token(store, beside, clock())
            if terms.host not in LOCAL and token_file is None and not Access(store).known:
                remedy = "make one: hippo serve --new-token NAME"
                raise InputError("nobody has a token", source="--host", value=terms.host, remedy=remedy)
            scheduler, rule = (load(JOB_SCHEDULERS, "policy", name) for name in (terms.policy, GUARD))
            rules = ReplayRules(restart_s=terms.restart_s, stops=not terms.keeps_running)
            if terms.online:
                begin, folder = load(LIVE_SCHEDULERS, "policy", terms.policy), _folder(terms.online)
                scheduler = begin(JobSite.of(cluster), OfferTable.none(), rules, folder, epoch_s=epoch_s)
                ends = [scheduler.close]
            site = ServedSite.of(cluster, scheduler, epoch_s, rules)
            made = [load(ACTUATORS, "actuator", name)() for name in terms.actuators] if actuators is None else actuators
            told = LoopTerms(mode=terms.mode, actuator=made[0].name, stale_s=terms.stale_s)
            tell("standing as the store says")
            notice = _changed(terms.cluster_file)
            steering = None
            if terms.steering != OFF:
                steering = Steering(SteeringTerms(terms.steering, terms.epoch_s), cluster, epoch_s)
            others: dict[str, Any] = {"clock": clock, "wall": time.time, "notice": notice, "steering": steering}
            loop = ServeLoop(store, site, made, told, rule=rule, **others)
            if terms.online:
                scheduler.tell = loop.tell
            puller = None if terms.pull is None else Puller(loop, terms.pull)
            return cls(terms, store, loop, Access(store), listening, token_file, puller, ends)
        except BaseException:
            for end in ends:
                end()
            store.close()
            listening.close()
            raise

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until SIGTERM or SIGINT."""
        sys.setswitchinterval(SWITCH_S)
        open_more_files()
        events = None
        if self.terms.log:
            log_to(self.terms.log)
            events = EventLog(self.store)
        first_use.serve_something()  # loads kernels: else the first job waits for them, and all who come with it
        self.loop.start()
        if self.puller is not None:
            self.puller.start()
        try:
            terms = self.terms
            app = application(self.store, self.loop, self.access, self.puller)
            config = uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=3,
                ssl_certfile=terms.certificate or None,
                ssl_keyfile=terms.key or None,
                server_header=False,
                h11_max_incomplete_event_size=32_768,
            )
            server = uvicorn.Server(config)
            app.state.ends = lambda: server.should_exit  # streams that nobody else ends
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, lambda *_: None)  # which uvicorn raises once more when it has ended
            ready()
            server.run(sockets=[self.listening])
        finally:
            self.close((events.close,) if events is not None else ())

    def close(self, last: Sequence[Callable[[], None]] = ()) -> None:
        """Finish the turn, note the clock, give the store back; ``last``: what goes on until all is written."""
        if self.puller is not None:
            self.puller.close()
        self.loop.close()
        for end in (*self.ends, *last):
            end()
        now_s, epoch_s = self.loop.now_s(), self.loop.site.epoch_s
        self.store.write(lambda at: keep(at, CLOCK, f"{now_s!r} {epoch_s!r}".encode(), now_s))
        self.store.close()
        self.listening.close()


def open_more_files() -> None:
    """Let this process open as many files as it may: the usual 1,024 are as many connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS tells more than it gives
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def port_of(terms: ServiceTerms) -> socket.socket:
    """The port that is listened at; ``InputError``: it is taken, the address is none of this machine's, or a
    certificate cannot be used."""
    if terms.certificate:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(terms.certificate, terms.key)
        except (OSError, ssl.SSLError) as error:
            told = f"cannot be used: {error.strerror or error}"
            remedy = "give a certificate and its key as PEM files"
            raise InputError(told, source="--tls-cert", value=terms.certificate, remedy=remedy) from None
    found = socket.socket(socket.AF_INET6 if ":" in terms.host else socket.AF_INET)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((terms.host, terms.port))
        found.listen(2048)
    except (OSError, OverflowError) as error:
        found.close()
        number = getattr(error, "errno", None)
        told = f"cannot be listened at: {getattr(error, 'strerror', None) or error}"
        told = "is taken" if number == errno.EADDRINUSE else told
        value, remedy = f"{terms.host}:{terms.port}", "name another one, or 0 for any"
        if number not in (errno.EADDRINUSE, errno.EACCES):
            raise InputError(told, source="--host", value=value, remedy="name an address of this machine") from None
        raise InputError(told, source="--port", value=value, remedy=remedy) from None
    return found


def _changed(cluster_file: str) -> Callable[[], str]:
    """Says that the cluster file is another one than was read."""

    def digest() -> bytes | None:
        try:
            return sha256(Path(cluster_file).read_bytes()).digest()
        except OSError:
            return None

    began = digest() if cluster_file else None
    words = f"{cluster_file} has changed since it was read: start the service again to serve it"
    return lambda: words if cluster_file and digest() != began else ""


def _folder(given: str) -> Path:
    """Where the agents' log and policies lie, which may be made."""
    path = Path(given)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        told = f"cannot be made: {error.strerror or error}"
        raise InputError(told, source="--online", value=given, remedy="name a folder") from None
    return path


def _token_file(store: Store) -> Path:
    """Where the first token lies: beside a store in a file, else here."""
    path = store.engine.url.database if store.engine.dialect.name == "sqlite" else "hippo"
    return Path(f"{path}.token")
