"""A Kubernetes API server that is none: what it takes it reads by the published schemas, JobSet's controller and Kueue
are as simple as they can be, and pods are processes of this machine.

Facts of the API, by where they are published (2026-08):
- JobSet v1alpha2: the whole schema, ``tests/export/crds.json``; names that its webhook refuses, and messages of its
  conditions: kubernetes-sigs/jobset, pkg/webhooks/jobset_webhook.go, pkg/constants/constants.go.
- Workload v1beta2: ``WORKLOAD`` below.
- Lists, Status objects, selectors, preconditions, owners of what is applied: the API conventions of Kubernetes and
  "Server-Side Apply" of its documentation.
- Who is MultiKueue's, and what is cleared when it admits: kubernetes-sigs/kueue, pkg/workload/patching/patching.go,
  apis/kueue/v1beta2/multikueue_types.go, site/content/en/docs/concepts/multikueue.md.
"""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import RLock, Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.export.crds import faults

Document = dict[str, Any]
SPACE, QUEUE, TOKEN = "training", "gpus", "a-token-of-a-service-account"
CHECK = "to-the-clusters"
OWNER = "kueue-admission"  # kubernetes-sigs/kueue, pkg/constants/constants.go: AdmissionName
NOW = "2026-08-22T12:00:00Z"

CONDITION: Document = {  # apimachinery, meta/v1 Condition, as config/components/crd/bases of both projects have it
    "type": "object",
    "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    "properties": {
        "type": {"type": "string"},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {"type": "string", "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", "maxLength": 1024},
        "message": {"type": "string", "maxLength": 32768},
        "lastTransitionTime": {"type": "string"},
        "observedGeneration": {"type": "integer"},
    },
}
WORKLOAD: Document = {  # kubernetes-sigs/kueue, config/components/crd/bases/kueue.x-k8s.io_workloads.yaml, v1beta2
    "type": "object",
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": {"type": "object"},  # hippo writes and reads none of it
        "status": {
            "type": "object",
            "properties": {
                "conditions": {"type": "array", "items": CONDITION},  # .status.conditions
                "admission": {"type": "object"},  # .status.admission: passed on as it is
                "accumulatedPastExecutionTimeSeconds": {"type": "integer"},  # likewise
                "requeueState": {"type": "object"},  # likewise
                "reclaimablePods": {"type": "array", "items": {"type": "object"}},  # another owner's
                "admissionChecks": {  # .status.admissionChecks
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["lastTransitionTime", "message", "name", "state"],
                        "properties": {
                            "name": {"type": "string", "maxLength": 316},
                            "state": {"type": "string", "enum": ["Pending", "Ready", "Retry", "Rejected"]},
                            "message": {"type": "string", "maxLength": 32768},
                            "lastTransitionTime": {"type": "string"},
                        },
                    },
                },
                "nominatedClusterNames": {  # .status.nominatedClusterNames: at most 20
                    "type": "array",
                    "items": {"type": "string", "maxLength": 256},
                },
                "clusterName": {"type": "string", "maxLength": 256},  # .status.clusterName
            },
        },
    },
}


