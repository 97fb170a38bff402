"""Ray: a job an order, by the address of its dashboard (``HIPPO_RAY``, http://127.0.0.1:8265).

The command runs as a Ray driver beside the head's resources; where its actors go it says itself, by the domains that it
is told (``HIPPO_DOMAINS``), which are resources of the cluster's nodes (``ray start --resources '{"oslo": 8}'``).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hippo.errors import HippoError, InputError, MissingExtraError
from hippo.serve.actuators.base import ActuatorError
from hippo.serve.actuators.batch import PENDING, BatchActuator, BatchJob, BatchLaunch, LaunchRefusedError
from hippo.serve.records import DONE, FAILED, RUNNING

ADDRESS, HERE = "HIPPO_RAY", "http://127.0.0.1:8265"
WITHIN_S = 30.0
NODES = "/api/v0/nodes?limit=10000"
STATES = {"PENDING": PENDING, "RUNNING": RUNNING, "SUCCEEDED": DONE}
DRIVER = 0.001
"""Of a domain's resource that the driver takes: it stands there and takes nothing away."""


class RayEngine:
    """Asks the jobs' address of a cluster."""

    name = "ray"

    def __init__(self, address: str) -> None:
        try:
            import httpx
        except ImportError:
            raise MissingExtraError("httpx", "service", source="--actuator ray") from None
        self._http = httpx.Client(base_url=address, timeout=WITHIN_S, trust_env=False)
        self._error = httpx.HTTPError

    def close(self) -> None:
        """Leave its connections."""
        self._http.close()

    def begin(self, launch: BatchLaunch) -> None:
        """Its id is the order's key, which Ray takes once."""
        told = {
            "submission_id": launch.key,
            "entrypoint": shlex.join(launch.words),
            "runtime_env": {"env_vars": dict(launch.environment)},
            "metadata": {"job_submission_id": launch.key},
            "entrypoint_resources": {launch.shares[0].domain: DRIVER},
        }
        with suppress(_ThereError):  # an answer that was lost: this is the order that was begun
            self._ask("POST", "/api/jobs/", told)

    def jobs(self) -> Sequence[BatchJob]:
        """All that the head remembers."""
        return jobs_of(self._ask("GET", "/api/jobs/"))

    def usable(self, domains: Sequence[str]) -> dict[str, int]:
        """Of their resources those of nodes that live."""
        return resources_of(self._ask("GET", NODES), domains)

    def end(self, job: BatchJob) -> None:
        """Signals, then kills."""
        self._ask("POST", f"/api/jobs/{job.id}/stop")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        try:
            answer = self._http.request(method, path, json=body)
            if answer.status_code < 300:
                return answer.json()
        except (self._error, ValueError) as error:
            raise ActuatorError(f"Ray does not answer: {error}"[:300]) from None
        lines = [line for line in answer.text.splitlines() if line.strip(" .")]
        told = f"Ray: {lines[-1].strip() if lines else 'no reason given'}"[:300]
        if answer.status_code >= 500:
            raise (_ThereError if "already exists" in told else ActuatorError)(told)
        raise LaunchRefusedError(told)


class _ThereError(HippoError):
    """It has a job of that id."""


def jobs_of(rows: Any) -> list[BatchJob]:
    """What the address lists."""
    found = []
    for row in rows:
        if not (key := row.get("submission_id")):
            continue  # a driver that nobody submitted
        state = STATES.get(row["status"], FAILED)
        told = str(row.get("message") or row["status"].lower()).strip()[:300] if state != RUNNING else ""
        found.append(BatchJob(key, key, state, told))
    return found


def resources_of(answer: Any, domains: Sequence[str]) -> dict[str, int]:
    """GPUs of domains, of the nodes that the address lists as alive."""
    rows = answer["data"]["result"]["result"]
    has = [(row["state"] == "ALIVE", row.get("resources_total") or {}) for row in rows]
    return {
        each: sum(int(row.get(each, 0)) for lives, row in has if lives)
        for each in domains
        if any(each in row for _, row in has)
    }


def ray(folder: Path | None = None, cluster: str | Path | None = None) -> BatchActuator:
    """The actuator. ``InputError``: what should be an address is none."""
    address = os.environ.get(ADDRESS, HERE)
    if not address.startswith(("http://", "https://")):
        raise InputError("is no address", source=ADDRESS, value=address[:100], remedy="write http://HOST:8265")
    return BatchActuator(RayEngine(address), folder, cluster)
