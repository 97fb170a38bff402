"""Who may do what: tokens, of which the store holds the hashes, their roles, and how much one may ask for.

The first token is made with the store; it lies beside it, for its owner alone (``token_file``).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, count
from math import inf
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from urllib.parse import urlsplit

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from hippo.errors import InputError, UnknownNameError
from hippo.files import write_whole
from hippo.serve import tables as t
from hippo.serve.store import Store, StoreError, note

VIEWER, AGENT, OPERATOR, PROXY = "viewer", "agent", "operator", "proxy"
ROLES: Mapping[str, frozenset[str]] = {
    VIEWER: frozenset({"read"}),
    AGENT: frozenset({"read", "tell"}),
    OPERATOR: frozenset({"read", "tell", "submit", "decide"}),
    PROXY: frozenset(),
}
"""What each role may do: look, push telemetry, submit and cancel jobs, approve and deny; a proxy may nothing by itself,
but speaks for those who signed on with it."""
GROUPS = {f"hippo-{role}": role for role in (OPERATOR, AGENT, VIEWER)}
"""Of those whom a proxy speaks for, and the roles that they give; of several the first."""
USER_HEADERS, GROUPS_HEADER = (b"x-forwarded-email", b"x-forwarded-user"), b"x-forwarded-groups"
"""As oauth2-proxy writes them; of users the first that is there."""
FIRST = "first"
AGAIN_S = 1.0
"""Between two looks for tokens that were made or taken back since."""


@dataclass(frozen=True)
class Caller:
    """Who asks."""

    name: str
    role: str

    def may(self, act: str) -> bool:
        """Whether its role allows it."""
        return act in ROLES[self.role]


class Access:
    """Tokens of a store, remembered while it is served; and a bucket of requests for each."""

    def __init__(self, store: Store, *, per_s: float = 5000.0) -> None:
        self._store, self._per_s = store, per_s
        self._known: dict[str, Caller] = {}
        self._left: dict[str, tuple[float, float]] = {}  # requests that are left, as of when
        self._lock, self._read_s = Lock(), -inf
        self.reload()

    def reload(self) -> None:
        """Read them again."""
        rows = self._store.read(lambda at: at.execute(sql.select(t.TOKENS)).all())
        self._known = {row.sha256: Caller(row.name, row.role) for row in rows}

    @property
    def known(self) -> bool:
        """Whether anybody has a token."""
        return bool(self._known)

    def caller(self, token: str | None) -> Caller | None:
        """Whose token it is; None: nobody's."""
        if not token:
            return None
        hashed = _hashed(token)
        if monotonic() > self._read_s + AGAIN_S:
            self._read_s = monotonic()
            looks = Thread(target=self._look_again, daemon=True)
            looks.start()
            if hashed not in self._known:  # it may have been made since; who is known waits for no store
                looks.join()
        return self._known.get(hashed)

    def _look_again(self) -> None:
        with suppress(StoreError):
            self.reload()

    def allows(self, caller: Caller) -> bool:
        """Whether one more request is within the caller's rate."""
        now_s = monotonic()
        with self._lock:
            left, then_s = self._left.get(caller.name, (self._per_s, now_s))
            left = min(self._per_s, left + (now_s - then_s) * self._per_s)
            self._left[caller.name] = max(0.0, left - 1.0), now_s
            return left >= 1.0


def spoken_for(headers: Iterable[tuple[bytes, bytes]]) -> Caller | str:
    """Whom a request of a proxy is of, by its headers; a sentence: nobody who may ask, and why."""
    told = [(name, value.decode("latin-1").strip()) for name, value in headers]
    found = {name: value for name, value in told if name in (*USER_HEADERS, GROUPS_HEADER)}
    if len(found) < sum(name in found for name, _ in told):
        return "the proxy names a user or groups twice"
    user = next((found[name] for name in USER_HEADERS if found.get(name)), "")
    if not user or not user.isprintable() or len(user) > 200:
        return "the proxy names no user"
    groups = {each.strip() for each in found.get(GROUPS_HEADER, "").split(",")}
    role = next((role for group, role in GROUPS.items() if group in groups), None)
    return f"{user} is in none of the groups {', '.join(GROUPS)}" if role is None else Caller(user, role)


def drawn() -> str:
    """A token that nobody has."""
    return f"hippo_{secrets.token_urlsafe(24)}"


def from_elsewhere(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Why a request that changes something does not come from the service's own page, where a browser says so: behind a
    proxy that signs people on it sends who they are by itself, whichever site asks it to. Empty: it may."""
    told = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
    site = told.get("sec-fetch-site", "none")
    if site not in ("same-origin", "none"):
        return f"the request was made by another site ({site[:20]})"
    origin = told.get("origin", "")
    hosts = {told.get("host", ""), told.get("x-forwarded-host", "")} - {""}
    if origin and "sec-fetch-site" not in told and hosts and urlsplit(origin).netloc not in hosts:
        return f"the request was made by another site ({origin[:80]})"
    return ""


def _hashed(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def made(name: str, role: str, now_s: float, token: str | None = None) -> Callable[[Connection], str]:
    """Writes a new token down, of which only the hash is kept, and tells it. ``InputError``: an unknown role, or a name
    that has one already, or is none."""
    if role not in ROLES:
        raise UnknownNameError("role", role[:40], ROLES, source="--role")
    if not name.strip() or not name.isprintable():
        raise InputError("names nobody", source="--new-token", value=name[:40], remedy="name who will use it")
    token = token or drawn()

    def write(at: Connection) -> str:
        if at.execute(sql.select(t.TOKENS.c.name).where(t.TOKENS.c.name == name)).first() is not None:
            raise InputError("has a token already", source="--new-token", value=name[:40], remedy="name another one")
        at.execute(sql.insert(t.TOKENS).values(sha256=_hashed(token), name=name, role=role, made_s=now_s))
        note(at, now_s, "token", name, event="token made", role=role)
        return token

    return write


def taken_back(name: str, now_s: float) -> Callable[[Connection], None]:
    """Forgets the token of that name. ``InputError``: there is none, or it is the only operator's, without whom nobody
    could submit or answer."""

    def write(at: Connection) -> None:
        roles = {row.name: row.role for row in at.execute(sql.select(t.TOKENS.c.name, t.TOKENS.c.role))}
        if name not in roles:
            raise UnknownNameError("token", name[:40], roles, source="--drop-token")
        if roles[name] == OPERATOR and list(roles.values()).count(OPERATOR) == 1:
            remedy = "make another one first: hippo serve --new-token NAME --role operator"
            raise InputError("is the only operator's", source="--drop-token", value=name[:40], remedy=remedy)
        at.execute(sql.delete(t.TOKENS).where(t.TOKENS.c.name == name))
        note(at, now_s, "token", name, event="token taken back", role=roles[name])

    return write


def first_token(store: Store, beside: Path, now_s: float) -> Path | None:
    """Makes the first token of a store in which nobody is operator, and writes it into a file; None: somebody is."""
    rows = store.read(lambda at: at.execute(sql.select(t.TOKENS.c.name, t.TOKENS.c.role)).all())
    if any(row.role == OPERATOR for row in rows):
        return beside if beside.exists() else None
    known = {row.name for row in rows}
    name = next(name for name in chain([FIRST], (f"{FIRST}-{at}" for at in count(2))) if name not in known)
    token = drawn()
    write_whole(beside, token + "\n")  # first: a token that nobody has would lock everybody out
    beside.chmod(0o600)
    store.write(made(name, OPERATOR, now_s, token)).result()
    return beside
