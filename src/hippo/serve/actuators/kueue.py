"""Kubernetes: a JobSet an order, which Kueue admits; with MultiKueue one a domain, and hippo names its cluster.

One replicated job a domain, on nodes whose label ``HIPPO_KUEUE_LABEL`` is the domain's name. Where domains are clusters
(``HIPPO_KUEUE_CLUSTERS``), MultiKueue never splits a JobSet: a job of several domains is several of them, and hippo is
the external dispatcher: it writes the cluster that was decided into ``.status.nominatedClusterNames`` of each Workload.
JobSet v1alpha2, Kueue v1beta2.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hippo.export.jobset import GPU, QUEUE_API
from hippo.serve.actuators.api_server import ApiAddress, ApiServer, needed
from hippo.serve.actuators.base import ActuatorError
from hippo.serve.actuators.batch import (
    ALIVE,
    KEPT_VARIABLES,
    PENDING,
    TAKEN,
    BatchActuator,
    BatchJob,
    BatchLaunch,
    DomainNodes,
    LaunchRefusedError,
)
from hippo.serve.actuators.placing import renamed
from hippo.serve.records import DONE, FAILED, RUNNING

NAMESPACE, QUEUE, CLAIM = "HIPPO_KUEUE_NAMESPACE", "HIPPO_KUEUE_QUEUE", "HIPPO_KUEUE_CLAIM"
IMAGE, LABEL, CLUSTERS = "HIPPO_KUEUE_IMAGE", "HIPPO_KUEUE_LABEL", "HIPPO_KUEUE_CLUSTERS"
REGION = "topology.kubernetes.io/region"
JOBSET_API = "jobset.x-k8s.io/v1alpha2"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
DISPATCHER = "hippo/dispatcher"
"""What Kueue's configuration calls hippo: ``multiKueue.dispatcherName``. Any name does that is none of Kueue's own."""
OWNER = "kueue-admission"
"""Kueue lets go of the field when it admits only where it is its owner: hippo writes under its name."""
KEY, PARTS, CLUSTER = "hippo/key", "hippo/parts", "hippo/cluster"
"""Of an order's key, label; how many JobSets are the job, and to which cluster one goes, annotations."""
KEPT_S = 86_400  # that a JobSet stays after its end
DNS_LABEL, LONGEST = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?"), 63
POD_SUFFIX = 6  # characters

Document = dict[str, Any]
Told = Mapping[str, Any]


@dataclass(frozen=True)
class KueueSite:
    """Where JobSets go, and what each of them is given. ``clusters``: of domains, under MultiKueue; else empty."""

    address: ApiAddress
    namespace: str
    queue: str
    claim: str  # the volume on which the folders of jobs lie
    image: str = ""  # of jobs that name none
    label: str = REGION
    clusters: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_environment(cls) -> KueueSite:
        """``InputError``: a variable is missing, or says what cannot be."""
        return cls(
            ApiAddress.of_environment(),
            needed(NAMESPACE, "name the namespace of the jobs"),
            needed(QUEUE, "name a LocalQueue of that namespace"),
            needed(CLAIM, "name a PersistentVolumeClaim of that namespace on which HIPPO_RUNS lies"),
            os.environ.get(IMAGE, ""),
            os.environ.get(LABEL, "") or REGION,
            renamed(CLUSTERS, "CLUSTER"),
        )


# ------------------------------------------------------------------------------------------------------------ manifests
def jobsets(launch: BatchLaunch, site: KueueSite) -> list[Document]:
    """What is posted for an order. ``LaunchRefusedError``: names are too long, or no image is named."""
    if not (launch.image or site.image):
        raise LaunchRefusedError(NO_IMAGE)
    groups = [(each,) for each in launch.shares] if site.clusters else [launch.shares]
    found = []
    for at, shares in enumerate(groups):
        name = f"{launch.key}-{at}" if site.clusters else launch.key
        about: Document = {"name": name, "namespace": site.namespace}
        about["labels"] = {KEY: launch.key, "kueue.x-k8s.io/queue-name": site.queue}
        about["annotations"] = {PARTS: str(len(groups))}
        spec: Document = {"suspend": True, "failurePolicy": {"maxRestarts": 0}, "ttlSecondsAfterFinished": KEPT_S}
        if site.clusters:
            about["annotations"][CLUSTER] = site.clusters.get(shares[0].domain, shares[0].domain)
            spec["managedBy"] = MULTIKUEUE
        spec["replicatedJobs"] = [_part(launch, site, name, part, share) for part, share in enumerate(shares)]
        longest = max(len(f"{name}-d{part}-0-{share.nodes - 1}") for part, share in enumerate(shares)) + POD_SUFFIX
        if not DNS_LABEL.fullmatch(name) or longest > LONGEST:
            raise LaunchRefusedError(f"{name} is no name that Kubernetes takes for a JobSet and its pods")
        found.append({"apiVersion": JOBSET_API, "kind": "JobSet", "metadata": about, "spec": spec})
    return found


