"""A Kubernetes API server: where it is, who asks, and what its answers mean for an order."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hippo.errors import InputError, MissingExtraError
from hippo.serve.actuators.base import ActuatorError
from hippo.serve.actuators.batch import LaunchRefusedError

URL, TOKEN, CA = "HIPPO_KUEUE_URL", "HIPPO_KUEUE_TOKEN", "HIPPO_KUEUE_CA"
HERE = ("127.0.0.1", "localhost", "::1")
"""Where a token may travel in clear: ``kubectl proxy`` listens there, and signs itself."""
WITHIN_S = 30.0  # that an answer may take
A_PAGE = 500  # of a list, objects
NEVER = (400, 403, 413, 422)
"""Answers to a POST that another try does not change: it is no such object, or nobody may make it."""


@dataclass(frozen=True)
class ApiAddress:
    """Where an API server is, and by which files it and the service know each other."""

    url: str
    token: Path | None = None  # None: whoever listens there needs none
    ca: Path | None = None

    @classmethod
    def of_environment(cls) -> ApiAddress:
        """As the environment says. ``InputError``: a variable is missing, or says what cannot be."""
        url = needed(URL, "write https://HOST:6443, or http://127.0.0.1:8001 behind 'kubectl proxy'").rstrip("/")
        scheme, host = _scheme_and_host(url)
        in_clear = scheme == "http" and host in HERE
        if not host or (scheme != "https" and not in_clear):
            remedy = "write https://HOST:PORT: a token must not travel in clear"
            raise InputError("is no address of an API server", source=URL, value=url[:100], remedy=remedy)
        return cls(
            url,
            _file(TOKEN, "name the file of a service account's token (in a pod: its mounted token)", in_clear),
            _file(CA, "name the file of the cluster's certificate authority, PEM", in_clear),
        )


class ApiServer:
    """Asks, with patience and the token that its file holds now: those of pods are changed every hour."""

    def __init__(self, address: ApiAddress) -> None:
        try:
            import httpx
        except ImportError:
            raise MissingExtraError("httpx", "service", source="--actuator kueue") from None
        self.address = address
        trusted: ssl.SSLContext | bool = True
        if address.ca is not None:
            try:
                trusted = ssl.create_default_context(cafile=address.ca)
            except (OSError, ssl.SSLError) as error:
                remedy = "name a PEM file of certificates"
                found = f"cannot be read: {error}"[:200]
                raise InputError(found, source=CA, value=str(address.ca), remedy=remedy) from None
        self._http = httpx.Client(base_url=address.url, timeout=WITHIN_S, trust_env=False, verify=trusted)
        self._error = httpx.HTTPError

    def close(self) -> None:
        """Leave its connections."""
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        fine: Collection[int] = (),
        asked: Mapping[str, str] | None = None,
    ) -> Any:
        """What it answers; None: a status of ``fine``. ``LaunchRefusedError``: never; ``ActuatorError``: perhaps."""
        headers = {"Content-Type": kind, "Accept": "application/json"}
        if self.address.token is not None:
            try:
                headers["Authorization"] = f"Bearer {self.address.token.read_text().strip()}"
            except (OSError, ValueError) as error:
                raise ActuatorError(f"{TOKEN} cannot be read: {error}"[:300]) from None
        content = None if body is None else json.dumps(body)
        try:
            answer = self._http.request(method, path, content=content, params=asked, headers=headers)
        except (self._error, ValueError) as error:
            raise ActuatorError(f"the API server does not answer: {type(error).__name__} {error}"[:300]) from None
        try:
            found = answer.json() if answer.content else {}
        except ValueError:  # a proxy between says so, or whoever listens is no API server
            found = None
        code = answer.status_code
        if code in fine:
            return None
        if code < 300 and isinstance(found, dict):
            return found
        if code < 300:
            raise ActuatorError(f"the API server answered {method} with what is no object")
        said = str((found or {}).get("message") if isinstance(found, dict) else "") or answer.text.strip()[:200]
        words = f"the API server: {code} {said or 'no reason given'}"[:400] + HINTS.get(code, "")
        raise LaunchRefusedError(words) if method == "POST" and code in NEVER else ActuatorError(words)

    def listed(self, path: str, selector: str = "") -> list[Mapping[str, Any]]:
        """All objects of a list, page by page."""
        found: list[Mapping[str, Any]] = []
        asked = {"limit": str(A_PAGE)} | ({"labelSelector": selector} if selector else {})
        while True:
            page = self.ask("GET", path, asked=asked)
            items = page.get("items")
            if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
                raise ActuatorError(f"the API server answered {path} with what is no list")
            found += items
            if not (more := (page.get("metadata") or {}).get("continue")):
                return found
            asked["continue"] = str(more)


HINTS = {
    401: f". To fix: give {TOKEN} a token that is valid",
    403: ". To fix: give the service's account the rights that docs/service.md lists",
    404: ". To fix: install JobSet and Kueue, and make the namespace",
}


def needed(name: str, remedy: str) -> str:
    """What an environment variable says; ``InputError``: nothing."""
    if not (found := os.environ.get(name, "").strip()):
        raise InputError("is not set", source=name, key="--actuator kueue", remedy=remedy)
    return found


def _scheme_and_host(url: str) -> tuple[str, str]:
    """Empty: it is no address."""
    try:
        found = urlsplit(url)
        return found.scheme, (found.hostname or "") if found.port != 0 else ""
    except ValueError:  # of a port that is no number, too
        return "", ""


def _file(name: str, remedy: str, needless: bool) -> Path | None:
    if needless and not os.environ.get(name):
        return None
    found = Path(needed(name, remedy))
    if not os.access(found, os.R_OK) or not found.is_file():
        raise InputError("is no file that can be read", source=name, value=str(found), remedy=remedy)
    return found
