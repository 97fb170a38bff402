"""A service asked from Python: ``hippo.Client``."""

from __future__ import annotations

import json
import os
import re
import secrets
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from hippo.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import httpx

URL, TOKEN, AUTHORITIES = "HIPPO_URL", "HIPPO_TOKEN", "HIPPO_CA"
"""Environment variables: where the service is, who asks, and a file of authorities that vouch for it."""
HERE = "http://127.0.0.1:8470"
PAGE, MOST = 50, 500
"""Decisions that are told where nobody says how many, and at most in one answer."""
IDS = {"job": ("j", "hippo jobs status"), "decision": ("d", "hippo decisions")}
"""The letter of an id, and the command that lists them."""


class Client:
    """Asks a service.

        with hippo.Client() as service:
            job = service.submit({"model": "llama-3-8b", "tokens": 1e9, "least": 8, "most": 32})
            print(service.why(job["id"]))

    ``url`` and ``token``: else of ``HIPPO_URL`` and ``HIPPO_TOKEN``; ``token_file`` is what ``hippo serve`` wrote
    beside its store; ``verify``: False, or a file of authorities (PEM; else of ``HIPPO_CA``, else those of the web);
    ``uds``: through a socket of this machine. With ``dry_run`` a method that changes something only has it checked.
    Every method raises ``InputError`` with the service's
    own words where it refuses, or does not answer.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        token_file: str | Path | None = None,
        timeout_s: float = 30.0,
        verify: str | bool = True,
        uds: str | Path | None = None,
    ) -> None:
        try:
            import httpx
        except ImportError:
            raise MissingExtraError("httpx", "service", source="Client") from None
        vouched: bool | ssl.SSLContext = verify is not False
        if file := verify if isinstance(verify, str) else os.environ.get(AUTHORITIES, "") if verify else "":
            try:
                vouched = ssl.create_default_context(cafile=file)
            except OSError as error:
                told, remedy = f"holds no authorities: {error.strerror or error}", "name a PEM file"
                raise InputError(told, source=AUTHORITIES, value=file, remedy=remedy) from None
        self.url = (url or os.environ.get(URL) or HERE).rstrip("/")
        if token_file is not None:
            try:
                token = Path(token_file).read_text().strip()
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or "it is no text"
                told, remedy = f"cannot be read: {why}", "name the file that 'hippo serve' wrote"
                raise InputError(told, source="token file", value=str(token_file), remedy=remedy) from None
        token = (token or os.environ.get(TOKEN, "")).strip()
        headers = {"Authorization": f"Bearer {token}"} if token.isascii() and token.isprintable() and token else {}
        if (parent := os.environ.get("TRACEPARENT", "").strip()).isascii() and parent.isprintable() and parent:
            headers["traceparent"] = parent  # what is asked for goes back to who started this process
        try:
            through = None if uds is None else httpx.HTTPTransport(uds=str(uds))
            self._http: httpx.Client = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=timeout_s,
                verify=vouched,
                trust_env=False,
                transport=through,
            )
        except (ValueError, OSError, httpx.InvalidURL) as error:
            remedy = "write http://HOST:PORT"
            raise InputError(f"is no address: {error}", source=URL, value=self.url, remedy=remedy) from None
        self._errors = (httpx.HTTPError, httpx.InvalidURL)
        self._stays = httpx.Timeout(timeout_s, read=None)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave."""
        self._http.close()

    def submit(self, job: Mapping[str, Any], *, key: str | None = None, dry_run: bool = False) -> dict[str, Any]:
        """Hand a job in; sent again with the same ``key`` it is the same job."""
        headers = {"Idempotency-Key": _key(key) if key else secrets.token_hex(12)}
        return self._ask("POST", "/v1/jobs", told=("job", dict(job)), headers=headers, params={"dry_run": dry_run})

    def job(self, name: str) -> dict[str, Any]:
        """One job."""
        return self._ask("GET", f"/v1/jobs/{_id('job', name)}")

    def jobs(self, *, state: str | None = None) -> Iterator[dict[str, Any]]:
        """All jobs, in order of submission."""
        after = None
        while True:
            found = self._ask("GET", "/v1/jobs", params=_given(after=after, state=state, limit=MOST))
            yield from found["jobs"]
            if (after := found["next"]) is None:
                return

    def cancel(self, name: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Cancel a job."""
        return self._ask("DELETE", f"/v1/jobs/{_id('job', name)}", params={"dry_run": dry_run})

    def why(self, name: str) -> list[dict[str, Any]]:
        """All decisions about a job, the newest first."""
        self.job(name)
        return list(self._decided(None, since="d0", job=name))[::-1]

    def history(self, name: str) -> dict[str, Any]:
        """How a job went on: ``steps`` (time_s, share_done, step_s, loss) and ``decisions``, in order."""
        return self._ask("GET", f"/v1/jobs/{_id('job', name)}/history")

    def plan(self, name: str) -> dict[str, Any]:
        """The plan that a job's place names: a plan file's document."""
        return self._ask("GET", f"/v1/plans/{_word(name)}")

    def link_history(self, source: str, destination: str, *, hours: float = 6.0) -> list[dict[str, Any]]:
        """Minutes of a link: time_s, gbps, least_gbps, most_gbps."""
        asked = {"from": source, "to": destination, "hours": hours}
        return list(self._ask("GET", "/v1/links/history", params=asked)["minutes"])

    def decisions(
        self, *, since: str | None = None, state: str | None = None, limit: int | None = None
    ) -> list[dict[str, Any]]:
        """The newest decisions first, 50 of them; or all after one (``since``, ``d0``: from the first on), in order.

        ``limit``: so many at most (1 to 500).
        """
        if limit is not None and not 1 <= limit <= MOST:
            raise InputError(f"must be 1 to {MOST}", source="limit", value=limit, remedy="ask for those after an id")
        if since is not None:
            return list(self._decided(limit, since=_id("decision", since), state=state))
        return list(self._ask("GET", "/v1/decisions", params=_given(state=state, limit=limit or PAGE))["decisions"])

    def _decided(self, limit: int | None, **which: str | None) -> Iterator[dict[str, Any]]:
        """Decisions after one, in order, page by page; ``limit``: so many at most, of one page."""
        while True:
            found = self._ask("GET", "/v1/decisions", params=_given(**which, limit=limit or MOST))
            yield from found["decisions"]
            if limit is not None or (following := found["next"]) is None:
                return
            which["since"] = following

    def approve(self, name: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Say yes to a proposal."""
        return self._ask("POST", f"/v1/decisions/{_id('decision', name)}/approve", params={"dry_run": dry_run})

    def deny(self, name: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Say no to it."""
        return self._ask("POST", f"/v1/decisions/{_id('decision', name)}/deny", params={"dry_run": dry_run})

    def links(self) -> list[dict[str, Any]]:
        """What links carry."""
        return list(self._ask("GET", "/v1/links")["links"])

    def state(self) -> dict[str, Any]:
        """The service itself."""
        return self._ask("GET", "/v1/state")

    def push(
        self,
        links: Sequence[Mapping[str, Any]] = (),
        domains: Sequence[Mapping[str, Any]] = (),
        *,
        dry_run: bool = False,
    ) -> int:
        """Hand in what links were measured to carry (``from``, ``to``, ``gbps``, perhaps ``latency_ms``), and how many
        GPUs of domains can be used (``domain``, ``gpus``); how many were taken, of a dry run none."""
        told = {"links": [dict(each) for each in links], "domains": [dict(each) for each in domains]}
        return int(self._ask("POST", "/v1/telemetry", told=("push", told), params={"dry_run": dry_run})["taken"])

    def whatif(self, job: Mapping[str, Any], *, patience_s: float = 600.0) -> dict[str, Any]:
        """How long a job would wait, with an interval; what nobody trained there before is planned first, which is
        waited for for so long."""
        until_s = time.monotonic() + patience_s
        while "expected_wait_s" not in (found := self._ask("POST", "/v1/whatif", told=("job", dict(job)), later=True)):
            if time.monotonic() >= until_s:
                told = f"still {found.get('detail', 'being planned')} after {patience_s:g} s"
                raise InputError(told, source="service", value=self.url, remedy="ask again later")
            time.sleep(1.0)
        return found

    def events(self, *, since: int | None = None) -> Iterator[dict[str, Any]]:
        """What comes about, until the service ends. ``InputError``, as the first is asked for: it refuses or does not
        answer; later: the stream broke off."""
        began, kind, last = False, "", since
        try:
            with self._http.stream("GET", "/v1/events", params=_given(since=since), timeout=self._stays) as answer:
                if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                    answer.read()
                    self._document(answer)  # raises where it is a refusal
                    self._is_another(answer)
                began = True
                for line in answer.iter_lines():
                    if line.startswith("id: "):
                        last = int(line[4:])
                    elif line.startswith("event: "):
                        kind = line[7:]
                    elif line.startswith("data: "):
                        yield {"kind": kind, **json.loads(line[6:])}
        except self._errors as error:
            if not began:
                self._is_silent(error)
            remedy = "ask for them again" if last is None else f"ask for those since {last}"
            raise InputError(f"events broke off: {error}", source="service", value=self.url, remedy=remedy) from None

    def _ask(
        self, method: str, path: str, *, told: tuple[str, Any] | None = None, later: bool = False, **how: Any
    ) -> dict[str, Any]:
        """What is answered; ``told``: the body, and what it is called; ``later``: also that others are being answered,
        which is no refusal."""
        if told is not None:
            how["content"] = _written(*told)
            how["headers"] = {**how.get("headers", {}), "Content-Type": "application/json"}
        try:
            answer = self._http.request(method, path, **how)
        except self._errors as error:
            self._is_silent(error)
        except UnicodeEncodeError:  # of what stands behind the question mark
            remedy = "leave out lone surrogates"
            raise InputError("holds what is no text", source="question", value=path, remedy=remedy) from None
        return self._document(answer, later=later)

    def _document(self, answer: httpx.Response, *, later: bool = False) -> dict[str, Any]:
        """What an answer says; ``InputError``: it refuses, or is none of hippo's."""
        try:
            found = answer.json()
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self._is_another(answer)
        if answer.status_code >= 400 and not (later and answer.status_code == 429):
            told = str(found.get("detail") or found.get("title") or answer.status_code)
            remedy = "" if "To fix:" in told else str(found.get("remedy") or "")
            for kind, (_, command) in IDS.items():  # in words of who asks
                told, remedy = (each.replace(f"see GET /v1/{kind}s", f"see '{command}'") for each in (told, remedy))
            raise InputError(told.removesuffix("."), remedy=remedy or None)
        return found

    def _is_another(self, answer: httpx.Response) -> NoReturn:
        told, remedy = f"answers {answer.status_code}, and not as hippo does", "name the address of 'hippo serve'"
        raise InputError(told, source="service", value=self.url, remedy=remedy)

    def _is_silent(self, error: Exception) -> NoReturn:
        remedy = f"start it with 'hippo serve', or say where it is: {URL}, --url"
        if "CERTIFICATE" in str(error):
            remedy = f"name the file of the authorities that vouch for it: {AUTHORITIES}"
        raise InputError(f"no service answers: {error}", source="service", value=self.url, remedy=remedy) from None


def _key(key: str) -> str:
    """A key that a header can hold."""
    if not (key.isascii() and key.isprintable() and key == key.strip()):
        told, remedy = "must be printable ASCII, without blanks around it", "write letters, digits and dashes"
        raise InputError(told, source="submission", key="key", value=key[:40], remedy=remedy)
    return key


def _written(name: str, body: Any) -> bytes:
    """A body as JSON; ``InputError``: something in it cannot be sent."""
    try:
        _check_sent(body, name, "")
        return json.dumps(body, allow_nan=False).encode("ascii")
    except InputError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        remedy = "send texts, finite numbers, lists and objects of them"
        raise InputError(f"is no JSON: {error}", source=name, remedy=remedy) from None


def _check_sent(value: Any, name: str, key: str) -> None:
    """Numbers are finite and texts can be encoded, in all that is below a key."""
    if isinstance(value, Mapping):
        for below, each in value.items():
            _check_sent(below, name, key)
            _check_sent(each, name, f"{key}.{below}" if key else str(below))
    elif isinstance(value, list | tuple):
        for at, each in enumerate(value):
            _check_sent(each, name, f"{key}.{at}")
    elif isinstance(value, float) and not isfinite(value):
        raise InputError("must be a finite number", source=name, key=key, value=value, remedy="write a number")
    elif isinstance(value, str) and any("\ud800" <= each <= "\udfff" for each in value):
        raise InputError("is no text", source=name, key=key, value=value, remedy="leave out lone surrogates")


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _id(kind: str, name: str) -> str:
    """The id of a job or a decision."""
    letter, command = IDS[kind]
    if not re.fullmatch(f"{letter}(0|[1-9][0-9]{{0,15}})", name):
        remedy = f"write it as for instance {letter}12: see '{command}'"
        raise InputError(f"is no id of a {kind}", source="id", value=name[:40], remedy=remedy)
    return name


def _word(name: str) -> str:
    if not (name.isascii() and name.isalnum() and len(name) <= 40):
        raise InputError(
            "is no id", source="id", value=name[:40], remedy="write it as the service does, for instance j12"
        )
    return name