NO_IMAGE = f"job: run.image: is missing. To fix: name the image that the command runs in, or set {IMAGE}"


def _part(launch: BatchLaunch, site: KueueSite, name: str, part: int, share: DomainNodes) -> Document:
    """The nodes of a domain: an Indexed job, a pod a node."""
    given = {each: text for each, text in launch.environment.items() if not _of_this_machine(each, text)}
    given |= {"HIPPO_DOMAIN": share.domain, "HIPPO_NODES": ",".join(str(each.nodes) for each in launch.shares)}
    if not site.clusters:  # pods of several clusters do not see each other by name
        given["HIPPO_FIRST_HOST"] = f"{name}-d0-0-0.{name}"
    pod: Document = {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "hippo",
                "image": launch.image or site.image,
                "command": [_literal(word) for word in launch.words],
                "workingDir": str(launch.home),
                "env": [{"name": each, "value": _literal(text)} for each, text in given.items()],
                "resources": {"limits": {GPU: share.gpus_per_node}},
                "volumeMounts": [{"name": "runs", "mountPath": str(launch.home.parent)}],
            }
        ],
        "volumes": [{"name": "runs", "persistentVolumeClaim": {"claimName": site.claim}}],
    }
    if not site.clusters:
        pod["nodeSelector"] = {site.label: share.domain}
    labels = {"labels": {KEY: launch.key}}
    count = {"parallelism": share.nodes, "completions": share.nodes, "completionMode": "Indexed", "backoffLimit": 0}
    job = {**count, "template": {"metadata": labels, "spec": pod}}
    return {"name": f"d{part}", "replicas": 1, "template": {"metadata": labels, "spec": job}}


def _of_this_machine(name: str, text: str) -> bool:
    """An image has its own."""
    return name in KEPT_VARIABLES and os.environ.get(name) == text


def _literal(text: str) -> str:
    """Kubernetes reads ``$(NAME)`` and ``$$`` in words and variables; they are meant as they stand."""
    return text.replace("$", "$$")


# ----------------------------------------------------------------------------------------------------- what is the case
def jobs_of(
    sets: Sequence[Told], workloads: Sequence[Told], pods: Sequence[Told], jobs: Sequence[Told] = ()
) -> list[BatchJob]:
    """The jobs that JobSets are, by their own conditions and those of their Workloads; and what is left of others."""
    owned = {owner.get("uid"): each for each in workloads for owner in each["metadata"].get("ownerReferences") or ()}
    parts: dict[str, list[tuple[str, str]]] = {}
    whole: dict[str, int] = {}
    for each in sets:
        about = each["metadata"]
        key = about["labels"][KEY]
        mine = [pod for pod in pods if pod["metadata"]["labels"].get(SET_OF_POD) == about["name"]]
        parts.setdefault(key, []).append(state_of(each, owned.get(about["uid"]), mine))
        whole[key] = int((about.get("annotations") or {}).get(PARTS, 1))
    found = [_together(key, states, whole[key]) for key, states in parts.items()]
    ending = {each["metadata"]["labels"][KEY] for each in (*jobs, *pods)} - parts.keys()
    return found + [BatchJob(key, key, RUNNING, "is gone; its jobs and pods end") for key in sorted(ending)]


SET_OF_POD = "jobset.sigs.k8s.io/jobset-name"


def _together(key: str, parts: Sequence[tuple[str, str]], whole: int) -> BatchJob:
    """A job of several JobSets is as its worst."""
    states = [state for state, _ in parts]
    why = dict(reversed(parts))  # of several, the first
    if FAILED in states:
        return BatchJob(key, key, TAKEN if set(states) & {*ALIVE, TAKEN} else FAILED, why[FAILED])
    if TAKEN in states:
        return BatchJob(key, key, TAKEN, why[TAKEN])
    if len(parts) < whole:  # the service was killed between two of them: no order has this key, and the next ends it
        return BatchJob(key, f"half-{key.partition('-')[2]}", PENDING, f"{len(parts)} of {whole} JobSets are there")
    for state in (PENDING, RUNNING):
        if state in states:
            return BatchJob(key, key, state, why[state])
    return BatchJob(key, key, DONE)