class Refusal(Exception):
    """A Status object."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        self.document |= {"message": message, "reason": reason, "code": code}  # type: ignore[dict-item]


@dataclass
class Trouble:
    """What goes wrong with the next requests of a kind: a status, or one of ``lost`` (done, but unanswered), ``cut``
    (not done), ``late``, ``nonsense``, ``list``."""

    method: str
    where: str
    what: int | str
    left: int = 1


@dataclass
class Pod:
    about: Document
    node: str  # domain, or cluster
    process: subprocess.Popen[bytes]
    gone_s: float | None = None  # when it was deleted

    def code(self) -> int | None:
        found = self.process.poll()
        return found if found is None or found >= 0 else 128 - found

    def kill(self) -> None:
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGTERM)


@dataclass
class FakeCluster:
    """``clusters``: those that MultiKueue knows; none: jobs run here, on nodes of ``domains``."""

    folder: Path
    domains: tuple[str, ...] = ("oslo", "lyon")
    clusters: tuple[str, ...] = ()
    quota: bool = True  # whether Kueue finds room
    page: int = 500  # objects of a list that are answered at once
    lingers_s: float = 0.0  # that a job and a pod take to end
    all_at_once: bool = False  # MultiKueue's own dispatcher is at work
    sets: dict[str, Document] = field(default_factory=dict)
    workloads: dict[str, Document] = field(default_factory=dict)  # by uid of their JobSet
    pods: list[Pod] = field(default_factory=list)
    ending: list[tuple[Document, float]] = field(default_factory=list)  # jobs of JobSets that are gone, and until when
    owners: dict[str, dict[str, set[str]]] = field(default_factory=dict)  # what of its status each manager applied
    troubles: list[Trouble] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    posted: list[Document] = field(default_factory=list)
    beside: list[int] = field(default_factory=list)  # jobs and pods that were there when each was posted
    lock: Any = field(default_factory=RLock)
    count: int = 0
    url: str = ""

    # ----------------------------------------------------------------------------------------------- what a server does
    def answer(self, method: str, path: str, query: dict[str, str], headers: Any, body: Any) -> Any:
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            raise Refusal(401, "Unauthorized", "Unauthorized")
        self.turn()
        sets = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{SPACE}/jobsets"
        workloads = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{SPACE}/workloads"
        if (method, path) == ("POST", sets):
            return 201, self.create(body)
        if (method, path) == ("GET", sets):
            return 200, self.listed("JobSetList", list(self.sets.values()), query)
        if method == "DELETE" and path.startswith(f"{sets}/"):
            assert body["propagationPolicy"] == "Background"
            return 200, self.delete(path.rpartition("/")[2])
        if (method, path) == ("GET", workloads):
            return 200, self.listed("WorkloadList", list(self.workloads.values()), query)
        if method == "PATCH" and path.startswith(f"{workloads}/") and path.endswith("/status"):
            assert headers["Content-Type"] == "application/apply-patch+yaml"
            uid = next((uid for uid, each in self.workloads.items() if path.split("/")[-2] == named(each)), None)
            if uid is None:
                raise Refusal(404, "NotFound", "workloads not found")
            return 200, self.applied(uid, body, query["fieldManager"])
        if (method, path) == ("GET", f"/api/v1/namespaces/{SPACE}/pods"):
            here = [] if self.clusters else self.pods
            return 200, self.listed("PodList", [self.told(each) for each in here], query)
        if (method, path) == ("GET", f"/apis/batch/v1/namespaces/{SPACE}/jobs"):
            return 200, self.listed("JobList", [] if self.clusters else self.jobs(), query)
        if (method, path) == ("GET", f"/apis/kueue.x-k8s.io/v1beta2/admissionchecks/{CHECK}"):
            check = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": CHECK}}
            return 200, {**check, "spec": {"controllerName": "kueue.x-k8s.io/multikueue"}}
        raise Refusal(404, "NotFound", "the server could not find the requested resource")

    def listed(self, kind: str, items: list[Document], query: dict[str, str]) -> Document:
        word, is_told, value = query.get("labelSelector", "").partition("=")
        labels = [each["metadata"].get("labels", {}) for each in items]
        fit = [not word or (found.get(word) == value if is_told else word in found) for found in labels]
        items = [each for each, fits in zip(items, fit, strict=True) if fits]
        first, most = int(query.get("continue", 0)), min(self.page, int(query.get("limit", 500)))
        about = {"resourceVersion": str(self.count)}
        about |= {"continue": str(first + most)} if first + most < len(items) else {}
        return {"kind": kind, "apiVersion": "v1", "metadata": about, "items": items[first : first + most]}

    def version(self) -> str:
        self.count += 1
        return str(self.count)

    def create(self, body: Document) -> Document:
        name = named(body)
        if name in self.sets:
            raise Refusal(409, "AlreadyExists", f'jobsets.jobset.x-k8s.io "{name}" already exists')
        if wrong := [*faults(body), *wrong_names(body)]:
            raise Refusal(422, "Invalid", f'JobSet.jobset.x-k8s.io "{name}" is invalid: {"; ".join(wrong)}')
        assert body["spec"]["suspend"] is True
        assert body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == QUEUE
        uid = f"uid-{self.version()}"
        self.beside.append(len(self.pods) + len(self.jobs()))
        made = deepcopy(body)
        made["metadata"] |= {"uid": uid, "resourceVersion": self.version(), "creationTimestamp": NOW}
        self.sets[name] = made
        self.posted.append(made)
        about: Document = {"name": f"jobset-{name}-{uid[-5:]}", "namespace": SPACE, "uid": f"w{uid}"}
        about |= {"resourceVersion": self.version(), "labels": {"kueue.x-k8s.io/job-uid": uid}}
        about["ownerReferences"] = [{"kind": "JobSet", "name": name, "uid": uid, "controller": True}]
        self.workloads[uid] = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": about}
        self.workloads[uid] |= {"spec": {"active": True, "queueName": QUEUE}, "status": {}}
        self.owners[uid] = {}
        self.put(uid, ("QuotaReserved", "False", "WaitingForQuota", "insufficient unused quota"))
        return made

    def delete(self, name: str) -> Document:
        if name not in self.sets:
            raise Refusal(404, "NotFound", f'jobsets.jobset.x-k8s.io "{name}" not found')
        self.ending += [(each, time.monotonic() + self.lingers_s) for each in self.jobs_of(self.sets[name])]
        self.workloads.pop(self.sets.pop(name)["metadata"]["uid"])
        self.kill(name)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def jobs_of(self, jobset: Document) -> list[Document]:
        """What JobSet's controller makes of it: jobs with the labels of their template."""
        parts = jobset["spec"]["replicatedJobs"]
        about = [
            {"name": f"{named(jobset)}-{each['name']}-0", "labels": each["template"]["metadata"]["labels"]}
            for each in parts
        ]
        return [{"metadata": each} for each in about]

    def jobs(self) -> list[Document]:
        found = [job for each in self.sets.values() for job in self.jobs_of(each)]
        return found + [job for job, end_s in self.ending if time.monotonic() < end_s]

    def kill(self, name: str) -> None:
        for each in self.pods:
            if each.about["labels"]["jobset.sigs.k8s.io/jobset-name"] == name and each.gone_s is None:
                each.gone_s = time.monotonic()
                each.kill()

    def applied(self, uid: str, body: Document, manager: str) -> Document:
        """Server-side apply of a status, by force: what its owner leaves out goes, unless another owns it too."""
        found, status = self.workloads[uid], dict(body["status"])
        version = body["metadata"].get("resourceVersion")
        if version is not None and version != found["metadata"]["resourceVersion"]:
            raise Refusal(409, "Conflict", "the object has been modified; apply to the latest version")
        owned = self.owners[uid]
        left = owned.get(manager, set()) - status.keys()
        held = {name for other, names in owned.items() if other != manager for name in names}
        new = {name: value for name, value in found["status"].items() if name not in left - held} | status
        wrong = faults({**found, "status": new}, WORKLOAD)
        if new.get("clusterName") and new.get("nominatedClusterNames"):
            wrong.append("status: clusterName and nominatedClusterNames are mutually exclusive")
        if len(new.get("nominatedClusterNames", ())) > 20:
            wrong.append("status.nominatedClusterNames: Too many")
        if wrong:
            raise Refusal(422, "Invalid", "; ".join(wrong))
        for other, names in owned.items():
            if other != manager:
                names -= {name for name in names & status.keys() if found["status"].get(name) != status[name]}
        owned[manager] = set(status)
        found["status"], found["metadata"]["resourceVersion"] = new, self.version()
        return found

    # ------------------------------------------------------------------------------------------------ what Kueue does
    def put(self, uid: str, *conditions: tuple[str, str, str, str], **more: Any) -> None:
        """Kueue writes, as the owner that it is: all that it owns, with what changes; None: no more."""
        status = {name: value for name, value in self.workloads[uid]["status"].items() if name != "reclaimablePods"}
        known = {each["type"]: each for each in status.get("conditions", ())}
        names = ("type", "status", "reason", "message", "lastTransitionTime")
        known |= {row[0]: dict(zip(names, (*row, NOW), strict=True)) for row in conditions}
        status |= {"conditions": list(known.values()), **more}
        body = {"metadata": {}, "status": {name: value for name, value in status.items() if value is not None}}
        self.applied(uid, body, OWNER)

    def is_so(self, uid: str, kind: str) -> bool:
        rows = self.workloads[uid]["status"].get("conditions", ())
        return any(each["type"] == kind and each["status"] == "True" for each in rows)

    def evict(self, name: str, reason: str, message: str, *, quota: bool = False) -> None:
        """Take the devices of a job away; ``quota``: whether there is room for it again."""
        with self.lock:
            self.quota = quota
            uid = self.sets[name]["metadata"]["uid"]
            rows = [("Evicted", "True", reason, message), ("Admitted", "False", "NoReservation", message)]
            rows.append(("QuotaReserved", "False", "PendingEvaluation", message))
            self.put(uid, *rows, admission=None, clusterName=None, nominatedClusterNames=None, admissionChecks=None)
            self.kill(name)

    def turn(self) -> None:
        """What the controllers would have done by now."""
        now_s = time.monotonic()
        gone = [each for each in self.pods if each.gone_s is not None and each.code() is not None]
        gone = [each for each in gone if now_s >= (each.gone_s or 0.0) + self.lingers_s]
        self.pods = [each for each in self.pods if each not in gone]
        for name, each in self.sets.items():
            uid = each["metadata"]["uid"]
            if not self.is_so(uid, "Finished"):
                self.admit(uid)
                self.run(name, each)

    def admit(self, uid: str) -> None:
        status = self.workloads[uid]["status"]
        if self.quota and not self.is_so(uid, "QuotaReserved"):
            rows = [("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue gpus")]
            rows += [("Evicted", "False", "QuotaReserved", "Previously evicted")] if self.is_so(uid, "Evicted") else []
            more: Document = {"admission": {"clusterQueue": "gpus", "podSetAssignments": []}}
            if self.clusters:
                more["admissionChecks"] = [check("Pending", "")]
                more |= {"nominatedClusterNames": list(self.clusters)} if self.all_at_once else {}
            self.put(uid, *rows, **more)
        elif self.is_so(uid, "QuotaReserved") and not self.is_so(uid, "Admitted"):
            row = ("Admitted", "True", "Admitted", "The workload is admitted")
            there = [each for each in status.get("nominatedClusterNames", ()) if each in self.clusters]
            if not self.clusters:
                self.put(uid, row)
            elif there:
                with suppress(Refusal):  # whoever else owns the nomination keeps Kueue from admitting
                    more = {"nominatedClusterNames": None, "clusterName": there[0]}
                    self.put(uid, row, admissionChecks=[check("Ready", f"got a reservation on {there[0]}")], **more)

    # ----------------------------------------------------------------------------------- what JobSet's controller does
    def run(self, name: str, jobset: Document) -> None:
        uid = jobset["metadata"]["uid"]
        mine = [each for each in self.pods if each.about["labels"]["jobset.sigs.k8s.io/jobset-name"] == name]
        mine = [each for each in mine if each.gone_s is None]
        if self.is_so(uid, "Admitted") and not mine:
            mine = self.begin(name, jobset)
        codes, parts = [each.code() for each in mine], jobset["spec"]["replicatedJobs"]
        jobset["spec"]["suspend"] = bool(self.clusters) or not self.is_so(uid, "Admitted")
        rows = [self.part(each, mine) for each in parts]
        over = ""
        if any(codes):
            over = "Failed"
            told = ("FailedJobs", f"jobset failed due to one or more job failures (first failed job: {name}-d0-0)")
        elif parts and all(row["succeeded"] for row in rows):
            over, told = "Completed", ("AllJobsCompleted", "jobset completed successfully")
        jobset["status"] = {"restarts": 0, "replicatedJobsStatus": rows, "conditions": []}
        if over:
            row = {"type": over, "status": "True", "reason": told[0], "message": told[1], "lastTransitionTime": NOW}
            jobset["status"] |= {"conditions": [row], "terminalState": over}
            word = "Succeeded" if over == "Completed" else "Failed"
            self.put(uid, ("Finished", "True", word, told[1]))
            for each in mine:
                each.kill()

    def part(self, part: Document, pods: list[Pod]) -> Document:
        mine = [each for each in pods if each.about["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] == part["name"]]
        codes = [each.code() for each in mine]
        whole = len(mine) == part["template"]["spec"]["completions"]
        counted = {"active": int(None in codes), "failed": int(any(codes)), "suspended": 0}
        counted |= {"succeeded": int(whole and all(code == 0 for code in codes))}
        counted |= {"ready": int(whole and counted["active"] and not counted["failed"])}
        return {"name": part["name"], **counted}

    def begin(self, name: str, jobset: Document) -> list[Pod]:
        made = []
        for part in jobset["spec"]["replicatedJobs"]:
            job = part["template"]["spec"]
            pod, status = job["template"]["spec"], self.workloads[jobset["metadata"]["uid"]]["status"]
            node = status["clusterName"] if self.clusters else next(iter(pod["nodeSelector"].values()))
            if node not in (self.clusters or self.domains):
                continue  # no node fits: it waits
            for at in range(job["completions"]):
                labels = dict(job["template"]["metadata"]["labels"])
                labels |= {"jobset.sigs.k8s.io/jobset-name": name}
                labels |= {"jobset.sigs.k8s.io/replicatedjob-name": part["name"]}
                about = {"name": f"{name}-{part['name']}-0-{at}-abcde", "labels": labels}
                made.append(Pod(about, node, self.process(pod["containers"][0], at)))
        self.pods += made
        return made

    def process(self, container: Document, at: int) -> subprocess.Popen[bytes]:
        """The command of a container, with what Kubernetes reads in its words."""
        env = {"PATH": os.environ["PATH"], "JOB_COMPLETION_INDEX": str(at)}
        for each in container["env"]:
            env[each["name"]] = expanded(each["value"], env)
        words = [expanded(word, env) for word in container["command"]]
        with open(self.folder / "pods.log", "ab") as log:
            return subprocess.Popen(
                words, env=env, cwd=container["workingDir"], stdout=log, stderr=log, start_new_session=True
            )

    def told(self, pod: Pod) -> Document:
        code = pod.code()
        state = {"running": {"startedAt": NOW}} if code is None else {"terminated": {"exitCode": code, "reason": "End"}}
        about = {**pod.about, **({} if pod.gone_s is None else {"deletionTimestamp": NOW})}
        phase = "Running" if code is None else ("Failed" if code else "Succeeded")
        return {"metadata": about, "status": {"phase": phase, "containerStatuses": [{"name": "hippo", "state": state}]}}

    def close(self) -> None:
        for each in self.pods:
            with suppress(OSError):
                os.killpg(each.process.pid, signal.SIGKILL)
            each.process.wait(20.0)

    def trouble(self, method: str, where: str, what: int | str, times: int = 1) -> None:
        self.troubles.append(Trouble(method, where, what, times))

    def met(self, method: str, path: str) -> int | str | None:
        for each in self.troubles:
            if each.method == method and each.where in path and each.left > 0:
                each.left -= 1
                return each.what
        return None


def named(document: Document) -> str:
    return str(document["metadata"]["name"])


def check(state: str, message: str) -> Document:
    return {"name": CHECK, "state": state, "message": message, "lastTransitionTime": NOW}


def wrong_names(jobset: Document) -> Iterator[str]:
    """Names of jobs and pods are labels of RFC 1035."""
    for part in jobset["spec"]["replicatedJobs"]:
        pods = part["template"]["spec"]["completions"]
        longest = f"{named(jobset)}-{part['name']}-{part['replicas'] - 1}-{pods - 1}-abcde"
        if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", longest) or len(longest) > 63:
            yield f"pod names generated for this JobSet are none: {longest}"


def expanded(text: str, known: dict[str, str]) -> str:
    """``$(NAME)`` is a variable that is known, ``$$`` a dollar (Kubernetes, pod spec: command, env)."""

    def read(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else known.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", read, text)


@contextmanager
def served(cluster: FakeCluster, context: ssl.SSLContext | None = None) -> Iterator[FakeCluster]:
    """It answers at ``cluster.url``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each body waits 40 ms for its head to be acknowledged

        def log_message(self, *words: Any) -> None:
            """To nobody."""

        def say(self, code: int, content: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_any(self) -> None:
            where = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with cluster.lock:
                cluster.asked.append((self.command, where.path))
                wrong = cluster.met(self.command, where.path)
                if wrong in ("late", "cut") or isinstance(wrong, int):
                    code, found = 200, {}
                else:
                    try:
                        told = json.loads(body) if body else None
                        code, found = cluster.answer(
                            self.command, where.path, dict(parse_qsl(where.query)), self.headers, told
                        )
                    except Refusal as refusal:
                        code, found = refusal.code, refusal.document
                content = json.dumps(found).encode()
            if wrong == "late":
                time.sleep(1.0)
            if wrong in ("late", "cut", "lost"):
                self.close_connection = True
                return
            if isinstance(wrong, int):
                code, content = wrong, json.dumps(Refusal(wrong, "Trouble", "as the test wishes").document).encode()
            content = {"nonsense": b"<html>", "list": b"[]"}.get(str(wrong), content)
            with suppress(OSError):
                self.say(code, content)

        do_GET = do_POST = do_DELETE = do_PATCH = do_any

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    cluster.url = f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_port}"
    try:
        yield cluster
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        cluster.close()