def state_of(jobset: Told, workload: Told | None, pods: Sequence[Told]) -> tuple[str, str]:
    """State and reason of one JobSet."""
    over = _conditions(jobset)
    if "Completed" in over:
        return DONE, ""
    if "Failed" in over:
        codes = sorted({code for pod in pods for code in _exit_codes(pod) if code})
        ended = f"; pods ended with {', '.join(map(str, codes))}" if codes else ""
        return FAILED, over["Failed"][1] + ended
    if workload is None:
        return PENDING, "Kueue has made no Workload of it"
    is_so = _conditions(workload)
    if "Finished" in is_so:
        # The JobSet itself has not failed: Kueue may make another Workload of it.
        return (DONE, "") if is_so["Finished"][0] == "Succeeded" else (TAKEN, is_so["Finished"][1])
    if "Evicted" in is_so:
        return TAKEN, f"evicted by Kueue: {is_so['Evicted'][1]}"
    status = workload.get("status") or {}
    if "Admitted" in is_so:
        wanted = (jobset["metadata"].get("annotations") or {}).get(CLUSTER)
        runs_in = status.get("clusterName") or wanted
        if wanted and runs_in != wanted:  # Kueue's own dispatcher is at work
            asks = "is multiKueue.dispatcherName hippo's?"
            return RUNNING, f"runs in {runs_in}, was decided for {wanted}: {asks}"
        return RUNNING, _unready(jobset, pods)
    if "QuotaReserved" in is_so:
        checks = [f"{each['name']} {each['state'].lower()}" for each in status.get("admissionChecks") or ()]
        sent = ", ".join(status.get("nominatedClusterNames") or ())
        return PENDING, f"has quota; checks: {', '.join(checks) or 'none'}" + (f"; nominated: {sent}" if sent else "")
    said = [each for each in status.get("conditions") or () if each["type"] == "QuotaReserved"]
    return PENDING, f"has no quota: {said[0]['reason']}: {said[0]['message']}"[:300] if said else "has no quota yet"


def _conditions(document: Told) -> dict[str, tuple[str, str]]:
    """Those that hold: reason, and reason with its message."""
    rows = (document.get("status") or {}).get("conditions") or ()
    held = [each for each in rows if each["status"] == "True"]
    return {each["type"]: (each["reason"], f"{each['reason']}: {each['message']}"[:300]) for each in held}


def _unready(jobset: Told, pods: Sequence[Told]) -> str:
    """Why what is admitted does not run; empty: all of it does."""
    rows = (jobset.get("status") or {}).get("replicatedJobsStatus") or ()
    ready, whole = sum(each["ready"] + each["succeeded"] for each in rows), len(jobset["spec"]["replicatedJobs"])
    waits = sorted({each for pod in pods for each in _waits(pod)})
    if ready >= whole:
        return ""
    return f"admitted; {ready} of {whole} parts are ready" + (f": {', '.join(waits)}" if waits else "")


def _containers(pod: Told) -> list[Told]:
    return [each.get("state") or {} for each in (pod.get("status") or {}).get("containerStatuses") or ()]


def _exit_codes(pod: Told) -> list[int]:
    return [each["terminated"]["exitCode"] for each in _containers(pod) if "terminated" in each]


def _waits(pod: Told) -> list[str]:
    return [each["waiting"]["reason"] for each in _containers(pod) if (each.get("waiting") or {}).get("reason")]


# ----------------------------------------------------------------------------------------------------------- dispatcher
def nomination(workload: Told, clusters: Sequence[str], multikueue: Sequence[str]) -> Document | None:
    """What is written of a Workload that has quota and waits at a check of ``multikueue``; None: nothing, as it is not
    its turn, or is nominated already (by hippo, or by a dispatcher of Kueue's, with which there is no arguing)."""
    status, about, is_so = workload.get("status") or {}, workload["metadata"], _conditions(workload)
    waits = any(
        each["name"] in multikueue and each["state"] == "Pending" for each in status.get("admissionChecks") or ()
    )
    if not waits or "QuotaReserved" not in is_so or "Finished" in is_so:
        return None
    if status.get("clusterName") or status.get("nominatedClusterNames"):
        return None
    # All that Kueue owns is said again: what an owner leaves out of what it applies is taken away. The version lets
    # the server refuse it where Kueue has written meanwhile.
    kept = {name: value for name, value in status.items() if name != "reclaimablePods"}
    named = {each: about[each] for each in ("name", "namespace", "uid", "resourceVersion")}
    body = {"apiVersion": QUEUE_API, "kind": "Workload", "metadata": named}
    return {**body, "status": {**kept, "nominatedClusterNames": list(clusters)}}


class KueueEngine:
    """Asks the API server of a cluster, or of the manager of several."""

    name = "kueue"

    def __init__(self, site: KueueSite) -> None:
        self.site, self.server = site, ApiServer(site.address)
        self._sets = f"/apis/{JOBSET_API}/namespaces/{site.namespace}/jobsets"
        self._workloads = f"/apis/{QUEUE_API}/namespaces/{site.namespace}/workloads"
        self._jobs = f"/apis/batch/v1/namespaces/{site.namespace}/jobs"
        self._pods = f"/api/v1/namespaces/{site.namespace}/pods"
        self._checks: dict[str, bool] = {}  # whether it is MultiKueue's; a check never changes hands

    def close(self) -> None:
        """Leave its connections."""
        self.server.close()

    def begin(self, launch: BatchLaunch) -> None:
        """Its name is the order's key, which Kubernetes takes once."""
        posted: list[str] = []
        for each in jobsets(launch, self.site):
            try:
                # 409: it is there already
                self.server.ask("POST", self._sets, each, fine=(409,), asked={"fieldValidation": "Strict"})
            except LaunchRefusedError:
                for name in posted:  # no half of a job
                    self._delete(name)
                raise
            posted.append(each["metadata"]["name"])

    def jobs(self) -> Sequence[BatchJob]:
        """All that there is; whoever looks nominates too."""
        # Jobs make pods, JobSets make jobs: so ordered, what has ended while they were read cannot seem to be gone.
        jobs = self.server.listed(self._jobs, KEY)
        pods = self.server.listed(self._pods, KEY)
        sets = self.server.listed(self._sets, KEY)
        workloads = self.server.listed(self._workloads) if any(not _is_over(each) for each in sets) else []
        try:
            found = jobs_of(sets, workloads, pods, jobs)
            failed = self._dispatch(sets, workloads)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ActuatorError(
                f"the API server told what is no JobSet, Workload, job or pod: {error!r}"[:300]
            ) from None
        broken = {each["metadata"]["labels"][KEY] for each in sets if "Failed" in _conditions(each)}
        for each in sets:
            if each["metadata"]["labels"][KEY] in broken and not _is_over(each):
                with suppress(ActuatorError):  # as one JobSet does with its own parts; else at the next look
                    self._delete(each["metadata"]["name"])
        told = {each.id: f"{each.told}; not nominated: {failed[each.id]}" for each in found if each.id in failed}
        return [replace(each, told=told.get(each.id, each.told)) for each in found]

    def end(self, job: BatchJob) -> None:
        """Let go of all of it."""
        for each in self.server.listed(self._sets, f"{KEY}={job.id}"):
            self._delete(each["metadata"]["name"])

    def _delete(self, name: str) -> None:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        self.server.ask("DELETE", f"{self._sets}/{name}", body, fine=(404,))

    def _dispatch(self, sets: Sequence[Told], workloads: Sequence[Told]) -> dict[str, str]:
        """Nominate the clusters that were decided; what cannot be written is at the next look: of a key, why."""
        failed: dict[str, str] = {}
        owners = {each["metadata"]["uid"]: each["metadata"] for each in sets}
        for each in workloads if self.site.clusters else ():
            about = each["metadata"]
            uids = [owner["uid"] for owner in about.get("ownerReferences") or ()]
            owner = next((owners[uid] for uid in uids if uid in owners), None)
            if owner is None or _is_over(each) or not (cluster := (owner.get("annotations") or {}).get(CLUSTER)):
                continue
            try:
                checks = [check["name"] for check in (each.get("status") or {}).get("admissionChecks") or ()]
                body = nomination(each, [cluster], [name for name in checks if self._is_multikueue(name)])
                if body is not None:
                    path, kind = f"{self._workloads}/{about['name']}/status", "application/apply-patch+yaml"
                    self.server.ask("PATCH", path, body, kind=kind, asked={"fieldManager": OWNER, "force": "true"})
            except ActuatorError as error:
                failed[owner["labels"][KEY]] = str(error)
        return failed

    def _is_multikueue(self, check: str) -> bool:
        if check not in self._checks:
            found = self.server.ask("GET", f"/apis/{QUEUE_API}/admissionchecks/{check}")
            self._checks[check] = found["spec"]["controllerName"] == MULTIKUEUE
        return self._checks[check]


def _is_over(document: Told) -> bool:
    return bool(_conditions(document).keys() & {"Completed", "Failed", "Finished"})


class Kueue(BatchActuator):
    """The actuator. ``site``: else as the environment says."""

    def __init__(
        self, folder: Path | None = None, cluster: str | Path | None = None, site: KueueSite | None = None
    ) -> None:
        self.site = site or KueueSite.of_environment()
        super().__init__(KueueEngine(self.site), folder, cluster)

    def lacks(self, spec: Told) -> str:
        """A command to start, and an image to start it in."""
        return super().lacks(spec) or ("" if self.site.image or spec["run"].get("image") else NO_IMAGE)
